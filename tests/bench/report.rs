//! Runs of a load on the servers in turns, and the figures of all runs as lines.

use crate::server::{Busy, Server};
use crate::{Load, Scenario, crowd, place, scenarios};
use std::fs;
use std::process::Command;
use std::thread;

/// A figure of one run. The name has its unit.
pub struct Figure {
    name: &'static str,
    value: f64,
}

pub fn figure(name: &'static str, value: f64) -> Figure {
    Figure { name, value }
}

/// One figure of all runs.
pub struct Row {
    pub name: &'static str,
    /// The values of each server, in the order of the rounds.
    of: Vec<Vec<f64>>,
}

/// Runs a load on the servers: A B B A A B, so that neither a machine that becomes
/// slower nor the traces of an earlier run favour one of them.
pub fn compare(scenario: Scenario, load: &Load, servers: &[String], rounds: usize) -> Vec<Row> {
    let mut rows: Vec<Row> = Vec::new();
    for round in 0..rounds {
        let mut order: Vec<usize> = (0..servers.len()).collect();
        if round % 2 == 1 {
            order.reverse();
        }
        for which in order {
            // A thread of its own has a deadline of its own for all that it waits for.
            let figures = thread::scope(|scope| {
                let run = scope.spawn(|| run(scenario, load, &servers[which]));
                run.join()
                    .unwrap_or_else(|_| panic!("round {} on {} failed", round + 1, servers[which]))
            });
            for Figure { name, value } in figures {
                if !rows.iter().any(|row| row.name == name) {
                    let of = vec![Vec::new(); servers.len()];
                    rows.push(Row { name, of });
                }
                let row = rows.iter_mut().find(|row| row.name == name);
                row.expect("it was made just now").of[which].push(value);
            }
        }
    }
    rows
}

fn run(scenario: Scenario, load: &Load, command: &str) -> Vec<Figure> {
    let _busy = Busy::start(load.busy);
    let needs_log = scenario == Scenario::Recovery;
    let load = &Load {
        sync: load.sync.or(needs_log.then_some(50)),
        ..load.clone()
    };
    let server = Server::start(command, load);
    match scenario {
        Scenario::Crowd => crowd::run(load, &server),
        Scenario::Stock => scenarios::stock(load, &server),
        Scenario::Idle => scenarios::idle(load, &server),
        Scenario::Recovery => scenarios::recovery(load, server),
        Scenario::Table => unreachable!("a table has no load of its own"),
    }
}

/// The values of several runs.
struct Spread {
    median: f64,
    lowest: f64,
    highest: f64,
}

impl Row {
    /// The median of our server.
    pub fn ours(&self) -> f64 {
        spread(&self.of[0]).median
    }

    /// Ours divided by theirs: the ratio of the medians, and the lowest and the highest
    /// ratio within a round. `None` if there is nothing to divide by.
    fn ratio(&self) -> Option<Spread> {
        let [ours, theirs] = &self.of[..] else {
            return None;
        };
        let rounds: Vec<f64> = ours
            .iter()
            .zip(theirs)
            .map(|(our, their)| our / their)
            .collect();
        let ratio = Spread {
            median: spread(ours).median / spread(theirs).median,
            ..spread(&rounds)
        };
        ratio.highest.is_finite().then_some(ratio)
    }

    pub fn line(&self) -> String {
        let mut of = self.of.iter().map(|values| told(&spread(values)));
        let (ours, theirs) = (of.next().unwrap_or_default(), of.next().unwrap_or_default());
        let ratio = self.ratio().as_ref().map(told).unwrap_or_default();
        let name = self.name;
        format!("{name:<40} {ours:<26} {theirs:<26} {ratio:<24}")
    }
}

fn spread(values: &[f64]) -> Spread {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let last = sorted.len() - 1;
    Spread {
        median: (sorted[last / 2] + sorted[last.div_ceil(2)]) / 2.0,
        lowest: sorted[0],
        highest: sorted[last],
    }
}

/// `median (lowest - highest)`.
fn told(spread: &Spread) -> String {
    let [median, lowest, highest] = [spread.median, spread.lowest, spread.highest].map(short);
    if lowest == highest {
        median
    } else {
        format!("{median} ({lowest} - {highest})")
    }
}

/// A number with about four digits.
fn short(value: f64) -> String {
    let digits = match value.abs() {
        0.0 | 1000.0.. => 0,
        100.0.. => 1,
        10.0.. => 2,
        _ => 3,
    };
    format!("{value:.digits$}")
}

/// Says what is measured, and where.
pub fn head(servers: &[String]) {
    let read = |path| fs::read_to_string(path).unwrap_or_default();
    let cpus = read("/proc/cpuinfo");
    let models = cpus.lines().filter(|line| line.starts_with("model name"));
    let model = models
        .clone()
        .next()
        .and_then(|line| line.split(": ").nth(1));
    let files = Command::new("df")
        .arg("--output=fstype")
        .arg(place())
        .output();
    let files = files.map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
    println!(
        "{} CPUs ({}), Linux {}, {} on {}",
        models.count(),
        model.unwrap_or("unknown"),
        read("/proc/sys/kernel/osrelease").trim(),
        files
            .unwrap_or_default()
            .split_whitespace()
            .last()
            .unwrap_or("unknown"),
        place().display()
    );
    for (name, server) in ["ours", "theirs"].iter().zip(servers) {
        println!("{name}: {server}");
    }
    let (figure, ratio) = ("median (lowest - highest)", "ratio");
    println!(
        "\n{figure:<40} {:<26} {:<26} {ratio:<24} goal",
        "ours", "theirs"
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ratio_is_taken_from_the_medians_and_its_spread_from_the_rounds() {
        let row = |of: [&[f64]; 2]| Row {
            name: "p99",
            of: of.map(<[f64]>::to_vec).to_vec(),
        };
        let ratio = row([&[1.0, 2.0, 6.0], &[2.0, 2.0, 4.0]])
            .ratio()
            .expect("a ratio");
        assert_eq!((ratio.lowest, ratio.median, ratio.highest), (0.5, 1.0, 1.5));
        assert!(row([&[1.0], &[0.0]]).ratio().is_none());
        assert_eq!(spread(&[4.0, 1.0, 2.0, 9.0]).median, 3.0);
    }

    #[test]
    fn a_line_of_the_report_has_the_figures_and_their_ratio() {
        let row = Row {
            name: "p99, us",
            of: vec![vec![32.0], vec![20.0]],
        };
        let line = row.line();
        let words: Vec<&str> = line.split_whitespace().collect();
        assert_eq!(words.join(" "), "p99, us 32.00 20.00 1.600");
    }
}
