//! The primitives of the server and the binlog, for the scheduler in `threads`.

use crate::simulator::{threads, world};
use std::collections::VecDeque;
use std::io;
use std::ops::{Add, Deref, DerefMut, Sub};
use std::sync::{Arc, LockResult, TryLockError, TryLockResult};
use std::time::Duration;

pub use crate::simulator::world::time_since_boot;
pub use std::sync::atomic::Ordering;

/// A moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Instant(u64);

impl Instant {
    pub fn now() -> Instant {
        Instant(threads::tick())
    }

    pub fn elapsed(&self) -> Duration {
        Instant::now() - *self
    }

    pub fn checked_add(self, time: Duration) -> Option<Instant> {
        let nanos = u64::try_from(time.as_nanos()).ok()?;
        self.0.checked_add(nanos).map(Instant)
    }
}

impl Add<Duration> for Instant {
    type Output = Instant;

    fn add(self, time: Duration) -> Instant {
        self.checked_add(time).expect("it is not that far away")
    }
}

impl Sub for Instant {
    type Output = Duration;

    fn sub(self, earlier: Instant) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

/// What the clock on the wall shows.
pub struct SystemTime;

impl SystemTime {
    pub fn now() -> std::time::SystemTime {
        std::time::UNIX_EPOCH + Duration::from_nanos(crate::simulator::world::wall_clock())
    }
}

pub fn random() -> u64 {
    threads::below(1 << 32)
}

fn deadline(time: Duration) -> Option<u64> {
    let nanos = u64::try_from(time.as_nanos()).ok()?;
    threads::now().checked_add(nanos)
}

#[derive(Default)]
pub struct Mutex<T> {
    value: std::sync::Mutex<T>,
    waiting: Waiting,
}

#[derive(Default)]
struct Waiting(std::sync::Mutex<VecDeque<threads::Id>>);

impl Waiting {
    fn add(&self) -> threads::Id {
        let id = threads::current().expect("threads wait");
        self.0.lock().unwrap().push_back(id);
        id
    }

    fn wake_one(&self) {
        let mut waiting = self.0.lock().unwrap();
        if !waiting.is_empty() {
            let which = threads::below(waiting.len() as u64) as usize;
            threads::wake(waiting.remove(which).expect("it is there"));
        }
    }

    fn wake_all(&self) {
        let waiting = std::mem::take(&mut *self.0.lock().unwrap());
        waiting.into_iter().for_each(threads::wake);
    }

    /// Returns whether it was still there.
    fn forget(&self, id: threads::Id) -> bool {
        let mut waiting = self.0.lock().unwrap();
        let before = waiting.len();
        waiting.retain(|one| *one != id);
        waiting.len() < before
    }
}

pub struct MutexGuard<'a, T> {
    value: Option<std::sync::MutexGuard<'a, T>>,
    mutex: &'a Mutex<T>,
}

impl<T> Mutex<T> {
    pub fn new(value: T) -> Mutex<T> {
        Mutex {
            value: std::sync::Mutex::new(value),
            waiting: Waiting::default(),
        }
    }

    #[track_caller]
    pub fn lock(&self) -> LockResult<MutexGuard<'_, T>> {
        world::locks();
        threads::pass();
        Ok(self.take())
    }

    #[track_caller]
    fn take(&self) -> MutexGuard<'_, T> {
        loop {
            if let Some(guard) = self.try_take() {
                return guard;
            }
            self.waiting.add();
            threads::wait(None);
        }
    }

    fn try_take(&self) -> Option<MutexGuard<'_, T>> {
        Some(MutexGuard {
            value: Some(self.value.try_lock().ok()?),
            mutex: self,
        })
    }

    /// Its value while no thread runs: then nobody has it.
    pub fn at_rest(&self) -> MutexGuard<'_, T> {
        self.try_take().expect("no thread runs")
    }

    /// An error if somebody has it.
    pub fn try_lock(&self) -> TryLockResult<MutexGuard<'_, T>> {
        threads::pass();
        self.try_take().ok_or(TryLockError::WouldBlock)
    }
}

impl<T> Deref for MutexGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.value.as_ref().expect("it is held")
    }
}

impl<T> DerefMut for MutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        self.value.as_mut().expect("it is held")
    }
}

impl<T> Drop for MutexGuard<'_, T> {
    fn drop(&mut self) {
        self.value = None;
        self.mutex.waiting.wake_one();
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
pub struct Condvar(Waiting);

impl Condvar {
    pub fn new() -> Condvar {
        Condvar::default()
    }

    pub fn notify_all(&self) {
        threads::pass();
        self.0.wake_all();
    }

    pub fn notify_one(&self) {
        threads::pass();
        self.0.wake_one();
    }

    #[track_caller]
    pub fn wait<'a, T>(&self, guard: MutexGuard<'a, T>) -> LockResult<MutexGuard<'a, T>> {
        let waited = self.wait_timeout(guard, Duration::MAX);
        Ok(waited.expect("no thread panics").0)
    }

    #[track_caller]
    pub fn wait_while<'a, T>(
        &self,
        guard: MutexGuard<'a, T>,
        condition: impl FnMut(&mut T) -> bool,
    ) -> LockResult<MutexGuard<'a, T>> {
        let waited = self.wait_timeout_while(guard, Duration::MAX, condition);
        Ok(waited.expect("no thread panics").0)
    }

    #[track_caller]
    pub fn wait_timeout<'a, T>(&self, guard: MutexGuard<'a, T>, time: Duration) -> Waited<'a, T> {
        let mutex = guard.mutex;
        let id = self.0.add();
        drop(guard);
        threads::wait(deadline(time));
        let is_over = self.0.forget(id);
        Ok((mutex.take(), TimedOut(is_over)))
    }

    #[track_caller]
    pub fn wait_timeout_while<'a, T>(
        &self,
        mut guard: MutexGuard<'a, T>,
        time: Duration,
        mut condition: impl FnMut(&mut T) -> bool,
    ) -> Waited<'a, T> {
        let until = deadline(time);
        while condition(&mut guard) {
            let left = until.map(|until| until.saturating_sub(threads::now()));
            if left == Some(0) {
                return Ok((guard, TimedOut(true)));
            }
            let left = left.map_or(Duration::MAX, Duration::from_nanos);
            guard = self.wait_timeout(guard, left)?.0;
        }
        Ok((guard, TimedOut(false)))
    }
}

/// What a thread has after it has waited.
type Waited<'a, T> = LockResult<(MutexGuard<'a, T>, TimedOut)>;

/// An atomic number of the standard library. Another thread may run before each
/// access.
#[derive(Default)]
pub struct Atomic<T>(T);

impl<T> Deref for Atomic<T> {
    type Target = T;

    fn deref(&self) -> &T {
        threads::pass();
        &self.0
    }
}

macro_rules! atomic {
    ($name:ident, $number:ty) => {
        pub type $name = Atomic<std::sync::atomic::$name>;

        impl $name {
            pub const fn new(value: $number) -> $name {
                Atomic(std::sync::atomic::$name::new(value))
            }
        }
    };
}

atomic!(AtomicBool, bool);
atomic!(AtomicU64, u64);
atomic!(AtomicUsize, usize);

/// That of the standard library; another thread may run after each access.
pub struct OnceLock<T>(std::sync::OnceLock<T>);

impl<T> OnceLock<T> {
    pub fn new() -> OnceLock<T> {
        OnceLock(std::sync::OnceLock::new())
    }

    pub fn get(&self) -> Option<&T> {
        let found = self.0.get();
        world::looks();
        threads::pass();
        found
    }

    pub fn set(&self, value: T) -> Result<(), T> {
        self.0.set(value)
    }

    pub fn get_or_init(&self, make: impl FnOnce() -> T) -> &T {
        threads::pass();
        self.0.get_or_init(make)
    }
}

pub mod thread {
    use super::deadline;
    use crate::simulator::threads::{self, Id};
    use std::time::Duration;

    pub use crate::simulator::threads::yield_now;

    #[derive(Clone, Debug)]
    pub struct Thread(Id);

    impl Thread {
        pub fn unpark(&self) {
            threads::pass();
            threads::unpark(self.0);
        }
    }

    pub fn current() -> Thread {
        Thread(threads::current().expect("a thread asks"))
    }

    #[track_caller]
    pub fn park() {
        threads::park(None);
    }

    #[track_caller]
    pub fn park_timeout(time: Duration) {
        threads::park(deadline(time));
    }

    /// No thread returns anything.
    pub struct JoinHandle(Thread);

    impl JoinHandle {
        pub fn thread(&self) -> &Thread {
            &self.0
        }

        #[track_caller]
        pub fn join(self) -> Result<(), ()> {
            threads::join(self.0.0);
            Ok(())
        }
    }

    pub fn spawn(name: &str, work: impl FnOnce() + Send + 'static) -> JoinHandle {
        JoinHandle(Thread(threads::spawn(name, work)))
    }
}

/// As in `crate::sync`: this never fails.
pub fn spawn(name: &str, work: impl FnOnce() + Send + 'static) -> io::Result<thread::JoinHandle> {
    Ok(thread::spawn(name, work))
}

/// A channel, as `crossbeam_channel` has it: each message goes to one receiver.
pub fn unbounded<T>() -> (Sender<T>, Receiver<T>) {
    let channel = Arc::new((Mutex::new((VecDeque::new(), true)), Condvar::new()));
    (Sender(channel.clone()), Receiver(channel))
}

/// What is on its way, and whether more may come.
type Channel<T> = (Mutex<(VecDeque<T>, bool)>, Condvar);

pub struct Sender<T>(Arc<Channel<T>>);

#[derive(Clone)]
pub struct Receiver<T>(Arc<Channel<T>>);

impl<T> Sender<T> {
    pub fn send(&self, value: T) -> Result<(), ()> {
        let (state, changed) = &*self.0;
        state.lock().expect("no thread panics").0.push_back(value);
        changed.notify_one();
        Ok(())
    }
}

impl<T> Drop for Sender<T> {
    fn drop(&mut self) {
        let (state, changed) = &*self.0;
        state.lock().expect("no thread panics").1 = false;
        changed.notify_all();
    }
}

impl<T> Receiver<T> {
    /// An error if nothing more comes.
    pub fn recv(&self) -> Result<T, ()> {
        let (state, changed) = &*self.0;
        let state = state.lock().expect("no thread panics");
        let is_silent = |(sent, is_open): &mut (VecDeque<T>, bool)| sent.is_empty() && *is_open;
        let state = changed.wait_while(state, is_silent);
        state.expect("no thread panics").0.pop_front().ok_or(())
    }
}
