//! The scenarios. Each runs once on one server and returns its figures.

mod calls;
mod connect;
mod crowd;
mod cycle;
mod handoff;
mod idle;
mod mature;
mod recovery;
mod setting;
mod stock;
mod syncs;
mod timers;
mod tubes;

pub use syncs::syncs;

use super::figures::Figure;
use super::load::Load;
use super::servers::Server;
use companion::failure::{Failure, Outcome};

/// Runs a load once.
pub fn run(load: &Load, server: &mut Server) -> Outcome<Vec<Figure>> {
    match load.scenario.as_str() {
        "put" => cycle::put(load, server),
        "cycle" => cycle::cycle(load, server),
        "crowd" => crowd::run(load, server),
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
