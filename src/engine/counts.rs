//! What the engine counts. The numbers are changed where the counted things
//! happen, not here.

use super::job::{QueueEntry, State};
use crate::protocol::Priority;
use crate::protocol::command::COUNTED;

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
    /// Puts refused with `OUT_OF_MEMORY` or `DRAINING`, except those of full tubes.
    pub refused: u64,
}

/// The jobs of a tube, or of all tubes: how many there are, and what has happened to them.
#[derive(Default)]
pub struct JobCounts {
    /// The jobs in each state, in the order of [`JobState`](crate::protocol::JobState).
    pub by_state: [usize; 4],
    /// The urgent ones among the ready jobs.
    pub urgent: usize,
    /// Jobs put.
    pub total: u64,
    /// How often they had each [`Event`](crate::protocol::Event).
    pub events: [u64; 5],
    /// Jobs deleted because their time was over.
    pub expired: u64,
    /// Puts refused because the tube had as many jobs as it may have.
    pub refused: u64,
}

impl JobCounts {
    /// Changes how many jobs there are with such an entry.
    pub fn change(&mut self, entry: QueueEntry, change: fn(&mut usize)) {
        change(&mut self.by_state[entry.state.name() as usize]);
        if entry.state == State::Ready && entry.priority < NOT_URGENT {
            change(&mut self.urgent);
        }
    }

    /// The number of all jobs.
    pub fn sum(&self) -> usize {
        self.by_state.iter().sum()
    }
}
