//! The locks, channels, threads, times and random numbers that the server and the binlog
//! use: those of the standard library and of `crossbeam-channel`. With `cfg(simulated)`,
//! which only `tests/simulator` sets, they are those of the simulator: its threads
//! run in any order, in its own time.

#[cfg(simulated)]
pub use crate::simulator::sync::*;

#[cfg(not(simulated))]
mod real {
    pub use crate::sys::{AtomicU64, random, time_since_boot};
    pub use crossbeam_channel::{Receiver, Sender, unbounded};
    use std::io;
    pub use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
    pub use std::sync::{Condvar, Mutex, MutexGuard, OnceLock};
    pub use std::thread;
    pub use std::time::{Instant, SystemTime};

    /// The size of a thread's stack, in bytes. Only the pages that are touched cost memory,
    /// but all of them count as address space. No thread touches half of it, not even in a
    /// build for tests, and none recurses over what it works on.
    const STACK: usize = 128 << 10;

    /// Starts a thread with this name.
    ///
    /// # Errors
    ///
    /// If the system has no thread left.
    pub fn spawn(
        name: &str,
        work: impl FnOnce() + Send + 'static,
    ) -> io::Result<thread::JoinHandle<()>> {
        let thread = thread::Builder::new().name(name.into());
        thread.stack_size(STACK).spawn(work)
    }
}
#[cfg(not(simulated))]
pub use real::*;
