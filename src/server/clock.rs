//! The time of the engine, where it is read.

use crate::engine::{Shift, Time};
use crate::sync::{Instant, SystemTime};
use std::time::{Duration, UNIX_EPOCH};

/// The system's clock at the start; from then on the monotonic clock. So no deadline
/// moves when the system's clock is set, and time stops while the machine sleeps.
#[derive(Clone, Copy)]
pub struct Clock {
    started: Instant,
    started_at: Time,
}

/// A smaller difference between the system's clock and ours is ignored when times are
/// written to the binlog, as those of the system's clock. (A clock that NTP slews differs
/// by less.)
const TOLERANCE: Duration = Duration::from_secs(1);

impl Clock {
    /// Starts now.
    pub fn start() -> Clock {
        Clock {
            started: Instant::now(),
            started_at: wall_clock(),
        }
    }

    /// Reads the system's clock again. Not to be called when deadlines exist.
    pub fn set(&mut self) {
        let uptime = i64::try_from(self.uptime().as_nanos()).unwrap_or(i64::MAX);
        self.started_at = wall_clock() + Shift(-uptime);
    }

    /// The time.
    pub fn now(&self) -> Time {
        self.started_at + self.uptime()
    }

    /// Time since the start.
    pub fn uptime(&self) -> Duration {
        self.started.elapsed()
    }
}

/// How far the system's clock is ahead of the engine's time. A difference that is about
/// the same as before counts as the same.
pub fn shift(now: Time, before: Shift) -> Shift {
    let (wall, expected) = (wall_clock(), now + before);
    if wall.since(expected).max(expected.since(wall)) > TOLERANCE {
        Shift(wall.as_nanos().wrapping_sub(now.as_nanos()) as i64)
    } else {
        before
    }
}

fn wall_clock() -> Time {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH);
    Time::default() + since_epoch.unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_large_shift_of_the_wall_clock_is_detected() {
        let day = 86_400_000_000_000;
        let slow = wall_clock() + Shift(-day);
        let Shift(ahead) = shift(slow, Shift::default());
        assert!(ahead >= day && ahead < day + 60_000_000_000, "{ahead}");
        assert_eq!(shift(slow, Shift(ahead)), Shift(ahead));
        assert_eq!(shift(wall_clock(), Shift::default()), Shift::default());
    }

    #[test]
    fn a_clock_that_is_set_again_continues_from_the_wall_clock() {
        let mut clock = Clock::start();
        clock.started_at = Time::default();
        clock.started -= Duration::from_secs(10);
        clock.set();
        assert_eq!(shift(clock.now(), Shift::default()), Shift::default());
    }
}
