//! The tubes of a server: a sample of them, and the columns of a table of them.
//!
//! A [`Sample`] is the state of a server at one time: its statistics, those of
//! its tubes, and some of the jobs of tubes.

use crate::failure::Outcome;
use crate::remote::facts::total;
use crate::remote::finder::{connections, each_listed};
use crate::remote::{Client, Facts, JobFacts, Patterns, Reply, Scope, State};
use beanpole::protocol::{JobId, TubeName};
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use std::collections::HashMap;

/// A tube with its statistics.
pub type TubeFacts = (TubeName, Facts);

/// The tubes that exist and are meant, in the order of their names, each with its
/// statistics: a server lists many with one request, or is asked for each.
pub fn stats_of(client: &mut Client, tubes: &Patterns) -> Outcome<Vec<TubeFacts>> {
    let mut found = Vec::new();
    client.within(0, |client| {
        each_of(client, tubes, |_, some| {
            found.extend(some);
            Ok(())
        })
    })?;
    found.sort_by(|(one, _), (other, _)| one.cmp(other));
    Ok(found)
}

/// Gives these tubes: some after the others, or all at once if the server does not list them.
fn each_of(
    client: &mut Client,
    tubes: &Patterns,
    mut each: impl FnMut(&mut Client, Vec<TubeFacts>) -> Outcome<()>,
) -> Outcome<()> {
    let meant = |facts: Facts| {
        let name = TubeName::parse(facts.text("name").as_bytes())?;
        tubes.mean(&name).then(|| (name, facts.without("id")))
    };
    let are_listed = each_listed(client, "list-tube-stats", |client, some| {
        each(client, some.into_iter().filter_map(meant).collect())
    })?;
    if are_listed {
        return Ok(());
    }
    let line = |name: &TubeName| format!("stats-tube {name}");
    let names = tubes.meant(client)?;
    let all = client.all(names, line, Reply::facts)?.into_iter();
    let found = all.filter_map(|(name, facts)| Some((name, facts?)));
    each(client, found.collect())
}

/// The next ready job of each of these tubes, which must exist: to use a tube creates it.
/// To find it, the server sends the whole job, with its body.
fn next_ready<'a>(
    client: &mut Client,
    tubes: impl Iterator<Item = &'a TubeName>,
) -> Outcome<HashMap<&'a TubeName, JobId>> {
    let lines = tubes.flat_map(|tube| {
        let lines = [format!("use {tube}"), "peek-ready".into()];
        lines.map(|line| (tube, line))
    });
    let mut next = HashMap::new();
    let line = |(_, line): &(_, String)| line.clone();
    client.each(lines, line, |(tube, _), line, reply| {
        if line != "peek-ready" {
            return reply.done(line);
        }
        next.extend(reply.job(line)?.map(|job| (tube, job.id)));
        Ok(())
    })?;
    Ok(next)
}

/// The rates of a server or a tube, of puts, reservations, deletes and timeouts: the keys of
/// the counters that each is the sum of. Each document has those that it knows; beanstalkd
/// counts neither the reservations nor the timeouts of a tube.
pub const RATES: [&[&str]; 4] = [
    &["total-jobs"],
    &["cmd-reserve", "cmd-reserve-with-timeout", "total-reserves"],
    &["cmd-delete"],
    &["job-timeouts", "total-timeouts"],
];

/// A value for each of [`RATES`].
pub type Each<T> = [T; RATES.len()];

/// The counters of each rate in the statistics of a server or a tube.
pub fn counters(facts: &Facts) -> Each<u64> {
    RATES.map(|keys| total(keys.iter().map(|key| facts.number(key))))
}

/// By how much a counter grew. A counter that is smaller than before began again at 0.
pub fn growth(before: u64, now: u64) -> u64 {
    now.checked_sub(before).unwrap_or(now)
}

/// How many jobs of a tube are examined in each of these states.
const SOME: usize = 20;
const STATES: [State; 2] = [State::Ready, State::Reserved];
/// A tube with fewer jobs that wait for a worker is not sampled again.
const LARGE: u64 = 1000;

/// Whether many jobs of this tube wait for a worker.
pub fn is_large(tube: &Facts) -> bool {
    tube.jobs_in(&[State::Ready, State::Delayed]) >= LARGE
}

/// How many connections have never asked for a job, as far as these tubes make a difference:
/// one at least, ours.
fn idle(client: &mut Client, server: &Facts, tubes: &[TubeFacts]) -> Outcome<u64> {
    let [all, _, workers, _] = server.connections();
    let is_watched =
        |facts: &Facts| facts.text("name") == "default" && facts.others("current-watching") > 0;
    let mut idle = 1;
    if (1..all.saturating_sub(1)).contains(&workers)
        && tubes.iter().any(|(_, facts)| is_watched(facts))
    {
        let all = connections(client)?.unwrap_or_default();
        let is_idle = |one: &&Facts| one.text("worker") != "true";
        idle = all.iter().filter(is_idle).count().max(1);
    }
    Ok(idle as u64)
}

/// Of which tubes with jobs these are asked for: from this place on, so many of them. The
/// first ones follow the last.
#[derive(Clone, Copy)]
pub struct Asked(pub usize, pub usize);

impl Asked {
    /// All of them, or none.
    pub fn all_if(wanted: bool) -> Asked {
        Asked(0, if wanted { usize::MAX } else { 0 })
    }
}

/// The state of a server at one time.
#[derive(Default)]
pub struct Sample {
    pub server: Facts,
    /// The tubes in the order of their names.
    pub tubes: Vec<TubeFacts>,
    /// How many connections have never asked for a job, where that was counted.
    pub idle: u64,
    /// Some ready and reserved jobs of the tubes whose jobs were asked for; of a server that
    /// lists none, the next ready one of each.
    pub jobs: Vec<JobFacts>,
}

impl Sample {
    /// Asks a server for a sample of these tubes, with the jobs of those that are asked.
    pub fn take(client: &mut Client, tubes: &Patterns, asked: Asked) -> Outcome<Sample> {
        client.within(0, |client| {
            let server = client.server_stats()?;
            let tubes = stats_of(client, tubes)?;
            Sample::of(client, server, tubes, asked)
        })
    }

    /// Samples of these tubes, a part of them after the other: very many take no memory.
    pub fn each(
        client: &mut Client,
        tubes: &Patterns,
        asked: Asked,
        mut each: impl FnMut(Sample),
    ) -> Outcome<()> {
        client.within(0, |client| {
            let server = client.server_stats()?;
            each_of(client, tubes, |client, some| {
                each(Sample::of(client, server.clone(), some, asked)?);
                Ok(())
            })
        })
    }

    fn of(
        client: &mut Client,
        server: Facts,
        tubes: Vec<TubeFacts>,
        Asked(from, most): Asked,
    ) -> Outcome<Sample> {
        let idle = idle(client, &server, &tubes)?;
        let has = |facts: &Facts, state| facts.jobs_in(&[state]) > 0;
        // Where nothing was reserved, no job fails. A server that tells this tells the ages, too.
        let is_busy = |(_, facts): &&TubeFacts| {
            facts.get("total-reserves") != Some("0") && facts.jobs_in(&STATES) > 0
        };
        let busy: Vec<_> = tubes.iter().filter(is_busy).collect();
        let turn = from.checked_rem(busy.len()).unwrap_or(0);
        let wanted = busy.iter().cycle().skip(turn);
        let wanted: Vec<_> = wanted.take(most.min(busy.len())).collect();
        let ready = wanted.iter().filter(|(_, facts)| has(facts, State::Ready));
        let next = next_ready(client, ready.map(|(name, _)| name))?;
        let scopes = wanted.iter().flat_map(|(name, facts)| {
            let present = STATES.into_iter().filter(|state| has(facts, *state));
            present.map(|state| Scope::of([name.clone()], [state]))
        });
        // Of the reserved jobs, those that were put first may be stuck.
        let line = |scope: &Scope| {
            let next = next.get(&scope.tubes[0]);
            let from = next.filter(|_| scope.states == [State::Ready]);
            scope.line(from.copied().unwrap_or_default(), SOME)
        };
        let mut jobs = Vec::new();
        if client.is_extended()? {
            for (scope, (listed, _)) in client.all(scopes, line, Reply::listed)? {
                jobs.extend(scope.those(listed)?);
            }
        } else {
            jobs = client.jobs(next.into_values())?;
        }
        Ok(Sample {
            server,
            tubes,
            idle,
            jobs,
        })
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
    /// The column of this name or title.
    pub fn of(text: &str) -> Option<Column> {
        let is = |name: &str| name.eq_ignore_ascii_case(text);
        let mut table = TABLE.into_iter();
        let named = table.find(|(_, name, title, ..)| is(name) || is(title));
        named.map(|(column, ..)| column)
    }

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

/// Reads the name of one of these columns, or its title on a narrow screen.
pub fn column_of(columns: &'static [Column]) -> impl TypedValueParser<Value = Column> {
    let named = columns
        .iter()
        .map(|column| PossibleValue::new(column.name()).alias(column.head().0));
    PossibleValuesParser::new(named).map(|text| Column::of(&text).expect("it is one of these"))
}
