//! `release`: jobs named by their ids become ready, or delayed.

use crate::command::{Command, DELAY, Invocation, PRIORITY, described, options};
use crate::failure::{Failure, Outcome};
use crate::server::by_id::{make_ready, on_each_reserved};
use crate::server::reply::Reply;
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
    delay: Option<Seconds> = DELAY,
}

fn release(invocation: &Invocation) -> Outcome {
    let options = invocation.read(OPTIONS)?;
    let Seconds(delay) = options.delay.unwrap_or(Seconds(0));
    let ids = invocation.ids()?;
    on_each_reserved(&mut invocation.connect()?, ids, "release", |client, job| {
        let priority = options.priority.unwrap_or(job.priority);
        if delay == 0 {
            return make_ready(client, job.id, priority);
        }
        match client.call(format_args!("release {} {} {}", job.id, priority.0, delay))? {
            Reply::Released => Ok(()),
            other => Err(Failure::unexpected(
                format_args!("release {}", job.id),
                &other,
            )),
        }
    })
}
