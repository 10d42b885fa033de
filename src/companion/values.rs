//! Reads texts of the command line as values. The type says how.

use beanpole::protocol::{JobId, Limit, Priority, Seconds, TubeName, Unique};
use std::ops::RangeInclusive;
use std::time::Duration;

/// A value that can be read from a text.
pub trait Parse: Sized {
    /// Reads the value.
    ///
    /// # Errors
    ///
    /// A message that says what the text should be instead.
    fn parse(text: &str) -> Result<Self, String>;
}

/// For the options of clap.
///
/// # Errors
///
/// A message that says what the text should be instead.
pub fn parse<T: Parse>(text: &str) -> Result<T, String> {
    T::parse(text)
}

impl Parse for u32 {
    fn parse(text: &str) -> Result<u32, String> {
        number(text, 0..=u32::MAX)
    }
}

/// The number of a connection.
impl Parse for u64 {
    fn parse(text: &str) -> Result<u64, String> {
        digits(text, "the number of a connection")
    }
}

/// A number of things: at least one.
#[derive(Clone, Copy, PartialEq)]
pub struct Count(pub u32);

impl Count {
    /// How many things there may be; any number if none is given.
    pub fn most(given: Option<Count>) -> usize {
        given.map_or(usize::MAX, |Count(most)| most as usize)
    }
}

impl Parse for Count {
    fn parse(text: &str) -> Result<Count, String> {
        number(text, 1..=u32::MAX).map(Count)
    }
}

/// A span of time: a number of seconds, or numbers with units, as in `90`,
/// `500ms`, `1.5h` and `1h30m`. A span that is too long for the type becomes
/// the longest one.
impl Parse for Duration {
    fn parse(text: &str) -> Result<Duration, String> {
        let wrong = || format!("'{text}' is no time: give seconds, or 500ms, 30s, 5m, 2h, 1d, 1w");
        let mut seconds = 0.0;
        let mut rest = text;
        loop {
            let letters = rest.trim_start_matches(|c: char| c.is_ascii_digit() || c == '.');
            let next = letters.trim_start_matches(|c: char| c.is_ascii_alphabetic());
            let number = &rest[..rest.len() - letters.len()];
            let unit = match &letters[..letters.len() - next.len()] {
                "" if number == text => 1.0,
                "ms" => 0.001,
                "s" => 1.0,
                "m" => 60.0,
                "h" => 3600.0,
                "d" => 86_400.0,
                "w" => 604_800.0,
                _ => return Err(wrong()),
            };
            seconds += unit * number.parse::<f64>().map_err(|_| wrong())?;
            if next.is_empty() {
                return Ok(Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX));
            }
            rest = next;
        }
    }
}

/// A span of time that is counted in whole seconds.
impl Parse for Seconds {
    fn parse(text: &str) -> Result<Seconds, String> {
        let time = Duration::parse(text)?;
        match u32::try_from(time.as_secs()) {
            Ok(seconds) if time.subsec_nanos() == 0 => Ok(Seconds(seconds)),
            Ok(_) => Err(format!("'{text}' is not whole seconds")),
            Err(_) => Err(format!("'{text}' is more than {} seconds", u32::MAX)),
        }
    }
}

impl Parse for Priority {
    fn parse(text: &str) -> Result<Priority, String> {
        number(text, 0..=u32::MAX).map(Priority)
    }
}

/// The key of a job, and after a colon for how long it stays taken.
impl Parse for Unique {
    fn parse(text: &str) -> Result<Unique, String> {
        let (key, taken_for) = text.split_once(':').unwrap_or((text, "0"));
        let (key, taken_for) = (name(key, "a key")?, Parse::parse(taken_for)?);
        Ok(Unique { key, taken_for })
    }
}

/// The key of a job, and after a colon how many of its jobs may be reserved.
impl Parse for Limit {
    fn parse(text: &str) -> Result<Limit, String> {
        let (key, most) = text.split_once(':').unwrap_or((text, "1"));
        let (key, most) = (name(key, "a key")?, number(most, 1..=u32::MAX)?);
        Ok(Limit { key, most })
    }
}

impl Parse for JobId {
    fn parse(text: &str) -> Result<JobId, String> {
        digits(text, "the id of a job").map(JobId)
    }
}

impl Parse for TubeName {
    fn parse(text: &str) -> Result<TubeName, String> {
        name(text, "the name of a tube")
    }
}

/// The name of a tube or, by the same rule, a key.
fn name(text: &str, what: &str) -> Result<TubeName, String> {
    TubeName::parse(text.as_bytes()).ok_or_else(|| {
        format!(
            "'{text}' cannot be {what}: 1 to {} letters, digits and -+/;.$_(), no hyphen first",
            TubeName::MAX_LEN
        )
    })
}

/// A number that is `what`, and has no sign.
fn digits(text: &str, what: &str) -> Result<u64, String> {
    let number = text.parse().ok().filter(|_| !text.starts_with('+'));
    number.ok_or_else(|| format!("'{text}' is not {what}"))
}

/// A whole number that is one of these.
pub fn number(text: &str, among: RangeInclusive<u32>) -> Result<u32, String> {
    let number = text.parse().ok().filter(|number| among.contains(number));
    let (least, most) = among.into_inner();
    number.ok_or_else(|| format!("'{text}' is not a number from {least} to {most}"))
}

/// Whether this pattern means this name, however many stars it has.
pub fn matches(pattern: &[u8], name: &[u8]) -> bool {
    // Which beginnings of the name, by their length, the pattern means as far as it was read.
    let mut fits = vec![false; name.len() + 1];
    fits[0] = true;
    for part in pattern {
        if *part == b'*' {
            let shortest = fits.iter().position(|fits| *fits);
            fits[shortest.unwrap_or(name.len() + 1)..].fill(true);
        } else {
            for (at, byte) in name.iter().enumerate().rev() {
                fits[at + 1] = fits[at] && (*part == b'?' || part == byte);
            }
            fits[0] = false;
        }
    }
    fits[name.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_units_and_a_bare_number_counts_seconds() {
        for (text, milliseconds) in [
            ("0", 0),
            ("90", 90_000),
            ("0.25", 250),
            ("250ms", 250),
            ("0s", 0),
            ("5m", 300_000),
            ("1.5h", 5_400_000),
            ("1h30m", 5_400_000),
            ("0h30m", 1_800_000),
            ("1.1m", 66_000),
            ("2d", 172_800_000),
            ("1w", 604_800_000),
        ] {
            let time = Duration::from_millis(milliseconds);
            assert_eq!(Duration::parse(text), Ok(time), "{text}");
        }
        for text in [
            "", "m", "-1", "+1", "1h30", "1 h", "1e3", "inf", "nan", "1..2", "5M", "5min", "5,5",
        ] {
            assert!(Duration::parse(text).is_err(), "{text}");
        }
        let longest = "9".repeat(400);
        assert_eq!(Duration::parse(&longest), Ok(Duration::MAX));
        assert!(Seconds::parse(&longest).is_err());
        assert_eq!(Seconds::parse("4294967295"), Ok(Seconds(u32::MAX)));
    }

    #[test]
    fn a_pattern_of_many_stars_is_matched_in_little_time() {
        let name = "a".repeat(200);
        let pattern = "a*".repeat(100) + "b";
        assert!(!matches(pattern.as_bytes(), name.as_bytes()));
        assert!(matches("*a".repeat(100).as_bytes(), name.as_bytes()));
    }
}
