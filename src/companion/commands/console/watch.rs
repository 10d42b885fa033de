//! Watches a server: a thread samples it, whether or not a page is open, and
//! the requests of browsers read what is known.

use super::ring::{Curves, FINEST};
use super::tube::Tube;
use crate::failure::Outcome;
use crate::server::client::Client;
use crate::server::names;
use crate::server::sample::{Link, RATES, Sample, per_second};
use crate::server::stats::Facts;
use crate::server::tubes::Patterns;
use beanpole::protocol::TubeName;
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// How many tubes of a server have curves at most. If one more comes to life,
/// the one that has been quiet for longest loses its curves.
pub const MOST_CURVES: usize = 1000;
/// For how many tubes the age of the next job is asked in one sample: to learn
/// it, the whole job is read. The tubes take turns.
const MOST_AGES: usize = 30;
/// The curves of a tube that is gone are kept for this time.
const FORGET: Duration = Duration::from_secs(86_400);
/// A sample that takes long is followed by a pause that is so many times
/// longer: the console is no burden for a server with very many tubes.
const RESPITE: u32 = 20;
/// The longest time that a server may be silent before it counts as gone.
pub const PATIENCE: Duration = Duration::from_secs(5);

/// A server that is watched.
pub struct Watched {
    pub named: names::Server,
    /// The beginning of time for all samples.
    began: Instant,
    patience: Duration,
    known: Mutex<Known>,
}

/// What is known about a server.
pub struct Known {
    /// The last statistics; empty if there were none yet.
    pub facts: Facts,
    /// Why the last question had no answer.
    pub failure: Option<String>,
    /// When the last sample was taken.
    pub sampled: Option<Duration>,
    /// When the sample under way was begun.
    pub asking_since: Option<Duration>,
    pub rates: [f64; RATES.len()],
    counters: [u64; RATES.len()],
    pub curves: Curves<4>,
    pub tubes: BTreeMap<TubeName, Tube>,
    /// After which tube the next ages are asked.
    turn: Option<TubeName>,
}

impl Watched {
    pub fn new(named: names::Server, patience: Duration) -> Watched {
        Watched {
            named,
            began: Instant::now(),
            patience: patience.min(PATIENCE),
            known: Mutex::new(Known {
                facts: Facts::default(),
                failure: None,
                sampled: None,
                asking_since: None,
                rates: [0.0; 4],
                counters: [0; 4],
                curves: Curves::new(None),
                tubes: BTreeMap::new(),
                turn: None,
            }),
        }
    }

    /// What is known now. No socket is read or written while this is held.
    pub fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The time since the beginning.
    pub fn now(&self) -> Duration {
        self.began.elapsed()
    }

    /// A new connection for the question of a browser.
    pub fn connect(&self) -> Outcome<Client> {
        Client::connect(&self.named.address, self.patience)
    }

    /// Samples the server until the program ends.
    pub fn watch(&self) -> ! {
        let mut link = Link::new(self.named.address.clone(), self.patience);
        loop {
            let begun = self.now();
            self.known().asking_since = Some(begun);
            let ages_of = |ready| self.known().next_ages(ready);
            let sample = link.ask(|client| Sample::take(client, &Patterns::default(), ages_of));
            let taken = self.now();
            let mut known = self.known();
            known.asking_since = None;
            match sample {
                Ok(sample) => known.take(begun, sample),
                Err(failure) => known.lose(taken, failure.to_string()),
            }
            drop(known);
            // The next sample comes at the beginning of a slot, so that each
            // slot has one.
            let respite = (taken - begun) * RESPITE;
            let earliest = begun.max((taken + respite).saturating_sub(FINEST));
            let slots = earliest.as_secs() / FINEST.as_secs() + 1;
            let next = FINEST * u32::try_from(slots).unwrap_or(u32::MAX);
            thread::sleep(next.saturating_sub(self.now()));
        }
    }
}

impl Known {
    /// Whether there is no answer from the server, and why.
    pub fn trouble(&self, now: Duration) -> Option<String> {
        let silent = self
            .asking_since
            .map_or(0, |since| now.saturating_sub(since).as_secs());
        match &self.failure {
            Some(reason) => Some(reason.clone()),
            None if silent > 1 => Some(format!("no answer for {silent} seconds")),
            None => None,
        }
    }

    /// The tubes that have a ready job.
    pub fn with_ready(&self) -> impl Iterator<Item = TubeName> {
        let tubes = self.tubes.iter().filter(|(_, tube)| tube.ready() > 0);
        tubes.map(|(name, _)| name.clone())
    }

    /// The tubes among these whose turn it is.
    fn next_ages(&mut self, mut tubes: Vec<TubeName>) -> Vec<TubeName> {
        if tubes.len() > MOST_AGES {
            let turn = self.turn.take();
            let first =
                tubes.partition_point(|tube| turn.as_ref().is_some_and(|turn| tube <= turn));
            let first = first % tubes.len();
            tubes.rotate_left(first);
            tubes.truncate(MOST_AGES);
            self.turn = tubes.last().cloned();
        }
        tubes
    }

    fn lose(&mut self, at: Duration, reason: String) {
        self.failure = Some(reason);
        self.sampled = None;
        self.gap(at);
    }

    fn gap(&mut self, at: Duration) {
        self.curves.gap(at);
        let curves = self
            .tubes
            .values_mut()
            .filter_map(|tube| tube.curves.as_mut());
        curves.for_each(|curves| curves.gap(at));
    }

    fn take(&mut self, at: Duration, sample: Sample) {
        // Each run of a server has an id of its own.
        if self.sampled.is_some() && self.facts.get("id") != sample.server.get("id") {
            self.gap(at);
            self.sampled = None;
        }
        let before = self.sampled;
        let counters = sample.counters();
        if let Some(then) = before {
            let rate = |index| {
                per_second(
                    self.counters[index],
                    counters[index],
                    at.saturating_sub(then),
                )
            };
            self.rates = std::array::from_fn(rate);
        }
        self.counters = counters;
        self.curves.note(at, sample.backlog(), counters);
        self.failure = None;
        self.sampled = Some(at);
        self.facts = sample.server;
        self.note_tubes(at, before, &sample.tubes);
        for (name, age) in sample.ages {
            if let Some(tube) = self.tubes.get_mut(&name) {
                tube.age = age;
            }
        }
    }

    fn note_tubes(&mut self, at: Duration, before: Option<Duration>, tubes: &[(TubeName, Facts)]) {
        let mut old = std::mem::take(&mut self.tubes);
        let mut curves = old.values().filter(|tube| tube.curves.is_some()).count();
        // The newest change of a tube that waits for curves.
        let mut waits = None;
        for (name, facts) in tubes {
            let mut tube = old.remove(name).unwrap_or_default();
            let had_curves = tube.curves.is_some();
            tube.note(at, before, facts, curves < MOST_CURVES);
            match tube.curves {
                Some(_) => curves += usize::from(!had_curves),
                None if tube.is_alive() => waits = waits.max(Some(tube.changed)),
                None => {}
            }
            self.tubes.insert(name.clone(), tube);
        }
        // A tube without clients and jobs goes, and may come back.
        for (name, mut tube) in old {
            if tube.curves.is_some() && at - tube.changed < FORGET {
                tube.note_gone(at, before);
                self.tubes.insert(name, tube);
            }
        }
        if let Some(newest) = waits {
            let candidates = self.tubes.values_mut().filter(|tube| tube.curves.is_some());
            if let Some(oldest) = candidates.min_by_key(|tube| tube.changed)
                && oldest.changed < newest
            {
                oldest.curves = None;
            }
        }
    }
}
