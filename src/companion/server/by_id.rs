//! Acts one by one on jobs that are named by their ids.
//!
//! In the protocol, only the connection that has reserved a job may bury,
//! release or touch it. One run of this program is one connection, so it first
//! reserves the job by its id. This is possible in every state except
//! 'reserved'.

use crate::failure::{Failure, Outcome, Status};
use crate::server::client::{self, Client};
use crate::server::reply::Reply;
use crate::server::stats::{JobFacts, State};
use crate::server::take::jobs_of;
use crate::text::output::{Progress, complain, print};
use beanpole::protocol::{JobId, Priority};
use std::collections::HashSet;

/// Sends a command about each of these jobs, pipelined. Returns the jobs that
/// were not found, or not in a state for the command.
pub fn send_each(
    client: &mut Client,
    ids: impl IntoIterator<Item = JobId>,
    verb: &str,
) -> Outcome<Vec<JobId>> {
    let mut missing = Vec::new();
    let line = |id: &JobId| format!("{verb} {id}");
    client.each(ids, line, |id, reply| {
        let is_done = reply.is_done(format_args!("{verb} {id}"))?;
        missing.extend((!is_done).then_some(id));
        Ok(())
    })?;
    Ok(missing)
}

/// The beginning of a command line that writes these ids, for the commands that
/// read ids.
pub fn as_input(ids: &[JobId]) -> String {
    match ids {
        [JobId(first), .., JobId(last)] if last - first + 1 == ids.len() as u64 => {
            format!("seq {first} {last}")
        }
        _ => {
            let words = ids.iter().map(|id| format!(" {id}"));
            format!("echo{}", words.collect::<String>())
        }
    }
}

/// Does the same, some jobs at a time, and reports those that were missing.
pub fn on_each(client: &mut Client, ids: Vec<JobId>, verb: &'static str) -> Outcome {
    let mut progress = Progress::new(verb, Some(ids.len() as u64));
    let mut all = true;
    for some in ids.chunks(AT_ONCE) {
        let missing = send_each(client, some.iter().copied(), verb)?;
        all &= !complain_of_each(client, missing)?;
        progress.add(some.len() as u64);
    }
    Ok(Status::done_if(all))
}

/// Prints how many of these jobs exist and are not reserved, and reports the
/// others.
pub fn count_free(client: &mut Client, mut ids: Vec<JobId>) -> Outcome {
    ids.sort();
    ids.dedup();
    let mut free = jobs_of(client, ids.iter().copied())?;
    free.retain(|job| job.state != State::Reserved);
    print(format!("{}\n", free.len()))?;
    let free: HashSet<JobId> = free.iter().map(|job| job.id).collect();
    ids.retain(|id| !free.contains(id));
    complain_of_each(client, ids).map(|any| Status::done_if(!any))
}

const AT_ONCE: usize = 1000;

/// Reports why a command could do nothing to these jobs. Returns whether there
/// were any.
pub fn complain_of_each(
    client: &mut Client,
    ids: impl IntoIterator<Item = JobId>,
) -> Outcome<bool> {
    let mut any = false;
    let line = |id: &JobId| format!("stats-job {id}");
    client.each(ids, line, |id, reply| {
        any = true;
        let facts = client::facts(&line(&id), reply)?;
        let reason = why_not(id, facts.as_ref().map(|facts| facts.text("state")));
        complain!("{reason}");
        Ok(())
    })?;
    Ok(any)
}

/// Why nothing could be done to a job that is in this state, or does not exist.
fn why_not(id: JobId, state: Option<&str>) -> String {
    match state {
        None => format!("there is no job {id}"),
        Some("reserved") => {
            format!("job {id} is reserved by another connection, and only that may act on it")
        }
        Some(state) => format!("job {id} is {state}: this is no state for it"),
    }
}

/// Reserves each of these jobs and settles it with these commands. The status
/// tells whether all could be reserved.
pub fn on_each_reserved<L: IntoIterator<Item = String>>(
    client: &mut Client,
    ids: Vec<JobId>,
    lines: impl Fn(&JobFacts) -> L,
) -> Outcome {
    let mut all = true;
    for id in ids {
        match reserve_by_id(client, id)? {
            Ok(job) => settle(client, lines(&job))?,
            Err(reason) => {
                all = false;
                complain!("{reason}");
            }
        }
    }
    Ok(Status::done_if(all))
}

/// Sends these commands together. It is a failure if the server does not carry
/// out one of them.
pub fn settle(client: &mut Client, lines: impl IntoIterator<Item = String>) -> Outcome<()> {
    client.each(lines, String::clone, |line, reply| {
        match reply.is_done(&line)? {
            true => Ok(()),
            false => Err(Failure::unexpected(line, &reply)),
        }
    })
}

/// The commands that make ready a job that this connection has reserved. They
/// bury it first, because a release would count as a failed try for `work
/// --tries`. They are sent together, so that an interruption cannot leave the
/// job buried.
pub fn to_make_ready(id: JobId, Priority(pri): Priority) -> Vec<String> {
    vec![format!("bury {id} {pri}"), format!("kick-job {id}")]
}

/// Reserves this job. Returns its facts from before, or why it cannot be
/// reserved.
pub fn reserve_by_id(client: &mut Client, id: JobId) -> Outcome<Result<JobFacts, String>> {
    let Some(facts) = client.job(id)? else {
        return Ok(Err(why_not(id, None)));
    };
    let line = format!("reserve-job {id}");
    match client.call(&line)? {
        Reply::Reserved(_) => Ok(Ok(facts)),
        Reply::NotFound => Ok(Err(why_not(id, Some("reserved")))),
        other => Err(Failure::unexpected(line, &other)),
    }
}
