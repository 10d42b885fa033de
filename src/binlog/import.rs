//! Taking over a directory that beanstalkd wrote, and giving jobs back to it.
//!
//! Whose file it is, is its name: beanstalkd's are `binlog.N`, and it reads no file of ours.
//! A takeover copies its live jobs into a new log. Then its files become `binlog.N.taken`,
//! which no server reads. Two files say how far it has come:
//!
//! - While there is `takeover` alone, the segments are copies that do not count, and the next
//!   start begins again, in segments with higher numbers.
//! - Once there is `takeover.done`, the copies count. It has the names of the files that were
//!   read, a line each, and what is left is to rename these. Any other file is newer:
//!   beanstalkd was started again in between.
//!
//! Both are made under a name that is this server's own, and renamed when they are whole. So
//! on shared storage a server that has lost the lock makes none of them late.
//!
//! Beside a log of ours nothing is taken over.
//!
//! # Its records
//!
//! Version 7 is known. A file begins with an i32 of 7, and all integers have the byte order of
//! the machine that wrote it, which must be that of this one. The job has 80 bytes; a 32-bit
//! x86 packs it into 72, and the first record says which.
//!
//! | size | |
//! |---|---|
//! | 4 | i32: length of the tube's name; 0: a short record |
//! | | the name, in a full record |
//! | 80 (72) | the job |
//! | | the body with CR LF, in a full record |
//!
//! The job: id u64 at 0, priority u32 at 8, delay i64 at 16 (12), TTR i64 at 24
//! (20), length of the body with CR LF i32 at 32 (28), creation i64 at 40 (32),
//! deadline i64 at 48 (40), counters 5 × u32 at 56 (48), state u8 at 76 (68).
//! Times are nanoseconds. The states are 0 deleted, 1 ready, 2 reserved, 3 buried,
//! 4 delayed.

use super::Binlog;
use super::error::{AGAIN, APART, Error, is_full};
use super::format::{NUMBERS, Record, number_in, put_len, segment_number};
use super::lease::DRAFT;
use super::live::LiveBytes;
use super::recovery::Opening;
use super::segment::{Window, find};
use super::storage::Source;
use crate::engine::{JobFields, StoredJob, StoredState, Time};
use crate::log::counted;
use crate::protocol::{Body, JobId, Priority, Seconds, TubeName};
use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::sync::Arc;

/// The name of one of beanstalkd's files.
pub fn their_name(number: u32) -> String {
    format!("binlog.{number}")
}

/// The name that a file gets when its jobs are taken over.
fn taken_name(name: &str) -> String {
    format!("{name}{TAKEN}")
}

const TAKEN: &str = ".taken";
/// The copies are being made, and do not count.
const BEGUN: &str = "takeover";
/// They count. The file has the names of those that were read.
pub(super) const DONE: &str = "takeover.done";

/// Whether the segments in a directory with these names are copies that do not count.
pub(super) fn is_unfinished(names: &[String]) -> bool {
    names.iter().any(|name| name == BEGUN) && !is_done(names)
}

/// Whether there is a log that has taken over the files of beanstalkd beside it.
fn is_done(names: &[String]) -> bool {
    names.iter().any(|name| name == DONE)
}

/// Whether a file of this name was taken over.
fn is_taken(name: &str) -> bool {
    let name = name.strip_suffix(TAKEN);
    name.is_some_and(|name| number_in(name, their_name).is_some())
}

/// How many bytes the files have that were taken over and are still there.
pub fn taken_bytes(storage: &dyn Source) -> u64 {
    let names = storage.list().unwrap_or_default();
    let files = names.iter().filter(|name| is_taken(name));
    let lens = files.filter_map(|name| storage.open_to_read(name).ok()?.len().ok());
    lens.sum()
}

/// A file with such a name.
pub struct TheirFile {
    /// Its number.
    pub number: u32,
    storage: Arc<dyn Source>,
    /// How long it is, in bytes.
    len: u64,
    layout: Layout,
}

impl TheirFile {
    fn read(storage: Arc<dyn Source>, number: u32) -> Result<TheirFile, Error> {
        let name = their_name(number);
        let mut window = Window::open(&*storage, &name)?;
        let start = window.at(0, HEAD_LEN)?;
        let version = field(start, 0).map_or(0, u32::from_ne_bytes);
        let refused = |what| Err(Error::other_format(&name, what, "beanstalkd"));
        let layout = match (version, version.swap_bytes()) {
            (7, _) => Layout::of(&start[4..]),
            (5, _) => return refused("of version 5, which this program does not read"),
            (_, 5 | 7) => return refused("of a machine with another byte order"),
            // beanstalkd leaves such files.
            _ if window.last_set_byte(0)?.is_none() => Layout::Aligned,
            _ => {
                let flaw = "beanstalkd does not begin a file like this".into();
                return Err(Error::damaged(&name, 0, flaw));
            }
        };
        Ok(TheirFile {
            number,
            len: window.len,
            storage,
            layout,
        })
    }
}

/// beanstalkd's files in a directory.
#[derive(Default)]
pub struct TheirFiles {
    /// Those whose jobs are not in a log of ours, in their order.
    pub new: Vec<TheirFile>,
    /// The names of those that were taken over, and are still to be renamed.
    pub taken: Vec<String>,
    /// Why no server starts here.
    pub flaws: Vec<Error>,
}

impl TheirFiles {
    /// Finds them, beside a log of ours or none. An error if one of them is newer than what was
    /// taken over.
    pub fn of(
        storage: Arc<dyn Source>,
        names: &[String],
        has_log: bool,
    ) -> Result<TheirFiles, Error> {
        let (mut files, mut next) = (TheirFiles::default(), None);
        // Where the copies are lost no server starts, and `repair` saves what is left here.
        let list = (has_log && is_done(names)).then(|| Window::open(&*storage, DONE));
        let mut list = list.transpose()?;
        let number_of = |name: &str| number_in(name, their_name);
        let found = find(&storage, names, number_of, TheirFile::read);
        for (number, file) in found {
            let name = their_name(number);
            if let Some(list) = &mut list {
                let list = String::from_utf8_lossy(list.at(0, usize::MAX)?);
                let is_read = list.lines().any(|line| line == name);
                // A power cut may leave both names of a file.
                let is_one = || storage.open_to_read(&name)?.links().map(|links| links == 1);
                let is_other = names.contains(&taken_name(&name))
                    && is_one().map_err(Error::on("read", &name))?;
                if is_read && !is_other {
                    files.taken.push(name);
                } else {
                    // Until the last one is renamed, no client is served. (beanstalkd may have
                    // removed it before that.)
                    let is_over = list.lines().all(|line| names.contains(&taken_name(line)));
                    let is_over = is_over && files.taken.is_empty();
                    let way = if is_over { APART } else { AGAIN };
                    return Err(Error::Refused(format!(
                        "{name} was written by beanstalkd after its jobs had been taken over{way}"
                    )));
                }
                continue;
            }
            if let Some(missing) = next.filter(|next| !has_log && *next < number) {
                // beanstalkd removes its files in their order.
                let missing = Error::missing(missing, number - 1, their_name);
                files.flaws.push(missing);
            }
            next = number.checked_add(1);
            match file {
                Ok(file) => files.new.push(file),
                Err(error) => files.flaws.push(error),
            }
        }
        let older = names.iter().find(|name| is_taken(name));
        let older = older.filter(|_| !has_log && !files.new.is_empty());
        files.flaws.extend(older.map(|older| {
            Error::Refused(format!(
                "{older} is left from an earlier takeover; nothing was changed; move such files away before another one"
            ))
        }));
        Ok(files)
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
    /// What is wrong with the jobs whose body is not complete.
    not_whole: BTreeMap<JobId, String>,
    /// What is wrong with bytes that are no record.
    unread: Vec<String>,
    /// How many times a job was buried.
    buried: u64,
}

/// Is shown a record.
type Show<'a> = dyn FnMut(u64, JobId, &mut Option<Record>) + 'a;

impl Theirs {
    /// Reads the next file. Each record is shown before it counts, with its offset and its
    /// job: `None` if the body of the job does not end in CR LF.
    pub fn read(&mut self, file: &TheirFile, show: &mut Show) -> Result<(), Error> {
        let (layout, file_name) = (file.layout, their_name(file.number));
        let (mut window, mut offset) = (Window::open(&*file.storage, &file_name)?, 4);
        let flaw = loop {
            let name_len = name_len(window.at(offset, NAME_AT)?);
            let len = NAME_AT + name_len + layout as usize;
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
            let (name, job) = bytes[NAME_AT..].split_at(name_len);
            let (has_body, tube) = (!name.is_empty(), TubeName::parse(name));
            let job = Job::decode(job, layout);
            let Some(job) = job.filter(|_| tube.is_some() || !has_body) else {
                break "this is not a job".to_owned();
            };
            let id = job.fields.id;
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
            self.apply(id, record, &file_name);
            offset += (len + body_len) as u64;
        };
        let bytes = file.len - offset;
        self.unread.push(format!(
            "{file_name}: {flaw}, {bytes} bytes from offset {offset} on are not read"
        ));
        Ok(())
    }

    /// An error if there are jobs. To be called beside a log of ours.
    pub fn must_be_empty(&self) -> Result<(), Error> {
        if self.jobs.is_empty() {
            return Ok(());
        }
        let jobs = counted(self.jobs.len() as u64, "job");
        Err(Error::Refused(format!(
            "{jobs} of beanstalkd (in binlog.*) and a log of ours (segment.*) are in one directory{APART}"
        )))
    }

    /// What cannot be taken over, and why.
    pub fn flaws(&self) -> impl Iterator<Item = String> {
        self.unread.iter().chain(self.not_whole.values()).cloned()
    }

    fn apply(&mut self, id: JobId, record: Option<Record>, name: &str) {
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
                let flaw = format!("{name}: job {id} is not whole, its body does not end in CR LF");
                self.not_whole.insert(id, flaw);
            }
            // An update of an unknown job: the job is deleted.
            _ => {}
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

/// What beanstalkd's files are for a start, when everything is read.
pub(super) struct Import {
    files: TheirFiles,
    /// What the new ones hold.
    theirs: Theirs,
    /// The first number of a new log, which no segment has had that an unfinished takeover has
    /// left.
    number: u32,
    /// Whether the copies count, and their files are to be renamed.
    is_done: bool,
}

impl Import {
    /// Reads beanstalkd's files, beside a log of ours or none.
    pub fn of(opening: &mut Opening, names: &[String], has_log: bool) -> Result<Import, Error> {
        let mut files = TheirFiles::of(opening.storage.clone(), names, has_log)?;
        files.flaws.drain(..).next().map_or(Ok(()), Err)?;
        let (mut theirs, mut new) = (Theirs::default(), files.new.iter());
        new.try_for_each(|file| theirs.read(file, &mut |_, _, _| ()))?;
        if has_log {
            theirs.must_be_empty()?;
            let told = files.new.iter().map(|file| their_name(file.number));
            let told =
                told.map(|name| format!("{name} is left alone: it has no job of beanstalkd"));
            opening.notices.extend(told);
        }
        let numbers = names.iter().filter_map(|name| segment_number(name));
        Ok(Import {
            is_done: is_done(names),
            number: numbers.max().unwrap_or(0).saturating_add(1),
            files,
            theirs,
        })
    }

    /// Begins a log, and takes the jobs over into it. If this fails, nothing is left of it.
    pub fn begin(&mut self, opening: &mut Opening, live: LiveBytes) -> Result<Binlog, Error> {
        if self.files.new.is_empty() && !is_unfinished(&opening.names()?) {
            return opening.begin(live, self.number);
        }
        let names = self.files.new.iter().map(|file| their_name(file.number));
        let names: Vec<String> = names.collect();
        // Copies of a takeover that was not finished: this one needs their room.
        opening.remove_segments()?;
        let begun = opening.mark(BEGUN, "").and_then(|()| {
            let binlog = opening.begin(live, self.number)?;
            let jobs = self.theirs.jobs.values().cloned();
            binlog.copy(jobs.map(Record::Put), JobId(self.theirs.highest + 1))?;
            opening.mark(DONE, &names.join("\n")).map(|()| binlog)
        });
        let binlog = begun.map_err(|error| self.undo(opening, error))?;
        (self.files.taken, self.is_done) = (names, true);
        let (jobs, files) = (self.theirs.jobs.len() as u64, self.files.new.len() as u64);
        if files > 0 {
            opening.notices.push(format!(
                "took over {} from {} of beanstalkd, which stay as binlog.N{TAKEN}; in these, jobs that are done from now on come back, and new ones are missing: the way back is `beanpole binlog export7`",
                counted(jobs, "job"),
                counted(files, "binlog file"),
            ));
        }
        for flaw in self.theirs.flaws() {
            let told = format!("not all was taken over: {flaw}");
            opening.notices.push(told);
        }
        let jobs = std::mem::take(&mut self.theirs.jobs).into_values();
        jobs.for_each(|job| opening.jobs.restore(job));
        Ok(binlog)
    }

    /// After a takeover has failed, removes what it has written: on a full disk, beanstalkd
    /// could not start beside it either. (If something stays, the next start begins again.)
    /// Returns why it failed.
    fn undo(&self, opening: &Opening, error: Error) -> Error {
        let is_full = error.kind().is_some_and(|kind| is_full(&kind.into()));
        let undone = opening.unmark(DONE).and_then(|()| {
            // A power cut must not bring it back when the copies are gone.
            opening.sync_names()?;
            opening.remove_prepared()?;
            opening.remove_segments()?;
            opening.unmark(BEGUN)
        });
        if undone.is_err() || !is_full {
            return error;
        }
        let needed = self.theirs.jobs.values().map(put_len).sum::<u64>();
        let free = opening.storage.free();
        let free = free.map_or(String::new(), |free| format!(", and {free} are free"));
        Error::Refused(format!(
            "cannot take over the jobs of beanstalkd: copies of them need {needed} bytes and four files of -s{free}; nothing was changed; make room, or start beanstalkd again"
        ))
    }

    /// Renames the files that were taken over.
    pub fn rename_taken(&self, opening: &Opening) -> Result<(), Error> {
        if !self.is_done {
            return Ok(());
        }
        let names = opening.names()?;
        for name in &self.files.taken {
            // A power cut may have left both names.
            if names.contains(&taken_name(name)) {
                opening.remove(name)?;
            } else {
                let renamed = opening.storage.rename(name, &taken_name(name));
                renamed.map_err(Error::on("rename", name))?;
            }
        }
        opening.unmark(BEGUN)?;
        opening.unmark(DONE)?;
        // If the list came back when clients have been served, it would tell an administrator to
        // take the old files once more.
        opening.sync_names()
    }
}

impl Opening<'_> {
    /// Makes a file of this name with this text, if there is none.
    fn mark(&self, name: &str, text: &str) -> Result<(), Error> {
        if self.names()?.iter().any(|found| found == name) {
            return Ok(());
        }
        self.remove(DRAFT)?;
        let make = || {
            let file = self.storage.create(DRAFT)?;
            file.write_at(text.as_bytes(), 0)?;
            file.sync()?;
            self.storage.rename(DRAFT, name)
        };
        make().map_err(Error::on("make", name))?;
        self.sync_names()
    }

    /// Removes this file, if it is there, after all that was done before.
    fn unmark(&self, name: &str) -> Result<(), Error> {
        self.sync_names()?;
        self.remove(name)
    }
}

/// How the job in a record is laid out, and how long it is.
#[derive(Clone, Copy)]
enum Layout {
    /// Integers of 8 bytes are aligned to 8.
    Aligned = 80,
    /// They are aligned to 4.
    Packed = 72,
}

/// Where the tube's name begins in a record.
const NAME_AT: usize = 4;

/// The length of the tube's name in the record that begins here, or a length that no name has.
fn name_len(record: &[u8]) -> usize {
    let len = field(record, 0).map_or(0, u32::from_ne_bytes) as usize;
    len.min(TubeName::MAX_LEN + 1)
}

/// The bytes of an integer.
fn field<const N: usize>(bytes: &[u8], offset: usize) -> Option<[u8; N]> {
    bytes.get(offset..)?.first_chunk().copied()
}

impl Layout {
    /// The layout of the records that begin like this. Pass the rest of the first
    /// [`HEAD_LEN`] bytes of the file: the first record shows the layout.
    fn of(record: &[u8]) -> Layout {
        let job = record.get(NAME_AT + name_len(record)..).unwrap_or_default();
        let is_job = |layout: &Layout| Job::decode(job, *layout).is_some();
        let layouts = [Layout::Aligned, Layout::Packed];
        layouts.into_iter().find(is_job).unwrap_or(Layout::Aligned)
    }
}

const NANOS_A_SECOND: u64 = 1_000_000_000;

/// The lengths of bodies, with CR LF. beanstalkd takes none above 1 GiB.
const BODY_LENS: RangeInclusive<u32> = 2..=(1 << 30) + 2;

/// A job as it is in the file.
struct Job {
    fields: JobFields,
    body_len: usize,
}

impl Job {
    fn decode(bytes: &[u8], layout: Layout) -> Option<Job> {
        let at = |aligned, packed| match layout {
            Layout::Aligned => aligned,
            Layout::Packed => packed,
        };
        // In nanoseconds. beanstalkd's times are signed, and never negative.
        let time = |offset| {
            let time = i64::from_ne_bytes(field(bytes, offset)?);
            Some(time.max(0).cast_unsigned())
        };
        let number = |offset| field(bytes, offset).map(u32::from_ne_bytes);
        let mut counters = [0; 5];
        for (index, counter) in counters.iter_mut().enumerate() {
            *counter = number(at(56, 48) + 4 * index)?;
        }
        // Clients ask for whole seconds.
        let seconds = |offset| {
            let nanos = time(offset)?;
            let seconds = Seconds(u32::try_from(nanos / NANOS_A_SECOND).ok()?);
            (seconds.as_nanos() == nanos).then_some(seconds)
        };
        let body_len = number(at(32, 28)).filter(|len| BODY_LENS.contains(len))?;
        let deadline = Time::from_nanos(time(at(48, 40))?);
        let id = u64::from_ne_bytes(field(bytes, 0)?);
        let is_id = (1..NUMBERS / 2).contains(&id);
        Some(Job {
            fields: JobFields {
                id: is_id.then_some(JobId(id))?,
                priority: Priority(number(8)?),
                delay: seconds(at(16, 12))?,
                ttr: seconds(at(24, 20))?.max(Seconds(1)),
                created_at: Time::from_nanos(time(at(40, 32))?),
                state: match bytes.get(at(76, 68))? {
                    0 => StoredState::Deleted { until: deadline },
                    1 | 2 => StoredState::Ready,
                    3 => StoredState::Buried { order: 0 },
                    4 => StoredState::Delayed { until: deadline },
                    _ => return None,
                },
                counters,
                failed_tries: 0,
            },
            body_len: body_len as usize,
        })
    }
}

/// How a version-7 file starts; the records of [`encode`] follow.
pub const FILE_START: [u8; 4] = 7i32.to_ne_bytes();

/// Appends the full version-7 record of a job to `out`, as a 64-bit
/// machine with this byte order writes it. It has no place for the options of a job, nor
/// for tombstones.
pub fn encode(job: &StoredJob, out: &mut Vec<u8>) {
    let (fields, tube) = (&job.fields, job.tube.as_str().as_bytes());
    let body = job.body.wire();
    let len = |len: usize| i32::try_from(len).expect("names and bodies are shorter than 2 GiB");
    out.extend_from_slice(&len(tube.len()).to_ne_bytes());
    out.extend_from_slice(tube);
    let (state, deadline) = match fields.state {
        StoredState::Deleted { .. } => (0, 0),
        StoredState::Ready => (1, 0),
        StoredState::Buried { .. } => (3, 0),
        StoredState::Delayed { until } => (4, until.as_nanos()),
    };
    let time = |nanos: u64| i64::try_from(nanos).unwrap_or(i64::MAX).to_ne_bytes();
    out.extend_from_slice(&fields.id.0.to_ne_bytes());
    out.extend_from_slice(&fields.priority.0.to_ne_bytes());
    out.extend_from_slice(&[0; 4]);
    out.extend_from_slice(&time(fields.delay.as_nanos()));
    out.extend_from_slice(&time(fields.ttr.as_nanos()));
    out.extend_from_slice(&len(body.len()).to_ne_bytes());
    out.extend_from_slice(&[0; 4]);
    out.extend_from_slice(&time(fields.created_at.as_nanos()));
    out.extend_from_slice(&time(deadline));
    let counters = fields.counters.map(u32::to_ne_bytes);
    out.extend_from_slice(counters.as_flattened());
    out.extend_from_slice(&[state, 0, 0, 0]);
    out.extend_from_slice(body);
}
