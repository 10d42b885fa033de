//! `release`: jobs named by their ids become ready, or delayed.

use crate::command::{Command, DELAY, Invocation, PRIORITY, described, options};
use crate::failure::Outcome;
use crate::server::by_id::{on_each_reserved, to_make_ready};
use beanpole::protocol::{Priority, Seconds};

pub const RELEASE: Command = Command {
    name: "release",
    operands: "ID…|-",
    about: "make jobs ready, or delayed, with a new priority if wanted",
    options: || described(OPTIONS),
    run: release,
    ..Command::BLANK
};

options! {
    priority: Option<Priority> = PRIORITY,
    delay: Seconds = DELAY => Seconds(0),
}

fn release(invocation: &Invocation) -> Outcome {
    let options = invocation.read(OPTIONS)?;
    let ids = invocation.ids()?;
    on_each_reserved(&mut invocation.connect()?, ids, "release", |job| {
        let (id, priority) = (job.id, options.priority.unwrap_or(job.priority));
        match options.delay {
            Seconds(0) => to_make_ready(id, priority),
            Seconds(delay) => vec![format!("release {id} {} {delay}", priority.0)],
        }
    })
}
