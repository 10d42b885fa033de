//! Transfer of jobs to another tube, on the same server or on another one: the
//! part that `move`, `copy` and `console` share.
//!
//! A job that moves is put there before it is deleted here, so none is lost. If
//! everything stops in between, the job is in both tubes; a signal to stop takes
//! effect only after a batch. Until then, a ready job is reserved, as a worker
//! would do, so that no worker gets it. No worker can get a delayed or buried
//! job, so these need no reservation. If a job is taken from us nevertheless,
//! its copy is deleted again.

use crate::failure::{Failure, Outcome};
use crate::server::by_id::{as_input, complain_of_each, send_each};
use crate::server::client::{self, Client};
use crate::server::place::{Placed, Placement, Placer};
use crate::server::reply::Job;
use crate::server::stats::{JobFacts, State};
use crate::server::take::{Room, bodies, jobs_of};
use crate::server::task::Task;
use crate::text::output::complain;
use beanpole::protocol::{JobId, TubeName};
use std::collections::{HashMap, HashSet};

/// Both ends of a transfer.
pub struct Transfer {
    client: Client,
    to: TubeName,
    placer: Placer,
    states: Vec<State>,
    /// How many jobs have been transferred, and how many still may be.
    pub task: Task,
    room: Room,
}

impl Transfer {
    /// A transfer over these two connections to this tube, of jobs in these
    /// states.
    pub fn new(
        [client, target]: [Client; 2],
        to: TubeName,
        states: Vec<State>,
        task: Task,
    ) -> Transfer {
        Transfer {
            client,
            to,
            placer: Placer::new(target),
            states,
            task,
            room: Room::default(),
        }
    }

    /// Copies these jobs, or moves them. Returns those that were not to be had.
    pub fn run(&mut self, mut ids: &[JobId], moves: bool) -> (Vec<JobId>, Outcome<()>) {
        let mut missing = Vec::new();
        loop {
            match self.next_of(&mut ids) {
                Ok(Some(now)) => {
                    if let Err(failure) = self.transfer(now, moves, &mut missing) {
                        return (missing, Err(failure));
                    }
                }
                Ok(None) => return (missing, Ok(())),
                Err(failure) => return (missing, Err(failure)),
            }
        }
    }

    /// Reports jobs that were not to be had. Returns whether there were any.
    pub fn complain_of(&mut self, missing: Vec<JobId>) -> Outcome<bool> {
        complain_of_each(&mut self.client, missing)
    }

    /// Prints how many jobs were transferred, even after a failure.
    pub fn finish(self, outcome: Outcome<()>) -> Outcome<()> {
        self.placer.say_what_is_lost();
        self.task.finish(outcome)
    }

    /// Takes as many of these ids as belong into one batch, if another batch
    /// may begin. The others stay in `ids`.
    fn next_of<'a>(&mut self, ids: &mut &'a [JobId]) -> Outcome<Option<&'a [JobId]>> {
        if ids.is_empty() || !self.task.goes_on()? {
            return Ok(None);
        }
        let left = usize::try_from(self.task.left).unwrap_or(usize::MAX);
        let at_once = left.min(self.room.jobs()).min(ids.len());
        Ok(ids.split_off(..at_once))
    }

    fn transfer(&mut self, ids: &[JobId], moves: bool, missing: &mut Vec<JobId>) -> Outcome<()> {
        let mut there = jobs_of(&mut self.client, ids.iter().copied())?;
        there.retain(|job| self.states.contains(&job.state));
        let is_ready = |job: &JobFacts| moves && job.state == State::Ready;
        let (ready, others): (Vec<_>, Vec<_>) = there.into_iter().partition(is_ready);
        let mut jobs = bodies(&mut self.client, others)?;
        let line = |job: &JobFacts| format!("reserve-job {}", job.id);
        self.client.each(ready, line, |job, reply| {
            let reserved = client::job("reserve-job", reply)?;
            jobs.extend(reserved.map(|Job { body, .. }| (job, body)));
            Ok(())
        })?;
        jobs.sort_by_key(|(job, _)| job.id);
        let held: HashSet<JobId> = jobs.iter().map(|(job, _)| job.id).collect();
        missing.extend(ids.iter().filter(|id| !held.contains(id)));
        let (copies, outcome) = self.place(&jobs);
        match moves {
            true => self.delete(&jobs, &copies)?,
            false => self.task.add(copies.len() as u64),
        }
        outcome
    }

    /// Puts these jobs into the other tube, and returns the ids that they have
    /// there. If not all could be put, the failure says why.
    fn place(&mut self, jobs: &[(JobFacts, Vec<u8>)]) -> (Vec<JobId>, Outcome<()>) {
        self.room.learn(jobs.iter().map(|(_, body)| body.len()));
        let placements: Vec<_> = jobs
            .iter()
            .map(|(job, body)| Placement::of(job, self.to.clone(), body.clone()))
            .collect();
        let Placed { ids, outcome, .. } = self.placer.place(&placements);
        let unanswered = &jobs[ids.len()..];
        let outcome = outcome.map_err(|failure| match (unanswered, failure) {
            ([], failure) => failure,
            ([(first, _), ..], failure @ Failure::Unreachable(_)) => {
                let (count, address) = (unanswered.len(), self.placer.address());
                let line = format!(
                    "the answers about {count} jobs, from {} on, are missing: they are \
                     still here, and some may be there, too: 'beanpole ls -a {address} {}' lists \
                     them last",
                    first.id, self.to
                );
                failure.with(line)
            }
            ([(job, _), ..], failure) => failure.about(format_args!("job {}", job.id)),
        });
        (ids, outcome)
    }

    /// Deletes the first of these jobs in their old place: those that have a
    /// copy.
    fn delete(&mut self, jobs: &[(JobFacts, Vec<u8>)], copies: &[JobId]) -> Outcome<()> {
        let placed = jobs.iter().map(|(job, _)| job.id).take(copies.len());
        let placed: Vec<JobId> = placed.collect();
        let deleted = send_each(&mut self.client, placed.iter().copied(), "delete");
        let taken = deleted.map_err(|failure| {
            failure.with(format_args!(
                "{} jobs may be in both places: '{} | beanpole peek -a {} -' shows which are still \
                 here; in the same order, '{} | beanpole peek -a {} -' shows them there",
                placed.len(),
                as_input(&placed),
                self.client.address,
                as_input(copies),
                self.placer.address(),
            ))
        })?;
        for id in &taken {
            complain!("job {id} was taken by somebody else meanwhile");
        }
        let copy_of: HashMap<_, _> = placed.iter().zip(copies).collect();
        let in_vain: Vec<JobId> = taken.iter().map(|id| *copy_of[id]).collect();
        self.placer.take_away(&in_vain)?;
        self.task.add((copies.len() - taken.len()) as u64);
        Ok(())
    }
}
