//! Taking over a directory that beanstalkd wrote, and giving jobs back to it.
//!
//! Its files are read, and all live jobs are written to segments after them. Until
//! that is done, these segments say that beanstalkd's files are still needed, and recovery
//! removes them and begins again. Then a mark says that only our segments are needed. When
//! it is synced, the binlog is opened like any other, and what is left of beanstalkd's files
//! is removed like obsolete segments.
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

use super::error::{Error, is_full};
use super::format::{HEADER_LEN, Record, counters, put_len, segment_name};
use super::recovery::{Opening, recover};
use super::segment::{Found, Kind, numbers};
use super::tail::{BLOCK, LEFT_BY_PUT, LiveBytes};
use super::{Failed, Opened};
use crate::engine::{Change, Counters, JobFields, StoredJob, StoredState, Time};
use crate::log::counted;
use crate::protocol::{Body, JobId, Priority, Seconds, TubeName};
use std::collections::{BTreeMap, BTreeSet};

/// What beanstalkd's files hold.
#[derive(Default)]
struct Theirs {
    /// The live jobs.
    jobs: BTreeMap<JobId, StoredJob>,
    highest: u64,
    /// What is wrong with the jobs whose body is not complete, and in which file each is.
    not_whole: BTreeMap<JobId, (u32, String)>,
    /// The files with bytes that are no record, and what is wrong with these.
    unread: Vec<(u32, String)>,
    /// How many times a job was buried.
    buried: u64,
}

impl Theirs {
    fn of(files: &[Found]) -> Result<Theirs, Error> {
        let mut theirs = Theirs::default();
        for file in files {
            if let Kind::Beanstalkd(format) = file.kind {
                let unread = read(file, format, &mut |_, id, record| {
                    theirs.apply(id, record, file.number);
                })?;
                if let Some(Unread { offset, flaw, .. }) = unread {
                    let bytes = file.len - offset;
                    let flaw =
                        format!("{flaw}, {bytes} bytes from offset {offset} on are not read");
                    theirs.unread.push((file.number, flaw));
                }
            }
        }
        Ok(theirs)
    }

    fn apply(&mut self, id: JobId, record: Option<Record>, number: u32) {
        self.highest = self.highest.max(id.0);
        let lives = self.jobs.contains_key(&id);
        match record {
            Some(Record::Put(mut job)) => {
                self.not_whole.remove(&id);
                self.assign_order(&mut job.fields.state, id);
                self.jobs.insert(id, job);
            }
            Some(Record::Update(mut fields)) if lives => {
                self.assign_order(&mut fields.state, id);
                self.jobs.entry(id).and_modify(|job| job.fields = fields);
            }
            Some(Record::Delete(_)) => {
                self.not_whole.remove(&id);
                self.jobs.remove(&id);
            }
            // If an earlier record has the complete job, that record counts.
            None if !lives => {
                let flaw = format!("job {id} is not whole, its body does not end in CR LF");
                self.not_whole.insert(id, (number, flaw));
            }
            // A record about an unknown job: the job is deleted.
            Some(Record::Update(_) | Record::Mark(_)) | None => {}
        }
    }

    /// Gives a buried job its position in the order of the buried jobs. If it was
    /// buried before, it keeps its position.
    fn assign_order(&mut self, state: &mut StoredState, id: JobId) {
        if let StoredState::Buried { order } = state {
            self.buried += 1;
            *order = match self.jobs.get(&id).map(|job| job.fields.state) {
                Some(StoredState::Buried { order: before }) => before,
                _ => self.buried,
            };
        }
    }
}

/// Takes over all jobs in beanstalkd's files, and opens the binlog that has them then. If
/// none of these files is beanstalkd's, nothing is in them, and a new binlog begins.
pub(super) fn take_over(
    mut opening: Opening,
    files: &[Found],
    copies: &BTreeSet<u32>,
) -> Result<Opened, Error> {
    // After all files, also those that are about to be removed: on shared storage, another
    // server may still be about to remove them, too.
    let last = numbers(&*opening.storage)?.last().copied().unwrap_or(0);
    let Some(number) = last.checked_add(1).filter(|next| *next < u32::MAX) else {
        return Err(Error::Refused(format!(
            "{}: no file can come after one of this number; nothing was changed",
            segment_name(last)
        )));
    };
    let is_theirs = |file: &&Found| matches!(file.kind, Kind::Beanstalkd(_));
    let Some(first) = files.iter().find(is_theirs) else {
        let binlog = opening.begin(LiveBytes::new(JobId(1)), number)?;
        files.iter().for_each(|file| opening.remove_unneeded(file));
        return Ok(opening.opened(binlog));
    };
    let theirs = Theirs::of(files)?;
    remove_copies(&opening, copies)?;
    let mut live = LiveBytes::new(JobId(theirs.highest + 1));
    // Their files count as one segment before ours, with a job in it that is never deleted.
    // So headers and marks call it the oldest that is needed, and no segment is obsolete.
    // (There may be a gap after its number: nothing asks where a job is before recovery
    // reads the copies.)
    live.begin(first.number, 0);
    live.put(JobId(0), 1);
    if let Err(error) = copy(&opening, live, number, &theirs) {
        return Err(undo(&opening, number, &theirs, error));
    }
    let jobs_taken = counted(theirs.jobs.len() as u64, "job");
    let count = files.iter().filter(is_theirs).count();
    let their_files = counted(count as u64, "binlog file");
    drop(theirs);
    let (storage, sync) = (opening.storage, opening.sync);
    let mut opened = recover(storage, sync, opening.segment_size, opening.jobs)?;
    let notice = format!("took over {jobs_taken} from {their_files} of beanstalkd");
    opened.notices.push(notice);
    Ok(opened)
}

/// Writes the jobs, a segment at a time, and then the mark that says that only our segments
/// are needed. Recovery finds it only if everything before it is there, too.
fn copy(opening: &Opening, live: LiveBytes, number: u32, theirs: &Theirs) -> Result<(), Error> {
    let binlog = opening.begin(live, number)?;
    for (id, job) in &theirs.jobs {
        binlog.make_room_to_copy(put_len(job))?;
        binlog.append(&[Change::Put(*id)], &theirs.jobs);
    }
    // Twice: the frame of the second mark says that the first one was synced. So if that is
    // damaged, it is not taken for a torn tail, and the takeover does not begin again.
    for _ in 0..2 {
        binlog.tail().record(Record::Mark(number));
        let end = binlog.tail().end;
        binlog.sync_up_to(end).map_err(|Failed| binlog.error())?;
    }
    Ok(())
}

/// Removes the segments with these numbers, which an unfinished takeover has made, and what
/// it has prepared. The newest goes first, and durably, since it may say that beanstalkd's
/// files are not needed.
fn remove_copies(opening: &Opening, copies: &BTreeSet<u32>) -> Result<(), Error> {
    for number in copies.iter().rev() {
        opening.remove(&segment_name(*number))?;
        opening.sync_names()?;
    }
    opening.remove_prepared()
}

/// After a takeover that has failed, removes what it has made: on a full disk, beanstalkd
/// could not start beside it either. (If a file stays, the next start removes it, or finishes
/// the takeover.) Returns why the takeover failed.
fn undo(opening: &Opening, number: u32, theirs: &Theirs, error: Error) -> Error {
    let is_full = error.kind().is_some_and(|kind| is_full(&kind.into()));
    let copies = numbers(&*opening.storage).map(|mut numbers| numbers.split_off(&number));
    let removed = copies.and_then(|copies| remove_copies(opening, &copies));
    if removed.is_err() || !is_full {
        return error;
    }
    let lens = || theirs.jobs.values().map(put_len);
    let longest = lens().max().unwrap_or(0);
    let needed_len = (HEADER_LEN + longest).next_multiple_of(BLOCK);
    let len = opening.asked_len().max(needed_len);
    // A segment ends where the next job does not fit. So this much of each is used, at least
    // on average over it and the next one.
    let used = (len - HEADER_LEN - longest).max((len - HEADER_LEN) / 2);
    let segments = lens().sum::<u64>() / used + 1;
    let needed = (segments + LEFT_BY_PUT as u64 + 1) * len;
    let free = opening.storage.free();
    let free = free.map_or(String::new(), |free| format!(", and {free} are free"));
    Error::Refused(format!(
        "cannot take over the jobs of beanstalkd: copies of them need {needed} bytes on the disk{free}; nothing was changed; make room, or start beanstalkd again"
    ))
}

/// Which of the files before a log may be removed: all but those with bytes that were not
/// taken over, of which notices say why. To be called before the jobs of the log are in
/// memory, since all jobs in these files are, for a moment.
pub(super) fn removable<'a>(opening: &mut Opening, files: &'a [Found]) -> Vec<&'a Found> {
    let is_ours = |file: &&Found| file.header().is_some();
    let theirs = match Theirs::of(files) {
        Ok(theirs) => theirs,
        Err(error) => {
            opening.leave_alone(&error);
            return files.iter().filter(is_ours).collect();
        }
    };
    let mut kept = theirs.unread;
    kept.extend(theirs.not_whole.into_values());
    for (number, flaw) in &kept {
        let told = format!("{} is kept: {flaw}", segment_name(*number));
        opening.notices.push(told);
    }
    let is_kept = |file: &&Found| kept.iter().any(|(number, _)| *number == file.number);
    files.iter().filter(|file| !is_kept(file)).collect()
}

/// How the integers of a file are laid out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Format {
    /// 7 or 5.
    version: u32,
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
        let (name_at, name_len) = self.name_len(record);
        let job = record.get(name_at..).and_then(|rest| rest.get(name_len..));
        let job = job.and_then(|rest| Job::decode(rest.get(..self.job_len())?, self));
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
    fn name_len(self, bytes: &[u8]) -> (usize, usize) {
        let (len_of_len, len) = match self.version {
            5 => (8, self.u64(bytes, 0)),
            _ => (4, self.u32(bytes, 0).map(u64::from)),
        };
        let len = usize::try_from(len.unwrap_or(0)).unwrap_or(usize::MAX);
        (len_of_len, len)
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
/// and the record (`None` if the body of the job does not end in CR LF). The order of a
/// buried job is left 0.
///
/// Returns what is no record, if there is anything but zeros after the last one.
pub fn read(
    file: &Found,
    format: Format,
    each: &mut dyn FnMut(u64, JobId, Option<Record>),
) -> Result<Option<Unread>, Error> {
    let (mut window, mut offset) = (file.window()?, 4);
    let no_record = |flaw: &str| (flaw.to_owned(), false);
    let (flaw, is_cut_off) = loop {
        let (name_at, name_len) = format.name_len(window.at(offset, 8)?);
        if name_len > TubeName::MAX_LEN {
            break no_record("no tube's name is that long");
        }
        let len = name_at + name_len + format.job_len();
        let bytes = window.at(offset, len)?;
        if bytes.iter().all(|byte| *byte == 0) {
            match file.last_set_byte(offset)? {
                None => return Ok(None),
                Some(_) => break no_record("there is something after the end"),
            }
        }
        if bytes.len() < len {
            break ("the file ends within a record".to_owned(), true);
        }
        let (name, job) = bytes[name_at..].split_at(name_len);
        let (has_body, tube) = (!name.is_empty(), TubeName::parse(name));
        let Some(job) = Job::decode(job, format).filter(|job| job.fields.id.0 > 0) else {
            break no_record("this is not a job");
        };
        let id = job.fields.id;
        // So 2^63 ids are left for new jobs, more than anybody uses.
        if id.0 >= 1 << 63 {
            break no_record("no job has so large an id");
        }
        if has_body && tube.is_none() {
            break no_record("no tube has such a name");
        }
        let body_len = if has_body { job.body_len } else { 0 };
        let body = window.at(offset + len as u64, body_len)?;
        if body.len() < body_len {
            break (format!("the file ends within the body of job {id}"), true);
        }
        let record = match (job.fields.state, tube) {
            (StoredState::Deleted { .. }, _) => Some(Record::Delete(id)),
            (_, None) => Some(Record::Update(job.fields)),
            (_, Some(tube)) => Body::from_wire(body).map(|body| {
                Record::Put(StoredJob {
                    fields: job.fields,
                    tube,
                    options: None,
                    body,
                })
            }),
        };
        each(offset, id, record);
        offset += (len + body_len) as u64;
    };
    Ok(Some(Unread {
        offset,
        flaw,
        is_cut_off,
    }))
}

const NANOS_A_SECOND: u64 = 1_000_000_000;

/// A job as it is in the file.
struct Job {
    fields: JobFields,
    body_len: usize,
    /// Whether a client could have asked for these times.
    is_likely: bool,
}

impl Job {
    fn decode(bytes: &[u8], format: Format) -> Option<Job> {
        let at = |natural, packed| if format.packed { packed } else { natural };
        // In nanoseconds.
        let time = |offset| {
            // beanstalkd's times are signed, and never negative.
            let time = format.u64(bytes, offset)?.cast_signed().max(0);
            let unit = if format.version == 5 { 1000 } else { 1 };
            Some(time.cast_unsigned().saturating_mul(unit))
        };
        let counter = |index: usize| format.u32(bytes, at(56, 48) + 4 * index);
        let (delay, ttr) = (time(at(16, 12))?, time(at(24, 20))?);
        let body_len = i32::try_from(format.u32(bytes, at(32, 28))?).ok()?;
        let deadline = Time::from_nanos(time(at(48, 40))?);
        let seconds = |nanos| Seconds(u32::try_from(nanos / NANOS_A_SECOND).unwrap_or(u32::MAX));
        let is_seconds = |nanos| seconds(nanos).as_nanos() == nanos;
        Some(Job {
            fields: JobFields {
                id: JobId(format.u64(bytes, 0)?),
                priority: Priority(format.u32(bytes, 8)?),
                delay: seconds(delay),
                ttr: seconds(ttr).max(Seconds(1)),
                created_at: Time::from_nanos(time(at(40, 32))?),
                state: match bytes.get(at(76, 68))? {
                    0 => StoredState::Deleted { until: deadline },
                    1 | 2 => StoredState::Ready,
                    3 => StoredState::Buried { order: 0 },
                    4 => StoredState::Delayed { until: deadline },
                    _ => return None,
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
            is_likely: is_seconds(ttr) && is_seconds(delay),
        })
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
