//! The scenarios: each runs once on one server and tells its figures.

mod calls;
mod connect;
mod cycle;
mod handoff;
mod idle;
mod mature;
mod recovery;
mod stock;
mod syncs;
mod timers;
mod tubes;

pub use syncs::syncs;

use super::figures::Figure;
use super::load::{Length, Load};
use super::servers::Server;
use companion::failure::{Failure, Outcome};
use companion::load::arrivals::Left;
use companion::load::jobs::Ledger;
use companion::load::wire::Wire;
use companion::load::{clean_up, enter};
use std::time::{Duration, Instant};

/// Runs a load once.
pub fn run(load: &Load, server: &mut Server) -> Result<Vec<Figure>, Failure> {
    match load.scenario.as_str() {
        "put" => cycle::put(load, server),
        "cycle" => cycle::cycle(load, server),
        "handoff" => handoff::run(load, server),
        "connect" => connect::run(load, server),
        "tubes" => tubes::run(load, server),
        "ready" => stock::ready(load, server),
        "delayed" => stock::delayed(load, server),
        "mature" => mature::run(load, server),
        "timers" => timers::run(load, server),
        "idle" => idle::run(load, server),
        "recovery" => recovery::run(load, server),
        "calls" => calls::run(load, server),
        other => Err(Failure::Usage(format!("no scenario is called {other}"))),
    }
}

/// Connections that use the scenarios' tube and watch nothing else.
fn connect(server: &Server, connections: usize) -> Result<Wire, Failure> {
    enter(Wire::connect(&server.at(), connections)?)
}

/// Deletes what a run left behind on a server that lives on.
fn tidy(server: &Server, ledger: &Ledger) -> Outcome<()> {
    match server.is_ours() {
        true => Ok(()),
        false => clean_up(&server.at(), ledger),
    }
}

/// What is left of a run as it begins.
fn left(length: Length) -> Left {
    match length {
        Length::Count(count) => Left::Jobs(count),
        Length::Seconds(seconds) => Left::Until(Instant::now() + Duration::from_secs_f64(seconds)),
    }
}

/// Room for the jobs of a run, as far as it can be known. Untouched pages of
/// it cost nothing.
fn room(length: Length) -> usize {
    match length {
        Length::Count(count) => count + 10_000,
        Length::Seconds(_) => 10_000_000,
    }
}
