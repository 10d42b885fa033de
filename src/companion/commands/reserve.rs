//! `reserve`: takes jobs, writes their bodies, and then deletes, buries or
//! releases them.
//!
//! A job is deleted or buried only after its body has been given to the system
//! and, if the output is a pipe, has been read from the pipe. Jobs that are to be
//! released are kept until the end; otherwise the same job would come again at once.

use crate::command::{Invocation, Run, Tubes};
use crate::failure::{Failure, Outcome, Status};
use crate::remote::act::send;
use crate::remote::form::Bodies;
use crate::remote::{Act, Client, Job, NewJob, Reply, Room};
use crate::text::output::{self, Output, complain};
use crate::values::{Count, parse};
use beanpole::protocol::Seconds;
use clap::Args;
use std::collections::{HashMap, HashSet};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

#[derive(Args)]
pub struct Reserve {
    #[command(flatten)]
    tubes: Tubes,
    /// take N jobs (default: 1)
    #[arg(short = 'n', long, value_name = "N", value_parser = parse::<Count>)]
    count: Option<Count>,
    /// take all that are ready
    #[arg(long, conflicts_with = "count")]
    all: bool,
    /// wait TIME for each (default: for ever; --all: 0)
    #[arg(short = 'w', long, value_name = "TIME", value_parser = parse::<Seconds>)]
    timeout: Option<Seconds>,
    /// delete them once their bodies are written
    #[arg(long, group = "end")]
    delete: bool,
    /// bury them once their bodies are written
    #[arg(long, group = "end")]
    bury: bool,
    #[command(flatten)]
    bodies: Bodies,
}

/// If the reader of the output needs longer than this, the jobs are touched: a
/// time to run is one second at least.
const SLOW: Duration = Duration::from_millis(300);

impl Run for Reserve {
    fn run(self, invocation: &Invocation) -> Outcome {
        let act = match (self.delete, self.bury) {
            (true, _) => Act::Delete,
            (_, true) => Act::Bury(None),
            _ => Act::Release(None, Seconds(0)),
        };
        let is_kept = matches!(act, Act::Release(..));
        if !is_kept && output::is_closed() {
            return Failure::refused(
                "standard output is closed, for reading only, or /dev/null opened for reading as well: '>/dev/null' drops the bodies",
            );
        }
        let mut client = invocation.connect()?;
        let tubes = self.tubes.patterns().or_default().named(&mut client)?;
        client.watch_only(&tubes)?;
        let timeout = self.timeout.or(self.all.then_some(Seconds(0)));
        let usual = (!self.all).then_some(Count(1));
        let wanted = Count::most(self.count.or(usual));
        let mut taken = 0;
        let (mut kept, mut seen) = (Vec::new(), HashSet::new());
        let mut late = Vec::new();
        let mut room = Room::default();
        while taken < wanted {
            let mut jobs = take(&mut client, timeout, room.jobs().min(wanted - taken))?;
            if is_kept {
                // The time to run of a job that comes again was over.
                let again = jobs.iter().position(|job| !seen.insert(job.id));
                jobs.truncate(again.unwrap_or(jobs.len()));
            }
            if jobs.is_empty() {
                break;
            }
            let unknown = jobs.iter().filter(|job| job.facts.is_none());
            let told = client.jobs(unknown.map(|job| job.id).collect::<Vec<_>>())?;
            let mut told: HashMap<_, _> = told.into_iter().map(|facts| (facts.id, facts)).collect();
            for job in &mut jobs {
                job.facts = job.facts.take().or(told.remove(&job.id).map(Box::new));
            }
            self.hand_over(&jobs, is_kept, || {
                // A job whose time is over is reported when it is settled.
                let before = kept.iter().map(|(id, _)| *id);
                let held = before.chain(jobs.iter().map(|job| job.id));
                let touches = held.map(|id| (id, format!("touch {id}")));
                send(&mut client, touches).map(drop)
            })?;
            taken += jobs.len();
            room.learn(jobs.iter().map(|job| job.body.len()));
            let lines = jobs.into_iter().flat_map(|Job { id, facts, .. }| {
                let own = facts.map_or(NewJob::PRIORITY, |facts| facts.priority);
                act.lines(id, own).into_iter().map(move |line| (id, line))
            });
            if is_kept {
                kept.extend(lines)
            } else {
                late.extend(send(&mut client, lines)?)
            }
        }
        late.extend(send(&mut client, kept.into_iter())?);
        for id in &late {
            complain!("job {id}: its time to run was over before it was settled");
        }
        if taken == 0 {
            complain!("no job came in time");
        } else if taken < wanted && !self.all && self.timeout.is_none() {
            complain!("no other job came before the time to run of one was nearly over");
        }
        let is_enough = if self.all { taken > 0 } else { taken == wanted };
        Ok(Status::done_if(is_enough && late.is_empty()))
    }
}

impl Reserve {
    /// Writes these jobs and, unless they are kept, waits until they are read. As long as
    /// that takes, `touch` is called again and again.
    fn hand_over(
        &self,
        jobs: &[Job],
        is_kept: bool,
        mut touch: impl FnMut() -> Outcome<()>,
    ) -> Outcome<()> {
        thread::scope(|scope| {
            let (ended, is_ended) = mpsc::channel::<()>();
            let writing = scope.spawn(move || {
                let _ended = ended;
                let mut output = Output::new();
                for job in jobs {
                    self.bodies.write(&mut output, job)?;
                }
                output.sync()?;
                match is_kept {
                    true => Ok(()),
                    false => output.await_reader(),
                }
            });
            while is_ended.recv_timeout(SLOW) == Err(RecvTimeoutError::Timeout) {
                touch()?;
            }
            writing.join().expect("writing does not panic")
        })
    }
}

/// Reserves up to `most` jobs: waits for the first one up to the timeout, then
/// takes others that are ready.
fn take(client: &mut Client, timeout: Option<Seconds>, most: usize) -> Outcome<Vec<Job>> {
    let wait = timeout.map(|Seconds(time)| time.into());
    let (line, at_once) = (client.reserve(wait)?, client.reserve(Some(0))?);
    let until = wait.map(|wait| Instant::now() + Duration::from_secs(wait) + client.patience);
    client.queue(&line);
    let reply = client.reply_by(until)?;
    let Some(first) = reply.job(&line)? else {
        return Ok(Vec::new());
    };
    let others = std::iter::repeat_n((), most - 1);
    let replies = client.all(others, |()| at_once.clone(), Reply::job)?;
    let others = replies.into_iter().filter_map(|(_, given)| given);
    Ok([first].into_iter().chain(others).collect())
}
