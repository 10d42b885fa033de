//! `handoff`: producers put jobs for consumers that wait in `reserve`.
//!
//! A producer puts its next job when the last one was acknowledged, handed to
//! a consumer, deleted by it, and that consumer has asked for the next. So
//! each producer has one job in flight, and with more consumers than producers
//! there is always one that has been waiting for a while. A latency is the time
//! from just before the put was written to just after RESERVED was read.

use super::super::Failure;
use super::super::figures::{Done, Figure, Meter, latencies, size};
use super::super::histogram::Histogram;
use super::super::jobs::{Ledger, PutBatch, Shape};
use super::super::load::Load;
use super::super::reply::Reply;
use super::super::servers::Server;
use super::super::wire::{Script, Wire, unexpected};
use super::super::work::Left;
use super::{clean_up, connect, left, room, wait_for_waiters};
use std::time::Instant;

const WARM_UP: usize = 500;

/// Runs the scenario once.
pub fn run(load: &Load, server: &Server) -> Result<Vec<Figure>, Failure> {
    if load.consumers == 0 {
        return Err(Failure::usage("handoff needs consumers".into()));
    }
    let shape = Shape::plain(load.body);
    let mut wire = connect(server, load.producers + load.consumers)?;
    let mut handoff = Handoff {
        left: Left::Jobs(WARM_UP),
        batch: PutBatch::new(&shape, 1),
        ledger: Ledger::new(&shape, room(load.length)),
        producer_of: Vec::with_capacity(room(load.length)),
        producers: vec![Producer::default(); load.producers],
        in_hand: vec![None; load.consumers],
        busy: 0,
        latency: Histogram::new(),
    };
    for consumer in 0..load.consumers {
        wire.send(load.producers + consumer, b"reserve\r\n")?;
    }
    let mut control = connect(server, 1)?;
    wait_for_waiters(&mut control, load.consumers)?;
    handoff.run(&mut wire)?;
    handoff.latency = Histogram::new();
    handoff.left = left(load.length);
    let meter = Meter::start(server)?;
    handoff.run(&mut wire)?;
    let jobs = handoff.latency.count();
    let mut figures = meter.stop(&Done {
        commands: 3 * jobs,
        unit: "jobs/s",
        count: jobs,
    })?;
    figures.extend(latencies("", &handoff.latency));
    figures.extend(size(server)?);
    handoff.ledger.close()?;
    clean_up(server, &handoff.ledger)?;
    Ok(figures)
}

struct Handoff {
    left: Left,
    batch: PutBatch,
    ledger: Ledger,
    producer_of: Vec<usize>,
    /// The first connections.
    producers: Vec<Producer>,
    /// The other connections: the job that each is deleting.
    in_hand: Vec<Option<u64>>,
    /// How many jobs are in flight.
    busy: usize,
    latency: Histogram,
}

#[derive(Clone, Default)]
struct Producer {
    job: u64,
    acknowledged: bool,
    consumed: bool,
}

impl Handoff {
    fn run(&mut self, wire: &mut Wire) -> Result<(), Failure> {
        for producer in 0..self.producers.len() {
            self.begin(wire, producer, Instant::now())?;
        }
        wire.drive(self)
    }

    fn begin(&mut self, wire: &mut Wire, producer: usize, now: Instant) -> Result<(), Failure> {
        if self.left.take(1, now) == 0 {
            return Ok(());
        }
        self.busy += 1;
        let job = self.ledger.issue(1);
        self.producer_of.push(producer);
        self.producers[producer] = Producer {
            job,
            acknowledged: false,
            consumed: false,
        };
        wire.send(producer, self.batch.numbered(job, 1))
    }

    /// Goes on to the next job if all has happened to this one.
    fn next(&mut self, wire: &mut Wire, producer: usize, now: Instant) -> Result<(), Failure> {
        let Producer {
            acknowledged,
            consumed,
            ..
        } = self.producers[producer];
        if acknowledged && consumed {
            self.busy -= 1;
            self.begin(wire, producer, now)?;
        }
        Ok(())
    }
}

impl Script for Handoff {
    fn reply(
        &mut self,
        wire: &mut Wire,
        conn: usize,
        reply: Reply<'_>,
        at: Instant,
    ) -> Result<(), Failure> {
        let consumer = conn.checked_sub(self.producers.len());
        match (consumer, reply) {
            (None, Reply::Inserted(id)) => {
                self.ledger.insert(self.producers[conn].job, id)?;
                self.producers[conn].acknowledged = true;
                self.next(wire, conn, at)
            }
            (Some(consumer), Reply::Reserved(id, body)) if self.in_hand[consumer].is_none() => {
                let job = self.ledger.reserve(id, body)?;
                // A job's number was an index when it was issued.
                self.latency
                    .record(at - wire.sent_at(self.producer_of[job as usize]));
                self.in_hand[consumer] = Some(job);
                wire.send(conn, format!("delete {id}\r\n").as_bytes())
            }
            (Some(consumer), Reply::Deleted) if self.in_hand[consumer].is_some() => {
                let job = self.in_hand[consumer].take().unwrap_or_default();
                self.ledger.delete(job)?;
                wire.send(conn, b"reserve\r\n")?;
                let producer = self.producer_of[job as usize];
                self.producers[producer].consumed = true;
                self.next(wire, producer, at)
            }
            (_, other) => Err(unexpected(conn, &format!("{other:?}"))),
        }
    }

    fn finished(&self) -> bool {
        self.busy == 0
    }
}
