//! The delayed jobs of a tube, by the end of their delay.

use super::Time;
use crate::protocol::JobId;

/// How many children a node has: they fill four lines of the cache. More
/// children make fewer levels; on each level that a job passes, the new
/// position of another job must be noted.
const CHILDREN: usize = 16;

/// Delayed jobs in the order in which they become ready: by time, then by id.
///
/// A heap in one vector. It takes 16 bytes a job; an ordered map takes 38 in a
/// long queue. A heap alone cannot remove a job from its middle, so each job
/// knows its position. The caller passes a function, `moved`, which must note
/// every change of a position.
#[derive(Default)]
pub struct DelayQueue {
    /// No job comes before its parent. The parent of node n is node (n - 1) /
    /// 16.
    heap: Vec<(Time, JobId)>,
}

impl DelayQueue {
    pub fn len(&self) -> usize {
        self.heap.len()
    }

    /// The next to become ready.
    pub fn first(&self) -> Option<(Time, JobId)> {
        self.heap.first().copied()
    }

    pub fn insert(&mut self, until: Time, id: JobId, moved: impl FnMut(JobId, u32)) {
        self.heap.push((until, id));
        self.rise(self.heap.len() - 1, moved);
    }

    /// Removes the job at this position.
    pub fn remove(&mut self, position: u32, mut moved: impl FnMut(JobId, u32)) {
        let position = position as usize;
        self.heap.swap_remove(position);
        if position < self.heap.len() {
            let position = self.sink(position, &mut moved);
            self.rise(position, moved);
        }
        if self.heap.len() * 4 < self.heap.capacity() {
            self.heap.shrink_to(self.heap.len() * 2);
        }
    }

    /// Moves a job up until its parent does not come after it.
    fn rise(&mut self, mut position: usize, mut moved: impl FnMut(JobId, u32)) {
        let job = self.heap[position];
        while position > 0 {
            let parent = (position - 1) / CHILDREN;
            if self.heap[parent] <= job {
                break;
            }
            self.put(position, self.heap[parent], &mut moved);
            position = parent;
        }
        self.put(position, job, &mut moved);
    }

    /// Moves a job down until no child comes before it. Returns its new
    /// position.
    fn sink(&mut self, mut position: usize, moved: &mut impl FnMut(JobId, u32)) -> usize {
        let job = self.heap[position];
        loop {
            let from = position * CHILDREN + 1;
            let to = (from + CHILDREN).min(self.heap.len());
            let first = (from..to).min_by_key(|&child| self.heap[child]);
            match first.filter(|&child| self.heap[child] < job) {
                Some(child) => self.put(position, self.heap[child], moved),
                None => break,
            }
            position = first.expect("it was there");
        }
        self.heap[position] = job;
        position
    }

    fn put(&mut self, position: usize, job: (Time, JobId), moved: &mut impl FnMut(JobId, u32)) {
        self.heap[position] = job;
        let position = u32::try_from(position).expect("fewer than 2^32 jobs are delayed");
        moved(job.1, position);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::{BTreeSet, HashMap};

    #[test]
    fn any_job_can_be_taken_out_and_the_first_is_always_known() {
        let mut queue = DelayQueue::default();
        let mut positions = HashMap::new();
        let mut model = BTreeSet::new();
        let mut random = 7_u64;
        for id in (0..3000).map(JobId) {
            random = random.wrapping_mul(6364136223846793005).wrapping_add(1);
            let until = Time::from_nanos(random >> 54);
            queue.insert(until, id, |id, at| {
                positions.insert(id, at);
            });
            model.insert((until, id));
            if id.0 % 3 == 2 {
                let gone = *model.iter().nth(random as usize % model.len()).unwrap();
                model.remove(&gone);
                let position = positions.remove(&gone.1).unwrap();
                queue.remove(position, |id, at| {
                    positions.insert(id, at);
                });
            }
            assert_eq!(queue.first(), model.first().copied());
            assert_eq!(queue.len(), model.len());
        }
        while let Some((_, id)) = queue.first() {
            assert_eq!(queue.first(), model.pop_first());
            let position = positions.remove(&id).unwrap();
            queue.remove(position, |id, at| {
                positions.insert(id, at);
            });
        }
        assert!(model.is_empty() && positions.is_empty());
    }

    #[test]
    fn when_most_jobs_are_gone_their_memory_is_given_back() {
        let mut queue = DelayQueue::default();
        for id in 0..64 {
            queue.insert(Time::default(), JobId(id), |_, _| ());
        }
        let mut capacity_at = |len| {
            while queue.len() > len {
                queue.remove(0, |_, _| ());
            }
            queue.heap.capacity()
        };
        assert_eq!((capacity_at(16), capacity_at(15)), (64, 30));
    }
}
