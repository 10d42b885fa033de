//! The state machine: commands and time in, replies and wake-ups out.
//!
//! An [`Engine`] holds all jobs, tubes and connections and knows no socket,
//! file, thread or clock. Whoever drives it
//!
//! 1. tells it of each [`connect`](Engine::connect) and
//!    [`disconnect`](Engine::disconnect),
//! 2. has it [`execute`](Engine::execute) each request, in order,
//! 3. calls [`tick`](Engine::tick) when the time that
//!    [`wake_at`](Engine::wake_at) names has come, or later if nobody
//!    [waits](Engine::has_waiting), and
//! 4. after each of these does what [`Effects`] holds: answers those whose
//!    waiting has ended, and keeps a record of what has changed.
//!
//! Time only enters as an argument and should not run backwards; where it
//! does, a deadline comes late, and no harm is done.
//!
//! The commands themselves are in `commands.rs`, one method each; how jobs
//! pass from state to state, and what the clock does, is in `transitions.rs`.
//!
//! # Invariants
//!
//! - A job is in exactly one collection, the one that its state names.
//! - A tube that is not paused never has both a ready job and a waiting
//!   connection.
//! - Each tube's and each connection's timer is set to its next event.

mod commands;
mod connection;
mod delayed;
mod job;
mod ready;
mod slab;
mod time;
mod transitions;
mod tube;
mod wheel;

pub use crate::protocol::stats::Counters;
pub use connection::ConnectionId;
pub use job::{StoredJob, StoredState};
pub use time::Time;

use crate::protocol::stats::{CommandCounts, JobCounts};
use crate::protocol::{Body, JobId, Reply, TubeName};
use connection::Connection;
use job::{Job, JobTable, State};
use slab::Slab;
use tube::Tubes;
use wheel::Wheel;

/// What a job takes besides its body, in bytes, as `max_memory` counts it.
pub const JOB_OVERHEAD: u64 = 120;

/// What is set once and for all when the server starts.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// The largest body taken, in bytes.
    pub max_job_size: u32,
    /// The most that jobs may take together, in bytes; `None` for no limit.
    pub max_memory: Option<u64>,
    /// Whether [`Effects::changes`] is wanted.
    pub journal: bool,
}

/// What becomes of a request.
#[derive(Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The answer.
    Reply(Reply),
    /// Nothing yet: the line of a put, answered when its body has come.
    AwaitBody,
    /// The same, but there is no room: the body may be thrown away as it
    /// comes, to be told as [`BodyWithoutRoom`](crate::protocol::Request::BodyWithoutRoom).
    RefuseBody,
    /// The connection waits for a job: the answer comes through
    /// [`Effects::replies`], and no request of its may be executed before.
    Waiting,
    /// The connection is to be closed.
    Quit,
}

/// What others have to do after a call. It grows until it is taken.
#[derive(Debug, Default)]
pub struct Effects {
    /// Answers to connections that have waited, in the order in which they
    /// were given.
    pub replies: Vec<(ConnectionId, Reply)>,
    /// What has changed, in order, if [`Config::journal`] says so.
    pub changes: Vec<Change>,
    /// Bodies of deleted jobs, so that whoever holds a lock can free them
    /// when it no longer does.
    pub garbage: Vec<Body>,
}

/// A change that a log must hold to bring the jobs back. Touching is none, nor
/// is a delay that ends: its end is known. Who reserves a job promises nothing
/// either, but counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// A new job.
    Put(JobId),
    /// Its state, priority, delay or counters are not what they were.
    Update(JobId),
    /// It is gone.
    Delete {
        /// The job.
        id: JobId,
        /// The length of its tube's name, in bytes.
        tube_len: usize,
        /// The length of its body with CR LF, in bytes.
        body_len: usize,
    },
}

/// Whose timer it is: a place in the tubes or in the connections.
#[derive(Clone, Copy)]
enum Owner {
    Tube(u32),
    Connection(u32),
}

/// All jobs, tubes and connections.
pub struct Engine {
    config: Config,
    jobs: JobTable,
    tubes: Tubes,
    connections: Slab<Connection>,
    wheel: Wheel<Owner>,
    /// The id of the next job, the order of the next burial and of the next
    /// wait, and the serial of the next connection.
    next_id: u64,
    next_burial: u64,
    next_wait: u64,
    next_serial: u32,
    /// The sum over all tubes.
    totals: JobCounts,
    /// Bytes of all bodies, also of those on their way.
    body_bytes: u64,
    /// How many jobs are on their way.
    incoming: u64,
    /// How many connections wait.
    waiting: usize,
    draining: bool,
    commands: CommandCounts,
    timeouts: u64,
    total_jobs: u64,
    total_connections: u64,
    effects: Effects,
    /// Owners of timers that are due; empty between calls.
    due: Vec<Owner>,
    /// Tubes that may have something for those who wait; empty between calls.
    unserved: Vec<u32>,
}

impl Engine {
    /// An engine with the tube `default` and nothing else.
    pub fn new(config: Config, now: Time) -> Engine {
        let mut engine = Engine {
            config,
            jobs: JobTable::default(),
            tubes: Tubes::new(),
            connections: Slab::new(),
            wheel: Wheel::new(now),
            next_id: 1,
            next_burial: 0,
            next_wait: 0,
            next_serial: 0,
            totals: JobCounts::default(),
            body_bytes: 0,
            incoming: 0,
            waiting: 0,
            draining: false,
            commands: CommandCounts::default(),
            timeouts: 0,
            total_jobs: 0,
            total_connections: 0,
            effects: Effects::default(),
            due: Vec::new(),
            unserved: Vec::new(),
        };
        let default = engine.find_or_make_tube(&TubeName::default_tube());
        assert_eq!(default, Tubes::DEFAULT);
        engine
    }

    /// Takes the effects of the calls before and leaves `empty` to be filled.
    pub fn take_effects(&mut self, empty: Effects) -> Effects {
        std::mem::replace(&mut self.effects, empty)
    }

    /// Takes the changes alone and leaves `empty` to be filled.
    pub fn take_changes(&mut self, empty: Vec<Change>) -> Vec<Change> {
        std::mem::replace(&mut self.effects.changes, empty)
    }

    /// A new connection: it uses `default` and watches it.
    pub fn connect(&mut self) -> ConnectionId {
        let serial = self.next_serial;
        self.next_serial = self.next_serial.wrapping_add(1);
        let wheel = &mut self.wheel;
        let place = self.connections.insert_with(|place| {
            let timer = wheel.add(Owner::Connection(place));
            Connection::new(serial, timer)
        });
        let default = &mut self.tubes[Tubes::DEFAULT];
        default.using += 1;
        default.watching += 1;
        self.total_connections += 1;
        ConnectionId { place, serial }
    }

    /// The connection is gone: its jobs are ready again.
    pub fn disconnect(&mut self, id: ConnectionId, now: Time) {
        let Some(place) = self.place(id) else { return };
        self.stop_waiting(place);
        // All at once, so that the best of them goes to whoever waits first.
        while let Some(&(_, job)) = self.connections[place].reserved.first() {
            self.change_state(job, State::Ready);
        }
        self.serve(now);
        self.give_up_incoming(place);
        let connection = self.connections.remove(place).expect("it was there");
        self.wheel.remove(connection.timer);
        // In the order of the reference server, which `list-tubes` shows.
        let mut watched = connection.watched;
        while !watched.is_empty() {
            let tube = watched.swap_remove(0);
            self.tubes[tube].watching -= 1;
            self.remove_tube_if_unused(tube);
        }
        self.tubes[connection.used].using -= 1;
        self.remove_tube_if_unused(connection.used);
    }

    /// The peer will send nothing more: it is not kept waiting, now or later.
    /// `TIMED_OUT` is what a half-closed client gets, says the protocol.
    pub fn hang_up(&mut self, id: ConnectionId) {
        let Some(place) = self.place(id) else { return };
        self.connections[place].half_closed = true;
        if self.connections[place].wait.is_some() {
            self.answer_waiting(place, Reply::TimedOut);
        }
    }

    /// When to call [`tick`](Self::tick): never later than something is due.
    /// `None` if nothing ever happens by the clock alone.
    pub fn wake_at(&self) -> Option<Time> {
        self.wheel.wake_at()
    }

    /// Whether anybody waits for a job. If not, nobody sees whether a tick
    /// comes in time: each request finds done what is due, as far as one tick
    /// does it.
    pub fn has_waiting(&self) -> bool {
        self.waiting > 0
    }

    /// From now on no new jobs are taken, or they are again.
    pub fn set_draining(&mut self, draining: bool) {
        self.draining = draining;
    }

    /// Whether new jobs are refused.
    pub fn is_draining(&self) -> bool {
        self.draining
    }

    /// Whether this connection holds no job and waits for none.
    pub fn is_idle(&self, id: ConnectionId) -> bool {
        self.place(id).is_some_and(|place| {
            let connection = &self.connections[place];
            connection.reserved.is_empty() && connection.wait.is_none()
        })
    }

    /// The ids of all jobs, in ascending order.
    pub fn ids(&self) -> impl Iterator<Item = JobId> {
        self.jobs.ids()
    }

    /// How many jobs there are.
    pub fn job_count(&self) -> usize {
        self.jobs.len()
    }

    /// Brings a job of an earlier run back, before anybody is connected. Its id
    /// must not be in use.
    pub fn restore(&mut self, stored: StoredJob) {
        let (id, priority) = (stored.id, stored.priority);
        let tube = self.find_or_make_tube(&stored.tube);
        let state = match stored.state {
            StoredState::Ready => State::Ready,
            StoredState::Delayed { until } => State::delayed(until),
            StoredState::Buried { order } => State::Buried { order },
        };
        if let State::Buried { order } = state {
            self.next_burial = self.next_burial.max(order + 1);
        }
        self.next_id = self.next_id.max(id.0 + 1);
        self.body_bytes += stored.body.wire().len() as u64;
        self.jobs.insert(id, Job::new(stored, tube, state));
        self.enter(id, tube, priority, state);
    }

    /// Undoes [`restore`](Self::restore).
    pub fn forget(&mut self, id: JobId) -> Option<StoredJob> {
        let stored = self.stored(id)?;
        let tube = self.jobs[id].tube;
        self.leave(id, tube, stored.priority);
        self.jobs.remove(id);
        self.body_bytes -= stored.body.wire().len() as u64;
        self.remove_tube_if_unused(tube);
        Some(stored)
    }

    /// No job gets an id below this one.
    pub fn set_next_id(&mut self, id: JobId) {
        self.next_id = self.next_id.max(id.0);
    }

    /// The id that the next job gets.
    pub fn next_id(&self) -> JobId {
        JobId(self.next_id)
    }

    /// A job as a log must hold it; `None` if it is gone.
    pub fn stored(&self, id: JobId) -> Option<StoredJob> {
        let job = self.jobs.get(id)?;
        Some(StoredJob {
            id,
            tube: self.tubes[job.tube].name.clone(),
            body: job.body.clone(),
            priority: job.priority,
            delay: job.delay,
            ttr: job.ttr,
            created_at: job.created_at,
            state: job.stored_state(),
            counters: job.counters(),
        })
    }

    /// What jobs take, as [`Config::max_memory`] counts it.
    pub fn memory(&self) -> u64 {
        self.body_bytes + (self.jobs.len() as u64 + self.incoming) * JOB_OVERHEAD
    }

    /// The place of a connection, if it is still there.
    fn place(&self, id: ConnectionId) -> Option<u32> {
        let connection = self.connections.get(id.place)?;
        (connection.serial == id.serial).then_some(id.place)
    }

    fn find_or_make_tube(&mut self, name: &TubeName) -> u32 {
        let wheel = &mut self.wheel;
        self.tubes
            .find_or_make(name, |place| wheel.add(Owner::Tube(place)))
    }

    fn remove_tube_if_unused(&mut self, place: u32) {
        if let Some(timer) = self.tubes.remove_if_unused(place) {
            self.wheel.remove(timer);
        }
    }

    /// Panics if an invariant is broken: for tests. Looks at everything there
    /// is.
    pub fn check(&self) {
        assert!(self.unserved.is_empty() && self.due.is_empty());
        let mut totals = JobCounts::default();
        for tube in self.tubes.iter() {
            let counted = [tube.ready.len(), tube.delayed.len(), tube.buried.len()];
            let jobs = &tube.jobs;
            assert_eq!(counted, [jobs.ready, jobs.delayed, jobs.buried]);
            assert!(
                tube.pause.is_some() || tube.waiting.is_empty() || jobs.ready == 0,
                "{} has waiting connections and ready jobs",
                tube.name
            );
            totals.urgent += jobs.urgent;
            totals.ready += jobs.ready;
            totals.reserved += jobs.reserved;
            totals.delayed += jobs.delayed;
            totals.buried += jobs.buried;
            assert!(self.wake_at() <= tube.next_event() || tube.next_event().is_none());
        }
        assert_eq!(totals, self.totals);
        let jobs = totals.ready + totals.reserved + totals.delayed + totals.buried;
        assert_eq!(jobs, self.jobs.len());
        let held = self.connections.iter().map(|held| held.reserved.len());
        assert_eq!(held.sum::<usize>(), totals.reserved);
        let waiting = self.connections.iter().filter(|one| one.wait.is_some());
        assert_eq!(waiting.count(), self.waiting);
        let bytes = |id| self.jobs[id].body.wire().len() as u64;
        let incoming = self.connections.iter().filter_map(|one| one.incoming);
        let incoming: u64 = incoming
            .filter(|incoming| incoming.fits)
            .map(|incoming| u64::from(incoming.put.size) + 2)
            .sum();
        let bodies: u64 = self.jobs.ids().map(bytes).sum();
        assert_eq!(bodies + incoming, self.body_bytes);
    }
}
