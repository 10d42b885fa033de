//! The timer: the thread that does what is due, such as the ends of delays, and
//! trims the heap.

use super::shared::Shared;
use crate::engine::Time;
use crate::sync::thread;
use crate::sys;
use std::time::Duration;

/// Two wake-ups are at least this far apart, unless something is already late. So
/// many events in a row cost a thousand wake-ups a second at most.
const SLACK: Duration = Duration::from_millis(1);

/// The timer's sleep, as other threads must know it to end it early.
#[derive(Default)]
pub struct Sleep {
    /// Its end; `None`: it lasts until another thread wakes the timer.
    until: Option<Time>,
    /// When the timer last found something due.
    last_due: Time,
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

/// What the thread does all its life. It ends when the server does.
pub fn run(shared: &Shared) {
    while !shared.is_stopping() {
        shared.await_disk_space();
        let (sleeps, is_trim_due) = shared.with_lock_last(|state, now| {
            // One time slice of what is due; `tick` says whether anything was. If there is
            // more, the timer does not sleep now.
            if state.engine.wake_at().is_some_and(|at| at <= now) && state.engine.tick(now) {
                state.sleep.last_due = now;
            }
            let is_trim_due = state.trim.due.take_if(|due| *due <= now).is_some();
            state.sleep.until = state.timer_is_wanted_at(now);
            let sleeps = state.sleep.until.map(|until| until.since(now));
            (sleeps, is_trim_due)
        });
        // Whatever wakes the timer, it checks again what is due.
        match sleeps {
            _ if is_trim_due => sys::trim_heap(),
            None => thread::park(),
            Some(time) if time.is_zero() => {}
            Some(time) => thread::park_timeout(time),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
