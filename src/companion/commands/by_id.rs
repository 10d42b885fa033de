//! `delete`, `kick-job`, `bury` and `release`: each acts on jobs that are named
//! by their ids.

use crate::command::{Command, DELAY, PRIORITY, described, options};
use crate::server::by_id::{count_free, on_each, on_each_reserved, to_make_ready};
use beanpole::protocol::{Priority, Seconds};

mod deletion {
    use crate::command::{DRY_RUN, options};

    options! {
        dry_run: bool = DRY_RUN,
    }
}

const IDS: &str = "ID…|-";

pub const DELETE: Command = Command {
    name: "delete",
    operands: IDS,
    about: "delete jobs",
    options: || described(deletion::OPTIONS),
    run: |invocation| {
        let ids = invocation.ids()?;
        if invocation.read(deletion::OPTIONS)?.dry_run {
            return count_free(&mut invocation.connect()?, ids);
        }
        on_each(&mut invocation.connect()?, ids, "delete")
    },
    ..Command::BLANK
};

pub const KICK_JOB: Command = Command {
    name: "kick-job",
    operands: IDS,
    about: "make buried or delayed jobs ready",
    run: |invocation| {
        let ids = invocation.ids()?;
        on_each(&mut invocation.connect()?, ids, "kick-job")
    },
    ..Command::BLANK
};

pub const BURY: Command = Command {
    name: "bury",
    operands: IDS,
    about: "bury jobs",
    options: || described(ONLY_PRIORITY),
    run: |invocation| {
        let options = invocation.read(ONLY_PRIORITY)?;
        let ids = invocation.ids()?;
        on_each_reserved(&mut invocation.connect()?, ids, |job| {
            let Priority(pri) = options.priority.unwrap_or(job.priority);
            [format!("bury {} {pri}", job.id)]
        })
    },
    ..Command::BLANK
};

pub const RELEASE: Command = Command {
    name: "release",
    operands: IDS,
    about: "make jobs ready, or delayed, with a new priority if wanted",
    options: || described(OPTIONS),
    run: |invocation| {
        let options = invocation.read(OPTIONS)?;
        let ids = invocation.ids()?;
        on_each_reserved(&mut invocation.connect()?, ids, |job| {
            let (id, priority) = (job.id, options.priority.unwrap_or(job.priority));
            match options.delay {
                Seconds(0) => to_make_ready(id, priority),
                Seconds(delay) => vec![format!("release {id} {} {delay}", priority.0)],
            }
        })
    },
    ..Command::BLANK
};

options! {
    priority: Option<Priority> = PRIORITY,
    delay: Seconds = DELAY => Seconds(0),
}

/// The options of `bury`.
const ONLY_PRIORITY: crate::command::Settings<Options> = OPTIONS.split_at(1).0;
