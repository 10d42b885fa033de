//! What a command is, and one run of it.
//!
//! A command is a struct whose fields are its options and operands, read by
//! clap, and a function [`run`](Run::run). The list of commands gives it a name
//! and a line of help. Parsing, usage texts and the completions of the shells
//! come from there.

use crate::failure::{Failure, Outcome};
use crate::server::address::Address;
use crate::server::client::Client;
use crate::server::form::Form;
use crate::server::names::Server;
use crate::server::tubes::{Pattern, Patterns};
use crate::text::json::{self, Json};
use crate::text::output::{complain, print};
use crate::values::{self, Parse};
use beanpole::protocol::{JobId, TubeName};
use clap::builder::StyledStr;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{ArgMatches, Args};
use std::error::Error;
use std::process::ExitCode;
use std::time::Duration;

/// A command: its fields are its options and operands.
pub trait Run: Args {
    /// Whether it takes several servers: to ask all of them, or the first one
    /// that serves.
    const MANY_SERVERS: bool = false;

    fn run(self, invocation: &Invocation) -> Outcome;

    /// The exit status of a failure, if this command has statuses of its own.
    fn exit_code(failure: &Failure) -> ExitCode {
        failure.exit_code()
    }
}

/// A command in the list of commands.
#[derive(Clone, Copy)]
pub struct Entry {
    pub name: &'static str,
    /// One line of help.
    pub about: &'static str,
    pub many_servers: bool,
    options: fn(clap::Command) -> clap::Command,
    run: fn(&ArgMatches, &Invocation) -> Outcome,
    pub exit_code: fn(&Failure) -> ExitCode,
}

impl Entry {
    pub const fn of<C: Run>(name: &'static str, about: &'static str) -> Entry {
        Entry {
            name,
            about,
            many_servers: C::MANY_SERVERS,
            options: C::augment_args,
            run: |matches, invocation| match C::from_arg_matches(matches) {
                Ok(command) => command.run(invocation),
                Err(error) => Err(Failure::Usage(error.to_string())),
            },
            exit_code: C::exit_code,
        }
    }

    /// What reads its command line, with the options that all commands take.
    pub fn parser(&self) -> clap::Command {
        let parser = (self.options)(clap::Command::new(self.name));
        let own_timeout = parser
            .get_opts()
            .any(|own| own.get_long() == Some("timeout"));
        let parser = Servers::augment_args(parser);
        let parser = match own_timeout {
            true => parser,
            false => Patience::augment_args(parser),
        };
        // A last option of several of the same kind counts. Nothing is
        // wrapped: a line of help is one.
        let mut about = self.about.chars();
        let first = about.next().map(char::to_uppercase).into_iter().flatten();
        parser
            .about(first.chain(about).collect::<String>())
            .bin_name(format!("beanpole {}", self.name))
            .disable_help_flag(true)
            .args_override_self(true)
            .term_width(usize::MAX)
            .help_template("Usage: {usage}\n\n{about}.\n\nOptions:\n{options}\n")
    }

    pub fn run(&self, matches: &ArgMatches, invocation: &Invocation) -> Outcome {
        (self.run)(matches, invocation)
    }
}

// The options that every command takes, before its name or after it. (They are
// no text of the documentation, since clap would take that for its help.)
#[derive(Args)]
pub struct Servers {
    /// the server: HOST:PORT, PORT, unix:PATH or a name (default: 11300)
    #[arg(short = 'a', long = "addr", value_name = "ADDR", value_parser = values::parse::<Server>)]
    pub servers: Vec<Server>,
    /// show the usage
    #[arg(short, long, action = clap::ArgAction::HelpShort)]
    help: Option<bool>,
}

#[derive(Args)]
pub struct Patience {
    /// wait TIME for a reply (default: 10)
    #[arg(id = "patience", long = "timeout", value_name = "TIME", value_parser = values::parse::<Interval>)]
    pub patience: Option<Interval>,
}

// Options that several commands share.

/// The ids in these operands, one at least. A single `-` stands for those on
/// standard input.
pub fn ids(operands: &[String]) -> Outcome<Vec<JobId>> {
    match operands {
        [] => Failure::usage("which job? give its id"),
        [only] if only == INPUT => ids_of_input(),
        ids => ids.iter().map(|text| id(text)).collect(),
    }
}

fn id(text: &str) -> Outcome<JobId> {
    JobId::parse(text).map_err(|reason| match TubeName::parse(text.as_bytes()) {
        Some(tube) => Failure::Usage(format!("{reason}; a tube is named by -t {tube}")),
        None => Failure::Usage(reason),
    })
}

/// The name of a tube or a pattern of names.
pub fn pattern(text: &str) -> Result<Pattern, String> {
    Pattern::parse(text)
}

/// Tubes where nothing else can stand: as operands or after `-t`.
#[derive(Args)]
pub struct Tubes {
    #[arg(value_name = "TUBE", value_parser = pattern)]
    operands: Vec<Pattern>,
    /// a tube or a pattern; may be repeated (default: the operands)
    #[arg(short = 't', long = "tube", value_name = "TUBE", value_parser = pattern)]
    tubes: Vec<Pattern>,
}

impl Tubes {
    pub fn patterns(&self) -> Patterns {
        Patterns([self.operands.clone(), self.tubes.clone()].concat())
    }
}

/// How bodies are written.
#[derive(Args)]
pub struct Bodies {
    /// write a line feed after each body
    #[arg(short, long)]
    pub lines: bool,
    /// write a NUL after each body
    #[arg(short = '0', long, conflicts_with = "lines")]
    pub null: bool,
    /// write each job as a line of JSON
    #[arg(short, long, conflicts_with_all = ["lines", "null"])]
    pub json: bool,
}

impl Bodies {
    pub fn form(&self) -> Form {
        Form::of(self.lines, self.null, self.json)
    }
}

/// Commands that belong together.
pub struct Group {
    pub title: &'static str,
    /// Whether they change the content of a server.
    pub changes: bool,
    pub commands: &'static [Entry],
}

/// One run of a command: what the command line says.
pub struct Invocation {
    /// The servers that were named, at least one.
    pub servers: Vec<Server>,
    /// How long a server may be silent before we give up.
    pub patience: Duration,
    /// All commands, for commands that describe them.
    pub groups: &'static [Group],
}

/// What each server has answered.
pub type Answers<'a, T> = Vec<(&'a Server, T)>;

impl Invocation {
    /// All commands.
    pub fn commands(&self) -> impl Iterator<Item = &'static Entry> {
        self.groups.iter().flat_map(|group| group.commands)
    }

    /// Asks each server. One that fails does not hide the answers of the
    /// others: the second result is its failure, for the end.
    pub fn ask_each<T>(
        &self,
        mut ask: impl FnMut(&mut Client) -> Outcome<T>,
    ) -> Outcome<(Answers<'_, T>, Outcome<()>)> {
        let mut found = Vec::new();
        let mut failures = Vec::new();
        for server in &self.servers {
            let answer = self.connect_to(&server.address);
            match answer.and_then(|mut client| ask(&mut client)) {
                Ok(answer) => found.push((server, answer)),
                Err(failure @ Failure::Unreachable(_)) => failures.push(failure),
                Err(failure) if self.servers.len() == 1 => return Err(failure),
                Err(failure) => failures.push(failure.about(server.title())),
            }
        }
        let last = failures.pop();
        for failure in failures {
            complain!("{failure}");
        }
        Ok((found, last.map_or(Ok(()), Err)))
    }

    /// What the servers have answered as JSON: an object with their addresses,
    /// or the answer alone if one was asked.
    pub fn as_json(&self, found: Answers<'_, Json>) -> String {
        let mut found = found.into_iter();
        json::line(&match self.servers.len() {
            1 => found.next().map_or(Json::Null, |(_, json)| json),
            _ => found
                .map(|(server, json)| (server.address.to_string(), json))
                .collect(),
        }) + "\n"
    }

    /// The same as text: each under the name of its server if several were
    /// asked.
    pub fn as_text(&self, found: Answers<'_, String>) -> String {
        if self.servers.len() == 1 {
            return found.into_iter().map(|(_, text)| text).collect();
        }
        let parts = found
            .iter()
            .map(|(server, text)| format!("{}\n{text}", server.title()));
        parts.collect::<Vec<_>>().join("\n")
    }

    /// The address of the server; the first one, if there are several.
    pub fn address(&self) -> &Address {
        &self.servers[0].address
    }

    /// A connection to the server.
    pub fn connect(&self) -> Outcome<Client> {
        self.connect_to(self.address())
    }

    /// A connection to the first of the servers that serves.
    pub fn connect_to_first(&self) -> Outcome<Client> {
        Client::first_of(&self.addresses(), self.patience)
    }

    /// The addresses of the servers.
    pub fn addresses(&self) -> Vec<Address> {
        self.servers
            .iter()
            .map(|server| server.address.clone())
            .collect()
    }

    /// A connection to this server.
    pub fn connect_to(&self, address: &Address) -> Outcome<Client> {
        let mut client = Client::connect(address, self.patience)?;
        client.tells = true;
        Ok(client)
    }
}

/// What reads the options before the name of a command.
pub fn program() -> clap::Command {
    Patience::augment_args(Servers::augment_args(clap::Command::new("beanpole")))
        .version(env!("CARGO_PKG_VERSION"))
        .disable_help_flag(true)
        .disable_help_subcommand(true)
        .args_override_self(true)
}

/// Another word for a pause of 0.
pub const RESUME: &str = "resume";

/// The group and the command of this name.
pub fn find(groups: &'static [Group], name: &str) -> Outcome<(&'static Group, &'static Entry)> {
    let wanted = if name == RESUME { "pause" } else { name };
    let pairs = |group: &'static Group| group.commands.iter().map(move |one| (group, one));
    let mut commands = groups.iter().flat_map(pairs);
    let known: Vec<_> = commands.clone().map(|(_, command)| command.name).collect();
    commands
        .find(|(_, command)| command.name == wanted)
        .ok_or_else(|| {
            // The error of clap names the command that a typo may stand for.
            let program = clap::Command::new("beanpole").disable_help_subcommand(true);
            let program = program.subcommands(known.into_iter().map(clap::Command::new));
            said(
                &program
                    .try_get_matches_from(["beanpole", name])
                    .expect_err("none has this name"),
            )
        })
}

/// Answers what clap does not take for a command: it wants the version, or is
/// wrong.
pub fn refused(error: clap::Error) -> Outcome {
    match error.kind() {
        ErrorKind::DisplayVersion => print(error.to_string()),
        _ => Err(said(&error)),
    }
}

/// What clap says of a command line, in the words of this program.
fn said(error: &clap::Error) -> Failure {
    let text = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => text.clone(),
        Some(ContextValue::Strings(texts)) => texts.join(", "),
        Some(ContextValue::StyledStrs(texts)) => texts
            .iter()
            .map(StyledStr::to_string)
            .collect::<Vec<_>>()
            .join(", "),
        _ => String::new(),
    };
    // An option comes with the name of its value.
    let name = |text: String| text.split(' ').next().unwrap_or_default().to_owned();
    let option = name(text(ContextKind::InvalidArg));
    let about = |what: String| match option.starts_with("--") {
        true => format!("{option}: {what}"),
        false => what,
    };
    let value = text(ContextKind::InvalidValue);
    Failure::Usage(match error.kind() {
        ErrorKind::ValueValidation => {
            about(error.source().map(ToString::to_string).unwrap_or_default())
        }
        ErrorKind::InvalidValue if value.is_empty() => {
            format!("flag requires an argument: {option}")
        }
        ErrorKind::InvalidValue => about(format!(
            "'{value}' is none of {}",
            text(ContextKind::ValidValue)
        )),
        ErrorKind::InvalidSubcommand => {
            let name = text(ContextKind::InvalidSubcommand);
            let similar = text(ContextKind::SuggestedSubcommand);
            // The best one comes last, but the beginning of a word says more.
            let begun = similar.split(", ").find(|known| known.starts_with(&name));
            let hint = match begun.or(similar.split(", ").last()) {
                None | Some("") => String::new(),
                Some(known) => format!(": did you mean '{known}'?"),
            };
            format!("there is no command '{name}'{hint}")
        }
        ErrorKind::UnknownArgument if option.starts_with('-') => {
            match text(ContextKind::SuggestedArg) {
                similar if similar.is_empty() => format!("unknown flag: {option}"),
                similar => format!("unknown flag: {option}: did you mean '{similar}'?"),
            }
        }
        ErrorKind::UnknownArgument => format!("it takes no operand '{option}'"),
        ErrorKind::ArgumentConflict => {
            let other = name(text(ContextKind::PriorArg));
            format!("{other} and {option} exclude each other")
        }
        ErrorKind::TooManyValues => format!("flag takes no argument: {option}"),
        _ => {
            let text = error.to_string();
            text.lines()
                .next()
                .unwrap_or_default()
                .trim_start_matches("error: ")
                .into()
        }
    })
}

/// The operand that stands for standard input.
pub const INPUT: &str = "-";

/// The ids on standard input, separated by any white space. All are read before
/// the command begins, so that a word that is no id does no harm.
pub fn ids_of_input() -> Outcome<Vec<JobId>> {
    let text = std::io::read_to_string(std::io::stdin());
    let text = text.map_err(|error| Failure::io("cannot read standard input", error))?;
    let ids: Outcome<_> = text.split_whitespace().map(word).collect();
    ids.map_err(|failure| failure.about("standard input"))
}

/// A number within these bounds.
#[derive(Clone, Copy)]
pub struct Number<const LEAST: u64, const MOST: u64>(pub usize);

impl<const LEAST: u64, const MOST: u64> Parse for Number<LEAST, MOST> {
    fn parse(text: &str) -> Result<Self, String> {
        let number = values::number(text, LEAST, MOST)?;
        let too_large = |_| format!("'{text}' is more than this machine can count");
        usize::try_from(number).map(Number).map_err(too_large)
    }
}

/// A time between a hundredth of a second and a day, for things that this
/// program does itself.
#[derive(Clone, Copy)]
pub struct Interval(pub Duration);

impl Parse for Interval {
    fn parse(text: &str) -> Result<Interval, String> {
        let time = Duration::parse(text)?;
        let bounds = Duration::from_millis(10)..=Duration::from_secs(86_400);
        match bounds.contains(&time) {
            true => Ok(Interval(time)),
            false => Err(format!("'{text}' is not a time from 0.01 seconds to a day")),
        }
    }
}

/// Reads an operand as a value of the type `T`.
pub fn word<T: Parse>(text: &str) -> Outcome<T> {
    T::parse(text).map_err(Failure::Usage)
}

/// Reads each of these operands as a value of the type `T`.
pub fn words<T: Parse>(texts: &[String]) -> Outcome<Vec<T>> {
    texts.iter().map(|text| word(text)).collect()
}

/// These tubes, or the tube `default` if there are none.
pub fn tubes_or_default(tubes: Vec<TubeName>) -> Vec<TubeName> {
    match tubes.is_empty() {
        true => vec![TubeName::default_tube()],
        false => tubes,
    }
}
