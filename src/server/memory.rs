//! How much memory clients take, and when free memory is given back.

use crate::engine::Time;
use crate::sync::{AtomicU64, Ordering};
use std::time::Duration;

/// What counts against `--max-memory`: the engine's memory, and what workers
/// hold: buffers, bodies that arrive, and replies that are not sent yet.
#[derive(Default)]
pub struct Memory {
    limit: Option<u64>,
    /// What the engine had when the lock was last released, in bytes.
    engine: AtomicU64,
    workers: AtomicU64,
}

impl Memory {
    /// A count with nothing in it yet, and this limit in bytes; `None` for no
    /// limit.
    pub fn new(limit: Option<u64>) -> Memory {
        Memory {
            limit,
            ..Memory::default()
        }
    }

    /// Notes how many bytes the engine has. Returns how many all have together.
    pub fn note_engine(&self, bytes: u64) -> u64 {
        self.engine.store(bytes, Ordering::Relaxed);
        bytes + self.workers.load(Ordering::Relaxed)
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
    /// Notes that the worker now holds so many bytes.
    pub fn set(&mut self, bytes: usize) {
        let before = std::mem::replace(&mut self.bytes, bytes as u64);
        if self.bytes != before {
            // If it is less now, `more` wraps around, and adding it subtracts.
            let more = self.bytes.wrapping_sub(before);
            self.memory.workers.fetch_add(more, Ordering::Relaxed);
        }
    }

    /// Whether the sum is within the limit.
    pub fn fits(&self) -> bool {
        let engine = self.memory.engine.load(Ordering::Relaxed);
        let taken = engine + self.memory.workers.load(Ordering::Relaxed);
        self.memory.limit.is_none_or(|limit| taken <= limit)
    }

    /// How many bytes the other workers hold.
    pub fn by_others(&self) -> u64 {
        self.memory.workers.load(Ordering::Relaxed) - self.bytes
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.set(0);
    }
}

/// Memory that clients have had and no longer have. If it is much, it is given
/// back to the system, but only after a while: other threads cannot allocate
/// during that time, and the moment when it becomes free may be a busy one.
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

    /// Notes how many bytes are taken now.
    pub fn note(&mut self, taken: u64, now: Time) {
        self.peak = self.peak.max(taken);
        if self.peak - taken >= Self::WORTHWHILE.max(taken / 16) {
            self.peak = taken;
            self.due = Some(now + Self::DELAY);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_workers_hold_counts_until_they_let_go() {
        let memory = Memory::new(Some(100));
        memory.note_engine(50);
        let (mut one, mut two) = (memory.hold(), memory.hold());
        one.set(30);
        two.set(20);
        assert!(one.fits());
        assert_eq!((one.by_others(), two.by_others()), (20, 30));
        two.set(21);
        assert!(!one.fits());
        drop(two);
        assert!(one.fits());
    }
}
