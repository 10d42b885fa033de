//! The documents that tell what the engine counts.
//!
//! The keys stand in the order in which beanstalkd sends them, which is not
//! that of its protocol text. What a key counts is told by the field that it is
//! filled from.

use super::counts::{COMMAND_KEYS, JobCounts};
use super::job::{Job, State};
use super::tube::Tube;
use super::{Engine, Time};
use crate::protocol::document::Value;
use crate::protocol::{Document, JobId};
use std::time::Duration;

impl Engine {
    /// The answer to `stats`, but for what only the process knows: its keys
    /// belong in front of `draining`, and behind that.
    pub(super) fn server_document(&self) -> Document {
        let mut document = Document::default();
        add_jobs(&mut document, &self.jobs_now);
        for (key, count) in COMMAND_KEYS.into_iter().zip(self.totals.commands) {
            document.add(key, count);
        }
        document.add("job-timeouts", self.totals.timeouts);
        document.add("total-jobs", self.totals.jobs);
        document.add("max-job-size", self.config.max_job_size);
        document.add("current-tubes", self.tubes.len());
        document.add("current-connections", self.connections.len());
        document.add("current-producers", self.connections_now.producers);
        document.add("current-workers", self.connections_now.workers);
        document.add("current-waiting", self.connections_now.waiting);
        document.add("total-connections", self.totals.connections);
        document.add("draining", self.draining);
        document
    }
}

impl Tube {
    /// The answer to `stats-tube`.
    pub fn document(&self, now: Time) -> Document {
        let mut document = Document::default();
        document.add("name", Value::Name(self.name.clone()));
        add_jobs(&mut document, &self.jobs);
        document.add("total-jobs", self.total_jobs);
        document.add("current-using", self.using);
        document.add("current-watching", self.watching);
        document.add("current-waiting", self.waiting.len());
        document.add("cmd-delete", self.deletes);
        document.add("cmd-pause-tube", self.pauses);
        document.add("pause", self.pause.map_or(0, |pause| pause.length.0));
        let left = |until: Time| until.since(now);
        let left = self.pause.map_or(Duration::ZERO, |pause| left(pause.until));
        document.add("pause-time-left", left);
        document
    }
}

impl Job {
    /// The answer to `stats-job`. Whoever knows in which file the job is
    /// changes `file`.
    pub fn document(&self, id: JobId, tube: &Tube, now: Time) -> Document {
        let (state, time_left) = match self.state {
            State::Ready => ("ready", Duration::ZERO),
            State::Delayed { until, .. } => ("delayed", until.since(now)),
            State::Reserved { until, .. } => ("reserved", until.since(now)),
            State::Buried { .. } => ("buried", Duration::ZERO),
        };
        let counters = self.counters();
        let mut document = Document::default();
        document.add("id", id.0);
        document.add("tube", Value::Name(tube.name.clone()));
        document.add("state", Value::Word(state));
        document.add("pri", self.priority.0);
        document.add("age", now.since(self.created_at));
        document.add("delay", self.delay.0);
        document.add("ttr", self.ttr.0);
        document.add("time-left", time_left);
        document.add("file", 0_u64);
        document.add("reserves", counters.reserves);
        document.add("timeouts", counters.timeouts);
        document.add("releases", counters.releases);
        document.add("buries", counters.buries);
        document.add("kicks", counters.kicks);
        document
    }
}

fn add_jobs(document: &mut Document, jobs: &JobCounts) {
    document.add("current-jobs-urgent", jobs.urgent);
    document.add("current-jobs-ready", jobs.ready);
    document.add("current-jobs-reserved", jobs.reserved);
    document.add("current-jobs-delayed", jobs.delayed);
    document.add("current-jobs-buried", jobs.buried);
}
