//! `work`: makes a worker of a command.
//!
//! Each of the `-j` slots is a thread with its own connection. It reserves a
//! job, runs the command with the job's body as standard input, and touches the
//! job meanwhile. At the end it deletes, releases or buries the job. The main
//! thread waits for signals and for the slots.
//!
//! Two modules make this dependable: [`held`] knows when a job is ours, and
//! [`process`] ends a command with everything that it started. If we are killed
//! ourselves, [`tie`] ends the commands.
//!
//! What it leaves out: no job is certain to run exactly once. If we are cut off
//! after a command has done its work, the server does not hear of it, and the
//! job runs again. This is in the nature of the protocol.

mod common;
mod held;
mod process;
mod slot;
mod tie;
mod tries;

use crate::command::{Command, Invocation, Kind, described, tubes_or_default};
use crate::failure::{Failure, Outcome, Status};
use crate::signals::{Caller, Calls, SIGCHLD, SIGHUP, SIGINT, SIGTERM, heeded, wait_for};
use crate::text::output::complain;
use beanpole::arguments::to_os;
use common::{Common, OPTIONS};
use slot::Slot;
use std::os::fd::AsFd;
use std::sync::Mutex;
use tie::Guard;

pub const WORK: Command = Command {
    name: "work",
    operands: "-- COMMAND [ARGUMENT…]",
    operand_kind: Kind::Program,
    about: "run a command for each job, the body on its standard input",
    options: || described(OPTIONS),
    options_first: true,
    many_servers: true,
    run: work,
    ..Command::BLANK
};

fn work(invocation: &Invocation) -> Outcome {
    let options = invocation.read(OPTIONS)?;
    let Some((program, arguments)) = invocation.operands().split_first() else {
        return Failure::usage("which command?");
    };
    let common = Common {
        addresses: invocation.addresses(),
        tubes: tubes_or_default(options.tubes.clone()),
        program: to_os(program),
        arguments: arguments.iter().map(|argument| to_os(argument)).collect(),
        patience: invocation.patience,
        guard: Guard::start()?,
        state: Mutex::default(),
        options,
    };
    run_slots(&common)?;
    let mut state = common.state();
    // A run with --all or --count ends by itself, and its status tells whether
    // a command has failed. Another run ends well when a signal stops it.
    let is_asked = common.options.all || common.options.count.is_some();
    match state.broken.take() {
        Some(failure) => Err(failure),
        None => Ok(Status::done_if(!(is_asked && state.failed))),
    }
}

fn run_slots(common: &Common) -> Outcome<()> {
    let mut signals = Calls::by_signals(&heeded(&[SIGTERM, SIGINT, SIGHUP]))?;
    let mut ends = Calls::by_signals(&[])?;
    let mut callers = Vec::new();
    let mut ready = Vec::new();
    for _ in 0..common.options.jobs.0 {
        let calls = Calls::by_signals(&[SIGCHLD])?;
        callers.push(calls.caller()?);
        ready.push((Slot::new(common, calls), ends.caller()?));
    }
    std::thread::scope(|scope| {
        for (number, (slot, end)) in ready.into_iter().enumerate() {
            let run = move || {
                if let Err(failure) = slot.run() {
                    common.breaks(failure);
                }
                common.state().running -= 1;
                end.call();
            };
            common.state().running += 1;
            let thread = std::thread::Builder::new().name(format!("slot {}", number + 1));
            if let Err(error) = thread.spawn_scoped(scope, run) {
                common.state().running -= 1;
                common.breaks(Failure::io("cannot start a thread", error));
            }
        }
        while common.state().running > 0 {
            if common.stops() {
                callers.iter().for_each(Caller::call);
            }
            wait_for(&[signals.as_fd(), ends.as_fd()], None);
            ends.take();
            if signals.take() {
                if !common.stops() {
                    complain!("stopping when the commands under way have ended");
                }
                let mut state = common.state();
                state.stop = state.stop.saturating_add(1);
            }
        }
    });
    Ok(())
}
