//! Taking over a directory that beanstalkd wrote, and giving jobs back to it.
//!
//! Its files are read, and all live jobs are written to segments after them. The
//! headers of these segments say that beanstalkd's files are still needed. Then a
//! new segment says that they are not needed any more, and only then are they
//! removed. Until that segment has its name, recovery removes our copies and begins
//! again. From then on, it removes what is left of beanstalkd's files.
//!
//! # Its records
//!
//! Versions 7 and 5 are known. The integers have the byte order and layout of the
//! machine that wrote them. The version at the start of a file shows the byte order.
//! A 32-bit x86 packs the job of version 7 into 72 bytes instead of 80; the first
//! record says which. Version 5 is read in its 64-bit layout only.
//!
//! | version 7 | version 5 | |
//! |---|---|---|
//! | i32 | u64 | length of the tube's name; 0: a short record |
//! | | | the name, in a full record |
//! | 80 bytes (72) | 77 bytes | the job |
//! | | | the body with CR LF, in a full record |
//!
//! The job: id u64 at 0, priority u32 at 8, delay i64 at 16 (12), TTR i64 at 24
//! (20), length of the body with CR LF i32 at 32 (28), creation i64 at 40 (32),
//! deadline i64 at 48 (40), counters 5 × u32 at 56 (48), state u8 at 76 (68).
//! Times are nanoseconds, in version 5 microseconds. The states are 0 deleted,
//! 1 ready, 2 reserved, 3 buried, 4 delayed.

use super::error::Error;
use super::format::{HEADER_LEN, Record, counters, put_len, segment_name};
use super::recovery::{Opening, apply};
use super::segment::{Found, Kind, Window, numbers};
use super::tail::{BLOCK, LEFT_BY_PUT};
use super::{Binlog, Jobs, NoRoom, Opened};
use crate::engine::{Change, Counters, JobFields, StoredJob, StoredState, Time};
use crate::log::counted;
use crate::protocol::{Body, JobId, Priority, Seconds, TubeName};
use std::collections::{BTreeMap, BTreeSet};

/// How many jobs are written at once. (The first one is written alone: so a log that cannot
/// be written is noticed early.)
const JOBS_AT_ONCE: usize = 1000;

/// What beanstalkd's files hold.
struct Theirs<'a, J> {
    jobs: &'a mut J,
    /// The live jobs.
    ids: BTreeSet<JobId>,
    highest: u64,
    /// The jobs whose body is not complete, and the file of each.
    not_whole: BTreeMap<JobId, u32>,
    /// The files with bytes that are no record, and the message about them.
    unread: BTreeMap<u32, String>,
    buried: u64,
}

impl<'a, J: Jobs> Theirs<'a, J> {
    fn of(files: &[Found], jobs: &'a mut J) -> Result<Self, Error> {
        let mut theirs = Theirs {
            jobs,
            ids: BTreeSet::new(),
            highest: 0,
            not_whole: BTreeMap::new(),
            unread: BTreeMap::new(),
            buried: 0,
        };
        for file in files {
            if let Kind::Beanstalkd(format) = file.kind {
                let unread = read(file, format, &mut |_, id, record| {
                    theirs.apply(id, record, file.number);
                })?;
                if let Some(Unread { offset, flaw, .. }) = unread {
                    let (name, bytes) = (file.name(), file.len - offset);
                    let told = format!(
                        "{name} is kept: {flaw}, {bytes} bytes from offset {offset} on are not read"
                    );
                    theirs.unread.insert(file.number, told);
                }
            }
        }
        Ok(theirs)
    }

    fn apply(&mut self, id: JobId, record: Option<Record>, number: u32) {
        self.highest = self.highest.max(id.0);
        let lives = self.ids.contains(&id);
        match record {
            Some(Record::Put(mut job)) => {
                self.not_whole.remove(&id);
                self.assign_order(&mut job.fields.state, id);
                self.jobs.restore(job);
                self.ids.insert(id);
            }
            Some(Record::Update(mut fields)) if lives => {
                self.assign_order(&mut fields.state, id);
                apply(fields, self.jobs);
            }
            Some(Record::Delete(_)) => {
                self.not_whole.remove(&id);
                self.jobs.forget(id);
                self.ids.remove(&id);
            }
            // If an earlier record has the complete job, that record counts.
            None if !lives => {
                self.not_whole.insert(id, number);
            }
            // A record about an unknown job: the job is deleted.
            Some(Record::Update(_) | Record::Mark(_)) | None => {}
        }
    }

    /// Gives a buried job its position in the order of the buried jobs. If it was
    /// buried before, it keeps its position.
    fn assign_order(&mut self, state: &mut StoredState, id: JobId) {
        if let StoredState::Buried { order } = state {
            match self.jobs.stored(id).map(|job| job.fields.state) {
                Some(StoredState::Buried { order: before }) => *order = before,
                _ => {
                    self.buried += 1;
                    *order = self.buried;
                }
            }
        }
    }

    /// Removes the files, except those with bytes that were not taken over.
    fn remove(&self, opening: &mut Opening, files: &[Found]) -> Result<(), Error> {
        let not_whole = |(id, number): (&JobId, &u32)| {
            let name = segment_name(*number);
            format!("{name} is kept: job {id} is not whole, its body does not end in CR LF")
        };
        opening.notices.extend(self.unread.values().cloned());
        opening.notices.extend(self.not_whole.iter().map(not_whole));
        let kept: BTreeSet<&u32> = self.unread.keys().chain(self.not_whole.values()).collect();
        for file in files.iter().filter(|file| !kept.contains(&file.number)) {
            if let Kind::Nothing = file.kind
                && (file.len == 0 || !file.len.is_multiple_of(BLOCK))
            {
                opening.notices.push(format!(
                    "{}: there is nothing in its {} bytes, and no server makes a file that long; if it held jobs, they are lost",
                    file.name(),
                    file.len
                ));
            }
            opening.remove_unneeded(file);
        }
        opening.sync_names()
    }
}

/// Takes over all jobs in beanstalkd's files. The segments in `ours` are from
/// an earlier attempt. If there are no files at all, a new binlog begins.
pub(super) fn take_over<J: Jobs>(
    mut opening: Opening,
    files: Vec<Found>,
    ours: &[Found],
    mut jobs: J,
) -> Result<Opened<J>, Error> {
    // A file with nothing in it is not needed.
    let is_theirs = |file: &&Found| matches!(file.kind, Kind::Beanstalkd(_));
    let first = files.iter().find(is_theirs).map(|file| file.number);
    let last = files.last().map_or(0, |file| file.number);
    let Some(number) = last.checked_add(1).filter(|next| *next < u32::MAX) else {
        return Err(Error::Refused(format!(
            "{}: no file can come after one of this number; nothing was changed",
            segment_name(last)
        )));
    };
    let theirs = Theirs::of(&files, &mut jobs)?;
    if first.is_none() {
        // Before anything is prepared: beside a second prepared segment, empty files would
        // look like segments that were lost.
        theirs.remove(&mut opening, &files)?;
        let binlog = opening.begin(JobId(1), number, None)?;
        return Ok(opening.opened(binlog, jobs));
    }
    for file in ours {
        opening.remove(&file.name())?;
    }
    opening.sync_names()?;
    let next_id = JobId(theirs.highest + 1);
    let begun = opening.begin(next_id, number, first);
    let copied = begun.and_then(|binlog| match copy(&binlog, &theirs) {
        Ok(()) => Ok(binlog),
        Err(NoRoom) => Err(binlog.into_error()),
    });
    let binlog = match copied {
        Ok(binlog) => binlog,
        Err(error) => return Err(undo(&opening, number, &theirs, error)),
    };
    theirs.remove(&mut opening, &files)?;
    let jobs_taken = counted(theirs.ids.len() as u64, "job");
    let count = files.iter().filter(is_theirs).count();
    let files = counted(count as u64, "binlog file");
    let notice = format!("took over {jobs_taken} from {files} of beanstalkd");
    opening.notices.push(notice);
    Ok(opening.opened(binlog, jobs))
}

/// Writes the jobs, and then begins the segment that says that beanstalkd's
/// files are not needed any more.
fn copy<J: Jobs>(binlog: &Binlog, theirs: &Theirs<J>) -> Result<(), NoRoom> {
    for (index, id) in theirs.ids.iter().enumerate() {
        let job = theirs.jobs.stored(*id).expect("it is there");
        binlog.make_room_to_copy(put_len(&job))?;
        let end = binlog.append(&[Change::Put(*id)], &*theirs.jobs);
        if index % JOBS_AT_ONCE == 0 {
            binlog.commit(end).map_err(|_| NoRoom)?;
        }
    }
    binlog.tail().floor = None;
    binlog.begin_segment().map_err(|_| NoRoom)
}

/// Removes what a takeover has made before it failed: on a full disk,
/// beanstalkd could not start beside it either. The newest segment goes first,
/// and durably, since it may say that beanstalkd's files are not needed.
///
/// Returns why the takeover failed.
fn undo<J: Jobs>(opening: &Opening, first: u32, theirs: &Theirs<J>, error: Error) -> Error {
    let storage = &*opening.storage;
    let mut ours = numbers(storage).unwrap_or_default();
    ours.retain(|number| *number >= first);
    // If a file stays, the next start removes it, or finishes the takeover.
    for number in ours.into_iter().rev() {
        let removed = storage.remove(&segment_name(number));
        if removed.and_then(|()| storage.sync()).is_err() {
            return error;
        }
    }
    opening.remove_prepared().ok();
    if !error.is_full() {
        return error;
    }
    let needed = room_needed(opening.asked_len(), theirs);
    let free = storage.free();
    let free = free.map_or(String::new(), |free| format!(", and {free} are free"));
    Error::Refused(format!(
        "cannot take over the jobs of beanstalkd: copies of them need {needed} bytes on the disk{free}; nothing was changed; make room, or start beanstalkd again"
    ))
}

/// How many bytes of files a takeover needs, with segments of this length.
fn room_needed<J: Jobs>(asked: u64, theirs: &Theirs<J>) -> u64 {
    let jobs = theirs.ids.iter().filter_map(|id| theirs.jobs.stored(*id));
    let lens: Vec<u64> = jobs.map(|job| put_len(&job)).collect();
    let longest = lens.iter().copied().max().unwrap_or(0);
    let len = asked.max((HEADER_LEN + longest).next_multiple_of(BLOCK));
    let (mut segments, mut offset) = (1, HEADER_LEN);
    for put in lens {
        if offset + put > len {
            (segments, offset) = (segments + 1, HEADER_LEN);
        }
        offset += put;
    }
    // The last one says that beanstalkd's files are not needed any more.
    (segments + 1 + LEFT_BY_PUT as u64 + 1) * len
}

/// Removes files that are not needed any more.
pub(super) fn remove_left_over(opening: &mut Opening, theirs: &[Found]) -> Result<(), Error> {
    if theirs.is_empty() {
        return Ok(());
    }
    // They are read again only for the messages about what was not taken over.
    let mut already_taken = BTreeMap::new();
    match Theirs::of(theirs, &mut already_taken) {
        Ok(read) => read.remove(opening, theirs),
        Err(error) => {
            opening.leave_alone(&error);
            Ok(())
        }
    }
}

/// How the integers of a file are laid out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Format {
    /// 7 or 5.
    pub version: u32,
    big_endian: bool,
    /// Integers of 8 bytes are aligned to 4.
    packed: bool,
}

impl Format {
    /// The format of a file that starts with these bytes; `None` if beanstalkd
    /// did not write it.
    ///
    /// Pass the first 1024 bytes, or the whole file if it is shorter: they show the
    /// layout.
    pub(super) fn of(start: &[u8]) -> Option<Format> {
        let (first, record) = start.split_first_chunk()?;
        let (version, big_endian) = match (u32::from_le_bytes(*first), u32::from_be_bytes(*first)) {
            (version @ (5 | 7), _) => (version, false),
            (_, version @ (5 | 7)) => (version, true),
            _ => return None,
        };
        let format = |packed| Format {
            version,
            big_endian,
            packed,
        };
        let is_packed = version == 7 && !format(false).fits(record) && format(true).fits(record);
        Some(format(is_packed))
    }

    /// Whether a file's first record makes sense in this format.
    fn fits(self, record: &[u8]) -> bool {
        let job = self.u32(record, 0).and_then(|name_len| {
            let name_len = usize::try_from(name_len).ok()?;
            let job = record.get(4..)?.get(name_len..)?.get(..self.job_len())?;
            Job::decode(job, self)
        });
        job.is_some_and(|job| job.body_len >= 2 && job.is_likely)
    }

    fn job_len(self) -> usize {
        match (self.version, self.packed) {
            (5, _) => 77,
            (_, false) => 80,
            (_, true) => 72,
        }
    }

    /// How many bytes the length of a name takes before the name, and that length.
    fn name_len(self, bytes: &[u8]) -> (usize, Option<u64>) {
        match self.version {
            5 => (8, self.u64(bytes, 0)),
            _ => (4, self.u32(bytes, 0).map(u64::from)),
        }
    }

    fn u32(self, bytes: &[u8], offset: usize) -> Option<u32> {
        self.field(bytes, offset).map(u32::from_le_bytes)
    }

    fn u64(self, bytes: &[u8], offset: usize) -> Option<u64> {
        self.field(bytes, offset).map(u64::from_le_bytes)
    }

    /// The bytes of an integer, the lowest first.
    fn field<const N: usize>(self, bytes: &[u8], offset: usize) -> Option<[u8; N]> {
        let mut field = *bytes.get(offset..)?.first_chunk()?;
        if self.big_endian {
            field.reverse();
        }
        Some(field)
    }
}

/// The part of a file that is no record.
pub struct Unread {
    /// Where it begins. It goes up to the end of the file.
    pub offset: u64,
    /// What is wrong with it.
    pub flaw: String,
    /// Whether the file ends within a record.
    pub is_cut_off: bool,
}

/// Reads a file of beanstalkd. Calls `each` with the offset of each record, its job
/// and the record (`None` if the body of the job does not end in CR LF).
///
/// Returns what is no record, if there is anything but zeros after the last one.
pub fn read(
    file: &Found,
    format: Format,
    each: &mut dyn FnMut(u64, JobId, Option<Record>),
) -> Result<Option<Unread>, Error> {
    let (mut window, mut offset) = (file.window()?, 4);
    let (flaw, is_cut_off) = loop {
        match next(&mut window, offset, format)? {
            Next::Record { end, id, record } => {
                each(offset, id, record);
                offset = end;
            }
            Next::End if file.last_set_byte(offset)?.is_none() => return Ok(None),
            Next::End => break ("there is something after the end".into(), false),
            Next::Nonsense(flaw) => break (flaw.into(), false),
            Next::CutOff(what) => break (format!("the file ends within {what}"), true),
        }
    };
    Ok(Some(Unread {
        offset,
        flaw,
        is_cut_off,
    }))
}

/// What follows in a file.
enum Next {
    /// A record that ends here.
    Record {
        end: u64,
        id: JobId,
        record: Option<Record>,
    },
    /// Zeros, or no more bytes.
    End,
    /// The file ends within this.
    CutOff(String),
    /// No server wrote this.
    Nonsense(&'static str),
}

/// Reads what follows at an offset. The order of a buried job is left 0.
fn next(window: &mut Window, offset: u64, format: Format) -> Result<Next, Error> {
    let (name_at, name_len) = format.name_len(window.at(offset, 8)?);
    let name_len = usize::try_from(name_len.unwrap_or(0)).unwrap_or(usize::MAX);
    if name_len > TubeName::MAX_LEN {
        return Ok(Next::Nonsense("no tube's name is that long"));
    }
    let len = name_at + name_len + format.job_len();
    let bytes = window.at(offset, len)?;
    if bytes.iter().all(|byte| *byte == 0) {
        return Ok(Next::End);
    }
    if bytes.len() < len {
        return Ok(Next::CutOff("a record".into()));
    }
    let (name, job) = bytes[name_at..].split_at(name_len);
    let Some(job) = Job::decode(job, format).filter(|job| job.fields.id.0 > 0) else {
        return Ok(Next::Nonsense("this is not a job"));
    };
    let id = job.fields.id;
    // So 2^63 ids are left for new jobs, more than anybody uses.
    if id.0 >= 1 << 63 {
        return Ok(Next::Nonsense("no job has so large an id"));
    }
    let mut end = offset + len as u64;
    let mut record = Some(match job.is_deleted {
        true => Record::Delete(id),
        false => Record::Update(job.fields),
    });
    if !name.is_empty() {
        let Some(tube) = TubeName::parse(name) else {
            return Ok(Next::Nonsense("no tube has such a name"));
        };
        let body = window.at(end, job.body_len)?;
        if body.len() < job.body_len {
            return Ok(Next::CutOff(format!("the body of job {id}")));
        }
        end += body.len() as u64;
        if !job.is_deleted {
            let body = Body::from_wire(body);
            record = body.map(|body| {
                Record::Put(StoredJob {
                    fields: job.fields,
                    tube,
                    options: None,
                    body,
                })
            });
        }
    }
    Ok(Next::Record { end, id, record })
}

const NANOS_A_SECOND: u64 = 1_000_000_000;

/// A job as it is in the file.
struct Job {
    fields: JobFields,
    body_len: usize,
    is_deleted: bool,
    /// Whether a client could have asked for these times.
    is_likely: bool,
}

impl Job {
    fn decode(bytes: &[u8], format: Format) -> Option<Job> {
        let at = |natural, packed| if format.packed { packed } else { natural };
        // In nanoseconds.
        let time = |offset| {
            let time = format.u64(bytes, offset)?;
            let unit = if format.version == 5 { 1000 } else { 1 };
            // beanstalkd's times are signed, and never negative.
            let is_negative = time > i64::MAX as u64;
            Some(if is_negative {
                0
            } else {
                time.saturating_mul(unit)
            })
        };
        let counter = |index: usize| format.u32(bytes, at(56, 48) + 4 * index);
        let (delay, ttr) = (time(at(16, 12))?, time(at(24, 20))?);
        let body_len = i32::try_from(format.u32(bytes, at(32, 28))?).ok()?;
        let deadline = Time::from_nanos(time(at(48, 40))?);
        let state = *bytes.get(at(76, 68))?;
        let seconds = |nanos| Seconds(u32::try_from(nanos / NANOS_A_SECOND).unwrap_or(u32::MAX));
        let is_seconds = |nanos| seconds(nanos).as_nanos() == nanos;
        let job = Job {
            fields: JobFields {
                id: JobId(format.u64(bytes, 0)?),
                priority: Priority(format.u32(bytes, 8)?),
                delay: seconds(delay),
                ttr: seconds(ttr).max(Seconds(1)),
                created_at: Time::from_nanos(time(at(40, 32))?),
                state: match state {
                    3 => StoredState::Buried { order: 0 },
                    4 => StoredState::Delayed { until: deadline },
                    _ => StoredState::Ready,
                },
                counters: Counters {
                    reserves: counter(0)?,
                    timeouts: counter(1)?,
                    releases: counter(2)?,
                    buries: counter(3)?,
                    kicks: counter(4)?,
                },
                failed_tries: 0,
            },
            body_len: usize::try_from(body_len).ok()?,
            is_deleted: state == 0,
            is_likely: is_seconds(ttr) && is_seconds(delay),
        };
        (state <= 4).then_some(job)
    }
}

/// How a version-7 file starts; the records of [`encode`] follow.
pub const FILE_START: [u8; 4] = 7i32.to_le_bytes();

/// Appends the full version-7 record of a job to `out`, as a 64-bit
/// little-endian machine writes it. It has no place for the options of a job, nor
/// for tombstones.
pub fn encode(job: &StoredJob, out: &mut Vec<u8>) {
    let (fields, tube) = (&job.fields, job.tube.as_str().as_bytes());
    let body = job.body.wire();
    let len = |len: usize| i32::try_from(len).expect("names and bodies are shorter than 2 GiB");
    out.extend_from_slice(&len(tube.len()).to_le_bytes());
    out.extend_from_slice(tube);
    let (state, deadline) = match fields.state {
        StoredState::Deleted { .. } => (0, 0),
        StoredState::Ready => (1, 0),
        StoredState::Buried { .. } => (3, 0),
        StoredState::Delayed { until } => (4, until.as_nanos()),
    };
    let time = |nanos: u64| i64::try_from(nanos).unwrap_or(i64::MAX).to_le_bytes();
    out.extend_from_slice(&fields.id.0.to_le_bytes());
    out.extend_from_slice(&fields.priority.0.to_le_bytes());
    out.extend_from_slice(&[0; 4]);
    out.extend_from_slice(&time(fields.delay.as_nanos()));
    out.extend_from_slice(&time(fields.ttr.as_nanos()));
    out.extend_from_slice(&len(body.len()).to_le_bytes());
    out.extend_from_slice(&[0; 4]);
    out.extend_from_slice(&time(fields.created_at.as_nanos()));
    out.extend_from_slice(&time(deadline));
    let counters = counters(&fields.counters).map(u32::to_le_bytes);
    out.extend_from_slice(counters.as_flattened());
    out.extend_from_slice(&[state, 0, 0, 0]);
    out.extend_from_slice(body);
}
