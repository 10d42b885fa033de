//! Damaged logs: with flipped bits, and with files that are cut short, missing,
//! exchanged or foreign.

use crate::disk::{Disk, Forbidden, Random, Survival};
use crate::model::{History, Jobs, SIZE, Server, open, refusal, start, start_with};
use beanpole::binlog::format::Header;
use beanpole::binlog::recovery::Survey;
use beanpole::binlog::{Event, SyncMode};
use beanpole::engine::{Change, StoredJob};
use beanpole::protocol::{Body, JobId};
use std::io::ErrorKind;
use std::ops::Range;
use std::sync::{Arc, Mutex, mpsc};

/// A log of several segments, in which each change is synced. It is closed in
/// order, or not.
fn log(closed: bool) -> (Disk, History, Jobs) {
    let disk = Disk::default();
    let mut server = Server::open(&disk);
    let random = &mut Random::new(3);
    // The newest segment gets only a few records, so that the tests are short.
    // There is so little garbage that no segment is emptied. The last sync has
    // only one change.
    let mut round = 0;
    while server.log.stats().current_index < 4 || round % 8 != 4 {
        round += 1;
        assert!(server.put(90, random));
        let newest = *server.jobs.keys().next_back().unwrap();
        match round {
            10 => server.delete(newest),
            _ if round % 8 == 0 => server.update(JobId(2 + random.below(3)), random),
            _ => {}
        }
        assert!(server.commit());
    }
    assert_eq!(server.log.stats().oldest_index, 1);
    server.log.flush_and_recycle().unwrap();
    if closed {
        // No client has waited for this one.
        assert!(server.put(90, random));
        server.log.close().unwrap();
    }
    (copy_of(&disk), server.history, server.jobs)
}

fn copy_of(disk: &Disk) -> Disk {
    disk.state().cut(Survival::Everything, &mut Random::new(1))
}

/// The same disk with other bytes in this file.
fn with(disk: &Disk, name: &str, bytes: &[u8]) -> Disk {
    let copy = copy_of(disk);
    copy.put(name, bytes);
    copy
}

/// The same disk without these files.
fn without<'a>(disk: &Disk, names: impl IntoIterator<Item = &'a String>) -> Disk {
    let copy = copy_of(disk);
    names.into_iter().for_each(|name| copy.remove_file(name));
    copy
}

/// A log with one put, and a server that writes on.
fn log_of_one(len: usize) -> (Disk, Server) {
    let disk = Disk::default();
    let mut server = Server::new(start_with(&disk, SyncMode::Always, 1 << 20).unwrap());
    assert!(server.put(len, &mut Random::new(1)) && server.commit());
    (disk, server)
}

/// Where the last record ends.
fn end_of(bytes: &[u8]) -> usize {
    1 + bytes.iter().rposition(|byte| *byte != 0).unwrap()
}

/// This byte with one bit flipped.
fn flipped(bytes: &[u8], index: usize) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    bytes[index] ^= 1 << (index % 8);
    bytes
}

/// Checks why a start is refused, as far as this says.
fn assert_refusal(disk: &Disk, why: &str) {
    let told = refusal(disk);
    assert!(told.starts_with(why), "{told}");
}

/// The names of the segments with records, and of the files with zeros only.
fn segments(disk: &Disk) -> (Vec<String>, Vec<String>) {
    let mut names = disk.names();
    names.sort_by_key(|name| (name.len(), name.clone()));
    let has_records = |name: &String| disk.contents(name).iter().any(|byte| *byte != 0);
    names.into_iter().partition(has_records)
}

#[test]
fn the_newest_segment_cut_at_any_byte_gives_all_complete_changes_before_the_cut() {
    let (disk, mut history, jobs) = log(false);
    let newest = segments(&disk).0.pop().unwrap();
    let bytes = disk.contents(&newest);
    history.required = 0; // which ones are missing is what this is about
    let mut so_far = 0;
    for len in 0..=end_of(&bytes) + 1 {
        let cut = with(&disk, &newest, &bytes[..len]);
        if len < 44 {
            let told = format!("{newest} is damaged at offset 0: the file ends within its header");
            assert_refusal(&cut, &told);
            continue;
        }
        let opened = open(&cut);
        let kept = history
            .explains(&opened.jobs)
            .expect("the changes up to some point");
        assert!(kept >= so_far, "{len} bytes");
        so_far = kept;
        let is_torn = |notice: &str| notice.contains(": dropped a torn tail");
        match opened.notices.as_slice() {
            [] => {} // between two records
            [notice] => assert!(is_torn(notice), "{notice}"),
            more => panic!("{more:?}"),
        }
    }
    let whole = open(&disk);
    assert_eq!((whole.jobs, whole.notices), (jobs, vec![]));
}

#[test]
fn an_older_segment_cut_at_any_byte_is_damage() {
    let (disk, _, jobs) = log(true);
    for name in segments(&disk).0.iter().rev().skip(1) {
        let bytes = disk.contents(name);
        // The last bytes only say that another segment has begun.
        let end = end_of(&bytes) - 16;
        for len in (0..bytes.len()).filter(|len| *len < end || len % 100 == 0) {
            match start(&with(&disk, name, &bytes[..len])) {
                Ok(opened) => assert!(len >= end && opened.jobs == jobs, "{name}, {len} bytes"),
                Err(error) => assert!(error.to_string().starts_with(name), "{error}"),
            }
        }
    }
}

#[test]
fn a_flipped_bit_in_a_closed_log_is_noticed_or_harmless() {
    let (disk, _, jobs) = log(true);
    let (with_records, prepared) = segments(&disk);
    for name in with_records.iter().chain(&prepared) {
        let bytes = disk.contents(name);
        // All bytes of records, and some of the zeros after them.
        let is_tried = |index: &usize| {
            bytes[*index..].iter().any(|byte| *byte != 0) || index.is_multiple_of(40)
        };
        for index in (0..bytes.len()).filter(is_tried) {
            match start(&with(&disk, name, &flipped(&bytes, index))) {
                // The bit is after the end, or in the mark that only says that
                // all is well.
                Ok(opened) => assert!(opened.jobs == jobs, "{name}, byte {index}"),
                Err(error) => {
                    let error = error.to_string();
                    assert!(
                        error.contains(" is damaged at offset ") && error.contains(name),
                        "{error}"
                    );
                }
            }
        }
    }
}

/// The mark says that older segments are not needed, and others may begin in their files.
#[test]
fn damage_before_a_mark_is_named_rather_than_an_obsolete_segment() {
    let disk = Disk::default();
    let mut server = Server::open(&disk);
    let random = &mut Random::new(3);
    while server.log.stats().current_index < 4 {
        assert!(server.put(90, random) && server.commit());
    }
    assert!(server.put(90, random) && server.commit());
    let damaged = end_of(&disk.contents("segment.4")) - 1;
    let ids: Vec<JobId> = server.jobs.keys().copied().collect();
    for id in &ids[..ids.len() - 1] {
        server.delete(*id);
        assert!(server.commit());
        server.log.flush_and_recycle().unwrap();
        if server.log.stats().oldest_index > 1 {
            break;
        }
    }
    server.log.close().unwrap();
    assert_eq!(server.log.stats().oldest_index, 2);
    let bytes = flipped(&disk.contents("segment.4"), damaged);
    let damaged = with(&disk, "segment.4", &bytes);
    assert_refusal(&damaged, "segment.4 is damaged at offset ");
    assert!(refusal(&damaged).contains("`beanpole binlog repair DIR"));
}

#[test]
fn a_missing_segment_is_named() {
    let (disk, _, jobs) = log(true);
    let (with_records, prepared) = segments(&disk);
    for name in &with_records {
        let missing = format!("{name} is missing though jobs in it are needed");
        assert_refusal(&without(&disk, [name]), &missing);
    }
    for name in &prepared {
        assert_eq!(open(&without(&disk, [name])).jobs, jobs);
    }
}

/// The one before it still names older ones, which were removed since.
#[test]
fn a_newest_segment_that_cannot_be_read_is_named_rather_than_those_that_were_removed() {
    let (disk, ..) = log(true);
    let mut server = Server::open(&disk);
    let oldest = |server: &Server| server.log.stats().oldest_index;
    while oldest(&server) < 3 {
        let id = *server.jobs.keys().next().unwrap();
        server.delete(id);
        assert!(server.commit());
        server.log.flush_and_recycle().unwrap();
    }
    assert!(oldest(&server) < server.log.stats().current_index);
    let newest = format!("segment.{}", server.log.stats().current_index);
    let copy = copy_of(&disk);
    copy.forbid(&newest, Forbidden::Everything);
    assert_refusal(
        &copy,
        &format!("cannot open {newest} in the binlog directory"),
    );
    assert_eq!(Survey::of(Arc::new(copy)).unwrap().flaws.len(), 1);
}

/// Flash may show what was not written as bytes FF. A frame that says that the
/// next segment has begun starts with four of them.
#[test]
fn a_torn_tail_of_ff_bytes_is_not_taken_for_a_continued_segment() {
    let (disk, ..) = log(true);
    let mut names = segments(&disk).0;
    disk.remove_file(&names.pop().unwrap());
    let newest = names.pop().unwrap();
    assert!(refusal(&disk).contains(" is missing"));
    let mut bytes = disk.contents(&newest);
    let is_length = |four: &[u8]| four == [0xff; 4];
    let start = bytes.windows(4).rposition(is_length).unwrap();
    bytes[start..start + 16].fill(0xff);
    let torn = with(&disk, &newest, &bytes);
    let told = format!(
        "{newest}: dropped a torn tail of changes that were never synced: 16 bytes from offset {start} on"
    );
    assert_eq!(open(&torn).notices, [told]);
    assert!(open(&torn).notices.is_empty());
}

/// Starts over copies of a disk on which one operation after the other fails:
/// the operation, and what the start says if it ends, or if it leaves a file alone.
fn failing_starts(disk: &Disk, jobs: &Jobs, kind: ErrorKind) -> impl Iterator<Item = String> {
    (1..).map_while(move |operation| {
        let copy = disk.state().kill();
        copy.fail_at(operation, kind);
        let told = match start(&copy) {
            Ok(opened) => {
                assert_eq!(&opened.jobs, jobs);
                let mut notices = opened.notices.into_iter();
                let left = notices.find(|told| told.starts_with("left alone"));
                left.unwrap_or_default()
            }
            Err(error) => error.to_string(),
        };
        let (told, _) = told.split_once(" in the").unwrap_or_default();
        Some(format!("{}: {told}", copy.failed()?))
    })
}

/// What is read and may not be synced is written again, and some file systems
/// need room for that; a copy of a file may have holes.
#[test]
fn a_start_tolerates_a_full_disk_and_other_errors_only_of_prepared_segments() {
    let (disk, _, jobs) = &log(false);
    let goes_on = |kind| {
        let told = failing_starts(disk, jobs, kind);
        // Reading needs no room.
        let needs_room = |told: &String| told.ends_with(": ") && !told.starts_with("read");
        told.filter(needs_room).collect::<Vec<_>>()
    };
    let names = disk.names();
    let prepared = names.iter().filter(|name| name.contains("spare"));
    // One that cannot be used is removed.
    let prepared = ["open: ", "unshare: ", "allocate: "].repeat(prepared.count());
    assert_eq!(goes_on(ErrorKind::Other), prepared);
    // For the records, for the end of the segment before, and for the segment's file.
    let newest = ["write: ", "open: ", "write: ", "unshare: ", "allocate: "];
    assert_eq!(
        goes_on(ErrorKind::StorageFull),
        [&newest[..], &prepared].concat()
    );
}

/// As at any time, an error while another one is prepared stops only puts.
#[test]
fn a_first_start_needs_nothing_but_the_first_segment() {
    let (new, none) = (Disk::default(), Jobs::new());
    let starts = failing_starts(&new, &none, ErrorKind::Other);
    let told: Vec<_> = starts.collect();
    let named = told
        .iter()
        .rposition(|told| told.contains(": cannot sync the name of segment.1"));
    let (first, others) = told.split_at(1 + named.unwrap());
    assert!(
        first.iter().all(|told| told.contains(": cannot ")),
        "{first:?}"
    );
    assert!(others.iter().all(|told| told.ends_with(": ")), "{others:?}");
    let created = others.iter().filter(|told| told.starts_with("create"));
    assert_eq!(created.count(), 1);
}

/// A server that was killed has just made it.
#[test]
fn an_empty_prepared_segment_is_removed_at_start() {
    let (disk, _, jobs) = log(true);
    disk.put("segment.spare", b"");
    assert_eq!(open(&disk).jobs, jobs);
    assert!(!disk.names().contains(&"segment.spare".into()));
}

#[test]
fn a_segment_under_the_name_of_another_and_a_foreign_file_are_refused() {
    let (disk, ..) = log(true);
    let names = segments(&disk).0;
    let last = names.last().unwrap();
    for (bytes, flaw) in [
        (
            disk.contents(&names[0]),
            "its header is that of another segment",
        ),
        (
            b"#!/bin/sh\n".repeat(10),
            "it does not begin like a binlog segment",
        ),
    ] {
        let told = format!("{last} is damaged at offset 0: {flaw}");
        assert_refusal(&with(&disk, last, &bytes), &told);
    }
    let bytes = flipped(&disk.contents("segment.1"), 20);
    let told = "segment.1 is damaged at offset 0: the checksum of its header is wrong";
    assert_refusal(&with(&disk, "segment.1", &bytes), told);
    // Files with other names are ignored.
    disk.put("notes", b"mine");
    disk.put("segment.old", b"mine");
    open(&disk);
    assert_eq!(disk.contents("segment.old"), b"mine");
}

#[test]
fn a_refused_start_changes_no_file() {
    let (disk, ..) = log(true);
    let (names, _) = segments(&disk);
    let bytes = flipped(&disk.contents(&names[1]), 100);
    let damaged = with(&disk, &names[1], &bytes);
    let files = |disk: &Disk| {
        let names = disk.names().into_iter();
        let files = names.map(|name| (disk.contents(&name), name));
        files.collect::<Vec<_>>()
    };
    let before = files(&damaged);
    refusal(&damaged);
    assert!(files(&damaged) == before);
}

/// Without segments but with prepared ones, or with nothing in the only segment, it
/// is not taken for a new log.
#[test]
fn a_log_that_lost_all_its_segments_is_not_taken_for_a_new_one() {
    let (disk, _, jobs) = log(true);
    let (names, prepared) = segments(&disk);
    let disk = without(&disk, &names[1..]);
    let len = disk.contents("segment.1").len();
    let told = "all segments are missing, though segment.spare5 shows that there were some; \
        nothing was changed; put them back, or save what can be read to a new directory with \
        `beanpole binlog repair DIR NEW`";
    for nothing in [vec![], vec![0; len]] {
        let empty = with(&disk, "segment.1", &nothing);
        assert_refusal(&empty, "segment.1 is damaged at offset 0: ");
    }
    disk.remove_file("segment.1");
    assert_eq!(refusal(&disk), told);
    assert!(!jobs.is_empty() && open(&without(&disk, &prepared)).jobs.is_empty());
}

/// A log whose first segments are not needed any more, but are still there.
fn log_with_obsolete_segments() -> (Disk, Jobs) {
    let (disk, ..) = log(true);
    let mut server = Server::open(&disk);
    while server.log.stats().oldest_index < 3 {
        let id = *server.jobs.keys().next().unwrap();
        server.delete(id);
        assert!(server.commit());
    }
    server.log.close().unwrap();
    (copy_of(&disk), server.jobs)
}

#[test]
fn segments_that_were_not_needed_any_more_are_not_taken_for_the_whole_log() {
    let (disk, _) = log_with_obsolete_segments();
    for newest in 1..=2 {
        let copy = copy_of(&disk);
        let names = segments(&disk).0.into_iter().skip(newest);
        names.for_each(|name| copy.remove_file(&name));
        let missing = format!("segment.{} is missing though jobs in it", newest + 1);
        assert_refusal(&copy, &missing);
    }
}

/// A file that is used again gets the new header first, and then the new name.
#[test]
fn a_kill_before_an_obsolete_segment_gets_its_new_name_costs_no_file() {
    let (disk, jobs) = log_with_obsolete_segments();
    let header = Header {
        number: 9,
        oldest: 3,
        previous_end: 100,
        next_id: JobId(50),
        salt: 7,
    };
    let begun = [&header.encode(), &disk.contents("segment.1")[44..]].concat();
    let foreign = vec![b'x'; SIZE as usize];
    let told = "left alone, since it is not needed: segment.1 is damaged at offset 0: it does not";
    for (bytes, told) in [(&begun, None), (&foreign, Some(told))] {
        let copy = with(&disk, "segment.1", bytes);
        let opened = open(&copy);
        assert_eq!(opened.jobs, jobs);
        let notices = opened.notices.iter();
        let are_as_told = notices.map(|notice| told.is_some_and(|told| notice.starts_with(told)));
        assert_eq!(
            are_as_told.collect::<Vec<_>>(),
            vec![true; told.iter().count()]
        );
        assert_eq!(&copy.contents("segment.1"), bytes);
    }
}

#[test]
fn a_log_may_have_more_segments_than_a_process_may_open_files() {
    let disk = Disk::default();
    let mut server = Server::open(&disk);
    while server.log.stats().current_index <= 4 {
        assert!(server.put(SIZE as usize / 2, &mut Random::new(1)) && server.commit());
    }
    let jobs = server.jobs.clone();
    drop(server);
    // The newest segment and the prepared ones stay open.
    disk.set_descriptors(4);
    assert!(segments(&disk).0.len() > 4);
    assert_eq!(open(&disk).jobs, jobs);
}

#[test]
fn a_start_is_refused_if_a_segment_cannot_be_written() {
    let (disk, ..) = log(true);
    for name in segments(&disk).0 {
        let copy = disk.state().kill();
        copy.forbid(&name, Forbidden::Writing);
        let told = format!("cannot write to {name} in the binlog directory: ");
        assert_refusal(&copy, &told);
    }
}

/// As when the file system has lost the contents of a file that was about to be
/// removed.
#[test]
fn an_unreadable_obsolete_segment_does_not_prevent_a_start() {
    let (disk, ..) = log(true);
    let mut server = Server::open(&disk);
    let oldest = segments(&disk).0[0].clone();
    // One that has lost its end gives no room for another one.
    while server.log.stats().oldest_index < 2 {
        let id = *server.jobs.keys().next().unwrap();
        server.delete(id);
        assert!(server.commit());
    }
    let jobs = server.jobs.clone();
    assert!(disk.names().contains(&oldest));
    let spoilt = disk.contents(&oldest)[..50].to_vec();
    for flaw in [Some(Forbidden::Everything), None] {
        let copy = copy_of(&disk);
        match flaw {
            Some(flaw) => copy.forbid(&oldest, flaw),
            None => copy.put(&oldest, &spoilt),
        }
        let opened = open(&copy);
        assert_eq!(opened.jobs, jobs);
        let told: &[&str] = match flaw {
            Some(_) => &[
                "left alone, since it is not needed: cannot open segment.1 in the binlog directory: split brain",
            ],
            None => &[],
        };
        assert_eq!(opened.notices, told);
        assert_eq!(copy.names().contains(&oldest), flaw.is_some());
    }
}

/// As when it belongs to another user, or its copies on several disks differ.
#[test]
fn an_obsolete_segment_that_cannot_be_removed_is_reported_and_stops_no_put() {
    for is_scarce in [false, true] {
        let (disk, ..) = log(true);
        let mut server = Server::open(&disk);
        let (told, events) = mpsc::channel();
        let tell = move |event: Event<'_>| told.send(format!("{event:?}")).unwrap();
        server.log.spawn_threads(tell).unwrap();
        disk.forbid("segment.1", Forbidden::Everything);
        let random = &mut Random::new(5);
        while server.log.stats().current_index < 12 {
            let id = *server.jobs.keys().next().unwrap();
            server.delete(id);
            assert!(server.put(90, random) && server.commit());
            if is_scarce {
                disk.set_capacity(Some(disk.used() + SIZE));
            }
        }
        let event = events.recv().unwrap();
        let told = "cannot remove segment.1 in the binlog directory: split brain";
        assert!(
            event.starts_with("NotRemoved") && event.contains(told),
            "{event}"
        );
        server.log.close().unwrap();
        assert_eq!(events.recv().ok(), None, "and that is all");
        let copy = disk.state().kill();
        copy.forbid("segment.1", Forbidden::Everything);
        let opened = open(&copy);
        assert_eq!(opened.jobs, server.jobs);
        assert!(opened.notices[0].contains("split brain"));
    }
}

/// A client may guess where a body will be in the log, and put a frame into it.
/// The frame would be valid there only with the segment's salt. And even
/// then it does not count, as long as the frame of the body's record is there.
#[test]
fn a_torn_tail_with_a_frame_in_a_body_is_not_reported_as_damage() {
    for (knows_salt, spoilt) in [(true, 675..1187), (false, 0..512)] {
        forge(knows_salt, spoilt);
    }
}

/// The salt of the first segment.
fn salt_of(disk: &Disk) -> u32 {
    u32::from_le_bytes(disk.contents("segment.1")[36..40].try_into().unwrap())
}

/// The frame of a record at this offset of the first segment.
fn frame(salt: u32, offset: u64, record: &[u8]) -> Vec<u8> {
    let len = record.len() as u32;
    let mut seed = crc32fast::Hasher::new();
    seed.update(&1u32.to_le_bytes());
    seed.update(&offset.to_le_bytes());
    seed.update([len, 0].map(u32::to_le_bytes).as_flattened());
    let seed = seed.finalize() ^ salt;
    let mut crc = crc32fast::Hasher::new_with_initial(seed);
    crc.update(record);
    let fields = [len, 0, seed, crc.finalize()].map(u32::to_le_bytes);
    fields.as_flattened().to_vec()
}

#[test]
fn an_intact_record_that_no_server_writes_is_damage() {
    let (disk, _) = log_of_one(10);
    let mut bytes = disk.contents("segment.1");
    let end = end_of(&bytes);
    let nonsense = [&frame(salt_of(&disk), end as u64, b"?")[..], b"?"].concat();
    bytes[end..end + nonsense.len()].copy_from_slice(&nonsense);
    let told =
        format!("segment.1 is damaged at offset {end}: the checksum of this record is right, but");
    assert_refusal(&with(&disk, "segment.1", &bytes), &told);
}

/// `spoilt` is the part of the record that a power cut makes zeros.
fn forge(knows_salt: bool, spoilt: Range<usize>) {
    let disk = Disk::default();
    let mut server = Server::new(start_with(&disk, SyncMode::Never, 8192).ok().unwrap());
    assert!(server.put(10, &mut Random::new(1)) && server.commit());
    let first = server.jobs[&JobId(1)].clone();
    let written = disk.contents("segment.1");
    let put_at = end_of(&written) as u64;
    // What comes before the body is as long as that of the first job.
    let body_at = put_at + (put_at - 44 - first.body.wire().len() as u64);
    let mut body = vec![b'x'; 3000];
    let forged_at = body_at + 2000;
    let salt = if knows_salt { salt_of(&disk) } else { 0 };
    let delete = [3, 1];
    let forged = frame(salt, forged_at, &delete);
    body[2000..2016].copy_from_slice(&forged);
    body[2016..2018].copy_from_slice(&delete);

    let mut second = StoredJob {
        body: Body::new(&body),
        ..first.clone()
    };
    second.fields.id = JobId(2);
    let jobs = Jobs::from([(JobId(1), first), (JobId(2), second)]);
    let end = server.log.append(&[Change::Put(JobId(2))], &jobs);
    server.log.commit(end).unwrap();
    let mut bytes = disk.contents("segment.1");
    assert_eq!(&bytes[forged_at as usize..][16..18], delete);
    bytes[put_at as usize..][spoilt].fill(0);
    let opened = open(&with(&disk, "segment.1", &bytes));
    assert_eq!(opened.jobs.into_keys().collect::<Vec<_>>(), [JobId(1)]);
    // Without its frame, the rest of a body may be left from an earlier use of
    // the file.
    let is_told = |notice: &String| notice.contains("dropped a torn tail");
    assert_eq!(opened.notices.iter().any(is_told), knows_salt);
}

#[test]
fn a_segment_of_an_earlier_version_is_named_and_left_alone() {
    let disk = Disk::default();
    open(&disk);
    let mut bytes = disk.contents("segment.1");
    bytes[8] = 5;
    let crc = crc32fast::hash(&bytes[..40]);
    bytes[40..44].copy_from_slice(&crc.to_le_bytes());
    let earlier = with(&disk, "segment.1", &bytes);
    let told = "segment.1 is of version 5 of the format, and this program reads only version 6; \
        nothing was changed; start the beanpoled that wrote it, and move its jobs with ";
    assert_refusal(&earlier, told);
    assert_eq!(earlier.contents("segment.1"), bytes);
}

/// With `-f 50`, its header and its name become durable with its first sync. A power cut before
/// that may leave the name alone.
#[test]
fn a_newest_segment_without_header_is_damage_only_if_it_was_synced() {
    let disk = Disk::default();
    let mut server = Server::new(start_with(&disk, SyncMode::Never, SIZE).unwrap());
    let random = &mut Random::new(1);
    let mut before = Jobs::new();
    while server.log.stats().current_index == 1 {
        before = server.jobs.clone();
        assert!(server.put(90, random) && server.commit());
    }
    let old = [&disk.contents("segment.1")[..300], &[0; 300]].concat();
    let nothings = [vec![], vec![0; 4096], old];
    for nothing in &nothings {
        let cut = with(&disk, "segment.2", nothing);
        let opened = open(&cut);
        assert_eq!(opened.jobs, before);
        let told = "removed segment.2: it had just begun, and none of its changes were ever synced";
        assert_eq!(opened.notices, [told]);
        // It does not come back.
        let later = cut.state().cut(Survival::Nothing, random);
        assert!(open(&later).notices.is_empty());
    }
    // Where its first server was killed, the next one has synced it.
    let killed = disk.state().kill();
    open(&killed);
    server.log.close().unwrap();
    for disk in [&disk, &killed] {
        for nothing in &nothings {
            let told = "segment.2 is damaged at offset 0: ";
            assert_refusal(&with(disk, "segment.2", nothing), told);
        }
        let lost = without(disk, [&"segment.2".into()]);
        assert_refusal(&lost, "segment.2 is missing");
    }
}

/// It has the number of the segment that begins there. If a power cut kept the new name alone,
/// the segment before would end where that header says.
#[test]
fn a_header_that_an_earlier_process_has_left_is_replaced_before_its_file_is_a_segment() {
    /// Puts until a segment is about to begin, and returns the disk at this moment.
    fn at_a_rename(disk: &Disk) -> (Disk, Disk) {
        let mut server = Server::open(disk);
        let found = Arc::new(Mutex::new(None));
        let kept = found.clone();
        disk.watch(Arc::new(move |disk, operation| {
            if operation == "rename" {
                let (state, random) = (disk.state(), &mut Random::new(1));
                let left = (state.kill(), state.cut(Survival::Nothing, random));
                kept.lock().unwrap().get_or_insert(left);
            }
        }));
        while found.lock().unwrap().is_none() {
            let first = server.jobs.keys().next().copied();
            first.into_iter().for_each(|id| server.delete(id));
            assert!(server.put(400, &mut Random::new(1)) && server.commit());
        }
        found.lock().unwrap().take().unwrap()
    }
    let headers = |disk: &Disk| {
        let names = disk.names().into_iter();
        let segments = names.map(|name| disk.contents(&name));
        let begun = segments.filter(|bytes| bytes.starts_with(b"beanpole"));
        begun.map(|bytes| bytes[..44].to_vec()).collect::<Vec<_>>()
    };
    let (killed, _) = at_a_rename(&Disk::default());
    let left = headers(&killed);
    let (seen, durable) = at_a_rename(&killed);
    assert_eq!((left.len(), headers(&seen).len()), (2, 2));
    assert!(headers(&seen) != left && headers(&durable) == headers(&seen));
}

/// The first client waits for the syncs of a start.
#[test]
fn a_start_syncs_the_names_and_the_newest_segment_only_if_it_was_not_closed() {
    for (closed, expected) in [
        (true, vec!["sync names"]),
        (false, vec!["sync names", "sync"]),
    ] {
        let (disk, ..) = log(closed);
        let syncs = Arc::new(Mutex::new(Vec::new()));
        let seen = syncs.clone();
        disk.watch(Arc::new(move |_, operation| {
            if operation.starts_with("sync") {
                seen.lock().unwrap().push(operation);
            }
        }));
        open(&disk);
        assert_eq!(*syncs.lock().unwrap(), expected);
    }
}
