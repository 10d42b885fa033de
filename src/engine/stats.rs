//! The documents with what the engine counts, and the lists of jobs, connections and
//! tubes.
//!
//! The keys are in the order in which beanstalkd sends them; the protocol's
//! text has another order. The field that a key is filled from says what it
//! counts.

use super::connection::Connection;
use super::counts::JobCounts;
use super::job::{Job, State};
use super::slab::ConnectionIndex;
use super::tube::{Pause, Tube};
use super::{Engine, SLICE, memory};
use crate::protocol::command::{self, ListJobs};
use crate::protocol::document::{LISTED_EACH, TubeNames};
use crate::protocol::{Document, JobId, JobList, JobStats, Priority, Reply, TubeName};
use std::time::Duration;

/// The most connections or tubes that one reply lists.
const LISTED_AT_ONCE: usize = 100;

/// How long a list of names may be that a client gets even if there is no room for replies,
/// in bytes.
const LISTED_FREELY: usize = 4 * 1024;

impl Engine {
    /// The answer to `stats`. The server adds what only the process knows.
    // Not inlined, like the others that describe many things: these have large stack
    // frames, and each page that a worker's stack has touched once stays with its client.
    #[inline(never)]
    pub(super) fn stats(&self) -> Reply {
        let mut document = Document::default();
        let [_, timeouts, ..] = self.counts.jobs.events;
        add_jobs(&mut document, &self.counts.jobs);
        for (name, count) in command::counted().zip(self.counts.commands) {
            document.add_number(&["cmd-", name].concat(), count);
        }
        document.add_number("job-timeouts", timeouts);
        document.add_number("total-jobs", self.counts.jobs.total);
        document.add_number("max-job-size", self.config.max_job_size);
        document.add("current-tubes", self.tubes_by_name.list.len());
        document.add("current-connections", self.connections.len());
        document.add("current-producers", self.counts.producers);
        document.add("current-workers", self.counts.workers);
        document.add("current-waiting", self.counts.waiting);
        document.add_number("total-connections", self.connections.total);
        Reply::ServerStats(document, self.outside.draining)
    }

    /// What `stats` does not show. The server adds what only the process knows.
    #[inline(never)]
    pub(super) fn list_server_stats(&self) -> Reply {
        let mut facts = Document::default();
        facts.add_number("put-refusal", self.put_refusal());
        facts.add_number("puts-refused", self.counts.refused);
        facts.add_number("max-jobs-per-tube", self.max_jobs_per_tube());
        facts.add_number("puts-refused-by-tubes", self.counts.jobs.refused);
        facts.add_number("jobs-expired", self.counts.jobs.expired);
        facts.add_number("idempotency-keys-taken", self.tombstone_count() as u64);
        facts.add_number("unique-keys-memory", self.keys.unique.memory);
        facts.add_number("memory-used", self.memory() + self.outside.memory);
        facts.add_number("max-memory", self.config.max_memory.unwrap_or(0));
        Reply::MoreServerStats(facts)
    }

    /// Why puts are refused now, as a number, because monitors expect numbers. The memory
    /// counts as full if the largest body does not fit, or one of a 64th of all memory if
    /// that is less. (Smaller ones may still fit, but not for long.)
    fn put_refusal(&self) -> u32 {
        let share = self.config.max_memory.unwrap_or(u64::MAX) / 64;
        let body = share.min(self.config.max_job_size.into());
        match () {
            () if !self.has_memory_for(memory::JOB + body) => 3,
            () if self.outside.disk_is_full => 2,
            () if self.outside.draining => 1,
            () => 0,
        }
    }

    #[inline(never)]
    pub(super) fn stats_job(&self, id: JobId) -> Option<Reply> {
        let job = self.jobs.get(id)?;
        let stats = self.job_stats(id, job);
        Some(Reply::JobStats(Box::new(stats)))
    }

    #[inline(never)]
    pub(super) fn stats_tube(&self, name: &TubeName) -> Option<Reply> {
        let mut facts = Document::default();
        self.add_tube(&mut facts, &self.tubes[self.find_tube(name)?]);
        Some(Reply::Document(facts))
    }

    pub(super) fn list_tubes(&mut self) -> Reply {
        self.effects.steps += self.tubes_by_name.list.len() / 16;
        self.names(self.tubes_by_name.list.clone())
    }

    pub(super) fn list_tubes_watched(&mut self, by: ConnectionIndex) -> Reply {
        let watched = &self.connections[by].watched;
        self.effects.steps += watched.len();
        let mut names = TubeNames::default();
        for &tube in watched {
            names.push(self.tubes[tube].name.clone());
        }
        self.names(names)
    }

    /// This list, if there is room for it in case that the client does not read it. A short
    /// one may always be had.
    fn names(&self, names: TubeNames) -> Reply {
        let len = names.reply_len();
        if len <= LISTED_FREELY || self.room_for_replies() >= len as u64 {
            Reply::Tubes(names)
        } else {
            Reply::OutOfMemory
        }
    }

    /// How many items a reply lists, if this many are asked for: with little memory fewer,
    /// but at least one, so that a client which asks for part after part makes progress.
    fn at_once(&self, count: u64, most: usize) -> usize {
        let room = self.room_for_replies() / LISTED_EACH as u64;
        room.max(1).min(count).min(most as u64) as usize
    }

    /// Examines a limited number of jobs, so that other clients do not wait long.
    #[inline(never)]
    pub(super) fn list_jobs(&mut self, list: &ListJobs) -> Reply {
        let tube = list.tube.as_ref().map(|name| self.find_tube(name));
        if tube == Some(None) {
            let (items, next) = (Vec::new(), None);
            return Reply::Jobs(Box::new(JobList { items, next }));
        }
        let is_wanted = |job: &Job| {
            tube.is_none_or(|tube| tube == Some(job.tube))
                && list.state.is_none_or(|state| job.state.name() == state)
        };
        let most = self.at_once(list.count, SLICE);
        let mut items = Vec::with_capacity(most.min(self.job_count()));
        let mut others = self.jobs.from(list.from);
        for (id, job) in others.by_ref().take(SLICE) {
            self.effects.steps += 1;
            if is_wanted(job) {
                items.push(self.job_stats(id, job));
                if items.len() == most {
                    break;
                }
            }
        }
        let next = others.next().map(|(id, _)| id.0);
        Reply::Jobs(Box::new(JobList { items, next }))
    }

    /// Lists a limited number of connections.
    #[inline(never)]
    pub(super) fn list_connections(&mut self, from: u64, count: u64) -> Reply {
        let mut others = self.connections.from(from);
        let facts = |(id, connection): (u64, &Connection)| {
            let mut facts = Document::default();
            facts.add_number("id", id);
            facts.add_text("address", &connection.peer);
            facts.add_number("age", self.now.since(connection.since).as_secs());
            facts.add_number("idle", self.now.since(connection.asked_at).as_secs());
            facts.add("producer", connection.puts > 0);
            facts.add("worker", connection.is_worker);
            facts.add("waiting", connection.wait.is_some());
            facts.add_name("tube", &self.tubes[connection.used].name);
            facts.add_number("watched", connection.watched.len() as u64);
            facts.add_number("held", connection.reserved.len() as u64);
            facts.add_number("puts", connection.puts);
            facts.add_number("reserves", connection.reserves);
            facts
        };
        let most = self.at_once(count, LISTED_AT_ONCE);
        let items: Vec<_> = others.by_ref().take(most).map(facts).collect();
        self.effects.steps += items.len();
        let next = others.next().map(|(id, _)| id);
        Reply::Document(Document::list("connections", items.into_iter(), next))
    }

    /// Lists a limited number of tubes.
    #[inline(never)]
    pub(super) fn list_tube_stats(&mut self, from: u64, count: u64) -> Reply {
        let mut others = self.tubes.from(from);
        let facts = |(_, tube): (u64, &Tube)| self.tube_facts(tube);
        let most = self.at_once(count, LISTED_AT_ONCE);
        let items: Vec<_> = others.by_ref().take(most).map(facts).collect();
        self.effects.steps += items.len();
        let next = others.next().map(|(id, _)| id);
        Reply::Document(Document::list("tubes", items.into_iter(), next))
    }

    /// What `stats-job` and `list-jobs` show. The engine does not know in which
    /// file the job is; the server fills in `file`.
    pub(super) fn job_stats(&self, id: JobId, job: &Job) -> JobStats {
        let until = match job.state {
            State::Delayed { until } | State::Reserved { until, .. } => until,
            State::Ready | State::Buried { .. } => self.now,
        };
        let holder = job.state.holder();
        let reserved_by = holder.map_or(0, |holder| self.connections[holder].id.0);
        let details = job.details.as_deref().cloned().unwrap_or_default();
        JobStats {
            id,
            tube: self.tubes[job.tube].name.clone(),
            state: job.state.name(),
            priority: job.priority,
            age: self.now.since(job.created_at).as_secs(),
            delay: job.delay,
            ttr: job.ttr,
            time_left: seconds(until.since(self.now)),
            file: 0,
            counters: details.counters,
            size: u32::try_from(job.body.content().len()).unwrap_or(u32::MAX),
            reserved_by,
            options: details.options,
            places_free: self.places_free(job),
            failed_tries: details.failed_tries,
            expires_in: job.expires_at().map(|at| seconds(at.since(self.now))),
        }
    }

    /// How many jobs a tube may have, as statistics show it: 0 if there is no limit.
    fn max_jobs_per_tube(&self) -> u64 {
        let most = self.config.max_jobs_per_tube;
        most.map_or(0, |most| most.get() as u64)
    }

    /// What `list-tube-stats` shows of a tube.
    fn tube_facts(&self, tube: &Tube) -> Document {
        let [reserves, timeouts, releases, buries, kicks] = tube.jobs.events;
        let age = |job: Option<(Priority, JobId)>| {
            let job = job.and_then(|(_, id)| self.jobs.get(id));
            job.map_or(0, |job| self.now.since(job.created_at).as_secs())
        };
        let mut facts = Document::default();
        facts.add_number("id", tube.id);
        self.add_tube(&mut facts, tube);
        facts.add_number("total-reserves", reserves);
        facts.add_number("total-releases", releases);
        facts.add_number("total-buries", buries);
        facts.add_number("total-timeouts", timeouts);
        facts.add_number("total-kicks", kicks);
        facts.add_number("first-ready-age", age(tube.ready.first()));
        facts.add_number("last-ready-age", age(tube.ready.last()));
        facts.add_number("total-expired", tube.jobs.expired);
        facts.add_number("max-jobs", self.max_jobs_per_tube());
        facts.add_number("puts-refused", tube.jobs.refused);
        facts
    }

    /// Adds what `stats-tube` shows.
    fn add_tube(&self, facts: &mut Document, tube: &Tube) {
        let pause = |pause: Pause| (pause.length.0, pause.until.since(self.now).as_secs());
        let (pause, pause_left) = tube.pause.map(pause).unwrap_or_default();
        facts.add_name("name", &tube.name);
        add_jobs(facts, &tube.jobs);
        facts.add_number("total-jobs", tube.jobs.total);
        facts.add_number("current-using", tube.using as u64);
        facts.add_number("current-watching", tube.watching as u64);
        facts.add_number("current-waiting", tube.waiting.len() as u64);
        facts.add_number("cmd-delete", tube.deletes);
        facts.add_number("cmd-pause-tube", tube.pauses);
        facts.add_number("pause", pause);
        facts.add_number("pause-time-left", pause_left);
    }
}

fn seconds(time: Duration) -> u32 {
    u32::try_from(time.as_secs()).unwrap_or(u32::MAX)
}

/// Adds how many jobs there are in each state.
fn add_jobs(facts: &mut Document, jobs: &JobCounts) {
    let [ready, delayed, reserved, buried] = jobs.by_state;
    facts.add_number("current-jobs-urgent", jobs.urgent as u64);
    facts.add_number("current-jobs-ready", ready as u64);
    facts.add_number("current-jobs-reserved", reserved as u64);
    facts.add_number("current-jobs-delayed", delayed as u64);
    facts.add_number("current-jobs-buried", buried as u64);
}
