//! Curves: what a server or a tube was like in the last ten minutes, the
//! last hour and the last day.
//!
//! Each span of time has a ring of [`SLOTS`] slots. A slot keeps the highest
//! backlog and the mean rates of its time. A time for which nothing is known,
//! because the server was away or was started again, is a gap. A day of one
//! tube takes 33 kB at most, and the rings grow only as time passes.

use crate::remote::tubes::Each;
use std::collections::VecDeque;
use std::time::Duration;

/// The spans in seconds.
pub const SPANS: [u64; 3] = [600, 3600, 86_400];
/// How many slots each span has.
pub const SLOTS: usize = 300;

/// How many seconds a slot of this span has.
const fn width(span: usize) -> u64 {
    SPANS[span] / SLOTS as u64
}

/// The highest number of jobs in each state, and the rates per second.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Point {
    pub backlog: [u32; 4],
    pub rates: Each<f32>,
}

/// The slots of a span, oldest first; a gap is `None`.
pub type Slots = Vec<Option<Point>>;

/// The curves of a server or a tube. Times are counted from any common beginning.
#[derive(Clone, Default)]
pub struct Curves {
    rings: [Ring; SPANS.len()],
}

#[derive(Clone, Default)]
struct Ring {
    /// The slots, oldest first; a gap is `None`.
    slots: VecDeque<Option<Point>>,
    /// The number of the last slot, counted from the common beginning.
    last: u64,
    /// How many seconds of the last slot have been measured.
    measured: f32,
}

impl Curves {
    /// Notes the backlog of this time, and the rates of so many seconds before it.
    pub fn note(&mut self, at: Duration, seconds: f64, backlog: [u64; 4], rates: Each<f64>) {
        let backlog = backlog.map(|count| u32::try_from(count).unwrap_or(u32::MAX));
        let rates = rates.map(|rate| rate as f32);
        for (span, ring) in self.rings.iter_mut().enumerate() {
            let slot = at.as_secs() / width(span);
            ring.note(slot, seconds as f32, Point { backlog, rates });
        }
    }

    /// Notes that nothing is known about this time.
    pub fn gap(&mut self, at: Duration) {
        for (span, ring) in self.rings.iter_mut().enumerate() {
            ring.gap(at.as_secs() / width(span));
        }
    }

    /// The slots of a span by its index, oldest first. The last one contains
    /// this time.
    pub fn slots(&self, span: usize, now: Duration) -> Slots {
        let ring = &self.rings[span];
        let known = ring.slots.iter().copied();
        // A slot that has just begun has no sample yet.
        let late = (now.as_secs() / width(span)).saturating_sub(ring.last + 1);
        let late = usize::try_from(late).unwrap_or(SLOTS).min(SLOTS);
        let mut slots: Vec<_> = known.chain(std::iter::repeat_n(None, late)).collect();
        slots.drain(..slots.len().saturating_sub(SLOTS));
        slots
    }

    /// How much was counted by the rate of this index in the last ten minutes.
    pub fn counted(&self, rate: usize) -> f64 {
        let known = self.rings[0].slots.iter().flatten();
        let rates = known.map(|point| f64::from(point.rates[rate]));
        // There should be a sample for each of the shortest slots.
        rates.sum::<f64>() * width(0) as f64
    }

    /// How many bytes the rings take.
    #[cfg(test)]
    pub fn memory(&self) -> usize {
        let slots = self.rings.iter().map(|ring| ring.slots.capacity());
        slots.sum::<usize>() * size_of::<Option<Point>>() + size_of::<Self>()
    }
}

impl Ring {
    fn note(&mut self, slot: u64, seconds: f32, now: Point) {
        if self.advance(slot, Some(now)) {
            self.measured = seconds;
            return;
        }
        // A gap stays one until its slot is over.
        let Some(Some(point)) = self.slots.back_mut() else {
            return;
        };
        let whole = self.measured + seconds;
        for (mean, rate) in point.rates.iter_mut().zip(now.rates) {
            *mean = (*mean * self.measured + rate * seconds) / whole;
        }
        for (highest, count) in point.backlog.iter_mut().zip(now.backlog) {
            *highest = count.max(*highest);
        }
        self.measured = whole;
    }

    fn gap(&mut self, slot: u64) {
        if !self.advance(slot, None)
            && let Some(last) = self.slots.back_mut()
        {
            *last = None;
        }
    }

    /// Begins all slots up to this one with this point. Returns whether there
    /// was one to begin.
    fn advance(&mut self, slot: u64, point: Option<Point>) -> bool {
        let new = if self.slots.is_empty() {
            1
        } else {
            slot.saturating_sub(self.last).min(SLOTS as u64)
        };
        for _ in 0..new {
            if self.slots.len() == SLOTS {
                self.slots.pop_front();
            }
            if self.slots.len() == self.slots.capacity() {
                self.slots.reserve_exact(SLOTS / 10);
            }
            self.slots.push_back(point);
        }
        self.last = self.last.max(slot);
        new > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    const fn puts(rate: f64) -> Each<f64> {
        [rate, 0.0, 0.0, 0.0]
    }

    fn told(curves: &Curves, span: usize, now: u64) -> String {
        // Only the first rate is looked at.
        let slot = |slot: &Option<Point>| match slot {
            Some(Point { backlog, rates }) => format!("{backlog:?} {:.2}", rates[0]),
            None => "gap".into(),
        };
        let slots = curves.slots(span, seconds(now));
        slots.iter().map(slot).collect::<Vec<_>>().join(", ")
    }

    #[test]
    fn a_slot_has_the_highest_backlog_and_the_mean_rate_of_its_time() {
        let mut curves = Curves::default();
        assert_eq!(told(&curves, 0, 0), "");
        curves.note(seconds(2), 2.0, [1, 0, 0, 0], puts(2.0));
        curves.note(seconds(4), 2.0, [5, 0, 0, 2], puts(0.0));
        curves.note(seconds(6), 2.0, [3, 0, 0, 0], puts(3.0));
        assert_eq!(
            told(&curves, 0, 7),
            "[1, 0, 0, 0] 2.00, [5, 0, 0, 2] 0.00, [3, 0, 0, 0] 3.00"
        );
        assert_eq!(told(&curves, 1, 7), "[5, 0, 0, 2] 1.67");
    }

    #[test]
    fn a_restart_leaves_a_gap_and_a_slow_reply_does_not() {
        let mut curves = Curves::default();
        curves.note(seconds(2), 2.0, [1, 0, 0, 0], puts(1.0));
        // The server answers late, but it is the same.
        curves.note(seconds(8), 6.0, [1, 0, 0, 0], puts(0.0));
        assert_eq!(
            told(&curves, 0, 8),
            "[1, 0, 0, 0] 1.00, [1, 0, 0, 0] 0.00, [1, 0, 0, 0] 0.00, [1, 0, 0, 0] 0.00"
        );
        curves.gap(seconds(10));
        curves.gap(seconds(12));
        curves.note(seconds(16), 2.0, [7, 0, 0, 0], puts(0.0));
        let end = told(&curves, 0, 16);
        assert!(
            end.ends_with("[1, 0, 0, 0] 0.00, gap, gap, [7, 0, 0, 0] 0.00, [7, 0, 0, 0] 0.00"),
            "{end}"
        );
        // In the other spans the whole slot is a gap.
        assert_eq!(told(&curves, 2, 16), "gap");
        curves.note(seconds(290), 274.0, [7, 0, 0, 0], puts(0.0));
        assert_eq!(told(&curves, 2, 290), "gap, [7, 0, 0, 0] 0.00");
    }

    #[test]
    fn the_time_after_the_last_sample_is_a_gap() {
        let mut curves = Curves::default();
        curves.note(seconds(2), 2.0, [1, 0, 0, 0], puts(0.0));
        assert_eq!(told(&curves, 0, 5), "[1, 0, 0, 0] 0.00");
        assert_eq!(told(&curves, 0, 9), "[1, 0, 0, 0] 0.00, gap, gap");
        assert_eq!(curves.slots(0, seconds(100_000)), vec![None; SLOTS]);
    }

    #[test]
    fn a_day_of_200_tubes_takes_less_than_10_mb() {
        let mut curves = Curves::default();
        for at in (0..100_000).step_by(2) {
            curves.note(seconds(at), 2.0, [at, 1, 1, 1], [1.0; 4]);
        }
        for span in 0..SPANS.len() {
            let slots = curves.slots(span, seconds(100_000));
            assert_eq!(slots.len(), SLOTS);
            assert!(slots.iter().all(Option::is_some));
        }
        let memory = 200 * curves.memory();
        assert!((4_000_000..7_000_000).contains(&memory), "{memory} bytes");
    }
}
