//! Taking over a directory that beanstalkd wrote.
//!
//! Its files are read, and all live jobs are written to segments after them.
//! The headers of these segments say that beanstalkd's files are still needed.
//! Then a new segment says that they are not needed any more, and only then are
//! they removed. Until that segment has its name, a start throws our copies
//! away and begins again. From then on, a start removes what is left of
//! beanstalkd's files.

use super::beanstalkd::{End, Format, Records};
use super::error::Error;
use super::format::{HEADER_LEN, Record, Tubes, segment_name, segment_number};
use super::opening::Opening;
use super::room::{BLOCK, most_spares};
use super::segment::{Found, Kind};
use super::{Binlog, Jobs, NoRoom, Opened};
use crate::engine::{Change, StoredState};
use crate::protocol::JobId;
use std::collections::{BTreeMap, BTreeSet};

/// How many jobs are written at once, but for the first one.
const JOBS_AT_ONCE: usize = 1000;

/// What beanstalkd's files hold.
struct Theirs<'a, J> {
    jobs: &'a mut J,
    /// The live jobs.
    ids: BTreeSet<JobId>,
    highest: u64,
    /// The jobs whose body is not complete, and the file of each.
    not_whole: BTreeMap<JobId, u32>,
    /// The files with something that is not taken over, and the message about
    /// it.
    rest: BTreeMap<u32, String>,
    buried: u64,
}

impl<'a, J: Jobs> Theirs<'a, J> {
    fn of(files: &[Found], jobs: &'a mut J) -> Result<Self, Error> {
        let mut theirs = Theirs {
            jobs,
            ids: BTreeSet::new(),
            highest: 0,
            not_whole: BTreeMap::new(),
            rest: BTreeMap::new(),
            buried: 0,
        };
        let mut tubes = Tubes::default();
        for file in files {
            if let Kind::Beanstalkd(format) = file.kind {
                let end = read(file, format, &mut tubes, &mut |_, id, record| {
                    theirs.apply(id, record, file.number);
                })?;
                if let Some((offset, flaw)) = end {
                    let (name, bytes) = (file.name(), file.len - offset);
                    let told = format!(
                        "{name} is kept: {flaw}, {bytes} bytes from offset {offset} on are not read"
                    );
                    theirs.rest.insert(file.number, told);
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
                self.take_place(&mut job.state, id);
                self.jobs.restore(job);
                self.ids.insert(id);
            }
            Some(Record::Update(mut update)) if lives => {
                self.take_place(&mut update.state, id);
                if let Some(mut job) = self.jobs.forget(id) {
                    update.apply(&mut job);
                    self.jobs.restore(job);
                }
            }
            Some(Record::Delete(_)) => {
                self.not_whole.remove(&id);
                self.jobs.forget(id);
                self.ids.remove(&id);
            }
            // If an earlier record has the complete job, that record is the
            // better one.
            None if !lives => {
                self.not_whole.insert(id, number);
            }
            // A record about an unknown job: the job is deleted.
            Some(Record::Update(_) | Record::Mark(_)) | None => {}
        }
    }

    /// Gives a buried job its place among the buried jobs. If it was buried
    /// before, it keeps its place.
    fn take_place(&mut self, state: &mut StoredState, id: JobId) {
        if let StoredState::Buried { order } = state {
            match self.jobs.stored(id).map(|job| job.state) {
                Some(StoredState::Buried { order: before }) => *order = before,
                _ => {
                    self.buried += 1;
                    *order = self.buried;
                }
            }
        }
    }

    /// Removes the files, except those with something that was not taken over.
    fn remove(&self, opening: &mut Opening, files: &[Found]) -> Result<(), Error> {
        let not_whole = |(id, number): (&JobId, &u32)| {
            let name = segment_name(*number);
            format!("{name} is kept: job {id} is not whole, its body does not end in CR LF")
        };
        opening.notices.extend(self.rest.values().cloned());
        opening.notices.extend(self.not_whole.iter().map(not_whole));
        let kept: BTreeSet<&u32> = self.rest.keys().chain(self.not_whole.values()).collect();
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
            opening.clear_away(file);
        }
        opening.sync_names()
    }
}

/// Reads a file of beanstalkd. Calls `each` with the offset of each record, its
/// job and the record (`None` if the job is not complete). If the file is not
/// read to its end, returns the offset where reading stopped, and why.
pub fn read(
    file: &Found,
    format: Format,
    tubes: &mut Tubes,
    each: &mut dyn FnMut(u64, JobId, Option<Record>),
) -> Result<Option<(u64, End)>, Error> {
    let read = |source| Error::on("read", file.name())(source);
    let records = Records::new(format, file.read_from(0)?, file.len);
    let mut records = records.map_err(read)?;
    loop {
        let offset = file.len - records.left();
        match records.next(tubes).map_err(read)? {
            Ok((id, record)) => each(offset, id, record),
            Err(End::Regular) if file.last_set_byte(offset)?.is_none() => return Ok(None),
            Err(End::Regular) => {
                let flaw = End::Nonsense("there is something behind the end");
                return Ok(Some((offset, flaw)));
            }
            Err(end) => return Ok(Some((offset, end))),
        }
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
    let Some(last) = files.last() else {
        let binlog = opening.begin(JobId(1), 1, None)?;
        return Ok(opening.opened(binlog, jobs));
    };
    // A file with nothing in it is not needed.
    let is_theirs = |file: &&Found| matches!(file.kind, Kind::Beanstalkd(_));
    let first = files.iter().find(is_theirs).map(|file| file.number);
    let Some(number) = last
        .number
        .checked_add(1)
        .filter(|number| *number < u32::MAX)
    else {
        return Err(last.damaged(0, "no file can come behind one of this number"));
    };
    let theirs = Theirs::of(&files, &mut jobs)?;
    if first.is_none() {
        // Beside spares of ours, these files would look like lost segments.
        theirs.remove(&mut opening, &files)?;
        let binlog = opening.begin(JobId(1), number, None)?;
        return Ok(opening.opened(binlog, jobs));
    }
    for file in ours {
        opening.remove(file)?;
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
    let jobs_taken = theirs.ids.len();
    let count = files.iter().filter(is_theirs).count();
    opening.notices.push(format!(
        "took over {jobs_taken} jobs from {count} binlog files of beanstalkd"
    ));
    Ok(opening.opened(binlog, jobs))
}

/// Writes the jobs, and then begins the segment that says that beanstalkd's
/// files are not needed any more.
fn copy<J: Jobs>(binlog: &Binlog, theirs: &Theirs<J>) -> Result<(), NoRoom> {
    for (index, id) in theirs.ids.iter().enumerate() {
        let job = theirs.jobs.stored(*id).expect("it is there");
        binlog.make_room_to_copy(Record::Put(job).grown_len())?;
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
    let names = storage.list().unwrap_or_default();
    let numbers = names.iter().filter_map(|name| segment_number(name));
    let mut ours: Vec<u32> = numbers.filter(|number| *number >= first).collect();
    ours.sort_unstable();
    // If something stays, the next start removes it, or finishes the takeover.
    for number in ours.into_iter().rev() {
        let removed = storage.remove(&segment_name(number));
        if removed.and_then(|()| storage.sync()).is_err() {
            return error;
        }
    }
    opening.remove_prepared();
    if !error.is_full() {
        return error;
    }
    let needed = room_needed(opening.soft_len(), theirs);
    let free = storage.free();
    let free = free.map_or(String::new(), |free| format!(", and {free} are free"));
    Error::Refused(format!(
        "cannot take over the jobs of beanstalkd: copies of them need {needed} bytes on the disk{free}; nothing was changed; make room, or start beanstalkd again"
    ))
}

/// How many bytes of files a takeover needs, with segments of this length.
fn room_needed<J: Jobs>(asked: u64, theirs: &Theirs<J>) -> u64 {
    let jobs = theirs.ids.iter().filter_map(|id| theirs.jobs.stored(*id));
    let lens: Vec<u64> = jobs.map(|job| Record::Put(job).grown_len()).collect();
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
    (segments + 1 + most_spares(segments + 6) as u64) * len
}

/// Removes files that are not needed any more.
pub(super) fn remove_left_over(opening: &mut Opening, theirs: &[Found]) -> Result<(), Error> {
    if theirs.is_empty() {
        return Ok(());
    }
    let mut nowhere = BTreeMap::new();
    match Theirs::of(theirs, &mut nowhere) {
        Ok(read) => read.remove(opening, theirs),
        Err(error) => {
            let told = format!("left alone, since it is not needed: {error}");
            opening.notices.push(told);
            Ok(())
        }
    }
}
