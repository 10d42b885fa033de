//! The jobs that live by what a log says, and what is known to be lost.

use crate::inspection::{At, Finding, Format};
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
            Finding::Record(at, Format::Beanstalkd(_), record) => {
                self.note_record(at, true, record)
            }
            Finding::Record(at, _, record) => self.note_record(at, false, record),
            Finding::NotWhole(_, id) => {
                self.highest = self.highest.max(id.0);
                if !self.jobs.contains_key(&id) {
                    self.lost.insert(id);
                }
            }
            Finding::Flaw(..) | Finding::Torn(..) | Finding::Missing(_) => {}
        }
    }

    fn note_record(&mut self, At { number: file, .. }: At, is_theirs: bool, record: Record) {
        match record {
            Record::Put(mut job) => {
                if is_theirs {
                    job.state = self.place(job.id, job.state);
                }
                self.highest = self.highest.max(job.id.0);
                self.lost.remove(&job.id);
                self.jobs.insert(job.id, Living { job, file });
            }
            Record::Update(mut update) => {
                if is_theirs {
                    update.state = self.place(update.id, update.state);
                }
                self.highest = self.highest.max(update.id.0);
                if let Some(Living { job, .. }) = self.jobs.get_mut(&update.id) {
                    job.priority = update.priority;
                    job.delay = update.delay;
                    job.ttr = update.ttr;
                    job.created_at = update.created_at;
                    job.counters = update.counters;
                    job.state = update.state;
                } else if !is_theirs {
                    // It may come again, moved here from a file that is gone.
                    // One of theirs that comes before the whole job counts for
                    // nothing.
                    self.lost.insert(update.id);
                }
            }
            Record::Delete(id) => {
                self.highest = self.highest.max(id.0);
                self.lost.remove(&id);
                self.jobs.remove(&id);
            }
            Record::Mark(_) => {}
        }
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
