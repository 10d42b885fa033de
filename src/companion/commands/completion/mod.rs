//! Completions for bash, zsh and fish.
//!
//! The candidates for a word are found here, from what clap knows of the commands. The
//! scripts of the shells know no candidates: they ask this program each time.
//! The names of tubes come from the server that the line has named up to now.
//! If that server does not answer, there are no candidates.

use crate::command::{Entry, Invocation, Run, program};
use crate::failure::{Failure, Outcome};
use crate::server::names::Server;
use crate::text::output::print;
use crate::values::Parse;
use clap::{Arg, Args, ValueHint};

#[derive(Args)]
pub struct Completion {
    #[arg(
        value_name = "SHELL",
        trailing_var_arg = true,
        allow_hyphen_values = true
    )]
    words: Vec<String>,
}

impl Run for Completion {
    fn run(self, invocation: &Invocation) -> Outcome {
        let words: Vec<&str> = self.words.iter().map(String::as_str).collect();
        match words.as_slice() {
            ["bash"] => print(include_str!("beanpole.bash").into()),
            ["zsh"] => print(include_str!("beanpole.zsh").into()),
            ["fish"] => print(include_str!("beanpole.fish").into()),
            ["words", words @ ..] => print(candidates(invocation, &joined(words))),
            [other] => Failure::usage(format!("'{other}' is not bash, zsh or fish")),
            _ => Failure::usage("for which shell? bash, zsh or fish"),
        }
    }
}

/// The words as they were typed: bash has split them at their colons.
fn joined(words: &[&str]) -> Vec<String> {
    let mut joined: Vec<String> = Vec::new();
    for word in words {
        match joined.last_mut() {
            Some(last) if *word == ":" || last.ends_with(':') => *last += word,
            _ => joined.push((*word).into()),
        }
    }
    joined
}

/// The candidates for the last of these words. The first line of the result
/// tells their kind. If the kind is `words`, each candidate follows in a line
/// of its own, with its meaning.
fn candidates(invocation: &Invocation, words: &[String]) -> String {
    let Some((last, before)) = words.split_last() else {
        return String::new();
    };
    let commands = || {
        invocation
            .commands()
            .map(|command| (command.name.into(), command.about))
    };
    let mut parser = program();
    let (mut command, mut operands, mut address) = (None::<&Entry>, 0, None);
    let mut value: Option<Arg> = None;
    // Whether an option that follows belongs to this program.
    let mut is_ours = true;
    for word in before {
        if let Some(option) = value.take() {
            if option.get_long() == Some("addr") {
                address = Some(word.as_str());
            }
        } else if word.starts_with('-') && is_ours {
            let takes_value = |option: &&Arg| names(option).contains(word);
            value = parser.get_opts().find(takes_value).cloned();
        } else if command.is_some() {
            operands += 1;
            is_ours &= !parser.get_positionals().any(Arg::is_trailing_var_arg_set);
        } else if let Some(named) = invocation.commands().find(|known| known.name == word) {
            command = Some(named);
            parser = named.parser();
        }
    }
    parser.build();
    let operand = || {
        parser
            .get_positionals()
            .nth(operands)
            .or(parser.get_positionals().last())
    };
    let arg = value.as_ref().or_else(operand);
    let found: Vec<(String, &str)> = match (arg, command) {
        _ if value.is_none() && last.starts_with('-') && is_ours => {
            let options = parser.get_arguments().filter(|arg| !arg.is_positional());
            let about = |option: &Arg| option.get_help().map(ToString::to_string);
            let all: Vec<_> = options
                .flat_map(|option| {
                    names(option)
                        .into_iter()
                        .map(|name| (name, about(option).unwrap_or_default()))
                })
                .collect();
            return listed(
                last,
                all.iter()
                    .map(|(name, about)| (name.clone(), about.as_str())),
            );
        }
        (None, None) => commands().collect(),
        (None, Some(_)) => return String::new(),
        (Some(arg), _) => match arg.get_value_names().unwrap_or_default() {
            [name] if ["TUBE", "FROM", "TO"].contains(&name.as_str()) => tubes(invocation, address),
            [name] if name == "COMMAND|protocol" => {
                commands().chain([("protocol".into(), "")]).collect()
            }
            [name] if name == "SHELL" => ["bash", "zsh", "fish"]
                .map(|shell| (shell.into(), ""))
                .into(),
            _ => match (arg.get_value_hint(), arg.get_possible_values().as_slice()) {
                (ValueHint::FilePath, _) => return "files\n".into(),
                (ValueHint::CommandName, _) => return "programs\n".into(),
                (ValueHint::DirPath, _) => return "directories\n".into(),
                (_, values) => values
                    .iter()
                    .map(|value| (value.get_name().into(), ""))
                    .collect(),
            },
        },
    };
    listed(last, found.into_iter())
}

fn listed<'a>(last: &str, found: impl Iterator<Item = (String, &'a str)>) -> String {
    let mut text = String::from("words\n");
    for (word, about) in found.filter(|(word, _)| word.starts_with(last)) {
        text += format!("{word}\t{about}").trim_end();
        text.push('\n');
    }
    text
}

/// The tubes of the server that the line means; none if it does not answer.
fn tubes(invocation: &Invocation, address: Option<&str>) -> Vec<(String, &'static str)> {
    let named = address
        .map(Server::parse)
        .transpose()
        .map_err(Failure::Usage);
    let client = named.and_then(|named| {
        let server = named.as_ref().unwrap_or(&invocation.servers[0]);
        invocation.connect_to(&server.address)
    });
    let tubes = client.and_then(|mut client| client.tubes());
    tubes
        .unwrap_or_default()
        .into_iter()
        .map(|tube| (tube.to_string(), ""))
        .collect()
}

/// The names of an option as they are typed.
fn names(option: &Arg) -> Vec<String> {
    let short = option.get_short().map(|letter| format!("-{letter}"));
    let long = option.get_long().map(|name| format!("--{name}"));
    short.into_iter().chain(long).collect()
}
