//! The jobs that live by what a log says, and what is known to be lost.

use crate::inspection::{At, Finding};
use beanpole::binlog::Record;
use beanpole::engine::{StoredJob, StoredState};
use beanpole::protocol::JobId;
use std::collections::{BTreeMap, BTreeSet};

/// A job and the file that its latest whole record stands in.
pub struct Living {
    pub job: StoredJob,
    pub file: u32,
}

/// What a log comes to.
#[derive(Default)]
pub struct Live {
    pub jobs: BTreeMap<JobId, Living>,
    /// Jobs of which a record says that they lived, but of which none says what
    /// they were.
    pub lost: BTreeSet<JobId>,
    /// The highest id that a record is about.
    pub highest: u64,
    /// Jobs of beanstalkd's that were buried so far: it logs no order.
    buried: u64,
}

impl Live {
    /// Takes note of a finding.
    pub fn note(&mut self, finding: Finding) {
        match finding {
            Finding::Record(at, record) => self.note_record(at, record),
            Finding::Theirs(at, record) => self.note_theirs(at, record),
            Finding::NotWhole(_, id) => {
                self.highest = self.highest.max(id.0);
                if !self.jobs.contains_key(&id) {
                    self.lost.insert(id);
                }
            }
            Finding::Flaw(..) | Finding::Torn(..) | Finding::Missing(_) => {}
        }
    }

    fn note_record(&mut self, at: At, record: Record) {
        match record {
            Record::Put(job) => self.lives(at, job),
            Record::Update(update) => {
                self.highest = self.highest.max(update.id.0);
                match self.jobs.get_mut(&update.id) {
                    Some(Living { job, .. }) => {
                        job.priority = update.priority;
                        job.delay = update.delay;
                        job.state = update.state;
                        job.counters = update.counters;
                    }
                    // It may come again, moved here from a file that is gone.
                    None => {
                        self.lost.insert(update.id);
                    }
                }
            }
            Record::Delete(id) => self.ends(id),
            Record::Mark(_) => {}
        }
    }

    fn note_theirs(&mut self, at: At, record: Record) {
        match record {
            Record::Put(mut job) => {
                job.state = self.place(job.id, job.state);
                self.lives(at, job);
            }
            Record::Update(fields) => {
                let state = self.place(fields.id, fields.state);
                // One that comes before the whole job counts for nothing.
                if let Some(Living { job, .. }) = self.jobs.get_mut(&fields.id) {
                    job.priority = fields.priority;
                    job.delay = fields.delay;
                    job.ttr = fields.ttr;
                    job.created_at = fields.created_at;
                    job.counters = fields.counters;
                    job.state = state;
                }
            }
            Record::Delete(id) => self.ends(id),
            Record::Mark(_) => {}
        }
    }

    fn lives(&mut self, at: At, job: StoredJob) {
        self.highest = self.highest.max(job.id.0);
        self.lost.remove(&job.id);
        self.jobs.insert(
            job.id,
            Living {
                job,
                file: at.number,
            },
        );
    }

    fn ends(&mut self, id: JobId) {
        self.highest = self.highest.max(id.0);
        self.lost.remove(&id);
        self.jobs.remove(&id);
    }

    /// The state with a place among the buried jobs, in the order of burial.
    fn place(&mut self, id: JobId, state: StoredState) -> StoredState {
        let before = self.jobs.get(&id).map(|living| living.job.state);
        match (state, before) {
            (StoredState::Buried { .. }, Some(buried @ StoredState::Buried { .. })) => buried,
            (StoredState::Buried { .. }, _) => {
                self.buried += 1;
                StoredState::Buried { order: self.buried }
            }
            (other, _) => other,
        }
    }

    /// The jobs in the order in which they have to be put to come out as they
    /// are: by id, the buried ones behind all others as they were buried.
    pub fn in_order(&self) -> Vec<&StoredJob> {
        let mut jobs: Vec<_> = self.jobs.values().map(|living| &living.job).collect();
        jobs.sort_by_key(|job| match job.state {
            StoredState::Buried { order } => (1, order, job.id),
            _ => (0, 0, job.id),
        });
        jobs
    }
}
