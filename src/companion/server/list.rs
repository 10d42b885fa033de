//! Jobs in the order of their ids, as `list-jobs` shows them, and connections, as
//! `list-connections` does. beanpoled has these commands; the protocol does not.
//! With other servers, the [finder](crate::server::finder) has another way to
//! jobs; to connections there is none.

use crate::failure::{Failure, Outcome};
use crate::server::client::Client;
use crate::server::reply::Reply;
use crate::server::stats::{self, Facts, JobFacts, State};
use beanpole::protocol::framing::MAX_LINE;
use beanpole::protocol::{JobId, TubeName};

/// The jobs that a caller is interested in.
#[derive(Clone)]
pub struct Scope {
    /// Jobs in these tubes; in all tubes if this is empty.
    pub tubes: Vec<TubeName>,
    /// Jobs in one of these states.
    pub states: Vec<State>,
}

impl Scope {
    /// Whether this job belongs to the scope.
    pub fn has(&self, job: &JobFacts) -> bool {
        (self.tubes.is_empty() || self.tubes.contains(&job.tube))
            && self.states.contains(&job.state)
    }
}

/// The highest number of jobs or connections that one request asks for.
pub const MOST: usize = 1000;

/// A walk through the jobs of a scope. It meets a job that stays exactly once.
pub struct Walk {
    scope: Scope,
    /// The id from which the walk goes on; `None` at the end.
    next: Option<JobId>,
}

impl Walk {
    /// A walk that begins at the first job; `None` if this server does not list
    /// its jobs.
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

    /// Goes on with the job of this id, or with the next one after it.
    pub fn go_to(&mut self, id: JobId) {
        self.next = Some(id);
    }

    /// The id from which the walk goes on; `None` at the end.
    pub fn place(&self) -> Option<JobId> {
        self.next
    }

    /// The next jobs: at least one, and at most `most`. Empty at the end.
    pub fn next(&mut self, client: &mut Client, most: usize) -> Outcome<Vec<JobFacts>> {
        while !self.is_over() {
            let jobs = self.page(client, most)?;
            if !jobs.is_empty() {
                return Ok(jobs);
            }
        }
        Ok(Vec::new())
    }

    /// Whether the walk has come to its end.
    pub fn is_over(&self) -> bool {
        self.next.is_none()
    }

    /// The jobs of the scope among those that one request shows, at most
    /// `most`. An empty page need not be the end: the request may have shown
    /// other jobs.
    pub fn page(&mut self, client: &mut Client, most: usize) -> Outcome<Vec<JobFacts>> {
        let Some(from) = self.next else {
            return Ok(Vec::new());
        };
        let line = self.line(from, most);
        let Reply::Ok(document) = client.call(&line)? else {
            return Failure::refused(format!("{line}: the server lists no jobs"));
        };
        let wrong = |reason| Failure::Unreachable(format!("{line}: {reason}"));
        let (jobs, next) = stats::list(&document).map_err(wrong)?;
        self.next = next.map(JobId).filter(|next| *next > from);
        let known = jobs.into_iter().map(|facts| client.known(facts));
        let mut jobs: Vec<_> = known
            .filter_map(Outcome::transpose)
            .collect::<Outcome<_>>()?;
        jobs.retain(|job| self.scope.has(job));
        Ok(jobs)
    }

    /// The request. If there is exactly one tube, it names the tube, and the
    /// state if there is exactly one, provided that a line has room for them.
    /// The jobs in the reply are checked in any case.
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

/// Gives the connections of a server in the order in which they came, some at a
/// time, until `each` has enough. Returns whether this server lists them.
pub fn connections(
    client: &mut Client,
    mut each: impl FnMut(Vec<Facts>) -> Outcome<bool>,
) -> Outcome<bool> {
    let mut next = Some(0);
    while let Some(from) = next {
        let line = format!("list-connections {from} {MOST}");
        let document = match client.call(&line)? {
            Reply::Ok(document) => document,
            Reply::UnknownCommand => return Ok(false),
            other => return Err(Failure::unexpected(line, &other)),
        };
        let wrong = |reason| Failure::Unreachable(format!("{line}: {reason}"));
        let (page, after) = stats::list(&document).map_err(wrong)?;
        next = after.filter(|after| *after > from);
        if !each(page)? {
            break;
        }
    }
    Ok(true)
}
