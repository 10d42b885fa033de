//! Damaged logs: with flipped bits, and with files that are cut short, missing,
//! exchanged or foreign.

use crate::disk::{Disk, Random, Survival};
use crate::model::{History, Jobs, Server};
use beanpole::binlog::{Binlog, Error, Opened, SyncMode};
use beanpole::protocol::JobId;
use std::sync::Arc;

const SIZE: u64 = 4096;

/// A log of several segments, in which each change is synced. It is closed in
/// order, or not.
fn log(closed: bool) -> (Disk, History, Jobs) {
    let disk = Disk::default();
    let mut server = Server::open(&disk, SyncMode::Always, SIZE);
    let random = &mut Random::new(3);
    // The newest segment gets only a few records, so that the tests are short.
    // There is so little garbage that no segment is emptied.
    let mut round = 0;
    while server.log.stats().current_index < 4 || round % 4 != 0 {
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
    server.log.work_once().unwrap();
    if closed {
        server.log.close().unwrap();
    }
    let copy = disk.state().cut(Survival::Everything, random);
    (copy, server.history, server.jobs)
}

fn try_open(disk: &Disk) -> Result<Opened, Error> {
    Binlog::open_in(Arc::new(disk.clone()), SyncMode::Always, SIZE, Jobs::new())
}

fn with(disk: &Disk, name: &str, bytes: &[u8]) -> Disk {
    let copy = disk.state().cut(Survival::Everything, &mut Random::new(1));
    copy.remove_file(name);
    copy.put(name, bytes);
    copy
}

/// The names of the segments with records, and of the files with zeros only.
fn segments(disk: &Disk) -> (Vec<String>, Vec<String>) {
    let mut names = disk.names();
    names.sort_by_key(|name| (name.len(), name.clone()));
    let has_records = |name: &String| disk.contents(name).iter().any(|byte| *byte != 0);
    names.into_iter().partition(has_records)
}

#[test]
fn the_newest_segment_cut_at_every_byte_gives_what_came_before() {
    let (disk, mut history, jobs) = log(false);
    let newest = segments(&disk).0.pop().unwrap();
    let bytes = disk.contents(&newest);
    let end = bytes.iter().rposition(|byte| *byte != 0).unwrap() + 1;
    history.kept = 0; // which ones are missing is what this is about
    let mut so_far = 0;
    for len in 0..=end + 1 {
        let opened = try_open(&with(&disk, &newest, &bytes[..len]));
        if len < 40 {
            let error = opened.err().unwrap().to_string();
            let flaw = match len {
                0 => "there is nothing in it, though there was",
                _ => "the file ends within its header",
            };
            let told = format!("{newest} is damaged at offset 0: {flaw}");
            assert!(error.starts_with(&told), "{error}");
            continue;
        }
        let opened = opened.unwrap_or_else(|error| panic!("{len} bytes: {error}"));
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
    let whole = try_open(&disk).unwrap();
    assert_eq!((whole.jobs, whole.notices), (jobs, vec![]));
}

#[test]
fn an_older_segment_cut_at_every_byte_is_damage() {
    let (disk, _, jobs) = log(true);
    for name in segments(&disk).0.iter().rev().skip(1) {
        let bytes = disk.contents(name);
        let end = bytes.iter().rposition(|byte| *byte != 0).unwrap() + 1;
        for len in (0..bytes.len()).filter(|len| *len < end || len % 100 == 0) {
            match try_open(&with(&disk, name, &bytes[..len])) {
                Ok(opened) => assert!(len >= end && opened.jobs == jobs, "{name}, {len} bytes"),
                Err(error) => assert!(error.to_string().starts_with(name), "{error}"),
            }
        }
    }
}

#[test]
fn a_bit_flipped_at_every_byte_of_a_closed_log_is_noticed_or_harmless() {
    let (disk, _, jobs) = log(true);
    let (with_records, spares) = segments(&disk);
    for name in with_records.iter().chain(&spares) {
        let bytes = disk.contents(name);
        for index in 0..bytes.len() {
            let mut flipped = bytes.clone();
            flipped[index] ^= 1 << (index % 8);
            match try_open(&with(&disk, name, &flipped)) {
                // The bit is behind the end, or in the mark that only says that
                // all is well.
                Ok(opened) => assert_eq!(opened.jobs, jobs, "{name}, byte {index}"),
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

#[test]
fn a_bit_flipped_at_every_byte_of_a_log_not_closed_costs_one_change_at_most() {
    let (disk, history, jobs) = log(false);
    let newest = segments(&disk).0.pop().unwrap();
    let bytes = disk.contents(&newest);
    let mut before_last = history.clone();
    before_last.kept -= 1;
    for index in 0..bytes.len() {
        let mut flipped = bytes.clone();
        flipped[index] ^= 1 << (index % 8);
        if let Ok(opened) = try_open(&with(&disk, &newest, &flipped))
            && opened.jobs != jobs
        {
            assert!(before_last.explains(&opened.jobs).is_some(), "byte {index}");
            assert_eq!(opened.notices.len(), 1, "byte {index}");
        }
    }
}

#[test]
fn a_missing_segment_is_named() {
    let (disk, _, jobs) = log(true);
    let (with_records, spares) = segments(&disk);
    for (index, name) in with_records.iter().enumerate() {
        let less = with(&disk, name, &[]);
        less.remove_file(name);
        match try_open(&less) {
            Err(error) => {
                let missing = format!("{name} is missing though jobs in it are needed");
                assert!(error.to_string().starts_with(&missing), "{error}");
            }
            // Without the newest segment, nothing shows that it was ever there.
            Ok(_) => assert!(index + 1 == with_records.len()),
        }
    }
    for name in &spares {
        let less = with(&disk, name, &[]);
        less.remove_file(name);
        assert_eq!(try_open(&less).unwrap().jobs, jobs);
    }
}

#[test]
fn a_segment_in_the_place_of_another_and_a_foreign_file_are_refused() {
    let (disk, ..) = log(true);
    let names = segments(&disk).0;
    let last = names.last().unwrap();
    for (bytes, flaw) in [
        (
            disk.contents(&names[0]),
            "the segment is another one by its header",
        ),
        (b"#!/bin/sh\n".repeat(10), "this is not a binlog segment"),
    ] {
        let error = try_open(&with(&disk, last, &bytes))
            .err()
            .unwrap()
            .to_string();
        assert!(
            error.starts_with(&format!("{last} is damaged at offset 0: {flaw}")),
            "{error}"
        );
    }
    // Files with other names are ignored.
    disk.put("notes", b"mine");
    disk.put("binlog.old", b"mine");
    try_open(&disk).unwrap();
    assert_eq!(disk.contents("binlog.old"), b"mine");
}

#[test]
fn an_error_changes_nothing() {
    let (disk, ..) = log(true);
    let (names, _) = segments(&disk);
    let mut bytes = disk.contents(&names[1]);
    bytes[100] ^= 1;
    let damaged = with(&disk, &names[1], &bytes);
    let files = |disk: &Disk| {
        disk.names()
            .iter()
            .map(|name| disk.contents(name))
            .collect::<Vec<_>>()
    };
    let before = files(&damaged);
    assert!(try_open(&damaged).is_err());
    assert!(files(&damaged) == before);
}
