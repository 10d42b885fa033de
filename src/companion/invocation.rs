//! One run of the program: its arguments, parsed by the table of commands.

use crate::address::Address;
use crate::argv;
use crate::client::{Client, PATIENCE};
use crate::commands::help;
use crate::failure::{Failure, Outcome, Status};
use crate::output::Output;
use crate::table::{self, COMMON, Command, Opt, VERSION};
use beanpole::protocol::{JobId, Priority, Seconds, TubeName};
use getopts::{Matches, Options, ParsingStyle};
use std::ffi::OsString;
use std::time::Duration;

/// The environment variable that holds the address of the server.
pub const ADDRESS_VARIABLE: &str = "BEANPOLE_ADDR";

/// A command with its options and operands.
pub struct Invocation {
    matches: Matches,
    addresses: Vec<Address>,
}

/// Runs what these arguments ask for. The command goes with its outcome, if
/// the arguments name one.
pub fn run(arguments: &[OsString]) -> (Option<&'static Command>, Outcome) {
    let texts: Vec<String> = arguments
        .iter()
        .map(|argument| argv::to_text(argument))
        .collect();
    let global = match parse(COMMON.iter().chain([&VERSION]), true, &texts) {
        Ok(global) => global,
        Err(failure) => return (None, Err(failure)),
    };
    if global.opt_present("help") {
        return (None, print(help::overview()));
    }
    if global.opt_present("version") {
        return (
            None,
            print(format!("beanpole {}\n", env!("CARGO_PKG_VERSION"))),
        );
    }
    let Some((name, rest)) = global.free.split_first() else {
        return (None, Err(Failure::Usage("which command?".into())));
    };
    let Some(command) = table::find(name) else {
        return (
            None,
            Err(Failure::Usage(format!("there is no command '{name}'"))),
        );
    };
    (Some(command), run_command(command, &global, rest))
}

fn run_command(command: &'static Command, global: &Matches, arguments: &[String]) -> Outcome {
    let options = COMMON.iter().chain(command.options);
    let own = ["--".to_owned()]
        .into_iter()
        .filter(|_| command.own_arguments);
    let arguments: Vec<String> = own.chain(arguments.iter().cloned()).collect();
    let matches = parse(options, command.options_first, &arguments)?;
    if matches.opt_present("help") {
        return print(help::usage(command));
    }
    let addresses = addresses(global, &matches)?;
    if addresses.len() > 1 && !command.many_servers {
        return Err(Failure::Usage(
            "it asks one server: give one address".into(),
        ));
    }
    (command.run)(&Invocation { matches, addresses })
}

/// Writes a text that is the whole answer.
pub fn print(text: String) -> Outcome {
    let mut output = Output::new();
    output.bytes(text.as_bytes())?;
    output.sync()?;
    Ok(Status::Done)
}

/// The options and operands among these arguments.
fn parse<'a>(
    table: impl Iterator<Item = &'a Opt>,
    options_first: bool,
    arguments: &[String],
) -> Outcome<Matches> {
    let mut options = Options::new();
    if options_first {
        options.parsing_style(ParsingStyle::StopAtFirstFree);
    }
    for Opt {
        short,
        long,
        value,
        many,
        ..
    } in table
    {
        match (value.is_empty(), many) {
            (true, _) => options.optflag(short, long, ""),
            (false, false) => options.optopt(short, long, "", value),
            (false, true) => options.optmulti(short, long, "", value),
        };
    }
    options
        .parse(arguments)
        .map_err(|fail| Failure::Usage(fail.to_string()))
}

/// The addresses given after the command, or before it, or by the environment.
fn addresses(global: &Matches, matches: &Matches) -> Outcome<Vec<Address>> {
    let given = [matches.opt_strs("addr"), global.opt_strs("addr")].concat();
    let parse = |text: &String| Address::parse(text).map_err(Failure::Usage);
    if !given.is_empty() {
        return given.iter().map(parse).collect();
    }
    match std::env::var(ADDRESS_VARIABLE) {
        Ok(text) if !text.is_empty() => match Address::parse(&text) {
            Ok(address) => Ok(vec![address]),
            Err(reason) => Err(Failure::Usage(format!("{ADDRESS_VARIABLE}: {reason}"))),
        },
        _ => Ok(vec![Address::local(super::address::DEFAULT_PORT)]),
    }
}

/// What was asked for.
impl Invocation {
    /// Whether this option was given.
    pub fn has(&self, long: &str) -> bool {
        self.matches.opt_present(long)
    }

    /// The value of this option.
    pub fn value(&self, long: &str) -> Option<String> {
        self.matches.opt_str(long)
    }

    /// The values of this option.
    pub fn values(&self, long: &str) -> Vec<String> {
        self.matches.opt_strs(long)
    }

    /// The value of this option as a path or something else that need not be
    /// text.
    pub fn paths(&self, long: &str) -> Vec<OsString> {
        self.values(long)
            .iter()
            .map(|text| argv::to_os(text))
            .collect()
    }

    /// The value of this option as a whole number within these bounds.
    pub fn number(&self, long: &str, least: u64, most: u64) -> Outcome<Option<u64>> {
        let Some(text) = self.value(long) else {
            return Ok(None);
        };
        match text.parse() {
            Ok(number) if (least..=most).contains(&number) => Ok(Some(number)),
            _ => {
                let what = format!("--{long}: '{text}' is not a number from {least} to {most}");
                Err(Failure::Usage(what))
            }
        }
    }

    /// The value of this option as a count.
    pub fn count(&self, long: &str) -> Outcome<Option<u64>> {
        self.number(long, 1, u64::MAX)
    }

    /// The value of this option as whole seconds.
    pub fn seconds(&self, long: &str) -> Outcome<Option<Seconds>> {
        Ok(self.u32(long)?.map(Seconds))
    }

    /// The value of this option in seconds that need not be whole.
    pub fn interval(&self, long: &str, default: f64) -> Outcome<Duration> {
        let Some(text) = self.value(long) else {
            return Ok(Duration::from_secs_f64(default));
        };
        match text.parse() {
            Ok(seconds) if (0.01..=86_400.0).contains(&seconds) => {
                Ok(Duration::from_secs_f64(seconds))
            }
            _ => Err(Failure::Usage(format!(
                "--{long}: '{text}' is not seconds from 0.01 to 86400"
            ))),
        }
    }

    /// The value of `--priority`.
    pub fn priority(&self) -> Outcome<Option<Priority>> {
        Ok(self.u32("priority")?.map(Priority))
    }

    fn u32(&self, long: &str) -> Outcome<Option<u32>> {
        let number = self.number(long, 0, u32::MAX.into())?;
        Ok(number.and_then(|number| u32::try_from(number).ok()))
    }

    /// The value of `--tube`.
    pub fn tube(&self) -> Outcome<TubeName> {
        self.value("tube")
            .map_or(Ok(TubeName::default_tube()), |name| tube(&name))
    }

    /// The values of `--tube`, none if it was not given.
    pub fn tubes(&self) -> Outcome<Vec<TubeName>> {
        self.values("tube").iter().map(|name| tube(name)).collect()
    }

    /// Fails unless at most one of these options was given.
    pub fn at_most_one(&self, longs: &[&str]) -> Outcome<()> {
        let given: Vec<_> = longs.iter().filter(|long| self.has(long)).collect();
        match given.as_slice() {
            [one, other, ..] => Err(Failure::Usage(format!(
                "--{one} and --{other} exclude each other"
            ))),
            _ => Ok(()),
        }
    }

    /// The operands.
    pub fn operands(&self) -> &[String] {
        &self.matches.free
    }

    /// Fails if there are operands.
    pub fn no_operands(&self) -> Outcome<()> {
        match self.operands() {
            [] => Ok(()),
            [first, ..] => Err(Failure::Usage(format!("it takes no operand '{first}'"))),
        }
    }

    /// The operands, each the id of a job, at least one.
    pub fn ids(&self) -> Outcome<Vec<JobId>> {
        if self.operands().is_empty() {
            return Err(Failure::Usage("which job? give its id".into()));
        }
        self.operands().iter().map(|text| id(text)).collect()
    }

    /// All servers that were named.
    pub fn addresses(&self) -> &[Address] {
        &self.addresses
    }

    /// The server.
    pub fn address(&self) -> &Address {
        &self.addresses[0]
    }

    /// A connection to the server.
    pub fn connect(&self) -> Outcome<Client> {
        Client::connect(self.address(), PATIENCE)
    }
}

/// The tube of this name.
pub fn tube(name: &str) -> Outcome<TubeName> {
    TubeName::parse(name.as_bytes()).ok_or_else(|| {
        Failure::Usage(format!(
            "'{name}' cannot be the name of a tube: 1 to {} letters, digits and -+/;.$_(), \
             no hyphen first",
            TubeName::MAX_LEN
        ))
    })
}

/// The job with this id.
pub fn id(text: &str) -> Outcome<JobId> {
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let id = text.parse().ok().filter(|_| digits);
    id.map(JobId)
        .ok_or_else(|| Failure::Usage(format!("'{text}' is not the id of a job")))
}
