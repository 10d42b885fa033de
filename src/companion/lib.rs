//! The companion program, `beanpole`: inspects a server and works with it.
//!
//! It speaks the protocol as any client does, so it works with beanstalkd as
//! well as with beanpoled. It shares with the daemon only the words of the
//! protocol and, for `binlog`, the log's files and what they say of jobs.
//!
//! ```text
//!  LOOKING,  ──> commands ──> command ──> remote ──> text ──> failure
//!  CHANGING                  (type of    (speaks    (writes  (errors and
//!  (here)                    a command)  to it)     output)  statuses)
//! ```
//!
//! Modules on the left use those on the right, which need not be neighbours;
//! none uses one on its left, and no command uses another. `inspection` reads a binlog
//! without a server, in a `directory` that nobody may be able to write to, and `http` serves
//! the metrics, and the console to browsers. All modules may use `signals` and `values`,
//! which reads the values of the command line.

pub mod command;
mod commands {
    //! The commands: a module for each one, or for a few that are alike. No command
    //! uses another.

    pub mod binlog;
    pub mod change;
    pub mod check;
    pub mod console;
    pub mod dump;
    pub mod ls;
    pub mod metrics;
    pub mod put;
    pub mod raw;
    pub mod reserve;
    pub mod statistics;
    pub mod top;
    pub mod why;
    pub mod work;
}
mod directory;
pub mod failure;
mod http;
pub mod inspection;
pub mod remote;
mod selection;
mod signals;
pub mod text;
pub mod values;

use clap::builder::PossibleValuesParser;
use clap::error::ErrorKind;
use clap::{ArgMatches, Args, ValueEnum};
use clap_complete::Shell;
use command::Asks::{Each, Many, Nobody, One};
use command::{Entry, Invocation, Run, last_of, program, said};
use commands::{
    binlog, change, check, console, dump, ls, metrics, put, raw, reserve, statistics, top, why,
    work,
};
use failure::{Failure, Outcome, Status};
use remote::address::{ADDRESS_VARIABLE, Address, DEFAULT_PORT, Server, Servers};
use std::env::VarError;
use std::ffi::{OsStr, OsString};
use std::process::ExitCode;
use std::time::Duration;
use text::output::{complain, naming, note, print, speak_for};
use values::Parse;

/// The commands that change nothing in a server, each with how many it asks.
#[rustfmt::skip]
const LOOKING: &[Entry] = &[
    Entry::of::<top::Top>(Many, "top", "show servers and their tubes on a live screen"),
    Entry::of::<console::Serve>(Many, "console", "serve a page for the browser that shows servers, tubes and jobs"),
    Entry::of::<why::Why>(Many, "why", "say what keeps jobs from being done, the worst first"),
    Entry::of::<statistics::Stats>(Many, "stats", "show the statistics of the server, of a tube or of a job"),
    Entry::of::<statistics::List>(Many, "tubes", "list the tubes and what is in them"),
    Entry::of::<statistics::Clients>(One, "clients", "list the connections: who puts, who works and who waits"),
    Entry::of::<metrics::Metrics>(Many, "metrics", "write the statistics as text for Prometheus, or serve them"),
    Entry::of::<check::Check>(Many, "check", "say in one line whether a server is well, for monitoring"),
    Entry::of::<ls::Ls>(One, "ls", "list the jobs of a server or of some tubes"),
    Entry::of::<ls::Peek>(One, "peek", "show jobs: those with these ids, or the next of a tube"),
    Entry::of::<dump::Dump>(One, "dump", "write all jobs, or those of some tubes, for load to read"),
    Entry::of::<binlog::Binlog>(Nobody, "binlog", "look into a server's binlog while no server uses it, or save what is in it"),
    Entry::of::<Completion>(Nobody, "completion", "write the completion for a shell"),
];

/// Those that do: they show the warning colour of a server.
#[rustfmt::skip]
const CHANGING: &[Entry] = &[
    Entry::of::<put::Put>(Many, "put", "put jobs into a tube and print their ids"),
    Entry::of::<dump::Load>(One, "load", "put the jobs of a dump into a server"),
    Entry::of::<reserve::Reserve>(One, "reserve", "take jobs and write their bodies; delete, bury or release them then"),
    Entry::of::<change::Edit>(One, "edit", "change the body of a job in $EDITOR, and put it again"),
    Entry::of::<change::Delete>(Each, "delete", "delete jobs: those with these ids, or those of tubes"),
    Entry::of::<change::Bury>(Each, "bury", "bury jobs"),
    Entry::of::<change::Release>(Each, "release", "make jobs ready, or delayed, with a new priority if wanted"),
    Entry::of::<change::KickJob>(Each, "kick-job", "make buried or delayed jobs ready"),
    Entry::of::<change::Kick>(Each, "kick", "make N (default: 1) buried jobs ready, or delayed ones if none is buried"),
    Entry::of::<change::Pause>(Each, "pause", "let nothing be reserved from tubes for TIME; 0 ends that"),
    Entry::of::<change::Move>(One, "move", "move or copy the jobs of a tube to another, on this server or another"),
    Entry::of::<work::Work>(Many, "work", "run a command for each job, the body on its standard input"),
    Entry::of::<raw::Raw>(One, "raw", "speak the protocol: one command, a script from a pipe, or a prompt"),
];

fn commands() -> impl Iterator<Item = &'static Entry> {
    LOOKING.iter().chain(CHANGING)
}

#[derive(Args)]
struct Completion {
    #[arg(value_parser = PossibleValuesParser::new(["bash", "zsh", "fish"]))]
    shell: String,
}

impl Run for Completion {
    fn run(self, _: &Invocation) -> Outcome {
        let (mut program, mut script) = (program(commands()), Vec::new());
        let shell = Shell::from_str(&self.shell, false).map_err(Failure::Usage)?;
        clap_complete::generate(shell, &mut program, "beanpole", &mut script);
        print(String::from_utf8_lossy(&script).into())
    }
}

/// Runs the program with these arguments, without its own name.
///
/// Exit statuses: 0 done, 1 the answer is no, 2 usage, 3 no server, 4 the
/// server or the system refused, 130 interrupted, 141 the output was closed.
/// The manual says which commands differ.
pub fn run(arguments: Vec<OsString>) -> ExitCode {
    let words = [&["beanpole".into()], arguments.as_slice()].concat();
    let parsed = program(commands()).try_get_matches_from(words);
    let named = |word: &OsStr| commands().find(|command| word == command.name);
    let command = match &parsed {
        Ok(matches) => matches
            .subcommand_name()
            .and_then(|name| named(name.as_ref())),
        // It may also be the name of a server, or a value.
        Err(_) => arguments.iter().find_map(|word| named(word)),
    };
    if let Some(command) = command {
        speak_for(command.name);
    }
    let failure = match run_named(parsed) {
        Ok(status) => return status.exit_code(),
        Err(failure) => failure,
    };
    if !matches!(failure, Failure::OutputClosed(_)) {
        complain!("{failure}");
    }
    if let Failure::Usage(_) = failure {
        let name = command.map_or("", |command| command.name);
        note(format!("Try 'beanpole help {name}").trim_end().to_owned() + "'.");
    }
    let own = command.and_then(|command| command.failed);
    own.map_or(failure.exit_code(), ExitCode::from)
}

/// Runs the command that the command line names. Options that all commands take may
/// stand before the name, too; an address after it takes precedence.
fn run_named(parsed: clap::error::Result<ArgMatches>) -> Outcome {
    let before = match parsed {
        Ok(before) => before,
        Err(error) => match error.kind() {
            ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => return print(error.to_string()),
            _ => return Err(said(&error)),
        },
    };
    let Some((name, matches)) = before.subcommand() else {
        return Failure::usage("which command?");
    };
    let is_named = |command: &&Entry| command.name == name;
    let command = commands().find(is_named).expect("clap knows no others");
    let named = matches.get_many::<Servers>("servers").into_iter().flatten();
    let mut servers: Vec<Server> = Vec::new();
    for server in named.flat_map(|Servers(some)| some) {
        // Several patterns may mean the same one.
        if !servers.contains(server) {
            servers.push(server.clone());
        }
    }
    // A command with another --timeout has none of these.
    let told = [matches, &before].map(|matches| matches.try_get_one::<Duration>("patience"));
    let timeout = told.into_iter().find_map(|given| given.ok().flatten());
    if servers.is_empty() && command.asks != Nobody {
        servers = usual_servers()?;
    }
    let invocation = Invocation {
        servers,
        timeout: timeout.copied(),
        is_one_of_many: false,
    };
    match command.asks {
        Each if invocation.servers.len() > 1 => return on_each(command, matches, &invocation),
        One if invocation.servers.len() > 1 => {
            return Failure::usage("it asks one server: give one address");
        }
        _ => {}
    }
    if CHANGING.iter().any(|changing| changing.name == name) {
        invocation.servers.iter().for_each(Server::warn);
    }
    (command.run)(matches, &invocation)
}

/// Does this to each of these servers, and says to which. One that fails keeps it from no
/// other.
fn on_each(command: &Entry, matches: &ArgMatches, many: &Invocation) -> Outcome {
    let (mut failures, mut all) = (Vec::new(), Status::Done);
    for server in &many.servers {
        server.warn();
        let title = server.title();
        print(format!("{title}\n"))?;
        let invocation = Invocation {
            servers: vec![server.clone()],
            timeout: many.timeout,
            is_one_of_many: true,
        };
        match naming(&title, || (command.run)(matches, &invocation)) {
            Ok(Status::Done) => {}
            Ok(status) => all = status,
            Err(failure) => {
                use Failure::{Missing, Refused, Unreachable};
                let goes_on = matches!(failure, Missing(_) | Refused(_) | Unreachable(_));
                failures.push(server.of_it(failure));
                if !goes_on {
                    break;
                }
            }
        }
    }
    last_of(failures)?;
    Ok(all)
}

/// The server that the environment names, or else the usual one.
fn usual_servers() -> Outcome<Vec<Server>> {
    match std::env::var(ADDRESS_VARIABLE) {
        Ok(text) if !text.is_empty() => Servers::parse(&text)
            .map(|Servers(some)| some)
            .map_err(|reason| Failure::Usage(format!("{ADDRESS_VARIABLE}: {reason}"))),
        Err(VarError::NotUnicode(_)) => {
            Failure::usage(format!("{ADDRESS_VARIABLE}: this is not UTF-8"))
        }
        _ => Ok(vec![Address::local(DEFAULT_PORT).into()]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn command_names_are_unique_and_their_options_are_valid() {
        program(commands()).debug_assert();
    }
}
