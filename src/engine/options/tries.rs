//! The try limit, `try`: after how many failed tries a job is buried, so that it cannot
//! kill one worker after the other. A try fails if the worker neither deletes, releases
//! nor buries the job.

use crate::engine::counts::Event;
use crate::engine::job::State;
use crate::engine::{Engine, JobId};

impl Engine {
    /// The state of a job after a try that failed: its time to run was over, or its
    /// connection has closed.
    pub(in crate::engine) fn state_after_failed_try(&mut self, id: JobId) -> State {
        let job = self.jobs.get_mut(&id).expect("the job exists");
        if let Some(tries) = job.options.as_ref().and_then(|options| options.tries) {
            job.failed_tries = job.failed_tries.saturating_add(1);
            if job.failed_tries >= tries {
                self.tubes[job.tube].count(Event::Bury, &mut job.counters);
                return self.buried_last();
            }
        }
        State::Ready
    }
}
