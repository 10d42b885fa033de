//! How much memory clients take, and when the heap is trimmed.

use crate::engine::Time;
use crate::sync::{AtomicU64, Ordering};
use std::sync::Arc;
use std::time::Duration;

/// What one worker holds for its client, in bytes: buffers, bodies that arrive, and
/// replies that are not sent yet; or a long body of a deleted job that is still to be sent.
/// It counts until this is dropped. The engine applies the limit to the sum of these parts
/// and of its own memory.
pub struct MemoryPart {
    /// The sum of what is held.
    sum: Arc<AtomicU64>,
    pub bytes: u64,
}

impl MemoryPart {
    /// Counts this many bytes.
    pub fn new(sum: &Arc<AtomicU64>, bytes: usize) -> MemoryPart {
        let sum = Arc::clone(sum);
        let mut part = MemoryPart { sum, bytes: 0 };
        part.set(bytes);
        part
    }

    /// Notes that the worker now holds this many bytes.
    pub fn set(&mut self, bytes: usize) {
        let before = std::mem::replace(&mut self.bytes, bytes as u64);
        if self.bytes != before {
            // If it is less now, `more` wraps around, and adding it subtracts.
            let more = self.bytes.wrapping_sub(before);
            self.sum.fetch_add(more, Ordering::Relaxed);
        }
    }
}

impl Drop for MemoryPart {
    fn drop(&mut self) {
        self.set(0);
    }
}

/// When the heap is to be trimmed: memory that clients no longer take goes back to
/// the system. This happens after a while, since a busy server soon uses its memory again.
/// A trim takes longer the more is free, and the timer's other work waits for it; so if
/// much has become free, it is due at once.
#[derive(Default)]
pub struct Trim {
    /// The most that was taken at a time since a trim was last asked for, in bytes.
    peak: u64,
    /// When the heap is to be trimmed; `None` if there is nothing to trim.
    pub due: Option<Time>,
}

impl Trim {
    /// Less than this is not worth a trim, in bytes. Less than a sixteenth
    /// of what is taken is not worth it either, because the allocator has to go
    /// through all of it.
    const WORTHWHILE: u64 = 1 << 20;
    const DELAY: Duration = Duration::from_secs(2);
    /// If this much is free, in bytes, the trim does not wait.
    const TRIM_NOW: u64 = 32 << 20;

    /// Notes how many bytes are taken now.
    pub fn note(&mut self, taken: u64, now: Time) {
        self.peak = self.peak.max(taken);
        let freed = self.peak - taken;
        let delay = match freed {
            Self::TRIM_NOW.. => Duration::ZERO,
            _ if freed >= Self::WORTHWHILE.max(taken / 16) => Self::DELAY,
            _ => return,
        };
        self.peak = taken;
        // What becomes free later does not put it off. Otherwise the heap would
        // not be trimmed while a long queue is worked off.
        self.due = self.due.into_iter().chain([now + delay]).min();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_of_a_worker_counts_until_the_worker_drops_it() {
        let sum = Arc::new(AtomicU64::new(0));
        let [mut one, mut two] = [0, 0].map(|bytes| MemoryPart::new(&sum, bytes));
        one.set(30);
        two.set(20);
        assert_eq!(sum.load(Ordering::Relaxed), 50);
        two.set(19);
        assert_eq!(sum.load(Ordering::Relaxed), 49);
        drop(two);
        assert_eq!(sum.load(Ordering::Relaxed), 30);
    }

    const MIB: u64 = 1 << 20;

    fn at(millis: u64) -> Time {
        Time::from_nanos(millis * 1_000_000)
    }

    /// When a trim is due after these numbers of mebibytes were taken at these
    /// times in milliseconds.
    fn due(noted: &[(u64, u64)]) -> Option<Time> {
        let mut trim = Trim::default();
        for &(mebibytes, time) in noted {
            trim.note(mebibytes * MIB, at(time));
        }
        trim.due
    }

    #[test]
    fn free_memory_is_trimmed_after_a_while_and_at_once_if_it_is_much() {
        assert_eq!(due(&[(8, 0), (7, 100)]), Some(at(2100)));
        assert_eq!(due(&[(40, 0), (8, 100)]), Some(at(100)));
    }

    #[test]
    fn a_trim_waits_until_enough_memory_is_free() {
        assert_eq!(due(&[(160, 0), (151, 100)]), None);
        assert_eq!(due(&[(160, 0), (151, 100), (150, 200)]), Some(at(2200)));
    }

    #[test]
    fn a_trim_is_not_put_off_when_more_becomes_free() {
        assert_eq!(due(&[(9, 0), (8, 100), (7, 2000)]), Some(at(2100)));
        assert_eq!(due(&[(48, 0), (40, 100), (8, 200)]), Some(at(200)));
        // The timer has not come to it yet.
        assert_eq!(due(&[(9, 0), (8, 100), (7, 2200)]), Some(at(2100)));
    }
}
