//! The locks, channels, threads and times that the server and the binlog use:
//! here those of the standard library and of `crossbeam-channel`.
//! `tests/simulator` builds the same files with its own threads, which run in
//! any order, and its own time.

pub use crate::sys::AtomicU64;
pub use crossbeam_channel::{Receiver, Sender, bounded};
pub use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
pub use std::sync::{Condvar, Mutex, MutexGuard, OnceLock};
pub use std::thread;
pub use std::time::{Instant, SystemTime};
