//! Opening a binlog, or beginning one: its records, in order, say which jobs
//! live.
//!
//! Everything is read and checked first; an error found there leaves the
//! directory as it was. The changes after that may be interrupted anywhere, and
//! are repeated at the next start. They need no more room: the binlog continues
//! in its newest segment, after the last record, and keeps its spare.

use super::error::{Error, is_full};
use super::frame::HEADER_LEN;
use super::import;
use super::ledger::Ledger;
use super::opening::Opening;
use super::record::{Record, Tubes};
use super::room::{RESERVE, SPARE};
use super::segment::{Found, Kind, Reader, look};
use super::spare::zeroed;
use super::storage::{Storage, write_zeros};
use super::writer::Writer;
use super::{Jobs, Opened, SyncMode};
use crate::protocol::JobId;
use std::io;
use std::sync::Arc;

/// Opens the binlog in a storage.
pub(super) fn recover<J: Jobs>(
    storage: Arc<dyn Storage>,
    sync: SyncMode,
    segment_size: u64,
    jobs: J,
) -> Result<Opened<J>, Error> {
    let opening = Opening {
        storage,
        sync,
        segment_size,
        notices: Vec::new(),
    };
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for found in look(&*opening.storage)? {
        match found.kind {
            Kind::Segment(_) => ours.push(found),
            Kind::Nothing if found.len > 0 && opening.storage.is_shared() => {
                let flaw = "there are only zeros in it, which may be what a cache has of it";
                return Err(found.damaged(0, flaw));
            }
            Kind::Beanstalkd(_) | Kind::Nothing => theirs.push(found),
            Kind::Damaged(flaw) => return Err(found.damaged(0, flaw)),
        }
    }
    let oldest = ours.last().and_then(Found::header);
    let oldest = oldest.map_or(0, |newest| newest.oldest);
    let needed = |file: &&Found| file.number >= oldest;
    let is_theirs = |file: &Found| matches!(file.kind, Kind::Beanstalkd(_));
    if !ours.is_empty() && !theirs.iter().filter(needed).any(is_theirs) {
        return match theirs.iter().find(needed) {
            Some(empty) => Err(empty.damaged(0, "there is nothing in it, though there was")),
            None => opening.go_on(&ours, &theirs, jobs),
        };
    }
    if let Some(first) = ours.first()
        && let Some(behind) = theirs.iter().find(|file| file.number > first.number)
    {
        let flaw = "beanstalkd wrote it, behind segments of beanpole";
        return Err(behind.damaged(0, flaw));
    }
    import::take_over(opening, theirs, &ours, jobs)
}

impl Opening {
    /// Continues a binlog of our own; the files `theirs` are left over and not
    /// needed.
    fn go_on<J: Jobs>(
        mut self,
        ours: &[Found],
        theirs: &[Found],
        mut jobs: J,
    ) -> Result<Opened<J>, Error> {
        let newest = ours.last().and_then(Found::header);
        let newest = newest.expect("there are segments");
        let oldest = newest.oldest;
        // A power cut may have undone the removal of segments. They lie before
        // the oldest needed segment or before a gap, and are not read.
        let run = ours.iter().rev().zip((oldest..=newest.number).rev());
        let run = run.take_while(|(found, number)| found.number == *number);
        let (old, run) = ours.split_at(ours.len() - run.count());
        let Replayed {
            ledger,
            oldest: mark,
            end,
            torn,
        } = replay(run, &mut jobs)?;
        let first = run[0].number;
        if first > oldest.max(mark) {
            return Err(Error::Missing { number: first - 1 });
        }
        let newest = &run[run.len() - 1];
        self.mend(newest, end, torn)?;
        import::remove_left_over(&mut self, theirs)?;
        old.iter().try_for_each(|found| self.remove(found))?;
        let len = self.take_room(newest, end)?;
        let writer = Writer::new(newest.number, newest.file.clone(), end);
        let binlog = self.binlog(ledger, writer, len);
        let (spare, reserve) = (self.adopt(SPARE)?, self.adopt(RESERVE)?);
        binlog.tail().spare = Some(spare);
        binlog.tail().reserve = reserve;
        // On shared storage we write no record after those of another server:
        // it may still write there.
        if self.storage.is_shared() && binlog.begin_segment().is_err() {
            return Err(binlog.into_error());
        }
        binlog.tail().retire();
        Ok(self.opened(binlog, jobs))
    }

    /// Writes zeros over what was not finished, and syncs all that was read,
    /// before anything relies on it.
    fn mend(&mut self, newest: &Found, end: u64, torn: u64) -> Result<(), Error> {
        let (name, file) = (newest.name(), &*newest.file);
        if torn > 0 {
            let told = "dropped a torn tail of changes that were never synced";
            self.notices
                .push(format!("{name}: {told}: {torn} bytes from offset {end} on"));
            let zeroed = write_zeros(file, end, end + torn);
            zeroed.map_err(Error::on("mend", &name))?;
        }
        file.sync().map_err(Error::on("sync", name))
    }

    /// Allocates the newest segment's file, and returns its length. Without
    /// room for that, the file ends with its records. (A copy of a file may
    /// have holes.)
    fn take_room(&self, newest: &Found, end: u64) -> Result<u64, Error> {
        let name = newest.name();
        match newest.file.allocate(newest.len) {
            Err(error) if is_full(&error) => {
                let cut = newest.file.set_len(end);
                cut.map_err(Error::on("cut", name))?;
                Ok(end)
            }
            made => made
                .map(|()| newest.len)
                .map_err(Error::on("prepare", name)),
        }
    }

    /// Takes over a file that was prepared ahead, and returns its length; 0 if
    /// there is none. It may have been prepared only in part.
    fn adopt(&self, name: &str) -> Result<u64, Error> {
        let file = match self.storage.open(name) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(0),
            opened => opened.map_err(Error::on("open", name))?,
        };
        match zeroed(&*file) {
            Ok(len) if len > 0 => return Ok(len),
            Err(error) if !is_full(&error) => return Err(Error::on("prepare", name)(error)),
            Ok(_) | Err(_) => {}
        }
        let removed = self.storage.remove(name);
        removed.map(|()| 0).map_err(Error::on("remove", name))
    }
}

/// What a run of consecutive segments says.
struct Replayed {
    ledger: Ledger,
    /// The oldest segment that is needed, by their marks.
    oldest: u32,
    /// Where the records of the newest segment end, and how many bytes of
    /// something unfinished follow.
    end: u64,
    torn: u64,
}

/// Reads segments, and brings the jobs in them back.
fn replay(segments: &[Found], jobs: &mut impl Jobs) -> Result<Replayed, Error> {
    let mut replayed = Replayed {
        ledger: Ledger::new(JobId(1)),
        oldest: 0,
        end: 0,
        torn: 0,
    };
    let ledger = &mut replayed.ledger;
    let mut tubes = Tubes::default();
    for (index, found) in segments.iter().enumerate() {
        let header = found.header().expect("they are segments");
        let next = segments.get(index + 1).and_then(Found::header);
        ledger.raise_next_id(header.next_id);
        ledger.begin(found.number, replayed.end);
        let mut reader = Reader::new(found, HEADER_LEN, next.as_ref())?;
        while let Some((_, record)) = reader.next(&mut tubes)? {
            match record {
                Record::Mark(oldest) => replayed.oldest = oldest.max(replayed.oldest),
                record => replay_record(record, ledger, jobs),
            }
        }
        replayed.torn = reader.torn()?;
        replayed.end = reader.offset;
    }
    Ok(replayed)
}

fn replay_record(record: Record, ledger: &mut Ledger, jobs: &mut impl Jobs) {
    let len = record.len();
    match record {
        Record::Put(job) => {
            let id = job.id;
            match jobs.restore(job) {
                true => ledger.moved(id, len),
                false => ledger.put(id, len),
            }
        }
        // An update of an unknown job. Either the job is deleted, or it was
        // moved out of a segment that is removed, and a later put will bring it
        // back.
        Record::Update(update) => {
            if let Some(job) = jobs.forget(update.id) {
                jobs.restore(update.with(job.tube, job.body));
            }
        }
        Record::Delete(id) => {
            if let Some(job) = jobs.forget(id) {
                ledger.delete(id, Record::Put(job).len());
            }
        }
        Record::Mark(_) => {}
    }
}
