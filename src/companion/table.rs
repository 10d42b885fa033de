//! The table of commands: what each is called, takes and does.
//!
//! Everything that has to agree about the commands comes from here: the
//! parser of options, the usage texts, the completions of the shells and the
//! test of the man page. Each file of `commands` opens with its entries.

use crate::commands::{
    check, clear, dump, help, jobs, load, metrics, peek, put, reserve, stats, tail, transfer, tubes,
};
use crate::failure::{Failure, Outcome, Status};
use crate::invocation::Invocation;
use crate::work::WORK;
use crate::{binlog, raw, top};

/// One command of the program.
pub struct Command {
    pub name: &'static str,
    /// What follows the options, as the usage shows it.
    pub operands: &'static str,
    /// What an operand is.
    pub operand_kind: Kind,
    /// One line of help.
    pub about: &'static str,
    pub options: &'static [Opt],
    /// The first operand ends the options: what follows is somebody else's.
    pub options_first: bool,
    /// Everything after its name is an operand: it parses that itself.
    pub own_arguments: bool,
    /// Whether it asks several servers at once.
    pub many_servers: bool,
    pub run: fn(&Invocation) -> Outcome,
    /// What a failure means to whoever calls it, if not what it means to all.
    pub failure_status: Option<fn(&Failure) -> Status>,
}

/// One option of a command.
#[derive(Clone, Copy)]
pub struct Opt {
    /// One letter, or nothing.
    pub short: &'static str,
    pub long: &'static str,
    /// What its value is called; nothing for a flag.
    pub value: &'static str,
    pub kind: Kind,
    /// Whether it may be given several times.
    pub many: bool,
    pub about: &'static str,
}

/// What an operand or a value is, for completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Nothing that a shell could complete.
    Free,
    Tube,
    File,
    /// One of these first, then directories.
    WordThenDirectories(&'static [&'static str]),
    /// The name of a program.
    Program,
    /// One of these.
    Words(&'static [&'static str]),
    /// The name of a command of ours.
    Command,
}

/// Commands that belong together.
pub struct Group {
    pub title: &'static str,
    pub commands: &'static [&'static Command],
}

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
            &peek::PEEK,
        ],
    },
    Group {
        title: "Touch",
        commands: &[
            &put::PUT,
            &reserve::RESERVE,
            &jobs::DELETE,
            &jobs::BURY,
            &jobs::RELEASE,
            &jobs::TOUCH,
            &jobs::KICK_JOB,
            &tubes::KICK,
            &tubes::PAUSE,
            &clear::CLEAR,
            &transfer::MOVE,
            &transfer::COPY,
            &WORK,
            &raw::RAW,
        ],
    },
    Group {
        title: "Move house",
        commands: &[&dump::DUMP, &load::LOAD, &binlog::BINLOG],
    },
    Group {
        title: "About itself",
        commands: &[&help::COMPLETION, &help::HELP],
    },
];

/// The first of each pair.
pub const fn first_of<const N: usize>(pairs: &[(&'static str, &'static str)]) -> [&'static str; N] {
    let mut firsts = [""; N];
    let mut index = 0;
    while index < N {
        firsts[index] = pairs[index].0;
        index += 1;
    }
    firsts
}

/// Options that the program takes before a command and each command takes.
pub const COMMON: &[Opt] = &[
    Opt {
        short: "a",
        long: "addr",
        value: "ADDR",
        kind: Kind::Free,
        many: true,
        about: "the server: HOST:PORT, PORT or unix:PATH",
    },
    Opt::flag("h", "help", "show the usage"),
];

/// An option that the program takes before a command.
pub const VERSION: Opt = Opt::flag("V", "version", "show the version");

/// All commands.
pub fn commands() -> impl Iterator<Item = &'static Command> {
    GROUPS.iter().flat_map(|group| group.commands).copied()
}

/// The command of this name.
pub fn find(name: &str) -> Option<&'static Command> {
    commands().find(|command| command.name == name)
}

impl Command {
    /// What a new entry starts from.
    pub const BLANK: Command = Command {
        name: "",
        operands: "",
        operand_kind: Kind::Free,
        about: "",
        options: &[],
        options_first: false,
        own_arguments: false,
        many_servers: false,
        run: |_| unreachable!("every entry of the table has a function"),
        failure_status: None,
    };
}

impl Opt {
    /// An option without a value.
    pub const fn flag(short: &'static str, long: &'static str, about: &'static str) -> Opt {
        Opt {
            short,
            long,
            value: "",
            kind: Kind::Free,
            many: false,
            about,
        }
    }

    /// An option with a value.
    pub const fn value(
        short: &'static str,
        long: &'static str,
        value: &'static str,
        about: &'static str,
    ) -> Opt {
        Opt {
            short,
            long,
            value,
            kind: Kind::Free,
            many: false,
            about,
        }
    }

    /// The same, with a value of this kind.
    pub const fn of(self, kind: Kind) -> Opt {
        Opt { kind, ..self }
    }

    /// The same, that may be given several times.
    pub const fn many(self) -> Opt {
        Opt { many: true, ..self }
    }
}

/// Options of several commands.
pub const TUBE: Opt = Opt::value("t", "tube", "TUBE", "the tube (default: default)").of(Kind::Tube);
pub const TUBES: Opt = Opt::value(
    "t",
    "tube",
    "TUBE",
    "a tube; may be repeated (default: default)",
)
.of(Kind::Tube)
.many();
pub const PRIORITY: Opt = Opt::value("p", "priority", "PRI", "the priority, smaller is sooner");
pub const DELAY: Opt = Opt::value("d", "delay", "SECONDS", "how long it stays delayed");
pub const JSON: Opt = Opt::flag("j", "json", "write JSON");
pub const YAML: Opt = Opt::flag("", "yaml", "write YAML");
pub const YES: Opt = Opt::flag("y", "yes", "do not ask");
pub const STATE: Opt = Opt::value(
    "",
    "state",
    "STATE",
    "only jobs that are ready, delayed or buried; may be repeated",
)
.of(Kind::Words(&["ready", "delayed", "buried"]))
.many();

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn no_name_and_no_option_of_a_command_is_there_twice() {
        let mut names = HashSet::new();
        for command in commands() {
            assert!(names.insert(command.name), "{}", command.name);
            let mut letters = HashSet::new();
            for option in COMMON.iter().chain(command.options) {
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
