//! The companion program, `beanpole`: looks into a server and works with it.
//!
//! It speaks the protocol as any client does, so it works with beanstalkd as
//! well as with beanpoled. It shares with the daemon only the words of the
//! protocol, the reading of command lines, and the reading side of the binlog.
//!
//! ```text
//!  table ──> commands ──> command ──> server ──> text ──> failure
//!  (list)    (one file    (type of    (speaks    (writes  (errors and
//!             each)        a command)  to it)     output)  statuses)
//! ```
//!
//! Modules on the left use those on the right, which need not be neighbours;
//! none uses one on its left, and no command uses another. `inspection` reads a
//! binlog without a server. `exposition` writes the metrics of a server, and
//! `http` serves them and the console to browsers. All modules may use `signals` and `values`; `values` reads
//! the values of the command line.

pub mod command;
mod commands;
mod exposition;
pub mod failure;
mod http;
pub mod inspection;
mod jobs;
pub mod server;
mod signals;
mod table;
pub mod text;
mod transfer;
pub mod values;

use beanpole::arguments::{Given, ParsingStyle};
use clap::ArgMatches;
use clap::error::ErrorKind;
use command::{
    Entry, Invocation, Opt, RESUME, described, did_you_mean, find, program, read, refused,
};
use commands::help;
use failure::{Failure, Outcome};
use server::address::{ADDRESS_VARIABLE, Address, DEFAULT_PORT};
use server::client::PATIENCE;
use server::names::{Server, warn_of};
use std::ffi::OsString;
use std::process::ExitCode;
use table::GROUPS;
use text::output::{complain, note, print, speak_for};
use values::Parse;

/// Runs the program with these arguments, without its own name.
///
/// Exit statuses: 0 done, 1 the answer is no, 2 usage, 3 no server, 4 the
/// server or the system refused, 130 interrupted, 141 the output was closed.
/// The manual tells which commands differ.
pub fn run(arguments: Vec<OsString>) -> ExitCode {
    let mut command = None;
    let failure = match run_named(&arguments, &mut command) {
        Ok(status) => return status.exit_code(),
        Err(failure) => failure,
    };
    if !matches!(failure, Failure::OutputClosed) {
        complain!("{failure}");
    }
    if let Failure::Usage(_) = failure {
        let name = command.map_or("", |command| command.name);
        note(format_args!(
            "Try '{}'.",
            format!("beanpole help {name}").trim_end()
        ));
    }
    match command {
        Some(Entry { old: Some(old), .. }) if old.failure_status.is_some() => {
            old.failure_status.unwrap()(&failure).exit_code()
        }
        Some(command) => (command.exit_code)(&failure),
        None => failure.exit_code(),
    }
}

/// Runs the command that the arguments name, and stores it in `named`. Options
/// that all commands take may stand before the name, too; an address after it
/// takes precedence.
fn run_named(arguments: &[OsString], named: &mut Option<&'static Entry>) -> Outcome {
    let program = program().allow_external_subcommands(true);
    let before = match program.try_get_matches_from(named_first("beanpole", arguments)) {
        Ok(before) => before,
        Err(error) if error.kind() == ErrorKind::DisplayHelp => {
            return print(help::overview(GROUPS));
        }
        Err(error) => return refused(error),
    };
    let Some((name, rest)) = before.subcommand() else {
        return Failure::usage("which command?");
    };
    let mut rest: Vec<OsString> = rest.get_many("").into_iter().flatten().cloned().collect();
    if name == RESUME {
        rest.push("0".into());
    }
    let (group, command) = find(GROUPS, name)?;
    *named = Some(command);
    speak_for(command.name);
    let (mut servers, mut patience) = (Vec::new(), None);
    let (mut given, mut matches) = (
        Given {
            options: Vec::new(),
            operands: Vec::new(),
        },
        None,
    );
    let mut read_common = |matches: &ArgMatches| {
        servers.extend(
            matches
                .get_many::<Server>("servers")
                .into_iter()
                .flatten()
                .cloned(),
        );
        let own = matches
            .try_get_one::<command::Interval>("patience")
            .ok()
            .flatten();
        patience = patience.or(own.copied());
    };
    if let Some(old) = command.old {
        let mut table = (old.options)();
        let own = table.len();
        table.extend(described(old.common_settings()));
        let style = match old.options_first {
            true => ParsingStyle::StopAtFirstFree,
            false => ParsingStyle::FloatingFrees,
        };
        given = split(&table, style, &rest)?;
        let mut common = command::Common {
            timeout: command::Interval(std::time::Duration::ZERO),
            ..Default::default()
        };
        read(&given, own, old.common_settings(), &mut common)?;
        if common.help {
            return print(help::usage(command));
        }
        servers = common.servers;
        if !common.timeout.0.is_zero() {
            patience = Some(common.timeout);
        }
        servers.extend(
            before
                .get_many::<Server>("servers")
                .into_iter()
                .flatten()
                .cloned(),
        );
        patience = patience.or(before.get_one::<command::Interval>("patience").copied());
    } else {
        match command
            .parser()
            .try_get_matches_from(named_first(name, &rest))
        {
            Ok(found) => {
                read_common(&found);
                matches = Some(found);
            }
            Err(error) if error.kind() == ErrorKind::DisplayHelp => {
                return print(help::usage(command));
            }
            Err(error) => return refused(error),
        }
        read_common(&before);
    }
    if servers.is_empty() {
        servers.push(usual_server()?);
    }
    if servers.len() > 1 && !command.many_servers {
        return Failure::usage("it asks one server: give one address");
    }
    if group.changes {
        servers.iter().for_each(warn_of);
    }
    let invocation = Invocation {
        given,
        servers,
        patience: patience.map_or(PATIENCE, |command::Interval(time)| time),
        groups: GROUPS,
    };
    match (matches, command.old) {
        (Some(matches), _) => command.run(&matches, &invocation),
        (None, Some(old)) => (old.run)(&invocation),
        (None, None) => unreachable!("it was read"),
    }
}

fn named_first(name: &str, arguments: &[OsString]) -> Vec<OsString> {
    [&[name.into()], arguments].concat()
}

/// Splits a command line into options and operands. For an unknown option, the
/// error suggests a similar one.
fn split(table: &[Opt], style: ParsingStyle, arguments: &[OsString]) -> Outcome<Given> {
    let syntax: Vec<_> = table.iter().map(Opt::syntax).collect();
    Given::split(&syntax, style, arguments).map_err(|reason| {
        let names = table.iter().map(|option| format!("--{}", option.long));
        let names: Vec<_> = names.collect();
        let unknown = reason.strip_prefix("unknown flag: ");
        let hint = unknown.map(|name| did_you_mean(name, names.iter().map(String::as_str)));
        Failure::Usage(reason.clone() + &hint.unwrap_or_default())
    })
}

/// The server that the environment names, or else the usual one.
fn usual_server() -> Outcome<Server> {
    match std::env::var(ADDRESS_VARIABLE) {
        Ok(text) if !text.is_empty() => Server::parse(&text)
            .map_err(|reason| Failure::Usage(format!("{ADDRESS_VARIABLE}: {reason}"))),
        _ => Ok(Address::local(DEFAULT_PORT).into()),
    }
}
