//! `handoff`: producers put jobs for consumers that wait in `reserve`.
//!
//! A producer puts its next job only when four things have happened to the last
//! one: the server has acknowledged it, a consumer has got it and has deleted
//! it, and this consumer has asked for the next job. So each producer has one
//! job in flight. If there are more consumers than producers, some consumer has
//! always been waiting for a while. A latency is the time from just before the
//! put was written to just after RESERVED was read.

use super::arrivals::{Arrivals, Left, Rate};
use super::histogram::Histogram;
use super::jobs::{Ledger, PutBatch, Shape};
use super::reply::Reply;
use super::wire::{Script, Wire, unexpected};
use super::{enter, wait_for_waiters};
use companion::failure::Outcome;
use companion::server::address::Address;
use std::time::{Duration, Instant};

/// Producers, consumers, and the jobs between them.
pub struct Handoff {
    arrivals: Arrivals,
    batch: PutBatch,
    /// The record of all jobs.
    pub ledger: Ledger,
    producer_of: Vec<usize>,
    /// The producers have the first connections.
    producers: Vec<Producer>,
    /// The consumers have the other connections. This is the job that each is
    /// deleting.
    in_hand: Vec<Option<u64>>,
    /// How many jobs are in flight.
    busy: usize,
    /// The times from put to RESERVED.
    pub latency: Histogram,
}

#[derive(Clone, Default)]
struct Producer {
    job: u64,
    /// How many events of the job are still missing. There are two: INSERTED
    /// comes, and the consumer has deleted the job and waits again.
    left: usize,
}

impl Handoff {
    /// Makes this many producers and consumers, each on a connection of its
    /// own; those of the producers come first. When this returns, every
    /// consumer waits.
    pub fn new(
        address: &Address,
        patience: Duration,
        shape: &Shape,
        [producers, consumers]: [usize; 2],
        room: usize,
    ) -> Outcome<(Handoff, Wire)> {
        let mut wire = enter(Wire::paced(address, producers + consumers, patience)?)?;
        for consumer in 0..consumers {
            wire.send(producers + consumer, b"reserve\r\n")?;
        }
        wait_for_waiters(&mut Wire::connect(address, 1, patience)?, consumers)?;
        let handoff = Handoff {
            arrivals: Arrivals::new(Left::Jobs(0), producers, 1, None),
            batch: PutBatch::new(shape, 1),
            ledger: Ledger::new(shape, room),
            producer_of: Vec::with_capacity(room),
            producers: vec![Producer::default(); producers],
            in_hand: vec![None; consumers],
            busy: 0,
            latency: Histogram::default(),
        };
        Ok((handoff, wire))
    }

    /// Hands over jobs until nothing is left, at a rate if one is given.
    /// Latencies are counted from here on.
    pub fn run(&mut self, wire: &mut Wire, left: Left, rate: Option<Rate>) -> Outcome<()> {
        self.latency = Histogram::default();
        self.arrivals = Arrivals::new(left, self.producers.len(), 1, rate);
        for producer in 0..self.producers.len() {
            self.begin(wire, producer, Instant::now())?;
        }
        wire.drive(self)
    }

    /// One of the two events of a job has happened. After both, its producer
    /// begins the next job.
    fn went_on(&mut self, wire: &mut Wire, producer: usize, now: Instant) -> Outcome<()> {
        self.producers[producer].left -= 1;
        if self.producers[producer].left == 0 {
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
    ) -> Outcome<()> {
        let consumer = conn.checked_sub(self.producers.len());
        match (consumer, reply) {
            (None, Reply::Inserted(id)) => {
                self.ledger.insert(self.producers[conn].job, id)?;
                self.went_on(wire, conn, at)
            }
            (Some(consumer), Reply::Reserved(id, body)) if self.in_hand[consumer].is_none() => {
                let job = self.ledger.reserve(id, body)?;
                // The number of a job was an index when it was issued.
                self.latency
                    .record(at - wire.sent_at(self.producer_of[job as usize]));
                self.in_hand[consumer] = Some(job);
                wire.send(conn, format!("delete {id}\r\n").as_bytes())
            }
            (Some(consumer), Reply::Deleted) if self.in_hand[consumer].is_some() => {
                let job = self.in_hand[consumer].take().unwrap_or_default();
                self.ledger.delete(job)?;
                wire.send(conn, b"reserve\r\n")?;
                self.went_on(wire, self.producer_of[job as usize], at)
            }
            (_, other) => Err(unexpected(conn, other)),
        }
    }

    fn finished(&self) -> bool {
        self.busy == 0 && self.arrivals.are_over()
    }

    fn arrivals(&mut self) -> Option<&mut Arrivals> {
        Some(&mut self.arrivals)
    }

    fn begin(&mut self, wire: &mut Wire, producer: usize, now: Instant) -> Outcome<()> {
        if self.producers[producer].left > 0 {
            return Ok(());
        }
        let Some((_, since)) = self.arrivals.take(producer, now) else {
            return Ok(());
        };
        self.busy += 1;
        let job = self.ledger.issue(1);
        self.producer_of.push(producer);
        self.producers[producer] = Producer { job, left: 2 };
        wire.send_since(producer, self.batch.numbered(job, 1), since)
    }
}
