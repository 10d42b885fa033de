//! One thread for each server: it asks the server, so that the screen never
//! waits.

use super::sample::Sample;
use crate::failure::{Failure, Outcome};
use crate::server::address::Address;
use crate::server::by_id::reserve_by_id;
use crate::server::client::Client;
use crate::server::reply::Reply;
use crate::server::stats::{JobFacts, State, in_order};
use crate::server::sweep::Sweep;
use crate::server::take::bodies;
use crate::signals::Caller;
use beanpole::protocol::{JobId, Seconds, TubeName};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

/// A request to a server.
pub enum Request {
    /// A sample, with the ages of the next jobs of these tubes.
    Sample(Vec<TubeName>),
    /// The next jobs of a tube, up to so many in each state.
    Look(TubeName, usize),
    Kick(TubeName, u64),
    Pause(TubeName, Seconds),
    /// Deletes up to this many jobs of this tube, but none that is reserved.
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

/// The answer to a request.
pub enum Answer {
    Sample(Box<Sample>),
    Look(TubeName, Look),
    /// An action is done; this is the message about it.
    Done(String),
    /// The server cannot be reached, or it has refused.
    Failed(String),
}

/// The next jobs of a tube, with their bodies, by state.
pub type Look = Vec<(State, Vec<WholeJob>)>;

/// A job with its body.
pub type WholeJob = (JobFacts, Vec<u8>);

/// A thread that asks a server, as the screen sees it.
pub struct Watcher {
    requests: Sender<Request>,
    answers: Receiver<Answer>,
    /// How many answers are still missing.
    pub owed: usize,
    /// When a sample was asked for, if no answer has come since.
    pub looking_since: Option<Instant>,
}

/// The longest time that a server may be silent before it counts as lost.
const PATIENCE: Duration = Duration::from_secs(5);
/// The search for more jobs of a tube ends after this many ids in a row without
/// one. They are few, because the search is done every second.
const IDS: u64 = 1000;

impl Watcher {
    /// Starts the thread. It ends when the watcher is dropped.
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
        Ok(Watcher {
            requests,
            answers,
            owed: 0,
            looking_since: None,
        })
    }

    pub fn ask(&mut self, request: Request) {
        if matches!(request, Request::Sample(_)) {
            self.looking_since = Some(Instant::now());
        }
        // The thread runs as long as the watcher exists.
        if self.requests.send(request).is_ok() {
            self.owed += 1;
        }
    }

    /// The next answer, if one has come.
    pub fn answer(&mut self) -> Option<Answer> {
        let answer = self.answers.try_recv().ok()?;
        self.owed = self.owed.saturating_sub(1);
        self.looking_since = None;
        Some(answer)
    }
}

/// Asks over this connection, or over a new one. After a failure there is no
/// connection.
pub fn answer(
    client: &mut Option<Client>,
    address: &Address,
    patience: Duration,
    request: Request,
) -> Answer {
    let connected = match client.take() {
        Some(client) => Ok(client),
        None => Client::connect(address, patience),
    };
    let answered = connected.and_then(|mut connected| {
        let answer = ask(&mut connected, request)?;
        *client = Some(connected);
        Ok(answer)
    });
    answered.unwrap_or_else(|failure| Answer::Failed(failure.to_string()))
}

fn ask(client: &mut Client, request: Request) -> Outcome<Answer> {
    Ok(Answer::Done(match request {
        Request::Sample(ages_of) => {
            return Ok(Answer::Sample(Box::new(Sample::take(client, &ages_of)?)));
        }
        Request::Look(tube, most) => {
            let mut look = Look::new();
            // `use` would create the tube.
            if client.tube_stats(&tube)?.is_some() {
                for state in [State::Ready, State::Delayed, State::Buried] {
                    let jobs = Sweep::new(tube.clone(), state).look(client, most, IDS)?;
                    look.push((state, bodies(client, jobs)?));
                }
            }
            return Ok(Answer::Look(tube, look));
        }
        Request::Kick(tube, bound) => {
            client.use_tube(&tube)?;
            match client.call(format_args!("kick {bound}"))? {
                Reply::Kicked(Some(count)) => format!("kicked {count} jobs of {tube}"),
                other => return Err(Failure::unexpected("kick", &other)),
            }
        }
        Request::Pause(tube, Seconds(seconds)) => {
            let reply = client.call(format_args!("pause-tube {tube} {seconds}"))?;
            match (reply.is_done("pause-tube")?, seconds) {
                (true, 0) => format!("ended the pause of {tube}"),
                (true, _) => format!("paused {tube} for {seconds} s"),
                (false, _) => format!("there is no tube {tube} any more"),
            }
        }
        Request::Clear(tube, most) => {
            let deleted = clear(client, &tube, most)?;
            format!("deleted {deleted} jobs of {tube}")
        }
        Request::Act(action, id) => act(client, action, id)?,
    }))
}

/// Deletes up to `most` jobs of a tube, and returns how many it has deleted.
/// Ready jobs come last, because others may become ready meanwhile.
fn clear(client: &mut Client, tube: &TubeName, most: u64) -> Outcome<u64> {
    let mut left = most;
    for state in in_order(&[]) {
        let mut sweep = Sweep::new(tube.clone(), state);
        while left > 0
            && let Some(count) = sweep.send_to_next(client, left, "delete")?
        {
            left -= count;
        }
    }
    Ok(most - left)
}

fn act(client: &mut Client, action: JobAction, id: JobId) -> Outcome<String> {
    let (line, done) = match action {
        JobAction::Delete => (format!("delete {id}"), "deleted"),
        JobAction::Kick => (format!("kick-job {id}"), "kicked"),
        JobAction::Bury => match reserve_by_id(client, id)? {
            Ok(job) => (format!("bury {id} {}", job.priority.0), "buried"),
            Err(reason) => return Ok(reason),
        },
    };
    Ok(match client.call(&line)?.is_done(line)? {
        true => format!("{done} job {id}"),
        false => format!("job {id} cannot be {done}: it has gone, or is not in a state for this"),
    })
}
