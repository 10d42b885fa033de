//! A hierarchical timer wheel as plain data: it knows which timers are due
//! when.
//!
//! Its timers belong to tubes and connections, not to jobs. Each tube and each
//! connection has one timer, set to the next thing that can happen to it: the
//! end of a delay, of a pause, of a time to run, or of a wait. (Everything that expires
//! shares one more.) The jobs are in the queue of their tube or connection, which has to
//! be sorted anyway for `peek-delayed` and `DEADLINE_SOON`. So the wheel grows with tubes
//! and connections, never with jobs.
//!
//! One ordered set of times would do the same in fewer lines. In the wheel, to set a timer
//! takes no longer where many thousands of workers have set theirs: a slot has few of them.
//!
//! A timer may ring too early, and its owner then sets it again. So a timer is
//! moved only when something earlier comes up: a worker that reserves and
//! deletes job after job, each with a later deadline, does not touch the wheel.
//!
//! Level 0 has 64 slots of one tick each, level 1 has 64 slots of 64 ticks
//! each, and so on. Compare the tick of a timer with the present tick, in
//! groups of six bits: the highest group that differs gives the timer's level. So
//! at each level, all timers hang in slots from the present one on, in order. A
//! slot is sorted by the exact times. So no timer has to move to a lower level as
//! its time comes nearer: the next one is the first of the first slot at one of
//! the levels.

use super::Time;
use std::collections::BTreeSet;

/// A tick is 2^20 nanoseconds, about a millisecond.
const TICK_BITS: u32 = 20;
const SLOT_BITS: u32 = 6;
const SLOTS: usize = 1 << SLOT_BITS;
/// Enough for all 64 bits of a [`Time`].
const LEVELS: usize = (64 - TICK_BITS).div_ceil(SLOT_BITS) as usize;

/// Timers, each with its owner.
pub struct Wheel<Owner> {
    /// The present tick: no timer was due before it when it was set.
    tick: u64,
    /// For each level, which of its slots have timers: bit n for slot n.
    occupied: [u64; LEVELS],
    /// When to call [`advance`](Self::advance); `None` if no timer is set. Never
    /// later than the first due time, and earlier only if the first timer was
    /// cleared.
    pub wake_at: Option<Time>,
    /// All slots, level by level.
    slots: Vec<BTreeSet<(Time, Owner)>>,
}

/// No timer is set, and no time has passed. The first [`advance`](Wheel::advance)
/// brings it to the present.
impl<Owner: Copy + Ord> Default for Wheel<Owner> {
    fn default() -> Wheel<Owner> {
        Wheel {
            tick: 0,
            occupied: [0; LEVELS],
            wake_at: None,
            slots: vec![BTreeSet::new(); LEVELS * SLOTS],
        }
    }
}

impl<Owner: Copy + Ord> Wheel<Owner> {
    /// Has a timer ring at this time or earlier, if there is one. Its owner keeps in
    /// `timer` when it rings.
    pub fn set(&mut self, owner: Owner, due: Option<Time>, timer: &mut Option<Time>) {
        let Some(due) = due.filter(|due| timer.is_none_or(|set| *due < set)) else {
            return;
        };
        self.clear(owner, timer);
        *timer = Some(due);
        let level = self.level(due);
        let slot = self.slot(level, due);
        self.occupied[level] |= 1 << slot;
        self.slots[level * SLOTS + slot].insert((due, owner));
        self.wake_at = Some(self.wake_at.map_or(due, |earlier| earlier.min(due)));
    }

    /// Clears a timer.
    pub fn clear(&mut self, owner: Owner, timer: &mut Option<Time>) {
        let Some(due) = timer.take() else { return };
        // It hangs at the level that was right when it was set. Since then, the
        // right one may have become lower.
        (self.level(due)..LEVELS).any(|level| {
            let slot = self.slot(level, due);
            self.remove(level, slot, (due, owner))
        });
    }

    /// Takes off timers that are due by now, at most `most`, and appends their
    /// owners to `due`. If more are due, [`wake_at`](Self::wake_at) is not after
    /// `now`.
    pub fn advance(&mut self, now: Time, most: usize, due: &mut Vec<Owner>) {
        while let Some((level, slot, timer)) = self.first() {
            self.wake_at = Some(timer.0);
            if timer.0 > now {
                self.tick = self.tick.max(tick(now));
                return;
            }
            if due.len() == most {
                return;
            }
            self.remove(level, slot, timer);
            due.push(timer.1);
        }
        self.tick = self.tick.max(tick(now));
        self.wake_at = None;
    }

    /// The timer that is due first, and where it hangs.
    fn first(&self) -> Option<(usize, usize, (Time, Owner))> {
        let levels = (0..LEVELS).filter(|&level| self.occupied[level] != 0);
        let firsts = levels.filter_map(|level| {
            let slot = self.occupied[level].trailing_zeros() as usize;
            let timer = self.slots[level * SLOTS + slot].first()?;
            Some((level, slot, *timer))
        });
        firsts.min_by_key(|&(_, _, timer)| timer)
    }

    fn remove(&mut self, level: usize, slot: usize, timer: (Time, Owner)) -> bool {
        let timers = &mut self.slots[level * SLOTS + slot];
        let was_there = timers.remove(&timer);
        if timers.is_empty() {
            // A set that has had members keeps memory for some.
            *timers = BTreeSet::new();
            self.occupied[level] &= !(1 << slot);
        }
        was_there
    }

    /// The level at which a timer is hung. An overdue one belongs into the present
    /// slot.
    fn level(&self, due: Time) -> usize {
        match tick(due).max(self.tick) ^ self.tick {
            0 => 0,
            differing => (differing.ilog2() / SLOT_BITS) as usize,
        }
    }

    fn slot(&self, level: usize, due: Time) -> usize {
        (tick(due).max(self.tick) >> (SLOT_BITS * level as u32)) as usize % SLOTS
    }
}

fn tick(time: Time) -> u64 {
    time.as_nanos() >> TICK_BITS
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: u64 = 1_700_000_000_123_456_789;

    fn at(nanos: u64) -> Time {
        Time::from_nanos(nanos)
    }

    /// A wheel on which no timer is set, at this time.
    fn wheel(now: u64) -> Wheel<u32> {
        let mut wheel = Wheel::default();
        wheel.advance(at(now), 0, &mut Vec::new());
        wheel
    }

    fn due(wheel: &mut Wheel<u32>, now: u64) -> Vec<u32> {
        let mut due = Vec::new();
        // The slices must add up to the same result.
        while wheel.wake_at.is_some_and(|wake| wake <= at(now)) {
            let most = due.len() + 3;
            wheel.advance(at(now), most, &mut due);
        }
        due.sort_unstable();
        due
    }

    #[test]
    fn a_timer_is_due_at_its_time_and_not_a_nanosecond_before() {
        for bit in 0..63 {
            let mut wheel = wheel(NOW);
            let time = NOW + (1 << bit);
            wheel.set(7, Some(at(time)), &mut None);
            assert_eq!(due(&mut wheel, time - 1), [], "2^{bit} ns");
            assert!(wheel.wake_at <= Some(at(time)));
            assert_eq!(due(&mut wheel, time), [7], "2^{bit} ns");
            assert_eq!(wheel.wake_at, None);
        }
    }

    #[test]
    fn a_timer_is_only_ever_set_to_an_earlier_time_and_can_be_cleared() {
        let mut wheel = wheel(NOW);
        let (mut a, mut b) = (None, None);
        wheel.set(1, Some(at(NOW + 10)), &mut a);
        wheel.set(1, Some(at(NOW + 1_000_000_000)), &mut a);
        wheel.set(2, Some(at(NOW + 20)), &mut b);
        wheel.set(2, Some(at(NOW - 10)), &mut b);
        assert_eq!((a, b), (Some(at(NOW + 10)), Some(at(NOW - 10))));
        assert_eq!(due(&mut wheel, NOW), [2]);
        wheel.clear(1, &mut a);
        assert_eq!((a, due(&mut wheel, NOW + 2_000_000_000)), (None, vec![]));
    }

    #[test]
    fn timers_that_are_due_together_ring_in_slices_and_in_order() {
        let mut wheel = Wheel::default();
        let second = 1_000_000_000;
        let mut timers: Vec<Option<Time>> = vec![None; 5000];
        for (owner, timer) in (0_u32..).zip(&mut timers) {
            wheel.set(owner, Some(at(100 * second + u64::from(owner))), timer);
        }
        let (mut due, now) = (Vec::new(), at(101 * second));
        for slice in 1..=5 {
            wheel.advance(now, 1000 * slice, &mut due);
            assert_eq!(
                (due.len(), wheel.wake_at.is_none()),
                (1000 * slice, slice == 5)
            );
        }
        assert!(due.is_sorted());
        assert!(wheel.slots.iter().all(BTreeSet::is_empty));
    }

    #[test]
    fn the_wheel_rings_the_same_timers_as_a_sorted_list() {
        let mut wheel = wheel(NOW);
        let mut random = 1_u64;
        let mut next = move || {
            random = random.wrapping_mul(6364136223846793005).wrapping_add(1);
            random >> 33
        };
        let mut model: Vec<Option<Time>> = vec![None; 100];
        let mut now = NOW;
        for _ in 0..20_000 {
            let owner = next() as usize % 100;
            let span = 1 << (next() % 40);
            let timer = &mut model[owner];
            match next() % 4 {
                0 => wheel.clear(owner as u32, timer),
                _ => {
                    let due = at(now + next() % span);
                    let before = timer.unwrap_or(due);
                    wheel.set(owner as u32, Some(due), timer);
                    assert_eq!(*timer, Some(due.min(before)));
                }
            }
            if next() % 3 == 0 {
                now += next() % span;
                let expected: Vec<u32> = (0..100)
                    .filter(|&owner| {
                        let timer: &mut Option<Time> = &mut model[owner as usize];
                        timer.take_if(|due| *due <= at(now)).is_some()
                    })
                    .collect();
                assert_eq!(due(&mut wheel, now), expected);
            }
            let first = model.iter().flatten().min().copied();
            assert!(wheel.wake_at <= first || first.is_none());
            assert!(first.is_none() || wheel.wake_at.is_some());
        }
    }
}
