//! Directories of beanstalkd that our server takes over.

use crate::disk::{Disk, Random, Survival};
use crate::model::{Jobs, SIZE, Server, open, refusal, start};
use crate::search;
use beanpole::binlog::format::Header;
use beanpole::binlog::import;
use beanpole::engine::{JobFields, StoredJob, StoredState, Time};
use beanpole::protocol::{Body, JobId, Priority, Seconds, TubeName};
use std::io::ErrorKind;
use std::sync::{Arc, Mutex};

/// A record of beanstalkd, field by field.
#[derive(Clone)]
pub struct Theirs {
    /// If it is empty, this is a short record.
    tube: &'static str,
    id: u64,
    priority: u32,
    delay: u64,
    ttr: u64,
    created: u64,
    deadline: u64,
    counters: [u32; 5],
    state: u8,
    /// With CR LF.
    body: &'static [u8],
}

const READY: u8 = 1;
const RESERVED: u8 = 2;
const BURIED: u8 = 3;
const DELAYED: u8 = 4;
const DELETED: u8 = 0;

/// A ready job of this id in the tube `t`.
fn put(id: u64, body: &'static [u8]) -> Theirs {
    Theirs {
        tube: "t",
        id,
        priority: 10,
        delay: 0,
        ttr: 60 * SECOND,
        created: 1_700_000_000 * SECOND,
        deadline: 0,
        counters: [0; 5],
        state: READY,
        body,
    }
}

/// A short record: this job has changed to this state.
fn becomes(id: u64, state: u8, counters: [u32; 5]) -> Theirs {
    Theirs {
        tube: "",
        state,
        counters,
        ..put(id, b"")
    }
}

const SECOND: u64 = 1_000_000_000;

/// How beanstalkd writes a file on some machine.
struct Layout {
    version: u32,
    is_big_endian: bool,
    /// What the bytes between the fields hold: beanstalkd leaves some undefined.
    undefined: u8,
    /// How many bytes the length of the tube's name has, and the job.
    name_len: usize,
    job_len: usize,
    /// Where in the job its fields are, in the order of [`Theirs`], with the length of
    /// the body after the TTR.
    offsets: [usize; 9],
    /// How many nanoseconds its unit of time has.
    unit: u64,
    /// What follows the last record.
    zeros: usize,
}

const X86_64: Layout = Layout {
    version: 7,
    is_big_endian: false,
    undefined: 0xee,
    name_len: 4,
    job_len: 80,
    offsets: [0, 8, 16, 24, 32, 40, 48, 56, 76],
    unit: 1,
    zeros: 4000,
};

const LAYOUTS: [Layout; 4] = [
    X86_64,
    // 32-bit x86.
    Layout {
        undefined: 0,
        job_len: 72,
        offsets: [0, 8, 12, 20, 28, 32, 40, 48, 68],
        zeros: 500,
        ..X86_64
    },
    // A big-endian machine.
    Layout {
        undefined: 0,
        is_big_endian: true,
        zeros: 0,
        ..X86_64
    },
    Layout {
        version: 5,
        undefined: 0,
        name_len: 8,
        job_len: 77,
        unit: 1000,
        zeros: 0,
        ..X86_64
    },
];

impl Layout {
    fn write(&self, records: &[Theirs]) -> Vec<u8> {
        let mut file = self.int(self.version.into(), 4);
        for record in records {
            file.extend(self.int(record.tube.len() as u64, self.name_len));
            file.extend(record.tube.as_bytes());
            // A short record has the length of a body too, but no body.
            let body_len = match record.tube {
                "" => 7,
                _ => record.body.len(),
            };
            let [
                id,
                priority,
                delay,
                ttr,
                body,
                created,
                deadline,
                counters,
                state,
            ] = self.offsets;
            let mut job = vec![self.undefined; self.job_len];
            let mut set = |at, number, len| put_at(&mut job, at, &self.int(number, len));
            set(id, record.id, 8);
            set(priority, record.priority.into(), 4);
            set(delay, record.delay / self.unit, 8);
            set(ttr, record.ttr / self.unit, 8);
            set(body, body_len as u64, 4);
            set(created, record.created / self.unit, 8);
            set(deadline, record.deadline / self.unit, 8);
            for (index, counter) in record.counters.into_iter().enumerate() {
                set(counters + 4 * index, counter.into(), 4);
            }
            job[state] = record.state;
            file.extend(job);
            file.extend(record.body);
        }
        file.resize(file.len() + self.zeros, 0);
        file
    }

    fn int(&self, number: u64, len: usize) -> Vec<u8> {
        if self.is_big_endian {
            number.to_be_bytes()[8 - len..].to_vec()
        } else {
            number.to_le_bytes()[..len].to_vec()
        }
    }
}

/// The usual layout, in whole blocks.
pub fn version_7(records: &[Theirs]) -> Vec<u8> {
    let mut file = Layout { zeros: 0, ..X86_64 }.write(records);
    file.resize(file.len().next_multiple_of(4096), 0);
    file
}

fn put_at(bytes: &mut [u8], offset: usize, field: &[u8]) {
    bytes[offset..offset + field.len()].copy_from_slice(field);
}

/// The body of a job, of this length.
fn body_of(len: usize) -> &'static [u8] {
    Box::leak([&vec![b'x'; len][..], b"\r\n"].concat().into())
}

fn disk_with(files: &[(&str, Vec<u8>)]) -> Disk {
    let disk = Disk::default();
    disk.put("lock", b"");
    files.iter().for_each(|(name, bytes)| disk.put(name, bytes));
    disk
}

/// The jobs that are left at the end of [`a_life`].
pub fn lives() -> Jobs {
    let job = |id, body: &[u8], state, counters| StoredJob {
        fields: JobFields {
            id: JobId(id),
            priority: Priority(10),
            ttr: Seconds(60),
            created_at: Time::from_nanos(1_700_000_000 * SECOND),
            state,
            counters,
            ..JobFields::default()
        },
        tube: TubeName::parse(b"t").unwrap(),
        options: None,
        body: Body::new(body),
    };
    let none = [0; 5];
    let until = Time::from_nanos(1_800_000_000 * SECOND);
    let buried = |order| StoredState::Buried { order };
    let reserved = [1, 0, 0, 0, 0];
    let kicked = [5, 4, 3, 2, 1];
    let mut delayed = job(4, b"four", StoredState::Delayed { until }, none);
    delayed.fields.delay = Seconds(90);
    delayed.fields.priority = Priority(7);
    let jobs = [
        job(1, b"one", buried(2), none),
        job(2, b"", buried(1), none),
        job(3, b"three\r\n", StoredState::Ready, reserved),
        delayed,
        job(6, b"six", StoredState::Ready, kicked),
    ];
    jobs.into_iter().map(|job| (job.fields.id, job)).collect()
}

/// Jobs in all states, in two files.
pub fn a_life() -> [Vec<Theirs>; 2] {
    let delayed = Theirs {
        delay: 90 * SECOND,
        deadline: 1_800_000_000 * SECOND,
        priority: 7,
        ..becomes(4, DELAYED, [0; 5])
    };
    [
        vec![
            becomes(99, BURIED, [1; 5]), // its full record is in a file that was removed
            put(1, b"one\r\n"),
            put(2, b"\r\n"),
            put(3, b"three\r\n\r\n"),
            put(4, b"four\r\n"),
            put(5, b"five\r\n"),
            becomes(2, BURIED, [0; 5]),
        ],
        vec![
            becomes(3, RESERVED, [1, 0, 0, 0, 0]),
            becomes(1, BURIED, [0; 5]),
            becomes(5, DELETED, [0; 5]),
            delayed,
            put(6, b"six\r\n"),
            becomes(6, READY, [5, 4, 3, 2, 1]),
            Theirs {
                state: DELETED,
                ..put(7, b"seven\r\n")
            },
            // beanstalkd had moved it here, to remove the first file.
            Theirs {
                state: BURIED,
                ..put(2, b"\r\n")
            },
        ],
    ]
}

#[test]
fn each_layout_of_beanstalkd_is_taken_over() {
    let [first, second] = a_life();
    for (index, layout) in LAYOUTS.iter().enumerate() {
        let (first, second) = (layout.write(&first), layout.write(&second));
        let disk = disk_with(&[("binlog.2", first), ("binlog.3", second)]);
        let opened = open(&disk);
        assert_eq!(opened.jobs, lives(), "layout {index}");
        assert_eq!(opened.next_id, JobId(100));
        assert_eq!(
            opened.notices,
            ["took over 5 jobs from 2 binlog files of beanstalkd"]
        );
        let names = disk.names();
        assert!(!names.contains(&"binlog.2".into()) && !names.contains(&"binlog.3".into()));
        let again = open(&disk);
        assert_eq!((again.jobs, again.next_id), (lives(), JobId(100)));
        assert!(again.notices.is_empty());
    }
}

#[test]
fn a_power_cut_during_a_takeover_neither_loses_nor_doubles_a_job() {
    for seed in search::seeds(1..40) {
        let ([mut first, second], mut jobs) = (a_life(), lives());
        if seed % 2 == 0 {
            // It does not fit into the first segment, where no job is then.
            first[1].body = body_of(9000);
            jobs.get_mut(&JobId(1)).unwrap().body = Body::new(&[b'x'; 9000]);
        }
        let disk = disk_with(&[
            ("binlog.2", version_7(&first)),
            ("binlog.3", version_7(&second)),
            ("binlog.4", vec![0; 4096]), // just begun
        ]);
        let random = Mutex::new(Random::new(seed));
        disk.watch(Arc::new(move |disk, _| {
            let random = &mut *random.lock().unwrap();
            let survival = *random.choose(&[Survival::Nothing, Survival::Something]);
            let cut = disk.state().cut(survival, random);
            cut.stop_after(random.below(60));
            drop(start(&cut));
            let cut = cut.state().cut(Survival::Something, random);
            let opened = open(&cut);
            assert_eq!(opened.jobs, jobs, "seed {seed}");
            assert!(opened.next_id >= JobId(100));
            let again = open(&cut);
            assert_eq!(again.jobs, jobs, "seed {seed}");
            let is_usual = |notice: &String| notice.starts_with("removed segment.");
            assert!(again.notices.iter().all(is_usual), "{:?}", again.notices);
        }));
        open(&disk);
    }
}

#[test]
fn a_takeover_without_room_says_how_much_it_needs_and_changes_nothing() {
    let body = body_of(30_000);
    let disk = disk_with(&[("binlog.1", version_7(&[put(1, body), put(2, body)]))]);
    disk.set_capacity(Some(100_000));
    let error = refusal(&disk);
    let (told, advice) = (
        "cannot take over the jobs of beanstalkd: copies of them need ",
        "; nothing was changed; make room, or start beanstalkd again",
    );
    let numbers = error
        .strip_prefix(told)
        .and_then(|text| text.strip_suffix(advice));
    let numbers = numbers.unwrap_or_else(|| panic!("{error}"));
    let (needed, free) = numbers.split_once(" bytes on the disk, and ").unwrap();
    assert_eq!(free, format!("{} are free", 100_000 - disk.used()));
    disk.set_capacity(Some(disk.used() + needed.parse::<u64>().unwrap()));
    assert_eq!(open(&disk).jobs.len(), 2);
}

/// Otherwise neither server could start on the full disk.
#[test]
fn a_takeover_that_fails_leaves_the_disk_as_it_was() {
    let jobs: Vec<Theirs> = (1..=40).map(|id| put(id, body_of(600))).collect();
    let third = vec![becomes(40, DELETED, [0; 5]), put(100, b"new\r\n")];
    let mut failed = 0;
    for more in 0.. {
        let disk = disk_with(&[("binlog.2", version_7(&jobs))]);
        let (names, used) = (disk.names(), disk.used());
        disk.set_capacity(Some(used + more * SIZE));
        if start(&disk).is_ok() {
            break;
        }
        failed += 1;
        assert_eq!((disk.names(), disk.used()), (names, used), "{more}");
        // beanstalkd has its room again, and is used on.
        disk.put("binlog.3", &version_7(&third));
        disk.set_capacity(None);
        assert_eq!(open(&disk).jobs.len(), 40);
    }
    println!("{failed} takeovers failed");
    assert!(failed > 8);
}

/// Whatever fails, and whenever the power is cut while the copies go away.
#[test]
fn a_takeover_that_fails_at_any_operation_may_be_done_again() {
    let [first, second] = a_life();
    let files = [
        ("binlog.2", version_7(&first)),
        ("binlog.3", version_7(&second)),
    ];
    let mut tried = 0;
    for operation in 1.. {
        for kind in [ErrorKind::StorageFull, ErrorKind::Other] {
            let disk = disk_with(&files);
            disk.fail_at(operation, kind);
            let is_refused = start(&disk).is_err();
            let Some(what) = disk.failed() else {
                println!("{tried} takeovers failed");
                return assert!(tried > 20);
            };
            tried += u32::from(is_refused);
            for survival in [Survival::Nothing, Survival::Something, Survival::Everything] {
                let cut = disk.state().cut(survival, &mut Random::new(operation));
                assert_eq!(open(&cut).jobs, lives(), "{what}");
            }
        }
    }
}

#[test]
fn a_file_with_an_incomplete_job_is_named_and_kept() {
    let files = [
        (
            "binlog.1",
            version_7(&[
                put(1, b"one\r\n"),
                put(2, b"torn\0\0"),
                put(3, b"three\r\n"),
            ]),
        ),
        // Another record has the whole job, before or after this one, so
        // nothing is lost.
        (
            "binlog.2",
            version_7(&[put(4, b"torn\0\0"), put(5, b"five\r\n")]),
        ),
        (
            "binlog.3",
            version_7(&[put(4, b"four\r\n"), put(5, b"torn\0\0")]),
        ),
        (
            "binlog.4",
            version_7(&[put(6, b""), becomes(6, DELETED, [0; 5])]),
        ),
    ];
    let disk = disk_with(&files);
    let opened = open(&disk);
    let ids: Vec<u64> = opened.jobs.keys().map(|id| id.0).collect();
    assert_eq!(ids, [1, 3, 4, 5]);
    let told =
        "binlog.1 is kept as binlog.1.kept: job 2 is not whole, its body does not end in CR LF";
    assert_eq!(
        opened.notices,
        [told, "took over 4 jobs from 4 binlog files of beanstalkd"]
    );
    assert_eq!(disk.contents("binlog.1.kept"), files[0].1);
    let is_theirs = |name: &String| name.starts_with("binlog.");
    let theirs: Vec<String> = disk.names().into_iter().filter(is_theirs).collect();
    assert_eq!(theirs, ["binlog.1.kept"]);
    // The jobs are taken over only once, and the other jobs in that file stay deleted.
    let mut server = Server::new(opened);
    server.delete(JobId(1));
    server.commit();
    drop(server);
    let again = open(&disk);
    assert_eq!((again.jobs.len(), again.notices), (3, vec![]));
}

#[test]
fn a_file_with_bytes_that_are_no_record_is_named_and_kept() {
    let whole = version_7(&[put(1, b"one\r\n")]);
    let end = 4 + 4 + 1 + 80 + 5;
    let with = |offset: usize, bytes: &[u8]| {
        let mut file = whole.clone();
        put_at(&mut file, offset, bytes);
        file
    };
    let cut_short = version_7(&[put(1, b"one\r\n"), put(2, b"two\r\n")])[..end + 88].to_vec();
    for (file, told) in [
        (
            with(end, &[201, 0, 0, 0]),
            "no tube's name is that long, 4002 bytes from offset 94 on are not read",
        ),
        (
            with(end, b"\x01\0\0\0*"),
            "this is not a job, 4002 bytes from offset 94 on are not read",
        ),
        (
            with(1000, b"x"),
            "there is something after the end, 4002 bytes from offset 94 on are not read",
        ),
        (
            version_7(&[put(1, b"one\r\n"), put(1 << 63, b"x\r\n")]),
            "no job has so large an id, 4002 bytes from offset 94 on are not read",
        ),
        (
            cut_short,
            "the file ends within the body of job 2, 88 bytes from offset 94 on are not read",
        ),
    ] {
        let disk = disk_with(&[("binlog.1", file.clone())]);
        let opened = open(&disk);
        assert_eq!(opened.jobs.len(), 1);
        let kept = format!("binlog.1 is kept as binlog.1.kept: {told}");
        assert_eq!(opened.notices[0], kept);
        assert_eq!(disk.contents("binlog.1.kept"), file);
    }
}

/// beanstalkd makes its files as long as they may become, and fills them up.
#[test]
fn a_file_that_is_full_except_for_a_few_zeros_is_taken_over() {
    let mut file = version_7(&[put(1, b"one\r\n")]);
    for zeros in [1, 5, 83] {
        file.truncate(4 + 4 + 1 + 80 + 5 + zeros);
        let disk = disk_with(&[("binlog.1", file.clone())]);
        let opened = open(&disk);
        assert_eq!(opened.jobs.len(), 1);
        let told = "took over 1 job from 1 binlog file of beanstalkd";
        assert_eq!(opened.notices, [told], "{zeros}");
        file.resize(4096, 0);
    }
}

#[test]
fn a_reader_of_arbitrary_bytes_never_panics() {
    let [first, second] = a_life();
    let whole = version_7(&[first, second].concat());
    let random = &mut Random::new(5);
    for _ in 0..3000 {
        let mut bytes = whole.clone();
        for _ in 0..1 + random.below(4) {
            let at = 4 + random.below(1500) as usize;
            bytes[at] = random.next() as u8;
        }
        bytes.truncate(4 + random.below(5000) as usize);
        open(&disk_with(&[("binlog.1", bytes)]));
    }
}

/// A log of ours with the jobs 1 to 3, in several segments.
fn ours() -> (Disk, Jobs) {
    let disk = Disk::default();
    let mut server = Server::open(&disk);
    for _ in 0..3 {
        assert!(server.put(1800, &mut Random::new(1)) && server.commit());
    }
    assert!(server.log.stats().current_index > 1);
    (disk, server.jobs)
}

/// As after a rollback in place, or a start by habit. It does not see our files.
#[test]
fn jobs_that_beanstalkd_took_beside_our_files_are_taken_over_if_no_id_is_in_both() {
    let (disk, mut jobs) = ours();
    // It has removed its first file, and there was a job 2 in that, too.
    let theirs = [becomes(2, BURIED, [0; 5]), put(7, b"seven\r\n")];
    disk.put("binlog.2", &version_7(&theirs[1..]));
    let opened = open(&disk);
    let told = "took over 1 job from 1 binlog file of beanstalkd";
    assert_eq!(opened.notices, [told]);
    assert_eq!(opened.next_id, JobId(8));
    jobs.insert(JobId(7), opened.jobs[&JobId(7)].clone());
    assert_eq!(opened.jobs, jobs);
    assert_eq!(open(&disk).jobs, jobs);
    let (disk, _) = ours();
    disk.put("binlog.2", &version_7(&theirs));
    assert!(refusal(&disk).starts_with("job 2 is in the files of beanstalkd"));
}

#[test]
fn a_start_is_refused_and_changes_nothing_if_an_id_is_in_files_of_both() {
    let (disk, _) = ours();
    disk.put("binlog.1", &version_7(&[put(3, b"three\r\n")]));
    let contents = |disk: &Disk| {
        let names = disk.names();
        let files = names.into_iter().map(|name| (disk.contents(&name), name));
        files.collect::<Vec<_>>()
    };
    let before = contents(&disk);
    let told = "job 3 is in the files of beanstalkd (binlog.*) and in ours (segment.*), which \
        cannot be one log; nothing was changed; move the files binlog.* to a directory of their \
        own, start each server on its own, and move the jobs of beanstalkd with `beanpole dump` \
        and `beanpole load`";
    assert_eq!(refusal(&disk), told);
    assert!(contents(&disk) == before);
    disk.remove_file("binlog.1");
    assert_eq!(open(&disk).jobs.len(), 3);
}

/// Whatever fails, and whenever the power is cut: the jobs of both are there once.
#[test]
fn a_takeover_beside_our_own_jobs_may_be_interrupted_at_any_operation() {
    let (ours, mut jobs) = ours();
    let moved = |id: &u64| put(id + 100, body_of(900));
    let theirs = version_7(&[1, 2, 3, 4, 5, 6, 7, 8].each_ref().map(moved));
    ours.put("binlog.1", &theirs);
    jobs.extend(open(&ours.state().kill()).jobs);
    assert_eq!(jobs.len(), 11);
    let mut tried = 0;
    for operation in 1.. {
        for kind in [ErrorKind::StorageFull, ErrorKind::Other] {
            let disk = ours.state().kill();
            disk.fail_at(operation, kind);
            let is_refused = start(&disk).is_err();
            let Some(what) = disk.failed() else {
                println!("{tried} takeovers failed");
                return assert!(tried > 20);
            };
            tried += u32::from(is_refused);
            for survival in [Survival::Nothing, Survival::Something, Survival::Everything] {
                let cut = disk.state().cut(survival, &mut Random::new(operation));
                assert_eq!(open(&cut).jobs, jobs, "{what}");
                assert_eq!(open(&cut).jobs, jobs, "{what}");
            }
        }
    }
}

/// Until a takeover is finished, beanstalkd has all the jobs. If it is started once more,
/// it puts others into a new file, and may remove its oldest file. Afterwards, we have
/// them.
#[test]
fn beanstalkd_may_be_started_again_after_a_takeover_that_was_interrupted() {
    let [first, second] = a_life();
    let third = vec![becomes(6, DELETED, [0; 5]), put(100, b"new\r\n")];
    let (mut copies, mut clashes) = (0, 0);
    for operations in 0.. {
        let disk = disk_with(&[
            ("binlog.2", version_7(&first)),
            ("binlog.3", version_7(&second)),
        ]);
        disk.stop_after(operations);
        let is_over = start(&disk).is_ok();
        let disk = disk.state().kill();
        let names = disk.names();
        if is_over || !names.contains(&"binlog.3".into()) {
            break;
        }
        let notices = open(&disk.state().kill()).notices;
        disk.put("binlog.4", &version_7(&third));
        if notices[0].starts_with("removed ") {
            // The copies count, and those files are not needed any more.
            clashes += 1;
            assert!(refusal(&disk).starts_with("job 6 is in the files of beanstalkd"));
            continue;
        }
        copies += u32::from(names.contains(&"segment.1".into()));
        let mut jobs = lives();
        jobs.remove(&JobId(6));
        let is_first_gone = operations % 2 == 1;
        if is_first_gone {
            disk.remove_file("binlog.2");
            // This one was moved to the second file.
            jobs.retain(|_, job| job.fields.id == JobId(2));
        }
        let mut found = open(&disk).jobs;
        assert!(found.remove(&JobId(100)).is_some());
        let ids = |jobs: &Jobs| jobs.keys().copied().collect::<Vec<_>>();
        assert_eq!(ids(&found), ids(&jobs), "{operations}: {names:?}");
        assert!(is_first_gone || found == jobs, "{operations}: {names:?}");
        assert_eq!(open(&disk).jobs.len(), found.len() + 1);
    }
    println!("{copies} times there were copies, {clashes} times they counted");
    assert!(copies > 5 && clashes > 0);
}

/// A file that is not taken over is never lost, and beanstalkd leaves no gap.
#[test]
fn a_gap_in_the_files_of_beanstalkd_is_named() {
    let files = [1, 2, 3].map(|id| (format!("binlog.{id}"), version_7(&[put(id, b"one\r\n")])));
    let disk = disk_with(&[]);
    files.iter().for_each(|(name, file)| disk.put(name, file));
    disk.remove_file("binlog.2");
    let names = disk.names();
    let told = "binlog.2 is missing though jobs in it are needed; nothing was changed";
    assert!(refusal(&disk).starts_with(told));
    assert_eq!(disk.names(), names);
    disk.put("binlog.2", &files[1].1);
    assert_eq!(open(&disk).jobs.len(), 3);
}

/// The power failed before its removal was on the disk.
#[test]
fn only_a_file_that_matches_the_mark_of_a_takeover_is_removed() {
    let file = version_7(&[put(1, b"one\r\n")]);
    let disk = disk_with(&[("binlog.1", file.clone())]);
    assert_eq!(open(&disk).jobs.len(), 1);
    disk.put("binlog.1", &file);
    let told = "removed 1 binlog file of beanstalkd, whose jobs were taken over before";
    assert_eq!(open(&disk).notices, [told]);
    assert!(!disk.names().contains(&"binlog.1".into()));
    for (name, file) in [
        ("binlog.2", file),
        ("binlog.1", version_7(&[put(1, b"two\r\n")])),
    ] {
        disk.put(name, &file);
        assert!(refusal(&disk).starts_with("job 1 is in the files of beanstalkd"));
        disk.remove_file(name);
    }
}

#[test]
fn a_file_of_another_program_that_is_named_like_theirs_is_left_alone() {
    let disk = disk_with(&[("binlog.1", version_7(&[put(1, b"one\r\n")]))]);
    disk.put("binlog.2", b"neither of beanstalkd nor of ours");
    let told = "binlog.2 is damaged at offset 0: beanstalkd does not begin a file like this";
    assert!(refusal(&disk).starts_with(told));
    assert_eq!(disk.names(), ["binlog.1", "binlog.2", "lock"]);
}

/// beanstalkd that is killed at its first start leaves a file of zeros.
#[test]
fn a_start_over_empty_files_may_be_interrupted() {
    for operations in 0..40 {
        let disk = disk_with(&[("binlog.1", vec![0; 4096])]);
        disk.stop_after(operations);
        drop(start(&disk));
        for survival in [Survival::Nothing, Survival::Something, Survival::Everything] {
            let cut = disk.state().cut(survival, &mut Random::new(operations));
            assert!(open(&cut).jobs.is_empty());
        }
    }
}

#[test]
fn jobs_of_beanstalkd_do_not_replace_a_segment_that_is_lost() {
    let disk = Disk::default();
    let mut server = Server::open(&disk);
    while server.log.stats().current_index < 3 {
        assert!(server.put(90, &mut Random::new(1)));
        assert!(server.commit());
    }
    drop(server);
    disk.remove_file("segment.1");
    disk.put("binlog.9", &version_7(&[put(100, b"one\r\n")]));
    assert!(refusal(&disk).starts_with("segment.1 is missing"));
    let disk = disk_with(&[("binlog.9", version_7(&[put(100, b"one\r\n")]))]);
    disk.put("segment.spare2", b"");
    assert!(refusal(&disk).starts_with("all segments are missing"));
}

/// The file that is kept has jobs, of which others were deleted later.
#[test]
fn damage_in_the_mark_of_a_takeover_brings_back_no_job() {
    let incomplete = Theirs {
        body: b"threeXY",
        ..put(3, b"three\r\n")
    };
    let kept = [put(1, b"one\r\n"), put(2, b"two\r\n"), incomplete];
    let later = [becomes(1, DELETED, [0; 5]), put(4, b"four\r\n")];
    let disk = disk_with(&[
        ("binlog.1", version_7(&kept)),
        ("binlog.2", version_7(&later)),
    ]);
    let jobs = open(&disk).jobs;
    assert_eq!(jobs.keys().collect::<Vec<_>>(), [&JobId(2), &JobId(4)]);
    let bytes = disk.contents("segment.1");
    let end = 1 + bytes.iter().rposition(|byte| *byte != 0).unwrap();
    // That mark and another one, each with its frame.
    for index in end - 46..end {
        let mut damaged = bytes.clone();
        damaged[index] ^= 1;
        disk.put("segment.1", &damaged);
        match start(&disk) {
            Ok(opened) => assert_eq!(opened.jobs, jobs, "{index}"),
            Err(error) => assert!(error.to_string().starts_with("segment.1 is damaged")),
        }
    }
}

#[test]
fn a_log_goes_on_and_starts_again_with_the_last_possible_number() {
    let header = Header {
        number: u32::MAX - 2,
        oldest: u32::MAX - 2,
        previous_end: 0,
        next_id: JobId(1),
        salt: 1,
    };
    let mut first = header.encode();
    first.resize(4096, 0);
    let disk = disk_with(&[(&format!("segment.{}", header.number), first)]);
    let mut server = Server::open(&disk);
    let random = &mut Random::new(1);
    while server.log.stats().current_index < u32::MAX {
        assert!(server.put(900, random) && server.commit());
        server.log.flush_and_recycle().unwrap();
    }
    assert!(server.put(900, random) && server.commit());
    assert_eq!(open(&disk).jobs, server.jobs);
}

#[test]
fn jobs_encoded_for_beanstalkd_are_read_back() {
    let mut file = import::FILE_START.to_vec();
    let jobs = lives();
    jobs.values().for_each(|job| import::encode(job, &mut file));
    let read = open(&disk_with(&[("binlog.1", file)])).jobs;
    // Buried jobs come back in the order of their records.
    let mut expected = jobs;
    for (id, order) in [(1, 1), (2, 2)] {
        expected.get_mut(&JobId(id)).unwrap().fields.state = StoredState::Buried { order };
    }
    assert_eq!(read, expected);
}
