//! Clients that have hung up and are still there, and how long others wait for them to leave.
//!
//! Usually it takes some microseconds until the worker of such a client has read the end of
//! the stream, and the client has left the engine. Meanwhile its jobs are reserved, and it is
//! in lists and statistics. So an answer that says 'nothing is there', and each list and
//! statistic, is given after those clients have left that had closed before it was asked for.
//!
//! But **nobody waits for a worker that waits for its own client**: to take more replies, or,
//! when the client has left the engine, to receive the last of them. And nobody waits longer
//! than [`LEAVES_WITHIN`] for one that has asked for much, or whose disk is slow.

use crate::engine::{ConnectionId, Time};
use crate::sync::{Condvar, Mutex, MutexGuard};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// How long others wait for a client after it was found to have hung up for the first time.
/// Where all processors are busy, its worker may wait for one for some milliseconds.
pub const LEAVES_WITHIN: Duration = Duration::from_millis(10);

/// See above.
#[derive(Default)]
pub struct Leaving {
    clients: Mutex<Leavers>,
    /// Wakes those that wait.
    changed: Condvar,
}

#[derive(Default)]
pub struct Leavers {
    /// All of them, in the order in which they came, until their slots are free.
    pub all: BTreeSet<ConnectionId>,
    /// Until when others wait for some of them: one that reads nothing may stay for long, and
    /// costs those that ask nothing.
    pub awaited: BTreeMap<ConnectionId, Time>,
}

impl Leavers {
    /// The slot of this client is free.
    pub fn remove(&mut self, id: ConnectionId) {
        self.all.remove(&id);
        self.awaited.remove(&id);
    }
}

impl Leaving {
    pub fn lock(&self) -> MutexGuard<'_, Leavers> {
        self.clients.lock().expect("no thread panics")
    }

    /// From now on nobody waits for this client, if its worker waits for it. This is asked
    /// under the lock: if the client has closed meanwhile, and another thread has found that,
    /// others go on waiting for it.
    pub fn let_go_if(&self, id: ConnectionId, delays_its_worker: impl FnOnce() -> bool) {
        let mut leavers = self.lock();
        if leavers.awaited.contains_key(&id) && delays_its_worker() {
            leavers.awaited.remove(&id);
            self.changed.notify_all();
        }
    }

    /// Waits for a client, at most for this time.
    pub fn wait(&self, id: ConnectionId, time: Duration) {
        let is_awaited = |leavers: &mut Leavers| leavers.awaited.contains_key(&id);
        let waited = self
            .changed
            .wait_timeout_while(self.lock(), time, is_awaited);
        drop(waited.expect("no thread panics"));
    }
}
