//! `help`: the commands, the usage of one, and the protocol on one screen.

use crate::command::{CARD, Entry, Group, Invocation, Run, find, program};
use crate::failure::Outcome;
use crate::server::address::ADDRESS_VARIABLE;
use crate::text::output::print;
use clap::Args;

#[derive(Args)]
pub struct Help {
    #[arg(value_name = "COMMAND|protocol")]
    topic: Option<String>,
}

impl Run for Help {
    fn run(self, invocation: &Invocation) -> Outcome {
        match self.topic.as_deref() {
            None => print(overview(invocation.groups)),
            Some("protocol") => print(CARD.into()),
            Some(name) => print(usage(find(invocation.groups, name)?.1)),
        }
    }
}

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
    let options = program()
        .help_template("{options}")
        .render_help()
        .to_string();
    text += &format!(
        "\nOptions before or after the command:\n{}\n\n\
         The server is that of {ADDRESS_VARIABLE}, or else 127.0.0.1:11300.\n\
         'beanpole help COMMAND' shows a command; beanpole(1) has examples.\n",
        options.trim_end()
    );
    text
}

/// The usage of one command.
pub fn usage(command: &Entry) -> String {
    command.parser().render_help().to_string()
}
