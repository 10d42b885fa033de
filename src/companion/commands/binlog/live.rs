//! Reads a log: the jobs that are alive, those that are known to be lost, and what
//! cannot be read.

use crate::failure::{Failure, Outcome, plain};
use crate::inspection::{Finding, Format, Inspection};
use crate::text::output::complain;
use beanpole::binlog::{Error, Record};
use beanpole::engine::{StoredJob, StoredState};
use beanpole::protocol::{Body, JobId};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

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
    /// How many things were found that should not be.
    pub flaws: usize,
    /// How many records each file has.
    pub records: BTreeMap<u32, u64>,
}

/// Opens the log in this directory.
pub fn inspect(path: &Path) -> Outcome<Inspection> {
    let inspection = Inspection::of(path).map_err(refused)?;
    if inspection.files().next().is_none() && !inspection.is_gone {
        let nothing = format!("there is no file of a binlog in {}", path.display());
        return Err(Failure::Missing(nothing));
    }
    Ok(inspection)
}

/// Reads the whole log, and gives each finding to `each`. Bodies are kept only if
/// `whole` says so: a log may be larger than the memory.
pub fn read(
    inspection: &Inspection,
    whole: bool,
    mut each: impl FnMut(&Finding) -> Outcome<()>,
) -> Outcome<Live> {
    let mut live = Live::default();
    let mut outcome = Ok(());
    let reading = inspection.read(&mut |finding| {
        if outcome.is_ok() {
            outcome = each(&finding);
            live.note(finding, whole);
        }
    });
    reading.map_err(refused)?;
    outcome.map(|()| live)
}

impl Live {
    /// The jobs, without those of which only a key is left.
    pub fn there(&self) -> impl Iterator<Item = &Living> {
        let living = self.jobs.values();
        living.filter(|living| !living.job.is_deleted())
    }

    /// What is to be said of each job that is lost.
    pub fn losses(&self) -> impl Iterator<Item = String> {
        let lost = self.lost.iter();
        lost.map(|id| format!("job {id} is lost: no record says what it was"))
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

    fn note(&mut self, finding: Finding, whole: bool) {
        let is_flaw = !matches!(finding, Finding::Record(..) | Finding::Torn(..));
        self.flaws += usize::from(is_flaw);
        let (at, is_theirs, record) = match finding {
            Finding::Record(at, format, record) => {
                (at, matches!(format, Format::Beanstalkd(_)), Some(record))
            }
            Finding::NotWhole(at, id) => {
                self.highest = self.highest.max(id.0);
                if !self.jobs.contains_key(&id) {
                    self.lost.insert(id);
                }
                (at, true, None)
            }
            Finding::Flaw(..) | Finding::Torn(..) | Finding::Missing(_) | Finding::Gone => return,
        };
        *self.records.entry(at.number).or_default() += 1;
        match record {
            Some(Record::Put(mut job)) => {
                job.state = self.place(job.id, job.state, is_theirs);
                if !whole {
                    job.body = Body::new(b"");
                }
                self.lost.remove(&job.id);
                let file = at.number;
                self.jobs.insert(job.id, Living { job, file });
            }
            Some(Record::Update(mut update)) => {
                update.state = self.place(update.id, update.state, is_theirs);
                if let Some(Living { job, .. }) = self.jobs.get_mut(&update.id) {
                    update.apply(job);
                } else if !is_theirs {
                    // The job may still come: compaction may have moved it here
                    // from a file that is gone. In a log of beanstalkd, an
                    // update before the complete job has no effect.
                    self.lost.insert(update.id);
                }
            }
            Some(Record::Delete(id)) => {
                self.highest = self.highest.max(id.0);
                self.lost.remove(&id);
                self.jobs.remove(&id);
            }
            Some(Record::Mark(_)) | None => {}
        }
    }

    /// The state of this job, whose id is counted. If a job of beanstalkd is
    /// buried, it gets a place in the order of burial, and keeps it as long as it
    /// stays buried.
    fn place(&mut self, id: JobId, state: StoredState, is_theirs: bool) -> StoredState {
        self.highest = self.highest.max(id.0);
        let before = self.jobs.get(&id).map(|living| living.job.state);
        match (state, before) {
            (state, _) if !is_theirs => state,
            (StoredState::Buried { .. }, Some(buried @ StoredState::Buried { .. })) => buried,
            (StoredState::Buried { .. }, _) => {
                self.buried += 1;
                StoredState::Buried { order: self.buried }
            }
            (other, _) => other,
        }
    }
}

/// The failure for a log that cannot be read.
pub fn refused(error: Error) -> Failure {
    Failure::Refused(match error {
        Error::Locked(path) => format!("a server uses {}: stop it first", path.display()),
        other => plain(other),
    })
}

/// The name of the file with this number.
pub fn name(number: u32) -> String {
    format!("binlog.{number}")
}

/// Describes a finding on standard error, if it is worth a message.
pub fn say(finding: &Finding) {
    if let Some(text) = in_words(finding) {
        complain!("{text}");
    }
}

/// The description of a finding. A record needs none.
pub fn in_words(finding: &Finding) -> Option<String> {
    let (at, text) = match finding {
        Finding::Flaw(at, bytes, flaw) => (at, format!("{bytes} bytes cannot be read: {flaw}")),
        Finding::Torn(at, bytes) => {
            let torn = format!("{bytes} bytes were never finished: a server drops them");
            (at, torn)
        }
        Finding::NotWhole(at, id) => (at, format!("the body of job {id} is not whole")),
        Finding::Missing(number) => return Some(format!("{}: missing, and needed", name(*number))),
        Finding::Gone => return Some("all segments are missing".into()),
        Finding::Record(..) => return None,
    };
    Some(format!(
        "{} at offset {}: {text}",
        name(at.number),
        at.offset
    ))
}
