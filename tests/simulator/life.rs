//! A life: one process, from its start to its end.

use crate::binlog::{self, Binlog, Event, SyncMode};
use crate::engine::Config;
use crate::server::shared::Shared;
use crate::server::{Clock, Limits, timer};
use crate::simulator::HEAP;
use crate::simulator::clients;
use crate::simulator::disk::{Disk, Random};
use crate::simulator::hangup::{self, Door};
use crate::simulator::judge::{self, Degree, Engine, Legacy};
use crate::simulator::plan::{End, Incident, Life, Plan};
use crate::simulator::{threads, world};
use crate::sync::thread;
use std::io::ErrorKind;
use std::mem::replace;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

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
const PIECES: usize = 60;
const TABLES: usize = 100_000;
const BUFFER: usize = 600_000;

/// What a life leaves to the next one.
pub struct Left {
    pub disk: Disk,
    pub legacy: Legacy,
    pub steps: u64,
    /// What the clock shows, in nanoseconds.
    pub ended_at: u64,
}

/// Plays a life under the scheduler of threads, and returns what is wrong.
pub fn live(
    plan: &Plan,
    life: &Life,
    disk: Disk,
    legacy: Legacy,
    now: u64,
    seed: u64,
) -> Result<Left, String> {
    let end = Arc::new(Mutex::new(None));
    let (plan, life) = (plan.clone(), life.clone());
    let result = end.clone();
    threads::run(Random::new(seed), move || {
        let next = process(&plan, &life, &disk, legacy, now);
        *result.lock().unwrap() = Some((next, threads::steps(), world::wall_clock()));
    })?;
    let end = end.lock().unwrap().take();
    let (legacy, steps, ended_at) = end.expect("it has ended");
    Ok(Left {
        disk: world::end(),
        legacy,
        steps,
        ended_at,
    })
}

/// An error that no fault of the disk explains: a wrong name was used.
fn is_own_fault(error: &binlog::Error) -> bool {
    match error {
        binlog::Error::Io(kind, _) => {
            [ErrorKind::NotFound, ErrorKind::AlreadyExists].contains(kind)
        }
        _ => true,
    }
}

/// Has this happen to the process now.
pub fn cause(incident: Incident) {
    match incident {
        Incident::Kills => world::kill(),
        Incident::Disk(kind, fault) => world::inject(kind, fault),
        Incident::Stalls { is_replaced } => {
            world::stall();
            if is_replaced {
                world::replace(true);
            }
        }
        Incident::LosesLock => world::replace(false),
    }
}

/// The server and its clients. `src/server/mod.rs` starts and ends it in the
/// same way, but does not wait until the last worker has left.
fn process(plan: &Plan, life: &Life, disk: &Disk, mut legacy: Legacy, now: u64) -> Legacy {
    let faults = life.faults.clone();
    let (drive, door) = world::begin(disk.clone(), plan, faults, now);
    if let End::Killed(step) = life.end {
        threads::run_at(step, world::kill);
    }
    let clock = Clock::start();
    let config = Config {
        max_job_size: plan.max_job_size,
        max_memory: plan.max_memory,
        max_jobs_per_tube: plan.max_jobs_per_tube,
        keeps_changes: true,
    };
    let mut engine = Engine::new(config, clock.now());
    let opened = binlog::recovery::recover(drive, plan.sync, plan.segment_size, &mut engine);
    let opened = match opened {
        Ok(opened) => opened,
        Err(error) => {
            // A start that begins a segment needs room: the first one, and each
            // one on storage that machines share. No other one does.
            let needs_room = !legacy.has_started || plan.is_shared;
            let may_fail = world::is_struck() || needs_room && world::is_limited();
            let is_explained = may_fail && !is_own_fault(&error);
            assert!(is_explained, "it does not start: {error}");
            return legacy.end_early(plan.is_shared);
        }
    };
    engine.outside.most_changes = Some(opened.binlog.most_changes());
    if world::is_killed() {
        return legacy.end_early(plan.is_shared);
    }
    let is_unexpected = |notice: &&String| !legacy.expects(notice);
    let notice = opened.notices.iter().find(is_unexpected);
    assert!(notice.is_none(), "at a start: {}", notice.unwrap());
    engine.set_next_id(opened.next_id);
    judge::begin(&mut legacy, &engine, opened.next_id, clock.now(), plan);

    let binlog = opened.binlog;
    if let Some((step, incident)) = life.incident {
        threads::run_at(step, move || cause(incident));
    }
    let has_failed = Arc::new(AtomicBool::new(false));
    let tell = move |event: Event<'_>| {
        if let Event::Failed(error) = event {
            let is_explained = world::is_struck() && !is_own_fault(error);
            assert!(is_explained, "it has failed by itself: {error}");
            let is_told = has_failed.swap(true, Ordering::Relaxed);
            assert!(!is_told, "a failure is told twice");
            world::stop();
        }
    };
    binlog.spawn_threads(tell).expect("threads");
    let limits = Limits {
        max_job_size: plan.max_job_size,
        max_connections: plan.max_connections,
        idle_timeout: plan.idle_timeout,
        segment_size: plan.segment_size,
        narrow_sockets: plan.max_memory.is_some(),
    };
    let made = Shared::new(engine, Some(binlog.clone()), clock, limits).expect("memory");
    let shared = Arc::new(made);
    shared.catch_up();
    let timing = shared.clone();
    let timer = thread::spawn("timer", move || timer::run(&timing));
    let known = shared.timer.set(timer.thread().clone());
    known.expect("there is one timer");
    let (accepting, entry) = (shared.clone(), door.clone());
    let acceptor = thread::spawn("acceptor", move || hangup::accept(&accepting, &entry));
    let mut clients = Vec::new();
    for (number, client) in life.clients.iter().enumerate() {
        let (does, door, room) = (client.does.clone(), door.clone(), plan.room);
        let name = format!("client {number}");
        clients.push(thread::spawn(&name.clone(), move || {
            clients::live(&does, &name, &door, room);
        }));
    }
    if let End::Stopped(step) = life.end {
        threads::run_at(step, world::stop);
    }
    // It ends when all clients have left, or a while after that, if nothing has
    // ended it before.
    let (end, room, entry) = (life.end, plan.room, door.clone());
    let waiting = thread::spawn("the last", move || {
        clients
            .into_iter()
            .for_each(|client| client.join().unwrap());
        if let End::Later { is_killed } = end {
            // By then nothing is due any more, or the last change has only just been
            // written. The judge checks the state between the two.
            let later = if threads::one_in(2) {
                LATER
            } else {
                judge::WRITTEN_WITHIN
            };
            [later, SOON].into_iter().for_each(thread::park_timeout);
            if is_killed {
                world::kill();
            }
        }
        if end == End::Evening {
            leave_nothing(&entry, room);
        }
        world::stop();
    });
    while !world::is_over() {
        thread::park();
    }

    judge::see(judge::Event::Stops);
    door.shut();
    acceptor.join().unwrap();
    shared.stop();
    judge::see(judge::Event::HasStopped);
    if !shared.await_all_closed(GRACE) {
        shared.abandon();
        while !shared.await_all_closed(GRACE) {}
    }
    timer.join().unwrap();
    let is_evening = end == End::Evening && !world::is_struck();
    if is_evening {
        nothing_is_left(&shared, plan);
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

/// Deletes all jobs, and then leaves the server without clients for a while.
fn leave_nothing(door: &Arc<Door>, room: usize) {
    // During a stall no thread does anything, and a timer that read the clock before
    // is as much later.
    let pause = || loop {
        let since = threads::now();
        thread::park_timeout(LATER + Duration::from_nanos(world::stalled_for()));
        if !world::stalled_after(since) {
            break;
        }
    };
    world::calm();
    pause();
    // The sweeping client is closed as idle if there is a stall before its first
    // command.
    loop {
        let since = threads::now();
        clients::sweep(door, room);
        if !world::stalled_after(since) {
            break;
        }
    }
    pause();
}

/// Neither jobs nor memory that counts, and as few files as there can be.
fn nothing_is_left(shared: &Shared, plan: &Plan) {
    shared.with_lock(|state, _| {
        let engine = &state.engine;
        let left = (
            engine.job_count(),
            engine.tombstone_count(),
            engine.memory() + shared.memory.load(Ordering::Relaxed),
        );
        assert_eq!(left, (0, 0, 0), "jobs, keys and bytes of memory are left");
    });
    // Four files, and perhaps the segment before the newest. That one may have become
    // longer while the next ones were made, or on a full disk.
    let (used, names) = world::used();
    let most = 7 * plan.segment_size.next_multiple_of(4096);
    assert!(
        used <= most && names.len() <= 5,
        "{used} bytes are left on the disk: {names:?}"
    );
}

/// Panics if more of the heap is free without this than an empty one would need,
/// but for tables, which keep the largest size that they had.
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
