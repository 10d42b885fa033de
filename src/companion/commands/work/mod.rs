//! `work`: a command becomes a worker.
//!
//! Each of `-j` slots is a thread with a connection of its own: it reserves a
//! job, runs the command with the job's body as its standard input, keeps the
//! job by touching it, and deletes, releases or buries it in the end. The main
//! thread waits for signals and for the slots.
//!
//! What makes it dependable is in two places: [`held`] knows when a job is
//! ours, and [`process`] ends a command with everything that it started.
//!
//! What it leaves out: no job is done exactly once. A command that has done
//! its work may be cut off before the server hears of it, and the job is run
//! again; that is in the nature of the protocol.

mod held;
mod process;
mod slot;

use crate::command::{Command, Invocation, Kind, Opt, TUBES, described, options, tubes_or_default};
use crate::failure::{Failure, Outcome, Status};
use crate::server::address::Address;
use crate::signals::{Caller, Calls, SIGCHLD, SIGHUP, SIGINT, SIGTERM, heeded, wait_for};
use crate::text::output::complain;
use beanpole::arguments::{Parse, number, to_os};
use beanpole::protocol::TubeName;
use slot::Slot;
use std::ffi::OsString;
use std::num::NonZeroU64;
use std::os::fd::AsFd;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::time::Duration;

pub const WORK: Command = Command {
    name: "work",
    operands: "-- COMMAND [ARGUMENT…]",
    operand_kind: Kind::Program,
    about: "run a command for each job, the body on its standard input",
    options: || described(OPTIONS),
    options_first: true,
    run: work,
    ..Command::BLANK
};

options! {
    tubes: Vec<TubeName> = TUBES,
    jobs: Option<Slots> = Opt::value("j", "jobs", "N", "so many at the same time (default: 1)"),
    tries: Option<NonZeroU64> =
        Opt::value("", "tries", "N",
            "bury a job when it has been tried so often (default: never)"),
    backoff: Option<u32> =
        Opt::value("", "backoff", "SECONDS",
            "the delay after the first failure, then doubling (default: 1)"),
    backoff_max: Option<u32> =
        Opt::value("", "backoff-max", "SECONDS", "the longest delay (default: 3600)"),
    grace: Option<u32> =
        Opt::value("", "grace", "SECONDS",
            "from SIGTERM to SIGKILL for a command (default: 10)"),
    count: Option<NonZeroU64> = Opt::value("n", "count", "N", "stop after so many jobs"),
    all: bool = Opt::flag("", "all", "stop when no job is ready"),
    verbose: bool = Opt::flag("v", "verbose", "say what happens to each job"),
}

/// How many jobs at the same time.
struct Slots(u64);

impl Parse for Slots {
    fn parse(text: &str) -> Result<Slots, String> {
        number(text, 1, 1000).map(Slots)
    }
}

/// What all slots do.
struct Plan {
    address: Address,
    tubes: Vec<TubeName>,
    program: OsString,
    arguments: Vec<OsString>,
    tries: Option<u64>,
    backoff: u64,
    backoff_max: u64,
    grace: Duration,
    /// Stop when no job is ready.
    until_empty: bool,
    verbose: bool,
}

/// What slots and the main thread tell each other.
struct Common {
    stop: AtomicU8,
    /// Jobs that may still be begun.
    tickets: AtomicU64,
    /// Whether a command has failed.
    failed: AtomicBool,
    /// Slots that have not ended.
    running: AtomicU64,
    /// Why a slot could not go on.
    broken: Mutex<Option<Failure>>,
}

/// How urgently to stop: 0 not at all, 1 after the jobs under way, 2 at once.
const FINISH: u8 = 1;
const AT_ONCE: u8 = 2;

impl Common {
    fn stops(&self) -> bool {
        self.stop.load(Ordering::SeqCst) >= FINISH
    }

    fn stops_at_once(&self) -> bool {
        self.stop.load(Ordering::SeqCst) >= AT_ONCE
    }

    /// Whether to give up telling the server what became of a job, whose time
    /// to run is over or not.
    fn gives_up(&self, is_over: bool) -> bool {
        self.stops_at_once() || self.stops() && is_over
    }

    /// A slot cannot go on: the others finish what they are at.
    fn breaks(&self, failure: Failure) {
        self.stop.fetch_max(FINISH, Ordering::SeqCst);
        if let Ok(mut broken) = self.broken.lock() {
            broken.get_or_insert(failure);
        }
    }

    /// Asks for permission to begin a job.
    fn take_ticket(&self) -> bool {
        let take = |left: u64| left.checked_sub(1);
        self.tickets
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, take)
            .is_ok()
    }

    /// Gives it back: the job was none.
    fn return_ticket(&self) {
        self.tickets.fetch_add(1, Ordering::SeqCst);
    }
}

fn work(invocation: &Invocation) -> Outcome {
    let options = invocation.read(OPTIONS)?;
    let Some((program, arguments)) = invocation.operands().split_first() else {
        return Err(Failure::Usage("which command?".into()));
    };
    let plan = Plan {
        address: invocation.address().clone(),
        tubes: tubes_or_default(options.tubes),
        program: to_os(program),
        arguments: arguments.iter().map(|argument| to_os(argument)).collect(),
        tries: options.tries.map(NonZeroU64::get),
        backoff: options.backoff.unwrap_or(1).into(),
        backoff_max: options.backoff_max.unwrap_or(3600).into(),
        grace: Duration::from_secs(options.grace.unwrap_or(10).into()),
        until_empty: options.all,
        verbose: options.verbose,
    };
    let limit = options.count.map(NonZeroU64::get);
    let Slots(slots) = options.jobs.unwrap_or(Slots(1));
    let common = Common {
        stop: AtomicU8::new(0),
        tickets: AtomicU64::new(limit.unwrap_or(u64::MAX)),
        failed: AtomicBool::new(false),
        running: AtomicU64::new(0),
        broken: Mutex::new(None),
    };
    run_slots(&plan, &common, slots)?;
    let broken = common
        .broken
        .lock()
        .map(|mut broken| broken.take())
        .unwrap_or_default();
    match broken {
        Some(failure) => Err(failure),
        // Who stops it by a signal asks how it went; others ask what failed.
        None if plan.until_empty || limit.is_some() => {
            Ok(Status::done_if(!common.failed.load(Ordering::SeqCst)))
        }
        None => Ok(Status::Done),
    }
}

fn run_slots(plan: &Plan, common: &Common, slots: u64) -> Outcome<()> {
    let mut signals = Calls::by_signals(&heeded(&[SIGTERM, SIGINT, SIGHUP]))?;
    let mut ends = Calls::by_signals(&[])?;
    let mut callers = Vec::new();
    let mut ready = Vec::new();
    for _ in 0..slots {
        let calls = Calls::by_signals(&[SIGCHLD])?;
        callers.push(calls.caller()?);
        ready.push((Slot::new(plan, common, calls), ends.caller()?));
    }
    std::thread::scope(|scope| {
        for (number, (slot, end)) in ready.into_iter().enumerate() {
            let run = move || {
                if let Err(failure) = slot.run() {
                    common.breaks(failure);
                }
                common.running.fetch_sub(1, Ordering::SeqCst);
                end.call();
            };
            common.running.fetch_add(1, Ordering::SeqCst);
            let thread = std::thread::Builder::new().name(format!("slot {}", number + 1));
            if let Err(error) = thread.spawn_scoped(scope, run) {
                common.running.fetch_sub(1, Ordering::SeqCst);
                common.breaks(Failure::io("cannot start a thread", error));
            }
        }
        while common.running.load(Ordering::SeqCst) > 0 {
            if common.stops() {
                callers.iter().for_each(Caller::call);
            }
            wait_for(&[signals.as_fd(), ends.as_fd()], None);
            ends.take();
            if signals.take() {
                if !common.stops() {
                    complain("beanpole work: stopping when the commands under way have ended");
                }
                common.stop.fetch_add(1, Ordering::SeqCst);
                common.stop.fetch_min(AT_ONCE, Ordering::SeqCst);
            }
        }
    });
    Ok(())
}
