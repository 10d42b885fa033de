//! `table`: the loads that matter, each with its goals. It compares our server
//! with beanstalkd.
//!
//! The full table takes most of an hour, mainly for the rows with a million
//! jobs. The quick one runs our server alone. It checks only what noise cannot
//! change: counts, memory, and how costs grow within one process.

use super::load::{Length, Load, Placement, Syncing};
use super::options::Setup;
use super::report;
use super::rounds::{Comparison, Row, compare};
use crate::load::arrivals::Rate;
use companion::failure::Failure;
use companion::text::json::{Json, float, json};
use std::fmt;

/// One load and its goals.
struct Entry {
    load: Load,
    goals: Vec<Goal>,
}

/// A bound that a figure should keep.
struct Goal {
    figure: &'static str,
    of: Of,
    bound: Bound,
}

#[derive(Clone, Copy, PartialEq)]
enum Of {
    /// Our median divided by theirs.
    Ratio,
    /// Our median.
    Ours,
}

#[derive(Clone, Copy)]
enum Bound {
    AtMost(f64),
    AtLeast(f64),
}

use Bound::{AtLeast, AtMost};
use Of::{Ours, Ratio};
use Placement::{Apart, Free, One};

impl Bound {
    fn holds(self, value: f64) -> bool {
        match self {
            AtMost(most) => value <= most,
            AtLeast(least) => value >= least,
        }
    }
}

impl fmt::Display for Bound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AtMost(most) => write!(f, "at most {most}"),
            AtLeast(least) => write!(f, "at least {least}"),
        }
    }
}

/// Runs the table and prints it line by line. Returns the result, and whether
/// all goals were met.
pub fn run(setup: &Setup, quick: bool) -> Result<(Json, bool), Failure> {
    let entries = if quick { quick_table() } else { full_table() };
    let count = if quick { 1 } else { setup.servers.len() };
    let setup = Setup {
        servers: setup.servers[..count].to_vec(),
        json: None,
        ..*setup
    };
    let mut told = Vec::new();
    let mut all_met = true;
    for entry in &entries {
        let result = compare(&entry.load, &setup)?;
        if told.is_empty() {
            println!(
                "{}rounds: {}\n",
                report::facts(&result.servers),
                setup.rounds
            );
            println!(
                "{HEAD:<46}{:>12}{:>12}  {:<26}goal",
                "ours", "theirs", "ratio (lowest - highest)"
            );
        }
        println!("{}", report::described(&entry.load));
        let rows = result.rows();
        let mut goals = Vec::new();
        for goal in &entry.goals {
            let row = rows.iter().find(|row| row.name == goal.figure);
            let row = row.ok_or_else(|| {
                let load = report::described(&entry.load);
                Failure::Refused(format!("{load}: it does not tell {}", goal.figure))
            })?;
            let met = goal.met_by(row);
            all_met &= met != Some(false);
            println!("{}", goal.line(row, met));
            goals.push(goal.json(met));
        }
        told.push(entry_json(&result, goals));
    }
    Ok((told.into(), all_met))
}

const HEAD: &str = "load and figure";

impl Goal {
    /// Whether the goal is met. `None` if there is nothing to compare with.
    fn met_by(&self, row: &Row) -> Option<bool> {
        let value = match self.of {
            Ratio => row.ratio?.median,
            Ours => row.of.first()?.median,
        };
        Some(self.bound.holds(value))
    }

    fn line(&self, row: &Row, met: Option<bool>) -> String {
        let of = |which: usize| {
            row.of
                .get(which)
                .map_or("-".into(), |of| report::short(of.median))
        };
        let ratio = row.ratio.as_ref().map_or("-".into(), report::spread);
        let name = match row.unit {
            "" => format!("    {}", row.name),
            unit => format!("    {}, {unit}", row.name),
        };
        let whose = if self.of == Ratio { "ratio " } else { "" };
        let met = match met {
            Some(true) => "met",
            Some(false) => "MISSED",
            None => "not compared",
        };
        let goal = format!("{whose}{}", self.bound);
        format!(
            "{name:<46}{:>12}{:>12}  {ratio:<26}{goal:<20}{met}",
            of(0),
            of(1)
        )
    }

    fn json(&self, met: Option<bool>) -> Json {
        let (bound, value) = match self.bound {
            AtMost(most) => ("at most", most),
            AtLeast(least) => ("at least", least),
        };
        json!({
            "figure": self.figure,
            "of": if self.of == Ratio { "ratio" } else { "ours" },
            "bound": bound,
            "value": float(value),
            "met": met,
        })
    }
}

fn entry_json(result: &Comparison, goals: Vec<Json>) -> Json {
    json!({"result": report::json(result), "goals": goals})
}

/// The parts of a goal.
type Wanted = (&'static str, Of, Bound);

fn entry(load: Load, goals: impl IntoIterator<Item = Wanted>) -> Entry {
    let goal = |(figure, of, bound)| Goal { figure, of, bound };
    let goals = goals.into_iter().map(goal).collect();
    Entry { load, goals }
}

fn cpu(most: f64) -> Wanted {
    ("CPU per command", Ratio, AtMost(most))
}

fn throughput(least: f64) -> Wanted {
    ("throughput", Ratio, AtLeast(least))
}

fn no_worse(figure: &'static str) -> Wanted {
    (figure, Ratio, AtMost(1.0))
}

fn grows_little(figure: &'static str) -> Wanted {
    (figure, Ours, AtMost(1.5))
}

// What beanstalkd takes.
const MEMORY: Wanted = ("memory per job beyond its body", Ours, AtMost(200.0));

/// A load for so many connections, each of which sends so many requests
/// together.
fn at(scenario: &str, connections: usize, depth: usize, placement: Placement) -> Load {
    Load {
        connections,
        depth,
        placement,
        ..Load::new(scenario)
    }
}

/// A load on one CPU.
fn on_one(scenario: &str) -> Load {
    at(scenario, 1, 1, One)
}

/// Puts on so many connections, with a binlog.
fn durable(connections: usize, depth: usize, sync: Syncing) -> Load {
    Load {
        length: Length::Seconds(2.0),
        sync: Some(sync),
        ..at("put", connections, depth, Free)
    }
}

/// Each put is durable before its reply. How many connections share a sync?
fn at_once(connections: usize, depth: usize, times: f64) -> Entry {
    let load = durable(connections, depth, Syncing::WithinMs(0));
    entry(load, [throughput(times)])
}

/// Each put becomes durable later. A single connection shares its writes with
/// no other.
fn later(connections: usize, sync: Syncing) -> Entry {
    let goals = match connections {
        1 => [cpu(1.0), throughput(1.0)],
        _ => [cpu(0.8), throughput(1.3)],
    };
    entry(durable(connections, 1, sync), goals)
}

/// Puts at a rate, while so many other programs take all the CPU that they get.
fn paced(connections: usize, jobs_per_second: f64, busy: usize) -> Entry {
    let load = Load {
        length: Length::Seconds(5.0),
        rate: Some(Rate {
            jobs_per_second,
            seed: 1,
        }),
        busy,
        ..at("put", connections, 1, Free)
    };
    entry(
        load,
        ["p50", "p99"].map(|share| (share, Ratio, AtMost(1.2))),
    )
}

/// Two system calls for each batch, whatever its size, and none while idle.
fn calls(depth: usize) -> Entry {
    let load = Load {
        length: Length::Count(200 * depth),
        depth,
        ..Load::new("calls")
    };
    // Now and then the server makes one more call, for memory or to see how much
    // CPU time it has used.
    let two = |figure: &'static str| (figure, Ours, AtMost(2.05));
    let goals = [
        two("put: system calls per batch"),
        two("drain: system calls per batch"),
        ("system calls when idle", Ours, AtMost(0.0)),
    ];
    entry(load, goals)
}

#[rustfmt::skip]
fn full_table() -> Vec<Entry> {
    let count = |load: Load, count: usize| Load { length: Length::Count(count), ..load };
    let large = |body: usize, jobs: usize| Load { body, ..count(at("put", 16, 1, Apart), jobs) };
    let handoff = |producers: usize, consumers: usize, placement: Placement| {
        Load { producers, consumers, placement, ..Load::new("handoff") }
    };
    let mature = |consumers: usize| Load { consumers, placement: Apart, ..Load::new("mature") };
    let many = |depth: usize, connections: usize| count(at("put", connections, depth, Apart), 500_000);
    let mut table = vec![
        entry(on_one("put"), [cpu(0.85), throughput(1.15), no_worse("p50"), no_worse("p99")]),
        entry(on_one("cycle"), [cpu(0.82), throughput(1.08)]),
        entry(at("put", 8, 1, Apart), [cpu(1.0), throughput(1.05)]),
        entry(at("put", 64, 1, Apart), [cpu(1.0), throughput(1.05), no_worse("p50"), no_worse("p99")]),
        entry(at("cycle", 64, 1, Apart), [cpu(1.0), throughput(1.05)]),
        entry(at("put", 64, 1, Free), [cpu(1.1), throughput(1.0), ("p99", Ratio, AtMost(1.5))]),
        entry(many(16, 1), [cpu(0.2), throughput(2.5)]),
        entry(many(64, 1), [cpu(0.1), throughput(4.0)]),
        entry(many(256, 1), [cpu(0.08), throughput(8.0)]),
        entry(many(64, 16), [cpu(0.08), throughput(10.0)]),
        entry(large(4_000, 50_000), [cpu(0.9), throughput(1.1)]),
        entry(large(65_535, 5_000), [cpu(0.9), throughput(1.1)]),
        entry(handoff(1, 2, One), [cpu(1.0), no_worse("p50"), no_worse("p99"), no_worse("p99.9")]),
        entry(handoff(64, 64, Apart), [cpu(1.05), throughput(1.0)]),
        entry(at("connect", 8, 1, Apart), [cpu(1.0), throughput(1.0), ("threads", Ours, AtMost(32.0))]),
        entry(on_one("tubes"), [cpu(0.1), throughput(10.0)]),
        entry(Load { watched: 1_000, ..on_one("tubes") }, [cpu(0.2)]),
        entry(on_one("ready"), [
            ("put: CPU per command", Ratio, AtMost(0.8)),
            ("put: throughput", Ratio, AtLeast(1.2)),
            grows_little("put: growth of CPU per command"),
            ("drain: CPU per command", Ratio, AtMost(0.8)),
            ("drain: throughput", Ratio, AtLeast(1.2)),
            grows_little("drain: growth of CPU per command"),
            MEMORY,
            ("RSS left over", Ours, AtMost(20.0)),
        ]),
        entry(on_one("delayed"), [
            ("put: CPU per command", Ratio, AtMost(0.8)),
            ("put: throughput", Ratio, AtLeast(1.2)),
            grows_little("put: growth of CPU per command"),
            MEMORY,
            ("idle CPU", Ours, AtMost(5.0)),
        ]),
        entry(mature(0), [("last late, at most", Ours, AtMost(10_000.0))]),
        entry(mature(64), [no_worse("last late, at least")]),
        entry(count(mature(8), 20_000), [no_worse("late: p50"), no_worse("last late, at least")]),
        entry(
            Load { together: true, delay: 2, ..count(mature(8), 50) },
            [no_worse("last late, at least")],
        ),
        entry(
            Load::new("timers"),
            ["delay: late", "time to run: late", "pause: late", "timeout: late"]
                .map(|figure| (figure, Ours, AtMost(1000.0))),
        ),
        entry(Load::new("idle"), [
            ("RSS per connection", Ours, AtMost(12.0)),
            ("all accepted after", Ours, AtMost(2_000.0)),
            ("idle CPU", Ours, AtMost(0.0)),
            no_worse("each has its job after"),
        ]),
        at_once(1, 1, 1.0),
        at_once(8, 1, 3.5),
        at_once(64, 1, 8.0),
        at_once(1, 64, 30.0),
        at_once(8, 16, 30.0),
        entry(Load::new("recovery"), [
            ("answers after", Ratio, AtMost(0.5)),
            ("log per job", Ratio, AtMost(0.7)),
            ("peak RSS by RSS", Ours, AtMost(1.2)),
        ]),
        paced(2, 500.0, 4),
        calls(1),
        calls(64),
    ];
    for sync in [Syncing::WithinMs(50), Syncing::Never] {
        table.extend([1, 8, 64].map(|connections| later(connections, sync)));
    }
    for busy in [0, 4] {
        table.extend([1_000.0, 5_000.0, 20_000.0].map(|rate| paced(64, rate, busy)));
    }
    table
}

fn quick_table() -> Vec<Entry> {
    let stock = |scenario: &str| Load {
        length: Length::Count(100_000),
        settle_seconds: 0.0,
        idle_seconds: 1.0,
        depth: Load::new(scenario).depth,
        ..on_one(scenario)
    };
    let tubes = Load {
        length: Length::Count(4_000),
        ..on_one("tubes")
    };
    let put = grows_little("put: growth of CPU per command");
    let drain = grows_little("drain: growth of CPU per command");
    vec![
        calls(1),
        calls(64),
        entry(tubes, [grows_little("growth of CPU per command")]),
        entry(stock("ready"), [MEMORY, put, drain]),
        entry(stock("delayed"), [MEMORY, put]),
        entry(stock("recovery"), [("peak RSS by RSS", Ours, AtMost(1.2))]),
    ]
}

#[cfg(test)]
mod tests {
    use super::super::rounds::Spread;
    use super::*;

    fn row(ours: f64, theirs: Option<f64>) -> Row {
        let spread = |value| Spread {
            median: value,
            lowest: value,
            highest: value,
        };
        let ratio = theirs.map(|theirs| spread(ours / theirs));
        let of = [Some(ours), theirs]
            .into_iter()
            .flatten()
            .map(spread)
            .collect();
        Row {
            name: "p99".into(),
            unit: "us",
            of,
            ratio,
        }
    }

    #[test]
    fn a_goal_is_met_at_its_bound_and_missed_beyond() {
        let goal = Goal {
            figure: "p99",
            of: Ratio,
            bound: AtMost(1.5),
        };
        assert_eq!(goal.met_by(&row(3.0, Some(2.0))), Some(true));
        assert_eq!(goal.met_by(&row(3.1, Some(2.0))), Some(false));
        assert_eq!(goal.met_by(&row(3.0, None)), None);
        let goal = Goal {
            figure: "p99",
            of: Ours,
            bound: AtLeast(3.0),
        };
        assert_eq!(goal.met_by(&row(3.0, None)), Some(true));
    }

    #[test]
    fn a_line_shows_figure_goal_and_verdict() {
        let goal = Goal {
            figure: "p99",
            of: Ratio,
            bound: AtMost(1.5),
        };
        let row = row(32.0, Some(20.0));
        let line = goal.line(&row, goal.met_by(&row));
        let words: Vec<&str> = line.split_ascii_whitespace().collect();
        let expected = "p99, us 32.00 20.00 1.600 ratio at most 1.5 MISSED";
        assert_eq!(words.join(" "), expected);
    }
}
