//! The locks, channels, threads and times that the server and the binlog use:
//! here those of the standard library and of `crossbeam-channel`.
//! `tests/concurrency` builds the same files with others, which try every order
//! in which threads may run, and let time pass only when the test says so;
//! `tests/simulator` builds them with its own threads and its own time.

pub use crate::sys::AtomicU64;
pub use crossbeam_channel::{Receiver, Sender, bounded};
pub use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
pub use std::sync::{Condvar, Mutex, MutexGuard, OnceLock};
pub use std::thread;
pub use std::time::{Instant, SystemTime};
