//! Warnings that come again and again: the first is written, and after a while
//! how many more there were.

use std::time::{Duration, Instant};

/// What was said lately.
pub struct Repeats(Vec<Warning>);

struct Warning {
    text: String,
    said_at: Instant,
    /// How often it came after that.
    repeated: u64,
}

/// What a warning is to those who know the ones before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum News {
    /// It was not said lately: it is to be written.
    Is,
    /// It was said, and comes for the second time.
    RepeatedFirst,
    /// It comes again and again.
    RepeatedAgain,
}

impl Repeats {
    /// For how long a warning is not repeated.
    pub const PERIOD: Duration = Duration::from_secs(10);

    /// As many are remembered; beyond that all are written.
    const MOST: usize = 64;

    /// Nothing was said yet.
    pub const fn new() -> Repeats {
        Repeats(Vec::new())
    }

    /// Takes note of a warning, after [`take_due`](Self::take_due).
    pub fn note(&mut self, text: &str, now: Instant) -> News {
        match self.0.iter_mut().find(|warning| warning.text == text) {
            Some(warning) => {
                warning.repeated += 1;
                match warning.repeated {
                    1 => News::RepeatedFirst,
                    _ => News::RepeatedAgain,
                }
            }
            None => {
                if self.0.len() < Self::MOST {
                    self.0.push(Warning {
                        text: text.into(),
                        said_at: now,
                        repeated: 0,
                    });
                }
                News::Is
            }
        }
    }

    /// Forgets what was said too long ago; lines for what was repeated of it.
    pub fn take_due(&mut self, now: Instant) -> Vec<String> {
        let mut due = Vec::new();
        for warning in std::mem::take(&mut self.0) {
            match now >= warning.said_at + Self::PERIOD {
                true => due.push(warning),
                false => self.0.push(warning),
            }
        }
        lines(due)
    }

    /// Forgets everything; lines for what was repeated of it.
    pub fn take_all(&mut self) -> Vec<String> {
        lines(std::mem::take(&mut self.0))
    }
}

fn lines(warnings: Vec<Warning>) -> Vec<String> {
    let repeated = warnings.iter().filter(|warning| warning.repeated > 0);
    repeated
        .map(|warning| format!("{} ({} more of these)", warning.text, warning.repeated))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOTHING: [&str; 0] = [];

    #[test]
    fn the_first_is_written_the_others_are_counted() {
        let start = Instant::now();
        let mut repeats = Repeats::new();
        assert_eq!(repeats.note("no room", start), News::Is);
        assert_eq!(repeats.note("no room", start), News::RepeatedFirst);
        assert_eq!(repeats.note("no room", start), News::RepeatedAgain);
        assert_eq!(repeats.note("too slow", start), News::Is);
        assert_eq!(repeats.take_due(start + Duration::from_secs(9)), NOTHING);
        let end = start + Repeats::PERIOD;
        assert_eq!(repeats.take_due(end), ["no room (2 more of these)"]);
        assert_eq!(repeats.note("no room", end), News::Is);
    }

    #[test]
    fn at_the_end_nothing_is_left_uncounted() {
        let start = Instant::now();
        let mut repeats = Repeats::new();
        repeats.note("no room", start);
        repeats.note("no room", start);
        assert_eq!(repeats.take_all(), ["no room (1 more of these)"]);
        assert_eq!(repeats.take_all(), NOTHING);
    }

    #[test]
    fn when_there_is_too_much_to_remember_it_is_written() {
        let start = Instant::now();
        let mut repeats = Repeats::new();
        for number in 0..Repeats::MOST {
            repeats.note(&number.to_string(), start);
        }
        assert_eq!(repeats.note("another", start), News::Is);
        assert_eq!(repeats.note("another", start), News::Is);
    }
}
