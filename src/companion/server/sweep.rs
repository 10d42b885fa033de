//! Jobs of a tube in one state, found without taking them.
//!
//! beanpoled [lists](crate::server::list) its jobs. The protocol does not; it
//! shows the first ready, delayed or buried job of a tube, and any job whose id
//! is known. Jobs that were put together have neighbouring ids, so the first
//! one leads to others: a sweep asks for the jobs with the ids around it, many
//! at once, and keeps those in the same tube and state. It is exact about what
//! it finds, but with mixed priorities the order is that of the ids, not the
//! queue's. What finds every job, at a price, is a
//! [census](crate::server::census).

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
    /// Where the server lists its jobs; not known before the first question.
    walk: Option<Option<Walk>>,
}

/// So many ids are asked for at once, at least and at most.
const NARROWEST: u64 = 16;
const WIDEST: u64 = 1024;

impl Sweep {
    /// A sweep. No command shows jobs in the state 'reserved': it finds none.
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

    /// The first job and its neighbours, at most so many, for those who take
    /// them away: asking again gives others then. Empty: there are no more.
    pub fn next(&mut self, client: &mut Client, most: usize) -> Outcome<Vec<JobFacts>> {
        // A list may be long; this is a short question.
        while let Some(first) = self.first(client)? {
            let found = match self.walk(client)? {
                None => self.around(client, first.id, most.min(list::MOST), NARROWEST)?,
                Some(walk) => {
                    let found = walk.next(client, most.min(list::MOST))?;
                    // There it goes on: not all need have been taken. Behind
                    // the last one it begins anew.
                    walk.go_to(found.first().map_or(JobId(0), |job| job.id));
                    found
                }
            };
            // None: the first one has changed its state since. Look again.
            if !found.is_empty() {
                return Ok(found);
            }
        }
        Ok(Vec::new())
    }

    /// Sends a command about each of up to so many of the jobs that come next: how
    /// many were there for it. `None`: there are no more.
    pub fn send_to_next(
        &mut self,
        client: &mut Client,
        most: u64,
        verb: &str,
    ) -> Outcome<Option<u64>> {
        let most = usize::try_from(most).unwrap_or(usize::MAX);
        let jobs = self.next(client, most)?;
        // Where one is missing, a worker was faster, or its delay was over.
        let missing = send_each(client, jobs.iter().map(|job| job.id), verb)?.len();
        Ok((!jobs.is_empty()).then_some((jobs.len() - missing) as u64))
    }

    /// Up to so many jobs: the first one, and those with the ids behind it and
    /// before it. A direction is given up when so many ids in a row were not
    /// among them; a list, when it has shown so many jobs.
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
        let mut pages = patience / list::MOST as u64;
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

    /// The same by asking for the ids around this one.
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

    /// The job that the server calls the first in this state.
    pub fn first(&self, client: &mut Client) -> Outcome<Option<Job>> {
        if self.state == State::Reserved {
            return Ok(None);
        }
        let line = format!("peek-{}", self.state.name());
        client.use_tube(&self.tube)?;
        let reply = client.call(&line)?;
        job(line, reply)
    }

    /// Those that belong to the sweep, among the jobs with these ids.
    fn among(&self, client: &mut Client, ids: Range<u64>) -> Outcome<Vec<JobFacts>> {
        let mut found = jobs_of(client, ids.map(JobId))?;
        found.retain(|job| job.state == self.state && job.tube == self.tube);
        Ok(found)
    }
}
