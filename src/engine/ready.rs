//! The ready queue of a tube: by priority, then by id.

use crate::protocol::{JobId, Priority};
use std::collections::BTreeMap;

/// Ready jobs in the order in which they are to be reserved.
///
/// Jobs that are put one after the other usually share a priority and have
/// neighbouring ids. So one map entry is a set of 32 ids: 16 bytes for 32 jobs,
/// where an ordered set of the jobs takes some 25 for each. With random priorities it is
/// an ordinary ordered map.
#[derive(Default)]
pub struct ReadyQueue {
    /// By priority and group. Bit n stands for the job with id % 32 = n. No
    /// entry is zero.
    groups: BTreeMap<(Priority, Group), u32>,
}

/// An id / 32, as two halves with the higher half first. Beside a priority it
/// needs no padding, which saves a third of each entry.
type Group = [u32; 2];

impl ReadyQueue {
    pub fn insert(&mut self, priority: Priority, id: JobId) {
        let (group, bit) = group_and_bit(id);
        let key = (priority, group);
        // Usually it is the last job. The last entry is found without comparing
        // anything on the way.
        match self.groups.last_entry() {
            Some(mut last) if *last.key() == key => *last.get_mut() |= bit,
            _ => *self.groups.entry(key).or_default() |= bit,
        }
    }

    pub fn remove(&mut self, priority: Priority, id: JobId) {
        let (group, bit) = group_and_bit(id);
        let bits = self.groups.get_mut(&(priority, group));
        let bits = bits.expect("a ready job is in the ready queue of its tube");
        *bits &= !bit;
        if *bits == 0 {
            self.groups.remove(&(priority, group));
        }
    }

    /// The next to be reserved.
    pub fn first(&self) -> Option<(Priority, JobId)> {
        let (&(priority, group), bits) = self.groups.first_key_value()?;
        Some((priority, id_of(group, bits.trailing_zeros())))
    }

    /// The one that would be reserved after all others.
    pub fn last(&self) -> Option<(Priority, JobId)> {
        let (&(priority, group), bits) = self.groups.last_key_value()?;
        Some((priority, id_of(group, bits.ilog2())))
    }
}

fn group_and_bit(id: JobId) -> (Group, u32) {
    let group = id.0 / 32;
    ([(group >> 32) as u32, group as u32], 1 << (id.0 % 32))
}

fn id_of([high, low]: Group, bit: u32) -> JobId {
    let group = u64::from(high) << 32 | u64::from(low);
    JobId(group * 32 + u64::from(bit))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ready_jobs_are_ordered_by_priority_and_then_by_id() {
        let mut queue = ReadyQueue::default();
        let jobs = [
            (1, 200),
            (0, 65),
            (1, u64::MAX),
            (0, 64),
            (4294967295, 1),
            (0, 63),
        ];
        for (priority, id) in jobs {
            queue.insert(Priority(priority), JobId(id));
        }
        assert_eq!(queue.last(), Some((Priority(4294967295), JobId(1))));
        let mut drained = Vec::new();
        while let Some((priority, id)) = queue.first() {
            queue.remove(priority, id);
            drained.push((priority.0, id.0));
        }
        let expected = [
            (0, 63),
            (0, 64),
            (0, 65),
            (1, 200),
            (1, u64::MAX),
            (4294967295, 1),
        ];
        assert_eq!(drained, expected);
        assert!(queue.groups.is_empty());
    }
}
