//! What the three options after a put do: `idp`, `con` and `try`.
//!
//! All that is known of them stands in side tables, by the ids of the jobs. A
//! job without options is in none of them, and takes no memory here. The rest of
//! the engine asks the tables in few places:
//!
//! | When | What is asked or told |
//! |---|---|
//! | a body has come | is its job there already? `unique` |
//! | a job becomes ready, or leaves that state | to which queue does it belong? `limits` |
//! | a job becomes reserved, or leaves that state | is its key full now, or free again? `limits` |
//! | a reservation ends without a word | is this job to be buried? `tries` |
//! | a job is deleted | for how long is its key still taken? `unique` |

mod limits;
mod tries;
mod unique;

use super::job::{Job, State, StoredOptions};
use super::slab::TubeIndex;
use super::{Engine, StoredJob, Time};
use crate::protocol::{JobId, OptionStats, Priority, PutOptions};
use limits::Limits;
use std::collections::{BTreeMap, HashMap};
use unique::UniqueKeys;

/// What the options of a job take without the text of its keys, in bytes, as
/// `max_memory` counts it. A key that is taken after the delete of its job takes
/// as much.
const OPTIONS_OVERHEAD: u64 = 400;

/// What a key with a limit takes besides, in bytes, however many jobs have it.
const LIMIT_OVERHEAD: u64 = 1000;

/// What is known of jobs with options.
#[derive(Default)]
pub struct SideTables {
    jobs: BTreeMap<JobId, Box<StoredOptions>>,
    unique: UniqueKeys,
    limits: Limits,
    /// The lengths of the keys of all jobs, in bytes.
    keys_len: u64,
}

impl SideTables {
    /// What the tables take, in bytes, as `max_memory` counts it.
    pub fn memory(&self) -> u64 {
        let entries = self.jobs.len() as u64 * OPTIONS_OVERHEAD;
        let limits = self.limits.len() as u64 * LIMIT_OVERHEAD;
        entries + limits + self.keys_len + self.unique.memory()
    }

    /// What a job with these options takes in addition to its other memory.
    pub fn needed(&self, options: &PutOptions) -> u64 {
        let limit = options.limit.as_ref();
        let is_new = limit.is_some_and(|limit| !self.limits.has(&limit.key));
        OPTIONS_OVERHEAD + options.keys_len() as u64 + u64::from(is_new) * LIMIT_OVERHEAD
    }

    /// Whether a job with these options may not be put into this tube, because
    /// its limit is in very many tubes already.
    pub fn is_spread_too_far(&self, options: &PutOptions, tube: TubeIndex) -> bool {
        let limit = options.limit.as_ref();
        limit.is_some_and(|limit| self.limits.is_everywhere_but_in(tube, &limit.key))
    }

    pub fn of(&self, id: JobId) -> Option<&StoredOptions> {
        self.jobs.get(&id).map(|options| &**options)
    }

    /// What `stats-job` tells of the options of a job.
    pub fn stats(&self, id: JobId) -> Option<Box<OptionStats>> {
        let StoredOptions { options, silent } = self.of(id)?;
        let limit = options.limit.as_ref();
        Some(Box::new(OptionStats {
            options: options.clone(),
            free: limit.map_or(0, |limit| self.limits.free(&limit.key)),
            tries_left: options
                .tries
                .map_or(0, |tries| tries.saturating_sub(*silent)),
        }))
    }
}

impl Engine {
    /// Notes the options of a job that is in no collection yet.
    pub(super) fn attach(&mut self, id: JobId, tube: TubeIndex, mut stored: StoredOptions) {
        self.options.keys_len += stored.options.keys_len() as u64;
        if let Some(unique) = &stored.options.unique {
            let tube = self.tubes[tube].name.clone();
            self.options.unique.take(tube, unique.key.clone(), id);
        }
        let limit = stored.options.limit.as_mut().map(|limit| {
            self.options.limits.share(&mut limit.key);
            limit.clone()
        });
        self.options.jobs.insert(id, Box::new(stored));
        if let Some(limit) = limit {
            self.change_places(&limit.key, |places| places.add(tube, limit.most));
        }
    }

    /// Takes the options of a job that has left its collection. Its key is free.
    pub(super) fn detach(&mut self, id: JobId, job: &Job) -> Option<StoredOptions> {
        let stored = *self.options.jobs.remove(&id)?;
        self.options.keys_len -= stored.options.keys_len() as u64;
        if let Some(unique) = &stored.options.unique {
            let tube = self.tubes[job.tube].name.clone();
            self.options.unique.free(tube, unique.key.clone(), id);
        }
        if let Some(limit) = &stored.options.limit {
            let was_reserved = matches!(job.state, State::Reserved { .. });
            self.change_places(&limit.key, |places| {
                places.reserved -= usize::from(was_reserved);
                places.remove(job.tube, limit.most);
            });
        }
        Some(stored)
    }

    /// Takes the options of a job that is deleted, and keeps its key taken for as
    /// long as they say. Returns the lengths of its keys, if it has options.
    pub(super) fn end_options(&mut self, id: JobId, job: &Job, now: Time) -> Option<usize> {
        let options = self.detach(id, job)?.options;
        let keys_len = options.keys_len();
        if let Some(unique) = options.unique.filter(|unique| unique.taken_for.0 > 0) {
            let until = now + unique.taken_for;
            let tube = self.tubes[job.tube].name.clone();
            self.options.unique.keep_taken(id, tube, unique, until);
            self.set_keys_timer();
        }
        Some(keys_len)
    }

    /// What is left of a deleted job whose key is still taken.
    pub(super) fn stored_key(&self, id: JobId) -> Option<StoredJob> {
        self.options.unique.stored(id)
    }

    /// For tests: how many keys of deleted jobs are still taken.
    pub fn keys_of_deleted(&self) -> usize {
        self.options.unique.count_of_deleted()
    }

    /// The next ready job of a tube, whether or not its key is full.
    pub(super) fn next_ready(&self, tube: TubeIndex) -> Option<JobId> {
        let first: Option<(Priority, JobId)> = self.tubes[tube].ready.first();
        let full = self.options.limits.first_passed_over(tube);
        first.into_iter().chain(full).min().map(|(_, id)| id)
    }

    /// For tests: panics if the tables contradict the jobs. Returns how many
    /// ready jobs of each tube are not in its queue.
    pub(super) fn check_options(&self) -> HashMap<TubeIndex, usize> {
        let keys_len = self.options.jobs.values();
        let keys_len = keys_len.map(|stored| stored.options.keys_len() as u64);
        assert_eq!(keys_len.sum::<u64>(), self.options.keys_len);
        let mut limits = HashMap::new();
        for (&id, stored) in &self.options.jobs {
            let job = &self.jobs[id];
            if let Some(unique) = &stored.options.unique {
                let tube = self.tubes[job.tube].name.clone();
                let holder = self.options.unique.holder(tube, unique.key.clone());
                assert_eq!(holder, Some(id));
            }
            if let Some(limit) = &stored.options.limit {
                let entry: &mut Vec<_> = limits.entry(limit.key.clone()).or_default();
                entry.push((id, job, limit.most));
            }
        }
        self.options.unique.check(self.options.jobs.iter());
        self.options.limits.check(&self.tubes, limits)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::Config;
    use crate::engine::job::JOB_OVERHEAD;
    use crate::protocol::{Command, Framer, Request};

    #[test]
    fn a_job_takes_the_memory_that_its_put_needed() {
        let mut engine = Engine::new(Config::new(100), Time::default());
        let id = engine.connect();
        for options in [
            "",
            " try:3",
            " idp:key",
            " con:key",
            " con:key:2",
            " idp:another con:other:5 try:1",
        ] {
            let before = engine.memory();
            let mut needed = 2 + JOB_OVERHEAD;
            let text = format!("put 0 0 60 0{options}\r\n\r\n");
            let (mut framer, mut input) = (Framer::new(100), text.as_bytes());
            while let Some(request) = framer.next(&mut input) {
                if let Request::Command(Command::Put(put)) = &request
                    && let Some(options) = &put.options
                {
                    needed += engine.options.needed(options);
                }
                engine.execute(id, request, Time::default());
            }
            assert_eq!(engine.memory() - before, needed, "{options}");
        }
    }
}
