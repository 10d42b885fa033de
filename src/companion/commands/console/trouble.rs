//! What is wrong with a tube, in a few words for the table. The sentences for
//! its own page are those of [`crate::server::trouble`].

use super::tube::Tube;
use crate::text::words::span;
use std::cmp::Ordering;

/// Something that a person should look at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trouble {
    /// Whether it needs a person, or only may need one.
    pub is_grave: bool,
    pub words: String,
}

/// An oldest job of this age, in seconds, is old.
const OLD: u64 = 600;
/// If no job was deleted for so many seconds though some are ready, that is
/// long.
const STILL: u64 = 60;

/// The gravest trouble of a tube, if it has any.
pub fn of(tube: &Tube) -> Option<Trouble> {
    let trouble = |is_grave, words| Some(Trouble { is_grave, words });
    let ready = tube.ready();
    if ready > 0 && tube.watching == 0 && tube.pause_left == 0 {
        return trouble(true, "nobody watches".into());
    }
    if tube.buried() > 0 {
        return trouble(true, format!("{} buried", tube.buried()));
    }
    if tube.pause_left > 0 {
        return trouble(ready > 0, format!("paused, {} left", span(tube.pause_left)));
    }
    if ready == 0 {
        return None;
    }
    if tube.waiting > 0 {
        return trouble(false, "waits for a limit".into());
    }
    if tube.still >= STILL {
        return trouble(false, format!("no delete for {}", span(tube.still)));
    }
    match tube.age {
        Some(age) if age >= OLD => trouble(false, format!("oldest job {}", span(age))),
        _ => None,
    }
}

/// The order of tubes with trouble first: grave trouble, other trouble, none;
/// and among equals, more jobs first.
pub fn compare(one: &Tube, other: &Tube) -> Ordering {
    let rank = |tube: &Tube| match of(tube) {
        Some(trouble) if trouble.is_grave => 0,
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

    fn tube(jobs: [u64; 4], watching: u64) -> Tube {
        Tube {
            jobs,
            watching,
            ..Tube::default()
        }
    }

    #[test]
    fn the_gravest_trouble_is_told() {
        let words = |tube: &Tube| of(tube).map(|trouble| (trouble.is_grave, trouble.words));
        let told = |grave, words: &str| Some((grave, String::from(words)));
        assert_eq!(words(&tube([0; 4], 0)), None);
        assert_eq!(words(&tube([3, 0, 0, 2], 0)), told(true, "nobody watches"));
        assert_eq!(words(&tube([3, 0, 0, 2], 1)), told(true, "2 buried"));
        let paused = Tube {
            pause_left: 7200,
            ..tube([3, 0, 0, 0], 0)
        };
        assert_eq!(words(&paused), told(true, "paused, 2h left"));
        assert_eq!(
            words(&Tube {
                jobs: [0; 4],
                ..paused
            }),
            told(false, "paused, 2h left")
        );
        let old = Tube {
            age: Some(700),
            ..tube([1, 0, 0, 0], 1)
        };
        assert_eq!(words(&old), told(false, "oldest job 11m"));
        assert_eq!(
            words(&Tube { still: 90, ..old }),
            told(false, "no delete for 90s")
        );
        assert_eq!(words(&tube([1, 1, 1, 0], 1)), None);
        let limited = Tube {
            waiting: 1,
            ..tube([1, 1, 0, 0], 2)
        };
        assert_eq!(words(&limited), told(false, "waits for a limit"));
    }
}
