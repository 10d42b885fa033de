//! A disk without room, or a process without descriptors: what stops puts, and nothing
//! else.

use crate::disk::{Disk, Forbidden, Random};
use crate::model::{SIZE, Server, open, start_with};
use beanpole::binlog::{Error, Event, SyncMode};
use beanpole::protocol::JobId;
use std::io::ErrorKind;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use support::patience;

/// Starts with segments of twice the usual length, and returns the notices.
fn start(disk: &Disk) -> Result<Vec<String>, Error> {
    let opened = start_with(disk, SyncMode::Always, 2 * SIZE);
    opened.map(|opened| opened.notices)
}

const SHORTER: &str =
    "no room for segments of 8192 bytes: they have 4096, and a longer job is refused";

/// Such as a quota that the file system does not count.
#[test]
fn a_first_start_that_finds_less_room_than_the_file_system_says_fails_and_leaves_nothing() {
    for kind in [ErrorKind::QuotaExceeded, ErrorKind::Other] {
        let refused = |operation| {
            let disk = Disk::default();
            disk.fail_at(operation, kind);
            let started = start(&disk);
            (disk.failed() == Some("allocate")).then(|| (started, disk.names()))
        };
        let (started, left) = (1..).find_map(refused).unwrap();
        let error = started.unwrap_err().to_string();
        assert!(error.starts_with("cannot prepare segment.spare"), "{error}");
        assert!(left.is_empty(), "{left:?}");
    }
}

/// After the first put there are the first segment, which is short, and three prepared ones.
#[test]
fn a_segment_takes_an_eighth_of_the_room_if_that_is_less_than_asked_for() {
    let disk = Disk::default();
    let none: [&str; 0] = [];
    for (capacity, told, len) in [
        (17 * SIZE - 1, &[SHORTER][..], SIZE),
        (17 * SIZE, &none, 2 * SIZE),
        (6 * SIZE, &none, 2 * SIZE),
    ] {
        disk.set_capacity(Some(capacity));
        let opened = start_with(&disk, SyncMode::Always, 2 * SIZE).unwrap();
        assert_eq!(opened.notices, told, "{capacity}");
        let mut server = Server::new(opened);
        assert!(server.put(100, &mut Random::new(1)) && server.commit());
        assert_eq!(disk.contents("segment.spare2").len() as u64, len);
    }
}

/// Otherwise compaction could not move it.
#[test]
fn a_segment_is_as_long_as_the_longest_job_in_the_log_needs() {
    let disk = Disk::default();
    let start = |size| Server::new(start_with(&disk, SyncMode::Always, size).unwrap());
    let random = &mut Random::new(1);
    let mut server = start(4 * SIZE);
    assert!(server.put(9000, random) && server.commit());
    let mut server = start(SIZE);
    assert!(server.put(9000, random) && server.commit());
    assert!(!server.put(13_000, random));
    server.delete(JobId(1));
    server.delete(JobId(2));
    assert!(server.commit());
    assert!(!start(SIZE).put(9000, random));
}

/// A directory that gets another name may need another block or two: more than one
/// prepared segment has, perhaps. And one of these may be impossible to remove.
#[test]
fn a_rename_without_room_is_repeated_after_a_prepared_segment_is_removed() {
    let renames = |again, cannot_be_removed: Option<&str>| {
        let is_rename = |operation| {
            let disk = Disk::default();
            let mut server = Server::open(&disk);
            disk.fail_at(disk.operations() + operation, ErrorKind::StorageFull);
            disk.fail_again(again);
            let name = cannot_be_removed.into_iter();
            name.for_each(|name| disk.forbid(name, Forbidden::Everything));
            let random = &mut Random::new(1);
            while disk.failed().is_none() && server.log.stats().current_index < 9 {
                server.put(100, random);
                if !server.commit() {
                    break;
                }
                server.log.flush_and_recycle().ok();
                if cannot_be_removed.is_some() && server.log.stats().current_index > 1 {
                    break;
                }
            }
            let is_rename = disk.failed()? == "rename";
            let failure = server.log.failure().filter(|_| is_rename);
            assert!(failure.is_none(), "operation {operation}: {failure:?}");
            Some(is_rename)
        };
        let tried = (1..).map_while(is_rename);
        tried.filter(|is_rename| *is_rename).count()
    };
    assert!(renames(0, None) > 5);
    assert!(renames(1, None) > 5);
    assert_eq!(renames(0, Some("segment.spare3")), 1);
}

/// A server with a short job, on a disk without room but in its segments of 64 KiB.
fn on_a_full_disk(disk: &Disk, random: &mut Random) -> Server {
    let opened = start_with(disk, SyncMode::Always, 64 << 10);
    let mut server = Server::new(opened.unwrap_or_else(|error| panic!("{error}")));
    assert!(server.put(100, random) && server.commit());
    server.log.flush_and_recycle().unwrap();
    disk.set_capacity(Some(disk.used()));
    server
}

/// As on XFS, while another program takes each block that is given back.
#[test]
fn a_name_that_wants_many_blocks_at_once_gets_those_of_a_prepared_segment() {
    let (disk, random) = (Disk::default(), &mut Random::new(1));
    let mut server = on_a_full_disk(&disk, random);
    let capacity = AtomicU64::new(disk.used());
    let has_name = Arc::new(AtomicBool::new(false));
    let named = has_name.clone();
    disk.watch(Arc::new(move |disk, operation| {
        if operation == "rename" && !named.load(Ordering::Relaxed) {
            let used = disk.used();
            let free = capacity.swap(used, Ordering::Relaxed) - used;
            named.store(free >= 15 * 4096, Ordering::Relaxed);
            disk.set_capacity(Some(used));
            if free < 15 * 4096 {
                disk.fail_at(disk.operations() + 1, ErrorKind::StorageFull);
            }
        }
    }));
    while server.log.stats().current_index < 4 {
        server.update(JobId(1), random);
        assert!(server.commit(), "{:?}", server.log.failure());
    }
    assert!(has_name.load(Ordering::Relaxed));
    assert_eq!(open(&disk.state().kill()).jobs, server.jobs);
}

/// A put that waits for files has them only allocated, and XFS refuses to do that again. Another
/// program takes all that becomes free.
#[test]
fn a_file_that_was_never_written_is_used_again_on_a_full_disk() {
    let (mut disk, random) = (Disk::default(), &mut Random::new(1));
    let mut server = on_a_full_disk(&disk, random);
    let full = disk.used();
    for _ in 0..3 {
        let last = server.log.stats().current_index + 3;
        while server.log.stats().current_index < last {
            server.update(JobId(1), random);
            assert!(server.commit(), "{:?}", server.log.failure());
            server.log.flush_and_recycle().unwrap();
            disk.set_capacity(Some(disk.used()));
        }
        let killed = disk.state().kill();
        disk = killed;
        server = Server::new(start_with(&disk, SyncMode::Always, 64 << 10).unwrap());
        // A block may go: the first segment of all has no more.
        assert!(disk.used() + 4096 >= full, "{:?}", disk.names());
    }
}

#[test]
fn a_segment_begins_even_if_the_process_can_open_no_more_files() {
    let disk = Disk::default();
    let mut server = Server::open(&disk);
    let random = &mut Random::new(1);
    assert!(server.put(100, random) && server.commit());
    for round in 0..3 {
        server.log.flush_and_recycle().unwrap();
        disk.set_descriptors(0);
        let newest = server.log.stats().current_index;
        for _ in 0..300 {
            server.update(JobId(1), random);
            assert!(server.commit(), "{round}: {:?}", server.log.failure());
            server.log.flush_and_recycle().unwrap();
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
fn each_reason_to_refuse_puts_is_reported_when_it_begins_and_when_it_ends() {
    let disk = Disk::default();
    disk.put("binlog.1.taken", &[1; 700]);
    disk.put("binlog.2.taken", &[1; 11]);
    disk.put("binlog.old.taken", b"of another program");
    let mut server = Server::open(&disk);
    let (told, events) = mpsc::channel();
    let tell = move |event: Event<'_>| match event {
        Event::NoRoom(_, error, taken) => told.send(format!("{error} {taken}")).unwrap(),
        Event::Room => told.send("room".to_owned()).unwrap(),
        Event::NotRemoved(error) | Event::Failed(error) => panic!("{error}"),
    };
    server.log.spawn_threads(tell).unwrap();
    let next = || events.recv_timeout(patience()).expect("an event");
    let fill = |server: &mut Server| {
        while server.put(900, &mut Random::new(1)) {
            assert!(server.commit());
        }
    };
    disk.set_capacity(Some(0));
    fill(&mut server);
    let first = next();
    assert!(first.starts_with("the jobs take ") && first.ends_with(" 711"));
    // The reason becomes another one, without room in between.
    disk.set_descriptors(0);
    disk.set_capacity(None);
    fill(&mut server);
    assert!(next().contains(": too many open files "));
    disk.set_descriptors(usize::MAX);
    assert!(server.put(900, &mut Random::new(1)) && server.commit());
    assert_eq!(next(), "room");
    server.log.close().unwrap();
    assert!(events.recv().is_err(), "and that is all");
}

/// A copy by `cp -al` has the same files; and a file system without a journal may have
/// renamed a file half when the power was cut.
#[test]
fn a_file_with_another_name_is_not_used_again() {
    let disk = Disk::default();
    let mut server = Server::open(&disk);
    let random = &mut Random::new(1);
    let put = |server: &mut Server, random: &mut Random| {
        for _ in 0..30 {
            assert!(server.put(900, random) && server.commit());
            server.log.flush_and_recycle().unwrap();
        }
    };
    put(&mut server, random);
    let newest = server.log.stats().current_index;
    for number in newest - 3..=newest {
        disk.link(
            &format!("segment.{number}"),
            &format!("segment.spare9{number}"),
        );
    }
    let jobs = server.jobs.clone();
    drop(server);
    let mut server = Server::open(&disk);
    assert_eq!(server.jobs, jobs);
    // A backup that is made while the server runs.
    for number in 1..=server.log.stats().current_index {
        disk.link(&format!("segment.{number}"), &format!("backup.{number}"));
    }
    let backup = disk.contents("backup.2");
    jobs.keys().for_each(|id| server.delete(*id));
    put(&mut server, random);
    assert_eq!(disk.contents("backup.2"), backup);
    assert_eq!(Server::open(&disk).jobs, server.jobs);
}

/// Somebody may have put more of them there.
#[test]
fn a_start_keeps_at_most_three_prepared_segments() {
    let disk = Disk::default();
    let mut server = Server::open(&disk);
    assert!(server.put(100, &mut Random::new(1)) && server.commit());
    disk.put("segment.spare7", &[1; SIZE as usize]);
    disk.put("segment.spare8", &[1; SIZE as usize]);
    drop(server);
    assert_eq!(Server::open(&disk).jobs.len(), 1);
    let names = disk.names();
    assert_eq!(
        names.iter().filter(|name| name.contains("spare")).count(),
        3,
        "{names:?}"
    );
}
