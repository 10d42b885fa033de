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
mod tubes;

pub use syncs::syncs;

use super::Failure;
use super::figures::Figure;
use super::jobs::Ledger;
use super::load::{Length, Load};
use super::reply::Reply;
use super::servers::Server;
use super::wire::Wire;
use super::work::Left;
use std::time::{Duration, Instant};

/// The tube that the scenarios work in.
const TUBE: &str = "beanpole-bench";

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
        "idle" => idle::run(load, server),
        "recovery" => recovery::run(load, server),
        "calls" => calls::run(load, server),
        other => Err(Failure::usage(format!("no scenario is called {other}"))),
    }
}

/// Connections that use the scenarios' tube and watch nothing else.
fn connect(server: &Server, connections: usize) -> Result<Wire, Failure> {
    let mut wire = Wire::connect(server.address, connections)?;
    let requests = format!("use {TUBE}\r\nwatch {TUBE}\r\nignore default\r\n");
    wire.ask(0..connections, requests.as_bytes(), 3, |reply| {
        matches!(reply, Reply::Using(_) | Reply::Watching(1 | 2))
    })?;
    Ok(wire)
}

/// A number out of the data of `stats` or one of its kind.
fn stat(stats: &str, key: &str) -> Result<u64, Failure> {
    let value = stats
        .lines()
        .find_map(|line| line.strip_prefix(key)?.strip_prefix(": "));
    let value = value.and_then(|value| value.trim().parse().ok());
    value.ok_or_else(|| Failure::new(format!("no number for {key} in the server's stats")))
}

/// Waits until so many connections wait in `reserve`.
fn wait_for_waiters(control: &mut Wire, waiters: usize) -> Result<(), Failure> {
    let give_up = Instant::now() + Duration::from_secs(60);
    loop {
        let stats = control.ask_data(&format!("stats-tube {TUBE}"))?;
        let waiting = stat(&stats, "current-waiting")?;
        if waiting == waiters as u64 {
            return Ok(());
        }
        if Instant::now() > give_up {
            let what = format!("{waiting} of {waiters} connections wait in reserve after 60 s");
            return Err(Failure::new(what));
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Deletes what a run left behind on a server that lives on.
fn clean_up(server: &Server, ledger: &Ledger) -> Result<(), Failure> {
    if server.is_ours() {
        return Ok(());
    }
    let mut wire = Wire::connect(server.address, 1)?;
    let left: Vec<u64> = ledger.left().collect();
    for batch in left.chunks(1000) {
        let delete = |&job: &u64| format!("delete {}\r\n", ledger.id(job));
        let requests: String = batch.iter().map(delete).collect();
        let deleted = |reply: Reply<'_>| reply == Reply::Deleted;
        wire.ask(0..1, requests.as_bytes(), batch.len(), deleted)?;
    }
    Ok(())
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
