//! The lease: how long a server on shared storage may tell of jobs after it has
//! looked whether the lock is still its own.
//!
//! `fence` keeps a server that has lost the lock from acknowledging a change.
//! But a reply that changes nothing waits for no sync and so for no look:
//! RESERVED, FOUND, TIMED_OUT, statistics. Meanwhile another server may have
//! deleted these jobs. So:
//!
//! - *No reply is sent later than [`LEASE`] after the beginning of a look that
//!   found the lock ours.* The storage gives the lock of a silent machine away
//!   only after a longer time. The clock is read before the look begins and
//!   again right before the reply is sent. So a process that stood still at any
//!   moment between the two looks again. The clock also runs while the machine
//!   is suspended. What a client is slow to take is handed over piece by piece,
//!   and before each the clock is read again, at least once in a second.
//! - *That look began at most [`RECENT`] before the reply was made.* This limits
//!   the harm where the lock is given away sooner, and where the clock stands
//!   still: the storage gives the lock away at once when the process of the
//!   mount dies, and the clocks of a virtual machine that is paused may not
//!   run.
//!
//! Left out: nobody can take back what the system has already been given to
//! send. And if the process stands still between the last reading of the clock
//! and the call that sends, that one reply comes late.

use crate::sync::{AtomicU64, Mutex, Ordering};
use std::time::Duration;

/// A reply is sent at most so long after the look that it rests on has begun.
/// beanpole-machines(7) has the storage wait at least 10 seconds for a silent
/// machine before it gives the machine's lock away.
pub const LEASE: Duration = Duration::from_secs(5);

/// So old may a look be when a reply is made. With 20 looks a second at most, a
/// server that only reads pays little.
pub const RECENT: Duration = Duration::from_millis(50);

/// A moment, by the clock of the storage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moment(pub(super) Duration);

/// The lease of a server on shared storage.
#[derive(Default)]
pub(super) struct Lease {
    /// When the last successful look began, in nanoseconds by the clock of the
    /// storage; 0 before the first one.
    looked_at: AtomicU64,
    /// Held by a thread while it looks for a reply, so that others who have
    /// replies use the same look.
    pub looking: Mutex<()>,
}

impl Lease {
    /// Notes a successful look that began at this moment.
    pub fn renew(&self, began: Moment) {
        let nanos = u64::try_from(began.0.as_nanos()).unwrap_or(u64::MAX);
        self.looked_at.fetch_max(nanos, Ordering::AcqRel);
    }

    /// Whether a reply that was made then may be sent now.
    pub fn covers(&self, made: Moment, now: Moment) -> bool {
        let looked_at = self.looked_at.load(Ordering::Acquire);
        let looked_at = Duration::from_nanos(looked_at);
        !looked_at.is_zero() && looked_at + RECENT >= made.0 && looked_at + LEASE > now.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reply_rests_on_a_look_that_is_recent_when_it_is_made_and_not_old_when_it_is_sent() {
        let at = |millis| Moment(Duration::from_millis(millis));
        let lease = Lease::default();
        assert!(!lease.covers(at(0), at(0)), "nobody has looked yet");
        lease.renew(at(10_000));
        assert!(lease.covers(at(9_000), at(10_000)));
        assert!(lease.covers(at(10_050), at(10_050)));
        assert!(!lease.covers(at(10_051), at(10_051)));
        assert!(lease.covers(at(10_050), at(14_999)));
        assert!(!lease.covers(at(10_050), at(15_000)));
        // A look that began before another one, and ended after it.
        lease.renew(at(9_900));
        assert!(lease.covers(at(10_050), at(10_050)));
    }
}
