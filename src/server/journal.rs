//! The seam between the engine and the binlog.

use crate::binlog::{Binlog, Jobs, Position};
use crate::engine::{Change, Engine, StoredJob};
use crate::protocol::JobId;
use std::sync::Arc;

/// The log of the engine's changes. What it does under the lock happens in
/// memory; [`Binlog::commit`] has its place outside.
pub struct Journal {
    binlog: Arc<Binlog>,
    /// Behind the last change.
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
        if !changes.is_empty() {
            self.end = self.binlog.append(changes, engine);
            self.is_unwritten = true;
        }
    }

    /// Behind the last change.
    pub fn end(&self) -> Position {
        self.end
    }

    /// The binlog, if anything was appended since this was last asked: it is to
    /// be told, outside the lock, to write it soon.
    pub fn take_unwritten(&mut self) -> Option<Arc<Binlog>> {
        std::mem::take(&mut self.is_unwritten).then(|| Arc::clone(&self.binlog))
    }

    /// What has to be kept before this job may be told of: nothing any more, if
    /// its put is.
    pub fn kept_from(&self, id: JobId) -> Position {
        self.binlog.kept_from(id).unwrap_or_default()
    }

    /// The number of the oldest file that holds a job; 0 if there is none.
    pub fn segment_of(&self, id: JobId) -> u32 {
        self.binlog.segment_of(id)
    }
}

impl Jobs for Engine {
    fn stored(&self, id: JobId) -> Option<StoredJob> {
        Engine::stored(self, id)
    }

    fn restore(&mut self, job: StoredJob) -> bool {
        let before = Engine::forget(self, job.id);
        Engine::restore(self, job);
        before.is_some()
    }

    fn forget(&mut self, id: JobId) -> Option<StoredJob> {
        Engine::forget(self, id)
    }
}
