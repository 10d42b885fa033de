//! The model's answers to command lines and bodies.

use super::documents::{list, word};
use super::{
    Client, Incoming, JOB_OVERHEAD, Job, KICK, Model, Options, RELEASE, RESERVE, SECOND, State,
    WATCH_OVERHEAD, WATCHED_FREELY,
};

/// The beginnings of the known commands. If a line begins with one of them but
/// cannot be read, it is malformed. Any other line is unknown.
const COMMANDS: &str = "put |use |reserve|delete |release |bury |touch |watch |ignore |peek |\
    peek-ready|peek-delayed|peek-buried|kick |kick-job |pause-tube|stats|list-tube|list-jobs |\
    list-connections |list-tube-stats |list-server-stats|bury-later |\
    close-connection ";

/// The longest line, with its CR LF, in bytes. A `list-jobs` with the longest
/// name of a tube can exceed it.
const MAX_LINE: usize = 224;

impl Model {
    /// Takes a command line, without its CR LF.
    pub fn line(&mut self, client: Client, line: &str) {
        if line.starts_with("quit") {
            self.disconnect(client);
            self.said.push((client, "closed".into()));
            return;
        }
        self.client(client).asked_at = self.now;
        if line.len() + 2 > MAX_LINE {
            self.said.push((client, "BAD_FORMAT".into()));
            return;
        }
        let reply = match self.command(client, line) {
            Some(reply) => reply,
            None if is_known(line) => "BAD_FORMAT".into(),
            None => "UNKNOWN_COMMAND".into(),
        };
        if !reply.is_empty() {
            self.said.push((client, reply));
        }
    }

    /// Takes the bytes that follow the line of a put: the body and two more.
    pub fn body(&mut self, client: Client, bytes: &str) {
        self.client(client).asked_at = self.now;
        let incoming = self.client(client).incoming.take();
        let used = self.client(client).used.clone();
        let reply = match incoming.expect("an awaited body") {
            Incoming::TooBig => "JOB_TOO_BIG".into(),
            Incoming::Job(job, size) => self.take(*job, size, &used, bytes),
        };
        self.said.push((client, reply));
    }

    /// What becomes of a job, now that these bytes have come.
    fn take(&mut self, job: Job, size: usize, tube: &str, bytes: &str) -> String {
        let has_memory = self.has_room(size + 2 + JOB_OVERHEAD + job.options.memory());
        if !has_memory || self.is_spread_too_far(&job.options, tube) || self.disk_is_full {
            self.refuse("OUT_OF_MEMORY")
        } else if !bytes.ends_with("\r\n") {
            "EXPECTED_CRLF".into()
        } else if self.draining {
            self.refuse("DRAINING")
        } else if let Some(reply) = self.inserted_before(&job, tube) {
            reply
        } else if !self.has_room_for_key(&job.options, tube) {
            self.refuse("OUT_OF_MEMORY")
        } else if self.is_full(tube) {
            self.refused_by_tubes += 1;
            self.tube(tube).unwrap().refused += 1;
            "OUT_OF_MEMORY".into()
        } else {
            self.insert(job, size, tube, bytes)
        }
    }

    /// Counts a put that the server refuses.
    fn refuse(&mut self, reply: &str) -> String {
        self.refused += 1;
        reply.into()
    }

    fn is_full(&self, tube: &str) -> bool {
        let most = self.max_jobs_per_tube;
        most.is_some_and(|most| self.jobs_in(tube).count() >= most)
    }

    fn insert(&mut self, mut job: Job, size: usize, tube: &str, bytes: &str) -> String {
        job.created = self.now;
        if job.delay > 0 {
            let until = self.now + job.delay * SECOND;
            job.state = State::Delayed { until };
        }
        job.tube = tube.into();
        job.body = bytes[..size].into();
        let id = job.id;
        self.tube(tube).unwrap().jobs_ever += 1;
        self.jobs_ever += 1;
        self.jobs.push(job);
        self.jobs.sort_by_key(|job| job.id);
        self.serve();
        format!("INSERTED {id}")
    }

    /// Executes a command and returns the reply. It is empty if there is none
    /// yet. `None` if the line is not a valid command.
    fn command(&mut self, client: Client, line: &str) -> Option<String> {
        let words: Vec<&str> = line.split(' ').collect();
        let used = self.client(client).used.clone();
        let reply = match words[..] {
            ["put", priority, delay, ttr, size, ref rest @ ..] => {
                let options = Options::read(rest);
                let is_malformed = options.is_none();
                let job = Job {
                    priority: priority.parse().ok()?,
                    delay: delay.parse::<u32>().ok()?.into(),
                    ttr: ttr.parse::<u32>().ok()?.max(1).into(),
                    options: options.unwrap_or_default(),
                    ..Job::default()
                };
                let size = size.parse::<u32>().ok()? as usize;
                self.put(client, job, size, is_malformed)
            }
            ["use", tube] => {
                let tube = name(tube)?;
                if self.tube(tube).is_none() && !self.has_room(0) {
                    "OUT_OF_MEMORY".into()
                } else {
                    self.make_tube(tube);
                    self.client(client).used = tube.into();
                    self.forget_tube_if_unused(&used);
                    format!("USING {tube}")
                }
            }
            [word @ ("reserve" | "reserve-with-stats")] => {
                self.reserve(client, None, word == "reserve-with-stats")
            }
            [
                word @ ("reserve-with-timeout" | "reserve-with-stats"),
                seconds,
            ] => {
                let seconds: u64 = seconds.parse::<u32>().ok()?.into();
                self.reserve(client, Some(seconds), word == "reserve-with-stats")
            }
            ["reserve-job", id] => self.reserve_job(client, id.parse().ok()?),
            ["delete", id] => self.delete(client, id.parse().ok()?),
            ["release", id, priority, delay] => {
                let (id, priority) = (id.parse().ok()?, priority.parse().ok()?);
                let delay: u64 = delay.parse::<u32>().ok()?.into();
                let until = self.now + delay * SECOND;
                self.change_held(client, id, "RELEASED", |model| {
                    let job = model.job_mut(id);
                    job.priority = priority;
                    job.delay = delay;
                    job.state = match delay {
                        0 => State::Ready,
                        _ => State::Delayed { until },
                    };
                    model.note(id, RELEASE);
                })
            }
            ["bury", id, priority] => {
                let (id, priority) = (id.parse().ok()?, priority.parse().ok()?);
                self.change_held(client, id, "BURIED", |model| {
                    model.job_mut(id).priority = priority;
                    model.bury(id);
                })
            }
            ["bury-later", id] => {
                let id = id.parse().ok()?;
                match self.job(id).and_then(|job| job.state.holder()) {
                    Some(other) if other != client => {
                        self.job_mut(id).is_bury_wanted = true;
                        "BURIED".into()
                    }
                    _ => "NOT_FOUND".into(),
                }
            }
            ["touch", id] => {
                let id = id.parse().ok()?;
                let is_taken = self.job(id).is_some_and(|job| job.is_bury_wanted);
                let reply = if is_taken { "NOT_FOUND" } else { "TOUCHED" };
                self.change_held(client, id, reply, |model| {
                    let until = model.now + model.job_mut(id).ttr * SECOND;
                    model.job_mut(id).state = match is_taken {
                        true => State::Ready,
                        false => State::Reserved { by: client, until },
                    };
                })
            }
            ["watch", tube] => {
                let tube = name(tube)?;
                let watched = &self.client(client).watched;
                let (is_watched, count) = (watched.iter().any(|one| one == tube), watched.len());
                let is_free = count <= WATCHED_FREELY && self.tube(tube).is_some();
                if is_watched {
                    format!("WATCHING {count}")
                } else if !is_free && !self.has_room(WATCH_OVERHEAD) {
                    "OUT_OF_MEMORY".into()
                } else {
                    self.make_tube(tube);
                    let watched = &mut self.client(client).watched;
                    watched.push(tube.into());
                    format!("WATCHING {}", watched.len())
                }
            }
            ["ignore", tube] => {
                let tube = name(tube)?;
                let watched = &mut self.client(client).watched;
                match watched.iter().position(|one| one == tube) {
                    Some(_) if watched.len() == 1 => "NOT_IGNORED".into(),
                    position => {
                        position.map(|position| watched.swap_remove(position));
                        let count = watched.len();
                        self.forget_tube_if_unused(tube);
                        format!("WATCHING {count}")
                    }
                }
            }
            ["peek", id] => found(self.job(id.parse().ok()?)),
            ["peek-ready"] => {
                let ready = self.jobs_in(&used).filter(|job| job.state == State::Ready);
                found(ready.min_by_key(|job| (job.priority, job.id)))
            }
            ["peek-delayed"] => found(self.first_put_aside(&used, "delayed")),
            ["peek-buried"] => found(self.first_put_aside(&used, "buried")),
            ["kick", bound] => self.kick(&used, bound.parse().ok()?),
            ["kick-job", id] => {
                let id = id.parse().ok()?;
                match self.job(id).map(|job| job.state) {
                    Some(State::Buried { .. } | State::Delayed { .. }) => {
                        self.kick_one(id);
                        "KICKED".into()
                    }
                    _ => "NOT_FOUND".into(),
                }
            }
            ["pause-tube", tube, seconds] => {
                let seconds: u32 = seconds.parse().ok()?;
                let Some(tube) = name(tube) else {
                    // It is counted although the name is wrong.
                    self.count("pause-tube");
                    return None;
                };
                self.pause_tube(tube, seconds.into())
            }
            ["stats"] => {
                self.count("stats");
                return Some(self.stats());
            }
            ["list-server-stats"] => self.list_server_stats(),
            ["stats-job", id] => self.stats_job(id.parse().ok()?),
            ["stats-tube", tube] => self.stats_tube(name(tube)?),
            ["list-tubes"] => list(self.tubes.iter().map(|tube| &tube.name)),
            ["list-tube-used"] => format!("USING {used}"),
            ["list-tubes-watched"] => list(self.client(client).watched.iter()),
            ["list-jobs", from, count, ref filter @ ..] => {
                self.list_those(from.parse().ok()?, count.parse().ok()?, filter)?
            }
            ["close-connection", number] => {
                let number = number.parse().ok()?;
                let mut clients = self.clients.iter();
                match clients.find(|(_, one)| one.number as u64 == number) {
                    Some((own, _)) if *own == client => {
                        self.line(client, "quit");
                        return Some(String::new());
                    }
                    // Its end is another step.
                    Some(_) => "CLOSED".into(),
                    None => "NOT_FOUND".into(),
                }
            }
            [word @ ("list-connections" | "list-tube-stats"), from, count] => {
                let (from, count): (usize, u64) = (from.parse().ok()?, count.parse().ok()?);
                match word {
                    _ if count == 0 => return None,
                    "list-connections" => self.list_connections(from, count),
                    _ => self.list_tube_stats(from, count),
                }
            }
            _ => return None,
        };
        self.count(words[0]);
        Some(reply)
    }

    fn list_those(&self, from: u64, count: u64, filter: &[&str]) -> Option<String> {
        let (tube, state) = match *filter {
            [] => (None, None),
            [tube] => (Some(name(tube)?), None),
            [tube, state] => (Some(name(tube)?), Some(state)),
            _ => return None,
        };
        if state.is_some_and(|state| !["ready", "delayed", "reserved", "buried"].contains(&state))
            || count == 0
        {
            return None;
        }
        let is_wanted = |job: &Job| {
            tube.is_none_or(|tube| tube == job.tube)
                && state.is_none_or(|state| state == word(job.state))
        };
        let is_there = |tube| self.tubes.iter().any(|there| there.name == tube);
        let jobs = self.jobs.iter().filter(|job| job.id >= from);
        let jobs = jobs.filter(|_| tube.is_none_or(is_there));
        let count = self.at_once(usize::try_from(count).unwrap_or(usize::MAX), 1000);
        Some(self.list_jobs(count, jobs.map(|job| (job, is_wanted(job)))))
    }

    fn put(&mut self, client: Client, mut job: Job, size: usize, trailing: bool) -> String {
        self.client(client).incoming = Some(if size > self.max_job_size {
            Incoming::TooBig
        } else if trailing {
            return "BAD_FORMAT".into();
        } else {
            self.last_id += 1;
            job.id = self.last_id;
            let connection = self.client(client);
            connection.producer = true;
            connection.puts += 1;
            Incoming::Job(Box::new(job), size)
        });
        String::new()
    }

    fn reserve(&mut self, client: Client, timeout: Option<u64>, wants_stats: bool) -> String {
        self.client(client).worker = true;
        if let Some(id) = self.next_for(client) {
            self.reserve_now(client, id, wants_stats)
        } else if self
            .deadline_soon_at(client)
            .is_some_and(|at| at <= self.now)
        {
            "DEADLINE_SOON".into()
        } else if timeout == Some(0) || self.client(client).half_closed {
            "TIMED_OUT".into()
        } else {
            self.client(client).wants_stats = wants_stats;
            self.client(client).gives_up_at = timeout.map(|seconds| self.now + seconds * SECOND);
            self.waiting.push(client);
            String::new()
        }
    }

    fn reserve_job(&mut self, client: Client, id: u64) -> String {
        match self.job(id) {
            Some(job) if job.state.holder().is_none() && self.places_free(job) > 0 => {
                self.client(client).worker = true;
                self.reserve_now(client, id, false)
            }
            _ => "NOT_FOUND".into(),
        }
    }

    pub(super) fn reserve_now(&mut self, client: Client, id: u64, wants_stats: bool) -> String {
        let now = self.now;
        self.note(id, RESERVE);
        let job = self.job_mut(id);
        let until = now + job.ttr * SECOND;
        job.state = State::Reserved { by: client, until };
        let mut line = format!("RESERVED {id} {}", job.body.len());
        if wants_stats {
            let age = now.saturating_sub(job.created) / SECOND;
            line += &format!(" {} {} {age} {}", job.tube, job.priority, job.delay);
            line += &format!(" {}", job.ttr);
            for count in job.events {
                line += &format!(" {count}");
            }
            line += &job.options.written();
        }
        let reply = format!("{line}\r\n{}", job.body);
        self.client(client).reserves += 1;
        reply
    }

    fn delete(&mut self, client: Client, id: u64) -> String {
        let is_free = |job: &Job| job.state.holder().is_none_or(|by| by == client);
        if !self.job(id).is_some_and(is_free) {
            return "NOT_FOUND".into();
        }
        let job = self.remove(id);
        self.tube(&job.tube).unwrap().deletes += 1;
        self.forget_tube_if_unused(&job.tube);
        self.serve();
        "DELETED".into()
    }

    /// Changes a job that the client has reserved.
    fn change_held(
        &mut self,
        client: Client,
        id: u64,
        reply: &str,
        change: impl FnOnce(&mut Model),
    ) -> String {
        if !self.holds(client, id) {
            return "NOT_FOUND".into();
        }
        change(self);
        self.bury_if_wanted();
        self.serve();
        reply.into()
    }

    fn kick(&mut self, tube: &str, bound: usize) -> String {
        let buried = self.first_put_aside(tube, "buried");
        let state = buried.map_or("delayed", |_| "buried");
        for kicked in 0..bound {
            let next = self.first_put_aside(tube, state);
            match next.map(|job| job.id) {
                Some(id) => self.kick_one(id),
                None => return format!("KICKED {kicked}"),
            }
        }
        format!("KICKED {bound}")
    }

    /// Kicks a job. If a client waits for it, it gets the job at once, before
    /// the next job is kicked.
    fn kick_one(&mut self, id: u64) {
        self.note(id, KICK);
        let job = self.job_mut(id);
        job.options.failed_tries = 0;
        job.state = State::Ready;
        self.serve();
    }

    fn pause_tube(&mut self, tube: &str, seconds: u64) -> String {
        let (until, is_full) = (self.now + seconds * SECOND, self.disk_is_full);
        let Some(tube) = self.tube(tube) else {
            return "NOT_FOUND".into();
        };
        if is_full && seconds > 0 && tube.pause.is_none() {
            return "OUT_OF_MEMORY".into();
        }
        tube.pauses += 1;
        tube.pause = (seconds > 0).then_some((seconds, until));
        self.serve();
        "PAUSED".into()
    }
}

fn found(job: Option<&Job>) -> String {
    match job {
        None => "NOT_FOUND".into(),
        Some(job) => format!("FOUND {} {}\r\n{}", job.id, job.body.len(), job.body),
    }
}

pub(super) fn name(text: &str) -> Option<&str> {
    let allowed = |c: char| c.is_ascii_alphanumeric() || "-+/;.$_()".contains(c);
    let good = (1..=200).contains(&text.len()) && !text.starts_with('-');
    (good && text.chars().all(allowed)).then_some(text)
}

fn is_known(line: &str) -> bool {
    let mut beginnings = COMMANDS.split('|');
    beginnings.any(|beginning| line.starts_with(beginning))
}

#[test]
fn the_model_executes_every_command_of_the_server() {
    for command in beanpole::protocol::command::names() {
        let is_executed = |numbers| {
            let mut model = Model::new(0, 1, None);
            let client = model.connect();
            let line = format!("{command}{}", " 1".repeat(numbers));
            model.command(client, &line).is_some()
        };
        // The model closes the connection before it looks at a line.
        assert!(command == "quit" || (0..5).any(is_executed), "{command}");
    }
}
