//! Watches a server for `top` and the console: a thread samples it, and the screens
//! read the latest samples.

use crate::failure::{Failure, Outcome};
use crate::remote::curves::{Curves, SPANS, Slots};
use crate::remote::facts::total;
use crate::remote::finder::{bodies, near};
use crate::remote::trouble::{OFTEN, Trouble, failures};
use crate::remote::tubes::{Asked, Each, RATES, TubeFacts, counters, growth, is_large};
use crate::remote::{Client, Column, Facts, Job, JobFacts, Patterns, Sample, Server, State};
use beanpole::protocol::TubeName;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

/// How many tubes of a server have curves at most: those that came to life first.
const MOST_CURVES: usize = 1000;
/// Of how many tubes the jobs are asked for in one sample: the next one is read
/// with its body. The tubes take turns.
const MOST_ASKED: usize = 30;
/// The longest time that a server may be silent before it counts as lost.
const PATIENCE: Duration = Duration::from_secs(5);
/// A sample is followed by a pause that is this many times longer: a server with very
/// many tubes answers for a fifth of the time at most.
const RESPITE: u32 = 4;
/// The time between the two samples of a short look.
const BETWEEN: Duration = Duration::from_millis(500);
/// How much of a body a line can show.
const SHOWN: u64 = 1 << 10;
/// A tube grows if one of this many jobs that are put into it stays there.
const STAYS: f64 = 4.0;
/// What happened in this time is recent: the longest that the first curve knows.
const RECENT: Duration = Duration::from_secs(SPANS[0]);

/// A server that is watched.
pub struct Watched {
    pub named: Server,
    /// All times of what is known are counted from here.
    began: Instant,
    patience: Duration,
    known: Mutex<Known>,
}

/// What is known about a server, and what is wanted of it.
#[derive(Default)]
pub struct Known {
    /// The last statistics and rates; empty if there were none yet.
    pub server: Counted,
    /// Why the last question had no answer.
    pub failure: Option<String>,
    /// When the last sample was taken.
    pub sampled: Option<Duration>,
    /// When the sample under way was begun.
    asking_since: Option<Duration>,
    pub tubes: BTreeMap<TubeName, Tube>,
    /// The place, among the tubes with jobs, from which on the jobs of some are asked for.
    turn: usize,
    /// The tube of which the next jobs are wanted, and how many of each state.
    pub looks_into: Option<(TubeName, usize)>,
    /// These jobs, with the beginnings of their bodies.
    pub jobs: Vec<(JobFacts, Job)>,
}

/// Statistics of a server or a tube, and the rates since the sample before.
#[derive(Clone, Default)]
pub struct Counted {
    pub facts: Facts,
    /// Per second, once there were two samples.
    pub rates: Option<Each<f64>>,
    /// Those of a tube begin when something happens in it.
    curves: Option<Box<Curves>>,
}

/// A tube of a server.
#[derive(Clone, Default)]
pub struct Tube {
    pub counted: Counted,
    pub troubles: Vec<Trouble>,
    /// The age in seconds of the next ready job, if it is known.
    pub age: Option<u64>,
    /// That of the last one, if the server tells it.
    pub last_age: Option<u64>,
    /// How many connections watch it to work, as far as that is known.
    pub watching: u64,
    /// A job that was reserved often and never done.
    pub suspect: Option<JobFacts>,
    /// How often those of its ready and reserved jobs that were looked at have timed out.
    pub late: u64,
    /// By how many jobs a minute it grows, if it does.
    pub growth: Option<u64>,
    /// When the last sample was taken.
    at: Duration,
    /// When a job was deleted last, or none was ready; `None` if this was never seen.
    moved: Option<Duration>,
    /// When jobs expired last, and how many have since it was seen first.
    expired: (Duration, u64),
    /// Whether the tube does not exist any more; its curves go on.
    pub is_gone: bool,
}

impl Watched {
    pub fn new(named: Server, patience: Duration) -> Watched {
        Watched {
            named,
            began: Instant::now(),
            patience: patience.min(PATIENCE),
            known: Mutex::default(),
        }
    }

    /// Servers that are to be watched.
    pub fn all(servers: &[Server], patience: Duration) -> Vec<Arc<Watched>> {
        let watched = |server: &Server| Arc::new(Watched::new(server.clone(), patience));
        servers.iter().map(watched).collect()
    }

    /// What is known now. No socket is read or written while this is held.
    pub fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The time since the beginning.
    pub fn now(&self) -> Duration {
        self.began.elapsed()
    }

    /// A new connection, for a question of its own.
    pub fn connect(&self) -> Outcome<Client> {
        Client::connect(&self.named.address, self.patience)
    }

    /// The name under which people know it: its address, if it has none.
    pub fn name(&self) -> String {
        let address = || self.named.address.to_string();
        self.named.name.clone().unwrap_or_else(address)
    }

    /// Samples the server in a thread until the program ends, in this interval, and calls
    /// `told` after each sample. The thread takes the next one when it is unparked.
    pub fn start(
        self: &Arc<Self>,
        interval: Duration,
        told: impl Fn() + Send + 'static,
    ) -> Outcome<Thread> {
        let watched = Arc::clone(self);
        let watch = move || {
            let mut client = None;
            loop {
                let took = watched.sample(&mut client, MOST_ASKED);
                told();
                thread::park_timeout(interval.saturating_sub(took).max(took * RESPITE));
            }
        };
        let begun = thread::Builder::new().name("watch".into()).spawn(watch);
        let spawned = begun.map_err(|error| Failure::io("cannot start a thread", error))?;
        Ok(spawned.thread().clone())
    }

    /// Takes a sample with the jobs of up to this many tubes, over this connection
    /// or, if there is none, a new one, which stays there as long as it serves.
    /// Returns how long it took.
    pub fn sample(&self, link: &mut Option<Client>, most_asked: usize) -> Duration {
        let (begun, mut known) = (self.now(), self.known());
        known.asking_since = Some(begun);
        let looks_into = known.looks_into.clone();
        let asked = Asked(known.turn, most_asked);
        known.turn = known.turn.wrapping_add(most_asked);
        drop(known);
        let mut ask = || {
            let mut client = link.take().map_or_else(|| self.connect(), Ok)?;
            let found = client.within(SHOWN, |client| {
                let sample = Sample::take(client, &Patterns::default(), asked)?;
                let jobs = match &looks_into {
                    Some((tube, most)) => look(client, tube, *most)?,
                    None => Vec::new(),
                };
                Ok((sample, jobs))
            })?;
            *link = Some(client);
            Ok(found)
        };
        let sample: Outcome<_> = ask();
        let (taken, mut known) = (self.now(), self.known());
        known.asking_since = None;
        match sample {
            Ok((sample, jobs)) => {
                known.take(begun, sample);
                known.jobs = jobs;
            }
            Err(failure) => {
                known.failure = Some(failure.to_string());
                known.gap(taken);
            }
        }
        taken - begun
    }
}

/// The next jobs of a tube with their bodies, up to this many of each state.
fn look(client: &mut Client, tube: &TubeName, most: usize) -> Outcome<Vec<(JobFacts, Job)>> {
    let mut jobs = Vec::new();
    for state in [State::Ready, State::Delayed, State::Buried] {
        jobs.extend(near(client, tube, state, most)?);
    }
    bodies(client, jobs)
}

impl Known {
    /// What is known of a server and its tubes after a short look, with the jobs of all
    /// tubes or of none.
    pub fn of(client: &mut Client, with_jobs: bool) -> Outcome<Known> {
        let (begun, mut known) = (Instant::now(), Known::default());
        let (all, asked) = (Patterns::default(), Asked::all_if(with_jobs));
        known.take(begun.elapsed(), Sample::take(client, &all, asked)?);
        // Only a second sample shows whether a large tube grows, and whether its jobs are done.
        let wants_more = |tube: &Tube| is_large(tube.facts()) || tube.is_served();
        if known.tubes.values().any(wants_more) {
            thread::sleep(BETWEEN);
            known.take(begun.elapsed(), Sample::take(client, &all, asked)?);
        }
        Ok(known)
    }

    /// Why there is no answer from the server, if there is none.
    pub fn lost(&self, now: Duration) -> Option<String> {
        let silent = |since| now.saturating_sub(since).as_secs();
        let time = self.asking_since.map(silent).filter(|silent| *silent > 0);
        let silent = time.map(|silent| format!("no answer for {silent} s"));
        self.failure.clone().or(silent)
    }

    /// The tubes that exist.
    pub fn existing(&self) -> impl Iterator<Item = (&TubeName, &Tube)> {
        self.tubes.iter().filter(|(_, tube)| !tube.is_gone)
    }

    /// Notes that nothing is known about this time.
    fn gap(&mut self, at: Duration) {
        self.sampled = None;
        self.server.gap(at);
        let tubes = self.tubes.values_mut();
        tubes.for_each(|tube| tube.counted.gap(at));
    }

    /// Takes over a sample.
    pub fn take(&mut self, at: Duration, sample: Sample) {
        // Each run of a server has an id of its own.
        if self.sampled.is_some() && self.server.facts.get("id") != sample.server.get("id") {
            self.gap(at);
        }
        let before = self.sampled.replace(at);
        let since = before.map(|before| at.saturating_sub(before).as_secs_f64().max(0.001));
        self.failure = None;
        self.server.curves.get_or_insert_default();
        self.server.note(since, sample.server);
        self.server.draw(at, since);
        self.note_tubes(at, since, sample.tubes, sample.idle);
        // Those of many tubes take turns.
        for jobs in sample.jobs.chunk_by(|one, next| one.tube == next.tube) {
            if let Some(tube) = self.tubes.get_mut(&jobs[0].tube) {
                tube.look_at(jobs.iter());
            }
        }
        for tube in self.tubes.values_mut() {
            tube.troubles = Trouble::of(tube);
        }
    }

    fn note_tubes(&mut self, at: Duration, since: Option<f64>, tubes: Vec<TubeFacts>, idle: u64) {
        let mut old = std::mem::take(&mut self.tubes);
        let has_curves = |tube: &Tube| tube.counted.curves.is_some();
        let mut curves = old.values().filter(|tube| has_curves(tube)).count();
        for (name, facts) in tubes {
            let mut tube = old.remove(&name).unwrap_or_default();
            tube.note(at, since, facts);
            tube.watching = tube.facts().workers(&self.server.facts, idle);
            if !has_curves(&tube) && tube.is_alive() && curves < MOST_CURVES {
                curves += 1;
                tube.counted.curves = Some(Box::default());
            }
            tube.counted.draw(at, since);
            self.tubes.insert(name, tube);
        }
        // A tube without clients and jobs goes, and may come back, with its curves unless
        // others need the room.
        for (name, mut tube) in old {
            if has_curves(&tube) && curves < MOST_CURVES {
                tube.note(at, since, Facts::default());
                tube.counted.draw(at, since);
                tube.is_gone = true;
                self.tubes.insert(name, tube);
            }
        }
    }
}

impl Counted {
    /// Takes over statistics of so many seconds after those before, and returns these. What
    /// did not exist then began with counters of 0.
    fn note(&mut self, since: Option<f64>, facts: Facts) -> Facts {
        let [before, now] = [&self.facts, &facts].map(counters);
        let grown = |index: usize| growth(before[index], now[index]) as f64;
        self.rates = since.map(|seconds| std::array::from_fn(|index| grown(index) / seconds));
        std::mem::replace(&mut self.facts, facts)
    }

    /// Adds them to the curves.
    fn draw(&mut self, at: Duration, since: Option<f64>) {
        if let (Some(curves), Some(rates), Some(seconds)) = (&mut self.curves, self.rates, since) {
            curves.note(at, seconds, self.facts.jobs(), rates);
        }
    }

    /// Notes that nothing is known about this time.
    fn gap(&mut self, at: Duration) {
        self.rates = None;
        self.curves.iter_mut().for_each(|curves| curves.gap(at));
    }

    /// The slots of its curves in a span, oldest first.
    pub fn slots(&self, span: usize, now: Duration) -> Slots {
        let curves = self.curves.as_ref();
        curves.map_or(Slots::new(), |curves| curves.slots(span, now))
    }

    /// How much was counted by the rate of this index in the last ten minutes.
    fn lately(&self, rate: usize) -> f64 {
        let curves = self.curves.as_ref();
        curves.map_or(0.0, |curves| curves.counted(rate))
    }

    /// Whether the rate of this index is counted.
    pub fn counts(&self, rate: usize) -> bool {
        let mut keys = RATES[rate].iter();
        keys.any(|key| self.facts.get(key).is_some())
    }

    /// The figure of this column, if it is known and no figure of a tube alone.
    pub fn figure(&self, column: Column) -> Option<f64> {
        let rate = |index| Some(self.rates?[index]).filter(|_| self.counts(index));
        match column {
            Column::Put => rate(PUT),
            Column::Delete => rate(DELETE),
            Column::Timeouts => rate(TIMEOUTS),
            _ => Some(self.facts.number(column.key()) as f64),
        }
    }
}

impl Tube {
    fn note(&mut self, at: Duration, since: Option<f64>, facts: Facts) {
        let before = self.counted.note(since, facts);
        let is_new = std::mem::replace(&mut self.at, at).is_zero();
        let facts = &self.counted.facts;
        let [had, jobs] = [&before, facts].map(Facts::jobs);
        let grown = |key| growth(before.number(key), facts.number(key));
        let begins = is_new || had[0] == 0 || grown("cmd-delete") > 0;
        if jobs[0] == 0 || since.is_some() && begins {
            self.moved = Some(at);
        }
        let expired = grown("total-expired");
        if expired > 0 && !is_new {
            self.expired = (at, self.recently_expired().saturating_add(expired));
        }
        let of_all = |jobs: [u64; 4]| total(jobs) as f64;
        self.growth = self.counted.rates.zip(since).and_then(|(rates, seconds)| {
            let rate = (of_all(jobs) - of_all(had)) * 60.0 / seconds;
            // It grows now, and has grown in the last ten minutes.
            let [put, deleted] = [PUT, DELETE].map(|index| self.counted.lately(index));
            let grows = rate * STAYS >= rates[PUT] * 60.0 && (put - deleted) * STAYS >= put;
            (grows && rate >= 1.0).then_some(rate as u64)
        });
        if jobs[..2] == [0, 0] {
            (self.suspect, self.late) = (None, 0);
        }
        self.is_gone = false;
        // A server that tells no ages is asked for the next job of some tubes.
        let has_ready = jobs[0] > 0;
        let age = |key| facts.get(key)?.parse().ok().filter(|_| has_ready);
        self.last_age = age("last-ready-age");
        self.age = age("first-ready-age").or(self.age.filter(|_| has_ready));
    }

    pub fn facts(&self) -> &Facts {
        &self.counted.facts
    }

    /// Whether jobs were taken or done since the sample before.
    pub fn is_moving(&self) -> bool {
        let moved = |rates: Each<f64>| rates[RESERVE] + rates[DELETE] > 0.0;
        self.counted.rates.is_some_and(moved)
    }

    /// Looks at some ready and reserved jobs of it, the next one before the others: whether
    /// one fails at each try, how often they timed out, and how old the next one is.
    pub fn look_at<'a>(&mut self, jobs: impl Iterator<Item = &'a JobFacts> + Clone) {
        let failing = jobs.clone().filter(|job| failures(job) >= OFTEN);
        self.suspect = failing.max_by_key(|job| failures(job)).cloned();
        let timeouts = jobs.clone().map(|job| job.all.number("timeouts"));
        self.late = timeouts.fold(0, u64::saturating_add);
        let next = jobs.clone().find(|job| job.state == State::Ready);
        if self.facts().get("first-ready-age").is_none() {
            self.age = next.map(|job| job.age);
        }
    }

    /// For how many seconds jobs have been ready and none was deleted.
    pub fn still(&self) -> u64 {
        match self.moved {
            Some(moved) => self.at.saturating_sub(moved).as_secs(),
            None => self.age.unwrap_or(0).max(self.at.as_secs()),
        }
    }

    /// How many jobs have expired lately, as far as it was watched.
    pub fn recently_expired(&self) -> u64 {
        let (at, expired) = self.expired;
        if self.at.saturating_sub(at) < RECENT {
            expired
        } else {
            0
        }
    }

    /// How many jobs have timed out in the last ten minutes, as far as it was watched.
    pub fn recent_timeouts(&self) -> u64 {
        self.counted.lately(TIMEOUTS).round() as u64
    }

    /// How bad its trouble is: 0 if there is none.
    pub fn severity(&self) -> usize {
        self.troubles.first().map_or(0, |worst| worst.severity)
    }

    /// Its place among others: the worst come first, and among equals the largest.
    pub fn rank(&self) -> Reverse<(usize, u64)> {
        Reverse((self.severity(), total(self.facts().jobs())))
    }

    /// Whether it needs a person.
    pub fn is_grave(&self) -> bool {
        self.troubles.iter().any(|trouble| trouble.kind.is_grave)
    }

    /// The figure of this column, if it is known. That of the name is how bad
    /// its trouble is.
    pub fn figure(&self, column: Column) -> Option<f64> {
        match column {
            Column::Tube => Some(self.severity() as f64),
            Column::Age => self.age.map(|age| age as f64),
            Column::Watching => Some(self.watching as f64),
            _ => self.counted.figure(column),
        }
    }

    /// Whether something happens in it, or has happened.
    fn is_alive(&self) -> bool {
        self.facts().jobs() != [0; 4] || self.counted.rates.is_some_and(|all| all != [0.0; 4])
    }
}

/// The places of rates in [`RATES`].
const PUT: usize = 0;
const RESERVE: usize = 1;
const DELETE: usize = 2;
const TIMEOUTS: usize = RATES.len() - 1;

/// The tubes of these servers that are wanted, by a column: those with the
/// largest figures first, and among equals by name. Without a column they come
/// by name alone.
pub fn sorted<'a>(
    known: &'a [MutexGuard<'_, Known>],
    wanted: impl Fn(usize, &TubeName, &Tube) -> bool,
    by: Option<Column>,
) -> Vec<(usize, &'a TubeName, &'a Tube)> {
    let mut rows = Vec::new();
    for (server, known) in known.iter().enumerate() {
        let tubes = known.existing().map(|(name, tube)| (server, name, tube));
        rows.extend(tubes.filter(|(server, name, tube)| wanted(*server, name, tube)));
    }
    // Rates are compared by their thousandths.
    let figure = |tube: &Tube| by.and_then(|column| tube.figure(column)).unwrap_or(-1.0);
    let key = |tube: &Tube| Reverse((figure(tube) * 1000.0) as i64);
    rows.sort_by_cached_key(|(server, name, tube)| (key(tube), *name, *server));
    rows
}
