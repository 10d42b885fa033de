//! What a command is, and one run of it.
//!
//! A command is a struct whose fields are its options and operands, read by
//! clap, and a function [`run`](Run::run). The list of commands gives it a name
//! and a line of help. Parsing, usage texts and the completions of the shells
//! come from there.

use crate::failure::{Failure, Outcome, Status};
use crate::server::address::Address;
use crate::server::client::Client;
use crate::server::form::Form;
use crate::server::names::Server;
use crate::server::tubes::{Pattern, Patterns};
use crate::text::json::{self, Json};
use crate::text::output::{complain, print};
use crate::values::{self, Parse};
use beanpole::arguments::{self, Given};
use beanpole::protocol::{JobId, TubeName};
use clap::builder::StyledStr;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{ArgMatches, Args, ValueHint};
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
    /// A command of the form from before.
    pub old: Option<&'static Command>,
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
            old: None,
        }
    }

    pub const fn old(command: &'static Command) -> Entry {
        Entry {
            name: command.name,
            about: command.about,
            many_servers: command.many_servers,
            options: |parser| parser,
            run: |_, _| unreachable!(),
            exit_code: Failure::exit_code,
            old: Some(command),
        }
    }

    /// What reads its command line, with the options that all commands take.
    pub fn parser(&self) -> clap::Command {
        let parser = clap::Command::new(self.name);
        let parser = self
            .old
            .map_or_else(|| (self.options)(parser.clone()), Command::parser);
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

/// One command of the program.
pub struct Command {
    pub name: &'static str,
    /// The operands, as the usage shows them after the options.
    pub operands: &'static str,
    /// What an operand is.
    pub operand_kind: Kind,
    /// One line of help.
    pub about: &'static str,
    /// Its own options.
    pub options: fn() -> Vec<Opt>,
    /// Whether the first operand ends the options: all arguments after it
    /// belong to another program.
    pub options_first: bool,
    /// Whether it takes several servers: to ask all of them, or the first one
    /// that serves.
    pub many_servers: bool,
    pub run: fn(&Invocation) -> Outcome,
    /// The status of a failure, if this command has statuses of its own.
    pub failure_status: Option<fn(&Failure) -> Status>,
}

/// One option of a command.
#[derive(Clone, Copy)]
pub struct Opt {
    /// One letter, or nothing.
    pub short: &'static str,
    pub long: &'static str,
    /// The name of its value in the usage; empty for a flag.
    pub value: &'static str,
    pub kind: Kind,
    /// Whether it may be given several times.
    pub many: bool,
    pub about: &'static str,
}

/// What an operand or a value is, for completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A shell cannot complete it.
    Free,
    Tube,
    File,
    /// First one of these words, then directories.
    WordThenDirectories(&'static [&'static str]),
    /// The name of a program.
    Program,
    /// One of these words.
    Words(&'static [&'static str]),
}

/// Commands that belong together.
pub struct Group {
    pub title: &'static str,
    /// Whether they change the content of a server.
    pub changes: bool,
    pub commands: &'static [Entry],
}

/// The options of a command. Each comes with the function that reads a value
/// into its field, so no option is looked up by its name.
pub type Settings<O> = &'static [(Opt, fn(&mut O, &str) -> Result<(), String>)];

/// One run of a command: what the command line says.
pub struct Invocation {
    pub given: Given,
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
    /// The command's own options, read into their struct.
    pub fn read<O: Default>(&self, settings: Settings<O>) -> Outcome<O> {
        self.read_after(0, settings)
    }

    /// The options of these settings, whose table begins at the index `first`.
    pub fn read_after<O: Default>(&self, first: usize, settings: Settings<O>) -> Outcome<O> {
        let mut options = O::default();
        read(&self.given, first, settings, &mut options)?;
        Ok(options)
    }

    /// All commands.
    pub fn commands(&self) -> impl Iterator<Item = &'static Entry> {
        self.groups.iter().flat_map(|group| group.commands)
    }

    /// The operands.
    pub fn operands(&self) -> &[String] {
        &self.given.operands
    }

    /// Fails if there are operands.
    pub fn no_operands(&self) -> Outcome<()> {
        match self.operands() {
            [] => Ok(()),
            [first, ..] => Failure::usage(format!("it takes no operand '{first}'")),
        }
    }

    /// The operands, each the id of a job; there must be one at least. A single
    /// `-` stands for the ids on standard input.
    pub fn ids(&self) -> Outcome<Vec<JobId>> {
        match self.operands() {
            [] => Failure::usage("which job? give its id"),
            [only] if only == INPUT => ids_of_input(),
            ids => words(ids),
        }
    }

    /// The operands, each the name of a tube or a pattern of names.
    pub fn tubes(&self) -> Outcome<Patterns> {
        words(self.operands()).map(Patterns)
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

/// A question to put after an unknown word, if one of the known words is
/// similar.
pub fn did_you_mean<'a>(word: &str, known: impl Iterator<Item = &'a str>) -> String {
    let distances = known.map(|name| match word.len() > 2 && name.starts_with(word) {
        true => (0, name),
        false => (strsim::osa_distance(word, name), name),
    });
    match distances.min() {
        Some((distance, name)) if 3 * distance <= word.len() => {
            format!(": did you mean '{name}'?")
        }
        _ => String::new(),
    }
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

/// Reads the options of these settings; their table begins at the index
/// `first`.
pub fn read<O>(given: &Given, first: usize, settings: Settings<O>, into: &mut O) -> Outcome<()> {
    for (index, value) in &given.options {
        let own = index.checked_sub(first);
        if let Some((option, read)) = own.and_then(|own| settings.get(own)) {
            read(into, value).map_err(|reason| {
                Failure::Usage(format!("{}: {reason}", option.syntax().shown()))
            })?;
        }
    }
    Ok(())
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

/// A number of bytes within these bounds, perhaps with a unit: `k`, `M` and `G`
/// are powers of 1024, with or without `iB`.
pub struct Size<const LEAST: u64, const MOST: u64>(pub usize);

impl<const LEAST: u64, const MOST: u64> Parse for Size<LEAST, MOST> {
    fn parse(text: &str) -> Result<Self, String> {
        let short = text.strip_suffix("iB").unwrap_or(text);
        let units = [("k", 10), ("K", 10), ("M", 20), ("G", 30)].into_iter();
        let mut with_unit =
            units.filter_map(|(unit, shift)| Some((short.strip_suffix(unit)?, shift)));
        let (number, shift) = with_unit.next().unwrap_or((text, 0));
        let bytes = number.parse::<u64>().ok();
        let bytes = bytes.and_then(|number| number.checked_mul(1 << shift));
        let bytes = bytes.filter(|bytes| (LEAST..=MOST).contains(bytes));
        let bytes = bytes.and_then(|bytes| usize::try_from(bytes).ok());
        let wrong = || format!("'{text}' is not a size from {LEAST} to {MOST} bytes");
        bytes.map(Size).ok_or_else(wrong)
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

/// Fails unless at most one of these options was given.
pub fn at_most_one(options: &[(&str, bool)]) -> Outcome<()> {
    let mut given = options.iter().filter(|(_, given)| *given);
    match (given.next(), given.next()) {
        (Some((one, _)), Some((other, _))) => {
            Failure::usage(format!("--{one} and --{other} exclude each other"))
        }
        _ => Ok(()),
    }
}

/// These tubes, or the tube `default` if there are none.
pub fn tubes_or_default(tubes: Vec<TubeName>) -> Vec<TubeName> {
    match tubes.is_empty() {
        true => vec![TubeName::default_tube()],
        false => tubes,
    }
}

/// The options of these settings, without the functions that read them.
pub fn described<O>(settings: Settings<O>) -> Vec<Opt> {
    settings.iter().map(|(option, _)| *option).collect()
}

/// Makes a struct `Options` with a field for each option of a command, and the
/// settings that say which option goes into which field. A default value may
/// follow `=>`.
#[macro_export]
macro_rules! options {
    ($($field:ident: $type:ty = $option:expr $(=> $default:expr)?,)*) => {
        pub(crate) struct Options {
            $(pub(crate) $field: $type,)*
        }

        impl Default for Options {
            fn default() -> Options {
                Options {
                    $($field: $crate::command::options!(@ $($default)?),)*
                }
            }
        }

        pub(crate) const OPTIONS: $crate::command::Settings<Options> = &[$((
            $option,
            |options, value| $crate::values::Read::read(&mut options.$field, value),
        ),)*];
    };
    (@) => { Default::default() };
    (@ $default:expr) => { $default };
}
pub use options;

/// The options that every command takes, before its name or after it.
mod common {
    use crate::command::{Interval, Opt};
    use crate::server::client::PATIENCE;
    use crate::server::names::Server;

    options! {
        servers: Vec<Server> =
            Opt::value("a", "addr", "ADDR",
                "the server: HOST:PORT, PORT, unix:PATH or a name (default: 11300)").many(),
        help: bool = Opt::flag("h", "help", "show the usage"),
        timeout: Interval =
            Opt::value("", "timeout", "TIME", "wait TIME for a reply (default: 10)")
            => Interval(PATIENCE),
        version: bool = Opt::flag("V", "version", "show the version"),
    }
}
pub(crate) use common::{OPTIONS as GLOBAL, Options as Common};

impl Command {
    /// The common options that may stand after the command. `--timeout` is not
    /// among them if the command has an option of this name with another
    /// meaning.
    pub(crate) fn common_settings(&self) -> Settings<Common> {
        let has_own = (self.options)().iter().any(|own| own.long == "timeout");
        &GLOBAL[..if has_own { 2 } else { 3 }]
    }

    /// The same for clap, for its help and for completion.
    fn parser(&self) -> clap::Command {
        let mut parser = clap::Command::new(self.name).about(self.about);
        for option in (self.options)() {
            let mut arg = clap::Arg::new(option.long)
                .long(option.long)
                .help(option.about);
            if let Some(letter) = option.short.chars().next() {
                arg = arg.short(letter);
            }
            parser = parser.arg(match option.value {
                "" => arg.action(clap::ArgAction::SetTrue),
                value => of_kind(arg.value_name(value), option.kind),
            });
        }
        if self.operands.is_empty() {
            return parser;
        }
        let operands = clap::Arg::new("operands")
            .num_args(0..)
            .value_name(self.operands);
        let mut operands = of_kind(operands, self.operand_kind);
        if self.operand_kind == Kind::Tube {
            operands = operands.value_name("TUBE");
        }
        parser
            .arg(operands.trailing_var_arg(self.options_first))
            .override_usage(format!(
                "beanpole {} [OPTIONS] {}",
                self.name, self.operands
            ))
    }

    /// The defaults for a new entry.
    pub const BLANK: Command = Command {
        name: "",
        operands: "",
        operand_kind: Kind::Free,
        about: "",
        options: Vec::new,
        options_first: false,
        many_servers: false,
        run: |_| unreachable!("every entry of the table has a function"),
        failure_status: None,
    };
}

impl Opt {
    /// An option without a value.
    pub const fn flag(short: &'static str, long: &'static str, about: &'static str) -> Opt {
        Opt::value(short, long, "", about)
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

    /// What the parser needs to know about it.
    pub fn syntax(&self) -> arguments::Opt {
        arguments::Opt {
            short: self.short,
            long: self.long,
            value: self.value,
            many: self.many,
        }
    }

    /// The same option, with a value of this kind.
    pub const fn of(self, kind: Kind) -> Opt {
        Opt { kind, ..self }
    }

    /// The same option, but it may be given several times.
    pub const fn many(self) -> Opt {
        Opt { many: true, ..self }
    }
}

fn of_kind(arg: clap::Arg, kind: Kind) -> clap::Arg {
    match kind {
        Kind::Free | Kind::Tube => arg,
        Kind::File => arg.value_hint(ValueHint::FilePath),
        Kind::Program => arg.value_hint(ValueHint::CommandName),
        Kind::Words(words) | Kind::WordThenDirectories(words) => {
            arg.value_parser(clap::builder::PossibleValuesParser::new(words))
        }
    }
}

/// Options that several commands share.
pub const TUBE: Opt = Opt::value("t", "tube", "TUBE", "the tube (default: default)").of(Kind::Tube);
pub const TUBES: Opt = Opt::value(
    "t",
    "tube",
    "TUBE",
    "a tube; may be repeated (default: default)",
)
.of(Kind::Tube)
.many();
pub const PRIORITY: Opt = Opt::value(
    "p",
    "priority",
    "PRI",
    "the priority, smaller is sooner (default: the job's)",
);
pub const DELAY: Opt = Opt::value(
    "d",
    "delay",
    "TIME",
    "how long it stays delayed (default: 0)",
);
pub const JSON: Opt = Opt::flag("j", "json", "write JSON");
pub const YES: Opt = Opt::flag("y", "yes", "do not ask");
pub const BODY_LINES: Opt = Opt::flag("l", "lines", "write a line feed after each body");
pub const BODY_NULL: Opt = Opt::flag("0", "null", "write a NUL after each body");
pub const BODY_JSON: Opt = Opt::flag("j", "json", "write each job as a line of JSON");
pub const DRY_RUN: Opt = Opt::flag("", "dry-run", "only say how many jobs it would be");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_units_that_are_powers_of_1024() {
        type Any = Size<0, { 1 << 40 }>;
        for (text, bytes) in [
            ("0", 0),
            ("100", 100),
            ("64k", 65_536),
            ("64KiB", 65_536),
            ("2M", 2 << 20),
            ("1GiB", 1 << 30),
        ] {
            assert_eq!(Any::parse(text).map(|Size(size)| size), Ok(bytes), "{text}");
        }
        for text in [
            "",
            "k",
            "1.5k",
            "5iB",
            "64kB",
            "1kk",
            "-1",
            "2048G",
            "20000000000G",
        ] {
            assert!(Any::parse(text).is_err(), "{text}");
        }
    }
}
