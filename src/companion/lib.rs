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
mod selection;
pub mod server;
mod signals;
mod table;
pub mod text;
mod transfer;
pub mod values;

use beanpole::arguments::{Given, ParsingStyle, to_os};
use command::{Command, Common, GLOBAL, Invocation, Opt, described, did_you_mean, find, read};
use commands::help;
use failure::{Failure, Outcome};
use server::address::{ADDRESS_VARIABLE, Address, DEFAULT_PORT};
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
    match command.and_then(|command| command.failure_status) {
        Some(status) => status(&failure).exit_code(),
        None => failure.exit_code(),
    }
}

/// Runs the command that the arguments name, and stores it in `named`.
fn run_named(arguments: &[OsString], named: &mut Option<&'static Command>) -> Outcome {
    let table = described(GLOBAL);
    let global = split(&table, ParsingStyle::StopAtFirstFree, arguments)?;
    let mut common = Common::default();
    read(&global, 0, GLOBAL, &mut common)?;
    if common.help {
        return print(help::overview(GROUPS));
    }
    if common.version {
        return print(format!("beanpole {}\n", env!("CARGO_PKG_VERSION")));
    }
    let Some((name, rest)) = global.operands.split_first() else {
        return Failure::usage("which command?");
    };
    let (group, command) = find(GROUPS, name)?;
    *named = Some(command);
    speak_for(command.name);
    let mut table = (command.options)();
    let own = table.len();
    table.extend(described(command.common_settings()));
    let style = match command.options_first {
        true => ParsingStyle::StopAtFirstFree,
        false => ParsingStyle::FloatingFrees,
    };
    let rest: Vec<_> = rest.iter().map(|text| to_os(text)).collect();
    let given = split(&table, style, &rest)?;
    // An address after the command takes precedence over one before it.
    let before = std::mem::take(&mut common.servers);
    read(&given, own, command.common_settings(), &mut common)?;
    if common.help {
        return print(help::usage(command));
    }
    common.servers.extend(before);
    if common.servers.is_empty() {
        common.servers.push(usual_server()?);
    }
    if common.servers.len() > 1 && !command.many_servers {
        return Failure::usage("it asks one server: give one address");
    }
    if group.changes {
        common.servers.iter().for_each(warn_of);
    }
    (command.run)(&Invocation {
        given,
        servers: common.servers,
        patience: common.timeout.0,
        groups: GROUPS,
    })
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
