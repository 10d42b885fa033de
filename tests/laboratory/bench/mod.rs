//! `bench`: a load generator whose figures a sceptic can accept.
//!
//! It compares two servers in one go, on fresh processes, in turns (A B B A …),
//! with the same load and the same pinning, and tells medians, their ratio and
//! its spread. Every reply is checked; a wrong one ends the run. What counts
//! first is the CPU time that the kernel charges to the server for a command;
//! throughput and latency depend on where the kernel puts threads.
//!
//! The load is a closed loop: each connection sends its next request (or batch)
//! when the last one was answered, as clients of such a server do. A latency is
//! what such a client waits, from just before its write to just after the read
//! that held its reply. There is no fixed rate of arrivals.
//!
//! In reading order: `load` and `options` (what can be asked), `wire` and `reply` (the
//! connections), `jobs` (bodies, and the check of what comes back), `work` (put,
//! reserve and delete as steps), `scenarios`, `servers`, `port` and `accounting` (what is
//! measured), `calls` (system calls), `histogram`, `figures`, `rounds` and `report`
//! (what is told), `svg` (the same as a picture), `table`.

mod accounting;
mod calls;
mod figures;
mod histogram;
mod jobs;
pub(crate) mod load;
mod options;
mod reply;
mod report;
mod rounds;
mod scenarios;
pub(crate) mod servers;
mod svg;
mod table;
mod wire;
mod work;

pub use options::{OPTIONS, SCENARIOS};

use companion::json::{self, Json};
use options::{Request, Setup};
use std::fmt;
use std::path::Path;
use std::process::ExitCode;

/// Runs `bench` with these arguments: status 0; 1 if the quick table
/// missed a goal, 2 if the arguments cannot be understood, 4 if a run failed,
/// by a wrong reply or otherwise.
pub fn run(args: &[String]) -> ExitCode {
    match options::parse(args).and_then(carry_out) {
        Ok(status) => status,
        Err(failure) => {
            eprintln!("bench: {failure}");
            if failure.in_usage {
                eprintln!("Try 'bench --help'.");
            }
            ExitCode::from(if failure.in_usage { 2 } else { 4 })
        }
    }
}

fn carry_out(request: Request) -> Result<ExitCode, Failure> {
    match request {
        Request::Usage(text) => print!("{text}"),
        Request::Draw(from, to) => {
            let doing = || format!("reading {}", from.display());
            let text = std::fs::read(&from).map_err(Failure::of(doing()))?;
            let result = json::parse(&text).map_err(Failure::of(doing()))?;
            draw(&result, &to)?;
        }
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

fn prepare() -> Result<(), Failure> {
    servers::raise_descriptor_limit()?;
    servers::end_children_on_signals()
}

/// Writes a result to where it is wanted.
fn keep(result: &Json, setup: &Setup) -> Result<(), Failure> {
    if let Some(path) = &setup.json {
        write(path, &format!("{result}\n"))?;
    }
    match &setup.svg {
        Some(path) => draw(result, path),
        None => Ok(()),
    }
}

fn draw(result: &Json, path: &Path) -> Result<(), Failure> {
    let unknown = || Failure::new("this JSON is no result of bench".into());
    write(path, &svg::draw(result).ok_or_else(unknown)?)
}

fn write(path: &Path, text: &str) -> Result<(), Failure> {
    std::fs::write(path, text).map_err(Failure::of(format!("writing {}", path.display())))
}

/// Why a run ended early: what was being done, and what went wrong.
#[derive(Debug)]
pub struct Failure {
    message: String,
    /// The command line is to blame.
    pub(crate) in_usage: bool,
}

impl Failure {
    pub(crate) fn new(message: String) -> Failure {
        Failure {
            message,
            in_usage: false,
        }
    }

    pub(crate) fn usage(message: String) -> Failure {
        Failure {
            message,
            in_usage: true,
        }
    }

    /// For `map_err`: this was being done when the error came.
    pub(crate) fn of<E: fmt::Display>(doing: impl fmt::Display) -> impl FnOnce(E) -> Failure {
        move |err| Failure::new(format!("{doing}: {err}"))
    }

    /// The same failure, and what else is known.
    pub(crate) fn with(self, more: impl fmt::Display) -> Failure {
        Failure {
            message: format!("{}{more}", self.message),
            ..self
        }
    }

    /// The same failure, and where it happened.
    pub(crate) fn within(self, place: impl fmt::Display) -> Failure {
        Failure {
            message: format!("{place}: {}", self.message),
            ..self
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}
