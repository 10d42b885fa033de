//! A connection as the engine sees it: the tubes that it uses and watches, the
//! jobs that it holds, and what it waits for.

use super::Time;
use super::slab::{ConnectionIndex, TubeIndex};
use super::tube::Order;
use super::watch::Watched;
use crate::protocol::command::Put;
use crate::protocol::{JobId, Seconds};
use std::collections::BTreeSet;

/// A job is about to time out (`DEADLINE_SOON`) so long before the end of its
/// time to run.
const SAFETY_MARGIN: Seconds = Seconds(1);

/// Names a connection. No other connection gets the same id, not even a later
/// one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ConnectionId(pub u64);

impl ConnectionId {
    /// Its index. An earlier connection may have had the same index.
    pub(super) fn index(self) -> ConnectionIndex {
        ConnectionIndex::new(self.0 as u32)
    }
}

#[derive(Default)]
pub struct Connection {
    /// Distinguishes this connection from earlier ones that had the same index.
    pub serial: u32,
    /// The tube that its puts go to.
    pub used: TubeIndex,
    /// The tubes that its reserves take from.
    pub watched: Watched,
    /// The jobs that it has reserved, by the end of their time to run.
    pub reserved: BTreeSet<(Time, JobId)>,
    /// `Some` while it waits for a job. Then it is in the queues of all watched
    /// tubes, or listens to all of them.
    pub wait: Option<Wait>,
    /// `Some` between the line of a put and the end of its body: the id that
    /// the job gets, and the numbers of the line.
    pub incoming: Option<(JobId, Put)>,
    /// `Some` while a request that is done in pieces is under way.
    pub unfinished: Option<Unfinished>,
    /// The peer will send nothing more, so the connection must not wait.
    pub half_closed: bool,
    /// It has sent a well-formed put within the size limit.
    pub is_producer: bool,
    /// It has sent a reserve, or got a job by `reserve-job`.
    pub is_worker: bool,
}

#[derive(Clone, Copy)]
pub struct Wait {
    /// Its place in the queues.
    pub order: Order,
    /// When its wait ends without a job.
    pub until: Option<Time>,
}

/// A request that is done in pieces.
#[derive(Clone, Copy)]
pub enum Unfinished {
    /// A `kick` of very many jobs.
    Kick(Kick),
    /// A reserve with this timeout, by a connection that has very many tubes to
    /// look at.
    Reserve(Option<Seconds>),
}

/// What a `kick` has done, and what is left to do.
#[derive(Clone, Copy)]
pub struct Kick {
    /// Whether the tube had a buried job at the start. Then only buried jobs
    /// are kicked.
    pub only_buried: bool,
    /// How many more jobs it may kick at most.
    pub left: usize,
    pub kicked: usize,
}

impl Connection {
    /// The id of the connection that is at this index.
    pub fn id(&self, index: ConnectionIndex) -> ConnectionId {
        ConnectionId(u64::from(self.serial) << 32 | u64::from(index.0))
    }

    /// The moment from which a reserve answers `DEADLINE_SOON` instead of
    /// waiting; `None` if the connection has no jobs.
    pub fn deadline_soon_at(&self) -> Option<Time> {
        let (deadline, _) = self.reserved.first()?;
        Some(*deadline - SAFETY_MARGIN)
    }

    /// When the clock alone next changes something here.
    pub fn next_event(&self) -> Option<Time> {
        match self.wait {
            Some(wait) => self.deadline_soon_at().into_iter().chain(wait.until).min(),
            None => self.reserved.first().map(|&(deadline, _)| deadline),
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::engine::{Config, Engine, Time};

    #[test]
    fn the_next_connection_at_its_place_has_another_id() {
        let mut engine = Engine::new(Config::new(100), Time::default());
        let gone = engine.connect();
        assert!(engine.disconnect(gone, Time::default()));
        let next = engine.connect();
        assert!(next.index() == gone.index() && next != gone);
        assert!(engine.is_idle(next) && !engine.is_idle(gone));
    }
}
