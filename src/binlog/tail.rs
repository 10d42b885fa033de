//! The growing end of the binlog, in memory: what was appended and not yet
//! written, in which segment it will be, and what has to be moved out of the
//! oldest segment. Pure: no file is touched here. `room` says how much room
//! there is.
//!
//! **Moving.** All bytes in segments are garbage, except the latest puts of
//! live jobs. While there is too much garbage, each appended byte of garbage
//! allows some bytes to be moved out of the oldest segment: its live jobs are
//! put again at the end. So disk use has a bound, and each append waits only
//! for a little moving.

use super::error::Error;
use super::format::{HEADER_LEN, Header, Record, Update, put_len};
use super::ledger::Ledger;
use super::storage::File;
use super::{Jobs, Lsn};
use crate::engine::{Change, StoredJob};
use crate::protocol::JobId;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

/// How many bytes may be moved for each byte of garbage.
const MOVE_RATE: u64 = 4;
/// No append moves more bytes than this and one record.
const MOVE_BYTES: u64 = 1 << 20;
/// No append looks at more jobs of the oldest segment than this.
const MOVE_LOOKS: u32 = 256;

/// One step for the writer.
pub(super) enum Step {
    /// Write this record after the previous one.
    Write(Record),
    /// Continue in this one of the spares, with this header. Its file is open,
    /// unless it could not be opened.
    Begin(Header, usize, Option<Arc<dyn File>>),
}

/// A segment that no live job needs. It may be removed when the binlog is
/// synced up to `after`.
pub(super) struct Retired {
    number: u32,
    after: Lsn,
}

/// A place for a spare.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Spare {
    /// There is no file, or a thread works on it.
    Missing,
    /// A segment may begin in this file, which has this length.
    Ready(u64),
    /// A segment was appended that begins in this file. The writer will give the
    /// file its name.
    Taken,
}

impl Spare {
    /// The length of its file.
    pub fn len(self) -> u64 {
        match self {
            Spare::Ready(len) => len,
            Spare::Missing | Spare::Taken => 0,
        }
    }

    /// Whether a segment of this length could begin in it.
    pub fn has(self, len: u64) -> bool {
        matches!(self, Spare::Ready(ready) if ready >= len)
    }
}

/// The end of the binlog.
pub(super) struct Tail {
    /// What has to be written.
    steps: Vec<Step>,
    /// The first puts that are not kept yet are in two batches: the one that is
    /// gathered in `steps`, and the one that is being written. This is the lowest
    /// id in the first one, or [`NO_PUT`](Self::NO_PUT). Mostly these are the
    /// newest jobs; but a producer that sends the body long after the line of its
    /// put brings an older id.
    first_put: JobId,
    /// The same for the steps that are being written, or were written last, and
    /// the LSN where they end.
    taken_first_put: JobId,
    taken_end: Lsn,
    pub end: Lsn,
    pub ledger: Ledger,
    /// The length of a segment. While there are longer jobs, segments are
    /// longer.
    pub(super) segment_size: u64,
    /// The offset of the next record in the current segment.
    pub(super) offset: u64,
    /// The length that the current segment's file was prepared with.
    pub(super) len: u64,
    /// The files in which the next segments can begin.
    pub(super) spares: Vec<Spare>,
    /// The open files of those that are ready: a segment begins also when no
    /// other file can be opened.
    pub(super) open: BTreeMap<usize, Arc<dyn File>>,
    /// The lengths of the puts that wait for room, and how many there are of
    /// each.
    pub(super) waiting: BTreeMap<u64, usize>,
    /// How many bytes the binlog's files could have together on this disk, as
    /// it was found last; `None` if that is not known.
    pub(super) capacity: Option<u64>,
    /// Retired segments, oldest first.
    pub(super) retired: VecDeque<Retired>,
    /// How many bytes may be moved. Negative after more were moved.
    credit: i64,
    /// Why the last attempt to make room failed, if it did.
    pub no_room: Option<Arc<Error>>,
    /// The put that was refused last, and why, until there is room for one of its
    /// length.
    pub refused: Option<(u64, Arc<Error>)>,
    /// Why files that are not needed could not be removed, to be told.
    pub not_removed: Vec<Error>,
    /// While beanstalkd's files are being taken over: the number that the
    /// headers of new segments name as the oldest one needed.
    pub floor: Option<u32>,
    /// For `stats`.
    pub written: u64,
    pub migrated: u64,
}

impl Tail {
    /// Higher than the id of any job.
    const NO_PUT: JobId = JobId(u64::MAX);

    /// The tail of a binlog that ends at this offset in the current segment's
    /// file, of this length.
    pub fn new(ledger: Ledger, segment_size: u64, offset: u64, len: u64) -> Tail {
        Tail {
            steps: Vec::new(),
            first_put: Self::NO_PUT,
            taken_first_put: Self::NO_PUT,
            taken_end: Lsn::START,
            end: Lsn::START,
            ledger,
            segment_size,
            offset,
            len,
            spares: Vec::new(),
            open: BTreeMap::new(),
            waiting: BTreeMap::new(),
            capacity: None,
            retired: VecDeque::new(),
            credit: 0,
            no_room: None,
            refused: None,
            not_removed: Vec::new(),
            floor: None,
            written: 0,
            migrated: 0,
        }
    }

    /// Appends a record of a change, and moves jobs if it is time to. The
    /// changes `next` have been made as well, and are appended after this one.
    pub fn append(&mut self, change: Change, next: &[Change], jobs: &dyn Jobs) {
        match change {
            Change::Put(id) => {
                let job = jobs.stored(id);
                let job = job.expect("a put is appended before its job can be deleted");
                let record = Record::Put(job);
                let len = record.grown_len();
                self.record(record);
                self.first_put = self.first_put.min(id);
                self.ledger.put(id, len);
            }
            // Without a job there is nothing to say: the same command has
            // deleted the job, and its deletion is the next change.
            Change::Update(id) => {
                if let Some(job) = jobs.stored(id).filter(|job| !job.is_deleted()) {
                    let garbage = self.record(Record::Update(Update::of(&job)));
                    self.may_move_for(garbage);
                }
            }
            Change::Delete {
                id,
                tube_len,
                body_len,
                keys_len,
            } => {
                let len = put_len(id, tube_len, keys_len, body_len);
                // While its key is taken, what is left of it is live.
                let rest = jobs.stored(id).filter(StoredJob::is_deleted);
                let record = rest.map_or(Record::Delete(id), Record::Put);
                let is_rest = matches!(record, Record::Put(_));
                let rest_len = record.grown_len();
                let record_len = self.record(record);
                self.ledger.delete(id, len);
                if is_rest {
                    self.ledger.put(id, rest_len);
                }
                self.may_move_for(len + if is_rest { 0 } else { record_len });
            }
        }
        self.compact(next, jobs);
        self.retire();
    }

    /// Appends a record, and returns its length.
    fn record(&mut self, record: Record) -> u64 {
        let len = record.len();
        self.begin_segment_for(&record);
        self.offset += len;
        self.end.0 += len;
        self.written += 1;
        self.steps.push(Step::Write(record));
        len
    }

    /// Begins a segment in a spare if a record does not fit into the current
    /// one. If there is no spare for it, or no number, the current segment
    /// grows.
    fn begin_segment_for(&mut self, record: &Record) {
        let len = record.grown_len();
        let rest = match record {
            Record::Put(_) => self.rest_for_puts(),
            Record::Update(_) | Record::Delete(_) | Record::Mark(_) => self.rest(),
        };
        if rest < len
            && !self.is_last()
            && let Some((slot, spare_len)) = self.spare_for(len)
        {
            self.begin_segment(slot, spare_len);
        }
    }

    /// Whether no number is left for another segment.
    pub fn is_last(&self) -> bool {
        self.ledger.current() == u32::MAX
    }

    /// Begins a segment in a spare, which is ready and has this length.
    pub fn begin_segment(&mut self, slot: usize, len: u64) {
        let file = self.take_spare(slot, Spare::Taken);
        let number = self.ledger.current() + 1;
        self.ledger.begin(number, self.offset, self.len);
        let header = Header {
            number,
            oldest: self.floor.unwrap_or(self.ledger.oldest()),
            previous_end: self.offset,
            next_id: self.ledger.next_id(),
            salt: 0, // the writer gives it one
        };
        self.steps.push(Step::Begin(header, slot, file));
        self.end.0 += HEADER_LEN;
        self.offset = HEADER_LEN;
        self.len = len;
    }

    /// From now on this spare is not ready, but this. Returns its open file.
    pub fn take_spare(&mut self, slot: usize, spare: Spare) -> Option<Arc<dyn File>> {
        self.spares[slot] = spare;
        self.open.remove(&slot)
    }

    /// Takes the steps that have to be written, in exchange for the vector
    /// `empty`, and returns up to where they reach. The steps that were taken
    /// before must be written by now.
    pub fn take(&mut self, empty: Vec<Step>) -> (Vec<Step>, Lsn) {
        self.taken_first_put = std::mem::replace(&mut self.first_put, Self::NO_PUT);
        self.taken_end = self.end;
        (std::mem::replace(&mut self.steps, empty), self.end)
    }

    /// Up to where the binlog must be kept so that the put of a job is; `None` if
    /// it is known to be kept. A job that is older than a put in the same batch
    /// may have to wait for that batch without need.
    pub fn put_kept_at(&self, id: JobId, reached: Lsn) -> Option<Lsn> {
        if id >= self.first_put {
            // The put is still in `steps`, and is kept together with all that
            // is appended by now.
            return Some(self.end);
        }
        (reached < self.taken_end && id >= self.taken_first_put).then_some(self.taken_end)
    }

    /// After a sync, appends a mark, whose frame says that everything before it
    /// was synced.
    pub fn mark_end(&mut self) -> Lsn {
        if self.written > 0 {
            self.record(Record::Mark(self.ledger.oldest()));
        }
        self.end
    }

    // Moving.

    /// Notes that so many bytes became garbage. [`MOVE_RATE`] times as many may
    /// be moved.
    fn may_move_for(&mut self, garbage: u64) {
        let mut earned = MOVE_RATE * garbage;
        if self.refuses_puts() {
            // Enough to move all that lives once before an eighth of a segment
            // is used up.
            let round = garbage.saturating_mul(8 * self.ledger.live());
            earned = earned.saturating_add(round / self.full_len(0));
        }
        self.credit = self.credit.saturating_add_unsigned(earned);
    }

    /// Moves jobs out of the oldest segment, if there is too much garbage. Each is
    /// written as it is after all changes of the same request, also after those
    /// that follow: no reply rests on some of these alone.
    fn compact(&mut self, next: &[Change], jobs: &dyn Jobs) {
        // Nothing is saved for later: credit counts only while there is too
        // much garbage.
        if !self.has_much_garbage() && !self.refuses_puts() {
            self.credit = 0;
        }
        self.move_jobs(next, jobs, false);
    }

    /// Moves jobs for a put that waits for room, as many as one append may move,
    /// and only until a segment is obsolete: then its file may suffice. Returns
    /// whether that has changed anything.
    pub fn compact_for_put(&mut self, jobs: &dyn Jobs) -> bool {
        let before = (self.migrated, self.ledger.oldest());
        let credit = std::mem::replace(&mut self.credit, MOVE_BYTES as i64);
        self.move_jobs(&[], jobs, true);
        self.credit = credit;
        self.retire();
        before != (self.migrated, self.ledger.oldest())
    }

    fn move_jobs(&mut self, next: &[Change], jobs: &dyn Jobs, is_for_put: bool) {
        let mut bytes = 0;
        for _ in 0..MOVE_LOOKS {
            // The next append may use the credit that is left.
            if self.credit <= 0 || bytes >= MOVE_BYTES {
                return;
            }
            let Some(id) = self.ledger.next_in_oldest() else {
                // Much garbage at once can retire several segments.
                match self.retire() && !is_for_put {
                    true => continue,
                    false => return,
                }
            };
            // `None`: the job is deleted, or its deletion follows.
            let Some(job) = jobs.stored(id) else {
                continue;
            };
            let goes =
                |change: &Change| matches!(*change, Change::Delete { id: one, .. } if one == id);
            if job.is_deleted() && next.iter().any(goes) {
                // What is left of it is put by that change.
                continue;
            }
            let record = Record::Put(job);
            let len = record.grown_len();
            if !self.may_move(len) {
                return self.ledger.take_back(id);
            }
            self.record(record);
            self.ledger.moved(id, len);
            self.migrated += 1;
            self.credit = self.credit.saturating_sub_unsigned(len);
            bytes += len;
        }
    }

    /// Retires the oldest segments, if no live job needs them, and appends a mark
    /// that says so. Returns whether there were any.
    pub fn retire(&mut self) -> bool {
        let numbers: Vec<u32> = std::iter::from_fn(|| self.ledger.retire()).collect();
        if numbers.is_empty() {
            return false;
        }
        self.record(Record::Mark(self.ledger.oldest()));
        // Their jobs were deleted or put again before the mark. So when the
        // mark is synced, nothing in these segments is needed.
        let after = self.end;
        let retired = numbers.into_iter().map(|number| Retired { number, after });
        self.retired.extend(retired);
        true
    }

    /// Up to where the binlog has to be synced before all retired segments may be
    /// removed.
    pub fn retired_after(&self) -> Option<Lsn> {
        self.retired.back().map(|retired| retired.after)
    }

    /// Takes the oldest retired segment, if it may be removed.
    pub fn take_retired(&mut self, synced_to: Lsn) -> Option<u32> {
        let oldest = self.retired.front()?;
        if oldest.after > synced_to {
            return None;
        }
        self.retired.pop_front().map(|retired| retired.number)
    }

    /// This retired segment, which was taken, will be taken once more.
    pub fn take_back_retired(&mut self, number: u32) {
        let after = Lsn::START;
        self.retired.push_front(Retired { number, after });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::{Counters, StoredOptions, StoredState, Time};
    use crate::protocol::{Body, Priority, PutOptions, Seconds, TubeName};
    use std::collections::BTreeMap;
    use std::io::ErrorKind;

    const UPDATE: Change = Change::Update(JobId(1));
    /// How long the record of an update is.
    const UPDATE_LEN: u64 = 29;
    /// How long the put of a job without a body is at its longest.
    const PUT_LEN: u64 = 80;
    /// So long is the file of the current segment: no other one is needed.
    const LONG: u64 = 100 << 20;

    fn jobs(count: u64, body_len: usize) -> BTreeMap<JobId, StoredJob> {
        let job = |id| StoredJob {
            id: JobId(id),
            tube: TubeName::parse(b"t").unwrap(),
            body: Body::new(&vec![b'x'; body_len]),
            priority: Priority(0),
            delay: Seconds(0),
            ttr: Seconds(60),
            created_at: Time::default(),
            state: StoredState::Ready,
            counters: Counters::default(),
            options: None,
        };
        (1..=count).map(|id| (JobId(id), job(id))).collect()
    }

    fn new(number: u32, len: u64) -> Tail {
        let mut ledger = Ledger::new(JobId(1));
        ledger.begin(number, 0, 0);
        Tail::new(ledger, 4096, HEADER_LEN, len)
    }

    /// Puts the jobs into a segment with much garbage, and begins another one.
    fn with_garbage(jobs: &BTreeMap<JobId, StoredJob>) -> Tail {
        let mut tail = new(1, LONG);
        for id in jobs.keys() {
            tail.append(Change::Put(*id), &[], jobs);
        }
        tail.ledger.begin(2, LONG, LONG);
        tail.offset = HEADER_LEN;
        tail
    }

    fn delete(tail: &mut Tail, jobs: &mut BTreeMap<JobId, StoredJob>, id: u64) {
        let job = jobs.remove(&JobId(id)).unwrap();
        let change = Change::Delete {
            id: job.id,
            tube_len: 1,
            body_len: job.body.wire().len(),
            keys_len: None,
        };
        tail.append(change, &[], jobs);
    }

    #[test]
    fn a_segment_ends_before_the_first_record_that_does_not_fit() {
        let jobs = jobs(1, 0);
        let mut tail = new(1, 4096);
        tail.append(Change::Put(JobId(1)), &[], &jobs);
        tail.spares = vec![Spare::Ready(4096)];
        tail.offset = 4096 - UPDATE_LEN;
        tail.append(UPDATE, &[], &jobs);
        assert_eq!((tail.ledger.current(), tail.offset), (1, 4096));
        tail.append(UPDATE, &[], &jobs);
        assert_eq!(tail.ledger.current(), 2);
    }

    #[test]
    fn the_last_number_is_for_a_segment_that_grows() {
        let jobs = jobs(1, 0);
        let mut tail = new(u32::MAX, 4096);
        tail.spares = vec![Spare::Ready(4096)];
        tail.append(Change::Put(JobId(1)), &[], &jobs);
        tail.offset = 4096;
        tail.append(UPDATE, &[], &jobs);
        assert_eq!(tail.ledger.current(), u32::MAX);
        assert_eq!(tail.offset, 4096 + UPDATE_LEN);
    }

    /// The line of a put gives it its id, and its body may come late.
    #[test]
    fn who_is_told_of_a_job_waits_for_its_put_in_whatever_order_the_ids_come() {
        let jobs = jobs(4, 0);
        let mut tail = new(1, 4096);
        for id in [3, 2, 4] {
            tail.append(Change::Put(JobId(id)), &[], &jobs);
        }
        let (before, end) = (Lsn(0), tail.end);
        let waits_of =
            |tail: &Tail, reached| [1, 2, 3, 4].map(|id| tail.put_kept_at(JobId(id), reached));
        let of_these = [None, Some(end), Some(end), Some(end)];
        assert_eq!(waits_of(&tail, before), of_these);
        tail.take(Vec::new());
        assert_eq!(waits_of(&tail, before), of_these);
        assert_eq!(waits_of(&tail, end), [None; 4]);
        tail.append(Change::Put(JobId(1)), &[], &jobs);
        assert_eq!(waits_of(&tail, end), [Some(tail.end); 4]);
    }

    #[test]
    fn a_log_in_which_nothing_was_written_ends_without_a_mark() {
        let mut tail = new(1, 4096);
        tail.mark_end();
        assert_eq!(tail.written, 0);
        tail.append(Change::Put(JobId(1)), &[], &jobs(1, 0));
        tail.mark_end();
        assert_eq!(tail.written, 2);
    }

    #[test]
    fn four_times_as_much_is_moved_as_becomes_garbage() {
        let mut jobs = jobs(30, 0);
        let mut tail = with_garbage(&jobs);
        let moved_for = |bytes: u64| bytes.div_ceil(PUT_LEN);
        for updates in 1..=3 {
            tail.append(UPDATE, &[], &jobs);
            assert_eq!(tail.migrated, moved_for(4 * updates * UPDATE_LEN));
        }
        let record_len = Record::Delete(JobId(30)).len();
        delete(&mut tail, &mut jobs, 30);
        let garbage = 3 * UPDATE_LEN + PUT_LEN + record_len;
        assert_eq!(tail.migrated, moved_for(4 * garbage));
    }

    #[test]
    fn what_is_left_of_a_deleted_job_is_moved_too() {
        let mut jobs = jobs(2, 0);
        let words =
            PutOptions::parse(b" idp:a:60").map(|words| Box::new(StoredOptions::new(words)));
        let rest = jobs.get_mut(&JobId(2)).unwrap();
        rest.options = words;
        rest.state = StoredState::Deleted {
            until: Time::default(),
        };
        let mut tail = with_garbage(&jobs);
        tail.append(UPDATE, &[], &jobs);
        assert_eq!((tail.migrated, tail.ledger.oldest()), (2, 2));
    }

    #[test]
    fn more_is_moved_while_puts_are_refused() {
        let jobs = jobs(20, 0);
        let mut tail = with_garbage(&jobs);
        let full = ErrorKind::StorageFull.into();
        tail.no_room = Some(Arc::new(Error::on("create", "binlog.spare")(full)));
        tail.append(UPDATE, &[], &jobs);
        let round = UPDATE_LEN * 8 * (20 * PUT_LEN) / 4096;
        assert_eq!(tail.migrated, (4 * UPDATE_LEN + round).div_ceil(PUT_LEN));
    }

    #[test]
    fn no_append_moves_much_more_than_a_mebibyte() {
        let mut jobs = jobs(10, 300 << 10);
        let mut tail = with_garbage(&jobs);
        delete(&mut tail, &mut jobs, 10);
        assert_eq!(tail.migrated, 4);
    }

    #[test]
    fn a_retired_segment_goes_when_the_mark_that_says_so_is_synced() {
        let mut jobs = jobs(1, 0);
        let mut tail = with_garbage(&jobs);
        assert_eq!(tail.retired_after(), None);
        let before = tail.end;
        delete(&mut tail, &mut jobs, 1);
        assert_eq!(tail.retired_after(), Some(tail.end));
        assert_eq!(tail.take_retired(before), None);
        assert_eq!(tail.take_retired(tail.end), Some(1));
        tail.take_back_retired(1);
        assert_eq!(tail.take_retired(before), Some(1));
    }
}
