//! `connect`: connect, put one job, close, as PHP programs do all day.
//!
//! The generator closes first, as such clients do. So the connections that wait
//! for late packets (TIME_WAIT) are on its side. A latency begins before the
//! connecting and ends with INSERTED.

use super::setting::{left, room, tidy};
use crate::bench::figures::{Done, Figure, Meter, latencies, size};
use crate::bench::load::Load;
use crate::bench::servers::Server;
use crate::load::arrivals::{Arrivals, Left};
use crate::load::histogram::Histogram;
use crate::load::jobs::{Ledger, PutBatch, Shape};
use crate::load::reply::Reply;
use crate::load::wire::{PATIENCE, Script, Wire, unexpected};
use companion::failure::Failure;
use std::time::Instant;

const WARM_UP: usize = 200;

/// Runs the scenario once.
pub fn run(load: &Load, server: &Server) -> Result<Vec<Figure>, Failure> {
    let shape = Shape::plain(load.body);
    let mut visits = Visits {
        arrivals: Arrivals::new(Left::Jobs(WARM_UP), load.connections, 1, None),
        batch: PutBatch::new(&shape, 1),
        ledger: Ledger::new(&shape, room(load.length)),
        at_work: vec![0; load.connections],
        busy: 0,
        latency: Histogram::default(),
    };
    let mut wire = Wire::connect(&server.at(), load.connections, PATIENCE)?;
    visits.run(&mut wire)?;
    visits.latency = Histogram::default();
    visits.arrivals = Arrivals::new(left(load.length), load.connections, 1, None);
    let meter = Meter::start(server)?;
    visits.run(&mut wire)?;
    let visited = visits.latency.count();
    let done = Done {
        commands: visited,
        unit: "connections/s",
        count: visited,
    };
    let mut figures = meter.stop(&done)?;
    figures.extend(latencies("", &visits.latency));
    figures.extend(size(server)?);
    visits.ledger.close()?;
    drop(wire);
    tidy(server, &visits.ledger)?;
    Ok(figures)
}

struct Visits {
    arrivals: Arrivals,
    batch: PutBatch,
    ledger: Ledger,
    /// The job of each connection.
    at_work: Vec<u64>,
    busy: usize,
    latency: Histogram,
}

impl Visits {
    fn run(&mut self, wire: &mut Wire) -> Result<(), Failure> {
        for conn in 0..wire.connections() {
            self.begin(wire, conn, Instant::now())?;
        }
        wire.drive(self)
    }

    fn begin(&mut self, wire: &mut Wire, conn: usize, now: Instant) -> Result<(), Failure> {
        if self.arrivals.take(conn, now).is_none() {
            return Ok(());
        }
        self.busy += 1;
        let job = self.ledger.issue(1);
        self.at_work[conn] = job;
        let since = Instant::now();
        wire.reconnect(conn)?;
        wire.send_since(conn, self.batch.numbered(job, 1), since)
    }
}

impl Script for Visits {
    fn reply(
        &mut self,
        wire: &mut Wire,
        conn: usize,
        reply: Reply<'_>,
        at: Instant,
    ) -> Result<(), Failure> {
        let Reply::Inserted(id) = reply else {
            return Err(unexpected(conn, reply));
        };
        self.ledger.insert(self.at_work[conn], id)?;
        self.latency.record(at - wire.sent_at(conn));
        self.busy -= 1;
        self.begin(wire, conn, at)
    }

    fn finished(&self) -> bool {
        self.busy == 0
    }
}
