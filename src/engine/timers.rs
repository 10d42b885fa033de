//! The timers of tubes and connections, as plain data: which of them are due when.
//!
//! Each tube and each connection has one timer, set to the next thing that can happen to
//! it: the end of a delay, of a pause, of a time to run, or of a wait. (Everything that
//! expires shares one more.) The jobs are in the
//! queue of their tube or connection, which has to be sorted anyway for `peek-delayed` and
//! `DEADLINE_SOON`. So there are never more timers because there are more jobs.
//!
//! A timer may ring too early, and its owner then sets it again. So a timer is
//! moved only when something earlier comes up: a worker that reserves and
//! deletes job after job, each with a later deadline, does not touch the timers.

use super::{Owner, Time};
use std::collections::BTreeSet;

/// Timers, each with its owner.
#[derive(Default)]
pub struct TimerQueue {
    /// By the time at which they ring.
    set: BTreeSet<(Time, Owner)>,
    /// When the first one rings; `None` if no timer is set. Each request asks for this.
    pub wake_at: Option<Time>,
}

impl TimerQueue {
    /// Has a timer ring at this time or earlier, if there is one. Its owner keeps in
    /// `timer` when it rings.
    pub fn set(&mut self, owner: Owner, due: Option<Time>, timer: &mut Option<Time>) {
        if let Some(due) = due
            && timer.is_none_or(|set| due < set)
        {
            self.clear(owner, timer);
            *timer = Some(due);
            self.set.insert((due, owner));
            self.note_first();
        }
    }

    /// Clears a timer.
    pub fn clear(&mut self, owner: Owner, timer: &mut Option<Time>) {
        if let Some(due) = timer.take() {
            self.set.remove(&(due, owner));
            self.note_first();
        }
    }

    /// Takes off timers that are due by now, the first ones first, at most `most`.
    pub fn take_due(&mut self, now: Time, most: usize) -> Vec<Owner> {
        let mut due = Vec::new();
        while due.len() < most
            && let Some(&first) = self.set.first()
            && first.0 <= now
        {
            self.set.remove(&first);
            due.push(first.1);
        }
        self.note_first();
        due
    }

    fn note_first(&mut self) {
        self.wake_at = self.set.first().map(|&(due, _)| due);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::slab::TubeIndex;

    const NOW: u64 = 1_700_000_000_123_456_789;

    fn at(nanos: u64) -> Time {
        Time::from_nanos(nanos)
    }

    fn owner(number: u32) -> Owner {
        Owner::Tube(TubeIndex::new(number))
    }

    #[test]
    fn a_timer_is_due_at_its_time_and_not_a_nanosecond_before() {
        let (mut timers, mut timer) = (TimerQueue::default(), None);
        timers.set(owner(7), Some(at(NOW)), &mut timer);
        assert_eq!(timers.take_due(at(NOW - 1), 10), []);
        assert_eq!(timers.wake_at, Some(at(NOW)));
        assert_eq!(timers.take_due(at(NOW), 10), [owner(7)]);
        assert_eq!(timers.wake_at, None);
    }

    #[test]
    fn a_timer_is_only_ever_set_to_an_earlier_time_and_can_be_cleared() {
        let (mut timers, mut a, mut b) = (TimerQueue::default(), None, None);
        timers.set(owner(1), Some(at(NOW + 10)), &mut a);
        timers.set(owner(1), Some(at(NOW + 1_000_000_000)), &mut a);
        timers.set(owner(1), None, &mut a);
        timers.set(owner(2), Some(at(NOW + 20)), &mut b);
        timers.set(owner(2), Some(at(NOW - 10)), &mut b);
        assert_eq!((a, b), (Some(at(NOW + 10)), Some(at(NOW - 10))));
        assert_eq!(timers.take_due(at(NOW), 10), [owner(2)]);
        timers.clear(owner(1), &mut a);
        assert_eq!((a, timers.wake_at), (None, None));
        assert_eq!(timers.take_due(at(NOW + 2_000_000_000), 10), []);
    }

    #[test]
    fn timers_that_are_due_together_ring_in_slices_and_in_order() {
        let mut timers = TimerQueue::default();
        for number in (0..5000).rev() {
            timers.set(owner(number), Some(at(NOW + u64::from(number))), &mut None);
        }
        for slice in 0..5 {
            assert_eq!(timers.wake_at, Some(at(NOW + 1000 * slice)));
            let expected: Vec<_> = (0..1000)
                .map(|number| 1000 * slice as u32 + number)
                .collect();
            let due = timers.take_due(at(NOW + 5000), 1000);
            assert!(due.into_iter().eq(expected.into_iter().map(owner)));
        }
        assert_eq!(timers.wake_at, None);
    }
}
