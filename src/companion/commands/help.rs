//! What the program says about itself: `help` and the usage texts.

use crate::companion::completion;
use crate::companion::failure::{Failure, Outcome, Status};
use crate::companion::invocation::{ADDRESS_VARIABLE, Invocation, print};
use crate::companion::table::{self, COMMON, Command, GROUPS, Kind, Opt, VERSION};

/// The protocol on one screen, which its manual page shows too.
const CARD: &str = include_str!("../../../man/card.txt");

pub const HELP: Command = Command {
    name: "help",
    operands: "[COMMAND|protocol]",
    operand_kind: Kind::Command,
    about: "show the commands, how to use one, or the protocol on one screen",
    run: |invocation| match invocation.operands() {
        [] => print(overview()),
        [name] if name == "protocol" => print(CARD.into()),
        [name] => match table::find(name) {
            Some(command) => print(usage(command)),
            None => Err(Failure::Usage(format!("there is no command '{name}'"))),
        },
        _ => Err(Failure::Usage("help with one command at a time".into())),
    },
    ..Command::BLANK
};

pub const COMPLETION: Command = Command {
    name: "completion",
    operands: "bash|zsh|fish",
    operand_kind: Kind::Words(&["bash", "zsh", "fish"]),
    about: "write the completion for a shell",
    run: write_completion,
    ..Command::BLANK
};

fn write_completion(invocation: &Invocation) -> Outcome<Status> {
    match invocation.operands() {
        [shell] => match shell.as_str() {
            "bash" => print(completion::bash()),
            "zsh" => print(completion::zsh()),
            "fish" => print(completion::fish()),
            other => Err(Failure::Usage(format!(
                "'{other}' is not bash, zsh or fish"
            ))),
        },
        _ => Err(Failure::Usage("for which shell? bash, zsh or fish".into())),
    }
}

/// The usage of the program.
pub fn overview() -> String {
    let mut text = String::from(
        "Usage: beanpole [-a ADDR] COMMAND [OPTION…] [OPERAND…]\n\
         \n\
         Looks into a work queue that speaks the beanstalk protocol, and works with it.\n",
    );
    for group in GROUPS {
        text += &format!("\n{}:\n", group.title);
        for command in group.commands {
            text += &format!("  {:<12} {}\n", command.name, command.about);
        }
    }
    text += "\nOptions before or after the command:\n";
    text += &options_text(COMMON.iter().chain([&VERSION]));
    text += &format!(
        "\nThe server is that of {ADDRESS_VARIABLE}, or else 127.0.0.1:11300.\n\
         'beanpole help COMMAND' shows a command; beanpole(1) has examples.\n"
    );
    text
}

/// The usage of one command.
pub fn usage(command: &Command) -> String {
    let line = format!("beanpole {} [OPTION…] {}", command.name, command.operands);
    let mut about = command.about.chars();
    let first = about.next().map(char::to_uppercase).into_iter().flatten();
    let about: String = first.chain(about).collect();
    format!(
        "Usage: {}\n\n{about}.\n\nOptions:\n{}",
        line.trim_end(),
        options_text(command.options.iter().chain(COMMON))
    )
}

fn options_text<'a>(options: impl Iterator<Item = &'a Opt>) -> String {
    let mut text = String::new();
    for option in options {
        let short = match option.short {
            "" => "    ".into(),
            letter => format!("-{letter}, "),
        };
        let names = format!("{short}--{} {}", option.long, option.value);
        text += &format!("  {:<24} {}\n", names.trim_end(), option.about);
    }
    text
}
