//! The state machine: commands and time in, replies and wake-ups out.
//!
//! An [`Engine`] holds all jobs, tubes and connections. It knows no socket,
//! file, thread or clock. Its caller
//!
//! 1. reports each [`connect`](Engine::connect) and
//!    [`disconnect`](Engine::disconnect),
//! 2. has it [`execute`](Engine::execute) each request, in order,
//! 3. calls [`tick`](Engine::tick) at the time that
//!    [`wake_at`](Engine::wake_at) names, and
//! 4. does what [`Effects`] holds after each of these calls: sends the answers
//!    to connections whose waiting has ended, and keeps a record of the
//!    changes.
//!
//! No call takes long, however many jobs, tubes and connections there are. Work on
//! very many of them is divided into time slices. `disconnect` returns whether all is done,
//! a `kick` or a `reserve` is [`Unfinished`](Outcome::Unfinished), and after each call
//! `wake_at` says whether more is due. Between two slices the caller may serve other
//! connections.
//! Two things are bounded instead: how many tubes a connection may watch, and in
//! how many tubes there may be jobs with the same concurrency limit.
//!
//! Time enters only as an argument of these calls, and should not run backwards. If it does,
//! a deadline comes late, and nothing else goes wrong.
//!
//! `commands` has the commands, a line or a method for each. `transitions.rs`
//! has the ways of a job from state to state, and what the clock does.
//! `counts.rs` has the counts, and `stats.rs` the answers to `stats` and its
//! like. `memory.rs` says how much memory each thing takes. `options` has what the four
//! options of a put do.
//!
//! # Invariants
//!
//! - A job is in exactly one collection, the one that its state names. (A ready
//!   job with a concurrency limit is in a queue of its key. If it is the first
//!   there, it is in the ready queue of its tube as well, or passed over there.)
//! - If a tube that is not paused has both a job in its ready queue and a waiting
//!   connection, it is among the unserved tubes, and no other connection can reserve.
//! - Each tube's and each connection's timer is set to its next event or earlier.
//! - Collections, states and timers name only jobs, tubes and connections that exist: each
//!   leaves all of them before it goes. So it is found there, whatever clients do, and an
//!   index or `expect` that does not find it has met an error of ours.

mod commands;
mod connection;
mod counts;
mod job;
mod jobs;
mod memory;
mod options;
mod ready;
mod slab;
mod stats;
#[cfg(test)]
mod tests;
mod time;
mod transitions;
mod tube;
mod wheel;

pub use connection::{ConnectionId, Peer};
pub use job::{JobFields, Lengths, StoredJob, StoredState};
pub use time::{Shift, Time};
pub use tube::StoredPause;

use crate::protocol::command::Rest;
use crate::protocol::{Body, JobId, Reply, Seconds, TubeName};
use connection::Connection;
use counts::Counts;
use job::{Details, Job, State};
use jobs::Jobs;
use options::Keys;
use slab::{ConnectionIndex, OfConnections, OfTubes, Slab, TubeIndex};
use std::collections::BTreeSet;
use std::num::NonZeroUsize;
use tube::{DEFAULT, Order, Tube, TubesByName};
use wheel::Wheel;

/// How many jobs, tubes or connections one kind of work (what is due, what expires, who is
/// served) changes in one time slice, at most.
const SLICE: usize = 1000;

/// Settings that do not change after the start.
#[derive(Clone, Copy, Debug, Default)]
pub struct Config {
    /// The largest body taken, in bytes.
    pub max_job_size: u32,
    /// The most memory that jobs, tubes, watches and buffers may take together,
    /// in bytes; `None` for no limit.
    pub max_memory: Option<u64>,
    /// The most jobs of a tube, in whatever states: it takes no further puts then. `None`
    /// for no limit.
    pub max_jobs_per_tube: Option<NonZeroUsize>,
    /// Whether the engine fills [`Effects::changes`].
    pub keeps_changes: bool,
}

impl Config {
    /// Jobs of this size are accepted, there is no other limit, and no changes are
    /// recorded.
    pub fn new(max_job_size: u32) -> Config {
        Config {
            max_job_size,
            ..Config::default()
        }
    }
}

/// The result of a request.
#[derive(Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The reply.
    Reply(Reply),
    /// No reply yet: this was the line of a put, which is answered after its body.
    AwaitBody,
    /// The connection waits for a job. The answer comes through
    /// [`Effects::replies`]; until then the connection must send no other
    /// request.
    Waiting,
    /// The request has used up its time slice.
    /// [`Request::Continue`](crate::protocol::Request::Continue) does the rest.
    Unfinished(Rest),
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
    pub unneeded_bodies: Vec<Body>,
    /// The cost of the calls: how many jobs, tubes and connections they examined or
    /// changed.
    pub steps: usize,
}

/// A change that the log must hold to restore the jobs. A touch is no change, nor is
/// the end of a delay, since the log knows when the delay ends. The reservation of a
/// ready job is no change either: after a restart the job is ready again. The end of
/// the reservation is a change, and counts it. So after a restart `reserves` may lack
/// the reservation that the end of the server cut short, and no other one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// A new job.
    Put(JobId),
    /// Its state, priority, delay or counters are different now.
    Update(JobId),
    /// It is deleted. If its key is still taken, [`Engine::stored`] has a tombstone;
    /// when the key is free, there is another `Delete`.
    Delete(JobId, Lengths),
    /// The pause of this tube begins, is replaced or ends.
    Pause(TubeName),
}

/// All jobs, tubes and connections.
#[derive(Default)]
pub struct Engine {
    /// The settings; they never change.
    pub config: Config,
    jobs: Jobs,
    /// The number of the next job.
    next_id: u64,
    tubes: Slab<OfTubes, Tube>,
    tubes_by_name: TubesByName,
    connections: Slab<OfConnections, Connection>,
    keys: Keys,
    burials: Burials,
    timers: Timers,
    counts: Counts,
    /// What jobs, tubes other than `default`, watches and tombstones take: see `memory.rs`,
    /// which adds the rest.
    memory: u64,
    /// The time of the present call.
    now: Time,
    /// The latest moment at which something happened to a restored job.
    pub latest_restored: Time,
    /// What the caller tells it.
    pub outside: Outside,
    /// What the caller has to do, and then to clear.
    pub effects: Effects,
    waiting: Waiting,
}

/// What the caller tells the engine, which never changes it.
#[derive(Default)]
pub struct Outside {
    /// How many bytes the caller holds for clients outside the engine. They
    /// count against the limit as well.
    pub memory: u64,
    /// How far the system's clock is ahead, for what is stored.
    pub clock_shift: Shift,
    /// While this is set, the engine refuses new jobs.
    pub draining: bool,
    /// Whether the disk has no room for the request that is executed next, be it a put or a
    /// pause; or, for `list-server-stats`, whether puts are refused now.
    pub disk_is_full: bool,
    /// How many jobs or tubes may change in one time slice, where the caller has room for
    /// the records of so few only.
    pub most_changes: Option<usize>,
}

/// What `bury-later` has asked for, and the order of burials.
#[derive(Default)]
struct Burials {
    /// Reserved jobs that are buried instead of becoming ready again.
    wanted: BTreeSet<JobId>,
    /// The number of the next burial.
    next: u64,
}

/// All timers.
#[derive(Default)]
struct Timers {
    wheel: Wheel<Owner>,
    /// The jobs that expire while they are ready or delayed, and the tombstones, each with
    /// the moment.
    ends: BTreeSet<(Time, JobId)>,
    /// When the timer of these rings.
    ends_timer: Option<Time>,
}

/// What a timer belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Owner {
    /// The keys of deleted jobs and the jobs that expire, all together.
    Ends,
    Tube(TubeIndex),
    Connection(ConnectionIndex),
}

/// The connections that wait for a job, beside what each of them and each tube knows.
#[derive(Default)]
struct Waiting {
    /// The number of the next one.
    next: Order,
    /// Tubes that may have a ready job for a waiting connection, each with the
    /// connection that had waited longest when that was noted. It is empty between
    /// calls, unless one has used up its time slice: then the next calls serve.
    unserved: BTreeSet<(Order, TubeIndex)>,
}

impl Waiting {
    /// Notes that this tube may have a job for a connection that waits. That one gets it when
    /// all collections are consistent again: see `serve`.
    fn note(&mut self, index: TubeIndex, tube: &Tube) {
        let first = tube.first_to_serve();
        self.unserved.extend(first.map(|(order, _)| (order, index)));
    }
}

impl Engine {
    /// An engine with the tube `default` and nothing else.
    pub fn new(config: Config, now: Time) -> Engine {
        let mut engine = Engine {
            config,
            next_id: 1,
            now,
            ..Engine::default()
        };
        engine.find_or_make_tube(&TubeName::default());
        engine
    }

    /// A new connection of this peer: it uses `default` and watches it.
    pub fn connect(&mut self, peer: Peer, now: Time) -> ConnectionId {
        let index = self.connections.insert(|id| Connection {
            id: ConnectionId(id),
            peer,
            since: now,
            asked_at: now,
            used: DEFAULT,
            watched: vec![DEFAULT],
            ..Connection::default()
        });
        let default = &mut self.tubes[DEFAULT];
        default.using += 1;
        default.watching += 1;
        self.connections[index].id
    }

    /// [`SLICE`], or less if the caller has no room for so many changes.
    fn slice(&self) -> usize {
        self.slice_of(1)
    }

    /// The same for changes of which each takes as much room as so many others.
    fn slice_of(&self, room: usize) -> usize {
        let most = self.outside.most_changes;
        most.map_or(SLICE, |most| (most / room).clamp(1, SLICE))
    }

    /// Removes a connection that has closed: its jobs become ready again, or are
    /// buried if that was their last try. Returns whether all is done; if not, the
    /// caller has to call again.
    pub fn disconnect(&mut self, id: ConnectionId, now: Time) -> bool {
        let Some(index) = self.find(id) else {
            return true;
        };
        self.now = now;
        self.stop_waiting(index);
        // First all of them become ready, then the engine serves: so the
        // connection that has waited longest gets the best of these jobs.
        let most = self.effects.steps + self.slice();
        while self.effects.steps < most
            && let Some(&(_, job)) = self.connections[index].reserved.first()
        {
            self.fail_try(job, None);
        }
        self.serve();
        // This is beanstalkd's order, and `list-tubes` shows it. A pause may end with its tube.
        for _ in 0..self.slice_of(4) {
            let [first, _, ..] = self.connections[index].watched[..] else {
                break;
            };
            self.unwatch(index, 0, first);
        }
        let connection = &self.connections[index];
        if !connection.reserved.is_empty() || connection.watched.len() > 1 {
            return false;
        }
        let mut connection = self.connections.remove(id.0).expect("it was there");
        let owner = Owner::Connection(index);
        self.timers.wheel.clear(owner, &mut connection.timer);
        self.counts.producers -= usize::from(connection.puts > 0);
        self.counts.workers -= usize::from(connection.is_worker);
        self.tubes[connection.watched[0]].watching -= 1;
        self.remove_tube_if_unused(connection.watched[0]);
        self.tubes[connection.used].using -= 1;
        self.remove_tube_if_unused(connection.used);
        true
    }

    /// Removes the tube at this position from those that a connection watches. The
    /// connection must not be waiting.
    fn unwatch(&mut self, index: ConnectionIndex, position: usize, tube: TubeIndex) {
        let watched = &mut self.connections[index].watched;
        watched.swap_remove(position);
        if watched.len() * 4 < watched.capacity() {
            watched.shrink_to(watched.len() * 2);
        }
        self.tubes[tube].watching -= 1;
        self.memory -= memory::WATCH;
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
        if self.has_unserved() {
            Some(Time::default())
        } else {
            self.timers.wheel.wake_at
        }
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
        self.counts.jobs.sum()
    }

    /// Brings back a job of an earlier run, before anybody is connected. Its id
    /// must not be in use.
    pub fn restore(&mut self, stored: StoredJob) {
        self.latest_restored = self.latest_restored.max(stored.changed_at());
        let stored = stored.restored_at(self.now);
        let fields = stored.fields;
        self.set_next_id(JobId(fields.id.0 + 1));
        let state = match fields.state {
            StoredState::Ready => State::Ready,
            StoredState::Delayed { until } => State::Delayed { until },
            StoredState::Buried { order } => State::Buried { order },
            StoredState::Deleted { .. } => return self.restore_tombstone(stored),
        };
        if let State::Buried { order } = state {
            self.burials.next = self.burials.next.max(order + 1);
        }
        let job = Job {
            body: stored.body,
            created_at: fields.created_at,
            state,
            tube: self.find_or_make_tube(&stored.tube),
            priority: fields.priority,
            delay: fields.delay,
            ttr: fields.ttr,
            details: Details {
                counters: fields.counters,
                failed_tries: fields.failed_tries,
                options: stored.options,
            }
            .boxed(),
        };
        self.add(fields.id, job);
    }

    /// Undoes [`restore`](Self::restore).
    pub fn forget(&mut self, id: JobId) -> Option<StoredJob> {
        let stored = self.stored(id)?;
        match self.remove(id) {
            Some(job) => self.remove_tube_if_unused(job.tube),
            None => drop(self.forget_key(id)),
        }
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

    /// A job as the log must hold it, or the tombstone of a deleted job whose key is
    /// still taken; `None` if there is neither.
    pub fn stored(&self, id: JobId) -> Option<StoredJob> {
        let Some(job) = self.jobs.get(id) else {
            let tombstone = self.keys.unique.tombstones.get(&id);
            return tombstone.map(|stored| (**stored).clone());
        };
        let details = job.details.as_deref().cloned().unwrap_or_default();
        Some(StoredJob {
            fields: JobFields {
                id,
                priority: job.priority,
                delay: job.delay,
                ttr: job.ttr,
                created_at: job.created_at,
                state: job.stored_state(),
                counters: details.counters,
                failed_tries: details.failed_tries,
            },
            tube: self.tubes[job.tube].name.clone(),
            options: details.options,
            body: job.body.clone(),
        })
    }

    /// The state of a job with this delay, from now on.
    fn delayed_for(&self, delay: Seconds) -> State {
        match delay {
            Seconds(0) => State::Ready,
            delay => State::Delayed {
                until: self.now + delay,
            },
        }
    }

    /// The index of a connection, if it is still there.
    fn find(&self, id: ConnectionId) -> Option<ConnectionIndex> {
        self.connections.find(id.0)
    }

    /// How many keys of deleted jobs are still taken.
    pub fn tombstone_count(&self) -> usize {
        self.keys.unique.tombstones.len()
    }
}
