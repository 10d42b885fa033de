//! Completions for bash, zsh and fish.
//!
//! The candidates for a word are found here, from the table of commands. The
//! scripts of the shells know no candidates: they ask this program each time.
//! The names of tubes come from the server that the line has named up to now.
//! If that server does not answer, there are no candidates.

use crate::command::{Command, GLOBAL, Invocation, Kind, Opt, described};
use crate::failure::{Failure, Outcome};
use crate::server::names::Server;
use crate::text::output::print;
use crate::values::Parse;

pub const COMPLETION: Command = Command {
    name: "completion",
    operands: "bash|zsh|fish",
    operand_kind: Kind::Words(&["bash", "zsh", "fish"]),
    about: "write the completion for a shell",
    options_first: true,
    run: completion,
    ..Command::BLANK
};

fn completion(invocation: &Invocation) -> Outcome {
    let operands: Vec<&str> = invocation.operands().iter().map(String::as_str).collect();
    match operands.as_slice() {
        ["bash"] => print(include_str!("beanpole.bash").into()),
        ["zsh"] => print(include_str!("beanpole.zsh").into()),
        ["fish"] => print(include_str!("beanpole.fish").into()),
        ["words", words @ ..] => print(complete(invocation, &joined(words))),
        [other] => Failure::usage(format!("'{other}' is not bash, zsh or fish")),
        _ => Failure::usage("for which shell? bash, zsh or fish"),
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

/// A command line up to its last word, which is not included.
#[derive(Default)]
struct Line {
    command: Option<&'static Command>,
    /// How many operands the command has so far.
    operands: usize,
    /// The option whose value comes next.
    option: Option<Opt>,
    /// The address of the server, if the line names one.
    address: Option<String>,
}

impl Line {
    fn read(invocation: &Invocation, words: &[String]) -> Line {
        let mut line = Line::default();
        for word in words {
            if let Some(option) = line.option.take() {
                if option.long == "addr" {
                    line.address = Some(word.clone());
                }
            } else if word.starts_with('-') && line.takes_options() {
                let mut options = line.options().into_iter();
                let is_it = |option: &Opt| names(*option).any(|name| name == *word);
                line.option = options.find(|option| !option.value.is_empty() && is_it(option));
            } else if line.command.is_some() {
                line.operands += 1;
            } else {
                line.command = invocation.commands().find(|command| command.name == word);
            }
        }
        line
    }

    /// Whether an option that follows belongs to this program.
    fn takes_options(&self) -> bool {
        let is_foreign = |command: &Command| command.options_first && self.operands > 0;
        !self.command.is_some_and(is_foreign)
    }

    /// The options that may follow.
    fn options(&self) -> Vec<Opt> {
        match self.command {
            None => described(GLOBAL),
            Some(command) => [(command.options)(), described(command.common_settings())].concat(),
        }
    }

    /// The tubes of the server that the line means; none if it does not answer.
    fn tubes(&self, invocation: &Invocation) -> impl Iterator<Item = String> {
        let named = self.address.as_ref().map(|text| Server::parse(text));
        let named = named.transpose().map_err(Failure::Usage);
        let client = named.and_then(|named| {
            let server = named.as_ref().unwrap_or(&invocation.servers[0]);
            invocation.connect_to(&server.address)
        });
        let tubes = client.and_then(|mut client| client.tubes());
        tubes
            .unwrap_or_default()
            .into_iter()
            .map(|tube| tube.to_string())
    }
}

/// The names of an option as they are typed.
fn names(option: Opt) -> impl Iterator<Item = String> {
    let short = (!option.short.is_empty()).then(|| format!("-{}", option.short));
    short.into_iter().chain([format!("--{}", option.long)])
}

/// The candidates for the last of these words. The first line of the result
/// tells their kind. If the kind is `words`, each candidate follows in a line
/// of its own, with its meaning.
fn complete(invocation: &Invocation, words: &[String]) -> String {
    let Some((last, before)) = words.split_last() else {
        return String::new();
    };
    let line = Line::read(invocation, before);
    let commands = invocation.commands();
    let commands = commands.map(|command| (command.name.to_owned(), command.about));
    let plain = |words: &[&str]| words.iter().map(|word| (String::from(*word), "")).collect();
    let kind = match (line.option, line.command) {
        (Some(option), _) => option.kind,
        (None, Some(command)) => command.operand_kind,
        (None, None) => Kind::CommandOr(""),
    };
    let candidates: Vec<(String, &str)> = match kind {
        _ if line.option.is_none() && last.starts_with('-') && line.takes_options() => {
            let named = |option: Opt| names(option).map(move |name| (name, option.about));
            line.options().into_iter().flat_map(named).collect()
        }
        Kind::Free => return String::new(),
        Kind::File => return "files\n".into(),
        Kind::Program => return "programs\n".into(),
        Kind::WordThenDirectories(_) if line.operands > 0 => return "directories\n".into(),
        Kind::Words(words) | Kind::WordThenDirectories(words) => plain(words),
        Kind::CommandOr("") => commands.collect(),
        Kind::CommandOr(word) => commands.chain([(word.into(), "")]).collect(),
        Kind::Tube => line.tubes(invocation).map(|tube| (tube, "")).collect(),
    };
    let mut text = String::from("words\n");
    for (word, about) in candidates.iter().filter(|(word, _)| word.starts_with(last)) {
        text += format!("{word}\t{about}").trim_end();
        text.push('\n');
    }
    text
}
