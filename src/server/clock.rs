//! The time of the engine, where it is read, and until when the timer sleeps.

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

/// Two wake-ups are at least this far apart, unless something is already late. So
/// many events in a row cost a thousand wake-ups a second at most.
const SLACK: Duration = Duration::from_millis(1);

/// The timer's sleep, as other threads must know it to end it early.
#[derive(Default)]
pub struct Sleep {
    /// Its end; `None`: it lasts until another thread wakes the timer.
    pub until: Option<Time>,
    /// When the timer last found something due.
    pub last_due: Time,
}

impl Sleep {
    /// When to wake for an event that is due at `due`: now, if that is past.
    pub fn end_for(&self, due: Time, now: Time) -> Time {
        if due <= now {
            now
        } else {
            due.max(self.last_due + SLACK)
        }
    }

    /// Ends the sleep at `wanted`, if that is earlier than its end. Returns
    /// whether it is; then the caller has to wake the timer.
    pub fn cut_short(&mut self, wanted: Option<Time>) -> bool {
        let earlier = wanted.filter(|wanted| self.until.is_none_or(|until| *wanted < until));
        self.until = earlier.or(self.until);
        earlier.is_some()
    }
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

    fn at(millis: u64) -> Time {
        Time::from_nanos(millis * 1_000_000)
    }

    #[test]
    fn the_first_of_many_events_is_on_time_and_the_next_may_be_a_little_late() {
        let mut sleep = Sleep::default();
        assert_eq!(sleep.end_for(at(1000), at(500)), at(1000));
        sleep.last_due = at(1000);
        let soon = at(1000) + SLACK / 2;
        assert_eq!(sleep.end_for(soon, at(1000)), at(1000) + SLACK);
        assert_eq!(sleep.end_for(at(1200), at(1000)), at(1200));
        assert_eq!(sleep.end_for(at(999), at(1000)), at(1000));
    }

    #[test]
    fn the_timer_is_woken_once_for_events_before_the_end_of_its_sleep() {
        let mut sleep = Sleep::default();
        assert!(sleep.cut_short(Some(at(1000))));
        assert!(!sleep.cut_short(Some(at(1000))));
        sleep.until = Some(at(500));
        assert!(!sleep.cut_short(Some(at(700))));
        assert!(sleep.cut_short(Some(at(400))));
        assert!(!sleep.cut_short(None));
    }
}
