//! What clients know for certain, because the server has told them.

use crate::history::{History, Jobs};
use crate::world::{is_same, settled};
use beanpole::engine::{StoredJob, StoredState, Time};
use beanpole::protocol::JobId;
use std::collections::{BTreeMap, BTreeSet};

/// What a reply says.
#[derive(Clone)]
pub enum Fact {
    /// A job is there, with this body.
    There(JobId, Vec<u8>),
    /// A job is gone for ever.
    Gone(JobId),
    /// There is or was a job of this id, and there will be no other one.
    Seen(JobId),
}

/// The facts that were acknowledged.
#[derive(Clone)]
pub struct Ledger {
    there: BTreeMap<JobId, Vec<u8>>,
    gone: BTreeSet<JobId>,
    /// The jobs that were there at the last start.
    at_start: BTreeSet<JobId>,
    /// The first id that was new at the last start. No other job with a smaller
    /// id may ever come back.
    first_new: JobId,
    /// The jobs whose deletion was begun. They may be there or not.
    deleting: BTreeSet<JobId>,
    last_told: JobId,
}

impl Ledger {
    /// A ledger for a server that starts. The jobs that it has read from the
    /// disk are certain from then on.
    pub fn new(jobs: &Jobs, next_id: JobId) -> Ledger {
        let there = jobs.values().filter(|job| !job.is_deleted());
        let there: BTreeMap<_, _> = there
            .map(|job| (job.id, job.body.content().to_vec()))
            .collect();
        Ledger {
            at_start: there.keys().copied().collect(),
            there,
            first_new: next_id,
            gone: BTreeSet::new(),
            deleting: BTreeSet::new(),
            last_told: JobId(0),
        }
    }

    /// Notes that the server has begun to delete this job for a client.
    pub fn delete(&mut self, id: JobId) {
        self.there.remove(&id);
        self.deleting.insert(id);
    }

    /// Notes that a client was told this fact.
    pub fn note(&mut self, fact: Fact) {
        match fact {
            Fact::There(id, body) => {
                self.last_told = self.last_told.max(id);
                if !self.deleting.contains(&id) {
                    self.there.insert(id, body);
                }
            }
            Fact::Gone(id) => {
                self.gone.insert(id);
            }
            Fact::Seen(id) => self.last_told = self.last_told.max(id),
        }
    }
}

/// What must be found at the next start.
pub struct Kept {
    pub ledger: Ledger,
    pub history: History,
}

impl Kept {
    /// Panics if it was not found. `now` is the time when the server ended.
    /// If the clock was set back, nothing is known of times: they are cut to
    /// what was asked for at each start.
    pub fn check(&self, jobs: &Jobs, next_id: JobId, now: Time, knows_times: bool) {
        let ledger = &self.ledger;
        assert!(next_id > ledger.last_told, "{next_id} was given before");
        assert!(next_id >= ledger.first_new, "{next_id} was given before");
        for (id, body) in &ledger.there {
            let job = jobs.get(id);
            let job = job.filter(|job| !job.is_deleted());
            let job = job.unwrap_or_else(|| panic!("job {id} is lost"));
            assert_eq!(job.body.content(), body, "job {id} has another body");
        }
        // Of a deleted job its key may be left.
        for (id, _) in jobs.iter().filter(|(_, job)| !job.is_deleted()) {
            let was_gone = *id < ledger.first_new && !ledger.at_start.contains(id);
            let is_back = was_gone || ledger.gone.contains(id);
            assert!(!is_back, "job {id} is back, though it was deleted");
        }
        assert!(next_id.0 >= self.history.least_next_id());
        let all_settled = |jobs: &Jobs| {
            let jobs = jobs.values().cloned();
            let without = |job: StoredJob| if knows_times { job } else { timeless(job) };
            let jobs = jobs.map(|job| without(settled(job, now)));
            jobs.collect::<Vec<_>>()
        };
        let found = all_settled(jobs);
        // Whoever puts a reserved job again in the log counts its reservation.
        let are_same = |logged: &[StoredJob]| {
            let mut pairs = found.iter().zip(logged);
            found.len() == logged.len() && pairs.all(|(job, logged)| is_same(job, logged))
        };
        let explained = self
            .history
            .explains_if(|jobs| are_same(&all_settled(jobs)));
        assert!(
            explained.is_some(),
            "at no moment were the jobs as they are now"
        );
    }
}

/// The job without its times.
fn timeless(mut job: StoredJob) -> StoredJob {
    job.created_at = Time::default();
    job.state = match job.state {
        StoredState::Delayed { .. } => StoredState::Ready,
        StoredState::Deleted { .. } => StoredState::Deleted {
            until: Time::default(),
        },
        state => state,
    };
    job
}
