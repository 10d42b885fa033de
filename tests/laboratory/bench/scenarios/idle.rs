//! `idle`: many connections wait in `reserve`; then there is a job for each.
//!
//! It tells how long it took until all were connected and answered, how much
//! memory each takes while it waits, what the server does meanwhile (it should
//! do nothing), and how long it takes until each has got its job.

use super::setting::{connect, tidy};
use crate::bench::accounting;
use crate::bench::figures::{Done, Figure, Meter, figure, idle, latencies, micros};
use crate::bench::load::Load;
use crate::bench::servers::Server;
use crate::load::histogram::Histogram;
use crate::load::jobs::{Ledger, PutBatch, Shape};
use crate::load::reply::Reply;
use crate::load::wait_for_waiters;
use crate::load::wire::{Script, Wire, unexpected};
use companion::failure::Failure;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Runs the scenario once.
pub fn run(load: &Load, server: &Server) -> Result<Vec<Figure>, Failure> {
    let waiters = load.connections;
    let mut control = connect(server, 1)?;
    let empty = server.pid.map(accounting::resident).transpose()?;
    let begun = Instant::now();
    // The last connection is the producer's.
    let mut wire = connect(server, waiters + 1)?;
    let accepted = begun.elapsed();
    for waiter in 0..waiters {
        wire.send(waiter, b"reserve\r\n")?;
    }
    wait_for_waiters(&mut control, waiters)?;
    let mut figures = vec![figure(
        "all accepted after",
        "ms",
        micros(accepted) / 1000.0,
    )];
    if let (Some(pid), Some(empty)) = (server.pid, empty) {
        let grown = accounting::resident(pid)? as f64 - empty as f64;
        figures.push(figure(
            "RSS per connection",
            "kB",
            grown / 1000.0 / (waiters + 1) as f64,
        ));
        figures.push(figure("threads", "", accounting::threads(pid)? as f64));
        // The server may still work for a moment after the last request.
        sleep(Duration::from_millis(500));
        figures.extend(idle(server, load)?);
    }
    let mut feeding = Feeding::new(load, waiters);
    let meter = Meter::start(server)?;
    let fed = Instant::now();
    feeding.put(&mut wire)?;
    wire.drive(&mut feeding)?;
    let took = fed.elapsed();
    let count = waiters as u64;
    figures.extend(meter.stop(&Done {
        commands: 2 * count,
        unit: "jobs/s",
        count,
    })?);
    figures.push(figure(
        "each has its job after",
        "ms",
        micros(took) / 1000.0,
    ));
    figures.extend(latencies("", &feeding.latency));
    for waiter in 0..waiters {
        let id = feeding.ledger.id(feeding.given[waiter].unwrap_or_default());
        wire.ask(
            waiter..waiter + 1,
            format!("delete {id}\r\n").as_bytes(),
            1,
            |reply| reply == Reply::Deleted,
        )?;
        feeding
            .ledger
            .delete(feeding.given[waiter].unwrap_or_default())?;
    }
    feeding.ledger.close()?;
    tidy(server, &feeding.ledger)?;
    Ok(figures)
}

/// One connection puts a job for each connection that waits.
struct Feeding {
    batch: PutBatch,
    depth: usize,
    ledger: Ledger,
    /// When the put of each job was written.
    sent: Vec<Instant>,
    /// The job that each waiting connection got.
    given: Vec<Option<u64>>,
    latency: Histogram,
}

impl Feeding {
    fn new(load: &Load, waiters: usize) -> Feeding {
        let shape = Shape::plain(load.body);
        Feeding {
            batch: PutBatch::new(&shape, load.depth),
            depth: load.depth,
            ledger: Ledger::new(&shape, waiters),
            sent: Vec::with_capacity(waiters),
            given: vec![None; waiters],
            latency: Histogram::default(),
        }
    }

    fn put(&mut self, wire: &mut Wire) -> Result<(), Failure> {
        let together = self.depth.min(self.given.len() - self.ledger.issued());
        let first = self.ledger.issue(together);
        let producer = self.given.len();
        wire.send(producer, self.batch.numbered(first, together))?;
        self.sent
            .resize(self.ledger.issued(), wire.sent_at(producer));
        Ok(())
    }
}

impl Script for Feeding {
    fn reply(
        &mut self,
        wire: &mut Wire,
        conn: usize,
        reply: Reply<'_>,
        at: Instant,
    ) -> Result<(), Failure> {
        match (self.given.get_mut(conn), reply) {
            (None, Reply::Inserted(id)) => {
                self.ledger.insert(self.ledger.inserted as u64, id)?;
                let answered = self.ledger.inserted;
                if answered == self.ledger.issued() && answered < self.given.len() {
                    self.put(wire)?;
                }
                Ok(())
            }
            (Some(given @ None), Reply::Reserved(id, body)) => {
                let job = self.ledger.reserve(id, body)?;
                *given = Some(job);
                self.latency.record(at - self.sent[job as usize]);
                Ok(())
            }
            (_, other) => Err(unexpected(conn, other)),
        }
    }

    fn finished(&self) -> bool {
        let all = self.given.len();
        self.ledger.inserted == all && self.ledger.reserved == all
    }
}
