//! The try limit, `try`: after how many failed tries a job is buried, so that it cannot
//! kill one worker after the other. A try fails if the worker neither deletes, releases
//! nor buries the job.

use crate::engine::job::State;
use crate::engine::{Engine, JobId};
use crate::protocol::Event;

impl Engine {
    /// The state of a job after a try that failed: its time to run was over, or its
    /// connection has closed.
    pub(in crate::engine) fn state_after_failed_try(&mut self, id: JobId) -> State {
        let job = self.jobs.get_mut(id).expect("the job exists");
        if let Some(tries) = job.options().and_then(|options| options.tries) {
            let tube = &mut self.tubes[job.tube];
            let details = job.details_mut();
            details.failed_tries = details.failed_tries.saturating_add(1);
            if details.failed_tries >= tries {
                tube.count(Event::Bury, &mut details.counters);
                return self.buried_last();
            }
        }
        State::Ready
    }
}
