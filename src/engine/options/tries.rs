//! The try limit, `try`: after how many failed tries a job is buried, so that it cannot
//! kill one worker after the other. A try fails if the worker neither deletes, releases
//! nor buries the job.

use crate::engine::job::State;
use crate::engine::{Engine, JobId};
use crate::protocol::Event;

impl Engine {
    /// Makes a reserved job ready again, since its time to run was over or its connection
    /// has closed. If that was its last try, it is buried.
    pub(in crate::engine) fn fail_try(&mut self, id: JobId, event: Option<Event>) {
        let mut state = State::Ready;
        let job = self.jobs.get_mut(id).expect("the job exists");
        if let Some(tries) = job.options().and_then(|options| options.tries) {
            let details = job.details_mut();
            details.failed_tries = details.failed_tries.saturating_add(1);
            if details.failed_tries >= tries {
                state = self.buried_last();
            }
        }
        self.change_state(id, state, event);
    }
}
