//! `bury`: jobs named by their ids are buried.

use crate::command::{Command, Invocation, PRIORITY, described, options};
use crate::failure::Outcome;
use crate::server::by_id::on_each_reserved;
use beanpole::protocol::Priority;

pub const BURY: Command = Command {
    name: "bury",
    operands: "ID…|-",
    about: "bury jobs",
    options: || described(OPTIONS),
    run: bury,
    ..Command::BLANK
};

options! {
    priority: Option<Priority> = PRIORITY,
}

fn bury(invocation: &Invocation) -> Outcome {
    let options = invocation.read(OPTIONS)?;
    let ids = invocation.ids()?;
    on_each_reserved(&mut invocation.connect()?, ids, "bury", |job| {
        let Priority(pri) = options.priority.unwrap_or(job.priority);
        [format!("bury {} {pri}", job.id)]
    })
}
