//! Taking over a directory that beanstalkd wrote.
//!
//! Its files are read, all that lives is written to segments behind them,
//! which say in their headers that its files are still needed; then a new
//! segment says that they are not, and only then are they removed. Until that
//! segment's header is synced, a start throws our copies away and begins
//! again; from then on it removes what is left of theirs.

use super::beanstalkd::{self, End, Format};
use super::error::Error;
use super::files::{Found, Kind, last_set_byte};
use super::ledger::Ledger;
use super::record::{Tubes, segment_name};
use super::recovery::{Before, NewLog};
use super::{Binlog, Entry, Jobs, NoRoom, Opened};
use crate::engine::{StoredJob, StoredState};
use crate::protocol::JobId;
use std::collections::{BTreeMap, BTreeSet};

/// So many jobs are written at once.
const AT_ONCE: usize = 1000;

/// What another server's files hold.
#[derive(Default)]
struct Theirs {
    jobs: BTreeMap<JobId, StoredJob>,
    highest: u64,
    /// The jobs that are not whole, and in which file.
    not_whole: BTreeMap<JobId, u32>,
    /// The files with something in them that is not taken over, and what.
    rest: BTreeMap<u32, String>,
    buried: u64,
    tubes: Tubes,
}

impl Theirs {
    fn of<'a>(files: impl IntoIterator<Item = &'a Found>) -> Result<Theirs, Error> {
        let mut theirs = Theirs::default();
        for file in files {
            if let Kind::Beanstalkd(format) = file.kind {
                theirs.read(file, format)?;
            }
        }
        Ok(theirs)
    }

    fn read(&mut self, file: &Found, format: Format) -> Result<(), Error> {
        let read = |source| Error::on("read", file.name())(source);
        let records = beanstalkd::Records::new(format, file.read_from(0), file.len);
        let mut records = records.map_err(read)?;
        let (offset, end) = loop {
            let offset = file.len - records.left();
            match records.next(&mut self.tubes).map_err(read)? {
                Ok(record) => self.apply(record, file.number),
                Err(end) => break (offset, end),
            }
        };
        let flaw = match end {
            End::Regular if last_set_byte(file, offset)?.is_none() => return Ok(()),
            End::Regular => "there is something behind the end".to_owned(),
            End::Nonsense(flaw) => flaw.to_owned(),
            End::CutOff(None) => "the file ends within a record".to_owned(),
            End::CutOff(Some(id)) => format!("the file ends within the body of job {id}"),
        };
        let (name, bytes) = (file.name(), file.len - offset);
        let told =
            format!("{name} is kept: {flaw}, {bytes} bytes from offset {offset} on are not read");
        self.rest.insert(file.number, told);
        Ok(())
    }

    fn apply(&mut self, record: beanstalkd::Record, number: u32) {
        let (beanstalkd::Record::Full(StoredJob { id, .. })
        | beanstalkd::Record::Short(beanstalkd::Fields { id, .. })
        | beanstalkd::Record::Deleted(id)
        | beanstalkd::Record::NotWhole(id)) = record;
        self.highest = self.highest.max(id.0);
        match record {
            beanstalkd::Record::Full(mut job) => {
                self.not_whole.remove(&id);
                self.take_place(&mut job.state, id);
                self.jobs.insert(id, job);
            }
            // About an unknown job: that is gone.
            beanstalkd::Record::Short(_) if !self.jobs.contains_key(&id) => {}
            beanstalkd::Record::Short(mut fields) => {
                self.take_place(&mut fields.state, id);
                if let Some(job) = self.jobs.get_mut(&id) {
                    job.priority = fields.priority;
                    job.delay = fields.delay;
                    job.ttr = fields.ttr;
                    job.created_at = fields.created_at;
                    job.counters = fields.counters;
                    job.state = fields.state;
                }
            }
            beanstalkd::Record::Deleted(id) => {
                self.not_whole.remove(&id);
                self.jobs.remove(&id);
            }
            // Where an earlier record has it whole, that is the better one.
            beanstalkd::Record::NotWhole(id) if !self.jobs.contains_key(&id) => {
                self.not_whole.insert(id, number);
            }
            beanstalkd::Record::NotWhole(_) => {}
        }
    }

    /// Gives a buried job its place among the others: the one that it has, if
    /// it was buried before.
    fn take_place(&mut self, state: &mut StoredState, id: JobId) {
        if let StoredState::Buried { order } = state {
            match self.jobs.get(&id).map(|job| job.state) {
                Some(StoredState::Buried { order: before }) => *order = before,
                _ => {
                    self.buried += 1;
                    *order = self.buried;
                }
            }
        }
    }

    /// Removes the files, but for those with something that was not taken over.
    fn remove<'a>(
        &self,
        new: &mut NewLog,
        files: impl IntoIterator<Item = &'a Found>,
    ) -> Result<(), Error> {
        let not_whole = |(id, number): (&JobId, &u32)| {
            let name = segment_name(*number);
            format!("{name} is kept: job {id} is not whole, its body does not end in CR LF")
        };
        new.notices.extend(self.rest.values().cloned());
        new.notices.extend(self.not_whole.iter().map(not_whole));
        let kept: BTreeSet<&u32> = self.rest.keys().chain(self.not_whole.values()).collect();
        for file in files
            .into_iter()
            .filter(|file| !kept.contains(&file.number))
        {
            new.remove(file)?;
        }
        new.sync_names()
    }
}

/// Takes over all jobs in another server's files among `old`. Segments of our
/// own there and `behind` are an earlier try.
pub(super) fn take_over<J: Jobs>(
    mut new: NewLog,
    old: Vec<Found>,
    behind: Vec<Found>,
    mut jobs: J,
) -> Result<Opened<J>, Error> {
    let (files, ours): (Vec<_>, Vec<_>) = old.into_iter().partition(Found::is_theirs);
    let theirs = Theirs::of(&files)?;
    for file in ours.iter().chain(&behind) {
        new.remove(file)?;
    }
    new.sync_names()?;
    let first = files.first().map_or(1, |file| file.number);
    let last = files.last().map_or(1, |file| file.number);
    let before = Before {
        ledger: Ledger::new(JobId(theirs.highest.saturating_add(1))),
        floor: Some(first),
        previous_end: 0,
        number: last + 1,
    };
    let log = new.begin(before, Vec::new())?;
    if copy(&log, &theirs.jobs).is_err() {
        return Err(log.into_error());
    }
    theirs.remove(&mut new, &files)?;
    new.notices.push(format!(
        "took over {} jobs from {} binlog files of beanstalkd",
        theirs.jobs.len(),
        files.len()
    ));
    for job in theirs.jobs.into_values() {
        jobs.insert(job);
    }
    Ok(new.opened(log, jobs))
}

/// Writes the jobs, and then that nothing else is needed.
fn copy(log: &Binlog, jobs: &BTreeMap<JobId, StoredJob>) -> Result<(), NoRoom> {
    for (index, job) in jobs.values().enumerate() {
        let room = log.reserve_put(job.tube.as_str().len(), job.body.wire().len())?;
        let end = log.append(Entry::Put(job.clone()), jobs);
        drop(room);
        if index % AT_ONCE == 0 {
            log.commit(end).map_err(|_| NoRoom)?;
        }
    }
    let end = log.tail().end;
    log.settle(end).map_err(|_| NoRoom)?;
    let end = {
        let mut tail = log.tail();
        tail.floor = None;
        tail.rotate(0);
        tail.end
    };
    log.settle(end).map_err(|_| NoRoom)
}

/// Removes files that are needed no more.
pub(super) fn remove_left_over(new: &mut NewLog, old: &[Found]) -> Result<(), Error> {
    let (theirs, ours): (Vec<_>, Vec<_>) = old.iter().partition(|file| file.is_theirs());
    ours.into_iter().try_for_each(|file| new.remove(file))?;
    Theirs::of(theirs.iter().copied())?.remove(new, theirs)
}
