//! What workers say: `reserve` and its variants, what ends a reservation or
//! prolongs it, `watch` and `ignore`.

use crate::engine::connection::{MAX_WATCHED, WATCHED_FREELY};
use crate::engine::job::{Job, Lengths, State};
use crate::engine::slab::ConnectionIndex;
use crate::engine::{Change, Engine, Outcome, memory};
use crate::protocol::command::{Ask, Rest};
use crate::protocol::{Event, JobId, Priority, Reply, Seconds, TubeName};

impl Engine {
    /// Reserves a job, if there is one. If not, the first of these cases
    /// applies: a job that this connection holds is about to time out; this
    /// client may not wait; it waits.
    pub(super) fn reserve_or_wait(&mut self, by: ConnectionIndex, ask: Ask) -> Outcome {
        self.count_as_worker(by);
        if self.has_unserved() {
            return Outcome::Unfinished(Rest::Reserve(ask));
        }
        let best = self.best_watched(by);
        let connection = &self.connections[by];
        let deadline_soon = connection.is_deadline_soon(self.now);
        let may_wait = ask.timeout != Some(Seconds(0)) && !connection.half_closed;
        Outcome::Reply(if let Some(id) = best {
            self.reserve(id, by, ask.with_stats)
        } else if deadline_soon {
            Reply::DeadlineSoon
        } else if !may_wait {
            Reply::TimedOut
        } else {
            self.start_waiting(by, ask);
            return Outcome::Waiting;
        })
    }

    fn count_as_worker(&mut self, by: ConnectionIndex) {
        if !std::mem::replace(&mut self.connections[by].is_worker, true) {
            self.counts.workers += 1;
        }
    }

    /// The best ready job of all tubes that a connection watches.
    pub(in crate::engine) fn best_watched(&mut self, by: ConnectionIndex) -> Option<JobId> {
        let watched = &self.connections[by].watched;
        self.effects.steps += watched.len();
        let offers = watched.iter().filter_map(|&tube| self.tubes[tube].offer());
        offers.min().map(|(_, id)| id)
    }

    pub(super) fn reserve_job(&mut self, by: ConnectionIndex, id: JobId) -> Option<Reply> {
        let job = self.jobs.get(id)?;
        if job.state.holder().is_some() || self.places_free(job) == 0 {
            return None;
        }
        self.count_as_worker(by);
        Some(self.reserve(id, by, false))
    }

    pub(super) fn delete(&mut self, by: ConnectionIndex, id: JobId) -> Option<Reply> {
        let job = self.jobs.get(id)?;
        if job.state.holder().is_some_and(|holder| holder != by) {
            return None;
        }
        self.tubes[job.tube].deletes += 1;
        self.delete_job(id);
        Some(Reply::Deleted)
    }

    /// Removes a job that exists, whoever wants that.
    pub(in crate::engine) fn delete_job(&mut self, id: JobId) {
        let job = self.remove(id).expect("the job exists");
        self.burials.wanted.remove(&id);
        self.leave_tombstone(id, &job);
        let tube = &self.tubes[job.tube].name;
        let lengths = Lengths::of(tube, job.options(), &job.body);
        self.record(Change::Delete(id, lengths));
        self.remove_tube_if_unused(job.tube);
        self.effects.unneeded_bodies.push(job.body);
    }

    pub(super) fn release(
        &mut self,
        by: ConnectionIndex,
        id: JobId,
        priority: Priority,
        delay: Seconds,
    ) -> Option<Reply> {
        let job = self.held_job(by, id)?;
        job.priority = priority;
        job.delay = delay;
        let state = self.delayed_for(delay);
        self.change_state(id, state, Some(Event::Release));
        Some(Reply::Released)
    }

    pub(super) fn bury(
        &mut self,
        by: ConnectionIndex,
        id: JobId,
        priority: Priority,
    ) -> Option<Reply> {
        self.held_job(by, id)?.priority = priority;
        let state = self.buried_last();
        self.change_state(id, state, None);
        Some(Reply::Buried)
    }

    /// NOT_FOUND for the holder of the job, which can use `bury`.
    pub(super) fn bury_later(&mut self, by: ConnectionIndex, id: JobId) -> Option<Reply> {
        let holder = self.jobs.get(id)?.state.holder()?;
        (holder != by).then(|| {
            self.burials.wanted.insert(id);
            Reply::Buried
        })
    }

    pub(super) fn touch(&mut self, by: ConnectionIndex, id: JobId) -> Option<Reply> {
        let until = self.now + self.held_job(by, id)?.ttr;
        if self.burials.wanted.contains(&id) {
            // By NOT_FOUND the worker learns that the job is not its own any more.
            self.change_state(id, State::Ready, None);
            return None;
        }
        self.change_state(id, State::Reserved { by, until }, None);
        Some(Reply::Touched)
    }

    /// A job that this connection has reserved.
    fn held_job(&mut self, by: ConnectionIndex, id: JobId) -> Option<&mut Job> {
        let job = self.jobs.get_mut(id)?;
        matches!(job.state, State::Reserved { by: holder, .. } if holder == by).then_some(job)
    }

    /// A tube that exists costs little to watch, and its jobs have to go: so a
    /// connection may watch some of these even if the memory is full.
    pub(super) fn watch(&mut self, by: ConnectionIndex, name: TubeName) -> Reply {
        let tube = self.find_tube(&name);
        let watched = &self.connections[by].watched;
        let count = watched.len();
        if tube.is_some_and(|tube| watched.contains(&tube)) {
            return Reply::Watching(count);
        }
        let is_free = tube.is_some() && count <= WATCHED_FREELY;
        if count >= MAX_WATCHED || !is_free && !self.has_memory_for(memory::WATCH) {
            return Reply::OutOfMemory;
        }
        let tube = self.find_or_make_tube(&name);
        self.connections[by].watched.push(tube);
        self.tubes[tube].watching += 1;
        self.memory += memory::WATCH;
        Reply::Watching(count + 1)
    }

    pub(super) fn ignore(&mut self, by: ConnectionIndex, name: TubeName) -> Reply {
        let watched = &self.connections[by].watched;
        if let Some(tube) = self.find_tube(&name)
            && let Some(position) = watched.iter().position(|&one| one == tube)
        {
            if watched.len() == 1 {
                return Reply::NotIgnored;
            }
            self.unwatch(by, position, tube);
        }
        Reply::Watching(self.connections[by].watched.len())
    }
}
