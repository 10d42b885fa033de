//! The jobs of the engine, as the binlog asks for them.

use crate::binlog::Jobs;
use crate::engine::{Engine, StoredJob};
use crate::protocol::JobId;

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
