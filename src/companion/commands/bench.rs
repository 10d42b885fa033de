//! `bench`: load on the server that is named, and what it answers how fast.
//!
//! It measures from outside, so it works on any server; it says nothing of what
//! the server itself spends.

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
use crate::text::json::Json;
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
    connections: Option<Number<1, 10_000>> =
        Opt::value("c", "connections", "N", "so many at the same time (default: 1)"),
    consumers: Option<Number<1, 10_000>> =
        Opt::value("w", "consumers", "N", "handoff: so many that wait for jobs (default: 2)"),
    // More could fill the sockets' buffers in both directions.
    depth: Option<Number<1, 4096>> =
        Opt::value("d", "depth", "N", "requests sent together on each (default: 1)"),
    body: Option<Size<{ STAMP as u64 }, { 1 << 30 }>> =
        Opt::value("b", "body", "BYTES", "the size of a body (default: 100)"),
    count: Option<Number<1, 100_000_000>> =
        Opt::value("n", "count", "N", "so many jobs (default: 100000)"),
    seconds: Option<Interval> =
        Opt::value("s", "seconds", "TIME", "as many jobs as go into this time"),
    rate: Option<Number<1, 10_000_000>> =
        Opt::value("r", "rate", "N", "so many jobs a second, not as many as it answers"),
    seed: Option<u32> =
        Opt::value("", "seed", "N", "for the random gaps of --rate (default: 1)"),
    json: bool = Opt::flag("j", "json", "write JSON"),
}

/// Jobs put before measuring begins, on each connection.
const WARM_UP: usize = 100;

/// What is asked of the server.
struct Load {
    scenario: String,
    connections: usize,
    consumers: usize,
    depth: usize,
    body: usize,
    count: Option<usize>,
    time: Duration,
    rate: Option<Rate>,
}

/// What came of it.
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
            return Err(Failure::Usage(what));
        }
        _ => return Err(Failure::Usage("what? put, cycle or handoff".into())),
    };
    let handoff = scenario == "handoff";
    if handoff && options.depth.is_some() || !handoff && options.consumers.is_some() {
        let what = "--consumers goes with handoff, --depth with the others";
        return Err(Failure::Usage(what.into()));
    }
    let load = Load {
        scenario: scenario.clone(),
        connections: options.connections.map_or(1, |Number(count)| count),
        consumers: options.consumers.map_or(2, |Number(count)| count),
        depth: options.depth.map_or(1, |Number(depth)| depth),
        body: options.body.map_or(100, |Size(body)| body),
        count: match (options.seconds, options.count) {
            (None, given) => Some(given.map_or(100_000, |Number(count)| count)),
            _ => None,
        },
        time: options
            .seconds
            .map_or(Duration::ZERO, |Interval(time)| time),
        rate: options.rate.map(|Number(rate)| Rate {
            jobs_per_second: rate as f64,
            seed: options.seed.unwrap_or(1).into(),
        }),
    };
    let told = if handoff {
        load.hand_over(invocation)?
    } else {
        load.work(invocation)?
    };
    print(if options.json {
        format!("{}\n", load.json(&told))
    } else {
        load.text(&told)
    })
}

impl Load {
    fn left(&self) -> Left {
        self.count
            .map_or_else(|| Left::Until(Instant::now() + self.time), Left::Jobs)
    }

    /// Room for the jobs, as far as it can be known. Untouched pages of it cost
    /// nothing.
    fn room(&self) -> usize {
        self.count.unwrap_or(10_000_000)
    }

    /// `put` and `cycle`: every connection busy, nobody waits for another.
    fn work(&self, invocation: &Invocation) -> Outcome<Told> {
        let (address, patience) = (invocation.address(), invocation.patience());
        let wire = match self.rate {
            Some(_) => Wire::paced(address, self.connections, patience),
            None => Wire::connect(address, self.connections, patience),
        };
        let mut wire = enter(wire?)?;
        let shape = Shape::plain(self.body);
        let mut work = Work::new(&shape, self.connections, self.depth, self.room());
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
        // What was put goes, also where something went wrong.
        drop(wire);
        let cleaned = clean_up(address, patience, &work.ledger);
        let (commands, took) = run?;
        cleaned?;
        Ok(Told {
            jobs: commands / steps.len() as u64,
            commands,
            took,
            latency: work.latency,
        })
    }

    fn hand_over(&self, invocation: &Invocation) -> Outcome<Told> {
        let (address, patience) = (invocation.address(), invocation.patience());
        let parties = [self.connections, self.consumers];
        let shape = Shape::plain(self.body);
        let (mut handoff, mut wire) =
            Handoff::new(address, patience, &shape, parties, self.room())?;
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

    /// The figures for people, and the latencies by powers of two.
    fn text(&self, told: &Told) -> String {
        let seconds = told.took.as_secs_f64();
        let mut text = format!(
            "{}, {} jobs of {} bytes in {seconds:.2} s: {:.0} jobs/s, {:.0} commands/s\n",
            self.described(),
            told.jobs,
            self.body,
            told.jobs as f64 / seconds,
            told.commands as f64 / seconds
        );
        let latency = &told.latency;
        let micros_of = told
            .micros_of()
            .map(|(name, micros)| format!("{name} {micros:.1}"));
        text += &format!("latency in microseconds: {}\n", micros_of.join(", "));
        for (below, count) in latency.octaves() {
            let share = count as f64 / latency.count() as f64;
            let bar = "#".repeat((share * 50.0).ceil() as usize);
            let below = micros(below);
            text += &format!(
                "  below {below:>10.1} {count:>10} {:>6.2} % {bar}\n",
                share * 100.0
            );
        }
        text
    }

    fn described(&self) -> String {
        let mut text = format!("{}: ", self.scenario);
        text += &match self.scenario.as_str() {
            "handoff" => format!(
                "{} producers, {} consumers",
                self.connections, self.consumers
            ),
            _ => format!("{} connections, depth {}", self.connections, self.depth),
        };
        if let Some(rate) = self.rate {
            text += &format!(", {} jobs/s wanted", rate.jobs_per_second);
        }
        text
    }

    fn json(&self, told: &Told) -> Json {
        let seconds = told.took.as_secs_f64();
        let micros_of = told.micros_of();
        let micros_of = micros_of.map(|(name, micros)| (name.into(), Json::float(micros)));
        let octave = |(below, count): (Duration, u64)| {
            Json::object([
                ("below", Json::float(micros(below))),
                ("count", Json::number(count)),
            ])
        };
        let octaves = told.latency.octaves().into_iter().map(octave);
        let rate = self.rate.map(|rate| Json::float(rate.jobs_per_second));
        Json::object([
            ("scenario", Json::text(&self.scenario)),
            ("connections", Json::number(self.connections as u64)),
            ("depth", Json::number(self.depth as u64)),
            ("body", Json::number(self.body as u64)),
            ("rate", rate.unwrap_or(Json::Null)),
            ("jobs", Json::number(told.jobs)),
            ("seconds", Json::float(seconds)),
            ("jobs_per_second", Json::float(told.jobs as f64 / seconds)),
            (
                "commands_per_second",
                Json::float(told.commands as f64 / seconds),
            ),
            ("latency_us", Json::Object(micros_of.into())),
            ("histogram_us", Json::Array(octaves.collect())),
        ])
    }
}

impl Told {
    /// The latencies that so large a share of all did not exceed, and the
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
