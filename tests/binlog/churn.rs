//! Disk use under long traffic, and traffic on a full disk.

use crate::disk::{Disk, Random};
use crate::model::{Server, Traffic, open};
use crate::search;
use beanpole::binlog::{Jobs, SyncMode, lens, put_len};
use beanpole::engine::{Change, StoredJob};
use beanpole::protocol::{Body, JobId};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

const SIZE: u64 = 64 << 10;

/// Runs commands and compares disk use with what lives after each of them.
fn churn(server: &mut Server, disk: &Disk, rounds: u64, mut command: impl FnMut(&mut Server, u64)) {
    let mut most = 0.0_f64;
    // The largest job that has lived while a segment was the newest one.
    let mut largest_at = BTreeMap::new();
    for round in 0..rounds {
        let before = server.live.longest();
        command(server, round);
        let newest = server.log.stats().current_index;
        let largest = largest_at.entry(newest).or_insert(0);
        *largest = before.max(server.live.longest()).max(*largest);
        assert!(server.commit());
        server.log.work_once().unwrap();
        server.history.forget();
        // The files that were prepared for a large job stay for a while.
        largest_at = largest_at.split_off(&(newest - 1));
        let largest = *largest_at.values().max().expect("there is one");
        // A segment ends before a job that does not fit into it, and its file
        // has whole blocks.
        let ends = (largest + 4096) * disk.names().len() as u64;
        let allowed = 2 * server.live.bytes + 5 * SIZE.max(largest) + ends;
        let used = disk.used();
        assert!(
            used <= allowed,
            "{used} bytes where {allowed} are allowed, round {round}"
        );
        most = most.max(used as f64 / allowed as f64);
        if (round + 1) % (rounds / 4) == 0 {
            let live = server.live.bytes;
            println!(
                "after {} rounds {live} bytes live, {used} on disk",
                round + 1
            );
        }
    }
    println!(
        "at most {:.0} % of what is allowed, {:?}",
        most * 100.0,
        server.log.stats()
    );
}

fn jobs_put(jobs: usize, len: usize) -> (Disk, Server, Random) {
    let disk = Disk::default();
    let mut server = Server::open(&disk, SyncMode::Always, SIZE);
    let mut random = Random::new(1);
    (0..jobs).for_each(|_| assert!(server.put(len, &mut random)));
    server.commit();
    (disk, server, random)
}

#[test]
fn disk_use_stays_bounded_under_endless_puts_and_deletes_beside_one_live_job() {
    let (disk, mut server, mut random) = jobs_put(1, 100);
    churn(&mut server, &disk, 20_000, |server, round| {
        assert!(server.put(100, &mut random));
        server.delete(JobId(round + 2));
    });
    assert_eq!(
        server.log.segment_of(JobId(1)),
        server.log.stats().oldest_index
    );
}

#[test]
fn disk_use_stays_bounded_under_endless_puts_and_deletes_beside_many_live_jobs() {
    let (disk, mut server, mut random) = jobs_put(2000, 400);
    churn(&mut server, &disk, 20_000, |server, round| {
        assert!(server.put(100, &mut random));
        server.delete(JobId(round + 2001));
    });
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

#[test]
fn disk_use_stays_bounded_with_jobs_longer_than_a_segment() {
    let traffic = Traffic {
        longest_body: 200_000,
        most_jobs: 20,
        long_one_in: 0,
    };
    // With the seed 4, all jobs are gone while the files are still long.
    for seed in search::seeds(3..5) {
        let (disk, mut server, _) = jobs_put(0, 0);
        let mut random = Random::new(seed);
        churn(&mut server, &disk, 1000, |server, _| {
            assert!(server.command(traffic, &mut random));
        });
    }
}

/// On a disk that is full nothing fails but puts; and they succeed again when
/// jobs are gone, or when the disk has grown.
#[test]
fn a_full_disk_stops_puts_and_nothing_else() {
    for (capacity, body) in [
        (40 << 10, 200),
        (400 << 10, 3000),
        (1 << 20, 2000),
        (2 << 20, 300),
    ] {
        const SIZE: u64 = 16 << 10;
        let disk = Disk::default();
        disk.set_capacity(Some(capacity));
        let mut server = Server::open(&disk, SyncMode::Always, SIZE);
        let random = &mut Random::new(capacity + body);
        for round in 0..4 {
            let before = server.jobs.len();
            while server.put(random.below(body) as usize, random) {
                assert!(server.commit());
            }
            println!(
                "{} jobs in {capacity} bytes, {:?}",
                server.jobs.len(),
                server.log.stats()
            );
            assert!(server.jobs.len() > before, "round {round}");
            let ids: Vec<JobId> = server.jobs.keys().copied().collect();
            for update in 0..8000 {
                server.update(ids[random.below(ids.len() as u64) as usize], random);
                if update % 10 == 0 {
                    assert!(server.commit(), "{:?}", server.log.failure());
                    server.history.forget();
                }
                if update % 50 == 0 {
                    server.log.work_once().unwrap();
                }
            }
            for id in ids.into_iter().filter(|_| random.one_in(3)) {
                server.delete(id);
                assert!(server.commit(), "{:?}", server.log.failure());
                server.log.work_once().unwrap();
            }
        }
        drop(server.log);
        assert_eq!(open(&disk, SyncMode::Always, SIZE).jobs, server.jobs);
    }
}

/// So is it if all jobs, put again, have twice as much to tell as before.
#[test]
fn a_full_disk_has_room_for_every_change_of_small_jobs() {
    const SIZE: u64 = 16 << 10;
    for body in [0, 100] {
        let disk = Disk::default();
        disk.set_capacity(Some(300 << 10));
        let mut server = Server::open(&disk, SyncMode::Always, SIZE);
        let random = &mut Random::new(1);
        while server.put(body, random) {
            assert!(server.commit());
            server.history.forget();
        }
        let mut ids: Vec<JobId> = server.jobs.keys().copied().collect();
        println!("{} jobs, {:?}", ids.len(), server.log.stats());
        for round in 0..3 {
            for (index, id) in ids.iter().enumerate() {
                server.grow(*id, random);
                if index % 10 == 0 {
                    assert!(server.commit(), "{:?}", server.log.failure());
                    server.history.forget();
                }
                if index % 50 == 0 {
                    server.log.work_once().unwrap();
                }
            }
            assert!(server.commit(), "{round}: {:?}", server.log.failure());
            server.log.work_once().unwrap();
            ids.reverse();
        }
        for (index, id) in ids.into_iter().enumerate() {
            server.delete(id);
            if index % 10 == 0 {
                assert!(server.commit(), "{:?}", server.log.failure());
                server.history.forget();
            }
        }
    }
}

/// So is it on a disk that others fill while all jobs lie in the first segment.
#[test]
fn a_disk_that_others_fill_beside_a_young_log_stops_puts_and_nothing_else() {
    for len in [100, 4500] {
        let (disk, mut server, mut random) = jobs_put(10, len);
        server.log.work_once().unwrap();
        disk.set_capacity(Some(disk.used()));
        for update in 0..4000 {
            server.update(JobId(1 + update % 10), &mut random);
            assert!(server.commit(), "{:?}", server.log.failure());
            server.log.work_once().unwrap();
            server.history.forget();
        }
        assert!(server.log.stats().oldest_index > 1);
        (1..=10).for_each(|id| server.delete(JobId(id)));
        assert!(server.commit());
        server.log.work_once().unwrap();
        assert!(server.put(len, &mut random));
    }
}

/// The ends of segments that stay empty change as jobs of many sizes are put
/// again.
#[test]
fn a_disk_that_others_fill_beside_a_long_log_stops_puts_and_nothing_else() {
    const SIZE: u64 = 16 << 10;
    for (longest, seed) in [(2000, 1), (8000, 2), (15_000, 3), (15_000, 4)] {
        let disk = Disk::default();
        let mut server = Server::open(&disk, SyncMode::Always, SIZE);
        let random = &mut Random::new(seed);
        while server.log.stats().current_index < 100 {
            assert!(server.put(random.below(longest) as usize, random) && server.commit());
            server.log.work_once().unwrap();
        }
        disk.set_capacity(Some(disk.used()));
        let count = server.jobs.len() as u64;
        for update in 0..12_000 {
            server.update(JobId(1 + random.below(count)), random);
            assert!(
                server.commit(),
                "{longest} {update}: {:?}",
                server.log.failure()
            );
            server.log.work_once().unwrap();
            server.history.forget();
        }
        println!("{longest}: {:?}", server.log.stats());
    }
}

/// What is appended at once has the room of all of them.
#[test]
fn a_batch_that_fills_all_prepared_segments_of_a_full_disk_is_written() {
    let (disk, mut server, mut random) = jobs_put(10, 100);
    server.log.work_once().unwrap();
    disk.set_capacity(Some(disk.used()));
    server.is_one_slice = true;
    for update in 0..2500 {
        server.update(JobId(1 + update % 10), &mut random);
    }
    assert!(server.commit(), "{:?}", server.log.failure());
    server.log.work_once().unwrap();
    (1..=10).for_each(|id| server.delete(JobId(id)));
    assert!(server.commit(), "{:?}", server.log.failure());
    server.log.work_once().unwrap();
    assert!(server.put(100, &mut random) && server.commit());
}

/// So it is if the disk frees a little late what has been given back.
#[test]
fn updates_under_backpressure_never_outrun_a_full_disk() {
    for late in [0, 100] {
        let (disk, mut server, mut random) = jobs_put(10_000, 100);
        server.log.work_once().unwrap();
        disk.set_capacity(Some(disk.used()));
        disk.free_late(late);
        for update in 0..20_000 {
            server.update(JobId(1 + update % 10_000), &mut random);
            server.history.forget();
        }
        assert!(server.commit(), "{late}: {:?}", server.log.failure());
    }
}

/// As `cp` makes one where the file system can: then what is written in place
/// needs room for other blocks.
#[test]
fn a_copy_that_shares_its_blocks_takes_no_room_that_deletes_need() {
    let (disk, server, _) = jobs_put(2000, 100);
    server.log.close().unwrap();
    drop(server);
    disk.copy_by_reflink();
    let mut server = Server::open(&disk, SyncMode::Always, SIZE);
    server.log.work_once().unwrap();
    disk.set_capacity(Some(disk.used()));
    for id in 1..=2000 {
        server.delete(JobId(id));
        assert!(server.commit(), "{id}: {:?}", server.log.failure());
        server.log.work_once().unwrap();
        server.history.forget();
    }
}

/// Where there is no room for blocks of its own, the server goes on beside
/// them as far as it can.
#[test]
fn a_start_on_a_full_disk_beside_a_copy_loses_nothing() {
    let (disk, server, _) = jobs_put(2000, 100);
    let jobs = server.jobs.clone();
    server.log.close().unwrap();
    disk.copy_by_reflink();
    for room in [0, SIZE / 2, SIZE, 2 * SIZE, 3 * SIZE, 4 * SIZE] {
        let copy = disk.state().kill();
        copy.set_capacity(Some(copy.used() + room));
        assert_eq!(open(&copy, SyncMode::Always, SIZE).jobs, jobs, "{room}");
    }
}

/// A small box lives in this state. Each row: the disk, the segments, the bodies.
#[test]
fn a_delete_on_a_full_disk_makes_room_for_the_next_put() {
    const KB: u64 = 1 << 10;
    for (capacity, size, body, usable) in [
        (4 << 20, 1 << 20, 9000, 0.35),
        (4 << 20, 64 * KB, 3000, 0.85),
        (40 << 20, 1 << 20, 9000, 0.85),
        (100 << 20, 10 << 20, 9000, 0.7),
        (100 << 20, 1 << 20, 9000, 0.9),
    ] {
        let disk = Disk::default();
        disk.set_capacity(Some(capacity));
        let mut server = Server::open(&disk, SyncMode::Always, size);
        let random = &mut Random::new(size);
        while server.put(body, random) {
            assert!(server.commit());
            server.log.work_once().unwrap();
            server.history.forget();
        }
        let full = server.jobs.len();
        let used = (full * body) as f64 / capacity as f64;
        let delete = |server: &mut Server, random: &mut Random| {
            let which = random.below(server.jobs.len() as u64) as usize;
            let id = *server.jobs.keys().nth(which).unwrap();
            server.delete(id);
            assert!(server.commit(), "{:?}", server.log.failure());
            server.history.forget();
        };
        let mut deleted = 0;
        while deleted == 0 || !server.put(body, random) {
            delete(&mut server, random);
            deleted += 1;
        }
        assert!(server.commit());
        let mut worked = 0;
        let before = server.log.stats();
        for _ in 0..300 {
            delete(&mut server, random);
            worked += u32::from(server.put(body, random));
            assert!(server.commit(), "{:?}", server.log.failure());
            server.history.forget();
        }
        let moved = server.log.stats().records_migrated - before.records_migrated;
        println!(
            "{capacity} bytes in segments of {size}: {used:.2} used, {deleted} of {full} deleted \
             before a put, {worked} of 300 pairs, {moved} jobs moved"
        );
        assert!(used >= usable && deleted <= 2 && worked >= 290);
        let jobs = server.jobs.clone();
        drop(server);
        assert_eq!(open(&disk, SyncMode::Always, size).jobs, jobs);
    }
}

#[test]
fn a_put_that_is_refused_takes_no_disk() {
    let disk = Disk::default();
    let mut server = Server::open(&disk, SyncMode::Always, SIZE);
    let random = &mut Random::new(1);
    assert!(server.put(100, random) && server.commit());
    server.log.work_once().unwrap();
    let used = disk.used();
    for room in [1 << 20, 3 << 20, 9 << 20] {
        disk.set_capacity(Some(used + room));
        assert!(!server.put(4 << 20, random));
        assert!(
            disk.used() <= used + SIZE,
            "{} of {room}",
            disk.used() - used
        );
        assert!(server.put(100, random) && server.commit());
    }
}

/// If the small ones shortened what the large one needs, it would be made again
/// and again.
#[test]
fn the_files_for_a_large_put_beside_small_ones_are_made_once() {
    let disk = Disk::default();
    let server = Server::open(&disk, SyncMode::Always, SIZE);
    let (log, job) = (
        server.log.clone(),
        jobs_put(1, 1000).1.jobs[&JobId(1)].clone(),
    );
    let large = StoredJob {
        body: Body::new(&[b'x'; 3 << 20]),
        ..job.clone()
    };
    // Who comes while another thread writes is served by the committer.
    log.spawn_threads(|_| ()).unwrap();
    // The server's lock.
    let state = Mutex::new((server.jobs, 1));
    let put = |job: &StoredJob| {
        let (tube_len, keys_len, body_len) = lens(job);
        let len = put_len(JobId(u64::MAX), tube_len, keys_len, body_len);
        loop {
            let with_jobs = |work: &mut dyn FnMut(&dyn Jobs)| work(&state.lock().unwrap().0);
            let _room = log.make_room(len, &with_jobs).unwrap();
            let (jobs, next_id) = &mut *state.lock().unwrap();
            if !log.admits(len) {
                continue;
            }
            let id = JobId(*next_id);
            *next_id += 1;
            jobs.insert(id, StoredJob { id, ..job.clone() });
            let end = log.append(&[Change::Put(id)], jobs);
            break end;
        }
    };
    let is_done = AtomicBool::new(false);
    thread::scope(|threads| {
        for _ in 0..4 {
            threads.spawn(|| {
                while !is_done.load(Ordering::Relaxed) {
                    log.commit(put(&job)).unwrap();
                    // Unlike the server's lock, this one is not fair.
                    thread::sleep(Duration::from_micros(100));
                }
            });
        }
        thread::sleep(Duration::from_millis(50));
        log.commit(put(&large)).unwrap();
        is_done.store(true, Ordering::Relaxed);
    });
    log.close().unwrap();
    let (_, large) = disk.made();
    assert!(large <= 5, "{large} files were made that long");
}

/// The current segment is full, so that each short put needs a file, too.
#[test]
fn short_puts_do_not_wait_for_the_files_of_a_long_one() {
    const SHORT: u64 = 1100;
    let (disk, mut server, mut random) = jobs_put(0, 0);
    let mut in_a_segment = 0;
    while server.log.stats().current_index < 2 {
        assert!(server.put(1000, &mut random));
        in_a_segment += 1;
    }
    (2..in_a_segment).for_each(|_| assert!(server.put(1000, &mut random)));
    assert!(server.commit());
    assert_eq!(server.log.stats().current_index, 2);
    server.log.work_once().unwrap();
    let (log, waits) = (server.log.clone(), Arc::new(AtomicBool::new(false)));
    let found = waits.clone();
    disk.watch(Box::new(move |_| {
        found.fetch_or(!log.admits(SHORT), Ordering::Relaxed);
    }));
    assert!(server.put(20 << 20, &mut random));
    assert!(!waits.load(Ordering::Relaxed), "beside the long one");
    assert!(server.log.admits(SHORT), "after it");
    disk.watch(Box::new(|_| ()));
    assert!(server.commit());
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
    let begun = server.log.stats().current_index - newest;
    println!("{begun} segments begun");
    assert!(begun > 40);
    assert_eq!(disk.made().0, made);
}

#[test]
fn a_segment_that_does_not_fit_is_made_smaller() {
    let disk = Disk::default();
    disk.set_capacity(Some(100 << 10));
    let opened = open(&disk, SyncMode::Always, 10 << 20);
    assert_eq!(
        opened.notices,
        ["no room for segments of 10485760 bytes; they have 20480"]
    );
    let mut server = Server::new(opened);
    assert!(server.put(1000, &mut Random::new(1)) && server.commit());
}
