//! The jobs that are alive according to a log, and those that are known to be
//! lost.

use crate::inspection::{At, Finding, Format};
use beanpole::binlog::Record;
use beanpole::engine::{StoredJob, StoredState};
use beanpole::protocol::JobId;
use std::collections::{BTreeMap, BTreeSet};

/// A job, and the file with its latest complete record.
pub struct Living {
    pub job: StoredJob,
    pub file: u32,
}

/// The result of reading a log.
#[derive(Default)]
pub struct Live {
    pub jobs: BTreeMap<JobId, Living>,
    /// Jobs that live according to a record, but no record has their content.
    pub lost: BTreeSet<JobId>,
    /// The highest id in a record.
    pub highest: u64,
    /// How many times a job of beanstalkd was buried up to now. Its log has no
    /// order of burial, so this number serves as one.
    buried: u64,
}

impl Live {
    /// The jobs, without those of which only a key is left.
    pub fn there(&self) -> impl Iterator<Item = &Living> {
        let living = self.jobs.values();
        living.filter(|living| !living.job.is_deleted())
    }

    /// Adds a finding.
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
                    update.apply(job);
                } else if !is_theirs {
                    // The job may still come: compaction may have moved it here
                    // from a file that is gone. In a log of beanstalkd, an
                    // update before the complete job has no effect.
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

    /// This state, for a job of beanstalkd. If it is buried, it gets a place in
    /// the order of burial, and keeps it as long as it stays buried.
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

    /// The jobs in the order in which they have to be written, so that a server
    /// has them as they are here: by id, and after these the buried jobs in the
    /// order of burial.
    pub fn in_order(&self) -> Vec<&StoredJob> {
        let mut jobs: Vec<_> = self.jobs.values().map(|living| &living.job).collect();
        jobs.sort_by_key(|job| match job.state {
            StoredState::Buried { order } => (1, order, job.id),
            _ => (0, 0, job.id),
        });
        jobs
    }
}
