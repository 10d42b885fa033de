//! The option `exp`: a job that nobody takes in time is deleted.
//!
//! | When its time is over, the job is | and then |
//! |---|---|
//! | ready or delayed, whether it could be reserved or not | it is deleted |
//! | reserved | it stays with its worker, and is deleted where it would be ready or delayed again |
//! | buried | it stays: what went wrong with it is still to be seen |
//!
//! A kick says that somebody wants the job: from then on it does not expire. Nothing is
//! stored for that, since the job counts its kicks.
//!
//! To its unique key the end of a job is a deletion: the key stays taken as long as the
//! put asked for. If very many jobs expire at the same moment, a reserve that comes
//! before all of them are deleted may get one of them.

use crate::engine::Time;
use crate::engine::job::Job;
use crate::protocol::Event;

impl Job {
    /// When it expires; `None` if it never does.
    pub(in crate::engine) fn expires_at(&self) -> Option<Time> {
        let was_kicked = self.counters()[Event::Kick as usize] > 0;
        self.expires_unless_kicked().filter(|_| !was_kicked)
    }

    /// When it expires if nobody kicks it before.
    pub(super) fn expires_unless_kicked(&self) -> Option<Time> {
        let seconds = self.options()?.expires_after?;
        Some(self.created_at + seconds)
    }
}
