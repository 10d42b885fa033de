//! The half of a transfer that deletes the jobs in their old place.
//!
//! A job is put there before it is deleted here, so none is lost. If everything
//! stops in between, the job is in both tubes; a signal to stop takes effect
//! only after a batch. Until then, a ready job is reserved, as a worker would
//! do, so that no worker gets it. No worker can get a delayed or buried job or
//! one of a paused tube, so these need no reservation. If a job is taken from
//! us nevertheless, its copy is deleted again.

use super::{From, Transfer};
use crate::failure::Outcome;
use crate::server::by_id::{as_input, complain_of_each, send_each};
use crate::server::client;
use crate::server::reply::Job;
use crate::server::stats::{JobFacts, State};
use crate::server::sweep::Sweep;
use crate::server::take::{bodies, jobs_of, reserve_now};
use crate::text::output::complain;
use beanpole::protocol::{JobId, TubeName};
use std::collections::{HashMap, HashSet};

impl Transfer {
    /// Moves the jobs. `all` becomes false if some that were named by their ids
    /// cannot be moved.
    pub fn move_jobs(&mut self, all: &mut bool) -> Outcome<()> {
        match self.from.clone() {
            From::Tube(tube) => self.move_all(&tube),
            From::Ids(ids) => self.move_by_id(&ids, all),
        }
    }

    fn move_all(&mut self, tube: &TubeName) -> Outcome<()> {
        self.client.watch_only(std::slice::from_ref(tube))?;
        for state in self.states.clone() {
            if state == State::Ready && !self.is_paused(tube)? {
                while self.task.goes_on()? && self.move_reserved()? {}
                continue;
            }
            let mut sweep = Sweep::new(tube.clone(), state);
            while self.task.goes_on()? && self.move_in_place(&mut sweep)? {}
        }
        Ok(())
    }

    fn is_paused(&mut self, tube: &TubeName) -> Outcome<bool> {
        let facts = self.client.tube_stats(tube)?;
        Ok(facts.is_some_and(|facts| facts.number("pause-time-left") > 0))
    }

    /// Moves some jobs that can be reserved. Returns whether there were any.
    fn move_reserved(&mut self) -> Outcome<bool> {
        let most = self.at_once();
        let jobs = reserve_now(&mut self.client, most)?;
        let facts = jobs_of(&mut self.client, jobs.iter().map(|job| job.id))?;
        let mut bodies: HashMap<_, _> = jobs.into_iter().map(|job| (job.id, job.body)).collect();
        let held = facts.into_iter();
        let held = held.filter_map(|job| bodies.remove(&job.id).map(|body| (job, body)));
        let held: Vec<_> = held.collect();
        self.move_these(&held)?;
        Ok(!held.is_empty())
    }

    /// Moves some jobs that nobody can reserve. Returns whether there were any.
    fn move_in_place(&mut self, sweep: &mut Sweep) -> Outcome<bool> {
        let most = self.at_once();
        let jobs = sweep.next(&mut self.client, most)?;
        let jobs = bodies(&mut self.client, jobs)?;
        self.move_these(&jobs)?;
        Ok(!jobs.is_empty())
    }

    /// Moves these jobs, each from its own tube, and reports those that cannot
    /// be moved.
    fn move_by_id(&mut self, mut ids: &[JobId], all: &mut bool) -> Outcome<()> {
        while let Some(now) = self.next_of(&mut ids)? {
            let mut there = jobs_of(&mut self.client, now.iter().copied())?;
            there.retain(|job| self.states.contains(&job.state));
            let is_ready = |job: &JobFacts| job.state == State::Ready;
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
            let missing = now.iter().copied().filter(|id| !held.contains(id));
            *all &= !complain_of_each(&mut self.client, missing)?;
            self.move_these(&jobs)?;
        }
        Ok(())
    }

    /// Puts these jobs into the other tube and deletes them here.
    fn move_these(&mut self, jobs: &[(JobFacts, Vec<u8>)]) -> Outcome<()> {
        let (copies, outcome) = self.place(jobs);
        let ids = jobs.iter().map(|(job, _)| job.id);
        let copies: HashMap<_, _> = ids.clone().zip(copies).collect();
        let placed = ids.take(copies.len());
        let placed: Vec<JobId> = placed.collect();
        let deleted = send_each(&mut self.client, placed.iter().copied(), "delete");
        let taken = deleted.map_err(|failure| {
            let there: Vec<_> = placed.iter().map(|id| copies[id]).collect();
            failure.with(format_args!(
                "{} jobs may be in both places: '{} | beanpole peek -a {} -' shows which are still \
                 here; in the same order, '{} | beanpole peek -a {} -' shows them there",
                placed.len(),
                as_input(&placed),
                self.client.address,
                as_input(&there),
                self.placer.address(),
            ))
        })?;
        for id in &taken {
            complain!("job {id} was taken by somebody else meanwhile");
        }
        let in_vain: Vec<_> = taken.iter().map(|id| copies[id]).collect();
        self.placer.take_away(&in_vain)?;
        self.task.add((copies.len() - taken.len()) as u64);
        outcome
    }
}
