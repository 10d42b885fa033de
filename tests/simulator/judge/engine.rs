//! The engine, watched: the server's files use this one in place of the real one, and
//! the judge sees each call before and after.

use super::watch;
use crate::binlog::Jobs;
use crate::engine::{Config, ConnectionId, Outcome, StoredJob, Time};
use crate::protocol::framing::NoBody;
use crate::protocol::{Command, JobId, Request};
use crate::simulator::threads;
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

    pub fn connect(&mut self) -> ConnectionId {
        let id = self.0.connect();
        watch(|judge| judge.connected(id));
        id
    }

    pub fn execute(&mut self, id: ConnectionId, request: Request, now: Time) -> Outcome {
        let from = self.mark();
        let asked = Asking::of(&request);
        watch(|judge| judge.prepare(id, &asked, now, &self.0));
        let outcome = self.0.execute(id, request, now);
        watch(|judge| {
            judge.executed(id, asked, &outcome, from, &self.0);
            judge.check_counts(&self.0);
        });
        outcome
    }

    pub fn tick(&mut self, now: Time) -> bool {
        let from = self.mark();
        watch(|judge| judge.pass_time(now));
        let done = self.0.tick(now);
        watch(|judge| {
            judge.compare(Vec::new(), from, &self.0);
            judge.check_counts(&self.0);
        });
        done
    }

    pub fn half_close(&mut self, id: ConnectionId) {
        let from = self.mark();
        self.0.half_close(id);
        watch(|judge| {
            if let Some(client) = judge.client(id) {
                judge.model.half_close(client);
            }
            judge.compare(Vec::new(), from, &self.0);
        });
    }

    pub fn disconnect(&mut self, id: ConnectionId, now: Time) -> bool {
        let from = self.mark();
        let done = self.0.disconnect(id, now);
        watch(|judge| {
            assert!(
                !judge.has_stopped,
                "a client's jobs are given to others at the end"
            );
            judge.model.now = now.as_nanos();
            judge.may_close(id);
            if let Some(client) = judge.client(id) {
                judge.model.disconnect(client);
            }
            judge.links.remove(&id.0);
            judge.last_left_at = threads::now();
            judge.compare(Vec::new(), from, &self.0);
        });
        done
    }

    /// How many replies and changes there are already.
    fn mark(&self) -> (usize, usize) {
        let effects = &self.0.effects;
        (effects.replies.len(), effects.changes.len())
    }
}

/// The properties of a request that the judge needs.
pub struct Asking {
    pub goes_on: bool,
    pub quits: bool,
    pub refused: Option<NoBody>,
    pub is_body: bool,
}

impl Asking {
    fn of(request: &Request) -> Asking {
        Asking {
            goes_on: matches!(request, Request::Continue),
            quits: matches!(request, Request::Command(Command::Quit)),
            refused: match request {
                Request::Body(Err(why)) => Some(*why),
                _ => None,
            },
            is_body: matches!(request, Request::Body(_)),
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
}
