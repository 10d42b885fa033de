//! How much room there is, and what follows from that. Pure: `spare` makes the
//! files that this module decides about.
//!
//! **The rule.** *A put is admitted only if two prepared files of full length
//! are left after it, and one more for each sixteen segments. Everything else may
//! use them, and compaction gives them back.* Besides, on a disk that is nearly full, *a put is refused while the
//! live bytes leave compaction too little to work with*
//! ([`fits`](Tail::fits)).
//!
//! A *prepared file* (a spare) is one in which a segment can begin without
//! asking the disk for anything. Its *full length* is that of a segment; while
//! there is a longer segment, or a put waits that would make one, it is as long
//! as that. So what lives in any one segment fits into one prepared file. That
//! must be so although a job that is put again may have more to tell, up to its
//! longest put ([`put_len`](super::put_len)). So the live puts in a segment, each
//! at its longest, are never longer than its file. A segment with nothing but
//! puts of small jobs ends before its file is full. One more file than the rule
//! asks for is prepared when half of the current segment is used: mostly an older segment has become
//! obsolete by then, and its file is taken. If not, no put waits while a new one
//! is made.
//!
//! Why two? When the disk is full and puts are refused, everything else must get
//! along with two prepared files. To free the oldest segment takes at most one of
//! them. Meanwhile jobs are moved so fast that all of the binlog has been gone
//! through before updates and deletions have taken an eighth of a segment
//! ([`may_move_for`](Tail::may_move_for)), if there are fewer than some 800,000
//! jobs for each MiB of a segment: no append looks at more than 256 of them. So
//! the oldest segment is obsolete before the room is used up, and its file becomes
//! the next prepared one. It is not given to the disk in between, where another
//! program could take it; for the same reason no file is cut at its last record.
//! Why one more for each sixteen? A segment ends before a record that does not
//! fit, and when jobs are moved, these empty ends may add up to more than before.
//!
//! Why a bound on live bytes? The fuller the files are with what lives, the more
//! has to be moved to free one of them: near the last byte, each put would move a
//! whole segment. With a sixteenth left free, a put moves some eight times its
//! own length, and after a delete there is room for the next put.
//!
//! Work on very many jobs, such as a long kick, is done in pieces. While less
//! than two full lengths are left, each piece waits until what was appended
//! before it is written and the obsolete segments are prepared files again
//! ([`is_pressed`](Tail::is_pressed)). A single piece may still need more than
//! all this, if segments are very short. Then a segment grows beyond its file. If
//! the disk is full, prepared files that have become ready meanwhile are given up
//! for that, one after the other.
//!
//! **Who asks what.** `no_room` holds why the last attempt to make room has
//! failed; it is empty again after one that has not.
//!
//! | question | who asks, and when | if so |
//! |---|---|---|
//! | [`admits`](Tail::admits) | a worker, under the server's lock, before each put | the put is executed; else the worker makes room first, or refuses it |
//! | [`is_pressed`](Tail::is_pressed) | a worker or the timer, before each piece of its work | it writes and prepares files before that piece |
//! | [`lacks_room`](Tail::lacks_room), or a full disk | the thread that has just written, if it is not the committer | it prepares files itself, if they are needed |
//! | [`needs_upkeep`](Tail::needs_upkeep) | the same thread | it wakes the thread `segments` |
//! | [`has_much_garbage`](Tail::has_much_garbage), [`refuses_puts`](Tail::refuses_puts) | each append | it moves jobs, faster while puts are refused |
//! | [`may_move`](Tail::may_move) | each append, before it moves a job | the job is moved, else it stays until there is room |

use super::error::Error;
use super::format::{HEADER_LEN, MOST_SPARES};
use super::tail::{Spare, Tail};

/// A file's length is a multiple of this.
pub(super) const BLOCK: u64 = 4096;

/// How many spares of full length are left after a put at least, and for how
/// many segments it is one more.
const SPARES_AFTER_PUT: usize = 2;
const SEGMENTS_PER_SPARE: u64 = 16;

/// How many spares a put leaves beside so many segments.
fn spares_beside(segments: u64) -> usize {
    SPARES_AFTER_PUT + (segments / SEGMENTS_PER_SPARE).min(MOST_SPARES as u64 / 2) as usize
}

/// How many spares there are at most beside so many segments.
pub(super) fn most_spares(segments: u64) -> usize {
    spares_beside(segments) + 1
}

/// The live bytes leave free at least one part in so many of what the disk has
/// for segments, and half a segment. The empty ends of segments may take half of
/// that.
const FREE_PART: u64 = 16;

/// While room is short, no more should wait to be written than a full length
/// divided by this.
pub(super) const UNWRITTEN_PART: u64 = 16;

impl Tail {
    /// Whether a put of this length is admitted: see the rule.
    pub fn admits(&self, put: u64) -> bool {
        self.has_spares_for(put) && self.fits(put)
    }

    /// Whether a put of this length leaves two spares.
    pub fn has_spares_for(&self, put: u64) -> bool {
        // If the put does not fit into the current segment, it begins another
        // one.
        let used = usize::from(self.rest_for_puts() < put);
        let full = self.full_len(put);
        self.ready(full) >= spares_beside(self.segments(full)) + used
    }

    /// Whether what lives leaves compaction enough to work with, if a put of this
    /// length is added. Where the disk is not nearly full, it does.
    pub fn fits(&self, put: u64) -> bool {
        let live = self.ledger.live() + put;
        self.free_of(put).is_none_or(|(all, free)| {
            let empty = self.ledger.empty().max(free / 2);
            live + free <= all && live + empty + free / 2 <= all
        })
    }

    /// An error if a put of this length does not fit.
    pub fn must_fit(&self, put: u64) -> Result<(), Error> {
        match self.fits(put) {
            true => Ok(()),
            false => Err(Error::Refused(format!(
                "the jobs take {} bytes of the {} that the disk has for them",
                self.ledger.live(),
                self.most_live(put).unwrap_or(0)
            ))),
        }
    }

    /// How many bytes may live beside a put of this length, as far as is known.
    pub fn most_live(&self, put: u64) -> Option<u64> {
        self.free_of(put)
            .map(|(all, free)| all.saturating_sub(free))
    }

    /// How many bytes all segments may have beside a put of this length, and how
    /// many of these have to be free.
    fn free_of(&self, put: u64) -> Option<(u64, u64)> {
        let (capacity, full) = (self.capacity?, self.full_len(put));
        let spares = spares_beside(capacity / full) as u64;
        let all = capacity.saturating_sub(spares * full);
        Some((all, (all / FREE_PART).max(full / 2)))
    }

    /// How many segments of this length would be as long as all that there are.
    fn segments(&self, full: u64) -> u64 {
        (self.ledger.closed() + self.ledger.empty() + self.len).div_ceil(full)
    }

    /// How many bytes of garbage there are: what no live job needs.
    pub fn garbage(&self) -> u64 {
        let used = self.ledger.closed() + self.offset;
        used.saturating_sub(self.ledger.live())
    }

    /// How many bytes the files of the binlog have.
    pub fn file_len(&self) -> u64 {
        let spares = self.spares.iter().map(|spare| spare.len());
        let segments = self.ledger.closed() + self.ledger.empty() + self.len.max(self.offset);
        segments + spares.sum::<u64>()
    }

    /// How many spares of this length are ready.
    fn ready(&self, len: u64) -> usize {
        self.spares.iter().filter(|spare| spare.has(len)).count()
    }

    /// How many spares should be ready now: see the rule.
    pub fn lacks_spares(&self) -> bool {
        let is_half_used = self.offset >= self.len / 2;
        let full = self.prepared_len();
        let wanted = spares_beside(self.segments(full) + 2)
            + usize::from(is_half_used || !self.waiting.is_empty());
        let taken = self.spares.iter().filter(|spare| **spare == Spare::Taken);
        self.ready(full) + taken.count() < wanted
    }

    /// How many spares there should be at most. It is more than what is wanted:
    /// otherwise a spare would be made and removed again and again while the
    /// number of segments goes up and down.
    pub fn most_spares(&self) -> usize {
        most_spares(self.segments(self.prepared_len()) + 6)
    }

    /// The length that spares are made with: also the longest put that waits for
    /// room has to fit.
    pub fn prepared_len(&self) -> u64 {
        let longest = self.waiting.last_key_value();
        self.full_len(longest.map_or(0, |(put, _)| *put))
    }

    /// The length that a spare must have, while a put of this length (0: none)
    /// is to be admitted.
    pub fn full_len(&self, put: u64) -> u64 {
        let current = self.offset.max(HEADER_LEN + self.ledger.live_in_current());
        let longest = self.ledger.longest().max(current);
        let of_any = longest.min(HEADER_LEN + self.ledger.live());
        let len = self.segment_size.max(of_any).max(HEADER_LEN + put);
        len.next_multiple_of(BLOCK)
    }

    /// How many more bytes the current segment's file can hold.
    pub fn rest(&self) -> u64 {
        self.len.saturating_sub(self.offset)
    }

    /// How many more bytes of puts, at their longest, the current segment may
    /// have: see the rule.
    pub fn rest_for_puts(&self) -> u64 {
        let taken = HEADER_LEN + self.ledger.live_in_current();
        self.rest().min(self.len.saturating_sub(taken))
    }

    /// The shortest spare in which a segment with a record of this length can
    /// begin.
    pub fn spare_for(&self, record: u64) -> Option<(usize, u64)> {
        let ready = |(slot, spare): (usize, &Spare)| match *spare {
            Spare::Ready(len) if len >= HEADER_LEN + record => Some((slot, len)),
            Spare::Ready(_) | Spare::Missing | Spare::Taken => None,
        };
        let fit = self.spares.iter().enumerate().filter_map(ready);
        fit.min_by_key(|(_, len)| *len)
    }

    /// The bytes of all files: of segments that are needed, and of prepared ones.
    pub fn files_len(&self) -> u64 {
        let prepared = self.spares.iter().map(|spare| match *spare {
            Spare::Ready(len) => len,
            Spare::Missing | Spare::Taken => 0,
        });
        self.ledger.closed() + self.len.max(self.offset) + prepared.sum::<u64>()
    }

    /// How many bytes of records can be appended without asking the disk.
    fn room(&self) -> u64 {
        let in_spare = |spare: &Spare| spare.len().saturating_sub(HEADER_LEN);
        self.rest() + self.spares.iter().map(in_spare).sum::<u64>()
    }

    /// Whether a put of this length, at its longest, may be moved now. A moved
    /// record must not take the last room: the mark that makes the oldest
    /// segment removable must fit as well, and so must all that is appended
    /// until that segment has become a spare. Half a full length is kept for
    /// these.
    pub fn may_move(&self, len: u64) -> bool {
        let lost = match self.rest_for_puts() >= len {
            true => 0,
            false if self.spare_for(len).is_some() => self.rest(),
            false => return false,
        };
        self.room() >= lost + len + self.full_len(0) / 2
    }

    /// Whether puts are refused because the disk is full.
    pub fn refuses_puts(&self) -> bool {
        self.no_room.is_some() && !self.has_spares_for(0)
    }

    /// Whether less room is left than the two spares that puts leave.
    pub fn lacks_room(&self) -> bool {
        self.room() < SPARES_AFTER_PUT as u64 * self.full_len(0)
    }

    /// Whether room is short, and there are so many unwritten bytes that these
    /// should be written before more is appended.
    pub fn is_pressed(&self, unwritten: u64) -> bool {
        unwritten > self.full_len(0) / UNWRITTEN_PART && self.lacks_room()
    }

    /// Whether the thread `segments` has something to do. On a full disk, it has
    /// when there are segments to make spares of, and when there is hardly any
    /// room: what has been given back to the disk may be free only now.
    pub fn needs_upkeep(&self) -> bool {
        !self.retired.is_empty()
            || match self.no_room {
                Some(_) => self.room() < self.full_len(0) / 4,
                None => self.lacks_spares() || self.spares.len() > self.most_spares(),
            }
    }

    /// Whether there is so much garbage that jobs have to be moved.
    pub fn has_much_garbage(&self) -> bool {
        let (size, live) = (self.full_len(0), self.ledger.live());
        // The manual's bound on the disk's use is twice what lives and five files.
        // It has room for this much: beside what is used there are three spares,
        // and what is left of the current file.
        self.garbage() > size / 4 + live / 4 + live.saturating_sub(4 * size) / 4
    }
}

#[cfg(test)]
mod tests {
    use super::super::error::Error;
    use super::super::ledger::Ledger;
    use super::*;
    use crate::protocol::JobId;
    use std::sync::Arc;

    /// The room for records in a file of one block.
    const ROOM: u64 = BLOCK - HEADER_LEN;

    /// A first segment of one block, with nothing in it, and spares of these
    /// lengths.
    fn tail(spares: &[u64]) -> Tail {
        let mut ledger = Ledger::new(JobId(1));
        ledger.begin(1, 0, 0);
        let mut tail = Tail::new(ledger, BLOCK, HEADER_LEN, BLOCK);
        tail.spares = spares.iter().map(|&len| Spare::Ready(len)).collect();
        tail
    }

    /// The same, with so many bytes left in the segment's file.
    fn tail_with(rest: u64, spares: &[u64]) -> Tail {
        let mut tail = tail(spares);
        tail.offset = BLOCK - rest;
        assert_eq!(tail.rest(), rest);
        tail
    }

    /// Closes the current segment, which has this length, and begins another
    /// one.
    fn begin(tail: &mut Tail, len: u64) {
        tail.ledger.begin(tail.ledger.current() + 1, len, BLOCK);
    }

    fn on_a_full_disk(mut tail: Tail) -> Tail {
        let full = std::io::ErrorKind::StorageFull.into();
        tail.no_room = Some(Arc::new(Error::on("create", "binlog.spare")(full)));
        tail
    }

    #[test]
    fn a_put_leaves_two_spares_of_full_length() {
        assert!(!tail(&[BLOCK]).admits(ROOM));
        assert!(tail(&[BLOCK; 2]).admits(ROOM));
        assert!(tail_with(100, &[BLOCK; 2]).admits(100));
        assert!(!tail_with(100, &[BLOCK; 2]).admits(101));
        assert!(tail_with(100, &[BLOCK; 3]).admits(101));
        // A longer put needs longer spares.
        assert!(!tail(&[BLOCK; 3]).admits(ROOM + 1));
        assert!(tail(&[2 * BLOCK; 3]).admits(ROOM + 1));
    }

    #[test]
    fn a_third_spare_is_made_when_half_of_the_segment_is_used_or_a_put_waits() {
        let mut two = tail(&[BLOCK; 2]);
        assert!(tail(&[BLOCK]).lacks_spares() && !two.lacks_spares());
        two.offset = BLOCK / 2;
        assert!(two.lacks_spares());
        two.offset = BLOCK / 2 - 1;
        two.waiting.insert(ROOM + 1, 1);
        assert_eq!(two.prepared_len(), 2 * BLOCK);
        two.spares = vec![Spare::Ready(2 * BLOCK); 2];
        assert!(two.lacks_spares());
        two.spares.push(Spare::Ready(2 * BLOCK));
        assert!(!two.lacks_spares());
    }

    #[test]
    fn for_each_sixteen_segments_there_is_one_more_spare() {
        let spares = |segments| {
            let mut tail = tail(&[]);
            (1..segments).for_each(|_| begin(&mut tail, BLOCK));
            let count_until = |tail: &mut Tail, is_right: &dyn Fn(&Tail) -> bool| {
                let counts = (0..).find(|&count| {
                    tail.spares = vec![Spare::Ready(BLOCK); count];
                    is_right(tail)
                });
                counts.unwrap()
            };
            let after_put = count_until(&mut tail, &|tail| tail.has_spares_for(0));
            let wanted = count_until(&mut tail, &|tail| !tail.lacks_spares());
            (after_put, wanted, tail.most_spares())
        };
        assert_eq!(spares(9), (2, 2, 3));
        assert_eq!(spares(10), (2, 2, 4));
        assert_eq!(spares(13), (2, 2, 4));
        assert_eq!(spares(14), (2, 3, 4));
        assert_eq!(spares(15), (2, 3, 4));
        assert_eq!(spares(16), (3, 3, 4));
        assert_eq!(spares_beside(u64::MAX), 2 + MOST_SPARES / 2);
    }

    #[test]
    fn what_lives_leaves_a_sixteenth_of_the_disk_free_and_half_a_segment() {
        let most = |capacity, empty| {
            let mut tail = tail(&[BLOCK; 3]);
            tail.capacity = Some(capacity);
            tail.ledger.begin(2, BLOCK - empty, BLOCK);
            (1..ROOM).take_while(|&put| tail.fits(put)).last()
        };
        assert_eq!(most(2 * BLOCK, 0), None);
        assert_eq!(most(3 * BLOCK, 0), Some(BLOCK / 2));
        assert_eq!(most(3 * BLOCK, BLOCK / 4), Some(BLOCK / 2));
        assert_eq!(most(3 * BLOCK, BLOCK / 4 + 1), Some(BLOCK / 2 - 1));
        let mut tail = tail(&[]);
        tail.capacity = Some(163 * BLOCK);
        // 163 segments leave 12 spares.
        assert_eq!(tail.most_live(0), Some(151 * BLOCK - 151 * BLOCK / 16));
    }

    #[test]
    fn what_lives_in_one_segment_fits_into_a_spare() {
        let full_len = |lens: &[u64], offset| {
            let mut tail = tail(&[]);
            for (index, len) in lens.iter().enumerate() {
                if index > 0 {
                    begin(&mut tail, *len);
                }
                tail.ledger.put(JobId(1 + index as u64), *len);
            }
            tail.offset = offset;
            tail.full_len(0)
        };
        assert_eq!(full_len(&[ROOM], HEADER_LEN), BLOCK);
        assert_eq!(full_len(&[ROOM + 1], HEADER_LEN), 2 * BLOCK);
        // Of a segment that has grown beyond its file, not all need live.
        assert_eq!(full_len(&[ROOM], 2 * BLOCK), BLOCK);
        assert_eq!(full_len(&[ROOM + 1], 2 * BLOCK), 2 * BLOCK);
        assert_eq!(full_len(&[2200, 2200], HEADER_LEN), BLOCK);
        assert_eq!(tail(&[]).full_len(ROOM), BLOCK);
        assert_eq!(tail(&[]).full_len(ROOM + 1), 2 * BLOCK);
    }

    #[test]
    fn puts_may_take_what_they_may_grow_to() {
        let mut tail = tail_with(1000, &[]);
        tail.ledger.put(JobId(1), ROOM - 900);
        assert_eq!(tail.rest_for_puts(), 900);
        tail.ledger.delete(JobId(1), ROOM - 900);
        assert_eq!(tail.rest_for_puts(), 1000);
    }

    #[test]
    fn a_segment_begins_in_the_shortest_spare_that_suffices() {
        let tail = tail(&[2 * BLOCK, BLOCK]);
        assert_eq!(tail.spare_for(ROOM), Some((1, BLOCK)));
        assert_eq!(tail.spare_for(ROOM + 1), Some((0, 2 * BLOCK)));
        assert_eq!(tail.spare_for(ROOM + BLOCK + 1), None);
    }

    #[test]
    fn the_last_half_of_a_full_length_is_not_for_what_is_moved() {
        let half = BLOCK / 2;
        let most = |tail: Tail| (0..).take_while(|&len| tail.may_move(len)).last();
        assert_eq!(most(tail(&[])), Some(ROOM - half));
        assert_eq!(most(tail_with(half - 1, &[])), None);
        // What is left of the segment is lost.
        assert_eq!(most(tail_with(1000, &[BLOCK])), Some(ROOM - half));
        assert_eq!(most(tail_with(1000, &[HEADER_LEN + 3000])), Some(1000));
        assert_eq!(most(tail_with(3000, &[])), Some(3000 - half));
        // It fits nowhere.
        assert!(!tail_with(3000, &[BLOCK; 3]).may_move(ROOM + 1));
    }

    #[test]
    fn room_is_short_when_less_than_two_full_lengths_are_left() {
        let left = 2 * BLOCK - 2 * ROOM;
        assert!(!tail_with(left, &[BLOCK; 2]).lacks_room());
        let short = tail_with(left - 1, &[BLOCK; 2]);
        assert!(short.lacks_room());
        assert!(!short.is_pressed(BLOCK / 16) && short.is_pressed(BLOCK / 16 + 1));
        assert!(!tail(&[BLOCK; 2]).is_pressed(BLOCK));
    }

    #[test]
    fn puts_are_refused_on_a_full_disk_and_when_spares_are_missing() {
        assert!(!tail(&[]).refuses_puts());
        assert!(on_a_full_disk(tail(&[BLOCK])).refuses_puts());
        assert!(!on_a_full_disk(tail(&[BLOCK; 2])).refuses_puts());
    }

    #[test]
    fn there_is_work_while_spares_are_missing_or_segments_are_obsolete() {
        let mut two = tail(&[BLOCK; 2]);
        assert!(!two.needs_upkeep());
        two.spares[1] = Spare::Taken;
        assert!(!two.needs_upkeep());
        two.spares[1] = Spare::Missing;
        assert!(two.needs_upkeep());
        assert!(tail(&[BLOCK; 4]).needs_upkeep());
        assert!(!on_a_full_disk(tail_with(BLOCK / 4, &[])).needs_upkeep());
        assert!(on_a_full_disk(tail_with(BLOCK / 4 - 1, &[])).needs_upkeep());
        let mut obsolete = tail(&[BLOCK; 3]);
        obsolete.take_back_retired(1);
        assert!(obsolete.needs_upkeep());
    }

    #[test]
    fn garbage_is_much_when_it_is_a_quarter_of_a_segment_and_of_what_lives() {
        // So many bytes of the current segment make it much.
        let much = |mut tail: Tail| {
            (HEADER_LEN..BLOCK).find(|&offset| {
                tail.offset = offset;
                tail.has_much_garbage()
            })
        };
        assert_eq!(much(tail(&[])), Some(1025));
        let mut with_a_job = tail(&[]);
        with_a_job.ledger.put(JobId(1), 400);
        assert_eq!(much(with_a_job), Some(400 + 1024 + 100 + 1));
        // Of what lives in more than four segments, it is half.
        let mut with_many = tail(&[]);
        for id in 1..=5 {
            with_many.ledger.put(JobId(id), 4000);
            begin(&mut with_many, BLOCK);
        }
        begin(&mut with_many, BLOCK);
        let garbage = 6 * BLOCK - 20_000;
        let bound = 1024 + 5000 + (20_000 - 4 * BLOCK) / 4;
        assert_eq!(much(with_many), Some(bound - garbage + 1));
    }
}
