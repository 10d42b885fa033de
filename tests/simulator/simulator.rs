//! The whole server with everything at once: its own workers, batches, locks,
//! waits, timer and binlog, on sockets in memory, with a simulated disk and
//! clock, clients that do what they like, and whatever fate has for them.
//!
//! `world.rs` says what can happen to the server, `judge.rs` what it promises,
//! `plan.rs` what clients do, and `threads.rs` who is next. Most histories are
//! random; `written.rs` has some more, each of which is tried in many orders of
//! its threads.
//!
//! Some lives, and the end of half of the histories, have an evening: all clients
//! leave, all jobs are deleted, and the keys become free. Then nothing may be
//! left, neither in the memory that `--max-memory` counts, nor on the heap, nor
//! on the disk.
//!
//! `cargo run --release` plays the written histories and the seeds of a release,
//! some of them twice: the same seed has to take the same steps again.
//! `BEANPOLE_SEARCH=20` plays twenty times as many, `cargo run --release
//! 5000..6000` the random ones with these seeds, and `cargo run --release stop`
//! the written ones with this word in their name. The first history that fails is
//! shown, and the shortest one that can be found that fails in this way. `cargo
//! run --release 17` does that with the seed 17, and `cargo run --release stop 17`
//! with a written one.

#[allow(dead_code, unused_imports)]
#[path = "../../src/binlog/mod.rs"]
mod binlog;
mod channel;
mod clients;
#[path = "../binlog/disk.rs"]
#[allow(dead_code)]
mod disk;
mod hangup;
#[path = "../binlog/history.rs"]
#[allow(dead_code)]
mod history;
mod judge;
#[path = "../../src/lock.rs"]
mod lock;
#[path = "../model/naive.rs"]
#[allow(dead_code)]
mod naive;
mod plan;
#[path = "../laboratory/search.rs"]
#[allow(dead_code)]
mod search;
#[allow(dead_code)]
mod server;
mod stored;
#[allow(dead_code)]
mod stream;
#[allow(dead_code)]
mod sync;
mod threads;
mod world;
mod written;

/// As in the server, but for the judge.
mod engine {
    pub use crate::judge::Engine;
    pub use beanpole::engine::{
        Change, Config, ConnectionId, Counters, Outcome, Shift, StoredJob, StoredState,
        StoredWords, Time,
    };
}

/// The server's log, which nobody reads here.
mod log {
    use std::fmt::{Arguments, Display};

    pub use beanpole::log::Level;

    pub fn is_on(_: Level) -> bool {
        false
    }

    pub fn write(_: Level, _: Arguments<'_>) {}

    pub fn client_warning(_: impl Display, _: Arguments<'_>) {}
}

mod random {
    pub use crate::disk::Random;
}

#[path = "../../src/sys/mod.rs"]
#[allow(dead_code, unused_imports)]
mod system;

/// The system, as far as these files call it.
mod sys {
    pub use crate::system::{
        allocate, forget_pages, is_shared, time_since_boot, whole_file, write_in_place,
    };

    pub fn find_room_for_threads() -> std::io::Result<()> {
        Ok(())
    }

    pub fn give_back_memory() {}
}

use beanpole::protocol;
use binlog::{Binlog, Event, SyncMode};
use clients::{Place, Scene};
use disk::{Disk, Random};
use engine::{Config, Engine};
use judge::{Degree, Legacy};
use plan::{Blow, End, Life, Plan};
use server::shared::Shared;
use server::{Clock, Limits, timer};
use stats_alloc::{INSTRUMENTED_SYSTEM, StatsAlloc};
use std::alloc::System;
use std::cell::RefCell;
use std::io::ErrorKind;
use std::mem::replace;
use std::ops::Range;
use std::panic;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use sync::thread;

/// The start of all histories, in nanoseconds since the epoch.
const START: u64 = 1_700_000_000_000_000_000;

/// How long clients that do not read can delay the end of the server.
const GRACE: Duration = Duration::from_millis(1200);

/// How long a server lives on without clients, and a moment.
const LATER: Duration = Duration::from_millis(1500);
const SOON: Duration = Duration::from_millis(1);

/// A sync can take so long, however soon it is asked for: if another thread is
/// writing, the committer tries again after a millisecond, and each time it may
/// wake a little late.
const SYNCED_WITHIN: Duration = Duration::from_millis(6);

/// In how many pieces of the heap something empty is at most, and how many bytes
/// its tables take, or the binlog's buffer for what is written at once.
const PIECES: usize = 50;
const TABLES: usize = 100_000;
const BUFFER: usize = 600_000;

/// How many histories decide about a release: those with the first seeds. How
/// long that takes depends on the machine, and what they find does not.
const USUAL: u64 = 10_000;

/// In how many orders each written history is tried.
const ORDERS: u64 = 400;

/// One in so many is played twice.
const PLAYED_AGAIN: u64 = 20;

#[global_allocator]
static HEAP: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

thread_local! {
    static LAST_PANIC: RefCell<String> = const { RefCell::new(String::new()) };
}

/// What the last panic said.
pub fn last_panic() -> String {
    LAST_PANIC.take()
}

fn main() {
    panic::set_hook(Box::new(|panic| {
        let place = panic.location().map(ToString::to_string);
        let words = panic.payload_as_str().unwrap_or("a panic");
        if std::env::var_os("RUST_BACKTRACE").is_some() {
            eprintln!("{words}\n{}", std::backtrace::Backtrace::force_capture());
        }
        LAST_PANIC.set(format!("{words} ({})", place.unwrap_or_default()));
    }));
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let number = |text: &str| text.parse::<u64>();
    let seeds = |text: &str| match text.split_once("..") {
        Some((from, to)) => Some(number(from).ok()?..number(to).ok()?),
        None => number(text).ok().map(|seed| seed..seed + 1),
    };
    let (orders, usual) = (0..search::tries(ORDERS), 0..search::tries(USUAL));
    match words[..] {
        [] => {
            play_written("", orders);
            play_all("", usual, Plan::of);
        }
        [word] => match seeds(word) {
            Some(seeds) => play_all("", seeds, Plan::of),
            None => play_written(word, orders),
        },
        [word, seed] => play_written(word, seeds(seed).expect("seeds")),
        _ => panic!("see above"),
    }
}

/// Those with this word in their name, in these orders.
fn play_written(word: &str, orders: Range<u64>) {
    for (name, plan) in written::all() {
        if name.contains(word) {
            println!("{name}:");
            play_all(name, orders.clone(), |_| plan.clone());
        }
    }
}

fn play_all(name: &str, seeds: Range<u64>, plan: impl Fn(u64) -> Plan) {
    let is_one = seeds.end - seeds.start == 1;
    let mut tally = Tally::default();
    for seed in seeds {
        let plan = plan(seed);
        if is_one {
            println!("{}", short(&format!("{plan:#?}")));
        }
        let mut played = play(&plan, seed);
        if let (Ok(once), 0) = (&played, seed % PLAYED_AGAIN)
            && let again = play(&plan, seed)
            && again.as_ref() != Ok(once)
        {
            played = Err(format!(
                "it is {again:?} the second time, {once:?} the first"
            ));
        }
        match played {
            Ok(more) => tally.add(&more),
            Err(what) => {
                println!("after {tally:?}");
                report(&plan, name, seed, what);
            }
        }
    }
    println!("{tally:?}");
}

fn report(plan: &Plan, name: &str, seed: u64, what: String) -> ! {
    println!("seed {seed}: {what}");
    let (least, again, what) = shrink(plan, seed, what);
    println!("The shortest history that fails in this way, with the threads' seed {again}:");
    println!("{}\n{what}", short(&format!("{least:#?}")));
    let words = match name {
        "" => seed.to_string(),
        name => format!("'{name}' {seed}"),
    };
    println!("cargo run --release {words}");
    std::process::exit(1);
}

/// A text whose long runs of the same letter are told in a few.
fn short(text: &str) -> String {
    let mut short = String::new();
    let runs = text.as_bytes().chunk_by(|one, other| one == other);
    for run in runs.map(|run| std::str::from_utf8(run).unwrap_or("?")) {
        match run.len() {
            9.. if !run.starts_with(' ') => short += &format!("{}<{}>", &run[..1], run.len()),
            _ => short += run,
        }
    }
    short
}

/// Takes away what is not needed to fail.
fn shrink(plan: &Plan, seed: u64, what: String) -> (Plan, u64, String) {
    let mut least = (plan.clone(), seed, what);
    let until = Instant::now() + Duration::from_secs(20);
    'again: loop {
        for smaller in least.0.smaller() {
            for other in 0..30 {
                if Instant::now() > until {
                    return least;
                }
                let again = match other {
                    0 => least.1,
                    other => seed.wrapping_mul(31) + other,
                };
                if let Err(what) = play(&smaller, again)
                    && kind(&what) == kind(&least.2)
                {
                    least = (smaller, again, what);
                    continue 'again;
                }
            }
        }
        return least;
    }
}

/// Failures with the same words, but for numbers, are of one kind.
fn kind(what: &str) -> String {
    let what = what.split_once(": ").map_or(what, |(_, what)| what);
    what.chars()
        .take(30)
        .filter(|c| !c.is_ascii_digit())
        .collect()
}

/// How much was played.
#[derive(Debug, Default, PartialEq)]
struct Tally {
    histories: u64,
    steps: u64,
    commands: usize,
    faults: usize,
    starts: u64,
}

impl Tally {
    fn add(&mut self, other: &Tally) {
        self.histories += other.histories;
        self.steps += other.steps;
        self.commands += other.commands;
        self.faults += other.faults;
        self.starts += other.starts;
    }
}

/// Plays a history, and returns what is wrong.
fn play(plan: &Plan, seed: u64) -> Result<Tally, String> {
    let mut random = Random::new(seed.wrapping_mul(7) + 3);
    let mut disk = Disk::default();
    let mut legacy = Legacy::none();
    let mut now = START;
    let (commands, faults) = plan.size();
    let mut tally = Tally {
        histories: 1,
        commands,
        faults,
        ..Tally::default()
    };
    // At last somebody looks; in half of the histories, after all was deleted.
    let last = [End::Evening, End::Done].map(|end| Life {
        clients: Vec::new(),
        faults: Vec::new(),
        blow: None,
        end,
        cut: None,
        jump: 0,
    });
    let last = &last[random.below(2) as usize..];
    for (number, life) in plan.lives.iter().chain(last).enumerate() {
        if number >= plan.lives.len() && plan.is_shared {
            disk.set_capacity(None); // or it might not start
        }
        let at = format!("life {number}: ");
        let lived = live(plan, life, disk, legacy, now, random.next());
        let (left, next, steps, ended_at) = lived.map_err(|what| at.clone() + &what)?;
        (disk, legacy) = (left, next);
        tally.steps += steps;
        tally.starts += 1;
        if let Some(survival) = life.cut {
            disk = world::cut(&disk, survival, random.next());
            legacy.lose();
        }
        now = ended_at.saturating_add_signed(life.jump);
        legacy.restart_at(now);
    }
    Ok(tally)
}

/// Panics if more on the heap belongs to this than if it had always been empty,
/// but for tables that are as large as they ever were.
fn must_be_empty<T>(name: &str, what: T, most: usize) {
    let before = HEAP.stats();
    drop(what);
    let done = HEAP.stats() - before;
    let pieces = done.deallocations - done.allocations;
    let bytes = done.bytes_deallocated - done.bytes_allocated;
    let is_empty = pieces <= PIECES && bytes <= most;
    assert!(
        is_empty,
        "an empty {name} keeps {bytes} bytes in {pieces} pieces"
    );
}

/// What a life leaves behind.
type Left = (Disk, Legacy, u64, u64);

/// One process.
fn live(
    plan: &Plan,
    life: &Life,
    disk: Disk,
    legacy: Legacy,
    now: u64,
    seed: u64,
) -> Result<Left, String> {
    let left = Arc::new(Mutex::new(None));
    let (plan, life) = (plan.clone(), life.clone());
    let result = left.clone();
    threads::run(Random::new(seed), move || {
        let next = process(&plan, &life, &disk, legacy, now);
        *result.lock().unwrap() = Some((next, threads::steps(), world::wall_clock()));
    })?;
    let left = left.lock().unwrap().take();
    let (legacy, steps, now) = left.expect("it has ended");
    Ok((world::end(), legacy, steps, now))
}

/// Whatever strikes a disk, this is not what it says.
fn is_own_fault(error: &binlog::Error) -> bool {
    match error {
        binlog::Error::File { source, .. } => {
            [ErrorKind::NotFound, ErrorKind::AlreadyExists].contains(&source.kind())
        }
        error => !matches!(error, binlog::Error::Lost(_)),
    }
}

fn process(plan: &Plan, life: &Life, disk: &Disk, mut legacy: Legacy, now: u64) -> Legacy {
    let faults = life.faults.clone();
    let (drive, door) = world::begin(disk.clone(), plan.is_shared, faults, now);
    if let End::Killed(step) = life.end {
        threads::strike_at(step, world::kill);
    }
    let clock = Clock::start();
    let config = Config {
        max_job_size: plan.max_job_size,
        max_memory: plan.max_memory,
        keeps_changes: true,
    };
    let engine = Engine::new(config, clock.now());
    let opened = Binlog::open_in(drive, plan.sync, plan.segment_size, engine);
    let opened = match opened {
        Ok(opened) => opened,
        Err(error) => {
            // A start that begins a segment needs room: the first one, and each
            // one on storage that machines share. No other one does.
            let needs_room = !legacy.has_started || plan.is_shared;
            let may_fail = world::is_struck() || needs_room && world::is_limited();
            let is_explained = may_fail && !is_own_fault(&error);
            assert!(is_explained, "it does not start: {error}");
            return legacy.end_early();
        }
    };
    if world::is_killed() {
        return legacy.end_early();
    }
    let is_unexpected = |notice: &&String| !legacy.expects(notice);
    let notice = opened.notices.iter().find(is_unexpected);
    assert!(notice.is_none(), "at a start: {}", notice.unwrap());
    let mut engine = opened.jobs;
    engine.set_next_id(opened.next_id);
    let (size, now) = (plan.segment_size, clock.now());
    judge::begin(&mut legacy, &engine, opened.next_id, now, size);

    let binlog = opened.binlog;
    let ends = Arc::new(AtomicBool::new(false));
    let main = thread::current();
    let wake = {
        let (ends, main) = (ends.clone(), main.clone());
        move || {
            ends.store(true, Ordering::Relaxed);
            main.unpark();
        }
    };
    let strike = {
        let wake = wake.clone();
        move |blow| match blow {
            Blow::Stops => wake(),
            Blow::Kills => world::kill(),
            Blow::Meets(kind, fault) => world::meets(kind, fault),
            Blow::StandsStill { is_replaced } => {
                world::stand_still();
                if is_replaced {
                    world::replace(true);
                }
            }
            Blow::LosesLock => world::replace(false),
        }
    };
    if let Some((step, blow)) = life.blow {
        let strike = strike.clone();
        threads::strike_at(step, move || strike(blow));
    }
    let (fails, has_failed) = (wake.clone(), Arc::new(AtomicBool::new(false)));
    let tell = move |event: Event<'_>| {
        if let Event::Failed(error) = event {
            let is_explained = world::is_struck() && !is_own_fault(error);
            assert!(is_explained, "it has failed by itself: {error}");
            let is_told = has_failed.swap(true, Ordering::Relaxed);
            assert!(!is_told, "a failure is told twice");
            fails();
        }
    };
    binlog.spawn_threads(tell).expect("threads");
    let limits = Limits {
        max_job_size: plan.max_job_size,
        max_connections: plan.max_connections,
        max_connections_per_address: None,
        idle_timeout: plan.idle_timeout,
    };
    let shared = Shared::new(engine, Some(binlog.clone()), clock, limits).expect("memory");
    let shared = Arc::new(shared);
    shared.catch_up();
    let timing = shared.clone();
    let timer = thread::spawn("timer", move || timer::run(&timing));
    let known = shared.timer.set(timer.thread().clone());
    known.expect("there is one timer");
    let (accepting, entry) = (shared.clone(), door.clone());
    let acceptor = thread::spawn("acceptor", move || hangup::accept(&accepting, &entry));
    let scene = Arc::new(Scene::new(life.clients.len()));
    let mut clients = Vec::new();
    for (number, client) in life.clients.iter().enumerate() {
        let (does, door, room) = (client.does.clone(), door.clone(), plan.room);
        let (scene, strike) = (scene.clone(), strike.clone());
        clients.push(thread::spawn(&format!("client {number}"), move || {
            let place = Place {
                door: &door,
                room,
                number,
                scene: &scene,
                strike: &strike,
            };
            clients::live(&does, &place);
        }));
    }
    match life.end {
        End::Stopped(step) => threads::strike_at(step, wake.clone()),
        End::Killed(_) | End::Done | End::Later { .. } | End::Evening => {}
    }
    // It ends when all clients have left, or a while later, at the latest.
    let (end, room, entry) = (life.end, plan.room, door.clone());
    let waiting = thread::spawn("the last", move || {
        clients
            .into_iter()
            .for_each(|client| client.join().unwrap());
        if let End::Later { is_killed } = end {
            // Nothing is due any more, or what was changed last is just written.
            // The judge looks between the two.
            let later = match threads::one_in(2) {
                true => LATER,
                false => judge::WRITTEN_WITHIN,
            };
            [later, SOON].into_iter().for_each(thread::park_timeout);
            if is_killed {
                world::kill();
            }
        }
        if end == End::Evening {
            // While all stand still, nobody has the time for anything; and a timer
            // that read the clock before comes so much later.
            let pause = || loop {
                let since = threads::now();
                thread::park_timeout(LATER + Duration::from_nanos(world::stood_still_for()));
                if !world::stood_still_after(since) {
                    break;
                }
            };
            world::calm();
            pause();
            // Who sweeps is closed as idle if all stand still before it speaks.
            loop {
                let since = threads::now();
                clients::sweep(&entry, room);
                if !world::stood_still_after(since) {
                    break;
                }
            }
            pause();
        }
        wake();
    });
    while !ends.load(Ordering::Relaxed) && !world::is_killed() {
        thread::park();
    }

    let workers = shared.with_lock(|state, _| state.workers);
    assert!(
        workers <= plan.max_connections as u64,
        "there are {workers} workers"
    );
    judge::stops();
    door.shut();
    acceptor.join().unwrap();
    shared.stop();
    if !shared.await_emptiness(GRACE) {
        shared.abandon();
        while !shared.await_emptiness(GRACE) {}
    }
    timer.join().unwrap();
    let is_evening = end == End::Evening && !world::is_struck();
    if is_evening {
        shared.with_lock(|state, _| {
            let engine = &state.engine;
            engine.check();
            let left = (
                engine.job_count(),
                engine.keys_of_deleted(),
                engine.memory() + shared.memory.held(),
            );
            assert_eq!(left, (0, 0, 0), "jobs, keys and bytes of memory are left");
        });
        // Four files, none shorter than a job needs, and perhaps the segment before
        // the newest. That one may have become longer while the next ones were
        // made, or on a full disk; then the spares are as long until they are used.
        let job = (u64::from(plan.max_job_size) + 400).next_multiple_of(4096);
        let (used, names) = world::used();
        let most = 4 * 2 * plan.segment_size.max(job);
        assert!(
            used <= most && names.len() <= 5,
            "{used} bytes are left on the disk: {names:?}"
        );
    }
    let is_closed = binlog.close().is_ok() && !world::is_killed() && !world::is_replaced();
    waiting.join().unwrap();
    // The last threads may still be at their end.
    while Arc::strong_count(&shared) > 1 {
        thread::park_timeout(SOON);
    }
    assert!(
        !shared.is_awaited(),
        "nobody is there who waits for the lock"
    );
    let degree = match plan.sync {
        SyncMode::Always => Degree::Always,
        SyncMode::Every(span) => Degree::After(span.max(SYNCED_WITHIN)),
        SyncMode::Never => Degree::Never,
    };
    let has_failed = binlog.failure().is_some();
    if is_evening {
        while Arc::strong_count(&binlog) > 2 {
            thread::park_timeout(SOON);
        }
        let empty = |now| Engine::new(config, now);
        let engine = shared.with_lock(|state, now| replace(&mut state.engine, empty(now)));
        must_be_empty("engine", engine, TABLES);
        must_be_empty("server", shared, TABLES);
        must_be_empty("binlog", binlog, BUFFER);
    }
    judge::end(legacy, &degree, is_closed, has_failed)
}
