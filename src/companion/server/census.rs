//! Finds all jobs of some tubes without touching any.
//!
//! beanpoled lists its jobs. The protocol has no such list, but it answers for
//! any id, and ids are given in ascending order. So, with other servers, a
//! census asks for every id that can exist, newest first. It stops early when
//! it has found as many jobs as the server counts and none has been put
//! meanwhile. At worst it costs one `stats-job` for each id that was ever
//! given. It changes nothing, and it finds every job that exists from beginning
//! to end.
//!
//! To reserve all jobs and release them would be cheaper. But this would keep
//! them from their workers and change their counters. If it were interrupted,
//! buried and delayed jobs would stay ready.

use crate::failure::{Outcome, Status};
use crate::server::by_id::send_each;
use crate::server::client::Client;
use crate::server::list::{self, Scope, Walk};
use crate::server::reply::Reply;
use crate::server::stats::{JobFacts, State};
use crate::server::sweep::Sweep;
use crate::server::take::jobs_of;
use crate::text::output::{Progress, complain};
use beanpole::protocol::{JobId, TubeName};
use std::iter::chain;

/// The result of a census.
#[derive(Default)]
pub struct Census {
    /// The jobs in ascending order of their ids, which is the order in which
    /// they were put.
    pub ids: Vec<JobId>,
    /// How many jobs the server counts that could not be found. This happens
    /// only if the server takes no job and has a binlog.
    pub missing: u64,
    /// The reply with which the server refused a job, if it did.
    pub refused: Option<Reply>,
}

/// How many ids are asked for before the next check whether all jobs are found.
const CHUNK: usize = 10_000;
/// How many ids beyond the known ones are asked for before the census gives up.
const BEYOND: u64 = 10_000_000;

impl Census {
    /// These jobs, of which none is missing.
    pub fn of(ids: Vec<JobId>) -> Census {
        Census {
            ids,
            ..Census::default()
        }
    }

    /// Finds the jobs in this scope that exist now.
    pub fn take(client: &mut Client, scope: &Scope) -> Outcome<Census> {
        let Some(mut walk) = Walk::begin(client, scope)? else {
            return Census::by_ids(client, scope);
        };
        let mut progress = Progress::new("finding jobs", None);
        let mut census = Census::default();
        while !walk.is_over() {
            let jobs = walk.page(client, list::MOST)?;
            progress.add(jobs.len() as u64);
            census.ids.extend(jobs.iter().map(|job| job.id));
        }
        Ok(census)
    }

    /// Does the same on a server that lists no jobs.
    pub fn by_ids(client: &mut Client, scope: &Scope) -> Outcome<Census> {
        let mut ids = Vec::new();
        let (found, refused) = search(client, scope, u64::MAX, |job| {
            ids.extend(scope.states.contains(&job.state).then_some(job.id));
        })?;
        ids.sort();
        let missing = match refused {
            None => 0,
            Some(_) => scope.count(client)?.jobs.saturating_sub(found),
        };
        Ok(Census {
            ids,
            missing,
            refused,
        })
    }

    /// Whether nothing is missing; if something is, this prints a message.
    pub fn verdict(&self) -> Status {
        if let Some(reply) = self.refused.as_ref().filter(|_| self.missing > 0) {
            complain!(
                "{} jobs could not be found: the server takes no job ({reply}), so the \
                 highest id is not known",
                self.missing
            );
        }
        Status::done_if(self.missing == 0)
    }
}

/// Some of the newest jobs of this scope on a server that lists no jobs. No more
/// than this many ids are asked for, and perhaps the rest of a chunk.
pub fn newest(client: &mut Client, scope: &Scope, ids: u64) -> Outcome<Vec<JobFacts>> {
    let mut jobs = Vec::new();
    search(client, scope, ids, |job| jobs.push(job))?;
    Ok(jobs)
}

/// Asks for the ids that can exist, newest first, and gives each job of the
/// scope's tubes in any state. It ends when it has found as many as the server
/// counts, or has asked for so many ids. Returns how many it has found, and the
/// reply with which the server refused a job, if it did.
fn search(
    client: &mut Client,
    scope: &Scope,
    ids: u64,
    mut each: impl FnMut(JobFacts),
) -> Outcome<(u64, Option<Reply>)> {
    let (highest, refused) = highest(client, scope)?;
    // The jobs are counted after the highest id was determined.
    let count = scope.count(client)?;
    // Jobs of the tubes in any state are counted, because a job may change its
    // state meanwhile.
    let mut found = 0;
    let mut progress = Progress::new("looking at job", Some(highest.min(ids)));
    let beyond = if refused.is_none() { 0 } else { BEYOND };
    let downwards = (1..=highest).rev().step_by(CHUNK);
    let downwards = downwards.map(|to| to.saturating_sub(CHUNK as u64 - 1).max(1)..=to);
    let upwards = (highest + 1..=highest + beyond).step_by(CHUNK);
    let upwards = upwards.map(|from| from..=from + CHUNK as u64 - 1);
    let chunks = usize::try_from(ids.div_ceil(CHUNK as u64)).unwrap_or(usize::MAX);
    for chunk in chain(downwards, upwards).take(chunks) {
        // If jobs have been put since the count, one of the found jobs may be
        // newer than the count. Then the number proves nothing.
        if found >= count.jobs && scope.count(client)?.created == count.created {
            break;
        }
        progress.add(chunk.end() - chunk.start() + 1);
        for job in jobs_of(client, chunk.map(JobId))? {
            if scope.tubes.is_empty() || scope.tubes.contains(&job.tube) {
                found += 1;
                each(job);
            }
        }
    }
    Ok((found, refused))
}

/// The job that was put first among those in this scope.
pub fn oldest(client: &mut Client, scope: &Scope) -> Outcome<Option<JobFacts>> {
    if let Some(mut walk) = Walk::begin(client, scope)? {
        return Ok(walk.next(client, list::MOST)?.into_iter().next());
    }
    let census = Census::by_ids(client, scope)?;
    // The first ones may have gone since they were found.
    for id in census.ids {
        if let Some(job) = client.job(id)? {
            return Ok(Some(job));
        }
    }
    Ok(None)
}

/// The server's counts for the tubes.
struct Count {
    /// Jobs that exist, in any state.
    jobs: u64,
    /// Jobs that were ever put.
    created: u64,
}

impl Scope {
    fn count(&self, client: &mut Client) -> Outcome<Count> {
        let mut all = Vec::new();
        if self.tubes.is_empty() {
            all.push(client.server_stats()?);
        }
        for tube in &self.tubes {
            all.extend(client.tube_stats(tube)?);
        }
        Ok(Count {
            jobs: all.iter().map(|facts| facts.jobs_in(&State::ALL)).sum(),
            created: all.iter().map(|facts| facts.number("total-jobs")).sum(),
        })
    }
}

/// The highest id that an existing job can have. If the server refuses the job
/// that would prove it, the reply comes with it, and there may be higher ids.
///
/// Without a binlog, ids begin at 1 and each belongs to a `put`, so the number
/// of puts is enough. With a binlog, ids go on from earlier runs. Then a job is
/// put, which tells its id, and is deleted again. If the server accepts no job,
/// the census begins at the jobs that can be seen.
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
    let tubes = match scope.tubes.as_slice() {
        [] => client.tubes()?,
        some => some.into(),
    };
    let mut highest = 0;
    for tube in tubes {
        for state in State::ALL {
            let first = Sweep::new(tube.clone(), state).first(client)?;
            highest = highest.max(first.map_or(0, |job| job.id.0));
        }
    }
    Ok((highest.saturating_add(puts), Some(refused)))
}

/// Puts a job, deletes it at once, and returns its id, or the reply with which
/// the server refused the job.
///
/// The tube is `default`, because that exists always: beanstalkd never forgets
/// a tube for which it has refused a job.
pub fn probe(client: &mut Client) -> Outcome<Result<JobId, Reply>> {
    client.use_tube(&TubeName::default_tube())?;
    // The delay is the longest one, so that nobody reserves the job.
    client.queue(format_args!("put {0} {0} 1 0\r\n", u32::MAX));
    let id = match client.reply()? {
        Reply::Inserted(id) | Reply::Buried(Some(id)) => id,
        other => return Ok(Err(other)),
    };
    // If it is missing, somebody has kicked it and a worker has it.
    send_each(client, [id], "delete").map(|_| Ok(id))
}
