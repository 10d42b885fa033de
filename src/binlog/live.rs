//! The live bytes of each segment: what is needed of it, and which live jobs to move next.

use super::format::{HEADER_LEN, Header, pause_len};
use crate::protocol::{JobId, TubeName};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Range;

/// The live bytes of each segment: the live jobs whose latest put is there, and how
/// many bytes these puts take at their longest. Compact in memory: jobs that were put
/// one after the other and never moved need no entry of their own.
#[derive(Default)]
pub(super) struct LiveBytes {
    /// The segments in use, oldest first; the last one is being written.
    segments: VecDeque<Segment>,
    /// The segments of the jobs that were moved by compaction. Any other job is in the
    /// last segment whose `first_id` is not higher than its id. (A job that was put after
    /// one with a higher id is here, too, and a tombstone.)
    moved: BTreeMap<JobId, u32>,
    /// One more than the highest id seen.
    pub next_id: JobId,
    /// What the latest puts of live jobs take together at their longest.
    pub total: u64,
    /// How many bytes of records and headers there are, and how long the files are.
    pub used_bytes: u64,
    pub file_bytes: u64,
}

/// A segment in use.
pub(super) struct Segment {
    pub number: u32,
    /// The lowest id that a job can have which was put here first. (New jobs have
    /// increasing ids.)
    first_id: JobId,
    /// How many bytes of records and header it has, and how long its file is.
    pub used_bytes: u64,
    pub file_bytes: u64,
    /// What the latest puts of live jobs in this segment take at their longest.
    live_bytes: u64,
    /// The jobs that were put here, in that order, without those that
    /// [`next_in_oldest`](LiveBytes::next_in_oldest) has returned. Jobs that were put
    /// one after the other usually have consecutive ids, and each run of these takes
    /// 16 bytes.
    ids: VecDeque<Range<u64>>,
    /// The tubes that are paused, as a record here says that is their latest.
    paused: BTreeSet<TubeName>,
}

impl Segment {
    /// Its length, or what its live jobs take at their longest, if that is more.
    pub fn longest(&self) -> u64 {
        self.used_bytes.max(HEADER_LEN + self.live_bytes)
    }
}

const HAS_SEGMENT: &str = "there is always a segment";

impl LiveBytes {
    /// Nothing. Call [`begin`](Self::begin) first.
    pub fn new(next_id: JobId) -> LiveBytes {
        LiveBytes {
            next_id,
            ..LiveBytes::default()
        }
    }

    /// Another segment becomes the current one, in a file of this length. It has a header.
    pub fn begin(&mut self, number: u32, file_len: u64) {
        self.segments.push_back(Segment {
            number,
            first_id: self.next_id,
            used_bytes: 0,
            file_bytes: file_len,
            live_bytes: 0,
            ids: VecDeque::new(),
            paused: BTreeSet::new(),
        });
        self.file_bytes += file_len;
        self.append(HEADER_LEN);
    }

    /// The header of the current segment, as it is when that begins, without a salt.
    pub fn header(&self, previous_end: u64) -> Header {
        Header {
            number: self.current(),
            oldest: self.oldest(),
            previous_end,
            next_id: self.next_id,
            salt: 0,
        }
    }

    /// The current segment has this many bytes more, and so has its file where they do
    /// not fit.
    pub fn append(&mut self, len: u64) {
        let newest = self.newest_mut();
        newest.used_bytes += len;
        let grown = newest.used_bytes.saturating_sub(newest.file_bytes);
        newest.file_bytes += grown;
        self.file_bytes += grown;
        self.used_bytes += len;
    }

    /// The file of the current segment is cut to this length. It has no records there.
    pub fn cut(&mut self, len: u64) {
        let file_bytes = std::mem::replace(&mut self.newest_mut().file_bytes, len);
        self.file_bytes -= file_bytes - len;
    }

    /// The oldest segment.
    pub fn oldest(&self) -> u32 {
        self.segments.front().expect(HAS_SEGMENT).number
    }

    /// The segment being written.
    pub fn current(&self) -> u32 {
        self.newest().number
    }

    /// How long a segment must be so that the live jobs of any one of these fit into it.
    pub fn most_in_a_segment(&self) -> u64 {
        let lens = self.segments.iter().map(|segment| segment.live_bytes);
        HEADER_LEN + lens.max().expect(HAS_SEGMENT)
    }

    pub fn newest(&self) -> &Segment {
        self.segments.back().expect(HAS_SEGMENT)
    }

    fn newest_mut(&mut self) -> &mut Segment {
        self.segments.back_mut().expect(HAS_SEGMENT)
    }

    /// A job, or the tombstone of one, is put into the current segment for the first
    /// time.
    pub fn put(&mut self, id: JobId, len: u64) {
        if id >= self.next_id {
            self.next_id = JobId(id.0 + 1);
        } else {
            self.moved.insert(id, self.current());
        }
        let current = self.newest_mut();
        match current.ids.back_mut() {
            Some(run) if run.end == id.0 => run.end += 1,
            _ => current.ids.push_back(id.0..id.0 + 1),
        }
        current.live_bytes += len;
        self.total += len;
    }

    /// A live job is deleted.
    pub fn delete(&mut self, id: JobId, len: u64) {
        let index = self.index_of(id).expect("a live job is in a segment");
        let live = &mut self.segments[index].live_bytes;
        let left = live.checked_sub(len);
        *live = left.expect("a job that leaves was counted in its segment");
        self.total -= len;
        self.moved.remove(&id);
    }

    /// A pause is recorded in the current segment.
    pub fn pause(&mut self, tube: TubeName) {
        self.resume(&tube);
        let (current, len) = (self.newest_mut(), pause_len(&tube));
        current.live_bytes += len;
        current.paused.insert(tube);
        self.total += len;
    }

    /// The latest record of a pause is not needed any more. Returns its length, or 0 if
    /// there was none.
    pub fn resume(&mut self, tube: &TubeName) -> u64 {
        // Few tubes are paused, and most segments have none of them.
        let mut segments = self.segments.iter_mut();
        let Some(segment) = segments.find(|segment| segment.paused.contains(tube)) else {
            return 0;
        };
        segment.paused.remove(tube);
        let len = pause_len(tube);
        segment.live_bytes -= len;
        self.total -= len;
        len
    }

    /// A tube whose latest pause is in the oldest segment; `None` as for
    /// [`next_in_oldest`](Self::next_in_oldest). It is returned until it is recorded again.
    pub fn paused_in_oldest(&self) -> Option<TubeName> {
        let oldest = self.segments.front().filter(|_| self.segments.len() > 1);
        oldest?.paused.first().cloned()
    }

    /// The segment with the latest put of a live job.
    pub fn segment_of(&self, id: JobId) -> Option<u32> {
        Some(self.segments[self.index_of(id)?].number)
    }

    fn index_of(&self, id: JobId) -> Option<usize> {
        match self.moved.get(&id) {
            // Numbers have no gaps, because only the oldest segment is ever removed.
            Some(number) => Some(usize::try_from(number - self.oldest()).ok()?),
            None => self
                .segments
                .partition_point(|segment| segment.first_id <= id)
                .checked_sub(1),
        }
    }

    /// Removes the oldest segments as long as no live job needs them, and returns their
    /// numbers. Never removes the current one.
    pub fn pop_obsolete(&mut self) -> Range<u32> {
        let first = self.oldest();
        while self.segments.len() > 1 && self.segments[0].live_bytes == 0 {
            let oldest = self.segments.pop_front().expect(HAS_SEGMENT);
            self.used_bytes -= oldest.used_bytes;
            self.file_bytes -= oldest.file_bytes;
        }
        first..self.oldest()
    }

    /// The next job with its latest put in the oldest segment, for compaction. (It may
    /// be deleted by now.) Each put is returned once.
    ///
    /// `None` if all were returned, or if the oldest segment is the current one.
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

    /// As if the current segment had this length.
    #[cfg(test)]
    pub fn fill(&mut self, len: u64) {
        let used = &mut self.segments.back_mut().expect(HAS_SEGMENT).used_bytes;
        self.used_bytes = self.used_bytes + len - *used;
        *used = len;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As compaction does.
    fn move_job(live: &mut LiveBytes, id: JobId, len: u64) {
        live.delete(id, len);
        live.put(id, len);
    }

    #[test]
    fn jobs_are_found_where_they_were_put_or_moved_to() {
        let mut live = LiveBytes::new(JobId(1));
        live.begin(1, 0);
        (1..=3).for_each(|id| live.put(JobId(id), 10));
        live.fill(100);
        live.begin(2, 0);
        (4..=5).for_each(|id| live.put(JobId(id), 10));
        live.fill(90);
        live.begin(3, 0);
        move_job(&mut live, JobId(2), 10);
        live.put(JobId(6), 10);
        let segments = (1..=6).map(|id| live.segment_of(JobId(id)).unwrap());
        assert_eq!(segments.collect::<Vec<_>>(), [1, 3, 1, 2, 2, 3]);
        assert_eq!((live.total, live.used_bytes), (60, 190 + HEADER_LEN));
    }

    #[test]
    fn the_oldest_segment_is_obsolete_when_its_jobs_are_moved_or_deleted() {
        let mut live = LiveBytes::new(JobId(1));
        live.begin(1, 0);
        (1..=3).for_each(|id| live.put(JobId(id), 10));
        assert_eq!(live.next_in_oldest(), None); // the oldest is the current one
        live.fill(80);
        live.begin(2, 0);
        assert_eq!(live.most_in_a_segment(), HEADER_LEN + 30);
        assert_eq!(live.pop_obsolete(), 1..1);
        live.delete(JobId(2), 10);
        let first = live.next_in_oldest().unwrap();
        live.take_back(first); // as if there were no room to move it
        assert_eq!(live.next_in_oldest(), Some(first));
        move_job(&mut live, first, 10);
        let mut rest: Vec<_> = std::iter::from_fn(|| live.next_in_oldest()).collect();
        rest.retain(|id| *id != JobId(2)); // deleted, which is not known here
        assert_eq!((first, rest), (JobId(1), vec![JobId(3)]));
        move_job(&mut live, JobId(3), 10);
        assert_eq!(live.pop_obsolete(), 1..2);
        assert_eq!(live.pop_obsolete(), 2..2);
        assert_eq!((live.total, live.used_bytes), (20, HEADER_LEN));
        assert_eq!(live.most_in_a_segment(), HEADER_LEN + 20);
    }

    #[test]
    fn a_segment_counts_with_its_live_jobs_at_their_longest() {
        let mut live = LiveBytes::new(JobId(1));
        live.begin(1, 0);
        live.put(JobId(1), 100);
        live.append(60);
        assert_eq!(live.newest().longest(), HEADER_LEN + 100);
        live.append(60);
        assert_eq!(live.newest().longest(), HEADER_LEN + 120);
    }

    #[test]
    fn a_job_whose_id_comes_out_of_order_is_found() {
        let mut live = LiveBytes::new(JobId(1));
        live.begin(1, 0);
        live.put(JobId(9), 10);
        live.begin(2, 0);
        live.put(JobId(3), 10);
        assert_eq!(live.segment_of(JobId(3)), Some(2));
        assert_eq!(live.next_id, JobId(10));
    }
}
