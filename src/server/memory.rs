//! How much memory clients take, and when free memory is given back.

use crate::engine::Time;
use crate::sync::{AtomicU64, Ordering};
use std::time::Duration;

/// What workers hold for clients, in bytes: buffers, bodies that arrive, and
/// replies that are not sent yet. The engine adds it to its own memory, and has
/// the limit for both.
#[derive(Default)]
pub struct Memory(AtomicU64);

impl Memory {
    /// How many bytes all workers hold together.
    pub fn held(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    /// The count of a new worker.
    pub fn hold(&self) -> Held<'_> {
        Held {
            memory: self,
            bytes: 0,
        }
    }
}

/// What one worker holds. When this is dropped, it counts no more.
pub struct Held<'a> {
    memory: &'a Memory,
    bytes: u64,
}

impl Held<'_> {
    /// Notes that the worker now holds this many bytes.
    pub fn set(&mut self, bytes: usize) {
        let before = std::mem::replace(&mut self.bytes, bytes as u64);
        if self.bytes != before {
            // If it is less now, `more` wraps around, and adding it subtracts.
            let more = self.bytes.wrapping_sub(before);
            self.memory.0.fetch_add(more, Ordering::Relaxed);
        }
    }

    /// How many bytes the other workers hold.
    pub fn by_others(&self) -> u64 {
        self.memory.held() - self.bytes
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.set(0);
    }
}

/// Memory that clients have had and no longer have. It is given back to the
/// system after a while, since the moment when it becomes free may be a busy one.
/// No thread can allocate while it is given back, some 0.15 ms for each
/// megabyte; so if much becomes free, it goes back at once, in portions.
#[derive(Default)]
pub struct Surplus {
    /// The most that was taken at a time since memory was last given back, in
    /// bytes.
    peak: u64,
    /// When to give it back; `None` if there is nothing to give back.
    pub due: Option<Time>,
}

impl Surplus {
    /// Less than this is not worth giving back, in bytes. Less than a sixteenth
    /// of what is taken is not worth it either, because the allocator has to go
    /// through all of it.
    const WORTHWHILE: u64 = 1 << 20;
    const DELAY: Duration = Duration::from_secs(2);
    /// How much goes back at once, in bytes.
    const PORTION: u64 = 32 << 20;

    /// Notes how many bytes are taken now.
    pub fn note(&mut self, taken: u64, now: Time) {
        self.peak = self.peak.max(taken);
        let surplus = self.peak - taken;
        let delay = match surplus {
            Self::PORTION.. => Duration::ZERO,
            _ if surplus >= Self::WORTHWHILE.max(taken / 16) => Self::DELAY,
            _ => return,
        };
        self.peak = taken;
        // What becomes free later does not put it off: or a queue that is worked
        // off would give nothing back before its end.
        self.due = self.due.into_iter().chain([now + delay]).min();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_workers_hold_counts_until_they_let_go() {
        let memory = Memory::default();
        let (mut one, mut two) = (memory.hold(), memory.hold());
        one.set(30);
        two.set(20);
        assert_eq!((one.by_others(), two.by_others()), (20, 30));
        two.set(21);
        assert_eq!(memory.held(), 51);
        drop(two);
        assert_eq!((memory.held(), one.by_others()), (30, 0));
    }

    const MIB: u64 = 1 << 20;

    fn at(millis: u64) -> Time {
        Time::from_nanos(millis * 1_000_000)
    }

    /// When memory is to be given back after so many mebibytes were taken, at
    /// these times in milliseconds.
    fn due(noted: &[(u64, u64)]) -> Option<Time> {
        let mut surplus = Surplus::default();
        for &(mebibytes, time) in noted {
            surplus.note(mebibytes * MIB, at(time));
        }
        surplus.due
    }

    #[test]
    fn what_becomes_free_is_given_back_after_a_while_and_much_of_it_at_once() {
        assert_eq!(due(&[(8, 0), (7, 100)]), Some(at(2100)));
        assert_eq!(due(&[(40, 0), (8, 100)]), Some(at(100)));
    }

    #[test]
    fn little_is_not_given_back_until_it_has_become_more() {
        assert_eq!(due(&[(160, 0), (151, 100)]), None);
        assert_eq!(due(&[(160, 0), (151, 100), (150, 200)]), Some(at(2200)));
    }

    #[test]
    fn more_that_becomes_free_does_not_put_it_off() {
        assert_eq!(due(&[(9, 0), (8, 100), (7, 2000)]), Some(at(2100)));
        assert_eq!(due(&[(48, 0), (40, 100), (8, 200)]), Some(at(200)));
        // The timer has not come to it yet.
        assert_eq!(due(&[(9, 0), (8, 100), (7, 2200)]), Some(at(2100)));
    }
}
