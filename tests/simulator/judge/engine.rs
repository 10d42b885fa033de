//! The engine, watched: the server's files use this one in place of the real one, and
//! the judge sees each call and what came of it.

use super::{Event, see};
use crate::binlog::Jobs;
use crate::engine::{Change, Config, ConnectionId, Outcome, Peer, StoredJob, StoredPause, Time};
use crate::protocol::framing::NoBody;
use crate::protocol::{JobId, Reply, Request, TubeName};
use std::ops::{Deref, DerefMut};

pub type Real = crate::engine::Engine;

/// The engine, watched.
pub struct Engine(Real);

impl Deref for Engine {
    type Target = Real;

    fn deref(&self) -> &Real {
        &self.0
    }
}

impl DerefMut for Engine {
    fn deref_mut(&mut self) -> &mut Real {
        &mut self.0
    }
}

impl Engine {
    pub fn new(config: Config, now: Time) -> Engine {
        Engine(Real::new(config, now))
    }

    pub fn connect(&mut self, peer: Peer, now: Time) -> ConnectionId {
        let id = self.0.connect(peer, now);
        see(Event::Connected(id));
        id
    }

    pub fn execute(&mut self, id: ConnectionId, request: Request, now: Time) -> Outcome {
        // In a call of its own, so that the judge sees which time slice has done what.
        if self.0.wake_at().is_some_and(|at| at <= now) {
            self.tick(now);
        }
        let asked = Asked::of(&request);
        let (outcome, done) = self.watch(|engine| engine.execute(id, request, now));
        let asked = match outcome {
            Outcome::Quit => Asked::Quit,
            _ => asked,
        };
        see(Event::Executed(id, asked, &outcome, now, done));
        outcome
    }

    pub fn tick(&mut self, now: Time) -> bool {
        let (is_done, done) = self.watch(|engine| engine.tick(now));
        see(Event::Ticked(now, done));
        is_done
    }

    pub fn half_close(&mut self, id: ConnectionId) {
        let ((), done) = self.watch(|engine| engine.half_close(id));
        see(Event::HalfClosed(id, done));
    }

    pub fn disconnect(&mut self, id: ConnectionId, now: Time) -> bool {
        let (is_done, done) = self.watch(|engine| engine.disconnect(id, now));
        see(Event::Disconnected(id, is_done, now, done));
        is_done
    }

    /// Lets the engine work, and returns what is new.
    fn watch<R>(&mut self, work: impl FnOnce(&mut Real) -> R) -> (R, Done<'_>) {
        let effects = &self.0.effects;
        let (replies, changes) = (effects.replies.len(), effects.changes.len());
        let result = work(&mut self.0);
        let effects = &self.0.effects;
        let done = Done {
            engine: &self.0,
            replies: &effects.replies[replies..],
            changes: &effects.changes[changes..],
            begins_request: changes == 0,
        };
        (result, done)
    }
}

/// What the engine has said to those who waited, and changed, in one call.
pub struct Done<'a> {
    pub engine: &'a Real,
    pub replies: &'a [(ConnectionId, Reply)],
    pub changes: &'a [Change],
    /// The changes of all calls before were taken.
    pub begins_request: bool,
}

/// What the judge needs to know of a request.
pub enum Asked {
    Line,
    /// A body, or why there is none.
    Body(Option<NoBody>),
    Quit,
}

impl Asked {
    fn of(request: &Request) -> Asked {
        match request {
            Request::Body(body) => Asked::Body(body.as_ref().err().copied()),
            _ => Asked::Line,
        }
    }
}

/// The binlog writes and restores the jobs of the engine itself.
impl Jobs for Engine {
    fn stored(&self, id: JobId) -> Option<StoredJob> {
        Jobs::stored(&self.0, id)
    }

    fn restore(&mut self, job: StoredJob) {
        Jobs::restore(&mut self.0, job);
    }

    fn forget(&mut self, id: JobId) -> Option<StoredJob> {
        Jobs::forget(&mut self.0, id)
    }

    fn pause(&self, tube: &TubeName) -> Option<StoredPause> {
        Jobs::pause(&self.0, tube)
    }

    fn restore_pause(&mut self, pause: &StoredPause) -> bool {
        Jobs::restore_pause(&mut self.0, pause)
    }
}
