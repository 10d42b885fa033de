//! The commands: one match, one method each. What each means, and its replies,
//! is told at [`Command`].

use super::connection::{Connection, Incoming};
use super::job::{Job, State};
use super::tube::Pause;
use super::{Change, ConnectionId, Engine, JOB_OVERHEAD, Outcome, Time};
use crate::protocol::command::Put;
use crate::protocol::stats::{JobStats, ProcessStats, ServerStats, TubeStats};
use crate::protocol::{Body, Command, JobId, Priority, Reply, Request, Seconds, TubeName};
use std::time::Duration;

impl Engine {
    /// Does what a connection asks for, in a world where what is due by now has
    /// happened. It must be one that is connected and does not wait.
    pub fn execute(&mut self, id: ConnectionId, request: Request, now: Time) -> Outcome {
        if self.wake_at().is_some_and(|at| at <= now) {
            self.tick(now);
        }
        let place = self.place(id).expect("only who is connected asks");
        debug_assert!(self.connections[place].wait.is_none());
        Outcome::Reply(match request {
            Request::Command(command) => return self.command(place, command, now),
            Request::Body(body) => self.body(place, body, now),
            Request::BodyWithoutCrlf => self.body_without_crlf(place),
            Request::BodyWithoutRoom => self.body_without_room(place),
            Request::BodyTooBig => Reply::JobTooBig,
            Request::Refused(reply) => reply,
        })
    }

    fn command(&mut self, place: u32, command: Command, now: Time) -> Outcome {
        Outcome::Reply(match command {
            Command::Put(put) => return self.put(place, put),
            Command::Reserve => return self.reserve_first(place, now),
            Command::ReserveWithTimeout(timeout) => {
                return self.reserve_with_timeout(place, timeout, now);
            }
            Command::Quit => return Outcome::Quit,
            Command::Use(tube) => self.use_tube(place, tube),
            Command::ReserveJob(id) => self.reserve_job(place, id, now),
            Command::Delete(id) => self.delete(place, id),
            Command::Release {
                id,
                priority,
                delay,
            } => self.release(place, id, priority, delay, now),
            Command::Bury { id, priority } => self.bury(place, id, priority),
            Command::Touch(id) => self.touch(place, id, now),
            Command::Watch(tube) => self.watch(place, tube),
            Command::Ignore(tube) => self.ignore(place, tube),
            Command::Peek(id) => self.peek(id),
            Command::PeekReady => self.peek_ready(place),
            Command::PeekDelayed => self.peek_delayed(place),
            Command::PeekBuried => self.peek_buried(place),
            Command::Kick(bound) => self.kick(place, bound, now),
            Command::KickJob(id) => self.kick_job(id, now),
            Command::PauseTube(tube, length) => self.pause_tube(tube, length, now),
            Command::PauseNoTube => self.pause_no_tube(),
            Command::Stats => self.stats(),
            Command::StatsJob(id) => self.stats_job(id, now),
            Command::StatsTube(tube) => self.stats_tube(tube, now),
            Command::ListTubes => self.list_tubes(),
            Command::ListTubeUsed => self.list_tube_used(place),
            Command::ListTubesWatched => self.list_tubes_watched(place),
        })
    }

    // Producers.

    /// The id is given now, before the body has come: a put that then fails
    /// has used it up.
    fn put(&mut self, place: u32, put: Put) -> Outcome {
        self.commands.put += 1;
        if put.size > self.config.max_job_size {
            return Outcome::AwaitBody;
        }
        if put.trailing {
            return Outcome::Reply(Reply::BadFormat);
        }
        let id = JobId(self.next_id);
        self.next_id += 1;
        let bytes = wire_bytes(put);
        let limit = self.config.max_memory.unwrap_or(u64::MAX);
        let fits = self.memory() + bytes + JOB_OVERHEAD <= limit;
        if fits {
            self.body_bytes += bytes;
            self.incoming += 1;
        }
        let connection = &mut self.connections[place];
        connection.is_producer = true;
        connection.incoming = Some(Incoming { id, put, fits });
        if fits {
            Outcome::AwaitBody
        } else {
            Outcome::RefuseBody
        }
    }

    fn body(&mut self, place: u32, body: Body, now: Time) -> Reply {
        let incoming = self.give_up_incoming(place);
        let Incoming { id, put, fits } = incoming.expect("a body follows the line of its put");
        if !fits {
            return Reply::OutOfMemory;
        }
        if self.draining {
            return Reply::Draining;
        }
        let tube = self.connections[place].used;
        let state = match put.delay {
            Seconds(0) => State::Ready,
            delay => State::delayed(now + delay),
        };
        self.body_bytes += body.wire().len() as u64;
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
        self.enter(id, tube, put.priority, state);
        self.record(Change::Put(id));
        self.tubes[tube].total_jobs += 1;
        self.total_jobs += 1;
        self.serve(now);
        Reply::Inserted(id)
    }

    fn body_without_crlf(&mut self, place: u32) -> Reply {
        match self.give_up_incoming(place) {
            Some(Incoming { fits: false, .. }) => Reply::OutOfMemory,
            _ => Reply::ExpectedCrlf,
        }
    }

    /// Answers the body of a put for which there is no room.
    fn body_without_room(&mut self, place: u32) -> Reply {
        self.give_up_incoming(place);
        Reply::OutOfMemory
    }

    /// The put whose body was awaited; the room kept for it is free again.
    pub(super) fn give_up_incoming(&mut self, place: u32) -> Option<Incoming> {
        let incoming = self.connections[place].incoming.take()?;
        if incoming.fits {
            self.body_bytes -= wire_bytes(incoming.put);
            self.incoming -= 1;
        }
        Some(incoming)
    }

    fn use_tube(&mut self, place: u32, name: TubeName) -> Reply {
        self.commands.use_ += 1;
        let tube = self.find_or_make_tube(&name);
        let before = std::mem::replace(&mut self.connections[place].used, tube);
        self.tubes[tube].using += 1;
        self.tubes[before].using -= 1;
        self.remove_tube_if_unused(before);
        Reply::Using(name)
    }

    // Workers.

    fn reserve_first(&mut self, place: u32, now: Time) -> Outcome {
        self.commands.reserve += 1;
        self.reserve_or_wait(place, None, now)
    }

    fn reserve_with_timeout(&mut self, place: u32, timeout: Seconds, now: Time) -> Outcome {
        self.commands.reserve_with_timeout += 1;
        self.reserve_or_wait(place, Some(timeout), now)
    }

    fn reserve_or_wait(&mut self, place: u32, timeout: Option<Seconds>, now: Time) -> Outcome {
        let connection = &mut self.connections[place];
        connection.is_worker = true;
        let deadline_soon = connection.deadline_soon_at().is_some_and(|at| at <= now);
        if let Some(id) = self.first_ready(place) {
            return Outcome::Reply(self.reserve(id, place, now));
        }
        if deadline_soon {
            Outcome::Reply(Reply::DeadlineSoon)
        } else if timeout == Some(Seconds(0)) || self.connections[place].half_closed {
            Outcome::Reply(Reply::TimedOut)
        } else {
            self.start_waiting(place, timeout.map(|timeout| now + timeout));
            Outcome::Waiting
        }
    }

    /// The next ready job of all tubes that a connection watches.
    pub(super) fn first_ready(&self, place: u32) -> Option<JobId> {
        let watched = self.connections[place].watched.iter();
        let tubes = watched.map(|&tube| &self.tubes[tube]);
        let open = tubes.filter(|tube| tube.pause.is_none());
        let (_, id) = open.filter_map(|tube| tube.ready.first()).min()?;
        Some(id)
    }

    fn reserve_job(&mut self, place: u32, id: JobId, now: Time) -> Reply {
        match self.jobs.get(id).map(|job| job.state) {
            None | Some(State::Reserved { .. }) => Reply::NotFound,
            Some(_) => {
                self.connections[place].is_worker = true;
                self.reserve(id, place, now)
            }
        }
    }

    fn delete(&mut self, place: u32, id: JobId) -> Reply {
        self.commands.delete += 1;
        let Some(job) = self.jobs.get(id) else {
            return Reply::NotFound;
        };
        if matches!(job.state, State::Reserved { by, .. } if by != place) {
            return Reply::NotFound;
        }
        self.leave(id, job.tube, job.priority);
        let job = self.jobs.remove(id).expect("it was found");
        let (tube_len, body_len) = (
            self.tubes[job.tube].name.as_str().len(),
            job.body.wire().len(),
        );
        self.record(Change::Delete {
            id,
            tube_len,
            body_len,
        });
        self.body_bytes -= body_len as u64;
        self.effects.garbage.push(job.body);
        self.tubes[job.tube].deletes += 1;
        self.remove_tube_if_unused(job.tube);
        Reply::Deleted
    }

    fn release(
        &mut self,
        place: u32,
        id: JobId,
        priority: Priority,
        delay: Seconds,
        now: Time,
    ) -> Reply {
        self.commands.release += 1;
        let Some(job) = self.held_job(place, id) else {
            return Reply::NotFound;
        };
        job.priority = priority;
        job.delay = delay;
        job.history_mut().releases += 1;
        self.record(Change::Update(id));
        match delay {
            Seconds(0) => self.make_ready(id, now),
            delay => self.change_state(id, State::delayed(now + delay)),
        }
        Reply::Released
    }

    fn bury(&mut self, place: u32, id: JobId, priority: Priority) -> Reply {
        self.commands.bury += 1;
        let Some(job) = self.held_job(place, id) else {
            return Reply::NotFound;
        };
        job.priority = priority;
        job.history_mut().buries += 1;
        self.record(Change::Update(id));
        let order = self.next_burial;
        self.next_burial += 1;
        self.change_state(id, State::Buried { order });
        Reply::Buried
    }

    fn touch(&mut self, place: u32, id: JobId, now: Time) -> Reply {
        self.commands.touch += 1;
        let Some(job) = self.held_job(place, id) else {
            return Reply::NotFound;
        };
        let State::Reserved { by, until } = &mut job.state else {
            unreachable!("a held job is reserved");
        };
        let before = std::mem::replace(until, now + job.ttr);
        let (by, until) = (*by, *until);
        let reserved = &mut self.connections[by].reserved;
        reserved.remove(&(before, id));
        reserved.insert((until, id));
        self.set_connection_timer(by);
        Reply::Touched
    }

    /// A job that this connection has reserved.
    fn held_job(&mut self, place: u32, id: JobId) -> Option<&mut Job> {
        let job = self.jobs.get_mut(id)?;
        matches!(job.state, State::Reserved { by, .. } if by == place).then_some(job)
    }

    fn watch(&mut self, place: u32, name: TubeName) -> Reply {
        self.commands.watch += 1;
        let tube = self.find_or_make_tube(&name);
        let watched = &mut self.connections[place].watched;
        if !watched.contains(&tube) {
            watched.push(tube);
            self.tubes[tube].watching += 1;
        }
        Reply::Watching(watched.len())
    }

    fn ignore(&mut self, place: u32, name: TubeName) -> Reply {
        self.commands.ignore += 1;
        let tube = self.tubes.find(&name);
        let watched = &mut self.connections[place].watched;
        if let Some(position) = watched.iter().position(|&one| Some(one) == tube) {
            if watched.len() == 1 {
                return Reply::NotIgnored;
            }
            // The last one takes its position, as in the reference server.
            let tube = watched.swap_remove(position);
            self.tubes[tube].watching -= 1;
            self.remove_tube_if_unused(tube);
        }
        Reply::Watching(self.connections[place].watched.len())
    }

    // Others.

    fn peek(&mut self, id: JobId) -> Reply {
        self.commands.peek += 1;
        let id = self.jobs.get(id).map(|_| id);
        self.found(id)
    }

    fn peek_ready(&mut self, place: u32) -> Reply {
        self.commands.peek_ready += 1;
        let tube = &self.tubes[self.connections[place].used];
        self.found(tube.ready.first().map(|(_, id)| id))
    }

    fn peek_delayed(&mut self, place: u32) -> Reply {
        self.commands.peek_delayed += 1;
        let tube = &self.tubes[self.connections[place].used];
        self.found(tube.delayed.first().map(|(_, id)| id))
    }

    fn peek_buried(&mut self, place: u32) -> Reply {
        self.commands.peek_buried += 1;
        let tube = &self.tubes[self.connections[place].used];
        self.found(tube.buried.first_key_value().map(|(_, &id)| id))
    }

    fn found(&self, id: Option<JobId>) -> Reply {
        id.map_or(Reply::NotFound, |id| {
            Reply::Found(id, self.jobs[id].body.clone())
        })
    }

    fn kick(&mut self, place: u32, bound: u32, now: Time) -> Reply {
        self.commands.kick += 1;
        let place = self.connections[place].used;
        let only_buried = !self.tubes[place].buried.is_empty();
        let mut kicked = 0;
        while kicked < bound as usize {
            let tube = &self.tubes[place];
            let next = if only_buried {
                tube.buried.first_key_value().map(|(_, &id)| id)
            } else {
                tube.delayed.first().map(|(_, id)| id)
            };
            let Some(id) = next else { break };
            self.kick_one(id, now);
            kicked += 1;
        }
        Reply::KickedCount(kicked)
    }

    fn kick_job(&mut self, id: JobId, now: Time) -> Reply {
        match self.jobs.get(id).map(|job| job.state) {
            Some(State::Buried { .. } | State::Delayed { .. }) => {
                self.kick_one(id, now);
                Reply::Kicked
            }
            _ => Reply::NotFound,
        }
    }

    fn kick_one(&mut self, id: JobId, now: Time) {
        self.jobs[id].history_mut().kicks += 1;
        self.record(Change::Update(id));
        self.make_ready(id, now);
    }

    fn pause_tube(&mut self, name: TubeName, length: Seconds, now: Time) -> Reply {
        self.commands.pause_tube += 1;
        let Some(tube) = self.tubes.find(&name) else {
            return Reply::NotFound;
        };
        let until = now + length;
        self.tubes[tube].pauses += 1;
        self.tubes[tube].pause = (length > Seconds(0)).then_some(Pause { length, until });
        self.set_tube_timer(tube);
        self.unserved.push(tube);
        self.serve(now);
        Reply::Paused
    }

    fn pause_no_tube(&mut self) -> Reply {
        self.commands.pause_tube += 1;
        Reply::BadFormat
    }

    fn stats(&mut self) -> Reply {
        self.commands.stats += 1;
        let with =
            |is: fn(&Connection) -> bool| self.connections.iter().filter(|one| is(one)).count();
        Reply::ServerStats(Box::new(ServerStats {
            jobs: self.totals,
            commands: self.commands,
            timeouts: self.timeouts,
            total_jobs: self.total_jobs,
            max_job_size: self.config.max_job_size,
            tubes: self.tubes.len(),
            connections: self.connections.len(),
            producers: with(|one| one.is_producer),
            workers: with(|one| one.is_worker),
            waiting: self.waiting,
            total_connections: self.total_connections,
            draining: self.draining,
            process: ProcessStats::default(),
        }))
    }

    fn stats_job(&mut self, id: JobId, now: Time) -> Reply {
        self.commands.stats_job += 1;
        let Some(job) = self.jobs.get(id) else {
            return Reply::NotFound;
        };
        let (state, time_left) = match job.state {
            State::Ready => ("ready", Duration::ZERO),
            State::Delayed { until, .. } => ("delayed", until.since(now)),
            State::Reserved { until, .. } => ("reserved", until.since(now)),
            State::Buried { .. } => ("buried", Duration::ZERO),
        };
        Reply::JobStats(Box::new(JobStats {
            id,
            tube: self.tubes[job.tube].name.clone(),
            state,
            priority: job.priority,
            age: now.since(job.created_at),
            delay: job.delay,
            ttr: job.ttr,
            time_left,
            file: 0,
            counters: job.counters(),
        }))
    }

    fn stats_tube(&mut self, name: TubeName, now: Time) -> Reply {
        self.commands.stats_tube += 1;
        let Some(tube) = self.tubes.find(&name).map(|place| &self.tubes[place]) else {
            return Reply::NotFound;
        };
        Reply::TubeStats(Box::new(TubeStats {
            name,
            jobs: tube.jobs,
            total_jobs: tube.total_jobs,
            using: tube.using,
            watching: tube.watching,
            waiting: tube.waiting.len(),
            deletes: tube.deletes,
            pauses: tube.pauses,
            pause: tube.pause.map_or(Seconds(0), |pause| pause.length),
            pause_left: tube
                .pause
                .map_or(Duration::ZERO, |pause| pause.until.since(now)),
        }))
    }

    fn list_tubes(&mut self) -> Reply {
        self.commands.list_tubes += 1;
        Reply::Tubes(self.tubes.iter().map(|tube| tube.name.clone()).collect())
    }

    fn list_tube_used(&mut self, place: u32) -> Reply {
        self.commands.list_tube_used += 1;
        Reply::Using(self.tubes[self.connections[place].used].name.clone())
    }

    fn list_tubes_watched(&mut self, place: u32) -> Reply {
        self.commands.list_tubes_watched += 1;
        let watched = self.connections[place].watched.iter();
        Reply::Tubes(watched.map(|&tube| self.tubes[tube].name.clone()).collect())
    }
}

fn wire_bytes(put: Put) -> u64 {
    u64::from(put.size) + 2
}
