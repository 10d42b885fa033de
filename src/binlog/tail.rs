//! The growing end of the binlog, in memory: what was appended and not yet
//! written, in which segment it will be, and what has to be moved out of the
//! oldest segment. Pure: no file is touched here. `room` calculates how much
//! room there is.
//!
//! **Moving.** All bytes in segments are garbage, except the latest puts of
//! live jobs. While there is too much garbage, each appended byte of garbage
//! allows some bytes to be moved out of the oldest segment: its live jobs are
//! put again at the end. So disk use has a bound, and each append waits only
//! for a little moving.

use super::error::Error;
use super::frame::{HEADER_LEN, Header};
use super::ledger::Ledger;
use super::record::{Record, Update, put_len};
use super::{Jobs, Position};
use crate::engine::Change;
use crate::protocol::JobId;
use std::collections::VecDeque;
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
    /// Continue in the spare, with this header.
    Begin(Header),
}

/// A segment that no live job needs. It may be removed when the binlog is
/// synced up to `after`.
pub(super) struct Retired {
    number: u32,
    after: Position,
}

/// The end of the binlog.
pub(super) struct Tail {
    /// What has to be written.
    steps: Vec<Step>,
    /// The first puts of jobs with this id or a higher one are in `steps`,
    /// since ids ascend.
    first_put: JobId,
    /// For the steps that are being written, or were written last: their
    /// `first_put`, and the position where they end.
    taken_first_put: JobId,
    taken_end: Position,
    pub end: Position,
    pub ledger: Ledger,
    /// The length of a segment; only a segment for a single longer record is
    /// longer.
    pub(super) segment_size: u64,
    /// The offset of the next record in the current segment.
    pub(super) offset: u64,
    /// The length that the current segment's file was prepared with.
    pub(super) len: u64,
    /// The length of the spare; 0 if there is none. `None` from the moment when
    /// a segment is to begin in it, until the writer has begun that segment.
    pub spare: Option<u64>,
    /// The length of the reserve; 0 if there is none.
    pub reserve: u64,
    /// Empty segments, oldest first.
    pub(super) retired: VecDeque<Retired>,
    /// The length of all puts that were admitted and not appended yet.
    pub(super) admitted: u64,
    /// How many bytes may be moved. Negative after more were moved.
    credit: i64,
    /// How much room is needed to move the next job, if there was not enough;
    /// else 0.
    pub(super) to_move: u64,
    /// Why the last attempt to make room failed, if it did.
    pub full: Option<Arc<Error>>,
    /// While beanstalkd's files are being taken over: the number that the
    /// headers of new segments name as the oldest one needed.
    pub floor: Option<u32>,
    /// For `stats`.
    pub written: u64,
    pub migrated: u64,
}

impl Tail {
    /// The tail of a binlog that ends at this offset in the current segment's
    /// file, of this length.
    pub fn new(ledger: Ledger, segment_size: u64, offset: u64, len: u64) -> Tail {
        Tail {
            steps: Vec::new(),
            first_put: ledger.next_id(),
            taken_first_put: ledger.next_id(),
            taken_end: Position::default(),
            end: Position::default(),
            ledger,
            segment_size,
            offset,
            len,
            spare: Some(0),
            reserve: 0,
            retired: VecDeque::new(),
            admitted: 0,
            credit: 0,
            to_move: 0,
            full: None,
            floor: None,
            written: 0,
            migrated: 0,
        }
    }

    /// Appends a record of a change, and moves jobs if it is time to.
    pub fn append(&mut self, change: Change, jobs: &dyn Jobs) {
        match change {
            // If the job does not exist any more, its deletion follows.
            Change::Put(id) => {
                if let Some(job) = jobs.stored(id) {
                    let record = Record::Put(job);
                    let len = record.len();
                    self.record(record);
                    self.ledger.put(id, len);
                }
            }
            Change::Update(id) => {
                if let Some(job) = jobs.stored(id) {
                    let garbage = self.record(Record::Update(Update::of(&job)));
                    self.may_move_for(garbage);
                }
            }
            Change::Delete {
                id,
                tube_len,
                body_len,
            } => {
                let len = put_len(tube_len, body_len);
                let garbage = self.record(Record::Delete(id));
                self.ledger.delete(id, len);
                self.may_move_for(garbage + len);
            }
        }
        self.compact(jobs);
        self.retire();
    }

    /// Appends a record, and returns its length.
    fn record(&mut self, record: Record) -> u64 {
        let len = record.len();
        self.begin_segment_for(len);
        self.offset += len;
        self.end.0 += len;
        self.written += 1;
        self.steps.push(Step::Write(record));
        len
    }

    /// Begins a segment in the spare if a record of this length would exceed
    /// the current one. It does not if the spare is too short for the record,
    /// or if no number is left.
    fn begin_segment_for(&mut self, len: u64) {
        // A record that is longer than a segment may have a segment to itself.
        let has_place = self.rest() >= len || self.offset == HEADER_LEN && self.len >= len;
        if !has_place && self.spare_room() >= len && !self.is_last() {
            self.begin_segment();
        }
    }

    /// Whether no number is left for another segment.
    pub fn is_last(&self) -> bool {
        self.ledger.current() == u32::MAX
    }

    /// Begins a segment in the spare, which must exist.
    pub fn begin_segment(&mut self) {
        let len = self.spare.take().expect("the spare is there");
        let number = self.ledger.current() + 1;
        self.ledger.begin(number, self.offset);
        self.steps.push(Step::Begin(Header {
            number,
            oldest: self.floor.unwrap_or(self.ledger.oldest()),
            previous_end: self.offset,
            next_id: self.ledger.next_id(),
        }));
        self.end.0 += HEADER_LEN;
        self.offset = HEADER_LEN;
        self.len = len;
    }

    /// Takes the steps that have to be written, in exchange for the vector
    /// `empty`, and returns up to where they reach. The steps that were taken
    /// before must be written by now.
    pub fn take(&mut self, empty: Vec<Step>) -> (Vec<Step>, Position) {
        self.taken_first_put = std::mem::replace(&mut self.first_put, self.ledger.next_id());
        self.taken_end = self.end;
        (std::mem::replace(&mut self.steps, empty), self.end)
    }

    /// What must be kept before any client is told of a job; `None` if the put
    /// of that job is known to be kept.
    pub fn kept_from(&self, id: JobId, reached: Position) -> Option<Position> {
        if id >= self.first_put {
            // The put is still in `steps`, and is kept together with all that
            // is appended by now.
            return Some(self.end);
        }
        (reached < self.taken_end && id >= self.taken_first_put).then_some(self.taken_end)
    }

    /// After a sync, appends a mark, whose frame says that everything before it
    /// was synced.
    pub fn mark_end(&mut self) -> Position {
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
        if self.is_scarce() {
            // Enough to move all that lives once before half of the leeway is
            // used up.
            let round = garbage.saturating_mul(2 * self.ledger.live());
            earned = earned.saturating_add(round / self.leeway());
        }
        self.credit = self.credit.saturating_add_unsigned(earned);
    }

    /// Moves jobs out of the oldest segment, if there is too much garbage.
    fn compact(&mut self, jobs: &dyn Jobs) {
        // Nothing is saved for later: credit counts only while there is too
        // much garbage.
        if !self.is_crowded() && !self.is_scarce() {
            self.credit = 0;
        }
        let mut bytes = 0;
        for _ in 0..MOVE_LOOKS {
            // The next append may use the credit that is left.
            if self.credit <= 0 || bytes >= MOVE_BYTES {
                return;
            }
            let Some(id) = self.ledger.next_in_oldest() else {
                // Much garbage at once can make several segments empty.
                match self.retire() {
                    true => continue,
                    false => return,
                }
            };
            // `None`: the job is deleted, or its deletion follows.
            let Some(job) = jobs.stored(id) else {
                continue;
            };
            let record = Record::Put(job);
            let len = record.len();
            if !self.finds_room_to_move(len) {
                return self.ledger.take_back(id);
            }
            self.record(record);
            self.ledger.moved(id, len);
            self.migrated += 1;
            self.credit = self.credit.saturating_sub_unsigned(len);
            bytes += len;
        }
    }

    /// Takes the oldest segments out of use, if no live job needs them, and
    /// appends a mark that says so. Returns whether there were any.
    pub fn retire(&mut self) -> bool {
        let empty: Vec<u32> = std::iter::from_fn(|| self.ledger.retire()).collect();
        if empty.is_empty() {
            return false;
        }
        self.record(Record::Mark(self.ledger.oldest()));
        // Their jobs were deleted or put again before the mark. So when the
        // mark is synced, nothing in these segments is needed.
        let after = self.end;
        let retired = empty.into_iter().map(|number| Retired { number, after });
        self.retired.extend(retired);
        true
    }

    /// Up to where the binlog has to be synced before all empty segments may be
    /// removed.
    pub fn retired_after(&self) -> Option<Position> {
        self.retired.back().map(|retired| retired.after)
    }

    /// Takes the oldest empty segment, if it may be removed.
    pub fn take_retired(&mut self, synced_to: Position) -> Option<u32> {
        let oldest = self.retired.front()?;
        if oldest.after > synced_to {
            return None;
        }
        self.retired.pop_front().map(|retired| retired.number)
    }
}
