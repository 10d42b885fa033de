//! The documents in the model's answers: statistics and lists.

use super::{
    BURY, Connection, EVENTS, JOB_OVERHEAD, Job, KICK, Model, RELEASE, RESERVE, SECOND, State,
    TIMEOUT, Tube,
};
use std::collections::BTreeSet;

/// The commands that `stats` counts, in its order.
const COUNTED: &str = "put peek peek-ready peek-delayed peek-buried reserve reserve-with-timeout \
    delete release use watch ignore bury kick touch stats stats-job stats-tube list-tubes \
    list-tube-used list-tubes-watched pause-tube";

impl Model {
    pub(super) fn stats(&self) -> String {
        let clients = |is: fn(&Connection) -> bool| {
            let clients = self.clients.iter().filter(|(_, one)| is(one));
            clients.count()
        };
        let mut text = job_counts(self.jobs.iter());
        for command in COUNTED.split(' ') {
            let count = self.counts.get(command).unwrap_or(&0);
            text += &format!("cmd-{command}: {count}\n");
        }
        text += &format!("job-timeouts: {}\n", self.timeouts);
        text += &format!("total-jobs: {}\n", self.jobs_ever);
        text += &format!("max-job-size: {}\n", self.max_job_size);
        text += &format!("current-tubes: {}\n", self.tubes.len());
        text += &format!("current-connections: {}\n", self.clients.len());
        text += &format!("current-producers: {}\n", clients(|one| one.producer));
        text += &format!("current-workers: {}\n", clients(|one| one.worker));
        text += &format!("current-waiting: {}\n", self.waiting.len());
        text += &format!("total-connections: {}\n", self.connected_ever);
        // A server adds what only its process knows.
        document(&text)
    }

    pub(super) fn list_server_stats(&self) -> String {
        let share = self.max_memory.unwrap_or(usize::MAX) / 64;
        let needed = JOB_OVERHEAD + share.min(self.max_job_size);
        let refusal = match () {
            () if !self.has_room(needed) => 3,
            () if self.disk_is_full => 2,
            () if self.draining => 1,
            () => 0,
        };
        let mut text = format!("put-refusal: {refusal}\n");
        text += &format!("puts-refused: {}\n", self.refused);
        let most = self.max_jobs_per_tube.unwrap_or(0);
        text += &format!("max-jobs-per-tube: {most}\n");
        text += &format!("puts-refused-by-tubes: {}\n", self.refused_by_tubes);
        text += &format!("jobs-expired: {}\n", self.expired);
        text += &format!("idempotency-keys-taken: {}\n", self.tombstones.len());
        text += &format!("unique-keys-memory: {}\n", self.memory_of_keys());
        text += &format!("memory-used: {}\n", self.memory() + self.memory_outside);
        text += &format!("max-memory: {}\n", self.max_memory.unwrap_or(0));
        document(&text)
    }

    pub(super) fn stats_tube(&self, name: &str) -> String {
        match self.tubes.iter().find(|tube| tube.name == name) {
            Some(tube) => document(&self.facts_of_tube(tube)),
            None => "NOT_FOUND".into(),
        }
    }

    /// The lines of `stats-tube` for a tube.
    fn facts_of_tube(&self, tube: &Tube) -> String {
        let name = &*tube.name;
        let using = self.clients.iter().filter(|(_, one)| one.used == name);
        let watches = |one: &Connection| one.watched.iter().any(|watched| watched == name);
        let watching = self.clients.iter().filter(|(_, one)| watches(one));
        let waiting = watching.clone().filter(|(one, _)| self.is_waiting(*one));
        let (pause, until) = tube.pause.unwrap_or_default();
        let mut text = format!("name: {}\n", name);
        text += &job_counts(self.jobs_in(name));
        text += &format!("total-jobs: {}\n", tube.jobs_ever);
        text += &format!("current-using: {}\n", using.count());
        text += &format!("current-watching: {}\n", watching.count());
        text += &format!("current-waiting: {}\n", waiting.count());
        text += &format!("cmd-delete: {}\n", tube.deletes);
        text += &format!("cmd-pause-tube: {}\n", tube.pauses);
        text += &format!("pause: {pause}\n");
        let left = until.saturating_sub(self.now) / SECOND;
        text += &format!("pause-time-left: {left}\n");
        text
    }

    pub(super) fn list_tube_stats(&self, from: usize, count: u64) -> String {
        let mut those: Vec<_> = self.tubes.iter().collect();
        those.retain(|tube| tube.number >= from);
        those.sort_by_key(|tube| tube.number);
        let most = self.at_once(count as usize, 100);
        let listed = those.iter().take(most).map(|tube| {
            let mut facts = format!("id: {}\n", tube.number) + &self.facts_of_tube(tube);
            for event in [RESERVE, RELEASE, BURY, TIMEOUT, KICK] {
                facts += &format!("total-{}: {}\n", EVENTS[event], tube.events[event]);
            }
            let queue = self.queue(&tube.name);
            for (key, job) in [("first", queue.first()), ("last", queue.last())] {
                let age = job.map_or(0, |job| self.now.saturating_sub(job.created) / SECOND);
                facts += &format!("{key}-ready-age: {age}\n");
            }
            let most = self.max_jobs_per_tube.unwrap_or(0);
            facts += &format!("total-expired: {}\nmax-jobs: {most}\n", tube.expired);
            facts + &format!("puts-refused: {}", tube.refused)
        });
        let next = those.get(most).map_or(0, |tube| tube.number);
        page("tubes", listed, next as u64)
    }

    /// The ready jobs of a tube that may be reserved now, in their order. Of those with
    /// the same key only the first is there.
    fn queue(&self, tube: &str) -> Vec<&Job> {
        let ready = self.jobs_in(tube).filter(|job| job.state == State::Ready);
        let mut queue: Vec<_> = ready.filter(|job| self.places_free(job) > 0).collect();
        queue.sort_by_key(|job| (job.priority, job.id));
        let mut keys = BTreeSet::new();
        queue.retain(|job| {
            let limit = job.options.limit.as_ref();
            limit.is_none_or(|(key, _)| keys.insert(key.clone()))
        });
        queue
    }

    pub(super) fn stats_job(&self, id: u64) -> String {
        match self.job(id) {
            Some(job) => document(&format!("{}\n", self.facts(job).join("\n"))),
            None => "NOT_FOUND".into(),
        }
    }

    /// How many items one list has: fewer where there is little memory.
    pub(super) fn at_once(&self, count: usize, most: usize) -> usize {
        let limit = self.max_memory.unwrap_or(usize::MAX / 2);
        let used = self.memory() + self.memory_outside;
        let room = (limit + limit / 16).saturating_sub(used) / 3000;
        count.min(most).min(room.max(1))
    }

    /// The answer of `list-jobs` for the first `count` of these jobs, with the
    /// id from which to go on.
    pub(super) fn list_jobs<'a>(
        &'a self,
        count: usize,
        mut jobs: impl Iterator<Item = (&'a Job, bool)>,
    ) -> String {
        let wanted = jobs.by_ref().filter(|(_, is_wanted)| *is_wanted);
        let listed = wanted.take(count).map(|(job, _)| {
            let holder = job.state.holder();
            let holder = holder.map_or(0, |client| self.connection(client).number);
            let mut facts = self.facts(job);
            facts.push(format!("size: {}", job.body.len()));
            facts.push(format!("reserved-by: {holder}"));
            facts.extend(self.facts_of_options(job));
            facts.join("\n")
        });
        let listed: Vec<_> = listed.collect();
        page(
            "jobs",
            listed.into_iter(),
            jobs.next().map_or(0, |(job, _)| job.id),
        )
    }

    pub(super) fn list_connections(&self, from: usize, count: u64) -> String {
        let those = self.clients.iter().filter(|(_, one)| one.number >= from);
        let most = self.at_once(count as usize, 100);
        let listed = those.clone().take(most).map(|(client, one)| {
            let held = |job: &&Job| job.state.holder() == Some(*client);
            format!(
                "id: {}\naddress: \"\"\nage: {}\nidle: {}\nproducer: {}\nworker: {}\n\
                waiting: {}\ntube: {}\nwatched: {}\nheld: {}\nputs: {}\nreserves: {}",
                one.number,
                (self.now - one.since) / SECOND,
                (self.now - one.asked_at) / SECOND,
                one.producer,
                one.worker,
                self.is_waiting(*client),
                one.used,
                one.watched.len(),
                self.jobs.iter().filter(held).count(),
                one.puts,
                one.reserves,
            )
        });
        let next = those.clone().nth(most).map_or(0, |(_, one)| one.number);
        page("connections", listed, next as u64)
    }

    /// The lines of `stats-job` for a job.
    fn facts(&self, job: &Job) -> Vec<String> {
        let left = match job.state {
            State::Delayed { until } | State::Reserved { until, .. } => until,
            State::Ready | State::Buried { .. } => 0,
        };
        let left = left.saturating_sub(self.now) / SECOND;
        let mut facts = vec![
            format!("id: {}", job.id),
            format!("tube: {}", job.tube),
            format!("state: {}", word(job.state)),
            format!("pri: {}", job.priority),
            format!("age: {}", self.now.saturating_sub(job.created) / SECOND),
            format!("delay: {}", job.delay),
            format!("ttr: {}", job.ttr),
            format!("time-left: {left}"),
            "file: 0".into(),
        ];
        let events = EVENTS.iter().zip(job.events);
        facts.extend(events.map(|(event, count)| format!("{event}: {count}")));
        facts
    }
}

/// The protocol's word for a state.
pub(super) fn word(state: State) -> &'static str {
    match state {
        State::Ready => "ready",
        State::Delayed { .. } => "delayed",
        State::Reserved { .. } => "reserved",
        State::Buried { .. } => "buried",
    }
}

fn job_counts<'a>(jobs: impl Iterator<Item = &'a Job> + Clone) -> String {
    let is_urgent = |job: &&Job| job.state == State::Ready && job.priority < 1024;
    let urgent = jobs.clone().filter(is_urgent).count();
    let mut text = format!("current-jobs-urgent: {urgent}\n");
    for state in ["ready", "reserved", "delayed", "buried"] {
        let count = jobs.clone().filter(|job| word(job.state) == state).count();
        text += &format!("current-jobs-{state}: {count}\n");
    }
    text
}

/// A part of a list, whose items have lines of a key and a value.
fn page(key: &str, items: impl Iterator<Item = String>, next: u64) -> String {
    let items = items.map(|facts| format!("- {{{}}}\n", facts.replace('\n', ", ")));
    let items = items.collect::<String>();
    let none = if items.is_empty() { " []" } else { "" };
    document(&format!("{key}:{none}\n{items}next: {next}\n"))
}

pub(super) fn list<'a>(names: impl Iterator<Item = &'a String>) -> String {
    document(&names.map(|name| format!("- {name}\n")).collect::<String>())
}

pub(super) fn document(text: &str) -> String {
    format!("OK {}\r\n---\n{text}", text.len() + 4)
}
