//! The state of a server at one time, and the changes between two times.

use crate::failure::Outcome;
use crate::server::client::Client;
use crate::server::stats::Facts;
use crate::server::tubes::{names_with_ready, next_ready, stats_of};
use beanpole::protocol::TubeName;
use std::collections::{HashMap, VecDeque};
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
    pub tubes: Vec<(TubeName, Facts)>,
    /// The age in seconds of the next ready job, for the tubes for which it was
    /// asked.
    pub ages: HashMap<TubeName, u64>,
}

/// Two samples of the same server, to compute rates, and the curves of the last
/// minute.
pub struct History {
    pub latest: Sample,
    before: Option<Sample>,
    /// The last minute for each of [`RATES`].
    pub minutes: [Minute; RATES.len()],
    /// The last minute for each of [`TUBE_RATES`], by tube.
    pub tube_minutes: HashMap<TubeName, [Minute; TUBE_RATES.len()]>,
}

/// The values of a counter in the last minute.
#[derive(Default)]
pub struct Minute(VecDeque<(Instant, u64)>);

impl Sample {
    /// Asks a server for a sample, with the ages of the next jobs of these
    /// tubes.
    pub fn take(client: &mut Client, ages_of: &[TubeName]) -> Outcome<Sample> {
        let server = client.server_stats()?;
        let names = client.tubes()?;
        let tubes = stats_of(client, &names)?;
        // To use a tube creates it. So only tubes with a ready job are used:
        // they exist.
        let mut with_jobs = names_with_ready(&tubes);
        with_jobs.retain(|name| ages_of.contains(name));
        let next = next_ready(client, &with_jobs)?;
        let ages = next.into_iter().map(|job| (job.tube, job.age)).collect();
        Ok(Sample {
            at: Instant::now(),
            server,
            tubes,
            ages,
        })
    }

    /// The statistics of this tube, if it exists.
    pub fn tube(&self, tube: &TubeName) -> Option<&Facts> {
        let found = self.tubes.iter().find(|(name, _)| name == tube);
        found.map(|(_, facts)| facts)
    }
}

impl History {
    /// A history with one more sample. If the server was restarted, the history
    /// begins again.
    pub fn after(before: Option<History>, latest: Sample) -> History {
        let same = |history: &History| history.latest.server.get("id") == latest.server.get("id");
        let (before, mut minutes, mut of_tubes) = match before.filter(same) {
            Some(history) => (Some(history.latest), history.minutes, history.tube_minutes),
            None => Default::default(),
        };
        for (minute, (_, keys)) in minutes.iter_mut().zip(RATES) {
            let count = keys.iter().map(|key| latest.server.number(key)).sum();
            minute.add(latest.at, count);
        }
        let tubes = latest.tubes.iter().map(|(tube, facts)| {
            let mut minutes = of_tubes.remove(tube).unwrap_or_default();
            for (minute, (_, key)) in minutes.iter_mut().zip(TUBE_RATES) {
                minute.add(latest.at, facts.number(key));
            }
            (tube.clone(), minutes)
        });
        History {
            tube_minutes: tubes.collect(),
            before,
            minutes,
            latest,
        }
    }

    /// How much a counter of the server grows, per second.
    pub fn rate(&self, key: &str) -> Option<f64> {
        self.per_second(|sample| sample.server.number(key))
    }

    /// How much a counter of a tube grows, per second. If the tube did not
    /// exist at the sample before, its counter began at 0.
    pub fn tube_rate(&self, tube: &TubeName, key: &str) -> Option<f64> {
        self.per_second(|sample| sample.tube(tube).map_or(0, |facts| facts.number(key)))
    }

    fn per_second(&self, count: impl Fn(&Sample) -> u64) -> Option<f64> {
        let before = self.before.as_ref()?;
        let elapsed = self.latest.at.duration_since(before.at).as_secs_f64();
        let (now, then) = (count(&self.latest), count(before));
        // A counter that is smaller than before began again at 0.
        let growth = now.checked_sub(then).unwrap_or(now);
        Some(growth as f64 / elapsed.max(0.001))
    }
}

impl Minute {
    /// Notes the value of the counter at this time. Values less than half a
    /// second after the last one are dropped.
    fn add(&mut self, at: Instant, count: u64) {
        const APART: Duration = Duration::from_millis(500);
        let last = self.0.back();
        if last.is_none_or(|(last, _)| at.duration_since(*last) >= APART) {
            self.0.push_back((at, count));
        }
        let is_old = |(then, _): &(Instant, u64)| at.duration_since(*then).as_secs() > 60;
        while self.0.get(1).is_some_and(is_old) {
            self.0.pop_front();
        }
    }

    /// How much the counter grew in each second of the minute before this time.
    pub fn growth(&self, now: Instant) -> Vec<f64> {
        let ago = |seconds| {
            let then = now.checked_sub(Duration::from_secs(seconds));
            then.map_or(0.0, |then| self.count_at(then))
        };
        (0..60)
            .rev()
            .map(|second| ago(second) - ago(second + 1))
            .collect()
    }

    /// The value of the counter at this time. Between two known values it is
    /// assumed to grow evenly.
    fn count_at(&self, time: Instant) -> f64 {
        let after = self.0.partition_point(|(at, _)| *at <= time);
        match (self.0.get(after.wrapping_sub(1)), self.0.get(after)) {
            (Some((from, low)), Some((to, high))) => {
                let passed = time.duration_since(*from).as_secs_f64();
                let share = passed / to.duration_since(*from).as_secs_f64();
                *low as f64 + (*high as f64 - *low as f64) * share
            }
            (Some((_, count)), None) | (None, Some((_, count))) => *count as f64,
            (None, None) => 0.0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_minute_is_told_by_seconds_however_often_one_looks() {
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let mut minute = Minute::default();
        for (ms, count) in [(0, 5), (100, 6), (1000, 15), (3000, 25), (4000, 25)] {
            minute.add(at(ms), count);
        }
        let growth = minute.growth(at(4000));
        assert_eq!(growth.len(), 60);
        assert_eq!(growth[55..], [0.0, 10.0, 5.0, 5.0, 0.0]);
        assert_eq!(growth[..55].iter().sum::<f64>(), 0.0);
        // Values that are older than a minute are forgotten.
        minute.add(at(70_000), 30);
        minute.add(at(131_000), 31);
        assert_eq!(minute.0.len(), 2);
    }
}
