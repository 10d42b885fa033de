//! Jobs in batches: reserved without waiting, or peeked at.

use crate::failure::Outcome;
use crate::server::client::{self, Client};
use crate::server::reply::Job;
use crate::server::stats::JobFacts;
use beanpole::protocol::JobId;

/// How many jobs may be in memory at once, going by the bodies seen so far.
#[derive(Default)]
pub struct Room {
    largest: Option<usize>,
}

/// Jobs at once, if their bodies are small.
const MOST: usize = 500;
/// Bytes of bodies at once.
const BYTES: usize = 1 << 24;

impl Room {
    /// Learns from bodies of these sizes.
    pub fn learn(&mut self, sizes: impl Iterator<Item = usize>) {
        self.largest = self.largest.max(sizes.max());
    }

    /// So many jobs; one, as long as nothing is known.
    pub fn jobs(&self) -> usize {
        let largest = self.largest.unwrap_or(BYTES);
        (BYTES / largest.max(1)).clamp(1, MOST)
    }
}

/// Reserves up to so many jobs of those that are ready.
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

/// Those of these jobs that exist, in their order.
pub fn jobs_of(
    client: &mut Client,
    ids: impl IntoIterator<Item = JobId>,
) -> Outcome<Vec<JobFacts>> {
    let mut jobs = Vec::new();
    let line = |id: &JobId| format!("stats-job {id}");
    client.each(ids, line, |id, reply| {
        jobs.extend(client::job_facts(id, reply)?);
        Ok(())
    })?;
    Ok(jobs)
}

/// The bodies of those of these jobs that exist.
pub fn bodies(client: &mut Client, jobs: Vec<JobFacts>) -> Outcome<Vec<(JobFacts, Vec<u8>)>> {
    let mut found = Vec::new();
    let line = |job: &JobFacts| format!("peek {}", job.id);
    client.each(jobs, line, |job, reply| {
        let peeked = client::job(line(&job), reply)?;
        found.extend(peeked.map(|Job { body, .. }| (job, body)));
        Ok(())
    })?;
    Ok(found)
}
