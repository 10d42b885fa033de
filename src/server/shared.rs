//! What all threads share: the state behind its lock, and what follows from a
//! change of it.

use super::Limits;
use super::client::Client;
use super::clock::Clock;
use super::hangup::HangupWatcher;
use super::journal::Journal;
use super::lock::FairMutex;
use super::memory::{Memory, Surplus};
use super::permits::Permits;
use super::sleep::Sleep;
use super::stream::Stream;
use crate::binlog::{Binlog, Position};
use crate::engine::{Change, ConnectionId, Engine, Outcome, Time};
use crate::protocol::{Body, Reply, Request};
use std::collections::HashMap;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, MutexGuard};
use std::time::Duration;

/// About what is freed when a worker ends, in bytes: its own things, and pieces
/// that the C library has kept for its thread. When many have ended, that is
/// worth giving back, too.
const WORKER: u64 = 50_000;

/// What every thread of the server can get at.
pub struct Shared {
    pub clock: Clock,
    pub limits: Limits,
    /// Where jobs are kept, if on disk.
    pub binlog: Option<Arc<Binlog>>,
    /// Who is told of those who leave while they wait.
    pub hangups: HangupWatcher,
    pub memory: Memory,
    /// For workers with much to do.
    pub permits: Permits,
    /// **The one lock.** It guards the engine, the order of the binlog and the
    /// list of clients. While it is held there is no system call on a socket or
    /// file, no line is logged, no body is copied or freed, nothing is
    /// allocated that grows with what one client sends, and nobody is woken:
    /// all of that happens in [`deliver`](Self::deliver), when the lock has been
    /// let go of.
    state: FairMutex<State>,
    /// Wakes the timer, when something is due sooner than it thinks.
    timer: Condvar,
    /// Tells that nobody is connected any more.
    emptiness: Condvar,
    /// The server is ending: no further command is read.
    stopping: AtomicBool,
}

/// What the lock guards.
pub struct State {
    pub engine: Engine,
    /// `None` if jobs are kept in memory alone.
    journal: Option<Journal>,
    /// Empty; kept for its allocation.
    changes: Vec<Change>,
    clients: HashMap<ConnectionId, Arc<Client>>,
    /// How many workers there are, those without a client among them.
    pub workers: u64,
    /// The timer's.
    pub sleep: Sleep,
    pub surplus: Surplus,
}

/// The lock, held.
pub type Guard<'a> = MutexGuard<'a, State>;

/// What is to be done for others once the lock is free.
struct Deliveries {
    answers: Vec<(Arc<Client>, Reply, Position)>,
    garbage: Vec<Body>,
    timer_oversleeps: bool,
    unwritten: Option<Arc<Binlog>>,
}

impl State {
    /// Does what a connection asks for, and records what has changed.
    pub fn execute(&mut self, id: ConnectionId, request: Request, now: Time) -> Outcome {
        let mut outcome = self.engine.execute(id, request, now);
        self.keep_record();
        if let (Some(journal), Outcome::Reply(Reply::JobStats(id, document))) =
            (&self.journal, &mut outcome)
        {
            document.set("file", journal.segment_of(*id));
        }
        outcome
    }

    /// Goes on with what was unfinished.
    pub fn go_on(&mut self, id: ConnectionId, now: Time) -> Outcome {
        let outcome = self.engine.go_on(id, now);
        self.keep_record();
        outcome
    }

    /// What has to be kept before this is told to anybody: a change that it
    /// promises, or the put of the job that it tells of.
    pub fn to_be_kept_before(&self, reply: &Reply) -> Position {
        let Some(journal) = &self.journal else {
            return Position::default();
        };
        if reply.is_promise() {
            return journal.end();
        }
        reply
            .tells_of()
            .map_or(Position::default(), |id| journal.kept_from(id))
    }

    /// When the timer has something to do: at once if more is due by now than
    /// a tick has done.
    pub fn timer_is_wanted_at(&self, now: Time) -> Option<Time> {
        let is_awaited = self.engine.has_waiting();
        let tick_at = self.engine.wake_at();
        let tick_at = tick_at.map(|due| self.sleep.end_for(due, is_awaited, now));
        tick_at.into_iter().chain(self.surplus.due).min()
    }

    /// Log order is state order: changes are recorded before any other is made.
    fn keep_record(&mut self) {
        if let Some(journal) = &mut self.journal {
            let mut changes = self.engine.take_changes(std::mem::take(&mut self.changes));
            journal.append(&changes, &self.engine);
            changes.clear();
            self.changes = changes;
        }
    }
}

impl Shared {
    /// Shares an engine that nobody is connected to yet.
    pub fn new(
        engine: Engine,
        binlog: Option<Arc<Binlog>>,
        clock: Clock,
        limits: Limits,
    ) -> io::Result<Shared> {
        Ok(Shared {
            clock,
            limits,
            hangups: HangupWatcher::new()?,
            memory: Memory::new(engine.max_memory()),
            permits: Permits::new(),
            state: FairMutex::new(State {
                engine,
                journal: binlog.clone().map(Journal::new),
                changes: Vec::new(),
                clients: HashMap::new(),
                workers: 0,
                sleep: Sleep::default(),
                surplus: Surplus::default(),
            }),
            binlog,
            timer: Condvar::new(),
            emptiness: Condvar::new(),
            stopping: AtomicBool::new(false),
        })
    }

    /// Works on the state under the lock, then does what has followed from it.
    pub fn run<R>(&self, work: impl FnOnce(&mut State, Time) -> R) -> R {
        let (mut state, now) = self.lock();
        let result = work(&mut state, now);
        self.finish(state, now);
        result
    }

    /// The same for what may take longer: it lets others go first, and should
    /// come to an end when [`is_awaited`](Self::is_awaited).
    pub fn run_much<R>(&self, work: impl FnOnce(&mut State, Time) -> R) -> R {
        let (mut state, now) = self.lock_last();
        let result = work(&mut state, now);
        self.finish(state, now);
        result
    }

    /// Whether others wait for the lock.
    pub fn is_awaited(&self) -> bool {
        self.state.is_awaited()
    }

    /// Adds a connection, unless there are too many already.
    pub fn connect(&self, stream: Stream) -> Result<Arc<Client>, Stream> {
        let (mut state, _) = self.lock();
        if state.clients.len() >= self.limits.max_connections {
            return Err(stream);
        }
        let client = Arc::new(Client::new(stream, state.engine.connect()));
        state.clients.insert(client.id, Arc::clone(&client));
        Ok(client)
    }

    /// Removes a connection; the jobs that it had are ready again. When the
    /// server is ending they are not: another one would be given what this
    /// client still works on. After a restart they are.
    pub fn disconnect(&self, id: ConnectionId) {
        let piece = |state: &mut State, now| {
            let is_over = self.is_stopping() || state.engine.disconnect(id, now);
            is_over.then(|| (state.clients.remove(&id), state.clients.is_empty()))
        };
        let mut gone = self.run(piece);
        while gone.is_none() {
            gone = self.run_much(piece);
        }
        if let Some((_, true)) = gone {
            self.emptiness.notify_one();
        }
    }

    /// Has the timer sleep until it is called or the time is over.
    pub fn await_call_to_timer(&self, state: Guard<'_>, timeout: Option<Duration>) {
        drop(match timeout {
            None => self.timer.wait(state).expect("no thread panics"),
            Some(timeout) => {
                let waited = self.timer.wait_timeout(state, timeout);
                waited.expect("no thread panics").0
            }
        });
    }

    /// Whether the server is ending.
    pub fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Relaxed)
    }

    /// Blocks until nobody is connected, or for `timeout`; how many are left.
    pub fn await_emptiness(&self, timeout: Duration) -> usize {
        let (state, _) = self.lock();
        let (state, _) = self
            .emptiness
            .wait_timeout_while(state, timeout, |state| !state.clients.is_empty())
            .expect("no thread panics");
        state.clients.len()
    }

    /// Has all workers finish what they have read and close: those who wait
    /// for a job get none, nothing more is read from anybody.
    pub fn stop(&self) {
        self.stopping.store(true, Ordering::Relaxed);
        for client in self.clients() {
            client.stop();
        }
        drop(self.lock());
        self.timer.notify_one();
    }

    /// Cuts off those who do not read what they were sent.
    pub fn abandon(&self) {
        for client in self.clients() {
            client.stream.close();
        }
    }

    fn clients(&self) -> Vec<Arc<Client>> {
        self.lock().0.clients.values().cloned().collect()
    }

    /// Locks the state, and reads the time.
    pub fn lock(&self) -> (Guard<'_>, Time) {
        let state = self.state.lock();
        (state, self.clock.now())
    }

    /// The same, behind those who wait for it.
    pub fn lock_last(&self) -> (Guard<'_>, Time) {
        let state = self.state.lock_last();
        (state, self.clock.now())
    }

    /// Lets go of the lock, and does what has followed from what was done.
    pub fn finish(&self, mut state: Guard<'_>, now: Time) {
        let deliveries = self.collect(&mut state, now);
        drop(state);
        self.deliver(deliveries);
    }

    /// Under the lock: who is to be told what, and who is to be woken.
    fn collect(&self, state: &mut State, now: Time) -> Deliveries {
        state.keep_record();
        let effects = state.engine.take_effects();
        let find = |(id, reply)| {
            let client = Arc::clone(state.clients.get(&id)?);
            let position = state.to_be_kept_before(&reply);
            Some((client, reply, position))
        };
        let answers = effects.replies.into_iter().filter_map(find).collect();
        let taken = self.memory.note_engine(state.engine.memory());
        state.surplus.note(taken + state.workers * WORKER, now);
        Deliveries {
            answers,
            garbage: effects.garbage,
            timer_oversleeps: {
                let wanted = state.timer_is_wanted_at(now);
                state.sleep.is_too_long(wanted)
            },
            unwritten: state.journal.as_mut().and_then(Journal::take_unwritten),
        }
    }

    /// After the lock: answers those who wait, wakes the timer and the binlog,
    /// and frees what nobody needs.
    fn deliver(&self, deliveries: Deliveries) {
        for (client, reply, position) in deliveries.answers {
            match &self.binlog {
                Some(binlog) if position > Position::default() => {
                    binlog.commit_then(position, move |kept| {
                        client.answer(kept.map_or(Reply::InternalError, |()| reply));
                    });
                }
                _ => client.answer(reply),
            }
        }
        if deliveries.timer_oversleeps {
            self.timer.notify_one();
        }
        if let Some(binlog) = deliveries.unwritten {
            binlog.write_soon();
        }
        drop(deliveries.garbage);
    }
}
