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

use crate::engine::job::{Job, QueueEntry, State};
use crate::engine::ready::ReadyQueue;
use crate::engine::slab::TubeIndex;
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
    /// A job with this limit is in this tube.
    fn add(&mut self, tube: TubeIndex, limit: &Limit) {
        *self.limits.entry(limit.most).or_default() += 1;
        self.queues.entry(tube).or_default().jobs += 1;
    }

    /// Undoes [`add`](Self::add), when the job is deleted.
    fn remove(&mut self, tube: TubeIndex, limit: &Limit) {
        let jobs = self.limits.get_mut(&limit.most).expect("the job was there");
        *jobs -= 1;
        if *jobs == 0 {
            self.limits.remove(&limit.most);
        }
        let queue = self.queues.get_mut(&tube).expect("the job was there");
        queue.jobs -= 1;
        if queue.jobs == 0 {
            self.queues.remove(&tube);
        }
    }

    /// The ready jobs in a tube that has jobs of the key.
    fn ready(&mut self, tube: TubeIndex) -> &mut ReadyQueue {
        let queue = self.queues.get_mut(&tube);
        &mut queue.expect("the tube has jobs of the key").ready
    }

    /// The first ready job in each tube.
    fn firsts(&self) -> impl Iterator<Item = (TubeIndex, Priority, JobId)> {
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

    fn is_at_limit(&self) -> bool {
        self.free() == 0
    }
}

impl Engine {
    /// Whether a job with this limit may not be put into this tube, because jobs
    /// with its key are in very many others.
    pub(in crate::engine) fn is_spread_too_far(&self, limit: &Limit, tube: TubeIndex) -> bool {
        self.keys
            .limited
            .get(&limit.key)
            .is_some_and(|jobs| jobs.queues.len() >= MAX_TUBES && !jobs.queues.contains_key(&tube))
    }

    /// Whether this job cannot be reserved now because of its limit.
    pub(in crate::engine) fn is_at_limit(&self, id: JobId) -> bool {
        let limit = self.jobs.get(id).and_then(Job::limit);
        limit.is_some_and(|limit| self.keys.limited[&limit.key].is_at_limit())
    }

    /// Puts a ready job with a limit, which is in the queue of its key, among the ready jobs
    /// of its tube, as if it had no limit.
    pub(super) fn give_back(&mut self, key: &Key, id: JobId, entry: QueueEntry) {
        let QueueEntry { tube, priority, .. } = entry;
        let jobs = self
            .keys
            .limited
            .get_mut(key)
            .expect("the job has this key");
        let (there, is_at_limit) = (&mut self.tubes[tube], jobs.is_at_limit());
        let queue = jobs.ready(tube);
        let was_first = queue.first() == Some((priority, id));
        queue.remove(priority, id);
        let next = queue.first().filter(|_| was_first);
        if was_first && is_at_limit {
            there.passed_over.remove(priority, id);
        }
        if is_at_limit || !was_first {
            there.ready.insert(priority, id);
        }
        let firsts = there.firsts(is_at_limit);
        next.inspect(|&(priority, id)| firsts.insert(priority, id));
    }

    /// Notes that a job with a limit has moved. If it is ready, it is put into the queue of
    /// its key. If the limit is reached now, the first jobs of the key leave the ready
    /// queues; if it no longer is, they come back.
    pub(super) fn limit_job(
        &mut self,
        limit: &Limit,
        id: JobId,
        from: Option<QueueEntry>,
        to: Option<QueueEntry>,
    ) {
        let jobs = self.keys.limited.entry(limit.key.clone()).or_default();
        let was_at_limit = jobs.is_at_limit();
        match (from, to) {
            (None, Some(new)) => jobs.add(new.tube, limit),
            (Some(old), None) => jobs.remove(old.tube, limit),
            _ => {}
        }
        let is_reserved = |entry: Option<QueueEntry>| {
            usize::from(entry.is_some_and(|entry| entry.state.holder().is_some()))
        };
        jobs.reserved = jobs.reserved + is_reserved(to) - is_reserved(from);
        let is_at_limit = jobs.is_at_limit();
        if jobs.limits.is_empty() {
            self.keys.limited.remove(&limit.key);
            return;
        }
        if was_at_limit != is_at_limit {
            for (index, priority, id) in jobs.firsts() {
                self.effects.steps += 1;
                let tube = &mut self.tubes[index];
                let (from, to) = if is_at_limit {
                    (&mut tube.ready, &mut tube.passed_over)
                } else {
                    (&mut tube.passed_over, &mut tube.ready)
                };
                from.remove(priority, id);
                to.insert(priority, id);
                let first = tube.first_to_serve();
                self.waiting
                    .unserved
                    .extend(first.map(|(order, _)| (order, index)));
            }
        }
        if let Some(QueueEntry {
            state: State::Ready,
            tube,
            priority,
            ..
        }) = to
        {
            let (there, queue) = (&mut self.tubes[tube], jobs.ready(tube));
            let before = queue.first();
            queue.insert(priority, id);
            let is_first = queue.first() == Some((priority, id));
            if is_at_limit || !is_first {
                there.ready.remove(priority, id);
            }
            if is_first {
                let firsts = there.firsts(is_at_limit);
                before.inspect(|&(priority, id)| firsts.remove(priority, id));
                if is_at_limit {
                    firsts.insert(priority, id);
                }
            }
        }
    }
}
