//! What a client has asked for at once. It is executed in portions, so that no
//! other client waits long for the lock, however much this one asks for.

use super::output::MUCH;
use super::shared::{Guarded, Shared};
use crate::binlog::{Binlog, NoRoom, Position, Room};
use crate::engine::{ConnectionId, Outcome, Time};
use crate::protocol::framing::NoBody;
use crate::protocol::{Reply, Request, TubeName};
use std::collections::VecDeque;
use std::time::Duration;

/// How many requests are taken from the input at once.
pub const MOST: usize = 256;

/// More requests than this are much: then others that bring fewer go first.
const FEW: usize = 8;

/// A portion ends when it has cost this many steps: less than a millisecond.
const STEPS: usize = 2000;

/// A portion checks whether others wait after each group of so many requests.
const LOOK: usize = 16;

/// Requests in their order, and the replies to those that are executed.
#[derive(Default)]
pub struct Batch<'a> {
    requests: VecDeque<Request>,
    /// Room in the binlog for the bodies among them, until they are in it.
    rooms: Vec<Room<'a>>,
    pub replies: Vec<Reply>,
    /// About how many bytes the replies have.
    size: usize,
    /// The position that must be kept before the replies are sent.
    pub must_keep: Position,
    /// When a portion was last executed; `None` if the worker has waited or read
    /// since.
    pub executed_at: Option<Time>,
}

/// What comes after a portion.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// Another portion.
    GoOn,
    /// All is done, or there are so many replies that they must be sent first.
    Send,
    /// The client waits for a job.
    Wait,
    /// The connection is to be closed.
    Close,
}

impl<'a> Batch<'a> {
    /// Whether there is nothing to do.
    pub fn is_empty(&self) -> bool {
        self.requests.is_empty()
    }

    /// Adds a request. Returns whether another one may be added after it.
    ///
    /// A body for which the binlog has no room is refused here, before the
    /// server's lock: making room may take a while.
    pub fn push(&mut self, mut request: Request, binlog: Option<&'a Binlog>) -> bool {
        if let (Some(binlog), Request::Body(Ok(body))) = (binlog, &request) {
            match binlog.reserve_put(TubeName::MAX_LEN, body.wire().len()) {
                Ok(room) => self.rooms.push(room),
                Err(NoRoom) => request = Request::Body(Err(NoBody::NoRoom)),
            }
        }
        let may_wait = request.may_wait();
        self.requests.push_back(request);
        // Requests after one that may wait are parsed when it has its answer.
        !may_wait && self.requests.len() < MOST
    }

    /// Whether the batch alone is much.
    pub fn is_much(&self) -> bool {
        self.requests.len() > FEW || self.requests.front() == Some(&Request::GoOn)
    }

    /// Executes requests until it is time to send the replies. With `is_much`,
    /// others that bring less go first.
    pub fn execute(
        &mut self,
        shared: &Shared,
        id: ConnectionId,
        held_by_others: u64,
        is_much: bool,
    ) -> Next {
        loop {
            // Each round holds the lock once. If the batch turns out to be
            // much, it lets others go first from then on.
            let is_much = is_much || self.is_much();
            let portion = |state: &mut Guarded, now| {
                self.executed_at = Some(now);
                state.engine.held_elsewhere = held_by_others;
                self.execute_portion(shared, state, id, now)
            };
            let next = match is_much {
                true => shared.with_lock_last(portion),
                false => shared.with_lock(portion),
            };
            if next != Next::GoOn {
                return next;
            }
        }
    }

    /// The replies, and what has to be kept before they are sent.
    pub fn take_replies(&mut self) -> (Vec<Reply>, Position) {
        self.size = 0;
        // A body that is still to be put keeps the room that was set aside.
        if self.requests.is_empty() {
            self.rooms.clear();
        }
        let must_keep = std::mem::take(&mut self.must_keep);
        (std::mem::take(&mut self.replies), must_keep)
    }

    fn execute_portion(
        &mut self,
        shared: &Shared,
        state: &mut Guarded,
        id: ConnectionId,
        mut now: Time,
    ) -> Next {
        for done in 1.. {
            let Some(request) = self.requests.pop_front() else {
                break;
            };
            // Each request counts as if it had come alone, so each gets a
            // moment of its own.
            now = now + Duration::from_nanos(1);
            match state.execute(id, request, now) {
                Outcome::Reply(reply) => {
                    self.must_keep = self.must_keep.max(state.to_be_kept_before(&reply));
                    self.size += size(&reply);
                    self.replies.push(reply);
                }
                // A put is answered after its body.
                Outcome::AwaitBody => {}
                Outcome::Unfinished => {
                    // Others go first before the next piece of it.
                    self.requests.push_front(Request::GoOn);
                    return Next::GoOn;
                }
                Outcome::Waiting => return Next::Wait,
                Outcome::Quit => return Next::Close,
            }
            if self.size >= MUCH {
                // Replies are sent before more are made: the client may never
                // read them.
                return Next::Send;
            }
            // The cost is counted in steps, not in time: reading the clock
            // costs as much as a short command.
            let is_long = state.engine.effects.steps >= STEPS;
            if is_long || done % LOOK == 0 && shared.is_awaited() {
                return Next::GoOn;
            }
        }
        Next::Send
    }
}

/// About how many bytes a reply has. Lists and statistics count as [`MUCH`], so
/// each of them ends a portion.
fn size(reply: &Reply) -> usize {
    match reply {
        Reply::Tubes(_) | Reply::Jobs(_) => MUCH,
        Reply::Stats(_) | Reply::JobStats(_) | Reply::ServerStats(_) => MUCH,
        _ => 32 + reply.body().map_or(0, |body| body.wire().len()),
    }
}
