//! The seam between the engine and the binlog: changes become entries.

use crate::binlog::{Binlog, Entry, Jobs, LiveJobs, Position, Update};
use crate::engine::{Change, Engine, StoredJob};
use crate::protocol::JobId;
use std::sync::Arc;

/// The log of the engine's changes. What it does under the lock happens in
/// memory; [`Binlog::commit`] has its place outside.
pub struct Journal {
    binlog: Arc<Binlog>,
    /// Behind the last entry.
    end: Position,
    /// Whether anything was appended since that was last asked.
    is_unwritten: bool,
}

impl Journal {
    /// A journal that goes on where this binlog ends.
    pub fn new(binlog: Arc<Binlog>) -> Journal {
        Journal {
            binlog,
            end: Position::default(),
            is_unwritten: false,
        }
    }

    /// Appends these changes, which the engine has just made.
    pub fn append(&mut self, changes: &[Change], engine: &Engine) {
        for change in changes {
            // A job that is gone already has its deletion further on.
            let entry = match *change {
                Change::Put(id) => engine.stored(id).map(Entry::Put),
                Change::Update(id) => engine.stored(id).map(|job| Entry::Update(update(job))),
                Change::Delete {
                    id,
                    tube_len,
                    body_len,
                } => Some(Entry::Delete {
                    id,
                    tube_len,
                    body_len,
                }),
            };
            if let Some(entry) = entry {
                self.end = self.binlog.append(entry, engine);
                self.is_unwritten = true;
            }
        }
    }

    /// Behind the last entry.
    pub fn end(&self) -> Position {
        self.end
    }

    /// The binlog, if anything was appended since this was last asked: it is to
    /// be told, outside the lock, to write it soon.
    pub fn take_unwritten(&mut self) -> Option<Arc<Binlog>> {
        std::mem::take(&mut self.is_unwritten).then(|| Arc::clone(&self.binlog))
    }

    /// Behind the put of a job, if that is not kept yet.
    pub fn put_of(&self, _id: JobId) -> Position {
        Position::default()
    }

    /// The number of the oldest file that holds a job; 0 if there is none.
    pub fn segment_of(&self, id: JobId) -> u32 {
        self.binlog.segment_of(id)
    }
}

fn update(job: StoredJob) -> Update {
    Update {
        id: job.id,
        priority: job.priority,
        delay: job.delay,
        state: job.state,
        counters: job.counters,
    }
}

impl Jobs for Engine {
    fn insert(&mut self, job: StoredJob) -> Option<StoredJob> {
        let before = self.forget(job.id);
        self.restore(job);
        before
    }

    fn remove(&mut self, id: JobId) -> Option<StoredJob> {
        self.forget(id)
    }

    fn for_each(&self, call: &mut dyn FnMut(&StoredJob)) {
        let stored = self.ids().filter_map(|id| self.stored(id));
        stored.for_each(|job| call(&job));
    }
}

impl LiveJobs for Engine {
    fn stored(&self, id: JobId) -> Option<StoredJob> {
        Engine::stored(self, id)
    }
}
