//! The lock that everything goes through, and who gets it first.
//!
//! A mutex of the standard library lets a thread that runs take it again and
//! again while others sleep on it. Then whoever brings one command would stand
//! behind everybody who brings hundreds. So there are two ways in: who brings
//! much sees whether anybody else waits, and lets those go first.

use crate::sync::{AtomicUsize, Mutex, MutexGuard, Ordering, thread};

/// How often who brings much makes way before it takes the lock all the same.
const GIVES_WAY: usize = 64;

/// A mutex for many threads that need it for moments and some that need it for
/// long.
pub struct FairMutex<T> {
    inner: Mutex<T>,
    /// How many threads sleep until they get it, of those that bring little.
    waiting: AtomicUsize,
}

impl<T> FairMutex<T> {
    /// A lock that guards this value.
    pub fn new(value: T) -> FairMutex<T> {
        FairMutex {
            inner: Mutex::new(value),
            waiting: AtomicUsize::new(0),
        }
    }

    /// Locks it for a moment.
    pub fn lock(&self) -> MutexGuard<'_, T> {
        if let Ok(guard) = self.inner.try_lock() {
            return guard;
        }
        self.waiting.fetch_add(1, Ordering::Relaxed);
        let guard = self.inner.lock().expect("no thread panics");
        self.waiting.fetch_sub(1, Ordering::Relaxed);
        guard
    }

    /// Locks it for longer, behind those who wait. Whoever has it should let go
    /// when somebody [waits](Self::is_awaited).
    pub fn lock_last(&self) -> MutexGuard<'_, T> {
        for _ in 0..GIVES_WAY {
            if !self.is_awaited() {
                break;
            }
            thread::yield_now();
        }
        self.inner.lock().expect("no thread panics")
    }

    /// Whether somebody who brings little sleeps until it is free.
    pub fn is_awaited(&self) -> bool {
        self.waiting.load(Ordering::Relaxed) > 0
    }
}
