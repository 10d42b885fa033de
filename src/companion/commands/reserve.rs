//! `reserve`: takes jobs, writes their bodies, and settles them.
//!
//! A job is deleted or buried only after its body has been handed to the
//! system. What is to be released is kept until the end, or the same job would
//! come again at once.

use crate::client::{self, Client, Event, PATIENCE};
use crate::complain;
use crate::failure::{Failure, Outcome, Status};
use crate::invocation::Invocation;
use crate::json::Json;
use crate::output::{self, Output, Progress};
use crate::reply::{Job, Reply};
use crate::stats::{Facts, JobFacts};
use crate::table::{Command, DELAY, Opt, PRIORITY, TUBES};
use crate::take::{Room, reserve_now};
use beanpole::protocol::{JobId, Priority, Seconds, TubeName};
use std::time::{Duration, Instant};

pub const RESERVE: Command = Command {
    name: "reserve",
    about: "take jobs and write their bodies; release, delete or bury them then",
    options: &[
        TUBES,
        Opt::value("n", "count", "N", "take so many (default: 1)"),
        Opt::flag("", "all", "take all that are ready"),
        Opt::value(
            "w",
            "timeout",
            "SECONDS",
            "wait so long for each (default: for ever; --all: 0)",
        ),
        Opt::flag("", "delete", "delete them once their bodies are written"),
        Opt::flag("", "bury", "bury them once their bodies are written"),
        Opt::flag("", "release", "release them at the end (the default)"),
        PRIORITY,
        DELAY,
        BODY_LINES,
        BODY_NULL,
        BODY_JSON,
    ],
    run: reserve,
    ..Command::BLANK
};

pub const BODY_LINES: Opt = Opt::flag("l", "lines", "write a line feed after each body");
pub const BODY_NULL: Opt = Opt::flag("0", "null", "write a NUL after each body");
pub const BODY_JSON: Opt = Opt::flag("j", "json", "write each job as a line of JSON");

/// What is done with a job when its body has been written.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Settle {
    Delete,
    Bury,
    Release,
}

fn reserve(invocation: &Invocation) -> Outcome {
    invocation.no_operands()?;
    invocation.at_most_one(&["delete", "bury", "release"])?;
    invocation.at_most_one(&["count", "all"])?;
    let settle = match (invocation.has("delete"), invocation.has("bury")) {
        (true, _) => Settle::Delete,
        (_, true) => Settle::Bury,
        _ => Settle::Release,
    };
    let all = invocation.has("all");
    let form = Form::of(invocation)?;
    let tubes = match invocation.tubes()? {
        none if none.is_empty() => vec![TubeName::default_tube()],
        some => some,
    };
    let timeout = invocation.seconds("timeout")?.or(all.then_some(Seconds(0)));
    let mut taker = Taker {
        settle,
        priority: invocation.priority()?,
        delay: invocation.seconds("delay")?.unwrap_or(Seconds(0)),
        needs_facts: settle != Settle::Delete || form == Form::Json,
        client: invocation.connect()?,
        held: Vec::new(),
    };
    let wanted = if all {
        u64::MAX
    } else {
        invocation.count("count")?.unwrap_or(1)
    };
    taker.client.watch_only(&tubes)?;
    let mut output = Output::new();
    let mut taken = 0;
    let mut room = Room::default();
    let mut settled = true;
    let mut progress = Progress::beside_output("reserving");
    while taken < wanted {
        let most = usize::try_from(wanted - taken)
            .unwrap_or(usize::MAX)
            .min(room.jobs());
        let batch = taker.take(timeout, most)?;
        if batch.is_empty() {
            break;
        }
        for (job, facts) in &batch {
            form.write(&mut output, job, facts.as_ref())?;
        }
        output.sync()?;
        taken += batch.len() as u64;
        progress.add(batch.len() as u64);
        room.learn(batch.iter().map(|(job, _)| job.body.len()));
        settled &= taker.settle(batch)?;
    }
    drop(progress);
    settled &= taker.release_held()?;
    Ok(Status::done_if(
        settled && if all { taken > 0 } else { taken == wanted },
    ))
}

type Taken = (Job, Option<Facts>);

struct Taker {
    client: Client,
    settle: Settle,
    /// The priority with which jobs are buried or released, if not their own.
    priority: Option<Priority>,
    delay: Seconds,
    needs_facts: bool,
    /// What is to be released at the end, with the priority for that.
    held: Vec<(JobId, Priority)>,
}

impl Taker {
    /// Reserves up to so many jobs: waits for the first as long as told, and
    /// takes what else is there. None: there was no job, or they begin again.
    fn take(&mut self, timeout: Option<Seconds>, most: usize) -> Outcome<Vec<Taken>> {
        let Some(first) = self.wait_for_one(timeout)? else {
            return Ok(Vec::new());
        };
        let mut jobs = vec![first];
        jobs.extend(reserve_now(&mut self.client, most - 1)?);
        let again = |job: &Job| self.held.iter().any(|(id, _)| *id == job.id);
        let fresh = jobs.iter().position(again).unwrap_or(jobs.len());
        jobs.truncate(fresh);
        self.with_facts(jobs)
    }

    fn wait_for_one(&mut self, timeout: Option<Seconds>) -> Outcome<Option<Job>> {
        let until = timeout.map(|Seconds(s)| Instant::now() + Duration::from_secs(s.into()));
        loop {
            match until {
                None => self.client.queue("reserve"),
                Some(until) => {
                    let left = until.saturating_duration_since(Instant::now());
                    let seconds = left.as_millis().div_ceil(1000);
                    self.client
                        .queue(format_args!("reserve-with-timeout {seconds}"));
                }
            }
            let Event::Reply(reply) = self.client.wait(until.map(|until| until + PATIENCE), &[])?
            else {
                let asked = self.client.address();
                return Err(Failure::Unreachable(format!(
                    "{asked}: no reply to reserve"
                )));
            };
            match self.client.understand(reply)? {
                Reply::Reserved(job) => return Ok(Some(job)),
                Reply::TimedOut => return Ok(None),
                // A job that is to be released at the end needs more time.
                Reply::DeadlineSoon => {
                    self.touch_held()?;
                    std::thread::sleep(Duration::from_millis(100));
                }
                other => return Err(Failure::unexpected("reserve", &other)),
            }
        }
    }

    fn touch_held(&mut self) -> Outcome<()> {
        for (id, _) in &self.held {
            self.client.queue(format_args!("touch {id}"));
        }
        for (id, _) in &self.held {
            match self.client.reply()? {
                Reply::Touched | Reply::NotFound => {}
                other => return Err(Failure::unexpected(format_args!("touch {id}"), &other)),
            }
        }
        Ok(())
    }

    fn with_facts(&mut self, jobs: Vec<Job>) -> Outcome<Vec<Taken>> {
        if !self.needs_facts {
            return Ok(jobs.into_iter().map(|job| (job, None)).collect());
        }
        for job in &jobs {
            self.client.queue(format_args!("stats-job {}", job.id));
        }
        let mut taken = Vec::new();
        for job in jobs {
            let asked = format!("stats-job {}", job.id);
            let reply = self.client.reply()?;
            taken.push((job, client::facts(&asked, reply)?));
        }
        Ok(taken)
    }

    /// Deletes or buries a batch, or remembers it for later. Whether all were
    /// still ours.
    fn settle(&mut self, batch: Vec<Taken>) -> Outcome<bool> {
        let mut ids = Vec::new();
        for (job, facts) in batch {
            let own = facts
                .and_then(|facts| JobFacts::read(&facts).ok())
                .map(|facts| facts.priority);
            let priority = self
                .priority
                .or(own)
                .unwrap_or(super::put::DEFAULT_PRIORITY);
            let Priority(pri) = priority;
            match self.settle {
                Settle::Delete => self.client.queue(format_args!("delete {}", job.id)),
                Settle::Bury => self.client.queue(format_args!("bury {} {pri}", job.id)),
                Settle::Release => {
                    self.held.push((job.id, priority));
                    continue;
                }
            }
            ids.push(job.id);
        }
        self.settled(&ids)
    }

    fn release_held(&mut self) -> Outcome<bool> {
        let held = std::mem::take(&mut self.held);
        for (id, Priority(pri)) in &held {
            self.client
                .queue(format_args!("release {id} {pri} {}", self.delay.0));
        }
        self.settled(&held.into_iter().map(|(id, _)| id).collect::<Vec<_>>())
    }

    fn settled(&mut self, ids: &[JobId]) -> Outcome<bool> {
        let mut all = true;
        for id in ids {
            match self.client.reply()? {
                Reply::Deleted | Reply::Buried(_) | Reply::Released => {}
                Reply::NotFound => {
                    all = false;
                    complain(format_args!(
                        "beanpole reserve: job {id}: its time to run was over before it was settled"
                    ));
                }
                other => return Err(Failure::unexpected(format_args!("job {id}"), &other)),
            }
        }
        Ok(all)
    }
}

/// How jobs are written.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// The bodies and nothing else. On a terminal each ends its line.
    Exact,
    /// Each body, and this byte.
    Ended(u8),
    /// A line of JSON: the facts and the body.
    Json,
}

impl Form {
    /// The form that these options ask for.
    pub fn of(invocation: &Invocation) -> Outcome<Form> {
        invocation.at_most_one(&["lines", "null"])?;
        invocation.at_most_one(&["lines", "json"])?;
        invocation.at_most_one(&["null", "json"])?;
        Ok(
            match (
                invocation.has("lines"),
                invocation.has("null"),
                invocation.has("json"),
            ) {
                (true, ..) => Form::Ended(b'\n'),
                (_, true, _) => Form::Ended(b'\0'),
                (.., true) => Form::Json,
                _ => Form::Exact,
            },
        )
    }

    /// Writes a job. JSON needs its facts, if they are still to be had.
    pub fn write(self, output: &mut Output, job: &Job, facts: Option<&Facts>) -> Outcome<()> {
        match self {
            Form::Exact => {
                output.bytes(&job.body)?;
                if output::is_terminal() && !job.body.ends_with(b"\n") {
                    output.bytes(b"\n")?;
                }
                Ok(())
            }
            Form::Ended(end) => {
                output.bytes(&job.body)?;
                output.bytes(&[end])
            }
            Form::Json => output.line(job_to_json(job, facts)),
        }
    }
}

/// A job as JSON.
pub fn job_to_json(job: &Job, facts: Option<&Facts>) -> Json {
    let mut pairs = match facts.map(Facts::to_json) {
        Some(Json::Object(pairs)) => pairs,
        _ => vec![("id".into(), Json::number(job.id.0))],
    };
    pairs.push(Json::body(&job.body));
    Json::Object(pairs)
}
