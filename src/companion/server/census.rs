//! All jobs of some tubes, found without touching one.
//!
//! beanpoled lists its jobs. The protocol does not, but it answers for any id,
//! and ids are given in ascending order. So, with other servers, a census asks
//! for every id that can exist, newest first, and stops early when it has found
//! as many jobs as the server says there are and none has been put meanwhile.
//! It costs one `stats-job` for each id that was ever given, at worst; it
//! changes nothing, and a job that exists from beginning to end cannot escape
//! it.
//!
//! Reserving all jobs and releasing them would be cheaper, but it would keep
//! them from their workers, change their counters, and, if interrupted, leave
//! buried and delayed jobs ready.

use crate::failure::{Failure, Outcome, Status};
use crate::server::client::Client;
use crate::server::list::{self, Scope, Walk};
use crate::server::reply::Reply;
use crate::server::stats::{Facts, State};
use crate::server::sweep::Sweep;
use crate::server::take::jobs_of;
use crate::text::output::{Progress, complain};
use crate::values::Parse;
use beanpole::protocol::JobId;

/// What was found.
pub struct Census {
    /// The jobs in ascending order: that in which they were put.
    pub ids: Vec<JobId>,
    /// Jobs that the server counts and that could not be found. This happens
    /// only with a server that drains and has a binlog.
    pub missing: u64,
}

/// Ids asked for between two looks at whether all are found.
const CHUNK: u64 = 10_000;
/// Ids asked for beyond what is known to exist, before giving up.
const BEYOND: u64 = 10_000_000;

/// The highest id that can exist.
enum Highest {
    /// No job has a higher one.
    Proven(u64),
    /// There may be higher ones.
    Seen(u64),
}

impl Census {
    /// Finds the jobs in this scope that exist now.
    pub fn take(client: &mut Client, scope: &Scope) -> Outcome<Census> {
        match Walk::begin(client, scope)? {
            Some(walk) => Census::walk(client, walk),
            None => Census::ask_for_all(client, scope),
        }
    }

    fn walk(client: &mut Client, mut walk: Walk) -> Outcome<Census> {
        let mut progress = Progress::new("finding jobs", None);
        let mut ids = Vec::new();
        loop {
            let jobs = walk.next(client, list::MOST)?;
            if jobs.is_empty() {
                return Ok(Census { ids, missing: 0 });
            }
            progress.add(jobs.len() as u64);
            ids.extend(jobs.iter().map(|job| job.id));
        }
    }

    fn ask_for_all(client: &mut Client, scope: &Scope) -> Outcome<Census> {
        let highest = highest(client, scope)?;
        let (Highest::Proven(top) | Highest::Seen(top)) = highest;
        let count = scope.count(client)?;
        let mut search = Search {
            scope,
            count,
            found: 0,
            ids: Vec::new(),
            progress: Progress::new("looking at job", Some(top)),
        };
        let mut above = top;
        while above > 0 && !search.is_complete(client)? {
            let from = above.saturating_sub(CHUNK);
            search.look_at(client, from + 1, above)?;
            above = from;
        }
        if let Highest::Seen(_) = highest {
            let mut from = top;
            while from < top + BEYOND && !search.is_complete(client)? {
                search.look_at(client, from + 1, from + CHUNK)?;
                from += CHUNK;
            }
        }
        let missing = match highest {
            Highest::Proven(_) => 0,
            Highest::Seen(_) => search
                .scope
                .count(client)?
                .jobs
                .saturating_sub(search.found),
        };
        search.ids.sort();
        Ok(Census {
            ids: search.ids,
            missing,
        })
    }
}

impl Census {
    /// Whether nothing is missing; if something is, says so.
    pub fn verdict(&self) -> Status {
        if self.missing > 0 {
            complain(format_args!(
                "beanpole: {} jobs could not be found: the server is draining, so the highest id is \
                 not known",
                self.missing
            ));
        }
        Status::done_if(self.missing == 0)
    }
}

struct Search<'a> {
    scope: &'a Scope,
    /// As counted after the highest id was determined.
    count: Count,
    /// Jobs of the tubes in any state: one may change its state meanwhile.
    found: u64,
    ids: Vec<JobId>,
    progress: Progress,
}

/// What the server counts in the tubes.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Count {
    /// Jobs that exist, in any state.
    jobs: u64,
    /// Jobs that were ever put.
    created: u64,
}

impl Search<'_> {
    fn look_at(&mut self, client: &mut Client, from: u64, to: u64) -> Outcome<()> {
        let mut jobs = jobs_of(client, (from..=to).map(JobId))?;
        let tubes = &self.scope.tubes;
        jobs.retain(|job| tubes.is_empty() || tubes.contains(&job.tube));
        self.found += jobs.len() as u64;
        jobs.retain(|job| self.scope.states.contains(&job.state));
        self.ids.extend(jobs.iter().map(|job| job.id));
        self.progress.add(to - from + 1);
        Ok(())
    }

    /// Whether all are found. If jobs were put since they were counted, one of
    /// those found may have been on its way then: that proves nothing.
    fn is_complete(&self, client: &mut Client) -> Outcome<bool> {
        Ok(
            self.found >= self.count.jobs
                && self.scope.count(client)?.created == self.count.created,
        )
    }
}

impl Scope {
    fn count(&self, client: &mut Client) -> Outcome<Count> {
        let mut all = Vec::new();
        if self.tubes.is_empty() {
            all.push(client.server_stats()?);
        }
        for tube in &self.tubes {
            all.extend(client.tube_stats(tube)?);
        }
        let jobs_of = |facts: &Facts| -> u64 {
            State::ALL
                .iter()
                .map(|state| facts.number(state.count_key()))
                .sum()
        };
        Ok(Count {
            jobs: all.iter().map(jobs_of).sum(),
            created: all.iter().map(|facts| facts.number("total-jobs")).sum(),
        })
    }
}

/// The highest id that a job which exists now can have.
///
/// Without a binlog ids begin with 1 and each belongs to a `put`, so the count
/// of those will do. With one they go on from earlier runs; then a job is put,
/// which tells its id, and deleted. A server that drains takes no job, and we
/// have to begin at what can be seen.
fn highest(client: &mut Client, scope: &Scope) -> Outcome<Highest> {
    let stats = client.server_stats()?;
    let puts = stats.number("cmd-put");
    if stats.get("binlog-current-index") == Some("0") {
        return Ok(Highest::Proven(puts));
    }
    match probe(client)? {
        Some(id) => Ok(Highest::Proven(id.0)),
        None => highest_seen(client, scope, puts).map(Highest::Seen),
    }
}

/// The id of a job that is put, into a tube of our own, and deleted at once.
/// `None`: the server is draining.
pub fn probe(client: &mut Client) -> Outcome<Option<JobId>> {
    let tube = format!("beanpole-probe-{}", std::process::id());
    client.use_tube(&Parse::parse(&tube).map_err(Failure::Usage)?)?;
    // Delayed as long as can be, so that nobody reserves it.
    client.queue(format_args!("put {0} {0} 1 0\r\n", u32::MAX));
    let id = match client.reply()? {
        Reply::Inserted(id) | Reply::Buried(Some(id)) => id,
        Reply::Draining => return Ok(None),
        other => return Err(Failure::unexpected("put", &other)),
    };
    match client.call(format_args!("delete {id}"))? {
        Reply::Deleted => Ok(Some(id)),
        other => Err(Failure::unexpected(format_args!("delete {id}"), &other)),
    }
}

fn highest_seen(client: &mut Client, scope: &Scope, puts: u64) -> Outcome<u64> {
    let tubes = if scope.tubes.is_empty() {
        client.tubes()?
    } else {
        scope.tubes.clone()
    };
    let mut highest = 0;
    for tube in tubes {
        for state in State::ALL {
            let first = Sweep::new(tube.clone(), state).first(client)?;
            highest = highest.max(first.map_or(0, |job| job.id.0));
        }
    }
    Ok(highest.saturating_add(puts))
}
