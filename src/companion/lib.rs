//! The companion program, `beanpole`: looks into a server and works with it.
//!
//! It speaks the protocol as any client does, so it works with beanstalkd as
//! well as with beanpoled. It shares with the daemon only the words of the
//! protocol, the reading of command lines, and the reading side of the binlog.
//!
//! ```text
//!  GROUPS ──> commands ──> command ──> server ──> text ──> failure
//!  (here)     (one file    (type of    (speaks    (writes  (errors and
//!              each)        a command)  to it)     output)  statuses)
//! ```
//!
//! Modules on the left use those on the right, which need not be neighbours;
//! none uses one on its left, and no command uses another. `inspection` reads a
//! binlog without a server. `exposition` writes the metrics of a server, and `http`
//! serves them and the console to browsers. All modules may use `signals` and
//! `values`, which reads the values of the command line.

pub mod command;
mod commands;
mod exposition;
pub mod failure;
mod http;
pub mod inspection;
mod jobs;
pub mod server;
mod signals;
pub mod text;
pub mod values;

use clap::error::ErrorKind;
use command::{Entry, Group, Interval, Invocation, RESUME, find, program, refused};
use commands::{
    acts, binlog, check, clients, completion, console, dump, help, ls, metrics, pause, peek, ping,
    put, raw, reserve, stats, tail, top, tubes, why, work,
};
use failure::{Failure, Outcome};
use server::address::{ADDRESS_VARIABLE, Address, DEFAULT_PORT, Server, warn_of};
use server::client::PATIENCE;
use std::ffi::OsString;
use std::process::ExitCode;
use text::output::{complain, note, print, speak_for};
use values::Parse;

/// All commands, in the order of the help.
#[rustfmt::skip]
const GROUPS: &[Group] = &[
    Group { title: "Look", changes: false, commands: &[
        Entry::of::<top::Top>("top", "show servers and their tubes on a live screen"),
        Entry::of::<console::Serve>("console", "serve a page for the browser that shows servers, tubes and jobs"),
        Entry::of::<why::Why>("why", "say what keeps jobs from being done, the worst first"),
        Entry::of::<stats::Stats>("stats", "show the statistics of the server, of a tube or of a job"),
        Entry::of::<tubes::List>("tubes", "list the tubes and what is in them"),
        Entry::of::<clients::Clients>("clients", "list the connections: who puts, who works and who waits"),
        Entry::of::<metrics::Metrics>("metrics", "write the statistics as text for Prometheus, or serve them"),
        Entry::of::<check::Check>("check", "say in one line whether a server is well, for monitoring"),
        Entry::of::<ping::Ping>("ping", "measure how fast servers answer"),
        Entry::of::<tail::Tail>("tail", "show jobs as they are put, of all tubes or of some"),
        Entry::of::<ls::Ls>("ls", "list the jobs of a server or of some tubes"),
        Entry::of::<peek::Peek>("peek", "show jobs: those with these ids, or the next of a tube"),
    ] },
    Group { title: "Touch", changes: true, commands: &[
        Entry::of::<put::Put>("put", "put jobs into a tube and print their ids"),
        Entry::of::<reserve::Reserve>("reserve", "take jobs and write their bodies; release, delete or bury them then"),
        Entry::of::<acts::Edit>("edit", "change the body of a job in $EDITOR, and put it again"),
        Entry::of::<acts::Delete>("delete", "delete jobs"),
        Entry::of::<acts::Bury>("bury", "bury jobs"),
        Entry::of::<acts::Release>("release", "make jobs ready, or delayed, with a new priority if wanted"),
        Entry::of::<acts::KickJob>("kick-job", "make buried or delayed jobs ready"),
        Entry::of::<acts::Kick>("kick", "make N (default: 1) buried jobs ready, or delayed ones if none is buried"),
        Entry::of::<pause::Pause>("pause", "let nothing be reserved from tubes for TIME; 0 ends that, as does 'resume TUBE'"),
        Entry::of::<acts::Clear>("clear", "delete the ready, delayed and buried jobs of tubes, after a question"),
        Entry::of::<acts::Move>("move", "move the jobs of a tube to another, on this server or another"),
        Entry::of::<acts::Copy>("copy", "copy the jobs of a tube to another, on this server or another"),
        Entry::of::<work::Work>("work", "run a command for each job, the body on its standard input"),
        Entry::of::<raw::Raw>("raw", "speak the protocol: one command, a script from a pipe, or a prompt"),
    ] },
    Group { title: "Move house", changes: true, commands: &[
        Entry::of::<dump::Dump>("dump", "write all jobs, or those of some tubes, for load to read"),
        Entry::of::<put::Load>("load", "put the jobs of a dump into a server"),
        Entry::of::<binlog::Binlog>("binlog", "look into a server's binlog while no server uses it, or save what is in it"),
    ] },
    Group { title: "About itself", changes: false, commands: &[
        Entry::of::<completion::Completion>("completion", "write the completion for a shell"),
        Entry::of::<help::Help>("help", "show the commands, how to use one, or the protocol on one screen"),
    ] },
];

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
    let exit_code = command.map_or(Failure::exit_code as fn(&Failure) -> ExitCode, |command| {
        command.exit_code
    });
    exit_code(&failure)
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
    let parser = command.parser();
    let matches = match parser.try_get_matches_from(named_first(name, &rest)) {
        Ok(matches) => matches,
        Err(error) if error.kind() == ErrorKind::DisplayHelp => {
            return print(help::usage(command));
        }
        Err(error) => return refused(error),
    };
    let named = [&matches, &before].map(|matches| matches.get_many::<Server>("servers"));
    let mut servers: Vec<Server> = named.into_iter().flatten().flatten().cloned().collect();
    // A command with another --timeout has none of these.
    let patience = [&matches, &before].map(|matches| matches.try_get_one::<Interval>("patience"));
    let patience = patience.into_iter().find_map(|given| given.ok().flatten());
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
        servers,
        patience: patience.map_or(PATIENCE, |Interval(time)| *time),
        groups: GROUPS,
    };
    command.run(&matches, &invocation)
}

fn named_first(name: &str, arguments: &[OsString]) -> Vec<OsString> {
    [&[name.into()], arguments].concat()
}

/// The server that the environment names, or else the usual one.
fn usual_server() -> Outcome<Server> {
    match std::env::var(ADDRESS_VARIABLE) {
        Ok(text) if !text.is_empty() => Server::parse(&text)
            .map_err(|reason| Failure::Usage(format!("{ADDRESS_VARIABLE}: {reason}"))),
        _ => Ok(Address::local(DEFAULT_PORT).into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn every_command_has_one_name_and_its_options_are_sound() {
        let mut names = HashSet::new();
        for command in GROUPS.iter().flat_map(|group| group.commands) {
            assert!(names.insert(command.name), "{}", command.name);
            command.parser().debug_assert();
        }
    }
}
