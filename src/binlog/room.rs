//! How much room there is, and what follows from that. Pure: `spare` makes the
//! files that this module decides about.
//!
//! Two files are prepared ahead. The next segment begins in the *spare*. The
//! *reserve* is not touched while the disk has room. One inequality decides
//! whether a put is admitted. Let, in bytes,
//!
//! - *p* be the length of all puts that were admitted and not appended yet,
//!   including this one;
//! - *m* what is left in the current segment, or the length of the spare,
//!   whichever is more; *e* the length of the reserve;
//! - *u* room for updates and deletions, a quarter of a segment;
//! - *k* the room that is needed to empty any one segment: the most that can
//!   live in it, a sixteenth of all that lives (for the unused ends of files),
//!   and *u*.
//!
//! Then the put is admitted if
//!
//! > *m* ≥ *p* + *u*, and max(*n* − *p*, *e*) ≥ *k*,
//!
//! where *n* is *m*. (While there is only one segment, *n* is the length of the
//! spare, because a segment cannot be emptied into itself.) All admitted puts
//! have room in one file, one after the other, so nobody has to calculate how
//! they divide among files. When the disk is full, puts are refused, the
//! reserve becomes the spare, and everything else continues: the oldest segment
//! can be emptied, and its file becomes the next reserve. Long work, such as a
//! kick of very many jobs, is done in pieces: while room is short, each piece
//! waits until the one before is written. A single piece may still need more
//! than all this. Then a segment grows beyond its room; if the disk is full, the
//! reserve is given up, and the segment grows into its room.

use super::frame::HEADER_LEN;
use super::tail::Tail;

/// A new file's length is a multiple of this.
pub(super) const BLOCK: u64 = 4096;

/// The names of the two files. Their contents are not part of the binlog.
pub(super) const SPARE: &str = "binlog.spare";
pub(super) const RESERVE: &str = "binlog.reserve";

/// A prepared file that is too short, or much too long.
pub(super) struct Wanted {
    pub name: &'static str,
    /// The length that it must have.
    pub least: u64,
    /// The length that it should have.
    pub good: u64,
}

impl Tail {
    /// Admits a put of this length, if there is room for it.
    pub fn admit(&mut self, len: u64) -> bool {
        let is_in = self.has_room(len);
        if is_in {
            self.admitted += len;
        }
        is_in
    }

    /// Ends the admission of a put: it was appended, or will not be.
    pub fn release(&mut self, len: u64) {
        self.admitted -= len;
    }

    /// Whether the inequality holds.
    fn has_room(&self, put: u64) -> bool {
        let has = |name| self.prepared(name).unwrap_or(0) >= self.least(name, put);
        has(SPARE) && has(RESERVE)
    }

    /// The length that a prepared file must have for the inequality to hold: 0
    /// if the inequality holds without that file.
    fn least(&self, name: &str, put: u64) -> u64 {
        let puts = self.admitted + put;
        if name == RESERVE {
            let keep = self.keep(put);
            // While there is only one segment, it cannot be emptied into
            // itself.
            let is_only = self.ledger.oldest() == self.ledger.current();
            let here = if is_only { 0 } else { self.rest() };
            let is_ahead = here.max(self.spare_room()) >= puts + keep;
            return if is_ahead { 0 } else { HEADER_LEN + keep };
        }
        // A record that is to be moved needs room like a put.
        let ahead = (puts + self.leeway()).max(self.to_move);
        let is_here = self.rest() >= ahead;
        if is_here { 0 } else { HEADER_LEN + ahead }
    }

    /// *k*, with a put of this length.
    fn keep(&self, put: u64) -> u64 {
        let puts = self.admitted + put;
        let live = self.ledger.live() + puts;
        let longest = self.ledger.longest().max(self.size()).max(puts);
        live.min(longest) + live / 16 + self.leeway()
    }

    /// Which of spare and reserve need another length for a put of this length
    /// to be admitted, in this order. Without a put: for later puts, since
    /// files are prepared ahead of them.
    pub fn wanted(&self, put: Option<u64>) -> Vec<Wanted> {
        let mut names = [SPARE, RESERVE];
        if self.full.is_some() && self.reserve == 0 {
            // The reserve was used, so the first free room becomes the next
            // reserve.
            names.reverse();
        }
        let wanted = names.into_iter().map(|name| self.wanted_of(name, put));
        wanted.flatten().collect()
    }

    fn wanted_of(&self, name: &'static str, put: Option<u64>) -> Option<Wanted> {
        self.spare?; // if it is in use, there will soon be more room
        let have = self.prepared(name)?;
        let (ahead, good) = match name {
            RESERVE => {
                let keep = HEADER_LEN + self.keep(put.unwrap_or(0));
                (self.size() / 16, keep + self.leeway() / 2)
            }
            _ => (self.size() / 4, self.segment_size),
        };
        let least = self.least(name, put.unwrap_or(ahead));
        let good = good.max(least);
        let most = (good + self.leeway() / 2).next_multiple_of(BLOCK);
        // On a full disk, a long spare was the reserve before, and there is no
        // other room.
        let is_surplus = have > most && self.full.is_none();
        (have < least || is_surplus).then_some(Wanted { name, least, good })
    }

    /// The length of a spare that can hold all admitted puts, and a record that
    /// is to be moved.
    pub fn wanted_spare(&self) -> u64 {
        let ahead = (self.admitted + self.leeway()).max(self.to_move);
        self.segment_size.max(HEADER_LEN + ahead)
    }

    /// The length of the spare or the reserve; 0 if there is none, `None` if it
    /// is in use.
    pub fn prepared(&self, name: &str) -> Option<u64> {
        match name {
            RESERVE => Some(self.reserve),
            _ => self.spare,
        }
    }

    /// Whether there is room to move a record of this length. If not, this is
    /// noted, so that room is made. A moved record must not take the last room:
    /// the mark that makes the oldest segment removable must fit as well, and
    /// so must all that is appended until that segment has become room again.
    pub fn finds_room_to_move(&mut self, len: u64) -> bool {
        let needed = self.admitted + len + self.leeway() / 2;
        let here = self.len.saturating_sub(self.offset);
        let has_room = needed <= here.max(self.spare_room());
        self.to_move = if has_room { 0 } else { needed };
        has_room
    }

    /// Whether puts are refused, or soon will be, because the disk is full.
    pub fn is_scarce(&self) -> bool {
        self.full.is_some() && !self.has_room(self.size() / 4)
    }

    /// Whether the reserve has to become the spare, because there will soon be
    /// no other room.
    pub fn needs_reserve(&self) -> bool {
        let soon = (self.size() / 4).max(self.to_move);
        let spare = self.spare_room();
        let is_longer = self.reserve > spare + HEADER_LEN && self.spare.is_some();
        is_longer && spare.max(self.rest()) < soon
    }

    /// Whether there will soon be no room, because there is no reserve either.
    /// What has been given back to the disk may be free only now.
    fn needs_any(&self) -> bool {
        self.spare == Some(0) && self.rest() < self.leeway()
    }

    /// Whether the thread `segments` has something to do.
    pub fn needs_upkeep(&self) -> bool {
        !self.retired.is_empty()
            || match self.full {
                None => !self.wanted(None).is_empty(),
                Some(_) => self.needs_reserve() || self.needs_any(),
            }
    }

    /// Whether the thread that writes has to do it itself, at once: the disk is
    /// full, or little room is left for what is appended next.
    pub fn is_urgent(&self) -> bool {
        self.full.is_some() || self.rest().max(self.spare_room()) < self.leeway() / 2
    }

    /// Whether so much waits to be written that more might outrun the room. Once
    /// it is written, empty segments become room again.
    pub fn is_pressed(&self, waiting: u64) -> bool {
        let is_short = self.rest().max(self.spare_room()) < self.leeway();
        waiting > self.leeway() / 4 && (is_short || self.full.is_some())
    }

    /// Whether there is so much garbage that jobs have to be moved.
    pub fn is_crowded(&self) -> bool {
        let (size, live) = (self.segment_size, self.ledger.live());
        let garbage = (self.ledger.closed() + self.offset).saturating_sub(live);
        let spare = self.spare.filter(|len| *len > 0).unwrap_or(size);
        let reserve = self.reserve.max(self.keep(0));
        let disk = self.ledger.closed() + self.len + spare + reserve;
        garbage > size / 4 + live / 4 + live.saturating_sub(4 * size) / 4
            || disk + size / 2 > 2 * live + 3 * size
    }

    /// *u*: the room that is left for updates and deletions on a full disk,
    /// until an emptied segment has become room. There is as much beside the
    /// puts, and as much in the reserve.
    pub fn leeway(&self) -> u64 {
        self.size() / 4
    }

    /// The length of a segment on this disk: `-s`, or less if the file is
    /// shorter.
    pub fn size(&self) -> u64 {
        self.segment_size.min(self.len)
    }

    /// How many more bytes the current segment should hold.
    pub fn rest(&self) -> u64 {
        self.size().saturating_sub(self.offset)
    }

    /// How many bytes of records the next segment can hold.
    pub fn spare_room(&self) -> u64 {
        self.spare.unwrap_or(0).saturating_sub(HEADER_LEN)
    }
}
