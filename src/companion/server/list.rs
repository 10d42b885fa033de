//! Jobs in the order of their ids, as `list-jobs` shows them: a command that
//! beanpoled has and the protocol has not. Whoever walks here needs another way
//! for other servers: a [sweep](crate::server::sweep), or a
//! [census](crate::server::census).

use crate::failure::{Failure, Outcome};
use crate::server::client::Client;
use crate::server::reply::Reply;
use crate::server::stats::{self, JobFacts, State};
use beanpole::protocol::framing::MAX_LINE;
use beanpole::protocol::{JobId, TubeName};

/// Which jobs are meant.
#[derive(Clone)]
pub struct Scope {
    /// Those in these tubes; none: in all.
    pub tubes: Vec<TubeName>,
    /// Those in one of these states.
    pub states: Vec<State>,
}

impl Scope {
    /// Whether this job is meant.
    pub fn has(&self, job: &JobFacts) -> bool {
        (self.tubes.is_empty() || self.tubes.contains(&job.tube))
            && self.states.contains(&job.state)
    }
}

/// As many jobs are shown at once at most.
pub const MOST: usize = 1000;

/// A walk through the jobs of a scope. A job that stays is met exactly once.
pub struct Walk {
    scope: Scope,
    /// Where to go on; `None` at the end.
    next: Option<JobId>,
}

impl Walk {
    /// A walk from the first job on; `None` if this server lists no jobs.
    pub fn begin(client: &mut Client, scope: &Scope) -> Outcome<Option<Walk>> {
        let line = format!("list-jobs {} 1", u64::MAX);
        match client.call(&line)? {
            Reply::Ok(_) => Ok(Some(Walk {
                scope: scope.clone(),
                next: Some(JobId(0)),
            })),
            Reply::UnknownCommand => Ok(None),
            other => Err(Failure::unexpected(line, &other)),
        }
    }

    /// Goes on with the job of this id, or the one behind it.
    pub fn go_to(&mut self, id: JobId) {
        self.next = Some(id);
    }

    /// The next jobs, at least one and at most so many; empty at the end.
    pub fn next(&mut self, client: &mut Client, most: usize) -> Outcome<Vec<JobFacts>> {
        while !self.is_over() {
            let jobs = self.page(client, most)?;
            if !jobs.is_empty() {
                return Ok(jobs);
            }
        }
        Ok(Vec::new())
    }

    /// Whether it has come to the end.
    pub fn is_over(&self) -> bool {
        self.next.is_none()
    }

    /// The jobs that one request shows, at most so many. None of those that it
    /// went by may be meant: that need not be the end.
    pub fn page(&mut self, client: &mut Client, most: usize) -> Outcome<Vec<JobFacts>> {
        let Some(from) = self.next else {
            return Ok(Vec::new());
        };
        let line = self.line(from, most);
        let Reply::Ok(document) = client.call(&line)? else {
            return Failure::refused(format!("{line}: the server lists no jobs"));
        };
        let wrong = |reason| Failure::Unreachable(format!("{line}: {reason}"));
        let (jobs, next) = stats::jobs(&document).map_err(wrong)?;
        self.next = next.filter(|next| *next > from);
        let jobs: Result<Vec<_>, String> = jobs.into_iter().map(JobFacts::read).collect();
        let mut jobs = jobs.map_err(wrong)?;
        jobs.retain(|job| self.scope.has(job));
        Ok(jobs)
    }

    /// The request: with the tube and the state, if there is one of each and
    /// a line has room for them. What it gets is looked through in any case.
    fn line(&self, from: JobId, most: usize) -> String {
        let all = format!("list-jobs {from} {most}");
        let narrow = match (self.scope.tubes.as_slice(), self.scope.states.as_slice()) {
            ([tube], [state]) => format!("{all} {tube} {}", state.name()),
            ([tube], _) => format!("{all} {tube}"),
            _ => return all,
        };
        match narrow.len() + 2 <= MAX_LINE {
            true => narrow,
            false => all,
        }
    }
}
