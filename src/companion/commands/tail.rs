//! `tail`: shows jobs as they are put, without touching them.
//!
//! Ids are given in ascending order. So new jobs are found by asking for the
//! ids after the last known one; the server's count of jobs says how many. To
//! learn the first id, a job is put and deleted again; it is delayed, so that
//! no worker gets it. A server that has no room for it has none for others. A job that
//! is put and deleted between two polls is not seen.

use crate::command::{Interval, Invocation, Run, Tubes};
use crate::failure::{Failure, Outcome, Status};
use crate::remote::finder::{bodies, jobs_of, probe};
use crate::remote::form::job_to_json;
use crate::remote::{Client, JobFacts, Patterns};
use crate::text::{Output, shown};
use crate::values::{Count, parse};
use beanpole::protocol::JobId;
use clap::Args;
use std::collections::BTreeSet;
use std::time::Duration;

#[derive(Args)]
pub struct Tail {
    #[command(flatten)]
    tubes: Tubes,
    /// stop after N jobs
    #[arg(short = 'n', long, value_name = "N", value_parser = parse::<Count>)]
    count: Option<Count>,
    /// the time between two polls (default: 0.2)
    #[arg(short, long, value_name = "TIME", value_parser = parse::<Interval>)]
    interval: Option<Interval>,
    /// write each job as a line of JSON
    #[arg(short, long)]
    json: bool,
}

const USUAL_INTERVAL: Duration = Duration::from_millis(200);
/// How many ids beyond the expected ones are asked for, because a refused `put`
/// may use up an id.
const SLACK: u64 = 32;
/// How many ids before the next one are asked for again, unless a job had them: its
/// body may have been on its way when a later job was complete.
const BEHIND: u64 = 100;

impl Run for Tail {
    fn run(self, invocation: &Invocation) -> Outcome {
        let interval = self.interval.map_or(USUAL_INTERVAL, |Interval(time)| time);
        let mut left = Count::most(self.count);
        let mut client = invocation.connect()?;
        let mut follower = Follower::new(&mut client, self.tubes.patterns())?;
        let mut output = Output::new();
        loop {
            for (job, body) in follower.poll(&mut client)? {
                if self.json {
                    output.json(&job_to_json(job.id, Some(&job.all), &body))?
                } else {
                    let (id, tube, state, size) = (job.id, &job.tube, job.state.name(), body.len());
                    let (pri, delay, ttr, body) =
                        (job.priority.0, job.delay.0, job.ttr.0, shown(&body, false));
                    output.line(format_args!(
                        "{id} {tube} {state} pri={pri} delay={delay} ttr={ttr} bytes={size} {body}"
                    ))?
                }
                left -= 1;
                if left == 0 {
                    output.sync()?;
                    return Ok(Status::Done);
                }
            }
            output.sync()?;
            std::thread::sleep(interval);
        }
    }
}

struct Follower {
    /// The tubes whose jobs are shown.
    tubes: Patterns,
    /// The first id that is asked for.
    first: u64,
    /// The first id that no job had at the last poll, as far as is known.
    next: u64,
    /// An id and a count of jobs: when the server had counted this number of jobs, the
    /// next job could not have a lower id. Each job since then has used up at
    /// least one id.
    base: (u64, u64),
    /// The ids of jobs that were seen, among those that would be asked for again.
    seen: BTreeSet<u64>,
    /// The count at the last poll.
    counted: u64,
}

impl Follower {
    fn new(client: &mut Client, tubes: Patterns) -> Outcome<Follower> {
        let counted = count(client)?;
        let refused = |reply| Failure::unexpected("the job that tells the latest id", &reply);
        let first = probe(client)?.map_err(refused)?.0 + 1;
        Ok(Follower {
            tubes,
            first,
            next: first,
            base: (first, count(client)?),
            seen: BTreeSet::new(),
            counted,
        })
    }

    /// The lowest id that the next job can have when the server has counted
    /// this many jobs.
    fn least_next(&self, created: u64) -> u64 {
        let since = created.saturating_sub(self.base.1);
        self.base.0.saturating_add(since)
    }

    /// The jobs that are new since the last poll.
    fn poll(&mut self, client: &mut Client) -> Outcome<Vec<(JobFacts, Vec<u8>)>> {
        let created = count(client)?;
        if std::mem::replace(&mut self.counted, created) == created {
            return Ok(Vec::new());
        }
        let least = self.least_next(created);
        let end = least.max(self.next).saturating_add(SLACK);
        let from = self.next.saturating_sub(BEHIND).max(self.first);
        let ids = (from..end).filter(|id| !self.seen.contains(id));
        let mut jobs = jobs_of(client, ids.map(JobId))?;
        self.seen.extend(jobs.iter().map(|job| job.id.0));
        let after = self.seen.last().map_or(0, |last| last + 1);
        if after > least {
            // These jobs may have been put after the count, or ids may have
            // been used up without a job. A new count decides that.
            let surely = self.least_next(count(client)?);
            self.base.0 += after.saturating_sub(surely);
        }
        self.next = self.next.max(least).max(after);
        self.seen = self.seen.split_off(&self.next.saturating_sub(BEHIND));
        jobs.retain(|job| self.tubes.mean(&job.tube));
        bodies(client, jobs)
    }
}

/// How many jobs the server has counted since it started.
fn count(client: &mut Client) -> Outcome<u64> {
    Ok(client.server_stats()?.number("total-jobs"))
}
