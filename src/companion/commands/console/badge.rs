//! The badge of a tube: in a few words what a person should look at. The
//! sentences for its own page are those of [`crate::server::trouble`].

use super::tube::Tube;
use crate::server::trouble::Trouble;
use crate::text::words::span;
use std::cmp::Ordering;

/// Something that a person should look at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Badge {
    /// Whether it needs a person, or only may need one.
    pub is_grave: bool,
    pub words: String,
}

/// An oldest job of this age, in seconds, is old.
const OLD: u64 = 600;
/// If no job was deleted for so many seconds though some are ready, that is
/// long.
const STILL: u64 = 60;

/// The badge of a tube with its worst trouble, or with what may become one.
pub fn of(tube: &Tube) -> Option<Badge> {
    let badge = |is_grave, words| Some(Badge { is_grave, words });
    let paused = || format!("paused, {} left", span(tube.pause_left));
    match tube.trouble {
        Trouble::Unwatched => badge(true, "nobody watches".into()),
        Trouble::Buried => badge(true, format!("{} buried", tube.buried())),
        Trouble::Paused => badge(true, paused()),
        Trouble::Limited => badge(false, "waits for a limit".into()),
        Trouble::None if tube.pause_left > 0 => badge(false, paused()),
        Trouble::None if tube.ready() == 0 => None,
        Trouble::None if tube.still >= STILL => {
            badge(false, format!("no delete for {}", span(tube.still)))
        }
        Trouble::None => {
            let old = tube.age.filter(|age| *age >= OLD)?;
            badge(false, format!("oldest job {}", span(old)))
        }
    }
}

/// The order of tubes by their badges: those with a grave one, those with
/// another, those without; and among equals, more jobs first.
pub fn compare(one: &Tube, other: &Tube) -> Ordering {
    let rank = |tube: &Tube| match of(tube) {
        Some(badge) if badge.is_grave => 0,
        Some(_) => 1,
        None => 2,
    };
    let jobs = |tube: &Tube| tube.jobs.iter().sum::<u64>();
    rank(one)
        .cmp(&rank(other))
        .then(jobs(other).cmp(&jobs(one)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::stats::Facts;
    use std::time::Duration;

    /// The badge of a tube of which stats-tube says this.
    fn badge(stats: &str, still: u64, age: Option<u64>) -> Option<(bool, String)> {
        let facts = Facts::parse(stats.replace(", ", "\n").as_bytes());
        let mut tube = Tube::default();
        tube.note(Duration::ZERO, None, &facts.unwrap(), false);
        (tube.still, tube.age) = (still, age);
        of(&tube).map(|badge| (badge.is_grave, badge.words))
    }

    #[test]
    fn the_worst_trouble_is_on_the_badge() {
        for (ready, buried, watching, paused, told) in [
            (3, 2, 0, 7200, Some((true, "nobody watches"))),
            (3, 2, 1, 7200, Some((true, "2 buried"))),
            (3, 0, 1, 7200, Some((true, "paused, 2h left"))),
            (0, 0, 1, 7200, Some((false, "paused, 2h left"))),
            (3, 0, 1, 0, Some((false, "waits for a limit"))),
            (0, 0, 0, 0, None),
        ] {
            let stats = format!(
                "current-jobs-ready: {ready}, current-jobs-buried: {buried}, \
                 current-watching: {watching}, current-waiting: {watching}, \
                 pause-time-left: {paused}"
            );
            let told = told.map(|(grave, words)| (grave, String::from(words)));
            assert_eq!(badge(&stats, 90, Some(700)), told, "{stats}");
        }
    }

    #[test]
    fn ready_jobs_may_become_trouble() {
        let stats = "current-watching: 1, current-jobs-ready: 1, current-jobs-reserved: 1";
        for (still, age, words) in [
            (90, Some(700), Some("no delete for 90s")),
            (59, Some(700), Some("oldest job 11m")),
            (59, Some(599), None),
            (59, None, None),
        ] {
            let told = words.map(|words| (false, String::from(words)));
            assert_eq!(badge(stats, still, age), told, "{words:?}");
        }
        assert_eq!(badge("current-watching: 1", 90, None), None);
    }
}
