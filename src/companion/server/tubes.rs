//! The tubes of a server: patterns of their names, a sample of them, and the columns of
//! a table of them.
//!
//! A [`Sample`] is the state of a server at one time: its statistics, those of
//! its tubes, and some of the jobs of tubes.

use crate::failure::{Failure, Outcome};
use crate::server::client::{Client, facts, job};
use crate::server::finder::{Scope, Walk, connections, jobs_of};
use crate::server::reply::Reply;
use crate::server::stats::{Facts, JobFacts, State};
use crate::values::Parse;
use beanpole::protocol::{JobId, TubeName};
use std::collections::HashSet;

/// The name of a tube, or a pattern of names: `*` stands for any characters and
/// `?` for one. No name can have these characters.
#[derive(Clone, Debug)]
pub struct Pattern(String);

/// Some tubes: those that one of these patterns means, or all if there is none.
#[derive(Clone, Debug, Default)]
pub struct Patterns(pub Vec<Pattern>);

impl Parse for Pattern {
    fn parse(text: &str) -> Result<Pattern, String> {
        if !text.contains(['*', '?']) {
            <TubeName as Parse>::parse(text)?;
        }
        Ok(Pattern(text.into()))
    }
}

impl Pattern {
    pub fn text(&self) -> &str {
        &self.0
    }

    /// The name, if it is one.
    fn name(&self) -> Option<TubeName> {
        TubeName::parse(self.0.as_bytes())
    }

    fn means(&self, name: &TubeName) -> bool {
        matches(self.0.as_bytes(), name.as_str().as_bytes())
    }
}

impl Patterns {
    /// Whether this tube is meant.
    pub fn mean(&self, name: &TubeName) -> bool {
        self.0.is_empty() || self.0.iter().any(|pattern| pattern.means(name))
    }

    /// The same, or the tube `default` if there is none.
    pub fn or_default(mut self) -> Patterns {
        if self.0.is_empty() {
            self.0.push(Pattern(TubeName::default().to_string()));
        }
        self
    }

    /// The tubes that are named, whether they exist or not, and those that
    /// exist and are meant.
    pub fn meant(&self, client: &mut Client) -> Outcome<Vec<TubeName>> {
        let mut names: Vec<_> = self.0.iter().filter_map(Pattern::name).collect();
        if self.0.is_empty() || names.len() < self.0.len() {
            names.extend(client.tubes()?.into_iter().filter(|name| self.mean(name)));
        }
        let mut known = HashSet::new();
        names.retain(|name| known.insert(name.clone()));
        Ok(names)
    }

    /// The same, but without any pattern, none. It is a failure if a pattern
    /// means no tube.
    pub fn named(&self, client: &mut Client) -> Outcome<Vec<TubeName>> {
        if self.0.is_empty() {
            return Ok(Vec::new());
        }
        let names = self.meant(client)?;
        let is_idle = |pattern: &&Pattern| !names.iter().any(|name| pattern.means(name));
        match self.0.iter().find(is_idle) {
            Some(Pattern(text)) => Err(Failure::Missing(format!("there is no tube like '{text}'"))),
            None => Ok(names),
        }
    }

    /// The same; it is also a failure if a tube that is named does not exist.
    pub fn existing(&self, client: &mut Client) -> Outcome<Vec<TubeName>> {
        let names = self.named(client)?;
        for name in self.0.iter().filter_map(Pattern::name) {
            client.known_tube(&name)?;
        }
        Ok(names)
    }
}

/// Whether this pattern means this name, however many stars it has.
pub fn matches(pattern: &[u8], name: &[u8]) -> bool {
    let (mut at, mut next) = (0, 0);
    // Where the pattern goes on after the last `*`, and how much of the name
    // this stands for.
    let mut star = None;
    while at < name.len() {
        match (pattern.get(next), star) {
            (Some(b'*'), _) => {
                next += 1;
                star = Some((next, at));
            }
            (Some(byte), _) if *byte == b'?' || *byte == name[at] => {
                at += 1;
                next += 1;
            }
            (_, Some((after, from))) => {
                (at, next) = (from + 1, after);
                star = Some((after, at));
            }
            _ => return false,
        }
    }
    pattern[next..].iter().all(|byte| *byte == b'*')
}

/// The statistics of the tubes among these that exist.
pub fn stats_of(client: &mut Client, names: &[TubeName]) -> Outcome<Vec<(TubeName, Facts)>> {
    let line = |name: &&TubeName| format!("stats-tube {name}");
    let all = client.all(names, line, facts)?.into_iter();
    Ok(all
        .filter_map(|(name, facts)| Some((name.clone(), facts?)))
        .collect())
}

/// The next ready job of each of these tubes, which must exist: to use a tube creates
/// it.
///
/// With equal priorities this is the oldest job; the protocol tells no other
/// age. To find it, the whole job is read, with its body.
fn next_ready(client: &mut Client, tubes: &[TubeName]) -> Outcome<Vec<JobFacts>> {
    let lines = tubes
        .iter()
        .flat_map(|tube| [format!("use {tube}"), "peek-ready".into()]);
    let mut ids = Vec::new();
    client.each(lines, String::clone, |_, line, reply| {
        if !matches!(reply, Reply::Using(_)) {
            ids.extend(job(line, reply)?.map(|job| job.id));
        }
        Ok(())
    })?;
    jobs_of(client, ids)
}

/// The rates of a server or a tube: the name of each, and the keys of the counters that
/// it is the sum of. Each document has those that it knows; beanstalkd counts neither
/// the reservations nor the timeouts of a tube.
pub const RATES: [(&str, &[&str]); 4] = [
    ("put", &["total-jobs"]),
    (
        "reserve",
        &["cmd-reserve", "cmd-reserve-with-timeout", "total-reserves"],
    ),
    ("delete", &["cmd-delete"]),
    ("timeouts", &["job-timeouts", "total-timeouts"]),
];

/// A value for each of [`RATES`].
pub type Each<T> = [T; RATES.len()];

/// The counters of each rate in the statistics of a server or a tube.
pub fn counters(facts: &Facts) -> Each<u64> {
    RATES.map(|(_, keys)| keys.iter().map(|key| facts.number(key)).sum())
}

/// By how much a counter grew. A counter that is smaller than before began again at 0.
pub fn growth(before: u64, now: u64) -> u64 {
    now.checked_sub(before).unwrap_or(now)
}

/// How many reserved jobs of a tube are examined.
const MOST_RESERVED: usize = 100;
/// How many connections are examined.
const MOST_CONNECTIONS: usize = 10_000;
/// A tube with fewer jobs that wait for a worker is not sampled again.
const LARGE: u64 = 1000;

/// Whether many jobs of this tube wait for a worker.
pub fn is_large(tube: &Facts) -> bool {
    tube.jobs_in(&[State::Ready, State::Delayed]) >= LARGE
}

/// The state of a server at one time.
#[derive(Default)]
pub struct Sample {
    pub server: Facts,
    /// The tubes in the order of their names, if all were asked for.
    pub tubes: Vec<(TubeName, Facts)>,
    /// The tubes whose jobs were asked for.
    pub asked: Vec<TubeName>,
    /// The next ready job of each of them that has one.
    pub next: Vec<JobFacts>,
    /// Some of their reserved jobs, if the server lists them, and the jobs that
    /// were asked for.
    pub others: Vec<JobFacts>,
    /// Connections, if they were asked for and the server lists them.
    pub connections: Vec<Facts>,
}

impl Sample {
    /// A sample of these tubes, with the jobs of all of them or of none.
    pub fn once(client: &mut Client, tubes: &Patterns, with_jobs: bool) -> Outcome<Sample> {
        Sample::take(client, tubes, |tubes| {
            let asked = tubes.iter().filter(|_| with_jobs);
            (asked.map(|(name, _)| name.clone()).collect(), Vec::new())
        })
    }

    /// Asks a server for a sample of these tubes. `choose` chooses those whose
    /// jobs are asked for (the next one is read with its body) and more jobs.
    pub fn take(
        client: &mut Client,
        tubes: &Patterns,
        choose: impl FnOnce(&[(TubeName, Facts)]) -> (Vec<TubeName>, Vec<JobId>),
    ) -> Outcome<Sample> {
        let server = client.server_stats()?;
        let names = tubes.meant(client)?;
        let tubes = stats_of(client, &names)?;
        let (asked, jobs) = choose(&tubes);
        let wanted: HashSet<_> = asked.iter().collect();
        let with = |state| {
            let has = move |facts: &Facts| facts.jobs_in(&[state]) > 0;
            let chosen = tubes.iter().filter(|(name, _)| wanted.contains(name));
            let chosen = chosen.filter(move |(_, facts)| has(facts));
            chosen.map(|(name, _)| name.clone()).collect::<Vec<_>>()
        };
        let next = next_ready(client, &with(State::Ready))?;
        let mut others = jobs_of(client, jobs)?;
        for name in with(State::Reserved) {
            let scope = Scope::of(&name, [State::Reserved]);
            let Some(mut walk) = Walk::begin(client, &scope)? else {
                break;
            };
            others.extend(walk.page(client, MOST_RESERVED)?);
        }
        drop(wanted);
        Ok(Sample {
            server,
            tubes,
            asked,
            next,
            others,
            connections: Vec::new(),
        })
    }

    /// The same, with the connections if a tube is so large that somebody may
    /// want to know who fills it.
    pub fn with_connections(mut self, client: &mut Client) -> Outcome<Sample> {
        if self.tubes.iter().any(|(_, facts)| is_large(facts)) {
            let all = connections(client, MOST_CONNECTIONS)?;
            self.connections = all.unwrap_or_default();
        }
        Ok(self)
    }
}

/// A column of a table of tubes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Column {
    #[default]
    Tube,
    Ready,
    Reserved,
    Delayed,
    Buried,
    Total,
    Using,
    Watching,
    Waiting,
    Pause,
    /// Puts in a second.
    Put,
    /// Deletes in a second.
    Delete,
    /// Timeouts in a second.
    Timeouts,
    /// The age of the next ready job.
    Age,
}

/// The columns in the order of [`Column`]: the name of each for `--sort`, its title and
/// its width on a narrow screen, and the key of `stats-tube` that has its figure. The
/// name of the tube takes the width that is left.
#[rustfmt::skip]
pub const TABLE: [(Column, &str, &str, usize, &str); 14] = [
    (Column::Tube, "tube", "TUBE", 0, ""),
    (Column::Ready, "ready", "READY", 7, "current-jobs-ready"),
    (Column::Reserved, "reserved", "RSVD", 6, "current-jobs-reserved"),
    (Column::Delayed, "delayed", "DLYD", 6, "current-jobs-delayed"),
    (Column::Buried, "buried", "BURY", 6, "current-jobs-buried"),
    (Column::Total, "puts", "PUTS", 7, "total-jobs"),
    (Column::Using, "using", "USE", 6, "current-using"),
    (Column::Watching, "watching", "WATCH", 6, "current-watching"),
    (Column::Waiting, "waiting", "WAIT", 5, "current-waiting"),
    (Column::Pause, "pause", "PAUSE", 6, "pause-time-left"),
    (Column::Put, "put", "PUT/S", 6, "total-jobs"),
    (Column::Delete, "delete", "DEL/S", 6, "cmd-delete"),
    (Column::Timeouts, "timeouts", "TMO/S", 6, "total-timeouts"),
    (Column::Age, "age", "AGE", 5, ""),
];

impl Column {
    /// Its name.
    pub fn name(self) -> &'static str {
        TABLE[self as usize].1
    }

    /// Its title and its width on a narrow screen.
    pub fn head(self) -> (&'static str, usize) {
        let (_, _, title, width, _) = TABLE[self as usize];
        (title, width)
    }

    /// Its key in `stats-tube`; empty if it has none.
    pub fn key(self) -> &'static str {
        TABLE[self as usize].4
    }
}

/// Reads the name of a column, or its title on a narrow screen.
impl Parse for Column {
    fn parse(text: &str) -> Result<Column, String> {
        let is = |name: &str| name.eq_ignore_ascii_case(text);
        let mut table = TABLE.into_iter();
        let named = table.find(|(_, name, title, ..)| is(name) || is(title));
        let named = named.map(|(column, ..)| column);
        named.ok_or_else(|| format!("there is no column '{text}'"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_matches_whole_names_with_stars_and_question_marks() {
        for (pattern, name, means) in [
            ("mail", "mail", true),
            ("mail", "mails", false),
            ("mail*", "mail", true),
            ("*il*", "mails", true),
            ("m?il", "mail", true),
            ("m?il", "mil", false),
            ("a*b*c", "a-b-b-c", true),
            ("a*b*c", "a-b-b", false),
        ] {
            let name = <TubeName as Parse>::parse(name).unwrap();
            assert_eq!(
                Pattern::parse(pattern).unwrap().means(&name),
                means,
                "{pattern}"
            );
        }
        assert!(Pattern::parse("a b").is_err());
    }

    #[test]
    fn a_pattern_of_many_stars_is_matched_in_little_time() {
        let name = "a".repeat(200);
        let pattern = "a*".repeat(100) + "b";
        assert!(!matches(pattern.as_bytes(), name.as_bytes()));
        assert!(matches("*a".repeat(100).as_bytes(), name.as_bytes()));
    }
}
