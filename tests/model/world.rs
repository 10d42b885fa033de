//! The engine and the model side by side: the same clients say the same things
//! to both at the same time, and each reply and each wake-up is compared, byte
//! for byte. Often a client asks for all that can be asked, so that whatever the
//! engine counts and lists is compared, too.

#[path = "history.rs"]
mod history;
#[path = "speech.rs"]
mod speech;

pub use support::Random;

use crate::naive::{Client, Model, SECOND};
use beanpole::engine::{
    Change, Config, ConnectionId, Engine, Outcome, Peer, StoredJob, StoredPause, StoredState, Time,
};
use beanpole::protocol::{Framer, JobId, Reply, Request, TubeName};
use history::History;
use std::collections::BTreeMap;
use std::num::NonZeroUsize;

/// The start of all histories, in nanoseconds since the epoch.
const START: u64 = 1_700_000_000 * SECOND;

/// Some delays are 136 years long, and the engine's time has an end.
const END: u64 = 10_000_000_000 * SECOND;

const MOST_CLIENTS: usize = 6;

/// How many tubes a client with many tubes watches at least.
const MANY: usize = 20;

type Jobs = BTreeMap<JobId, StoredJob>;

/// The engine, the model, and the clients of both.
pub struct World {
    engine: Engine,
    model: Model,
    /// The jobs and pauses in a log that records every change.
    logged: Jobs,
    pauses: BTreeMap<TubeName, StoredPause>,
    /// The connected clients.
    links: BTreeMap<Client, Link>,
    /// How many tubes the clients use, and how many jobs they put: with few,
    /// they get into each other's way more often.
    tubes: usize,
    most_jobs: usize,
    /// Whether some clients watch many tubes.
    are_many_watched: bool,
    pub random: Random,
    history: History,
}

/// A client's way to the engine.
struct Link {
    id: ConnectionId,
    framer: Framer,
    /// Bytes sent and not yet understood.
    input: Vec<u8>,
    /// The body of the put whose line has been sent.
    body: Option<String>,
}

impl World {
    /// `repeat` is the command that plays it again.
    pub fn new(mut random: Random, max_job_size: usize, repeat: String) -> World {
        let max_memory = random.one_in(3).then(|| 200 + random.below(4000));
        let mut model = Model::new(START, max_job_size, max_memory);
        model.max_jobs_per_tube = random.one_in(4).then(|| 1 + random.below(4));
        World {
            engine: engine(&model),
            model,
            logged: Jobs::new(),
            pauses: BTreeMap::new(),
            links: BTreeMap::new(),
            tubes: *random.choose(&[1, 2, 3, speech::TUBES.len()]),
            most_jobs: *random.choose(&[2, 5, 25]),
            are_many_watched: random.one_in(3),
            random,
            history: History::new(repeat, START),
        }
    }

    /// Something happens: a client comes, says something or goes, or time passes.
    pub fn step(&mut self) {
        let client = self.some_client();
        match (self.random.below(100), client) {
            (0..12, _) => self.pass_time(),
            (12..15, _) if self.links.len() < MOST_CLIENTS => self.connect(),
            (15, _) if self.model.draining || self.random.one_in(5) => self.drain(),
            (17, Some(client)) => self.disconnect(client),
            (18, Some(client)) if self.random.one_in(4) => self.half_close(client),
            (_, Some(client)) if !self.model.is_waiting(client) => self.speak(client),
            _ => self.pass_time(),
        }
        if self.random.one_in(10) {
            self.ask_everything();
        }
    }

    fn ask_everything(&mut self) {
        let mut links = self.links.iter();
        let may_ask = |(client, link): &(&Client, &Link)| {
            link.body.is_none() && !self.model.is_waiting(**client)
        };
        let Some((&client, _)) = links.find(may_ask) else {
            return;
        };
        for line in [
            "stats",
            "list-server-stats",
            "list-jobs 0 1000",
            "list-connections 0 100",
            "list-tube-stats 0 100",
            "list-tubes",
            "list-tubes-watched",
            "peek-ready",
            "peek-delayed",
            "peek-buried",
        ] {
            self.send(client, line, None);
        }
        for tube in &speech::TUBES[..self.tubes] {
            self.send(client, &format!("stats-tube {tube}"), None);
        }
    }

    fn some_client(&mut self) -> Option<Client> {
        let clients: Vec<_> = self.links.keys().copied().collect();
        (!clients.is_empty()).then(|| *self.random.choose(&clients))
    }

    fn connect(&mut self) {
        let client = self.model.connect();
        self.history.note(&self.model, client, "connects");
        let link = Link {
            id: self.engine.connect(Peer::default(), self.now()),
            framer: Framer::new(self.model.max_job_size as u32),
            input: Vec::new(),
            body: None,
        };
        self.links.insert(client, link);
        self.compare(Vec::new());
        if self.are_many_watched && !self.random.one_in(3) {
            for number in 0..MANY {
                self.send(client, &format!("watch one-of-many-{number}"), None);
            }
        }
    }

    fn disconnect(&mut self, client: Client) {
        self.history.note(&self.model, client, "disconnects");
        self.model.disconnect(client);
        let link = self.links.remove(&client).unwrap();
        assert!(self.engine.disconnect(link.id, self.now()));
        self.compare(Vec::new());
    }

    fn half_close(&mut self, client: Client) {
        self.history.note(&self.model, client, "hangs up");
        self.model.half_close(client);
        self.engine.half_close(self.links[&client].id);
        self.compare(Vec::new());
    }

    fn drain(&mut self) {
        self.model.draining = !self.model.draining;
        self.engine.outside.draining = self.model.draining;
        let text = format!("draining: {}", self.engine.outside.draining);
        self.history.lines.push(text);
        self.compare(Vec::new());
    }

    /// Ends the engine, and starts another one with the stored jobs.
    pub fn restart(&mut self) {
        self.history.lines.push("the server starts anew".into());
        self.links.clear();
        self.model.restart();
        // A reservation that has not ended may not have been stored.
        for job in &mut self.model.jobs {
            [job.events[0], ..] = self.logged[&JobId(job.id)].fields.counters;
        }
        let mut engine = engine(&self.model);
        for stored in self.logged.values() {
            engine.restore(stored.clone());
        }
        for pause in self.pauses.values() {
            engine.restore_pause(pause);
        }
        self.pauses
            .retain(|tube, _| engine.stored_pause(tube).is_some());
        engine.set_next_id(self.engine.next_id());
        self.engine = engine;
        // Stored jobs still have delays that have ended: the clock ends them again.
        self.tick();
    }

    /// Lets the clock tick whenever it is due, or comes late with that.
    fn pass_time(&mut self) {
        let due = self.model.next_event().filter(|&at| at < END);
        let event = due.unwrap_or(self.model.now);
        let until = match self.random.below(10) {
            0..5 => event,
            5..8 => self.model.now + self.random.below(3 * 1000) as u64 * SECOND / 1000,
            8 => event.saturating_sub(1),
            _ => self.model.now + self.random.below(100) as u64 * SECOND,
        };
        let until = until.max(self.model.now);
        if self.random.one_in(5) {
            return self.pass_time_without_tick(until);
        }
        self.pass_time_until(until);
    }

    /// Lets the clock tick whenever it is due, until then.
    fn pass_time_until(&mut self, until: u64) {
        let mut idle_wakes = 0;
        while let Some(wake_at) = self.engine.wake_at().map(Time::as_nanos) {
            if wake_at > until {
                break;
            }
            idle_wakes += 1;
            if self.model.next_event().is_some_and(|at| at <= wake_at) {
                idle_wakes = 0;
            }
            assert!(idle_wakes < 20, "it wakes again and again, for nothing");
            self.model.now = self.model.now.max(wake_at);
            self.tick();
        }
        self.model.now = until;
        self.tick();
    }

    fn pass_time_without_tick(&mut self, until: u64) {
        self.model.now = until;
        let text = "the clock is late from here on".into();
        self.history.lines.push(text);
    }

    fn tick(&mut self) {
        let now = self.now();
        self.tick_model();
        self.engine.tick(now);
        self.order_burials();
        self.compare(Vec::new());
        // It may wake once more for what has just happened, but not for ever.
        self.engine.tick(now);
        self.compare(Vec::new());
        let wake_at = self.engine.wake_at();
        assert!(wake_at.is_none_or(|at| at > now), "it would tick for ever");
    }

    fn tick_model(&mut self) {
        let next = self.model.next_event();
        if next.is_some_and(|at| at <= self.model.now) {
            self.history.tick(&self.model);
            self.model.tick();
        }
    }

    /// Has a client say something, some time after what was before.
    fn speak(&mut self, client: Client) {
        self.model.now += *self.random.choose(&[0, 1, 1000, 1_000_000]);
        if let Some(body) = self.links.get_mut(&client).unwrap().body.take() {
            return self.send(client, "", Some(body));
        }
        if self.random.one_in(4) && self.model.jobs.len() < self.most_jobs {
            let (line, body) = self.put();
            if self.random.one_in(5) {
                self.links.get_mut(&client).unwrap().body = Some(body);
                return self.send(client, &line, None);
            }
            return self.send(client, &line, Some(body));
        }
        let line = self.line(client);
        self.send(client, &line, None);
    }

    /// Sends a line, if it is not empty, then a body, and compares.
    fn send(&mut self, client: Client, line: &str, body: Option<String>) {
        // Even if the clock is late: first what is due.
        self.tick_model();
        let mut bytes = Vec::new();
        if !line.is_empty() {
            self.history.note(&self.model, client, line);
            bytes.extend_from_slice(format!("{line}\r\n").as_bytes());
        }
        if let Some(body) = &body {
            self.history.note(&self.model, client, &format!("{body:?}"));
            bytes.extend_from_slice(body.as_bytes());
        }
        let mut said = Vec::new();
        // In segments of any size.
        while !bytes.is_empty() {
            let count = if self.random.one_in(3) {
                1 + self.random.below(bytes.len())
            } else {
                bytes.len()
            };
            let segment: Vec<u8> = bytes.drain(..count).collect();
            said.extend(self.receive(client, &segment));
        }
        self.order_burials();
        if !line.is_empty() {
            self.model.line(client, line);
        }
        if let Some(body) = body {
            self.model.body(client, &body);
        }
        self.compare(said);
        if let Some(number) = line.strip_prefix("close-connection ") {
            let mut links = self.links.iter();
            let closed = links.find(|(_, link)| link.id.0.to_string() == number);
            if let Some((&closed, _)) = closed {
                self.disconnect(closed);
            }
        }
    }

    fn order_burials(&mut self) {
        let engine = &self.engine;
        self.model.order_burials(|id| {
            let stored = engine.stored(JobId(id))?;
            match stored.fields.state {
                StoredState::Buried { order } => Some(order),
                _ => None,
            }
        });
    }

    /// What the server does with a segment, and what it answers at once: it
    /// may read all requests before it executes them, or one after the other.
    fn receive(&mut self, client: Client, segment: &[u8]) -> Vec<(Client, String)> {
        let mut said = Vec::new();
        self.links
            .get_mut(&client)
            .unwrap()
            .input
            .extend_from_slice(segment);
        let at_a_time = *self.random.choose(&[1, 10]);
        while let Some(link) = self.links.get_mut(&client) {
            let mut unread = &link.input[..];
            let requests = std::iter::from_fn(|| link.framer.next(&mut unread));
            let requests: Vec<_> = requests.take(at_a_time).collect();
            link.input = unread.to_vec();
            if requests.is_empty() {
                break;
            }
            for request in requests {
                said.extend(self.execute(client, request).map(|text| (client, text)));
            }
        }
        said
    }

    fn execute(&mut self, client: Client, request: Request) -> Option<String> {
        let now = self.now();
        let link = self.links.get_mut(&client).unwrap();
        match self.engine.execute(link.id, request, now) {
            Outcome::Reply(reply) => Some(text(&reply)),
            Outcome::AwaitBody | Outcome::Waiting => None,
            Outcome::Unfinished(_) => unreachable!("there are few jobs"),
            Outcome::Quit => {
                self.engine.disconnect(link.id, now);
                self.links.remove(&client);
                Some("closed\r\n".into())
            }
        }
    }

    /// Compares what the two have said in this step, and what can be seen of
    /// their states from outside. In which order clients are told things at
    /// the same time cannot be seen.
    fn compare(&mut self, mut said: Vec<(Client, String)>) {
        let effects = std::mem::take(&mut self.engine.effects);
        self.keep(&effects.changes);
        for (id, reply) in effects.replies {
            let mut links = self.links.iter();
            let link = links.find(|(_, link)| link.id == id);
            let client = *link.expect("a connected client").0;
            said.push((client, text(&reply)));
        }
        let expected = std::mem::take(&mut self.model.said);
        let mut expected: Vec<_> = expected
            .into_iter()
            .map(|(client, text)| (client, text + "\r\n"))
            .collect();
        expected.sort();
        said.sort();
        for (client, text) in &said {
            self.history.hear(*client, text);
        }
        assert_eq!(said, expected, "left the engine, right the model");

        let wake_at = self.engine.wake_at().map(Time::as_nanos);
        if let Some(event) = self.model.next_event() {
            assert!(wake_at.is_some_and(|at| at <= event), "it would oversleep");
        }
        assert_eq!(self.engine.memory(), self.model.memory() as u64);
        assert_eq!(self.engine.next_id(), JobId(self.model.last_id + 1));
        for (&client, link) in &self.links {
            let mut jobs = self.model.jobs.iter();
            let holds = jobs.any(|job| job.state.holder() == Some(client));
            let is_idle = !holds && !self.model.is_waiting(client);
            assert_eq!(self.engine.is_idle(link.id), is_idle);
        }
        self.check_kept();
    }

    /// Keeps what has changed.
    fn keep(&mut self, changes: &[Change]) {
        for change in changes {
            match *change {
                Change::Put(id) | Change::Update(id) => {
                    // The job may have been deleted since.
                    if let Some(stored) = self.engine.stored(id) {
                        self.logged.insert(id, stored);
                    }
                }
                Change::Pause(ref tube) => {
                    self.pauses.remove(tube);
                    let pause = self.engine.stored_pause(tube);
                    self.pauses.extend(pause.map(|pause| (tube.clone(), pause)));
                }
                Change::Delete(id, _) => {
                    self.logged.remove(&id).expect("a job in the log");
                    // If its key is still taken, something is left of it.
                    let rest = self.engine.stored(id);
                    self.logged.extend(rest.map(|rest| (id, rest)));
                }
            }
        }
    }

    /// The stored jobs are those in the model.
    fn check_kept(&self) {
        for pause in self.pauses.values() {
            assert_eq!(self.engine.stored_pause(&pause.tube).as_ref(), Some(pause));
        }
        let keys = self.engine.tombstone_count();
        assert_eq!(self.logged.len(), self.engine.job_count() + keys);
        for (&id, stored) in &self.logged {
            let now = self.now();
            let held = self.engine.stored(id).expect("what is kept is there");
            let (held, stored) = (settled(held, now), settled(stored.clone(), now));
            let job = self.model.jobs.iter().find(|job| job.id == id.0);
            let is_reserved = job.is_some_and(|job| job.state.holder().is_some());
            if is_reserved {
                assert!(is_same(&held, &stored), "{held:?} is not {stored:?}")
            } else {
                assert_eq!(held, stored)
            }
        }
    }

    fn now(&self) -> Time {
        Time::from_nanos(self.model.now)
    }
}

/// An engine with the model's limits and time, and with nothing in it.
fn engine(model: &Model) -> Engine {
    let config = Config {
        max_job_size: model.max_job_size as u32,
        max_memory: model.max_memory.map(|bytes| bytes as u64),
        max_jobs_per_tube: model.max_jobs_per_tube.and_then(NonZeroUsize::new),
        keeps_changes: true,
    };
    Engine::new(config, Time::from_nanos(model.now))
}

/// The job when its delay is over, if it is: a log is not told of that, since
/// the end is known. When the job of a tombstone was created is of no use to anybody,
/// and not kept.
fn settled(mut job: StoredJob, now: Time) -> StoredJob {
    let fields = &mut job.fields;
    match fields.state {
        StoredState::Delayed { until } if until <= now => fields.state = StoredState::Ready,
        StoredState::Deleted { .. } => fields.created_at = Time::default(),
        _ => {}
    }
    job
}

/// Whether a job is the one that a log has. A log is not told that a ready job
/// is reserved. So the job may have been reserved once more than the log says.
fn is_same(job: &StoredJob, logged: &StoredJob) -> bool {
    let mut logged = logged.clone();
    let [reserves, ..] = &mut logged.fields.counters;
    if job.fields.counters[0] == *reserves + 1 {
        *reserves += 1;
    }
    *job == logged
}

/// The bytes that a client would see.
fn text(reply: &Reply) -> String {
    let mut bytes = Vec::new();
    reply.encode(&mut bytes);
    bytes.extend(reply.body().into_iter().flat_map(|body| body.wire()));
    String::from_utf8(bytes).expect("all bodies are text")
}
