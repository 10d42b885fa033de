//! The primitives of the server and the binlog, under shuttle.
//!
//! Time passes for those who wait for a time: each such wait either ends when
//! its time is over, whatever comes meanwhile, or not before it is told to. That
//! is chosen each time, so that both somebody who comes too late and somebody
//! who is never told are found.

pub use crate::channel::{Receiver, Sender, bounded};
use shuttle::rand::{Rng, thread_rng};
pub use shuttle::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::ops::{Deref, DerefMut, Sub};
use std::sync::LockResult;
use std::time::Duration;
pub use std::time::SystemTime;

/// In nanoseconds.
static NOW: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);

/// When another machine took the lock; 0: none has.
static TAKEN_AT: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);

/// How long a machine has to be silent before another one can take the lock.
const SILENCE: Duration = Duration::from_secs(10);

shuttle::thread_local! {
    /// When this thread read the clock of shared storage, if it has done nothing
    /// that takes long since then: no look, and nothing with a socket.
    static READ_AT: std::cell::Cell<Option<u64>> = std::cell::Cell::new(None);
}

/// The clock of shared storage.
pub fn storage_clock() -> Duration {
    let now = NOW.fetch_add(1, Ordering::SeqCst);
    READ_AT.with(|at| at.set(Some(now)));
    thread::yield_now();
    Duration::from_nanos(now)
}

/// The server stands still for so long that another machine takes the lock; or
/// no other machine has it.
pub fn let_another_take_the_lock(takes: bool) {
    let silence = match takes {
        true => SILENCE.as_nanos() as u64,
        false => 0,
    };
    let now = NOW.fetch_add(silence, Ordering::SeqCst) + silence;
    TAKEN_AT.store(if takes { now } else { 0 }, Ordering::SeqCst);
}

/// Whether another machine has the lock.
pub fn is_taken() -> bool {
    TAKEN_AT.load(Ordering::SeqCst) > 0
}

/// Notes that this thread does something that may take long.
pub fn take_long() {
    READ_AT.with(|at| at.set(None));
}

/// Panics if the server sends this although it could know that it may not: it has
/// read the clock since another machine has the lock, or it has not read it.
pub fn must_be_told(bytes: &[u8]) {
    let read_at = READ_AT.with(|at| at.take());
    let taken_at = TAKEN_AT.load(Ordering::SeqCst);
    if taken_at > 0 && bytes != b"INTERNAL_ERROR\r\n" {
        let told = String::from_utf8_lossy(bytes);
        let was_ours = read_at.is_some_and(|at| at < taken_at);
        assert!(was_ours, "it tells {told} without the lock");
    }
}

/// Longer times, such as those that jobs have to run, do not pass.
const LONG: Duration = Duration::from_secs(1000);

/// Whether short times pass always.
static SURELY: std::sync::atomic::AtomicBool = std::sync::atomic::AtomicBool::new(false);

/// Whether no time passes.
static NEVER: std::sync::atomic::AtomicBool = std::sync::atomic::AtomicBool::new(false);

/// For what happens without a wait for a time: from now on none passes.
pub fn let_time_stand_still(still: bool) {
    NEVER.store(still, Ordering::SeqCst);
}

/// For what is promised to happen in time: from now on short times always pass.
pub fn let_time_pass(surely: bool) {
    SURELY.store(surely, Ordering::SeqCst);
}

/// Whether this wait ends when its time is over, or else never by itself.
pub fn passes(time: Duration) -> bool {
    let may_pass = time < LONG && !NEVER.load(Ordering::SeqCst);
    may_pass && (SURELY.load(Ordering::SeqCst) || thread_rng().gen_bool(0.5))
}

fn pass(time: Duration) {
    let nanos = u64::try_from(time.as_nanos()).expect("it is short");
    NOW.fetch_add(nanos, Ordering::SeqCst);
    thread::yield_now();
}

/// A moment.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Instant(u64);

impl Instant {
    pub fn now() -> Instant {
        Instant(NOW.fetch_add(1, Ordering::SeqCst))
    }

    pub fn elapsed(&self) -> Duration {
        Instant::now() - *self
    }

    pub fn checked_add(self, time: Duration) -> Option<Instant> {
        let nanos = u64::try_from(time.as_nanos()).ok()?;
        self.0.checked_add(nanos).map(Instant)
    }
}

impl Sub for Instant {
    type Output = Duration;

    fn sub(self, earlier: Instant) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

/// Shuttle's, whose guards tell whose they are: then a wait can end when its
/// time is over.
#[derive(Default)]
pub struct Mutex<T>(shuttle::sync::Mutex<T>);

pub struct MutexGuard<'a, T> {
    guard: shuttle::sync::MutexGuard<'a, T>,
    mutex: &'a Mutex<T>,
}

impl<T> Mutex<T> {
    pub fn new(value: T) -> Mutex<T> {
        Mutex(shuttle::sync::Mutex::new(value))
    }

    pub fn lock(&self) -> LockResult<MutexGuard<'_, T>> {
        Ok(self.take())
    }

    fn take(&self) -> MutexGuard<'_, T> {
        let guard = self.0.lock().expect("no thread panics");
        MutexGuard { guard, mutex: self }
    }

    /// An error if somebody has it.
    pub fn try_lock(&self) -> Result<MutexGuard<'_, T>, ()> {
        let guard = self.0.try_lock().map_err(|_| ())?;
        Ok(MutexGuard { guard, mutex: self })
    }

    pub fn into_inner(self) -> LockResult<T> {
        self.0.into_inner()
    }
}

impl<T> Deref for MutexGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.guard
    }
}

impl<T> DerefMut for MutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.guard
    }
}

/// Whether the time was over.
pub struct TimedOut(bool);

impl TimedOut {
    pub fn timed_out(&self) -> bool {
        self.0
    }
}

#[derive(Default)]
pub struct Condvar(shuttle::sync::Condvar);

impl Condvar {
    pub fn new() -> Condvar {
        Condvar::default()
    }

    pub fn notify_all(&self) {
        self.0.notify_all();
    }

    pub fn notify_one(&self) {
        self.0.notify_one();
    }

    pub fn wait<'a, T>(&self, guard: MutexGuard<'a, T>) -> LockResult<MutexGuard<'a, T>> {
        Ok(self.await_word(guard))
    }

    fn await_word<'a, T>(&self, waiting: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
        let MutexGuard { guard, mutex } = waiting;
        let guard = self.0.wait(guard).expect("no thread panics");
        MutexGuard { guard, mutex }
    }

    pub fn wait_while<'a, T>(
        &self,
        mut guard: MutexGuard<'a, T>,
        mut condition: impl FnMut(&mut T) -> bool,
    ) -> LockResult<MutexGuard<'a, T>> {
        while condition(&mut guard) {
            guard = self.await_word(guard);
        }
        Ok(guard)
    }

    pub fn wait_timeout<'a, T>(
        &self,
        guard: MutexGuard<'a, T>,
        time: Duration,
    ) -> LockResult<(MutexGuard<'a, T>, TimedOut)> {
        if passes(time) {
            let mutex = guard.mutex;
            drop(guard);
            pass(time);
            return Ok((mutex.take(), TimedOut(true)));
        }
        Ok((self.await_word(guard), TimedOut(false)))
    }

    pub fn wait_timeout_while<'a, T>(
        &self,
        mut guard: MutexGuard<'a, T>,
        time: Duration,
        mut condition: impl FnMut(&mut T) -> bool,
    ) -> LockResult<(MutexGuard<'a, T>, TimedOut)> {
        let passes = passes(time);
        while condition(&mut guard) {
            if passes {
                let mutex = guard.mutex;
                drop(guard);
                pass(time);
                guard = mutex.take();
                let is_over = condition(&mut guard);
                return Ok((guard, TimedOut(is_over)));
            }
            guard = self.await_word(guard);
        }
        Ok((guard, TimedOut(false)))
    }
}

/// Of the standard library; another thread may come in behind each look.
pub struct OnceLock<T>(std::sync::OnceLock<T>);

impl<T> OnceLock<T> {
    pub fn new() -> OnceLock<T> {
        OnceLock(std::sync::OnceLock::new())
    }

    pub fn get(&self) -> Option<&T> {
        let found = self.0.get();
        thread::yield_now();
        found
    }

    pub fn set(&self, value: T) -> Result<(), T> {
        self.0.set(value)
    }

    pub fn get_or_init(&self, make: impl FnOnce() -> T) -> &T {
        let found = self.0.get_or_init(make);
        thread::yield_now();
        found
    }

    pub fn into_inner(self) -> Option<T> {
        self.0.into_inner()
    }
}

pub mod thread {
    pub use shuttle::thread::{Builder, Thread, current, park, spawn, yield_now};

    use std::time::Duration;

    pub fn park_timeout(time: Duration) {
        match super::passes(time) {
            true => super::pass(time),
            false => park(),
        }
    }
}
