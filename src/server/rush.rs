//! A rush: the server alone uses up the CPUs. Then workers yield before they
//! read.
//!
//! When a worker has answered, its client's next command is still on its way.
//! So the worker falls asleep in its read, and the command wakes it. In a rush
//! this is wasted: other workers wait for the CPU all the time, and when they
//! have had their turns, the command is there. A worker that lets them go first
//! seldom sleeps. That costs one system call more, but saves more than that,
//! also for the clients, who need not wake a thread on another CPU. Measured
//! with 64 clients on another CPU, on Linux 6.18: 1.2 times the throughput, and
//! the slowest hundredth of the replies in half the time.
//!
//! It must be the server alone. If another program wants the CPU, a worker lets
//! it go first, too, and its client waits for that program. Even a program that
//! is nice gets much of the CPU then. So the server gets less, which ends the
//! rush.

use crate::engine::Time;
use crate::sync::{AtomicBool, AtomicU64, Mutex, Ordering, thread};
use std::time::Duration;

/// How often the CPU time is looked at, as long as there are commands.
const SPAN: Duration = Duration::from_millis(100);

/// The server has used up the CPUs if it has left no more than this, in
/// hundredths of one CPU.
const SPARE: u128 = 15;

/// A rush that lasts fewer spans than this is a short one. Then the next one
/// needs more spans to begin.
const SHORT: u32 = 4;

/// How many spans a rush needs at most to begin.
const MOST_SPANS: u32 = 16;

/// Whether there is a rush.
pub struct Rush {
    is_on: AtomicBool,
    /// When it was last looked, in nanoseconds as a [`Time`] counts them.
    looked_at: AtomicU64,
    seen: Mutex<Seen>,
    /// The CPUs that the server might use when it was started.
    cpus: u128,
}

/// What was seen at the last look.
struct Seen {
    /// The CPU time that the server had used until then.
    used: Duration,
    /// In how many spans until then, without a gap, it had used up the CPUs.
    spans: u32,
    /// With so many of these it is a rush.
    enough: u32,
}

impl Rush {
    /// There is none yet.
    pub fn new() -> Rush {
        Rush {
            is_on: AtomicBool::new(false),
            looked_at: AtomicU64::new(0),
            seen: Mutex::new(Seen {
                used: Duration::ZERO,
                spans: 0,
                enough: 1,
            }),
            cpus: thread::available_parallelism().map_or(1, usize::from) as u128,
        }
    }

    /// Whether there is a rush, to be asked once after the commands that were
    /// executed at this time. `clocks` tells the time and the CPU time that the
    /// server has used.
    pub fn is_on(&self, executed_at: Time, clocks: impl FnOnce() -> (Time, Duration)) -> bool {
        let looked_at = || Time::from_nanos(self.looked_at.load(Ordering::Relaxed));
        // If another worker is looking, its answer will do.
        if executed_at.since(looked_at()) >= SPAN
            && let Ok(mut seen) = self.seen.try_lock()
            && let (now, used) = clocks()
            && let span = now.since(looked_at())
            && span >= SPAN
        {
            let busy = 100 * used.saturating_sub(seen.used).as_nanos();
            seen.count(busy >= (100 * self.cpus - SPARE) * span.as_nanos());
            seen.used = used;
            let is_on = seen.spans >= seen.enough;
            self.is_on.store(is_on, Ordering::Relaxed);
            self.looked_at.store(now.as_nanos(), Ordering::Relaxed);
        }
        self.is_on.load(Ordering::Relaxed)
    }
}

impl Seen {
    /// Counts a span in which the CPUs were used up, or were not.
    fn count(&mut self, used_up: bool) {
        if used_up {
            self.spans = self.spans.saturating_add(1);
            return;
        }
        // Whoever ends a rush soon is likely to end the next one, too.
        if self.spans >= self.enough + SHORT {
            self.enough = 1;
        } else if self.spans >= self.enough {
            self.enough = (2 * self.enough).min(MOST_SPANS);
        }
        self.spans = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rush_is_when_the_server_has_used_up_its_cpus_and_ends_with_that() {
        let rush = Rush {
            cpus: 2,
            ..Rush::new()
        };
        let after = |millis, used| {
            let now = Time::default() + Duration::from_millis(millis);
            rush.is_on(now, || (now, Duration::from_millis(used)))
        };
        assert!(!after(1000, 184), "184 ms of 2 s");
        assert!(after(1100, 369), "185 ms of 200");
        assert!(after(1199, 369), "it is not looked at again so soon");
        assert!(!after(1200, 553), "184 ms of 200");
        assert!(!after(1300, 753), "the next one needs two spans");
        assert!(after(1400, 953));
        assert!(!after(3_600_000, 2000), "an hour later");
    }

    #[test]
    fn after_a_short_rush_the_next_one_comes_later_until_one_lasts() {
        let mut seen = Rush::new().seen.into_inner().unwrap();
        let mut look = |used_up: bool, spans: u32| {
            (0..spans).for_each(|_| seen.count(used_up));
            seen.spans >= seen.enough
        };
        assert!(look(true, 1));
        assert!(!look(false, 1));
        assert!(!look(true, 1), "once bitten");
        assert!(look(true, 1));
        assert!(!look(false, 1));
        assert!(!look(true, 3), "twice shy");
        assert!(!look(false, 1));
        assert!(!look(true, 3), "none came, so the next one needs no more");
        assert!(look(true, SHORT));
        assert!(!look(false, 1));
        assert!(!look(true, 7), "that one was short as well");
        assert!(look(true, 1));
        assert!(!look(false, 1));
        assert!(!look(true, MOST_SPANS - 1));
        assert!(look(true, 1));
        assert!(!look(false, 1));
        assert!(look(true, MOST_SPANS + SHORT), "it never needs more");
        assert!(!look(false, 1));
        assert!(look(true, 1), "that one lasted");
    }
}
