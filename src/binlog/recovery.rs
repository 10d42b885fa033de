//! Opening a log: the jobs that live are what its records say, in order.
//!
//! Everything is read and judged first; an error leaves the directory as it
//! was. What is changed then may be interrupted anywhere, and is done again at
//! the next start.

use super::chain::{Chain, End, Step};
use super::error::Error;
use super::files::{Found, Kind, look};
use super::import;
use super::ledger::Ledger;
use super::record::{HEADER_LEN, Header, Record, full_len, segment_name};
use super::spares::{UNFINISHED, make_spare};
use super::storage::{Storage, write_zeros};
use super::tail::{BLOCK, Spare, Tail};
use super::writer::Writer;
use super::{Binlog, Jobs, Opened, SyncMode};
use crate::engine::StoredJob;
use crate::protocol::JobId;
use std::collections::VecDeque;
use std::io;
use std::sync::Arc;

/// No longer segments can be asked for.
const LONGEST_SEGMENT: u32 = 1 << 30;

/// Opens the log in a storage.
pub(super) fn recover<J: Jobs>(
    storage: Arc<dyn Storage>,
    sync: SyncMode,
    segment_size: u64,
    jobs: J,
) -> Result<Opened<J>, Error> {
    let segment_size = u32::try_from(segment_size)
        .unwrap_or(u32::MAX)
        .clamp(BLOCK, LONGEST_SEGMENT)
        .next_multiple_of(BLOCK);
    let mut files = look(&*storage)?;
    let used = files
        .iter()
        .rposition(|file| !matches!(file.kind, Kind::Nothing));
    let unused = files.split_off(used.map_or(0, |last| last + 1));
    let old = files.len() - run_len(&files);
    let run = files.split_off(old);
    let replay = Replay::of(&run, jobs)?;
    let new = NewLog {
        storage,
        sync,
        segment_size,
        notices: Vec::new(),
    };
    // Another server's files count until ours say that they are needed no more.
    let (old, oldest) = (files, replay.oldest);
    if old
        .iter()
        .any(|file| file.is_theirs() && file.number >= oldest)
    {
        if let Some(theirs) = behind_ours(&old) {
            return Err(theirs.damaged(0, "beanstalkd wrote it, behind segments of beanpole"));
        }
        let ours = run.into_iter().chain(unused).collect();
        return import::take_over(new, old, ours, replay.into_jobs());
    }
    check_complete(&old, &run, oldest)?;
    new.go_on(replay, old, run, unused)
}

/// How many of the last files are segments that follow each other.
fn run_len(files: &[Found]) -> usize {
    let numbers = files
        .iter()
        .rev()
        .map(|file| file.is_segment().then_some(file.number));
    let newest = files.last().map_or(0, |file| file.number);
    let expected = (0..=newest).rev().map(Some);
    numbers
        .zip(expected)
        .take_while(|(number, expected)| number == expected)
        .count()
}

/// A file of another server that stands behind one of our own.
fn behind_ours(files: &[Found]) -> Option<&Found> {
    let mut behind = files.iter().skip_while(|file| !file.is_segment());
    behind.find(|file| file.is_theirs())
}

/// Whether all segments are there that are needed.
fn check_complete(old: &[Found], run: &[Found], oldest: u32) -> Result<(), Error> {
    let begin = run.first().map_or(0, |file| file.number);
    let Some(missing) = (oldest..begin).next_back() else {
        return Ok(());
    };
    match old.iter().find(|file| file.number == missing) {
        None => Err(Error::Missing { number: missing }),
        Some(file) => Err(file.damaged(0, "nothing is in it, though there was")),
    }
}

/// What segments say when they are read one after the other.
struct Replay<J> {
    jobs: J,
    ledger: Ledger,
    /// The oldest segment that is needed; 0 if there is none.
    oldest: u32,
    end: Option<End>,
    /// The last segment's header, if there is nothing else in it.
    empty: Option<Header>,
}

impl<J: Jobs> Replay<J> {
    fn of(run: &[Found], jobs: J) -> Result<Replay<J>, Error> {
        let mut replay = Replay {
            jobs,
            ledger: Ledger::new(JobId(1)),
            oldest: 0,
            end: None,
            empty: None,
        };
        let headers = run.iter().filter_map(Found::header);
        replay.oldest = headers.map(|header| header.oldest).max().unwrap_or(0);
        if run.is_empty() {
            return Ok(replay);
        }
        let mut chain = Chain::new(run)?;
        let mut begun = 0;
        let end = loop {
            match chain.next()? {
                Step::Record(place, record) => {
                    while run
                        .get(begun)
                        .is_some_and(|file| file.number <= place.number)
                    {
                        replay.begin(&run[begun]);
                        begun += 1;
                    }
                    replay.apply(record);
                }
                Step::End(end) => break end,
            }
        };
        let nothing = begun <= end.index && end.offset == HEADER_LEN && end.torn.is_none();
        replay.empty = run[end.index]
            .header()
            .filter(|header| nothing && header.first == HEADER_LEN);
        let used = end.index + usize::from(replay.empty.is_none());
        run[begun.min(used)..used]
            .iter()
            .for_each(|file| replay.begin(file));
        let headers = run[used..].iter().filter_map(Found::header);
        headers.for_each(|header| replay.ledger.raise_next_id(header.next_id));
        replay.end = Some(end);
        Ok(replay)
    }

    /// The place for the jobs alone, empty: other files say which there are.
    fn into_jobs(mut self) -> J {
        let mut ids = Vec::new();
        self.jobs.for_each(&mut |job| ids.push(job.id));
        for id in ids {
            self.jobs.remove(id);
        }
        self.jobs
    }

    fn begin(&mut self, file: &Found) {
        let next_id = file.header().map_or(JobId(0), |header| header.next_id);
        self.ledger.raise_next_id(next_id);
        self.ledger
            .begin(file.number, u32::try_from(file.len).unwrap_or(u32::MAX));
    }

    fn apply(&mut self, record: Record) {
        match record {
            Record::Full(job) => {
                let (id, len) = (job.id, full_len_of(&job));
                match self.jobs.insert(job) {
                    Some(_) => self.ledger.moved(id, len),
                    None => self.ledger.put(id, len),
                }
            }
            // About an unknown job: it is gone; or it comes again as a full
            // record, moved out of a segment that is gone.
            Record::Update(update) => {
                if let Some(mut job) = self.jobs.remove(update.id) {
                    job.priority = update.priority;
                    job.delay = update.delay;
                    job.state = update.state;
                    job.counters = update.counters;
                    self.jobs.insert(job);
                }
            }
            Record::Delete(id) => {
                if let Some(job) = self.jobs.remove(id) {
                    self.ledger.delete(id, full_len_of(&job));
                }
            }
            Record::Mark(oldest) => self.oldest = self.oldest.max(oldest),
        }
    }
}

fn full_len_of(job: &StoredJob) -> u32 {
    full_len(job.tube.as_str().len(), job.body.wire().len())
}

/// A log that is about to be written on.
pub(super) struct NewLog {
    pub storage: Arc<dyn Storage>,
    pub sync: SyncMode,
    pub segment_size: u32,
    pub notices: Vec<String>,
}

/// What comes before its first new segment.
pub(super) struct Before {
    pub ledger: Ledger,
    /// What the new segment calls the oldest one needed, if it is none of the ledger's.
    pub floor: Option<u32>,
    /// Where the records of the segment before end.
    pub previous_end: u32,
    /// The number of the new one.
    pub number: u32,
}

impl NewLog {
    /// Goes on with a log that was read: `old` files before the segments that
    /// were, and `unused` ones behind.
    fn go_on<J: Jobs>(
        mut self,
        replay: Replay<J>,
        old: Vec<Found>,
        mut run: Vec<Found>,
        mut unused: Vec<Found>,
    ) -> Result<Opened<J>, Error> {
        let Replay {
            jobs,
            ledger,
            end,
            empty,
            ..
        } = replay;
        let mut before = Before {
            ledger,
            floor: None,
            previous_end: 0,
            number: unused.first().map_or(1, |file| file.number),
        };
        if let Some(end) = end {
            // What was read may yet be lost; nothing may build on it before.
            self.sync(&run[run.len() - 1])?;
            import::remove_left_over(&mut self, &old)?;
            // The last one goes first: there is never a gap.
            for unfinished in run.drain(end.index + 1..).rev() {
                self.remove(&unfinished)?;
                self.sync_names()?;
            }
            let newest = &run[end.index];
            before.number = newest.number + 1;
            before.previous_end = end.offset;
            match empty {
                // Nothing was appended since the last start: it is begun again.
                Some(header) => {
                    before.number = header.number;
                    before.previous_end = header.previous_end;
                    unused.splice(..0, run.pop());
                }
                None => self.cut(newest, end, &mut before.ledger)?,
            }
        }
        let log = self.begin(before, unused)?;
        {
            let mut tail = log.tail();
            jobs.for_each(&mut |job| tail.came_to_life(full_len_of(job)));
            tail.retire();
        }
        Ok(self.opened(log, jobs))
    }

    /// Cuts off what is behind the last record. (That makes room; what counts
    /// is where the next header says that the records end.)
    fn cut(&mut self, newest: &Found, end: End, ledger: &mut Ledger) -> Result<(), Error> {
        let (name, offset) = (newest.name(), end.offset);
        if let Some(bytes) = end.torn {
            let told = "dropped a torn tail of changes that were never synced";
            self.notices.push(format!(
                "{name}: {told}: {bytes} bytes from offset {offset} on"
            ));
        }
        let cut = newest.file.set_len(offset.into());
        cut.map_err(Error::on("cut", name))?;
        ledger.resize(offset);
        Ok(())
    }

    /// Begins a new segment. Files behind the log serve as spares, if they can.
    pub fn begin(&mut self, before: Before, unused: Vec<Found>) -> Result<Binlog, Error> {
        let Before {
            mut ledger,
            floor,
            previous_end,
            number,
        } = before;
        let mut spares = self.spares(number, unused)?;
        let current = spares.pop_front().expect("two were asked for");
        ledger.begin(number, self.segment_size);
        let header = Header {
            number,
            oldest: floor.unwrap_or(ledger.oldest()),
            previous_end,
            first: HEADER_LEN,
            next_id: ledger.next_id(),
        };
        let on = |action| Error::on(action, segment_name(number));
        current
            .file
            .write_at(&header.encode(), 0)
            .map_err(on("write"))?;
        current.file.sync().map_err(on("sync"))?;
        let writer = Writer::new(number, current.file, self.segment_size);
        let mut tail = Tail::new(ledger, self.segment_size);
        tail.spares = spares;
        tail.floor = floor;
        Ok(Binlog::new(self.storage.clone(), self.sync, tail, writer))
    }

    /// Two spares at least, of which the first has this number.
    fn spares(&mut self, number: u32, unused: Vec<Found>) -> Result<VecDeque<Spare>, Error> {
        self.remove_unfinished()?;
        let mut spares = VecDeque::new();
        for (file, number) in unused.into_iter().zip(number..) {
            match file.number == number && self.adopt(&file) {
                true => spares.push_back(Spare {
                    number,
                    file: file.file,
                }),
                false => self.remove(&file)?,
            }
        }
        let asked = self.segment_size;
        while spares.len() < 2 {
            let next = number + u32::try_from(spares.len()).expect("few");
            match make_spare(&*self.storage, None, next, self.segment_size) {
                Ok(spare) => spares.push_back(spare),
                Err(Error::Full { .. }) if self.segment_size > BLOCK => {
                    self.segment_size = (self.segment_size / 2).next_multiple_of(BLOCK);
                    for spare in &spares {
                        let cut = spare.file.set_len(self.segment_size.into());
                        cut.map_err(Error::on("cut", segment_name(spare.number)))?;
                    }
                }
                Err(error) => return Err(error),
            }
        }
        if self.segment_size < asked {
            let now = self.segment_size;
            self.notices.push(format!(
                "no room for segments of {asked} bytes; they have {now} for now"
            ));
        }
        Ok(spares)
    }

    /// Makes a spare of a file with nothing in it; false if there is no room to.
    fn adopt(&mut self, found: &Found) -> bool {
        if !found.is_segment() && (found.len == 0 || !found.len.is_multiple_of(u64::from(BLOCK))) {
            self.notices.push(format!(
                "{}: there is nothing in its {} bytes, and it is not as long as a segment; if it held jobs, they are lost",
                found.name(),
                found.len
            ));
        }
        let (file, size) = (&*found.file, u64::from(self.segment_size));
        let whole = file.set_len(found.len.min(size));
        let whole = whole.and_then(|()| file.allocate(size));
        let whole = whole.and_then(|()| write_zeros(file, found.len, size));
        // If not, a new one will tell why.
        whole.and_then(|()| file.sync()).is_ok()
    }

    pub fn remove(&self, file: &Found) -> Result<(), Error> {
        self.storage
            .remove(&file.name())
            .map_err(Error::on("remove", file.name()))
    }

    /// Removes what was being prepared when the server ended.
    fn remove_unfinished(&self) -> Result<(), Error> {
        match self.storage.remove(UNFINISHED) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(Error::on("remove", UNFINISHED)(error))
            }
            _ => Ok(()),
        }
    }

    fn sync(&self, file: &Found) -> Result<(), Error> {
        file.file.sync().map_err(Error::on("sync", file.name()))
    }

    pub fn sync_names(&self) -> Result<(), Error> {
        self.storage.sync().map_err(Error::on("sync", "the names"))
    }

    /// The log with all that it held.
    pub fn opened<J>(self, log: Binlog, jobs: J) -> Opened<J> {
        let next_id = log.tail().ledger.next_id();
        Opened {
            binlog: Arc::new(log),
            jobs,
            next_id,
            notices: self.notices,
        }
    }
}
