//! What several scenarios need before they begin and after they end.

use crate::bench::load::Length;
use crate::bench::servers::Server;
use crate::load::arrivals::Left;
use crate::load::jobs::Ledger;
use crate::load::wire::{PATIENCE, Wire};
use crate::load::{clean_up, enter};
use companion::failure::Outcome;
use std::time::{Duration, Instant};

/// Makes connections that use the scenarios' tube and watch no other one.
pub fn connect(server: &Server, connections: usize) -> Outcome<Wire> {
    enter(Wire::connect(&server.at(), connections, PATIENCE)?)
}

/// On a server that was not started here, deletes what a run has left behind.
pub fn tidy(server: &Server, ledger: &Ledger) -> Outcome<()> {
    match server.is_ours() {
        true => Ok(()),
        false => clean_up(&server.at(), PATIENCE, ledger),
    }
}

/// What is left of a run at its beginning.
pub fn left(length: Length) -> Left {
    match length {
        Length::Count(count) => Left::Jobs(count),
        Length::Seconds(seconds) => Left::Until(Instant::now() + Duration::from_secs_f64(seconds)),
    }
}

/// For how many jobs of a run to make room, as far as that can be known. Pages
/// of it that are not touched cost nothing.
pub fn room(length: Length) -> usize {
    match length {
        Length::Count(count) => count + 10_000,
        Length::Seconds(_) => 10_000_000,
    }
}
