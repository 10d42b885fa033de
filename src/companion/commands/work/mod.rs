//! `work`: a command becomes a worker.
//!
//! Each of `-j` slots is a thread with a connection of its own: it reserves a
//! job, runs the command with the job's body as its standard input, keeps the
//! job by touching it, and deletes, releases or buries it in the end. The main
//! thread waits for signals and for the slots.
//!
//! What makes it dependable is in two places: [`held`] knows when a job is
//! ours, and [`process`] ends a command with everything that it started;
//! if we are killed, [`tie`] has seen to it.
//!
//! What it leaves out: no job is done exactly once. A command that has done
//! its work may be cut off before the server hears of it, and the job is run
//! again; that is in the nature of the protocol.

mod held;
mod plan;
mod process;
mod slot;
mod tie;
mod tries;

use crate::command::{
    Command, Invocation, Kind, Number, Opt, TUBES, described, options, tubes_or_default,
};
use crate::failure::{Failure, Outcome, Status};
use crate::signals::{Caller, Calls, SIGCHLD, SIGHUP, SIGINT, SIGTERM, heeded, wait_for};
use crate::text::output::complain;
use beanpole::arguments::to_os;
use beanpole::protocol::{Seconds, TubeName};
use plan::{AT_ONCE, Common, Plan};
use slot::Slot;
use std::num::NonZeroU64;
use std::os::fd::AsFd;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering};
use std::time::Duration;
use tie::Guard;

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
    jobs: Option<Number<1, 1000>> = Opt::value("j", "jobs", "N", "so many at the same time (default: 1)"),
    tries: Option<NonZeroU64> =
        Opt::value("", "tries", "N",
            "bury a job when it has been tried so often (default: never)"),
    backoff: Option<Seconds> =
        Opt::value("", "backoff", "TIME",
            "the delay after the first failure, then doubling (default: 1)"),
    backoff_max: Option<Seconds> =
        Opt::value("", "backoff-max", "TIME", "the longest delay (default: 3600)"),
    grace: Option<Seconds> =
        Opt::value("", "grace", "TIME",
            "from SIGTERM to SIGKILL for a command (default: 10)"),
    again: Option<Seconds> =
        Opt::value("", "again", "TIME", "the delay after exit status 75 (default: 60)"),
    timeout: Option<Seconds> =
        Opt::value("", "timeout", "TIME",
            "end a command that runs longer; it has failed (default: never)"),
    count: Option<NonZeroU64> = Opt::value("n", "count", "N", "stop after so many jobs"),
    all: bool = Opt::flag("", "all", "stop when no job is ready"),
    verbose: bool = Opt::flag("v", "verbose", "say what happens to each job"),
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
        backoff: options.backoff.map_or(1, |Seconds(time)| time.into()),
        backoff_max: options
            .backoff_max
            .map_or(3600, |Seconds(time)| time.into()),
        grace: Duration::from_secs(options.grace.map_or(10, |Seconds(time)| time.into())),
        again: options.again.map_or(60, |Seconds(time)| time.into()),
        timeout: options
            .timeout
            .map(|Seconds(time)| Duration::from_secs(time.into())),
        until_empty: options.all,
        verbose: options.verbose,
        patience: invocation.patience(),
    };
    let limit = options.count.map(NonZeroU64::get);
    let Number(slots) = options.jobs.unwrap_or(Number(1));
    let common = Common {
        guard: Guard::start()?,
        stop: AtomicU8::new(0),
        tickets: AtomicUsize::new(limit.map_or(usize::MAX, |limit| {
            usize::try_from(limit).unwrap_or(usize::MAX)
        })),
        failed: AtomicBool::new(false),
        running: AtomicUsize::new(0),
        adrift: AtomicUsize::new(0),
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

fn run_slots(plan: &Plan, common: &Common, slots: usize) -> Outcome<()> {
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
