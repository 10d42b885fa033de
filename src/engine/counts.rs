//! What the engine counts. The numbers are changed where the counted things
//! happen, not here.

use crate::protocol::command::COUNTED;
use crate::protocol::{JobState, Priority};

/// Ready jobs with a smaller priority count as urgent.
const NOT_URGENT: Priority = Priority(1024);

/// What there is now, and what has happened since the server started.
#[derive(Default)]
pub struct Counts {
    /// The jobs of all tubes.
    pub jobs: JobCounts,
    /// Connections that have sent a well-formed put within the size limit.
    pub producers: usize,
    /// Connections that have sent a reserve, or got a job by `reserve-job`.
    pub workers: usize,
    /// Connections that wait in a `reserve`.
    pub waiting: usize,
    /// Commands given, in the order of `stats`. Lines that cannot be read are not
    /// counted.
    pub commands: [u64; COUNTED],
    /// How often a job's time to run ended.
    pub timeouts: u64,
    /// Jobs put.
    pub total_jobs: u64,
    /// Connections accepted.
    pub total_connections: u64,
    /// Jobs deleted because their time was over.
    pub expired: u64,
    /// Puts refused because the server takes no job now, or not this one.
    pub refused: u64,
    /// Puts refused because their tube had as many jobs as it may have.
    pub refused_by_tubes: u64,
}

/// How many jobs are in which state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct JobCounts {
    /// The jobs in each state, in the order of [`JobState`].
    pub by_state: [usize; 4],
    /// The urgent ones among the ready jobs.
    pub urgent: usize,
}

impl JobCounts {
    /// Changes the counts that a job in this state appears in.
    pub fn count(&mut self, state: JobState, priority: Priority, change: fn(&mut usize)) {
        change(&mut self.by_state[state as usize]);
        if state == JobState::Ready && priority < NOT_URGENT {
            change(&mut self.urgent);
        }
    }

    /// The number of all jobs.
    pub fn sum(&self) -> usize {
        self.by_state.iter().sum()
    }
}
