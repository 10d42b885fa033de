//! The state machine: commands and time in, replies and wake-ups out.
//!
//! An [`Engine`] holds all jobs, tubes and connections. It knows no socket,
//! file, thread or clock. Its caller
//!
//! 1. tells it of each [`connect`](Engine::connect) and
//!    [`disconnect`](Engine::disconnect),
//! 2. has it [`execute`](Engine::execute) each request, in order,
//! 3. calls [`tick`](Engine::tick) at the time that
//!    [`wake_at`](Engine::wake_at) names, or later if no connection
//!    [waits](Engine::has_waiting), and
//! 4. does what [`Effects`] holds after each of these calls: sends the answers
//!    to connections whose waiting has ended, and keeps a record of the
//!    changes.
//!
//! No call takes long, however many jobs there are: work on very many jobs is
//! done in pieces of at most a thousand. `disconnect` says whether all is done, a
//! `kick` or a `reserve` is [`Unfinished`](Outcome::Unfinished), and after each
//! call `wake_at` tells whether more is due. Between two pieces the caller may
//! serve other connections.
//!
//! Time enters only as an argument and should not run backwards. If it does, a
//! deadline comes late, and nothing else goes wrong.
//!
//! `commands.rs` has the commands, a line or a method for each.
//! `transitions.rs` has the ways of a job from state to state, and what the
//! clock does. `counts.rs` has the counts, and `stats.rs` the answers to
//! `stats` and its like. `options` has what the three options after a put do, and
//! what is known of jobs that have such options.
//!
//! # Invariants
//!
//! - A job is in exactly one collection, the one that its state names. (A ready
//!   job with a limit is in the line of its key, and may be in the ready queue
//!   as well.)
//! - If a tube that is not paused has both a job in its ready queue and a waiting
//!   connection, it is among the unserved tubes, and nobody else can reserve.
//! - Each tube's and each connection's timer is set to its next event or earlier.

mod commands;
mod connection;
mod counts;
mod job;
mod options;
mod ready;
mod slab;
mod stats;
mod time;
mod transitions;
mod tube;
mod wheel;

pub use crate::protocol::Counters;
pub use connection::ConnectionId;
pub use job::{StoredJob, StoredOptions, StoredState};
pub use time::{Shift, Time};

use crate::protocol::{Body, JobId, Reply, TubeName};
use connection::Connection;
use counts::{ConnectionCounts, JobCounts, Totals};
use job::{Job, Jobs, State};
use options::SideTables;
use slab::{ConnectionIndex, OfConnections, Slab, TubeIndex};
use std::collections::{BTreeMap, BTreeSet};
use tube::{Order, Tubes};
use wheel::Wheel;

/// What each tube that a connection watches beside its first one takes, in
/// bytes, as `max_memory` counts it. A connection that waits stands in the
/// queues of all tubes that it watches.
const WATCH_OVERHEAD: u64 = 40;

/// Work on very many jobs or tubes is done in pieces of so many.
const PIECE: usize = 1000;

/// Settings that do not change after the start.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// The largest body taken, in bytes.
    pub max_job_size: u32,
    /// The most memory that jobs, tubes, watches and buffers may take together,
    /// in bytes; `None` for no limit.
    pub max_memory: Option<u64>,
    /// Whether the engine fills [`Effects::changes`].
    pub keeps_changes: bool,
}

impl Config {
    /// Jobs of this size are taken, there is no other limit, and nobody wants the
    /// changes.
    pub fn new(max_job_size: u32) -> Config {
        Config {
            max_job_size,
            max_memory: None,
            keeps_changes: false,
        }
    }
}

/// The result of a request.
#[derive(Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The answer.
    Reply(Reply),
    /// No answer yet: this was the line of a put, and the put is answered after
    /// its body.
    AwaitBody,
    /// The connection waits for a job. The answer comes through
    /// [`Effects::replies`]; until then the connection must send no other
    /// request.
    Waiting,
    /// A piece of the request is done.
    /// [`Request::GoOn`](crate::protocol::Request::GoOn) does the next piece.
    Unfinished,
    /// The connection is to be closed.
    Quit,
}

/// What the caller has to do after a call. It grows until it is cleared.
#[derive(Debug, Default)]
pub struct Effects {
    /// Answers to connections that have waited, in the order in which they were
    /// answered.
    pub replies: Vec<(ConnectionId, Reply)>,
    /// All changes in their order, if [`Config::keeps_changes`] is set.
    pub changes: Vec<Change>,
    /// Bodies that are no longer needed. The caller frees them after it has
    /// released its lock.
    pub garbage: Vec<Body>,
    /// The cost of the calls: how many jobs, tubes and connections they looked
    /// at or changed.
    pub steps: usize,
}

/// A change that a log must hold to bring the jobs back. A touch is no change,
/// nor is the end of a delay, since the log knows when the delay ends. Nor is it
/// a change that a ready job is reserved: after a restart the job is ready
/// again. The end of the reservation is a change, and counts it. So after a
/// restart `reserves` may lack the reservation that the end of the server cut
/// short, and no other one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// A new job.
    Put(JobId),
    /// Its state, priority, delay or counters are different now.
    Update(JobId),
    /// It is gone. If its key is still taken, [`Engine::stored`] has what is
    /// left of it; when the key is free, there is another `Delete`.
    Delete {
        /// The job.
        id: JobId,
        /// The length of its tube's name, in bytes.
        tube_len: usize,
        /// The length of its body with CR LF, in bytes.
        body_len: usize,
        /// The lengths of its keys together, in bytes; `None` if it has no
        /// options.
        keys_len: Option<usize>,
    },
}

/// What a timer belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Owner {
    /// The keys of deleted jobs, all together.
    Keys,
    Tube(TubeIndex),
    Connection(ConnectionIndex),
}

/// All jobs, tubes and connections.
pub struct Engine {
    /// The settings; they never change.
    pub config: Config,
    jobs: Jobs,
    tubes: Tubes,
    connections: Slab<OfConnections, Connection>,
    connections_by_id: BTreeMap<ConnectionId, ConnectionIndex>,
    options: SideTables,
    wheel: Wheel<Owner>,
    /// When the timer of the keys of deleted jobs rings.
    keys_timer: Option<Time>,
    /// The next numbers: of a job, of a burial, of a connection that waits, and
    /// of a connection.
    next_id: u64,
    next_burial: u64,
    next_order: Order,
    next_connection: u64,
    /// The sums over all tubes and connections.
    jobs_now: JobCounts,
    connections_now: ConnectionCounts,
    watches: u64,
    totals: Totals,
    /// How many bytes the caller holds for clients outside the engine. They
    /// count against the limit as well.
    pub held_elsewhere: u64,
    /// How far the system's clock is ahead, for what is stored.
    pub shift: Shift,
    /// When the engine was made.
    made_at: Time,
    /// The latest moment that restored jobs tell of.
    pub latest_restored: Time,
    /// While this is set, the engine refuses new jobs.
    pub draining: bool,
    /// Whether the caller refuses puts because the disk is full, for `stats`.
    pub disk_is_full: bool,
    /// What the last put needed, in bytes, if there was no room for it.
    refused_for_memory: Option<u64>,
    /// What the caller has to do, and then to clear.
    pub effects: Effects,
    /// Tubes that may have a ready job for a waiting connection, each with the
    /// connection that had waited longest when that was noted. Mostly empty
    /// between calls: what is left is served in the next ones.
    unserved: BTreeSet<(Order, TubeIndex)>,
}

impl Engine {
    /// An engine with the tube `default` and nothing else.
    pub fn new(config: Config, now: Time) -> Engine {
        let mut engine = Engine {
            config,
            jobs: Jobs::default(),
            tubes: Tubes::new(),
            connections: Slab::new(),
            connections_by_id: BTreeMap::new(),
            options: SideTables::default(),
            wheel: Wheel::new(now),
            keys_timer: None,
            next_id: 1,
            next_burial: 0,
            next_order: 0,
            next_connection: 1,
            jobs_now: JobCounts::default(),
            connections_now: ConnectionCounts::default(),
            watches: 0,
            totals: Totals::default(),
            held_elsewhere: 0,
            shift: Shift::default(),
            made_at: now,
            latest_restored: Time::default(),
            draining: false,
            disk_is_full: false,
            refused_for_memory: None,
            effects: Effects::default(),
            unserved: BTreeSet::new(),
        };
        let default = engine.tubes.find_or_make(&TubeName::default_tube());
        assert_eq!(default, Tubes::DEFAULT);
        engine
    }

    /// A new connection: it uses `default` and watches it.
    pub fn connect(&mut self) -> ConnectionId {
        let id = ConnectionId(self.next_connection);
        self.next_connection += 1;
        let index = self.connections.insert(Connection {
            id,
            used: Tubes::DEFAULT,
            watched: vec![Tubes::DEFAULT],
            ..Connection::default()
        });
        self.connections_by_id.insert(id, index);
        let default = &mut self.tubes[Tubes::DEFAULT];
        default.using += 1;
        default.watching += 1;
        self.totals.connections += 1;
        id
    }

    /// The connection is gone: its jobs become ready again, or are buried if
    /// that was the last of the tries that they have. Returns whether all
    /// is done. If not, there is more to do, and the caller has to call again.
    pub fn disconnect(&mut self, id: ConnectionId, now: Time) -> bool {
        let Some(index) = self.find(id) else {
            return true;
        };
        self.stop_waiting(index);
        // First all of them become ready, then the engine serves: so the
        // connection that has waited longest gets the best of these jobs.
        for _ in 0..PIECE {
            match self.connections[index].reserved.first() {
                Some(&(_, job)) => {
                    let state = self.state_after_silence(job);
                    self.record(Change::Update(job));
                    self.change_state(job, state);
                }
                None => break,
            }
        }
        self.serve(now);
        // This is the order of the reference server, and `list-tubes` shows it.
        for _ in 0..PIECE {
            match self.connections[index].watched[..] {
                [first, _, ..] => self.unwatch(index, 0, first),
                _ => break,
            }
        }
        let connection = &self.connections[index];
        if !connection.reserved.is_empty() || connection.watched.len() > 1 {
            return false;
        }
        self.connections_by_id.remove(&id);
        let mut connection = self.connections.remove(index).expect("it was there");
        self.wheel
            .clear(Owner::Connection(index), &mut connection.timer);
        self.connections_now.producers -= usize::from(connection.is_producer);
        self.connections_now.workers -= usize::from(connection.is_worker);
        self.tubes[connection.watched[0]].watching -= 1;
        self.remove_tube_if_unused(connection.watched[0]);
        self.tubes[connection.used].using -= 1;
        self.remove_tube_if_unused(connection.used);
        true
    }

    /// The connection, which does not wait, watches the tube at this position no
    /// more.
    fn unwatch(&mut self, index: ConnectionIndex, position: usize, tube: TubeIndex) {
        let watched = &mut self.connections[index].watched;
        watched.swap_remove(position);
        if watched.len() * 4 < watched.capacity() {
            watched.shrink_to(watched.len() * 2);
        }
        self.tubes[tube].watching -= 1;
        self.watches -= 1;
        self.remove_tube_if_unused(tube);
    }

    /// Notes that the peer will send nothing more. From now on this connection
    /// does not wait: by the protocol, a half-closed client gets `TIMED_OUT`.
    pub fn half_close(&mut self, id: ConnectionId) {
        let Some(index) = self.find(id) else { return };
        self.connections[index].half_closed = true;
        if self.connections[index].wait.is_some() {
            self.answer_waiting(index, Reply::TimedOut);
        }
    }

    /// When to call [`tick`](Self::tick): at or before the next due time.
    /// `None` if the clock alone will change nothing.
    pub fn wake_at(&self) -> Option<Time> {
        match self.is_behind() {
            true => Some(Time::default()),
            false => self.wheel.wake_at,
        }
    }

    /// Whether any connection waits for a job. If none does, no client can see
    /// that a tick comes late: before each request the engine ticks once if
    /// something is due.
    pub fn has_waiting(&self) -> bool {
        self.connections_now.waiting > 0
    }

    /// Whether this connection holds no job and waits for none.
    pub fn is_idle(&self, id: ConnectionId) -> bool {
        self.find(id).is_some_and(|index| {
            let connection = &self.connections[index];
            connection.reserved.is_empty() && connection.wait.is_none()
        })
    }

    /// How many jobs there are.
    pub fn job_count(&self) -> usize {
        self.jobs.len()
    }

    /// Brings back a job of an earlier run, before anybody is connected. Its id
    /// must not be in use.
    pub fn restore(&mut self, stored: StoredJob) {
        self.latest_restored = self.latest_restored.max(stored.changed_at());
        let mut stored = stored.restored_at(self.made_at);
        let (id, priority) = (stored.id, stored.priority);
        self.next_id = self.next_id.max(id.0 + 1);
        let state = match stored.state {
            StoredState::Ready => State::Ready,
            StoredState::Delayed { until } => State::Delayed { until },
            StoredState::Buried { order } => State::Buried { order },
            StoredState::Deleted { until } => return self.restore_key(stored, until),
        };
        if let State::Buried { order } = state {
            self.next_burial = self.next_burial.max(order + 1);
        }
        let tube = self.tubes.find_or_make(&stored.tube);
        let options = stored.options.take();
        self.jobs.insert(id, Job::new(stored, tube, state));
        if let Some(options) = options {
            self.attach(id, tube, *options);
        }
        self.enter(id, tube, priority, state);
    }

    /// Undoes [`restore`](Self::restore).
    pub fn forget(&mut self, id: JobId) -> Option<StoredJob> {
        if self.jobs.get(id).is_none() {
            return self.forget_key(id);
        }
        let stored = self.stored(id)?;
        let tube = self.jobs[id].tube;
        self.leave(id, tube, stored.priority);
        let job = self.jobs.remove(id).expect("it was found");
        self.detach(id, &job);
        self.remove_tube_if_unused(tube);
        Some(stored)
    }

    /// From now on no job gets an id below this one.
    pub fn set_next_id(&mut self, id: JobId) {
        self.next_id = self.next_id.max(id.0);
    }

    /// The id that the next job gets.
    pub fn next_id(&self) -> JobId {
        JobId(self.next_id)
    }

    /// A job as a log must hold it, or what is left of a deleted job whose key
    /// is still taken; `None` if it is gone.
    pub fn stored(&self, id: JobId) -> Option<StoredJob> {
        let Some(job) = self.jobs.get(id) else {
            return self.stored_key(id);
        };
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
            options: self.options.of(id).cloned().map(Box::new),
        })
    }

    /// What jobs, tubes, watches and keys take, as [`Config::max_memory`] counts it.
    pub fn memory(&self) -> u64 {
        let watches = self.watches * WATCH_OVERHEAD;
        self.jobs.memory() + self.tubes.memory() + watches + self.options.memory()
    }

    /// Whether this many more bytes are within the limit, together with what the
    /// caller holds.
    pub fn has_room(&self, bytes: u64) -> bool {
        let limit = self.config.max_memory.unwrap_or(u64::MAX);
        self.memory() + self.held_elsewhere + bytes <= limit
    }

    /// The index of a connection, if it is still there.
    fn find(&self, id: ConnectionId) -> Option<ConnectionIndex> {
        self.connections_by_id.get(&id).copied()
    }

    /// Removes a tube that nothing uses. It may still have been paused, so its
    /// timer is cleared.
    fn remove_tube_if_unused(&mut self, index: TubeIndex) {
        if let Some(mut tube) = self.tubes.remove_if_unused(index) {
            self.wheel.clear(Owner::Tube(index), &mut tube.timer);
        }
    }

    /// For tests: panics if an invariant is broken. It looks at everything in
    /// the engine.
    pub fn check(&self) {
        let hidden = self.check_options();
        let mut jobs_now = JobCounts::default();
        for tube in self.tubes.members.iter() {
            assert_eq!(self.tubes.names.get(tube.position), Some(&tube.name));
            let index = self.tubes.find(&tube.name).expect("it has its name");
            let hidden = hidden.get(&index).copied().unwrap_or(0);
            let [ready, delayed, _, buried] = tube.jobs.by_state;
            let ready = ready - hidden;
            let counted = [tube.ready.len(), tube.delayed.len(), tube.buried.len()];
            assert_eq!(counted, [ready, delayed, buried]);
            let is_noted = |order| {
                self.unserved
                    .range(..=(order, index))
                    .any(|&(_, tube)| tube == index)
            };
            assert!(
                tube.offer().is_none()
                    || tube
                        .waiting
                        .keys()
                        .next()
                        .is_none_or(|&order| is_noted(order)),
                "{} has waiting connections and ready jobs",
                tube.name
            );
            jobs_now.urgent += tube.jobs.urgent;
            for (sum, count) in jobs_now.by_state.iter_mut().zip(tube.jobs.by_state) {
                *sum += count;
            }
            let event = tube.next_event();
            assert!(event.is_none() || tube.timer.is_some() && tube.timer <= event);
            assert!(self.wake_at() <= tube.timer || tube.timer.is_none());
        }
        assert_eq!(self.tubes.names.len(), self.tubes.members.len());
        assert_eq!(jobs_now, self.jobs_now);
        assert_eq!(jobs_now.sum(), self.jobs.len());
        let mut connections_now = ConnectionCounts::default();
        let (mut held, mut watches) = (0, 0);
        for connection in self.connections.iter() {
            connections_now.producers += usize::from(connection.is_producer);
            connections_now.workers += usize::from(connection.is_worker);
            connections_now.waiting += usize::from(connection.wait.is_some());
            held += connection.reserved.len();
            watches += connection.watched.len() as u64 - 1;
            let index = self.find(connection.id).expect("it is found by its id");
            for &tube in &connection.watched {
                let waiting = connection.wait.map(|wait| wait.order);
                let stands = waiting.map(|order| self.tubes[tube].waiting.get(&order));
                assert!(stands.is_none_or(|stands| stands == Some(&index)));
            }
            let (timer, event) = (connection.timer, connection.next_event());
            assert!(event.is_none() || timer.is_some() && timer <= event);
        }
        assert_eq!(self.connections_by_id.len(), self.connections.len());
        assert_eq!(connections_now, self.connections_now);
        let [_, _, reserved, _] = jobs_now.by_state;
        assert_eq!((held, watches), (reserved, self.watches));
        let memory = self.jobs.from(JobId(0)).map(|(_, job)| job.memory());
        assert_eq!(memory.sum::<u64>(), self.jobs.memory());
    }
}
