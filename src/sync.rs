//! Where the server and the binlog get from what threads share and wait with:
//! here, from the standard library and from `crossbeam-channel`.
//! `tests/concurrency` builds the same files with others, which try each order
//! in which threads may run, and in which time passes when they say so.

pub use crate::sys::AtomicU64;
pub use crossbeam_channel::{Receiver, Sender, bounded};
pub use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
pub use std::sync::{Condvar, Mutex, MutexGuard, OnceLock};
pub use std::thread;
pub use std::time::Instant;
