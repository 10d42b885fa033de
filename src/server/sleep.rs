//! How long the timer may sleep.

use crate::engine::Time;
use std::time::Duration;

/// Two wake-ups are at least this far apart, unless something is already late. So
/// many events in a row cost 5,000 wake-ups a second at most.
const SLACK: Duration = Duration::from_micros(200);

/// The same, while no client waits for a job and could notice the delay.
const SLACK_UNSEEN: Duration = Duration::from_millis(100);

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
    pub fn end_for(&self, due: Time, is_awaited: bool, now: Time) -> Time {
        let slack = if is_awaited { SLACK } else { SLACK_UNSEEN };
        let end = due.max(self.last_due + slack);
        if due <= now { now } else { end }
    }

    /// Ends the sleep at `wanted`, if that is earlier than its end. Returns
    /// whether it is; then the caller has to wake the timer.
    pub fn cut_short(&mut self, wanted: Option<Time>) -> bool {
        let is_later = |wanted| self.until.is_none_or(|until| wanted < until);
        let is_too_long = wanted.is_some_and(is_later);
        if is_too_long {
            self.until = wanted;
        }
        is_too_long
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Time {
        Time::from_nanos(millis * 1_000_000)
    }

    #[test]
    fn the_first_of_many_is_in_time_and_the_next_wait_a_little() {
        let mut sleep = Sleep::default();
        assert_eq!(sleep.end_for(at(1000), true, at(500)), at(1000));
        sleep.last_due = at(1000);
        let micros = Duration::from_micros;
        let soon = at(1000) + micros(100);
        assert_eq!(sleep.end_for(soon, true, at(1000)), at(1000) + micros(200));
        assert_eq!(sleep.end_for(at(1001), true, at(1000)), at(1001));
        assert_eq!(sleep.end_for(at(1001), false, at(1000)), at(1100));
        assert_eq!(sleep.end_for(at(1200), false, at(1000)), at(1200));
        assert_eq!(sleep.end_for(at(999), false, at(1000)), at(1000));
    }

    #[test]
    fn the_timer_is_woken_once_for_what_comes_before_its_time() {
        let mut sleep = Sleep::default();
        assert!(sleep.cut_short(Some(at(1000))));
        assert!(!sleep.cut_short(Some(at(1000))));
        sleep.until = Some(at(500));
        assert!(!sleep.cut_short(Some(at(700))));
        assert!(sleep.cut_short(Some(at(400))));
        assert!(!sleep.cut_short(None));
    }
}
