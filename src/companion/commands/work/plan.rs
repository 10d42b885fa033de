//! What the slots of a run have in common.

use super::tie::Guard;
use crate::failure::Failure;
use crate::server::address::Address;
use beanpole::protocol::TubeName;
use std::ffi::OsString;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering};
use std::time::Duration;

/// What all slots do.
pub struct Plan {
    pub address: Address,
    pub tubes: Vec<TubeName>,
    pub program: OsString,
    pub arguments: Vec<OsString>,
    pub tries: Option<u64>,
    pub backoff: u64,
    pub backoff_max: u64,
    /// The delay of a job whose command asks for another time, in seconds.
    pub again: u64,
    /// How long a command may run.
    pub timeout: Option<Duration>,
    pub grace: Duration,
    /// Stop when no job is ready.
    pub until_empty: bool,
    pub verbose: bool,
    /// How long the server may be silent.
    pub patience: Duration,
}

/// What slots and the main thread tell each other.
pub struct Common {
    pub guard: Guard,
    pub stop: AtomicU8,
    /// Jobs that may still be begun.
    pub tickets: AtomicUsize,
    /// Whether a command has failed.
    pub failed: AtomicBool,
    /// Slots that have not ended.
    pub running: AtomicUsize,
    /// Jobs that run here and that no connection holds at the moment.
    pub adrift: AtomicUsize,
    /// Why a slot could not go on.
    pub broken: Mutex<Option<Failure>>,
}

/// As long as this exists, a job is adrift.
pub struct Adrift<'a>(&'a AtomicUsize);

impl Drop for Adrift<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

/// How urgently to stop: 0 not at all, 1 after the jobs under way, 2 at once.
pub const FINISH: u8 = 1;
pub const AT_ONCE: u8 = 2;

impl Common {
    pub fn stops(&self) -> bool {
        self.stop.load(Ordering::SeqCst) >= FINISH
    }

    pub fn stops_at_once(&self) -> bool {
        self.stop.load(Ordering::SeqCst) >= AT_ONCE
    }

    /// Whether to give up telling the server what became of a job, whose time
    /// to run is over or not.
    pub fn gives_up(&self, is_over: bool) -> bool {
        self.stops_at_once() || self.stops() && is_over
    }

    /// Takes note that a job is adrift.
    pub fn adrift(&self) -> Adrift<'_> {
        self.adrift.fetch_add(1, Ordering::SeqCst);
        Adrift(&self.adrift)
    }

    /// Whether one is.
    pub fn is_any_adrift(&self) -> bool {
        self.adrift.load(Ordering::SeqCst) > 0
    }

    /// A slot cannot go on: the others finish what they are at.
    pub fn breaks(&self, failure: Failure) {
        self.stop.fetch_max(FINISH, Ordering::SeqCst);
        if let Ok(mut broken) = self.broken.lock() {
            broken.get_or_insert(failure);
        }
    }

    /// Asks for permission to begin a job.
    pub fn take_ticket(&self) -> bool {
        let take = |left: usize| left.checked_sub(1);
        self.tickets
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, take)
            .is_ok()
    }

    /// Gives it back: the job was none.
    pub fn return_ticket(&self) {
        self.tickets.fetch_add(1, Ordering::SeqCst);
    }
}
