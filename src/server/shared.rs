//! What all threads share: the engine behind its mutex, and who is connected.

use super::journal::Journal;
use super::peer::Peer;
use crate::binlog::Position;
use crate::engine::{Change, ConnectionId, Effects, Engine, Outcome, Time};
use crate::protocol::Request;
use crate::sys;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// The most that the timer sleeps past the moment at which something is due,
/// so that what is due close together costs one waking.
const TIMER_SLACK: Duration = Duration::from_millis(4);

/// The same as long as nobody waits for a job and could tell.
const TIMER_SLACK_UNSEEN: Duration = Duration::from_millis(100);

/// How many connections are a crowd. With fewer, each reply is worth a switch
/// to the client that waits for it; with more, the workers mostly interrupt each
/// other.
const CROWD: usize = 4;

/// The state of the server and the ways to wake each other.
pub struct Shared {
    clock: Clock,
    /// Guards the engine, the order of the binlog and the list of peers. While
    /// it is held: no system call on a socket or file, no log line, no
    /// allocation or copy that grows with a job's body, nothing freed that
    /// large, and nobody woken: all of that happens after
    /// [`run`](Shared::run) has let go of it.
    state: Mutex<State>,
    /// Wakes the timer, when something is due sooner than it thinks.
    timer: Condvar,
    /// Tells that nobody is connected any more.
    emptiness: Condvar,
    /// The server is ending: no further command is read.
    stopping: AtomicBool,
}

/// What the lock guards.
pub struct State {
    engine: Engine,
    /// `None` if jobs are kept in memory alone.
    journal: Option<Journal>,
    /// Empty; kept for its allocation.
    changes: Vec<Change>,
    peers: HashMap<ConnectionId, Arc<Peer>>,
    /// Until when the timer sleeps; `None`: until it is woken.
    timer_sleeps_until: Option<Time>,
    surplus: Surplus,
}

impl State {
    /// Does what a connection asks for, and records what has changed.
    pub fn execute(&mut self, id: ConnectionId, request: Request, now: Time) -> Outcome {
        let mut outcome = self.engine.execute(id, request, now);
        self.keep_record();
        if let (Some(journal), Outcome::Reply(reply)) = (&self.journal, &mut outcome) {
            journal.complete(reply);
        }
        outcome
    }

    /// The engine, for what is no request.
    pub fn engine(&mut self) -> &mut Engine {
        &mut self.engine
    }

    /// Whether so many are connected that their workers should not interrupt
    /// each other.
    pub fn is_crowded(&self) -> bool {
        self.peers.len() >= CROWD
    }

    /// Behind the last change in the binlog.
    pub fn log_end(&self) -> Position {
        self.journal
            .as_ref()
            .map_or(Position::default(), Journal::end)
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

    /// When the timer has something to do: at once if more is due by now than a
    /// tick has done.
    fn timer_wakes_at(&self, now: Time) -> Option<Time> {
        let slack = if self.engine.has_waiting() {
            TIMER_SLACK
        } else {
            TIMER_SLACK_UNSEEN
        };
        let with_slack = |at| if at <= now { now } else { at + slack };
        let tick_at = self.engine.wake_at().map(with_slack);
        tick_at.into_iter().chain(self.surplus.due).min()
    }
}

/// Memory that jobs have had and no longer have: worth giving back to the
/// system when it is much, but not in the middle of the rush that freed it:
/// whoever allocates then waits as long as that takes.
#[derive(Default)]
struct Surplus {
    /// The most that jobs had since memory was last given back, in bytes.
    peak: u64,
    due: Option<Time>,
}

impl Surplus {
    /// Less than this is not worth the trouble, in bytes.
    const WORTHWHILE: u64 = 8 << 20;
    const DELAY: Duration = Duration::from_secs(2);

    /// Notes how many bytes jobs have now.
    fn note(&mut self, memory: u64, now: Time) {
        self.peak = self.peak.max(memory);
        if self.peak - memory >= Self::WORTHWHILE {
            self.peak = memory;
            self.due = Some(now + Self::DELAY);
        }
    }

    fn is_due(&mut self, now: Time) -> bool {
        self.due.take_if(|due| *due <= now).is_some()
    }
}

impl Shared {
    /// Shares an engine that nobody is connected to yet.
    pub fn new(engine: Engine, journal: Option<Journal>, clock: Clock) -> Shared {
        Shared {
            clock,
            state: Mutex::new(State {
                engine,
                journal,
                changes: Vec::new(),
                peers: HashMap::new(),
                timer_sleeps_until: None,
                surplus: Surplus::default(),
            }),
            timer: Condvar::new(),
            emptiness: Condvar::new(),
            stopping: AtomicBool::new(false),
        }
    }

    /// Works on the state under the lock, then does what has followed from it.
    pub fn run<R>(&self, work: impl FnOnce(&mut State, Time) -> R) -> R {
        let mut state = self.lock();
        let now = self.clock.now();
        let result = work(&mut state, now);
        self.finish(state, now);
        result
    }

    /// Adds a connection.
    pub fn connect(&self, peer: &Arc<Peer>) -> ConnectionId {
        let mut state = self.lock();
        let id = state.engine.connect();
        state.peers.insert(id, Arc::clone(peer));
        id
    }

    /// Removes a connection; the jobs that it had are ready again.
    pub fn disconnect(&self, id: ConnectionId) {
        let mut state = self.lock();
        let now = self.clock.now();
        state.engine.disconnect(id, now);
        let peer = state.peers.remove(&id);
        let is_last = state.peers.is_empty();
        self.finish(state, now);
        drop(peer);
        if is_last {
            self.emptiness.notify_one();
        }
    }

    /// What the timer thread does all its life: lets things happen when they
    /// are due. Ends when the server does.
    pub fn run_timer(&self) {
        let mut state = self.lock();
        while !self.is_stopping() {
            let now = self.clock.now();
            let wake_at = state.engine.wake_at();
            if wake_at.is_some_and(|at| at <= now) {
                state.engine.tick(now);
                self.finish(state, now);
                state = self.lock();
                continue;
            }
            if state.surplus.is_due(now) {
                drop(state);
                sys::give_back_memory();
                state = self.lock();
                continue;
            }
            let until = state.timer_wakes_at(now);
            state.timer_sleeps_until = until;
            state = match until {
                None => self.timer.wait(state).expect("no thread panics"),
                Some(until) => {
                    let waited = self.timer.wait_timeout(state, until.since(now));
                    waited.expect("no thread panics").0
                }
            };
        }
    }

    /// Time since the server started.
    pub fn uptime(&self) -> Duration {
        self.clock.started.elapsed()
    }

    /// Whether the server is ending.
    pub fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Relaxed)
    }

    /// Blocks until nobody is connected, or for `timeout`; how many are left.
    pub fn await_emptiness(&self, timeout: Duration) -> usize {
        let (state, _) = self
            .emptiness
            .wait_timeout_while(self.lock(), timeout, |state| !state.peers.is_empty())
            .expect("no thread panics");
        state.peers.len()
    }

    /// Has all workers finish what they have read and close: those who wait
    /// for a job get none, nothing more is read from anybody.
    pub fn stop(&self) {
        self.stopping.store(true, Ordering::Relaxed);
        for peer in self.peers() {
            peer.stop();
            peer.stream.stop_reading();
        }
        drop(self.lock());
        self.timer.notify_one();
    }

    /// Cuts off those who do not read what they were sent.
    pub fn abandon(&self) {
        for peer in self.peers() {
            peer.stream.close();
        }
    }

    fn peers(&self) -> Vec<Arc<Peer>> {
        self.lock().peers.values().cloned().collect()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no thread panics")
    }

    /// Lets go of the lock, then wakes those who have something to do and
    /// frees what is no longer needed.
    fn finish(&self, mut state: MutexGuard<'_, State>, now: Time) {
        state.keep_record();
        let effects = state.engine.take_effects(Effects::default());
        let find = |(id, reply)| Some((Arc::clone(state.peers.get(&id)?), reply));
        let answers: Vec<_> = effects.replies.into_iter().filter_map(find).collect();
        let memory = state.engine.memory();
        state.surplus.note(memory, now);
        let wake_at = state.timer_wakes_at(now);
        let unwritten = state.journal.as_mut().and_then(Journal::take_unwritten);
        let timer_oversleeps = match (wake_at, state.timer_sleeps_until) {
            (Some(wake_at), Some(until)) => wake_at < until,
            (Some(_), None) => true,
            (None, _) => false,
        };
        if timer_oversleeps {
            state.timer_sleeps_until = wake_at;
        }
        drop(state);
        for (peer, reply) in answers {
            peer.reply(reply);
        }
        if timer_oversleeps {
            self.timer.notify_one();
        }
        if let Some(binlog) = unwritten {
            binlog.soon();
        }
    }
}

/// The one place where the time is read: the system's clock once, at the
/// start, and from then on the monotonic one. So setting the system's clock
/// moves no deadline.
#[derive(Clone, Copy)]
pub struct Clock {
    started: Instant,
    started_at: Time,
}

impl Clock {
    /// Starts now.
    pub fn start() -> Clock {
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH);
        Clock {
            started: Instant::now(),
            started_at: Time::default() + since_epoch.unwrap_or_default(),
        }
    }

    /// The time.
    pub fn now(&self) -> Time {
        self.started_at + self.started.elapsed()
    }
}
