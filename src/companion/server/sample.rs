//! The state of a server at one time: its statistics, those of its tubes, and
//! the ages of their next jobs.

use crate::failure::Outcome;
use crate::server::address::Address;
use crate::server::client::Client;
use crate::server::stats::{Facts, State};
use crate::server::tubes::{Patterns, names_with_ready, next_ready, stats_of};
use beanpole::protocol::TubeName;
use std::collections::HashMap;
use std::time::{Duration, Instant};

/// The rates of a server: the name of each, and the counters that it is the sum
/// of.
pub const RATES: [(&str, &[&str]); 4] = [
    ("put", &["total-jobs"]),
    ("reserve", &["cmd-reserve", "cmd-reserve-with-timeout"]),
    ("delete", &["cmd-delete"]),
    ("timeouts", &["job-timeouts"]),
];
/// The rates of a tube.
pub const TUBE_RATES: [(&str, &str); 2] = [("put", "total-jobs"), ("delete", "cmd-delete")];

/// The state of a server at one time.
pub struct Sample {
    pub at: Instant,
    pub server: Facts,
    /// The tubes in the order of their names, if all were asked for.
    pub tubes: Vec<(TubeName, Facts)>,
    /// The age in seconds of the next ready job of each tube for which it was
    /// asked; `None` if the job has gone meanwhile.
    pub ages: HashMap<TubeName, Option<u64>>,
}

impl Sample {
    /// Asks a server for a sample of these tubes. Of the tubes with a ready job,
    /// `ages_of` chooses those whose next jobs are asked for: a job is read with
    /// its body.
    pub fn take(
        client: &mut Client,
        tubes: &Patterns,
        ages_of: impl FnOnce(Vec<TubeName>) -> Vec<TubeName>,
    ) -> Outcome<Sample> {
        let server = client.server_stats()?;
        let names = tubes.meant(client)?;
        let tubes = stats_of(client, &names)?;
        // To use a tube creates it. So only tubes with a ready job are used:
        // they exist.
        let asked = ages_of(names_with_ready(&tubes));
        let next = next_ready(client, &asked)?;
        let mut ages: HashMap<_, _> = asked.into_iter().map(|tube| (tube, None)).collect();
        ages.extend(next.into_iter().map(|job| (job.tube, Some(job.age))));
        Ok(Sample {
            at: Instant::now(),
            server,
            tubes,
            ages,
        })
    }

    /// The jobs of the server in each state.
    pub fn backlog(&self) -> [u64; State::ALL.len()] {
        State::ALL.map(|state| self.server.jobs_in(&[state]))
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

/// How much a counter grew in a second.
pub fn per_second(before: u64, now: u64, time: Duration) -> f64 {
    growth(before, now) as f64 / time.as_secs_f64().max(0.001)
}

/// A connection that is made when it is needed, and again after a failure.
pub struct Link {
    pub address: Address,
    patience: Duration,
    client: Option<Client>,
}

impl Link {
    pub fn new(address: Address, patience: Duration) -> Link {
        Link {
            address,
            patience,
            client: None,
        }
    }

    /// Asks the server.
    pub fn ask<T>(&mut self, ask: impl FnOnce(&mut Client) -> Outcome<T>) -> Outcome<T> {
        let mut client = match self.client.take() {
            Some(client) => client,
            None => Client::connect(&self.address, self.patience)?,
        };
        let answer = ask(&mut client)?;
        self.client = Some(client);
        Ok(answer)
    }
}
