//! Acts on jobs that are named by their ids, many at once.
//!
//! In the protocol, only the connection that has reserved a job may bury or
//! release it. One run of this program is one connection, so it first reserves
//! the job by its id. This is possible in every state except 'reserved'.

use crate::failure::Outcome;
use crate::server::client::{self, Client};
use crate::server::list::MOST;
use crate::server::reply::Reply;
use crate::server::stats::{JobFacts, State};
use crate::server::take::jobs_of;
use crate::server::task::Task;
use crate::text::output::complain;
use beanpole::protocol::{JobId, Priority, Seconds};
use std::collections::HashSet;

/// What can be done to a job.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Act {
    Delete,
    /// Makes it ready if it is buried or delayed.
    Kick,
    /// Without a priority, it keeps its own.
    Bury(Option<Priority>),
    /// Makes it ready or, with a delay, delayed.
    Release(Option<Priority>, Seconds),
}

impl Act {
    /// Does it to these jobs. Returns those to which it could not be done: they
    /// were not found, or not in a state for it.
    pub fn on(self, client: &mut Client, ids: &[JobId]) -> Outcome<Vec<JobId>> {
        match self {
            Act::Delete => send_each(client, ids.iter().copied(), "delete"),
            Act::Kick => send_each(client, ids.iter().copied(), "kick-job"),
            Act::Bury(_) | Act::Release(..) => {
                let jobs = jobs_of(client, ids.iter().copied())?;
                let lines = jobs.iter().flat_map(|job| {
                    let lines = self.lines(job).into_iter();
                    lines.map(|line| (job.id, line))
                });
                let mut done: HashSet<JobId> = jobs.iter().map(|job| job.id).collect();
                let lines: Vec<_> = lines.collect();
                client.each(
                    lines,
                    |(_, line)| line.clone(),
                    |(id, line), reply| {
                        if !matches!(reply, Reply::Reserved(_)) && !reply.is_done(line)? {
                            done.remove(&id);
                        }
                        Ok(())
                    },
                )?;
                // The second time, a job is in another state.
                Ok(ids
                    .iter()
                    .copied()
                    .filter(|id| !done.contains(id))
                    .collect())
            }
        }
    }

    /// Does it to these jobs, some at a time, until a signal ends the task.
    pub fn on_all(
        self,
        client: &mut Client,
        jobs: &[(JobId, State)],
        task: &mut Task,
    ) -> Outcome<()> {
        for some in jobs.chunks(MOST) {
            if !task.goes_on()? {
                break;
            }
            let ids: Vec<JobId> = some.iter().map(|(id, _)| *id).collect();
            let missing = self.on(client, &ids)?.len();
            task.drop(missing as u64);
            task.add((some.len() - missing) as u64);
        }
        Ok(())
    }

    /// The commands that do it to a job. They are sent together, so that an
    /// interruption cannot leave a job half-way.
    fn lines(self, job: &JobFacts) -> Vec<String> {
        let (id, reserve) = (job.id, format!("reserve-job {}", job.id));
        let priority = |given: Option<Priority>| given.unwrap_or(job.priority).0;
        match self {
            Act::Delete => vec![format!("delete {id}")],
            Act::Kick => vec![format!("kick-job {id}")],
            Act::Bury(pri) => vec![reserve, format!("bury {id} {}", priority(pri))],
            Act::Release(pri, Seconds(0)) => {
                let ready = to_make_ready(id, Priority(priority(pri)));
                [vec![reserve], ready].concat()
            }
            Act::Release(pri, Seconds(delay)) => {
                vec![reserve, format!("release {id} {} {delay}", priority(pri))]
            }
        }
    }
}

/// The commands that make ready a job that this connection has reserved. They
/// bury it first, because a release would count as a failed try for `work
/// --tries`. They are sent together, so that an interruption cannot leave the
/// job buried.
pub fn to_make_ready(id: JobId, Priority(pri): Priority) -> Vec<String> {
    vec![format!("bury {id} {pri}"), format!("kick-job {id}")]
}

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

/// The beginning of a command line that writes these ids, for the commands that
/// read ids.
pub fn as_input(ids: &[JobId]) -> String {
    match ids {
        [JobId(first), .., JobId(last)] if last - first + 1 == ids.len() as u64 => {
            format!("seq {first} {last}")
        }
        _ => {
            let words = ids.iter().map(|id| format!(" {id}"));
            format!("echo{}", words.collect::<String>())
        }
    }
}

/// Reports why a command could do nothing to these jobs. Returns whether there
/// were any.
pub fn complain_of_each(
    client: &mut Client,
    ids: impl IntoIterator<Item = JobId>,
) -> Outcome<bool> {
    let mut any = false;
    let line = |id: &JobId| format!("stats-job {id}");
    client.each(ids, line, |id, reply| {
        any = true;
        let facts = client::facts(&line(&id), reply)?;
        let reason = why_not(id, facts.as_ref().map(|facts| facts.text("state")));
        complain!("{reason}");
        Ok(())
    })?;
    Ok(any)
}

/// Why nothing could be done to a job that is in this state, or does not exist.
pub fn why_not(id: JobId, state: Option<&str>) -> String {
    match state {
        None => format!("there is no job {id}"),
        Some("reserved") => {
            format!("job {id} is reserved by another connection, and only that may act on it")
        }
        Some(state) => format!("job {id} is {state}: this is no state for it"),
    }
}
