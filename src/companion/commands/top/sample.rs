//! What is known of a server at one time, and what changed since another.

use crate::failure::Outcome;
use crate::server::client::Client;
use crate::server::stats::Facts;
use crate::server::tubes::{next_ready, stats_of};
use beanpole::protocol::TubeName;
use std::collections::HashMap;
use std::time::Instant;

/// A server at one time.
pub struct Sample {
    pub at: Instant,
    pub server: Facts,
    pub tubes: Vec<(TubeName, Facts)>,
    /// The age in seconds of the next ready job, of those tubes for which it
    /// was asked.
    pub ages: HashMap<TubeName, u64>,
}

/// Two samples of the same server, from which rates are taken.
pub struct History {
    pub latest: Sample,
    before: Option<Sample>,
}

impl Sample {
    /// Asks a server. The ages of these tubes are asked for too.
    pub fn take(client: &mut Client, ages_of: &[TubeName]) -> Outcome<Sample> {
        let server = client.server_stats()?;
        let names = client.tubes()?;
        let tubes = stats_of(client, &names)?;
        // Using a tube creates it: only those that exist because of a job.
        let with_jobs: Vec<_> = tubes
            .iter()
            .filter(|(name, facts)| {
                facts.number("current-jobs-ready") > 0 && ages_of.contains(name)
            })
            .map(|(name, _)| name.clone())
            .collect();
        let next = next_ready(client, &with_jobs)?;
        let ages = next.into_iter().map(|job| (job.tube, job.age)).collect();
        Ok(Sample {
            at: Instant::now(),
            server,
            tubes,
            ages,
        })
    }
}

impl History {
    /// A history with one more sample. After a restart it begins anew.
    pub fn after(before: Option<History>, latest: Sample) -> History {
        let before = before.map(|history| history.latest);
        let same = |before: &Sample| before.server.get("id") == latest.server.get("id");
        History {
            before: before.filter(same),
            latest,
        }
    }

    /// How much a counter of the server grows in a second.
    pub fn rate(&self, key: &str) -> Option<f64> {
        let before = self.before.as_ref()?;
        Some(self.per_second(self.latest.server.number(key), before.server.number(key)))
    }

    /// How much a counter of a tube grows in a second. A tube that was not
    /// there before has counted everything since.
    pub fn tube_rate(&self, tube: &TubeName, now: &Facts, key: &str) -> Option<f64> {
        let before = self.before.as_ref()?;
        let found = before.tubes.iter().find(|(name, _)| name == tube);
        Some(self.per_second(
            now.number(key),
            found.map_or(0, |(_, facts)| facts.number(key)),
        ))
    }

    fn per_second(&self, now: u64, then: u64) -> f64 {
        let elapsed = self
            .before
            .as_ref()
            .map(|before| self.latest.at.duration_since(before.at));
        // A counter that is smaller than it was has begun anew.
        let growth = now.checked_sub(then).unwrap_or(now);
        growth as f64 / elapsed.map_or(1.0, |elapsed| elapsed.as_secs_f64().max(0.001))
    }
}
