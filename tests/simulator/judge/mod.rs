//! The judge: it has the naive model do what the engine does, in the order in
//! which the threads reach the engine, and compares each answer. It notes what
//! each client was told, and what that promises (`legacy.rs`).

mod engine;
mod legacy;

pub use engine::Engine;
pub use legacy::{Degree, Legacy};

use crate::binlog::Record;
use crate::engine::{Change, ConnectionId, Outcome, StoredJob, StoredState, Time};
use crate::protocol::framing::NoBody;
use crate::protocol::{Body, JobId, Reply};
use crate::simulator::history::{History, Jobs, apply};
use crate::simulator::naive::{self, Model};
use crate::simulator::plan::Plan;
use crate::simulator::stored::{in_the_model, tombstone_in_the_model};
use crate::simulator::stream::Peer;
use crate::simulator::{threads, world};
use engine::{Asking, Real};
use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::num::NonZeroUsize;
use std::time::Duration;

thread_local! {
    static JUDGE: RefCell<Option<Judge>> = const { RefCell::new(None) };
}

/// Gives this to the judge, unless there is nothing to judge any more.
fn watch<R>(work: impl FnOnce(&mut Judge) -> R) -> Option<R> {
    JUDGE.with_borrow_mut(|judge| judge.as_mut().filter(|judge| !judge.is_frozen).map(work))
}

/// All that is known of one process.
pub struct Judge {
    model: Model,
    is_frozen: bool,
    /// When it was frozen.
    ended_at: u64,
    /// When another machine had taken the lock.
    replaced_at: Option<u64>,
    is_stopping: bool,
    /// All workers know that it stops.
    has_stopped: bool,
    segment_size: u64,
    max_memory: Option<u64>,
    /// Clients that are silent are closed.
    has_timeout: bool,
    /// Clients that read nothing are closed as well. That happens where sockets
    /// hold little.
    is_narrow: bool,
    connecting: Option<usize>,
    /// When the last client had disconnected.
    last_left_at: u64,
    links: BTreeMap<u64, usize>,
    callers: Vec<Caller>,
    jobs: Jobs,
    history: History,
    /// When each change was made.
    times: Vec<u64>,
    /// Which change put the job.
    put_at: BTreeMap<JobId, usize>,
}

/// One connection of a client.
#[derive(Default)]
pub struct Caller {
    name: String,
    peer: Option<Peer>,
    client: Option<naive::Client>,
    came_at: u64,
    accepted_at: u64,
    /// Since then it sends nothing more.
    is_over_at: Option<u64>,
    left_at: Option<u64>,
    /// When it had sent its first commands.
    said_at: Option<u64>,
    /// It has quit, or is about to close or to half-close.
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

struct Expected {
    text: String,
    /// How many changes must be durable if it was sent.
    depends_on: usize,
}

/// Begins to judge a process that has just read its jobs.
pub fn begin(legacy: &mut Legacy, engine: &Engine, next_id: JobId, now: Time, plan: &Plan) {
    let ids = (1..engine.next_id().0).map(JobId);
    let jobs: Jobs = ids
        .filter_map(|id| Some((id, copy_of(engine.stored(id)?))))
        .collect();
    legacy.check(&jobs, next_id);
    legacy.history = History::new(jobs.clone(), next_id.0);
    legacy.durable = 0;
    legacy.has_started = true;
    legacy.may_be_torn = false;
    let config = &engine.config;
    let mut model = Model::new(
        now.as_nanos(),
        config.max_job_size as usize,
        config.max_memory.map(|bytes| bytes as usize),
    );
    let (tombstones, there): (Vec<_>, Vec<_>) =
        jobs.values().cloned().partition(StoredJob::is_deleted);
    model.max_jobs_per_tube = config.max_jobs_per_tube.map(NonZeroUsize::get);
    model.restart_with(
        there.into_iter().map(in_the_model).collect(),
        tombstones.into_iter().map(tombstone_in_the_model).collect(),
        next_id.0 - 1,
    );
    JUDGE.set(Some(Judge {
        model,
        is_frozen: false,
        ended_at: 0,
        replaced_at: None,
        is_stopping: false,
        has_stopped: false,
        segment_size: plan.segment_size,
        max_memory: plan.max_memory,
        has_timeout: plan.idle_timeout.is_some(),
        is_narrow: plan.room < NARROW,
        connecting: None,
        last_left_at: 0,
        links: BTreeMap::new(),
        callers: Vec::new(),
        history: legacy.history.clone(),
        jobs,
        times: Vec::new(),
        put_at: BTreeMap::new(),
    }));
}

/// Nothing that happens from now on counts.
pub fn freeze(world_time: u64) {
    watch(|judge| {
        judge.is_frozen = true;
        judge.ended_at = world_time;
        for caller in &mut judge.callers {
            caller.written = caller.peer.as_ref().map(Peer::written);
        }
    });
}

/// All threads stall for this time, which does not count where something is promised
/// within a time.
pub fn stalls(nanos: u64) {
    watch(|judge| {
        judge.times.iter_mut().for_each(|time| *time += nanos);
        for caller in &mut judge.callers {
            caller.came_at += nanos;
            let ends = [&mut caller.is_over_at, &mut caller.left_at];
            ends.into_iter().flatten().for_each(|time| *time += nanos);
        }
    });
}

/// Another machine has the lock.
pub fn is_replaced() {
    watch(|judge| {
        judge.replaced_at.get_or_insert_with(world::wall_clock);
    });
}

/// The server ends this caller's wait, if it waits: a job that it was given now it
/// could not delete any more.
pub fn stops_waiting(caller: usize) {
    watch(|judge| {
        let caller = &mut judge.callers[caller];
        if caller.client.is_some_and(|one| judge.model.is_waiting(one)) {
            caller.most_replies = Some(caller.expected.len());
        }
    });
}

pub fn stops() {
    watch(|judge| judge.is_stopping = true);
}

/// All workers know that it stops: no job is handed on.
pub fn has_stopped() {
    watch(|judge| judge.has_stopped = true);
}

/// Judges all replies, and says what they promise.
pub fn end(legacy: Legacy, degree: &Degree, is_closed: bool, has_failed: bool) -> Legacy {
    freeze(world::wall_clock());
    let Some(judge) = JUDGE.take() else {
        return legacy; // it could not start
    };
    let mut history = judge.history;
    for caller in &judge.callers {
        history.required = history.required.max(caller.told(has_failed));
    }
    let ended_at = judge.ended_at;
    // The next one finds what was there when it took the lock.
    let left_at = judge.replaced_at.unwrap_or(ended_at);
    let in_time = |span: Duration| {
        let latest = left_at.saturating_sub(span.as_nanos() as u64);
        judge.times.iter().filter(|time| **time < latest).count()
    };
    // What no client waits for is written soon, too.
    let written = match degree {
        Degree::After(span) => *span,
        Degree::Always | Degree::Never => WRITTEN_WITHIN,
    };
    let has_broken = has_failed && world::has_broken();
    if !has_broken {
        history.required = history.required.max(in_time(written));
    }
    let durable = match degree {
        _ if is_closed => history.len(),
        Degree::Always => history.required,
        Degree::After(_) | Degree::Never if has_broken => 0,
        Degree::After(span) => in_time(*span),
        Degree::Never => 0,
    };
    if is_closed {
        history.required = history.len();
    } else if world::has_lost_sync() {
        // What is only in the cache may be lost at any time.
        history.required = history.required.min(durable);
    }
    Legacy {
        history,
        durable,
        ended_at,
        // If it stalled between reading its two clocks, it believed that one had been
        // set. If no job is left, no earlier time matters.
        knows_times: legacy.knows_times && !world::stalled_after(0)
            || is_closed && judge.jobs.is_empty(),
        may_be_torn: world::has_lost_sync(),
        has_lost_sync: legacy.has_lost_sync || world::has_lost_sync(),
        ..legacy
    }
}

/// A client is about to connect; returns its number.
pub fn caller(name: &str) -> usize {
    JUDGE.with_borrow_mut(|judge| {
        let callers = &mut judge.as_mut().expect("somebody judges").callers;
        callers.push(Caller {
            name: name.to_owned(),
            came_at: threads::tick(),
            ..Caller::default()
        });
        callers.len() - 1
    })
}

/// The server takes its connection.
pub fn connects(caller: usize, peer: Peer) {
    watch(|judge| {
        judge.connecting = Some(caller);
        judge.callers[caller].peer = Some(peer);
    });
}

pub fn says(caller: usize, text: &str) {
    let said = (threads::tick(), text.to_owned());
    watch(|judge| judge.callers[caller].said.push_back(said));
}

/// All that it has said so far is sent.
pub fn has_said(caller: usize) {
    let now = threads::now();
    watch(|judge| *judge.callers[caller].said_at.get_or_insert(now));
}

pub fn is_done(caller: usize) {
    watch(|judge| judge.callers[caller].is_done = true);
}

pub fn half_closes(caller: usize) {
    watch(|judge| judge.callers[caller].is_over_at = Some(threads::tick()));
}

/// It closes.
pub fn leaves(caller: usize) {
    let now = threads::tick();
    watch(|judge| {
        let caller = &mut judge.callers[caller];
        caller.is_over_at.get_or_insert(now);
        caller.left_at = Some(now);
    });
}

/// All threads wait, and time is about to pass: nothing that can be done now is left
/// undone.
pub fn all_wait() {
    // An incident that is due now comes before the judge checks.
    threads::pass();
    let peers = watch(|judge| {
        let peers = judge.links.values().map(|number| {
            let peer = judge.callers[*number].peer.clone();
            (*number, peer.expect("it is connected"))
        });
        peers.collect::<Vec<_>>()
    });
    let told = peers.into_iter().flatten().map(|(number, peer)| {
        let is_full = peer.is_full();
        (number, is_full, peer.answered())
    });
    let told: Vec<_> = told.collect();
    watch(|judge| judge.check_at_rest(&told));
}

/// The ids of all jobs.
pub fn jobs() -> impl Iterator<Item = u64> {
    let ids = |judge: &mut Judge| judge.model.jobs.iter().map(|job| job.id).collect();
    let ids: Vec<_> = watch(ids).unwrap_or_default();
    ids.into_iter()
}

/// How long the keys of deleted jobs stay taken.
pub fn time_of_keys() -> Duration {
    let until = watch(|judge| judge.model.tombstones.iter().map(|key| key.until).max());
    let until = until.flatten().unwrap_or_default();
    Duration::from_nanos(until.saturating_sub(world::wall_clock()))
}

/// Whether this client is rightly without an answer: it waits, the server stops,
/// or there is nothing to judge.
pub fn may_be_silent(caller: usize) -> bool {
    watch(|judge| {
        let caller = &judge.callers[caller];
        judge.is_stopping || caller.client.is_some_and(|one| judge.model.is_waiting(one))
    })
    .unwrap_or(true)
}

/// After this time all is written, whatever the options say, and a little.
pub const WRITTEN_WITHIN: Duration = Duration::from_millis(60);

/// Commands that clients send together usually have shorter replies than this.
const NARROW: usize = 10_000;

/// How late something that is due may happen.
const LATE: u64 = 150_000_000;

/// How long it may take until a client that has hung up is disconnected, if no thread
/// is busy.
const LEAVES_WITHIN: u64 = 1_200_000_000;

/// How long other clients wait for that.
const AWAITED_FOR: u64 = 5_000_000;

impl Judge {
    /// `told`: what each client was sent, and whether it reads so little that no more
    /// can be sent to it.
    fn check_at_rest(&mut self, told: &[(usize, bool, Vec<u8>)]) {
        if self.is_stopping {
            return;
        }
        assert!(
            !world::must_know_of_its_loss(),
            "another machine has the lock, and no thread checks that"
        );
        let due = self.model.next_event();
        let late = due.and_then(|due| world::wall_clock().checked_sub(due));
        assert!(
            // It may stall when it knows how long it has to sleep.
            late.is_none_or(|late| late < LATE + world::stalled_for()),
            "what was due {late:?} ns ago is not done"
        );
        let has_passed = |at: Option<u64>| at.is_some_and(|at| at + LEAVES_WITHIN < threads::now());
        for (number, is_full, bytes) in told {
            let caller = &self.callers[*number];
            let name = &caller.name;
            assert!(
                !has_passed(caller.left_at),
                "{name} is gone, and still there"
            );
            let waits = caller.client.is_some_and(|one| self.model.is_waiting(one));
            let is_over = has_passed(caller.is_over_at);
            assert!(
                !(waits && is_over),
                "{name} waits, though it sends nothing more"
            );
            let mut heard = &bytes[..];
            let replies = std::iter::from_fn(|| next_reply(&mut heard)).count();
            let is_told = replies >= caller.expected.len() || *is_full;
            assert!(
                is_told || caller.left_at.is_some(),
                "{name} is not told what is done"
            );
        }
    }

    fn client(&self, id: ConnectionId) -> Option<naive::Client> {
        self.callers[*self.links.get(&id.0)?].client
    }

    fn connected(&mut self, id: ConnectionId) {
        let Some(caller) = self.connecting.take() else {
            return;
        };
        self.links.insert(id.0, caller);
        self.callers[caller].accepted_at = threads::tick();
        self.callers[caller].client = Some(self.model.connect());
    }

    /// The server closes no connection without a reason.
    fn may_close(&self, id: ConnectionId) {
        let Some(&number) = self.links.get(&id.0) else {
            return;
        };
        let caller = &self.callers[number];
        let client = caller.client.expect("it is connected");
        let is_held = |job: &naive::Job| matches!(job.state, naive::State::Reserved { by, .. } if by == client);
        let is_busy = self.model.is_waiting(client) || self.model.jobs.iter().any(is_held);
        let is_silent = self.has_timeout && !is_busy;
        let is_deaf = self.has_timeout && self.is_narrow;
        let has_ended = self.is_stopping || world::is_struck();
        assert!(
            caller.is_done || is_silent || is_deaf || has_ended,
            "{} is sent away",
            caller.name
        );
    }

    fn pass_time(&mut self, now: Time) {
        self.model.now = now.as_nanos();
        if self
            .model
            .next_event()
            .is_some_and(|at| at <= self.model.now)
        {
            self.model.tick();
        }
    }

    fn prepare(&mut self, id: ConnectionId, asking: &Asking, now: Time, engine: &Real) {
        self.pass_time(now);
        let Some(&number) = self.links.get(&id.0) else {
            return;
        };
        let caller = &self.callers[number];
        if caller.asked_at.is_none() && !self.is_stopping {
            let name = &caller.name;
            let mut others = self.links.values().map(|other| &self.callers[*other]);
            if let Some(said_at) = caller.said_at
                && others.all(|other| other.is_over_at.is_none())
            {
                let since = said_at.max(self.last_left_at);
                let late = threads::now().saturating_sub(since);
                assert!(
                    late < LATE || world::stalled_after(since),
                    "{name} is served {late} ns after it could be"
                );
            }
        }
        self.model.held = engine.held_outside_engine as usize;
        if asking.refused == Some(NoBody::NoRoom) && self.max_memory.is_none() {
            let live: usize = self.model.jobs.iter().map(|job| job.body.len() + 400).sum();
            let put = caller.said.front().map_or(0, |(_, body)| body.len()) + 400;
            let since = caller.asked_at.unwrap_or(0);
            assert!(
                world::may_refuse(since, live as u64, put as u64, self.segment_size),
                "{}'s put is refused, though the disk has room",
                caller.name
            );
        }
        self.callers[number].asked_at = Some(threads::steps());
    }

    fn executed(
        &mut self,
        id: ConnectionId,
        asking: Asking,
        outcome: &Outcome,
        from: (usize, usize),
        engine: &Real,
    ) {
        self.order_burials(engine);
        let Some(&number) = self.links.get(&id.0) else {
            return;
        };
        self.model.disk_is_said_full = engine.disk_is_full;
        let caller = &mut self.callers[number];
        let client = caller.client.expect("it is connected");
        if !asking.goes_on {
            let name = &caller.name;
            let said = caller.said.pop_front();
            let (at, said) = said.unwrap_or_else(|| panic!("{name} has not said so much"));
            match asking.is_body {
                _ if asking.quits => caller.is_done = true,
                true => {
                    self.model.disk_is_full = asking.refused == Some(NoBody::NoRoom);
                    self.model.body(client, &said);
                }
                false => self.model.line(client, &said),
            }
            if let Outcome::Reply(reply) = outcome
                && self.shows_who_is_there(&said, reply)
            {
                self.check_who_is_there(id, at);
            }
        }
        let said = match outcome {
            Outcome::Reply(reply) => vec![(number, reply)],
            _ => Vec::new(),
        };
        self.compare(said, from, engine);
    }

    /// Whether this answer might be another one without a client that has closed.
    fn shows_who_is_there(&self, line: &str, reply: &Reply) -> bool {
        let job = |id: &str| self.jobs.get(&JobId(id.parse().ok()?));
        let begins = |words: &[&str]| words.iter().any(|word| line.starts_with(word));
        match reply {
            Reply::NotFound => match line.strip_prefix("delete ") {
                Some(id) => job(id).is_some_and(|job| !job.is_deleted()),
                None => begins(&["peek", "kick", "stats", "reserve-job"]),
            },
            Reply::TimedOut => line == "reserve-with-timeout 0",
            Reply::KickedCount(0) => true,
            Reply::Tubes(_) => line != "list-tubes-watched",
            Reply::Jobs(_) | Reply::Connections(_) => true,
            Reply::JobStats(_) | Reply::TubeStats(_) | Reply::ServerStats(_) => true,
            _ => false,
        }
    }

    /// A client is told what is there, or that nothing is. Those that had closed before it
    /// asked must have left, unless that takes long.
    fn check_who_is_there(&self, id: ConnectionId, asked_at: u64) {
        let caller = &self.callers[self.links[&id.0]];
        // Once it has hung up itself, it waits only for those that came before it. The
        // server may have seen that before the judge was told when it was.
        let end = if caller.is_done { id.0 } else { u64::MAX };
        for other in self
            .links
            .range(..end)
            .map(|(_, other)| &self.callers[*other])
        {
            // A stall of the process is part of the time that the server has waited.
            let is_late =
                |left: u64| threads::now() >= left + AWAITED_FOR || world::stalled_after(left);
            let was_there = other.accepted_at < asked_at;
            let is_awaited = |left: u64| was_there && left < asked_at && !is_late(left);
            assert!(
                self.is_stopping || !other.left_at.is_some_and(is_awaited),
                "{} is answered though {}, which had closed before, is still connected",
                caller.name,
                other.name
            );
        }
    }

    /// What the engine counts is what the model has.
    fn check_counts(&self, engine: &Real) {
        assert_eq!(engine.memory(), self.model.memory() as u64, "memory");
        assert_eq!(engine.next_id(), JobId(self.model.last_id + 1));
    }

    fn order_burials(&mut self, engine: &Real) {
        self.model
            .order_burials(|id| match engine.stored(JobId(id))?.fields.state {
                StoredState::Buried { order } => Some(order),
                _ => None,
            });
    }

    /// Compares what the engine and the model have said, and notes what has
    /// changed.
    fn compare<'a>(
        &mut self,
        mut said: Vec<(usize, &'a Reply)>,
        from: (usize, usize),
        engine: &'a Real,
    ) {
        self.order_burials(engine);
        let effects = &engine.effects;
        if from.1 == 0 {
            self.history.begin_request();
        }
        for change in &effects.changes[from.1.min(effects.changes.len())..] {
            self.note(change, engine);
        }
        for (id, reply) in &effects.replies[from.0.min(effects.replies.len())..] {
            if let Some(number) = self.links.get(&id.0) {
                said.push((*number, reply));
            }
        }
        let model = std::mem::take(&mut self.model.said);
        let number_of = |client| {
            let found = self
                .callers
                .iter()
                .position(|one| one.client == Some(client));
            found.expect("a client that is connected")
        };
        let mut right: Vec<_> = model
            .into_iter()
            .map(|(client, text)| (number_of(client), normal(&(text + "\r\n"))))
            .collect();
        let mut left: Vec<_> = said
            .iter()
            .map(|(number, reply)| (*number, normal(&text(reply))))
            .collect();
        left.sort();
        right.sort();
        assert_eq!(left, right, "left the engine, right the model");
        for (number, reply) in said {
            let text = text(reply);
            let depends_on = self.depends_on(&text);
            let expected = &mut self.callers[number].expected;
            expected.push(Expected { text, depends_on });
        }
    }

    /// How many changes must be durable before this is sent, independent of what the
    /// server believes.
    fn depends_on(&self, reply: &str) -> usize {
        let put_of = |id: &str| {
            let id = id.parse().map(JobId).expect("a number");
            self.put_at.get(&id).copied().unwrap_or(0)
        };
        let mut words = reply.split_whitespace();
        match words.next() {
            Some("INSERTED" | "DELETED" | "RELEASED" | "BURIED" | "KICKED" | "NOT_FOUND") => {
                self.history.len()
            }
            Some("RESERVED" | "FOUND") => put_of(words.next().expect("an id")),
            // Of a job: no other document begins with an id.
            Some("OK") => match words.collect::<Vec<_>>()[..] {
                [_, "---", "id:", id, ..] => put_of(id),
                _ => 0,
            },
            _ => 0,
        }
    }

    fn note(&mut self, change: &Change, engine: &Real) {
        let record = match *change {
            Change::Put(id) => engine.stored(id).map(copy_of).map(Record::Put),
            Change::Update(id) => {
                let stored = engine.stored(id);
                stored.map(|job| Record::Update(job.fields))
            }
            // If its key is still taken, something is left of it.
            Change::Delete(id, _) => {
                let rest = engine.stored(id);
                Some(rest.map_or(Record::Delete(id), Record::Put))
            }
        };
        // The job may have been deleted since. Then its deletion comes later.
        let Some(record) = record else { return };
        apply(&mut self.jobs, &record);
        self.history.push(record);
        self.times.push(world::wall_clock());
        if let Change::Put(id) = change {
            self.put_at.insert(*id, self.history.len());
        }
    }
}

impl Caller {
    /// How many changes must be durable because of the replies that it got.
    fn told(&self, has_failed: bool) -> usize {
        let Some(peer) = &self.peer else { return 0 };
        let mut bytes = peer.answered();
        bytes.truncate(self.written.unwrap_or(bytes.len()));
        let mut heard = &bytes[..];
        let mut expected = self.expected.iter().enumerate();
        let mut required = 0;
        while let Some(reply) = next_reply(&mut heard) {
            let name = &self.name;
            let Some((number, right)) = expected.next() else {
                panic!("{name} was told {reply:?}, which nobody said");
            };
            assert!(
                self.most_replies.is_none_or(|most| number < most),
                "{name} waited when the server stopped, and was told {reply:?}"
            );
            if normal(&reply) == normal(&right.text) {
                required = required.max(right.depends_on);
            } else {
                let is_failure = reply == "INTERNAL_ERROR\r\n" && has_failed;
                assert!(
                    is_failure,
                    "{name} was told {reply:?}, not {:?}",
                    right.text
                );
            }
        }
        required
    }
}

/// Takes a whole reply out of what was heard.
pub fn next_reply(heard: &mut &[u8]) -> Option<String> {
    let end = heard.windows(2).position(|two| two == b"\r\n")? + 2;
    let line = String::from_utf8_lossy(&heard[..end]).into_owned();
    let mut words = line.trim_end().split(' ');
    let has_body = matches!(words.next(), Some("RESERVED" | "FOUND" | "OK"));
    // It follows the id, if there is one.
    let size = match line.starts_with("OK") {
        true => words.next(),
        false => words.nth(1),
    };
    let len = match size {
        Some(number) if has_body => number.parse::<usize>().ok()? + 2,
        _ => 0,
    };
    let whole = heard.get(..end + len)?;
    *heard = &heard[end + len..];
    Some(String::from_utf8_lossy(whole).into_owned())
}

/// Without what the model does not know: the order of tubes, their numbers, which a start
/// gives anew to all that the log has seen, and files.
fn normal(reply: &str) -> String {
    let Some(rest) = reply.strip_prefix("OK ") else {
        return reply.to_owned();
    };
    let lines = rest.lines().skip(1);
    let lines = lines.filter(|line| !line.starts_with("file:"));
    let without_number = |line| match str::split_once(line, ", name: ") {
        Some((_, tube)) => tube,
        None => line,
    };
    let mut lines: Vec<_> = lines.map(without_number).collect();
    lines.sort_unstable();
    lines.join("\n")
}

/// With a body of its own: one that the judge shared would count as not sent yet.
fn copy_of(job: StoredJob) -> StoredJob {
    let body = Body::new(job.body.content());
    StoredJob { body, ..job }
}

fn text(reply: &Reply) -> String {
    let mut bytes = Vec::new();
    reply.encode(&mut bytes);
    bytes.extend(reply.body().into_iter().flat_map(|body| body.wire()));
    String::from_utf8(bytes).expect("all bodies are text")
}
