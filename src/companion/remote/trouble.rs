//! What keeps jobs from being done: of a tube in a few words, as screens show
//! it, and in sentences for people; and why a server takes no jobs.
//!
//! [`Trouble::of`] is the table of what can be wrong with a tube. It follows from
//! statistics. [`sentences`] need more: they ask about the next jobs of a tube and
//! about those that are reserved. Nothing is changed by it.

use crate::failure::Outcome;
use crate::remote::finder::{MOST, around, first, near};
use crate::remote::watch::Growth;
use crate::remote::{Client, Facts, JobFacts, Scope, State, Tube, Walk};
use crate::text::{NAMED, jobs, listed, span};
use beanpole::protocol::{Key, TubeName};
use std::collections::BTreeMap;
use std::time::Duration;

/// The kinds of trouble, the worst last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// Jobs expire, and others are ready.
    Expires,
    /// The next ready job is old.
    Old,
    /// The last ready job is old, and others go before it that were put later.
    Starves,
    /// For long, jobs have been ready and none was deleted.
    Still,
    /// The tube is paused, but no job is ready.
    Paused,
    /// More jobs are put than are done.
    Grows,
    /// Jobs are ready and workers wait for some: as many as may be with the keys of
    /// these jobs are reserved.
    Limited,
    /// The tube is paused, though jobs are ready.
    Held,
    /// Jobs time out, in the last ten minutes or at not many more reservations.
    TimesOut,
    Buried,
    /// The tube has as many jobs as it may have: puts are refused.
    Full,
    /// Jobs are ready, and no client watches the tube.
    Unwatched,
    /// A job was reserved often and never done: its worker is lost each time, or takes
    /// too long.
    Fails,
}

impl Kind {
    /// Whether it needs a person, or only may need one.
    pub fn is_grave(self) -> bool {
        self > Kind::Limited
    }
}

/// Something that is wrong with a tube.
#[derive(Clone, Debug, PartialEq)]
pub struct Trouble {
    pub kind: Kind,
    pub words: String,
}

/// From this number on, reservations of a job that were in vain, or timeouts of a tube,
/// will probably continue.
pub const OFTEN: u64 = 3;
/// Where at least one of this many reservations ends with a timeout, it is no exception.
const NO_EXCEPTION: u64 = 4;
/// If jobs are ready and none was deleted for this long, that is long.
const STILL: Duration = Duration::from_secs(60);
/// A next ready job of this age, in seconds, is old.
const OLD: u64 = 600;

impl Trouble {
    /// All trouble of a tube at this time, the worst first.
    pub fn of(tube: &Tube, now: Duration) -> Vec<Trouble> {
        let facts = tube.facts();
        let [ready, reserved, delayed, buried] = facts.jobs();
        let paused = facts.number("pause-time-left");
        let pause = || format!("paused, {} left", span(paused));
        let timeouts = match times_out(facts) {
            Some((timeouts, _)) => timeouts,
            None => tube.recent_timeouts(),
        };
        let may_time_out = ready + reserved + delayed > 0;
        let is_limited = ready > 0 && paused == 0 && facts.number("current-waiting") > 0;
        let still = now.saturating_sub(tube.moved);
        let suspect = tube.suspect.as_ref();
        let expired = facts.number("total-expired");
        let growth = tube.growth.as_ref();
        #[rustfmt::skip]
        let table = [
            (Kind::Fails, suspect.map(|job| format!("job {} fails at each of {} tries", job.id, job.reserves))),
            (Kind::Unwatched, (ready > 0 && facts.watching() == 0).then(|| "nobody watches".into())),
            (Kind::Full, is_full(facts).then(|| "full".into())),
            (Kind::Buried, (buried > 0).then(|| format!("{buried} buried"))),
            (Kind::TimesOut, (timeouts >= OFTEN && may_time_out).then(|| format!("{timeouts} timeouts"))),
            (Kind::Held, (paused > 0 && ready > 0).then(pause)),
            (Kind::Limited, is_limited.then(|| "waits for a limit".into())),
            (Kind::Grows, growth.map(Growth::words)),
            (Kind::Paused, (paused > 0 && ready == 0).then(pause)),
            (Kind::Still, (ready > 0 && still >= STILL).then(|| format!("no delete for {}", span(still.as_secs())))),
            (Kind::Starves, starving(tube, OLD).map(|age| format!("a job waits behind others for {}", span(age)))),
            (Kind::Old, tube.age.filter(|age| *age >= OLD).map(|age| format!("oldest job {}", span(age)))),
            (Kind::Expires, (ready > 0 && expired > 0).then(|| format!("{expired} expired"))),
        ];
        let kinds = table.into_iter();
        let found = kinds.filter_map(|(kind, words)| words.map(|words| Trouble { kind, words }));
        found.collect()
    }
}

impl Growth {
    fn words(&self) -> String {
        match &self.producer {
            Some(producer) => format!("grows by {}/s, most from {producer}", self.rate),
            None => format!("grows by {}/s", self.rate),
        }
    }
}

/// The age of the last ready job, if it is this old at least and jobs go before it that
/// were put much later: those of a smaller priority keep coming.
pub fn starving(tube: &Tube, least: u64) -> Option<u64> {
    let behind = tube.age.unwrap_or(0).saturating_add(LATE);
    tube.last_age.filter(|age| *age >= least && *age > behind)
}

/// Whether a tube has as many jobs as it may have.
pub fn is_full(tube: &Facts) -> bool {
    let most = tube.number("max-jobs");
    most > 0 && tube.jobs_in(&State::ALL) >= most
}

/// How many of how many reservations of a tube have timed out, if it is no exception.
fn times_out(tube: &Facts) -> Option<(u64, u64)> {
    let (timeouts, reserves) = (tube.number("total-timeouts"), tube.number("total-reserves"));
    let is_common = timeouts >= OFTEN && timeouts * NO_EXCEPTION >= reserves;
    is_common.then_some((timeouts, reserves))
}

/// All trouble of a tube in words, or what may become trouble if nothing else is
/// wrong; empty if nothing is.
pub fn words(troubles: &[Trouble]) -> String {
    let ranked = troubles.iter().enumerate();
    let told = ranked.filter(|(index, trouble)| *index == 0 || trouble.kind > Kind::Still);
    let words: Vec<_> = told.map(|(_, trouble)| trouble.words.as_str()).collect();
    words.join(", ")
}

/// Whether a job was reserved often, and each time its worker was lost or took
/// too long. A reservation that ends with a release or a burial is counted by
/// the server, and the rest has failed.
pub fn has_failed_often(job: &JobFacts) -> bool {
    failures(job) >= OFTEN && job.state != State::Buried
}

fn failures(job: &JobFacts) -> u64 {
    let number = |key| job.all.number(key);
    let settled = number("releases").saturating_add(number("buries"));
    let under_way = u64::from(job.state == State::Reserved);
    job.reserves
        .saturating_sub(settled.saturating_add(under_way))
}

/// Why a server takes no new jobs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// This is intended.
    Drains,
    MemoryFull,
    DiskFull,
    /// For a reason that is not known here.
    Other,
}

impl Refusal {
    /// Why this server takes none, if it says so: by a number, earlier ones by a word.
    pub fn of(stats: &Facts) -> Option<Refusal> {
        match stats.text("put-refusal") {
            "3" | "memory" => Some(Refusal::MemoryFull),
            "2" | "disk" => Some(Refusal::DiskFull),
            _ if stats.text("draining") == "true" => Some(Refusal::Drains),
            "" | "0" | "none" => None,
            _ => Some(Refusal::Other),
        }
    }

    pub fn words(self) -> &'static str {
        match self {
            Refusal::Drains => "it drains",
            Refusal::MemoryFull => "its memory is full",
            Refusal::DiskFull => "its disk is full",
            Refusal::Other => "it refuses them",
        }
    }
}

/// How old the next ready job may be before that counts as trouble.
pub const LATE: u64 = 60;
/// About how many jobs the sentences ask.
const SOME: usize = 100;

/// What is in the way of the jobs of this tube, the worst first; empty if
/// nothing is.
pub fn sentences(client: &mut Client, name: &TubeName, tube: &Tube) -> Outcome<Vec<String>> {
    let facts = tube.facts();
    let [ready, reserved, delayed, buried] = facts.jobs();
    let (watching, waiting) = (facts.watching(), facts.number("current-waiting"));
    let paused = facts.number("pause-time-left");
    let next = near(client, name, State::Ready, SOME)?;
    let held = held(client, name, reserved, next.first())?;
    let mut said = Vec::new();
    if is_full(facts) {
        let most = facts.number("max-jobs");
        said.push(format!(
            "It is full: puts are refused while it has {most} jobs."
        ));
    }
    let expired = facts.number("total-expired");
    if expired > 0 {
        said.push(format!("Of its jobs, {expired} expired untaken."));
    }
    said.extend(failing(name, held.iter().chain(&next)));
    if paused > 0 {
        let (left, ready) = (span(paused), jobs(ready, "ready"));
        said.push(format!("It is paused for another {left}; {ready}."));
    }
    if ready > 0 && watching == 0 {
        said.push(match paused {
            0 => format!("Nobody watches it; {}.", jobs(ready, "ready")),
            _ => "Nobody watches it.".into(),
        });
    }
    if ready > 0 && watching > 0 && paused == 0 && waiting == 0 {
        let workers = match (watching, tube.is_moving(), reserved) {
            (1, true, _) | (1, _, 1..) => "Its worker is busy".into(),
            (1, ..) => "Its worker holds no job of it and does not ask for one".into(),
            (_, true, _) => format!("Its {watching} workers are busy"),
            (.., 0) => format!("None of its {watching} workers holds a job of it or asks for one"),
            _ if reserved < watching => format!("None of its {watching} workers asks for a job"),
            _ => format!("All of its {watching} workers are busy"),
        };
        let with = match reserved {
            0 => ";".into(),
            _ => format!(": {},", jobs(reserved, "reserved")),
        };
        let age = next.first().map_or(0, |job| job.age);
        let late = if age >= LATE {
            format!(", the next one for {}", span(age))
        } else {
            String::new()
        };
        said.push(format!("{workers}{with} {}{late}.", jobs(ready, "ready")));
    }
    said.extend(starving(tube, LATE).map(|age| {
        let (age, first) = (span(age), span(tube.age.unwrap_or(0)));
        format!(
            "Its last ready job was put {age} ago, the next one {first} ago: jobs of smaller \
             priorities go before it."
        )
    }));
    said.extend(limited(&next, &held, ready));
    if let Some(Growth { rate, producer }) = &tube.growth {
        let from = match producer {
            Some(producer) => format!("most of them come from {producer}"),
            None => "from whom, this server does not tell".into(),
        };
        said.push(format!("It grows by {rate} jobs a second; {from}."));
    }
    for job in held.iter().take(NAMED).filter(|_| ready > 0) {
        let (id, left, tries) = (job.id, span(job.time_left.0.into()), job.reserves);
        let worker = match job.all.get("reserved-by") {
            Some(connection) => format!("connection {connection}"),
            None => "a worker".into(),
        };
        said.push(format!(
            "Job {id} is held by {worker} for another {left}, at try {tries}."
        ));
    }
    if let Some((timeouts, reserves)) = times_out(facts) {
        said.push(format!("{timeouts} of {reserves} reservations timed out."));
    }
    if buried > 0 {
        let first = first(client, name, State::Buried)?.map_or(String::new(), |job| {
            format!(", the next one to be kicked is {}", job.id)
        });
        said.push(format!("{}{first}.", jobs(buried, "buried")));
    }
    if ready == 0 && delayed > 0 {
        let first = first(client, name, State::Delayed)?;
        let first = first.map(|job| client.job(job.id)).transpose()?.flatten();
        let left = span(first.map_or(0, |job| job.time_left.0.into()));
        let delayed = jobs(delayed, "delayed");
        said.push(format!(
            "None is ready; {delayed}, the next one for another {left}."
        ));
    }
    Ok(said)
}

/// A sentence about the jobs among these at which workers fail.
fn failing<'a>(tube: &TubeName, jobs: impl Iterator<Item = &'a JobFacts>) -> Option<String> {
    let failing: BTreeMap<_, _> = jobs
        .filter(|job| has_failed_often(job))
        .map(|job| (job.id, failures(job)))
        .collect();
    let (most, ids) = (failing.values().max()?, failing.keys().collect::<Vec<_>>());
    let what = match ids.as_slice() {
        [id] => format!("Job {id} was reserved {most} times, and each time"),
        ids => format!(
            "Jobs {} were reserved up to {most} times, and each time",
            listed(ids)
        ),
    };
    Some(format!(
        "{what} the worker was lost or took too long: 'beanpole ls {tube} --tries {OFTEN}' \
         lists such jobs."
    ))
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
            let limit = job.options().and_then(|options| options.limit);
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
    let scope = Scope::of(tube, [State::Reserved]);
    let mut found = match Walk::begin(client, &scope)? {
        Some(mut walk) => walk.page(client, MOST)?,
        None => {
            // Without a job near by, the latest ids are as good as any.
            let id = match near {
                Some(job) => job.id.0,
                None => client.server_stats()?.number("cmd-put"),
            };
            around(client, id)?
        }
    };
    found.retain(|job| scope.has(job));
    found.sort_by_key(|job| job.time_left.0);
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_behind_a_stream_of_more_urgent_ones_is_trouble() {
        for (age, last_age, words) in [
            (Some(3), Some(7200), "a job waits behind others for 2h"),
            (Some(3), Some(599), ""),
            // Those that were put before it go before it.
            (Some(590), Some(610), ""),
            (None, None, ""),
        ] {
            let mut tube = Tube::default();
            (tube.age, tube.last_age) = (age, last_age);
            assert_eq!(super::words(&Trouble::of(&tube, Duration::ZERO)), words);
        }
    }
}
