//! The changes of a server between two samples, and the curves of the last
//! minute.

use crate::server::sample::{RATES, Sample, TUBE_RATES, per_second};
use crate::server::stats::{Facts, State};
use beanpole::protocol::TubeName;
use std::collections::{HashMap, VecDeque};
use std::time::{Duration, Instant};

/// How many values a curve has: one for each second of a minute.
pub const SECONDS: usize = 60;
/// Two samples of the same server, to compute rates, and the curves of the last
/// minute.
pub struct History {
    pub latest: Sample,
    before: Option<Sample>,
    /// The last minute for each of [`RATES`].
    pub minutes: [Minute; RATES.len()],
    /// The last minute of the jobs in each state, in the order of `State::ALL`.
    pub backlog: [Minute; State::ALL.len()],
    /// The last minute for each of [`TUBE_RATES`], by tube.
    pub tube_minutes: HashMap<TubeName, [Minute; TUBE_RATES.len()]>,
    /// The last minute of the ready jobs of each tube.
    pub tube_backlog: HashMap<TubeName, Minute>,
}

/// The values of a counter, or of a number of jobs, in the last minute.
#[derive(Default)]
pub struct Minute(VecDeque<(Instant, u64)>);

impl History {
    /// A history with one more sample. If the server was restarted, the history
    /// begins again.
    pub fn after(before: Option<History>, latest: Sample) -> History {
        let same = |history: &History| history.latest.server.get("id") == latest.server.get("id");
        let before = before.filter(same);
        let (before, mut minutes, mut backlog, mut of_tubes, mut ready) = match before {
            Some(history) => (
                Some(history.latest),
                history.minutes,
                history.backlog,
                history.tube_minutes,
                history.tube_backlog,
            ),
            None => Default::default(),
        };
        for (minute, jobs) in backlog.iter_mut().zip(latest.backlog()) {
            minute.add(latest.at, jobs);
        }
        let of_ready = latest.tubes.iter().map(|(tube, facts)| {
            let mut minute = ready.remove(tube).unwrap_or_default();
            minute.add(latest.at, facts.jobs_in(&[State::Ready]));
            (tube.clone(), minute)
        });
        let tube_backlog = of_ready.collect();
        for (minute, count) in minutes.iter_mut().zip(latest.counters()) {
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
            tube_backlog,
            before,
            minutes,
            backlog,
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
        self.per_second(|sample| facts_of(sample, tube).map_or(0, |facts| facts.number(key)))
    }

    /// The statistics of this tube, if it exists.
    pub fn tube(&self, tube: &TubeName) -> Option<&Facts> {
        facts_of(&self.latest, tube)
    }

    fn per_second(&self, count: impl Fn(&Sample) -> u64) -> Option<f64> {
        let before = self.before.as_ref()?;
        let time = self.latest.at.duration_since(before.at);
        Some(per_second(count(before), count(&self.latest), time))
    }
}

/// The statistics of this tube in a sample of all tubes.
fn facts_of<'a>(sample: &'a Sample, tube: &TubeName) -> Option<&'a Facts> {
    let found = sample.tubes.binary_search_by(|(name, _)| name.cmp(tube));
    found.ok().map(|place| &sample.tubes[place].1)
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
        (0..SECONDS as u64)
            .rev()
            .map(|second| ago(second) - ago(second + 1))
            .collect()
    }

    /// The values in each second of the minute before this time. Before the
    /// first one that is known, they are 0.
    pub fn values(&self, now: Instant) -> Vec<f64> {
        let first = self.0.front().map(|(at, _)| *at);
        let value = |seconds| {
            let then = now.checked_sub(Duration::from_secs(seconds));
            let then = then.filter(|then| first.is_some_and(|first| *then >= first));
            then.map_or(0.0, |then| self.count_at(then))
        };
        (0..SECONDS as u64).rev().map(value).collect()
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
        let values = minute.values(at(4000));
        assert_eq!(values[54..], [0.0, 5.0, 15.0, 20.0, 25.0, 25.0]);
        // Values that are older than a minute are forgotten.
        minute.add(at(70_000), 30);
        minute.add(at(131_000), 31);
        assert_eq!(minute.0.len(), 2);
    }
}
