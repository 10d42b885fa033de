//! A connection as the engine sees it: what it uses, watches, holds, awaits.

use super::Time;
use super::slab::{ConnectionIndex, TubeIndex};
use crate::protocol::command::Put;
use crate::protocol::{JobId, Seconds};
use std::collections::BTreeSet;

/// How long before the end of its time to run a job is about to time out
/// (`DEADLINE_SOON`).
const SAFETY_MARGIN: Seconds = Seconds(1);

/// Names a connection; never that of another one, not even of a later one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ConnectionId(pub u64);

impl ConnectionId {
    /// Its index, which another one may have had before.
    pub(super) fn index(self) -> ConnectionIndex {
        ConnectionIndex::new(self.0 as u32)
    }
}

#[derive(Default)]
pub struct Connection {
    /// Tells it from others that had its index.
    pub serial: u32,
    /// The tube that puts go to.
    pub used: TubeIndex,
    /// The tubes that reserves take from, never none.
    pub watched: Vec<TubeIndex>,
    /// The jobs it has, by the end of their time to run.
    pub reserved: BTreeSet<(Time, JobId)>,
    /// `Some` while it waits for a job, in the queues of all watched tubes.
    pub wait: Option<Wait>,
    /// `Some` between the line of a put and the end of its body: the id that
    /// the job gets, and the numbers of the line.
    pub incoming: Option<(JobId, Put)>,
    /// `Some` while a `kick` of very many jobs is under way.
    pub kick: Option<Kick>,
    /// The peer sends nothing any more: it is not to be kept waiting.
    pub half_closed: bool,
    /// It has sent a put.
    pub is_producer: bool,
    /// It has sent a reserve.
    pub is_worker: bool,
}

#[derive(Clone, Copy)]
pub struct Wait {
    /// Its place in the queues: smaller came earlier.
    pub order: u64,
    /// When to give up.
    pub until: Option<Time>,
}

/// What a `kick` has done and what it has left to do.
#[derive(Clone, Copy)]
pub struct Kick {
    /// Whether there was a buried job at the start: then delayed ones stay.
    pub only_buried: bool,
    /// How many more at most.
    pub left: usize,
    pub kicked: usize,
}

impl Connection {
    /// Its name, at this index.
    pub fn id(&self, index: ConnectionIndex) -> ConnectionId {
        ConnectionId(u64::from(self.serial) << 32 | u64::from(index.0))
    }

    /// The moment from which a reserve is not made to wait, if it has jobs.
    pub fn deadline_soon_at(&self) -> Option<Time> {
        let (deadline, _) = self.reserved.first()?;
        Some(*deadline - SAFETY_MARGIN)
    }

    /// What happens next by the clock alone.
    pub fn next_event(&self) -> Option<Time> {
        match self.wait {
            Some(wait) => self.deadline_soon_at().into_iter().chain(wait.until).min(),
            None => self.reserved.first().map(|&(deadline, _)| deadline),
        }
    }
}
