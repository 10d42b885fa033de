//! Power cuts at any operation on the disk, and an error of each of them. The
//! simulator has more kinds of crashes, with the whole server; here the traffic is
//! denser, so that there is more compaction.

use crate::disk::{Disk, Random, State, Survival};
use crate::model::{History, Server, Traffic, open, start};
use crate::search;
use std::io::ErrorKind;
use std::sync::{Arc, Mutex};

/// Checks that a start after a power cut finds what was acknowledged, and that a power
/// cut during that start changes nothing.
fn examine(state: &State, survival: Survival, history: &History, seed: u64) {
    let random = &mut Random::new(seed);
    let disk = state.cut(survival, random);
    if state.is_limited() {
        // And nothing more fits on the disk.
        disk.set_capacity(Some(disk.used()));
    }
    let again = disk.state().cut(Survival::Everything, random);
    let what = format!("seed {seed}, {survival:?}, {:?}", disk.names());
    let opened = start(&disk).unwrap_or_else(|error| panic!("{error}; {what}"));
    let least = history.least_next_id();
    assert!(opened.next_id.0 >= least, "an id comes again; {what}");
    let after = history.explains(&opened.jobs);
    assert!(after.is_some(), "jobs lost, doubled or wrong; {what}");
    again.stop_after(random.below(disk.operations() + 1));
    drop(start(&again));
    let last = again.state().cut(Survival::Something, random);
    assert_eq!(history.explains(&open(&last).jobs), after, "{what}");
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

/// Runs the traffic of three servers, one after the other, each of which is closed or
/// killed. At some of its operations on the disk, examines what a power cut would
/// leave. Returns how many states were examined.
fn run(seed: u64, traffic: Traffic, is_filled: bool) -> u64 {
    let disk = Disk::default();
    if seed.is_multiple_of(4) {
        disk.lack_calls();
    }
    let random = &mut Random::new(seed);
    let known = Arc::new(Mutex::new((History::default(), random.clone(), 0)));
    let watched = known.clone();
    disk.watch(Arc::new(move |disk, _| {
        let (history, random, examined) = &mut *watched.lock().unwrap();
        if random.one_in(10) {
            let survival = *random.choose(&[Survival::Nothing, Survival::Something]);
            examine(&disk.state(), survival, history, random.next());
            *examined += 1;
        }
    }));
    let note = |server: &Server| known.lock().unwrap().0 = server.history.clone();
    for _ in 0..3 {
        let mut server = Server::open(&disk);
        note(&server);
        // If the log's own threads never work, the thread that needs room makes it.
        let is_tended = random.one_in(2);
        for _ in 0..random.below(150) {
            if is_filled && random.one_in(8) {
                // Other programs fill the disk, or make room on it.
                let room = disk.used() + 4096 * random.below(3);
                disk.set_capacity(Some(room).filter(|_| !random.one_in(4)));
            }
            server.command(traffic, random);
            note(&server);
            let first = server.jobs.keys().next().copied();
            if let Some(id) = first.filter(|_| random.one_in(20)) {
                for _ in 0..random.below(100) {
                    server.update(id, random);
                    note(&server);
                }
            }
            let is_committed = !random.one_in(3) || server.commit();
            let tends = is_tended && random.one_in(5);
            let goes_on = is_committed && (!tends || server.log.flush_and_recycle().is_ok());
            note(&server);
            if !goes_on {
                assert!(is_filled, "{:?}", server.log.failure());
                break;
            }
        }
        if random.one_in(2) {
            let is_closed = server.log.close().is_ok();
            assert!(is_closed || is_filled, "{:?}", server.log.failure());
        }
    }
    let (_, _, examined) = &*known.lock().unwrap();
    *examined
}

#[test]
fn a_power_cut_loses_nothing_acknowledged_if_every_write_is_synced() {
    let seeds = search::seeds(1..13);
    let counts = seeds.map(|seed| run(seed, SMALL, seed % 3 == 0) + run(seed, MIXED, true));
    let examined: u64 = counts.sum();
    println!("{examined} power cuts");
    assert!(examined > 1000);
}

/// Runs traffic while this operation on the disk fails, until the end or the first
/// failure of the log. Returns false if there were fewer operations.
fn run_with_failing(operation: u64, kind: ErrorKind) -> bool {
    let disk = Disk::default();
    disk.fail_at(operation, kind);
    let Ok(opened) = start(&disk) else {
        // Nothing was acknowledged yet, and the next start succeeds.
        open(&disk);
        return true;
    };
    let mut server = Server::new(opened);
    let random = &mut Random::new(7);
    let mut refused = 0;
    for _ in 0..80 {
        refused += u64::from(!server.command(MIXED, random));
        if !server.commit() || server.log.flush_and_recycle().is_err() {
            break;
        }
    }
    let what = format!("operation {operation}: {:?}", disk.failed());
    assert!(refused <= 1, "one failure, {refused} refusals; {what}");
    if let Some(error) = server.log.failure() {
        let makes_room = ["create", "allocate"].contains(&disk.failed().unwrap());
        assert!(!makes_room, "{error} ended the log; {what}");
        let error = error.to_string();
        assert!(!server.commit(), "acknowledged after {error}; {what}");
    }
    for survival in [Survival::Nothing, Survival::Something, Survival::Everything] {
        examine(&disk.state(), survival, &server.history, operation);
    }
    disk.failed().is_some()
}

#[test]
fn nothing_acknowledged_is_lost_whichever_operation_fails() {
    // Each kind of error at every other operation.
    for (first, kind) in [(1, ErrorKind::StorageFull), (2, ErrorKind::Other)] {
        let operations = (first..).step_by(2);
        let tried = operations.take_while(|at| run_with_failing(*at, kind));
        assert!(tried.count() > 100);
    }
}
