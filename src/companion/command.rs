//! What a command is, and one run of it.
//!
//! A command is a struct whose fields are its options and operands, read by
//! clap, and a function [`run`](Run::run). The list of commands gives it a name
//! and a line of help. Usage texts and the completions of the shells come from
//! there.

use crate::failure::{Failure, Outcome, Status};
use crate::remote::address::{ADDRESS_VARIABLE, Servers as Named};
use crate::remote::client::{PATIENCE, ask_all};
use crate::remote::{Address, Client, Pattern, Patterns, Server};
use crate::text::output::{Output, complain, confirm};
use crate::values::{Parse, parse};
use beanpole::protocol::{JobId, TubeName};
use clap::error::{ContextKind, ErrorKind};
use clap::{Arg, ArgMatches, Args, ValueHint};
use serde::Serialize;
use std::collections::BTreeMap;
use std::error::Error;
use std::fmt::Display;
use std::time::Duration;

/// Which servers a command asks.
#[derive(Clone, Copy, PartialEq)]
pub enum Asks {
    Nobody,
    One,
    /// All that are named, or the first one that serves.
    Many,
    /// It is done to several servers, one after the other.
    Each,
}

/// A command: its fields are its options and operands.
pub trait Run: Args {
    /// The exit status of all failures, if this command has statuses of its own.
    const FAILED: Option<u8> = None;

    fn run(self, invocation: &Invocation) -> Outcome;
}

/// A command in the list of commands.
pub struct Entry {
    pub name: &'static str,
    /// One line of help.
    about: &'static str,
    pub asks: Asks,
    options: fn(clap::Command) -> clap::Command,
    pub run: fn(&ArgMatches, &Invocation) -> Outcome,
    pub failed: Option<u8>,
}

impl Entry {
    pub const fn of<C: Run>(asks: Asks, name: &'static str, about: &'static str) -> Entry {
        Entry {
            name,
            about,
            asks,
            options: C::augment_args,
            run: |matches, invocation| match C::from_arg_matches(matches) {
                Ok(command) => command.run(invocation),
                Err(error) => Err(said(&error)),
            },
            failed: C::FAILED,
        }
    }

    fn parser(&self) -> clap::Command {
        let mut parser = (self.options)(clap::Command::new(self.name)).mut_args(told_by_us);
        let is_timeout = |own: &Arg| own.get_long() == Some("timeout");
        if !parser.get_opts().any(is_timeout) {
            parser = Patience::augment_args(parser);
        }
        parser
            .about(self.about)
            .help_template("Usage: {usage}\n\n{about}\n\nOptions:\n{options}{after-help}\n")
    }
}

/// An option or operand whose shell offers no file names where no file is meant, and
/// which takes `-1` for a value, of which we say what is wrong.
fn told_by_us(argument: Arg) -> Arg {
    let is_option = !argument.is_positional();
    let takes = argument.get_action().takes_values();
    if !takes || argument.get_value_hint() != ValueHint::Unknown {
        return argument;
    }
    let told = argument.value_hint(ValueHint::Other);
    told.allow_negative_numbers(is_option)
        .hide_default_value(true)
}

/// What reads the command line of the program with these commands.
pub fn program<'a>(commands: impl Iterator<Item = &'a Entry>) -> clap::Command {
    let parser = Servers::augment_args(clap::Command::new("beanpole"));
    Patience::augment_args(parser)
        .version(env!("CARGO_PKG_VERSION"))
        .about("Inspects a work queue that speaks the beanstalk protocol, and works with it.")
        .after_help(format!(
            "Options may come before the command or after it. The server is that of\n\
             {ADDRESS_VARIABLE}, or else 127.0.0.1:11300. beanpole(1) has examples."
        ))
        .help_template(
            "Usage: {usage}\n\n{about}\n\nCommands:\n{subcommands}\n\n\
             Options:\n{options}{after-help}\n",
        )
        // The last option of several of the same kind counts. Nothing is wrapped.
        .args_override_self(true)
        .term_width(usize::MAX)
        .subcommands(commands.map(Entry::parser))
}

// The options that every command takes, before its name or after it. (They are
// no text of the documentation, since clap would take that for its help.)
#[derive(Args)]
pub struct Servers {
    /// the server: HOST:PORT, PORT, unix:PATH or names, as in '*' (default: 11300)
    #[arg(short = 'a', long = "addr", value_name = "ADDR", global = true, value_hint = ValueHint::Other, value_parser = parse::<Named>)]
    pub servers: Vec<Named>,
}

// A command with a --timeout of its own takes that of the program before its name only.
#[derive(Args)]
pub struct Patience {
    /// wait TIME for a reply (by default at most 10s)
    #[arg(id = "patience", long = "timeout", value_name = "TIME", value_parser = interval)]
    pub patience: Option<Duration>,
}

// Options that several commands share.

/// The ids in these operands, one at least. A single `-` stands for those on
/// standard input, separated by any white space.
pub fn ids(operands: &[String]) -> Outcome<Vec<JobId>> {
    match operands {
        [] => Failure::usage("which job? give its id"),
        // All are read before the command begins, so that a word that is no id does
        // no harm.
        [only] if only == INPUT => {
            let text = std::io::read_to_string(std::io::stdin())
                .map_err(Failure::of("cannot read standard input"))?;
            let ids: Outcome<_> = text.split_whitespace().map(word).collect();
            ids.map_err(|failure| failure.about("standard input"))
        }
        ids => ids.iter().map(|text| id(text)).collect(),
    }
}

fn id(text: &str) -> Outcome<JobId> {
    JobId::parse(text).map_err(|reason| match TubeName::parse(text.as_bytes()) {
        Some(tube) => Failure::Usage(format!("{reason}; a tube is named by -t {tube}")),
        None => Failure::Usage(reason),
    })
}

/// Tubes as operands or after `-t`, for commands without other operands.
#[derive(Args)]
pub struct Tubes {
    #[arg(value_name = "TUBE", value_parser = parse::<Pattern>)]
    pub operands: Vec<Pattern>,
    /// a tube or a pattern; may be repeated (default: the operands)
    #[arg(short = 't', long = "tube", value_name = "TUBE", value_parser = parse::<Pattern>)]
    tubes: Vec<Pattern>,
}

impl Tubes {
    pub fn patterns(&self) -> Patterns {
        Patterns([self.operands.clone(), self.tubes.clone()].concat())
    }
}

/// One run of a command: what the command line says.
pub struct Invocation {
    /// The servers that were named, at least one; none if nobody is asked.
    pub servers: Vec<Server>,
    /// How long a server may be silent before we give up, if the user says it.
    pub timeout: Option<Duration>,
    /// Whether the same is done to other servers.
    pub is_one_of_many: bool,
}

/// Whether a command that changes several servers asks at each.
#[derive(Args)]
pub struct Sure {
    /// do not ask on each of several servers
    #[arg(short, long)]
    yes: bool,
}

impl Sure {
    /// Whether this is to be done to the server of this run.
    pub fn confirm(&self, invocation: &Invocation, what: impl Display) -> Outcome<bool> {
        if self.yes || !invocation.is_one_of_many {
            return Ok(true);
        }
        confirm(format_args!("{what} at {}?", invocation.servers[0].title()))
    }
}

impl Invocation {
    /// How long a server may be silent before we give up.
    pub fn patience(&self) -> Duration {
        self.timeout.unwrap_or(PATIENCE)
    }

    /// Asks each server, prints what they answer, and returns it. If several are asked, JSON
    /// is an object with their addresses, and each text comes under the name of its server.
    /// One that fails does not hide the answers of the others: it is told after these.
    pub fn show_each<T: Serialize + Send>(
        &self,
        as_json: bool,
        ask: impl Fn(&mut Client) -> Outcome<T> + Sync,
        to_text: impl Fn(&T) -> String,
    ) -> Outcome<Vec<T>> {
        let all = ask_all(&self.servers, |server| {
            ask(&mut self.connect_to(&server.address)?)
        });
        let (mut output, is_one) = (Output::new(), self.servers.len() == 1);
        let (mut found, mut failures) = (Vec::new(), Vec::new());
        for (server, answer) in self.servers.iter().zip(all) {
            match answer {
                Ok(answer) => found.push((server, answer)),
                Err(failure) if is_one => return Err(failure),
                Err(failure) => failures.push(server.of_it(failure)),
            }
        }
        match found.as_slice() {
            [] => {}
            [(_, only)] if is_one && as_json => output.json(only)?,
            all if as_json => {
                let each = all.iter();
                let each = each.map(|(server, answer)| (server.address.to_string(), answer));
                output.json(&each.collect::<BTreeMap<_, _>>())?;
            }
            all => {
                let texts = all.iter().map(|(server, answer)| match is_one {
                    true => to_text(answer),
                    false => format!("{}\n{}", server.title(), to_text(answer)),
                });
                output.bytes(texts.collect::<Vec<_>>().join("\n").as_bytes())?;
            }
        }
        output.sync()?;
        last_of(failures)?;
        Ok(found.into_iter().map(|(_, answer)| answer).collect())
    }

    /// A connection to the server; the first one, if there are several.
    pub fn connect(&self) -> Outcome<Client> {
        self.connect_to(&self.servers[0].address)
    }

    /// A connection to this server.
    pub fn connect_to(&self, address: &Address) -> Outcome<Client> {
        Client::connect(address, self.patience())
    }
}

/// The failure of a command that has failed for several servers, whose status counts: that
/// one cannot be reached counts more than what others lack or refuse. The others are
/// reported at once.
pub fn last_of(failures: impl IntoIterator<Item = Failure>) -> Outcome {
    let mut all: Vec<_> = failures.into_iter().collect();
    all.sort_by_key(|failure| match failure {
        Failure::Missing(_) => 0,
        Failure::Refused(_) => 1,
        Failure::Unreachable(_) => 2,
        // These have ended the command.
        _ => 3,
    });
    let last = all.pop();
    all.iter().for_each(|failure| complain!("{failure}"));
    last.map_or(Ok(Status::Done), Err)
}

/// What clap says of a command line, without its advice about usage. Of a value
/// that cannot be read it is only said why.
pub fn said(error: &clap::Error) -> Failure {
    let named = error.get(ContextKind::InvalidArg).map(ToString::to_string);
    let option = named.filter(|option| option.starts_with("--"));
    Failure::Usage(match (error.kind(), error.source()) {
        (ErrorKind::ValueValidation, Some(reason)) => match option.as_deref() {
            Some(option) => format!("{}: {reason}", option.split(' ').next().unwrap_or(option)),
            None => reason.to_string(),
        },
        _ => {
            let whole = error.to_string();
            let text = whole.trim_start_matches("error: ");
            let said = text
                .split("\n\nUsage:")
                .flat_map(|said| said.split("\n\nFor more"));
            let parts = said.take(1).flat_map(str::lines).map(str::trim);
            // Of an option with a mistake it would say how to pass it as a value, and for
            // `resume` it would name `reserve`.
            let misleads = [
                " as a value, use ",
                "tip: a similar sub",
                "tip: some similar sub",
            ];
            let is_said =
                |line: &&str| !line.is_empty() && !misleads.iter().any(|part| line.contains(part));
            let lines: Vec<_> = parts.filter(is_said).collect();
            lines.join("; ").replace(":;", ":")
        }
    })
}

/// The operand that stands for standard input.
pub const INPUT: &str = "-";

/// Reads a time between a hundredth of a second and a day, for things that this program
/// does itself.
pub fn interval(text: &str) -> Result<Duration, String> {
    let bounds = Duration::from_millis(10)..=Duration::from_secs(86_400);
    let time = <Duration as Parse>::parse(text)?;
    let wrong = || format!("'{text}' is not a time from 0.01 seconds to a day");
    Some(time)
        .filter(|time| bounds.contains(time))
        .ok_or_else(wrong)
}

/// Reads an operand as a value of the type `T`.
pub fn word<T: Parse>(text: &str) -> Outcome<T> {
    T::parse(text).map_err(Failure::Usage)
}
