//! What keeps the jobs of a tube from being done, in sentences for people.
//!
//! Most of it follows from the statistics of the tube. A closer look asks about
//! its next jobs and about those that are reserved. Nothing is changed by it.

use crate::failure::Outcome;
use crate::server::client::Client;
use crate::server::list::{MOST, Scope, Walk};
use crate::server::stats::{Facts, JobFacts, State};
use crate::server::sweep::Sweep;
use crate::server::take::jobs_of;
use crate::server::tubes::{names_with_ready, next_ready};
use crate::text::words::span;
use beanpole::protocol::{JobId, Key, TubeName};
use std::collections::BTreeMap;

/// The kinds of trouble that a tube can be in, the worst last.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Trouble {
    #[default]
    None,
    /// Jobs are ready and workers wait for some: as many as may be with the keys
    /// of these jobs are reserved.
    Limited,
    /// Jobs are ready, but the tube is paused.
    Paused,
    /// Jobs are buried.
    Buried,
    /// Jobs are ready, and nobody watches the tube.
    Unwatched,
}

impl Trouble {
    /// All trouble of a tube with these statistics, the worst first.
    pub fn all(facts: &Facts) -> impl Iterator<Item = Trouble> {
        let has = |key| facts.number(key) > 0;
        let (ready, paused) = (has("current-jobs-ready"), has("pause-time-left"));
        let kinds = [
            (Trouble::Unwatched, ready && facts.watching() == 0),
            (Trouble::Buried, has("current-jobs-buried")),
            (Trouble::Paused, ready && paused),
            (Trouble::Limited, ready && !paused && has("current-waiting")),
        ];
        let there = kinds.into_iter().filter(|(_, is_there)| *is_there);
        there.map(|(kind, _)| kind)
    }

    /// The worst trouble of a tube with these statistics.
    pub fn of(facts: &Facts) -> Trouble {
        Trouble::all(facts).next().unwrap_or_default()
    }
}

/// How old the next ready job may be before somebody should wonder why.
const LATE: u64 = 60;
/// A job that has timed out so often will probably do so again.
const OFTEN: u64 = 3;
/// How many jobs a closer look asks about.
const SOME: usize = 100;
/// How many ids around a known one may belong to reserved jobs.
const AROUND: u64 = 1000;
/// Where the server lists no jobs, the search for the next ones ends after this
/// many ids in a row without one: it is made for each tube.
const IN_A_ROW: u64 = 100;
/// How many ids are named at most.
const NAMED: usize = 5;

/// What is in the way of the jobs of this tube, the worst first; empty if
/// nothing is. `all` are the statistics of all tubes.
pub fn sentences(
    client: &mut Client,
    tube: &TubeName,
    facts: &Facts,
    all: &[(TubeName, Facts)],
) -> Outcome<Vec<String>> {
    let number = |key: &str| facts.number(key);
    let [ready, reserved, delayed, buried] = State::ALL.map(|state| facts.jobs_in(&[state]));
    let (watching, waiting) = (facts.watching(), number("current-waiting"));
    let paused = number("pause-time-left");
    let mut said = Vec::new();
    if paused > 0 {
        let left = span(paused);
        said.push(format!(
            "It is paused for another {left}; {}.",
            jobs(ready, "ready")
        ));
    }
    if ready > 0 && watching == 0 {
        said.push(match paused {
            0 => format!("Nobody watches it; {}.", jobs(ready, "ready")),
            _ => "Nobody watches it.".into(),
        });
    }
    let next = Sweep::new(tube.clone(), State::Ready).look(client, SOME, IN_A_ROW)?;
    let held = held(client, tube, reserved, next.first())?;
    if ready > 0 && watching > 0 && paused == 0 && waiting == 0 {
        let age = next.first().map_or(0, |job| job.age);
        let late = match age >= LATE {
            true => format!(", the next one for {}", span(age)),
            false => String::new(),
        };
        match reserved {
            0 => said.push(format!(
                "None of its {} waits or holds a job of it: they are busy with other tubes; {}{late}.",
                workers(watching),
                jobs(ready, "ready")
            )),
            _ => said.push(format!(
                "All of its {} are busy: {}, {}{late}.",
                workers(watching),
                jobs(reserved, "reserved"),
                jobs(ready, "ready")
            )),
        }
        if reserved == 0 {
            said.extend(before(client, tube, next.first(), all)?);
        }
    }
    said.extend(limited(&next, &held, ready));
    for job in held.iter().take(NAMED).filter(|_| ready > 0) {
        let left = span(job.time_left.0.into());
        let tries = job.reserves;
        said.push(format!(
            "Job {} is held by a worker for another {left}, at try {tries}.",
            job.id
        ));
    }
    let mut often: Vec<_> = held.iter().chain(&next).collect();
    often.retain(|job| job.all.number("timeouts") >= OFTEN);
    if let Some(most) = often.iter().map(|job| job.all.number("timeouts")).max() {
        let ids: Vec<_> = often.iter().map(|job| job.id).collect();
        let ids = listed(&ids);
        said.push(format!(
            "{} again and again, up to {most} times: {ids}.",
            jobs(often.len() as u64, "timed out")
                .replace(" is ", " has ")
                .replace(" are ", " have ")
        ));
    }
    if buried > 0 {
        let first = Sweep::new(tube.clone(), State::Buried).first(client)?;
        let first = first.map_or(String::new(), |job| {
            format!(", the next one to be kicked is {}", job.id)
        });
        said.push(format!("{}{first}.", jobs(buried, "buried")));
    }
    if ready == 0 && delayed > 0 {
        let first = Sweep::new(tube.clone(), State::Delayed).first(client)?;
        let first = first.map(|job| client.job(job.id)).transpose()?.flatten();
        let left = first.map_or(0, |job| job.time_left.0);
        said.push(format!(
            "None is ready; {}, the next one for another {}.",
            jobs(delayed, "delayed"),
            span(left.into())
        ));
    }
    Ok(said)
}

/// Sentences about ready jobs that a full limit keeps from workers: one for each
/// key among those of the next jobs.
fn limited(next: &[JobFacts], held: &[JobFacts], ready: u64) -> Vec<String> {
    let mut full: BTreeMap<Key, (u32, u64)> = BTreeMap::new();
    for limit in next.iter().filter_map(JobFacts::full_limit) {
        let (most, count) = full.entry(limit.key).or_default();
        // If jobs name different limits, the largest counts.
        *most = limit.most.max(*most);
        *count += 1;
    }
    let sentence = |(key, (most, count))| {
        let jobs = match count {
            1 if ready == 1 => "Its ready job waits".into(),
            1 => format!("1 of the next {} ready jobs waits", next.len()),
            all if all == ready => format!("All {all} ready jobs wait"),
            some => format!("{some} of the next {} ready jobs wait", next.len()),
        };
        let has_key = |job: &&JobFacts| {
            let limit = job.words().and_then(|words| words.limit);
            limit.is_some_and(|limit| limit.key == key)
        };
        let ids: Vec<_> = held.iter().filter(has_key).map(|job| job.id).collect();
        let reserved = match ids.as_slice() {
            [] => "jobs with this key are reserved in other tubes".into(),
            [id] => format!("job {id} with this key is reserved"),
            ids => format!("jobs {} with this key are reserved", listed(ids)),
        };
        format!("{jobs} for limit {key}:{most}: {reserved}.")
    };
    full.into_iter().take(NAMED).map(sentence).collect()
}

/// Whether the next ready jobs of these tubes have waited too long.
pub fn late(client: &mut Client, tubes: &[(TubeName, Facts)]) -> Outcome<Vec<TubeName>> {
    let idle = |facts: &Facts| facts.number("current-waiting") == 0;
    let busy: Vec<_> = tubes
        .iter()
        .filter(|(_, facts)| idle(facts))
        .cloned()
        .collect();
    let next = next_ready(client, &names_with_ready(&busy))?;
    let late = next.into_iter().filter(|job| job.age >= LATE);
    Ok(late.map(|job| job.tube).collect())
}

/// A sentence about other tubes whose next jobs are more urgent than this one:
/// workers that watch them, too, take these first.
fn before(
    client: &mut Client,
    tube: &TubeName,
    next: Option<&JobFacts>,
    all: &[(TubeName, Facts)],
) -> Outcome<Option<String>> {
    let Some(next) = next else { return Ok(None) };
    let mut tubes = names_with_ready(all);
    tubes.retain(|name| name != tube);
    let mut others = next_ready(client, &tubes)?;
    others.retain(|job| job.priority < next.priority);
    others.sort_by_key(|job| job.priority);
    let names: Vec<_> = others.iter().map(|job| &job.tube).collect();
    Ok((!names.is_empty()).then(|| {
        format!(
            "Its next job has the priority {}; more urgent jobs are ready in {}.",
            next.priority.0,
            listed(&names)
        )
    }))
}

/// Some of the reserved jobs of a tube, those with the least time left first.
fn held(
    client: &mut Client,
    tube: &TubeName,
    reserved: u64,
    near: Option<&JobFacts>,
) -> Outcome<Vec<JobFacts>> {
    if reserved == 0 {
        return Ok(Vec::new());
    }
    let scope = Scope {
        tubes: vec![tube.clone()],
        states: vec![State::Reserved],
    };
    let mut found = match Walk::begin(client, &scope)? {
        Some(mut walk) => {
            let mut found = Vec::new();
            while (found.len() as u64) < reserved && found.len() < SOME && !walk.is_over() {
                found.extend(walk.page(client, MOST)?);
            }
            found
        }
        None => {
            // Without a job near by, the latest ids are as good as any.
            let id = match near {
                Some(job) => job.id.0,
                None => client.server_stats()?.number("cmd-put"),
            };
            let ids = id.saturating_sub(AROUND)..id.saturating_add(AROUND);
            jobs_of(client, ids.map(JobId))?
        }
    };
    found.retain(|job| scope.has(job));
    found.sort_by_key(|job| job.time_left.0);
    Ok(found)
}

/// '1 job is ready' or '7 jobs are ready'.
pub fn jobs(count: u64, state: &str) -> String {
    match count {
        0 => format!("no job is {state}"),
        1 => format!("1 job is {state}"),
        _ => format!("{count} jobs are {state}"),
    }
}

fn workers(count: u64) -> String {
    match count {
        1 => "1 worker".into(),
        _ => format!("{count} workers"),
    }
}

/// These in a row, the first few of them by name.
pub fn listed(all: &[impl ToString]) -> String {
    let named: Vec<_> = all.iter().take(NAMED).map(ToString::to_string).collect();
    let more = match all.len().saturating_sub(NAMED) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    named.join(", ") + &more
}
