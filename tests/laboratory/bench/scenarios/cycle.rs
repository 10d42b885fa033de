//! `put` and `cycle`: every connection is busy, and none waits for another.

use super::setting::{connect, left, room, tidy};
use crate::bench::figures::{Done, Figure, Meter, latencies, size};
use crate::bench::load::Load;
use crate::bench::servers::Server;
use crate::load::arrivals::Left;
use crate::load::jobs::Shape;
use crate::load::wire::{PATIENCE, Wire};
use crate::load::work::{CYCLE, DRAIN, PUT, Step, Work};
use crate::load::{TUBE, enter, stat};
use companion::failure::{Failure, Outcome};

/// Jobs that are put before measuring begins, on each connection.
const WARM_UP: usize = 200;
/// How many jobs are checked afterwards.
pub const LOOKED_AT: usize = 1000;

/// Puts jobs, and then checks that they are there.
pub fn put(load: &Load, server: &Server) -> Result<Vec<Figure>, Failure> {
    let mut wire = connect_for(load, server)?;
    let (work, figures) = busy(load, server, &mut wire, PUT)?;
    let stats = wire.ask_data(&format!("stats-tube {TUBE}"))?;
    let (ready, put) = (stat(&stats, "current-jobs-ready")?, work.ledger.inserted);
    if ready != put as u64 {
        return Err(Failure::Refused(format!(
            "{put} jobs were put, and {ready} are ready"
        )));
    }
    drop(wire);
    let mut work = work.by_one_connection();
    let mut wire = connect(server, 1)?;
    work.run(&mut wire, DRAIN, Left::Jobs(LOOKED_AT.min(put)), None)?;
    drop(wire);
    tidy(server, &work.ledger)?;
    Ok(figures)
}

/// Puts, reserves and deletes jobs.
pub fn cycle(load: &Load, server: &Server) -> Result<Vec<Figure>, Failure> {
    let mut wire = connect_for(load, server)?;
    cycle_on(load, server, &mut wire)
}

/// The same on connections that may watch more than one tube.
pub fn cycle_on(load: &Load, server: &Server, wire: &mut Wire) -> Result<Vec<Figure>, Failure> {
    let (work, figures) = busy(load, server, wire, CYCLE)?;
    let (put, deleted) = (work.ledger.issued(), work.ledger.deleted);
    if put != deleted {
        return Err(Failure::Refused(format!(
            "{put} jobs were put, and {deleted} deleted"
        )));
    }
    Ok(figures)
}

fn connect_for(load: &Load, server: &Server) -> Outcome<Wire> {
    match load.rate {
        Some(_) => enter(Wire::paced(&server.at(), load.connections, PATIENCE)?),
        None => connect(server, load.connections),
    }
}

fn busy(
    load: &Load,
    server: &Server,
    wire: &mut Wire,
    steps: &'static [Step],
) -> Result<(Work, Vec<Figure>), Failure> {
    let shape = Shape {
        priorities: load.priorities,
        ..Shape::plain(load.body)
    };
    let mut work = Work::new(&shape, load.connections, load.depth, room(load.length));
    let warm_up = load.connections * load.depth.max(WARM_UP);
    work.run(wire, steps, Left::Jobs(warm_up), None)?;
    work.forget_latencies();
    let meter = Meter::start(server)?;
    let commands = work.run(wire, steps, left(load.length), load.rate)?;
    let mut figures = meter.stop(&Done::commands(commands))?;
    figures.extend(latencies("", &work.latency));
    if load.rate.is_some() {
        figures.extend(latencies("sent late: ", &work.delay));
    }
    figures.extend(size(server)?);
    work.ledger.close()?;
    Ok((work, figures))
}
