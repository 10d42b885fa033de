//! `handoff`: producers put jobs for consumers that wait in `reserve`.

use super::setting::{left, room, tidy};
use crate::bench::figures::{Done, Figure, Meter, latencies, size};
use crate::bench::load::Load;
use crate::bench::servers::Server;
use crate::load::arrivals::Left;
use crate::load::handoff::Handoff;
use crate::load::jobs::Shape;
use crate::load::wire::PATIENCE;
use companion::failure::{Failure, Outcome};

const WARM_UP: usize = 500;

/// Runs the scenario once.
pub fn run(load: &Load, server: &Server) -> Outcome<Vec<Figure>> {
    if load.consumers == 0 {
        return Err(Failure::Usage("handoff needs consumers".into()));
    }
    let shape = Shape::plain(load.body);
    let parties = [load.producers, load.consumers];
    let (mut handoff, mut wire) =
        Handoff::new(&server.at(), PATIENCE, &shape, parties, room(load.length))?;
    handoff.run(&mut wire, Left::Jobs(WARM_UP), None)?;
    let meter = Meter::start(server)?;
    handoff.run(&mut wire, left(load.length), load.rate)?;
    let jobs = handoff.latency.count();
    let mut figures = meter.stop(&Done {
        commands: 3 * jobs,
        unit: "jobs/s",
        count: jobs,
    })?;
    figures.extend(latencies("", &handoff.latency));
    figures.extend(size(server)?);
    handoff.ledger.close()?;
    tidy(server, &handoff.ledger)?;
    Ok(figures)
}
