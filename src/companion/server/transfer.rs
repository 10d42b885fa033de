//! Transfer of jobs to another tube, on the same server or on another one: what
//! `move`, `copy`, `edit` and the console have in common.
//!
//! A job that moves is put there before it is deleted here, so none is lost. If
//! everything stops in between, the job is in both tubes; a signal to stop takes
//! effect only after a batch. Until then, a ready job is reserved, as a worker
//! would do, so that no worker gets it. No worker can get a delayed or buried
//! job, so these need no reservation. If a job is taken from us nevertheless,
//! its copy is deleted again. If the other tube has a job with the same unique
//! key, there is no copy, and the job stays.

use crate::failure::{Failure, Outcome};
use crate::server::act::{Task, Work, as_input, send_each};
use crate::server::client::{self, Client};
use crate::server::finder::{Room, bodies, jobs_of};
use crate::server::reply::Reply;
use crate::server::stats::{JobFacts, State};
use crate::server::writer::{self, NewJob, Writer, Written};
use crate::text::counted;
use crate::text::output::complain;
use beanpole::protocol::{JobId, TubeName};
use std::collections::HashSet;

/// Where jobs go to.
pub struct Transfer {
    writer: Writer,
    to: TubeName,
    /// Whether they leave their old place.
    moves: bool,
    /// How many have stayed where they are, for want of their unique key.
    stayed: u64,
    room: Room,
}

/// A job and the id that it has in the other tube.
struct Copied {
    id: JobId,
    copy: JobId,
}

impl Work for Transfer {
    const COUNTS: bool = true;

    fn at_once(&self) -> usize {
        self.room.jobs()
    }

    fn do_some(
        &mut self,
        client: &mut Client,
        ids: &[JobId],
        task: &mut Task,
    ) -> Outcome<Vec<JobId>> {
        let mut there = jobs_of(client, ids.iter().copied())?;
        there.retain(|job| job.state != State::Reserved);
        let is_ready = |job: &JobFacts| self.moves && job.state == State::Ready;
        let (ready, others): (Vec<_>, Vec<_>) = there.into_iter().partition(is_ready);
        let mut jobs = bodies(client, others)?;
        let line = |job: &JobFacts| format!("reserve-job {}", job.id);
        let reserved = client.all(ready, line, client::job)?.into_iter();
        jobs.extend(reserved.filter_map(|(job, reserved)| Some((job, reserved?.body))));
        jobs.sort_by_key(|(job, _)| job.id);
        let held: HashSet<JobId> = jobs.iter().map(|(job, _)| job.id).collect();
        self.carry(client, jobs, task)?;
        Ok(ids
            .iter()
            .copied()
            .filter(|id| !held.contains(id))
            .collect())
    }

    fn conclude(&self) -> bool {
        self.writer.say_what_is_lost();
        self.stayed == 0
    }
}

impl Transfer {
    /// A transfer over this connection to this tube.
    pub fn new(target: Client, to: TubeName, moves: bool) -> Transfer {
        Transfer {
            writer: Writer::new(target),
            to,
            moves,
            stayed: 0,
            room: Room::default(),
        }
    }

    /// Puts jobs with these bodies into the other tube and, if they move, deletes
    /// them here. Returns the ids that they have there.
    pub fn carry(
        &mut self,
        client: &mut Client,
        jobs: Vec<(JobFacts, Vec<u8>)>,
        task: &mut Task,
    ) -> Outcome<Vec<JobId>> {
        self.room.learn(jobs.iter().map(|(_, body)| body.len()));
        let ids: Vec<JobId> = jobs.iter().map(|(job, _)| job.id).collect();
        let news = jobs.into_iter();
        let news = news.map(|(job, body)| NewJob::like(&job, self.to.clone(), body));
        let news: Vec<_> = news.collect();
        let Written {
            replies, outcome, ..
        } = self.writer.write_in_order(&news);
        let mut copied = Vec::new();
        for (id, reply) in ids.iter().copied().zip(&replies) {
            match (reply, writer::id(reply)) {
                (Reply::InsertedBefore(other, _), _) => {
                    complain!("job {id} stays: its unique key is taken there by job {other}");
                    self.stayed += 1;
                    task.left = task.left.saturating_sub(1);
                }
                (_, Some(copy)) => copied.push(Copied { id, copy }),
                _ => {}
            }
        }
        if self.moves {
            self.delete(client, &mut copied)?;
        }
        task.add(copied.len() as u64);
        let address = self.writer.address();
        outcome.map_err(|failure| match (&ids[replies.len()..], failure) {
            ([], failure) => failure,
            (unanswered @ [first, ..], failure @ Failure::Unreachable(_)) => {
                failure.with(format_args!(
                    "no answer has come about {}, from {first} on: still here, and perhaps there, \
                     too, where 'beanpole ls -a {address} {}' lists what came last",
                    counted(unanswered.len() as u64, "job"),
                    self.to
                ))
            }
            ([first, ..], failure) => failure.about(format_args!("job {first}")),
        })?;
        Ok(copied.iter().map(|job| job.copy).collect())
    }

    /// Deletes these jobs in their old place. Of those that somebody has taken
    /// meanwhile, the copies are deleted instead, and they leave the list.
    fn delete(&mut self, client: &mut Client, copied: &mut Vec<Copied>) -> Outcome<()> {
        let ids: Vec<JobId> = copied.iter().map(|job| job.id).collect();
        let taken = send_each(client, &ids, "delete").map_err(|failure| {
            let copies: Vec<JobId> = copied.iter().map(|job| job.copy).collect();
            failure.with(format_args!(
                "{} may be in both places: '{} | beanpole peek -a {} -' shows which are still \
                 here; in the same order, '{} | beanpole peek -a {} -' shows them there",
                counted(ids.len() as u64, "job"),
                as_input(&ids),
                client.address,
                as_input(&copies),
                self.writer.address(),
            ))
        })?;
        for id in &taken {
            complain!("job {id} was taken by somebody else meanwhile");
        }
        let (in_vain, rest) = std::mem::take(copied)
            .into_iter()
            .partition::<Vec<_>, _>(|job| taken.contains(&job.id));
        *copied = rest;
        let in_vain: Vec<JobId> = in_vain.iter().map(|job| job.copy).collect();
        self.writer.take_away(&in_vain)
    }
}
