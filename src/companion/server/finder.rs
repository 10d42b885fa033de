//! Finds jobs without touching any.
//!
//! beanpoled [lists](crate::server::list) its jobs. The protocol has no list:
//! it shows the first ready, delayed or buried job of a tube, and any job whose
//! id is known. Jobs that were put together have neighbouring ids, so with
//! other servers the first jobs lead to others: the ids around them are asked
//! for, many at once, until as many jobs are found as the server counts. At
//! worst, when a job lies far from all others, that is each id that was ever
//! given; never does it change anything.
//!
//! To reserve all jobs and release them would be cheaper. But this would keep
//! them from their workers and change their counters. If it were interrupted,
//! buried and delayed jobs would stay ready.

use crate::failure::{Outcome, Status};
use crate::server::by_id::send_each;
use crate::server::client::{Client, job};
use crate::server::list::{MOST, Scope, Walk};
use crate::server::reply::{Job, Reply};
use crate::server::stats::{JobFacts, State};
use crate::server::take::jobs_of;
use crate::text::output::{Progress, complain};
use beanpole::protocol::{JobId, TubeName};
use std::collections::BTreeSet;
use std::ops::Range;

/// How many ids are asked for at once around a job, at least and at most.
const NARROWEST: u64 = 16;
const WIDEST: u64 = 10_000;
/// How many ids beyond the known ones are asked for before the search gives up.
const BEYOND: u64 = 10_000_000;

/// Gives the jobs of this scope in the order of their ids, which is the order in
/// which they were put, some at a time, until `each` has enough. The status
/// tells whether all could be found; if not, this prints a message.
pub fn pages(
    client: &mut Client,
    scope: &Scope,
    mut each: impl FnMut(&mut Client, Vec<JobFacts>) -> Outcome<bool>,
) -> Outcome {
    if let Some(mut walk) = Walk::begin(client, scope)? {
        while !walk.is_over() {
            let jobs = walk.page(client, MOST)?;
            if !each(client, jobs)? {
                break;
            }
        }
        return Ok(Status::Done);
    }
    let (ids, status) = by_asking(client, scope)?;
    for ids in ids.chunks(MOST) {
        let mut jobs = jobs_of(client, ids.iter().copied())?;
        jobs.retain(|job| scope.has(job));
        if !each(client, jobs)? {
            break;
        }
    }
    Ok(status)
}

/// The ids of the jobs of this scope, and whether none is missing.
pub fn all(client: &mut Client, scope: &Scope) -> Outcome<(Vec<JobId>, Status)> {
    let mut progress = Progress::new("finding jobs", None);
    let mut ids = Vec::new();
    let status = pages(client, scope, |_, jobs| {
        progress.add(jobs.len() as u64);
        ids.extend(jobs.iter().map(|job| job.id));
        Ok(true)
    })?;
    Ok((ids, status))
}

/// The job that was put first among those in this scope.
pub fn oldest(client: &mut Client, scope: &Scope) -> Outcome<Option<JobFacts>> {
    let mut first = None;
    pages(client, scope, |_, jobs| {
        first = jobs.into_iter().next();
        Ok(first.is_none())
    })?;
    Ok(first)
}

/// The first job of a tube in this state, according to the server. None if the
/// state is 'reserved', because no command shows such jobs.
pub fn first(client: &mut Client, tube: &TubeName, state: State) -> Outcome<Option<Job>> {
    if state == State::Reserved {
        return Ok(None);
    }
    let line = format!("peek-{}", state.name());
    client.use_tube(tube)?;
    let reply = client.call(&line)?;
    job(line, reply)
}

/// Up to `most` jobs of a tube in one state: the first one, those with the ids
/// after it, and those before it. With mixed priorities this is not the order of
/// the queue. A direction is given up after `patience` ids in a row without
/// such a job; a list, after it has shown `patience` jobs.
pub fn near(
    client: &mut Client,
    tube: &TubeName,
    state: State,
    most: usize,
    patience: u64,
) -> Outcome<Vec<JobFacts>> {
    let Some(Job { id: start, .. }) = first(client, tube, state)? else {
        return Ok(Vec::new());
    };
    let there = client.tube_stats(tube)?;
    let there = there.map_or(0, |facts| facts.number(state.count_key()));
    let most = most
        .min(usize::try_from(there).unwrap_or(usize::MAX))
        .max(1);
    let scope = Scope {
        tubes: vec![tube.clone()],
        states: vec![state],
    };
    let mut found = Vec::new();
    if let Some(mut walk) = Walk::begin(client, &scope)? {
        // Each direction has a page at least.
        let mut pages = (patience / MOST as u64).max(2);
        for from in [start, JobId(0)] {
            walk.go_to(from);
            while found.len() < most && pages > 0 && !walk.is_over() {
                pages -= 1;
                let jobs = walk.page(client, MOST)?.into_iter();
                found.extend(jobs.filter(|job| (job.id >= start) == (from == start)));
            }
        }
    } else {
        let mut asked = start.0..start.0;
        for upwards in [true, false] {
            let (mut in_vain, mut width) = (0, NARROWEST);
            while found.len() < most && in_vain < patience {
                let ids = match upwards {
                    true => asked.end..asked.end.saturating_add(width),
                    false => asked.start.saturating_sub(width).max(1)..asked.start,
                };
                if ids.is_empty() {
                    break;
                }
                asked = asked.start.min(ids.start)..asked.end.max(ids.end);
                in_vain += ids.end - ids.start;
                let mut jobs = jobs_of(client, ids.map(JobId))?;
                jobs.retain(|job| scope.has(job));
                in_vain = if jobs.is_empty() { in_vain } else { 0 };
                width = (width * 2).min(MOST as u64);
                found.extend(jobs);
            }
        }
    }
    found.truncate(most);
    Ok(found)
}

/// The jobs of a scope on a server that lists none.
fn by_asking(client: &mut Client, scope: &Scope) -> Outcome<(Vec<JobId>, Status)> {
    let (highest, refused) = highest(client, scope)?;
    // Jobs are counted in any state, because a job may change its state
    // meanwhile, and after the highest id was determined: a job that is put
    // later does not count.
    let count = count(client, scope)?;
    let beyond = if refused.is_none() { 0 } else { BEYOND };
    let mut asked = Asked::around(starts(client, scope)?, highest.saturating_add(beyond));
    let mut progress = Progress::new("looking at job", Some(highest));
    let mut ids = Vec::new();
    let (mut found, mut width) = (0, NARROWEST);
    'search: while found < count {
        let new = asked.widen(width);
        if new.is_empty() {
            break;
        }
        for range in new {
            progress.add(range.end - range.start);
            for job in jobs_of(client, range.map(JobId))? {
                found += u64::from(scope.tubes.is_empty() || scope.tubes.contains(&job.tube));
                ids.extend(scope.has(&job).then_some(job.id));
            }
            if found >= count {
                break 'search;
            }
        }
        width = (width * 2).min(WIDEST);
    }
    drop(progress);
    ids.sort();
    let missing = match &refused {
        None => 0,
        Some(_) => self::count(client, scope)?.saturating_sub(found),
    };
    if let Some(reply) = refused.filter(|_| missing > 0) {
        complain!(
            "{missing} jobs could not be found: the server takes no job ({reply}), so the \
             highest id is not known"
        );
    }
    Ok((ids, Status::done_if(missing == 0)))
}

/// The ids that were asked for: ranges in order, with others between them.
struct Asked {
    ranges: Vec<Range<u64>>,
    /// The id after the last one that can exist.
    end: u64,
}

impl Asked {
    /// Nothing yet, but to begin at these ids; without any, at the last one.
    fn around(starts: BTreeSet<u64>, highest: u64) -> Asked {
        let end = starts.last().map_or(highest, |last| highest.max(*last));
        let end = end.saturating_add(1);
        let starts = if starts.is_empty() {
            [end].into()
        } else {
            starts
        };
        let ranges = starts.into_iter().map(|id| id..id).collect();
        Asked { ranges, end }
    }

    /// Widens each range in both directions. Returns what is new: nothing if
    /// all ids were asked for.
    fn widen(&mut self, width: u64) -> Vec<Range<u64>> {
        let mut new = Vec::new();
        let mut widened: Vec<Range<u64>> = Vec::new();
        let nexts: Vec<u64> = self.ranges.iter().skip(1).map(|next| next.start).collect();
        let nexts = nexts.into_iter().chain([self.end]);
        for (range, next) in std::mem::take(&mut self.ranges).into_iter().zip(nexts) {
            let least = widened.last().map_or(1, |before| before.end);
            let from = range.start.saturating_sub(width).max(least);
            let to = range.end.saturating_add(width).min(next);
            new.extend([range.end..to, from..range.start]);
            match widened.last_mut().filter(|before| before.end == from) {
                Some(before) => before.end = to,
                None => widened.push(from..to),
            }
        }
        self.ranges = widened;
        new.retain(|range| !range.is_empty());
        new
    }
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
        for state in State::ALL
            .into_iter()
            .filter(|state| facts.jobs_in(&[*state]) > 0)
        {
            ids.extend(first(client, &tube, state)?.map(|job| job.id.0));
        }
    }
    Ok(ids)
}

/// How many jobs the tubes have, in any state.
fn count(client: &mut Client, scope: &Scope) -> Outcome<u64> {
    if scope.tubes.is_empty() {
        return Ok(client.server_stats()?.jobs_in(&State::ALL));
    }
    let mut count = 0;
    for tube in &scope.tubes {
        let facts = client.tube_stats(tube)?;
        count += facts.map_or(0, |facts| facts.jobs_in(&State::ALL));
    }
    Ok(count)
}

/// The highest id that an existing job can have. If the server refuses the job
/// that would prove it, the reply comes with it, and there may be higher ids.
///
/// Without a binlog, ids begin at 1 and each belongs to a `put`, so the number
/// of puts is enough. With a binlog, ids go on from earlier runs. Then a job is
/// put, which tells its id, and is deleted again. If the server accepts no job,
/// the jobs that can be seen tell the least that it can be.
fn highest(client: &mut Client, scope: &Scope) -> Outcome<(u64, Option<Reply>)> {
    let stats = client.server_stats()?;
    let puts = stats.number("cmd-put");
    if stats.get("binlog-current-index") == Some("0") {
        return Ok((puts, None));
    }
    let refused = match probe(client)? {
        Ok(JobId(id)) => return Ok((id, None)),
        Err(reply) => reply,
    };
    let highest = starts(client, scope)?.last().copied().unwrap_or(0);
    Ok((highest.saturating_add(puts), Some(refused)))
}

/// Puts a job, deletes it at once, and returns its id, or the reply with which
/// the server refused the job.
///
/// The tube is `default`, because that exists always: beanstalkd never forgets
/// a tube for which it has refused a job.
pub fn probe(client: &mut Client) -> Outcome<Result<JobId, Reply>> {
    client.use_tube(&TubeName::default())?;
    // The delay is the longest one, so that nobody reserves the job.
    client.queue(format_args!("put {0} {0} 1 0\r\n", u32::MAX));
    let id = match client.reply()? {
        Reply::Inserted(id) | Reply::Buried(Some(id)) => id,
        other => return Ok(Err(other)),
    };
    // If it is missing, somebody has kicked it and a worker has it.
    send_each(client, [id], "delete").map(|_| Ok(id))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_id_is_asked_for_once_those_near_the_first_jobs_at_first() {
        let mut asked = Asked::around([40, 50, 400].into(), 1000);
        assert_eq!(
            asked.widen(4),
            [40..44, 36..40, 50..54, 46..50, 400..404, 396..400]
        );
        assert_eq!(asked.widen(4), [44..46, 32..36, 54..58, 404..408, 392..396]);
        let mut all: Vec<u64> = (32..58).chain(392..408).collect();
        loop {
            let new = asked.widen(100);
            if new.is_empty() {
                break;
            }
            all.extend(new.into_iter().flatten());
        }
        all.sort();
        assert!(all.into_iter().eq(1..=1000));
    }

    #[test]
    fn without_a_first_job_the_newest_ids_come_first() {
        let mut asked = Asked::around(BTreeSet::new(), 10);
        for (width, first, end) in [(4, 7, 11), (40, 1, 7)] {
            assert!(asked.widen(width).into_iter().flatten().eq(first..end));
        }
        assert!(asked.widen(40).is_empty());
    }
}
