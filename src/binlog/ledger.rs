//! Which segment holds which live jobs: for each segment, the live jobs whose
//! latest put is there, and how many bytes these puts take at their longest.
//! Pure, and small: jobs that were put one after the other and never moved need
//! no entry of their own.
//!
//! A segment is needed as long as a live job's latest put is in it. Segments
//! are retired in the order of their numbers, so later records about a job
//! (updates, its deletion) outlive its put and need no accounting.

use super::format::HEADER_LEN;
use crate::protocol::JobId;
use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;

/// The segments in use, oldest first; the last one is being written.
pub(super) struct Ledger {
    segments: VecDeque<Segment>,
    /// The jobs that were put again, and into which segment. Any other job is
    /// where it was put first, and the `first` of the segments tell where that
    /// was. (A job is counted as put again if a higher id was put before it.)
    moved: BTreeMap<JobId, u32>,
    /// One more than the highest id seen.
    next_id: JobId,
    /// What the latest puts of live jobs take together at their longest, in
    /// bytes.
    live: u64,
    /// The length of all segments but the current one together, and of what is
    /// left empty at the ends of their files.
    closed: u64,
    empty: u64,
    /// For the maximum: the number and length of the longest of these, then of
    /// the longest of those after it, and so on. A segment counts with what its
    /// jobs may grow to, if that is more than its length.
    longest: VecDeque<(u32, u64)>,
}

/// A segment in use.
struct Segment {
    number: u32,
    /// The jobs that were put here first, in the order of their ids, have this id
    /// or a higher one.
    first: JobId,
    /// Its length, and what is left empty at the end of its file; not known yet
    /// for the current segment.
    len: u64,
    empty: u64,
    /// What the latest puts of live jobs in this segment take at their longest,
    /// in bytes.
    live: u64,
    /// The jobs that were put here, in that order, without those that
    /// [`next_in_oldest`](Ledger::next_in_oldest) has returned. Jobs that were
    /// put one after the other mostly have consecutive ids, and each run of
    /// these takes 16 bytes.
    ids: VecDeque<Range<u64>>,
}

impl Ledger {
    /// A ledger without a segment. Call [`begin`](Self::begin) first.
    pub fn new(next_id: JobId) -> Ledger {
        Ledger {
            segments: VecDeque::new(),
            moved: BTreeMap::new(),
            next_id,
            live: 0,
            closed: 0,
            empty: 0,
            longest: VecDeque::new(),
        }
    }

    /// Another segment becomes the current one. The previous one has this
    /// length, in a file of this length.
    pub fn begin(&mut self, number: u32, previous_len: u64, file_len: u64) {
        if let Some(previous) = self.segments.back_mut() {
            previous.len = previous_len;
            previous.empty = file_len.saturating_sub(previous_len);
            self.closed += previous_len;
            self.empty += previous.empty;
            let grown_len = previous_len.max(HEADER_LEN + previous.live);
            let longest = &mut self.longest;
            while longest.back().is_some_and(|(_, len)| *len <= grown_len) {
                longest.pop_back();
            }
            longest.push_back((previous.number, grown_len));
        }
        self.segments.push_back(Segment {
            number,
            first: self.next_id,
            len: 0,
            empty: 0,
            live: 0,
            ids: VecDeque::new(),
        });
    }

    /// The oldest segment.
    pub fn oldest(&self) -> u32 {
        self.segments
            .front()
            .expect("there is always a segment")
            .number
    }

    /// The segment being written.
    pub fn current(&self) -> u32 {
        self.segments
            .back()
            .expect("there is always a segment")
            .number
    }

    /// One more than the highest id seen.
    pub fn next_id(&self) -> JobId {
        self.next_id
    }

    /// Notes that all ids below this one are taken.
    pub fn raise_next_id(&mut self, next_id: JobId) {
        self.next_id = self.next_id.max(next_id);
    }

    /// What the latest puts of live jobs take together at their longest, in
    /// bytes.
    pub fn live(&self) -> u64 {
        self.live
    }

    /// The same in the current segment.
    pub fn live_in_current(&self) -> u64 {
        let current = self.segments.back();
        current.expect("there is always a segment").live
    }

    /// The length of all segments but the current one together.
    pub fn closed(&self) -> u64 {
        self.closed
    }

    /// What is left empty at the ends of their files.
    pub fn empty(&self) -> u64 {
        self.empty
    }

    /// The length of the longest segment, or what lives in one if that may grow
    /// to be longer, not counting the current one.
    pub fn longest(&self) -> u64 {
        self.longest.front().map_or(0, |(_, len)| *len)
    }

    /// A job is put into the current segment for the first time, or what is left
    /// of it after its deletion.
    pub fn put(&mut self, id: JobId, len: u64) {
        if id >= self.next_id {
            self.next_id = JobId(id.0 + 1);
        } else {
            let number = self.current();
            self.moved.insert(id, number);
        }
        self.enter(id, len);
    }

    /// A live job is put again, into the current segment.
    pub fn moved(&mut self, id: JobId, len: u64) {
        self.leave(id, len);
        let number = self.current();
        self.moved.insert(id, number);
        self.enter(id, len);
    }

    /// A live job is deleted.
    pub fn delete(&mut self, id: JobId, len: u64) {
        self.leave(id, len);
        self.moved.remove(&id);
    }

    fn enter(&mut self, id: JobId, len: u64) {
        let current = self.segments.back_mut();
        let current = current.expect("there is always a segment");
        match current.ids.back_mut() {
            Some(run) if run.end == id.0 => run.end += 1,
            _ => current.ids.push_back(id.0..id.0 + 1),
        }
        current.live += len;
        self.live += len;
    }

    fn leave(&mut self, id: JobId, len: u64) {
        let index = self.index_of(id).expect("a live job is in a segment");
        let live = &mut self.segments[index].live;
        let left = live.checked_sub(len);
        *live = left.expect("a job that leaves was counted in its segment");
        self.live -= len;
    }

    /// The segment with the latest put of a job that lives.
    pub fn segment_of(&self, id: JobId) -> Option<u32> {
        Some(self.segments[self.index_of(id)?].number)
    }

    fn index_of(&self, id: JobId) -> Option<usize> {
        match self.moved.get(&id) {
            // Numbers have no gaps, because only the oldest segment is ever
            // removed.
            Some(number) => Some(usize::try_from(number - self.oldest()).ok()?),
            None => self
                .segments
                .partition_point(|segment| segment.first <= id)
                .checked_sub(1),
        }
    }

    /// Removes the oldest segment if no live job needs it. Never removes the
    /// current one.
    pub fn retire(&mut self) -> Option<u32> {
        if self.segments.len() == 1 || self.segments[0].live > 0 {
            return None;
        }
        let retired = self.segments.pop_front()?;
        self.closed -= retired.len;
        self.empty -= retired.empty;
        if self
            .longest
            .front()
            .is_some_and(|(number, _)| *number == retired.number)
        {
            self.longest.pop_front();
        }
        Some(retired.number)
    }

    /// The next job with its latest put in the oldest segment, to be moved out
    /// of it. (It may be deleted by now.) Each job is returned once.
    ///
    /// `None` if all were returned, or if the oldest segment is the current
    /// one.
    pub fn next_in_oldest(&mut self) -> Option<JobId> {
        if self.segments.len() == 1 {
            return None;
        }
        loop {
            let ids = &mut self.segments[0].ids;
            let Some(id) = ids.front_mut()?.next().map(JobId) else {
                ids.pop_front();
                continue;
            };
            if self.segment_of(id) == Some(self.oldest()) {
                return Some(id);
            }
        }
    }

    /// This job was not moved: it will be returned first, once more.
    pub fn take_back(&mut self, id: JobId) {
        self.segments[0].ids.push_front(id.0..id.0 + 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jobs_are_found_where_they_were_put_or_moved_to() {
        let mut ledger = Ledger::new(JobId(1));
        ledger.begin(1, 0, 0);
        (1..=3).for_each(|id| ledger.put(JobId(id), 10));
        ledger.begin(2, 30, 30);
        (4..=5).for_each(|id| ledger.put(JobId(id), 10));
        ledger.begin(3, 20, 20);
        ledger.moved(JobId(2), 10);
        ledger.put(JobId(6), 10);
        let segments = (1..=6).map(|id| ledger.segment_of(JobId(id)).unwrap());
        assert_eq!(segments.collect::<Vec<_>>(), [1, 3, 1, 2, 2, 3]);
        assert_eq!((ledger.live(), ledger.closed()), (60, 50));
    }

    #[test]
    fn the_oldest_segment_retires_when_its_jobs_are_moved_or_deleted() {
        let mut ledger = Ledger::new(JobId(1));
        ledger.begin(1, 0, 0);
        (1..=3).for_each(|id| ledger.put(JobId(id), 10));
        assert_eq!(ledger.next_in_oldest(), None); // the oldest is the current one
        ledger.begin(2, 80, 80);
        assert_eq!(ledger.longest(), 80);
        assert_eq!(ledger.retire(), None);
        ledger.delete(JobId(2), 10);
        let first = ledger.next_in_oldest().unwrap();
        ledger.take_back(first); // as if there were no room to move it
        assert_eq!(ledger.next_in_oldest(), Some(first));
        ledger.moved(first, 10);
        let mut rest: Vec<_> = std::iter::from_fn(|| ledger.next_in_oldest()).collect();
        rest.retain(|id| *id != JobId(2)); // deleted, which the ledger does not know
        assert_eq!((first, rest), (JobId(1), vec![JobId(3)]));
        ledger.moved(JobId(3), 10);
        assert_eq!(ledger.retire(), Some(1));
        assert_eq!(ledger.retire(), None);
        assert_eq!((ledger.live(), ledger.closed()), (20, 0));
        assert_eq!(ledger.longest(), 0);
    }

    #[test]
    fn a_segment_counts_with_what_its_jobs_may_grow_to() {
        let mut ledger = Ledger::new(JobId(1));
        ledger.begin(1, 0, 0);
        ledger.put(JobId(1), 100);
        assert_eq!(ledger.live_in_current(), 100);
        ledger.begin(2, HEADER_LEN + 60, HEADER_LEN + 60);
        assert_eq!(
            (ledger.closed(), ledger.longest()),
            (HEADER_LEN + 60, HEADER_LEN + 100)
        );
        assert_eq!(ledger.live_in_current(), 0);
    }

    /// If each looked at all others, this would take minutes.
    #[test]
    fn very_many_segments_retire_at_once() {
        const MANY: u32 = 300_000;
        let mut ledger = Ledger::new(JobId(1));
        ledger.begin(1, 0, 0);
        for number in 2..=MANY {
            ledger.begin(number, u64::from(number % 1000), u64::from(number % 1000));
        }
        assert_eq!(ledger.longest(), 999);
        let retired = std::iter::from_fn(|| ledger.retire()).count();
        assert_eq!(retired, MANY as usize - 1);
        assert_eq!((ledger.closed(), ledger.longest()), (0, 0));
    }

    #[test]
    fn an_id_out_of_order_is_found_too() {
        let mut ledger = Ledger::new(JobId(1));
        ledger.begin(1, 0, 0);
        ledger.put(JobId(9), 10);
        ledger.begin(2, 10, 10);
        ledger.put(JobId(3), 10);
        assert_eq!(ledger.segment_of(JobId(3)), Some(2));
        assert_eq!(ledger.next_id(), JobId(10));
    }
}
