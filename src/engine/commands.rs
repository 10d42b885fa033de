//! The commands: one match, with a line or a method for each. [`Command`]
//! documents what each command means, and its replies.

use super::connection::{Kick, MOST_WATCHED, Unfinished, WATCHED_FREELY};
use super::counts::{Event, command_key};
use super::job::{JOB_OVERHEAD, Job, State, StoredOptions};
use super::slab::ConnectionIndex;
use super::tube::{Pause, Tube};
use super::{Change, ConnectionId, Engine, Outcome, PIECE, Time, WATCH_OVERHEAD};
use crate::protocol::command::{AfterPut, ListJobs, Put};
use crate::protocol::framing::NoBody;
use crate::protocol::{
    Body, Command, ConnectionList, ConnectionStats, JobId, JobList, Priority, Reply, Request,
    Seconds, TubeName,
};

/// How many jobs a piece of a long kick takes. It is few, because each of them
/// changes, and a full disk has little room for the changes of one piece.
const KICKED_AT_ONCE: usize = 20;

/// How many connections a `list-connections` tells of at most.
const LISTED_AT_ONCE: usize = 100;

impl Engine {
    /// Executes a request of a connection. Before that, it ticks if something
    /// is due. The connection must exist and must not be waiting.
    pub fn execute(&mut self, id: ConnectionId, request: Request, now: Time) -> Outcome {
        if self.wake_at().is_some_and(|at| at <= now) {
            self.tick(now);
        }
        let by = self.find(id).expect("only who is connected asks");
        debug_assert!(self.connections[by].wait.is_none());
        self.connections[by].asked_at = now;
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
            Command::ListConnections(from, count) => self.list_connections(from, count, now),
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
        connection.puts += 1;
        connection.incoming = Some((id, put));
        Outcome::AwaitBody
    }

    /// Whether the body that has come for this connection becomes a job, if there
    /// is room for it on the disk.
    pub fn will_insert(&self, id: ConnectionId) -> bool {
        let by = self.find(id).expect("only who is connected asks");
        let connection = &self.connections[by];
        let Some((_, put)) = &connection.incoming else {
            return false;
        };
        let tube = connection.used;
        let options = put.options.as_deref();
        let is_spread_too_far =
            options.is_some_and(|options| self.options.is_spread_too_far(options, tube));
        let is_refused = is_spread_too_far || !self.has_room(self.needed_for(put)) || self.draining;
        !is_refused && !self.is_there(put, tube)
    }

    fn needed_for(&self, put: &Put) -> u64 {
        let options = put.options.as_deref();
        let options = options.map_or(0, |options| self.options.needed(options));
        u64::from(put.size) + 2 + JOB_OVERHEAD + options
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
        let tube = self.connections[by].used;
        let options = put.options.as_deref();
        let is_spread_too_far =
            options.is_some_and(|options| self.options.is_spread_too_far(options, tube));
        let needed = self.needed_for(&put);
        let refusal = match &body {
            Err(NoBody::TooBig) => Some(Reply::JobTooBig),
            _ if is_spread_too_far || !self.has_room(needed) => Some(Reply::OutOfMemory),
            Err(NoBody::NoRoom) => Some(Reply::OutOfMemory),
            Err(NoBody::NoCrlf) => Some(Reply::ExpectedCrlf),
            Ok(_) if self.draining => Some(Reply::Draining),
            Ok(_) => None,
        };
        match refusal {
            Some(Reply::OutOfMemory) => {
                self.totals.refused += 1;
                self.refused_for_memory = Some(needed).filter(|&needed| !self.has_room(needed));
            }
            Some(Reply::Draining) => self.totals.refused += 1,
            Some(_) => {}
            None => self.refused_for_memory = None,
        }
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
            delay => State::Delayed { until: now + delay },
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
        if self.is_behind() {
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

    /// The best ready job of all tubes that a connection watches.
    pub(super) fn best_watched(&mut self, by: ConnectionIndex) -> Option<JobId> {
        let watched = &self.connections[by].watched;
        self.effects.steps += watched.len();
        let offers = watched.iter().filter_map(|&tube| self.tubes[tube].offer());
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
        self.count_event(id, Event::Release);
        self.record(Change::Update(id));
        match delay {
            Seconds(0) => self.change_state(id, State::Ready),
            delay => self.change_state(id, State::Delayed { until: now + delay }),
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
        self.count_event(id, Event::Bury);
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

    /// A tube that exists costs little to watch, and its jobs have to go: so a
    /// connection may watch some of these even if the memory is full.
    fn watch(&mut self, by: ConnectionIndex, name: TubeName) -> Reply {
        let tube = self.tubes.find(&name);
        let watched = &self.connections[by].watched;
        let count = watched.len();
        if tube.is_some_and(|tube| watched.contains(&tube)) {
            return Reply::Watching(count);
        }
        let is_free = tube.is_some() && count <= WATCHED_FREELY;
        if count >= MOST_WATCHED || !is_free && !self.has_room(WATCH_OVERHEAD) {
            return Reply::OutOfMemory;
        }
        let tube = self.tubes.find_or_make(&name);
        self.connections[by].watched.push(tube);
        self.tubes[tube].watching += 1;
        self.watches += 1;
        Reply::Watching(count + 1)
    }

    fn ignore(&mut self, by: ConnectionIndex, name: TubeName) -> Reply {
        let watched = &self.connections[by].watched;
        if let Some(tube) = self.tubes.find(&name)
            && let Some(position) = watched.iter().position(|&one| one == tube)
        {
            if watched.len() == 1 {
                return Reply::NotIgnored;
            }
            self.unwatch(by, position, tube);
        }
        Reply::Watching(self.connections[by].watched.len())
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
            if self.is_behind() {
                break;
            }
            let tube = &self.tubes[used];
            let next = if kick.only_buried {
                tube.buried.first_key_value().map(|(_, &id)| id)
            } else {
                tube.delayed.first().map(|&(_, id)| id)
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
        self.count_event(id, Event::Kick);
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
        self.note_unserved(tube);
        self.serve(now);
        Some(Reply::Paused)
    }

    fn stats_job(&self, id: JobId, now: Time) -> Option<Reply> {
        let job = self.jobs.get(id)?;
        let stats = self.job_stats(id, job, now);
        Some(Reply::JobStats(Box::new(stats)))
    }

    fn stats_tube(&self, name: &TubeName, now: Time) -> Option<Reply> {
        let tube = &self.tubes[self.tubes.find(name)?];
        Some(Reply::Stats(tube.document(now)))
    }

    fn list_tubes(&mut self) -> Reply {
        self.effects.steps += self.tubes.names.len() / 16;
        Reply::Tubes(self.tubes.names.clone())
    }

    fn list_tubes_watched(&mut self, by: ConnectionIndex) -> Reply {
        let watched = &self.connections[by].watched;
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
                jobs.push(self.job_stats(id, job, now));
                if jobs.len() == most {
                    break;
                }
            }
        }
        let next = others.next().map(|(id, _)| id);
        Reply::Jobs(Box::new(JobList { jobs, next }))
    }

    /// Tells of a limited number of connections. What the engine does not know
    /// of them, the server fills in.
    fn list_connections(&mut self, from: u64, count: u64, now: Time) -> Reply {
        let most = usize::try_from(count).map_or(LISTED_AT_ONCE, |count| count.min(LISTED_AT_ONCE));
        let mut others = self.connections_by_id.range(ConnectionId(from)..);
        let stats = |(id, &index): (&ConnectionId, &ConnectionIndex)| {
            let connection = &self.connections[index];
            ConnectionStats {
                id: id.0,
                address: String::new(),
                age: 0,
                idle: now.since(connection.asked_at).as_secs(),
                is_producer: connection.is_producer,
                is_worker: connection.is_worker,
                is_waiting: connection.wait.is_some(),
                tube: self.tubes[connection.used].name.clone(),
                watched: connection.watched.len(),
                held: connection.reserved.len(),
                puts: connection.puts,
                reserves: connection.reserves,
            }
        };
        let connections: Vec<_> = others.by_ref().take(most).map(stats).collect();
        self.effects.steps += connections.len();
        let next = others.next().map(|(id, _)| id.0);
        Reply::Connections(ConnectionList { connections, next })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::Config;
    use crate::protocol::Framer;

    /// An engine at a time that stands still.
    struct Bench(Engine);

    impl Bench {
        fn new() -> Bench {
            Bench(Engine::new(Config::new(100), Time::default()))
        }

        /// A connection that watches so many tubes beside `default`: `0`, `1`
        /// and so on.
        fn watching(&mut self, count: usize) -> ConnectionId {
            let id = self.0.connect();
            (0..count).for_each(|tube| drop(self.ask(id, &format!("watch {tube}\r\n"))));
            id
        }

        fn put(&mut self, id: ConnectionId, tube: usize, put: &str) {
            self.ask(id, &format!("use {tube}\r\nput {put}\r\n\r\n"));
        }

        /// The outcome of the last of these requests, and the steps of the
        /// longest call.
        fn ask(&mut self, id: ConnectionId, text: &str) -> (Outcome, usize) {
            self.ask_at(id, text, Time::default())
        }

        fn ask_at(&mut self, id: ConnectionId, text: &str, now: Time) -> (Outcome, usize) {
            let mut framer = Framer::new(100);
            let (mut outcome, mut longest) = (Outcome::Quit, 0);
            let mut input = text.as_bytes();
            while let Some(mut request) = framer.next(&mut input) {
                loop {
                    self.0.effects.steps = 0;
                    outcome = self.0.execute(id, request, now);
                    longest = longest.max(self.0.effects.steps);
                    if outcome != Outcome::Unfinished {
                        break;
                    }
                    request = Request::GoOn;
                }
            }
            (outcome, longest)
        }

        /// Ticks until nothing is due. Returns how often, and the steps of the
        /// longest call.
        fn tick(&mut self, now: Time) -> (usize, usize) {
            let (mut ticks, mut longest) = (0, 0);
            while self.0.wake_at().is_some_and(|at| at <= now) {
                self.0.effects.steps = 0;
                self.0.tick(now);
                longest = longest.max(self.0.effects.steps);
                ticks += 1;
            }
            (ticks, longest)
        }

        /// Which jobs were given to connections that waited.
        fn given(&mut self) -> Vec<(ConnectionId, u64)> {
            let replies = self.0.effects.replies.drain(..);
            let job = |(id, reply)| match reply {
                Reply::Reserved(job, _) => (id, job.0),
                _ => panic!("{reply:?}"),
            };
            replies.map(job).collect()
        }
    }

    fn reply(reply: Reply) -> Outcome {
        Outcome::Reply(reply)
    }

    #[test]
    fn a_command_costs_a_step_for_each_job_and_tube_that_it_looks_at() {
        let mut bench = Bench::new();
        let [few, many] = [9, 1600].map(|count| bench.watching(count));
        let other = bench.0.connect();
        for (id, text, steps) in [
            (other, "use 5\r\n", 1),
            // Copying a name costs little.
            (other, "list-tubes\r\n", 1 + 1601 / 16),
            (few, "list-tubes-watched\r\n", 11),
            (few, "reserve-with-timeout 0\r\n", 11),
            (many, "reserve-with-timeout 0\r\n", 1602),
            (other, "stats-tube 5\r\n", 1),
            (other, "put 0 0 60 0\r\n\r\n", 1),
            (other, "put 0 0 60 0 con:a\r\n\r\n", 1),
            (other, "put 0 0 60 0 con:a\r\n\r\n", 1),
            (other, "list-jobs 0 2\r\n", 3),
            (few, "reserve\r\n", 12),
            // The other job with its key has to wait.
            (few, "reserve\r\n", 13),
            (few, "delete 1\r\n", 2),
            (few, "delete 2\r\n", 3),
            (few, "delete 3\r\n", 2),
            // It stands in the queues of ten tubes, and leaves them again.
            (few, "reserve\r\n", 21),
            (other, "put 0 0 60 0\r\n\r\n", 23),
            (many, "reserve\r\n", 3203),
            (other, "put 0 0 60 0\r\n\r\n", 3205),
        ] {
            assert_eq!(bench.ask(id, text).1, steps, "{text}");
        }
        assert_eq!(bench.given(), [(few, 4), (many, 5)]);
    }

    #[test]
    fn those_who_wait_get_the_best_of_the_jobs_that_mature_together() {
        let mut bench = Bench::new();
        let waiting = [3, 40, 50].map(|count| bench.watching(count));
        let other = bench.0.connect();
        for (tube, priority) in [(2, 9), (45, 0), (30, 5), (1, 7)] {
            bench.put(other, tube, &format!("{priority} 1 60 0"));
        }
        for id in waiting {
            assert_eq!(bench.ask(id, "reserve\r\n").0, Outcome::Waiting);
        }
        bench.tick(Time::default() + Seconds(2));
        bench.0.check();
        let [few, many, more] = waiting;
        assert_eq!(bench.given(), [(few, 4), (many, 3), (more, 2)]);
    }

    /// 500 clients wait in 500 tubes each, and a job becomes ready in each tube.
    #[test]
    fn very_many_waiting_clients_are_served_in_pieces_and_in_their_order() {
        let mut bench = Bench::new();
        let waiting: Vec<_> = (0..500).map(|_| bench.watching(500)).collect();
        let late = bench.watching(500);
        let other = bench.0.connect();
        (0..500).for_each(|tube| bench.put(other, tube, "0 1 60 0"));
        for &id in &waiting {
            assert_eq!(bench.ask(id, "reserve\r\n").0, Outcome::Waiting);
        }
        let now = Time::default() + Seconds(1);
        // The first call does what is due; a put and a reserve come meanwhile.
        let (outcome, put) = bench.ask_at(other, "use 7\r\nput 9 0 60 0\r\n\r\n", now);
        assert_eq!(outcome, reply(Reply::Inserted(JobId(501))));
        bench.0.check();
        assert!((1..100).contains(&bench.0.effects.replies.len()));
        // Who comes last does not overtake those who wait.
        let (outcome, reserve) = bench.ask_at(late, "reserve\r\n", now);
        let Outcome::Reply(Reply::Reserved(JobId(501), _)) = outcome else {
            panic!("{outcome:?}");
        };
        for longest in [put, reserve] {
            assert!(longest < 5 * PIECE, "{longest} steps");
        }
        let expected: Vec<_> = waiting.into_iter().zip(1..).collect();
        assert_eq!(bench.given(), expected);
        bench.0.check();
    }

    /// Each of 1,000 tubes has a job of the one key, and very many clients wait.
    #[test]
    fn a_key_that_becomes_free_costs_no_step_for_each_tube_and_client() {
        let mut bench = Bench::new();
        let other = bench.0.connect();
        (0..1000).for_each(|tube| bench.put(other, tube, "0 0 60 0 con:key"));
        let holder = bench.watching(1000);
        let (_, longest) = bench.ask(holder, "reserve\r\n");
        assert!(longest < 3 * PIECE, "{longest} steps");
        let waiting: Vec<_> = (0..3000).map(|_| bench.watching(17)).collect();
        for &id in &waiting {
            assert_eq!(bench.ask(id, "reserve\r\n").0, Outcome::Waiting);
        }
        let (_, longest) = bench.ask(holder, "use 3\r\nput 5 0 60 0 con:key:2\r\n\r\n");
        assert!(longest < 4 * PIECE, "{longest} steps");
        bench.tick(Time::default());
        assert_eq!(bench.given(), [(waiting[0], 2)]);
        let (_, longest) = bench.ask(holder, "delete 1\r\n");
        assert!(longest < 4 * PIECE, "{longest} steps");
        bench.tick(Time::default());
        assert_eq!(bench.given(), [(waiting[1], 3)]);
        bench.0.check();
    }

    #[test]
    fn a_key_may_be_in_a_thousand_tubes_and_a_put_into_one_more_is_refused() {
        let mut bench = Bench::new();
        let id = bench.0.connect();
        (0..1000).for_each(|tube| bench.put(id, tube, "0 0 60 0 con:key"));
        let put = "put 0 0 60 0 con:key\r\n\r\n";
        let refused = reply(Reply::OutOfMemory);
        assert_eq!(bench.ask(id, &format!("use 1000\r\n{put}")).0, refused);
        let again = bench.ask(id, &format!("use 7\r\n{put}")).0;
        assert_eq!(again, reply(Reply::Inserted(JobId(1002))));
        bench.ask(id, "delete 1\r\n");
        let again = bench.ask(id, &format!("use 1000\r\n{put}")).0;
        assert_eq!(again, reply(Reply::Inserted(JobId(1003))));
        bench.0.check();
    }

    #[test]
    fn a_connection_may_watch_ten_thousand_tubes() {
        let mut bench = Bench::new();
        let id = bench.watching(MOST_WATCHED - 1);
        let again = bench.ask(id, "watch 77\r\n").0;
        assert_eq!(again, reply(Reply::Watching(MOST_WATCHED)));
        let refused = reply(Reply::OutOfMemory);
        assert_eq!(bench.ask(id, "watch one-more\r\n").0, refused);
        bench.ask(id, "ignore 77\r\n");
        let again = bench.ask(id, "watch one-more\r\n").0;
        assert_eq!(again, reply(Reply::Watching(MOST_WATCHED)));
        // What it needed for the list is given back.
        (0..MOST_WATCHED).for_each(|tube| drop(bench.ask(id, &format!("ignore {tube}\r\n"))));
        let index = bench.0.find(id).expect("it is connected");
        assert!(bench.0.connections[index].watched.capacity() < 10);
    }

    #[test]
    fn what_takes_work_off_the_server_is_never_refused_for_memory() {
        let mut bench = Bench::new();
        let producer = bench.0.connect();
        (0..300).for_each(|tube| bench.put(producer, tube, "0 0 60 0"));
        bench.0.config.max_memory = Some(bench.0.memory());
        let worker = bench.0.connect();
        let refused = reply(Reply::OutOfMemory);
        assert_eq!(bench.ask(producer, "put 0 0 60 0\r\n\r\n").0, refused);
        assert_eq!(bench.ask(worker, "watch new\r\n").0, refused);
        for tube in 0..100 {
            let outcome = bench.ask(worker, &format!("watch {tube}\r\n")).0;
            assert_eq!(outcome, reply(Reply::Watching(tube + 2)));
        }
        assert_eq!(bench.ask(worker, "watch 100\r\n").0, refused);
        for id in 1..=100 {
            let outcome = bench.ask(worker, "reserve\r\n").0;
            assert!(matches!(outcome, Outcome::Reply(Reply::Reserved(JobId(job), _)) if job == id));
        }
        let text = "bury 2 0\r\nrelease 3 0 9\r\ntouch 4\r\nkick-job 2\r\nkick-job 3\r\n";
        assert_eq!(bench.ask(worker, text).0, reply(Reply::Kicked));
        (1..=100).for_each(|id| drop(bench.ask(worker, &format!("delete {id}\r\n"))));
        let outcome = bench.ask(producer, "put 0 0 60 0\r\n\r\n").0;
        assert!(matches!(outcome, Outcome::Reply(Reply::Inserted(_))));
    }

    #[test]
    fn it_is_known_whether_anybody_waits() {
        let mut bench = Bench::new();
        let [waiting, other] = [0; 2].map(|_| bench.0.connect());
        assert!(!bench.0.has_waiting());
        bench.ask(waiting, "reserve\r\n");
        assert!(bench.0.has_waiting());
        bench.ask(other, "put 0 0 60 0\r\n\r\n");
        assert!(!bench.0.has_waiting());
    }
}
