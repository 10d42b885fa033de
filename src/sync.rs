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
    pub use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
    pub use std::sync::{Condvar, Mutex, MutexGuard, OnceLock};
    pub use std::thread;
    pub use std::time::{Instant, SystemTime};
}
#[cfg(not(simulated))]
pub use real::*;
