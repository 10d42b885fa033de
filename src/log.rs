//! The log: one line an event, on standard error.
//!
//! Each line carries its level and, unless the system's journal adds one, the
//! time. Nothing is logged for each request unless `-VV` asks for it. A flood
//! of equal warnings is counted instead of repeated.

mod repeats;

use repeats::Repeats;
use std::fmt::{Arguments, Display};
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock};
use std::thread;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// How important a line is, and to whom.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// The server cannot go on.
    Error,
    /// Something that its owner should know.
    Warning,
    /// What the server does as a whole.
    Info,
    /// Who comes and goes: with `-V`.
    Connections,
    /// What is asked and answered: with `-VV`.
    Commands,
}

impl Level {
    fn name(self) -> &'static str {
        match self {
            Level::Error => "error",
            Level::Warning => "warning",
            Level::Info => "info",
            Level::Connections | Level::Commands => "debug",
        }
    }

    /// As the journal reads it in front of a line.
    fn journal_prefix(self) -> &'static str {
        match self {
            Level::Error => "<3>",
            Level::Warning => "<4>",
            Level::Info => "<6>",
            Level::Connections | Level::Commands => "<7>",
        }
    }
}

static VERBOSITY: AtomicU8 = AtomicU8::new(Level::Info as u8);

/// Sets how often `-V` was given.
pub fn set_verbosity(times: usize) {
    let level = match times {
        0 => Level::Info,
        1 => Level::Connections,
        _ => Level::Commands,
    };
    VERBOSITY.store(level as u8, Ordering::Relaxed);
}

/// Whether lines of this level are written.
pub fn is_on(level: Level) -> bool {
    level as u8 <= VERBOSITY.load(Ordering::Relaxed)
}

/// Writes a line, if its level is on.
pub fn write(level: Level, text: Arguments<'_>) {
    if !is_on(level) {
        return;
    }
    let line = if is_journal() {
        format!("{}{text}\n", level.journal_prefix())
    } else {
        format!(
            "{} {}: {text}\n",
            timestamp(SystemTime::now()),
            level.name()
        )
    };
    // Where nobody can be told that nobody can be told, silence is all there is.
    let (Ok(()) | Err(_)) = std::io::stderr().write_all(line.as_bytes());
}

/// Whether standard error is the stream of the journal that systemd.exec(5)
/// names: it may have been led elsewhere since.
fn is_journal() -> bool {
    static JOURNAL: OnceLock<bool> = OnceLock::new();
    *JOURNAL.get_or_init(|| {
        let Ok(named) = std::env::var("JOURNAL_STREAM") else {
            return false;
        };
        let stream = io::stderr().as_fd().try_clone_to_owned();
        stream
            .and_then(|stream| File::from(stream).metadata())
            .is_ok_and(|stream| format!("{}:{}", stream.dev(), stream.ino()) == named)
    })
}

/// In UTC, to the millisecond, as RFC 3339 has it.
fn timestamp(time: SystemTime) -> String {
    let since_epoch = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    let (seconds, millis) = (since_epoch.as_secs(), since_epoch.subsec_millis());
    let (year, month, day) = civil(seconds / 86400);
    let (hour, minute, second) = (seconds / 3600 % 24, seconds / 60 % 60, seconds % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{millis:03}Z")
}

/// The date so many days after 1970-01-01: years are counted from March, so
/// that the leap day is the last of its year.
fn civil(days: u64) -> (u64, u64, u64) {
    let days = days + 719_468;
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 {
        month_from_march + 3
    } else {
        month_from_march - 9
    };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    (year, month, day)
}

/// Logs that the server cannot go on.
pub fn error(text: Arguments<'_>) {
    write(Level::Error, text);
}

/// Logs what the owner should know, unless it was said just before.
pub fn warning(text: Arguments<'_>) {
    let text = text.to_string();
    if may_be_said(&text) {
        write(Level::Warning, format_args!("{text}"));
    }
}

/// The same for what a client has caused: it is named in front, and the same
/// from another client is no news.
pub fn client_warning(client: impl Display, text: Arguments<'_>) {
    let text = text.to_string();
    if may_be_said(&text) {
        write(Level::Warning, format_args!("{client}: {text}"));
    }
}

/// Logs what the server does as a whole.
pub fn info(text: Arguments<'_>) {
    write(Level::Info, text);
}

/// Writes how often warnings were repeated, if some were and were not counted
/// yet: the end is near.
pub fn finish() {
    report(repeats().take_all());
}

fn may_be_said(warning: &str) -> bool {
    let now = Instant::now();
    let (is_news, due) = {
        let mut repeats = repeats();
        let due = repeats.take_due(now);
        (repeats.note(warning, now), due)
    };
    report(due);
    if is_news == repeats::News::RepeatedFirst {
        // Says how many there were when the period is over. If there is no
        // thread to be had, the next warning says it, or the end.
        let later = thread::Builder::new().name("log".into());
        let (Ok(_) | Err(_)) = later.spawn(|| {
            thread::sleep(Repeats::PERIOD);
            let due = repeats().take_due(Instant::now());
            report(due);
        });
    }
    is_news == repeats::News::Is
}

fn report(lines: Vec<String>) {
    for line in lines {
        write(Level::Warning, format_args!("{line}"));
    }
}

fn repeats() -> MutexGuard<'static, Repeats> {
    static REPEATS: Mutex<Repeats> = Mutex::new(Repeats::new());
    REPEATS.lock().expect("no thread panics")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn times_are_those_of_the_calendar() {
        for (seconds, text) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (951_782_400, "2000-02-29T00:00:00.000Z"),
            (1_709_251_199, "2024-02-29T23:59:59.000Z"),
            (4_107_542_400, "2100-03-01T00:00:00.000Z"),
        ] {
            let time = UNIX_EPOCH + Duration::from_secs(seconds);
            assert_eq!(timestamp(time), text);
        }
    }
}
