//! What a log must hold: all changes in their order, of which a number of the first
//! were acknowledged.

use crate::binlog::Record;
use crate::engine::{StoredJob, StoredPause};
use crate::protocol::{JobId, Seconds, TubeName};
use std::collections::BTreeMap;

pub type Jobs = BTreeMap<JobId, StoredJob>;

/// What a log holds.
#[derive(Clone, Default)]
pub struct Held {
    pub jobs: Jobs,
    pub pauses: BTreeMap<TubeName, StoredPause>,
}

impl From<Jobs> for Held {
    fn from(jobs: Jobs) -> Held {
        Held {
            jobs,
            ..Held::default()
        }
    }
}

impl Held {
    /// Applies a change.
    pub fn apply(&mut self, entry: &Record) {
        match entry {
            Record::Pause(pause) if pause.length == Seconds(0) => {
                self.pauses.remove(&pause.tube);
            }
            Record::Pause(pause) => {
                self.pauses.insert(pause.tube.clone(), pause.clone());
            }
            _ => apply(&mut self.jobs, entry),
        }
    }
}

/// All changes since the log was opened, and what there was before them.
#[derive(Clone, Default)]
pub struct History {
    before: Held,
    entries: Vec<Record>,
    /// Where in them the changes of each request begin, which are appended
    /// together.
    requests: Vec<usize>,
    /// How many of the entries, from the first on, must not be lost. Each test
    /// says when an entry counts.
    pub required: usize,
    pub next_id: u64,
    /// The next id when the log was opened.
    first_id: u64,
}

impl History {
    /// A history in which nothing has happened to this yet.
    pub fn new(before: impl Into<Held>, next_id: u64) -> History {
        History {
            before: before.into(),
            entries: Vec::new(),
            requests: Vec::new(),
            required: 0,
            next_id,
            first_id: next_id,
        }
    }

    /// The next changes are those of another request.
    pub fn begin_request(&mut self) {
        self.requests.push(self.entries.len());
    }

    /// Adds a change.
    pub fn push(&mut self, entry: Record) {
        self.entries.push(entry);
    }

    /// The number of changes.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Forgets all changes. For traffic that is too long to remember.
    pub fn forget(&mut self) {
        let next_id = self.next_id;
        *self = History::default();
        self.next_id = next_id;
    }

    /// The lowest id that may be given to a new job.
    pub fn least_next_id(&self) -> u64 {
        let puts = self.entries[..self.required]
            .iter()
            .filter_map(|entry| match entry {
                Record::Put(job) => Some(job.fields.id.0 + 1),
                _ => None,
            });
        puts.fold(self.first_id, u64::max)
    }

    /// Whether these jobs are those after the first `required` entries and none,
    /// some or all of the entries that follow, in their order. If so, returns
    /// the number of all these entries.
    pub fn explains(&self, jobs: &Jobs) -> Option<usize> {
        self.explains_if(|state, _| state.jobs == *jobs)
    }

    /// The same, but `is_it` compares what is held. Its second argument is that after
    /// the whole request: a job that is moved is in the log as it is then, though
    /// other changes of that request follow.
    pub fn explains_if(&self, is_it: impl Fn(&Held, &Held) -> bool) -> Option<usize> {
        let mut state = self.before.clone();
        let apply_all = |state: &mut Held, entries: &[Record]| {
            entries.iter().for_each(|entry| state.apply(entry));
        };
        apply_all(&mut state, &self.entries[..self.required]);
        let mut len = self.required;
        loop {
            let mut after = state.clone();
            let end = self.requests.iter().find(|begin| **begin >= len);
            if let Some(rest) = self.entries.get(len..*end.unwrap_or(&self.entries.len())) {
                apply_all(&mut after, rest);
            }
            if is_it(&state, &after) {
                return Some(len);
            }
            state.apply(self.entries.get(len)?);
            len += 1;
        }
    }
}

/// Applies a change to the jobs.
pub fn apply(jobs: &mut Jobs, entry: &Record) {
    match entry {
        Record::Put(job) => {
            jobs.insert(job.fields.id, job.clone());
        }
        Record::Update(fields) => {
            jobs.get_mut(&fields.id).unwrap().fields = *fields;
        }
        Record::Delete(id) => {
            jobs.remove(id).unwrap();
        }
        Record::Mark(_) | Record::Pause(_) => unreachable!("it is no change of a job"),
    }
}
