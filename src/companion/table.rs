//! The list of commands.

use crate::command::{Command, Group};
use crate::commands::{
    bench, binlog, bury, check, clear, completion, copy, delete, dump, help, kick, kick_job, load,
    ls, metrics, move_jobs, pause, peek, put, raw, release, reserve, stats, tail, top, touch,
    tubes, work,
};

/// All commands, in the order of the help.
pub const GROUPS: &[Group] = &[
    Group {
        title: "Look",
        commands: &[
            &top::TOP,
            &stats::STATS,
            &tubes::TUBES,
            &metrics::METRICS,
            &check::CHECK,
            &tail::TAIL,
            &ls::LS,
            &peek::PEEK,
        ],
    },
    Group {
        title: "Touch",
        commands: &[
            &put::PUT,
            &reserve::RESERVE,
            &delete::DELETE,
            &bury::BURY,
            &release::RELEASE,
            &touch::TOUCH,
            &kick_job::KICK_JOB,
            &kick::KICK,
            &pause::PAUSE,
            &clear::CLEAR,
            &move_jobs::MOVE,
            &copy::COPY,
            &work::WORK,
            &raw::RAW,
        ],
    },
    Group {
        title: "Move house",
        commands: &[&dump::DUMP, &load::LOAD, &binlog::BINLOG],
    },
    Group {
        title: "Measure",
        commands: &[&bench::BENCH],
    },
    Group {
        title: "About itself",
        commands: &[&completion::COMPLETION, &help::HELP],
    },
];

/// The command of this name.
pub fn find(name: &str) -> Option<&'static Command> {
    let mut commands = GROUPS.iter().flat_map(|group| group.commands);
    commands.find(|command| command.name == name).copied()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::described;
    use std::collections::HashSet;

    #[test]
    fn no_name_and_no_option_of_a_command_is_there_twice() {
        let mut names = HashSet::new();
        for command in GROUPS.iter().flat_map(|group| group.commands) {
            assert!(names.insert(command.name), "{}", command.name);
            let mut letters = HashSet::new();
            for option in described(command.common_settings())
                .iter()
                .chain(&(command.options)())
            {
                for name in [option.short, option.long] {
                    assert!(
                        name.is_empty() || letters.insert(name),
                        "{} {name}",
                        command.name
                    );
                }
                assert!(
                    option.long.len() > 1 && option.short.len() <= 1,
                    "{}",
                    option.long
                );
            }
        }
    }
}
