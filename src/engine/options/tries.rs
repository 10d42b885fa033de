//! `try`: how often a job may be reserved without a word from its worker. After
//! that it is buried, so that it cannot kill one worker after the other.

use crate::engine::counts::Event;
use crate::engine::job::State;
use crate::engine::{Engine, JobId};

impl Engine {
    /// The state of a job whose reservation ends because its time to run or its
    /// connection has ended.
    pub(in crate::engine) fn state_after_silence(&mut self, id: JobId) -> State {
        let Some(stored) = self.options.jobs.get_mut(&id) else {
            return State::Ready;
        };
        let Some(tries) = stored.options.tries else {
            return State::Ready;
        };
        stored.silent = stored.silent.saturating_add(1);
        if stored.silent < tries {
            return State::Ready;
        }
        self.count_event(id, Event::Bury);
        self.buried_last()
    }

    /// Gives a job that is kicked all its tries again.
    pub(in crate::engine) fn reset_tries(&mut self, id: JobId) {
        if let Some(stored) = self.options.jobs.get_mut(&id) {
            stored.silent = 0;
        }
    }
}
