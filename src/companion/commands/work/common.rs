//! What the slots of a run share.

use super::tie::Guard;
use crate::command::{Number, Opt, TUBES, options};
use crate::failure::Failure;
use crate::server::address::Address;
use crate::text::output::complain;
use beanpole::protocol::{Seconds, TubeName};
use std::ffi::OsString;
use std::num::NonZeroU64;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

options! {
    tubes: Vec<TubeName> = TUBES,
    jobs: Number<1, 1000> =
        Opt::value("j", "jobs", "N", "run N at the same time (default: 1)") => Number(1),
    tries: Option<NonZeroU64> =
        Opt::value("", "tries", "N",
            "bury a job when it has been tried so often (default: never)"),
    backoff: Seconds =
        Opt::value("", "backoff", "TIME",
            "the delay after the first failure, then doubling (default: 1)") => Seconds(1),
    backoff_max: Seconds =
        Opt::value("", "backoff-max", "TIME", "the longest delay (default: 3600)")
        => Seconds(3600),
    grace: Seconds =
        Opt::value("", "grace", "TIME",
            "from SIGTERM to SIGKILL for a command (default: 10)") => Seconds(10),
    again: Seconds =
        Opt::value("", "again", "TIME", "the delay after exit status 75 (default: 60)")
        => Seconds(60),
    timeout: Option<Seconds> =
        Opt::value("", "timeout", "TIME",
            "end a command that runs longer; it has failed (default: never)"),
    count: Option<NonZeroU64> = Opt::value("n", "count", "N", "stop after N jobs"),
    all: bool = Opt::flag("", "all", "stop when no job is ready"),
    verbose: bool = Opt::flag("v", "verbose", "say what happens to each job"),
}

/// The settings of all slots, and the state that they and the main thread
/// share.
pub struct Common {
    pub options: Options,
    /// The servers; the first one that serves is used.
    pub addresses: Vec<Address>,
    pub tubes: Vec<TubeName>,
    pub program: OsString,
    pub arguments: Vec<OsString>,
    /// How long the server may be silent before we give up.
    pub patience: Duration,
    pub guard: Guard,
    /// A thread that has locked this waits for nothing else.
    pub state: Mutex<State>,
}

/// The state of the run.
#[derive(Default)]
pub struct State {
    /// How urgently to stop: 0 not at all, 1 after the jobs under way, 2 at
    /// once.
    pub stop: u8,
    /// How many jobs have been begun.
    pub begun: u64,
    /// Whether a command has failed.
    pub failed: bool,
    /// How many slots have not ended.
    pub running: usize,
    /// How many jobs run here while no connection holds them.
    pub adrift: usize,
    /// Since when there is trouble, and what was said of it last.
    pub lost: Option<(Instant, String)>,
    /// Why the first slot that failed could not go on.
    pub broken: Option<Failure>,
}

/// While this value exists, a job is adrift.
pub struct Adrift<'a>(&'a Common);

impl Drop for Adrift<'_> {
    fn drop(&mut self) {
        self.0.state().adrift -= 1;
    }
}

impl Common {
    pub fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn stops(&self) -> bool {
        self.state().stop > 0
    }

    pub fn stops_at_once(&self) -> bool {
        self.state().stop > 1
    }

    /// Whether to stop trying to settle a job with the server. `is_over` tells
    /// whether the job's time to run is over.
    pub fn gives_up(&self, is_over: bool) -> bool {
        self.stops_at_once() || self.stops() && is_over
    }

    /// Says why something is tried again, unless another slot has said so.
    pub fn lost(&self, reason: &str) {
        let mut state = self.state();
        match &mut state.lost {
            Some((_, said)) if said == reason || !self.options.verbose => return,
            Some((_, said)) => *said = reason.into(),
            None => state.lost = Some((Instant::now(), reason.into())),
        }
        complain!("{reason}; trying again");
    }

    /// Says that the server can be reached again, and after how long.
    pub fn found(&self, address: &Address) {
        if let Some((since, _)) = self.state().lost.take() {
            let seconds = since.elapsed().as_secs();
            complain!("connected to {address} again after {seconds} s");
        }
    }

    /// Notes that a job is adrift.
    pub fn adrift(&self) -> Adrift<'_> {
        self.state().adrift += 1;
        Adrift(self)
    }

    /// Notes that a slot cannot go on. The others finish their present jobs.
    pub fn breaks(&self, failure: Failure) {
        let mut state = self.state();
        state.stop = state.stop.max(1);
        state.broken.get_or_insert(failure);
    }

    /// Asks for permission to begin a job, and counts it as begun.
    pub fn may_begin(&self) -> bool {
        let mut state = self.state();
        let may =
            state.stop == 0 && (self.options.count).is_none_or(|count| state.begun < count.get());
        state.begun += u64::from(may);
        may
    }

    /// Gives the permission back, because the job was lost before its command
    /// began.
    pub fn return_permission(&self) {
        self.state().begun -= 1;
    }
}
