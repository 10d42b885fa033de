//! The commands: one match, with a line or a method for each. [`Command`]
//! documents what each command means, and its replies. The methods are in
//! `producers.rs` (put and use), `workers.rs` (from reserve to ignore) and
//! `others.rs` (peek, kick and pause-tube); the documents and lists are in
//! `stats.rs`.

mod others;
mod producers;
mod workers;

use super::slab::ConnectionIndex;
use super::tube::Tube;
use super::{ConnectionId, Engine, Outcome, Time};
use crate::protocol::command::Rest;
use crate::protocol::{Command, JobId, Reply, Request, Seconds};

impl Engine {
    /// Executes a request of a connection, after what is due by now. The connection must not
    /// be waiting; if it is not there, it is to be closed.
    pub fn execute(&mut self, id: ConnectionId, request: Request, now: Time) -> Outcome {
        self.tick(now);
        // Only its worker disconnects it, and asks nothing after that. If that were wrong, it
        // would still be no reason to end the server.
        let Some(by) = self.find(id) else {
            return Outcome::Quit;
        };
        debug_assert!(self.connections[by].wait.is_none());
        self.connections[by].asked_at = now;
        self.effects.steps += 1;
        let outcome = match request {
            Request::Command(place, command) => {
                // Each well-formed command is counted, whether it succeeds or not.
                if let Some(place) = place {
                    self.counts.commands[place] += 1;
                }
                let outcome = self.command(by, command);
                outcome.unwrap_or(Outcome::Reply(Reply::NotFound))
            }
            Request::Body(body) => Outcome::Reply(self.body(by, body)),
            Request::Refused(reply) => Outcome::Reply(reply),
            Request::Http => Outcome::Quit,
            Request::Continue(Rest::Kick(kick)) => self.kick_some(by, kick),
            Request::Continue(Rest::Reserve(ask)) => self.reserve_or_wait(by, ask),
        };
        // A job that is ready for a connection that waits is due at once, and so is the end of
        // a job that was given back after its expiry.
        if self.is_due() {
            self.serve();
        }
        outcome
    }

    /// Whether the answer could be another one if clients that have closed were not there
    /// any more: it may say 'nothing is there', or it is a list or statistic.
    pub fn depends_on_leavers(&mut self, id: ConnectionId, request: &Request) -> bool {
        let Some(by) = self.find(id) else {
            return false;
        };
        let is_held_by_another = |id: JobId| {
            let holder = self.jobs.get(id).and_then(|job| job.state.holder());
            holder.is_some_and(|holder| holder != by)
        };
        let command = match request {
            Request::Command(_, command) => command,
            // The answer shows in which state the job is that has the key of the put.
            Request::Body(Ok(_)) => {
                return self.holder_of_incoming(by).is_some_and(is_held_by_another);
            }
            _ => return false,
        };
        match command {
            Command::Reserve(ask) => match ask.timeout {
                Some(Seconds(0)) => self.best_watched(by).is_none(),
                _ => self.connections[by].half_closed,
            },
            Command::Delete(id) => is_held_by_another(*id),
            Command::Put(_) | Command::PutTooBig | Command::Malformed => false,
            Command::Use(_) | Command::Watch(_) | Command::Ignore(_) => false,
            Command::Release(..) | Command::Bury(..) | Command::Touch(_) => false,
            Command::ListTubeUsed | Command::ListTubesWatched | Command::Quit => false,
            _ => true,
        }
    }

    /// `None` if there is no such job or tube, or if the job's state does not
    /// allow the command.
    fn command(&mut self, by: ConnectionIndex, command: Command) -> Option<Outcome> {
        Some(Outcome::Reply(match command {
            Command::Put(put) => return Some(self.put(by, put)),
            Command::PutTooBig => return Some(Outcome::AwaitBody),
            Command::Reserve(ask) => return Some(self.reserve_or_wait(by, ask)),
            Command::Kick(bound) => return Some(self.kick(by, bound)),
            Command::CloseConnection(id) => match self.find(ConnectionId(id))? {
                own if own == by => return Some(Outcome::Quit),
                _ => Reply::Closed(id),
            },
            Command::Quit => return Some(Outcome::Quit),
            Command::Use(tube) => self.use_tube(by, tube),
            Command::ReserveJob(id) => self.reserve_job(by, id)?,
            Command::Delete(id) => self.delete(by, id)?,
            Command::Release(id, priority, delay) => self.release(by, id, priority, delay)?,
            Command::Bury(id, priority) => self.bury(by, id, priority)?,
            Command::BuryLater(id) => self.bury_later(by, id)?,
            Command::Touch(id) => self.touch(by, id)?,
            Command::Watch(tube) => self.watch(by, tube),
            Command::Ignore(tube) => self.ignore(by, tube),
            Command::Peek(id) => self.peek(id)?,
            Command::PeekReady => self.peek(self.used_tube(by).next_ready()?)?,
            Command::PeekDelayed => self.peek(self.used_tube(by).delayed.first()?.1)?,
            Command::PeekBuried => self.peek(self.used_tube(by).buried.first()?.1)?,
            Command::KickJob(id) => self.kick_job(id)?,
            Command::PauseTube(tube, length) => self.pause_tube(&tube, length)?,
            Command::Malformed => Reply::BadFormat,
            Command::Stats => self.stats(),
            Command::ListServerStats => self.list_server_stats(),
            Command::StatsJob(id) => self.stats_job(id)?,
            Command::StatsTube(tube) => self.stats_tube(&tube)?,
            Command::ListTubes => self.list_tubes(),
            Command::ListTubeUsed => Reply::Using(self.used_tube(by).name.clone()),
            Command::ListTubesWatched => self.list_tubes_watched(by),
            Command::ListJobs(list) => self.list_jobs(&list),
            Command::ListConnections(from, count) => self.list_connections(from, count),
            Command::ListTubeStats(from, count) => self.list_tube_stats(from, count),
        }))
    }

    fn used_tube(&self, by: ConnectionIndex) -> &Tube {
        &self.tubes[self.connections[by].used]
    }
}
