//! The documents in the model's answers: statistics and lists.

use super::{Connection, JOB_OVERHEAD, Job, Model, SECOND, State, Tube};
use std::collections::BTreeSet;

/// The commands that `stats` counts, in its order.
const COUNTED: [&str; 22] = [
    "put",
    "peek",
    "peek-ready",
    "peek-delayed",
    "peek-buried",
    "reserve",
    "reserve-with-timeout",
    "delete",
    "release",
    "use",
    "watch",
    "ignore",
    "bury",
    "kick",
    "touch",
    "stats",
    "stats-job",
    "stats-tube",
    "list-tubes",
    "list-tube-used",
    "list-tubes-watched",
    "pause-tube",
];

impl Model {
    pub(super) fn stats(&self) -> String {
        let clients = |is: fn(&Connection) -> bool| {
            let clients = self.clients.iter().filter(|(_, one)| is(one));
            clients.count()
        };
        let mut text = job_counts(self.jobs.iter());
        for command in COUNTED {
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
        // A server adds here what only its process knows.
        text += &format!("draining: {}\n", self.draining);
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
        let mut text = String::new();
        for tube in those.iter().take(most) {
            let mut facts = format!("id: {}\n", tube.number) + &self.facts_of_tube(tube);
            for event in ["reserve", "release", "burie", "timeout", "kick"] {
                let count = self.events.get(&(tube.name.clone(), event));
                facts += &format!("total-{event}s: {}\n", count.unwrap_or(&0));
            }
            let queue = self.queue(&tube.name);
            for (key, job) in [("first", queue.first()), ("last", queue.last())] {
                let age = job.map_or(0, |job| self.now.saturating_sub(job.created) / SECOND);
                facts += &format!("{key}-ready-age: {age}\n");
            }
            let most = self.max_jobs_per_tube.unwrap_or(0);
            facts += &format!("total-expired: {}\nmax-jobs: {most}\n", tube.expired);
            facts += &format!("puts-refused: {}\n", tube.refused);
            text += &format!("- {{{}}}\n", facts.trim_end().replace('\n', ", "));
        }
        let key = if text.is_empty() {
            "tubes: []"
        } else {
            "tubes:"
        };
        let next = those.get(most).map_or(0, |tube| tube.number);
        document(&format!("{key}\n{text}next: {next}\n"))
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
        match self.jobs.iter().find(|job| job.id == id) {
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
        let mut text = String::new();
        let wanted = jobs.by_ref().filter(|(_, is_wanted)| *is_wanted);
        for (job, _) in wanted.take(count) {
            let size = format!("size: {}", job.body.len());
            let facts = [
                self.facts(job).to_vec(),
                vec![size, self.holder(job)],
                self.facts_of_options(job),
            ];
            text += &format!("- {{{}}}\n", facts.concat().join(", "));
        }
        let jobs_key = if text.is_empty() { "jobs: []" } else { "jobs:" };
        let next = jobs.next().map_or(0, |(job, _)| job.id);
        document(&format!("{jobs_key}\n{text}next: {next}\n"))
    }

    /// A server adds the addresses and ages.
    pub(super) fn list_connections(&self, from: usize, count: u64) -> String {
        let those = self.clients.iter().filter(|(_, one)| one.number >= from);
        let most = self.at_once(count as usize, 100);
        let mut text = String::new();
        for (client, one) in those.clone().take(most) {
            let held =
                |job: &&Job| matches!(job.state, State::Reserved { by, .. } if by == *client);
            text += &format!(
                "- {{id: {}, address: \"\", age: 0, idle: 0, producer: {}, worker: {}, \
                waiting: {}, tube: {}, watched: {}, held: {}, puts: {}, reserves: {}}}\n",
                one.number,
                one.producer,
                one.worker,
                self.is_waiting(*client),
                one.used,
                one.watched.len(),
                self.jobs.iter().filter(held).count(),
                one.puts,
                one.reserves,
            );
        }
        let key = if text.is_empty() {
            "connections: []"
        } else {
            "connections:"
        };
        let next = those.clone().nth(most).map_or(0, |(_, one)| one.number);
        document(&format!("{key}\n{text}next: {next}\n"))
    }

    /// Which connection holds a job.
    fn holder(&self, job: &Job) -> String {
        let holder = match job.state {
            State::Reserved { by, .. } => {
                let mut clients = self.clients.iter();
                let holder = clients.find(|(client, _)| *client == by);
                holder.expect("it is connected").1.number
            }
            _ => 0,
        };
        format!("reserved-by: {holder}")
    }

    /// The lines of `stats-job` for a job.
    fn facts(&self, job: &Job) -> [String; 14] {
        let left = |until: u64| until.saturating_sub(self.now) / SECOND;
        let left = match job.state {
            State::Delayed { until } | State::Reserved { until, .. } => left(until),
            State::Ready | State::Buried { .. } => 0,
        };
        [
            format!("id: {}", job.id),
            format!("tube: {}", job.tube),
            format!("state: {}", word(job.state)),
            format!("pri: {}", job.priority),
            format!("age: {}", self.now.saturating_sub(job.created) / SECOND),
            format!("delay: {}", job.delay),
            format!("ttr: {}", job.ttr),
            format!("time-left: {left}"),
            "file: 0".into(),
            format!("reserves: {}", job.reserves),
            format!("timeouts: {}", job.timeouts),
            format!("releases: {}", job.releases),
            format!("buries: {}", job.buries),
            format!("kicks: {}", job.kicks),
        ]
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
    let count = |is: fn(&Job) -> bool| jobs.clone().filter(|job| is(job)).count();
    let mut text = String::new();
    let urgent = count(|job| job.state == State::Ready && job.priority < 1024);
    text += &format!("current-jobs-urgent: {urgent}\n");
    let ready = count(|job| job.state == State::Ready);
    text += &format!("current-jobs-ready: {ready}\n");
    let reserved = count(|job| matches!(job.state, State::Reserved { .. }));
    text += &format!("current-jobs-reserved: {reserved}\n");
    let delayed = count(|job| matches!(job.state, State::Delayed { .. }));
    text += &format!("current-jobs-delayed: {delayed}\n");
    let buried = count(|job| matches!(job.state, State::Buried { .. }));
    text += &format!("current-jobs-buried: {buried}\n");
    text
}

pub(super) fn list<'a>(names: impl Iterator<Item = &'a String>) -> String {
    document(&names.map(|name| format!("- {name}\n")).collect::<String>())
}

pub(super) fn document(text: &str) -> String {
    format!("OK {}\r\n---\n{text}", text.len() + 4)
}
