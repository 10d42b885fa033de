//! Acts on jobs, some at a time, until a signal ends the work.
//!
//! In the protocol, only the connection that has reserved a job may bury or
//! release it. One run of this program is one connection, so it first reserves
//! the job by its id. This is possible in every state except 'reserved'.

use crate::failure::{Failure, Outcome};
use crate::remote::finder::MOST;
use crate::remote::{Client, NewJob, Reply, State};
use crate::signals::is_interrupted;
use crate::text::{Progress, complain, jobs};
use beanpole::protocol::{JobId, Priority, Seconds, TubeName};
use std::collections::HashMap;
use std::thread::sleep;
use std::time::{Duration, Instant};

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
    pub fn to(self, client: &mut Client, ids: &[JobId]) -> Outcome<Ids> {
        self.to_each(client, ids, &mut Progress::default())
    }

    /// The same; counts those that are done, even if it fails.
    fn to_each(self, client: &mut Client, ids: &[JobId], done: &mut Progress) -> Outcome<Ids> {
        let jobs = match self {
            Act::Bury(None) | Act::Release(None, _) => client.jobs(ids.iter().copied())?,
            _ => Vec::new(),
        };
        let priorities: HashMap<_, _> = jobs.iter().map(|job| (job.id, job.priority)).collect();
        let must_reserve = matches!(self, Act::Bury(_) | Act::Release(..));
        let lines = ids.iter().flat_map(|&id| {
            let own = priorities.get(&id).copied().unwrap_or(NewJob::PRIORITY);
            let first = must_reserve.then(|| format!("reserve-job {id}"));
            let lines = first.into_iter().chain(self.lines(id, own));
            lines.map(move |line| (id, line))
        });
        let each = self.lines(JobId(0), NewJob::PRIORITY).len() + usize::from(must_reserve);
        send_each(client, lines, each, done)
    }

    /// The commands that do it to a job with this priority of its own; to bury or
    /// release it, this connection must have reserved it. A release without a
    /// delay is a burial and a kick, because a release would count as a failed try
    /// for `work --tries`. They are sent together, so that an interruption cannot
    /// leave the job buried.
    pub fn lines(self, id: JobId, own: Priority) -> Vec<String> {
        let pri = |wanted: Option<Priority>| wanted.unwrap_or(own).0;
        match self {
            Act::Delete => vec![format!("delete {id}")],
            Act::Kick => vec![format!("kick-job {id}")],
            Act::Bury(priority) => vec![format!("bury {id} {}", pri(priority))],
            Act::Release(priority, Seconds(0)) => [Act::Bury(priority), Act::Kick]
                .map(|act| act.lines(id, own))
                .concat(),
            Act::Release(priority, Seconds(delay)) => {
                vec![format!("release {id} {} {delay}", pri(priority))]
            }
        }
    }

    /// What a person is asked for, and what its progress is called.
    pub fn names(self) -> (&'static str, &'static str) {
        match self {
            Act::Delete => ("Delete", "deleting"),
            Act::Kick => ("Kick", "kicking"),
            Act::Bury(_) => ("Bury", "burying"),
            Act::Release(..) => ("Release", "releasing"),
        }
    }
}

/// Sends these lines about jobs, pipelined. Returns the jobs, in order, that were
/// not found, or not in a state for one of them.
pub fn send(client: &mut Client, lines: impl Iterator<Item = (JobId, String)>) -> Outcome<Ids> {
    send_each(client, lines, 1, &mut Progress::default())
}

/// The same, with so many lines about each job; counts those that are done.
fn send_each(
    client: &mut Client,
    lines: impl Iterator<Item = (JobId, String)>,
    each: usize,
    done: &mut Progress,
) -> Outcome<Ids> {
    let (mut left, mut answered) = (Vec::new(), 0);
    let line = |(_, line): &(JobId, String)| line.clone();
    client.each(lines, line, |(id, _), line, reply| {
        // A job that cannot be reserved cannot be buried or released either.
        let is_done = match reply {
            Reply::Reserved(_) => true,
            Reply::No(_) if line.starts_with("reserve-job") => true,
            other => other.is_done(line)?,
        };
        // Of several commands about a job, the first one that fails counts.
        if !is_done && left.last() != Some(&id) {
            left.push(id);
        }
        answered += 1;
        if answered % each == 0 && left.last() != Some(&id) {
            done.add(1);
        }
        Ok(())
    })?;
    Ok(left)
}

/// The beginning of a command line that writes these ids, for the commands that
/// read ids.
pub fn as_input(ids: &[JobId]) -> String {
    match ids {
        [JobId(first), .., JobId(last)] if last.wrapping_sub(*first) == ids.len() as u64 - 1 => {
            format!("seq {first} {last}")
        }
        _ => {
            let ids = ids.iter().map(|id| format!(" {id}"));
            format!("echo{}", ids.collect::<String>())
        }
    }
}

/// The request for the state of a job.
fn about(id: &JobId) -> String {
    format!("stats-job {id}")
}

/// Reports why a command could do nothing to these jobs.
pub fn complain_of_each(client: &mut Client, ids: &[JobId]) -> Outcome<()> {
    for (id, facts) in client.all(ids.iter().copied(), about, Reply::facts)? {
        let state = facts.as_ref().map(|facts| facts.text("state"));
        complain!("{}", why_not(id, state));
    }
    Ok(())
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

/// The ids of some jobs.
pub type Ids = Vec<JobId>;

/// What is done to many jobs, some at a time.
pub trait Work {
    /// Whether the number of jobs is told even if they were named one by one.
    const COUNTS: bool = false;

    /// How many jobs it takes at once.
    fn at_once(&self) -> usize {
        MOST
    }

    /// Does it to these jobs, and counts those that are done, even if
    /// it fails. Returns those to which it could not be done.
    fn act(&mut self, client: &mut Client, ids: &[JobId], done: &mut Progress) -> Outcome<Ids>;

    /// Whether it means no job in this state that was found in a tube.
    fn spares(&self, state: State) -> bool {
        state == State::Reserved
    }

    /// Says what there is to be said at the end, and whether all was well.
    fn conclude(&self) -> bool {
        true
    }
}

/// An act. If a time is given, it waits until then for jobs that others have
/// reserved.
///
/// Such a job that is to be buried or deleted, beanpoled buries when its worker touches or
/// releases it or is lost, also later than that; so no worker can be faster. Otherwise it
/// is tried again and again, and a worker that waits for a job may be faster.
pub struct WhenFree(pub Act, pub Option<Instant>);

/// How long to wait before a job that was reserved is checked again.
const AGAIN: Duration = Duration::from_millis(10);

impl Work for WhenFree {
    fn spares(&self, state: State) -> bool {
        state == State::Reserved || state == State::Ready && self.0 == Act::Kick
    }

    fn act(&mut self, client: &mut Client, ids: &[JobId], done: &mut Progress) -> Outcome<Ids> {
        let &mut WhenFree(act, until) = self;
        let (mut left, mut gone) = (act.to_each(client, ids, done)?, Vec::new());
        let goal = match act {
            Act::Bury(None) => Some("buried"),
            Act::Kick => Some("ready"),
            _ => None,
        };
        while !left.is_empty() && until.is_some_and(|until| Instant::now() < until) {
            if matches!(act, Act::Bury(_) | Act::Delete) {
                let line = |id: &JobId| format!("bury-later {id}");
                client.each(left.clone(), line, |_, _, _| Ok(()))?;
            }
            sleep(AGAIN);
            if is_interrupted() {
                let held = jobs(left.len() as u64, "still reserved");
                return Err(Failure::Interrupted(format!("interrupted: {held}")));
            }
            for (id, facts) in client.all(std::mem::take(&mut left), about, Reply::facts)? {
                match facts {
                    None => gone.push(id),
                    // A job may be as it should be already; then it keeps its priority.
                    Some(facts) if goal == Some(facts.text("state")) => done.add(1),
                    Some(_) => left.push(id),
                }
            }
            left = act.to_each(client, &left, done)?;
        }
        gone.extend(left);
        Ok(gone)
    }
}

/// Does this work to these jobs, some at a time, until nothing is left of them or a signal
/// ends it between two batches. Returns to how many it could not be done, and tells each of
/// these; if they were not `named` one by one, those do not count that are gone or have
/// been taken since they were found. `hear` gets the number of jobs that are done
/// after each batch; a failure of it ends the work.
pub fn in_batches(
    work: &mut impl Work,
    client: &mut Client,
    mut ids: &[JobId],
    named: bool,
    progress: &mut Progress,
    mut hear: impl FnMut(u64) -> Outcome<()>,
) -> Outcome<usize> {
    let mut missing = 0;
    while !ids.is_empty() {
        if is_interrupted() {
            let (done, left) = (progress.done, ids.len() as u64);
            return Err(Failure::Interrupted(format!(
                "interrupted: {done} of {} jobs are done, the others are as they were",
                done + left
            )));
        }
        let now = ids.split_off(..work.at_once().min(ids.len()));
        let mut left = work.act(client, now.unwrap_or_default(), progress)?;
        if !named {
            let there = client.jobs(left)?.into_iter();
            let there = there.filter(|job| !work.spares(job.state));
            left = there.map(|job| job.id).collect();
        }
        missing += left.len();
        complain_of_each(client, &left)?;
        hear(progress.done)?;
    }
    Ok(missing)
}

/// Kicks up to `bound` jobs of a tube, which the server chooses. Returns how many.
pub fn kick_some(client: &mut Client, tube: &TubeName, bound: u32) -> Outcome<u32> {
    client.use_tube(tube)?;
    match client.call(format_args!("kick {bound}"))? {
        Reply::Kicked(count) if count <= bound.into() => Ok(count as u32),
        other => Err(Failure::unexpected(format_args!("kick {bound}"), &other)),
    }
}
