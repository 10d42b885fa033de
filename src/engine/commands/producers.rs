//! What producers say: `put` and `use`.

use crate::engine::connection::Connection;
use crate::engine::job::{Details, Job};
use crate::engine::slab::{ConnectionIndex, TubeIndex};
use crate::engine::{Change, ConnectionId, Engine, Outcome, memory};
use crate::protocol::command::Put;
use crate::protocol::framing::NoBody;
use crate::protocol::{Body, JobId, Reply, TubeName};

impl Engine {
    /// The id is given now, before the body has come: a put that fails later
    /// has used it up.
    pub(super) fn put(&mut self, by: ConnectionIndex, put: Put) -> Outcome {
        let id = JobId(self.next_id);
        self.next_id += 1;
        let connection = &mut self.connections[by];
        self.counts.producers += usize::from(connection.puts == 0);
        connection.puts += 1;
        connection.incoming = Some((id, put));
        Outcome::AwaitBody
    }

    /// Whether the body that has come for this connection becomes a job, if there
    /// is room for it on the disk.
    pub fn body_becomes_job(&self, id: ConnectionId) -> bool {
        let Some(by) = self.find(id) else {
            return false;
        };
        let Connection { incoming, used, .. } = &self.connections[by];
        incoming.as_ref().is_some_and(|(_, put)| {
            let is_refused = self.refusal(put, *used, None).is_some() || self.is_full(*used);
            !is_refused && self.holder(put, *used).is_none()
        })
    }

    /// Why the server refuses a put, if it does: the first reason here is the reply. The framer
    /// has decided what its bytes are. If its key is taken, it needs no room for that.
    fn refusal(&self, put: &Put, tube: TubeIndex, no_body: Option<NoBody>) -> Option<Reply> {
        let options = put.options.as_deref();
        let limit = options.and_then(|options| options.limit.as_ref());
        let has_memory = self.has_memory_for(memory::of_job(put.size as usize + 2, options))
            && !limit.is_some_and(|limit| self.is_spread_too_far(limit, tube));
        match no_body {
            Some(NoBody::TooBig) => Some(Reply::JobTooBig),
            _ if !has_memory => Some(Reply::OutOfMemory),
            Some(NoBody::NoRoom) => Some(Reply::OutOfMemory),
            Some(NoBody::NoCrlf) => Some(Reply::ExpectedCrlf),
            None if self.outside.draining => Some(Reply::Draining),
            None => {
                let has_room = self.has_room_for_key(put, tube) || self.holder(put, tube).is_some();
                (!has_room).then_some(Reply::OutOfMemory)
            }
        }
    }

    /// Whether a tube has as many jobs as it may have. Then the tube refuses a put that the
    /// server would take, unless its key is taken: other tubes go on.
    fn is_full(&self, tube: TubeIndex) -> bool {
        let most = self.config.max_jobs_per_tube;
        most.is_some_and(|most| self.tubes[tube].jobs.sum() >= most.get())
    }

    /// What becomes of a put, now that its body has come.
    pub(super) fn body(&mut self, by: ConnectionIndex, body: Result<Body, NoBody>) -> Reply {
        let connection = &mut self.connections[by];
        let tube = connection.used;
        let Some((id, put)) = connection.incoming.take() else {
            // The line named a size above the limit, so it got no id.
            return Reply::JobTooBig;
        };
        let no_room = self.outside.disk_is_full.then_some(NoBody::NoRoom);
        let no_body = body.as_ref().err().copied().or(no_room);
        let refusal = self.refusal(&put, tube, no_body);
        match (refusal, body) {
            (None, Ok(body)) if !self.is_full(tube) || self.holder(&put, tube).is_some() => {
                self.insert(tube, id, put, body)
            }
            (refusal, body) => {
                self.effects.unneeded_bodies.extend(body);
                match refusal {
                    None => {
                        self.count(tube, |jobs| jobs.refused += 1);
                    }
                    Some(Reply::OutOfMemory | Reply::Draining) => self.counts.refused += 1,
                    Some(_) => {}
                }
                refusal.unwrap_or(Reply::OutOfMemory)
            }
        }
    }

    // Not inlined: all commands would take as much of the stack as this one.
    #[inline(never)]
    fn insert(&mut self, tube: TubeIndex, id: JobId, put: Put, body: Body) -> Reply {
        if let Some(reply) = self.inserted_before(&put, tube) {
            self.effects.unneeded_bodies.push(body);
            return reply;
        }
        let job = Job {
            body,
            created_at: self.now,
            state: self.delayed_for(put.delay),
            tube,
            priority: put.priority,
            delay: put.delay,
            ttr: put.ttr,
            details: Details {
                options: put.options,
                ..Details::default()
            }
            .boxed(),
        };
        self.add(id, job);
        self.record(Change::Put(id));
        self.count(tube, |jobs| jobs.total += 1);
        Reply::Inserted(id)
    }

    pub(super) fn use_tube(&mut self, by: ConnectionIndex, name: TubeName) -> Reply {
        if self.find_tube(&name).is_none() && !self.has_memory_for(0) {
            return Reply::OutOfMemory;
        }
        let tube = self.find_or_make_tube(&name);
        let before = std::mem::replace(&mut self.connections[by].used, tube);
        self.tubes[tube].using += 1;
        self.tubes[before].using -= 1;
        self.remove_tube_if_unused(before);
        Reply::Using(name)
    }
}
