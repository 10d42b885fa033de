//! `move`: moves jobs from one tube to another, on the same server or on
//! another one.

use crate::command::{Command, Invocation, Kind};
use crate::failure::{Outcome, Status};
use crate::text::output::print;
use crate::transfer::{Transfer, transfer_options};

pub const MOVE: Command = Command {
    name: "move",
    operands: "FROM|- TO",
    operand_kind: Kind::Tube,
    about: "move the jobs of a tube to another, on this server or another",
    options: transfer_options,
    run: move_jobs,
    ..Command::BLANK
};

fn move_jobs(invocation: &Invocation) -> Outcome {
    let mut transfer = Transfer::new(invocation, "moving")?;
    if transfer.dry_run {
        return print(format!("{}\n", transfer.task.left));
    }
    let mut all = true;
    let outcome = transfer.move_jobs(&mut all);
    transfer.finish(outcome)?;
    Ok(Status::done_if(all))
}
