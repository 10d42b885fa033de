//! Power cuts and kills at every operation on the disk.

use crate::disk::{Disk, Random, State, Survival};
use crate::model::{History, Jobs, Server, Traffic, open};
use crate::search;
use beanpole::AtomicU64;
use beanpole::binlog::{Binlog, SyncMode};
use beanpole::protocol::JobId;
use std::ops::Range;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

const SIZE: u64 = 4096;

/// Opens a log as a kill or a power cut may have left it, and checks that it
/// holds what was acknowledged. Then checks the same after a power cut, which
/// comes while the log is opened.
fn examine(state: &State, survival: Option<Survival>, history: &History, seed: u64) {
    let random = &mut Random::new(seed);
    let disk = match survival {
        Some(survival) => state.cut(survival, random),
        None => state.kill(),
    };
    if state.is_limited() {
        // And nothing more fits on the disk.
        disk.set_capacity(Some(disk.used()));
    }
    let again = disk.state().cut(Survival::Everything, random);
    let what = || format!("seed {seed}, {survival:?}, {:?}", disk.names());
    let opened = Binlog::open_in(Arc::new(disk.clone()), SyncMode::Always, SIZE, Jobs::new());
    let opened = opened.unwrap_or_else(|error| panic!("{error}; {}", what()));
    assert!(
        opened.next_id.0 >= history.least_next_id(),
        "id {} comes again, kept {}, least {}; {}",
        opened.next_id,
        history.kept,
        history.least_next_id(),
        what()
    );
    let after = history.explains(&opened.jobs);
    assert!(after.is_some(), "jobs lost, doubled or wrong; {}", what());
    if survival.is_none() {
        let is_torn = |notice: &String| notice.contains("torn tail");
        let torn = opened.notices.iter().find(|notice| is_torn(notice));
        assert_eq!(torn, None, "a kill tears nothing; {}", what());
        return; // what was never synced may be gone at the next power cut
    }
    // The same log again, but now the power fails while it is opened.
    again.stop_after(random.below(disk.operations() + 1));
    drop(Binlog::open_in(
        Arc::new(again.clone()),
        SyncMode::Always,
        SIZE,
        Jobs::new(),
    ));
    let last = again.state().cut(Survival::Something, random);
    let reopened = open(&last, SyncMode::Always, SIZE);
    assert_eq!(history.explains(&reopened.jobs), after, "{}", what());
}

/// When the test counts changes as kept.
#[derive(Clone, Copy, PartialEq)]
enum Kept {
    /// When they are committed.
    Committed,
    /// When the log's own threads have done their work.
    Tended,
}

/// Runs traffic. At some of its operations on the disk, examines what a power
/// cut or a kill (`None`) would leave there. Returns how many states were
/// examined.
fn run(
    seed: u64,
    sync: SyncMode,
    kept: Kept,
    survivals: &'static [Option<Survival>],
    traffic: Traffic,
    is_filled: bool,
) -> u64 {
    let disk = Disk::default();
    let random = &mut Random::new(seed);
    let history = Arc::new(Mutex::new(History::default()));
    let examined = Arc::new(AtomicU64::new(0));
    let (known, count, mut dice) = (history.clone(), examined.clone(), random.clone());
    disk.watch(Box::new(move |state| {
        if dice.one_in(10) {
            let survival = survivals[dice.below(survivals.len() as u64) as usize];
            examine(state, survival, &known.lock().unwrap(), dice.next());
            count.fetch_add(1, Ordering::Relaxed);
        }
    }));
    for _ in 0..3 {
        let mut server = Server::open(&disk, sync, SIZE);
        *history.lock().unwrap() = server.history.clone();
        // If the log's own threads never work, whoever needs room makes it.
        let is_tended = kept == Kept::Tended || random.one_in(2);
        for _ in 0..random.below(150) {
            if is_filled && random.one_in(8) {
                // Other programs fill the disk, or make room on it.
                let room = disk.used() + 4096 * random.below(3);
                disk.set_capacity(Some(room).filter(|_| !random.one_in(4)));
            }
            server.command(traffic, random);
            *history.lock().unwrap() = server.history.clone();
            if random.one_in(20) && !server.jobs.is_empty() {
                let id = *server.jobs.keys().next().unwrap();
                for _ in 0..random.below(100) {
                    server.update(id, random);
                    *history.lock().unwrap() = server.history.clone();
                }
            }
            if random.one_in(3) {
                let before = server.history.kept;
                if !server.commit() {
                    assert!(is_filled, "{:?}", server.log.failure());
                    break;
                }
                if kept == Kept::Tended {
                    server.history.kept = before;
                }
            }
            if is_tended && random.one_in(5) {
                server.log.write_soon();
                if server.log.work_once().is_err() {
                    assert!(is_filled, "{:?}", server.log.failure());
                    break;
                }
                if kept == Kept::Tended {
                    server.keep_all();
                }
            }
            *history.lock().unwrap() = server.history.clone();
        }
        if random.one_in(2) {
            let closed = server.log.close();
            assert!(closed.is_ok() || is_filled, "{:?}", server.log.failure());
        }
        // Otherwise the server is killed, and what was not written is gone.
    }
    examined.load(Ordering::Relaxed)
}

const SMALL: Traffic = Traffic {
    longest_body: 300,
    most_jobs: 30,
    long_one_in: 0,
};
const MIXED: Traffic = Traffic {
    longest_body: 1500,
    most_jobs: 12,
    long_one_in: 8,
};

fn run_all(seeds: Range<u64>, sync: SyncMode, kept: Kept, survivals: &'static [Option<Survival>]) {
    run_on(false, seeds, sync, kept, survivals);
}

fn run_on(
    is_filled: bool,
    seeds: Range<u64>,
    sync: SyncMode,
    kept: Kept,
    survivals: &'static [Option<Survival>],
) {
    let states: u64 = search::seeds(seeds)
        .flat_map(|seed| [(seed, SMALL), (seed, MIXED)])
        .map(|(seed, traffic)| run(seed, sync, kept, survivals, traffic, is_filled))
        .sum();
    println!("{states} crash states tried, none in violation");
    assert!(states > 300);
}

const POWER_CUT: &[Option<Survival>] = &[Some(Survival::Nothing), Some(Survival::Something)];
const KILL: &[Option<Survival>] = &[None];

#[test]
fn a_power_cut_loses_nothing_acknowledged_if_every_write_is_synced() {
    run_all(1..13, SyncMode::Always, Kept::Committed, POWER_CUT);
}

#[test]
fn a_power_cut_loses_nothing_synced_if_syncs_are_periodic() {
    run_all(
        40..50,
        SyncMode::Every(Duration::ZERO),
        Kept::Tended,
        POWER_CUT,
    );
}

/// So is the last change before a silence: the log's own thread syncs it.
#[test]
fn acknowledged_changes_are_synced_periodically_without_further_requests() {
    let (disk, random) = (Disk::default(), &mut Random::new(1));
    let sync = SyncMode::Every(Duration::from_millis(1));
    let mut server = Server::open(&disk, sync, SIZE);
    server.log.spawn_threads(|_| ()).expect("there are threads");
    for _ in 0..20 {
        assert!(server.put(100, random) && server.commit());
        server.log.write_soon();
        let is_synced = |_: u32| {
            thread::sleep(Duration::from_millis(1));
            let left = disk.state().cut(Survival::Nothing, random);
            open(&left, sync, SIZE).jobs == server.jobs
        };
        assert!((0..60_000).any(is_synced), "it is never synced");
    }
    server.log.close().expect("nothing fails");
}

#[test]
fn a_kill_loses_nothing_acknowledged_if_syncs_are_periodic_or_off() {
    let seldom = SyncMode::Every(Duration::from_secs(3600));
    run_all(20..28, seldom, Kept::Committed, KILL);
    run_all(30..38, SyncMode::Never, Kept::Committed, KILL);
}

#[test]
fn a_disk_that_fills_up_at_any_moment_loses_nothing_acknowledged() {
    run_on(true, 60..72, SyncMode::Always, Kept::Committed, POWER_CUT);
}

/// A server is killed between a rename and its sync, and the next one has no
/// room for a prepared segment, and so no reason of its own to sync a name.
#[test]
fn file_names_left_by_a_killed_server_are_durable_before_anything_relies_on_them() {
    let mut tried = 0;
    for operations in 0.. {
        let (disk, random) = (Disk::default(), &mut Random::new(operations));
        let mut server = Server::open(&disk, SyncMode::Always, SIZE);
        assert!(server.put(10, random) && server.commit());
        disk.stop_after(operations);
        while !disk.is_stopped() && server.log.stats().current_index < 3 {
            server.put(900, random);
            server.commit();
        }
        if !disk.is_stopped() {
            break;
        }
        let killed = disk.state().kill();
        killed.set_capacity(Some(killed.used()));
        let mut next = Server::open(&killed, SyncMode::Always, SIZE);
        next.update(JobId(1), random);
        assert!(next.commit());
        let cut = killed.state().cut(Survival::Nothing, random);
        let left = Server::open(&cut, SyncMode::Always, SIZE).jobs;
        assert!(next.history.explains(&left).is_some(), "{operations}");
        tried += 1;
    }
    assert!(tried > 10, "{tried}");
}
