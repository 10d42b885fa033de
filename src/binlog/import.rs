//! Taking over a directory that beanstalkd wrote, and giving jobs back to it.
//!
//! Whose file it is, is its name: beanstalkd's are `binlog.N`, and it reads no file of ours.
//! A takeover appends copies of its live jobs to our log, between two records: `Copies` says
//! that they begin, and `Taken` that they are complete. Until `Taken` is durable, the copies
//! do not count. It has the number and the checksum of each file, and only a file that
//! matches is obsolete: beanstalkd may be started once more, and begin again at `binlog.1`.
//! So any other file is new, and is taken over too, if no id in it is in use.
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
use super::format::{HEADER_LEN, Record, number_in, put_len, segment_name};
use super::recovery::Opening;
use super::segment::{Found, Window, find};
use super::storage::{CHUNK, Storage};
use super::tail::{BLOCK, LEFT_BY_PUT};
use super::{Binlog, Failed};
use crate::engine::{Change, JobFields, StoredJob, StoredState, Time};
use crate::log::counted;
use crate::protocol::{Body, JobId, Priority, Seconds, TubeName};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The name of one of beanstalkd's files.
pub fn their_name(number: u32) -> String {
    format!("binlog.{number}")
}

/// A file with such a name.
pub struct TheirFile {
    /// Its number.
    pub number: u32,
    storage: Arc<dyn Storage>,
    /// How long it is, in bytes.
    pub len: u64,
    /// `None` if there are only zeros in it, or no byte. beanstalkd leaves such files.
    format: Option<Format>,
}

impl TheirFile {
    fn read(storage: Arc<dyn Storage>, number: u32) -> Result<TheirFile, Error> {
        let mut window = Window::open(&*storage, &their_name(number))?;
        let format = Format::of(window.at(0, HEAD_LEN)?);
        if format.is_none() && window.last_set_byte(0)?.is_some() {
            let flaw = "beanstalkd does not begin a file like this".into();
            return Err(Error::damaged(&their_name(number), 0, flaw));
        }
        Ok(TheirFile {
            number,
            len: window.len,
            storage,
            format,
        })
    }

    fn window(&self) -> Result<Window, Error> {
        Window::open(&*self.storage, &their_name(self.number))
    }

    /// The number and the checksum.
    fn mark(&self) -> Result<(u32, u32), Error> {
        let (mut window, mut crc) = (self.window()?, crc32fast::Hasher::new());
        for at in (0..self.len).step_by(CHUNK) {
            crc.update(window.at(at, CHUNK)?);
        }
        Ok((self.number, crc.finalize()))
    }
}

/// The copies of beanstalkd's jobs in our log, as its records say, one after the other.
#[derive(Default)]
pub struct Copies {
    /// Those that do not count yet, if a takeover has begun.
    begun: Option<Vec<JobId>>,
    /// The numbers and checksums of the files that were taken over.
    taken: Vec<(u32, u32)>,
}

impl Copies {
    /// Notes the next record. Returns the copies that it discards.
    pub fn note(&mut self, record: &Record) -> Vec<JobId> {
        match (record, &mut self.begun) {
            (Record::Copies, begun) => return begun.replace(Vec::new()).unwrap_or_default(),
            (Record::Put(job), Some(begun)) => begun.push(job.fields.id),
            (Record::Taken(_, files), begun) => {
                *begun = None;
                self.taken.extend(files);
            }
            _ => {}
        }
        Vec::new()
    }

    /// After the last record: the copies that do not count.
    pub fn unfinished(&self) -> &[JobId] {
        self.begun.as_deref().unwrap_or(&[])
    }
}

/// beanstalkd's files in a directory.
pub struct TheirFiles {
    /// Those that are not taken over yet, in their order.
    pub new: Vec<TheirFile>,
    /// Those that are.
    pub taken: Vec<TheirFile>,
    /// The numbers and checksums of the new ones.
    marks: Vec<(u32, u32)>,
    /// Why no server starts here.
    pub flaws: Vec<Error>,
}

impl TheirFiles {
    /// Finds them beside a log with these copies.
    pub fn of(storage: &Arc<dyn Storage>, copies: &Copies) -> Result<TheirFiles, Error> {
        let number_of = |name: &str| number_in(name, their_name);
        let (mut new, mut taken) = (Vec::new(), Vec::new());
        let (mut marks, mut flaws, mut next) = (Vec::new(), Vec::new(), None);
        for (number, file) in find(storage, number_of, TheirFile::read)? {
            match file.and_then(|file| Ok((file.mark()?, file))) {
                Ok((mark, file)) if copies.taken.contains(&mark) => taken.push(file),
                found => {
                    let found = found.map(|(mark, file)| (marks.push(mark), new.push(file)));
                    flaws.extend(found.err());
                    if let Some(missing) = next.filter(|next| *next < number) {
                        // beanstalkd removes its files in their order.
                        flaws.push(Error::missing(missing, number - 1, their_name));
                    }
                    next = number.checked_add(1);
                    continue;
                }
            }
            next = next.and(number.checked_add(1));
        }
        Ok(TheirFiles {
            new,
            taken,
            marks,
            flaws,
        })
    }
}

/// How many bytes of a file's start are read to find out how it is laid out.
const HEAD_LEN: usize = 1024;

/// What beanstalkd's files hold.
#[derive(Default)]
pub struct Theirs {
    /// The live jobs.
    pub jobs: BTreeMap<JobId, StoredJob>,
    /// The highest id in a record.
    pub highest: u64,
    /// The jobs that short records are about, while no full record has come before.
    unknown: BTreeSet<JobId>,
    /// What is wrong with the jobs whose body is not complete, and in which file each is.
    not_whole: BTreeMap<JobId, (u32, String)>,
    /// The files with bytes that are no record, and what is wrong with these.
    unread: Vec<(u32, String)>,
    /// How many times a job was buried.
    buried: u64,
}

/// Is shown a record.
type Show<'a> = dyn FnMut(u64, JobId, &mut Option<Record>) + 'a;

impl Theirs {
    fn of(files: &[TheirFile]) -> Result<Theirs, Error> {
        let mut theirs = Theirs::default();
        files
            .iter()
            .try_for_each(|file| theirs.read(file, &mut |_, _, _| ()))?;
        Ok(theirs)
    }

    /// Reads the next file. Each record is shown before it counts, with its offset and its
    /// job: `None` if the body of the job does not end in CR LF.
    pub fn read(&mut self, file: &TheirFile, show: &mut Show) -> Result<(), Error> {
        let Some(format) = file.format else {
            return Ok(());
        };
        let (mut window, mut offset) = (file.window()?, 4);
        let flaw = loop {
            let (name_at, name_len) = format.name_len(window.at(offset, 8)?);
            if name_len > TubeName::MAX_LEN {
                break "no tube's name is that long".to_owned();
            }
            let len = name_at + name_len + format.job_len();
            let bytes = window.at(offset, len)?;
            if bytes.iter().all(|byte| *byte == 0) {
                match window.last_set_byte(offset)? {
                    None => return Ok(()),
                    Some(_) => break "there is something after the end".to_owned(),
                }
            }
            if bytes.len() < len {
                break "the file ends within a record".to_owned();
            }
            let (name, job) = bytes[name_at..].split_at(name_len);
            let (has_body, tube) = (!name.is_empty(), TubeName::parse(name));
            let Some(job) = Job::decode(job, format).filter(|job| job.fields.id.0 > 0) else {
                break "this is not a job".to_owned();
            };
            let id = job.fields.id;
            // So 2^63 ids are left for new jobs, more than anybody uses.
            if id.0 >= 1 << 63 {
                break "no job has so large an id".to_owned();
            }
            if has_body && tube.is_none() {
                break "no tube has such a name".to_owned();
            }
            let body_len = if has_body { job.body_len } else { 0 };
            let body = window.at(offset + len as u64, body_len)?;
            if body.len() < body_len {
                break format!("the file ends within the body of job {id}");
            }
            let mut record = match (job.fields.state, tube) {
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
            show(offset, id, &mut record);
            self.apply(id, record, file.number);
            offset += (len + body_len) as u64;
        };
        let bytes = file.len - offset;
        let flaw = format!("{flaw}, {bytes} bytes from offset {offset} on are not read");
        self.unread.push((file.number, flaw));
        Ok(())
    }

    /// An error if one of these jobs has the id of a job in our log. (A server that was
    /// started beside our log, or once more after a takeover, may have such ids.)
    pub fn must_be_new(&self, is_ours: impl Fn(JobId) -> bool) -> Result<(), Error> {
        let ids = self.jobs.keys().chain(&self.unknown);
        let mut clashes = ids.filter(|id| is_ours(**id));
        clashes.next().map_or(Ok(()), |id| {
            Err(Error::Refused(format!(
                "job {id} is in the files of beanstalkd (binlog.*) and in ours (segment.*), which cannot be one log; nothing was changed; move the files binlog.* to a directory of their own, start each server on its own, and move the jobs of beanstalkd with `beanpole dump` and `beanpole load`"
            )))
        })
    }

    /// The files with something that cannot be taken over, and why.
    pub fn flaws(&self) -> impl Iterator<Item = (u32, String)> {
        self.unread.iter().chain(self.not_whole.values()).cloned()
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
                if self.jobs.remove(&id).is_none() {
                    self.unknown.insert(id);
                }
            }
            // If an earlier record has the complete job, that record counts.
            None if !lives => {
                let flaw = format!("job {id} is not whole, its body does not end in CR LF");
                self.not_whole.insert(id, (number, flaw));
            }
            // An update of an unknown job: the job is deleted.
            Some(_) => drop(self.unknown.insert(id)),
            None => {}
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

/// A takeover: what is to be done when everything is read.
pub(super) struct Import {
    files: TheirFiles,
    /// What the new files hold.
    theirs: Theirs,
    /// The files with something that cannot be taken over, and why.
    kept: Vec<(u32, String)>,
    /// An earlier takeover was not finished.
    was_begun: bool,
}

impl Import {
    /// Reads beanstalkd's files beside a log with these copies.
    pub fn of(opening: &Opening, copies: &Copies) -> Result<Import, Error> {
        let mut files = TheirFiles::of(&opening.storage, copies)?;
        files.flaws.drain(..).next().map_or(Ok(()), Err)?;
        let mut kept: Vec<_> = Theirs::of(&files.taken)?.flaws().collect();
        let theirs = Theirs::of(&files.new)?;
        theirs.must_be_new(|id| opening.jobs.stored(id).is_some())?;
        kept.extend(theirs.flaws());
        Ok(Import {
            files,
            theirs,
            kept,
            was_begun: copies.begun.is_some(),
        })
    }

    /// Takes the jobs over into the binlog that was begun or continued, and removes the
    /// files. If it is new and this fails, nothing is left of it.
    pub fn carry_out(
        self,
        opening: &mut Opening,
        opened: Result<Binlog, Error>,
        is_new: bool,
    ) -> Result<Binlog, Error> {
        let (new, taken) = (&self.files.new, &self.files.taken);
        let copied = opened.and_then(|binlog| {
            if !new.is_empty() || self.was_begun {
                self.copy(&binlog).map(|()| binlog)
            } else {
                Ok(binlog)
            }
        });
        let binlog = copied.map_err(|error| {
            if is_new && !new.is_empty() {
                self.undo(opening, error)
            } else {
                error
            }
        })?;
        if !new.is_empty() || !taken.is_empty() {
            // Its frame says that all before it was synced. So if the record before is
            // damaged, that is not taken for a torn tail, and the copies are not discarded.
            let mark = Record::Mark(binlog.tail().live.oldest());
            sync_record(&binlog, mark)?;
            for file in taken.iter().chain(new) {
                opening.clear(file, &self.kept)?;
            }
            opening.sync_names()?;
        }
        if !taken.is_empty() {
            let files = counted(taken.len() as u64, "binlog file");
            let told = format!("removed {files} of beanstalkd, whose jobs were taken over before");
            opening.notices.push(told);
        }
        let count = new.iter().filter(|file| file.format.is_some()).count();
        if count > 0 {
            let jobs = counted(self.theirs.jobs.len() as u64, "job");
            let files = counted(count as u64, "binlog file");
            let told = format!("took over {jobs} from {files} of beanstalkd");
            opening.notices.push(told);
        }
        for job in self.theirs.jobs.into_values() {
            opening.jobs.restore(job);
        }
        Ok(binlog)
    }

    /// Appends copies of the jobs, and makes them durable.
    fn copy(&self, binlog: &Binlog) -> Result<(), Error> {
        binlog.tail().record(Record::Copies);
        for (id, job) in &self.theirs.jobs {
            binlog.make_room_to_copy(put_len(job))?;
            binlog.append(&[Change::Put(*id)], &self.theirs.jobs);
        }
        let next_id = JobId(self.theirs.highest + 1);
        let mut tail = binlog.tail();
        tail.live.next_id = tail.live.next_id.max(next_id);
        drop(tail);
        sync_record(binlog, Record::Taken(next_id, self.files.marks.clone()))
    }

    /// After a takeover into a new binlog has failed, removes that: on a full disk,
    /// beanstalkd could not start beside it either. (If a file stays, the next start
    /// continues with it.) The prepared segments and then the newest one go first, and
    /// durably, so what is left is a log at any time. Returns why the takeover failed.
    fn undo(&self, opening: &Opening, error: Error) -> Error {
        let is_full = error.kind().is_some_and(|kind| is_full(&kind.into()));
        let undone = opening.remove_prepared().and_then(|()| {
            for number in Found::all(&opening.storage)?.into_keys().rev() {
                opening.sync_names()?;
                opening.remove(&segment_name(number))?;
            }
            opening.sync_names()
        });
        if undone.is_err() || !is_full {
            return error;
        }
        let lens = || self.theirs.jobs.values().map(put_len);
        let longest = lens().max().unwrap_or(0);
        let needed_len = (HEADER_LEN + longest).next_multiple_of(BLOCK);
        let len = opening.asked_len().max(needed_len);
        // A segment ends where the next job does not fit. So this much of each is used, at
        // least on average over it and the next one.
        let used = (len - HEADER_LEN - longest).max((len - HEADER_LEN) / 2);
        let segments = lens().sum::<u64>() / used + 1;
        let needed = (segments + LEFT_BY_PUT as u64 + 1) * len;
        let free = opening.storage.free();
        let free = free.map_or(String::new(), |free| format!(", and {free} are free"));
        Error::Refused(format!(
            "cannot take over the jobs of beanstalkd: copies of them need {needed} bytes on the disk{free}; nothing was changed; make room, or start beanstalkd again"
        ))
    }
}

/// Appends a record, and syncs it with all before.
fn sync_record(binlog: &Binlog, record: Record) -> Result<(), Error> {
    binlog.tail().record(record);
    let end = binlog.tail().end;
    binlog.sync_up_to(end).map_err(|Failed| binlog.error())
}

impl Opening<'_> {
    /// Removes a file that was taken over. If something in it could not be read, it is kept
    /// under a name that no server reads: beanstalkd would have jobs in it that are done.
    fn clear(&mut self, file: &TheirFile, kept: &[(u32, String)]) -> Result<(), Error> {
        let name = their_name(file.number);
        let mut flaws = kept
            .iter()
            .filter(|(number, _)| *number == file.number)
            .peekable();
        if flaws.peek().is_none() {
            return self.remove(&name);
        }
        let new_name = format!("{name}.kept");
        let renamed = self.storage.rename(&name, &new_name);
        renamed.map_err(Error::on("rename", &name))?;
        let told = flaws.map(|(_, flaw)| format!("{name} is kept as {new_name}: {flaw}"));
        self.notices.extend(told);
        Ok(())
    }
}

/// How the integers of a file are laid out.
#[derive(Clone, Copy)]
struct Format {
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
    /// Pass the first [`HEAD_LEN`] bytes, or the whole file if it is shorter: they show the
    /// layout.
    fn of(start: &[u8]) -> Option<Format> {
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
                counters: [
                    counter(0)?,
                    counter(1)?,
                    counter(2)?,
                    counter(3)?,
                    counter(4)?,
                ],
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
    let counters = fields.counters.map(u32::to_le_bytes);
    out.extend_from_slice(counters.as_flattened());
    out.extend_from_slice(&[state, 0, 0, 0]);
    out.extend_from_slice(body);
}
