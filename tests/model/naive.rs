//! The server as its protocol describes it, in the most naive way. It takes
//! text and returns text, and searches its lists from end to end.
//!
//! It is written from the protocol's text and from what is known of beanstalkd,
//! and not from the engine, because it is compared with the engine. It knows
//! valid command lines and some kinds of malformed ones. The transcripts have
//! the many other kinds.

mod commands;
mod documents;
mod options;

use documents::word;
use std::collections::{BTreeMap, BTreeSet};

/// A second, in the model's unit of time.
pub const SECOND: u64 = 1_000_000_000;

/// The number of a client. No client gets the number of an earlier one.
pub type Client = usize;

/// How many bytes count against the limit of memory: for each job besides its
/// body; for each watched tube after a connection's first; and for each tube
/// besides its name.
const JOB_OVERHEAD: usize = 200;
const PAGE_OVERHEAD: usize = 130;
const WATCH_OVERHEAD: usize = 40;
const TUBE_OVERHEAD: usize = 1200;

/// How many existing tubes a connection may watch, beside its first one, even if
/// the memory is full.
const WATCHED_FREELY: usize = 100;

/// The same for the options of a job, and for a key that stays taken, besides the
/// keys' text; and for a key with a limit.
const OPTIONS_OVERHEAD: usize = 400;
const LIMIT_OVERHEAD: usize = 1000;

/// The whole server.
#[derive(Default)]
pub struct Model {
    /// The time, in nanoseconds.
    pub now: u64,
    pub draining: bool,
    pub max_job_size: usize,
    pub max_memory: Option<usize>,
    pub max_jobs_per_tube: Option<usize>,
    /// How much of the memory the buffers of clients take.
    pub memory_outside: usize,
    /// The disk has no room for the next body or pause.
    pub disk_is_full: bool,
    pub jobs: Vec<Job>,
    pub last_id: u64,
    /// In the order of `list-tubes`.
    tubes: Vec<Tube>,
    tubes_ever: usize,
    clients: Vec<(Client, Connection)>,
    /// The clients that wait, in the order in which they began to wait.
    waiting: Vec<Client>,
    connected_ever: usize,
    /// How many clients earlier runs had. Their numbers are not given again.
    numbers_given: usize,
    burials: u64,
    /// The keys of deleted jobs that are still taken.
    pub tombstones: Vec<Tombstone>,
    counts: BTreeMap<String, u64>,
    refused: u64,
    refused_by_tubes: u64,
    expired: u64,
    timeouts: u64,
    jobs_ever: u64,
    /// The replies, each with its client, until they are taken.
    pub said: Vec<(Client, String)>,
    /// What the server has no time for in this time slice.
    pub left: Left,
}

/// What stays as it is until the next time slice, though it is due.
#[derive(Default)]
pub struct Left {
    /// Jobs, and keys of deleted ones.
    pub jobs: BTreeSet<u64>,
    pub paused: BTreeSet<String>,
    pub waiting: BTreeSet<Client>,
}

#[derive(Default)]
pub struct Job {
    pub id: u64,
    pub state: State,
    pub tube: String,
    pub priority: u32,
    pub delay: u64,
    pub ttr: u64,
    pub body: String,
    pub created: u64,
    /// How often it had each of the [`EVENTS`].
    pub events: [u32; 5],
    pub options: Options,
    /// It is to be buried when it is no longer reserved.
    pub is_bury_wanted: bool,
}

/// What happens to a job, as its statistics name it.
const EVENTS: [&str; 5] = ["reserves", "timeouts", "releases", "buries", "kicks"];
const RESERVE: usize = 0;
const TIMEOUT: usize = 1;
const RELEASE: usize = 2;
const BURY: usize = 3;
const KICK: usize = 4;

/// What follows the numbers of a put.
#[derive(Clone, Default)]
pub struct Options {
    /// A key that is unique in the tube, and for how many seconds it stays taken.
    pub unique: Option<(String, u64)>,
    /// A key, and how many jobs with it may be reserved at a time.
    pub limit: Option<(String, usize)>,
    pub tries: Option<u32>,
    /// After how many seconds the job is deleted.
    pub expires_after: Option<u64>,
    /// How many tries have failed since the last kick.
    pub failed_tries: u32,
}

/// The key of a deleted job, which is still taken.
pub struct Tombstone {
    pub id: u64,
    pub tube: String,
    pub key: String,
    pub until: u64,
}

#[derive(Clone, Copy, Default, PartialEq)]
pub enum State {
    #[default]
    Ready,
    Delayed {
        until: u64,
    },
    Reserved {
        by: Client,
        until: u64,
    },
    Buried {
        number: u64,
    },
}

impl State {
    /// The client that has reserved the job.
    pub fn holder(self) -> Option<Client> {
        match self {
            State::Reserved { by, .. } => Some(by),
            _ => None,
        }
    }
}

#[derive(Default)]
struct Tube {
    /// The number of the tube since the server started.
    number: usize,
    name: String,
    jobs_ever: u64,
    deletes: u64,
    pauses: u64,
    expired: u64,
    refused: u64,
    /// How often its jobs had each of the [`EVENTS`].
    events: [u64; 5],
    /// How long it is paused, in seconds, and until when.
    pause: Option<(u64, u64)>,
}

#[derive(Default)]
struct Connection {
    /// The number of the connection since the server started.
    number: usize,
    /// When it came, and when it said something last.
    since: u64,
    asked_at: u64,
    used: String,
    watched: Vec<String>,
    /// While it waits: the end of its timeout.
    gives_up_at: Option<u64>,
    /// Whether it wants to know more about the job.
    wants_stats: bool,
    half_closed: bool,
    producer: bool,
    worker: bool,
    puts: u64,
    reserves: u64,
    incoming: Option<Incoming>,
}

/// What becomes of the next body, and its size.
enum Incoming {
    Job(Box<Job>, usize),
    TooBig,
}

impl Model {
    pub fn new(now: u64, max_job_size: usize, max_memory: Option<usize>) -> Model {
        let mut model = Model {
            now,
            max_job_size,
            max_memory,
            ..Model::default()
        };
        model.make_tube("default");
        model
    }

    pub fn connect(&mut self) -> Client {
        let client = self.numbers_given;
        self.numbers_given += 1;
        self.connected_ever += 1;
        let connection = Connection {
            number: self.connected_ever,
            since: self.now,
            asked_at: self.now,
            used: "default".into(),
            watched: vec!["default".into()],
            ..Connection::default()
        };
        self.clients.push((client, connection));
        client
    }

    pub fn disconnect(&mut self, client: Client) {
        self.begin_to_disconnect(client, usize::MAX);
        let watched = self.client(client).watched.remove(0);
        self.forget_tube_if_unused(&watched);
        let used = self.client(client).used.clone();
        self.clients.retain(|(one, _)| *one != client);
        self.forget_tube_if_unused(&used);
    }

    /// A time slice of a disconnect that needs more than one: so many tubes are not watched
    /// any more.
    pub fn begin_to_disconnect(&mut self, client: Client, tubes: usize) {
        self.waiting.retain(|&one| one != client);
        self.end_silently(|by, _| by == client);
        self.serve();
        let others = self.client(client).watched.len() - 1;
        for _ in 0..others.min(tubes) {
            let tube = self.client(client).watched.swap_remove(0);
            self.forget_tube_if_unused(&tube);
        }
    }

    pub fn half_close(&mut self, client: Client) {
        self.client(client).half_closed = true;
        if self.is_waiting(client) {
            self.end_wait(client, "TIMED_OUT");
        }
    }

    /// Restarts the server with the jobs that it had, and without clients.
    pub fn restart(&mut self) {
        let (jobs, tombstones) = (
            std::mem::take(&mut self.jobs),
            std::mem::take(&mut self.tombstones),
        );
        let pauses = self.tubes.iter().filter_map(|tube| {
            let (seconds, until) = tube.pause?;
            Some((tube.name.clone(), seconds, until))
        });
        let pauses = pauses.collect();
        self.restart_with(jobs, tombstones, pauses, self.last_id);
    }

    /// Restarts the server with these jobs and keys, and with those of the pauses whose tube
    /// has a job: of which tube each is, how long, and until when. None of the jobs is
    /// reserved.
    pub fn restart_with(
        &mut self,
        jobs: Vec<Job>,
        tombstones: Vec<Tombstone>,
        pauses: Vec<(String, u64, u64)>,
        last_id: u64,
    ) {
        let before = std::mem::take(self);
        *self = Model::new(before.now, before.max_job_size, before.max_memory);
        self.max_jobs_per_tube = before.max_jobs_per_tube;
        self.numbers_given = before.numbers_given;
        self.last_id = last_id;
        self.tombstones = tombstones;
        for mut job in jobs {
            job.is_bury_wanted = false;
            if job.state.holder().is_some() {
                job.state = State::Ready;
            }
            if let State::Buried { number } = job.state {
                self.burials = self.burials.max(number + 1);
            }
            self.make_tube(&job.tube);
            self.jobs.push(job);
        }
        for (name, seconds, until) in pauses {
            let latest = self.now + seconds * SECOND;
            if let Some(tube) = self.tube(&name) {
                tube.pause = Some((seconds, until.min(latest)));
            }
        }
    }

    /// Does all that is due by now, at once: jobs become ready, the clients
    /// that wait are served, and only then do others hear that there is no job.
    pub fn tick(&mut self) {
        let now = self.now;
        for tube in &mut self.tubes {
            let is_left = self.left.paused.contains(&tube.name);
            tube.pause = tube.pause.filter(|&(_, until)| until > now || is_left);
        }
        for job in &mut self.jobs {
            match job.state {
                _ if self.left.jobs.contains(&job.id) => {}
                State::Delayed { until } if until <= now => job.state = State::Ready,
                _ => {}
            }
        }
        for id in self.ended(|_, until| until <= now) {
            self.note(id, TIMEOUT);
            self.timeouts += 1;
        }
        self.end_silently(|_, until| until <= now);
        self.serve();
        for client in self.served_now() {
            if self.deadline_soon_at(client).is_some_and(|at| at <= now) {
                self.end_wait(client, "DEADLINE_SOON");
            } else if self.client(client).gives_up_at.is_some_and(|at| at <= now) {
                self.end_wait(client, "TIMED_OUT");
            }
        }
    }

    /// Buries the jobs that were reserved until now and are ready, if a client has
    /// wanted it.
    fn bury_if_wanted(&mut self) {
        let mut wanted = Vec::new();
        for job in &mut self.jobs {
            if job.state.holder().is_none() && std::mem::take(&mut job.is_bury_wanted) {
                wanted.extend((job.state == State::Ready).then_some(job.id));
            }
        }
        wanted.into_iter().for_each(|id| self.bury(id));
    }

    fn bury(&mut self, id: u64) {
        let number = self.burials;
        self.burials += 1;
        self.job_mut(id).state = State::Buried { number };
        self.note(id, BURY);
    }

    /// Notes that a job had this event.
    fn note(&mut self, id: u64, event: usize) {
        let job = self.job_mut(id);
        job.events[event] += 1;
        let tube = job.tube.clone();
        self.tube(&tube).unwrap().events[event] += 1;
    }

    /// The time of the next event of any tube, job or client.
    pub fn next_event(&self) -> Option<u64> {
        let paused = self.tubes.iter().filter_map(|tube| tube.pause);
        let pauses = paused.map(|(_, until)| until);
        let expiries = self.jobs.iter().filter_map(Job::may_expire_at);
        let jobs = self.jobs.iter().filter_map(|job| match job.state {
            State::Delayed { until } | State::Reserved { until, .. } => Some(until),
            _ => None,
        });
        let jobs = jobs.chain(expiries);
        let waits = self.waiting.iter().flat_map(|&client| {
            let gives_up_at = self.connection(client).gives_up_at;
            [gives_up_at, self.deadline_soon_at(client)]
        });
        let keys = self.tombstones.iter().map(|key| key.until);
        pauses.chain(jobs).chain(waits.flatten()).chain(keys).min()
    }

    /// Gives jobs to the clients that wait, in the order in which they came. Jobs whose
    /// time is over are for nobody, and keys whose time is over are free.
    pub fn serve(&mut self) {
        self.expire();
        for client in self.served_now() {
            if let Some(id) = self.next_for(client) {
                let wants_stats = self.client(client).wants_stats;
                let reply = self.reserve_now(client, id, wants_stats);
                self.end_wait(client, &reply);
            }
        }
    }

    /// Those that wait and may have an answer in this time slice.
    fn served_now(&self) -> Vec<Client> {
        let waiting = self.waiting.iter().copied();
        waiting
            .filter(|one| !self.left.waiting.contains(one))
            .collect()
    }

    fn end_wait(&mut self, client: Client, reply: &str) {
        self.waiting.retain(|&one| one != client);
        self.said.push((client, reply.into()));
    }

    /// The job that this client gets if it reserves now.
    fn next_for(&self, client: Client) -> Option<u64> {
        let connection = self.connection(client);
        let is_open = |name: &String| {
            let paused = |tube: &Tube| tube.name == *name && tube.pause.is_some();
            connection.watched.contains(name) && !self.tubes.iter().any(paused)
        };
        let jobs = self.jobs.iter().filter(|job| job.state == State::Ready);
        let job = jobs.filter(|job| is_open(&job.tube) && self.places_free(job) > 0);
        Some(job.min_by_key(|job| (job.priority, job.id))?.id)
    }

    /// The delayed job of a tube whose delay ends first, or the one that was buried first.
    fn first_put_aside(&self, tube: &str, state: &str) -> Option<&Job> {
        let jobs = self.jobs_in(tube).filter(|job| word(job.state) == state);
        jobs.min_by_key(|job| match job.state {
            State::Delayed { until } => (until, job.id),
            State::Buried { number } => (number, job.id),
            State::Ready | State::Reserved { .. } => unreachable!("it is put aside"),
        })
    }

    fn job(&self, id: u64) -> Option<&Job> {
        self.jobs.iter().find(|job| job.id == id)
    }

    fn job_mut(&mut self, id: u64) -> &mut Job {
        let job = self.jobs.iter_mut().find(|job| job.id == id);
        job.expect("a job that exists")
    }

    /// Whether a client has reserved this job.
    fn holds(&self, client: Client, id: u64) -> bool {
        self.job(id).and_then(|job| job.state.holder()) == Some(client)
    }

    fn jobs_in(&self, tube: &str) -> impl Iterator<Item = &Job> + Clone {
        self.jobs.iter().filter(move |job| job.tube == tube)
    }

    /// The time one second before the first of its jobs times out.
    fn deadline_soon_at(&self, client: Client) -> Option<u64> {
        let its = self.jobs.iter().filter_map(|job| match job.state {
            State::Reserved { by, until } if by == client => Some(until - SECOND),
            _ => None,
        });
        its.min()
    }

    pub fn is_waiting(&self, client: Client) -> bool {
        self.waiting.contains(&client)
    }

    /// How many bytes jobs, tubes other than `default`, and watches take.
    pub fn memory(&self) -> usize {
        let job = |job: &Job| job.body.len() + 2 + JOB_OVERHEAD;
        let tube = |tube: &Tube| match &*tube.name {
            "default" => 0,
            name => name.len() + TUBE_OVERHEAD,
        };
        let watches = |(_, one): &(Client, Connection)| (one.watched.len() - 1) * WATCH_OVERHEAD;
        let pages: BTreeSet<u64> = self.jobs.iter().map(|job| job.id / 32).collect();
        self.jobs.iter().map(job).sum::<usize>()
            + pages.len() * PAGE_OVERHEAD
            + self.memory_of_options()
            + self.tubes.iter().map(tube).sum::<usize>()
            + self.clients.iter().map(watches).sum::<usize>()
    }

    pub fn has_room(&self, bytes: usize) -> bool {
        self.memory() + self.memory_outside + bytes <= self.max_memory.unwrap_or(usize::MAX)
    }

    fn connection(&self, client: Client) -> &Connection {
        let found = self.clients.iter().find(|(one, _)| *one == client);
        &found.expect("a client that is connected").1
    }

    fn client(&mut self, client: Client) -> &mut Connection {
        let found = self.clients.iter_mut().find(|(one, _)| *one == client);
        &mut found.expect("a client that is connected").1
    }

    fn tube(&mut self, name: &str) -> Option<&mut Tube> {
        self.tubes.iter_mut().find(|tube| tube.name == name)
    }

    fn make_tube(&mut self, name: &str) {
        if self.tube(name).is_none() {
            self.tubes_ever += 1;
            self.tubes.push(Tube {
                number: self.tubes_ever,
                name: name.into(),
                ..Tube::default()
            });
        }
    }

    /// When a tube goes, the last one takes its place in the list.
    fn forget_tube_if_unused(&mut self, name: &str) {
        let refers = |one: &Connection| one.used == name || one.watched.iter().any(|n| n == name);
        let is_used = name == "default"
            || self.jobs_in(name).next().is_some()
            || self.clients.iter().any(|(_, one)| refers(one));
        let position = self.tubes.iter().position(|tube| tube.name == name);
        if let (Some(position), false) = (position, is_used) {
            self.tubes.swap_remove(position);
        }
    }

    fn count(&mut self, command: &str) {
        *self.counts.entry(command.into()).or_default() += 1;
    }
}
