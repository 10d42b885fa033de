//! What producers say: `put` and `use`.

use crate::engine::connection::Connection;
use crate::engine::job::{Details, Job};
use crate::engine::slab::{ConnectionIndex, TubeIndex};
use crate::engine::{Change, ConnectionId, Engine, Outcome, memory};
use crate::protocol::command::Put;
use crate::protocol::framing::NoBody;
use crate::protocol::{Body, JobId, Reply, TubeName};

/// Why a put makes no job.
enum NoJob {
    /// The server takes no job now, or not this one.
    Refused(Reply),
    /// This job has the key, or had it before it was deleted. So no room is needed.
    KeyIsTaken(JobId),
    /// Its tube has as many jobs as it may have. Other tubes go on.
    TubeIsFull,
}

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
        let put = incoming.as_ref().map(|(_, put)| put);
        put.is_some_and(|put| self.why_no_job(put, *used, None).is_none())
    }

    /// The job that has the unique key of the put whose body has come.
    pub(super) fn holder_of_incoming(&self, by: ConnectionIndex) -> Option<JobId> {
        let Connection { incoming, used, .. } = &self.connections[by];
        let options = incoming.as_ref()?.1.options.as_ref()?;
        self.holder(options.unique.as_ref()?, *used)
    }

    /// Why a put makes no job; `None` if it makes one. The first reason here counts.
    /// `no_body` is what the framer says of its bytes, or that the disk is full.
    fn why_no_job(&self, put: &Put, tube: TubeIndex, no_body: Option<NoBody>) -> Option<NoJob> {
        let options = put.options.as_deref();
        let limit = options.and_then(|options| options.limit.as_ref());
        let unique = options.and_then(|options| options.unique.as_ref());
        let has_room = |unique| self.has_room_for_key(unique, tube);
        let has_memory = self.has_memory_for(memory::of_job(put.size as usize + 2, options))
            && !limit.is_some_and(|limit| self.is_spread_too_far(limit, tube));
        let most = self.config.max_jobs_per_tube;
        let is_full = most.is_some_and(|most| self.tubes[tube].jobs.sum() >= most.get());
        Some(NoJob::Refused(match no_body {
            Some(NoBody::TooBig) => Reply::JobTooBig,
            _ if !has_memory => Reply::OutOfMemory,
            Some(NoBody::NoRoom) => Reply::OutOfMemory,
            Some(NoBody::NoCrlf) => Reply::ExpectedCrlf,
            None if self.outside.draining => Reply::Draining,
            None => match unique.and_then(|unique| self.holder(unique, tube)) {
                Some(job) => return Some(NoJob::KeyIsTaken(job)),
                None if !unique.is_none_or(has_room) => Reply::OutOfMemory,
                None => return is_full.then_some(NoJob::TubeIsFull),
            },
        }))
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
        let Some(no_job) = self.why_no_job(&put, tube, no_body) else {
            return self.insert(tube, id, put, body.expect("a put without one is refused"));
        };
        self.effects.unneeded_bodies.extend(body);
        match no_job {
            NoJob::KeyIsTaken(job) => self.inserted_before(job, put.priority),
            NoJob::TubeIsFull => {
                self.count(tube, |jobs| jobs.refused += 1);
                Reply::OutOfMemory
            }
            NoJob::Refused(reply) => {
                let is_counted = matches!(reply, Reply::OutOfMemory | Reply::Draining);
                self.counts.refused += u64::from(is_counted);
                reply
            }
        }
    }

    // Not inlined: all commands would take as much of the stack as this one.
    #[inline(never)]
    fn insert(&mut self, tube: TubeIndex, id: JobId, put: Put, body: Body) -> Reply {
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
