//! `attack PROGRAM [NAME]...`: bad clients of our server, all attacks or those named.
//!
//! Each attack gets a fresh server. Meanwhile a well-behaved neighbour puts, reserves
//! and deletes jobs at a steady pace. An attack fails if the server refuses the
//! neighbour, grows more than the attack may cost, keeps memory, threads or descriptors
//! afterwards, answers the attackers wrongly, or does not end in order. How long
//! something takes is told and not judged. The status is 1 if an attack failed.
//!
//! The promises about memory hold for a program that was built without debugging: with
//! debugging, each thread needs more of its stack.

mod clients;

use std::path::PathBuf;
use std::process::{Command, ExitCode};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, sleep};
use std::time::{Duration, Instant};
use std::{env, fs};
use support::{Port, Server};

/// One way of being a bad client.
struct Attack {
    name: &'static str,
    options: &'static [&'static str],
    /// By how many bytes the server may grow meanwhile.
    growth: usize,
    run: fn(&Server),
}

const MB: usize = 1 << 20;

/// An attack leaves nothing behind: its connections are closed when it returns, and its
/// jobs and tubes are deleted. So the server has no reason to hold anything of it.
const ATTACKS: [Attack; 6] = [
    Attack {
        name: "lines, a byte at a time",
        options: &["--idle-timeout", "1"],
        growth: 16 * MB,
        run: clients::trickled_lines,
    },
    Attack {
        name: "jobs that nobody reads and that are then deleted",
        options: &[],
        growth: 60 * MB,
        run: clients::unread_jobs,
    },
    Attack {
        name: "the same, where jobs may take 20 MB",
        options: &["--max-memory", "20M"],
        growth: 60 * MB,
        run: clients::unread_jobs,
    },
    Attack {
        name: "jobs of all sizes, and then silence",
        options: &[],
        growth: 16 * MB,
        run: clients::silent_after_all_sizes,
    },
    Attack {
        name: "connections and resets",
        options: &[],
        growth: 16 * MB,
        run: clients::connections,
    },
    Attack {
        name: "tubes, listed and gone, and reserved jobs of one who goes",
        options: &[],
        growth: 40 * MB,
        run: clients::tubes_and_reserved_jobs,
    },
];

/// How much more a server may hold after an attack than before: allocators keep some
/// memory, and 32 workers wait for the next connections.
const LEFT_OVER: Held = Held {
    memory: 16 * MB,
    threads: 33,
    descriptors: 0,
};

/// How long a server may take to become calm.
const SETTLES: Duration = Duration::from_secs(30);

/// The time from one cycle of the neighbour to the next.
const PACE: Duration = Duration::from_millis(5);

fn main() -> ExitCode {
    let mut arguments = env::args().skip(1);
    let Some(program) = arguments.next().map(PathBuf::from) else {
        eprintln!("Usage: attack PROGRAM [NAME]...");
        return ExitCode::from(2);
    };
    let names: Vec<String> = arguments.collect();
    let wanted = |attack: &&Attack| names.is_empty() || names.iter().any(|it| it == attack.name);
    let outcomes: Vec<_> = thread::scope(|scope| {
        let program = &program;
        let start = |attack| scope.spawn(move || perform(attack, program));
        let threads: Vec<_> = ATTACKS.iter().filter(wanted).map(start).collect();
        threads.into_iter().map(|thread| thread.join()).collect()
    });
    let failed = outcomes.iter().filter(|outcome| outcome.is_err()).count();
    println!("{} attacks, {failed} failed", outcomes.len());
    ExitCode::from(u8::from(failed > 0))
}

/// Runs one attack on a server of its own. What the server must not do is a panic.
fn perform(attack: &Attack, program: &PathBuf) {
    let name = attack.name;
    let port = Port::reserve(0).expect("a free port");
    let mut command = Command::new(program);
    command.args(["-l", "127.0.0.1", "-p", &port.number.to_string()]);
    // As the systemd unit has it: the C library keeps no freed pieces for each thread.
    command.env("GLIBC_TUNABLES", "glibc.malloc.tcache_count=0");
    let server = Server::listening_on(command.args(attack.options), port);
    let is_over = AtomicBool::new(false);
    let (before, longest) = thread::scope(|scope| {
        let neighbour = scope.spawn(|| live_beside(&server, &is_over));
        sleep(100 * PACE);
        let before = Held::by(&server);
        let attacker = scope.spawn(|| (attack.run)(&server));
        let attacked = attacker.join();
        let after = before.and(LEFT_OVER);
        let deadline = Instant::now() + SETTLES;
        while !Held::by(&server).is_within(after) && Instant::now() < deadline {
            sleep(PACE);
        }
        is_over.store(true, Ordering::Relaxed);
        let longest = neighbour.join();
        assert!(
            attacked.is_ok(),
            "{name}: the attackers were answered wrongly"
        );
        let longest = longest.unwrap_or_else(|_| panic!("{name}: the neighbour was refused"));
        (before, longest)
    });
    let (after, most) = (Held::by(&server), before.and(LEFT_OVER));
    assert!(
        after.is_within(most),
        "{name}: {before:?} before, {after:?} after"
    );
    let grown = server.size("VmHWM") - before.memory;
    assert!(grown <= attack.growth, "{name}: grew by {grown} bytes");
    assert!(
        server.stop().success(),
        "{name}: SIGTERM does not end it in order"
    );
    let (grown, longest) = (grown / MB, longest.as_millis());
    println!("{name}: grew by {grown} MB; the neighbour's longest cycle took {longest} ms");
}

/// What a process holds of the machine.
#[derive(Clone, Copy, Debug)]
struct Held {
    memory: usize,
    threads: usize,
    descriptors: usize,
}

impl Held {
    fn by(server: &Server) -> Held {
        let descriptors = fs::read_dir(format!("/proc/{}/fd", server.pid()));
        Held {
            memory: server.memory(),
            threads: server.status("Threads").parse().expect("a number"),
            descriptors: descriptors.expect("it runs").count(),
        }
    }

    fn and(self, more: Held) -> Held {
        Held {
            memory: self.memory + more.memory,
            threads: self.threads + more.threads,
            descriptors: self.descriptors + more.descriptors,
        }
    }

    fn is_within(self, most: Held) -> bool {
        self.memory <= most.memory
            && self.threads <= most.threads
            && self.descriptors <= most.descriptors
    }
}

/// The well-behaved neighbour. Returns how long its longest cycle took.
fn live_beside(server: &Server, is_over: &AtomicBool) -> Duration {
    let mut client = server.connect();
    client.exchange("use neighbour", "USING neighbour");
    client.exchange("watch neighbour", "WATCHING 2");
    client.exchange("ignore default", "WATCHING 1");
    let mut longest = Duration::ZERO;
    while !is_over.load(Ordering::Relaxed) {
        sleep(PACE);
        let begun = Instant::now();
        let id = client.put("hello");
        assert_eq!(client.reserve().id, id);
        client.delete(id);
        longest = longest.max(begun.elapsed());
    }
    longest
}
