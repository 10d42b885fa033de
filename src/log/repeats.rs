//! Warnings that are repeated: the first one is written, and after a while the
//! number of the others. Otherwise one client whose puts are refused would have 10 MB of
//! log written each second, and each of its puts would take twice the processor's time.

use std::time::{Duration, Instant};

/// The warnings that were written lately, the oldest first.
#[derive(Default)]
pub struct Repeats(Vec<Warning>);

struct Warning {
    text: String,
    /// When it is forgotten, and the count of its repetitions is written.
    ends_at: Instant,
    /// How often it was repeated since it was written.
    repeated: u64,
}

impl Repeats {
    /// How long a warning is not written again.
    pub const PERIOD: Duration = Duration::from_secs(10);

    /// How many warnings are remembered; all others are written.
    const MOST: usize = 64;

    /// Notes a warning. Returns whether it has to be written: it was not
    /// written lately.
    pub fn note(&mut self, text: &str, now: Instant) -> bool {
        if let Some(known) = self.0.iter_mut().find(|warning| warning.text == text) {
            known.repeated += 1;
            return false;
        }
        if self.0.len() < Self::MOST {
            self.0.push(Warning {
                text: text.into(),
                ends_at: now + Self::PERIOD,
                repeated: 0,
            });
        }
        true
    }

    /// When the next count has to be written; `None` if nothing was repeated.
    pub fn due_at(&self) -> Option<Instant> {
        let repeated = self.0.iter().find(|warning| warning.repeated > 0);
        repeated.map(|warning| warning.ends_at)
    }

    /// Forgets the warnings that are old enough. Returns a line for each of
    /// them that was repeated.
    pub fn take_due(&mut self, now: Instant) -> Vec<String> {
        let recent = self.0.partition_point(|warning| warning.ends_at <= now);
        let due = self.0.drain(..recent);
        due.filter(|warning| warning.repeated > 0)
            .map(|warning| format!("{} ({} more of these)", warning.text, warning.repeated))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_of_repeated_lines_is_written_and_the_others_are_counted() {
        let start = Instant::now();
        let mut repeats = Repeats::default();
        assert!(repeats.note("no room", start));
        assert_eq!(repeats.due_at(), None);
        assert!(!repeats.note("no room", start));
        assert!(!repeats.note("no room", start));
        assert!(repeats.note("too slow", start));
        assert!(repeats.take_due(start + Duration::from_secs(9)).is_empty());
        let end = start + Repeats::PERIOD;
        assert_eq!(repeats.due_at(), Some(end));
        assert_eq!(repeats.take_due(end), ["no room (2 more of these)"]);
        assert!(repeats.note("no room", end));
    }

    #[test]
    fn a_line_is_written_when_too_many_others_are_remembered() {
        let start = Instant::now();
        let mut repeats = Repeats::default();
        for number in 0..Repeats::MOST {
            repeats.note(&number.to_string(), start);
        }
        assert!(repeats.note("another", start));
        assert!(repeats.note("another", start));
    }
}
