//! The state of a server at one time: its statistics, those of its tubes, and
//! some of the jobs of tubes; and the columns of a table of tubes, each of which
//! has a name for `--sort`, a title for a narrow screen, a width there, and a key of
//! `stats-tube` with its figure.

use crate::failure::Outcome;
use crate::server::client::Client;
use crate::server::finder::{Scope, Walk, connections, jobs_of};
use crate::server::stats::{Facts, JobFacts, State};
use crate::server::tubes::{Patterns, names_with_ready, next_ready, stats_of};
use crate::values::Parse;
use beanpole::protocol::{JobId, TubeName};
use std::collections::HashSet;
use std::time::Duration;

/// The rates of a server: the name of each, and the counters that it is the sum
/// of.
pub const RATES: [(&str, &[&str]); 4] = [
    ("put", &["total-jobs"]),
    ("reserve", &["cmd-reserve", "cmd-reserve-with-timeout"]),
    ("delete", &["cmd-delete"]),
    ("timeouts", &["job-timeouts"]),
];
/// The rates of a tube. Only beanpoled counts the timeouts of each.
pub const TUBE_RATES: [(&str, &str); 3] = [
    ("put", "total-jobs"),
    ("delete", "cmd-delete"),
    ("timeouts", "total-timeouts"),
];

/// How many reserved jobs of a tube are looked at.
const SOME: usize = 100;

/// How many connections are looked at.
const MOST_CONNECTIONS: usize = 10_000;
/// A tube with fewer jobs that wait for a worker is not worth a closer look.
const LARGE: u64 = 1000;

/// Whether many jobs of this tube wait for a worker.
pub fn is_large(tube: &Facts) -> bool {
    tube.jobs_in(&[State::Ready, State::Delayed]) >= LARGE
}

/// The state of a server at one time.
#[derive(Default)]
pub struct Sample {
    pub server: Facts,
    /// The tubes in the order of their names, if all were asked for.
    pub tubes: Vec<(TubeName, Facts)>,
    /// The tubes whose jobs were asked for.
    pub asked: Vec<TubeName>,
    /// The next ready job of each of them that has one.
    pub next: Vec<JobFacts>,
    /// Some of their reserved jobs, if the server lists them, and the jobs that
    /// were asked for.
    pub others: Vec<JobFacts>,
    /// Connections, if they were asked for and the server lists them.
    pub connections: Vec<Facts>,
}

impl Sample {
    /// A sample of the server alone.
    pub fn of_server(server: Facts) -> Sample {
        Sample {
            server,
            ..Sample::default()
        }
    }

    /// A sample of these tubes, with the jobs of all of them or of none.
    pub fn once(client: &mut Client, tubes: &Patterns, with_jobs: bool) -> Outcome<Sample> {
        Sample::take(client, tubes, |tubes| {
            let asked = tubes.iter().filter(|_| with_jobs);
            (asked.map(|(name, _)| name.clone()).collect(), Vec::new())
        })
    }

    /// Asks a server for a sample of these tubes. `choose` chooses those whose
    /// jobs are asked for (the next one is read with its body) and more jobs.
    pub fn take(
        client: &mut Client,
        tubes: &Patterns,
        choose: impl FnOnce(&[(TubeName, Facts)]) -> (Vec<TubeName>, Vec<JobId>),
    ) -> Outcome<Sample> {
        let server = client.server_stats()?;
        let names = tubes.meant(client)?;
        let tubes = stats_of(client, &names)?;
        let (asked, jobs) = choose(&tubes);
        let wanted: HashSet<_> = asked.iter().collect();
        let mut chosen = tubes.clone();
        chosen.retain(|(name, _)| wanted.contains(name));
        // To use a tube creates it. So only tubes with a ready job are used:
        // they exist.
        let next = next_ready(client, &names_with_ready(&chosen))?;
        let mut others = jobs_of(client, jobs)?;
        chosen.retain(|(_, facts)| facts.jobs_in(&[State::Reserved]) > 0);
        for (name, _) in chosen {
            let scope = Scope {
                tubes: vec![name],
                states: vec![State::Reserved],
            };
            let Some(mut walk) = Walk::begin(client, &scope)? else {
                break;
            };
            others.extend(walk.page(client, SOME)?);
        }
        Ok(Sample {
            server,
            tubes,
            asked,
            next,
            others,
            connections: Vec::new(),
        })
    }

    /// The same, with the connections if a tube is so large that somebody may
    /// want to know who fills it.
    pub fn with_connections(mut self, client: &mut Client) -> Outcome<Sample> {
        if self.tubes.iter().any(|(_, facts)| is_large(facts)) {
            connections(client, |page| {
                self.connections.extend(page);
                Ok(self.connections.len() < MOST_CONNECTIONS)
            })?;
        }
        Ok(self)
    }

    /// The counters of the server for each of [`RATES`].
    pub fn counters(&self) -> [u64; RATES.len()] {
        let sum = |keys: &[&str]| keys.iter().map(|key| self.server.number(key)).sum();
        RATES.map(|(_, keys)| sum(keys))
    }
}

/// How much a counter grew. A counter that is smaller than before began again at
/// 0.
pub fn growth(before: u64, now: u64) -> u64 {
    now.checked_sub(before).unwrap_or(now)
}

/// How much counters grew in a second.
pub fn per_second<const R: usize>(before: [u64; R], now: [u64; R], time: Duration) -> [f64; R] {
    let seconds = time.as_secs_f64().max(0.001);
    std::array::from_fn(|index| growth(before[index], now[index]) as f64 / seconds)
}

/// A column of a table of tubes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Column {
    #[default]
    Tube,
    Ready,
    Reserved,
    Delayed,
    Buried,
    Total,
    Using,
    Watching,
    Waiting,
    Pause,
    /// Puts in a second.
    Put,
    /// Deletes in a second.
    Delete,
    /// Timeouts in a second.
    Timeouts,
    /// The age of the next ready job.
    Age,
}

/// The columns in the order of [`Column`], each with its name, title, width and
/// key. The name of the tube takes the width that is left.
#[rustfmt::skip]
const TABLE: [(Column, &str, &str, usize, &str); 14] = [
    (Column::Tube, "tube", "TUBE", 0, ""),
    (Column::Ready, "ready", "READY", 7, "current-jobs-ready"),
    (Column::Reserved, "reserved", "RSVD", 6, "current-jobs-reserved"),
    (Column::Delayed, "delayed", "DLYD", 6, "current-jobs-delayed"),
    (Column::Buried, "buried", "BURY", 6, "current-jobs-buried"),
    (Column::Total, "puts", "PUTS", 7, "total-jobs"),
    (Column::Using, "using", "USE", 6, "current-using"),
    (Column::Watching, "watching", "WATCH", 6, "current-watching"),
    (Column::Waiting, "waiting", "WAIT", 5, "current-waiting"),
    (Column::Pause, "pause", "PAUSE", 6, "pause-time-left"),
    (Column::Put, "put", "PUT/S", 6, "total-jobs"),
    (Column::Delete, "delete", "DEL/S", 6, "cmd-delete"),
    (Column::Timeouts, "timeouts", "TMO/S", 6, "total-timeouts"),
    (Column::Age, "age", "AGE", 5, ""),
];

impl Column {
    /// Its name.
    pub fn name(self) -> &'static str {
        TABLE[self as usize].1
    }

    /// Its title and its width on a narrow screen.
    pub fn head(self) -> (&'static str, usize) {
        let (_, _, title, width, _) = TABLE[self as usize];
        (title, width)
    }

    /// Its key in `stats-tube`; empty if it has none.
    pub fn key(self) -> &'static str {
        TABLE[self as usize].4
    }
}

/// Reads the name of a column, or its title on a narrow screen.
impl Parse for Column {
    fn parse(text: &str) -> Result<Column, String> {
        // As it was called before.
        let text = if text == "total" { "puts" } else { text };
        let is = |name: &str| name.eq_ignore_ascii_case(text);
        let mut table = TABLE.into_iter();
        let named = table.find(|(_, name, title, ..)| is(name) || is(title));
        let named = named.map(|(column, ..)| column);
        named.ok_or_else(|| format!("there is no column '{text}'"))
    }
}
