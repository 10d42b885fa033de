//! `ready` and `delayed`: what a large stock of jobs costs.
//!
//! It tells the CPU time of a command for each power of ten through which the
//! stock grows and shrinks. It also tells how much memory a job takes besides
//! its body: that is how much more resident memory a full server has than an
//! empty one.

use super::setting::{connect, tidy};
use crate::bench::accounting::{self, Usage};
use crate::bench::figures::{Done, Figure, Meter, figure, idle, latencies, micros};
use crate::bench::load::Load;
use crate::bench::servers::Server;
use crate::load::arrivals::Left;
use crate::load::jobs::Shape;
use crate::load::wire::Wire;
use crate::load::work::{DRAIN, PUT, Step, Work};
use crate::load::{TUBE, stat};
use companion::failure::Failure;
use std::ops::Range;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Costs are not told for a smaller stock, because there are too few commands.
const SMALLEST: usize = 1000;

/// Fills the server with ready jobs, then drains it.
pub fn ready(load: &Load, server: &Server) -> Result<Vec<Figure>, Failure> {
    let shape = Shape {
        priorities: load.priorities,
        ..Shape::plain(load.body)
    };
    let mut stock = Stock::new(load, server, &shape)?;
    let mut figures = stock.fill()?;
    let expected = stock.count as u64;
    let ready = stock.stat("current-jobs-ready")?;
    if ready != expected {
        return Err(Failure::Refused(format!(
            "{expected} jobs were put, and {ready} are ready"
        )));
    }
    figures.extend(stock.drain()?);
    sleep(Duration::from_secs_f64(load.settle_seconds));
    figures.extend(
        stock
            .grown()?
            .map(|bytes| figure("RSS left over", "MB", bytes / 1e6)),
    );
    stock.work.ledger.close()?;
    Ok(figures)
}

/// Fills the server with delayed jobs, some of which become due in each second.
/// Then measures what it does while no client asks for anything.
pub fn delayed(load: &Load, server: &Server) -> Result<Vec<Figure>, Failure> {
    let seconds = load.count()?.div_ceil(load.due_per_second as usize);
    let delays = u32::try_from(seconds).unwrap_or(u32::MAX);
    let shape = Shape {
        delay: 1,
        delays,
        ..Shape::plain(load.body)
    };
    let mut stock = Stock::new(load, server, &shape)?;
    let begun = Instant::now();
    let mut figures = stock.fill()?;
    let ended = Instant::now();
    figures.extend(idle(server, load)?);
    stock.check_due(&shape, begun, ended)?;
    stock.work.ledger.close()?;
    drop(stock.wire);
    tidy(server, &stock.work.ledger)?;
    Ok(figures)
}

struct Stock<'a> {
    server: &'a Server,
    wire: Wire,
    work: Work,
    count: usize,
    body: usize,
    /// Resident memory before the first job.
    empty: Option<u64>,
}

impl Stock<'_> {
    fn new<'a>(load: &Load, server: &'a Server, shape: &Shape) -> Result<Stock<'a>, Failure> {
        let count = load.count()?;
        Ok(Stock {
            server,
            wire: connect(server, load.connections)?,
            work: Work::new(shape, load.connections, load.depth, count),
            count,
            body: load.body,
            empty: server.pid.map(accounting::resident).transpose()?,
        })
    }

    fn fill(&mut self) -> Result<Vec<Figure>, Failure> {
        let mut figures = self.by_decade("put", PUT, decades(self.count))?;
        figures.extend(self.grown()?.map(|bytes| {
            let each = bytes / self.count as f64 - self.body as f64;
            figure("memory per job beyond its body", "bytes", each)
        }));
        Ok(figures)
    }

    fn drain(&mut self) -> Result<Vec<Figure>, Failure> {
        let decades = decades(self.count).into_iter().rev().collect();
        self.by_decade("drain", DRAIN, decades)
    }

    /// Does these steps for the jobs of each decade of the stock. Returns
    /// figures of all decades together, and the CPU time of each.
    fn by_decade(
        &mut self,
        what: &str,
        steps: &'static [Step],
        decades: Vec<Range<usize>>,
    ) -> Result<Vec<Figure>, Failure> {
        self.work.forget_latencies();
        let whole = Meter::start(self.server)?;
        let mut costs = Vec::new();
        let mut commands = 0;
        for decade in decades {
            let usage = self
                .server
                .pid
                .map(|pid| Ok((pid, Usage::before(pid)?)))
                .transpose()?;
            let done = self
                .work
                .run(&mut self.wire, steps, Left::Jobs(decade.len()), None)?;
            commands += done;
            if let Some((pid, usage)) = usage.filter(|_| decade.start > 0) {
                let each = micros(usage.spent(pid)?.cpu) / done as f64;
                costs.push((decade, each));
            }
        }
        let mut figures = whole.stop(&Done::commands(commands))?;
        figures.extend(latencies("", &self.work.latency));
        for told in &mut figures {
            told.name = format!("{what}: {}", told.name);
        }
        costs.sort_by_key(|(decade, _)| decade.start);
        for (Range { start, end }, cost) in &costs {
            let name = format!("{what}: CPU per command, {start} to {end}");
            figures.push(figure(name, "us", *cost));
        }
        if let [(_, first), .., (_, last)] = costs.as_slice() {
            figures.push(figure(
                format!("{what}: growth of CPU per command"),
                "times",
                last / first,
            ));
        }
        Ok(figures)
    }

    /// How much more resident memory the server has than when it was empty.
    fn grown(&self) -> Result<Option<f64>, Failure> {
        let (Some(pid), Some(empty)) = (self.server.pid, self.empty) else {
            return Ok(None);
        };
        Ok(Some(accounting::resident(pid)? as f64 - empty as f64))
    }

    fn stat(&mut self, key: &str) -> Result<u64, Failure> {
        stat(&self.wire.ask_data(&format!("stats-tube {TUBE}"))?, key)
    }

    /// Checks that the jobs whose delay is over are ready, and no others. All
    /// jobs were put between two moments, so the check allows a second more on
    /// either side.
    fn check_due(&mut self, shape: &Shape, begun: Instant, ended: Instant) -> Result<(), Failure> {
        let asked = Instant::now();
        let ready = self.stat("current-jobs-ready")?;
        let over = |seconds: f64| {
            let is_over = |&number: &u64| f64::from(shape.delay(number)) <= seconds;
            (0..self.count as u64).filter(is_over).count() as u64
        };
        let least = over((asked - ended).as_secs_f64() - 1.0);
        let most = over(begun.elapsed().as_secs_f64() + 1.0);
        if (least..=most).contains(&ready) {
            return Ok(());
        }
        Err(Failure::Refused(format!(
            "{ready} delayed jobs are ready, where {least} to {most} should be"
        )))
    }
}

/// The ranges from 0 to 1000, to 10,000 and so on, up to `count`.
fn decades(count: usize) -> Vec<Range<usize>> {
    let first = Range {
        start: 0,
        end: SMALLEST.min(count),
    };
    let mut decades = Vec::from([first]);
    while let Some(end) = decades
        .last()
        .map(|last| last.end)
        .filter(|&end| end < count)
    {
        decades.push(end..end.saturating_mul(10).min(count));
    }
    decades
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decades_cover_the_stock() {
        assert_eq!(decades(25_000), [0..1000, 1000..10_000, 10_000..25_000]);
        assert_eq!(decades(10_000), [0..1000, 1000..10_000]);
        assert_eq!(decades(7), [Range { start: 0, end: 7 }]);
    }
}
