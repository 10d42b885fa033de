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
    /// What the bytes between the fields hold: beanstalkd leaves some undefined.
    undefined: u8,
    /// How many bytes the job has.
    job_len: usize,
    /// Where in the job its fields are, in the order of [`Theirs`], with the length of
    /// the body after the TTR.
    offsets: [usize; 9],
    /// What follows the last record.
    zeros: usize,
}

const X86_64: Layout = Layout {
    undefined: 0xee,
    job_len: 80,
    offsets: [0, 8, 16, 24, 32, 40, 48, 56, 76],
    zeros: 4000,
};

const LAYOUTS: [Layout; 3] = [
    X86_64,
    Layout { zeros: 0, ..X86_64 },
    // 32-bit x86.
    Layout {
        undefined: 0,
        job_len: 72,
        offsets: [0, 8, 12, 20, 28, 32, 40, 48, 68],
        zeros: 500,
    },
];

impl Layout {
    fn write(&self, records: &[Theirs]) -> Vec<u8> {
        let mut file = import::FILE_START.to_vec();
        for record in records {
            file.extend(int(record.tube.len() as u64, 4));
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
            let mut set = |at, number, len| put_at(&mut job, at, &int(number, len));
            set(id, record.id, 8);
            set(priority, record.priority.into(), 4);
            set(delay, record.delay, 8);
            set(ttr, record.ttr, 8);
            set(body, body_len as u64, 4);
            set(created, record.created, 8);
            set(deadline, record.deadline, 8);
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
}

/// An integer in the byte order of this machine.
fn int(number: u64, len: usize) -> Vec<u8> {
    if cfg!(target_endian = "big") {
        number.to_be_bytes()[8 - len..].to_vec()
    } else {
        number.to_le_bytes()[..len].to_vec()
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

/// The files with names of beanstalkd's.
fn names_of_theirs(disk: &Disk) -> Vec<String> {
    let names = disk.names().into_iter();
    names.filter(|name| name.starts_with("binlog.")).collect()
}

fn disk_with(files: &[(&str, Vec<u8>)]) -> Disk {
    let disk = Disk::default();
    disk.put("lock", b"");
    files.iter().for_each(|(name, bytes)| disk.put(name, bytes));
    disk
}

/// The two files of this life.
fn disk_of([first, second]: &[Vec<Theirs>; 2]) -> Disk {
    disk_with(&[
        ("binlog.2", version_7(first)),
        ("binlog.3", version_7(second)),
    ])
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
        let told = "took over 5 jobs from 2 binlog files of beanstalkd, which stay as \
            binlog.N.taken; in these, jobs that are done from now on come back, and new ones \
            are missing: the way back is `beanpole binlog export7`";
        assert_eq!(opened.notices, [told]);
        assert_eq!(names_of_theirs(&disk), ["binlog.2.taken", "binlog.3.taken"]);
        // That it is over is known after a power cut, too.
        let cut = disk.state().cut(Survival::Nothing, &mut Random::new(1));
        let names = cut.names();
        assert!(names.iter().all(|name| !name.starts_with("takeover")));
        let again = open(&disk);
        assert_eq!((again.jobs, again.next_id), (lives(), JobId(100)));
        assert!(again.notices.is_empty());
    }
}

#[test]
fn a_power_cut_during_a_takeover_neither_loses_nor_doubles_a_job() {
    for seed in search::seeds(1..40) {
        let (mut life, mut jobs) = (a_life(), lives());
        if seed % 2 == 0 {
            // It does not fit into the first segment, where no job is then.
            life[0][1].body = body_of(9000);
            jobs.get_mut(&JobId(1)).unwrap().body = Body::new(&[b'x'; 9000]);
        }
        let disk = disk_of(&life);
        disk.put("binlog.4", &[0; 4096]); // just begun
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
    let free = 100_000 - disk.used();
    let (needed, files) = numbers.split_once(" bytes and ").unwrap();
    assert_eq!(files, format!("four files of -s, and {free} are free"));
    // Each of these jobs is as long as a segment of its own.
    let segment = 30_000u64.next_multiple_of(SIZE) + SIZE;
    let needed = needed.parse::<u64>().unwrap() + 4 * segment;
    disk.set_capacity(Some(disk.used() + needed));
    assert_eq!(open(&disk).jobs.len(), 2);
}

/// Whatever fails, and whenever the power is cut while the copies go away. If these stayed,
/// neither server could start on a full disk.
#[test]
fn a_takeover_that_fails_at_any_operation_may_be_done_again() {
    let mut tried = 0;
    for operation in 1.. {
        for kind in [ErrorKind::StorageFull, ErrorKind::Other] {
            let disk = disk_of(&a_life());
            // beanstalkd that is killed at its first start leaves a file of zeros.
            disk.put("binlog.4", &[0; 4096]);
            let before = (disk.names(), disk.used());
            disk.fail_at(operation, kind);
            // Also while it is undone.
            disk.watch(Arc::new(move |disk, what| {
                let is_undone = disk.failed().is_some() && what == "remove";
                for seed in (0..8).filter(|_| is_undone) {
                    let cut = disk
                        .state()
                        .cut(Survival::Something, &mut Random::new(seed));
                    assert_eq!(open(&cut).jobs, lives(), "{operation}");
                }
            }));
            let is_refused = start(&disk).is_err();
            let Some(what) = disk.failed() else {
                println!("{tried} takeovers failed");
                return assert!(tried > 20);
            };
            tried += u32::from(is_refused);
            let counts = |name: &String| name == "takeover.done" || name.ends_with(".taken");
            if is_refused && !disk.names().iter().any(counts) {
                assert_eq!((disk.names(), disk.used()), before, "{what}");
            }
            for survival in [Survival::Nothing, Survival::Something, Survival::Everything] {
                let cut = disk.state().cut(survival, &mut Random::new(operation));
                assert_eq!(open(&cut).jobs, lives(), "{what}");
            }
        }
    }
}

#[test]
fn a_file_with_an_incomplete_job_is_named() {
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
            version_7(&[put(6, b"torn\0\0"), becomes(6, DELETED, [0; 5])]),
        ),
    ];
    let disk = disk_with(&files);
    let opened = open(&disk);
    let ids: Vec<u64> = opened.jobs.keys().map(|id| id.0).collect();
    assert_eq!(ids, [1, 3, 4, 5]);
    let told = "not all was taken over: binlog.1: job 2 is not whole, its body does not end in \
        CR LF";
    assert_eq!(opened.notices[1..], [told]);
    assert_eq!(disk.contents("binlog.1.taken"), files[0].1);
    // The jobs are taken over only once, and the other jobs in that file stay deleted.
    let mut server = Server::new(opened);
    server.delete(JobId(1));
    server.commit();
    drop(server);
    let again = open(&disk);
    assert_eq!((again.jobs.len(), again.notices), (3, vec![]));
}

#[test]
fn a_file_with_bytes_that_are_no_record_is_named() {
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
            with(end, &201_i32.to_ne_bytes()),
            "this is not a job, 4002 bytes from offset 94 on are not read",
        ),
        (
            with(end, &[&1_i32.to_ne_bytes()[..], b"*"].concat()),
            "this is not a job, 4002 bytes from offset 94 on are not read",
        ),
        (
            with(1000, b"x"),
            "there is something after the end, 4002 bytes from offset 94 on are not read",
        ),
        (
            version_7(&[put(1, b"one\r\n"), put(1 << 62, b"x\r\n")]),
            "this is not a job, 4002 bytes from offset 94 on are not read",
        ),
        (
            cut_short,
            "the file ends within the body of job 2, 88 bytes from offset 94 on are not read",
        ),
    ] {
        let disk = disk_with(&[("binlog.1", file.clone())]);
        let opened = open(&disk);
        assert_eq!(opened.jobs.len(), 1);
        let told = format!("not all was taken over: binlog.1: {told}");
        assert_eq!(opened.notices[1..], [told]);
        assert_eq!(disk.contents("binlog.1.taken"), file);
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
        assert_eq!(opened.notices.len(), 1, "{zeros}: {:?}", opened.notices);
        file.resize(4096, 0);
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

/// All files, with their contents.
fn contents(disk: &Disk) -> Vec<(String, Vec<u8>)> {
    let names = disk.names().into_iter();
    let files = names.map(|name| (name.clone(), disk.contents(&name)));
    files.collect()
}

/// As after a start of beanstalkd by habit. It does not see our files.
#[test]
fn jobs_of_beanstalkd_beside_a_log_of_ours_refuse_the_start_and_nothing_is_changed() {
    let (disk, jobs) = ours();
    disk.put("binlog.7", &version_7(&[put(4711, b"one\r\n")]));
    let before = contents(&disk);
    let told = "1 job of beanstalkd (in binlog.*) and a log of ours (segment.*) are in one \
        directory, and cannot be one log; nothing was changed; move the files binlog.* to a \
        directory of their own, start each server on its own, and move the jobs of beanstalkd \
        with `beanpole dump` and `beanpole load`";
    assert_eq!(refusal(&disk), told);
    assert!(contents(&disk) == before);
    disk.remove_file("binlog.7");
    assert_eq!(open(&disk).jobs, jobs);
}

#[test]
fn files_of_beanstalkd_without_jobs_stay_beside_a_log_of_ours_and_are_named() {
    let (disk, jobs) = ours();
    disk.put("binlog.1", &vec![0; 4096]);
    let gone = [put(4711, b"one\r\n"), becomes(4711, DELETED, [0; 5])];
    disk.put("binlog.3", &version_7(&gone));
    for _ in 0..2 {
        let opened = open(&disk);
        let told = [1, 3]
            .map(|number| format!("binlog.{number} is left alone: it has no job of beanstalkd"));
        assert_eq!(opened.notices, told);
        assert_eq!(opened.jobs, jobs);
        assert_eq!(names_of_theirs(&disk), ["binlog.1", "binlog.3"]);
    }
}

/// They are a state of a day that is over, and no other one may be mixed with it.
#[test]
fn a_takeover_is_refused_while_files_of_an_earlier_one_are_there() {
    let disk = disk_with(&[("binlog.2", version_7(&[put(1, b"one\r\n")]))]);
    disk.put("binlog.1.taken", &version_7(&[put(1, b"one\r\n")]));
    let told = "binlog.1.taken is left from an earlier takeover; nothing was changed";
    assert!(refusal(&disk).starts_with(told));
    assert_eq!(disk.names(), ["binlog.1.taken", "binlog.2", "lock"]);
    disk.remove_file("binlog.1.taken");
    assert_eq!(open(&disk).jobs.len(), 1);
    // After it, they may stay, and may go.
    assert_eq!(open(&disk).jobs.len(), 1);
    disk.remove_file("binlog.2.taken");
    assert_eq!(open(&disk).jobs.len(), 1);
}

/// Wherever the power is cut, and whichever of our files somebody removes then: a start has all
/// jobs, or is refused.
#[test]
fn segments_that_are_lost_during_a_takeover_are_missed_or_copied_again() {
    let (mut refused, mut copied) = (0, 0);
    for operations in 0.. {
        let disk = disk_of(&a_life());
        disk.stop_after(operations);
        let is_over = start(&disk).is_ok();
        let random = &mut Random::new(operations);
        for survival in [Survival::Nothing, Survival::Something, Survival::Everything] {
            let cut = disk.state().cut(survival, random);
            let names = cut.names();
            let is_done = names.contains(&"takeover.done".into());
            if !is_done && !names.contains(&"binlog.3".into()) {
                continue;
            }
            let segments = names.iter().filter(|name| name.starts_with("segment."));
            segments.for_each(|name| cut.remove_file(name));
            let before = contents(&cut);
            match start(&cut) {
                Ok(opened) => assert_eq!(opened.jobs, lives(), "{operations}: {names:?}"),
                Err(error) => {
                    let told = "all segments are missing, though takeover.done shows";
                    assert!(error.to_string().starts_with(told), "{error}");
                    assert!(contents(&cut) == before);
                }
            }
            refused += u32::from(is_done);
            copied += u32::from(!is_done);
        }
        if is_over {
            break;
        }
    }
    println!("{refused} times they were missed, {copied} times copied again");
    assert!(refused > 5 && copied > 50);
}

/// Until a takeover is finished, beanstalkd has all the jobs. If it is started once more,
/// it puts others into a new file, and may remove its oldest file. Afterwards, we have
/// them.
#[test]
fn beanstalkd_may_be_started_again_after_a_takeover_that_was_interrupted() {
    let third = vec![becomes(6, DELETED, [0; 5]), put(100, b"new\r\n")];
    let (mut copies, mut clashes) = (0, 0);
    for operations in 0.. {
        let disk = disk_of(&a_life());
        disk.stop_after(operations);
        let is_over = start(&disk).is_ok();
        let disk = disk.state().kill();
        let names = disk.names();
        if is_over || !names.contains(&"binlog.3".into()) {
            break;
        }
        disk.put("binlog.4", &version_7(&third));
        if names.contains(&"takeover.done".into()) {
            // The copies count.
            clashes += 1;
            let before = contents(&disk);
            let told = "binlog.4 was written by beanstalkd after its jobs had been taken over, by a \
                server that no client has reached yet; nothing was changed; remove segment.* and \
                takeover*, take .taken off the names that end in it, and start again";
            assert_eq!(refusal(&disk), told);
            assert!(contents(&disk) == before);
            // It may have done all of its old jobs: they must not be done again.
            let done = disk.state().kill();
            let old = names.iter().filter(|name| name.starts_with("binlog."));
            let old = old.filter(|name| !name.ends_with(".taken"));
            old.for_each(|name| done.remove_file(name));
            assert_eq!(refusal(&done), told);
            let older = disk.state().kill();
            older.remove_file("binlog.4");
            assert_eq!(open(&older).jobs, lives());
            for name in &names {
                if let Some(theirs) = name.strip_suffix(".taken") {
                    disk.put(theirs, &disk.contents(name));
                }
                if !name.starts_with("binlog.") || name.ends_with(".taken") {
                    disk.remove_file(name);
                }
            }
        } else {
            copies += u32::from(names.contains(&"segment.1".into()));
        }
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

/// Both files are `binlog.1`: beanstalkd counts from 1 when it finds none.
#[test]
fn a_new_file_with_the_name_of_one_that_was_taken_over_refuses_the_start() {
    let file = version_7(&[put(1, b"one\r\n")]);
    let disk = disk_with(&[("binlog.1", file.clone())]);
    assert_eq!(open(&disk).jobs.len(), 1);
    disk.put("takeover.done", b"binlog.1");
    disk.put("binlog.1", &file);
    let told = "binlog.1 was written by beanstalkd after its jobs had been taken over";
    assert!(refusal(&disk).starts_with(told));
    // A power cut has left both names of one file.
    disk.remove_file("binlog.1");
    disk.link("binlog.1.taken", "binlog.1");
    assert_eq!(open(&disk).jobs.len(), 1);
    assert_eq!(names_of_theirs(&disk), ["binlog.1.taken"]);
}

/// beanstalkd 1.4.6 and older, and machines whose bytes have the other order.
#[test]
fn a_file_of_another_format_is_refused_by_name_with_the_way_out() {
    let way = "; nothing was changed; start the beanstalkd that wrote it, and move its jobs with \
        `beanpole dump` and `beanpole load`";
    for (version, what) in [
        (5u32, "of version 5, which this program does not read"),
        (5u32.swap_bytes(), "of a machine with another byte order"),
        (7u32.swap_bytes(), "of a machine with another byte order"),
    ] {
        let mut file = version_7(&[put(1, b"one\r\n")]);
        file[..4].copy_from_slice(&version.to_ne_bytes());
        let disk = disk_with(&[("binlog.1", file)]);
        assert_eq!(refusal(&disk), format!("binlog.1 is {what}{way}"));
        assert_eq!(disk.names(), ["binlog.1", "lock"]);
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
    for shows in ["segment.spare2", "takeover.done"] {
        disk.put(shows, b"");
        assert!(refusal(&disk).starts_with("all segments are missing"));
        disk.remove_file(shows);
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
