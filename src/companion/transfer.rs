//! Transfer of jobs from one tube to another, on the same server or on another
//! one: the part that `move` and `copy` share.

use crate::command::{INPUT, Invocation, Opt, STATE, described, ids_of_input, options, word};
use crate::failure::{Failure, Outcome, Status};
use crate::server::client::{Client, Terms};
use crate::server::names::{Server, warn_of};
use crate::server::place::{Placement, Placer};
use crate::server::stats::{FreeState, JobFacts, State, in_order};
use crate::server::take::Room;
use crate::signals::interrupts;
use crate::text::output::{Progress, complain, print};
use beanpole::protocol::{JobId, TubeName};
use std::num::NonZeroU64;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

options! {
    states: Vec<FreeState> = STATE,
    count: NonZeroU64 =
        Opt::value("n", "count", "N", "at most so many jobs") => NonZeroU64::MAX,
    to: Option<Server> =
        Opt::value("", "to", "ADDR", "the server of the second tube, if another"),
}

/// The options that `move` and `copy` share.
pub fn transfer_options() -> Vec<Opt> {
    described(OPTIONS)
}

/// Which jobs are transferred.
#[derive(Clone)]
pub enum From {
    /// The jobs of this tube.
    Tube(TubeName),
    /// The jobs with these ids.
    Ids(Vec<JobId>),
}

/// Both ends of a transfer.
pub struct Transfer {
    pub client: Client,
    pub from: From,
    to: TubeName,
    pub placer: Placer,
    pub states: Vec<State>,
    /// Whether fewer jobs are wanted than there are.
    pub is_limited: bool,
    /// How many jobs may still be transferred.
    pub left: u64,
    progress: Progress,
    done: u64,
    room: Room,
    /// Whether a signal told us to stop; `None` before the first batch.
    interrupted: Option<Arc<AtomicBool>>,
}

impl Transfer {
    /// A transfer between the tubes that the operands name.
    pub fn new(invocation: &Invocation, doing: &'static str) -> Outcome<Transfer> {
        let options = invocation.read(OPTIONS)?;
        let [from, to] = invocation.operands() else {
            return Failure::usage("from which tube to which? give two");
        };
        let to = word(to)?;
        let from = match from.as_str() {
            INPUT => {
                let mut ids = ids_of_input()?;
                ids.sort();
                ids.dedup();
                From::Ids(ids)
            }
            tube => From::Tube(word(tube)?),
        };
        let states = in_order(&options.states);
        options.to.iter().for_each(warn_of);
        let target = options.to.as_ref().unwrap_or(&invocation.servers[0]);
        let mut client = invocation.connect()?;
        let mut target = invocation.connect_to(&target.address)?;
        let there = match &from {
            From::Ids(ids) => ids.len() as u64,
            From::Tube(tube) => {
                let id_of = |end: &mut Client| Ok(end.server_stats()?.text("id").to_owned());
                if *tube == to && id_of(&mut client)? == id_of(&mut target)? {
                    return Failure::usage("both are the same tube");
                }
                let facts = client.known_tube(tube)?;
                facts.jobs_in(&states)
            }
        };
        let left = options.count.get().min(there);
        Ok(Transfer {
            client,
            from,
            to,
            placer: Placer::new(target),
            states,
            is_limited: left < there,
            left,
            progress: Progress::new(doing, Some(left)),
            done: 0,
            room: Room::default(),
            interrupted: None,
        })
    }

    /// Puts these jobs into the other tube, and returns the ids that they have
    /// there. If not all could be put, the failure says why.
    pub fn place(&mut self, jobs: &[(JobFacts, Vec<u8>)]) -> (Vec<JobId>, Outcome<()>) {
        self.room.learn(jobs.iter().map(|(_, body)| body.len()));
        let placements: Vec<_> = jobs
            .iter()
            .map(|(job, body)| Placement {
                tube: self.to.clone(),
                terms: Terms {
                    priority: job.priority,
                    delay: job.delay_left(),
                    ttr: job.ttr,
                },
                buried: job.state == State::Buried,
                body: body.clone(),
            })
            .collect();
        let (ids, outcome) = self.placer.place(&placements);
        let outcome = outcome.map_err(|failure| match jobs.get(ids.len()) {
            Some((job, _)) => failure.about(format_args!("job {}", job.id)),
            None => failure,
        });
        (ids, outcome)
    }

    /// Whether another batch may begin. After the first call, a signal to stop
    /// takes effect when the batch is done. Before that it ends the program at
    /// once, because nothing is under way.
    pub fn goes_on(&mut self) -> Outcome<bool> {
        if self.interrupted.is_none() {
            self.interrupted = Some(interrupts()?);
        }
        Ok(self.left > 0 && !self.is_interrupted())
    }

    /// Takes as many of these ids as belong into one batch, if another batch
    /// may begin. The others stay in `ids`.
    pub fn next_of<'a>(&mut self, ids: &mut &'a [JobId]) -> Outcome<Option<&'a [JobId]>> {
        if ids.is_empty() || !self.goes_on()? {
            return Ok(None);
        }
        Ok(ids.split_off(..self.at_once().min(ids.len())))
    }

    fn is_interrupted(&self) -> bool {
        let interrupted = self.interrupted.as_ref();
        interrupted.is_some_and(|interrupted| interrupted.load(Ordering::SeqCst))
    }

    /// How many jobs belong into the next batch.
    pub fn at_once(&self) -> usize {
        let left = usize::try_from(self.left).unwrap_or(usize::MAX);
        left.min(self.room.jobs())
    }

    /// Counts this many more jobs as done.
    pub fn progressed(&mut self, count: u64) {
        self.left = self.left.saturating_sub(count);
        self.done += count;
        self.progress.add(count);
    }

    /// Prints how many jobs were transferred, even after a failure.
    pub fn finish(self, outcome: Outcome<()>) -> Outcome {
        let interrupted = self.left > 0 && self.is_interrupted();
        drop(self.progress);
        if self.placer.parked > 0 {
            complain(format_args!(
                "beanpole: {} buried jobs are delayed for 136 years instead: that server cannot reserve by id",
                self.placer.parked
            ));
        }
        print(format!("{}\n", self.done))?;
        outcome?;
        match interrupted {
            true => Err(Failure::interrupted(self.done, self.done + self.left)),
            false => Ok(Status::Done),
        }
    }
}
