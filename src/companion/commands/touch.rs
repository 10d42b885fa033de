//! `touch`: holds jobs that are named by their ids, until it is interrupted.

use crate::command::{Command, Invocation, Opt, described, options};
use crate::failure::{Failure, Outcome, Status};
use crate::server::by_id::{reserve_by_id, settle, to_make_ready};
use crate::server::client::Event;
use crate::server::reply::Reply;
use crate::server::stats::{JobFacts, State};
use crate::signals::{Calls, SIGHUP, SIGINT, SIGTERM, heeded};
use crate::text::output::{Output, complain};
use beanpole::protocol::{Priority, Seconds};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

pub const TOUCH: Command = Command {
    name: "touch",
    operands: "ID…|-",
    about: "reserve jobs and touch them until interrupted, then give them back",
    options: || described(OPTIONS),
    run: touch,
    ..Command::BLANK
};

options! {
    hold: Option<Seconds> = Opt::value("", "for", "TIME", "only for TIME (default: until interrupted)"),
}

/// Reserves jobs and touches them: a connection can touch only a job that it
/// has reserved itself.
fn touch(invocation: &Invocation) -> Outcome {
    let options = invocation.read(OPTIONS)?;
    let until = options
        .hold
        .map(|Seconds(s)| Instant::now() + Duration::from_secs(s.into()));
    let ids = invocation.ids()?;
    let mut signals = Calls::by_signals(&heeded(&[SIGINT, SIGTERM, SIGHUP]))?;
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
                complain!("{reason}");
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
                    complain!("{lost}");
                }
            }
        }
        held = kept;
    }
    for job in &held {
        settle(&mut client, to_give_back(job, since.elapsed()))?;
    }
    Ok(Status::done_if(all))
}

/// The commands that put a job that we hold back into its former state.
fn to_give_back(job: &JobFacts, after: Duration) -> Vec<String> {
    let (id, Priority(pri)) = (job.id, job.priority);
    let left = u64::from(job.time_left.0).saturating_sub(after.as_secs());
    match job.state {
        State::Buried => vec![format!("bury {id} {pri}")],
        State::Delayed => vec![format!("release {id} {pri} {left}")],
        State::Ready | State::Reserved => to_make_ready(id, job.priority),
    }
}
