//! A tube as the console knows it: the figures of its last sample, and its
//! curves.

use super::ring::{self, Curves};
use crate::server::columns::Column;
use crate::server::sample::{TUBE_RATES, per_second};
use crate::server::stats::{Facts, State};
use crate::server::trouble::Trouble;
use crate::text::json::Json;
use std::time::Duration;

/// A tube of a server.
#[derive(Default)]
pub struct Tube {
    /// How many jobs are ready, reserved, delayed and buried.
    pub jobs: [u64; 4],
    pub urgent: u64,
    pub using: u64,
    pub watching: u64,
    pub waiting: u64,
    /// For how many seconds it stays paused.
    pub pause_left: u64,
    pub trouble: Trouble,
    pub counters: [u64; 2],
    /// Per second, since the sample before.
    pub rates: Option<[f64; 2]>,
    /// The age in seconds of the next ready job, if it is known.
    pub age: Option<u64>,
    /// For how many seconds jobs have been ready and none was deleted.
    pub still: u64,
    /// When it last moved: a job was deleted, or none was ready.
    pub moved: Duration,
    /// When something about it changed.
    pub changed: Duration,
    /// Whether the tube does not exist any more; its curves go on.
    pub is_gone: bool,
    /// Its curves begin when something happens in it.
    pub curves: Option<Box<Curves<2>>>,
}

impl Tube {
    /// Takes over the statistics of this time. The sample before was at
    /// `before`; a tube that did not exist then began with counters of 0.
    pub fn note(
        &mut self,
        at: Duration,
        before: Option<Duration>,
        facts: &Facts,
        may_have_curves: bool,
    ) {
        let jobs = State::ALL.map(|state| facts.jobs_in(&[state]));
        let counters = TUBE_RATES.map(|(_, key)| facts.number(key));
        let is_new = self.changed.is_zero();
        let [_, deleted] = self.counters;
        if is_new || counters[1] != deleted || jobs[0] == 0 || self.ready() == 0 {
            self.moved = at;
        }
        if is_new || jobs != self.jobs || counters != self.counters {
            self.changed = at.max(Duration::from_millis(1));
        }
        self.rates = before.map(|then| {
            let time = at.saturating_sub(then);
            [0, 1].map(|index| per_second(self.counters[index], counters[index], time))
        });
        self.still = (at - self.moved).as_secs();
        (self.jobs, self.counters) = (jobs, counters);
        self.urgent = facts.number("current-jobs-urgent");
        self.using = facts.number("current-using");
        self.watching = facts.watching();
        self.waiting = facts.number("current-waiting");
        self.pause_left = facts.number("pause-time-left");
        self.trouble = Trouble::of(facts);
        if self.ready() == 0 {
            self.age = None;
        }
        self.is_gone = false;
        if may_have_curves && self.curves.is_none() && self.is_alive() {
            let zero_at = before.filter(|_| is_new);
            self.curves = Some(Box::new(Curves::new(zero_at)));
        }
        if let Some(curves) = &mut self.curves {
            curves.note(at, jobs, counters);
        }
    }

    /// Notes that the tube does not exist at this time.
    pub fn note_gone(&mut self, at: Duration, before: Option<Duration>) {
        if !self.is_gone {
            self.note(at, before, &Facts::default(), false);
            self.is_gone = true;
        } else if let Some(curves) = &mut self.curves {
            curves.note(at, [0; 4], [0; 2]);
        }
    }

    /// The figure of this column.
    pub fn figure(&self, column: Column) -> f64 {
        let [ready, reserved, delayed, buried] = self.jobs;
        let [put, delete] = self.rates.unwrap_or_default();
        let count = match column {
            Column::Put => return put,
            Column::Delete => return delete,
            Column::Age => return self.age.map_or(-1.0, |age| age as f64),
            Column::Tube => 0,
            Column::Ready => ready,
            Column::Reserved => reserved,
            Column::Delayed => delayed,
            Column::Buried => buried,
            Column::Total => self.counters[0],
            Column::Using => self.using,
            Column::Watching => self.watching,
            Column::Waiting => self.waiting,
            Column::Pause => self.pause_left,
        };
        count as f64
    }

    pub fn ready(&self) -> u64 {
        self.jobs[0]
    }

    pub fn buried(&self) -> u64 {
        self.jobs[3]
    }

    /// Whether something happens in it, or has happened.
    pub fn is_alive(&self) -> bool {
        self.jobs.iter().any(|count| *count > 0)
            || self.rates.is_some_and(|rates| rates != [0.0; 2])
    }

    /// Its small curve.
    pub fn small_curve(&self, now: Duration) -> Json {
        let curves = self.curves.iter();
        let slots = curves.flat_map(|curves| curves.slots(0, now));
        ring::small(&slots.collect::<Vec<_>>())
    }
}
