//! What the options of a put do: `idp`, `con`, `try` and `exp`.
//!
//! A job without options has one empty field for them, and is in no table here.
//! The rest of the engine calls this at few points:
//!
//! | When | What is decided |
//! |---|---|
//! | a body has arrived | does its job exist already? `unique` |
//! | a job becomes ready, or leaves that state | to which queue does it belong? `concurrency` |
//! | a job becomes reserved, or leaves that state | is the limit of its key reached now, or no longer? `concurrency` |
//! | a reservation ends by the clock or with its connection | is this job to be buried? `tries` |
//! | a job is deleted | for how long is its key still taken? `unique` |
//! | a job becomes ready or delayed, or leaves that state | when is it deleted? `expiry` |
//! | a time is over | a job is deleted, or a key is free: [`end`](Engine::end) |

mod concurrency;
mod expiry;
mod tries;
mod unique;

use super::job::Job;
use super::stats::seconds;
use super::{Change, Engine, JobId, Time};
use crate::protocol::OptionStats;
pub use concurrency::JobsByKey;
pub use unique::UniqueKeys;

/// What a key with a limit takes in addition, in bytes, however many jobs have it.
pub const LIMIT_OVERHEAD: u64 = 1000;

impl Engine {
    /// Notes the options of a job that is in no collection yet.
    pub(super) fn attach(&mut self, id: JobId, job: &mut Job) {
        let details = job.details.as_mut();
        let Some(options) = details.and_then(|details| details.options.as_mut()) else {
            return;
        };
        if let Some(unique) = &options.unique {
            self.unique.take(&self.tubes[job.tube].name, unique, id);
        }
        if let Some(limit) = &mut options.limit {
            // All jobs with the same key share its text.
            if let Some((known, _)) = self.jobs_by_key.get_key_value(&limit.key) {
                limit.key = known.clone();
            }
            self.change_jobs_of_key(&limit.key, |jobs| jobs.add(job.tube, limit));
        }
    }

    /// Forgets the options of a job that has left its collection. Its key is free.
    pub(super) fn detach(&mut self, id: JobId, job: &Job) {
        if let Some(unique) = job.unique() {
            self.unique.free(&self.tubes[job.tube].name, unique, id);
        }
        if let Some(limit) = job.limit() {
            self.change_jobs_of_key(&limit.key, |jobs| {
                jobs.reserved -= usize::from(job.state.holder().is_some());
                jobs.remove(job.tube, limit);
            });
        }
    }

    /// Ends what the clock ends, until this many steps are done: a job expires, or the key
    /// of a deleted one is free. No job is given to a connection that waits before it is
    /// sure that nothing else has to be deleted.
    pub(super) fn end(&mut self, now: Time, most_steps: usize) {
        while self.effects.steps < most_steps
            && let Some(&(at, id)) = self.ends.first()
            && at <= now
        {
            if let Some(stored) = self.forget_key(id) {
                self.effects.steps += 1;
                self.record(Change::Delete(id, stored.lengths()));
            } else {
                let job = self.jobs.get(id).expect("it has a tombstone, or exists");
                self.tubes[job.tube].expired += 1;
                self.totals.expired += 1;
                self.delete_job(id, now);
            }
        }
    }

    /// What `stats-job` shows of the options of a job.
    pub(super) fn option_stats(&self, job: &Job, now: Time) -> Option<Box<OptionStats>> {
        let details = job.details.as_deref()?;
        let options = details.options.as_deref()?;
        let tries = options.tries.unwrap_or(0);
        Some(Box::new(OptionStats {
            options: options.clone(),
            free: job
                .limit()
                .map_or(0, |limit| self.jobs_by_key[&limit.key].free()),
            tries_left: tries.saturating_sub(details.failed_tries),
            expires_in: job.expires_at().map(|at| seconds(at.since(now))),
        }))
    }
}

#[cfg(test)]
mod tests {
    use crate::engine::jobs::PAGE_OVERHEAD;
    use crate::engine::{Config, Engine, Time};
    use crate::protocol::{Command, Framer, Request};

    #[test]
    fn a_job_takes_the_memory_that_its_put_needed() {
        let mut engine = Engine::new(Config::new(100), Time::default());
        let id = engine.connect();
        let mut needed = PAGE_OVERHEAD;
        for options in [
            "",
            " try:3",
            " idp:key",
            " con:key",
            " con:key:2",
            " idp:another con:other:5 try:1",
        ] {
            let text = format!("put 0 0 60 0{options}\r\n\r\n");
            let (mut framer, mut input) = (Framer::new(100), text.as_bytes());
            while let Some(request) = framer.next(&mut input) {
                if let Request::Command(_, Command::Put(put)) = &request {
                    needed += engine.needed_for(put);
                }
                engine.execute(id, request, Time::default());
            }
            assert_eq!(engine.memory(), needed, "{options}");
        }
    }
}
