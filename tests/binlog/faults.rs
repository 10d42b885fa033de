//! Errors of the disk: in each run another one of its operations fails.

use crate::disk::{Disk, Forbidden, Random, Survival};
use crate::model::{Jobs, Server, Traffic};
use beanpole::binlog::{Binlog, Event, SyncMode};
use beanpole::protocol::JobId;
use std::io::ErrorKind;
use std::sync::{Arc, mpsc};
use std::time::Duration;

const SIZE: u64 = 4096;
const TRAFFIC: Traffic = Traffic {
    longest_body: 900,
    most_jobs: 15,
    long_one_in: 10,
};

/// Runs traffic while one operation on the disk fails, until the end or the
/// first failure of the log. Returns false if there were fewer operations.
fn run(operation: u64, kind: ErrorKind) -> bool {
    let disk = Disk::default();
    disk.fail_at(operation, kind);
    let opened = Binlog::open_in(Arc::new(disk.clone()), SyncMode::Always, SIZE, Jobs::new());
    let Ok(opened) = opened else {
        // Nothing was acknowledged yet, and the next start succeeds.
        Server::open(&disk, SyncMode::Always, SIZE);
        return true;
    };
    let mut server = Server::new(opened);
    let random = &mut Random::new(7);
    let mut refused = 0;
    for _ in 0..120 {
        refused += u64::from(!server.command(TRAFFIC, random));
        if !server.commit() || server.log.work_once().is_err() {
            break;
        }
    }
    let reached = disk.operations() >= operation;
    let what = || format!("operation {operation}: {:?}", disk.failed());
    if let Some(error) = server.log.failure().map(ToString::to_string) {
        assert!(reached, "{error}; {}", what());
        let next = server.jobs.keys().next().copied();
        match next {
            Some(id) => server.delete(id),
            None => assert!(server.put(1, random)),
        }
        assert!(!server.commit(), "acknowledged after {error}; {}", what());
        let making_room = ["create", "allocate"].contains(&disk.failed().unwrap());
        assert!(
            !making_room,
            "no room for a prepared segment ended the log; {}",
            what()
        );
    }
    assert!(refused <= 1, "one failure, {refused} refusals; {}", what());
    for survival in [Survival::Nothing, Survival::Something, Survival::Everything] {
        let found = Server::open(&disk.state().cut(survival, random), SyncMode::Always, SIZE);
        assert!(
            server.history.explains(&found.jobs).is_some(),
            "{survival:?}; {}",
            what()
        );
    }
    reached
}

#[test]
fn nothing_acknowledged_is_lost_whichever_operation_fails() {
    // Each kind of error at every other operation.
    for (first, kind) in [(1, ErrorKind::StorageFull), (2, ErrorKind::Other)] {
        let operations = (first..).step_by(2);
        let tried = operations.take_while(|at| run(*at, kind)).count();
        println!("{tried} operations failed, {kind:?}");
        assert!(tried > 100);
    }
}

#[test]
fn a_disk_that_is_full_at_the_start_makes_segments_shorter_and_no_other_error_does() {
    let start = |kind| {
        (1..).find_map(|operation| {
            let disk = Disk::default();
            disk.fail_at(operation, kind);
            let opened = Binlog::open_in(
                Arc::new(disk.clone()),
                SyncMode::Always,
                2 * SIZE,
                Jobs::new(),
            );
            (disk.failed() == Some("allocate")).then(|| opened.map(|opened| opened.notices))
        })
    };
    let told = "no room for segments of 8192 bytes; they have 4096";
    assert_eq!(start(ErrorKind::StorageFull).unwrap().unwrap(), [told]);
    let error = start(ErrorKind::Other).unwrap().unwrap_err().to_string();
    assert!(error.starts_with("cannot prepare binlog.spare"), "{error}");
}

/// There are three prepared segments beside the first one.
#[test]
fn segments_are_short_enough_for_four_to_fit_and_longer_when_there_is_more_room() {
    let disk = Disk::default();
    let start = || {
        let opened = Binlog::open_in(
            Arc::new(disk.clone()),
            SyncMode::Always,
            2 * SIZE,
            Jobs::new(),
        );
        let spare = disk.contents("binlog.spare2").len() as u64;
        (opened.unwrap().notices, spare)
    };
    disk.set_capacity(Some(8 * SIZE - 1));
    let told = "no room for segments of 8192 bytes; they have 4096";
    assert_eq!(start(), (vec![told.to_owned()], SIZE));
    disk.set_capacity(Some(7 * SIZE - 1));
    assert_eq!(start(), (vec![], SIZE));
    disk.set_capacity(Some(7 * SIZE));
    assert_eq!(start(), (vec![], 2 * SIZE));
    let disk = Disk::default();
    disk.set_capacity(Some(8 * SIZE));
    let opened = Binlog::open_in(Arc::new(disk), SyncMode::Always, 2 * SIZE, Jobs::new());
    assert!(opened.unwrap().notices.is_empty());
}

/// Runs traffic on a disk of which one operation fails, and goes on after it as
/// the server's other threads would: the system tells of a failed sync once, and
/// the next sync of the same file succeeds. Returns false if there were fewer
/// operations.
fn run_on_after_failure(operation: u64, kind: ErrorKind, sync: SyncMode) -> bool {
    let disk = Disk::default();
    let mut server = Server::open(&disk, sync, SIZE);
    disk.fail_at(disk.operations() + operation, kind);
    let random = &mut Random::new(operation);
    let mut left_after_failure = 25;
    for _ in 0..150 {
        server.command(TRAFFIC, random);
        let kept = server.history.kept;
        let is_committed = server.commit();
        if sync != SyncMode::Always {
            server.history.kept = kept; // it is written, and perhaps not synced
        }
        server.log.write_soon();
        let is_synced = server.log.work_once().is_ok() && sync == SyncMode::Every(Duration::ZERO);
        if server.log.failure().is_some() {
            assert!(
                !server.commit(),
                "operation {operation}: kept after a failure"
            );
            server.history.kept = kept;
            left_after_failure -= 1;
            if left_after_failure == 0 {
                break;
            }
        } else if is_committed && is_synced {
            server.keep_all();
        }
    }
    let what = || {
        format!(
            "operation {operation}, {kind}, {sync:?}: {:?}",
            disk.failed()
        )
    };
    for survival in [Survival::Nothing, Survival::Something] {
        let left = disk.state().cut(survival, random);
        let opened = Binlog::open_in(Arc::new(left), sync, SIZE, Jobs::new());
        let opened = opened.unwrap_or_else(|error| panic!("{error}; {}", what()));
        let explained = server.history.explains(&opened.jobs);
        assert!(explained.is_some(), "{survival:?}; {}", what());
    }
    disk.failed().is_some()
}

#[test]
fn after_a_failed_sync_nothing_counts_as_synced_and_nothing_is_removed() {
    let mut first = 0;
    for sync in [
        SyncMode::Always,
        SyncMode::Every(Duration::ZERO),
        SyncMode::Never,
    ] {
        for kind in [ErrorKind::StorageFull, ErrorKind::Other] {
            // Each mode and kind of error at every third operation.
            first = first % 3 + 1;
            let is_run = |operation: &u64| run_on_after_failure(*operation, kind, sync);
            let tried = (first..).step_by(3).take_while(is_run).count();
            println!("{tried} operations failed, {kind}, {sync:?}");
            assert!(tried > 66);
        }
    }
}

/// A directory that gets another name may need another block or two.
#[test]
fn a_rename_that_finds_no_room_gets_that_of_prepared_segments() {
    for again in [0, 1] {
        renames_find_no_room(again);
    }
}

fn renames_find_no_room(again: u32) {
    let mut renames = 0;
    for operation in 1.. {
        let disk = Disk::default();
        let mut server = Server::open(&disk, SyncMode::Always, SIZE);
        disk.fail_at(disk.operations() + operation, ErrorKind::StorageFull);
        disk.fail_again(again);
        let random = &mut Random::new(operation);
        for _ in 0..300 {
            server.put(100, random);
            if !server.commit() {
                break;
            }
            server.log.work_once().ok();
            if disk.failed().is_some_and(|kind| kind != "rename") {
                break;
            }
        }
        match disk.failed() {
            Some("rename") => {
                renames += 1;
                let failure = server.log.failure();
                assert!(failure.is_none(), "operation {operation}: {failure:?}");
            }
            Some(_) => {}
            None => break,
        }
    }
    println!("{renames} renames");
    assert!(renames > 5);
}

/// One of them cannot be removed, whatever is wrong with it.
#[test]
fn a_rename_that_finds_no_room_gets_that_of_any_prepared_segment() {
    for operation in 1.. {
        let disk = Disk::default();
        let mut server = Server::open(&disk, SyncMode::Always, SIZE);
        disk.forbid("binlog.spare3", Forbidden::Everything);
        disk.fail_at(disk.operations() + operation, ErrorKind::StorageFull);
        let random = &mut Random::new(1);
        while server.log.stats().current_index == 1 && server.put(100, random) {
            server.commit();
        }
        if disk.failed() == Some("rename") {
            let failure = server.log.failure();
            assert!(failure.is_none(), "{failure:?}");
            break;
        }
    }
}

#[test]
fn a_segment_begins_when_no_other_file_can_be_opened() {
    let disk = Disk::default();
    let mut server = Server::open(&disk, SyncMode::Always, SIZE);
    let random = &mut Random::new(1);
    assert!(server.put(100, random) && server.commit());
    for round in 0..3 {
        server.log.work_once().unwrap();
        disk.set_descriptors(0);
        let newest = server.log.stats().current_index;
        for _ in 0..300 {
            server.update(JobId(1), random);
            assert!(server.commit(), "{round}: {:?}", server.log.failure());
            server.log.work_once().unwrap();
        }
        assert!(server.log.stats().current_index > newest);
        while server.put(900, random) {
            assert!(server.commit());
        }
        disk.set_descriptors(usize::MAX);
        assert!(server.put(900, random) && server.commit());
    }
}

#[test]
fn each_reason_to_refuse_puts_is_reported_and_so_is_the_end_of_it() {
    let disk = Disk::default();
    let mut server = Server::open(&disk, SyncMode::Always, SIZE);
    let (told, events) = mpsc::channel();
    let tell = move |event: Event<'_>| {
        let is_room = matches!(event, Event::Room);
        assert!(is_room || matches!(event, Event::NoRoom(..)));
        told.send(is_room).unwrap();
    };
    server.log.spawn_threads(tell).unwrap();
    disk.set_capacity(Some(0));
    while server.put(900, &mut Random::new(1)) {
        assert!(server.commit());
    }
    assert!(!events.recv().unwrap());
    disk.set_capacity(None);
    disk.set_descriptors(0);
    while server.put(900, &mut Random::new(1)) {
        assert!(server.commit());
    }
    // Another reason is told as well, maybe after the room in between.
    while events.recv().unwrap() {}
    disk.set_descriptors(usize::MAX);
    assert!(server.put(900, &mut Random::new(1)) && server.commit());
    assert!(events.recv().unwrap());
    server.log.close().unwrap();
    assert_eq!(events.recv().ok(), None, "and that is all");
}
