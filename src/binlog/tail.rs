//! The growing end of the binlog, in memory: what was appended and not yet
//! written, in which segment it will stand, and what has to be moved out of the
//! oldest one. Pure: no file is touched here. `room` has how much room there is.
//!
//! **Moving.** Bytes in segments that are no latest put of a live job are
//! garbage. As long as there is too much of it, each byte of garbage that is
//! appended earns the moving of some bytes out of the oldest segment: its live
//! jobs are put again at the end. So disk use is bound, and nobody ever waits
//! for more than a little moving.

use super::error::Error;
use super::frame::{HEADER_LEN, Header};
use super::ledger::Ledger;
use super::record::{Record, Update, put_len};
use super::{Jobs, Position};
use crate::engine::Change;
use crate::protocol::JobId;
use std::collections::VecDeque;
use std::sync::Arc;

/// Bytes moved for each byte of garbage.
const MOVE_RATE: u64 = 4;
/// No append moves more bytes than this, or than one record.
const MOVE_BYTES: u64 = 1 << 20;
/// No append looks at more jobs of the oldest segment than this.
const MOVE_LOOKS: u32 = 256;

/// One thing for the writer to do.
pub(super) enum Step {
    /// Write this behind the one before.
    Write(Record),
    /// Go on in the spare, with this header.
    Begin(Header),
}

/// A segment in which nothing lives. It may go when the binlog is synced up to
/// `after`.
pub(super) struct Retired {
    number: u32,
    after: Position,
}

/// The end of the binlog.
pub(super) struct Tail {
    /// What has to be written.
    steps: Vec<Step>,
    /// Jobs with this id or a higher one are put there for the first time, since
    /// ids ascend.
    first_put: JobId,
    /// What is being written, or was written last: the same, and where it ends.
    taken_first_put: JobId,
    taken_end: Position,
    pub end: Position,
    pub ledger: Ledger,
    /// Where a segment ends, unless a longer record is its only one.
    pub(super) segment_size: u64,
    /// Where the next record goes in the current segment.
    pub(super) offset: u64,
    /// How long the current segment's file was made.
    pub(super) len: u64,
    /// How long the spare is, all zeros; 0 if there is none. None while a segment
    /// is to begin in it, and the writer has not come to that yet.
    pub spare: Option<u64>,
    /// How long the reserve is; 0 if there is none.
    pub reserve: u64,
    /// Empty segments, oldest first.
    pub(super) retired: VecDeque<Retired>,
    /// What the puts take that were let in and not appended yet.
    pub(super) admitted: u64,
    /// Bytes that may be moved; negative after moving more than that.
    credit: i64,
    /// How long the next job to be moved is, if there was no room for it.
    pub(super) to_move: u64,
    /// Why the last try to make room failed, if it did.
    pub full: Option<Arc<Error>>,
    /// What a new segment's header calls the oldest, while another server's
    /// files are being taken over.
    pub floor: Option<u32>,
    /// For `stats`.
    pub written: u64,
    pub migrated: u64,
}

impl Tail {
    /// The tail of a binlog that ends here in the current segment's file of this
    /// length.
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

    /// Appends what a change has made of a job, and moves others if it is time to.
    pub fn append(&mut self, change: Change, jobs: &dyn Jobs) {
        match change {
            // A job that is gone by now has its deletion further on.
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

    /// Appends a record, and says how long it is.
    fn record(&mut self, record: Record) -> u64 {
        let len = record.len();
        self.begin_segment_for(len);
        self.offset += len;
        self.end.0 += len;
        self.written += 1;
        self.steps.push(Step::Write(record));
        len
    }

    /// Goes on in the spare if this would be more than a segment is to hold; if
    /// it has room there, and there is another number.
    fn begin_segment_for(&mut self, len: u64) {
        // A record that is longer than a segment may have one to itself.
        let has_place = self.rest() >= len || self.offset == HEADER_LEN && self.len >= len;
        if !has_place && self.spare_room() >= len && !self.is_last() {
            self.begin_segment();
        }
    }

    /// Whether there is no number for another segment.
    pub fn is_last(&self) -> bool {
        self.ledger.current() == u32::MAX
    }

    /// Goes on in the spare, which is there.
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

    /// Takes what has to be written, and leaves `empty` to be filled; says up
    /// to where that is. Whatever was taken before is written by then.
    pub fn take(&mut self, empty: Vec<Step>) -> (Vec<Step>, Position) {
        self.taken_first_put = std::mem::replace(&mut self.first_put, self.ledger.next_id());
        self.taken_end = self.end;
        (std::mem::replace(&mut self.steps, empty), self.end)
    }

    /// What must be kept before anything may be told of a job, if the put of
    /// that job is not known to be kept.
    pub fn kept_from(&self, id: JobId, reached: Position) -> Option<Position> {
        if id >= self.first_put {
            // Not even taken to be written: what is appended now is kept with it.
            return Some(self.end);
        }
        (reached < self.taken_end && id >= self.taken_first_put).then_some(self.taken_end)
    }

    /// Says at the end of the binlog, after a sync, that all before it was synced.
    pub fn mark_end(&mut self) -> Position {
        if self.written > 0 {
            self.record(Record::Mark(self.ledger.oldest()));
        }
        self.end
    }

    // Moving.

    /// So many bytes became garbage: as many times that may be moved.
    fn may_move_for(&mut self, garbage: u64) {
        let mut earned = MOVE_RATE * garbage;
        if self.is_scarce() {
            // All that lives is moved once before half of the leeway is used up.
            let round = garbage.saturating_mul(2 * self.ledger.live());
            earned = earned.saturating_add(round / self.leeway());
        }
        self.credit = self.credit.saturating_add_unsigned(earned);
    }

    /// Moves jobs out of the oldest segment, if there is too much garbage.
    fn compact(&mut self, jobs: &dyn Jobs) {
        // Nothing is saved up for later: moving begins when there is too much.
        if !self.is_crowded() && !self.is_scarce() {
            self.credit = 0;
        }
        let mut bytes = 0;
        for _ in 0..MOVE_LOOKS {
            // Credit that is left over is spent with the next append.
            if self.credit <= 0 || bytes >= MOVE_BYTES {
                return;
            }
            let Some(id) = self.ledger.next_in_oldest() else {
                // Much garbage at once can empty several segments.
                match self.retire() {
                    true => continue,
                    false => return,
                }
            };
            // None: it is deleted, or about to be.
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

    /// Takes the oldest segments out of use, if nothing in them lives, and says
    /// so in the binlog; whether there were any.
    pub fn retire(&mut self) -> bool {
        let empty: Vec<u32> = std::iter::from_fn(|| self.ledger.retire()).collect();
        if empty.is_empty() {
            return false;
        }
        self.record(Record::Mark(self.ledger.oldest()));
        // Their jobs were deleted, or put again, before the mark: so once that is
        // synced, nothing of theirs is needed.
        let after = self.end;
        let retired = empty.into_iter().map(|number| Retired { number, after });
        self.retired.extend(retired);
        true
    }

    /// Up to where the binlog has to be synced before all empty segments may go.
    pub fn retired_after(&self) -> Option<Position> {
        self.retired.back().map(|retired| retired.after)
    }

    /// The oldest empty segment, if it may go.
    pub fn take_retired(&mut self, synced_to: Position) -> Option<u32> {
        let oldest = self.retired.front()?;
        if oldest.after > synced_to {
            return None;
        }
        self.retired.pop_front().map(|retired| retired.number)
    }
}
