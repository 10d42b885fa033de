//! `pause`: nothing is reserved from a tube for a while.

use crate::command::{Command, Invocation, Kind, word};
use crate::failure::{Failure, Outcome, Status};
use crate::server::reply::Reply;
use beanpole::protocol::TubeName;

pub const PAUSE: Command = Command {
    name: "pause",
    operands: "TUBE SECONDS",
    operand_kind: Kind::Tube,
    about: "let nothing be reserved from a tube for so long; 0 ends that",
    run: pause,
    ..Command::BLANK
};

fn pause(invocation: &Invocation) -> Outcome {
    let [name, seconds] = invocation.operands() else {
        return Err(Failure::Usage(
            "which tube, and for how many seconds?".into(),
        ));
    };
    let tube: TubeName = word(name)?;
    let seconds: u32 = seconds.parse().map_err(|_| {
        Failure::Usage(format!(
            "'{seconds}' is not a number of seconds from 0 to {}",
            u32::MAX
        ))
    })?;
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
