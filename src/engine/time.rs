//! Points in time. The engine gets them as arguments and never reads a clock.

use crate::protocol::Seconds;
use std::ops::{Add, Sub};
use std::time::Duration;

/// A point in time: nanoseconds since the Unix epoch.
///
/// Times stored on disk are those of the system's clock at that moment (see [`Shift`]), so
/// they still have a meaning after a restart. Arithmetic saturates: the latest time is
/// in the year 2554.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Time(u64);

impl Time {
    /// The time this many nanoseconds after the Unix epoch.
    pub const fn from_nanos(nanos: u64) -> Time {
        Time(nanos)
    }

    /// Nanoseconds since the Unix epoch.
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// The time from `earlier` to this one; zero if `earlier` is later.
    pub fn since(self, earlier: Time) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

/// How far the system's clock is ahead of the engine's time, in nanoseconds. It
/// is not zero if the clock was set since the start, or if the machine slept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Shift(pub i64);

impl Add<Shift> for Time {
    type Output = Time;

    fn add(self, Shift(nanos): Shift) -> Time {
        Time(self.0.saturating_add_signed(nanos))
    }
}

impl<D: Into<Duration>> Add<D> for Time {
    type Output = Time;

    fn add(self, duration: D) -> Time {
        let nanos = duration.into().as_nanos();
        Time(self.0.saturating_add(nanos.try_into().unwrap_or(u64::MAX)))
    }
}

impl Sub<Seconds> for Time {
    type Output = Time;

    fn sub(self, seconds: Seconds) -> Time {
        Time(self.0.saturating_sub(seconds.as_nanos()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_can_hold_the_longest_delay_of_the_protocol() {
        let year_2100 = Time::from_nanos(4_102_444_800_000_000_000);
        let end = year_2100 + Seconds(u32::MAX);
        assert_eq!(end.since(year_2100), Duration::from_secs(u32::MAX.into()));
    }

    #[test]
    fn arithmetic_on_times_saturates() {
        let (first, last) = (Time::from_nanos(5), Time::from_nanos(u64::MAX));
        assert_eq!(first.since(last), Duration::ZERO);
        assert_eq!(first - Seconds(1), Time::from_nanos(0));
        assert_eq!(last + Seconds(1), last);
        assert_eq!(first + Shift(-6), Time::default());
        assert_eq!(last + Shift(1), last);
    }
}
