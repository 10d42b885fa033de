//! The concurrency limit, `con`: how many jobs with a key may be reserved at a
//! time, in all tubes.
//!
//! A ready job with a limit is in a queue of its key: each key has one for each tube
//! that has jobs of the key. While the limit is not reached, the first job of
//! each of these is in the ready queue of its tube as well, among the jobs without
//! a limit. When the limit is reached, these first jobs move to those that are
//! passed over in their tubes; when it is no longer reached, they move back. So a
//! ready queue only ever has jobs that `reserve` may hand out. Such a change
//! costs a step for each tube in which the key has ready jobs, however many jobs
//! these are. So that it never costs much, the jobs of a key may be in a limited
//! number of tubes.

use crate::engine::job::{Job, QueueEntry};
use crate::engine::ready::ReadyQueue;
use crate::engine::slab::TubeIndex;
use crate::engine::tube::Tube;
use crate::engine::{Engine, JobId};
use crate::protocol::{Key, Limit, Priority};
use std::collections::BTreeMap;

/// In how many tubes there may be jobs with the same key. A put into one more is
/// refused.
const MAX_TUBES: usize = 1000;

/// All keys with a limit. A key is here as long as a job in any state has it.
pub type JobsByKey = BTreeMap<Key, JobsOfKey>;

/// The jobs of a key.
#[derive(Default)]
pub struct JobsOfKey {
    /// How many jobs name which limit. The largest counts.
    limits: BTreeMap<u32, usize>,
    /// How many of them are reserved.
    reserved: usize,
    /// Those in each tube that has some.
    queues: BTreeMap<TubeIndex, KeyQueue>,
}

/// The jobs of a key in a tube.
#[derive(Default)]
struct KeyQueue {
    /// How many there are, in any state.
    jobs: usize,
    ready: ReadyQueue,
}

impl JobsOfKey {
    /// Counts a job with this limit that has moved. It is new if it comes from nowhere, and
    /// deleted if it goes nowhere.
    pub fn count(&mut self, limit: &Limit, from: Option<QueueEntry>, to: Option<QueueEntry>) {
        match (from, to) {
            (None, Some(new)) => {
                *self.limits.entry(limit.most).or_default() += 1;
                self.queues.entry(new.tube).or_default().jobs += 1;
            }
            (Some(old), None) => {
                let jobs = self.limits.get_mut(&limit.most).expect("the job was there");
                *jobs -= 1;
                if *jobs == 0 {
                    self.limits.remove(&limit.most);
                }
                let queue = self.queues.get_mut(&old.tube).expect("the job was there");
                queue.jobs -= 1;
                if queue.jobs == 0 {
                    self.queues.remove(&old.tube);
                }
            }
            _ => {}
        }
        let is_reserved = |entry: Option<QueueEntry>| {
            usize::from(entry.is_some_and(|entry| entry.state.holder().is_some()))
        };
        self.reserved = self.reserved + is_reserved(to) - is_reserved(from);
    }

    /// Moves a job from the ready ones of its tube to the queue of the key.
    pub fn insert(&mut self, id: JobId, entry: QueueEntry, tube: &mut Tube) {
        tube.ready.remove(entry.priority, id);
        self.change(entry.tube, tube, |queue| queue.insert(entry.priority, id));
    }

    /// Undoes [`insert`](Self::insert): the job is among the ready ones of its tube, as if it
    /// had no limit.
    pub fn remove(&mut self, id: JobId, entry: QueueEntry, tube: &mut Tube) {
        self.change(entry.tube, tube, |queue| queue.remove(entry.priority, id));
        tube.ready.insert(entry.priority, id);
    }

    /// Changes the ready jobs in a tube that has jobs of the key, and has the first of them
    /// where it belongs in the tube.
    fn change(&mut self, index: TubeIndex, tube: &mut Tube, change: impl FnOnce(&mut ReadyQueue)) {
        let firsts = tube.firsts(self.is_at_limit());
        let queue = self.queues.get_mut(&index);
        let queue = &mut queue.expect("the tube has jobs of the key").ready;
        queue
            .first()
            .inspect(|&(priority, id)| firsts.remove(priority, id));
        change(queue);
        queue
            .first()
            .inspect(|&(priority, id)| firsts.insert(priority, id));
    }

    /// The first ready job in each tube.
    pub fn firsts(&self) -> impl Iterator<Item = (TubeIndex, Priority, JobId)> {
        let first = |(&tube, queue): (&TubeIndex, &KeyQueue)| {
            let (priority, id) = queue.ready.first()?;
            Some((tube, priority, id))
        };
        self.queues.iter().filter_map(first)
    }

    /// How many more of the jobs may be reserved now.
    pub fn free(&self) -> u64 {
        let most = self.limits.last_key_value().map_or(0, |(&most, _)| most);
        u64::from(most).saturating_sub(self.reserved as u64)
    }

    pub fn is_at_limit(&self) -> bool {
        self.free() == 0
    }

    pub fn is_empty(&self) -> bool {
        self.limits.is_empty()
    }
}

impl Engine {
    /// Whether a job with this limit may not be put into this tube, because jobs
    /// with its key are in very many others.
    pub(in crate::engine) fn is_spread_too_far(&self, limit: &Limit, tube: TubeIndex) -> bool {
        let jobs = self.keys.limited.get(&limit.key);
        jobs.is_some_and(|jobs| jobs.queues.len() >= MAX_TUBES && !jobs.queues.contains_key(&tube))
    }

    /// How many more jobs with the key of this one may be reserved now, or any number if it
    /// has no limit.
    pub(in crate::engine) fn places_free(&self, job: &Job) -> u64 {
        let limit = job.limit();
        limit.map_or(u64::MAX, |limit| self.keys.limited[&limit.key].free())
    }
}
