//! How long the next ready job of each tube has been there.
//!
//! With equal priorities the next job is the oldest one; the protocol tells no
//! other age. It takes looking at the job, body and all.

use crate::client::{Client, job_facts};
use crate::failure::{Failure, Outcome};
use crate::reply::Reply;
use crate::stats::JobFacts;
use beanpole::protocol::TubeName;

/// The next ready job of each of these tubes that has one, in their order.
pub fn next_ready(client: &mut Client, tubes: &[TubeName]) -> Outcome<Vec<JobFacts>> {
    let mut lines = tubes
        .iter()
        .flat_map(|tube| [format!("use {tube}"), "peek-ready".into()]);
    let mut ids = Vec::new();
    client.pipeline(
        |client| Ok(lines.next().inspect(|line| client.queue(line))),
        |line, reply| {
            match reply {
                Reply::Found(job) => ids.push(job.id),
                Reply::Using(_) | Reply::NotFound => {}
                other => return Err(Failure::unexpected(line, &other)),
            }
            Ok(())
        },
    )?;
    let mut ids = ids.into_iter();
    let mut jobs = Vec::new();
    client.pipeline(
        |client| {
            Ok(ids
                .next()
                .inspect(|id| client.queue(format_args!("stats-job {id}"))))
        },
        |id, reply| {
            jobs.extend(job_facts(id, reply)?);
            Ok(())
        },
    )?;
    Ok(jobs)
}
