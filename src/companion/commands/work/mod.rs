//! `work`: makes a worker of a command.
//!
//! Each of the `-j` slots is a thread with its own connection. It reserves a
//! job, runs the command with the job's body as standard input, and touches the
//! job meanwhile. At the end it deletes, releases or buries the job. Another
//! thread waits for signals.
//!
//! Two modules make this dependable: [`held`] knows when a job is ours, and
//! [`process`] ends a command with everything that it started.
//!
//! What it leaves out: no job is certain to run exactly once. If we are cut off
//! after a command has done its work, the server does not hear of it, and the
//! job runs again. This is in the nature of the protocol.

mod held;
mod process;
mod slot;

use crate::command::{Invocation, Number, Run, tubes_or_default};
use crate::failure::{Failure, Outcome, Status};
use crate::server::address::Address;
use crate::signals::{Caller, Calls, SIGCHLD, SIGHUP, SIGINT, SIGTERM, heeded};
use crate::text::output::complain;
use crate::values::parse;
use beanpole::protocol::{Seconds, TubeName};
use clap::{Args, ValueHint};
use slot::Slot;
use std::ffi::OsString;
use std::num::NonZeroU64;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::Builder;
use std::time::{Duration, Instant};

#[derive(Args)]
#[command(override_usage = "beanpole work [OPTIONS] -- COMMAND [ARGUMENT…]")]
pub struct Work {
    /// a tube; may be repeated (default: default)
    #[arg(short, long = "tube", value_name = "TUBE", value_parser = parse::<TubeName>)]
    tubes: Vec<TubeName>,
    /// run N at the same time (default: 1)
    #[arg(short, long, value_name = "N", default_value = "1", hide_default_value = true, value_parser = parse::<Number<1, 1000>>)]
    jobs: Number<1, 1000>,
    /// bury a job when it has been tried so often (default: never)
    #[arg(long, value_name = "N", value_parser = parse::<NonZeroU64>)]
    tries: Option<NonZeroU64>,
    /// the delay after the first failure, then doubling (default: 1)
    #[arg(long, value_name = "TIME", default_value = "1", hide_default_value = true, value_parser = parse::<Seconds>)]
    backoff: Seconds,
    /// the longest delay (default: 3600)
    #[arg(long, value_name = "TIME", default_value = "3600", hide_default_value = true, value_parser = parse::<Seconds>)]
    backoff_max: Seconds,
    /// from SIGTERM to SIGKILL for a command (default: 10)
    #[arg(long, value_name = "TIME", default_value = "10", hide_default_value = true, value_parser = parse::<Seconds>)]
    grace: Seconds,
    /// the delay after exit status 75 (default: 60)
    #[arg(long, value_name = "TIME", default_value = "60", hide_default_value = true, value_parser = parse::<Seconds>)]
    again: Seconds,
    /// end a command that runs longer; it has failed (default: never)
    #[arg(long, value_name = "TIME", value_parser = parse::<Seconds>)]
    timeout: Option<Seconds>,
    /// stop after N jobs
    #[arg(short = 'n', long, value_name = "N", value_parser = parse::<NonZeroU64>)]
    count: Option<NonZeroU64>,
    /// stop when no job is ready
    #[arg(long)]
    all: bool,
    /// say what happens to each job
    #[arg(short, long)]
    verbose: bool,
    #[arg(value_name = "COMMAND", trailing_var_arg = true, value_hint = ValueHint::CommandName)]
    command: Vec<OsString>,
}

impl Run for Work {
    const MANY_SERVERS: bool = true;

    fn run(mut self, invocation: &Invocation) -> Outcome {
        if self.command.is_empty() {
            return Failure::usage("which command?");
        }
        self.tubes = tubes_or_default(self.tubes);
        let mut signals = Calls::by_signals(&heeded(&[SIGTERM, SIGINT, SIGHUP]))?;
        let calls = (0..self.jobs.0).map(|_| Calls::by_signals(&[SIGCHLD]));
        let calls: Vec<Calls> = calls.collect::<Outcome<_>>()?;
        // The thread that waits for signals may outlive the slots.
        let common: &'static Common = Box::leak(Box::new(Common {
            addresses: invocation.addresses(),
            patience: invocation.patience,
            callers: calls.iter().map(Calls::caller).collect::<Outcome<_>>()?,
            adrift: Arc::default(),
            state: Mutex::default(),
            options: self,
        }));
        let no_thread = Failure::of("cannot start a thread");
        let watch = move || {
            loop {
                signals.wait(None);
                if signals.take() {
                    common.stop();
                }
            }
        };
        Builder::new().spawn(watch).map_err(no_thread)?;
        let mut slots = Vec::new();
        for (number, calls) in (1..).zip(calls) {
            let work = move || {
                let ended = Slot::new(common, calls).run();
                ended.unwrap_or_else(|failure| common.breaks(failure));
            };
            match Builder::new().name(format!("slot {number}")).spawn(work) {
                Ok(slot) => slots.push(slot),
                Err(error) => common.breaks(Failure::io("cannot start a thread", error)),
            }
        }
        for slot in slots {
            slot.join().expect("a slot does not panic");
        }
        let mut state = common.state();
        // A run with --all or --count ends by itself, and its status tells
        // whether a command has failed. Another run ends well when a signal
        // stops it.
        let is_asked = common.options.all || common.options.count.is_some();
        match state.broken.take() {
            Some(failure) => Err(failure),
            None => Ok(Status::done_if(!(is_asked && state.failed))),
        }
    }
}

/// The settings of all slots, and the state that they share.
pub struct Common {
    pub options: Work,
    /// The servers; the first one that serves is used.
    pub addresses: Vec<Address>,
    /// How long the server may be silent before we give up.
    pub patience: Duration,
    /// Wake the slots.
    callers: Vec<Caller>,
    /// Each job that runs here while no connection holds it has a clone.
    pub adrift: Arc<()>,
    /// A thread that has locked this waits for nothing else.
    state: Mutex<State>,
}

/// The state of the run.
#[derive(Default)]
pub struct State {
    /// How urgently to stop: 0 not at all, 1 after the jobs under way, 2 at
    /// once.
    stop: u8,
    /// How many jobs have been begun.
    pub begun: u64,
    /// Whether a command has failed.
    pub failed: bool,
    /// Since when there is trouble, and what was said of it last.
    lost: Option<(Instant, String)>,
    /// Why the first slot that failed could not go on.
    broken: Option<Failure>,
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

    /// Stops the run, more urgently each time.
    fn stop(&self) {
        if !self.stops() {
            complain!("stopping when the commands under way have ended");
        }
        let mut state = self.state();
        state.stop = state.stop.saturating_add(1);
        self.callers.iter().for_each(Caller::call);
    }

    /// Notes that a slot cannot go on. The others finish their present jobs.
    fn breaks(&self, failure: Failure) {
        let mut state = self.state();
        state.stop = state.stop.max(1);
        state.broken.get_or_insert(failure);
        self.callers.iter().for_each(Caller::call);
    }

    /// Whether to stop trying to settle a job with the server. `is_over` tells
    /// whether the job's time to run is over.
    pub fn gives_up(&self, is_over: bool) -> bool {
        self.stops_at_once() || self.stops() && is_over
    }

    /// Whether a job of any slot is adrift.
    pub fn is_adrift(&self) -> bool {
        Arc::strong_count(&self.adrift) > 1
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

    /// Asks for permission to begin a job, and counts it as begun.
    pub fn may_begin(&self) -> bool {
        let mut state = self.state();
        let most = self.options.count.map_or(u64::MAX, NonZeroU64::get);
        let may = state.stop == 0 && state.begun < most;
        state.begun += u64::from(may);
        may
    }
}
