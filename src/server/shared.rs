//! What all threads share: the state behind its lock, and what follows from a
//! change of the state.

use super::clock::{self, Clock};
use super::memory::{Held, Trim};
use super::outbox::Client;
use super::stream::Stream;
use super::system::CLOSING;
use super::timer::Sleep;
use super::{Engine, HangupList, Limits, workers};
use crate::binlog::{Binlog, Jobs, Lsn, max_put_len};
use crate::engine::{ConnectionId, Outcome, Time};
use crate::lock::{FairGuard, FairMutex};
use crate::log;
use crate::protocol::{Command, Reply, Request};
use crate::sync::thread::{self, Thread};
use crate::sync::{AtomicBool, AtomicU64, Condvar, Mutex, MutexGuard, OnceLock, Ordering};
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

/// About how much memory becomes free when a worker ends, in bytes: its own,
/// and what the C library has cached for its thread. (One that has only waited has
/// less.) When many workers have ended, this is worth a trim, too.
const FREED_BY_WORKER: u64 = 50_000;

/// A time slice ends when it has cost this many steps: less than a millisecond.
pub const SLICE_STEPS: usize = 2000;

/// How long others wait for a client that has hung up: its worker usually takes some
/// microseconds.
const LEAVES_WITHIN: Duration = Duration::from_millis(5);

/// No client has this id.
const NOBODY: ConnectionId = ConnectionId(u64::MAX);

/// What all threads of the server share.
pub struct Shared {
    pub clock: Clock,
    pub limits: Limits,
    /// The log on disk, if there is one.
    pub binlog: Option<Arc<Binlog>>,
    /// Which clients have hung up. No thread waits for this list to change, so a client
    /// that hangs up wakes only its own worker.
    hangups: HangupList,
    /// The clients that were found in this list and are still connected, each with the
    /// time until which others wait for it to leave.
    leaving: Mutex<BTreeMap<ConnectionId, Time>>,
    /// Wakes those that wait.
    left: Condvar,
    /// The same for clients that have waited in a `reserve`. Their workers may be asleep
    /// and not reading, so the acceptor waits for this list, too.
    pub hangups_in_reserve: HangupList,
    /// How much memory all workers hold for their clients, in bytes, and the long bodies of
    /// deleted jobs that are still to be sent.
    pub held: Arc<AtomicU64>,
    /// **The one lock.** It guards the engine, the order of the binlog and the
    /// list of clients. While a thread holds it, it makes no system call on a
    /// socket or file, logs no line, copies or frees no body, allocates nothing
    /// that grows with a client's bodies, and wakes no other thread. What follows
    /// from the work under it is done at the end of [`unlock`](Self::unlock),
    /// after the lock is released.
    state: FairMutex<Guarded>,
    /// The timer thread. It is woken when something is due before the end of
    /// its sleep.
    pub timer: OnceLock<Thread>,
    /// The server is ending: no further command is read.
    stopping: AtomicBool,
}

/// What the lock guards.
pub struct Guarded {
    pub engine: Engine,
    /// Whether anything was appended to the binlog since the lock was taken.
    has_appended: bool,
    /// The clients, in the order in which they came. Each of them takes up a *slot* of the
    /// limit of connections.
    pub(super) clients: BTreeMap<ConnectionId, Arc<Client>>,
    /// How many clients each address has, if that is bounded: otherwise one address
    /// could take all the slots. (Clients on Unix sockets have none.)
    addresses: BTreeMap<IpAddr, usize>,
    /// How many workers have no client.
    pub idle_workers: usize,
    /// How long the timer sleeps, and when it trims the heap.
    pub sleep: Sleep,
    pub trim: Trim,
}

impl Guarded {
    /// When the timer has to wake: at once, if a tick has not done all that is
    /// due.
    pub fn timer_is_wanted_at(&self, now: Time) -> Option<Time> {
        let tick_at = self.engine.wake_at();
        let tick_at = tick_at.map(|due| self.sleep.end_for(due, now));
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
            left: Condvar::new(),
            hangups_in_reserve: HangupList::new()?,
            held: Arc::default(),
            state: FairMutex::new(Guarded {
                engine,
                has_appended: false,
                clients: BTreeMap::new(),
                addresses: BTreeMap::new(),
                idle_workers: 0,
                sleep: Sleep::default(),
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

    /// Ends the delays, and frees the unique keys of deleted jobs, that became due while the
    /// server was down.
    /// To be called before any client connects, so that the first `reserve` gets the
    /// most urgent of all jobs.
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

    /// Whether this is a body that will become a job, and the binlog has no disk space for
    /// it. If it has some, and the body is put under the same hold of the lock, no other
    /// put can take that before.
    pub fn lacks_room_for(&self, state: &Guarded, id: ConnectionId, request: &Request) -> bool {
        match (&self.binlog, request) {
            (Some(binlog), Request::Body(Ok(body))) => {
                !binlog.admits(max_put_len(body.wire().len())) && state.engine.body_becomes_job(id)
            }
            _ => false,
        }
    }

    /// Calls a function with the jobs, under the lock: compaction writes them again as
    /// they are now.
    pub fn with_jobs(&self, work: &mut dyn FnMut(&dyn Jobs)) {
        self.with_lock_last(|state, now| {
            state.engine.clock_shift = clock::shift(now, state.engine.clock_shift);
            work(&state.engine);
        });
    }

    /// Does what a connection asks for, and appends what has changed to the
    /// binlog.
    pub fn execute(
        &self,
        state: &mut Guarded,
        id: ConnectionId,
        request: Request,
        now: Time,
    ) -> Outcome {
        if let (Request::Command(Command::Stats), Some(binlog)) = (&request, &self.binlog) {
            state.engine.disk_is_full = binlog.refuses_puts();
        }
        let outcome = state.engine.execute(id, request, now);
        self.append_changes(state, now);
        outcome
    }

    /// Whether the engine and the workers are within the limit of memory.
    pub fn has_memory(&self) -> bool {
        self.with_lock(|state, _| {
            state.engine.held_outside_engine = self.held.load(Ordering::Relaxed);
            state.engine.has_memory_for(0)
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
                state.engine.clock_shift = clock::shift(now, state.engine.clock_shift);
            }
            binlog.append(&state.engine.effects.changes, &state.engine);
            state.engine.effects.changes.clear();
        }
    }

    fn with<R>(
        &self,
        mut state: FairGuard<'_, Guarded>,
        work: impl FnOnce(&mut Guarded, Time) -> R,
    ) -> R {
        // Read under the lock, so that the engine's time does not run backwards.
        let now = self.clock.now();
        let result = work(&mut state, now);
        self.unlock(state, now);
        result
    }

    /// Every hold of the lock ends here. Under the lock, this determines which clients get
    /// which reply, and which threads have to be woken. It releases the lock, and then
    /// does these things.
    #[inline(never)]
    fn unlock(&self, mut state: FairGuard<'_, Guarded>, now: Time) {
        self.append_changes(&mut state, now);
        let effects = &mut state.engine.effects;
        effects.steps = 0;
        let replies = std::mem::take(&mut effects.replies);
        let unneeded_bodies = std::mem::take(&mut effects.unneeded_bodies);
        // Its job counts no more. What others still send counts once, however many they are.
        for body in &unneeded_bodies {
            body.keep_with_others(|| Held::new(&self.held, body.wire().len()));
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
        let held = self.held.load(Ordering::Relaxed);
        let taken = state.engine.memory() + held + of_workers;
        state.trim.note(taken, now);
        // The timer is woken only for what comes before the end of its sleep.
        let wanted = state.timer_is_wanted_at(now);
        let timer_oversleeps = state.sleep.cut_short(wanted);
        let has_appended = std::mem::take(&mut state.has_appended);
        drop(state);

        // Clients that wait come first: the rest can wait.
        for (client, reply, needed) in answers {
            client.answer(reply, needed);
        }
        if timer_oversleeps {
            self.wake_timer();
        }
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

    /// Adds a connection of this address.
    ///
    /// # Errors
    ///
    /// If there are too many connections already, in all or of this address: returns the
    /// stream, and which limit that is.
    pub fn connect(
        &self,
        stream: Stream,
        address: Option<IpAddr>,
    ) -> Result<Arc<Client>, (Stream, String)> {
        self.take_slot(stream, address).or_else(|(stream, _)| {
            // A client that comes right after another one has closed finds its slot free.
            self.leavers(NOBODY);
            self.take_slot(stream, address)
        })
    }

    fn take_slot(
        &self,
        stream: Stream,
        address: Option<IpAddr>,
    ) -> Result<Arc<Client>, (Stream, String)> {
        // Who finds the connection in the engine finds it in the list of hang-ups, too.
        let leaving = self.leaving();
        let client = self.with_lock(|state, now| {
            // Some of those that leave hold no slot any more: their sockets close soon.
            let leavers = leaving.keys().filter_map(|id| state.clients.get(id));
            let closing = |address: Option<IpAddr>| {
                let of_address = |one: &&Arc<Client>| address.is_none() || one.address == address;
                leavers.clone().filter(of_address).take(CLOSING).count()
            };
            let count = state.clients.len() - closing(None);
            if count >= self.limits.max_connections {
                let reason = format!("the limit of connections, {count}, is reached");
                return Err((stream, reason));
            }
            if let (Some(address), Some(most)) = (address, self.limits.max_connections_per_address)
            {
                let closing = closing(Some(address));
                let all = state.addresses.entry(address).or_default();
                let count = *all - closing;
                if count >= most.get() {
                    let reason = format!("its address's limit of connections, {count}, is reached");
                    return Err((stream, reason));
                }
                *all += 1;
            }
            let (id, timeout) = (state.engine.connect(), self.limits.idle_timeout);
            let mut client = Client::new(stream, id, self.binlog.clone(), timeout);
            (client.address, client.connected_at) = (address, now);
            let client = Arc::new(client);
            state.clients.insert(client.id, Arc::clone(&client));
            Ok(client)
        })?;
        if let Err(error) = self.hangups.add(&client.stream.0, client.id.0) {
            let text = "only its worker will notice that it hangs up";
            log::client_warning(&client.stream, format_args!("{text}: {error}"));
        }
        Ok(client)
    }

    /// The clients that have hung up and are still there, each with the time until which
    /// this asker [waits](Self::await_leavers) for it to leave. So an answer that says
    /// 'nothing is there', and each list and statistic, is given after those clients have
    /// left that had closed before it was asked for.
    ///
    /// An asker that has hung up itself waits only for those that have come before it: so
    /// no two clients wait for each other.
    pub fn leavers(&self, asker: ConnectionId) -> Vec<(ConnectionId, Time)> {
        let mut leaving = self.leaving();
        let now = self.clock.now();
        let found = self.hangups.take();
        if !found.is_empty() {
            // `leave` frees the slot before it looks for the client in this list.
            self.with_lock(|state, _| {
                let found = found.into_iter().map(ConnectionId);
                let found = found.filter(|id| state.clients.contains_key(id));
                leaving.extend(found.map(|id| (id, now + LEAVES_WITHIN)));
            });
        }
        let end = if leaving.contains_key(&asker) {
            asker
        } else {
            NOBODY
        };
        let leavers = leaving.range(..end).map(|(id, until)| (*id, *until));
        leavers.filter(|(_, until)| *until > now).collect()
    }

    /// Waits until these clients have left, but not for those that take long: they may not
    /// read their replies, or have asked for much.
    pub fn await_leavers(&self, leavers: Vec<(ConnectionId, Time)>) {
        let mut leaving = self.leaving();
        for (id, until) in leavers {
            let time = until.since(self.clock.now());
            let is_there = |leaving: &mut BTreeMap<_, _>| leaving.contains_key(&id);
            let waited = self.left.wait_timeout_while(leaving, time, is_there);
            leaving = waited.expect("no thread panics").0;
        }
    }

    fn leaving(&self) -> MutexGuard<'_, BTreeMap<ConnectionId, Time>> {
        self.leaving.lock().expect("no thread panics")
    }

    /// The addresses that have most connections, up to five, and how many each has.
    pub fn addresses_with_most(&self) -> Vec<(String, usize)> {
        let clients: Vec<_> = self.with_lock(|state, _| state.clients.values().cloned().collect());
        let mut counts = BTreeMap::new();
        for client in clients {
            *counts.entry(client.stream.peer_network()).or_insert(0) += 1;
        }
        let mut counts: Vec<_> = counts.into_iter().collect();
        counts.sort_by_key(|(_, count)| Reverse(*count));
        counts.truncate(5);
        let name = |address: Option<IpAddr>| match address {
            Some(address) => address.to_string(),
            None => "Unix sockets".into(),
        };
        let named = counts.into_iter();
        named
            .map(|(address, count)| (name(address), count))
            .collect()
    }

    /// Ends the waiting of clients that have hung up.
    pub fn end_waits_of_hung_up(&self) {
        let mut closed = self.hangups_in_reserve.take().into_iter().map(ConnectionId);
        // One that watches very many tubes is in a queue of each.
        let mut slice = |state: &mut Guarded, _| {
            closed.by_ref().all(|id| {
                state.engine.half_close(id);
                state.engine.effects.steps < SLICE_STEPS
            })
        };
        while !self.with_lock_last(&mut slice) {}
    }

    /// Removes a connection, and makes its jobs ready again. While the server
    /// stops, they stay reserved: otherwise another client would be given a job
    /// that this one may still be working on. They are ready after a restart.
    pub fn disconnect(&self, id: ConnectionId) {
        let slice =
            |state: &mut Guarded, now| self.is_stopping() || state.engine.disconnect(id, now);
        // One time slice is enough for nearly every connection. One that has held
        // very many jobs lets others go first before each further slice.
        let mut is_over = self.with_lock(slice);
        while !is_over {
            self.await_disk_space();
            is_over = self.with_lock_last(slice);
        }
    }

    /// Frees the slot of a client that is disconnected and was sent all, right before its
    /// socket is closed: when the client sees that, it may connect again at once. Returns
    /// whether its worker, if it has one, is idle now; if not, that ends.
    pub fn leave(&self, client: &Client, has_worker: bool) -> bool {
        let is_idle = self.with_lock(|state, _| {
            state.clients.remove(&client.id);
            if let Some(address) = client.address {
                // A client is counted once, when it takes its slot, and leaves once.
                let count = state.addresses.get_mut(&address).expect("it is counted");
                *count -= 1;
                if *count == 0 {
                    state.addresses.remove(&address);
                }
            }
            let is_idle = has_worker && state.idle_workers < workers::IDLE;
            state.idle_workers += usize::from(is_idle);
            is_idle
        });
        if self.leaving().remove(&client.id).is_some() {
            self.left.notify_all();
        }
        is_idle
    }

    /// Whether the server is ending.
    pub fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Relaxed)
    }

    /// Blocks until all sockets of clients are closed, or for `timeout`. Returns
    /// whether they are. It polls, since this happens once in the server's life.
    pub fn await_all_closed(&self, timeout: Duration) -> bool {
        let until = self.clock.now() + timeout;
        loop {
            let (is_empty, is_over) =
                self.with_lock(|state, now| (state.clients.is_empty(), now >= until));
            if is_empty || is_over {
                return is_empty;
            }
            thread::park_timeout(Duration::from_millis(1));
        }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::{Config, Engine};
    use std::os::unix::net::UnixStream;

    fn shared() -> Shared {
        let clock = Clock::start();
        let engine = Engine::new(Config::new(100), clock.now());
        let limits = Limits {
            max_connections: 10,
            ..Limits::of_one_client(100)
        };
        Shared::new(engine, None, clock, limits).unwrap()
    }

    fn connect(shared: &Shared) -> (Arc<Client>, UnixStream) {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let client = shared.connect(Stream(ours.into()), None);
        (
            client.unwrap_or_else(|(_, reason)| panic!("{reason}")),
            theirs,
        )
    }

    fn leavers(shared: &Shared, asker: &Client) -> Vec<ConnectionId> {
        let leavers = shared.leavers(asker.id).into_iter();
        leavers.map(|(id, _)| id).collect()
    }

    #[test]
    fn an_asker_waits_for_clients_that_have_hung_up_and_are_still_there() {
        let shared = &shared();
        let [asker, first, second, stays] = [(); 4].map(|()| connect(shared));
        drop((first.1, second.1));
        assert_eq!(leavers(shared, &asker.0), [first.0.id, second.0.id]);
        shared.leave(&second.0, true);
        // Another asker has found it first, and this one waits, too.
        assert_eq!(leavers(shared, &stays.0), [first.0.id]);
        thread::scope(|threads| {
            let awaited = shared.leavers(asker.0.id);
            threads.spawn(|| shared.await_leavers(awaited));
            shared.leave(&first.0, true);
        });
        assert_eq!(leavers(shared, &asker.0), []);
    }

    #[test]
    fn clients_that_have_hung_up_do_not_wait_for_themselves_nor_for_each_other() {
        let shared = &shared();
        let [first, second, third] = [(); 3].map(|()| connect(shared));
        drop((first.1, second.1));
        assert_eq!(leavers(shared, &first.0), []);
        assert_eq!(leavers(shared, &second.0), [first.0.id]);
        assert_eq!(leavers(shared, &third.0), [first.0.id, second.0.id]);
    }

    /// It may not read its replies, or the disk may hang.
    #[test]
    fn nobody_waits_long_for_a_client_that_does_not_leave() {
        let shared = &shared();
        let [asker, leaver] = [(); 2].map(|()| connect(shared));
        drop(leaver.1);
        let leavers = shared.leavers(asker.0.id);
        assert!(!leavers.is_empty());
        shared.await_leavers(leavers);
        assert_eq!(shared.leavers(asker.0.id), []);
    }
}
