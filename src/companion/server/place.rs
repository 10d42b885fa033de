//! Puts jobs into place: with their priority, delay, time to run and state.
//!
//! A buried job is put with the longest delay, so that nobody gets it. Then it
//! is reserved by its id and buried. Servers before 1.12 cannot reserve by id.
//! There the job stays delayed for 136 years; `kick` ends this delay as it
//! would have ended the burial.

use crate::failure::{Failure, Outcome};
use crate::server::address::Address;
use crate::server::by_id::{as_input, send_each};
use crate::server::client::{Client, Terms};
use crate::server::finder::probe;
use crate::server::reply::Reply;
use crate::server::stats::{JobFacts, State};
use crate::server::take::jobs_of;
use crate::text::output::complain;
use beanpole::protocol::{JobId, Priority, PutOptions, Seconds, TubeName};
use std::collections::HashSet;
use std::time::Instant;

/// The longest delay: 136 years. Nobody else puts jobs with it.
const LONGEST: Seconds = Seconds(u32::MAX);
/// How many ids before the latest one may belong to jobs without an answer.
const LOOK_BACK: u64 = 10_000;

/// A job to be put into place.
pub struct Placement {
    pub tube: TubeName,
    /// The priority, the delay that is left, and the time to run.
    pub terms: Terms,
    /// The words of its put, if it has any.
    pub words: Option<PutOptions>,
    pub buried: bool,
    pub body: Vec<u8>,
}

impl Placement {
    /// A job that is to be as this one is, in this tube and with this body.
    pub fn of(job: &JobFacts, tube: TubeName, body: Vec<u8>) -> Placement {
        Placement {
            tube,
            terms: Terms {
                priority: job.priority,
                delay: job.delay_left(),
                ttr: job.ttr,
            },
            words: job.words(),
            buried: job.state == State::Buried,
            body,
        }
    }
}

/// Puts jobs into place on a server.
pub struct Placer {
    client: Client,
    used: Option<TubeName>,
    /// How many jobs should be buried, but had to be delayed.
    parked: u64,
    /// How many jobs were put without their words, which it does not know.
    wordless: u64,
    /// The jobs that were there already: they have the unique keys of others.
    before: HashSet<JobId>,
    /// The jobs of a batch that have a limit: while their key is full, nobody can
    /// reserve them.
    limited: HashSet<JobId>,
}

/// The result for a batch.
pub struct Placed {
    /// The ids of the jobs that were put, which are the first ones of the batch.
    pub ids: Vec<JobId>,
    /// Those among them that should be buried, but are still delayed.
    pub unburied: Vec<JobId>,
    /// Why there are no more.
    pub outcome: Outcome<()>,
}

impl Placer {
    /// Puts jobs into place over this connection.
    pub fn new(client: Client) -> Placer {
        Placer {
            client,
            used: None,
            parked: 0,
            wordless: 0,
            before: HashSet::new(),
            limited: HashSet::new(),
        }
    }

    /// Goes on over another connection.
    pub fn reconnected(&mut self, client: Client) {
        (self.client, self.used) = (client, None);
    }

    /// Whether the server knows words after a put.
    pub fn knows_words(&mut self) -> Outcome<bool> {
        self.client.knows_words()
    }

    /// The address of the server.
    pub fn address(&self) -> &Address {
        &self.client.address
    }

    /// Says how many jobs have lost their options or are not buried, if any.
    pub fn say_what_is_lost(&self) {
        if self.parked > 0 {
            complain!(
                "{} buried jobs are delayed for 136 years instead: the server cannot reserve by id",
                self.parked
            );
        }
        if self.wordless > 0 {
            complain!(
                "{} jobs have lost their options (idp, con, try): the server does not know them",
                self.wordless
            );
        }
    }

    /// Puts a batch of jobs into place, in order.
    ///
    /// If a job is refused, the jobs after it are deleted again. If the
    /// connection is lost, it is not known which of the jobs without an id
    /// exist. Then a new connection buries what is left to be buried, and
    /// deletes the jobs without an id that wait for it. If that is not possible
    /// either, the failure says what is to be done.
    pub fn place(&mut self, batch: &[Placement]) -> Placed {
        let began = Instant::now();
        self.before.clear();
        let has_words = batch.iter().any(|job| job.words.is_some());
        let (ids, put) = match has_words.then(|| self.client.knows_words()).transpose() {
            Ok(knows_words) => self.put(batch, knows_words == Some(true)),
            Err(failure) => (Vec::new(), Err(failure)),
        };
        let buried = batch.iter().zip(&ids).filter(|(job, _)| job.buried);
        let buried = buried.filter(|(_, id)| !self.before.contains(id));
        let has_limit = |job: &Placement| {
            job.words
                .as_ref()
                .is_some_and(|words| words.limit.is_some())
        };
        let limited = batch.iter().zip(&ids).filter(|(job, _)| has_limit(job));
        self.limited = limited.map(|(_, id)| *id).collect();
        let mut unburied: Vec<_> = buried.map(|(job, id)| (*id, job.terms.priority)).collect();
        let mut outcome = put.and_then(|refused| {
            self.bury(&mut unburied)?;
            refused.map_or(Ok(()), Err)
        });
        if let Err(Failure::Unreachable(_)) = outcome {
            // Why this does not succeed either is known already.
            let _ = self.repair(&batch[ids.len()..], ids.last(), &mut unburied, began);
        }
        let unburied: Vec<JobId> = unburied.into_iter().map(|(id, _)| id).collect();
        if !unburied.is_empty() {
            let (count, input) = (unburied.len(), as_input(&unburied));
            let address = &self.client.address;
            outcome = outcome.map_err(|failure| {
                failure.with(format_args!(
                    "{count} jobs that should be buried are delayed for 136 years instead: \
                     '{input} | beanpole bury -a {address} -' buries them"
                ))
            });
        }
        Placed {
            ids,
            unburied,
            outcome,
        }
    }

    /// Buries jobs over a new connection. Deletes those jobs of the lost part of
    /// a batch that exist, but would wait for 136 years to be buried.
    fn repair(
        &mut self,
        lost: &[Placement],
        last: Option<&JobId>,
        unburied: &mut Vec<(JobId, Priority)>,
        began: Instant,
    ) -> Outcome<()> {
        self.client = Client::connect(&self.client.address, self.client.patience)?;
        self.used = None;
        self.bury(unburied)?;
        let is_lost = |job: &JobFacts| {
            let is_there = |lost: &Placement| lost.buried && lost.tube == job.tube;
            job.state == State::Delayed
                && job.delay == LONGEST
                && job.age <= began.elapsed().as_secs()
                && lost.iter().any(is_there)
        };
        if lost.iter().any(|job| job.buried)
            && let Ok(JobId(latest)) = probe(&mut self.client)?
        {
            let first = last.map_or(0, |last| last.0 + 1);
            let first = first.max(latest.saturating_sub(LOOK_BACK));
            let mut jobs = jobs_of(&mut self.client, (first..latest).map(JobId))?;
            jobs.retain(is_lost);
            let ids: Vec<_> = jobs.iter().map(|job| job.id).collect();
            self.take_away(&ids)?;
        }
        Ok(())
    }

    /// Deletes jobs that should not have been put.
    pub fn take_away(&mut self, ids: &[JobId]) -> Outcome<()> {
        send_each(&mut self.client, ids.iter().copied(), "delete").map(drop)
    }

    /// Puts a batch, without words if the server knows none. Returns the ids of
    /// the jobs before the first refusal, and the refusal.
    fn put(
        &mut self,
        batch: &[Placement],
        knows_words: bool,
    ) -> (Vec<JobId>, Outcome<Option<Failure>>) {
        let (replies, outcome) = self.send(batch, knows_words);
        let (mut ids, mut surplus, mut refused) = (Vec::new(), Vec::new(), None);
        for reply in replies {
            match reply {
                Reply::Inserted(id) | Reply::Buried(Some(id)) => match refused {
                    None => ids.push(id),
                    Some(_) => surplus.push(id),
                },
                Reply::InsertedBefore(id, _) => {
                    self.before.insert(id);
                    if refused.is_none() {
                        ids.push(id);
                    }
                }
                other => refused = refused.or(Some(Failure::unexpected("put", &other))),
            }
        }
        let outcome = outcome.and_then(|()| {
            self.take_away(&surplus)?;
            Ok(refused)
        });
        (ids, outcome)
    }

    /// Sends these jobs, those that are to be buried with the longest delay.
    /// Returns the replies, in order, as far as they have come.
    pub fn send(&mut self, batch: &[Placement], knows_words: bool) -> (Vec<Reply>, Outcome<()>) {
        let mut jobs = batch.iter().peekable();
        let mut replies = Vec::new();
        let outcome = self.client.pipeline(
            |client| {
                let job = jobs.peek()?;
                if self.used.as_ref() != Some(&job.tube) {
                    client.queue(format_args!("use {}", job.tube));
                    self.used = Some(job.tube.clone());
                    return Some(());
                }
                let mut terms = job.terms;
                if job.buried {
                    terms.delay = LONGEST;
                }
                let words = job.words.as_ref();
                let known = words.filter(|_| knows_words);
                self.wordless += u64::from(words.is_some() && known.is_none());
                client.queue_put(terms, known, &job.body);
                jobs.next().map(drop)
            },
            |(), reply| {
                if !matches!(reply, Reply::Using(_)) {
                    replies.push(reply);
                }
                Ok(())
            },
        );
        (replies, outcome)
    }

    /// Buries these jobs. Those that are not buried remain in the list.
    pub fn bury(&mut self, jobs: &mut Vec<(JobId, Priority)>) -> Outcome<()> {
        let lines = jobs.iter().flat_map(|(id, Priority(pri))| {
            let lines = [format!("reserve-job {id}"), format!("bury {id} {pri}")];
            lines.map(|line| (*id, line))
        });
        let (parked, limited) = (&mut self.parked, &self.limited);
        let mut settled = HashSet::new();
        let mut refused = None;
        let line = |(_, line): &(JobId, String)| line.clone();
        let lines: Vec<_> = lines.collect();
        let outcome = self.client.each(lines, line, |(id, line), reply| {
            match reply {
                Reply::UnknownCommand => {
                    *parked += 1;
                    settled.insert(id);
                }
                Reply::Reserved(_) => {}
                // NOT_FOUND answers `bury` if `reserve-job` has failed. Or
                // another client has already found the job, and has decided
                // about it.
                Reply::NotFound if limited.contains(&id) => {
                    refused.get_or_insert(Failure::Refused(format!(
                        "job {id} cannot be buried now: its key is full"
                    )));
                }
                Reply::Buried(_) | Reply::NotFound => drop(settled.insert(id)),
                other => drop(refused.get_or_insert(Failure::unexpected(line, &other))),
            }
            Ok(())
        });
        jobs.retain(|(id, _)| !settled.contains(id));
        outcome?;
        refused.map_or(Ok(()), Err)
    }
}
