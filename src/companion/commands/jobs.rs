//! Commands on jobs named by their ids: `delete`, `kick-job`, `bury`,
//! `release`, `touch`.
//!
//! The protocol lets only the connection that has reserved a job bury, release
//! or touch it. One run of this program is one connection; so these three
//! reserve the job by its id first, which every state allows but 'reserved'.

use crate::client::{Client, Event};
use crate::complain;
use crate::failure::{Failure, Outcome, Status};
use crate::invocation::Invocation;
use crate::output::{Output, Progress};
use crate::reply::Reply;
use crate::signals::{Calls, SIGINT, SIGTERM};
use crate::stats::{JobFacts, State};
use crate::table::{Command, DELAY, Opt, PRIORITY};
use beanpole::protocol::{JobId, Seconds};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

pub const DELETE: Command = Command {
    name: "delete",
    operands: "ID…",
    about: "delete jobs",
    run: |invocation| on_each(invocation, "delete", Reply::Deleted),
    ..Command::BLANK
};

pub const KICK_JOB: Command = Command {
    name: "kick-job",
    operands: "ID…",
    about: "make buried or delayed jobs ready",
    run: |invocation| on_each(invocation, "kick-job", Reply::Kicked(None)),
    ..Command::BLANK
};

pub const BURY: Command = Command {
    name: "bury",
    operands: "ID…",
    about: "bury jobs",
    options: &[PRIORITY],
    run: bury,
    ..Command::BLANK
};

pub const RELEASE: Command = Command {
    name: "release",
    operands: "ID…",
    about: "make jobs ready, or delayed, with a new priority if wanted",
    options: &[PRIORITY, DELAY],
    run: release,
    ..Command::BLANK
};

pub const TOUCH: Command = Command {
    name: "touch",
    operands: "ID…",
    about: "reserve jobs and touch them until interrupted, then give them back",
    options: &[Opt::value("", "for", "SECONDS", "only for so long")],
    run: touch,
    ..Command::BLANK
};

/// Sends a command for each id, pipelined.
fn on_each(invocation: &Invocation, verb: &'static str, good: Reply) -> Outcome {
    let mut ids = invocation.ids()?.into_iter();
    let mut client = invocation.connect()?;
    let mut progress = Progress::new(verb, None);
    let mut all = true;
    client.pipeline(
        |client| {
            Ok(ids
                .next()
                .inspect(|id| client.queue(format_args!("{verb} {id}"))))
        },
        |id, reply| {
            progress.add(1);
            match reply {
                reply if reply == good => {}
                Reply::NotFound => {
                    all = false;
                    complain(format_args!(
                        "beanpole {verb}: job {id}: not found, or not in a state for this"
                    ));
                }
                other => return Err(Failure::unexpected(format_args!("{verb} {id}"), &other)),
            }
            Ok(())
        },
    )?;
    Ok(Status::done_if(all))
}

fn bury(invocation: &Invocation) -> Outcome {
    let priority = invocation.priority()?;
    on_each_reserved(invocation, "bury", |client, job| {
        let priority = priority.unwrap_or(job.priority);
        match client.call(format_args!("bury {} {}", job.id, priority.0))? {
            Reply::Buried(_) => Ok(()),
            other => Err(Failure::unexpected(format_args!("bury {}", job.id), &other)),
        }
    })
}

fn release(invocation: &Invocation) -> Outcome {
    let priority = invocation.priority()?;
    let delay = invocation.seconds("delay")?.unwrap_or(Seconds(0));
    on_each_reserved(invocation, "release", |client, job| {
        let priority = priority.unwrap_or(job.priority);
        match client.call(format_args!(
            "release {} {} {}",
            job.id, priority.0, delay.0
        ))? {
            Reply::Released => Ok(()),
            other => Err(Failure::unexpected(
                format_args!("release {}", job.id),
                &other,
            )),
        }
    })
}

fn on_each_reserved(
    invocation: &Invocation,
    verb: &str,
    mut act: impl FnMut(&mut Client, &JobFacts) -> Outcome<()>,
) -> Outcome {
    let ids = invocation.ids()?;
    let mut client = invocation.connect()?;
    let mut all = true;
    for id in ids {
        match reserve_by_id(&mut client, id)? {
            Ok(job) => act(&mut client, &job)?,
            Err(reason) => {
                all = false;
                complain(format_args!("beanpole {verb}: {reason}"));
            }
        }
    }
    Ok(Status::done_if(all))
}

/// Reserves this job and says what it was before, or why it cannot be had.
fn reserve_by_id(client: &mut Client, id: JobId) -> Outcome<Result<JobFacts, String>> {
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

/// Holds jobs: the only thing that a program of its own connection can touch
/// is what it has reserved itself.
fn touch(invocation: &Invocation) -> Outcome {
    let until = invocation
        .seconds("for")?
        .map(|Seconds(s)| Instant::now() + Duration::from_secs(s.into()));
    let ids = invocation.ids()?;
    let mut signals = Calls::by_signals(&[SIGINT, SIGTERM])?;
    let mut client = invocation.connect()?;
    let mut output = Output::new();
    let mut all = true;
    let mut held = Vec::new();
    for id in ids {
        match reserve_by_id(&mut client, id)? {
            Ok(job) => {
                output.line(format_args!("holding job {id}"))?;
                output.sync()?;
                held.push(job);
            }
            Err(reason) => {
                all = false;
                complain(format_args!("beanpole touch: {reason}"));
            }
        }
    }
    let since = Instant::now();
    while let Some(ttr) = held.iter().map(|job| job.ttr.0.max(1)).min() {
        let next = Instant::now() + Duration::from_secs(ttr.into()) / 3;
        let pause_until = until.map_or(next, |until| until.min(next));
        if let Event::Reply(reply) = client.wait(Some(pause_until), &[signals.as_fd()])? {
            let reply = client.understand(reply)?;
            return Err(Failure::unexpected("nothing was asked", &reply));
        }
        if signals.take() || until.is_some_and(|until| until <= Instant::now()) {
            break;
        }
        for job in &held {
            client.queue(format_args!("touch {}", job.id));
        }
        let mut kept = Vec::new();
        for job in held {
            match client.reply()? {
                Reply::Touched => kept.push(job),
                other => {
                    all = false;
                    let lost = Failure::unexpected(format_args!("touch {}", job.id), &other);
                    complain(format_args!("beanpole touch: {lost}"));
                }
            }
        }
        held = kept;
    }
    for job in &held {
        give_back(&mut client, job, since.elapsed())?;
    }
    Ok(Status::done_if(all))
}

/// Puts a job that we hold back into the state it was in.
fn give_back(client: &mut Client, job: &JobFacts, after: Duration) -> Outcome<()> {
    let JobFacts { id, priority, .. } = job;
    let left = u64::from(job.time_left.0).saturating_sub(after.as_secs());
    let line = match job.state {
        State::Buried => format!("bury {id} {}", priority.0),
        State::Delayed => format!("release {id} {} {left}", priority.0),
        State::Ready | State::Reserved => format!("release {id} {} 0", priority.0),
    };
    match client.call(&line)? {
        Reply::Buried(_) | Reply::Released => Ok(()),
        other => Err(Failure::unexpected(line, &other)),
    }
}
