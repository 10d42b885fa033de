//! Finds jobs and reads them, without touching any.
//!
//! beanpoled lists its jobs in the order of their ids. The protocol has no list:
//! it shows the first ready, delayed or buried job of a tube, and any job whose
//! id is known. Jobs that were put together have neighbouring ids, so with other
//! servers the first jobs lead to others: the ids around them are asked for, many
//! at once, until as many jobs are found as are wanted, or as the server counts.
//! At worst, when a job lies far from all others, that is each id that was ever
//! given; never does it change anything.
//!
//! To reserve all jobs and release them would be cheaper. But this would keep
//! them from their workers and change their counters. If it were interrupted,
//! buried and delayed jobs would stay ready.

use crate::failure::{Failure, Outcome, Status};
use crate::remote::facts::total;
use crate::remote::{Client, Facts, Job, JobFacts, Reply, State};
use crate::text::output::{Progress, complain};
use beanpole::protocol::framing::MAX_LINE;
use beanpole::protocol::{JobId, TubeName};
use std::borrow::Borrow;
use std::collections::{BTreeSet, VecDeque};
use std::ops::Range;

/// The jobs that a caller is interested in.
pub struct Scope {
    /// Jobs in these tubes; in all tubes if this is empty.
    pub tubes: Vec<TubeName>,
    /// Jobs in one of these states.
    pub states: Vec<State>,
}

impl Scope {
    /// The jobs of these tubes in these states.
    pub fn of(tubes: impl Into<Vec<TubeName>>, states: impl Into<Vec<State>>) -> Scope {
        let (tubes, states) = (tubes.into(), states.into());
        Scope { tubes, states }
    }

    /// Whether this job belongs to the scope.
    pub fn has(&self, job: &JobFacts) -> bool {
        self.has_tube(&job.tube) && self.states.contains(&job.state)
    }

    fn has_tube(&self, tube: &TubeName) -> bool {
        self.tubes.is_empty() || self.tubes.contains(tube)
    }

    /// The request for up to `most` jobs of it, from this id on. If there is exactly one
    /// tube, it names the tube, and the state if there is exactly one, provided that a line
    /// has room for them. The jobs in the reply are checked in any case.
    pub fn line(&self, from: JobId, most: usize) -> String {
        let all = format!("list-jobs {from} {most}");
        let named = match (self.tubes.as_slice(), self.states.as_slice()) {
            ([tube], [state]) => format!(" {tube} {}", state.name()),
            ([tube], _) => format!(" {tube}"),
            _ => String::new(),
        };
        let has_room = all.len() + named.len() + 2 <= MAX_LINE;
        if has_room { all + &named } else { all }
    }

    /// The jobs of it among those that one request shows from this id on, at most `most`, and
    /// where to go on: who does that meets a job that stays exactly once. An empty page need
    /// not be the end: the request may have shown other jobs. Only a server that lists its
    /// jobs knows the request.
    pub fn page(
        &self,
        client: &mut Client,
        from: JobId,
        most: usize,
    ) -> Outcome<(Vec<JobFacts>, Option<JobId>)> {
        let (listed, next) = client.ask(self.line(from, most), Reply::listed)?;
        let next = next.map(JobId).filter(|next| *next > from);
        Ok((self.those(listed)?, next))
    }

    /// The jobs of it among those that were listed.
    pub fn those(&self, listed: Vec<Facts>) -> Outcome<Vec<JobFacts>> {
        let read: Outcome<Vec<_>> = listed.into_iter().map(JobFacts::read).collect();
        let jobs = read?.into_iter().flatten();
        Ok(jobs.filter(|job| self.has(job)).collect())
    }
}

/// The highest number of jobs or connections that one request asks for.
pub const MOST: usize = 1000;
/// How many ids are asked for at once where jobs are searched for.
const BLOCK: u64 = 1000;
/// How many ids beyond the known ones are asked for before the search gives up.
const BEYOND: u64 = 10_000_000;

/// Gives the jobs of this scope in the order of their ids, which is the order in
/// which they were put, some at a time, until `each` has enough. A server that
/// lists no jobs is searched until `most` are found. The status tells whether all
/// could be found; if not, this prints a message.
pub fn pages(
    client: &mut Client,
    scope: &Scope,
    most: usize,
    mut each: impl FnMut(&mut Client, Vec<JobFacts>) -> Outcome<bool>,
) -> Outcome {
    if client.is_extended()? {
        // One request may show one job, if it is large, and others may come meanwhile.
        let there = client.server_stats()?.jobs_in(&State::ALL);
        let mut left = there.saturating_mul(2).saturating_add(1000);
        let mut next = Some(JobId(0));
        while let Some(from) = next {
            let no_end = || Failure::Unreachable("the server's list of jobs has no end".into());
            left = left.checked_sub(1).ok_or_else(no_end)?;
            let (jobs, after) = scope.page(client, from, MOST)?;
            next = after;
            if !each(client, jobs)? {
                break;
            }
        }
        return Ok(Status::Done);
    }
    let (ids, status) = by_asking(client, scope, most)?;
    for ids in ids.chunks(MOST) {
        let mut jobs = client.jobs(ids.iter().copied())?;
        jobs.retain(|job| scope.has(job));
        if !each(client, jobs)? {
            break;
        }
    }
    Ok(status)
}

/// Up to `most` jobs of this scope; and whether none is missing.
pub fn all(client: &mut Client, scope: &Scope, most: usize) -> Outcome<(Vec<JobId>, Status)> {
    let mut found = Vec::new();
    let status = pages(client, scope, most, |_, jobs| {
        found.extend(jobs.iter().map(|job| job.id));
        Ok(found.len() < most)
    })?;
    found.truncate(most);
    Ok((found, status))
}

/// The first job of a tube in this state, according to the server. None if the
/// state is 'reserved', because no command shows such jobs.
pub fn first(client: &mut Client, tube: &TubeName, state: State) -> Outcome<Option<JobId>> {
    if state == State::Reserved {
        return Ok(None);
    }
    let line = format!("peek-{}", state.name());
    client.use_tube(tube)?;
    // Only its id is wanted.
    let found = client.within(0, |client| client.ask(line, Reply::job))?;
    Ok(found.map(|job| job.id))
}

/// Up to `most` jobs of a tube in one state, the first one before the others, with ids like
/// that of the first. No server shows which reserved job is the first. If the server lists
/// its jobs, those that were put first are found; if not, those with ids like that of the
/// next ready job or, without one, of the latest job.
pub fn near(
    client: &mut Client,
    tube: &TubeName,
    state: State,
    most: usize,
) -> Outcome<Vec<JobFacts>> {
    // To use a tube creates it.
    let facts = client.tube_stats(tube)?.unwrap_or_default();
    if facts.jobs_in(&[state]) == 0 {
        return Ok(Vec::new());
    }
    let start = first(client, tube, state)?;
    let scope = Scope::of([tube.clone()], [state]);
    let mut found = if client.is_extended()? {
        let before = |JobId(id)| JobId(id.saturating_sub(MOST as u64 / 2));
        let from = start.map_or(JobId(0), before);
        scope.page(client, from, MOST)?.0
    } else {
        let JobId(id) = match start.or(first(client, tube, State::Ready)?) {
            Some(beside) => beside,
            None => JobId(client.server_stats()?.number("cmd-put")),
        };
        let ids = id.saturating_sub(AROUND)..id.saturating_add(AROUND);
        client.jobs(ids.map(JobId))?
    };
    found.retain(|job| scope.has(job));
    found.sort_by_key(|job| (Some(job.id) != start, Some(job.id) < start, job.id));
    found.truncate(most);
    Ok(found)
}

/// How many ids before a known one, and after it, are asked for where no jobs are listed.
const AROUND: u64 = 1000;

/// The connections of a server in the order in which they came; `None` if it does not list
/// them.
pub fn connections(client: &mut Client) -> Outcome<Option<Vec<Facts>>> {
    let mut found = Vec::new();
    let are_listed = each_listed(client, "list-connections", |_, some| {
        found.extend(some);
        Ok(())
    })?;
    Ok(are_listed.then_some(found))
}

/// Gives what a server lists, some after the others. Whether the server has such lists.
pub fn each_listed(
    client: &mut Client,
    what: &str,
    mut each: impl FnMut(&mut Client, Vec<Facts>) -> Outcome<()>,
) -> Outcome<bool> {
    if !client.is_extended()? {
        return Ok(false);
    }
    client.within(0, |client| {
        let mut next = Some(0);
        while let Some(from) = next {
            let line = format_args!("{what} {from} {MOST}");
            let (some, after) = client.ask(line, Reply::listed)?;
            next = after.filter(|after| *after > from);
            each(client, some)?;
        }
        Ok(true)
    })
}

/// The jobs of a scope on a server that lists none: at least `most` of them, or all
/// if there are fewer.
fn by_asking(client: &mut Client, scope: &Scope, most: usize) -> Outcome<(Vec<JobId>, Status)> {
    let starts = starts(client, scope)?;
    let (highest, refused) = highest(client, &starts)?;
    // Jobs are counted in any state, because a job may change its state
    // meanwhile, and after the highest id was determined: a job that is put
    // later does not count.
    let there = count(client, &scope.tubes)?;
    let beyond = if refused.is_none() { 0 } else { BEYOND };
    let mut ranges = search(starts, highest.saturating_add(beyond));
    let mut progress = Progress::new("looking at job", Some(highest));
    let (mut ids, mut found) = (Vec::new(), 0);
    while found < there
        && ids.len() < most
        && let Some(range) = ranges.next()
    {
        progress.add(range.end - range.start);
        for job in client.jobs(range.map(JobId))? {
            found += u64::from(scope.has_tube(&job.tube));
            ids.extend(scope.has(&job).then_some(job.id));
        }
    }
    drop(progress);
    ids.sort();
    let missing = match &refused {
        Some(_) if ids.len() < most => count(client, &scope.tubes)?.saturating_sub(found),
        _ => 0,
    };
    if let Some(reply) = refused.filter(|_| missing > 0) {
        complain!(
            "{missing} jobs could not be found: the server takes no job ({reply}), so the \
             highest id is not known"
        );
    }
    Ok((ids, Status::done_if(missing == 0)))
}

/// All ids, each once, in ranges: first the blocks of ids that some of these are in, or
/// without any the last one, then the blocks beside these, and so on.
fn search(starts: BTreeSet<u64>, highest: u64) -> impl Iterator<Item = Range<u64>> {
    let end = starts.last().map_or(highest, |last| highest.max(*last));
    let last = starts.is_empty().then_some(end);
    let begun = starts.into_iter().chain(last).map(|id| id / BLOCK);
    let mut known: BTreeSet<u64> = begun.collect();
    let mut waiting: VecDeque<u64> = known.iter().copied().collect();
    std::iter::from_fn(move || {
        let block = waiting.pop_front()?;
        let after = (block < end / BLOCK).then_some(block + 1);
        let beside = [after, block.checked_sub(1)].into_iter().flatten();
        waiting.extend(beside.filter(|block| known.insert(*block)));
        let from = block * BLOCK;
        let to = from.saturating_add(BLOCK).min(end.saturating_add(1));
        Some(from.max(1)..to)
    })
}

/// The ids of the first jobs of each tube in each state.
fn starts(client: &mut Client, scope: &Scope) -> Outcome<BTreeSet<u64>> {
    let tubes = match scope.tubes.as_slice() {
        [] => client.tubes()?,
        some => some.into(),
    };
    let mut ids = BTreeSet::new();
    for tube in tubes {
        // To use a tube creates it.
        let Some(facts) = client.tube_stats(&tube)? else {
            continue;
        };
        let has_some = |state: &State| facts.jobs_in(&[*state]) > 0;
        for state in State::ALL.into_iter().filter(has_some) {
            ids.extend(first(client, &tube, state)?.map(|JobId(id)| id));
        }
    }
    Ok(ids)
}

/// How many jobs the server counts in these tubes, or in all if there is none.
fn count(client: &mut Client, tubes: &[TubeName]) -> Outcome<u64> {
    if tubes.is_empty() {
        return Ok(client.server_stats()?.jobs_in(&State::ALL));
    }
    let line = |tube: &&TubeName| format!("stats-tube {tube}");
    let told = client.all(tubes, line, Reply::facts)?.into_iter();
    let counts = told.filter_map(|(_, facts)| Some(facts?.jobs_in(&State::ALL)));
    Ok(total(counts))
}

/// The highest id that an existing job can have. If the server refuses the job
/// that would prove it, the reply comes with it, and there may be higher ids.
///
/// Without a binlog, ids begin at 1 and each belongs to a `put`, so the number
/// of puts is enough. With a binlog, ids go on from earlier runs. Then a job is
/// put, which tells its id, and is deleted again. If the server accepts no job,
/// the jobs that can be seen tell the least that it can be.
fn highest(client: &mut Client, starts: &BTreeSet<u64>) -> Outcome<(u64, Option<Reply>)> {
    let stats = client.server_stats()?;
    let puts = stats.number("cmd-put");
    if stats.get("binlog-current-index") == Some("0") {
        return Ok((puts, None));
    }
    // beanstalkd never forgets a tube for which it has refused a job, and `default`
    // exists always. With the longest delay nobody reserves the job.
    client.use_tube(&TubeName::default())?;
    client.queue(format_args!("put {0} {0} 1 0\r\n", u32::MAX));
    let id = match client.reply()? {
        Reply::Inserted(id) | Reply::Buried(id) => id,
        refusal => {
            let least = starts.last().map_or(puts, |last| last.saturating_add(puts));
            return Ok((least, Some(refusal)));
        }
    };
    // If it is missing, somebody has kicked it and a worker has it.
    client.ask(format_args!("delete {id}"), Reply::is_done)?;
    Ok((id.0, None))
}

/// Gives those of these jobs that still exist, each with its body, in order.
pub fn each_body<J: Borrow<JobFacts>>(
    client: &mut Client,
    jobs: impl IntoIterator<Item = J>,
    mut each: impl FnMut(J, Job) -> Outcome<()>,
) -> Outcome<()> {
    let line = |job: &J| format!("peek {}", job.borrow().id);
    client.each(jobs, line, |one, line, reply| match reply.job(line)? {
        Some(found) => each(one, found),
        None => Ok(()),
    })
}

/// The jobs among these that still exist, with their bodies.
pub fn bodies(client: &mut Client, jobs: Vec<JobFacts>) -> Outcome<Vec<(JobFacts, Job)>> {
    let mut found = Vec::new();
    each_body(client, jobs, |job, whole| {
        found.push((job, whole));
        Ok(())
    })?;
    Ok(found)
}

/// Decides how many jobs may be in memory at once, by the bodies seen up to
/// now.
#[derive(Default)]
pub struct Room {
    largest: Option<usize>,
}

impl Room {
    /// The number of jobs at once if their bodies are small.
    const JOBS: usize = 500;
    /// The number of bytes of bodies at once.
    const BYTES: usize = 1 << 24;

    /// Learns from bodies of these sizes.
    pub fn learn(&mut self, sizes: impl Iterator<Item = usize>) {
        self.largest = self.largest.max(sizes.max());
    }

    /// How many jobs may be in memory at once: one, until a body has been seen.
    pub fn jobs(&self) -> usize {
        let largest = self.largest.unwrap_or(Room::BYTES);
        (Room::BYTES / largest.max(1)).clamp(1, Room::JOBS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_search_asks_for_each_id_once_and_begins_near_the_first_jobs() {
        let ranges: Vec<_> = search([4040, 4050, 8400].into(), 9999).collect();
        let begun = [4000..5000, 8000..9000, 5000..6000, 3000..4000, 9000..10_000];
        assert_eq!(ranges[..5], begun);
        let mut ids: Vec<u64> = ranges.into_iter().flatten().collect();
        ids.sort();
        assert!(ids.into_iter().eq(1..=9999));
    }

    #[test]
    fn a_search_without_a_first_job_begins_at_the_newest_ids() {
        let mut ranges = search(BTreeSet::new(), 1004);
        assert_eq!(ranges.next(), Some(1000..1005));
        assert_eq!(ranges.next(), Some(1..1000));
        assert_eq!(ranges.next(), None);
    }
}
