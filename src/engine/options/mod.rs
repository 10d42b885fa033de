//! What the options of a put do: `idp`, `con`, `try` and `exp`.
//!
//! A job without options has one empty field for them, and is in no table here.
//! The rest of the engine calls this at few points:
//!
//! | When | What is decided |
//! |---|---|
//! | a body has arrived | does its job exist already? `unique`; are jobs with its key in too many tubes? `concurrency` |
//! | a job with options moves: [`untie`](Engine::untie), [`tie`](Engine::tie) | may it be reserved, and may others with its key? `concurrency`; when is it deleted? `expiry`; is its key taken? `unique` |
//! | `reserve-job` | may it be reserved? `concurrency` |
//! | a reservation ends by the clock or with its connection | is this job to be buried? `tries` |
//! | a job is deleted | for how long is its key still taken? `unique` |
//! | a time is over | a job is deleted, or a key is free: [`expire`](Engine::expire) |

mod concurrency;
mod expiry;
mod tries;
mod unique;

use super::job::{QueueEntry, State};
use super::{Change, Engine, JobId, Owner};
use concurrency::JobsByKey;
use unique::UniqueKeys;

/// The keys of the options. Only this folder changes them.
#[derive(Default)]
pub struct Keys {
    pub limited: JobsByKey,
    pub unique: UniqueKeys,
}

impl Engine {
    /// Lets go of a job with options before it moves: `leave` finds it where it would be
    /// without them.
    // Neither this nor `tie` is inlined: each move of a job would take as much of the stack,
    // and pages of it that were touched stay with the thread.
    #[inline(never)]
    pub(super) fn untie(&mut self, id: JobId, from: Option<QueueEntry>) {
        let job = self.jobs.get(id).expect("the job exists");
        if let Some(at) = job.expires_unless_kicked() {
            self.timers.ends.remove(&(at, id));
        }
        if let (Some(limit), Some(from)) = (job.limit(), from)
            && from.state == State::Ready
        {
            let jobs = self.keys.limited.get_mut(&limit.key);
            let tube = &mut self.tubes[from.tube];
            jobs.expect("it has the job").remove(id, from, tube);
        }
    }

    /// Takes hold of a job with options that has moved: `enter` has put it where it would
    /// be without them. It is new if it comes from nowhere, and is deleted if it goes
    /// nowhere: then its key is free.
    #[inline(never)]
    pub(super) fn tie(&mut self, id: JobId, from: Option<QueueEntry>, to: Option<QueueEntry>) {
        let job = self.jobs.get(id).expect("the job exists");
        if let Some(unique) = job.unique() {
            let tube = &self.tubes[job.tube].name;
            match (from, to) {
                (None, _) => self.keys.unique.take(tube, unique, id),
                (_, None) => self.keys.unique.free(tube, unique, id),
                _ => {}
            }
        }
        if let Some(limit) = job.limit() {
            let limited = &mut self.keys.limited;
            let jobs = match from {
                None => limited.entry(limit.key.clone()).or_default(),
                Some(_) => limited.get_mut(&limit.key).expect("it has the job"),
            };
            let was_at_limit = jobs.is_at_limit();
            jobs.count(limit, from, to);
            // If the limit is reached now, the first jobs of the key leave the ready queues. If
            // it no longer is, they come back.
            let is_at_limit = jobs.is_at_limit();
            if was_at_limit != is_at_limit {
                for (index, priority, id) in jobs.firsts() {
                    self.effects.steps += 1;
                    let tube = &mut self.tubes[index];
                    tube.firsts(was_at_limit).remove(priority, id);
                    tube.firsts(is_at_limit).insert(priority, id);
                    self.waiting.note(index, tube);
                }
            }
            if let Some(to) = to
                && to.state == State::Ready
            {
                jobs.insert(id, to, &mut self.tubes[to.tube]);
            }
            if jobs.is_empty() {
                limited.remove(&limit.key);
            }
        }
        let may_expire = |to: QueueEntry| matches!(to.state, State::Ready | State::Delayed { .. });
        if let Some(at) = job.expires_at()
            && to.is_some_and(may_expire)
        {
            self.timers.ends.insert((at, id));
            self.set_timer(Owner::Ends);
        }
    }

    /// Deletes the jobs whose expiry is over, and frees the keys of deleted jobs whose time is
    /// over, until this many steps are done. [`serve`](Self::serve) begins with this, so that
    /// no connection that waits gets a job that is to be deleted.
    pub(super) fn expire(&mut self, most_steps: usize) {
        while self.effects.steps < most_steps
            && let Some(&(at, id)) = self.timers.ends.first()
            && at <= self.now
        {
            if let Some(stored) = self.forget_key(id) {
                self.effects.steps += 1;
                self.record(Change::Delete(id, stored.lengths()));
            } else {
                let job = self.jobs.get(id).expect("it has a tombstone, or exists");
                self.count(job.tube, |jobs| jobs.expired += 1);
                self.delete_job(id);
            }
        }
    }
}
