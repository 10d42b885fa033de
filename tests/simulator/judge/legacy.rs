//! What a process leaves on the disk, and what the next one must find there.

use super::Judge;
use crate::engine::{StoredJob, StoredPause, StoredState, Time};
use crate::protocol::{JobId, TubeName};
use crate::simulator::history::{Held, History, Jobs};
use crate::simulator::world;
use std::time::Duration;

/// When a change survives a power cut: never for certain, some time after it was
/// made, or always once it is acknowledged.
pub enum Degree {
    Never,
    After(Duration),
    Always,
}

/// After this time all is written, whatever the options say, and a little.
pub const WRITTEN_WITHIN: Duration = Duration::from_millis(60);

/// What the next process must find.
pub struct Legacy {
    pub(super) history: History,
    /// What a power cut may not undo.
    durable: usize,
    ended_at: u64,
    knows_times: bool,
    pub has_started: bool,
    /// A power cut, or a sync that failed, may have left a part of a write.
    may_be_torn: bool,
    /// A sync failed once. Then the zeros in a prepared segment may be in the cache
    /// alone, and where a segment begins in it, what was there before may come back one
    /// day.
    has_lost_sync: bool,
}

impl Legacy {
    pub fn none() -> Legacy {
        Legacy {
            history: History::new(Jobs::new(), 1),
            durable: 0,
            ended_at: 0,
            knows_times: true,
            has_started: false,
            may_be_torn: false,
            has_lost_sync: false,
        }
    }

    /// The next process has found this, and begins.
    pub(super) fn begin(&mut self, held: &Held, next_id: JobId) {
        self.check(held, next_id);
        *self = Legacy {
            history: History::new(held.clone(), next_id.0),
            durable: 0,
            has_started: true,
            may_be_torn: false,
            ..*self
        };
    }

    /// What it leaves after all that the judge has seen of it.
    pub(super) fn after(
        self,
        judge: Judge,
        degree: &Degree,
        is_closed: bool,
        has_failed: bool,
    ) -> Legacy {
        let mut history = judge.history;
        for caller in &judge.callers {
            history.required = history.required.max(caller.told(has_failed));
        }
        let ended_at = judge.ended_at.expect("it has ended");
        // The next one finds what was there when it took the lock.
        let left_at = judge.replaced_at.unwrap_or(ended_at);
        let in_time = |span: Duration| {
            let latest = left_at.saturating_sub(span.as_nanos() as u64);
            judge.times.iter().filter(|time| **time < latest).count()
        };
        // What no client waits for is written soon, too.
        let written = match degree {
            Degree::After(span) => *span,
            Degree::Always | Degree::Never => WRITTEN_WITHIN,
        };
        let has_broken = has_failed && world::has_broken();
        if !has_broken {
            history.required = history.required.max(in_time(written));
        }
        let durable = match degree {
            _ if is_closed => history.len(),
            Degree::Always => history.required,
            Degree::After(_) | Degree::Never if has_broken => 0,
            Degree::After(span) => in_time(*span),
            Degree::Never => 0,
        };
        if is_closed {
            history.required = history.len();
        } else if world::has_lost_sync() {
            // What is only in the cache may be lost at any time.
            history.required = history.required.min(durable);
        }
        Legacy {
            history,
            durable,
            ended_at,
            // If it stalled between reading its two clocks, it believed that one had been
            // set. If no job and no pause is left, no earlier time matters.
            knows_times: self.knows_times && !world::stalled_after(0)
                || is_closed && judge.held.jobs.is_empty() && judge.held.pauses.is_empty(),
            may_be_torn: world::has_lost_sync(),
            has_lost_sync: self.has_lost_sync || world::has_lost_sync(),
            ..self
        }
    }

    /// The power is cut.
    pub fn lose(&mut self) {
        self.history.required = self.durable;
        self.may_be_torn = true;
    }

    /// The process ends before it serves anybody. On shared storage the next one reads
    /// nothing from its cache, and what a failed sync has left there alone is lost.
    pub fn end_early(mut self, is_shared: bool) -> Legacy {
        let has_lost_sync = world::has_lost_sync();
        self.has_lost_sync |= has_lost_sync;
        if is_shared && has_lost_sync {
            self.history.required = self.history.required.min(self.durable);
        }
        self
    }

    /// Whether what this history has done to the disk explains a notice at a start.
    pub fn expects(&self, notice: &str) -> bool {
        let is_torn = notice.contains("torn tail");
        let is_struck = world::is_struck() || world::is_limited();
        if is_torn {
            self.may_be_torn || self.has_lost_sync
        } else if notice.starts_with("removed segment.") {
            true
        } else {
            is_struck
        }
    }

    /// The clock shows this when the next process starts.
    pub fn restart_at(&mut self, time: u64) {
        self.knows_times &= time >= self.ended_at;
    }

    fn check(&self, held: &Held, next_id: JobId) {
        let jobs = &held.jobs;
        let least = self.history.least_next_id();
        assert!(next_id.0 >= least, "id {next_id} comes again");
        let all_settled = |jobs: &Jobs| {
            let now = Time::from_nanos(self.ended_at);
            let settle = |job: &StoredJob| {
                let job = settled(job.clone(), now);
                if self.knows_times { job } else { timeless(job) }
            };
            jobs.values().map(settle).collect::<Vec<_>>()
        };
        let found = all_settled(jobs);
        let are_same = |told: &[StoredJob], later: &[StoredJob]| {
            let is_later = |job: &StoredJob| later.iter().any(|told| is_same(job, told));
            let mut pairs = found.iter().zip(told);
            found.len() == told.len()
                && pairs.all(|(job, told)| {
                    is_same(job, told) || job.fields.id == told.fields.id && is_later(job)
                })
        };
        let pauses = self.pauses(held);
        let explained = self.history.explains_if(|told, later| {
            are_same(&all_settled(&told.jobs), &all_settled(&later.jobs))
                && pauses == self.pauses(told)
        });
        assert!(
            explained.is_some(),
            "at no moment after what was told were the jobs and pauses as they are: found {:?} and \
             {pauses:?}, told {} of {} changes",
            jobs.keys(),
            self.history.required,
            self.history.len()
        );
    }

    /// The pauses of the tubes that have jobs.
    fn pauses(&self, held: &Held) -> Vec<StoredPause> {
        let jobs = || held.jobs.values().filter(|job| !job.is_deleted());
        let has_jobs = |tube: &TubeName| jobs().any(|job| job.tube == *tube);
        let is_there = |tube: &TubeName| *tube == TubeName::default() || has_jobs(tube);
        let pauses = held.pauses.values().filter(|pause| is_there(&pause.tube));
        let timeless = |mut pause: StoredPause| {
            if !self.knows_times {
                pause.until = Time::default();
            }
            pause
        };
        pauses.cloned().map(timeless).collect()
    }
}

fn settled(mut job: StoredJob, now: Time) -> StoredJob {
    let state = &mut job.fields.state;
    if matches!(*state, StoredState::Delayed { until } if until <= now) {
        *state = StoredState::Ready;
    }
    job
}

/// Whether a job is the one that was acknowledged. That a ready job is reserved is not
/// logged. But if the job is logged again later, its counter has one more.
fn is_same(job: &StoredJob, told: &StoredJob) -> bool {
    let mut told = told.clone();
    let [reserves, ..] = &mut told.fields.counters;
    if job.fields.counters[0] == *reserves + 1 {
        *reserves += 1;
    }
    *job == told
}

/// The job without its times.
fn timeless(mut job: StoredJob) -> StoredJob {
    job.fields.created_at = Time::default();
    job.fields.state = match job.fields.state {
        StoredState::Delayed { .. } => StoredState::Ready,
        StoredState::Deleted { .. } => StoredState::Deleted {
            until: Time::default(),
        },
        state => state,
    };
    job
}
