//! The companion program, `beanpole`: looks into a server and works with it.
//!
//! It speaks the protocol as any client does, so it serves beanstalkd as well
//! as beanpoled, and shares nothing with the daemon but the names of the
//! protocol. To read it, begin with `table`, the list of its commands, and
//! `client`, a connection; each command is a file of `commands`, or a
//! directory here if it takes several.
//!
//! ```text
//! run ──> invocation ──> table ──> commands/…, work, raw, top ──> client
//!         (getopts)      (data)    (one function each)            (socket)
//! ```

mod address;
mod argv;
mod base64;
mod binlog;
mod census;
mod client;
mod commands;
mod completion;
mod failure;
mod invocation;
pub mod json;
mod next;
mod output;
mod place;
mod raw;
pub mod reply;
mod signals;
mod stats;
mod sweep;
pub mod table;
mod take;
mod terminal;
mod top;
mod work;
mod yaml;

use failure::Failure;
use std::ffi::OsString;
use std::io::Write;
use std::process::ExitCode;

/// Runs the program with these arguments, its own name not among them.
///
/// Exit statuses: 0 done, 1 the answer is no, 2 usage, 3 no server, 4 the
/// server or the system refused, 141 the output was closed. Commands say in
/// the manual where they differ.
pub fn run(arguments: Vec<OsString>) -> ExitCode {
    let (command, outcome) = invocation::run(&arguments);
    match outcome {
        Ok(status) => status.exit_code(),
        Err(failure) => {
            let name = command.map_or("beanpole".into(), |command| {
                format!("beanpole {}", command.name)
            });
            match &failure {
                Failure::OutputClosed => {}
                Failure::Usage(_) => {
                    let help = command.map_or("", |command| command.name);
                    complain(format_args!("{name}: {failure}"));
                    complain(format_args!(
                        "Try '{}'.",
                        format!("beanpole help {help}").trim_end()
                    ));
                }
                _ => complain(format_args!("{name}: {failure}")),
            }
            match command.and_then(|command| command.failure_status) {
                Some(status) => status(&failure).exit_code(),
                None => failure.exit_code(),
            }
        }
    }
}

/// Writes a line to standard error. If nobody reads that, nobody is missing it.
fn complain(line: impl std::fmt::Display) {
    let _ = writeln!(std::io::stderr(), "{line}");
}
