//! What all threads share: the state behind its lock, and what follows from a
//! change of the state.

use super::Limits;
use super::client::Client;
use super::clock::Clock;
use super::hangup::HangupWatcher;
use super::lock::FairMutex;
use super::memory::{Memory, Surplus};
use super::permits::Permits;
use super::rush::Rush;
use super::sleep::Sleep;
use super::stream::Stream;
use crate::binlog::{Binlog, Position};
use crate::engine::{ConnectionId, Engine, Outcome, Time};
use crate::protocol::{Reply, Request};
use crate::sync::thread::Thread;
use crate::sync::{AtomicBool, Condvar, MutexGuard, OnceLock, Ordering};
use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::time::Duration;

/// About how much memory becomes free when a worker ends, in bytes: its own,
/// and what the C library has kept for its thread. When many workers have
/// ended, this is worth giving back, too.
const WORKER: u64 = 50_000;

/// What every thread of the server can get at.
pub struct Shared {
    pub clock: Clock,
    pub limits: Limits,
    /// Where jobs are kept, if on disk.
    pub binlog: Option<Arc<Binlog>>,
    /// Notices clients that leave while their worker waits.
    pub hangups: HangupWatcher,
    pub memory: Memory,
    /// The permits of workers with much to do.
    pub permits: Permits,
    /// Whether workers let others go first before they read.
    pub rush: Rush,
    /// **The one lock.** It guards the engine, the order of the binlog and the
    /// list of clients. While a thread holds it, it makes no system call on a
    /// socket or file, logs no line, copies or frees no body, allocates nothing
    /// that grows with what one client sends, and wakes no other thread. All of
    /// this happens at the end of [`unlock`](Self::unlock), after the lock is
    /// released.
    state: FairMutex<Guarded>,
    /// The timer thread. It is woken when something is due before the end of
    /// its sleep.
    pub timer: OnceLock<Thread>,
    /// Signals that no client is connected any more.
    emptiness: Condvar,
    /// The server is ending: no further command is read.
    stopping: AtomicBool,
}

/// What the lock guards.
pub struct Guarded {
    pub engine: Engine,
    /// `None` if jobs are in memory only.
    binlog: Option<Arc<Binlog>>,
    /// The position after the last change that was appended to the binlog.
    binlog_end: Position,
    /// Whether anything was appended since the binlog was last told to write
    /// soon.
    is_unwritten: bool,
    clients: HashMap<ConnectionId, Arc<Client>>,
    /// How many workers there are, those without a client among them.
    pub workers: u64,
    /// How long the timer sleeps, and the memory that it gives back.
    pub sleep: Sleep,
    pub surplus: Surplus,
}

impl Guarded {
    /// Does what a connection asks for, and records what has changed.
    pub fn execute(&mut self, id: ConnectionId, request: Request, now: Time) -> Outcome {
        let mut outcome = self.engine.execute(id, request, now);
        self.keep_record();
        // The engine knows no files. This cannot be done later: when the lock
        // is free, another thread may move the job to a newer file.
        if let Outcome::Reply(Reply::JobStats(job)) = &mut outcome
            && let Some(binlog) = &self.binlog
        {
            job.file = binlog.segment_of(job.id);
        }
        outcome
    }

    /// The position that must be kept before this reply is sent: that of a
    /// change that it promises, or that of the put of the job that it tells of.
    pub fn to_be_kept_before(&self, reply: &Reply) -> Position {
        if reply.is_promise() {
            // The change was just appended, so it ends here.
            return self.binlog_end;
        }
        let kept_from = |id| self.binlog.as_ref()?.kept_from(id);
        // The default position, if the put is kept already.
        reply.tells_of().and_then(kept_from).unwrap_or_default()
    }

    /// When the timer has to wake: at once, if a tick has not done all that is
    /// due.
    pub fn timer_is_wanted_at(&self, now: Time) -> Option<Time> {
        let is_awaited = self.engine.has_waiting();
        let tick_at = self.engine.wake_at();
        let tick_at = tick_at.map(|due| self.sleep.end_for(due, is_awaited, now));
        tick_at.into_iter().chain(self.surplus.due).min()
    }

    /// The binlog has the changes in their order: each is recorded before the
    /// next one is made.
    fn keep_record(&mut self) {
        let changes = &self.engine.effects.changes;
        if let Some(binlog) = &self.binlog
            && !changes.is_empty()
        {
            self.binlog_end = binlog.append(changes, &self.engine);
            self.is_unwritten = true;
            self.engine.effects.changes.clear();
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
            memory: Memory::new(engine.config.max_memory),
            permits: Permits::new(),
            rush: Rush::new(),
            state: FairMutex::new(Guarded {
                engine,
                binlog: binlog.clone(),
                binlog_end: Position::default(),
                is_unwritten: false,
                clients: HashMap::new(),
                workers: 0,
                sleep: Sleep::default(),
                surplus: Surplus::default(),
            }),
            binlog,
            timer: OnceLock::new(),
            emptiness: Condvar::new(),
            stopping: AtomicBool::new(false),
        })
    }

    /// Works on the state under the lock, then does what has followed from it.
    pub fn with_lock<R>(&self, work: impl FnOnce(&mut Guarded, Time) -> R) -> R {
        self.with(self.state.lock(), work)
    }

    /// Like [`with_lock`](Self::with_lock), for work that may take longer: it
    /// lets other threads go first, and should end when the lock
    /// [`is_awaited`](Self::is_awaited). On a full disk it first waits until the
    /// binlog has room for the changes that the work makes.
    pub fn with_lock_last<R>(&self, work: impl FnOnce(&mut Guarded, Time) -> R) -> R {
        let mut state = self.state.lock_last();
        while let Some(binlog) = &self.binlog
            && binlog.is_pressed()
        {
            drop(state);
            // If that fails, those who wait for these changes learn it.
            binlog.commit_all().ok();
            state = self.state.lock_last();
        }
        self.with(state, work)
    }

    fn with<R>(
        &self,
        mut state: MutexGuard<'_, Guarded>,
        work: impl FnOnce(&mut Guarded, Time) -> R,
    ) -> R {
        // Read under the lock, so that the engine's time does not run backwards.
        let now = self.clock.now();
        let result = work(&mut state, now);
        self.unlock(state, now);
        result
    }

    /// What follows all work under the lock, in one place. Under the lock, this
    /// finds out which clients get which reply, and which threads have to be
    /// woken. It releases the lock, and then does these things.
    #[inline(never)]
    fn unlock(&self, mut state: MutexGuard<'_, Guarded>, now: Time) {
        state.keep_record();
        let effects = std::mem::take(&mut state.engine.effects);
        let find = |(id, reply)| {
            // While the server stops, a connection that is closed stays in the
            // engine, and may get a reply here. It keeps its jobs, so that no
            // other client gets a job that this one may still be working on.
            let client = Arc::clone(state.clients.get(&id)?);
            let position = state.to_be_kept_before(&reply);
            Some((client, reply, position))
        };
        let answers: Vec<_> = effects.replies.into_iter().filter_map(find).collect();
        // If much memory has become free, the timer will give it back.
        let taken = self.memory.note_engine(state.engine.memory()) + state.workers * WORKER;
        state.surplus.note(taken, now);
        // The timer is woken only for what comes before the end of its sleep.
        let wanted = state.timer_is_wanted_at(now);
        let timer_oversleeps = state.sleep.cut_short(wanted);
        let is_unwritten = std::mem::take(&mut state.is_unwritten);
        drop(state);

        // Clients that wait come first: the rest has time.
        for (client, reply, position) in answers {
            match &self.binlog {
                Some(binlog) if position > Position::default() => {
                    // The thread that writes the put to the binlog answers:
                    // this one, if no other thread is writing.
                    binlog.commit_then(position, move |kept| {
                        client.answer(kept.map_or(Reply::InternalError, |()| reply));
                    });
                }
                _ => client.answer(reply),
            }
        }
        if timer_oversleeps {
            self.wake_timer();
        }
        if let Some(binlog) = &self.binlog
            && is_unwritten
        {
            binlog.write_soon();
        }
        drop(effects.garbage);
    }

    /// Whether other threads wait for the lock.
    pub fn is_awaited(&self) -> bool {
        self.state.is_awaited()
    }

    /// Adds a connection, unless there are too many already.
    pub fn connect(&self, stream: Stream) -> Result<Arc<Client>, Stream> {
        self.with_lock(|state, _| {
            if state.clients.len() >= self.limits.max_connections {
                return Err(stream);
            }
            let client = Arc::new(Client::new(stream, state.engine.connect()));
            state.clients.insert(client.id, Arc::clone(&client));
            Ok(client)
        })
    }

    /// Removes a connection, and makes its jobs ready again. While the server
    /// stops, they stay reserved: otherwise another client would be given a job
    /// that this one may still be working on. They are ready after a restart.
    pub fn disconnect(&self, id: ConnectionId) {
        let piece = |state: &mut Guarded, now| {
            let is_over = self.is_stopping() || state.engine.disconnect(id, now);
            is_over.then(|| (state.clients.remove(&id), state.clients.is_empty()))
        };
        // One piece is enough for nearly every connection. One that has held
        // very many jobs lets others go first before each further piece.
        let mut gone = self.with_lock(piece);
        while gone.is_none() {
            gone = self.with_lock_last(piece);
        }
        if let Some((_, true)) = gone {
            self.emptiness.notify_one();
        }
    }

    /// Whether the server is ending.
    pub fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Relaxed)
    }

    /// Blocks until no client is connected, or for `timeout`. Returns how many
    /// are left.
    pub fn await_emptiness(&self, timeout: Duration) -> usize {
        let is_there = |state: &mut Guarded| !state.clients.is_empty();
        let state = self.state.lock();
        let waited = self.emptiness.wait_timeout_while(state, timeout, is_there);
        waited.expect("no thread panics").0.clients.len()
    }

    /// Makes all workers finish what they have read, and close. Clients that
    /// wait for a job get none, and nothing more is read from any client.
    pub fn stop(&self) {
        // The flag comes first: a worker that reads just before its client is
        // stopped sees the flag before it reads again.
        self.stopping.store(true, Ordering::Relaxed);
        for client in self.clients() {
            client.stop();
        }
        self.wake_timer();
    }

    /// Closes the connections of clients that do not read their replies.
    pub fn abandon(&self) {
        for client in self.clients() {
            client.stream.close();
        }
    }

    fn clients(&self) -> Vec<Arc<Client>> {
        self.with_lock(|state, _| state.clients.values().cloned().collect())
    }

    fn wake_timer(&self) {
        if let Some(timer) = self.timer.get() {
            timer.unpark();
        }
    }
}
