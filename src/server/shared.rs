//! What all threads share: the state behind its lock, and what follows from a
//! change of the state.

use super::clock::{self, Clock};
use super::connections::Leaving;
use super::memory::{MemoryPart, Trim};
use super::outbox::Client;
use super::{Engine, HangupList, Limits};
use crate::binlog::{Binlog, Jobs, Lsn, max_put_len, pause_len};
use crate::engine::{ConnectionId, Outcome, Time};
use crate::lock::{ContendedGuard, ContendedMutex};
use crate::protocol::{Command, Reply, Request};
use crate::sync::thread::Thread;
use crate::sync::{AtomicBool, AtomicU64, Mutex, OnceLock, Ordering};
use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

/// About how much memory becomes free when a worker ends, in bytes: its own,
/// and what the C library has cached for its thread. (One that has only waited has
/// less.) When many workers have ended, this is worth a trim, too.
const FREED_BY_WORKER: u64 = 50_000;

/// A time slice ends when it has cost this many steps: less than a millisecond.
pub const SLICE_STEPS: usize = 2000;

/// The timer wakes at the ends of ticks, which last about a millisecond: so many events in a
/// row cost a thousand wake-ups a second at most. These bits of a time differ within a tick.
const WITHIN_TICK: u64 = (1 << 20) - 1;

/// What all threads of the server share.
pub struct Shared {
    pub clock: Clock,
    pub limits: Limits,
    /// The log on disk, if there is one.
    pub binlog: Option<Arc<Binlog>>,
    /// Which clients have hung up. No thread waits for this list to change, so a client
    /// that hangs up wakes only its own worker.
    pub(super) hangups: HangupList,
    /// Clients that were found in `hangups`.
    pub(super) leaving: Mutex<Leaving>,
    /// Like `hangups`, for clients that have waited in a `reserve`. Their workers may be
    /// asleep and not reading, so the acceptor waits for this list to change.
    pub hangups_in_reserve: HangupList,
    /// The sum of all [`MemoryPart`]s, in bytes.
    pub memory: Arc<AtomicU64>,
    /// **The one lock.** It guards the engine, the order of the binlog and the
    /// list of clients. While a thread holds it, it makes no system call on a
    /// socket or file, logs no line, copies or frees no body, allocates nothing
    /// that grows with a client's bodies, and wakes no other thread. What follows
    /// from the work under it is done at the end of [`unlock`](Self::unlock),
    /// after the lock is released.
    state: ContendedMutex<Guarded>,
    /// The timer thread. It is woken when something is due before the end of
    /// its sleep.
    pub timer: OnceLock<Thread>,
    /// The server is ending: no further command is read.
    pub(super) stopping: AtomicBool,
}

/// What the lock guards.
pub struct Guarded {
    pub engine: Engine,
    /// Whether anything was appended to the binlog since the lock was taken.
    has_appended: bool,
    /// The clients, in the order in which they came. Each of them takes up a *slot* of the
    /// limit of connections.
    pub(super) clients: BTreeMap<ConnectionId, Arc<Client>>,
    /// How many of them were found to have hung up.
    pub(super) hung_up: usize,
    /// How many workers have no client.
    pub idle_workers: usize,
    /// Until when the timer sleeps; with `None`, until another thread wakes it.
    pub timer_sleeps_until: Option<Time>,
    /// When the timer trims the heap.
    pub trim: Trim,
}

impl Guarded {
    /// When the timer has to wake; this is past if a tick has not done all that is due.
    pub fn timer_is_wanted_at(&self) -> Option<Time> {
        let tick_at = self.engine.wake_at();
        let tick_at = tick_at.map(|due| Time::from_nanos(due.as_nanos() | WITHIN_TICK));
        tick_at.into_iter().chain(self.trim.due).min()
    }
}

impl Shared {
    /// Shares an engine to which no client is connected yet.
    pub fn new(
        engine: Engine,
        binlog: Option<Arc<Binlog>>,
        clock: Clock,
        limits: Limits,
    ) -> io::Result<Shared> {
        Ok(Shared {
            clock,
            limits,
            hangups: HangupList::new()?,
            leaving: Mutex::default(),
            hangups_in_reserve: HangupList::new()?,
            memory: Arc::default(),
            state: ContendedMutex::new(Guarded {
                engine,
                has_appended: false,
                clients: BTreeMap::new(),
                hung_up: 0,
                idle_workers: 0,
                timer_sleeps_until: None,
                trim: Trim::default(),
            }),
            binlog,
            timer: OnceLock::new(),
            stopping: AtomicBool::new(false),
        })
    }

    /// Works on the state under the lock, then does what has followed from it.
    pub fn with_lock<R>(&self, work: impl FnOnce(&mut Guarded, Time) -> R) -> R {
        self.with(self.state.lock(), work)
    }

    /// Like [`with_lock`](Self::with_lock), for work that may take longer: it
    /// lets other threads go first, and should end when the lock
    /// [`is_awaited`](Self::is_awaited).
    pub fn with_lock_last<R>(&self, work: impl FnOnce(&mut Guarded, Time) -> R) -> R {
        self.with(self.state.lock_last(), work)
    }

    /// Does what became due while the server was down: delays end, jobs expire, and unique
    /// keys of deleted jobs become free. To be called before any client connects, so that the
    /// first `reserve` gets the most urgent of all jobs.
    pub fn catch_up(&self) {
        while self.with_lock(|state, now| state.engine.tick(now)) {
            self.await_disk_space();
        }
    }

    /// If the binlog is short of disk space for the next time slice, frees some. Not to
    /// be called under the lock: this waits for the disk.
    pub fn await_disk_space(&self) {
        while self.has_binlog_backpressure()
            && let Some(binlog) = &self.binlog
        {
            // If that fails, the clients that wait for these changes get an error.
            binlog.make_up(&|work| self.with_jobs(work)).ok();
        }
    }

    /// Whether the binlog must write and recycle before another time slice, because its disk
    /// is nearly full.
    pub fn has_binlog_backpressure(&self) -> bool {
        let binlog = self.binlog.as_ref();
        binlog.is_some_and(|binlog| binlog.has_backpressure())
    }

    /// How long a record this request needs, if the binlog has no disk space for it: a body
    /// becomes a job, or a pause begins. `None` holds as long as the lock is held: nobody else
    /// can take the space before the request is executed.
    pub fn lacks_room_for(
        &self,
        state: &Guarded,
        id: ConnectionId,
        request: &Request,
    ) -> Option<u64> {
        let binlog = self.binlog.as_ref()?;
        let lacks = |len: &u64| !binlog.admits(*len);
        match request {
            Request::Body(Ok(body)) => {
                let len = Some(max_put_len(body.wire().len())).filter(lacks);
                len.filter(|_| state.engine.body_becomes_job(id))
            }
            Request::Command(_, Command::PauseTube(tube, length)) => {
                let begins = state.engine.begins_pause(tube, *length);
                begins.then(|| pause_len(tube)).filter(lacks)
            }
            _ => None,
        }
    }

    /// Calls a function with the jobs, under the lock: compaction writes them again as
    /// they are now.
    pub fn with_jobs(&self, work: &mut dyn FnMut(&dyn Jobs)) {
        self.with_lock_last(|state, now| {
            state.engine.outside.clock_shift = clock::shift(now, state.engine.outside.clock_shift);
            work(&state.engine);
        });
    }

    /// Does what a connection asks for, and appends what has changed to the
    /// binlog.
    pub fn execute_and_append(
        &self,
        state: &mut Guarded,
        id: ConnectionId,
        request: Request,
        now: Time,
    ) -> Outcome {
        // This command shows whether puts are refused now.
        if let (Request::Command(_, Command::ListServerStats), Some(binlog)) =
            (&request, &self.binlog)
        {
            state.engine.outside.disk_is_full = binlog.refuses_puts();
        }
        let outcome = state.engine.execute(id, request, now);
        self.append_changes(state, now);
        outcome
    }

    /// Whether the engine and the workers are within the limit of memory.
    pub fn has_memory(&self) -> bool {
        self.with_lock(|state, _| state.engine.has_memory_for(0))
    }

    /// Counts that a worker will hold this many more bytes, if there is room for them, and
    /// if this many quarters of the limit stay free beside them.
    pub fn count_if_room(&self, part: &mut MemoryPart, more: usize, quarters: u64) -> bool {
        self.with_lock(|state, _| {
            let spare = state.engine.config.max_memory.unwrap_or(0) / 4 * quarters;
            let has_room = state.engine.room_for_replies() >= more as u64 + spare;
            if has_room {
                part.set(part.bytes as usize + more);
            }
            has_room
        })
    }

    /// Up to where the binlog must be durable before this reply is sent. To be called
    /// under the same hold of the lock as the request that the reply answers.
    pub fn needed_for(&self, reply: &Reply) -> Option<Lsn> {
        self.binlog.as_ref()?.needed_for(reply.depends_on())
    }

    /// Appends the engine's changes to the binlog. Those of a request are appended
    /// before the next one is executed, so the binlog has all changes in their order.
    fn append_changes(&self, state: &mut Guarded, now: Time) {
        if let Some(binlog) = &self.binlog
            && !state.engine.effects.changes.is_empty()
        {
            // The system's clock is read once while the lock is held.
            if !std::mem::replace(&mut state.has_appended, true) {
                state.engine.outside.clock_shift =
                    clock::shift(now, state.engine.outside.clock_shift);
            }
            binlog.append(&state.engine.effects.changes, &state.engine);
            state.engine.effects.changes.clear();
        }
    }

    fn with<R>(
        &self,
        mut state: ContendedGuard<'_, Guarded>,
        work: impl FnOnce(&mut Guarded, Time) -> R,
    ) -> R {
        // Read under the lock, so that the engine's time does not run backwards.
        let now = self.clock.now();
        state.engine.outside.memory = self.memory.load(Ordering::Relaxed);
        let result = work(&mut state, now);
        self.unlock(state, now);
        result
    }

    /// Every hold of the lock ends here. Under the lock, this determines which clients get
    /// which reply, and which threads have to be woken. It releases the lock, and then
    /// does these things.
    #[inline(never)]
    fn unlock(&self, mut state: ContendedGuard<'_, Guarded>, now: Time) {
        self.append_changes(&mut state, now);
        let effects = &mut state.engine.effects;
        effects.steps = 0;
        let replies = std::mem::take(&mut effects.replies);
        let unneeded_bodies = std::mem::take(&mut effects.unneeded_bodies);
        // Their jobs no longer count. A body that others still send counts here, and once.
        for body in &unneeded_bodies {
            body.keep_with_others(|| MemoryPart::new(&self.memory, body.wire().len()));
        }
        let find = |(id, reply)| {
            // While the server stops, a connection that is closed stays in the
            // engine, and may get a reply here. It keeps its jobs, so that no
            // other client gets a job that this one may still be working on.
            let client = Arc::clone(state.clients.get(&id)?);
            let needed = self.needed_for(&reply);
            Some((client, reply, needed))
        };
        let answers: Vec<_> = replies.into_iter().filter_map(find).collect();
        // If much memory has become free, the timer will trim the heap.
        let of_workers = state.clients.len() as u64 * FREED_BY_WORKER;
        let of_clients = self.memory.load(Ordering::Relaxed);
        let taken = state.engine.memory() + of_clients + of_workers;
        state.trim.note(taken, now);
        // The timer is woken only for what comes before the end of its sleep.
        let (wanted, until) = (state.timer_is_wanted_at(), state.timer_sleeps_until);
        let timer_oversleeps = wanted.is_some_and(|at| until.is_none_or(|until| at < until));
        if timer_oversleeps {
            state.timer_sleeps_until = wanted;
        }
        let has_appended = std::mem::take(&mut state.has_appended);
        drop(state);

        // Clients that wait come first: the rest can wait.
        for (client, reply, needed) in answers {
            client.answer(reply, needed);
        }
        if timer_oversleeps {
            self.wake_timer();
        }
        // Usually a client waits for these changes, and its commit comes first.
        if let Some(binlog) = &self.binlog
            && has_appended
        {
            binlog.write_soon();
        }
        drop(unneeded_bodies);
    }

    /// Whether other threads wait for the lock.
    pub fn is_awaited(&self) -> bool {
        self.state.is_awaited()
    }

    /// Whether the server is ending.
    pub fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Relaxed)
    }

    pub fn wake_timer(&self) {
        if let Some(timer) = self.timer.get() {
            timer.unpark();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::{Config, Peer};
    use crate::protocol::Framer;
    use std::time::Duration;

    #[test]
    fn the_timer_is_woken_once_for_events_within_a_millisecond_and_again_for_an_earlier_one() {
        let clock = Clock::start();
        let engine = Engine::new(Config::new(100), clock.now());
        let shared = Shared::new(engine, None, clock, Limits::of_one_client(100)).unwrap();
        let in_an_hour = clock.now() + Duration::from_secs(3600);
        let start = Time::from_nanos(in_an_hour.as_nanos() & !WITHIN_TICK);
        let sleeps_until_after = |delay: u64, nanos: u64| {
            shared.with_lock(|state, _| {
                let (mut framer, put) = (Framer::new(100), format!("put 0 {delay} 60 0\r\n\r\n"));
                let (mut input, at) = (put.as_bytes(), start + Duration::from_nanos(nanos));
                let id = state.engine.connect(Peer::default(), at);
                while let Some(request) = framer.next(&mut input) {
                    state.engine.execute(id, request, at);
                }
            });
            shared.with_lock(|state, _| state.timer_sleeps_until)
        };
        let first = sleeps_until_after(100, 0);
        let at = start + Duration::from_secs(100);
        assert!(first >= Some(at) && first <= Some(at + Duration::from_millis(2)));
        assert_eq!(sleeps_until_after(100, 1), first);
        assert_eq!(sleeps_until_after(200, 2), first);
        assert!(sleeps_until_after(50, 3) < first);
    }
}
