//! The documents that tell what the engine counts.
//!
//! The keys stand in the order in which beanstalkd sends them; the protocol's
//! text has another order. The field that a key is filled from says what it
//! counts.

use super::counts::{COMMAND_KEYS, EVENT_KEYS, JobCounts};
use super::job::{JOB_OVERHEAD, Job, State};
use super::tube::{Pause, Tube};
use super::{Engine, Time};
use crate::protocol::{Document, JobId, JobStats};

impl Engine {
    /// The answer to `stats`, without what only the process knows. The server
    /// inserts those keys before `draining` and after it.
    // Not inlined: this function has a large stack frame, which other commands
    // do not need.
    #[inline(never)]
    pub(super) fn server_document(&self) -> Document {
        let mut document = Document::default();
        add_jobs(&mut document, &self.jobs_now);
        for (key, count) in COMMAND_KEYS.iter().zip(self.totals.commands) {
            document.add(key, count);
        }
        document.add("job-timeouts", self.totals.timeouts);
        document.add("total-jobs", self.totals.jobs);
        document.add("max-job-size", self.config.max_job_size);
        document.add("current-tubes", self.tubes.names.len());
        document.add("current-connections", self.connections.len());
        document.add("current-producers", self.connections_now.producers);
        document.add("current-workers", self.connections_now.workers);
        document.add("current-waiting", self.connections_now.waiting);
        document.add("total-connections", self.totals.connections);
        document.add("draining", self.draining);
        // What follows is ours.
        document.add("memory-used", self.memory() + self.held_elsewhere);
        document.add("max-memory", self.config.max_memory.unwrap_or(0));
        document.add("put-refusal", self.put_refusal());
        document.add("puts-refused", self.totals.refused);
        document
    }

    /// Why puts are refused now. It is for want of memory if there is no room for
    /// the smallest job, or was none for the last put and still is none.
    fn put_refusal(&self) -> &'static str {
        let needed = self.refused_for_memory.unwrap_or(JOB_OVERHEAD + 2);
        match () {
            () if !self.has_room(needed) => "memory",
            () if self.disk_is_full => "disk",
            () if self.draining => "draining",
            () => "none",
        }
    }

    /// What `stats-job` and `list-jobs` tell. The engine does not know in which
    /// file the job is; the server fills in `file`.
    pub(super) fn job_stats(&self, id: JobId, job: &Job, now: Time) -> JobStats {
        let left = |until: Time| u32::try_from(until.since(now).as_secs()).unwrap_or(u32::MAX);
        let reserved_by = match job.state {
            State::Reserved { by, .. } => self.connections[by].id.0,
            _ => 0,
        };
        JobStats {
            id,
            tube: self.tubes[job.tube].name.clone(),
            state: job.state.name(),
            priority: job.priority,
            age: now.since(job.created_at).as_secs(),
            delay: job.delay,
            ttr: job.ttr,
            time_left: job.state.until().map_or(0, left),
            file: 0,
            counters: job.counters(),
            size: u32::try_from(job.body.content().len()).unwrap_or(u32::MAX),
            options: self.options.stats(id),
            reserved_by,
        }
    }
}

impl Tube {
    /// The answer to `stats-tube`.
    // Not inlined, for the same reason as above.
    #[inline(never)]
    pub fn document(&self, now: Time) -> Document {
        let mut document = Document::default();
        document.add_text("name", self.name.as_str());
        add_jobs(&mut document, &self.jobs);
        document.add("total-jobs", self.total_jobs);
        document.add("current-using", self.using);
        document.add("current-watching", self.watching);
        document.add("current-waiting", self.waiting.len());
        document.add("cmd-delete", self.deletes);
        document.add("cmd-pause-tube", self.pauses);
        let pause = |pause: Pause| (pause.length.0, pause.until.since(now).as_secs());
        let (length, left) = self.pause.map(pause).unwrap_or_default();
        document.add("pause", length);
        document.add("pause-time-left", left);
        // What follows is ours.
        for (key, count) in EVENT_KEYS.iter().zip(self.events) {
            document.add(key, count);
        }
        document
    }
}

fn add_jobs(document: &mut Document, jobs: &JobCounts) {
    let [ready, delayed, reserved, buried] = jobs.by_state;
    document.add("current-jobs-urgent", jobs.urgent);
    document.add("current-jobs-ready", ready);
    document.add("current-jobs-reserved", reserved);
    document.add("current-jobs-delayed", delayed);
    document.add("current-jobs-buried", buried);
}
