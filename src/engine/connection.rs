//! A connection as the engine sees it: the tubes that it uses and watches, the
//! jobs that it holds, and what it waits for.

use super::Time;
use super::slab::TubeIndex;
use super::tube::Order;
use crate::protocol::command::Put;
use crate::protocol::{JobId, Seconds};
use std::collections::BTreeSet;
use std::sync::Arc;

/// In the last second of a job's time to run, its connection gets
/// `DEADLINE_SOON` instead of waiting.
const SAFETY_MARGIN: Seconds = Seconds(1);

/// Names a connection. They are given in the order in which connections come,
/// and none is given twice.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnectionId(pub u64);

/// How many tubes a connection may watch. A reserve examines each of them, and a
/// connection that waits is in the queue of each, all under the lock.
pub const MAX_WATCHED: usize = 10_000;

/// How many existing tubes a connection may watch even if no memory is left: a
/// worker takes jobs away, and must not be locked out.
pub const WATCHED_FREELY: usize = 100;

/// Where a connection comes from, for people to read.
pub type Peer = Arc<str>;

#[derive(Default)]
pub struct Connection {
    pub id: ConnectionId,
    pub peer: Peer,
    /// When it came.
    pub since: Time,
    /// The tube that its puts go to.
    pub used: TubeIndex,
    /// The tubes that its reserves take from; at least one. They are in the order
    /// of `list-tubes-watched`: when one is removed, the last one takes its position, as
    /// in beanstalkd.
    pub watched: Vec<TubeIndex>,
    /// The jobs that it has reserved, by the end of their time to run.
    pub reserved: BTreeSet<(Time, JobId)>,
    /// `Some` while it waits for a job. Then it is in the queues of all watched
    /// tubes.
    pub wait: Option<Wait>,
    /// When its timer rings; nothing happens to it before.
    pub timer: Option<Time>,
    /// `Some` between the line of a put and the end of its body: the id that
    /// the job gets, and the numbers of the line.
    pub incoming: Option<(JobId, Put)>,
    /// The peer will send nothing more, so the connection must not wait.
    pub half_closed: bool,
    /// It has sent a reserve, or got a job by `reserve-job`.
    pub is_worker: bool,
    /// When it sent the last command, or came.
    pub asked_at: Time,
    /// How many well-formed puts within the size limit it has sent.
    pub puts: u64,
    /// How many jobs it has got.
    pub reserves: u64,
}

#[derive(Clone, Copy)]
pub struct Wait {
    /// Its position in the queues.
    pub order: Order,
    /// When its wait ends without a job.
    pub until: Option<Time>,
    /// Whether the answer tells about the job.
    pub with_stats: bool,
}

impl Connection {
    /// The moment from which a reserve answers `DEADLINE_SOON` instead of
    /// waiting; `None` if the connection has no jobs.
    fn deadline_soon_at(&self) -> Option<Time> {
        let (deadline, _) = self.reserved.first()?;
        Some(*deadline - SAFETY_MARGIN)
    }

    /// Whether a reserve answers `DEADLINE_SOON` now instead of waiting.
    pub fn is_deadline_soon(&self, now: Time) -> bool {
        self.deadline_soon_at().is_some_and(|at| at <= now)
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
    use crate::engine::{Config, Engine, Peer, Time};

    #[test]
    fn a_connection_gets_an_id_that_no_earlier_one_had() {
        let mut engine = Engine::new(Config::new(100), Time::default());
        let closed = engine.connect(Peer::default(), Time::default());
        let old_index = engine.find(closed);
        assert!(engine.disconnect(closed, Time::default()));
        let next = engine.connect(Peer::default(), Time::default());
        assert!(engine.find(next) == old_index && next != closed);
        assert!(engine.find(closed).is_none());
        assert!(engine.is_idle(next) && !engine.is_idle(closed));
    }
}
