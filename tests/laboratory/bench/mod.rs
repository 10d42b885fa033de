//! `bench`: a load generator whose figures a sceptic can accept.
//!
//! It compares two servers in one run, with the same load and the same pinning,
//! in turns (A B B A …), each time with a fresh process. It tells medians,
//! their ratio, and the spread of the ratio. It checks every reply, and a wrong
//! one ends the run. The most important figure is the CPU time that the kernel
//! charges to the server for a command, because throughput and latency depend
//! on where the kernel puts threads.
//!
//! Most loads are closed loops: each connection sends its next request (or
//! batch) when the last one was answered, as clients of such a server do. A
//! latency is the time that such a client waits, from just before its write to
//! just after the read that held its reply. With a rate, work arrives whether
//! or not the server keeps up, and a latency counts from the arrival.
//! `README.md` says how to read the figures.
//!
//! The load itself comes from the companion: `crate::load`. In reading
//! order here: `load` and `options` (what one can ask for), `scenarios`,
//! `servers` and `accounting` (what is measured), `calls` (system calls),
//! `figures`, `rounds` and `report` (what is told), `table`.

mod accounting;
mod arguments;
mod calls;
mod figures;
pub(crate) mod load;
mod options;
mod report;
mod rounds;
mod scenarios;
pub(crate) mod servers;
mod table;

pub(crate) use companion::failure::{Failure, Outcome};
use companion::text::json::Json;
use options::{Request, Setup};
use std::ffi::OsString;
use std::process::ExitCode;

/// Runs `bench` with these arguments. The status is 0; 1 if the quick table
/// missed a goal, 2 if the arguments cannot be understood, 4 if a run failed,
/// by a wrong reply or otherwise.
pub fn run(arguments: &[OsString]) -> ExitCode {
    match options::parse(arguments).and_then(carry_out) {
        Ok(status) => status,
        Err(failure) => {
            eprintln!("bench: {failure}");
            if let Failure::Usage(_) = failure {
                eprintln!("Try 'bench --help'.");
            }
            failure.exit_code()
        }
    }
}

fn carry_out(request: Request) -> Outcome<ExitCode> {
    match request {
        Request::Usage(text) => print!("{text}"),
        Request::Run(load, setup) => {
            prepare()?;
            let result = rounds::compare(&load, &setup)?;
            print!("{}", report::text(&result));
            keep(&report::json(&result), &setup)?;
        }
        Request::Table(setup, quick) => {
            prepare()?;
            let (result, met) = table::run(&setup, quick)?;
            keep(&result, &setup)?;
            if quick && !met {
                return Ok(ExitCode::FAILURE);
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn prepare() -> Outcome<()> {
    servers::raise_descriptor_limit()?;
    servers::end_children_on_signals()
}

/// Writes a result to the file that was asked for.
fn keep(result: &Json, setup: &Setup) -> Outcome<()> {
    let Some(path) = &setup.json else {
        return Ok(());
    };
    let written = std::fs::write(path, format!("{result}\n"));
    written.map_err(Failure::of(format!("writing {}", path.display())))
}
