//! The unique key, `idp`: which keys are taken, by jobs that exist and by deleted
//! jobs whose keys are not free yet.
//!
//! A tombstone has the id of its deleted job until the key is free. In the binlog it
//! replaces the job.

use crate::engine::job::{Job, JobFields};
use crate::engine::slab::TubeIndex;
use crate::engine::{Change, Engine, Owner, StoredJob, StoredState, memory};
use crate::protocol::{Body, JobId, Key, Priority, PutOptions, Reply, Seconds, TubeName, Unique};
use std::collections::BTreeMap;

/// The keys that are taken.
#[derive(Default)]
pub struct UniqueKeys {
    /// The job that has the key of a tube. The tube is here by its name, since
    /// the key may be taken for longer than the tube exists.
    holders: BTreeMap<(TubeName, Key), JobId>,
    /// What they take, in bytes.
    pub memory: u64,
    /// The tombstones of deleted jobs, as the log must hold them.
    pub tombstones: BTreeMap<JobId, Box<StoredJob>>,
}

impl UniqueKeys {
    /// From now on a job has this key.
    pub fn take(&mut self, tube: &TubeName, unique: &Unique, id: JobId) {
        let name = (tube.clone(), unique.key.clone());
        if self.holders.insert(name, id).is_none() {
            self.memory += memory::of_key(tube, unique);
        }
    }

    /// The job no longer has this key.
    pub fn free(&mut self, tube: &TubeName, unique: &Unique, id: JobId) {
        let name = (tube.clone(), unique.key.clone());
        if self.holders.get(&name) == Some(&id) {
            self.holders.remove(&name);
            self.memory -= memory::of_key(tube, unique);
        }
    }
}

impl Engine {
    /// Leaves a tombstone of a job that is deleted, for as long as its key stays taken.
    pub(in crate::engine) fn leave_tombstone(&mut self, id: JobId, job: &Job) {
        if let Some(unique) = job.unique()
            && unique.taken_for > Seconds(0)
        {
            self.restore_tombstone(StoredJob {
                fields: JobFields {
                    id,
                    ttr: Seconds(1),
                    state: StoredState::Deleted {
                        until: self.now + unique.taken_for,
                    },
                    ..JobFields::default()
                },
                tube: self.tubes[job.tube].name.clone(),
                options: Some(Box::new(PutOptions {
                    unique: Some(unique.clone()),
                    ..PutOptions::default()
                })),
                body: Body::new(b""),
            });
        }
    }

    /// Takes the key of a deleted job again.
    pub(in crate::engine) fn restore_tombstone(&mut self, stored: StoredJob) {
        if let Some((unique, until)) = stored.taken_key() {
            let id = stored.fields.id;
            self.keys.unique.take(&stored.tube, unique, id);
            self.memory += memory::of_key(&stored.tube, unique);
            self.timers.ends.insert((until, id));
            self.keys.unique.tombstones.insert(id, Box::new(stored));
            self.set_timer(Owner::Ends);
        }
    }

    /// Undoes [`restore_tombstone`](Self::restore_tombstone): the key is free.
    pub(in crate::engine) fn forget_key(&mut self, id: JobId) -> Option<StoredJob> {
        let stored = *self.keys.unique.tombstones.remove(&id)?;
        let (unique, until) = stored.taken_key()?;
        self.memory -= memory::of_key(&stored.tube, unique);
        self.timers.ends.remove(&(until, id));
        self.keys.unique.free(&stored.tube, unique, id);
        Some(stored)
    }

    /// The job that has this key of a tube, or had it before it was deleted.
    pub(in crate::engine) fn holder(&self, unique: &Unique, tube: TubeIndex) -> Option<JobId> {
        let name = (self.tubes[tube].name.clone(), unique.key.clone());
        self.keys.unique.holders.get(&name).copied()
    }

    /// Whether there is room for the key of a put, which is not taken. All keys together may take
    /// a quarter of the memory, since those of deleted jobs may stay taken for a year. The
    /// put is refused because a delete never is.
    pub(in crate::engine) fn has_room_for_key(&self, unique: &Unique, tube: TubeIndex) -> bool {
        let needed = memory::of_key(&self.tubes[tube].name, unique);
        let most = self.config.max_memory.unwrap_or(u64::MAX) / 4;
        self.keys.unique.memory + needed <= most
    }

    /// The reply to a put whose key this job has. If the put is more urgent, the job
    /// becomes as urgent.
    pub(in crate::engine) fn inserted_before(&mut self, id: JobId, priority: Priority) -> Reply {
        let Some(job) = self.jobs.get_mut(id) else {
            return Reply::InsertedBefore(id, None, None);
        };
        let before = job.queue_entry();
        let is_sooner = priority < job.priority;
        if is_sooner {
            job.priority = priority;
            let after = job.queue_entry();
            self.move_job(id, Some(before), Some(after));
            self.record(Change::Update(id));
        }
        let state = before.state.name();
        Reply::InsertedBefore(id, Some(state), is_sooner.then_some(priority))
    }
}
