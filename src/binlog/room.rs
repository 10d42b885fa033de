//! How much room there is, and what follows from that. Pure: the files that it
//! speaks of are made in `spare`.
//!
//! Two files are prepared ahead. In the *spare* the next segment begins. The
//! *reserve* is not touched as long as there is room on the disk. One inequality
//! says whether a put may come in. Let, in bytes,
//!
//! - *p* be what the puts take that were let in and not appended yet, this one
//!   among them;
//! - *m* what is left in the current segment, or the length of the spare,
//!   whichever is more; *e* the length of the reserve;
//! - *u* a leeway for updates and deletions, a quarter of a segment;
//! - *k* what it takes to empty any one segment: what lives in it at most, a
//!   sixteenth of all that lives, which the ends of files leave unused, and *u*.
//!
//! Then a put may come in if
//!
//! > *m* ≥ *p* + *u*, and max(*n* − *p*, *e*) ≥ *k*,
//!
//! where *n* is *m*, or the length of the spare as long as there is only one
//! segment, which is not emptied into itself. All puts that were let in have room in one
//! file, one behind the other: nobody has to reckon how they divide among files.
//! And on a full disk, where puts are refused, the reserve becomes the spare and
//! all else goes on: the oldest segment can be emptied, and its file is the next
//! reserve. If what is appended at once outruns all that, a segment grows beyond
//! its room; where the disk is full, into the room of the reserve, which is given
//! up for that.

use super::frame::HEADER_LEN;
use super::tail::Tail;

/// A new file's length is a multiple of this.
pub(super) const BLOCK: u64 = 4096;

/// The names of the two files. What is in them is not part of the binlog.
pub(super) const SPARE: &str = "binlog.spare";
pub(super) const RESERVE: &str = "binlog.reserve";

/// A prepared file is too short, or much too long.
pub(super) struct Wanted {
    pub name: &'static str,
    /// It has to be so long.
    pub least: u64,
    /// It should be so long.
    pub good: u64,
}

impl Tail {
    /// Lets a put of this length in, if there is room for it.
    pub fn admit(&mut self, len: u64) -> bool {
        let is_in = self.has_room(len);
        if is_in {
            self.admitted += len;
        }
        is_in
    }

    /// The put was appended, or will not be.
    pub fn release(&mut self, len: u64) {
        self.admitted -= len;
    }

    /// The inequality.
    fn has_room(&self, put: u64) -> bool {
        let has = |name| self.prepared(name).unwrap_or(0) >= self.least(name, put);
        has(SPARE) && has(RESERVE)
    }

    /// How long a prepared file has to be for the inequality to hold: 0 if the
    /// current segment has the room.
    fn least(&self, name: &str, put: u64) -> u64 {
        let puts = self.admitted + put;
        if name == RESERVE {
            let keep = self.keep(put);
            // The only segment is not emptied into itself.
            let is_only = self.ledger.oldest() == self.ledger.current();
            let here = if is_only { 0 } else { self.rest() };
            let is_ahead = here.max(self.spare_room()) >= puts + keep;
            return if is_ahead { 0 } else { HEADER_LEN + keep };
        }
        // What is to be moved needs room like a put.
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

    /// What has to be made of spare and reserve for a put of this length to come
    /// in, in this order. What puts need is made ahead of them; so without one,
    /// it is what those to come will need.
    pub fn wanted(&self, put: Option<u64>) -> Vec<Wanted> {
        let mut names = [SPARE, RESERVE];
        if self.full.is_some() && self.reserve == 0 {
            // The reserve was used: the first room is the next one.
            names.reverse();
        }
        let wanted = names.into_iter().map(|name| self.wanted_of(name, put));
        wanted.flatten().collect()
    }

    fn wanted_of(&self, name: &'static str, put: Option<u64>) -> Option<Wanted> {
        self.spare?; // else there will soon be more room
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
        // On a full disk it was the reserve, and will be all there is.
        let is_surplus = have > most && self.full.is_none();
        (have < least || is_surplus).then_some(Wanted { name, least, good })
    }

    /// How long a spare is that can hold what was let in, and what is to be moved.
    pub fn wanted_spare(&self) -> u64 {
        let ahead = (self.admitted + self.leeway()).max(self.to_move);
        self.segment_size.max(HEADER_LEN + ahead)
    }

    /// How long the spare or the reserve is; 0 if there is none, None if it is
    /// in use.
    pub fn prepared(&self, name: &str) -> Option<u64> {
        match name {
            RESERVE => Some(self.reserve),
            _ => self.spare,
        }
    }

    /// Whether a record of this length can be moved; else that is noted, so that
    /// room is made. It may not take the last room: the mark has to fit as well
    /// that sets the oldest segment free, and what comes until that is room again.
    pub fn finds_room_to_move(&mut self, len: u64) -> bool {
        let needed = self.admitted + len + self.leeway() / 2;
        let here = self.len.saturating_sub(self.offset);
        let has_room = needed <= here.max(self.spare_room());
        self.to_move = if has_room { 0 } else { needed };
        has_room
    }

    /// Whether puts are refused, or will be soon, since the disk is full.
    pub fn is_scarce(&self) -> bool {
        self.full.is_some() && !self.has_room(self.size() / 4)
    }

    /// Whether the reserve has to become the spare: there is no other room soon.
    pub fn needs_reserve(&self) -> bool {
        let soon = (self.size() / 4).max(self.to_move);
        let spare = self.spare_room();
        let is_longer = self.reserve > spare + HEADER_LEN && self.spare.is_some();
        is_longer && spare.max(self.rest()) < soon
    }

    /// Whether there is something to do about files.
    pub fn needs_upkeep(&self) -> bool {
        !self.retired.is_empty()
            || match self.full {
                None => !self.wanted(None).is_empty(),
                Some(_) => self.needs_reserve(),
            }
    }

    /// Whether that cannot be left to others: the disk is full, or little room is
    /// left for what is appended next.
    pub fn is_urgent(&self) -> bool {
        self.full.is_some() || self.rest().max(self.spare_room()) < self.leeway() / 2
    }

    /// Whether there is so much garbage that it has to be less.
    pub fn is_crowded(&self) -> bool {
        let (size, live) = (self.segment_size, self.ledger.live());
        let garbage = (self.ledger.closed() + self.offset).saturating_sub(live);
        let spare = self.spare.filter(|len| *len > 0).unwrap_or(size);
        let reserve = self.reserve.max(self.keep(0));
        let disk = self.ledger.closed() + self.len + spare + reserve;
        garbage > size / 4 + live / 4 + live.saturating_sub(4 * size) / 4
            || disk + size / 2 > 2 * live + 3 * size
    }

    /// What is left for updates and deletions on a full disk, until an emptied
    /// segment has become room: beside the puts, and in the reserve.
    pub fn leeway(&self) -> u64 {
        self.size() / 4
    }

    /// How long a segment is, here.
    pub fn size(&self) -> u64 {
        self.segment_size.min(self.len)
    }

    /// How much more the current segment is to hold.
    pub fn rest(&self) -> u64 {
        self.size().saturating_sub(self.offset)
    }

    /// How much the next one is to hold.
    pub fn spare_room(&self) -> u64 {
        self.spare.unwrap_or(0).saturating_sub(HEADER_LEN)
    }
}
