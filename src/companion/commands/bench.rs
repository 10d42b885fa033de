//! `bench`: puts load on a server, and tells how fast it answers.
//!
//! It measures from outside, so it works with any server, but it cannot tell
//! what the server itself spends.

use crate::command::{
    Command, Interval, Invocation, Kind, Number, Opt, Size, at_most_one, described, options,
};
use crate::failure::{Failure, Outcome};
use crate::load::arrivals::{Left, Rate};
use crate::load::handoff::Handoff;
use crate::load::histogram::Histogram;
use crate::load::jobs::{STAMP, Shape};
use crate::load::wire::Wire;
use crate::load::work::{CYCLE, PUT, Work};
use crate::load::{clean_up, enter};
use crate::server::address::Address;
use crate::text::json::{self, Json, float, json};
use crate::text::output::print;
use std::time::{Duration, Instant};

pub const BENCH: Command = Command {
    name: "bench",
    operands: "put | cycle | handoff",
    operand_kind: Kind::Words(&["put", "cycle", "handoff"]),
    about: "put load on a server, and tell how fast it answers",
    options: || described(OPTIONS),
    run: bench,
    ..Command::BLANK
};

options! {
    connections: Number<1, 10_000> =
        Opt::value("c", "connections", "N", "use N at the same time (default: 1)") => Number(1),
    consumers: Option<Number<1, 10_000>> =
        Opt::value("w", "consumers", "N", "handoff: N wait for jobs (default: 2)"),
    // A greater depth could fill the sockets' buffers in both directions.
    depth: Option<Number<1, 4096>> =
        Opt::value("d", "depth", "N", "requests sent together on each (default: 1)"),
    body: Size<{ STAMP as u64 }, { 1 << 30 }> =
        Opt::value("b", "body", "BYTES", "the size of a body (default: 100)") => Size(100),
    count: Option<Number<1, 100_000_000>> =
        Opt::value("n", "count", "N", "put N jobs (default: 100000)"),
    seconds: Option<Interval> =
        Opt::value("s", "seconds", "TIME", "as many jobs as go into this time"),
    rate: Option<Number<1, 10_000_000>> =
        Opt::value("r", "rate", "N", "put N jobs a second, not as many as it answers"),
    seed: u32 = Opt::value("", "seed", "N", "for the random gaps of --rate (default: 1)") => 1,
    json: bool = Opt::flag("j", "json", "write JSON"),
}

/// How many jobs each connection puts before the measurement begins.
const WARM_UP: usize = 100;

/// The load that is put on the server.
struct Load<'a> {
    address: &'a Address,
    patience: Duration,
    scenario: &'a str,
    connections: usize,
    depth: usize,
    consumers: usize,
    shape: Shape,
    /// How many jobs, if that is given.
    count: Option<usize>,
    time: Duration,
    rate: Option<Rate>,
}

/// The result of a measurement.
struct Told {
    jobs: u64,
    commands: u64,
    took: Duration,
    latency: Histogram,
}

fn bench(invocation: &Invocation) -> Outcome {
    let options = invocation.read(OPTIONS)?;
    at_most_one(&[
        ("count", options.count.is_some()),
        ("seconds", options.seconds.is_some()),
    ])?;
    let scenario = match invocation.operands() {
        [scenario] if ["put", "cycle", "handoff"].contains(&scenario.as_str()) => scenario,
        [other] => {
            let what = format!("'{other}' is not put, cycle or handoff");
            return Failure::usage(what);
        }
        _ => return Failure::usage("what? put, cycle or handoff"),
    };
    let handoff = scenario == "handoff";
    if handoff && options.depth.is_some() || !handoff && options.consumers.is_some() {
        let what = "--consumers goes with handoff, --depth with the others";
        return Failure::usage(what);
    }
    let load = Load {
        address: invocation.address(),
        patience: invocation.patience,
        scenario,
        connections: options.connections.0,
        depth: options.depth.map_or(1, |Number(depth)| depth),
        consumers: options.consumers.map_or(2, |Number(count)| count),
        shape: Shape::plain(options.body.0),
        count: match (&options.seconds, options.count) {
            (None, None) => Some(100_000),
            (_, given) => given.map(|Number(count)| count),
        },
        time: options
            .seconds
            .map_or(Duration::ZERO, |Interval(time)| time),
        rate: options.rate.map(|Number(rate)| Rate {
            jobs_per_second: rate as f64,
            seed: options.seed.into(),
        }),
    };
    let told = if handoff {
        load.hand_over()?
    } else {
        load.work()?
    };
    print(match options.json {
        true => json::line(&load.json(&told)) + "\n",
        false => load.text(&told),
    })
}

impl Load<'_> {
    fn left(&self) -> Left {
        let until = || Left::Until(Instant::now() + self.time);
        self.count.map_or_else(until, Left::Jobs)
    }

    /// For how many jobs to reserve memory. If their number is not known, this
    /// is generous: pages that are never touched cost nothing.
    fn room(&self) -> usize {
        self.count.unwrap_or(10_000_000)
    }

    /// `put` and `cycle`: no connection waits for another.
    fn work(&self) -> Outcome<Told> {
        let connect = match self.rate {
            Some(_) => Wire::paced,
            None => Wire::connect,
        };
        let mut wire = enter(connect(self.address, self.connections, self.patience)?)?;
        let mut work = Work::new(&self.shape, self.connections, self.depth, self.room());
        let steps = if self.scenario == "put" { PUT } else { CYCLE };
        let begun = |work: &mut Work, wire: &mut Wire| {
            let warm_up = Left::Jobs(self.connections * self.depth.max(WARM_UP));
            work.run(wire, CYCLE, warm_up, None)?;
            work.forget_latencies();
            let begun = Instant::now();
            let commands = work.run(wire, steps, self.left(), self.rate)?;
            work.ledger.close()?;
            Ok((commands, begun.elapsed()))
        };
        let run = begun(&mut work, &mut wire);
        // The jobs that were put are deleted, even if something went wrong.
        drop(wire);
        let cleaned = clean_up(self.address, self.patience, &work.ledger);
        let (commands, took) = run?;
        cleaned?;
        Ok(Told {
            jobs: commands / steps.len() as u64,
            commands,
            took,
            latency: work.latency,
        })
    }

    fn hand_over(&self) -> Outcome<Told> {
        let parties = [self.connections, self.consumers];
        let (address, patience) = (self.address, self.patience);
        let (mut handoff, mut wire) =
            Handoff::new(address, patience, &self.shape, parties, self.room())?;
        handoff.run(&mut wire, Left::Jobs(self.connections * WARM_UP), None)?;
        let begun = Instant::now();
        handoff.run(&mut wire, self.left(), self.rate)?;
        let took = begun.elapsed();
        handoff.ledger.close()?;
        let jobs = handoff.latency.count();
        Ok(Told {
            jobs,
            commands: 3 * jobs,
            took,
            latency: handoff.latency,
        })
    }

    /// The figures as text, and the latencies by powers of two.
    fn text(&self, told: &Told) -> String {
        let seconds = told.took.as_secs_f64();
        let mut text = format!(
            "{}, {} jobs of {} bytes in {seconds:.2} s: {:.0} jobs/s, {:.0} commands/s\n",
            self.described(),
            told.jobs,
            self.shape.body,
            told.jobs as f64 / seconds,
            told.commands as f64 / seconds
        );
        let latency = &told.latency;
        let shares = told.micros_of();
        let shares = shares.map(|(name, micros)| format!("{name} {micros:.1}"));
        text += &format!("latency in microseconds: {}\n", shares.join(", "));
        for (below, count) in latency.octaves() {
            let share = count as f64 / latency.count() as f64;
            let bar = "#".repeat((share * 50.0).ceil() as usize);
            let (below, percent) = (micros(below), share * 100.0);
            text += &format!("  below {below:>10.1} {count:>10} {percent:>6.2} % {bar}\n");
        }
        text
    }

    fn described(&self) -> String {
        let (connections, depth) = (self.connections, self.depth);
        let mut text = match self.scenario {
            "handoff" => format!(
                "handoff: {connections} producers, {} consumers",
                self.consumers
            ),
            other => format!("{other}: {connections} connections, depth {depth}"),
        };
        if let Some(rate) = self.rate {
            text += &format!(", {} jobs/s wanted", rate.jobs_per_second);
        }
        text
    }

    fn json(&self, told: &Told) -> Json {
        let seconds = told.took.as_secs_f64();
        let micros_of = told.micros_of().into_iter();
        let octave = |(below, count)| json!({"below": float(micros(below)), "count": count});
        let octaves = told.latency.octaves().into_iter().map(octave);
        let per_second = |count| float(count as f64 / seconds);
        json!({
            "scenario": self.scenario,
            "connections": self.connections,
            "depth": self.depth,
            "body": self.shape.body,
            "rate": self.rate.map(|rate| float(rate.jobs_per_second)),
            "jobs": told.jobs,
            "seconds": float(seconds),
            "jobs_per_second": per_second(told.jobs),
            "commands_per_second": per_second(told.commands),
            "latency_us": micros_of.map(|(name, micros)| (name, float(micros))).collect::<Json>(),
            "histogram_us": octaves.collect::<Json>(),
        })
    }
}

impl Told {
    /// The latencies that this share of all jobs did not exceed, and the
    /// longest.
    fn micros_of(&self) -> [(&'static str, f64); 5] {
        let shares = [
            ("p50", 0.5),
            ("p90", 0.9),
            ("p99", 0.99),
            ("p99.9", 0.999),
            ("longest", 1.0),
        ];
        shares.map(|(name, share)| (name, micros(self.latency.quantile(share))))
    }
}

fn micros(duration: Duration) -> f64 {
    duration.as_nanos() as f64 / 1000.0
}
