//! Jobs that are named by their ids, acted on one by one.
//!
//! The protocol lets only the connection that has reserved a job bury, release
//! or touch it. One run of this program is one connection; so it reserves the
//! job by its id first, which every state allows but 'reserved'.

use crate::failure::{Failure, Outcome, Status};
use crate::server::client::Client;
use crate::server::reply::Reply;
use crate::server::stats::JobFacts;
use crate::text::output::{Progress, complain};
use beanpole::protocol::{JobId, Priority};

/// Sends a command about each of these jobs, pipelined: those that were not
/// found, or not in a state for it. All others have got the good reply.
pub fn send_each(
    client: &mut Client,
    ids: impl IntoIterator<Item = JobId>,
    verb: &str,
    good: &Reply,
) -> Outcome<Vec<JobId>> {
    let mut missing = Vec::new();
    let line = |id: &JobId| format!("{verb} {id}");
    client.each(ids, line, |id, reply| match reply {
        reply if reply == *good => Ok(()),
        Reply::NotFound => {
            missing.push(id);
            Ok(())
        }
        other => Err(Failure::unexpected(line(&id), &other)),
    })?;
    Ok(missing)
}

/// The same, some at a time, and says which were missing.
pub fn on_each(client: &mut Client, ids: Vec<JobId>, verb: &'static str, good: &Reply) -> Outcome {
    let mut progress = Progress::new(verb, None);
    let mut all = true;
    for some in ids.chunks(AT_ONCE) {
        for id in send_each(client, some.iter().copied(), verb, good)? {
            all = false;
            complain(format_args!(
                "beanpole {verb}: job {id}: not found, or not in a state for this"
            ));
        }
        progress.add(some.len() as u64);
    }
    Ok(Status::done_if(all))
}

const AT_ONCE: usize = 1000;

/// Reserves each of these jobs and acts on it.
pub fn on_each_reserved(
    client: &mut Client,
    ids: Vec<JobId>,
    verb: &str,
    mut act: impl FnMut(&mut Client, &JobFacts) -> Outcome<()>,
) -> Outcome {
    let mut all = true;
    for id in ids {
        match reserve_by_id(client, id)? {
            Ok(job) => act(client, &job)?,
            Err(reason) => {
                all = false;
                complain(format_args!("beanpole {verb}: {reason}"));
            }
        }
    }
    Ok(Status::done_if(all))
}

/// Makes a job that this connection has reserved ready, by way of a burial: a
/// release would count as a failed try with `work --tries`. Both are sent
/// together, so that nobody who stops us leaves the job buried.
pub fn make_ready(client: &mut Client, id: JobId, priority: Priority) -> Outcome<()> {
    let lines = [
        format!("bury {id} {}", priority.0),
        format!("kick-job {id}"),
    ];
    client.each(lines, String::clone, |line, reply| match reply {
        Reply::Buried(_) | Reply::Kicked(_) => Ok(()),
        other => Err(Failure::unexpected(line, &other)),
    })
}

/// Reserves this job and says what it was before, or why it cannot be had.
pub fn reserve_by_id(client: &mut Client, id: JobId) -> Outcome<Result<JobFacts, String>> {
    let Some(facts) = client.job(id)? else {
        return Ok(Err(format!("there is no job {id}")));
    };
    match client.call(format_args!("reserve-job {id}"))? {
        Reply::Reserved(_) => Ok(Ok(facts)),
        Reply::NotFound => Ok(Err(format!(
            "job {id} is reserved by another connection, and only that may act on it"
        ))),
        other => Err(Failure::unexpected(
            format_args!("reserve-job {id}"),
            &other,
        )),
    }
}
