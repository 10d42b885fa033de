//! How often a job has been tried, according to the counters of its server.
//!
//! Workers come and go, so only the server can count. Its counters do not tell
//! which worker reserved a job and why, but they tell how a reservation ended.
//! A release counts as a failure. A timeout does as well: the command was too
//! slow. A reservation that ended without a trace may come from a command that
//! killed its worker, or from a restart of the server; these are counted
//! separately. A burial ends a round: if somebody makes the job ready again, it
//! may be tried as often as before.

use crate::server::stats::Facts;

/// What happened to a job before its present reservation.
#[derive(Clone, Copy)]
pub struct Tries {
    /// Reservations that ended in a failure.
    failed: u64,
    /// Reservations that ended without a trace.
    vanished: u64,
    /// The number of burials, plus one.
    rounds: u64,
}

impl Tries {
    /// Reads the counters of a job that has just been reserved.
    pub fn of(facts: &Facts) -> Tries {
        let failed = facts.number("releases") + facts.number("timeouts");
        let buries = facts.number("buries");
        let ended = failed.saturating_add(buries).saturating_add(1);
        Tries {
            failed,
            vanished: facts.number("reserves").saturating_sub(ended),
            rounds: buries.saturating_add(1),
        }
    }

    /// The number of the present try, from 1 on.
    pub fn number(self) -> u64 {
        self.failed.saturating_add(1)
    }

    /// Whether the present try is the last one, if `limit` tries are allowed in
    /// a round.
    pub fn is_last_of(self, limit: u64) -> bool {
        self.failed >= (limit - 1).saturating_mul(self.rounds)
    }

    /// How many reservations ended without a trace, if `limit` allows no more.
    pub fn vanished(self, limit: u64) -> Option<u64> {
        (self.vanished >= limit.saturating_mul(self.rounds)).then_some(self.vanished)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tries(reserves: u64, releases: u64, timeouts: u64, buries: u64) -> Tries {
        let text = format!(
            "reserves: {reserves}\nreleases: {releases}\ntimeouts: {timeouts}\nburies: {buries}\n"
        );
        Tries::of(&Facts::parse(text.as_bytes()).unwrap())
    }

    #[test]
    fn releases_and_timeouts_are_tries_and_burials_begin_anew() {
        for (tries, number, is_last) in [
            (tries(1, 0, 0, 0), 1, false),
            (tries(2, 1, 0, 0), 2, false),
            (tries(3, 1, 1, 0), 3, true),
            (tries(4, 1, 1, 1), 3, false),
            (tries(6, 3, 1, 1), 5, true),
            // Reservations that ended without a trace are no tries.
            (tries(9, 1, 0, 0), 2, false),
        ] {
            assert_eq!((tries.number(), tries.is_last_of(3)), (number, is_last));
        }
        assert!(tries(1, 0, 0, 0).is_last_of(1));
    }

    #[test]
    fn reservations_without_an_end_count_by_themselves() {
        for (tries, vanished) in [
            (tries(1, 0, 0, 0), None),
            (tries(3, 0, 0, 0), None),
            (tries(4, 0, 0, 0), Some(3)),
            (tries(4, 1, 0, 0), None),
            (tries(5, 0, 0, 1), None),
            (tries(8, 0, 0, 1), Some(6)),
            // beanstalkd forgets reservations when it is restarted.
            (tries(0, 0, 0, 0), None),
        ] {
            assert_eq!(tries.vanished(3), vanished);
        }
    }
}
