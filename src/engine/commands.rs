//! The commands: one match, with a line or a method for each. [`Command`]
//! documents what each command means, and its replies.

use super::connection::{Kick, Unfinished};
use super::counts::command_key;
use super::job::{JOB_OVERHEAD, Job, State, StoredOptions};
use super::slab::{ConnectionIndex, TubeIndex};
use super::tube::{Pause, Tube};
use super::{Change, ConnectionId, Engine, Outcome, PIECE, Time, WATCH_OVERHEAD};
use crate::protocol::command::{AfterPut, ListJobs, Put};
use crate::protocol::framing::NoBody;
use crate::protocol::{Body, Command, JobId, JobList, Priority, Reply, Request, Seconds, TubeName};

/// How many jobs a piece of a long kick takes. It is few, because each of them
/// changes, and a full disk has little room for the changes of one piece.
const KICKED_AT_ONCE: usize = 20;

impl Engine {
    /// Executes a request of a connection. Before that, it ticks if something
    /// is due. The connection must exist and must not be waiting.
    pub fn execute(&mut self, id: ConnectionId, request: Request, now: Time) -> Outcome {
        if self.wake_at().is_some_and(|at| at <= now) {
            self.tick(now);
        }
        let by = self.find(id).expect("only who is connected asks");
        debug_assert!(self.connections[by].wait.is_none());
        self.effects.steps += 1;
        match request {
            Request::Command(command) => {
                let outcome = self.command(by, command, now);
                outcome.unwrap_or(Outcome::Reply(Reply::NotFound))
            }
            Request::Body(body) => Outcome::Reply(self.body(by, body, now)),
            Request::Refused(reply) => Outcome::Reply(reply),
            Request::GoOn => match self.connections[by].unfinished.take() {
                Some(Unfinished::Kick(kick)) => self.kick_some(by, kick, now),
                Some(Unfinished::Reserve(timeout)) => self.reserve_or_wait(by, timeout, now),
                None => unreachable!("a request is under way"),
            },
        }
    }

    /// `None` if there is no such job or tube, or if the job's state does not
    /// allow the command.
    fn command(&mut self, by: ConnectionIndex, command: Command, now: Time) -> Option<Outcome> {
        // Each well-formed command is counted, whether it succeeds or not.
        if let Some(key) = command_key(&command) {
            self.totals.commands[key] += 1;
        }
        Some(Outcome::Reply(match command {
            Command::Put(put) => return Some(self.put(by, put)),
            Command::Reserve => return Some(self.reserve_or_wait(by, None, now)),
            Command::ReserveWithTimeout(timeout) => {
                return Some(self.reserve_or_wait(by, Some(timeout), now));
            }
            Command::Kick(bound) => return Some(self.kick(by, bound, now)),
            Command::Quit => return Some(Outcome::Quit),
            Command::Use(tube) => self.use_tube(by, tube),
            Command::ReserveJob(id) => self.reserve_job(by, id, now)?,
            Command::Delete(id) => self.delete(by, id, now)?,
            Command::Release(id, priority, delay) => self.release(by, id, priority, delay, now)?,
            Command::Bury(id, priority) => self.bury(by, id, priority, now)?,
            Command::Touch(id) => self.touch(by, id, now)?,
            Command::Watch(tube) => self.watch(by, tube),
            Command::Ignore(tube) => self.ignore(by, tube),
            Command::Peek(id) => self.peek(id)?,
            Command::PeekReady => self.peek(self.next_ready(self.connections[by].used)?)?,
            Command::PeekDelayed => self.peek(self.used_tube(by).delayed.first()?.1)?,
            Command::PeekBuried => self.peek(*self.used_tube(by).buried.first_key_value()?.1)?,
            Command::KickJob(id) => self.kick_job(id, now)?,
            Command::PauseTube(tube, length) => self.pause_tube(&tube, length, now)?,
            Command::PauseNoTube => Reply::BadFormat,
            Command::Stats => Reply::ServerStats(self.server_document()),
            Command::StatsJob(id) => self.stats_job(id, now)?,
            Command::StatsTube(tube) => self.stats_tube(&tube, now)?,
            Command::ListTubes => self.list_tubes(),
            Command::ListTubeUsed => Reply::Using(self.used_tube(by).name.clone()),
            Command::ListTubesWatched => self.list_tubes_watched(by),
            Command::ListJobs(list) => self.list_jobs(&list, now),
        }))
    }

    // Producers.

    /// The id is given now, before the body has come: a put that fails later
    /// has used it up.
    fn put(&mut self, by: ConnectionIndex, put: Put) -> Outcome {
        match put.followed_by(self.config.max_job_size) {
            AfterPut::TooBig => return Outcome::AwaitBody,
            AfterPut::NoBody => return Outcome::Reply(Reply::BadFormat),
            AfterPut::Body => {}
        }
        let id = JobId(self.next_id);
        self.next_id += 1;
        let connection = &mut self.connections[by];
        if !std::mem::replace(&mut connection.is_producer, true) {
            self.connections_now.producers += 1;
        }
        connection.incoming = Some((id, put));
        Outcome::AwaitBody
    }

    /// What becomes of a put. [`Put::followed_by`] has decided what its bytes
    /// are. If there are several reasons to refuse it, the first one here is the
    /// reply. A body for which the disk has no room comes here as
    /// [`NoBody::NoRoom`].
    fn body(&mut self, by: ConnectionIndex, body: Result<Body, NoBody>, now: Time) -> Reply {
        let Some((id, put)) = self.connections[by].incoming.take() else {
            // The line named a size above the limit, so it got no id.
            return Reply::JobTooBig;
        };
        let options = put.options.as_deref();
        let options = options.map_or(0, |options| self.options.needed(options));
        let needed = u64::from(put.size) + 2 + JOB_OVERHEAD + options;
        let refusal = match &body {
            Err(NoBody::TooBig) => Some(Reply::JobTooBig),
            _ if !self.has_room(needed) => Some(Reply::OutOfMemory),
            Err(NoBody::NoRoom) => Some(Reply::OutOfMemory),
            Err(NoBody::NoCrlf) => Some(Reply::ExpectedCrlf),
            Ok(_) if self.draining => Some(Reply::Draining),
            Ok(_) => None,
        };
        match (body, refusal) {
            (Ok(body), None) => self.insert(by, id, put, body, now),
            (body, refusal) => {
                self.effects.garbage.extend(body);
                refusal.expect("what is no body is refused")
            }
        }
    }

    fn insert(&mut self, by: ConnectionIndex, id: JobId, put: Put, body: Body, now: Time) -> Reply {
        let tube = self.connections[by].used;
        if let Some(reply) = self.inserted_before(&put, tube, now) {
            self.effects.garbage.push(body);
            return reply;
        }
        let state = match put.delay {
            Seconds(0) => State::Ready,
            delay => State::delayed(now + delay),
        };
        self.jobs.insert(
            id,
            Job {
                body,
                created_at: now,
                state,
                tube,
                priority: put.priority,
                delay: put.delay,
                ttr: put.ttr,
                history: None,
            },
        );
        if let Some(options) = put.options {
            self.attach(id, tube, StoredOptions::new(*options));
        }
        self.enter(id, tube, put.priority, state);
        self.record(Change::Put(id));
        self.tubes[tube].total_jobs += 1;
        self.totals.jobs += 1;
        self.serve(now);
        Reply::Inserted(id)
    }

    fn use_tube(&mut self, by: ConnectionIndex, name: TubeName) -> Reply {
        if self.tubes.find(&name).is_none() && !self.has_room(0) {
            return Reply::OutOfMemory;
        }
        let tube = self.tubes.find_or_make(&name);
        let before = std::mem::replace(&mut self.connections[by].used, tube);
        self.tubes[tube].using += 1;
        self.tubes[before].using -= 1;
        self.remove_tube_if_unused(before);
        Reply::Using(name)
    }

    // Workers.

    /// Reserves a job, if there is one. If not, the first of these cases
    /// applies: a job that this connection holds is about to time out; this
    /// client may not wait; it waits.
    fn reserve_or_wait(
        &mut self,
        by: ConnectionIndex,
        timeout: Option<Seconds>,
        now: Time,
    ) -> Outcome {
        self.count_as_worker(by);
        if !self.look(by) {
            self.connections[by].unfinished = Some(Unfinished::Reserve(timeout));
            return Outcome::Unfinished;
        }
        let best = self.best_watched(by);
        let connection = &self.connections[by];
        let deadline_soon = connection.deadline_soon_at().is_some_and(|at| at <= now);
        let may_wait = timeout != Some(Seconds(0)) && !connection.half_closed;
        Outcome::Reply(if let Some(id) = best {
            self.reserve(id, by, now)
        } else if deadline_soon {
            Reply::DeadlineSoon
        } else if !may_wait {
            Reply::TimedOut
        } else {
            self.start_waiting(by, timeout.map(|timeout| now + timeout));
            return Outcome::Waiting;
        })
    }

    fn count_as_worker(&mut self, by: ConnectionIndex) {
        if !std::mem::replace(&mut self.connections[by].is_worker, true) {
            self.connections_now.workers += 1;
        }
    }

    /// Has a connection that watches many tubes look at those that it must look
    /// at. Returns whether it has looked at all of them.
    fn look(&mut self, by: ConnectionIndex) -> bool {
        let order = self.take_order();
        let Some(many) = &mut self.connections[by].watched.listening else {
            return true;
        };
        self.effects.steps += many.look(by, order, &mut self.tubes);
        many.has_looked()
    }

    /// The best ready job of all tubes that a connection watches.
    fn best_watched(&mut self, by: ConnectionIndex) -> Option<JobId> {
        let watched = &mut self.connections[by].watched;
        if let Some(many) = &mut watched.listening {
            return many.first(&self.tubes, &mut self.effects.steps);
        }
        self.effects.steps += watched.tubes().len();
        self.best_of(self.connections[by].watched.tubes().iter())
    }

    /// The best ready job of these tubes.
    pub(super) fn best_of<'a>(&self, tubes: impl Iterator<Item = &'a TubeIndex>) -> Option<JobId> {
        let offers = tubes.filter_map(|&tube| self.tubes[tube].offer());
        offers.min().map(|(_, id)| id)
    }

    fn reserve_job(&mut self, by: ConnectionIndex, id: JobId, now: Time) -> Option<Reply> {
        let is_reserved = matches!(self.jobs.get(id)?.state, State::Reserved { .. });
        if is_reserved || self.options.is_full_for(id) {
            return None;
        }
        self.count_as_worker(by);
        Some(self.reserve(id, by, now))
    }

    fn delete(&mut self, by: ConnectionIndex, id: JobId, now: Time) -> Option<Reply> {
        let job = self.jobs.get(id)?;
        if matches!(job.state, State::Reserved { by: holder, .. } if holder != by) {
            return None;
        }
        self.leave(id, job.tube, job.priority);
        let job = self.jobs.remove(id).expect("it was found");
        let (tube_len, body_len) = (
            self.tubes[job.tube].name.as_str().len(),
            job.body.wire().len(),
        );
        let keys_len = self.end_options(id, &job, now);
        self.record(Change::Delete {
            id,
            tube_len,
            body_len,
            keys_len,
        });
        self.effects.garbage.push(job.body);
        self.tubes[job.tube].deletes += 1;
        self.remove_tube_if_unused(job.tube);
        self.serve(now);
        Some(Reply::Deleted)
    }

    fn release(
        &mut self,
        by: ConnectionIndex,
        id: JobId,
        priority: Priority,
        delay: Seconds,
        now: Time,
    ) -> Option<Reply> {
        let job = self.held_job(by, id)?;
        job.priority = priority;
        job.delay = delay;
        self.jobs.history_mut(id).releases += 1;
        self.record(Change::Update(id));
        match delay {
            Seconds(0) => self.change_state(id, State::Ready),
            delay => self.change_state(id, State::delayed(now + delay)),
        }
        self.serve(now);
        Some(Reply::Released)
    }

    fn bury(
        &mut self,
        by: ConnectionIndex,
        id: JobId,
        priority: Priority,
        now: Time,
    ) -> Option<Reply> {
        let job = self.held_job(by, id)?;
        job.priority = priority;
        self.jobs.history_mut(id).buries += 1;
        self.record(Change::Update(id));
        let state = self.buried_last();
        self.change_state(id, state);
        self.serve(now);
        Some(Reply::Buried)
    }

    fn touch(&mut self, by: ConnectionIndex, id: JobId, now: Time) -> Option<Reply> {
        let until = now + self.held_job(by, id)?.ttr;
        self.change_state(id, State::Reserved { by, until });
        Some(Reply::Touched)
    }

    /// A job that this connection has reserved.
    fn held_job(&mut self, by: ConnectionIndex, id: JobId) -> Option<&mut Job> {
        let job = self.jobs.get_mut(id)?;
        matches!(job.state, State::Reserved { by: holder, .. } if holder == by).then_some(job)
    }

    fn watch(&mut self, by: ConnectionIndex, name: TubeName) -> Reply {
        let tube = self.tubes.find(&name);
        let watched = &self.connections[by].watched;
        if tube.is_none_or(|tube| !watched.contains(tube)) {
            if !self.has_room(WATCH_OVERHEAD) {
                return Reply::OutOfMemory;
            }
            let tube = self.tubes.find_or_make(&name);
            self.connections[by].watched.add(tube);
            self.tubes[tube].watching += 1;
            self.watches += 1;
            self.look(by);
        }
        Reply::Watching(self.connections[by].watched.tubes().len())
    }

    fn ignore(&mut self, by: ConnectionIndex, name: TubeName) -> Reply {
        let watched = &self.connections[by].watched;
        let tube = self.tubes.find(&name);
        if let Some(tube) = tube.filter(|&tube| watched.contains(tube)) {
            if watched.tubes().len() == 1 {
                return Reply::NotIgnored;
            }
            self.unwatch(by, tube);
        }
        Reply::Watching(self.connections[by].watched.tubes().len())
    }

    // Others.

    fn peek(&self, id: JobId) -> Option<Reply> {
        let job = self.jobs.get(id)?;
        Some(Reply::Found(id, job.body.clone()))
    }

    fn used_tube(&self, by: ConnectionIndex) -> &Tube {
        &self.tubes[self.connections[by].used]
    }

    fn kick(&mut self, by: ConnectionIndex, bound: u32, now: Time) -> Outcome {
        let tube = self.used_tube(by);
        let only_buried = !tube.buried.is_empty();
        // It kicks as many jobs as there are now, at most. One that is buried or
        // delayed while this kick is under way may be among them.
        let there = if only_buried {
            tube.buried.len()
        } else {
            tube.delayed.len()
        };
        let kick = Kick {
            only_buried,
            left: there.min(bound as usize),
            kicked: 0,
        };
        self.kick_some(by, kick, now)
    }

    /// Does a piece of a kick. Each job is offered to the waiting connections
    /// before the next one is kicked.
    fn kick_some(&mut self, by: ConnectionIndex, mut kick: Kick, now: Time) -> Outcome {
        let used = self.connections[by].used;
        for _ in 0..KICKED_AT_ONCE.min(kick.left) {
            let tube = &self.tubes[used];
            let next = if kick.only_buried {
                tube.buried.first_key_value().map(|(_, &id)| id)
            } else {
                tube.delayed.first().map(|(_, id)| id)
            };
            let Some(id) = next else {
                kick.left = 0;
                break;
            };
            self.kick_one(id, now);
            kick.kicked += 1;
            kick.left -= 1;
        }
        if kick.left == 0 {
            return Outcome::Reply(Reply::KickedCount(kick.kicked));
        }
        self.connections[by].unfinished = Some(Unfinished::Kick(kick));
        Outcome::Unfinished
    }

    fn kick_job(&mut self, id: JobId, now: Time) -> Option<Reply> {
        let state = self.jobs.get(id)?.state;
        matches!(state, State::Buried { .. } | State::Delayed { .. }).then(|| {
            self.kick_one(id, now);
            Reply::Kicked
        })
    }

    fn kick_one(&mut self, id: JobId, now: Time) {
        self.jobs.history_mut(id).kicks += 1;
        self.reset_tries(id);
        self.record(Change::Update(id));
        self.make_ready(id, now);
    }

    fn pause_tube(&mut self, name: &TubeName, length: Seconds, now: Time) -> Option<Reply> {
        let tube = self.tubes.find(name)?;
        let until = now + length;
        self.tubes[tube].pauses += 1;
        self.tubes[tube].pause = (length > Seconds(0)).then_some(Pause { length, until });
        self.set_tube_timer(tube);
        self.unserved.push(tube);
        self.serve(now);
        Some(Reply::Paused)
    }

    fn stats_job(&self, id: JobId, now: Time) -> Option<Reply> {
        let job = self.jobs.get(id)?;
        let options = self.options.stats(id);
        let stats = job.stats(id, &self.tubes[job.tube], options, now);
        Some(Reply::JobStats(Box::new(stats)))
    }

    fn stats_tube(&mut self, name: &TubeName, now: Time) -> Option<Reply> {
        let tube = &self.tubes[self.tubes.find(name)?];
        self.effects.steps += tube.listeners.len();
        Some(Reply::Stats(tube.document(self.waiting_at(tube), now)))
    }

    fn list_tubes(&mut self) -> Reply {
        self.effects.steps += self.tubes.names.len() / 16;
        Reply::Tubes(self.tubes.names.clone())
    }

    fn list_tubes_watched(&mut self, by: ConnectionIndex) -> Reply {
        let watched = self.connections[by].watched.tubes();
        self.effects.steps += watched.len();
        let names = watched.iter().map(|&tube| self.tubes[tube].name.clone());
        Reply::Tubes(names.collect())
    }

    /// Looks at a limited number of jobs, so that nobody waits long for it.
    fn list_jobs(&mut self, list: &ListJobs, now: Time) -> Reply {
        let tube = match &list.tube {
            None => None,
            Some(name) => match self.tubes.find(name) {
                None => return Reply::Jobs(Box::default()),
                tube => tube,
            },
        };
        let is_wanted = |job: &Job| {
            tube.is_none_or(|tube| job.tube == tube)
                && list.state.is_none_or(|state| job.state.name() == state)
        };
        let most = usize::try_from(list.count).map_or(PIECE, |count| count.min(PIECE));
        let mut jobs = Vec::with_capacity(most.min(self.jobs.len()));
        let mut others = self.jobs.from(list.from);
        for (id, job) in others.by_ref().take(PIECE) {
            self.effects.steps += 1;
            if is_wanted(job) {
                let options = self.options.stats(id);
                jobs.push(job.stats(id, &self.tubes[job.tube], options, now));
                if jobs.len() == most {
                    break;
                }
            }
        }
        let next = others.next().map(|(id, _)| id);
        Reply::Jobs(Box::new(JobList { jobs, next }))
    }
}
