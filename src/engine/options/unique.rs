//! `idp`: which keys are taken, by jobs that are there and by jobs that were
//! deleted a while ago.
//!
//! What is left of a deleted job has the job's id until its key is free, also
//! in the binlog, where it takes the place of the job.

use super::OPTIONS_OVERHEAD;
use crate::engine::job::StoredOptions;
use crate::engine::slab::TubeIndex;
use crate::engine::{Change, Engine, Owner, StoredJob, StoredState, Time};
use crate::protocol::command::Put;
use crate::protocol::{Body, Counters, JobId, Key, Priority, Reply};
use crate::protocol::{PutOptions, Seconds, TubeName, Unique};
use std::collections::{BTreeMap, BTreeSet};

/// The keys that are taken.
#[derive(Default)]
pub struct UniqueKeys {
    /// The job that has the key of a tube. The tube is here by its name, since
    /// the key may be taken for longer than the tube exists.
    holders: BTreeMap<(TubeName, Key), JobId>,
    /// The keys of deleted jobs.
    of_deleted: BTreeMap<JobId, OfDeleted>,
    /// When these are free again.
    ends: BTreeSet<(Time, JobId)>,
    /// The lengths of these, in bytes.
    keys_len: u64,
}

/// The key of a deleted job.
struct OfDeleted {
    tube: TubeName,
    unique: Unique,
    until: Time,
}

impl UniqueKeys {
    pub fn memory(&self) -> u64 {
        self.of_deleted.len() as u64 * OPTIONS_OVERHEAD + self.keys_len
    }

    pub fn count_of_deleted(&self) -> usize {
        self.of_deleted.len()
    }

    pub fn holder(&self, tube: TubeName, key: Key) -> Option<JobId> {
        self.holders.get(&(tube, key)).copied()
    }

    /// From now on a job has this key.
    pub fn take(&mut self, tube: TubeName, key: Key, id: JobId) {
        self.holders.insert((tube, key), id);
    }

    /// The job no longer has this key.
    pub fn free(&mut self, tube: TubeName, key: Key, id: JobId) {
        let place = (tube, key);
        if self.holders.get(&place) == Some(&id) {
            self.holders.remove(&place);
        }
    }

    /// The job is deleted, and its key stays taken.
    pub fn keep_taken(&mut self, id: JobId, tube: TubeName, unique: Unique, until: Time) {
        self.take(tube.clone(), unique.key.clone(), id);
        self.keys_len += unique.key.as_str().len() as u64;
        self.ends.insert((until, id));
        let key = OfDeleted {
            tube,
            unique,
            until,
        };
        self.of_deleted.insert(id, key);
    }

    /// The key of a deleted job is free.
    fn forget(&mut self, id: JobId) -> Option<OfDeleted> {
        let key = self.of_deleted.remove(&id)?;
        self.keys_len -= key.unique.key.as_str().len() as u64;
        self.ends.remove(&(key.until, id));
        self.free(key.tube.clone(), key.unique.key.clone(), id);
        Some(key)
    }

    /// What is left of a deleted job, as a log must hold it.
    pub fn stored(&self, id: JobId) -> Option<StoredJob> {
        let key = self.of_deleted.get(&id)?;
        Some(StoredJob {
            id,
            tube: key.tube.clone(),
            body: Body::new(b""),
            priority: Priority(0),
            delay: Seconds(0),
            ttr: Seconds(1),
            created_at: Time::default(),
            state: StoredState::Deleted { until: key.until },
            counters: Counters::default(),
            options: Some(Box::new(StoredOptions::new(PutOptions {
                unique: Some(key.unique.clone()),
                ..PutOptions::NONE
            }))),
        })
    }

    /// Panics if the keys contradict each other, or the jobs that are there.
    pub fn check<'a>(&self, jobs: impl Iterator<Item = (&'a JobId, &'a Box<StoredOptions>)>) {
        let of_jobs = jobs.filter(|(_, stored)| stored.options.unique.is_some());
        assert_eq!(self.holders.len(), of_jobs.count() + self.of_deleted.len());
        assert_eq!(self.ends.len(), self.of_deleted.len());
        let len = |key: &OfDeleted| key.unique.key.as_str().len() as u64;
        assert_eq!(
            self.of_deleted.values().map(len).sum::<u64>(),
            self.keys_len
        );
        for (&id, key) in &self.of_deleted {
            assert!(self.ends.contains(&(key.until, id)));
            let holder = self.holder(key.tube.clone(), key.unique.key.clone());
            assert_eq!(holder, Some(id));
        }
    }
}

impl Engine {
    /// Whether the key of a put is taken.
    pub(in crate::engine) fn is_there(&self, put: &Put, tube: TubeIndex) -> bool {
        let unique = put.options.as_ref().and_then(|one| one.unique.as_ref());
        unique.is_some_and(|unique| {
            let tube = self.tubes[tube].name.clone();
            let holder = self.options.unique.holder(tube, unique.key.clone());
            holder.is_some()
        })
    }

    /// The reply to a put whose key is taken. If the put is more urgent than
    /// the job that has the key, that job becomes as urgent.
    pub(in crate::engine) fn inserted_before(
        &mut self,
        put: &Put,
        tube: TubeIndex,
        now: Time,
    ) -> Option<Reply> {
        let unique = put.options.as_ref()?.unique.as_ref()?;
        let tube = self.tubes[tube].name.clone();
        let id = self.options.unique.holder(tube, unique.key.clone())?;
        let Some(job) = self.jobs.get(id) else {
            return Some(Reply::InsertedBefore {
                id,
                state: None,
                priority: None,
            });
        };
        let (state, is_sooner) = (job.state, put.priority < job.priority);
        if is_sooner {
            let (tube, before) = (job.tube, job.priority);
            self.leave(id, tube, before);
            self.jobs[id].priority = put.priority;
            self.enter(id, tube, put.priority, state);
            self.record(Change::Update(id));
            self.serve(now);
        }
        Some(Reply::InsertedBefore {
            id,
            state: Some(state.name()),
            priority: is_sooner.then_some(put.priority),
        })
    }

    /// Frees the keys whose time is over.
    pub(in crate::engine) fn end_keys(&mut self, now: Time, left: &mut usize) {
        while *left > 0 {
            match self.options.unique.ends.first() {
                Some(&(until, id)) if until <= now => {
                    let key = self.options.unique.forget(id);
                    let key = key.expect("what ends is taken");
                    self.effects.steps += 1;
                    self.record(Change::Delete {
                        id,
                        tube_len: key.tube.as_str().len(),
                        body_len: 2,
                        keys_len: Some(key.unique.key.as_str().len()),
                    });
                }
                _ => break,
            }
            *left -= 1;
        }
    }

    pub(in crate::engine) fn set_keys_timer(&mut self) {
        let first = self.options.unique.ends.first();
        if let Some(&(due, _)) = first {
            self.wheel.set(Owner::Keys, &mut self.keys_timer, due);
        }
    }

    /// Brings back the key of a deleted job.
    pub(in crate::engine) fn restore_key(&mut self, stored: StoredJob, until: Time) {
        let unique = stored.options.and_then(|stored| stored.options.unique);
        if let Some(unique) = unique {
            self.options
                .unique
                .keep_taken(stored.id, stored.tube, unique, until);
            self.set_keys_timer();
        }
    }

    /// Undoes [`restore_key`](Self::restore_key).
    pub(in crate::engine) fn forget_key(&mut self, id: JobId) -> Option<StoredJob> {
        let stored = self.options.unique.stored(id)?;
        self.options.unique.forget(id);
        self.set_keys_timer();
        Some(stored)
    }
}
