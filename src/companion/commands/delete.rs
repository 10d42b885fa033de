//! `delete`: jobs named by their ids are deleted.

use crate::command::Command;
use crate::server::by_id::on_each;

pub const DELETE: Command = Command {
    name: "delete",
    operands: "ID…|-",
    about: "delete jobs",
    run: |invocation| {
        let ids = invocation.ids()?;
        on_each(&mut invocation.connect()?, ids, "delete")
    },
    ..Command::BLANK
};
