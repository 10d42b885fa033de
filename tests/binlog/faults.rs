//! Errors of the disk: in each run another one of its operations fails.

use crate::disk::{Disk, Random, Survival};
use crate::model::{Jobs, Server, Traffic};
use beanpole::binlog::{Binlog, SyncMode};
use std::io::ErrorKind;
use std::sync::Arc;

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
            "no room for a spare ended the log; {}",
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
fn whatever_fails_nothing_is_acknowledged_that_is_not_kept() {
    for kind in [ErrorKind::StorageFull, ErrorKind::Other] {
        let tried = (1..).take_while(|operation| run(*operation, kind)).count();
        println!("{tried} operations failed, {kind:?}");
        assert!(tried > 200);
    }
}
