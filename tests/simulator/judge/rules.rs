//! What must hold: each rule is a function that panics where it does not. When it is
//! asked, `Judge::see` says.

use super::engine::Done;
use super::told::{Expected, normal, replies, text};
use super::{Caller, Judge};
use crate::engine::ConnectionId;
use crate::protocol::{JobId, Reply};
use crate::simulator::naive::{self, State};
use crate::simulator::stream::Peer;
use crate::simulator::{threads, world};

/// How late something that is due may happen.
const LATE: u64 = 150_000_000;

/// How long it may take until a client that has hung up is disconnected, if no thread
/// is busy.
const LEAVES_WITHIN: u64 = 1_200_000_000;

/// How long other clients wait for that.
const AWAITED_FOR: u64 = 5_000_000;

/// How much memory a job takes besides its body, or less.
const OVERHEAD: usize = 400;

/// Sockets that hold less may be filled by the replies to commands that clients send together;
/// those that hold more are not.
const NARROW: usize = 10_000;

/// While all threads wait, nothing that can be done now is left undone.
impl Judge {
    pub fn the_loss_of_the_lock_is_known(&self) {
        assert!(
            !world::must_know_of_its_loss(),
            "another machine has the lock, and no thread checks that"
        );
    }

    pub fn nothing_is_overdue(&self) {
        let due = self.model.next_event();
        let late = due.and_then(|due| world::wall_clock().checked_sub(due));
        assert!(
            // It may stall when it knows how long it has to sleep.
            late.is_none_or(|late| late < LATE + world::stalled_for()),
            "what was due {late:?} ns ago is not done"
        );
    }

    pub fn who_is_gone_is_disconnected(&self, caller: &Caller) {
        assert!(
            !has_had_time_to_leave(caller.left_at),
            "{} is gone, and still there",
            caller.name
        );
    }

    pub fn who_sends_nothing_more_does_not_wait(&self, caller: &Caller) {
        assert!(
            !(self.is_waiting(caller) && has_had_time_to_leave(caller.is_over_at)),
            "{} waits, though it sends nothing more",
            caller.name
        );
    }

    pub fn what_is_done_is_told(&self, caller: &Caller) {
        let peer = caller.peer.as_ref().expect("it is connected");
        let is_told = replies(&peer.answered()).count() >= caller.expected.len();
        assert!(
            is_told || peer.is_full() || peer.is_closed() || caller.left_at.is_some(),
            "{} is not told what is done",
            caller.name
        );
    }
}

fn has_had_time_to_leave(since: Option<u64>) -> bool {
    since.is_some_and(|at| at + LEAVES_WITHIN < threads::now())
}

/// When a request is executed.
impl Judge {
    /// As soon as the server has room for it: while others hang up, it may not have.
    pub fn the_first_request_is_served_in_time(&self, number: usize) {
        let caller = &self.callers[number];
        let Some(said_at) = caller.said_at else {
            return;
        };
        let mut others = self.links.values().map(|other| &self.callers[*other]);
        let is_first = caller.asked_at.is_none() && !self.is_stopping;
        if is_first && others.all(|other| other.is_over_at.is_none()) {
            let since = said_at.max(self.last_left_at);
            let late = threads::now().saturating_sub(since);
            assert!(
                late < LATE || world::stalled_after(since),
                "{} is served {late} ns after it could be",
                caller.name
            );
        }
    }

    /// It may have come right after another one has closed.
    pub fn no_client_is_refused_that_has_room(&self) {
        assert!(
            !self.has_room || self.is_stopping,
            "a client is refused, though there is room for its connection"
        );
    }

    pub fn no_put_is_refused_that_has_room(&self, number: usize, done: &Done<'_>) {
        let caller = &self.callers[number];
        let asks_whether = |(_, line): &(u64, String)| line == "list-server-stats";
        if !done.engine.outside.disk_is_full || caller.said.front().is_some_and(asks_whether) {
            return;
        }
        let bodies = self.model.jobs.iter().map(|job| job.body.len() + OVERHEAD);
        let live = bodies.sum::<usize>() as u64;
        let put = caller.said.front().map_or(0, |(_, body)| body.len()) + OVERHEAD;
        let since = caller.asked_at.unwrap_or(0);
        assert!(
            world::may_refuse(since, live, put as u64, self.plan.segment_size),
            "{}'s put is refused, though the disk has room",
            caller.name
        );
    }

    /// Whether this answer might be another one without a client that has closed.
    pub fn shows_who_is_there(&self, line: &str, reply: &Reply) -> bool {
        let job = |id: &str| self.held.jobs.get(&JobId(id.parse().ok()?));
        let begins = |words: &[&str]| words.iter().any(|word| line.starts_with(word));
        match reply {
            Reply::NotFound => match line.strip_prefix("delete ") {
                Some(id) => job(id).is_some_and(|job| !job.is_deleted()),
                None => begins(&["peek", "kick", "stats", "reserve-job"]),
            },
            Reply::TimedOut => line == "reserve-with-timeout 0",
            Reply::KickedCount(0) => true,
            Reply::Tubes(_) => line != "list-tubes-watched",
            Reply::Jobs(_) | Reply::JobStats(_) | Reply::Document(_) => true,
            Reply::ServerStats(..) | Reply::MoreServerStats(_) => true,
            _ => false,
        }
    }

    /// A client is told what is there, or that nothing is. Those that had closed before it
    /// asked must have left, unless that takes long.
    pub fn who_had_closed_before_is_not_there(&self, id: ConnectionId, asked_at: u64) {
        let caller = &self.callers[self.links[&id.0]];
        // Once it has hung up itself, it waits only for those that came before it. The
        // server may have seen that before the judge was told when it was; and it closes
        // connections itself when it has lost the lock.
        let is_over = caller.is_done || world::is_replaced();
        let end = if is_over { id.0 } else { u64::MAX };
        for (_, other) in self.links.range(..end) {
            let other = &self.callers[*other];
            // A stall of the process is part of the time that the server has waited.
            let is_late =
                |left: u64| threads::now() >= left + AWAITED_FOR || world::stalled_after(left);
            // Who half-closes first, or is closed by the server for another reason, is known to
            // leave since then. Nobody waits for it if its worker waited for it at that time.
            let is_closed = || other.peer.as_ref().is_some_and(Peer::is_closed);
            let is_known_before = other.is_over_at != other.left_at || is_closed();
            let was_there = other.accepted_at < asked_at && !is_known_before;
            let is_awaited = |left: u64| was_there && left < asked_at && !is_late(left);
            assert!(
                self.is_stopping || !other.left_at.is_some_and(is_awaited),
                "{} is answered though {}, which had closed before, is still connected",
                caller.name,
                other.name
            );
        }
    }
}

/// When the engine has done something.
impl Judge {
    /// Compares all replies, to this client and to others, and notes what each promises.
    pub fn what_is_said_is_what_the_model_says(
        &mut self,
        reply: Option<(usize, &Reply)>,
        done: &Done<'_>,
    ) {
        self.order_burials(done);
        if done.begins_request {
            self.history.begin_request();
        }
        for change in done.changes {
            self.note(change, done);
        }
        let number = |id: &ConnectionId| self.links.get(&id.0).copied();
        let replies = done.replies.iter();
        let others = replies.filter_map(|(id, reply)| Some((number(id)?, reply)));
        let said: Vec<_> = reply.into_iter().chain(others).collect();
        let mut engine: Vec<_> = said
            .iter()
            .map(|(number, reply)| (*number, normal(&text(reply))))
            .collect();
        let number = |client| {
            let mut callers = self.callers.iter();
            let found = callers.position(|one| one.client == Some(client));
            found.expect("a client that is connected")
        };
        let right = std::mem::take(&mut self.model.said).into_iter();
        let mut model: Vec<_> = right
            .map(|(client, text)| (number(client), normal(&(text + "\r\n"))))
            .collect();
        engine.sort();
        model.sort();
        assert_eq!(engine, model, "left the engine, right the model");
        for (number, reply) in said {
            let text = text(reply);
            let depends_on = self.depends_on(&text);
            let expected = &mut self.callers[number].expected;
            expected.push(Expected { text, depends_on });
        }
    }

    /// How many changes must be durable before this is sent, independent of what the
    /// server believes.
    fn depends_on(&self, reply: &str) -> usize {
        let put_of = |id: &str| {
            let id = id.parse().map(JobId).expect("a number");
            self.put_at.get(&id).copied().unwrap_or(0)
        };
        match reply.split_whitespace().collect::<Vec<_>>()[..] {
            [
                "INSERTED" | "DELETED" | "RELEASED" | "BURIED" | "KICKED" | "PAUSED" | "NOT_FOUND",
                ..,
            ] => self.history.len(),
            ["RESERVED" | "FOUND", id, ..] => put_of(id),
            // Of a job: no other document begins with an id.
            ["OK", _, "---", "id:", id, ..] => put_of(id),
            _ => 0,
        }
    }

    pub fn what_is_counted_is_what_the_model_has(&self, done: &Done<'_>) {
        assert_eq!(done.engine.memory(), self.model.memory() as u64, "memory");
        assert_eq!(done.engine.next_id(), JobId(self.model.last_id + 1));
    }

    pub fn no_job_is_handed_on_at_the_end(&self) {
        assert!(
            !self.has_stopped,
            "a client's jobs are given to others at the end"
        );
    }

    pub fn no_client_is_closed_without_a_reason(&self, id: ConnectionId) {
        let caller = &self.callers[self.links[&id.0]];
        let client = self.client(id);
        let is_held =
            |job: &naive::Job| matches!(job.state, State::Reserved { by, .. } if by == client);
        let is_busy = self.model.is_waiting(client) || self.model.jobs.iter().any(is_held);
        // Clients that are silent are closed, and those that read nothing where sockets hold
        // little.
        let has_timeout = self.plan.idle_timeout.is_some();
        let is_silent = has_timeout && !is_busy;
        let is_deaf = has_timeout && self.plan.room < NARROW;
        let has_ended = self.is_stopping || world::is_struck();
        assert!(
            caller.is_done || is_silent || is_deaf || has_ended,
            "{} is sent away",
            caller.name
        );
    }
}
