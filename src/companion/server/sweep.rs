//! Jobs of a tube in one state, found without taking them.
//!
//! beanpoled [lists](crate::server::list) its jobs. The protocol does not; it
//! shows the first ready, delayed or buried job of a tube, and any job whose id
//! is known. Jobs that were put together have neighbouring ids, so the first
//! one leads to others: a sweep asks for the jobs with the next ids, many at
//! once, and keeps those in the same tube and state. It is exact about what it
//! finds, but with mixed priorities the order is that of the ids, not the
//! queue's. What finds every job, at a price, is a
//! [census](crate::server::census).

use crate::failure::Outcome;
use crate::server::by_id::send_each;
use crate::server::client::{Client, job};
use crate::server::list::{self, Scope, Walk};
use crate::server::reply::{Job, Reply};
use crate::server::stats::{JobFacts, State};
use crate::server::take::jobs_of;
use beanpole::protocol::{JobId, TubeName};
use std::ops::Range;

/// A sweep through the jobs of a tube in one state.
pub struct Sweep {
    tube: TubeName,
    state: State,
    /// How many ids are asked for at once.
    width: u64,
    /// Where the server lists its jobs; not known before the first question.
    walk: Option<Option<Walk>>,
    /// The first job that the server has listed last.
    listed: JobId,
}

const NARROWEST: u64 = 16;
const WIDEST: u64 = 1024;

impl Sweep {
    /// A sweep. The state is not 'reserved': no command shows such jobs.
    pub fn new(tube: TubeName, state: State) -> Sweep {
        Sweep {
            tube,
            state,
            width: NARROWEST,
            walk: None,
            listed: JobId(0),
        }
    }

    fn walk(&self, client: &mut Client) -> Outcome<Option<Walk>> {
        let scope = Scope {
            tubes: vec![self.tube.clone()],
            states: vec![self.state],
        };
        Walk::begin(client, &scope)
    }

    /// The first job and its neighbours, for those who take them away: asking
    /// again gives others then. Empty: there are no more.
    pub fn next(&mut self, client: &mut Client) -> Outcome<Vec<JobFacts>> {
        // A list may be long; this is a short question.
        let mut first = self.first(client)?;
        if first.is_none() {
            return Ok(Vec::new());
        }
        if self.walk.is_none() {
            self.walk = Some(self.walk(client)?);
        }
        if let Some(Some(walk)) = &mut self.walk {
            // Where it was before: not all of those need have been taken.
            walk.go_to(self.listed);
            let mut jobs = walk.next(client, list::MOST)?;
            if jobs.is_empty() && self.listed > JobId(0) {
                walk.go_to(JobId(0));
                jobs = walk.next(client, list::MOST)?;
            }
            self.listed = jobs.first().map_or(JobId(0), |job| job.id);
            return Ok(jobs);
        }
        while let Some(job) = first {
            let found = self.among(client, job.id, self.width)?;
            let hits = found.len() as u64;
            self.width = match hits * 4 {
                dense if dense >= self.width => self.width * 2,
                _ => self.width / 2,
            };
            self.width = self.width.clamp(NARROWEST, WIDEST);
            // None: the first one has changed its state since. Look again.
            if !found.is_empty() {
                return Ok(found);
            }
            first = self.first(client)?;
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
        good: &Reply,
    ) -> Outcome<Option<u64>> {
        let mut jobs = self.next(client)?;
        jobs.truncate(usize::try_from(most).unwrap_or(usize::MAX));
        let ids = jobs.iter().map(|job| job.id);
        // Where one is missing, a worker was faster, or its delay was over.
        let missing = send_each(client, ids, verb, good)?.len();
        Ok((!jobs.is_empty()).then_some((jobs.len() - missing) as u64))
    }

    /// Up to so many jobs: the first one, and those with the ids behind it and
    /// before it. A direction is given up when so many ids in a row were not
    /// among them; a list, when it has shown so many jobs.
    pub fn look(&self, client: &mut Client, most: usize, patience: u64) -> Outcome<Vec<JobFacts>> {
        let Some(first) = self.first(client)? else {
            return Ok(Vec::new());
        };
        let there = client
            .tube_stats(&self.tube)?
            .map_or(0, |facts| facts.number(self.state.count_key()));
        let most = usize::try_from(there)
            .unwrap_or(usize::MAX)
            .min(most)
            .max(1);
        let mut found = self.among(client, first.id, 1)?;
        if let Some(mut walk) = self.walk(client)? {
            let mut pages = patience / list::MOST as u64;
            for start in [first.id, JobId(0)] {
                walk.go_to(start);
                while found.len() < most && pages > 0 && !walk.is_over() {
                    pages -= 1;
                    let jobs = walk.page(client, list::MOST)?.into_iter();
                    let jobs = jobs.filter(|job| job.id != first.id);
                    found.extend(jobs.filter(|job| (job.id > first.id) == (start == first.id)));
                }
            }
            found.truncate(most);
            return Ok(found);
        }
        let mut next = first.id.0.saturating_add(1);
        self.look_on(client, most, patience, &mut found, |width| {
            let from = next;
            next = next.saturating_add(width);
            Some(from..next)
        })?;
        let mut above = first.id.0;
        self.look_on(client, most, patience, &mut found, |width| {
            let to = above;
            above = above.saturating_sub(width).max(1);
            (above < to).then_some(above..to)
        })?;
        found.truncate(most);
        Ok(found)
    }

    /// Looks at one range of ids after the other until so many jobs are found,
    /// there are no more ranges, or patience is at an end.
    fn look_on(
        &self,
        client: &mut Client,
        most: usize,
        patience: u64,
        found: &mut Vec<JobFacts>,
        mut range: impl FnMut(u64) -> Option<Range<u64>>,
    ) -> Outcome<()> {
        let mut in_vain = 0;
        let mut width = NARROWEST;
        while found.len() < most && in_vain < patience {
            let Some(ids) = range(width) else { break };
            let more = self.among(client, JobId(ids.start), ids.end - ids.start)?;
            in_vain = if more.is_empty() {
                in_vain + (ids.end - ids.start)
            } else {
                0
            };
            width = (width * 2).min(WIDEST);
            found.extend(more);
        }
        Ok(())
    }

    /// The job that the server calls the first in this state.
    pub fn first(&self, client: &mut Client) -> Outcome<Option<Job>> {
        // No command shows such a job.
        if self.state == State::Reserved {
            return Ok(None);
        }
        let line = format!("peek-{}", self.state.name());
        client.use_tube(&self.tube)?;
        let reply = client.call(&line)?;
        job(line, reply)
    }

    /// Those that belong to the sweep, among the jobs with these ids.
    fn among(&self, client: &mut Client, from: JobId, count: u64) -> Outcome<Vec<JobFacts>> {
        let ids = from.0..from.0.saturating_add(count);
        let mut found = jobs_of(client, ids.map(JobId))?;
        found.retain(|job| job.state == self.state && job.tube == self.tube);
        Ok(found)
    }
}
