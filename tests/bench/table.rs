//! `table`: the loads that matter. The full table compares our server with beanstalkd.
//! The quick one runs ours alone, and checks only what noise cannot change: counts,
//! memory, and how costs grow within one process.

use crate::Options;
use crate::report;
use clap::Parser;

/// A figure, and what it should be at most.
type Goal = (&'static str, f64);

const PUT_GROWTH: Goal = ("put: growth of CPU per command, times", 1.5);
const DRAIN_GROWTH: Goal = ("drain: growth of CPU per command, times", 1.5);
const TUBES: Goal = ("growth of CPU with the tubes, times", 1.5);
// beanstalkd takes 200.
const MEMORY: Goal = ("memory per job beside its body, bytes", 100.0);
const PEAK: Goal = ("peak RSS by RSS, times", 1.2);
// A read and a write. Now and then the server makes one more call, for memory or to see
// how much CPU time it has used.
const TWO_CALLS: Goal = ("system calls per batch", 2.05);
const AT_REST: Goal = ("idle switches, 1/s", 0.0);

/// Loads, each as arguments of the bench, with their goals.
const QUICK: &[(&str, &[Goal])] = &[
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
    (
        "crowd -w handoff -c 4 -n 400 -f 0 --rate 1000 --busy 1",
        &[],
    ),
    ("crowd -w connect -c 4 -n 400", &[]),
];

const FULL: &[&str] = &[
    "crowd -w put -c 1 -p one",
    "crowd -w cycle -c 1 -p one",
    "crowd -w put -c 8",
    "crowd -w cycle -c 8",
    "crowd -w handoff -c 8",
    "crowd -w put -c 64 -s 2",
    "crowd -w cycle -c 64 -s 2",
    "crowd -w handoff -c 64 -s 2",
    "crowd -w put -c 512 -s 2",
    "crowd -w put -c 1 -d 64 -n 500000",
    "crowd -w put -c 16 -d 64 -n 500000",
    "crowd -w put -c 16 -b 65535 -n 5000",
    "crowd -w connect -n 3000",
    "crowd -w put -c 8 -f 50",
    "crowd -w put -c 64 -s 2 -f 50",
    "crowd -w handoff -c 64 -s 2 -f 50",
    "crowd -w put -c 1 -s 2 -f 0",
    "crowd -w put -c 8 -s 2 -f 0",
    "crowd -w put -c 64 -s 2 -f 0",
    "crowd -w handoff -c 64 -s 2 -f 0",
    "crowd -w put -c 2 -s 5 --rate 500 --busy 4",
    "crowd -w put -c 64 -s 5 --rate 1000 --busy 4",
    "crowd -w put -c 64 -s 5 --rate 20000",
    "crowd -w cycle -c 1 -p one --tubes 9999",
    "stock -n 1000000 -p one",
    "stock -n 1000000 -p one --delay 1000",
    "idle -c 10000",
    "recovery -n 1000000",
];

/// Runs a table and prints it line by line. Returns how many goals were missed.
pub fn run(quick: bool, servers: &[String], rounds: usize) -> usize {
    let full = FULL.iter().map(|&load| (load, &[][..]));
    let table: Vec<(&str, &[Goal])> = if quick {
        QUICK.to_vec()
    } else {
        full.collect()
    };
    let mut missed = 0;
    for (load, goals) in table {
        println!("{load}");
        let options = Options::parse_from(format!("bench {load}").split(' '));
        let rows = report::compare(options.scenario, &options.load, servers, rounds);
        let is_told = |(figure, _): &Goal| rows.iter().any(|row| row.name == *figure);
        assert!(goals.iter().all(is_told), "{load}: a figure is missing");
        for row in rows {
            let goal = goals.iter().find(|(figure, _)| *figure == row.name);
            let verdict = goal.map(|&(_, most)| {
                if row.ours() <= most {
                    format!("at most {most}: met")
                } else {
                    format!("at most {most}: MISSED")
                }
            });
            missed += usize::from(goal.is_some_and(|&(_, most)| row.ours() > most));
            let line = format!("{} {}", row.line(), verdict.unwrap_or_default());
            println!("  {}", line.trim_end());
        }
    }
    missed
}
