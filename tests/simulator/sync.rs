//! The primitives of the server and the binlog, for the scheduler in `threads`.

use crate::simulator::{threads, world};
use std::collections::VecDeque;
use std::ops::{Deref, DerefMut, Sub};
use std::sync::{LockResult, TryLockError, TryLockResult};
use std::time::Duration;

pub use crate::simulator::channel::{Receiver, Sender, unbounded};
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

    /// An error if somebody has it.
    pub fn try_lock(&self) -> TryLockResult<MutexGuard<'_, T>> {
        threads::pass();
        self.try_take().ok_or(TryLockError::WouldBlock)
    }

    pub fn into_inner(self) -> LockResult<T> {
        self.value.into_inner()
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

    /// Returns whether the time was over.
    #[track_caller]
    fn wait_until<'a, T>(
        &self,
        guard: MutexGuard<'a, T>,
        until: Option<u64>,
    ) -> (MutexGuard<'a, T>, bool) {
        let mutex = guard.mutex;
        let id = self.0.add();
        drop(guard);
        threads::wait(until);
        let is_over = self.0.forget(id);
        (mutex.take(), is_over)
    }

    /// The same, as long as the condition holds.
    #[track_caller]
    fn wait_until_while<'a, T>(
        &self,
        mut guard: MutexGuard<'a, T>,
        until: Option<u64>,
        mut condition: impl FnMut(&mut T) -> bool,
    ) -> (MutexGuard<'a, T>, bool) {
        while condition(&mut guard) {
            if until.is_some_and(|until| until <= threads::now()) {
                return (guard, true);
            }
            guard = self.wait_until(guard, until).0;
        }
        (guard, false)
    }

    #[track_caller]
    pub fn wait<'a, T>(&self, guard: MutexGuard<'a, T>) -> LockResult<MutexGuard<'a, T>> {
        Ok(self.wait_until(guard, None).0)
    }

    #[track_caller]
    pub fn wait_while<'a, T>(
        &self,
        guard: MutexGuard<'a, T>,
        condition: impl FnMut(&mut T) -> bool,
    ) -> LockResult<MutexGuard<'a, T>> {
        Ok(self.wait_until_while(guard, None, condition).0)
    }

    #[track_caller]
    pub fn wait_timeout<'a, T>(
        &self,
        guard: MutexGuard<'a, T>,
        time: Duration,
    ) -> LockResult<(MutexGuard<'a, T>, TimedOut)> {
        let (guard, is_over) = self.wait_until(guard, deadline(time));
        Ok((guard, TimedOut(is_over)))
    }

    #[track_caller]
    pub fn wait_timeout_while<'a, T>(
        &self,
        guard: MutexGuard<'a, T>,
        time: Duration,
        condition: impl FnMut(&mut T) -> bool,
    ) -> LockResult<(MutexGuard<'a, T>, TimedOut)> {
        let (guard, is_over) = self.wait_until_while(guard, deadline(time), condition);
        Ok((guard, TimedOut(is_over)))
    }
}

/// An atomic number of the standard library. Another thread may come in before each
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

/// Of the standard library; another thread may come in after each look.
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

    pub fn into_inner(self) -> Option<T> {
        self.0.into_inner()
    }
}

pub mod thread {
    use super::deadline;
    use crate::simulator::threads::{self, Id};
    use std::io;
    use std::sync::{Arc, Mutex};
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

    pub struct JoinHandle<T> {
        thread: Thread,
        value: Arc<Mutex<Option<T>>>,
    }

    impl<T> JoinHandle<T> {
        pub fn thread(&self) -> &Thread {
            &self.thread
        }

        #[track_caller]
        pub fn join(self) -> Result<T, ()> {
            threads::join(self.thread.0);
            Ok(self.value.lock().unwrap().take().expect("it is over"))
        }
    }

    #[derive(Default)]
    pub struct Builder(String);

    impl Builder {
        pub fn new() -> Builder {
            Builder::default()
        }

        pub fn name(self, name: String) -> Builder {
            Builder(name)
        }

        pub fn stack_size(self, _: usize) -> Builder {
            self
        }

        pub fn spawn<T: Send + 'static>(
            self,
            work: impl FnOnce() -> T + Send + 'static,
        ) -> io::Result<JoinHandle<T>> {
            let value = Arc::new(Mutex::new(None));
            let result = value.clone();
            let id = threads::spawn(&self.0, move || {
                let made = work();
                *result.lock().unwrap() = Some(made);
            });
            Ok(JoinHandle {
                thread: Thread(id),
                value,
            })
        }
    }

    pub fn spawn<T: Send + 'static>(
        name: &str,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> JoinHandle<T> {
        let builder = Builder(name.to_owned());
        builder.spawn(work).expect("there are threads enough")
    }
}
