//! `pause`: nothing is reserved from a tube for a while.

use crate::command::{Command, Invocation, Kind, word};
use crate::failure::{Failure, Outcome, Status};
use crate::server::reply::Reply;
use beanpole::protocol::{Seconds, TubeName};

pub const PAUSE: Command = Command {
    name: "pause",
    operands: "TUBE TIME",
    operand_kind: Kind::Tube,
    about: "let nothing be reserved from a tube for so long; 0 ends that",
    run: pause,
    ..Command::BLANK
};

fn pause(invocation: &Invocation) -> Outcome {
    let [name, time] = invocation.operands() else {
        return Err(Failure::Usage("which tube, and for how long?".into()));
    };
    let tube: TubeName = word(name)?;
    let Seconds(seconds) = word(time)?;
    let mut client = invocation.connect()?;
    match client.call(format_args!("pause-tube {tube} {seconds}"))? {
        Reply::Paused => Ok(Status::Done),
        Reply::NotFound => Err(Failure::no_tube(&tube)),
        other => Err(Failure::unexpected(
            format_args!("pause-tube {tube}"),
            &other,
        )),
    }
}
