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
        self.due = self.due.filter(|due| *due <= now).or(Some(now + delay));
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
}
