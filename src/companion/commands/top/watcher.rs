//! One thread per server: it asks, so that the screen never waits.

use super::sample::Sample;
use crate::failure::{Failure, Outcome};
use crate::server::address::Address;
use crate::server::by_id::reserve_by_id;
use crate::server::client::Client;
use crate::server::reply::Reply;
use crate::server::stats::{JobFacts, State};
use crate::server::sweep::Sweep;
use crate::server::take::bodies;
use crate::signals::Caller;
use beanpole::protocol::{JobId, Seconds, TubeName};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

/// What a server is asked.
pub enum Request {
    /// How it is, with the ages of the next jobs of these tubes.
    Sample(Vec<TubeName>),
    /// The next jobs of a tube, so many in each state.
    Look(TubeName, usize),
    Kick(TubeName, u64),
    Pause(TubeName, Seconds),
    /// Delete so many jobs of this tube, but none that is reserved.
    Clear(TubeName, u64),
    Act(JobAction, JobId),
}

/// What can be done to a job.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum JobAction {
    Delete,
    Kick,
    Bury,
}

/// What came of it.
pub enum Answer {
    Sample(Box<Sample>),
    Look(TubeName, Look),
    /// An action is done: what to say about it.
    Done(String),
    /// The server cannot be reached, or refused.
    Failed(String),
}

/// The next jobs of a tube, with their bodies, by state.
#[derive(Default)]
pub struct Look {
    pub jobs: Vec<(State, Vec<WholeJob>)>,
}

/// A job with its body.
pub type WholeJob = (JobFacts, Vec<u8>);

/// A thread that asks a server.
pub struct Watcher {
    pub requests: Sender<Request>,
    pub answers: Receiver<Answer>,
}

/// How long a server may be silent at most before it counts as lost.
const PATIENCE: Duration = Duration::from_secs(5);
/// Ids looked at in vain for more jobs of a tube: it is done every second.
const IDS: u64 = 1000;

impl Watcher {
    /// Starts the thread. It ends when nobody can ask any more.
    pub fn start(address: Address, patience: Duration, caller: Caller) -> Outcome<Watcher> {
        let (requests, incoming) = channel();
        let (outgoing, answers) = channel();
        let watch = move || {
            let mut client = None;
            for request in incoming {
                let answer = answer(&mut client, &address, patience.min(PATIENCE), request);
                if outgoing.send(answer).is_err() {
                    return;
                }
                caller.call();
            }
        };
        let thread = std::thread::Builder::new()
            .name("watcher".into())
            .spawn(watch);
        thread.map_err(|error| Failure::io("cannot start a thread", error))?;
        Ok(Watcher { requests, answers })
    }
}

/// Asks over this connection, or a new one. After a failure there is none.
fn answer(
    client: &mut Option<Client>,
    address: &Address,
    patience: Duration,
    request: Request,
) -> Answer {
    let connected = match client.take() {
        Some(client) => Ok(client),
        None => Client::connect(address, patience),
    };
    let mut connected = match connected {
        Ok(connected) => connected,
        Err(failure) => return Answer::Failed(failure.to_string()),
    };
    match ask(&mut connected, request) {
        Ok(answer) => {
            *client = Some(connected);
            answer
        }
        Err(failure) => Answer::Failed(failure.to_string()),
    }
}

fn ask(client: &mut Client, request: Request) -> Outcome<Answer> {
    match request {
        Request::Sample(ages_of) => Ok(Answer::Sample(Box::new(Sample::take(client, &ages_of)?))),
        Request::Look(tube, most) => {
            let mut look = Look::default();
            // 'use' would create it.
            if client.tube_stats(&tube)?.is_some() {
                for state in [State::Ready, State::Delayed, State::Buried] {
                    let jobs = Sweep::new(tube.clone(), state).look(client, most, IDS)?;
                    look.jobs.push((state, bodies(client, jobs)?));
                }
            }
            Ok(Answer::Look(tube, look))
        }
        Request::Kick(tube, bound) => {
            client.use_tube(&tube)?;
            match client.call(format_args!("kick {bound}"))? {
                Reply::Kicked(Some(count)) => {
                    Ok(Answer::Done(format!("kicked {count} jobs of {tube}")))
                }
                other => Err(Failure::unexpected("kick", &other)),
            }
        }
        Request::Pause(tube, Seconds(seconds)) => {
            let reply = client.call(format_args!("pause-tube {tube} {seconds}"))?;
            Ok(Answer::Done(
                match (reply.is_done("pause-tube")?, seconds) {
                    (true, 0) => format!("ended the pause of {tube}"),
                    (true, _) => format!("paused {tube} for {seconds} s"),
                    (false, _) => format!("there is no tube {tube} any more"),
                },
            ))
        }
        Request::Clear(tube, most) => clear(client, &tube, most),
        Request::Act(action, id) => act(client, action, id),
    }
}

/// Deletes up to so many jobs of a tube; ready ones last, since meanwhile others
/// may become ready.
fn clear(client: &mut Client, tube: &TubeName, most: u64) -> Outcome<Answer> {
    let mut left = most;
    for state in [State::Buried, State::Delayed, State::Ready] {
        let mut sweep = Sweep::new(tube.clone(), state);
        while left > 0 {
            match sweep.send_to_next(client, left, "delete")? {
                Some(count) => left -= count,
                None => break,
            }
        }
    }
    let deleted = most - left;
    Ok(Answer::Done(format!("deleted {deleted} jobs of {tube}")))
}

fn act(client: &mut Client, action: JobAction, id: JobId) -> Outcome<Answer> {
    let (line, done) = match action {
        JobAction::Delete => (format!("delete {id}"), "deleted"),
        JobAction::Kick => (format!("kick-job {id}"), "kicked"),
        JobAction::Bury => match reserve_by_id(client, id)? {
            Ok(job) => (format!("bury {id} {}", job.priority.0), "buried"),
            Err(reason) => return Ok(Answer::Done(reason)),
        },
    };
    Ok(Answer::Done(match client.call(&line)?.is_done(line)? {
        true => format!("{done} job {id}"),
        false => format!("job {id} cannot be {done}: it has gone, or is not in a state for this"),
    }))
}
