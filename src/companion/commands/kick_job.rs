//! `kick-job`: jobs named by their ids become ready.

use crate::command::Command;
use crate::server::by_id::on_each;

pub const KICK_JOB: Command = Command {
    name: "kick-job",
    operands: "ID…|-",
    about: "make buried or delayed jobs ready",
    run: |invocation| {
        let ids = invocation.ids()?;
        on_each(&mut invocation.connect()?, ids, "kick-job")
    },
    ..Command::BLANK
};
