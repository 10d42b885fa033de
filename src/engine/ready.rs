//! The ready queue of a tube: by priority, then by id.

use crate::protocol::{JobId, Priority};
use std::collections::BTreeMap;

/// Ready jobs in the order in which they are to be reserved.
///
/// Jobs put one after the other mostly share a priority and have neighbouring
/// ids, so a set of 64 ids is one map entry: 24 bytes for 64 jobs instead of
/// some 30 for each, and a queue of a million costs hardly more to work on than
/// a short one. With priorities at random it is an ordinary ordered map.
#[derive(Default)]
pub struct ReadyQueue {
    /// By priority and id / 64; bit n stands for the job with id % 64 = n.
    /// No entry is zero.
    groups: BTreeMap<(Priority, u64), u64>,
    /// How many bits are set.
    len: usize,
}

impl ReadyQueue {
    pub fn insert(&mut self, priority: Priority, id: JobId) {
        let (group, bit) = place(id);
        *self.groups.entry((priority, group)).or_default() |= bit;
        self.len += 1;
    }

    pub fn remove(&mut self, priority: Priority, id: JobId) {
        let (group, bit) = place(id);
        let bits = self.groups.get_mut(&(priority, group));
        let bits = bits.expect("a ready job is in the ready queue of its tube");
        *bits &= !bit;
        if *bits == 0 {
            self.groups.remove(&(priority, group));
        }
        self.len -= 1;
    }

    /// The next to be reserved.
    pub fn first(&self) -> Option<(Priority, JobId)> {
        let (&(priority, group), bits) = self.groups.first_key_value()?;
        Some((
            priority,
            JobId(group * 64 + u64::from(bits.trailing_zeros())),
        ))
    }

    pub fn len(&self) -> usize {
        self.len
    }
}

fn place(id: JobId) -> (u64, u64) {
    (id.0 / 64, 1 << (id.0 % 64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn smallest_priority_first_then_smallest_id() {
        let mut queue = ReadyQueue::default();
        let jobs = [(1, 200), (0, 65), (1, 3), (0, 64), (4294967295, 1), (0, 63)];
        for (priority, id) in jobs {
            queue.insert(Priority(priority), JobId(id));
        }
        let mut drained = Vec::new();
        while let Some((priority, id)) = queue.first() {
            queue.remove(priority, id);
            drained.push((priority.0, id.0));
        }
        let expected = [(0, 63), (0, 64), (0, 65), (1, 3), (1, 200), (4294967295, 1)];
        assert_eq!(drained, expected);
        assert_eq!(queue.len(), 0);
        assert!(queue.groups.is_empty());
    }
}
