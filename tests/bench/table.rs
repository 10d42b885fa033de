//! `table`: the loads that matter, each with its goals.
//!
//! The full table compares our server with beanstalkd. The quick one runs ours alone, and
//! checks only what noise cannot change: counts, memory, and how costs grow within one
//! process.

use crate::Options;
use crate::report::{self, Row};
use clap::Parser;

/// A bound that a figure should keep.
pub struct Goal {
    figure: &'static str,
    /// Of our median divided by theirs, or else of ours alone.
    is_ratio: bool,
    bound: Bound,
}

#[derive(Clone, Copy)]
pub enum Bound {
    AtMost(f64),
    AtLeast(f64),
}

use Bound::{AtLeast, AtMost};

/// A goal for our median divided by theirs.
pub const fn ratio(figure: &'static str, bound: Bound) -> Goal {
    Goal {
        figure,
        is_ratio: true,
        bound,
    }
}

/// A goal for our server alone.
const fn ours(figure: &'static str, bound: Bound) -> Goal {
    Goal {
        figure,
        is_ratio: false,
        bound,
    }
}

impl Goal {
    /// Whether it is met, in words.
    pub fn verdict(&self, row: &Row) -> String {
        let verdict = match self.is_met(row) {
            Some(true) => "met",
            Some(false) => "MISSED",
            None => "not compared",
        };
        let whose = if self.is_ratio { "ratio " } else { "" };
        match self.bound {
            AtMost(most) => format!("{whose}at most {most}: {verdict}"),
            AtLeast(least) => format!("{whose}at least {least}: {verdict}"),
        }
    }

    /// `None` if there is nothing to compare with.
    fn is_met(&self, row: &Row) -> Option<bool> {
        let value = match self.is_ratio {
            true => row.ratio()?.median,
            false => row.ours().median,
        };
        Some(match self.bound {
            AtMost(most) => value <= most,
            AtLeast(least) => value >= least,
        })
    }
}

/// Loads, each as arguments of the bench, with their goals.
type Table = &'static [(&'static str, &'static [Goal])];

const CPU: &str = "CPU per command, us";
const THROUGHPUT: &str = "throughput, commands/s";
const PUT_GROWTH: Goal = ours("put: growth of CPU per command, times", AtMost(1.5));
const DRAIN_GROWTH: Goal = ours("drain: growth of CPU per command, times", AtMost(1.5));
const TUBES: Goal = ours("growth of CPU with the tubes, times", AtMost(1.5));
// What beanstalkd takes.
const MEMORY: Goal = ours("memory per job beside its body, bytes", AtMost(200.0));
const PEAK: Goal = ours("peak RSS by RSS, times", AtMost(1.2));
// A read and a write. Now and then the server makes one more call, for memory or to see
// how much CPU time it has used.
const TWO_CALLS: Goal = ours("system calls per batch", AtMost(2.05));
const AT_REST: Goal = ours("idle switches, 1/s", AtMost(0.0));

const QUICK: Table = &[
    ("crowd -w cycle -c 1 -n 500 --calls all", &[TWO_CALLS]),
    (
        "crowd -w cycle -c 1 -d 64 -n 32000 --calls all",
        &[TWO_CALLS],
    ),
    ("crowd -w cycle -c 1 -n 4000 -p one --tubes 9999", &[TUBES]),
    (
        "stock -n 100000 -p one",
        &[MEMORY, PUT_GROWTH, DRAIN_GROWTH],
    ),
    ("stock -n 100000 -p one --delay 1000", &[MEMORY, PUT_GROWTH]),
    ("recovery -n 100000", &[PEAK]),
    ("idle -c 1000", &[AT_REST]),
];

/// Goals for the throughput, the CPU time of a command and the 99th percentile.
macro_rules! goals {
    ($throughput:literal, $cpu:literal, $p99:literal) => {
        &[
            ratio(THROUGHPUT, AtLeast($throughput)),
            ratio(CPU, AtMost($cpu)),
            ratio("p99, us", AtMost($p99)),
        ]
    };
}

const FULL: Table = &[
    ("crowd -w put -c 1 -p one", goals!(1.15, 0.85, 1.0)),
    ("crowd -w cycle -c 1 -p one", goals!(1.08, 0.85, 1.0)),
    ("crowd -w put -c 8", goals!(1.1, 1.0, 1.2)),
    ("crowd -w cycle -c 8", goals!(1.1, 1.0, 1.2)),
    ("crowd -w handoff -c 8", goals!(1.1, 1.0, 1.2)),
    ("crowd -w put -c 64 -s 2", goals!(1.1, 1.0, 1.2)),
    ("crowd -w cycle -c 64 -s 2", goals!(1.1, 1.0, 1.2)),
    ("crowd -w handoff -c 64 -s 2", goals!(1.1, 1.0, 1.2)),
    ("crowd -w put -c 512 -s 2", goals!(1.1, 1.0, 1.5)),
    ("crowd -w put -c 1 -d 64 -n 500000", goals!(4.0, 0.1, 1.0)),
    ("crowd -w put -c 16 -d 64 -n 500000", goals!(10.0, 0.1, 1.0)),
    ("crowd -w put -c 16 -b 65535 -n 5000", goals!(1.1, 0.9, 1.2)),
    ("crowd -w connect -n 3000", goals!(1.0, 1.0, 1.0)),
    ("crowd -w put -c 8 -f 50", goals!(1.3, 0.9, 1.0)),
    ("crowd -w put -c 64 -s 2 -f 50", goals!(1.3, 0.9, 1.0)),
    ("crowd -w handoff -c 64 -s 2 -f 50", goals!(1.3, 0.9, 1.0)),
    ("crowd -w put -c 1 -s 2 -f 0", goals!(1.0, 1.0, 1.2)),
    ("crowd -w put -c 8 -s 2 -f 0", goals!(3.5, 0.5, 0.5)),
    ("crowd -w put -c 64 -s 2 -f 0", goals!(6.0, 0.4, 0.2)),
    ("crowd -w handoff -c 64 -s 2 -f 0", goals!(6.0, 0.4, 0.25)),
    (
        "crowd -w put -c 2 -s 5 --rate 500 --busy 4",
        goals!(0.95, 1.2, 1.2),
    ),
    (
        "crowd -w put -c 64 -s 5 --rate 1000 --busy 4",
        goals!(0.95, 1.5, 1.2),
    ),
    (
        "crowd -w put -c 64 -s 5 --rate 20000",
        goals!(0.95, 1.2, 1.2),
    ),
    (
        "crowd -w cycle -c 1 -p one --tubes 9999",
        &[TUBES, ratio(CPU, AtMost(0.1))],
    ),
    (
        "stock -n 1000000 -p one",
        &[
            MEMORY,
            PUT_GROWTH,
            DRAIN_GROWTH,
            ours("RSS left over, MB", AtMost(20.0)),
        ],
    ),
    (
        "stock -n 1000000 -p one --delay 1000",
        &[MEMORY, PUT_GROWTH, ours("idle CPU, ms/s", AtMost(5.0))],
    ),
    (
        "idle -c 10000",
        &[
            AT_REST,
            ours("RSS per connection, kB", AtMost(12.0)),
            ours("all accepted after, ms", AtMost(5000.0)),
            ratio("each has its job after, ms", AtMost(1.0)),
        ],
    ),
    (
        "recovery -n 1000000",
        &[
            PEAK,
            ratio("answers after, s", AtMost(0.5)),
            ratio("log per job, bytes", AtMost(0.7)),
        ],
    ),
];

/// Runs a table and prints it line by line. Returns how many goals were missed.
pub fn run(quick: bool, servers: &[String], rounds: usize) -> usize {
    let mut missed = 0;
    for (load, goals) in if quick { QUICK } else { FULL } {
        println!("{load}");
        let options = Options::parse_from(format!("bench {load}").split(' '));
        let rows = report::compare(options.scenario, &options.load, servers, rounds);
        for goal in *goals {
            let row = rows.iter().find(|row| row.name == goal.figure);
            let row = row.unwrap_or_else(|| panic!("{load} does not tell {}", goal.figure));
            missed += usize::from(goal.is_met(row) == Some(false));
            println!("  {}", row.line(Some(goal)));
        }
    }
    missed
}
