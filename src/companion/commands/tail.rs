//! `tail`: shows jobs as they are put, without touching them.
//!
//! Ids are given in ascending order. So new jobs are found by asking for the
//! ids after the last known one; the server's count of jobs says how many. To
//! learn the first id, a job is put and deleted again; it is delayed, so that
//! nobody gets it. A server that has no room for it has none for others: then
//! we wait until its count of jobs grows. A job that is put and deleted between
//! two looks is not seen.

use crate::command::{Interval, Invocation, Run, Tubes};
use crate::failure::{Failure, Outcome, Status};
use crate::server::client::Client;
use crate::server::finder::probe;
use crate::server::form::job_to_json;
use crate::server::reply::Reply;
use crate::server::stats::JobFacts;
use crate::server::take::{bodies, jobs_of};
use crate::server::tubes::Patterns;
use crate::text::output::{Output, complain};
use crate::text::words::shown;
use crate::values::parse;
use beanpole::protocol::JobId;
use clap::Args;
use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU64;
use std::time::{Duration, Instant};

#[derive(Args)]
pub struct Tail {
    #[command(flatten)]
    tubes: Tubes,
    /// stop after N jobs
    #[arg(short = 'n', long, value_name = "N", value_parser = parse::<NonZeroU64>)]
    count: Option<NonZeroU64>,
    /// look so often (default: 0.2)
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
/// How many ids are asked for together.
const CHUNK: u64 = 5000;
/// An id may have no job yet because the body is still on its way. `LOOKS` is
/// how many times such an id is looked at, and `GAPS` how many of them are
/// remembered.
const LOOKS: u32 = 10;
const GAPS: usize = 100;

impl Run for Tail {
    fn run(self, invocation: &Invocation) -> Outcome {
        let interval = self.interval.map_or(USUAL_INTERVAL, |Interval(time)| time);
        let mut left = self.count.map_or(u64::MAX, NonZeroU64::get);
        let mut client = invocation.connect()?;
        let mut follower = Follower::new(&mut client, self.tubes.patterns(), interval)?;
        let mut output = Output::new();
        loop {
            for (job, body) in follower.look(&mut client)? {
                match self.json {
                    true => output.json(&job_to_json(job.id, Some(&job.all), &body))?,
                    false => output.line(line(&job, &body))?,
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

/// A job in one line, whatever bytes its body has.
fn line(job: &JobFacts, body: &[u8]) -> String {
    let text = shown(body, false);
    let state = job.state.name();
    format!(
        "{} {} {state} pri={} delay={} ttr={} bytes={} {text}",
        job.id,
        job.tube,
        job.priority.0,
        job.delay.0,
        job.ttr.0,
        body.len(),
    )
}

struct Follower {
    /// The tubes whose jobs are shown.
    tubes: Patterns,
    /// The first id that has not been asked for.
    next: u64,
    /// An id and a count of jobs: when the server had counted so many jobs, the
    /// next job could not have a lower id. Each job since then has used up at
    /// least one id.
    base: (u64, u64),
    /// Ids below `next` whose jobs may still come, and how many looks each has
    /// left. The body of such a job was on its way when a later job was
    /// complete.
    gaps: BTreeMap<u64, u32>,
    /// All jobs from this id on are new. One before it is new if it was put
    /// after `started`.
    first: u64,
    started: Instant,
}

impl Follower {
    fn new(client: &mut Client, tubes: Patterns, interval: Duration) -> Outcome<Follower> {
        let started = Instant::now();
        let before = count(client)?;
        let mut now = before;
        let id = loop {
            match probe(client)? {
                Ok(JobId(id)) => break id,
                Err(Reply::Draining) => {
                    return Failure::refused("the server is draining: no jobs will come");
                }
                Err(reply) => {
                    complain!("the server takes no job now ({reply}); waiting until it does")
                }
            }
            let refused_at = now;
            while now == refused_at {
                std::thread::sleep(interval);
                now = count(client)?;
            }
        };
        // The jobs for which we waited were put before ours.
        let waited_for = now - before.min(now);
        let next = match waited_for {
            0 => id + 1,
            jobs => id.saturating_sub(jobs + SLACK).max(1),
        };
        Ok(Follower {
            tubes,
            next,
            base: (id + 1, count(client)?),
            gaps: BTreeMap::new(),
            first: id + 1,
            started,
        })
    }

    /// The lowest id that the next job can have when the server has counted
    /// this many jobs.
    fn least_next(&self, created: u64) -> u64 {
        self.base
            .0
            .saturating_add(created.saturating_sub(self.base.1))
    }

    /// The jobs that are new since the last look.
    fn look(&mut self, client: &mut Client) -> Outcome<Vec<(JobFacts, Vec<u8>)>> {
        let least = self.least_next(count(client)?);
        let mut ids: Vec<u64> = self.gaps.keys().copied().collect();
        let mut from = self.next;
        let end = if least > from {
            least.saturating_add(SLACK)
        } else {
            from
        };
        let mut seen = BTreeSet::new();
        let mut found = Vec::new();
        while from < end || !ids.is_empty() {
            let to = end.min(from.saturating_add(CHUNK));
            ids.extend(from..to);
            from = to;
            let mut jobs = jobs_of(client, ids.drain(..).map(JobId))?;
            seen.extend(jobs.iter().map(|job| job.id.0));
            let since = self.started.elapsed().as_secs();
            jobs.retain(|job| job.id.0 >= self.first || job.age <= since);
            jobs.retain(|job| self.tubes.mean(&job.tube));
            found.extend(bodies(client, jobs)?);
        }
        let behind_last = seen.last().map_or(0, |last| last + 1);
        self.advance(least.max(behind_last), &seen);
        if behind_last > least {
            // These jobs may have been put after the count, or ids may have
            // been used up without a job. A new count tells which.
            let surely = self.least_next(count(client)?);
            self.base.0 += behind_last.saturating_sub(surely);
        }
        Ok(found)
    }

    /// Moves on to this id, and remembers the ids before it that had no job.
    fn advance(&mut self, next: u64, seen: &BTreeSet<u64>) {
        self.gaps.retain(|id, looks| {
            *looks -= 1;
            *looks > 0 && !seen.contains(id)
        });
        let newest = next.saturating_sub(GAPS as u64).max(self.next);
        self.gaps.extend(
            (newest..next)
                .filter(|id| !seen.contains(id))
                .map(|id| (id, LOOKS)),
        );
        while self.gaps.len() > GAPS {
            self.gaps.pop_first();
        }
        self.next = self.next.max(next);
    }
}

/// How many jobs the server has counted since it started.
fn count(client: &mut Client) -> Outcome<u64> {
    Ok(client.server_stats()?.number("total-jobs"))
}
