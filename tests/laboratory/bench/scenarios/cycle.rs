//! `put` and `cycle`: every connection busy, nobody waits for another.

use super::super::Failure;
use super::super::figures::{Done, Figure, Meter, latencies, size};
use super::super::jobs::Shape;
use super::super::load::Load;
use super::super::servers::Server;
use super::super::wire::Wire;
use super::super::work::{CYCLE, DRAIN, Left, PUT, Step, Work};
use super::{TUBE, clean_up, connect, left, room, stat};

/// Jobs that are put before measuring begins, on each connection.
const WARM_UP: usize = 200;
/// How many jobs are looked at afterwards.
pub const LOOKED_AT: usize = 1000;

/// Puts jobs; then looks whether they are there.
pub fn put(load: &Load, server: &Server) -> Result<Vec<Figure>, Failure> {
    let mut wire = connect(server, load.connections)?;
    let (work, figures) = busy(load, server, &mut wire, PUT)?;
    let stats = wire.ask_data(&format!("stats-tube {TUBE}"))?;
    let (ready, put) = (
        stat(&stats, "current-jobs-ready")?,
        work.ledger.inserted_count(),
    );
    if ready != put as u64 {
        return Err(Failure::new(format!(
            "{put} jobs were put, and {ready} are ready"
        )));
    }
    drop(wire);
    let mut work = work.by_one_connection();
    let mut wire = connect(server, 1)?;
    work.run(&mut wire, DRAIN, Left::Jobs(LOOKED_AT.min(put)))?;
    drop(wire);
    clean_up(server, &work.ledger)?;
    Ok(figures)
}

/// Puts, reserves and deletes jobs.
pub fn cycle(load: &Load, server: &Server) -> Result<Vec<Figure>, Failure> {
    let mut wire = connect(server, load.connections)?;
    cycle_on(load, server, &mut wire)
}

/// The same on connections that may watch more than the one tube.
pub fn cycle_on(load: &Load, server: &Server, wire: &mut Wire) -> Result<Vec<Figure>, Failure> {
    let (work, figures) = busy(load, server, wire, CYCLE)?;
    let (put, deleted) = (work.ledger.issued(), work.ledger.deleted_count());
    if put != deleted {
        return Err(Failure::new(format!(
            "{put} jobs were put, and {deleted} deleted"
        )));
    }
    Ok(figures)
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
    work.run(wire, steps, Left::Jobs(warm_up))?;
    work.forget_latencies();
    let meter = Meter::start(server)?;
    let commands = work.run(wire, steps, left(load.length))?;
    let mut figures = meter.stop(&Done::commands(commands))?;
    figures.extend(latencies("", &work.latency));
    figures.extend(size(server)?);
    work.ledger.close()?;
    Ok((work, figures))
}
