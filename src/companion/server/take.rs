//! Takes jobs in batches: reserves them without waiting, or peeks at them.

use crate::failure::Outcome;
use crate::server::client::{self, Client};
use crate::server::reply::Job;
use crate::server::stats::JobFacts;
use beanpole::protocol::JobId;
use std::borrow::Borrow;

/// Decides how many jobs may be in memory at once, by the bodies seen up to
/// now.
#[derive(Default)]
pub struct Room {
    largest: Option<usize>,
}

/// The number of jobs at once if their bodies are small.
const MOST: usize = 500;
/// The number of bytes of bodies at once.
const BYTES: usize = 1 << 24;

impl Room {
    /// Learns from bodies of these sizes.
    pub fn learn(&mut self, sizes: impl Iterator<Item = usize>) {
        self.largest = self.largest.max(sizes.max());
    }

    /// How many jobs may be in memory at once: one, until a body has been seen.
    pub fn jobs(&self) -> usize {
        let largest = self.largest.unwrap_or(BYTES);
        (BYTES / largest.max(1)).clamp(1, MOST)
    }
}

/// Reserves up to `most` of the jobs that are ready.
pub fn reserve_now(client: &mut Client, most: usize) -> Outcome<Vec<Job>> {
    const LINE: &str = "reserve-with-timeout 0";
    let mut jobs = Vec::new();
    client.each(
        std::iter::repeat_n(LINE, most),
        |line| String::from(*line),
        |line, reply| {
            jobs.extend(client::job(line, reply)?);
            Ok(())
        },
    )?;
    Ok(jobs)
}

/// The facts of the jobs among these that exist, in the given order.
pub fn jobs_of(
    client: &mut Client,
    ids: impl IntoIterator<Item = JobId>,
) -> Outcome<Vec<JobFacts>> {
    let mut found = Vec::new();
    let line = |id: &JobId| format!("stats-job {id}");
    client.each(ids, line, |id, reply| {
        found.extend(client::facts(&line(&id), reply)?);
        Ok(())
    })?;
    let known = found.into_iter().map(|facts| client.known(facts));
    known.filter_map(Outcome::transpose).collect()
}

/// Gives those of these jobs that still exist, each with its body, in order.
pub fn each_body<J: Borrow<JobFacts>>(
    client: &mut Client,
    jobs: impl IntoIterator<Item = J>,
    mut each: impl FnMut(J, Vec<u8>) -> Outcome<()>,
) -> Outcome<()> {
    let line = |job: &J| format!("peek {}", job.borrow().id);
    client.each(jobs, line, |job, reply| {
        match client::job(line(&job), reply)? {
            Some(found) => each(job, found.body),
            None => Ok(()),
        }
    })
}

/// The jobs among these that still exist, with their bodies.
pub fn bodies(client: &mut Client, jobs: Vec<JobFacts>) -> Outcome<Vec<(JobFacts, Vec<u8>)>> {
    let mut found = Vec::new();
    each_body(client, jobs, |job, body| {
        found.push((job, body));
        Ok(())
    })?;
    Ok(found)
}

/// Adds to these jobs how large their bodies are, unless the server has told it.
pub fn measure(client: &mut Client, jobs: &mut [JobFacts]) -> Outcome<()> {
    let unknown = jobs.iter_mut().filter(|job| job.all.get("size").is_none());
    each_body(client, unknown, |job, body| {
        job.all.add_missing("size", body.len());
        Ok(())
    })
}
