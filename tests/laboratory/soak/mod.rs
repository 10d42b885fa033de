//! `attack soak`: many clients do everything at once, for as long as one likes.
//!
//! Each client is a thread. In a few tubes it puts, reserves, releases, buries,
//! kicks, touches, deletes, looks and waits at random. Now and then it drops
//! its connection in the middle of that. The `ledger` holds what each client
//! knows about each job. It notes when the server breaks a promise: when a job
//! is lost, is held by two clients, comes back after its deletion or has
//! changed, or when an id is not greater than the one before.
//!
//! The clients work in rounds. After each round all jobs are taken out. Then
//! the server must hold no more than in the beginning: no more jobs,
//! connections, tubes, memory, threads and descriptors, nor files if it has a
//! binlog. While clients are there, its memory grows for minutes, because the C
//! library keeps seven freed pieces of each size for each thread. So memory is
//! compared between the ends of rounds, where a true leak adds up.

mod client;
mod ledger;

use crate::attacks::{Held, finish, ours};
use crate::bench::load::Placement;
use crate::bench::servers::{self, Server, Source};
use crate::peer::Peer;
use client::Worker;
use companion::failure::Failure;
use ledger::Ledger;
use std::io;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

const USAGE: &str = "\
Usage: attack soak [OPTION]...
Many clients do everything at once, and account is kept of each job. Status 1
if the server broke a promise, or holds more at the end than in the beginning.

  --ours COMMAND     start the server so; {port} stands for its port and {dir}
                     for a directory of its own
  --clients N        how many clients (default 200)
  --seconds N        how long (default 20)
  --seed N           what they do (default 1)
  -h, --help         this text
";

/// How many rounds there are.
const ROUNDS: u32 = 4;

/// How many more bytes a server may hold after a round than in the beginning:
/// pages stay that still have something in them.
const LEFT_OVER: u64 = 8 << 20;
const LEFT_OVER_ON_DISK: u64 = 48 << 20;

/// How many more bytes of memory the last round may leave than the first one.
const GROWTH: u64 = 2 << 20;

/// How many jobs are taken out together at the end.
const AT_ONCE: usize = 100;

/// Runs `attack soak` with these arguments. The status is 0; 1 if a promise was
/// broken, 2 if the arguments cannot be understood, 4 if the run failed.
pub fn run(arguments: &[String]) -> ExitCode {
    finish(carry_out(arguments), "soak")
}

fn carry_out(arguments: &[String]) -> Result<bool, Failure> {
    let mut options = getopts::Options::new();
    for name in ["ours", "clients", "seconds", "seed"] {
        options.optopt("", name, "", "");
    }
    options.optflag("h", "help", "");
    let given = options.parse(arguments);
    let given = given.map_err(|error| Failure::Usage(error.to_string()))?;
    if given.opt_present("help") {
        print!("{USAGE}");
        return Ok(true);
    }
    let number = |name: &str, default: u64| {
        let number = given.opt_get_default(name, default);
        number.map_err(|error| Failure::Usage(format!("--{name}: {error}")))
    };
    let command = given.opt_str("ours").map_or_else(ours, Ok)?;
    let (clients, seconds) = (number("clients", 200)?, number("seconds", 20)?);
    let seed = number("seed", 1)?;
    servers::raise_descriptor_limit()?;
    servers::end_children_on_signals()?;
    let mut server = Server::open(&Source::Command(command), Placement::Free)?;
    let duration = Duration::from_secs(seconds);
    let faults = soak(&mut server, clients, duration, seed);
    let failed = |error| Failure::Refused(format!("{error}; {}", server.said()));
    let mut faults = faults.map_err(failed)?;
    server.stop()?;
    faults.truncate(20);
    for fault in &faults {
        println!("FAULT: {fault}");
    }
    Ok(faults.is_empty())
}

/// Runs all rounds, and returns the faults that were found.
fn soak(
    server: &mut Server,
    clients: u64,
    duration: Duration,
    seed: u64,
) -> io::Result<Vec<String>> {
    let pid = server.pid.expect("it was started here");
    let address = server.address;
    // The server is measured when each kind of thread runs and each buffer is
    // made.
    Peer::connect(address)?.ask("stats\r\n")?;
    let before = Held::by(pid).ok_or_else(|| io::Error::other("it is gone"))?;
    let mut ledger = Mutex::new(Ledger::default());
    let calm = Held {
        memory: before.memory + LEFT_OVER,
        threads: before.threads + 2,
        descriptors: before.descriptors,
    };
    let (mut left, mut first) = (0, None);
    let mut after = Some(before);
    for round in 0..ROUNDS {
        let until = Instant::now() + duration / ROUNDS;
        thread::scope(|scope| {
            for number in 0..clients {
                let ledger = &ledger;
                scope.spawn(move || {
                    let seed = seed.wrapping_mul(100_003).wrapping_add(number);
                    let seed = seed.wrapping_add(u64::from(round) << 32);
                    Worker::new(address, number, seed, ledger).work(until);
                });
            }
        });
        let busy = Held::by(pid).unwrap_or_default();
        left += take_all_out(ledger.get_mut().expect("no client panics"), address)?;
        let grown = first.map_or(calm.memory, |first| first + GROWTH);
        let calm = Held {
            memory: calm.memory.min(grown),
            ..calm
        };
        after = Held::once_calm(pid, calm, Instant::now() + Duration::from_secs(20));
        println!("round {}: busy {busy:?}, after {after:?}", round + 1);
        first = first.or(after.map(|held| held.memory));
    }
    let mut ledger = ledger.into_inner().expect("no client panics");
    ledger.close();
    let data = server
        .data()
        .map_err(|failure| io::Error::other(failure.to_string()))?;
    let disk = size_of(&data)?;
    println!(
        "{clients} clients, {} s: {}, {left} left in the end",
        duration.as_secs(),
        ledger.summary()
    );
    println!("before {before:?}\nafter  {after:?}\ndisk   {disk} bytes");
    let mut faults = ledger.faults;
    faults.extend(counters(address)?);
    match after {
        None => faults.push("the server is gone".into()),
        Some(after) => {
            let first = first.expect("it was there after the first round");
            let grown = after.memory.saturating_sub(first);
            if grown > GROWTH {
                faults.push(format!(
                    "after {ROUNDS} rounds it has grown by {grown} bytes"
                ));
            }
            for (what, after, calm) in [
                ("bytes", after.memory, calm.memory),
                ("threads", after.threads, calm.threads),
                ("descriptors", after.descriptors, calm.descriptors),
            ] {
                if after > calm {
                    faults.push(format!("it keeps {after} {what}, not {calm}"));
                }
            }
        }
    }
    if disk > LEFT_OVER_ON_DISK {
        faults.push(format!("its files keep {disk} bytes"));
    }
    Ok(faults)
}

/// Reserves and deletes all jobs that are left, as a last client. Returns how
/// many that were.
fn take_all_out(ledger: &mut Ledger, address: std::net::SocketAddr) -> io::Result<u64> {
    let mut peer = Peer::connect(address)?;
    for tube in client::TUBES {
        // It watches each tube to reserve from it, and uses it to kick its
        // jobs.
        for command in ["watch", "use"] {
            peer.ask(format!("{command} {tube}\r\n"))?;
        }
        peer.ask(format!("pause-tube {tube} 0\r\n"))?;
        // The first kick takes the buried jobs, the second one the delayed
        // jobs.
        for _ in 0..2 {
            peer.ask("kick 1000000000\r\n")?;
        }
    }
    // A job with a short time to run may still have to time out, but no client
    // holds a job any more.
    let (mut count, mut is_last) = (0, false);
    loop {
        let asked = Instant::now();
        let reserves = match is_last {
            true => 1,
            false => AT_ONCE,
        };
        let timeout = 3 * u64::from(is_last);
        peer.send(format!("reserve-with-timeout {timeout}\r\n").repeat(reserves))?;
        let mut ids = Vec::new();
        for _ in 0..reserves {
            let (line, body) = peer.reply()?;
            let id = line.strip_prefix("RESERVED ");
            if let Some(id) = id.and_then(|rest| rest.split(' ').next()?.parse().ok()) {
                ledger.reserved(id, &body.unwrap_or_default(), u64::MAX, asked);
                ids.push(id);
            }
        }
        for &id in &ids {
            ledger.deleting(id);
            peer.send(format!("delete {id}\r\n"))?;
        }
        for &id in &ids {
            if peer.reply()?.0 == "DELETED" {
                ledger.deleted(id);
            }
        }
        count += ids.len() as u64;
        if ids.is_empty() && is_last {
            return Ok(count);
        }
        is_last = ids.is_empty();
    }
}

/// Checks what `stats` shows when all clients and jobs are gone. Returns the
/// faults.
fn counters(address: std::net::SocketAddr) -> io::Result<Vec<String>> {
    let mut peer = Peer::connect(address)?;
    peer.send("stats\r\n")?;
    let (_, text) = peer.reply()?;
    let text = String::from_utf8_lossy(&text.unwrap_or_default()).into_owned();
    let is_off = |line: &&str| {
        let Some((key, value)) = line.split_once(": ") else {
            return false;
        };
        match key {
            "current-tubes" | "current-connections" => value != "1",
            "current-jobs-urgent" | "current-jobs-ready" | "current-jobs-reserved" => value != "0",
            "current-jobs-delayed" | "current-jobs-buried" | "current-waiting" => value != "0",
            "current-producers" | "current-workers" => value != "0",
            _ => false,
        }
    };
    let off = text.lines().filter(is_off);
    Ok(off.map(|line| format!("in the end, {line}")).collect())
}

fn size_of(directory: &Path) -> io::Result<u64> {
    let mut size = 0;
    for entry in std::fs::read_dir(directory)? {
        size += entry?.metadata()?.len();
    }
    Ok(size)
}
