//! The judge: it sees all that happens to a process, to its clients and to its
//! engine, and has the naive model do what the engine does, in the same order.
//!
//! [`Event`] lists what it sees. [`Judge::see`] is its table: what each event
//! changes, and what must hold then. Each of these rules is a statement in `rules.rs`.
//! What clients have read is compared at the end (`told.rs`), and what the next
//! process finds, at its start (`legacy.rs`).

mod engine;
mod legacy;
mod rules;
mod told;

pub use engine::Engine;
pub use legacy::{Degree, Legacy, WRITTEN_WITHIN};
pub use told::next_reply;

use crate::binlog::Record;
use crate::engine::{Change, ConnectionId, Outcome, StoredJob, StoredPause, StoredState, Time};
use crate::protocol::framing::NoBody;
use crate::protocol::{Body, JobId, Reply, TubeName};
use crate::simulator::history::{Held, History, Jobs};
use crate::simulator::naive::{self, Left, Model, State};
use crate::simulator::plan::Plan;
use crate::simulator::stored::{in_the_model, pause_in_the_model, tombstone_in_the_model};
use crate::simulator::stream::Peer;
use crate::simulator::{threads, world};
use engine::{Asked, Done};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::num::NonZeroUsize;
use std::time::Duration;
use told::Expected;

/// What the judge sees. Clients are named by their numbers (see [`caller`]).
pub enum Event<'a> {
    /// All threads stall for this number of nanoseconds.
    Stalls(u64),
    /// Another machine takes the lock.
    Replaced,
    /// The server begins to stop.
    Stops,
    /// All workers know that it stops.
    HasStopped,
    /// The process ends at this time. Nothing that happens after that counts.
    Ends(u64),
    /// All threads wait, and time is about to pass.
    AllWait,

    /// The server takes the connection of a client.
    Accepts(usize, Peer),
    /// It refuses this connection.
    Refuses,
    /// A client is about to send this line, or this body.
    Says(usize, &'a str),
    /// All that it has said so far is sent.
    HasSaid(usize),
    /// It has quit, or is about to close or to half-close.
    IsDone(usize),
    HalfCloses(usize),
    Closes(usize),
    /// The server reads nothing more from it, and so ends its wait: a job that it was
    /// given now it could not delete any more.
    StopsWaiting(usize),

    /// The engine has done one of these.
    Connected(ConnectionId),
    Executed(ConnectionId, Asked, &'a Outcome, Time, Done<'a>),
    Ticked(Time, Done<'a>),
    HalfClosed(ConnectionId, Done<'a>),
    /// It is disconnected, or this needs more time slices.
    Disconnected(ConnectionId, bool, Time, Done<'a>),
}

thread_local! {
    static JUDGE: RefCell<Option<Judge>> = const { RefCell::new(None) };
}

/// All that is known of one process.
struct Judge {
    model: Model,
    /// When the process ended.
    ended_at: Option<u64>,
    /// When another machine had taken the lock.
    replaced_at: Option<u64>,
    is_stopping: bool,
    has_stopped: bool,
    plan: Plan,
    /// Who connects, and whether there is room for it.
    connecting: Option<usize>,
    has_room: bool,
    /// When the last client had disconnected.
    last_left_at: u64,
    links: BTreeMap<u64, usize>,
    callers: Vec<Caller>,
    /// What the log must hold, and how it came to that.
    held: Held,
    history: History,
    /// When each change was made.
    times: Vec<u64>,
    /// Which change put the job.
    put_at: BTreeMap<JobId, usize>,
}

/// One connection of a client.
#[derive(Default)]
struct Caller {
    name: String,
    peer: Option<Peer>,
    client: Option<naive::Client>,
    accepted_at: u64,
    /// Since then it sends nothing more.
    is_over_at: Option<u64>,
    left_at: Option<u64>,
    /// When it had sent its first commands.
    said_at: Option<u64>,
    is_done: bool,
    /// The step at which it last asked.
    asked_at: Option<u64>,
    /// What it has said and nobody has executed, each with the time: a line, or a body.
    said: VecDeque<(u64, String)>,
    expected: Vec<Expected>,
    /// It waited when the server stopped: it gets no more replies than this.
    most_replies: Option<usize>,
    /// How many bytes had been written to it when the process was killed.
    written: Option<usize>,
}

/// Begins to judge a process that has just read its jobs.
pub fn begin(legacy: &mut Legacy, engine: &Engine, next_id: JobId, now: Time, plan: &Plan) {
    let ids = (1..engine.next_id().0).map(JobId);
    let jobs: Jobs = ids
        .filter_map(|id| Some((id, copy_of(engine.stored(id)?))))
        .collect();
    let tubes = jobs.values().map(|job| job.tube.clone());
    let tubes: BTreeSet<_> = tubes.chain([TubeName::default()]).collect();
    let pauses = tubes.iter().filter_map(|tube| engine.stored_pause(tube));
    let held = Held {
        jobs,
        pauses: pauses.map(|pause| (pause.tube.clone(), pause)).collect(),
    };
    legacy.begin(&held, next_id);
    let config = &engine.config;
    let mut model = Model::new(
        now.as_nanos(),
        config.max_job_size as usize,
        config.max_memory.map(|bytes| bytes as usize),
    );
    let (tombstones, there): (Vec<_>, Vec<_>) =
        held.jobs.values().cloned().partition(StoredJob::is_deleted);
    model.max_jobs_per_tube = config.max_jobs_per_tube.map(NonZeroUsize::get);
    model.restart_with(
        there.into_iter().map(in_the_model).collect(),
        tombstones.into_iter().map(tombstone_in_the_model).collect(),
        held.pauses
            .clone()
            .into_values()
            .map(pause_in_the_model)
            .collect(),
        next_id.0 - 1,
    );
    JUDGE.set(Some(Judge {
        model,
        ended_at: None,
        replaced_at: None,
        is_stopping: false,
        has_stopped: false,
        plan: plan.clone(),
        connecting: None,
        has_room: false,
        last_left_at: 0,
        links: BTreeMap::new(),
        callers: Vec::new(),
        history: legacy.history.clone(),
        held,
        times: Vec::new(),
        put_at: BTreeMap::new(),
    }));
}

/// The judge sees this.
pub fn see(event: Event<'_>) {
    watch(|judge| judge.see(event));
}

/// All threads wait, and time is about to pass.
pub fn all_wait() {
    // An incident that is due now comes before the judge looks. After a stall, those go on
    // who have waited for a sync.
    threads::pass();
    if !threads::all_wait() {
        return;
    }
    see(Event::AllWait);
}

/// Judges all replies, and returns what they promise.
pub fn end(legacy: Legacy, degree: &Degree, is_closed: bool, has_failed: bool) -> Legacy {
    see(Event::Ends(world::wall_clock()));
    match JUDGE.take() {
        Some(judge) => legacy.after(judge, degree, is_closed, has_failed),
        None => legacy, // it could not start
    }
}

/// A client is about to connect; returns its number.
pub fn caller(name: &str) -> usize {
    JUDGE.with_borrow_mut(|judge| {
        let callers = &mut judge.as_mut().expect("somebody judges").callers;
        callers.push(Caller {
            name: name.to_owned(),
            ..Caller::default()
        });
        callers.len() - 1
    })
}

/// The ids of all jobs.
pub fn jobs() -> impl Iterator<Item = u64> {
    let ids_of = |judge: &mut Judge| judge.model.jobs.iter().map(|job| job.id).collect();
    let ids: Vec<_> = watch(ids_of).unwrap_or_default();
    ids.into_iter()
}

/// How long the keys of deleted jobs stay taken.
pub fn time_of_keys() -> Duration {
    let ends = watch(|judge| judge.model.tombstones.iter().map(|key| key.until).max());
    let until = ends.flatten().unwrap_or_default();
    Duration::from_nanos(until.saturating_sub(world::wall_clock()))
}

/// Whether this client is rightly without an answer: it waits, the server stops,
/// or there is nothing to judge.
pub fn may_be_silent(caller: usize) -> bool {
    watch(|judge| judge.is_stopping || judge.is_waiting(&judge.callers[caller])).unwrap_or(true)
}

/// Gives this to the judge, unless there is nothing to judge any more.
fn watch<R>(work: impl FnOnce(&mut Judge) -> R) -> Option<R> {
    JUDGE.with_borrow_mut(|judge| {
        let judge = judge.as_mut().filter(|judge| judge.ended_at.is_none());
        judge.map(work)
    })
}

impl Judge {
    /// The table: what each event changes, and what must hold then.
    fn see(&mut self, event: Event<'_>) {
        match event {
            Event::Stalls(nanos) => self.postpone(nanos),
            Event::Replaced => {
                self.replaced_at.get_or_insert_with(world::wall_clock);
            }
            Event::Stops => self.is_stopping = true,
            Event::HasStopped => self.has_stopped = true,
            Event::Ends(at) => {
                self.ended_at = Some(at);
                for caller in &mut self.callers {
                    caller.written = caller.peer.as_ref().map(Peer::written);
                }
            }
            Event::AllWait if self.is_stopping || world::is_syncing() => {}
            Event::AllWait => {
                self.the_loss_of_the_lock_is_known();
                self.nothing_is_overdue();
                for number in self.links.values() {
                    let caller = &self.callers[*number];
                    self.who_is_gone_is_disconnected(caller);
                    self.who_sends_nothing_more_does_not_wait(caller);
                    self.what_is_done_is_told(caller);
                }
            }

            Event::Accepts(caller, peer) => {
                self.has_room = self.connected() < self.plan.max_connections;
                self.connecting = Some(caller);
                self.callers[caller].peer = Some(peer);
            }
            Event::Refuses => self.no_client_is_refused_that_has_room(),
            Event::Says(caller, text) => {
                let said = (threads::tick(), text.to_owned());
                self.callers[caller].said.push_back(said);
            }
            Event::HasSaid(caller) => {
                let said_at = &mut self.callers[caller].said_at;
                said_at.get_or_insert_with(threads::now);
            }
            Event::IsDone(caller) => self.callers[caller].is_done = true,
            Event::HalfCloses(caller) => self.callers[caller].is_over_at = Some(threads::tick()),
            Event::Closes(caller) => {
                let (now, caller) = (threads::tick(), &mut self.callers[caller]);
                caller.is_over_at.get_or_insert(now);
                caller.left_at = Some(now);
            }
            Event::StopsWaiting(caller) => {
                if self.is_waiting(&self.callers[caller]) {
                    let caller = &mut self.callers[caller];
                    caller.most_replies = Some(caller.expected.len());
                }
            }

            Event::Connected(id) => {
                if let Some(caller) = self.connecting.take() {
                    self.links.insert(id.0, caller);
                    self.callers[caller].accepted_at = threads::tick();
                    self.callers[caller].client = Some(self.model.connect());
                }
            }
            Event::Executed(id, asked, outcome, now, done) => {
                let number = self.links[&id.0];
                self.pass_time(now, &done);
                self.the_first_request_is_served_in_time(number);
                self.no_put_is_refused_that_has_room(number, &done);
                // One that needs another time slice has done nothing yet.
                let is_done = !matches!(outcome, Outcome::Unfinished(_));
                let line = is_done.then(|| self.execute(number, asked, &done));
                let reply = match outcome {
                    Outcome::Reply(reply) => Some((number, reply)),
                    _ => None,
                };
                if let Outcome::Reply(Reply::Closed(closed)) = outcome {
                    let closed = self.links[closed];
                    self.callers[closed].is_done = true;
                }
                if let (Some((at, line)), Some((_, reply))) = (line, reply)
                    && self.shows_who_is_there(&line, reply)
                {
                    self.who_had_closed_before_is_not_there(id, at);
                }
                self.what_is_said_is_what_the_model_says(reply, &done);
                self.what_is_counted_is_what_the_model_has(&done);
            }
            Event::Ticked(now, done) => {
                self.pass_time(now, &done);
                self.what_is_said_is_what_the_model_says(None, &done);
                self.what_is_counted_is_what_the_model_has(&done);
            }
            Event::HalfClosed(id, done) => {
                // It may be disconnected already.
                if self.links.contains_key(&id.0) {
                    self.model.half_close(self.client(id));
                }
                self.what_is_said_is_what_the_model_says(None, &done);
            }
            Event::Disconnected(id, is_done, now, done) => {
                self.no_job_is_handed_on_at_the_end();
                self.no_client_is_closed_without_a_reason(id);
                let client = self.client(id);
                self.model.now = now.as_nanos();
                self.model.left = self.left(is_done, &done);
                if is_done {
                    self.model.disconnect(client);
                    self.links.remove(&id.0);
                    self.last_left_at = threads::now();
                } else {
                    let most = done.engine.outside.most_changes.expect("a bound");
                    self.model.begin_to_disconnect(client, (most / 4).max(1));
                }
                self.what_is_said_is_what_the_model_says(None, &done);
            }
        }
    }

    /// A stall does not count where something is promised within a time.
    fn postpone(&mut self, nanos: u64) {
        self.times.iter_mut().for_each(|time| *time += nanos);
        for caller in &mut self.callers {
            let ends = [&mut caller.is_over_at, &mut caller.left_at];
            ends.into_iter().flatten().for_each(|time| *time += nanos);
        }
    }

    fn pass_time(&mut self, now: Time, done: &Done<'_>) {
        self.model.now = now.as_nanos();
        let next = self.model.next_event();
        let was_left = !self.model.left.waiting.is_empty();
        self.model.left = self.left(true, done);
        if was_left {
            // Those who could have a job before come first, and then what is due.
            self.model.serve();
        }
        if was_left || next.is_some_and(|at| at <= self.model.now) {
            self.model.tick();
        }
    }

    /// What the engine has not done, though it is due. It has more time slices only for much
    /// at once, and what each of them does is left open. So the model takes it from the other
    /// side.
    fn left(&self, is_done: bool, done: &Done<'_>) -> Left {
        let now = Time::from_nanos(self.model.now);
        if is_done && done.engine.wake_at().is_none_or(|at| at > now) {
            return Left::default();
        }
        let is_changed = |id| {
            let mut changes = done.changes.iter();
            changes.any(|change| match change {
                Change::Put(job) | Change::Update(job) | Change::Delete(job, _) => job.0 == id,
                Change::Pause(_) => false,
            })
        };
        // The end of a delay is no change for the log.
        let is_delayed = |id| {
            let state = done.engine.stored(JobId(id)).map(|job| job.fields.state);
            matches!(state, Some(StoredState::Delayed { .. }))
        };
        let is_left = |job: &&naive::Job| match job.state {
            State::Delayed { .. } => is_delayed(job.id),
            _ => !is_changed(job.id),
        };
        let jobs = self.model.jobs.iter().filter(is_left).map(|job| job.id);
        let keys = self.model.tombstones.iter().map(|key| key.id);
        let pauses = self.held.pauses.keys();
        let is_paused = |tube: &&TubeName| done.engine.stored_pause(tube).is_some();
        let is_answered = |id| done.replies.iter().any(|(one, _)| one.0 == id);
        let waiting = self.links.iter().filter(|(id, _)| !is_answered(**id));
        Left {
            jobs: jobs.chain(keys.filter(|id| !is_changed(*id))).collect(),
            paused: pauses.filter(is_paused).map(ToString::to_string).collect(),
            waiting: waiting
                .filter_map(|(_, caller)| self.callers[*caller].client)
                .collect(),
        }
    }

    /// The model executes what this client has said. Returns that and when it was said.
    fn execute(&mut self, number: usize, asked: Asked, done: &Done<'_>) -> (u64, String) {
        self.order_burials(done);
        self.model.memory_outside = done.engine.outside.memory as usize;
        self.model.disk_is_full = done.engine.outside.disk_is_full;
        let caller = &mut self.callers[number];
        caller.asked_at = Some(threads::steps());
        let client = caller.client.expect("it is connected");
        let said = caller.said.pop_front();
        let (at, said) = said.unwrap_or_else(|| panic!("{} has not said so much", caller.name));
        match asked {
            Asked::Quit => caller.is_done = true,
            Asked::Body(refused) => {
                self.model.disk_is_full |= refused == Some(NoBody::NoRoom);
                self.model.body(client, &said);
            }
            Asked::Line => self.model.line(client, &said),
        }
        (at, said)
    }

    /// Jobs that are buried at the same time may be buried in any order.
    fn order_burials(&mut self, done: &Done<'_>) {
        let stored = |id| done.engine.stored(JobId(id));
        self.model
            .order_burials(|id| match stored(id)?.fields.state {
                StoredState::Buried { order } => Some(order),
                _ => None,
            });
    }

    /// Adds what the engine has changed to the history.
    fn note(&mut self, change: &Change, done: &Done<'_>) {
        let stored = |id: &JobId| done.engine.stored(*id);
        let record = match change {
            Change::Put(id) => stored(id).map(|job| Record::Put(copy_of(job))),
            Change::Update(id) => stored(id).map(|job| Record::Update(job.fields)),
            // Its key may still be taken.
            Change::Delete(id, _) => Some(stored(id).map_or(Record::Delete(*id), Record::Put)),
            Change::Pause(tube) => {
                let pause = done.engine.stored_pause(tube);
                Some(Record::Pause(
                    pause.unwrap_or_else(|| StoredPause::over(tube.clone())),
                ))
            }
        };
        // If the job was deleted since, its deletion comes later.
        let Some(record) = record else {
            return;
        };
        self.held.apply(&record);
        self.history.push(record);
        self.times.push(world::wall_clock());
        if let Change::Put(id) = change {
            self.put_at.insert(*id, self.history.len());
        }
    }

    fn client(&self, id: ConnectionId) -> naive::Client {
        let client = self.callers[self.links[&id.0]].client;
        client.expect("it is connected")
    }

    /// How many connections neither their clients nor the server have closed.
    fn connected(&self) -> usize {
        let is_open = |caller: &&Caller| {
            let is_closed = caller.peer.as_ref().is_none_or(Peer::is_closed);
            !is_closed && caller.left_at.is_none()
        };
        self.callers.iter().filter(is_open).count()
    }

    fn is_waiting(&self, caller: &Caller) -> bool {
        let client = caller.client;
        client.is_some_and(|client| self.model.is_waiting(client))
    }
}

/// With a body of its own: one that the judge shared would count as not sent yet.
fn copy_of(job: StoredJob) -> StoredJob {
    let body = Body::new(job.body.content());
    StoredJob { body, ..job }
}
