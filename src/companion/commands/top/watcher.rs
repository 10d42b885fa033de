//! One thread for each server: it asks the server, so that the screen never
//! waits.

use crate::failure::{Failure, Outcome};
use crate::server::address::Address;
use crate::server::change::{self, JobAction};
use crate::server::client::Client;
use crate::server::sample::{Link, Sample};
use crate::server::stats::{JobFacts, State};
use crate::server::sweep::Sweep;
use crate::server::take::bodies;
use crate::server::tubes::Patterns;
use crate::signals::Caller;
use beanpole::protocol::{JobId, Seconds, TubeName};
use std::collections::HashSet;
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
        let mut link = Link::new(address, patience.min(PATIENCE));
        let watch = move || {
            for request in incoming {
                if outgoing.send(answer(&mut link, request)).is_err() {
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

/// The answer of a server to a request.
pub fn answer(link: &mut Link, request: Request) -> Answer {
    let answered = link.ask(|client| ask(client, request));
    answered.unwrap_or_else(|failure| Answer::Failed(failure.to_string()))
}

fn ask(client: &mut Client, request: Request) -> Outcome<Answer> {
    Ok(Answer::Done(match request {
        Request::Sample(ages_of) => {
            let ages_of: HashSet<_> = ages_of.into_iter().collect();
            let wanted = |mut ready: Vec<TubeName>| {
                ready.retain(|tube| ages_of.contains(tube));
                ready
            };
            let sample = Sample::take(client, &Patterns::default(), wanted)?;
            return Ok(Answer::Sample(Box::new(sample)));
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
        Request::Kick(tube, bound) => change::kick(client, &tube, bound)?,
        Request::Pause(tube, time) => change::pause(client, &tube, time)?,
        Request::Clear(tube, most) => change::clear(client, &tube, &State::FREE, most)?,
        Request::Act(action, id) => change::act(client, action, id)?,
    }))
}
