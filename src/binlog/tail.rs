//! The growing end of the log, in memory: what was appended and not yet
//! written, where it will stand, what has to be moved out of the oldest
//! segment, and how much room there is. Pure: no file is touched here.
//!
//! **Moving.** Bytes of segments in use that are no live full record are
//! garbage. As long as there is too much of it, each byte that becomes garbage
//! earns the moving of a few bytes of live records out of the oldest segment.
//! So disk use is bound, and nobody ever waits for more than a little moving.
//!
//! **Room.** What is ahead (the rest of the current segment and the spare ones,
//! whose blocks are allocated) has to suffice for emptying the oldest segment,
//! which then serves again. What it exceeds that by is the *leeway*. Moving
//! does not change it, since the room that a record takes at its new place it
//! gives free at its old one, later. A put is accepted only if some leeway is
//! left after it and after all that the records may grow by. Then updates and
//! deletions go on for ever on a full disk, if moving comes round to all
//! garbage before the leeway is used up: so, when the disk is full, it is as
//! fast as that takes.

use super::error::Error;
use super::ledger::Ledger;
use super::record::{FRAME_LEN, GROWTH, HEADER_LEN, Header, Record, full_len};
use super::storage::File;
use super::{Entry, LiveJobs, Position};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

/// Bytes moved for each byte of garbage.
const MOVE_RATE: u64 = 4;
/// No append moves more than this, or than one record.
const MOVE_BYTES: u64 = 1 << 20;
/// No append looks at more jobs of the oldest segment than this.
const MOVE_LOOKS: u32 = 256;
/// A segment's length is a multiple of this.
pub(super) const BLOCK: u32 = 4096;

/// No log is that long.
const NEVER: Position = Position(u64::MAX);

/// What has to be written.
#[derive(Default)]
pub(super) struct Batch {
    pub records: Vec<Record>,
    /// A header for each segment that begins among or within the records,
    /// with the end of the last record that ended before.
    pub headers: VecDeque<(Header, Position)>,
}

/// A segment prepared: nothing but zeros, its blocks allocated, its name synced.
pub(super) struct Spare {
    pub number: u32,
    pub file: Arc<dyn File>,
}

/// A segment in which nothing lives. It may go when the log is synced up to `after`.
pub(super) struct Retired {
    pub number: u32,
    pub after: Position,
}

/// The end of the log.
pub(super) struct Tail {
    pub batch: Batch,
    pub end: Position,
    pub ledger: Ledger,
    /// How long each new segment is.
    pub segment_size: u32,
    /// Where the next record begins in the current segment.
    offset: u32,
    /// Prepared segments, in the order in which they will be used.
    pub spares: VecDeque<Spare>,
    /// How many of them are promised to headers not yet written. (More than
    /// there are: the writer will make one.)
    pub taken: usize,
    /// Empty segments, oldest first.
    pub retired: VecDeque<Retired>,
    /// Room promised to puts that were not appended yet.
    promised: u64,
    /// How many live records there are of each length above an eighth of a segment.
    long: BTreeMap<u32, u32>,
    /// Bytes that may be moved; negative after moving more than that.
    credit: i64,
    /// Why the last try to get a new segment failed, if it did.
    pub full: Option<Arc<Error>>,
    /// What a new segment's header calls the oldest, while another server's
    /// files are being taken over.
    pub floor: Option<u32>,
    /// For `stats`.
    pub written: u64,
    pub migrated: u64,
}

impl Tail {
    /// The tail of a log whose current segment has only its header.
    pub fn new(ledger: Ledger, segment_size: u32) -> Tail {
        Tail {
            batch: Batch::default(),
            end: Position::default(),
            ledger,
            segment_size,
            offset: HEADER_LEN,
            spares: VecDeque::new(),
            taken: 0,
            retired: VecDeque::new(),
            promised: 0,
            long: BTreeMap::new(),
            credit: 0,
            full: None,
            floor: None,
            written: 0,
            migrated: 0,
        }
    }

    /// Appends an entry, and moves some live records if it is time to.
    pub fn append(&mut self, entry: Entry, jobs: &dyn LiveJobs) -> Position {
        match entry {
            Entry::Put(job) => {
                let len = full_len(job.tube.as_str().len(), job.body.wire().len());
                self.make_way();
                self.ledger.put(job.id, len);
                self.came_to_life(len);
                self.record(Record::Full(job));
            }
            Entry::Update(update) => {
                let garbage = self.record(Record::Update(update));
                self.earn(garbage);
            }
            Entry::Delete {
                id,
                tube_len,
                body_len,
            } => {
                let len = full_len(tube_len, body_len);
                let garbage = self.record(Record::Delete(id));
                self.ledger.delete(id, len);
                self.died(len);
                self.earn(garbage + len);
            }
        }
        self.compact(jobs);
        self.retire();
        self.end
    }

    /// A full record of this length lives from now on. (For the replay too.)
    pub fn came_to_life(&mut self, len: u32) {
        if len > self.segment_size / 8 {
            *self.long.entry(len).or_default() += 1;
        }
    }

    fn died(&mut self, len: u32) {
        if let Some(count) = self.long.get_mut(&len) {
            *count -= 1;
            if *count == 0 {
                self.long.remove(&len);
            }
        }
    }

    /// Begins a new segment if no record can begin in this one.
    fn make_way(&mut self) {
        if self.segment_size - self.offset <= FRAME_LEN {
            self.rotate(0);
        }
    }

    /// Appends a record, and says how long it is.
    fn record(&mut self, record: Record) -> u32 {
        self.make_way();
        let len = record.len();
        let mut left = len;
        while left > self.segment_size - self.offset {
            left -= self.segment_size - self.offset;
            self.offset = self.segment_size;
            self.rotate(left);
        }
        self.offset += left;
        self.end.0 += u64::from(len);
        self.written += 1;
        self.batch.records.push(record);
        len
    }

    /// Begins a new segment, with so many bytes of a record that began before.
    pub fn rotate(&mut self, left: u32) {
        let number = self.ledger.current() + 1;
        self.ledger.begin(number, self.segment_size);
        let header = Header {
            number,
            oldest: self.floor.unwrap_or(self.ledger.oldest()),
            previous_end: self.offset,
            first: HEADER_LEN.saturating_add(left).min(self.segment_size),
            next_id: self.ledger.next_id(),
        };
        self.batch.headers.push_back((header, self.end));
        self.end.0 += u64::from(HEADER_LEN);
        self.offset = HEADER_LEN;
        self.taken += 1;
    }

    /// Says at the end of the log, after a sync, that all before it was synced.
    pub fn mark_end(&mut self) -> Position {
        if self.written > 0 {
            self.record(Record::Mark(self.ledger.oldest()));
        }
        self.end
    }

    /// So many bytes became garbage.
    fn earn(&mut self, garbage: u32) {
        let garbage = u64::from(garbage);
        let mut earned = MOVE_RATE * garbage;
        if self.is_scarce() {
            // All that lives is moved once before half of the leeway is used up.
            let round = garbage.saturating_mul(2 * self.ledger.live_bytes());
            earned = earned.saturating_add(round / self.leeway());
        }
        self.credit = self.credit.saturating_add_unsigned(earned);
    }

    fn compact(&mut self, jobs: &dyn LiveJobs) {
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
            let len = full_len(job.tube.as_str().len(), job.body.wire().len());
            let record = Record::Full(job);
            // The mark has to fit as well: what it sets free may be what the
            // next segment is made of.
            let mark = Record::Mark(0).len() + FRAME_LEN;
            if u64::from(record.len() + mark) > self.room() {
                return;
            }
            self.make_way();
            self.ledger.moved(id, len);
            self.record(record);
            self.migrated += 1;
            self.credit -= i64::from(len);
            bytes += u64::from(len);
        }
    }

    /// How much can be written ahead without a new segment.
    fn room(&self) -> u64 {
        let marked = self.retired.iter().filter(|retired| retired.after != NEVER);
        let segments = (self.spares.len() + marked.count()).saturating_sub(self.taken);
        let of_use = u64::from(self.segment_size - HEADER_LEN - FRAME_LEN);
        let rest = u64::from(self.segment_size - self.offset);
        rest + of_use * u64::try_from(segments).expect("few")
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
            let unmarked = self
                .retired
                .iter_mut()
                .filter(|retired| retired.after == NEVER);
            unmarked.for_each(|retired| retired.after = self.end);
        }
    }

    /// Whether there is so much garbage that it has to be less.
    fn is_crowded(&self) -> bool {
        let size = u64::from(self.segment_size);
        let live = self.ledger.live_bytes();
        let used = self.ledger.disk() - u64::from(self.segment_size - self.offset);
        let bearable = size / 4 + live / 4 + live.saturating_sub(4 * size) / 4;
        let spares = u64::try_from(self.needed(0) - self.taken).expect("few");
        used.saturating_sub(live) > bearable
            || self.ledger.disk() + spares * size + size / 4 > self.allowed()
    }

    /// Whether we live on what is set aside, or soon will, since the disk is full.
    fn is_scarce(&self) -> bool {
        let more = if self.full.is_some() {
            self.segment_size
        } else {
            0
        };
        let ahead = self.spares.len() + self.retired.len();
        i64::try_from(ahead).expect("few") < self.spares_for(self.missing(0, more))
    }

    /// What all segments take on the disk.
    fn disk(&self) -> u64 {
        let others = (self.retired.len() + self.spares.len()).saturating_sub(self.taken);
        self.ledger.disk() + u64::from(self.segment_size) * u64::try_from(others).expect("few")
    }

    /// What is to be left for updates and deletions when the disk is full.
    fn leeway(&self) -> u64 {
        u64::from(self.segment_size) / 4 + self.ledger.live_bytes() / 64
    }

    /// How many bytes of spares there have to be for a put of this length, if
    /// the leeway and `more` are to be left after it.
    fn missing(&self, put_len: u32, more: u32) -> i64 {
        let put = match put_len {
            0 => 0,
            len => u64::from(len + GROWTH),
        };
        let growth = u64::from(GROWTH) * self.ledger.live();
        let live = self.ledger.live_bytes() + growth + put;
        let longest = self
            .long
            .last_key_value()
            .map_or(self.segment_size / 8, |(len, _)| *len);
        let to_move = u64::from(self.segment_size) + u64::from(longest.max(put_len) + GROWTH);
        let needed =
            live.min(to_move) + growth + put + self.promised + self.leeway() + u64::from(more);
        i64::try_from(needed).unwrap_or(i64::MAX) - i64::from(self.segment_size - self.offset)
    }

    /// How many spares that is.
    fn spares_for(&self, missing: i64) -> i64 {
        let of_use = i64::from(self.segment_size - HEADER_LEN - FRAME_LEN);
        let taken = i64::try_from(self.taken).expect("few");
        taken + (missing.max(1) - 1) / of_use + 1
    }

    /// How many spares there have to be before a put of this length is accepted.
    pub fn needed(&self, put_len: u32) -> usize {
        let spares = self.spares_for(self.missing(put_len, 0));
        usize::try_from(spares).expect("at least one")
    }

    /// Whether there should be another spare: what is set aside needs it, or a
    /// put will soon, and it keeps disk use within what is promised.
    pub fn wants_spare(&self) -> bool {
        let size = self.segment_size;
        let early = self.spares_for(self.missing(0, size / 4));
        let more = if self.retired.is_empty() { size } else { 0 };
        let allowed = self.disk() + u64::from(more) <= self.allowed();
        self.spares.len() < self.needed(0)
            || (allowed && i64::try_from(self.spares.len()).expect("few") < early)
    }

    /// Whether there is a spare that no put needs, and disk use is above what is promised.
    pub fn has_surplus(&self) -> bool {
        self.spares.len() > self.needed(0) && self.disk() > self.allowed()
    }

    fn allowed(&self) -> u64 {
        2 * self.ledger.live_bytes() + 3 * u64::from(self.segment_size)
    }

    /// Whether there is something to do about segments.
    pub fn needs_upkeep(&self) -> bool {
        !self.retired.is_empty()
            || self.has_surplus()
            || (self.full.is_none() && self.wants_spare())
    }

    /// Sets room aside for a put of this length.
    pub fn promise(&mut self, len: u32) {
        self.promised += u64::from(len + GROWTH);
        self.came_to_life(len); // so that the longest one is known
    }

    /// Takes that back: the put was appended, or will not be.
    pub fn release(&mut self, len: u32) {
        self.promised -= u64::from(len + GROWTH);
        self.died(len);
    }

    /// The number for the next spare.
    pub fn next_spare(&self) -> u32 {
        let last_spare = self.spares.back().map(|spare| spare.number);
        // Segments that began here and have no file yet come from the spares.
        let written = self.ledger.current() - u32::try_from(self.taken).expect("few");
        last_spare.unwrap_or(written) + 1
    }
}
