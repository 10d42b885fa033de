//! The list of commands.

use crate::command::Group;
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
            &top::TOP,
            &console::CONSOLE,
            &why::WHY,
            &stats::STATS,
            &tubes::TUBES,
            &metrics::METRICS,
            &check::CHECK,
            &ping::PING,
            &tail::TAIL,
            &ls::LS,
            &peek::PEEK,
        ],
    },
    Group {
        title: "Touch",
        changes: true,
        commands: &[
            &put::PUT,
            &reserve::RESERVE,
            &edit::EDIT,
            &by_id::DELETE,
            &by_id::BURY,
            &by_id::RELEASE,
            &by_id::KICK_JOB,
            &kick::KICK,
            &pause::PAUSE,
            &pause::RESUME,
            &clear::CLEAR,
            &move_jobs::MOVE,
            &copy::COPY,
            &work::WORK,
            &raw::RAW,
        ],
    },
    Group {
        title: "Move house",
        changes: true,
        commands: &[&dump::DUMP, &load::LOAD, &binlog::BINLOG],
    },
    Group {
        title: "About itself",
        changes: false,
        commands: &[&completion::COMPLETION, &help::HELP],
    },
];

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
