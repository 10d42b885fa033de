//! `mature`: many delayed jobs become ready in one second. How late is each?
//!
//! Delays are whole seconds from the moment of the put. A job that is put one
//! second later gets a delay that is one second shorter, so all jobs are due
//! within one second. They are put at a pace that spreads them evenly over that
//! second, even if the server could take them faster: otherwise they would be
//! due faster on such a server, too. Only with `--together` they are put as
//! fast as possible, and are all due at once.
//!
//! Only the server knows when exactly a job is due: at the earliest `delay`
//! after its put was written, and at the latest `delay` after its INSERTED was
//! read. Lateness counts from the earliest time, so it is never told too small.
//! A job that comes before that time is wrong.
//!
//! With consumers, all of them wait in `reserve` before, and lateness ends with
//! RESERVED. Without consumers, it ends with the first answer that shows no
//! delayed job.

use super::setting::{connect, tidy};
use crate::bench::figures::{Done, Figure, Meter, figure, latencies, micros};
use crate::bench::load::Load;
use crate::bench::servers::Server;
use crate::load::histogram::Histogram;
use crate::load::jobs::{Ledger, PutBatch, Shape};
use crate::load::reply::Reply;
use crate::load::wire::{Script, Wire, unexpected};
use crate::load::{TUBE, stat, wait_for_waiters};
use companion::failure::Failure;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// How long the puts should take, if the delay leaves so much time. It is long
/// enough for a slow server.
const PUTTING: Duration = Duration::from_secs(2);

/// Runs the scenario once.
pub fn run(load: &Load, server: &Server) -> Result<Vec<Figure>, Failure> {
    let count = load.count()?;
    let mut producer = connect(server, 1)?;
    let mut consumers = connect(server, load.consumers)?;
    for consumer in 0..load.consumers {
        consumers.send(consumer, b"reserve\r\n")?;
    }
    wait_for_waiters(&mut producer, load.consumers)?;
    let mut puts = Puts {
        ledger: Ledger::new(&Shape::plain(load.body), count),
        due: Vec::with_capacity(count),
        answered: 0,
        sent: Instant::now(),
        delay: Duration::ZERO,
        last_due: [Instant::now(); 2],
    };
    puts.run(&mut producer, load, count)?;
    let spread = Duration::from_secs(u64::from(!load.together));
    if Instant::now() + spread > puts.last_due[0] {
        return Err(Failure::Refused(
            "putting took too long: a larger --delay is needed".into(),
        ));
    }
    let last_due = puts.last_due;
    if load.consumers == 0 {
        return look(load, server, &mut producer, puts);
    }
    let mut draining = Draining {
        puts,
        left: count,
        in_hand: vec![None; load.consumers],
        late: Histogram::default(),
        last: Instant::now(),
    };
    consumers.be_patient(Duration::from_secs(u64::from(load.delay)));
    let meter = Meter::start(server)?;
    consumers.drive(&mut draining)?;
    let commands = 2 * count as u64;
    let mut figures = meter.stop(&Done {
        commands,
        unit: "jobs/s",
        count: count as u64,
    })?;
    // Throughput means nothing here, because it includes the time until the
    // jobs are due.
    figures.retain(|figure| figure.name != "throughput");
    figures.extend(latencies("late: ", &draining.late));
    figures.push(drained_after(draining.last, last_due));
    draining.puts.ledger.close()?;
    tidy(server, &draining.puts.ledger)?;
    Ok(figures)
}

/// How much later than the latest time at which it was due the last job came.
fn drained_after(last: Instant, [_, due]: [Instant; 2]) -> Figure {
    figure(
        "last late, at least",
        "us",
        micros(last.saturating_duration_since(due)),
    )
}

/// Waits until all jobs should be ready, and then asks until they are.
fn look(load: &Load, server: &Server, wire: &mut Wire, puts: Puts) -> Result<Vec<Figure>, Failure> {
    let meter = Meter::start(server)?;
    let [earliest, latest] = puts.last_due;
    sleep(earliest.saturating_duration_since(Instant::now()));
    let seen = loop {
        let stats = wire.ask_data(&format!("stats-tube {TUBE}"))?;
        let now = Instant::now();
        if stat(&stats, "current-jobs-delayed")? == 0 {
            let (ready, count) = (stat(&stats, "current-jobs-ready")?, load.count()? as u64);
            if ready != count {
                return Err(Failure::Refused(format!(
                    "{ready} of {count} jobs are ready"
                )));
            }
            break now;
        }
        sleep(Duration::from_micros(500));
    };
    let count = load.count()? as u64;
    let mut figures = meter.stop(&Done {
        commands: count,
        unit: "jobs/s",
        count,
    })?;
    figures.retain(|figure| figure.name == "CPU per command");
    for figure in &mut figures {
        figure.name = "CPU per job that becomes ready".to_string();
    }
    figures.push(figure("last late, at most", "us", micros(seen - earliest)));
    figures.push(drained_after(seen, [earliest, latest]));
    tidy(server, &puts.ledger)?;
    Ok(figures)
}

/// Puts all jobs in batches, one after the other.
struct Puts {
    ledger: Ledger,
    /// When each job is due at the earliest.
    due: Vec<Instant>,
    answered: u64,
    sent: Instant,
    delay: Duration,
    /// When the last job is due, at the earliest and at the latest.
    last_due: [Instant; 2],
}

impl Puts {
    fn run(&mut self, wire: &mut Wire, load: &Load, count: usize) -> Result<(), Failure> {
        let begun = Instant::now();
        let mut batch = None;
        let longest = Duration::from_secs(u64::from(load.delay.saturating_sub(1)));
        let putting = if load.together {
            Duration::ZERO
        } else {
            PUTTING.min(longest)
        };
        let pace = putting / u32::try_from(count).unwrap_or(u32::MAX);
        while self.due.len() < count {
            let turn = begun + pace * u32::try_from(self.due.len()).unwrap_or(u32::MAX);
            sleep(turn.saturating_duration_since(Instant::now()));
            let passed = u32::try_from(begun.elapsed().as_secs()).unwrap_or(u32::MAX);
            let Some(delay) = load.delay.checked_sub(passed).filter(|&delay| delay > 0) else {
                return Err(Failure::Refused(
                    "putting took too long: a larger --delay is needed".into(),
                ));
            };
            let shape = Shape {
                delay,
                ..Shape::plain(load.body)
            };
            let (_, requests) = match batch.take() {
                Some((of, requests)) if of == delay => batch.insert((of, requests)),
                _ => batch.insert((delay, PutBatch::new(&shape, load.depth))),
            };
            let together = load.depth.min(count - self.due.len());
            let first = self.ledger.issue(together);
            self.delay = Duration::from_secs(u64::from(delay));
            wire.send(0, requests.numbered(first, together))?;
            self.sent = wire.sent_at(0);
            self.due
                .resize(self.due.len() + together, self.sent + self.delay);
            wire.drive(self)?;
        }
        Ok(())
    }
}

impl Script for Puts {
    fn reply(
        &mut self,
        _: &mut Wire,
        conn: usize,
        reply: Reply<'_>,
        at: Instant,
    ) -> Result<(), Failure> {
        let Reply::Inserted(id) = reply else {
            return Err(unexpected(conn, reply));
        };
        self.ledger.insert(self.answered, id)?;
        self.answered += 1;
        let due = [self.sent + self.delay, at + self.delay];
        self.last_due = [0, 1].map(|which| self.last_due[which].max(due[which]));
        Ok(())
    }

    fn finished(&self) -> bool {
        self.answered == self.due.len() as u64
    }
}

/// Consumers that reserve and delete all jobs.
struct Draining {
    puts: Puts,
    left: usize,
    in_hand: Vec<Option<u64>>,
    late: Histogram,
    last: Instant,
}

impl Script for Draining {
    fn reply(
        &mut self,
        wire: &mut Wire,
        conn: usize,
        reply: Reply<'_>,
        at: Instant,
    ) -> Result<(), Failure> {
        match reply {
            Reply::Reserved(id, body) if self.in_hand[conn].is_none() => {
                let job = self.puts.ledger.reserve(id, body)?;
                let Some(late) = at.checked_duration_since(self.puts.due[job as usize]) else {
                    return Err(Failure::Refused(format!("job {id} came before it was due")));
                };
                self.late.record(late);
                self.last = at;
                self.in_hand[conn] = Some(job);
                wire.send(conn, format!("delete {id}\r\n").as_bytes())
            }
            Reply::Deleted if self.in_hand[conn].is_some() => {
                self.puts
                    .ledger
                    .delete(self.in_hand[conn].take().unwrap_or_default())?;
                self.left -= 1;
                wire.send(conn, b"reserve\r\n")
            }
            other => Err(unexpected(conn, other)),
        }
    }

    fn finished(&self) -> bool {
        self.left == 0
    }
}
