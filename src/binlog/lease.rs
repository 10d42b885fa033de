//! The lease: how long a server on shared storage may tell of jobs after it has
//! looked whether the lock is still its own.
//!
//! `fence` keeps a server that has lost the lock from acknowledging a change.
//! But a reply that changes nothing waits for no sync and so for no look:
//! RESERVED, FOUND, TIMED_OUT, statistics. Meanwhile another server may have
//! deleted these jobs. So right before replies leave, the outbox asks
//! [`confirm`](Binlog::confirm), which goes by the last look that found the lock
//! ours, or looks:
//!
//! - *That look began at most [`LEASE`] ago.* The storage gives the lock of a
//!   silent machine away only after a longer time. The clock is read before a look
//!   begins and right before the reply is sent, so a process that stood still at
//!   any moment between the two looks again. The clock also runs while the machine
//!   is suspended.
//! - *It began at most [`RECENT`] before the question.* This limits the harm where
//!   the lock is given away sooner, and where the clock stands still: the storage
//!   gives the lock away at once when the process of the mount dies, and the clocks
//!   of a virtual machine that is paused may not run. With `LEASE` alone, a server
//!   would go on for seconds; with `RECENT` alone, one whose looks take longer
//!   could never tell anything.
//!
//! Left out: nobody can take back what the system has already been given to
//! send. And if the process stands still between the last reading of the clock
//! and the call that sends, that one reply comes late.

use super::error::Error;
use super::{Binlog, Failed, locked};
use crate::sync::{AtomicU64, Mutex, Ordering};
use std::time::Duration;

/// A reply is sent at most so long after the look that it rests on has begun.
/// beanpole-machines(7) has the storage wait at least 10 seconds for a silent
/// machine before it gives the machine's lock away.
pub const LEASE: Duration = Duration::from_secs(5);

/// So old may a look be when a reply is about to leave. With 20 looks a second at
/// most, a server that only reads pays little.
pub const RECENT: Duration = Duration::from_millis(50);

/// The lease of a server on shared storage.
#[derive(Default)]
pub(super) struct Lease {
    /// When the last successful look began, in nanoseconds by the clock of the
    /// storage; 0 before the first one.
    looked_at: AtomicU64,
    /// Held by a thread while it looks for a reply, so that others who have
    /// replies use the same look.
    looking: Mutex<()>,
}

impl Binlog {
    /// Makes sure that replies may leave now: that the directory was ours a moment
    /// ago, by a look if need be. On shared storage, nothing may leave after an
    /// error. Call it right before, and not under the server's lock.
    pub fn confirm(&self) -> Result<(), Failed> {
        let Some(lease) = &self.lease else {
            return Ok(());
        };
        let asked = self.storage.now();
        let mut now = asked;
        loop {
            if self.failure.get().is_some() {
                return Err(Failed);
            }
            if lease.covers(asked, now) {
                return Ok(());
            }
            let looking = locked(lease.looking.lock());
            let looked = match lease.covers(asked, self.storage.now()) {
                true => Ok(()),
                false => self.look(),
            };
            drop(looking);
            looked.map_err(|error| self.fail(error))?;
            now = self.storage.now();
        }
    }

    /// Whether the directory is still ours.
    pub(super) fn look(&self) -> Result<(), Error> {
        let Some(lease) = &self.lease else {
            return Ok(());
        };
        let began = self.storage.now();
        self.storage.look().map_err(Error::Lost)?;
        lease.renew(began);
        Ok(())
    }
}

impl Lease {
    /// Notes a successful look that began at this moment.
    fn renew(&self, began: Duration) {
        let nanos = u64::try_from(began.as_nanos()).unwrap_or(u64::MAX);
        self.looked_at.fetch_max(nanos, Ordering::AcqRel);
    }

    /// Whether a reply for which this was asked then may leave now.
    fn covers(&self, asked: Duration, now: Duration) -> bool {
        let looked_at = self.looked_at.load(Ordering::Acquire);
        let looked_at = Duration::from_nanos(looked_at);
        !looked_at.is_zero() && looked_at + RECENT >= asked && looked_at + LEASE > now
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reply_rests_on_a_look_that_is_recent_when_asked_for_and_not_old_when_it_leaves() {
        let at = Duration::from_millis;
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
