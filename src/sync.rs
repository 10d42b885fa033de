//! Where the server's own primitives (its lock, permits, a client's slot) get
//! theirs from: here, from the standard library. `tests/concurrency` builds the
//! same files with others, which try each order in which threads may run.

pub use std::sync::atomic::{AtomicUsize, Ordering};
pub use std::sync::{Condvar, Mutex, MutexGuard};
pub use std::thread;
