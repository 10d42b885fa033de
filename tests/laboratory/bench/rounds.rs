//! Runs a load several times on each server, in turns.
//!
//! The order is A B B A A B B A …, so that neither a trend of the machine nor
//! the traces of an earlier run favour one server. A server that is started
//! here is started again for each run. Figures are told as medians. Two servers
//! are compared by the ratio of their medians, with the lowest and the highest
//! ratio within a round.

use super::figures::Figure;
use super::load::Load;
use super::options::Setup;
use super::scenarios;
use super::servers::{Busy, Server, Source};
use crate::load::wire::{PATIENCE, Wire};
use companion::failure::Failure;
use std::io::IsTerminal;

/// All runs of one load.
pub struct Comparison {
    /// The load.
    pub load: Load,
    /// The servers: ours, and theirs if there is one.
    pub servers: Vec<Facts>,
    /// The figures of each round, for each server.
    pub rounds: Vec<Vec<Vec<Figure>>>,
}

/// What is known about a server.
#[derive(Clone, Debug)]
pub struct Facts {
    /// How it was started, or where it was found.
    pub source: String,
    /// What its `stats` tell as its version.
    pub version: String,
}

/// Values of several runs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spread {
    /// The value in the middle, or the mean of the two values there.
    pub median: f64,
    /// The smallest.
    pub lowest: f64,
    /// The largest.
    pub highest: f64,
}

/// One figure over all rounds.
pub struct Row {
    /// Its name.
    pub name: String,
    /// Its unit.
    pub unit: &'static str,
    /// The values of each server.
    pub of: Vec<Spread>,
    /// Our values divided by theirs. The median here is the ratio of the
    /// medians.
    pub ratio: Option<Spread>,
}

/// Runs a load on the servers in turns.
pub fn compare(load: &Load, setup: &Setup) -> Result<Comparison, Failure> {
    let count = setup.servers.len();
    let mut rounds = Vec::new();
    let mut servers: Vec<Option<Facts>> = vec![None; count];
    for round in 0..setup.rounds {
        let mut figures = vec![Vec::new(); count];
        let mut order: Vec<usize> = (0..count).collect();
        if round % 2 == 1 {
            order.reverse();
        }
        for which in order {
            let source = &setup.servers[which].keeping(load.sync)?;
            progress(format_args!(
                "{}: round {} of {}, {}",
                load.scenario,
                round + 1,
                setup.rounds,
                ["ours", "theirs"][which]
            ));
            let run = || {
                let busy = Busy::start(load.busy)?;
                let mut server = Server::open(source, load.placement)?;
                let facts = facts(source, &server)?;
                let mut told =
                    scenarios::run(load, &mut server).map_err(|failure| match server.said() {
                        said if said.is_empty() => failure,
                        said => Failure::Refused(format!("{failure}\nThe server said: {said}")),
                    })?;
                drop((server, busy));
                told.extend(scenarios::syncs(load, source)?);
                Ok((facts, told))
            };
            let place = format!("{} on {}", load.scenario, named(source));
            let (facts, told) = run().map_err(|failure: Failure| failure.about(place))?;
            servers[which] = Some(facts);
            figures[which] = told;
        }
        rounds.push(figures);
    }
    progress(format_args!(""));
    let servers = servers.into_iter().flatten().collect();
    Ok(Comparison {
        load: load.clone(),
        servers,
        rounds,
    })
}

/// Shows a line that the next one overwrites, for a person who watches.
fn progress(what: std::fmt::Arguments<'_>) {
    if std::io::stderr().is_terminal() {
        eprint!("\r\x1b[K{what}");
    }
}

fn named(source: &Source) -> String {
    match source {
        Source::Command(command) => format!("`{command}`"),
        Source::Running { address, .. } => address.clone(),
    }
}

fn facts(source: &Source, server: &Server) -> Result<Facts, Failure> {
    let stats = Wire::connect(&server.at(), 1, PATIENCE)?.ask_data("stats")?;
    let version = stats
        .lines()
        .find_map(|line| line.strip_prefix("version: "));
    let version = version.unwrap_or("unknown").trim_matches('"').to_string();
    Ok(Facts {
        source: named(source),
        version,
    })
}

impl Comparison {
    /// All figures, in the order in which the scenario tells them.
    pub fn rows(&self) -> Vec<Row> {
        let Some(first) = self.rounds.first().and_then(|round| round.first()) else {
            return Vec::new();
        };
        let row = |figure: &Figure| {
            let values = |which: usize| -> Vec<f64> {
                let told = self.rounds.iter().filter_map(|round| round.get(which));
                let named = |figures: &Vec<Figure>| {
                    figures
                        .iter()
                        .find(|other| other.name == figure.name)
                        .map(|found| found.value)
                };
                told.filter_map(named).collect()
            };
            let of: Vec<Vec<f64>> = (0..self.servers.len()).map(values).collect();
            let ratio = match of.as_slice() {
                [ours, theirs] => ratio(ours, theirs),
                _ => None,
            };
            let of = of.iter().filter_map(|values| spread(values)).collect();
            Row {
                name: figure.name.clone(),
                unit: figure.unit,
                of,
                ratio,
            }
        };
        first.iter().map(row).collect()
    }
}

fn spread(values: &[f64]) -> Option<Spread> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let (lowest, highest) = (*sorted.first()?, *sorted.last()?);
    let middle = sorted.len() / 2;
    let median = match sorted.len() % 2 {
        1 => sorted[middle],
        _ => (sorted[middle - 1] + sorted[middle]) / 2.0,
    };
    Some(Spread {
        median,
        lowest,
        highest,
    })
}

/// The ratio; `None` if it would be a division by zero.
fn ratio(ours: &[f64], theirs: &[f64]) -> Option<Spread> {
    let by_round: Vec<f64> = ours
        .iter()
        .zip(theirs)
        .map(|(ours, theirs)| ours / theirs)
        .collect();
    let Spread {
        lowest, highest, ..
    } = spread(&by_round)?;
    let median = spread(ours)?.median / spread(theirs)?.median;
    let ratio = Spread {
        median,
        lowest,
        highest,
    };
    [median, lowest, highest]
        .iter()
        .all(|value| value.is_finite())
        .then_some(ratio)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spread_is_the_median_between_the_extremes() {
        let of = |values: &[f64]| spread(values).map(|it| (it.lowest, it.median, it.highest));
        assert_eq!(of(&[5.0, 1.0, 2.0]), Some((1.0, 2.0, 5.0)));
        assert_eq!(of(&[4.0, 1.0, 2.0, 9.0]), Some((1.0, 3.0, 9.0)));
        assert_eq!(of(&[]), None);
    }

    #[test]
    fn a_ratio_is_that_of_the_medians_and_its_spread_that_of_the_rounds() {
        let told = ratio(&[1.0, 2.0, 6.0], &[2.0, 2.0, 4.0]).unwrap();
        assert_eq!((told.lowest, told.median, told.highest), (0.5, 1.0, 1.5));
        assert_eq!(ratio(&[1.0], &[0.0]), None);
    }
}
