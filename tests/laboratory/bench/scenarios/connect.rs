//! `connect`: connect, put one job, close; what PHP does all day.
//!
//! The generator closes first, as such clients do, so the connections that
//! wait out their last packets (TIME_WAIT) are on its side. A latency begins
//! before the connecting and ends with INSERTED.

use super::super::Failure;
use super::super::figures::{Done, Figure, Meter, latencies, size};
use super::super::histogram::Histogram;
use super::super::jobs::{Ledger, PutBatch, Shape};
use super::super::load::Load;
use super::super::reply::Reply;
use super::super::servers::Server;
use super::super::wire::{Script, Wire, unexpected};
use super::super::work::Left;
use super::{clean_up, left, room};
use std::time::Instant;

const WARM_UP: usize = 200;

/// Runs the scenario once.
pub fn run(load: &Load, server: &Server) -> Result<Vec<Figure>, Failure> {
    let shape = Shape::plain(load.body);
    let mut visits = Visits {
        left: Left::Jobs(WARM_UP),
        batch: PutBatch::new(&shape, 1),
        ledger: Ledger::new(&shape, room(load.length)),
        at_work: vec![0; load.connections],
        busy: 0,
        latency: Histogram::new(),
    };
    let mut wire = Wire::connect(server.address, load.connections)?;
    visits.run(&mut wire)?;
    visits.latency = Histogram::new();
    visits.left = left(load.length);
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
    clean_up(server, &visits.ledger)?;
    Ok(figures)
}

struct Visits {
    left: Left,
    batch: PutBatch,
    ledger: Ledger,
    /// The job of each connection.
    at_work: Vec<u64>,
    busy: usize,
    latency: Histogram,
}

impl Visits {
    fn run(&mut self, wire: &mut Wire) -> Result<(), Failure> {
        for conn in 0..wire.len() {
            self.begin(wire, conn, Instant::now())?;
        }
        wire.drive(self)
    }

    fn begin(&mut self, wire: &mut Wire, conn: usize, now: Instant) -> Result<(), Failure> {
        if self.left.take(1, now) == 0 {
            return Ok(());
        }
        self.busy += 1;
        let job = self.ledger.issue(1);
        self.at_work[conn] = job;
        wire.reconnect(conn)?;
        wire.send_on(conn, self.batch.numbered(job, 1))
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
            return Err(unexpected(conn, &format!("{reply:?}")));
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
