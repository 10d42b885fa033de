//! `chaos PROGRAM SHAKER [ROUNDS [SEED]]`: does the real server, on real sockets and a
//! real disk, keep what the simulator proves of it in a world of its own?
//!
//! The server runs with SHAKER (`shaker.c`) preloaded, which delays its system calls and
//! lets some fail. Some dozens of clients, on TCP and a Unix socket, live short lives of
//! all kinds (`life.rs`): they put, reserve, keep, delete, release and bury jobs, wait,
//! peek and do not read, and leave in each way in which clients leave. In every second
//! round the server is then killed and started again. At last one calm client looks at
//! what is left. The judge knows each job by its body, which begins with a number:
//!
//! - An acknowledged job is there, once, until its delete was sent.
//! - A job is never given after DELETED, nor to two clients at the same time.
//! - The server ends no connection by itself, and answers as the protocol says.
//! - When all clients have gone and all jobs are deleted, no memory, socket or
//!   connection is left, and no more threads than wait for the next clients.
//! - A server that is told to stop answers what it has executed, and removes its socket.
//!
//! Its subject is what the simulator replaces. These faults were planted there, and two
//! rounds found each of them:
//!
//! - `sys`: of the hang-ups of one call the last is lost, or a half-closed peer is none;
//!   what is unsent is 0, or the number of bytes to be read; an interrupted read is the end
//!   of the input; a read that fills the buffer loses a byte; an accepted socket does not
//!   block; of the heap's free memory a page too many is emptied.
//! - `stream`: a short write counts as a whole one; a full socket, an interrupted write or
//!   an interrupted wait for room is an error; that wait is one for input; the server does
//!   not linger, or only while there is input; a stop shuts both halves.
//! - `acceptor`: hang-ups of those who wait are not looked at; a client that is gone, a
//!   lack of descriptors, an interruption or nobody in the queue ends listening; so does
//!   an interrupted `poll`, by a panic; a client is forgotten for which there is no thread.
//! - `listener`: accepting blocks; the queue of connections is short; an address is not
//!   bound again; the socket's file stays. (Two more it does not see, but tests of
//!   `listener` and of the server: without TCP_NODELAY replies are late, and without
//!   SO_KEEPALIVE a machine that is gone keeps its jobs.)
//!
//! What the clients do follows from the seed; how they meet is up to the machine. The
//! status is 1 if anything was wrong.

mod life;

use life::Life;
use nix::sys::signal::Signal;
use std::collections::BTreeMap;
use std::io::Write;
use std::panic::resume_unwind;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, ExitStatus};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::{env, fs, thread};
use support::{Client, Folder, Port, Random, Server, eventually};

/// How many clients there are at the same time, and how many each of them is followed by
/// in a round.
const CLIENTS: u64 = 32;
const LIVES: u64 = 40;

/// How many rounds are played at the same time.
const AT_ONCE: usize = 4;

/// All jobs are in a few tubes, so that clients meet.
const TUBES: [&str; 3] = ["default", "mail", "thumbs"];

/// How many threads the server keeps: workers that wait for clients, and its others.
const THREADS: usize = 32 + 8;

fn main() -> ExitCode {
    let mut arguments = env::args().skip(1);
    let (Some(program), Some(shaker)) = (arguments.next(), arguments.next()) else {
        eprintln!("Usage: chaos PROGRAM SHAKER [ROUNDS [SEED]]");
        return ExitCode::from(2);
    };
    let numbers: Vec<u64> = arguments
        .map(|text| text.parse().expect("a number"))
        .collect();
    let rounds = numbers.first().copied().unwrap_or(4);
    let seed = numbers
        .get(1)
        .copied()
        .unwrap_or_else(|| std::process::id().into());
    let seeds: Vec<u64> = (seed..seed + rounds).collect();
    for seeds in seeds.chunks(AT_ONCE) {
        let (program, shaker) = (Path::new(&program), Path::new(&shaker));
        // Threads of their own: none waits for longer than a test may.
        let faults: Vec<_> = thread::scope(|scope| {
            let play = |&seed| scope.spawn(move || (seed, play(program, shaker, seed)));
            let rounds: Vec<_> = seeds.iter().map(play).collect();
            let ends = rounds.into_iter().map(|round| round.join());
            ends.map(|end| end.expect("it has said why")).collect()
        });
        for (seed, faults) in faults.iter().filter(|(_, faults)| !faults.is_empty()) {
            println!("{}\nchaos: seed {seed} failed", faults.join("\n"));
        }
        if faults.iter().any(|(_, faults)| !faults.is_empty()) {
            return ExitCode::FAILURE;
        }
    }
    println!("chaos: {rounds} rounds, nothing lost, doubled or left over");
    ExitCode::SUCCESS
}

/// Plays a round, and returns what was wrong in it.
fn play(program: &Path, shaker: &Path, seed: u64) -> Vec<String> {
    let folder = Folder::new();
    fs::create_dir(folder.join("log")).expect("a new folder");
    let start = |preloaded: Option<&Path>, port: Port| {
        let mut command = Command::new(program);
        let tcp = format!("127.0.0.1:{}", port.number);
        command.args(["-l", &tcp, "-l", &folder.socket("socket"), "-s", "65536"]);
        command.args(["-f", if seed % 4 < 2 { "0" } else { "20" }, "-b"]);
        command.arg(folder.join("log"));
        command.envs(preloaded.map(|shaker| ("LD_PRELOAD", shaker)));
        Server::listening_on(&mut command, port)
    };
    let server = start(Some(shaker), Port::reserve(0).expect("a free port"));
    let world = World {
        port: server.port(),
        socket: folder.join("socket"),
        clock: AtomicU64::new(1),
        jobs: Mutex::default(),
        faults: Mutex::default(),
    };
    let before = sockets(&server);
    thread::scope(|scope| {
        for client in 0..CLIENTS {
            let (world, mut random) = (&world, Random::new(seed * CLIENTS + client));
            scope.spawn(move || {
                for life in (0..LIVES).map(|life| client * LIVES + life) {
                    let random = &mut random;
                    let live = || Life::begin(world, life, random).and_then(Life::live);
                    if let Err(error) = with_a_new_deadline(live) {
                        world.fault(format!("client {life}: {error}"));
                    }
                    // The next ones might wait as long for nothing.
                    if world.has_faults() {
                        break;
                    }
                }
            });
        }
    });
    if world.has_faults() {
        // If it has not ended by itself. What it has said may tell why.
        server.signal(Signal::SIGKILL);
        let said = with_a_new_deadline(|| server.wait().1);
        return [world.faults(), said].concat();
    }
    let server = match seed % 2 {
        0 => server,
        _ => {
            let port = server.kill().expect("it was started with a port");
            with_a_new_deadline(|| start(None, port))
        }
    };
    with_a_new_deadline(|| world.look_at_what_is_left());
    with_a_new_deadline(|| {
        look_at_what_is_kept(&server, before);
        let (ended, answered) = stop_while_a_client_puts(server);
        if !ended.success() {
            world.fault("SIGTERM does not end the server in order".into());
        }
        if world.socket.exists() {
            world.fault("the socket's file is left over".into());
        }
        let server = start(None, Port::reserve(0).expect("a free port"));
        let there = server.connect().count("current-jobs-ready");
        if there != answered {
            world.fault(format!(
                "{answered} puts were answered, and {there} executed"
            ));
        }
    });
    world.faults()
}

/// Runs this in a thread of its own: a round may take long on a busy machine, but no
/// single part of it.
fn with_a_new_deadline<T: Send>(part: impl FnOnce() -> T + Send) -> T {
    let ended = thread::scope(|scope| scope.spawn(part).join());
    ended.unwrap_or_else(|panic| resume_unwind(panic))
}

/// When all clients have gone and all jobs are deleted, the server has no more sockets than
/// before them.
fn look_at_what_is_kept(server: &Server, before: usize) {
    let mut last = server.connect();
    eventually("all memory is given back", || {
        last.count("memory-used") == 0
    });
    eventually("all connections have ended", || {
        last.count("current-connections") == 1
    });
    drop(last);
    eventually("no more threads than are kept", || {
        server.status("Threads").parse::<usize>().expect("a number") <= THREADS
    });
    eventually("no socket is left over", || sockets(server) <= before);
}

/// Sends SIGTERM while a client puts jobs. Returns how the server ended, and how many puts
/// it has answered: that should be all that it has executed.
fn stop_while_a_client_puts(server: Server) -> (ExitStatus, u64) {
    let mut client = server.connect();
    let mut socket = client.stream().try_clone().expect("a descriptor");
    thread::scope(|scope| {
        scope.spawn(move || while socket.write_all(&support::put(b"x").repeat(20)).is_ok() {});
        let first = client.lines(20).len();
        let answered = scope.spawn(move || first + client.lines(usize::MAX).len());
        let ended = server.stop();
        (ended, answered.join().expect("it only reads") as u64)
    })
}

/// How many sockets a server has open. (Files of its log come and go.)
fn sockets(server: &Server) -> usize {
    let all = fs::read_dir(format!("/proc/{}/fd", server.pid())).expect("it runs");
    let links = all.filter_map(|one| fs::read_link(one.ok()?.path()).ok());
    links
        .filter(|link| link.to_string_lossy().starts_with("socket:"))
        .count()
}

/// What the judge knows of a job.
#[derive(Default)]
struct Job {
    is_acknowledged: bool,
    /// Whether the clock may give it to another client while somebody holds it.
    has_short_ttr: bool,
    delete: Delete,
    /// The client that has it, and that has done nothing yet to give it back.
    holder: Option<u64>,
    is_found_at_the_end: bool,
    history: Vec<String>,
}

/// How far the deletion of a job has come. It is DELETED from a moment of the world's
/// clock on.
#[derive(Clone, Copy, Default, PartialEq)]
enum Delete {
    #[default]
    No,
    Sent,
    Deleted(u64),
}

/// Where all clients meet.
struct World {
    port: u16,
    socket: PathBuf,
    /// Counts what happens.
    clock: AtomicU64,
    /// By the numbers in their bodies.
    jobs: Mutex<BTreeMap<u64, Job>>,
    faults: Mutex<Vec<String>>,
}

impl World {
    /// The next moment.
    fn now(&self) -> u64 {
        self.clock.fetch_add(1, Ordering::SeqCst)
    }

    fn fault(&self, text: String) {
        let mut faults = self.faults.lock().unwrap_or_else(PoisonError::into_inner);
        faults.push(text);
    }

    fn has_faults(&self) -> bool {
        !self
            .faults
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .is_empty()
    }

    fn faults(self) -> Vec<String> {
        self.faults
            .into_inner()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// A new job that is about to be put: the number for its body.
    fn new_job(&self, has_short_ttr: bool) -> u64 {
        let number = self.now();
        let job = Job {
            has_short_ttr,
            ..Job::default()
        };
        self.jobs().insert(number, job);
        number
    }

    fn jobs(&self) -> MutexGuard<'_, BTreeMap<u64, Job>> {
        self.jobs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes what happens to a job.
    fn note(&self, number: u64, event: String, change: impl FnOnce(&mut Job)) {
        let now = self.now();
        let mut jobs = self.jobs();
        let job = jobs.get_mut(&number).expect("a job that was put");
        job.history.push(format!("{now}: {event}"));
        change(job);
    }

    /// Judges a job that a client has got by a `reserve` which it sent at this moment.
    /// Returns its number.
    fn judge_given(&self, client: u64, asked_at: u64, body: &[u8]) -> Option<u64> {
        let number = number_in(body);
        let mut jobs = self.jobs();
        let Some((number, job)) = number.and_then(|it| Some((it, jobs.get_mut(&it)?))) else {
            self.fault(format!(
                "client {client} got a job that nobody put: {:?}",
                &body[..body.len().min(40)]
            ));
            return None;
        };
        let now = self.now();
        job.history.push(format!(
            "{now}: given to {client}, which asked at {asked_at}"
        ));
        let fault = match (job.delete, job.holder) {
            (Delete::Deleted(at), _) if at < asked_at => "given after DELETED",
            (_, Some(_)) if !job.has_short_ttr => "given to two clients",
            _ => {
                job.holder = Some(client);
                return Some(number);
            }
        };
        self.fault(format!(
            "job {number} {fault}:\n  {}",
            job.history.join("\n  ")
        ));
        None
    }

    /// Takes all jobs that are left, as a client does that nothing disturbs.
    fn look_at_what_is_left(&self) {
        let mut client = Client::connect(self.port);
        for tube in TUBES {
            client.ask(&format!("watch {tube}"));
        }
        let states = ["ready", "reserved", "delayed", "buried"];
        let counts = states.map(|state| format!("current-jobs-{state}"));
        // Each time some are found, or a second is over.
        let mut in_vain = 0;
        while in_vain < 60 && counts.iter().any(|key| client.count(key) > 0) {
            in_vain += 1;
            for tube in TUBES {
                client.ask(&format!("use {tube}"));
                // Once for the buried ones, and once for the delayed ones.
                client.ask("kick 1000000");
                client.ask("kick 1000000");
            }
            let asked_at = self.now();
            client.send("reserve-with-timeout 1\r\n");
            while let Ok((line, Some(body))) = client.reply() {
                in_vain = 0;
                if let Some(number) = self.judge_given(u64::MAX, asked_at, &body) {
                    self.note(number, "found at the end".into(), |job| {
                        if job.is_found_at_the_end {
                            self.fault(format!("job {number} is there twice"));
                        }
                        job.is_found_at_the_end = true;
                    });
                }
                let id = line.split(' ').nth(1).expect("an id");
                client.exchange(&format!("delete {id}"), "DELETED");
                client.send("reserve-with-timeout 0\r\n");
            }
        }
        if in_vain == 60 {
            self.fault("nobody is given the jobs that are left".into());
        }
        for (number, job) in &*self.jobs() {
            if job.is_acknowledged && job.delete == Delete::No && !job.is_found_at_the_end {
                self.fault(format!(
                    "job {number} is lost:\n  {}",
                    job.history.join("\n  ")
                ));
            }
        }
    }
}

/// The body of a job: its number, and something that ends where the body does.
fn body(number: u64, length: usize) -> Vec<u8> {
    let mut body = format!("{number} ").into_bytes();
    body.resize(body.len() + length, b'x');
    body.push(b'.');
    body
}

/// The number in such a body, if it is whole.
fn number_in(body: &[u8]) -> Option<u64> {
    let (number, rest) = str::from_utf8(body).ok()?.split_once(' ')?;
    let is_whole = rest.strip_suffix('.')?.bytes().all(|byte| byte == b'x');
    is_whole.then(|| number.parse().ok())?
}
