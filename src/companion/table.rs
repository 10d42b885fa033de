//! The list of commands.

use crate::command::{Entry, Group};
use crate::commands::{
    binlog, by_id, check, clear, completion, console, copy, dump, edit, help, kick, load, ls,
    metrics, move_jobs, pause, peek, ping, put, raw, reserve, stats, tail, top, tubes, why, work,
};

/// All commands, in the order of the help.
pub const GROUPS: &[Group] = &[
    Group {
        title: "Look",
        changes: false,
        commands: &[
            Entry::old(&top::TOP),
            Entry::old(&console::CONSOLE),
            Entry::old(&why::WHY),
            Entry::old(&stats::STATS),
            Entry::of::<tubes::List>("tubes", "list the tubes and what is in them"),
            Entry::old(&metrics::METRICS),
            Entry::old(&check::CHECK),
            Entry::old(&ping::PING),
            Entry::old(&tail::TAIL),
            Entry::old(&ls::LS),
            Entry::old(&peek::PEEK),
        ],
    },
    Group {
        title: "Touch",
        changes: true,
        commands: &[
            Entry::old(&put::PUT),
            Entry::old(&reserve::RESERVE),
            Entry::old(&edit::EDIT),
            Entry::old(&by_id::DELETE),
            Entry::old(&by_id::BURY),
            Entry::old(&by_id::RELEASE),
            Entry::old(&by_id::KICK_JOB),
            Entry::old(&kick::KICK),
            Entry::of::<pause::Pause>(
                "pause",
                "let nothing be reserved from tubes for TIME; 0 ends that, as does 'resume TUBE'",
            ),
            Entry::old(&clear::CLEAR),
            Entry::old(&move_jobs::MOVE),
            Entry::old(&copy::COPY),
            Entry::old(&work::WORK),
            Entry::old(&raw::RAW),
        ],
    },
    Group {
        title: "Move house",
        changes: true,
        commands: &[
            Entry::old(&dump::DUMP),
            Entry::old(&load::LOAD),
            Entry::old(&binlog::BINLOG),
        ],
    },
    Group {
        title: "About itself",
        changes: false,
        commands: &[
            Entry::of::<completion::Completion>("completion", "write the completion for a shell"),
            Entry::of::<help::Help>(
                "help",
                "show the commands, how to use one, or the protocol on one screen",
            ),
        ],
    },
];

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn every_command_has_one_name_and_its_options_are_sound() {
        let mut names = HashSet::new();
        for command in GROUPS.iter().flat_map(|group| group.commands) {
            assert!(names.insert(command.name), "{}", command.name);
            command.parser().debug_assert();
        }
    }
}
