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
            Entry::of::<top::Top>("top", "show servers and their tubes on a live screen"),
            Entry::of::<console::Serve>(
                "console",
                "serve a page for the browser that shows servers, tubes and jobs",
            ),
            Entry::of::<why::Why>(
                "why",
                "say what keeps jobs from being done, the worst first",
            ),
            Entry::of::<stats::Stats>(
                "stats",
                "show the statistics of the server, of a tube or of a job",
            ),
            Entry::of::<tubes::List>("tubes", "list the tubes and what is in them"),
            Entry::of::<metrics::Metrics>(
                "metrics",
                "write the statistics as text for Prometheus, or serve them",
            ),
            Entry::of::<check::Check>(
                "check",
                "say in one line whether a server is well, for monitoring",
            ),
            Entry::of::<ping::Ping>("ping", "measure how fast a server answers"),
            Entry::of::<tail::Tail>("tail", "show jobs as they are put, of all tubes or of some"),
            Entry::old(&ls::LS),
            Entry::old(&peek::PEEK),
        ],
    },
    Group {
        title: "Touch",
        changes: true,
        commands: &[
            Entry::old(&put::PUT),
            Entry::of::<reserve::Reserve>(
                "reserve",
                "take jobs and write their bodies; release, delete or bury them then",
            ),
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
            Entry::of::<work::Work>(
                "work",
                "run a command for each job, the body on its standard input",
            ),
            Entry::of::<raw::Raw>(
                "raw",
                "speak the protocol: one command, a script from a pipe, or a prompt",
            ),
        ],
    },
    Group {
        title: "Move house",
        changes: true,
        commands: &[
            Entry::old(&dump::DUMP),
            Entry::old(&load::LOAD),
            Entry::of::<binlog::Binlog>(
                "binlog",
                "look into a server's binlog while no server uses it, or save what is in it",
            ),
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
