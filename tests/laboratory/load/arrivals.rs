//! When work begins: as soon as a connection is free, or at a given rate.
//!
//! If clients send the next request only after the last reply, they hide a slow
//! server, because it gets fewer requests. At a rate, work arrives
//! independently of the server. The gaps are random and exponential, as with
//! many independent clients. Each arrival is for one connection, chosen at
//! random. It waits there until the work before it is done, and its latency
//! counts from its arrival.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// How much work is still to be begun.
#[derive(Clone, Copy, Debug)]
pub enum Left {
    /// This many jobs.
    Jobs(usize),
    /// All work that can be begun before this moment.
    Until(Instant),
}

impl Left {
    /// Takes up to `wanted` jobs to begin them now, and returns how many.
    pub fn take(&mut self, wanted: usize, now: Instant) -> usize {
        match self {
            Left::Jobs(left) => {
                let taken = wanted.min(*left);
                *left -= taken;
                taken
            }
            Left::Until(end) if now < *end => wanted,
            Left::Until(_) => 0,
        }
    }
}

/// The rate at which work arrives.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rate {
    /// Jobs a second, on all connections together.
    pub jobs_per_second: f64,
    /// The seed of the gaps: the same seed gives the same gaps.
    pub seed: u64,
}

/// The work of some connections, in the order in which it arrives.
pub struct Arrivals {
    left: Left,
    /// How many jobs arrive together.
    together: usize,
    pace: Option<Pace>,
}

struct Pace {
    mean: Duration,
    /// When the next work arrives; `None` if all has arrived.
    next: Option<Instant>,
    random: u64,
    /// For each connection, the work that has arrived and waits: how many jobs,
    /// and since when.
    waiting: Vec<VecDeque<(usize, Instant)>>,
}

impl Arrivals {
    /// Work for this many connections, with `together` jobs in each arrival.
    /// Without a rate, work arrives whenever a connection is free.
    pub fn new(left: Left, connections: usize, together: usize, rate: Option<Rate>) -> Arrivals {
        let pace = rate.map(|rate| {
            let mut pace = Pace {
                mean: Duration::from_secs_f64(together as f64 / rate.jobs_per_second),
                next: None,
                random: rate.seed,
                waiting: vec![VecDeque::new(); connections],
            };
            pace.next = Some(Instant::now() + pace.gap());
            pace
        });
        Arrivals {
            left,
            together,
            pace,
        }
    }

    /// The work that a free connection begins now: how many jobs, and since
    /// when they are due.
    pub fn take(&mut self, connection: usize, now: Instant) -> Option<(usize, Instant)> {
        match &mut self.pace {
            Some(pace) => pace.waiting[connection].pop_front(),
            None => match self.left.take(self.together, now) {
                0 => None,
                count => Some((count, now)),
            },
        }
    }

    /// When the next work arrives; `None` if there is no rate, or no more work.
    pub fn next(&self) -> Option<Instant> {
        self.pace.as_ref()?.next
    }

    /// The connections for which work has arrived up to now.
    pub fn arrived(&mut self, now: Instant) -> Vec<usize> {
        let mut connections = Vec::new();
        let Some(pace) = &mut self.pace else {
            return connections;
        };
        while let Some(at) = pace.next.filter(|at| *at <= now) {
            let count = self.left.take(self.together, at);
            pace.next = (count > 0).then(|| at + pace.gap());
            if count > 0 {
                let connection = pace.random_below(pace.waiting.len());
                pace.waiting[connection].push_back((count, at));
                connections.push(connection);
            }
        }
        connections
    }

    /// Whether all work that arrives at a rate has been begun.
    pub fn are_over(&self) -> bool {
        let over = |pace: &Pace| pace.next.is_none() && pace.waiting.iter().all(VecDeque::is_empty);
        self.pace.as_ref().is_none_or(over)
    }
}

impl Pace {
    /// The time between two arrivals.
    fn gap(&mut self) -> Duration {
        // A share of 53 bits is as exact as the type allows. It is above 0, so
        // that the logarithm is finite.
        let share = ((self.random() >> 11) + 1) as f64 / (1u64 << 53) as f64;
        self.mean.mul_f64(-share.ln())
    }

    fn random_below(&mut self, bound: usize) -> usize {
        // The value is below `bound`, so it fits.
        (self.random() % bound as u64) as usize
    }

    /// The next random number, by SplitMix64.
    fn random(&mut self) -> u64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.random;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arrivals(count: usize, seed: u64) -> Vec<(usize, Duration)> {
        let rate = Rate {
            jobs_per_second: 1000.0,
            seed,
        };
        let mut arrivals = Arrivals::new(Left::Jobs(count), 4, 1, Some(rate));
        let first = arrivals.next().unwrap();
        let mut seen = Vec::new();
        while let Some(at) = arrivals.next() {
            for connection in arrivals.arrived(at) {
                assert!(!arrivals.are_over());
                assert_eq!(arrivals.take(connection, at), Some((1, at)));
                seen.push((connection, at - first));
            }
        }
        assert!(arrivals.are_over());
        seen
    }

    #[test]
    fn gaps_have_the_mean_that_was_asked_for_and_the_seed_decides_them() {
        let seen = arrivals(10_000, 1);
        assert_eq!(seen.len(), 10_000);
        let last = seen.last().unwrap().1;
        assert!((9.0..11.0).contains(&last.as_secs_f64()), "{last:?}");
        let on_first = seen.iter().filter(|(connection, _)| *connection == 0);
        assert!((2_200..2_800).contains(&on_first.count()));
        assert_eq!(seen, arrivals(10_000, 1));
        assert_ne!(seen, arrivals(10_000, 2));
    }

    #[test]
    fn without_a_rate_whoever_is_free_begins() {
        let mut arrivals = Arrivals::new(Left::Jobs(5), 2, 3, None);
        let now = Instant::now();
        assert_eq!(arrivals.next(), None);
        assert_eq!(arrivals.take(1, now), Some((3, now)));
        assert_eq!(arrivals.take(0, now), Some((2, now)));
        assert_eq!(arrivals.take(0, now), None);
        assert!(arrivals.are_over());
    }
}
