//! `pause` keeps tubes from giving out jobs for a while, and `resume` ends
//! that.

use crate::command::{Command, Invocation, Kind, Opt, described, options, word, words};
use crate::failure::{Failure, Outcome, Status};
use crate::server::tubes::Patterns;
use beanpole::protocol::{Seconds, TubeName};

pub const PAUSE: Command = Command {
    name: "pause",
    operands: "[TUBE…] TIME",
    operand_kind: Kind::Tube,
    about: "let nothing be reserved from tubes for TIME; 0 ends that",
    options: || described(OPTIONS),
    run: |invocation| match invocation.operands().split_last() {
        Some((time, tubes)) => set_pause(invocation, tubes, word(time)?),
        None => Failure::usage("which tube, and for how long?"),
    },
    ..Command::BLANK
};

pub const RESUME: Command = Command {
    name: "resume",
    operands: "[TUBE…]",
    operand_kind: Kind::Tube,
    about: "end the pause of tubes",
    options: || described(OPTIONS),
    run: |invocation| set_pause(invocation, invocation.operands(), Seconds(0)),
    ..Command::BLANK
};

options! {
    all: bool = Opt::flag("", "all", "all tubes that are there now"),
}

fn set_pause(invocation: &Invocation, names: &[String], Seconds(time): Seconds) -> Outcome {
    let all = invocation.read(OPTIONS)?.all;
    if all != names.is_empty() {
        return Failure::usage("which tubes? name them, or give --all");
    }
    let patterns = Patterns(words(names)?);
    let mut client = invocation.connect()?;
    let tubes = match all {
        true => client.tubes()?,
        false => patterns.named(&mut client)?,
    };
    let line = |tube: &TubeName| format!("pause-tube {tube} {time}");
    let mut missing = None;
    client.each(tubes, line, |tube, reply| {
        if !reply.is_done(format_args!("pause-tube {tube}"))? {
            missing.get_or_insert(Failure::no_tube(&tube));
        }
        Ok(())
    })?;
    // With --all, a tube may be gone since the list was made: that is no
    // failure.
    missing.filter(|_| !all).map_or(Ok(Status::Done), Err)
}
