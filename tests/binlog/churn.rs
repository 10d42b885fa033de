//! Disk use under long traffic, and traffic on a full disk.

use crate::disk::{Disk, Random};
use crate::model::{Server, start_with};
use beanpole::binlog::SyncMode;
use beanpole::protocol::JobId;
use std::io::ErrorKind;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::Duration;
use support::patience;

const SIZE: u64 = 64 << 10;
const SHORT_SIZE: u64 = 16 << 10;

fn open(disk: &Disk, size: u64) -> Server {
    let opened = start_with(disk, SyncMode::Always, size);
    Server::new(opened.unwrap_or_else(|error| panic!("{error}")))
}

fn jobs_put(jobs: usize, len: usize) -> (Disk, Server, Random) {
    let disk = Disk::default();
    let mut server = open(&disk, SIZE);
    let mut random = Random::new(1);
    (0..jobs).for_each(|_| assert!(server.put(len, &mut random)));
    server.commit();
    (disk, server, random)
}

/// Commits all changes, which must not fail, and forgets them.
fn commit(server: &mut Server) {
    assert!(server.commit(), "{:?}", server.log.failure());
    server.history.forget();
}

/// The same, and does the work of the log's threads.
fn settle(server: &mut Server) {
    commit(server);
    server.log.flush_and_recycle().unwrap();
}

/// The same, sooner or later: after each tenth change, and each fiftieth.
fn settle_at_times(server: &mut Server, change: usize) {
    if change.is_multiple_of(50) {
        settle(server);
    } else if change.is_multiple_of(10) {
        commit(server);
    }
}

/// Nothing more fits on the disk, because of others.
fn fill_by_others(disk: &Disk) {
    disk.set_capacity(Some(disk.used()));
}

/// Puts jobs until there is no room for another one.
fn fill_by_puts(server: &mut Server, random: &mut Random, len: impl Fn(&mut Random) -> usize) {
    let before = server.jobs.len();
    while server.put(len(random), random) {
        settle(server);
    }
    assert!(server.jobs.len() > before);
}

/// The ids of all jobs.
fn ids(server: &Server) -> Vec<JobId> {
    server.jobs.keys().copied().collect()
}

/// Runs commands and compares disk use with what lives after each of them.
fn churn(server: &mut Server, disk: &Disk, rounds: u64, mut command: impl FnMut(&mut Server, u64)) {
    for round in 0..rounds {
        command(server, round);
        settle(server);
        // A segment ends before a put that does not fit into it, and none is that long here.
        let ends = 4096 * disk.names().len() as u64;
        let allowed = 2 * server.live_bytes + 5 * SIZE + ends;
        let used = disk.used();
        assert!(
            used <= allowed,
            "{used} bytes where {allowed} are allowed, round {round}"
        );
    }
}

#[test]
fn disk_use_stays_bounded_under_endless_puts_and_deletes_beside_live_jobs() {
    for (live, len) in [(1, 100), (2000, 400)] {
        let (disk, mut server, mut random) = jobs_put(live, len);
        churn(&mut server, &disk, 20_000, |server, round| {
            assert!(server.put(100, &mut random));
            server.delete(JobId(live as u64 + 1 + round));
        });
        let first = server.log.segment_of(JobId(1));
        assert!(first >= server.log.stats().oldest_index);
    }
}

#[test]
fn disk_use_stays_bounded_under_endless_updates_of_the_same_jobs() {
    for jobs in [1, 3000] {
        let (disk, mut server, mut random) = jobs_put(jobs, 100);
        churn(&mut server, &disk, 40_000, |server, round| {
            server.update(JobId(1 + round % jobs as u64), &mut random);
        });
    }
}

#[test]
fn disk_use_stays_bounded_while_a_backlog_grows_and_is_worked_off_in_any_order() {
    let (disk, mut server, mut random) = jobs_put(0, 0);
    for longest in [0, 100, 3000] {
        churn(&mut server, &disk, 6000, |server, _| {
            assert!(server.put(random.below(longest + 1) as usize, &mut random));
        });
        churn(&mut server, &disk, 6000, |server, _| {
            let from = JobId(random.below(server.history.next_id));
            let later = server.jobs.range(from..).chain(&server.jobs);
            let id = *later.map(|(id, _)| id).next().unwrap();
            server.delete(id);
        });
        assert!(server.jobs.is_empty());
        assert_eq!(
            server.log.stats().oldest_index,
            server.log.stats().current_index
        );
    }
}

/// The same holds if the records of all jobs, put again, are twice as long as before.
#[test]
fn a_full_disk_has_room_for_every_change_of_small_jobs() {
    for body in [0, 100] {
        let disk = Disk::default();
        disk.set_capacity(Some(300 << 10));
        let mut server = open(&disk, SHORT_SIZE);
        let random = &mut Random::new(1);
        while server.put(body, random) {
            commit(&mut server);
        }
        let mut ids = ids(&server);
        for _ in 0..3 {
            for (index, id) in ids.iter().enumerate() {
                server.grow(*id, random);
                settle_at_times(&mut server, index);
            }
            ids.reverse();
        }
        for (index, id) in ids.into_iter().enumerate() {
            server.delete(id);
            if index.is_multiple_of(10) {
                commit(&mut server);
            }
        }
    }
}

/// Names that need a longer directory take blocks of files, and these do not come back: three
/// eighths of a segment here. Each row: the segments, and the bodies.
#[test]
fn changes_of_all_jobs_never_outrun_a_full_disk_that_loses_blocks_to_names() {
    for (size, body) in [
        (SHORT_SIZE, 300),
        (SIZE, 300),
        (SIZE, 3000),
        (4 * SIZE, 3000),
        (16 * SIZE, 9000),
    ] {
        let most = size / 4096 * 3 / 8;
        for every in [1, 20] {
            let disk = Disk::default();
            disk.set_capacity(Some(40 * size));
            let mut server = open(&disk, size);
            let random = &mut Random::new(every);
            fill_by_puts(&mut server, random, |_| body);
            fill_by_others(&disk);
            let (renames, lost) = (AtomicU64::new(0), Arc::new(AtomicU64::new(0)));
            let (losses, full) = (lost.clone(), disk.used());
            disk.watch(Arc::new(move |disk, operation| {
                let is_rename = || {
                    renames
                        .fetch_add(1, Ordering::Relaxed)
                        .is_multiple_of(every)
                };
                let lost = losses.load(Ordering::Relaxed);
                if operation == "rename" && lost < most && is_rename() {
                    losses.store(lost + 1, Ordering::Relaxed);
                    disk.set_capacity(Some(full - 4096 * (lost + 1)));
                    disk.fail_at(disk.operations() + 1, ErrorKind::StorageFull);
                }
            }));
            let at_once = server.log.most_changes().min(1000);
            server.at_once = at_once;
            let ids = ids(&server);
            for (change, id) in ids.iter().cycle().take(3 * ids.len()).enumerate() {
                server.update(*id, random);
                server.history.forget();
                if change.is_multiple_of(20 * at_once) {
                    assert!(
                        server.commit(),
                        "{size} {every}: {:?}",
                        server.log.failure()
                    );
                }
            }
            settle(&mut server);
            println!("{size} {body} {every}: {} jobs, {lost:?} lost", ids.len());
            ids.iter().for_each(|id| server.delete(*id));
            assert!(
                server.commit(),
                "{size} {every} deleted: {:?}",
                server.log.failure()
            );
            settle(&mut server);
            assert!(server.put(body, random));
        }
    }
}

/// As `cp` makes one where the file system can: then what is written in place
/// needs room for other blocks.
#[test]
fn a_copy_that_shares_its_blocks_takes_no_room_that_deletes_need() {
    let (disk, server, _) = jobs_put(2000, 100);
    server.log.close().unwrap();
    drop(server);
    disk.copy_by_reflink(|_| true);
    let mut server = open(&disk, SIZE);
    settle(&mut server);
    fill_by_others(&disk);
    for id in 1..=2000 {
        server.delete(JobId(id));
        settle(&mut server);
    }
}

/// As on each file system that copies on write, and after a copy that shares blocks.
#[test]
fn a_write_that_needs_another_block_on_a_full_disk_gets_that_of_a_prepared_segment() {
    let (disk, mut server, _) = jobs_put(2000, 100);
    settle(&mut server);
    disk.copy_by_reflink(|name| !name.contains("spare"));
    fill_by_others(&disk);
    for id in 1..=2000 {
        server.delete(JobId(id));
        settle(&mut server);
    }
}

/// A small box lives in this state. Each row: the disk, the segments, the bodies.
#[test]
fn a_delete_on_a_full_disk_makes_room_for_the_next_put() {
    const KB: u64 = 1 << 10;
    for (capacity, size, body, usable) in [
        (4 << 20, 1 << 20, 9000, 0.65),
        (4 << 20, 64 * KB, 3000, 0.85),
        (40 << 20, 1 << 20, 9000, 0.85),
        (100 << 20, 10 << 20, 9000, 0.7),
        (100 << 20, 1 << 20, 9000, 0.9),
    ] {
        let disk = Disk::default();
        disk.set_capacity(Some(capacity));
        let mut server = open(&disk, size);
        let random = &mut Random::new(size);
        fill_by_puts(&mut server, random, |_| body);
        let used = (server.jobs.len() * body) as f64 / capacity as f64;
        let delete = |server: &mut Server, random: &mut Random| {
            let id = *random.choose(&ids(server));
            server.delete(id);
            commit(server);
        };
        let mut deleted = 0;
        while deleted == 0 || !server.put(body, random) {
            delete(&mut server, random);
            deleted += 1;
        }
        let mut worked = 0;
        for _ in 0..300 {
            delete(&mut server, random);
            worked += u32::from(server.put(body, random));
            commit(&mut server);
        }
        println!("{capacity} {size}: {used:.2} used, {deleted} deleted, {worked} pairs");
        assert!(used >= usable && deleted <= 2 && worked >= 290);
        let jobs = server.jobs.clone();
        drop(server);
        assert_eq!(open(&disk, size).jobs, jobs);
    }
}

/// On a disk so small that a segment cannot have the length that the longest put needs.
#[test]
fn a_put_longer_than_a_segment_is_refused_and_costs_nothing() {
    let (disk, mut server, mut random) = jobs_put(1, 100);
    let random = &mut random;
    settle(&mut server);
    let used = disk.used();
    assert!(!server.put(SIZE as usize, random));
    assert_eq!(disk.used(), used);
    assert!(server.put(SIZE as usize - 200, random) && server.commit());
}

/// When a segment has begun, an older one usually becomes obsolete soon.
#[test]
fn the_steady_state_creates_and_removes_no_file() {
    let (disk, mut server, mut random) = jobs_put(20, 1000);
    let (mut made, mut newest) = (0, 0);
    churn(&mut server, &disk, 4000, |server, round| {
        assert!(server.put(1000, &mut random));
        server.delete(JobId(round + 1));
        if round == 500 {
            (made, newest) = (disk.made().0, server.log.stats().current_index);
        }
    });
    assert!(server.log.stats().current_index > newest + 40);
    assert_eq!(disk.made().0, made);
}

/// Each row: the disk, and the segments that were asked for before the restart, and are
/// asked for now. Longer ones leave a little less to jobs.
#[test]
fn a_start_on_a_full_disk_admits_puts_as_soon_as_before() {
    const KB: u64 = 1 << 10;
    for (capacity, size, next) in [
        (100 * KB, 10 << 20, 10 << 20),
        (400 * KB, 10 << 20, 10 << 20),
        (2 << 20, 16 * KB, 16 * KB),
        (2 << 20, 16 * KB, 10 << 20),
        (2 << 20, 64 * KB, 10 << 20),
        (4 << 20, 10 << 20, 16 * KB),
    ] {
        for others in [false, true] {
            let disk = Disk::default();
            disk.set_capacity(Some(capacity));
            let mut server = open(&disk, size);
            let random = &mut Random::new(capacity + next);
            if others {
                (0..20).for_each(|_| assert!(server.put(900, random)));
                settle(&mut server);
                fill_by_others(&disk);
            }
            fill_by_puts(&mut server, random, |_| 900);
            let copy = disk.state().kill();
            let mut restarted = open(&copy, next);
            let deletes = |server: &mut Server| {
                let random = &mut Random::new(1);
                let mut deleted = 0;
                while !server.put(900, random) {
                    let id = *random.choose(&ids(server));
                    server.delete(id);
                    settle(server);
                    deleted += 1;
                }
                deleted
            };
            let (before, after) = (deletes(&mut server), deletes(&mut restarted));
            println!("{capacity} {size} {next} {others}: {before}, then {after}");
            assert!(after <= before || next > size && after < 15);
        }
    }
}

/// A sync may take seconds, and all clients wait for it.
#[test]
fn where_replies_wait_for_no_sync_a_new_segment_makes_them_wait_for_one() {
    let (disk, syncs) = (Disk::default(), Arc::new(AtomicU64::new(0)));
    let every = SyncMode::Every(Duration::from_millis(50));
    let mut server = Server::new(start_with(&disk, every, SHORT_SIZE).unwrap());
    let counted = syncs.clone();
    disk.watch(Arc::new(move |_, operation| {
        counted.fetch_add(operation.starts_with("sync").into(), Ordering::Relaxed);
    }));
    let random = &mut Random::new(1);
    let mut waited = 0;
    while server.log.stats().current_index == 1 {
        assert_eq!(waited, 0);
        assert!(server.put(500, random));
        let before = syncs.load(Ordering::Relaxed);
        assert!(server.commit());
        waited = syncs.load(Ordering::Relaxed) - before;
    }
    assert_eq!(waited, 1);
}

/// The first put of all waits for files, too.
#[test]
fn a_put_that_waits_for_files_waits_for_no_sync() {
    let disk = Disk::default();
    let mut server = open(&disk, SHORT_SIZE);
    disk.watch(Arc::new(|_, operation| {
        assert!(!operation.starts_with("sync"));
    }));
    assert!(server.put(500, &mut Random::new(1)));
}

/// While one thread syncs what is in a new segment, another one syncs its name.
#[test]
fn a_new_segment_and_its_name_are_synced_at_the_same_time() {
    let (disk, random) = (Disk::default(), &mut Random::new(1));
    let mut server = open(&disk, SHORT_SIZE);
    server.log.spawn_threads(|_| ()).unwrap();
    let (names, synced) = mpsc::channel();
    let (synced, has_begun) = (Mutex::new(synced), AtomicBool::new(false));
    disk.watch(Arc::new(move |_, operation| {
        let is_beside = thread::current().name() == Some("segments");
        match operation {
            "rename" => has_begun.store(true, Ordering::Relaxed),
            "sync names" if is_beside => names.send(()).unwrap(),
            "sync" if !is_beside && has_begun.swap(false, Ordering::Relaxed) => {
                synced.lock().unwrap().recv_timeout(patience()).unwrap();
            }
            _ => {}
        }
    }));
    while server.log.stats().current_index < 3 {
        assert!(server.put(500, random));
        commit(&mut server);
    }
    server.log.close().unwrap();
}
