//! Completions for bash, zsh and fish.
//!
//! The candidates for a word are found here, from what clap knows of the
//! commands. The scripts of the shells know no candidates: they ask this program
//! each time. Bash would run some names of tubes, so its script quotes them.
//! The names of tubes come from the server that the line has named up to now.
//! If that server does not answer, there are no candidates.

use crate::command::{Invocation, Run, program, word};
use crate::failure::{Failure, Outcome};
use crate::server::address::Server;
use crate::text::output::print;
use beanpole::protocol::command;
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

/// A word that may stand there, and its meaning.
type Candidate = (String, String);

/// The candidates for the last of these words. The first line of the result
/// tells their kind. If the kind is `words`, each candidate follows in a line
/// of its own, with its meaning.
fn candidates(invocation: &Invocation, words: &[String]) -> String {
    let Some((last, before)) = words.split_last() else {
        return String::new();
    };
    let mut parser = program();
    let (mut command, mut operands, mut address) = (None, 0, None);
    // The option whose value comes next.
    let mut option: Option<Arg> = None;
    // Whether an option that follows belongs to this program.
    let mut is_ours = true;
    for word in before {
        if let Some(option) = option.take() {
            address = Some(word)
                .filter(|_| option.get_long() == Some("addr"))
                .or(address);
        } else if word.starts_with('-') && is_ours {
            let takes_value = |option: &&Arg| names(option).any(|name| name == *word);
            option = parser.get_opts().find(takes_value).cloned();
        } else if command.is_some() {
            operands += 1;
            is_ours &= !parser.get_positionals().any(Arg::is_trailing_var_arg_set);
        } else if let Some(named) = invocation.commands().find(|known| known.name == word) {
            command = Some(named);
            parser = named.parser();
        }
    }
    parser.build();
    let operand = parser.get_positionals().nth(operands);
    let operand = operand.or(parser.get_positionals().last());
    let found: Vec<Candidate> = match (option.as_ref(), operand, command) {
        (None, ..) if last.starts_with('-') && is_ours => {
            let about = |option: &Arg| option.get_help().map(ToString::to_string);
            let named =
                |option| names(option).map(move |name| (name, about(option).unwrap_or_default()));
            parser.get_arguments().flat_map(named).collect()
        }
        (None, _, None) => commands(invocation),
        (Some(arg), ..) | (None, Some(arg), _) => match values_of(invocation, arg, address) {
            Ok(found) => found,
            Err(kind) => return kind.into(),
        },
        (None, None, _) => return String::new(),
    };
    let found = found.iter().filter(|(word, _)| word.starts_with(last));
    let lines = found.map(|(word, about)| format!("{word}\t{about}").trim_end().to_owned() + "\n");
    ["words\n".into()].into_iter().chain(lines).collect()
}

/// The values of an option or an operand; an error is the line for a kind that
/// the shell knows.
fn values_of(
    invocation: &Invocation,
    arg: &Arg,
    address: Option<&String>,
) -> Result<Vec<Candidate>, &'static str> {
    let words = |words: Vec<String>| {
        words
            .into_iter()
            .map(|word| (word, String::new()))
            .collect()
    };
    let name = arg.get_value_names().and_then(|names| names.first());
    Ok(
        match (name.map(|name| name.as_str()), arg.get_value_hint()) {
            (Some("TUBE" | "FROM" | "TO"), _) => {
                words(tubes(invocation, address).unwrap_or_default())
            }
            (Some("COMMAND|protocol"), _) => {
                [commands(invocation), words(vec!["protocol".into()])].concat()
            }
            (Some("SHELL"), _) => words(["bash", "zsh", "fish"].map(String::from).into()),
            (Some("REQUEST"), _) => words(command::names().map(String::from).collect()),
            (_, ValueHint::FilePath) => return Err("files\n"),
            (_, ValueHint::CommandName) => return Err("programs\n"),
            (_, ValueHint::DirPath) => return Err("directories\n"),
            _ => {
                let values = arg.get_possible_values();
                words(values.iter().map(|value| value.get_name().into()).collect())
            }
        },
    )
}

fn commands(invocation: &Invocation) -> Vec<Candidate> {
    let commands = invocation.commands();
    commands
        .map(|command| (command.name.into(), command.about.into()))
        .collect()
}

/// The tubes of the server that the line means.
fn tubes(invocation: &Invocation, address: Option<&String>) -> Outcome<Vec<String>> {
    let named = address.map(|address| word::<Server>(address)).transpose()?;
    let server = named.as_ref().unwrap_or(&invocation.servers[0]);
    let tubes = invocation.connect_to(&server.address)?.tubes()?;
    Ok(tubes.iter().map(ToString::to_string).collect())
}

/// The names of an option as they are typed.
fn names(option: &Arg) -> impl Iterator<Item = String> {
    let short = option.get_short().map(|letter| format!("-{letter}"));
    let long = option.get_long().map(|name| format!("--{name}"));
    short.into_iter().chain(long)
}
