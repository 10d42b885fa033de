//! Finds jobs of a tube in one state without taking them.
//!
//! beanpoled [lists](crate::server::list) its jobs. The protocol has no list:
//! it shows the first ready, delayed or buried job of a tube, and any job whose
//! id is known. Jobs that were put together have neighbouring ids, so the first
//! job leads to others. A sweep asks for the jobs with the ids around it, many
//! at once, and keeps those in the same tube and state. All jobs that it finds
//! are right, but with mixed priorities they come in the order of their ids,
//! not in that of the queue. Only a [census](crate::server::census) finds every
//! job, at a price.

use crate::failure::Outcome;
use crate::server::by_id::send_each;
use crate::server::client::{Client, job};
use crate::server::list::{self, Scope, Walk};
use crate::server::reply::Job;
use crate::server::stats::{JobFacts, State};
use crate::server::take::jobs_of;
use beanpole::protocol::{JobId, TubeName};
use std::ops::Range;

/// A sweep through the jobs of a tube in one state.
pub struct Sweep {
    tube: TubeName,
    state: State,
    /// The walk through the server's list of jobs. `None` before the first
    /// question; `Some(None)` if the server has no list.
    walk: Option<Option<Walk>>,
}

/// How many ids are asked for at once, at least and at most.
const NARROWEST: u64 = 16;
const WIDEST: u64 = 1024;

impl Sweep {
    /// A sweep. It finds nothing in the state 'reserved', because no command
    /// shows such jobs.
    pub fn new(tube: TubeName, state: State) -> Sweep {
        Sweep {
            tube,
            state,
            walk: None,
        }
    }

    fn walk(&mut self, client: &mut Client) -> Outcome<Option<&mut Walk>> {
        if self.walk.is_none() {
            let scope = Scope {
                tubes: vec![self.tube.clone()],
                states: vec![self.state],
            };
            self.walk = Some(Walk::begin(client, &scope)?);
        }
        Ok(self.walk.as_mut().and_then(Option::as_mut))
    }

    /// The first job and its neighbours, at most `most`. It is for callers that
    /// take these jobs away: then the next call gives others. Empty if there
    /// are no more.
    pub fn next(&mut self, client: &mut Client, most: usize) -> Outcome<Vec<JobFacts>> {
        // To ask for the first job is short, while a list may be long.
        while let Some(first) = self.first(client)? {
            let found = match self.walk(client)? {
                None => self.around(client, first.id, most.min(list::MOST), NARROWEST)?,
                Some(walk) => {
                    let found = walk.next(client, most.min(list::MOST))?;
                    // The walk goes on from here, because not all of these may
                    // be taken. After the last job it begins again.
                    walk.go_to(found.first().map_or(JobId(0), |job| job.id));
                    found
                }
            };
            // If none is found, the first job has changed its state meanwhile.
            // So look again.
            if !found.is_empty() {
                return Ok(found);
            }
        }
        Ok(Vec::new())
    }

    /// Sends a command about each of the next jobs, at most `most`. Returns how
    /// many of them were there for it. `None`: there are no more jobs.
    pub fn send_to_next(
        &mut self,
        client: &mut Client,
        most: u64,
        verb: &str,
    ) -> Outcome<Option<u64>> {
        let most = usize::try_from(most).unwrap_or(usize::MAX);
        let jobs = self.next(client, most)?;
        // If a job is missing, a worker was faster, or the job's delay was
        // over.
        let missing = send_each(client, jobs.iter().map(|job| job.id), verb)?.len();
        Ok((!jobs.is_empty()).then_some((jobs.len() - missing) as u64))
    }

    /// Up to `most` jobs: the first one, and those with ids after it and before
    /// it. A direction is given up after `patience` ids in a row without such a
    /// job; a list, after it has shown `patience` jobs.
    pub fn look(
        &mut self,
        client: &mut Client,
        most: usize,
        patience: u64,
    ) -> Outcome<Vec<JobFacts>> {
        let Some(Job { id: first, .. }) = self.first(client)? else {
            return Ok(Vec::new());
        };
        let there = client.tube_stats(&self.tube)?;
        let there = there.map_or(0, |facts| facts.number(self.state.count_key()));
        let most = most
            .min(usize::try_from(there).unwrap_or(usize::MAX))
            .max(1);
        let Some(walk) = self.walk(client)? else {
            return self.around(client, first, most, patience);
        };
        let mut found = Vec::new();
        // Each direction has a page at least.
        let mut pages = (patience / list::MOST as u64).max(2);
        for start in [first, JobId(0)] {
            walk.go_to(start);
            while found.len() < most && pages > 0 && !walk.is_over() {
                pages -= 1;
                let jobs = walk.page(client, list::MOST)?.into_iter();
                found.extend(jobs.filter(|job| (job.id >= first) == (start == first)));
            }
        }
        found.truncate(most);
        Ok(found)
    }

    /// Does the same without a list: it asks for the ids around `first`.
    fn around(
        &self,
        client: &mut Client,
        first: JobId,
        most: usize,
        patience: u64,
    ) -> Outcome<Vec<JobFacts>> {
        let JobId(first) = first;
        let mut asked = first..first.saturating_add(1);
        let mut found = self.among(client, asked.clone())?;
        for upwards in [true, false] {
            let mut in_vain = 0;
            let mut width = NARROWEST;
            while found.len() < most && in_vain < patience {
                let ids = match upwards {
                    true => asked.end..asked.end.saturating_add(width),
                    false => asked.start.saturating_sub(width).max(1)..asked.start,
                };
                if ids.is_empty() {
                    break;
                }
                asked = asked.start.min(ids.start)..asked.end.max(ids.end);
                let count = ids.end - ids.start;
                let more = self.among(client, ids)?;
                in_vain = if more.is_empty() { in_vain + count } else { 0 };
                width = (width * 2).min(WIDEST);
                found.extend(more);
            }
        }
        found.truncate(most);
        Ok(found)
    }

    /// The first job in this state, according to the server.
    pub fn first(&self, client: &mut Client) -> Outcome<Option<Job>> {
        if self.state == State::Reserved {
            return Ok(None);
        }
        let line = format!("peek-{}", self.state.name());
        client.use_tube(&self.tube)?;
        let reply = client.call(&line)?;
        job(line, reply)
    }

    /// The jobs with these ids that belong to the sweep.
    fn among(&self, client: &mut Client, ids: Range<u64>) -> Outcome<Vec<JobFacts>> {
        let mut found = jobs_of(client, ids.map(JobId))?;
        found.retain(|job| job.state == self.state && job.tube == self.tube);
        Ok(found)
    }
}
