//! A hierarchical timer wheel as plain data: it knows which timers are due
//! when.
//!
//! Its timers belong to tubes and connections, not to jobs. Each tube and each
//! connection has one timer, set to the next thing that can happen to it: the
//! end of a delay, of a pause, of a time to run, or of a wait. The jobs are in
//! the queue of their tube or connection, which has to be sorted anyway for
//! `peek-delayed` and `DEADLINE_SOON`. A timer for each job would cost some 40
//! bytes a job more. So the wheel grows with tubes and connections, never with
//! jobs.
//!
//! Level 0 has 64 slots of one tick each, level 1 has 64 slots of 64 ticks
//! each, and so on. Compare the tick of a timer with the present tick, in
//! groups of six bits: the highest group that differs gives the timer's level.
//! As its time comes nearer, a timer moves down the levels. Ticks only sort
//! timers into slots: a timer is due at its exact time.

use super::Time;
use std::iter;

/// A tick is 2^20 nanoseconds, about a millisecond.
const TICK_BITS: u32 = 20;
const SLOT_BITS: u32 = 6;
const SLOTS: usize = 1 << SLOT_BITS;
/// Enough for all 64 bits of a [`Time`].
const LEVELS: usize = (64 - TICK_BITS).div_ceil(SLOT_BITS) as usize;

/// How many lists of timers there are.
const HEADS: u32 = (LEVELS * SLOTS) as u32;

/// Timers. Each has a number, and the caller knows which number belongs to
/// what.
pub struct Wheel {
    /// The present tick. No timer hangs in a slot that lies before it.
    tick: u64,
    /// For each level, which of its slots have timers: bit n for slot n.
    occupied: [u64; LEVELS],
    /// When to call [`advance`](Self::advance); `None` if no timer is set. Never
    /// later than the first due time. It may be earlier if the first timer was
    /// cleared, or if timers have to move down a level.
    pub wake_at: Option<Time>,
    /// First the heads of all slots' lists, level by level; then the timers, up
    /// to the highest number that was ever set.
    nodes: Vec<Node>,
}

/// A node of a circular list: the head of a slot, or a timer.
struct Node {
    previous: u32,
    next: u32,
    /// The head of its list; a timer that is not set has itself here.
    head: u32,
    due: Time,
}

impl Wheel {
    /// A wheel on which no timer is set.
    pub fn new(now: Time) -> Wheel {
        let mut wheel = Wheel {
            tick: tick(now),
            occupied: [0; LEVELS],
            wake_at: None,
            nodes: Vec::new(),
        };
        wheel.grow_to(HEADS);
        wheel
    }

    /// Sets a timer to this time, or clears it.
    pub fn set(&mut self, timer: u32, due: Option<Time>) {
        let at = HEADS + timer;
        if self.nodes.len() <= at as usize {
            if due.is_none() {
                return; // it was never set
            }
            self.grow_to(at + 1);
        }
        let node = &self.nodes[at as usize];
        let old = (node.head != at).then_some(node.due);
        if old == due {
            // The usual case: the first of many jobs is still the same one.
            return;
        }
        self.unlink(at);
        if let Some(due) = due {
            self.nodes[at as usize].due = due;
            self.link(at);
            self.wake_at = Some(self.wake_at.map_or(due, |earlier| earlier.min(due)));
        }
    }

    /// Clears timers that are due by now, at most `most`, and appends their
    /// numbers to `due`. If more are due, [`wake_at`](Self::wake_at) is not
    /// after `now`.
    pub fn advance(&mut self, now: Time, most: usize, due: &mut Vec<u32>) {
        while let Some((level, slot, start)) = self.first_slot() {
            if start > tick(now) {
                // All slots that have begun are empty now.
                break;
            }
            self.tick = self.tick.max(start);
            let head = (level * SLOTS + slot) as u32;
            let mut at = self.nodes[head as usize].next;
            while at != head {
                let node = &self.nodes[at as usize];
                let next = node.next;
                if level > 0 {
                    // Moves it down to the level that its tick now belongs to.
                    self.unlink(at);
                    self.link(at);
                } else if node.due <= now {
                    if due.len() == most {
                        // The remaining timers stay here for the next call.
                        self.wake_at = Some(node.due);
                        return;
                    }
                    self.unlink(at);
                    due.push(at - HEADS);
                }
                at = next;
            }
            if start == tick(now) && level == 0 {
                // The timers that are left in the present slot are due later in
                // this tick.
                break;
            }
        }
        self.tick = self.tick.max(tick(now));
        self.wake_at = self.first_wake();
    }

    /// The first slot with timers, and the tick at which it begins. Slots of
    /// lower levels come before those of higher levels, because of the way in
    /// which timers are assigned to levels.
    fn first_slot(&self) -> Option<(usize, usize, u64)> {
        let level = self.occupied.iter().position(|&slots| slots != 0)?;
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
        let head = (level * SLOTS + slot) as u32;
        let next = |&at: &u32| Some(self.nodes[at as usize].next);
        let timers = iter::successors(next(&head), next).take_while(|&at| at != head);
        timers.map(|at| self.nodes[at as usize].due).min()
    }

    /// Adds nodes up to this number, each alone in its list.
    fn grow_to(&mut self, end: u32) {
        let from = self.nodes.len() as u32;
        self.nodes.extend((from..end).map(|at| Node {
            previous: at,
            next: at,
            head: at,
            due: Time::default(),
        }));
    }

    fn link(&mut self, at: u32) {
        // An overdue timer goes into the present slot.
        let tick = tick(self.nodes[at as usize].due).max(self.tick);
        let level = match tick ^ self.tick {
            0 => 0,
            differing => differing.ilog2() / SLOT_BITS,
        };
        let slot = (tick >> (SLOT_BITS * level)) as usize % SLOTS;
        self.occupied[level as usize] |= 1 << slot;
        let head = (level as usize * SLOTS + slot) as u32;
        let last = self.nodes[head as usize].previous;
        self.nodes[last as usize].next = at;
        self.nodes[head as usize].previous = at;
        let node = &mut self.nodes[at as usize];
        (node.previous, node.next, node.head) = (last, head, head);
    }

    fn unlink(&mut self, at: u32) {
        let node = &mut self.nodes[at as usize];
        let (previous, next, head) = (node.previous, node.next, node.head);
        (node.previous, node.next, node.head) = (at, at, at);
        self.nodes[previous as usize].next = next;
        self.nodes[next as usize].previous = previous;
        // This was the last timer of its slot.
        if head != at && self.nodes[head as usize].next == head {
            self.occupied[head as usize / SLOTS] &= !(1 << (head as usize % SLOTS));
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

    fn due(wheel: &mut Wheel, now: u64) -> Vec<u32> {
        let (mut due, now) = (Vec::new(), Time::from_nanos(now));
        // The pieces must add up to the same result.
        loop {
            let most = due.len() + 3;
            wheel.advance(now, most, &mut due);
            if due.len() < most {
                break;
            }
        }
        due.sort_unstable();
        due
    }

    #[test]
    fn a_timer_is_due_at_its_time_and_not_a_nanosecond_before() {
        for bit in 0..63 {
            let mut wheel = Wheel::new(Time::from_nanos(NOW));
            let at = NOW + (1 << bit);
            wheel.set(7, Some(Time::from_nanos(at)));
            assert_eq!(due(&mut wheel, at - 1), [], "2^{bit} ns");
            assert!(wheel.wake_at <= Some(Time::from_nanos(at)));
            assert_eq!(due(&mut wheel, at), [7], "2^{bit} ns");
            assert_eq!(wheel.wake_at, None);
        }
    }

    #[test]
    fn sleeping_from_wake_to_wake_misses_nothing_and_wakes_rarely() {
        let mut wheel = Wheel::new(Time::from_nanos(NOW));
        let at = NOW + 4_294_967_295_000_000_000;
        wheel.set(1, Some(Time::from_nanos(at)));
        let mut wakes = 0;
        loop {
            let wake = wheel.wake_at.unwrap();
            wakes += 1;
            if due(&mut wheel, wake.as_nanos()) == [1] {
                assert_eq!(wake.as_nanos(), at);
                break;
            }
        }
        assert!(wakes <= LEVELS + 1, "{wakes} wakes in 136 years");
    }

    #[test]
    fn a_timer_can_be_moved_and_cleared() {
        let mut wheel = Wheel::new(Time::from_nanos(NOW));
        let (a, b) = (1, 2);
        wheel.set(a, Some(Time::from_nanos(NOW + 10)));
        wheel.set(b, Some(Time::from_nanos(NOW - 10)));
        wheel.set(a, Some(Time::from_nanos(NOW + 1_000_000_000)));
        assert_eq!(due(&mut wheel, NOW + 10), [2]);
        wheel.set(a, None);
        assert_eq!(due(&mut wheel, NOW + 2_000_000_000), []);
    }

    #[test]
    fn many_timers_against_a_sorted_list() {
        let mut wheel = Wheel::new(Time::from_nanos(NOW));
        let mut random = 1_u64;
        let mut next = move || {
            random = random.wrapping_mul(6364136223846793005).wrapping_add(1);
            random >> 33
        };
        let mut model = vec![None; 100];
        let mut now = NOW;
        for _ in 0..20_000 {
            let timer = next() as usize % 100;
            let span = 1 << (next() % 40);
            let at = (next() % 4 != 0).then(|| now + next() % span);
            model[timer] = at;
            wheel.set(timer as u32, at.map(Time::from_nanos));
            if next() % 3 == 0 {
                now += next() % span;
                let expected: Vec<u32> = (0..100)
                    .filter(|&timer| {
                        let slot: &mut Option<u64> = &mut model[timer as usize];
                        slot.take_if(|at| *at <= now).is_some()
                    })
                    .collect();
                assert_eq!(due(&mut wheel, now), expected);
            }
            let first = model.iter().flatten().min().copied();
            assert!(wheel.wake_at <= first.map(Time::from_nanos) || first.is_none());
            assert!(first.is_none() || wheel.wake_at.is_some());
        }
    }
}
