//! A connection's life on its worker thread: read, execute, write.
//!
//! What has arrived together is executed together, under one lock, and
//! answered with one write: a command on a quiet connection costs one read and
//! one write, a thousand pipelined ones hardly more.

use super::acceptor::Place;
use super::peer::{Answer, BODY_TO_REFER_TO, Peer};
use super::process;
use super::{Service, Stream};
use crate::binlog::{Binlog, Failed, NoRoom, Position, Room};
use crate::engine::{ConnectionId, Outcome};
use crate::log::{self, Level};
use crate::protocol::{Body, Framer, Reply, Request, TubeName};
use crate::sys;
use std::io::{self, IoSlice};
use std::sync::Arc;
use std::time::Duration;

/// How many requests are executed without letting go of the lock.
const BATCH: usize = 256;

/// The input buffer's size at first, and the most that it grows to, in bytes.
const SMALL_INPUT: usize = 512;
const LARGE_INPUT: usize = 64 * 1024;

/// Output beyond this is written before more requests are executed, in bytes.
const MUCH_OUTPUT: usize = 64 * 1024;

/// Serves one connection until it ends.
pub fn serve(service: &Service, stream: Stream, place: Place, turns: &mut Turns) {
    let peer = Arc::new(Peer::new(stream));
    let id = service.shared.connect(&peer);
    let name = log::is_on(Level::Connections).then(|| peer.stream.to_string());
    if let Some(name) = &name {
        log::write(Level::Connections, format_args!("{name}: connected"));
    }
    let mut connection = Connection {
        service,
        peer: &peer,
        id,
        name: name.as_deref(),
        framer: Framer::new(service.limits.max_job_size),
        input: Input::default(),
        output: Output::default(),
        is_watched: false,
        turns,
        is_owed_reply: false,
    };
    let end = connection.run();
    connection.await_owed();
    if let Some(name) = &name {
        match end {
            Ok(()) => log::write(Level::Connections, format_args!("{name}: closed")),
            Err(error) => log::write(Level::Connections, format_args!("{name}: closed: {error}")),
        }
    }
    service.shared.disconnect(id);
    // Before the socket closes: who sees that may want to come again.
    drop(place);
}

/// How a worker shares its CPU, from one connection to the next.
#[derive(Default)]
pub struct Turns {
    are_long: bool,
}

impl Turns {
    /// From now on it runs until it has to wait: it does not make way for each
    /// thread that it wakes, nor push others aside when it is woken itself.
    fn be_long(&mut self) {
        if !self.are_long {
            sys::prefer_long_turns();
            self.are_long = true;
        }
    }
}

struct Connection<'a> {
    service: &'a Service,
    peer: &'a Arc<Peer>,
    id: ConnectionId,
    /// Who it is, if anything of it is logged.
    name: Option<&'a str>,
    framer: Framer,
    input: Input,
    output: Output,
    /// Whether the hang-up watcher knows it, from its first waiting on.
    is_watched: bool,
    turns: &'a mut Turns,
    /// Whether somebody else sends the last reply.
    is_owed_reply: bool,
}

impl Connection<'_> {
    fn run(&mut self) -> io::Result<()> {
        self.peer
            .stream
            .set_patience(self.service.limits.idle_timeout)?;
        let mut requests = Vec::new();
        loop {
            self.parse(&mut requests);
            if !requests.is_empty() {
                if self.execute(&mut requests)? == Next::Close {
                    return self.flush();
                }
                continue;
            }
            self.flush()?;
            if self.service.shared.is_stopping() {
                return Ok(());
            }
            match self.read(&mut requests) {
                Ok(true) => {}
                Ok(false) => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    if self
                        .service
                        .shared
                        .run(|state, _| state.engine().is_idle(self.id))
                    {
                        return Err(io::Error::other("silent for too long"));
                    }
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Takes whole requests out of the input, up to one that may have to wait:
    /// what comes behind that is none of the others' business yet.
    fn parse(&mut self, requests: &mut Vec<Request>) {
        let mut unread = self.input.unread();
        while requests.len() < BATCH {
            let Some(request) = self.framer.next(&mut unread) else {
                break;
            };
            if let Some(name) = self.name {
                log_request(name, &request);
            }
            let may_wait = request.may_wait();
            requests.push(request);
            if may_wait {
                break;
            }
        }
        let left = unread.len();
        self.input.keep(left);
    }

    /// Reads once; whether the peer has sent anything.
    fn read(&mut self, requests: &mut Vec<Request>) -> io::Result<bool> {
        let count = match self.framer.body_space() {
            Some(space) => {
                let count = self.peer.stream.read(space)?;
                // That the buffer was full was due to this body.
                self.input.was_filled = false;
                requests.extend(self.framer.advance_body(count));
                count
            }
            None => {
                let space = self.input.space(self.framer.needed());
                let count = self.peer.stream.read(space)?;
                self.input.add(count);
                count
            }
        };
        Ok(count > 0)
    }

    /// Executes the requests in order. Only the last one may have to wait.
    fn execute(&mut self, requests: &mut Vec<Request>) -> io::Result<Next> {
        let rooms = set_room_aside(self.service.binlog.as_deref(), requests);
        let (output, id) = (&mut self.output, self.id);
        let (last, log_end, is_crowded) = self.service.shared.run(|state, mut now| {
            let mut last = None;
            for request in requests.drain(..) {
                // As if each had come alone: what is later is not at the
                // same time.
                now = now + Duration::from_nanos(1);
                last = match state.execute(id, request, now) {
                    Outcome::Reply(reply) => {
                        output.replies.push(reply);
                        None
                    }
                    other => Some(other),
                };
                if last == Some(Outcome::Quit) {
                    break;
                }
            }
            (last, state.log_end(), state.is_crowded())
        });
        drop(rooms);
        if is_crowded {
            self.turns.be_long();
        }
        if let Some(binlog) = &self.service.binlog {
            self.keep_promises(binlog, log_end);
        }
        self.output.encode(self.service, self.peer, self.name);
        match last {
            Some(Outcome::Quit) => return Ok(Next::Close),
            Some(Outcome::RefuseBody) => self.framer.refuse_body(),
            Some(Outcome::Waiting) => match self.wait()? {
                Answer::Stop => return Ok(Next::Close),
                Answer::Reply(reply) => {
                    self.output.replies.push(reply);
                    self.output.encode(self.service, self.peer, self.name);
                }
                Answer::Sent { word, rest } => {
                    if let Some(name) = self.name {
                        log::write(Level::Commands, format_args!("{name}: {word}"));
                    }
                    self.output.bytes = rest;
                }
            },
            Some(Outcome::Reply(_) | Outcome::AwaitBody) | None => {}
        }
        if self.output.bytes.len() >= MUCH_OUTPUT {
            self.flush()?;
        }
        Ok(Next::GoOn)
    }

    /// Sees to it that what is promised is kept before it is promised. What
    /// cannot be kept is not promised.
    fn keep_promises(&mut self, binlog: &Binlog, log_end: Position) {
        if !self.output.replies.iter().any(Reply::is_promise) {
            return;
        }
        let is_short = self.output.replies.len() == 1 && self.output.bytes.is_empty();
        let kept = match binlog.commit_if_free(log_end) {
            Some(kept) => kept,
            // Who writes now need not wake this worker for one short reply: he
            // can as well send it.
            None if is_short && self.name.is_none() => {
                return self.leave_reply(binlog, log_end);
            }
            None => binlog.commit(log_end),
        };
        if kept == Err(Failed) {
            let replies = self.output.replies.iter_mut();
            let promises = replies.filter(|reply| reply.is_promise());
            promises.for_each(|promise| *promise = Reply::InternalError);
        }
    }

    /// Leaves the reply to the thread that keeps what it promises, and does not
    /// wait: with many clients, waking each of their workers for its reply is a
    /// third of what a durable put costs.
    fn leave_reply(&mut self, binlog: &Binlog, log_end: Position) {
        self.await_owed();
        self.is_owed_reply = true;
        self.peer.owe_reply();
        let peer = Arc::clone(self.peer);
        let reply = self.output.replies.pop().expect("there is one");
        binlog.commit_then(log_end, move |kept| {
            let reply = kept.map_or(Reply::InternalError, |()| reply);
            let mut bytes = Vec::new();
            reply.encode(&mut bytes);
            peer.send_owed(&bytes);
        });
    }

    /// Sends what is to be said, behind what somebody else sends.
    fn flush(&mut self) -> io::Result<()> {
        if self.output.bytes.is_empty() {
            return Ok(());
        }
        self.await_owed();
        self.output.flush(&self.peer.stream)
    }

    /// Waits until nobody else has anything to send here.
    fn await_owed(&mut self) {
        if std::mem::take(&mut self.is_owed_reply) {
            self.peer.await_owed();
        }
    }

    /// Waits for the answer to a `reserve`, with all that was to be said said,
    /// and with as little memory as can be: there may be very many of these.
    fn wait(&mut self) -> io::Result<Answer> {
        self.flush()?;
        self.await_owed();
        self.output = Output::default();
        self.input.give_back();
        if !self.is_watched {
            self.service.hangups.watch(&self.peer.stream, self.id)?;
            self.is_watched = true;
        }
        Ok(self.peer.wait())
    }
}

/// Logs what is asked; of bodies, which are nobody's business, the size alone.
fn log_request(name: &str, request: &Request) {
    match request {
        Request::Command(command) => {
            log::write(Level::Commands, format_args!("{name}: {command}"));
        }
        Request::Body(body) => {
            let size = body.content().len();
            log::write(
                Level::Commands,
                format_args!("{name}: a body of {size} bytes"),
            );
        }
        other => log::write(Level::Commands, format_args!("{name}: {other:?}")),
    }
}

#[derive(PartialEq, Eq)]
enum Next {
    GoOn,
    Close,
}

/// Room in the binlog for the bodies among these requests, to be held until
/// they are in it. A body that finds none is refused.
fn set_room_aside<'a>(binlog: Option<&'a Binlog>, requests: &mut [Request]) -> Vec<Room<'a>> {
    let mut rooms = Vec::new();
    let Some(binlog) = binlog else {
        return rooms;
    };
    for request in requests {
        if let Request::Body(body) = request {
            match binlog.reserve_put(TubeName::MAX_LEN, body.wire().len()) {
                Ok(room) => rooms.push(room),
                Err(NoRoom) => *request = Request::BodyWithoutRoom,
            }
        }
    }
    rooms
}

/// Bytes that have been read and not yet understood.
#[derive(Default)]
struct Input {
    buffer: Vec<u8>,
    /// The unread bytes are those from `start` to `end`.
    start: usize,
    end: usize,
    /// Whether the last read has filled the buffer: then more may be waiting.
    was_filled: bool,
}

impl Input {
    fn unread(&self) -> &[u8] {
        &self.buffer[self.start..self.end]
    }

    /// Forgets all but the last so many.
    fn keep(&mut self, left: usize) {
        self.start = self.end - left;
    }

    /// Where to read to. The buffer can then hold so many bytes at least.
    fn space(&mut self, needed: usize) -> &mut [u8] {
        self.buffer.copy_within(self.start..self.end, 0);
        (self.start, self.end) = (0, self.end - self.start);
        let wanted = match self.buffer.len() {
            0 => SMALL_INPUT,
            size if self.was_filled => (size * 2).min(LARGE_INPUT),
            size => size,
        };
        if self.buffer.len() < wanted.max(needed) {
            self.buffer
                .resize(wanted.max(needed).next_power_of_two(), 0);
        }
        &mut self.buffer[self.end..]
    }

    fn add(&mut self, count: usize) {
        self.end += count;
        self.was_filled = self.end == self.buffer.len();
    }

    /// Frees the buffer, if nothing is in it.
    fn give_back(&mut self) {
        if self.start == self.end {
            *self = Input::default();
        }
    }
}

/// Replies on their way out.
#[derive(Default)]
struct Output {
    /// Given under the lock, not yet encoded.
    replies: Vec<Reply>,
    bytes: Vec<u8>,
    /// Large bodies, each with the place in `bytes` where it belongs.
    bodies: Vec<(usize, Body)>,
}

impl Output {
    /// Turns replies into bytes, outside the lock.
    fn encode(&mut self, service: &Service, peer: &Peer, log_as: Option<&str>) {
        for mut reply in self.replies.drain(..) {
            if reply == Reply::OutOfMemory {
                log::client_warning(
                    &peer.stream,
                    format_args!("a put was refused: OUT_OF_MEMORY"),
                );
            }
            if let Some(name) = log_as {
                log::write(Level::Commands, format_args!("{name}: {}", reply.word()));
            }
            if let Reply::ServerStats(stats) = &mut reply {
                stats.process = process::stats(service.shared.uptime(), service.binlog_stats());
            }
            reply.encode(&mut self.bytes);
            match reply.body() {
                Some(body) if body.wire().len() >= BODY_TO_REFER_TO => {
                    self.bodies.push((self.bytes.len(), body.clone()));
                }
                Some(body) => self.bytes.extend_from_slice(body.wire()),
                None => {}
            }
        }
    }

    fn flush(&mut self, stream: &Stream) -> io::Result<()> {
        if self.bytes.is_empty() {
            return Ok(());
        }
        if self.bodies.is_empty() {
            stream.write_all(&mut [IoSlice::new(&self.bytes)])?;
        } else {
            let mut pieces = Vec::with_capacity(2 * self.bodies.len() + 1);
            let mut from = 0;
            for (at, body) in &self.bodies {
                pieces.push(IoSlice::new(&self.bytes[from..*at]));
                pieces.push(IoSlice::new(body.wire()));
                from = *at;
            }
            if from < self.bytes.len() {
                pieces.push(IoSlice::new(&self.bytes[from..]));
            }
            stream.write_all(&mut pieces)?;
            self.bodies.clear();
        }
        self.bytes.clear();
        self.bytes.shrink_to(MUCH_OUTPUT);
        Ok(())
    }
}
