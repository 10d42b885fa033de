//! Which tubes and which jobs a command is about. All commands that choose
//! among jobs share these options.

use crate::command::{Invocation, Kind, Opt, Settings, options};
use crate::failure::{Failure, Outcome, Status};
use crate::server::census::Census;
use crate::server::client::Client;
use crate::server::list::{MOST, Scope, Walk};
use crate::server::stats::{JobFacts, State, free_states};
use crate::server::take::{each_body, jobs_of};
use crate::server::tubes::Patterns;
use beanpole::protocol::JobId;
use std::ffi::OsString;
use std::num::NonZeroU64;
use std::time::Duration;

options! {
    states: Vec<State> =
        Opt::value("", "state", "STATE", "only jobs in this state; may be repeated (default: all)")
            .of(Kind::Words(&["ready", "delayed", "reserved", "buried"]))
            .many(),
    older: Option<Duration> =
        Opt::value("", "older", "TIME", "only jobs at least TIME old (default: all)"),
    tries: Option<NonZeroU64> =
        Opt::value("", "tries", "N", "only jobs reserved at least so often (default: all)"),
    part: Option<OsString> =
        Opt::value("", "match", "BYTES", "only jobs with this in their body (default: all)"),
    count: Option<NonZeroU64> = Opt::value("n", "count", "N", "at most N jobs (default: all)"),
}

/// The options of a selection; they come after the command's own.
pub const SELECTION: Settings<Options> = OPTIONS;

/// The jobs that a command is about.
pub struct Selection {
    pub scope: Scope,
    wanted: Options,
}

impl Selection {
    /// The selection of the command line, in these tubes. The command has `own`
    /// options of its own before those of a selection.
    pub fn of(
        invocation: &Invocation,
        own: usize,
        client: &mut Client,
        tubes: &Patterns,
    ) -> Outcome<Selection> {
        let wanted = invocation.read_after(own, SELECTION)?;
        let states = match wanted.states.as_slice() {
            [] => State::ALL.into(),
            some => some.into(),
        };
        let tubes = tubes.existing(client)?;
        Ok(Selection {
            scope: Scope { tubes, states },
            wanted,
        })
    }

    /// The same, but without jobs that are reserved, since nothing can be done
    /// to them; it is a failure if they were asked for. The states are in the
    /// order in which to go through them.
    pub fn free(mut self) -> Outcome<Selection> {
        let wanted = free_states(&self.wanted.states);
        self.scope.states =
            wanted.map_err(|reason| Failure::Usage(format!("--state: {reason}")))?;
        Ok(self)
    }

    /// Whether only tubes, states and a number are given.
    pub fn is_plain(&self) -> bool {
        let Options {
            older, tries, part, ..
        } = &self.wanted;
        older.is_none() && tries.is_none() && part.is_none()
    }

    /// The highest number of jobs.
    pub fn most(&self) -> u64 {
        self.wanted.count.map_or(u64::MAX, NonZeroU64::get)
    }

    /// Whether the body of each job has to be looked at.
    pub fn needs_bodies(&self) -> bool {
        self.wanted
            .part
            .as_ref()
            .is_some_and(|part| !part.is_empty())
    }

    /// Whether this body belongs to a job of the selection.
    pub fn has_part(&self, body: &[u8]) -> bool {
        let part = self
            .wanted
            .part
            .as_deref()
            .unwrap_or_default()
            .as_encoded_bytes();
        contains(body, part)
    }

    /// Gives the jobs that meet all conditions but the one on their bodies, in
    /// the order of their ids, some at a time, until `each` has enough. The
    /// status tells whether all could be found.
    pub fn pages(
        &self,
        client: &mut Client,
        mut each: impl FnMut(&mut Client, Vec<JobFacts>) -> Outcome<bool>,
    ) -> Outcome {
        let wants = |job: &JobFacts| {
            self.scope.has(job)
                && self.wanted.older.is_none_or(|age| job.age >= age.as_secs())
                && self
                    .wanted
                    .tries
                    .is_none_or(|tries| job.reserves >= tries.get())
        };
        if let Some(mut walk) = Walk::begin(client, &self.scope)? {
            while !walk.is_over() {
                let mut jobs = walk.page(client, MOST)?;
                jobs.retain(wants);
                if !each(client, jobs)? {
                    break;
                }
            }
            return Ok(Status::Done);
        }
        let census = Census::by_ids(client, &self.scope)?;
        let status = census.verdict();
        for ids in census.ids.chunks(MOST) {
            let mut jobs = jobs_of(client, ids.iter().copied())?;
            jobs.retain(wants);
            if !each(client, jobs)? {
                break;
            }
        }
        Ok(status)
    }

    /// The ids of the jobs that meet all conditions, in ascending order, and
    /// whether all could be found.
    pub fn ids(&self, client: &mut Client) -> Outcome<(Vec<JobId>, Status)> {
        let most = usize::try_from(self.most()).unwrap_or(usize::MAX);
        let mut ids = Vec::new();
        let status = self.pages(client, |client, jobs| {
            if self.needs_bodies() {
                each_body(client, jobs, |job, body| {
                    ids.extend(self.has_part(&body).then_some(job.id));
                    Ok(())
                })?;
            } else {
                ids.extend(jobs.iter().map(|job| job.id));
            }
            Ok(ids.len() < most)
        })?;
        ids.truncate(most);
        Ok((ids, status))
    }
}

/// Whether a body contains these bytes.
pub fn contains(body: &[u8], part: &[u8]) -> bool {
    part.is_empty() || body.windows(part.len()).any(|bytes| bytes == part)
}
