//! What the program says about itself: `help` and the usage texts.

use crate::command::{Command, GLOBAL, Group, Kind, Opt, described, find};
use crate::failure::Failure;
use crate::server::address::ADDRESS_VARIABLE;
use crate::text::output::print;

/// The protocol on one screen; its manual page shows the same text.
const CARD: &str = include_str!("../../../man/card.txt");

pub const HELP: Command = Command {
    name: "help",
    operands: "[COMMAND|protocol]",
    operand_kind: Kind::CommandOr("protocol"),
    about: "show the commands, how to use one, or the protocol on one screen",
    run: |invocation| match invocation.operands() {
        [] => print(overview(invocation.groups)),
        [name] if name == "protocol" => print(CARD.into()),
        [name] => find(invocation.groups, name).and_then(|(_, command)| print(usage(command))),
        _ => Failure::usage("help with one command at a time"),
    },
    ..Command::BLANK
};

/// The usage of the program.
pub fn overview(groups: &[Group]) -> String {
    let mut text = String::from(
        "Usage: beanpole [-a ADDR] COMMAND [OPTION…] [OPERAND…]\n\
         \n\
         Looks into a work queue that speaks the beanstalk protocol, and works with it.\n",
    );
    for group in groups {
        text += &format!("\n{}:\n", group.title);
        for command in group.commands {
            text += &format!("  {:<12} {}\n", command.name, command.about);
        }
    }
    text += "\nOptions before or after the command:\n";
    text += &options_text(&described(GLOBAL));
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
        options_text(&[(command.options)(), described(command.common_settings())].concat())
    )
}

fn options_text(options: &[Opt]) -> String {
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
