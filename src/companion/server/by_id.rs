//! Acts one by one on jobs that are named by their ids.
//!
//! In the protocol, only the connection that has reserved a job may bury,
//! release or touch it. One run of this program is one connection, so it first
//! reserves the job by its id. This is possible in every state except
//! 'reserved'.

use crate::failure::{Failure, Outcome, Status};
use crate::server::client::Client;
use crate::server::reply::Reply;
use crate::server::stats::JobFacts;
use crate::text::output::{Progress, complain};
use beanpole::protocol::{JobId, Priority};

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

/// Does the same, some jobs at a time, and reports those that were missing.
pub fn on_each(client: &mut Client, ids: Vec<JobId>, verb: &'static str) -> Outcome {
    let mut progress = Progress::new(verb, None);
    let mut all = true;
    for some in ids.chunks(AT_ONCE) {
        for id in send_each(client, some.iter().copied(), verb)? {
            all = false;
            complain_of_missing(verb, id);
        }
        progress.add(some.len() as u64);
    }
    Ok(Status::done_if(all))
}

const AT_ONCE: usize = 1000;

/// Reports that a command did not find this job.
pub fn complain_of_missing(verb: &str, id: JobId) {
    complain(format_args!(
        "beanpole {verb}: job {id}: not found, or not in a state for this"
    ));
}

/// Reserves each of these jobs and settles it with these commands. The status
/// tells whether all could be reserved.
pub fn on_each_reserved<L: IntoIterator<Item = String>>(
    client: &mut Client,
    ids: Vec<JobId>,
    verb: &str,
    lines: impl Fn(&JobFacts) -> L,
) -> Outcome {
    let mut all = true;
    for id in ids {
        match reserve_by_id(client, id)? {
            Ok(job) => settle(client, lines(&job))?,
            Err(reason) => {
                all = false;
                complain(format_args!("beanpole {verb}: {reason}"));
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
        return Ok(Err(format!("there is no job {id}")));
    };
    let line = format!("reserve-job {id}");
    match client.call(&line)? {
        Reply::Reserved(_) => Ok(Ok(facts)),
        Reply::NotFound => Ok(Err(format!(
            "job {id} is reserved by another connection, and only that may act on it"
        ))),
        other => Err(Failure::unexpected(line, &other)),
    }
}
