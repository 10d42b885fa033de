//! A hierarchical timer wheel as plain data: it knows which timers are due
//! when.
//!
//! Its timers belong to tubes and connections, not to jobs. Each tube and each
//! connection has one timer, set to the next thing that can happen to it: the
//! end of a delay, of a pause, of a time to run, or of a wait. The jobs are in
//! the queue of their tube or connection, which has to be sorted anyway for
//! `peek-delayed` and `DEADLINE_SOON`. So the wheel grows with tubes and
//! connections, never with jobs.
//!
//! A timer may ring too early, and its owner then sets it again. So a timer is
//! moved only when something earlier comes up: a worker that reserves and
//! deletes job after job, each with a later deadline, does not touch the wheel.
//!
//! Level 0 has 64 slots of one tick each, level 1 has 64 slots of 64 ticks
//! each, and so on. Compare the tick of a timer with the present tick, in
//! groups of six bits: the highest group that differs gives the timer's level.
//! As its time comes nearer, a timer moves down the levels. Ticks only sort
//! timers into slots: a timer is due at its exact time.

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
    /// The present tick. No timer hangs in a slot that lies before it.
    tick: u64,
    /// For each level, which of its slots have timers: bit n for slot n.
    occupied: [u64; LEVELS],
    /// When to call [`advance`](Self::advance); `None` if no timer is set. Never
    /// later than the first due time. It may be earlier if the first timer was
    /// cleared, or if timers have to move down a level.
    pub wake_at: Option<Time>,
    /// All slots, level by level.
    slots: Vec<BTreeSet<(Time, Owner)>>,
}

impl<Owner: Copy + Ord> Wheel<Owner> {
    /// A wheel on which no timer is set.
    pub fn new(now: Time) -> Wheel<Owner> {
        Wheel {
            tick: tick(now),
            occupied: [0; LEVELS],
            wake_at: None,
            slots: (0..LEVELS * SLOTS).map(|_| BTreeSet::new()).collect(),
        }
    }

    /// Has a timer ring at this time or earlier. Its owner keeps in `timer` when
    /// it rings.
    pub fn set(&mut self, owner: Owner, timer: &mut Option<Time>, due: Time) {
        if timer.is_some_and(|earlier| earlier <= due) {
            return;
        }
        self.clear(owner, timer);
        *timer = Some(due);
        self.hang(due, owner);
        self.wake_at = Some(self.wake_at.map_or(due, |earlier| earlier.min(due)));
    }

    /// Clears a timer.
    pub fn clear(&mut self, owner: Owner, timer: &mut Option<Time>) {
        let Some(due) = timer.take() else { return };
        let lowest = self.level(due);
        // While the timers of a slot move down, it may still be in that slot.
        for level in lowest..LEVELS {
            let slot = self.slot(level, due);
            if self.slots[level * SLOTS + slot].remove(&(due, owner)) {
                self.note_if_empty(level, slot);
                return;
            }
        }
    }

    /// Takes off timers that are due by now, at most `most`, and appends their
    /// owners to `due`. It also moves at most `most` timers down. If there is
    /// more to do, [`wake_at`](Self::wake_at) is not after `now`.
    pub fn advance(&mut self, now: Time, most: usize, due: &mut Vec<Owner>) {
        let mut moves = most;
        while let Some((level, slot, start)) = self.first_slot() {
            if start > tick(now) {
                // All slots that have begun are empty now.
                break;
            }
            self.tick = self.tick.max(start);
            let at = level * SLOTS + slot;
            while let Some(&(at_time, owner)) = self.slots[at].first() {
                if level == 0 && at_time > now {
                    break;
                }
                let left = if level == 0 { most - due.len() } else { moves };
                if left == 0 {
                    self.wake_at = Some(at_time.min(now));
                    return;
                }
                self.slots[at].pop_first();
                if level == 0 {
                    due.push(owner);
                } else {
                    moves -= 1;
                    self.hang(at_time, owner);
                }
            }
            self.note_if_empty(level, slot);
            if !self.slots[at].is_empty() {
                // What is left in the present slot is due later in this tick.
                break;
            }
        }
        self.tick = self.tick.max(tick(now));
        self.wake_at = self.first_wake();
    }

    /// The first slot with timers, and the tick at which it begins. That is one
    /// whose timers move down just now, if there is any. Otherwise slots of lower
    /// levels come before those of higher levels, because of the way in which
    /// timers are assigned to levels.
    fn first_slot(&self) -> Option<(usize, usize, u64)> {
        let present = |level| (self.tick >> (SLOT_BITS * level as u32)) as usize % SLOTS;
        let moving = (1..LEVELS).find(|&level| self.occupied[level] >> present(level) & 1 == 1);
        let lowest = || self.occupied.iter().position(|&slots| slots != 0);
        let level = moving.or_else(lowest)?;
        let slot = self.occupied[level].trailing_zeros() as usize;
        let shift = SLOT_BITS * level as u32;
        let above = self.tick.checked_shr(shift + SLOT_BITS).unwrap_or(0);
        let start = ((above << SLOT_BITS) | slot as u64) << shift;
        Some((level, slot, start))
    }

    fn first_wake(&self) -> Option<Time> {
        let (level, slot, start) = self.first_slot()?;
        if level > 0 {
            // The timers of this slot move down when it begins.
            return Some(Time::from_nanos(start << TICK_BITS));
        }
        self.slots[slot].first().map(|&(due, _)| due)
    }

    /// The lowest level at which a timer may hang. An overdue one belongs into
    /// the present slot.
    fn level(&self, due: Time) -> usize {
        match tick(due).max(self.tick) ^ self.tick {
            0 => 0,
            differing => (differing.ilog2() / SLOT_BITS) as usize,
        }
    }

    fn slot(&self, level: usize, due: Time) -> usize {
        (tick(due).max(self.tick) >> (SLOT_BITS * level as u32)) as usize % SLOTS
    }

    fn hang(&mut self, due: Time, owner: Owner) {
        let level = self.level(due);
        let slot = self.slot(level, due);
        self.occupied[level] |= 1 << slot;
        self.slots[level * SLOTS + slot].insert((due, owner));
    }

    fn note_if_empty(&mut self, level: usize, slot: usize) {
        let timers = &mut self.slots[level * SLOTS + slot];
        if timers.is_empty() {
            // A set that has had members keeps memory for some.
            *timers = BTreeSet::new();
            self.occupied[level] &= !(1 << slot);
        }
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

    fn due(wheel: &mut Wheel<u32>, now: u64) -> Vec<u32> {
        let mut due = Vec::new();
        // The pieces must add up to the same result.
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
            let mut wheel = Wheel::new(at(NOW));
            let time = NOW + (1 << bit);
            wheel.set(7, &mut None, at(time));
            assert_eq!(due(&mut wheel, time - 1), [], "2^{bit} ns");
            assert!(wheel.wake_at <= Some(at(time)));
            assert_eq!(due(&mut wheel, time), [7], "2^{bit} ns");
            assert_eq!(wheel.wake_at, None);
        }
    }

    #[test]
    fn sleeping_from_wake_to_wake_misses_nothing_and_wakes_rarely() {
        let mut wheel = Wheel::new(at(NOW));
        let time = NOW + 4_294_967_295_000_000_000;
        wheel.set(1, &mut None, at(time));
        let mut wakes = 0;
        loop {
            let wake = wheel.wake_at.unwrap();
            wakes += 1;
            if due(&mut wheel, wake.as_nanos()) == [1] {
                assert_eq!(wake.as_nanos(), time);
                break;
            }
        }
        assert!(wakes <= LEVELS + 1, "{wakes} wakes in 136 years");
    }

    #[test]
    fn a_timer_is_moved_forward_only_and_can_be_cleared() {
        let mut wheel = Wheel::new(at(NOW));
        let (mut a, mut b) = (None, None);
        wheel.set(1, &mut a, at(NOW + 10));
        wheel.set(1, &mut a, at(NOW + 1_000_000_000));
        wheel.set(2, &mut b, at(NOW + 20));
        wheel.set(2, &mut b, at(NOW - 10));
        assert_eq!((a, b), (Some(at(NOW + 10)), Some(at(NOW - 10))));
        assert_eq!(due(&mut wheel, NOW), [2]);
        wheel.clear(1, &mut a);
        assert_eq!((a, due(&mut wheel, NOW + 2_000_000_000)), (None, vec![]));
    }

    #[test]
    fn very_many_timers_move_down_a_level_in_pieces() {
        let mut wheel = Wheel::new(at(0));
        let second = 1_000_000_000;
        let mut timers: Vec<Option<Time>> = vec![None; 5000];
        for (owner, timer) in (0_u32..).zip(&mut timers) {
            wheel.set(owner, timer, at(100 * second + u64::from(owner)));
        }
        let (mut due, mut pieces, now) = (Vec::new(), 0, at(100 * second - 1));
        loop {
            wheel.advance(now, 1000, &mut due);
            if wheel.wake_at > Some(now) {
                break;
            }
            // Meanwhile, one that has moved and one that has not are cleared.
            wheel.clear(pieces, &mut timers[pieces as usize]);
            wheel.clear(4999 - pieces, &mut timers[4999 - pieces as usize]);
            pieces += 1;
        }
        assert!(pieces >= 9 && due.is_empty(), "{pieces}");
        let left = timers.iter().flatten().count();
        assert_eq!(left, 5000 - 2 * pieces as usize);
        while wheel.wake_at.is_some() {
            let most = due.len() + 1000;
            wheel.advance(at(101 * second), most, &mut due);
        }
        assert_eq!(due.len(), left);
        assert!(wheel.slots.iter().all(BTreeSet::is_empty));
    }

    #[test]
    fn many_timers_against_a_sorted_list() {
        let mut wheel = Wheel::new(at(NOW));
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
                    wheel.set(owner as u32, timer, due);
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
