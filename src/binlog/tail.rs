//! The growing end of the log, in memory: what was appended and not yet
//! written, in which segment it will stand, what has to be moved out of the
//! oldest one, and how much room there is. Pure: no file is touched here.
//!
//! **Room.** Two files are prepared ahead. In the *spare* the next segment
//! begins. The *reserve* is not touched as long as there is room on the disk: it
//! can hold what lives in any one segment, so that the oldest one can be emptied
//! and its room serves again, and a *leeway* for updates and deletions
//! meanwhile. A put is let in if there is room for it in the current segment or
//! in the spare, and the reserve is whole; or if the current segment has room
//! for all of that, which saves a small log both files. On a full disk puts are
//! refused, the reserve becomes the spare, and all else goes on: garbage is
//! turned into room faster than it comes, and the first room is the next
//! reserve.
//!
//! All puts that were let in have room in one file, one behind the other, so
//! nobody has to reckon how they divide among files. And if what is appended
//! outruns all that, nothing breaks: a segment may grow beyond its room, and
//! only a full disk keeps it from that.
//!
//! **Moving.** Bytes in segments that are no latest put of a live job are
//! garbage. As long as there is too much of it, each byte of garbage that is
//! appended earns the moving of some bytes out of the oldest segment: its live
//! jobs are put again at the end. So disk use is bound, and nobody ever waits
//! for more than a little moving.

use super::error::Error;
use super::ledger::Ledger;
use super::record::{HEADER_LEN, Header, Record, Update, put_len};
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
/// A new file's length is a multiple of this.
pub(super) const BLOCK: u64 = 4096;

/// No log is that long.
const NEVER: Position = Position(u64::MAX);

/// What has to be written.
#[derive(Default)]
pub(super) struct Batch {
    pub steps: Vec<Step>,
    /// The jobs that are put for the first time here, by id.
    puts: Vec<JobId>,
}

/// One thing for the writer to do.
pub(super) enum Step {
    /// Write this behind the one before.
    Write(Record),
    /// Go on in the spare, with this header.
    Begin(Header),
}

/// The file that is prepared to become the next segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Spare {
    None,
    /// It is there, this long, and nothing but zeros.
    Ready(u64),
    /// A segment is to begin in it. The writer has not come to that yet.
    Taken,
}

/// Lengths for the two files that are prepared ahead; 0 for one that may stay
/// as it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Wanted {
    pub spare: u64,
    pub reserve: u64,
}

/// A segment in which nothing lives. It may go when the log is synced up to `after`.
struct Retired {
    number: u32,
    after: Position,
}

/// The end of the log.
pub(super) struct Tail {
    batch: Batch,
    /// What is being written, or was written last, and where that ends.
    taken: Batch,
    taken_end: Position,
    pub end: Position,
    pub ledger: Ledger,
    /// Where the next record goes in the current segment.
    offset: u64,
    /// How long the current segment's file was made.
    len: u64,
    pub spare: Spare,
    /// How long the reserve is; 0 if there is none.
    pub reserve: u64,
    /// Empty segments, oldest first.
    retired: VecDeque<Retired>,
    /// What the puts take that were let in and not appended yet.
    promised: u64,
    /// Bytes that may be moved; negative after moving more than that.
    credit: i64,
    /// How long the next job to be moved is, if there was no room for it.
    to_move: u64,
    /// Why the last try to make room failed, if it did.
    pub full: Option<Arc<Error>>,
    /// Writing has found no room where room had been made: on this file system
    /// what is written goes elsewhere. Only a file that can be removed is room.
    pub is_copying: bool,
    /// What a new segment's header calls the oldest, while another server's
    /// files are being taken over.
    pub floor: Option<u32>,
    /// For `stats`.
    pub written: u64,
    pub migrated: u64,
}

impl Tail {
    /// The tail of a log that ends here in the current segment's file of this
    /// length.
    pub fn new(ledger: Ledger, offset: u64, len: u64) -> Tail {
        Tail {
            batch: Batch::default(),
            taken: Batch::default(),
            taken_end: Position::default(),
            end: Position::default(),
            ledger,
            offset,
            len,
            spare: Spare::None,
            reserve: 0,
            retired: VecDeque::new(),
            promised: 0,
            credit: 0,
            to_move: 0,
            full: None,
            is_copying: false,
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
                    self.batch.note_put(id);
                }
            }
            Change::Update(id) => {
                if let Some(job) = jobs.stored(id) {
                    let garbage = self.record(Record::Update(Update::of(&job)));
                    self.earn(garbage);
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
                self.earn(garbage + len);
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
        self.batch.steps.push(Step::Write(record));
        len
    }

    /// Goes on in the spare if this would be more than a segment is to hold; if
    /// it has room there, and there is another number.
    fn begin_segment_for(&mut self, len: u64) {
        let has_place = self.rest() >= len || self.offset == HEADER_LEN && self.len >= len;
        if !has_place && self.spare_room() >= len && self.ledger.current() < u32::MAX {
            self.begin_segment();
        }
    }

    /// Goes on in the spare, which is there.
    pub fn begin_segment(&mut self) {
        let Spare::Ready(len) = self.spare else {
            unreachable!("the spare is there");
        };
        let number = self.ledger.current() + 1;
        self.ledger.begin(number, self.offset);
        self.batch.steps.push(Step::Begin(Header {
            number,
            oldest: self.floor.unwrap_or(self.ledger.oldest()),
            previous_end: self.offset,
            next_id: self.ledger.next_id(),
        }));
        self.end.0 += HEADER_LEN;
        self.offset = HEADER_LEN;
        self.len = len;
        self.spare = Spare::Taken;
    }

    /// Takes what has to be written, and leaves `empty` to be filled; says up
    /// to where that is. Whatever was taken before is written by then.
    pub fn take(&mut self, empty: Vec<Step>) -> (Vec<Step>, Position) {
        std::mem::swap(&mut self.batch, &mut self.taken);
        self.batch.puts.clear();
        self.batch.steps = empty;
        self.taken_end = self.end;
        (std::mem::take(&mut self.taken.steps), self.end)
    }

    /// What must be kept before anything may be told of a job, if the put of
    /// that job is not known to be kept.
    pub fn kept_from(&self, id: JobId, reached: Position) -> Option<Position> {
        if self.batch.has_put(id) {
            return Some(self.end);
        }
        (reached < self.taken_end && self.taken.has_put(id)).then_some(self.taken_end)
    }

    /// Says at the end of the log, after a sync, that all before it was synced.
    pub fn mark_end(&mut self) -> Position {
        if self.written > 0 {
            self.record(Record::Mark(self.ledger.oldest()));
        }
        self.end
    }

    // Moving.

    /// So many bytes became garbage.
    fn earn(&mut self, garbage: u64) {
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
        if !self.is_crowded() && !self.is_scarce() {
            self.credit = 0;
        }
        let mut bytes = 0;
        for _ in 0..MOVE_LOOKS {
            if self.credit <= 0 || bytes >= MOVE_BYTES {
                return;
            }
            let Some(id) = self.ledger.next_in_oldest() else {
                match self.retire_empty() {
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
            // Not the last room: the mark has to fit as well that sets the
            // segment free, and what comes until it is room again.
            let needed = self.promised + len + self.leeway() / 2;
            let here = self.len.saturating_sub(self.offset);
            if needed > here.max(self.spare_room()) {
                self.to_move = needed;
                return self.ledger.look_again();
            }
            self.to_move = 0;
            self.record(record);
            self.ledger.moved(id, len);
            self.migrated += 1;
            self.credit = self.credit.saturating_sub_unsigned(len);
            bytes += len;
        }
    }

    /// Whether there is so much garbage that it has to be less.
    fn is_crowded(&self) -> bool {
        let (size, live) = (self.ledger.segment_size(), self.ledger.live());
        let garbage = (self.ledger.closed() + self.offset).saturating_sub(live);
        let spare = match self.spare {
            Spare::Ready(len) => len,
            Spare::None | Spare::Taken => size,
        };
        let reserve = self.reserve.max(self.needed_reserve(0));
        let disk = self.ledger.closed() + self.len + spare + reserve;
        garbage > size / 4 + live / 4 + live.saturating_sub(4 * size) / 4
            || disk + size / 2 > 2 * live + 3 * size
    }

    /// Takes the oldest segments out of use, if nothing in them lives.
    fn retire_empty(&mut self) -> bool {
        let before = self.retired.len();
        while let Some(number) = self.ledger.retire() {
            self.retired.push_back(Retired {
                number,
                after: NEVER,
            });
        }
        self.retired.len() > before
    }

    /// Takes segments out of use, and says so in the log.
    pub fn retire(&mut self) {
        self.retire_empty();
        if self.retired.back().is_some_and(|last| last.after == NEVER) {
            self.record(Record::Mark(self.ledger.oldest()));
            let unmarked = self.retired.iter_mut();
            let unmarked = unmarked.filter(|retired| retired.after == NEVER);
            unmarked.for_each(|retired| retired.after = self.end);
        }
    }

    /// Up to where the log has to be synced before all empty segments may go.
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

    // Room.

    /// Lets a put of this length in, if there is room for it.
    pub fn promise(&mut self, len: u64) -> bool {
        let is_in = self.accepts(len);
        if is_in {
            self.promised += len;
        }
        is_in
    }

    /// The put was appended, or will not be.
    pub fn release(&mut self, len: u64) {
        self.promised -= len;
    }

    fn accepts(&self, put: u64) -> bool {
        let (puts, reserve) = (self.promised + put, self.needed_reserve(put));
        let here = self.sure_rest();
        let (spare, puts_ahead) = (self.spare_room(), puts + self.leeway());
        here.max(spare.min(self.ledger.segment_size())) >= puts + reserve
            || (here >= puts_ahead && self.reserve.max(spare) >= reserve)
            || (spare >= puts_ahead && self.reserve >= reserve)
    }

    /// How long the reserve has to be for a put of this length.
    fn needed_reserve(&self, put: u64) -> u64 {
        let puts = self.promised + put;
        let longest = self.ledger.longest().max(self.size()).max(puts);
        let live = self.ledger.live() + puts;
        HEADER_LEN + longest.min(live) + live / 16 + self.leeway()
    }

    /// What is left for updates and deletions on a full disk, until an emptied
    /// segment has become room: in the file that puts go to, and in the reserve.
    fn leeway(&self) -> u64 {
        self.size() / 4
    }

    /// How long a segment is, here.
    fn size(&self) -> u64 {
        self.ledger.segment_size().min(self.len)
    }

    /// How much more the current segment is to hold.
    fn rest(&self) -> u64 {
        self.size().saturating_sub(self.offset)
    }

    /// The same, if that is sure to have room.
    fn sure_rest(&self) -> u64 {
        if self.is_copying { 0 } else { self.rest() }
    }

    fn spare_room(&self) -> u64 {
        match self.spare {
            Spare::Ready(len) => len.saturating_sub(HEADER_LEN),
            Spare::None | Spare::Taken => 0,
        }
    }

    /// Whether we live on what is set aside, or soon will, since the disk is full.
    fn is_scarce(&self) -> bool {
        let more = if self.full.is_some() {
            self.size() / 4
        } else {
            0
        };
        !self.accepts(more)
    }

    /// How long the spare and the reserve should be for a put of this length to
    /// be let in, or with 0 for puts to come; None if all is well as it is.
    pub fn wanted(&self, put: u64) -> Option<Wanted> {
        let early = if put > 0 { 0 } else { self.size() / 4 };
        let puts = self.promised + put + early + self.leeway();
        let reserve = self.needed_reserve(put);
        let here = self.sure_rest();
        let is_small = here >= puts + reserve && self.to_move == 0;
        if is_small || self.spare == Spare::Taken {
            return None;
        }
        let room = here.max(self.spare_room()) >= puts && self.spare_room() >= self.to_move;
        let spare = HEADER_LEN + puts.max(self.to_move);
        let wanted = Wanted {
            spare: if room {
                0
            } else {
                spare.max(self.ledger.segment_size())
            },
            reserve: match self.reserve >= reserve {
                true => 0,
                false => reserve + self.leeway() / 2,
            },
        };
        (wanted.spare > 0 || wanted.reserve > 0).then_some(wanted)
    }

    /// How long the spare should be, if no other put comes.
    pub fn wanted_spare(&self) -> u64 {
        let puts = self.promised + self.leeway();
        (HEADER_LEN + puts.max(self.to_move)).max(self.ledger.segment_size())
    }

    /// Whether the reserve has to become the spare: there is no other room soon.
    pub fn needs_reserve(&self) -> bool {
        let soon = (self.size() / 4).max(self.to_move);
        self.spare != Spare::Taken
            && self.reserve > self.spare_room() + HEADER_LEN
            && self.spare_room() < soon
            && (self.rest() < soon || self.rest() < self.to_move)
    }

    /// How long the spare and the reserve should be instead, if they are much
    /// too long; 0 for one that is not.
    pub fn surplus(&self) -> Option<Wanted> {
        if self.full.is_some() {
            return None; // it was the reserve, and will be all there is
        }
        let more = self.size() / 4;
        let spare = self.wanted_spare();
        let reserve = self.needed_reserve(0) + self.leeway() / 2;
        let surplus = |len: u64, wanted: u64| match len > (wanted + more).next_multiple_of(BLOCK) {
            true => wanted,
            false => 0,
        };
        let surplus = Wanted {
            spare: surplus(self.spare_room(), spare),
            reserve: surplus(self.reserve, reserve),
        };
        (surplus.spare > 0 || surplus.reserve > 0).then_some(surplus)
    }

    /// Whether there is something to do about files.
    pub fn needs_upkeep(&self) -> bool {
        !self.retired.is_empty()
            || self.surplus().is_some()
            || match self.full {
                None => self.wanted(0).is_some(),
                Some(_) => self.needs_reserve(),
            }
    }
}

impl Batch {
    /// Ids mostly come in order, so this costs nothing.
    fn note_put(&mut self, id: JobId) {
        let place = match self.puts.last() {
            Some(last) if *last > id => self.puts.partition_point(|other| *other < id),
            _ => self.puts.len(),
        };
        self.puts.insert(place, id);
    }

    fn has_put(&self, id: JobId) -> bool {
        self.puts.binary_search(&id).is_ok()
    }
}
