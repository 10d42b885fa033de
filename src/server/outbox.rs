//! The outbox of a client: what is to be sent to it, in which order, what each
//! reply waits for, and which thread sends it.
//!
//! A worker *posts* the replies to the commands that it has executed, and continues.
//! A thread that makes a job ready posts the answer to a waiting `reserve`. The
//! thread that has written and synced the binlog says up to where it is *durable*.
//! A reply that waits for nothing moves to the bytes that are *ready*, and
//! the thread that has made it ready sends it, as far as the socket takes it at
//! once. The rest is left to the worker.
//!
//! The invariants, all under the outbox's lock:
//!
//! 1. Replies are sent in the order in which they were posted, and the answer to a
//!    `reserve` comes after all that its worker posted before.
//! 2. A reply is ready when the binlog is durable up to the LSN that it depends on. If
//!    the binlog has failed, it is `INTERNAL_ERROR` instead. A reply that depends on
//!    no change waits for those before it, and for those of the same batch.
//! 3. Right before bytes are sent, the binlog checks that the storage is still ours
//!    (`outbox_to_send`).
//! 4. Bytes are sent without waiting for the client, by one thread at a time: the worker
//!    under the lock, any other thread while `sending` says so. Only the worker waits
//!    for the client.
//! 5. While the worker reads, what is in the outbox fits into the socket. So
//!    any thread that makes it ready can send all of it, and need not wake the worker. (With
//!    more than that, a worker reads what is there already, and stays active meanwhile.)
//! 6. While the worker sleeps here, some reply waits for the binlog, a `reserve` waits for
//!    its answer, or another thread is sending. The worker is woken by the thread that
//!    ends the last of these, or that cannot send all that is ready; also when the
//!    server stops, and when the storage is no longer ours.
//!
//! Why does another thread send at all? To wake the worker for a short reply
//! costs a context switch before the client gets it, and usually another one after
//! that, because the worker then finds nothing to read.

use super::Stream;
use crate::binlog::{Binlog, Failed, Lsn, Waiter};
use crate::engine::{ConnectionId, Peer};
use crate::log::{self, Level};
use crate::protocol::{Body, DependsOn, Reply};
use crate::sync::{AtomicBool, Condvar, Mutex, MutexGuard, Ordering};
use std::collections::VecDeque;
use std::fmt::Display;
use std::io::{self, IoSlice};
use std::sync::Arc;
use std::time::Duration;

/// How many bytes of replies are gathered before they are sent. For a client that
/// does not read, the server holds about this much here, as much again in the
/// batch, and one body or list.
pub const SEND_BYTES: usize = 64 * 1024;

/// How many bytes a socket takes for certain when its peer has received all that was
/// sent. (The send buffer of each kind of socket that we use is at least twice as large.)
const SOCKET_SPACE: usize = 2048;

/// The same of a socket for which a control group pays, narrow or not. There, each piece that
/// is sent may take a kilobyte, and counts with so many of these bytes.
const SMALL_SPACE: usize = 128;
const SMALL_PIECE: usize = 32;

/// How many bytes are sent to a narrow socket at once, and how many more the kernel holds
/// before it takes no more.
pub const SENT_TO_NARROW: usize = 4 * 1024;

/// How much memory is allocated for the first replies, and how much stays allocated
/// for the next ones, in bytes. (The C library keeps freed blocks for each thread, some of
/// each size: so few sizes should be in use.)
const FIRST_CAPACITY: usize = 128;
pub const CAPACITY_KEPT: usize = 4 * 1024;

/// A client that is connected, as all threads see it: its socket and its outbox.
pub struct Client {
    pub stream: Stream,
    /// Its id in the engine.
    pub id: ConnectionId,
    pub peer: Peer,
    binlog: Option<Arc<Binlog>>,
    /// How long it may take no replies; then it is a slow client, and is disconnected.
    send_timeout: Option<Duration>,
    /// Whether another client has found that it has hung up, and may wait until it has left.
    pub has_hung_up: AtomicBool,
    outbox: Mutex<Outbox>,
    /// Wakes the worker, and those that wait for the client to leave.
    changed: Condvar,
}

/// What is to be sent, and what it waits for.
#[derive(Default)]
struct Outbox {
    ready: Ready,
    /// Replies, each with the LSN for which it waits.
    waiting: VecDeque<(Lsn, Reply)>,
    /// How many bytes another thread is sending now, without the lock, for a worker
    /// that reads or sleeps.
    sending: usize,
    answer: Answer,
    worker: WorkerState,
    /// How many more bytes the socket takes for certain.
    socket_space: usize,
    /// The server or the connection is ending: no `reserve` gets an answer any more.
    is_stopped: bool,
    /// Long replies are sent in short pieces.
    is_narrow: bool,
    /// A control group pays for the socket.
    is_small: bool,
}

/// Encoded replies that may be sent.
#[derive(Default)]
struct Ready {
    bytes: Vec<u8>,
    /// Long bodies, which the worker sends directly from the job, each with the offset in
    /// `bytes` at which it belongs.
    bodies: Vec<(usize, Body)>,
    /// How much of all this has been sent, in bytes.
    sent: usize,
}

/// The answer to a `reserve`.
#[derive(Default)]
enum Answer {
    /// No `reserve` waits.
    #[default]
    NotAwaited,
    /// The answer came before the worker had posted the replies that go before it; the
    /// worker posts it in `await_answer`.
    Early(Reply, Option<Lsn>),
    /// The worker waits for it.
    Awaited,
}

/// What the worker does, as far as other threads need to know.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum WorkerState {
    /// It posts or sends, and will send what is ready.
    #[default]
    Active,
    /// It reads, or executes what it has read. What it has left here fits into the socket.
    Reading,
    /// It waits for the client: to take more of what is ready, or to receive the last of it
    /// after its end. Nobody else waits for that.
    AwaitsClient,
    /// It sleeps until another thread wakes it.
    Sleeping,
}

impl Client {
    /// A client on this socket.
    pub fn new(
        stream: Stream,
        peer: Peer,
        id: ConnectionId,
        binlog: Option<Arc<Binlog>>,
        send_timeout: Option<Duration>,
    ) -> Client {
        Client {
            stream,
            peer,
            id,
            binlog,
            send_timeout,
            has_hung_up: AtomicBool::new(false),
            outbox: Mutex::default(),
            changed: Condvar::new(),
        }
    }

    // What the worker calls.

    /// Lets the kernel hold this many bytes that it has not sent yet. With `None` the socket
    /// is narrow: the kernel holds little, and long replies go to it in short pieces.
    pub fn send_at_once(&self, most: Option<usize>) {
        let mut outbox = self.outbox();
        (outbox.is_narrow, outbox.is_small) = (most.is_none(), true);
        // How much space there is for certain is found out again.
        outbox.socket_space = 0;
        drop(outbox);
        self.stream.hold_unsent(most.unwrap_or(SENT_TO_NARROW));
    }

    /// Posts replies, which wait until the binlog is durable up to this LSN.
    /// [`start_flush`](Self::start_flush) has them sent. Returns how many bytes the outbox
    /// holds now, and how many are to be sent.
    pub fn post(&self, replies: &mut Vec<Reply>, needed: Option<Lsn>) -> (usize, usize) {
        replies.iter().for_each(|reply| self.log_reply(reply));
        let mut outbox = self.outbox();
        outbox.worker = WorkerState::Active;
        outbox.post(replies.drain(..), needed);
        (outbox.memory(), outbox.unsent())
    }

    /// Frees the memory that is kept for the next replies. Returns how many bytes the
    /// outbox holds.
    pub fn shrink(&self) -> usize {
        let mut outbox = self.outbox();
        outbox.shrink();
        outbox.memory()
    }

    /// Sends what is ready, so that the worker may read. What waits for the binlog may stay
    /// here, if it is so little that another thread can send all of it. What the client does
    /// not take may stay, too, up to `most` bytes, if more can be read at once: many clients
    /// send all their commands first. Returns how many bytes of memory that takes.
    pub fn start_flush(self: &Arc<Self>, most: &dyn Fn() -> usize) -> io::Result<usize> {
        self.commit();
        let mut outbox = self.outbox();
        let fits = outbox.waiting.is_empty() || outbox.find_space(&self.stream);
        if outbox.ready.is_empty() && fits {
            outbox.worker = WorkerState::Reading;
            return Ok(0);
        }
        drop(outbox);
        self.finish(most)
    }

    /// Blocks until everything is sent.
    pub fn flush(self: &Arc<Self>) -> io::Result<()> {
        self.commit();
        self.finish(&|| 0).map(drop)
    }

    /// Notes that the client has left the engine, and that its worker only waits until it
    /// has received everything. Returns whether the client was stopped before.
    pub fn end(&self) -> bool {
        let mut outbox = self.outbox();
        let was_stopped = std::mem::replace(&mut outbox.is_stopped, true);
        self.await_client(outbox);
        was_stopped
    }

    /// Notes that the worker is about to wait for the client. So nobody waits any longer for
    /// the client to leave.
    fn await_client(&self, mut outbox: MutexGuard<'_, Outbox>) {
        outbox.worker = WorkerState::AwaitsClient;
        drop(outbox);
        if self.has_hung_up.load(Ordering::Relaxed) {
            self.changed.notify_all();
        }
    }

    /// Blocks until everything is sent, and the answer to the client's `reserve`
    /// after it. Returns false if the server ends before there is an answer.
    pub fn await_answer(self: &Arc<Self>) -> io::Result<bool> {
        let mut outbox = self.outbox();
        match std::mem::take(&mut outbox.answer) {
            Answer::Early(reply, needed) => outbox.post([reply], needed),
            Answer::NotAwaited | Answer::Awaited => outbox.answer = Answer::Awaited,
        }
        drop(outbox);
        self.flush()?;
        let answer = std::mem::take(&mut self.outbox().answer);
        Ok(!matches!(answer, Answer::Awaited))
    }

    // What other threads call.

    /// Whether its worker waits for it.
    pub fn delays_its_worker(&self) -> bool {
        self.outbox().awaits_client(&self.stream)
    }

    /// Waits until the client has left the engine, or until its worker waits for it, but no
    /// longer than this.
    pub fn await_leaving(&self, time: Duration) {
        let stays = |outbox: &mut Outbox| !outbox.awaits_client(&self.stream);
        let waited = self.changed.wait_timeout_while(self.outbox(), time, stays);
        drop(waited.expect("no thread panics"));
    }

    /// Posts the answer to a `reserve`, and sends it if it waits for nothing.
    pub fn answer(self: &Arc<Self>, reply: Reply, needed: Option<Lsn>) {
        self.log_reply(&reply);
        let mut outbox = self.outbox();
        // The server is ending. Hand out no job now: the client could no longer
        // delete it, and it is ready again after the restart.
        if outbox.is_stopped {
            return;
        }
        if !matches!(outbox.answer, Answer::Awaited) {
            // The worker has not posted yet what comes before, and takes this along.
            outbox.answer = Answer::Early(reply, needed);
            return;
        }
        outbox.answer = Answer::NotAwaited;
        outbox.post([reply], needed);
        drop(outbox);
        match (&self.binlog, needed) {
            (Some(binlog), Some(lsn)) => binlog.commit_then(lsn, self.clone()),
            _ => self.send_for_worker(|_| ()),
        }
    }

    /// For the end of the server: no `reserve` waits any longer, and the worker reads the
    /// end of the stream, if it has not ended already.
    pub fn stop(&self) {
        let mut outbox = self.outbox();
        if !std::mem::replace(&mut outbox.is_stopped, true) {
            self.wake_worker(outbox);
            self.stream.stop_reading();
        }
    }

    /// Makes a change, and sends what is ready then, as far as the socket takes it at
    /// once, unless the worker is active and will send it itself. It sends without the
    /// lock: if this thread loses its CPU after it has sent, the client may send its next
    /// command, and the worker must not wait here to post the reply.
    fn send_for_worker(&self, change: impl FnOnce(&mut Outbox)) {
        // If the storage is no longer ours, the stream is closed, and the worker finds
        // its end.
        let Ok(mut outbox) = self.outbox_to_send() else {
            return;
        };
        change(&mut outbox);
        while let Some(mut ready) = outbox.take_for_another() {
            drop(outbox);
            // After an error nothing counts as sent: the worker tries, and gets the same error.
            let sent = ready.send(&self.stream, false).unwrap_or(0);
            // The lease is checked again, since more may have become ready meanwhile.
            let Ok(again) = self.outbox_to_send() else {
                return;
            };
            outbox = again;
            outbox.sending = 0;
            outbox.use_space(sent);
            if !ready.is_empty() {
                ready.append(std::mem::take(&mut outbox.ready));
                outbox.ready = ready;
                if outbox.worker == WorkerState::Reading {
                    // All this fitted when the worker began to read, but the system may
                    // lack memory. The worker finds the end of the input, and sends the
                    // rest.
                    outbox.is_stopped = true;
                    self.stream.stop_reading();
                }
                break;
            }
        }
        self.wake_worker(outbox);
    }

    /// Wakes the worker if it sleeps and has something to do.
    fn wake_worker(&self, mut outbox: MutexGuard<'_, Outbox>) {
        let has_more = !outbox.ready.is_empty() || !outbox.waits();
        if outbox.worker == WorkerState::Sleeping && outbox.sending == 0 && has_more {
            outbox.worker = WorkerState::Active;
            drop(outbox);
            self.changed.notify_all();
        }
    }

    // What both need.

    /// Sends what is ready and waits for the rest, as the worker. After an error,
    /// nothing is left to be sent.
    fn finish(&self, most: &dyn Fn() -> usize) -> io::Result<usize> {
        let sent = self.send_all(most);
        sent.inspect_err(|_| self.outbox().clear())
    }

    fn send_all(&self, most: &dyn Fn() -> usize) -> io::Result<usize> {
        loop {
            let mut outbox = self.outbox_to_send()?;
            outbox.worker = WorkerState::Active;
            if outbox.sending == 0 {
                let is_narrow = outbox.is_narrow;
                let sent = outbox.ready.send(&self.stream, is_narrow)?;
                outbox.use_space(sent);
            }
            if outbox.sending == 0 && !outbox.ready.is_empty() {
                let (unsent, memory) = (outbox.unsent(), outbox.memory());
                self.await_client(outbox);
                let reads_on = unsent < most();
                if !self.stream.await_writable(reads_on, self.send_timeout)? {
                    return Err(io::Error::other("takes no replies"));
                }
                if reads_on && self.stream.has_input() {
                    // It reads without waiting, and then sends what is left here.
                    self.outbox().worker = WorkerState::Active;
                    return Ok(memory);
                }
            } else if outbox.sending > 0 || outbox.waits() {
                outbox.shrink();
                outbox.worker = WorkerState::Sleeping;
                let sleeps = |outbox: &mut Outbox| outbox.worker == WorkerState::Sleeping;
                drop(self.changed.wait_while(outbox, sleeps));
            } else {
                return Ok(0);
            }
        }
    }

    /// Makes the binlog durable up to the LSN of the last reply that waits: this thread
    /// writes, or another one does. The one that writes calls `durable`.
    fn commit(self: &Arc<Self>) {
        let last = self.outbox().waiting.back().map(|(lsn, _)| *lsn);
        if let (Some(binlog), Some(lsn)) = (&self.binlog, last) {
            binlog.commit_then(lsn, self.clone());
        }
    }

    /// Logs what this client does, if that is to be logged.
    pub fn log(&self, level: Level, text: impl Display) {
        if log::is_on(level) {
            log::write(level, format_args!("{}: {text}", self.peer));
        }
    }

    fn log_reply(&self, reply: &Reply) {
        self.log(Level::Commands, reply.word());
    }

    /// Locks the outbox, to send what is ready there now, after a check that the storage
    /// is still ours.
    fn outbox_to_send(&self) -> io::Result<MutexGuard<'_, Outbox>> {
        let binlog = self.binlog.as_ref();
        if binlog.is_none_or(|binlog| binlog.ensure_lease().is_ok()) {
            return Ok(self.outbox());
        }
        // Another server has the jobs. The client connects to that one when it
        // finds this connection closed.
        let mut outbox = self.outbox();
        outbox.clear();
        self.stream.close();
        self.wake_worker(outbox);
        Err(io::Error::other("the binlog failed"))
    }

    fn outbox(&self) -> MutexGuard<'_, Outbox> {
        self.outbox.lock().expect("no thread panics")
    }
}

impl Waiter for Client {
    fn durable(&self, up_to: Result<Lsn, Failed>) {
        self.send_for_worker(|outbox| outbox.make_ready(up_to));
    }
}

impl Outbox {
    /// About how many bytes are to be sent.
    fn unsent(&self) -> usize {
        let waiting = self.waiting.iter().map(|(_, reply)| size(reply));
        self.ready.left() + waiting.sum::<usize>() + self.sending
    }

    /// About how many bytes of memory this takes.
    fn memory(&self) -> usize {
        let waiting = self.waiting.iter().map(|(_, reply)| memory(reply));
        self.ready.memory() + waiting.sum::<usize>() + self.sending
    }

    /// Whether a reply waits for the binlog, or a `reserve` for its answer.
    fn waits(&self) -> bool {
        !self.waiting.is_empty() || matches!(self.answer, Answer::Awaited) && !self.is_stopped
    }

    /// Whether the worker waits for the client. (If that has closed and left replies unread, the
    /// worker is about to notice it, and waits no longer.)
    fn awaits_client(&self, stream: &Stream) -> bool {
        let awaits_client = self.worker == WorkerState::AwaitsClient;
        awaits_client && (self.is_stopped || !stream.has_closed())
    }

    /// Finds out whether the socket takes all that is here for certain.
    fn find_space(&mut self, stream: &Stream) -> bool {
        if self.unsent() > self.socket_space && stream.has_sent_all() {
            self.socket_space = if self.is_small {
                SMALL_SPACE
            } else {
                SOCKET_SPACE
            };
        }
        self.unsent() <= self.socket_space
    }

    /// Notes that this many bytes were sent in one piece.
    fn use_space(&mut self, sent: usize) {
        let least = if self.is_small { SMALL_PIECE } else { 0 };
        self.socket_space = self.socket_space.saturating_sub(sent.max(least));
    }

    fn post(&mut self, replies: impl IntoIterator<Item = Reply>, needed: Option<Lsn>) {
        let last = self.waiting.back().map(|(lsn, _)| *lsn);
        for reply in replies {
            match needed.max(last) {
                None => self.ready.add(&reply),
                Some(lsn) => self.waiting.push_back((lsn, reply)),
            }
        }
    }

    /// Makes those replies ready that wait for no more than this.
    fn make_ready(&mut self, up_to: Result<Lsn, Failed>) {
        let is_released = |(lsn, _): &(Lsn, Reply)| up_to.ok().is_none_or(|end| *lsn <= end);
        while self.waiting.front().is_some_and(is_released)
            && let Some((_, reply)) = self.waiting.pop_front()
        {
            // What depends on no change is correct after a failure, too.
            let is_valid = up_to.is_ok() || reply.depends_on() == DependsOn::Nothing;
            let reply = if is_valid {
                reply
            } else {
                Reply::InternalError
            };
            self.ready.add(&reply);
        }
    }

    /// What another thread than the worker may send now; `None` if there is nothing, if
    /// there are long bodies, or if the worker is active or a thread already sending.
    fn take_for_another(&mut self) -> Option<Ready> {
        let is_left_to_worker = match self.worker {
            WorkerState::Active | WorkerState::AwaitsClient => true,
            _ => !self.ready.bodies.is_empty(),
        };
        if is_left_to_worker || self.sending > 0 || self.ready.is_empty() {
            return None;
        }
        self.sending = self.ready.left();
        Some(std::mem::take(&mut self.ready))
    }

    /// Frees the memory that nothing uses.
    fn shrink(&mut self) {
        self.waiting.shrink_to_fit();
        if self.ready.is_empty() {
            self.ready = Ready::default();
        }
    }

    /// Forgets everything: the connection has ended. A worker that waits for an answer ends,
    /// too: for the engine it still waits, so it may execute nothing more.
    fn clear(&mut self) {
        (self.ready, self.waiting, self.sending) = Default::default();
        self.is_stopped = true;
    }
}

impl Ready {
    fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// How much memory it takes, in bytes. What is kept for the next replies is part of what
    /// each client takes.
    fn memory(&self) -> usize {
        if self.is_empty() {
            0
        } else {
            self.bytes.capacity()
        }
    }

    /// How many bytes are left.
    fn left(&self) -> usize {
        let bodies = self.bodies.iter().map(|(_, body)| body.wire().len());
        self.bytes.len() + bodies.sum::<usize>() - self.sent
    }

    /// Encodes a reply.
    fn add(&mut self, reply: &Reply) {
        let (length, capacity) = (self.bytes.len(), self.bytes.capacity());
        if capacity - length < FIRST_CAPACITY / 2 {
            // In two steps: beyond the second, it shrinks when all is sent.
            let wanted = match capacity {
                0 => FIRST_CAPACITY,
                _ => CAPACITY_KEPT.max(2 * capacity),
            };
            self.bytes.reserve_exact(wanted - length);
        }
        reply.encode(&mut self.bytes);
        match reply.body() {
            Some(body) if body.is_long() => {
                self.bodies.push((self.bytes.len(), body.clone()));
            }
            Some(body) => self.bytes.extend_from_slice(body.wire()),
            None => {}
        }
    }

    /// Adds what follows.
    fn append(&mut self, next: Ready) {
        let before = self.bytes.len();
        let bodies = next.bodies.into_iter();
        self.bodies
            .extend(bodies.map(|(at, body)| (before + at, body)));
        self.bytes.extend(next.bytes);
    }

    /// Sends as much as the socket takes now, and returns how many bytes that is. To a narrow
    /// one it sends a short piece.
    fn send(&mut self, stream: &Stream, is_narrow: bool) -> io::Result<usize> {
        if self.is_empty() {
            return Ok(0);
        }
        let most = if is_narrow {
            SENT_TO_NARROW
        } else {
            usize::MAX
        };
        let piece =
            |bytes: &[u8]| stream.try_write(&[IoSlice::new(&bytes[..bytes.len().min(most)])]);
        let sent = if self.bodies.is_empty() {
            // The usual case needs no list.
            piece(&self.bytes[self.sent..])?
        } else {
            let mut pieces = Vec::with_capacity(2 * self.bodies.len() + 1);
            let mut from = 0;
            for (at, body) in &self.bodies {
                pieces.push(IoSlice::new(&self.bytes[from..*at]));
                pieces.push(IoSlice::new(body.wire()));
                from = *at;
            }
            pieces.push(IoSlice::new(&self.bytes[from..]));
            let mut left = &mut pieces[..];
            IoSlice::advance_slices(&mut left, self.sent);
            match left {
                [next, ..] if is_narrow => piece(next)?,
                left => stream.try_write(left)?,
            }
        };
        self.sent += sent;
        if self.left() == 0 {
            self.sent = 0;
            self.bodies.clear();
            self.bytes.clear();
            self.bytes.shrink_to(CAPACITY_KEPT);
        }
        Ok(sent)
    }
}

/// About how many bytes a reply has. Lists and statistics count as
/// [`SEND_BYTES`] at least, so each of them ends a time slice. So does `CLOSED`: the socket
/// is closed before more is executed.
pub fn size(reply: &Reply) -> usize {
    let is_sent_alone = matches!(reply.word(), "OK" | "CLOSED");
    reply
        .memory()
        .max(if is_sent_alone { SEND_BYTES } else { 0 })
}

/// About how much memory a reply takes, in bytes. A long body counts with its job and, when
/// that is deleted, until nobody holds it (`unlock` in `shared`).
pub fn memory(reply: &Reply) -> usize {
    let long = reply.body().filter(|body| body.is_long());
    reply.memory() - long.map_or(0, |body| body.wire().len())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::{Body, JobId};
    use std::io::Read;
    use std::os::unix::net::UnixStream;
    use std::thread;

    const INSERTED: Reply = Reply::Inserted(JobId(1));

    /// These clients have no binlog: the tests say what is durable.
    const LSN: Option<Lsn> = Some(Lsn::START);

    /// So long a test waits for what must come.
    const PATIENCE: Duration = Duration::from_secs(300);

    fn client() -> (Arc<Client>, UnixStream) {
        client_that_may_be_slow(Duration::from_millis(1))
    }

    /// A client that is given up if it reads nothing for so long.
    fn client_that_may_be_slow(timeout: Duration) -> (Arc<Client>, UnixStream) {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let send_timeout = Some(timeout);
        theirs.set_read_timeout(Some(PATIENCE)).unwrap();
        let client = Client::new(
            Stream(ours.into()),
            Peer::default(),
            ConnectionId(0),
            None,
            send_timeout,
        );
        (Arc::new(client), theirs)
    }

    /// Fills the socket, so that there is no room for a reply. Returns how many
    /// bytes that took.
    fn fill(client: &Client) -> usize {
        let piece = [IoSlice::new(&[b'.'; 1000])];
        let sent = || client.stream.try_write(&piece).unwrap();
        std::iter::repeat_with(sent)
            .take_while(|&sent| sent > 0)
            .sum()
    }

    fn receive(theirs: &mut UnixStream, length: usize) -> String {
        let mut bytes = vec![0; length];
        theirs.read_exact(&mut bytes).unwrap();
        String::from_utf8(bytes).unwrap()
    }

    /// All that was sent.
    fn received(client: Arc<Client>, mut theirs: UnixStream) -> String {
        client.stream.close();
        let mut text = String::new();
        theirs.read_to_string(&mut text).unwrap();
        text
    }

    /// Does this while the worker sleeps and waits for an answer, and returns
    /// whether it got one.
    fn while_it_waits(client: &Arc<Client>, event: impl FnOnce()) -> io::Result<bool> {
        thread::scope(|threads| {
            let worker = threads.spawn(|| client.await_answer());
            while client.outbox().worker != WorkerState::Sleeping {
                thread::yield_now();
            }
            event();
            worker.join().unwrap()
        })
    }

    #[test]
    fn the_thread_with_the_answer_sends_it_for_a_sleeping_worker() {
        let (client, mut theirs) = client();
        let is_answered = while_it_waits(&client, || {
            let mut outbox = client.outbox();
            // So the worker cannot wake and send it.
            outbox.answer = Answer::NotAwaited;
            outbox.post([Reply::TimedOut], None);
            drop(outbox);
            client.send_for_worker(|outbox| outbox.answer = Answer::Awaited);
            assert_eq!(receive(&mut theirs, 11), "TIMED_OUT\r\n");
            assert!(client.outbox().worker == WorkerState::Sleeping);
            client.answer(Reply::DeadlineSoon, None);
        });
        assert!(is_answered.unwrap());
        assert_eq!(received(client, theirs), "DEADLINE_SOON\r\n");
    }

    #[test]
    fn the_worker_sends_the_rest_of_an_answer_that_does_not_fit_into_the_socket() {
        let (client, mut theirs) = client();
        let unread = fill(&client);
        let answered = while_it_waits(&client, || {
            client.answer(Reply::TimedOut, None);
            receive(&mut theirs, unread);
        });
        // The peer may have read too late.
        match answered {
            Ok(is_answered) => assert!(is_answered),
            Err(error) => assert_eq!(error.to_string(), "takes no replies"),
        }
    }

    #[test]
    fn an_answer_is_sent_after_replies_that_its_worker_has_still_to_post() {
        let (client, theirs) = client();
        client.answer(Reply::TimedOut, None);
        client.post(&mut vec![INSERTED], None);
        assert!(client.await_answer().unwrap());
        assert_eq!(received(client, theirs), "INSERTED 1\r\nTIMED_OUT\r\n");
    }

    #[test]
    fn an_answer_waits_until_an_earlier_put_of_its_client_is_durable() {
        let (client, theirs) = client();
        client.post(&mut vec![INSERTED], LSN);
        let is_answered = while_it_waits(&client, || {
            client.answer(Reply::TimedOut, None);
            assert!(client.outbox().worker == WorkerState::Sleeping);
            client.durable(Ok(Lsn::START));
        });
        assert!(is_answered.unwrap());
        assert_eq!(received(client, theirs), "INSERTED 1\r\nTIMED_OUT\r\n");
    }

    #[test]
    fn a_long_answer_is_left_to_the_worker() {
        for (length, is_left) in [(2047, false), (2048, true)] {
            let (client, mut theirs) = client();
            client.outbox().worker = WorkerState::Sleeping;
            client.outbox().answer = Answer::Awaited;
            let body = Body::new(&vec![b'x'; length - 2]);
            client.answer(Reply::Reserved(JobId(1), body), None);
            assert_eq!(!client.outbox().ready.is_empty(), is_left);
            client.flush().unwrap();
            let expected = format!("RESERVED 1 {}\r\n", length - 2);
            assert_eq!(receive(&mut theirs, expected.len()), expected);
            assert_eq!(received(client, theirs).len(), length);
        }
    }

    /// Another thread learns that the storage is lost just when the worker begins to wait.
    #[test]
    fn a_waiting_client_gets_no_answer_once_the_storage_is_lost() {
        let (client, _theirs) = client();
        client.outbox().answer = Answer::Awaited;
        client.outbox().clear();
        client.flush().unwrap();
        assert!(matches!(client.outbox().answer, Answer::Awaited));
    }

    #[test]
    fn a_waiting_client_gets_no_answer_once_the_server_ends() {
        let (client, theirs) = client();
        let is_answered = while_it_waits(&client, || {
            client.stop();
            client.answer(Reply::TimedOut, None);
        });
        assert!(!is_answered.unwrap());
        assert!(
            !client.await_answer().unwrap(),
            "and no wait after it lasts"
        );
        assert_eq!(received(client, theirs), "");
    }

    #[test]
    fn a_slow_client_is_disconnected_before_its_reserve_is_over() {
        let (client, _theirs) = client();
        fill(&client);
        client.post(&mut vec![INSERTED], None);
        let error = client.await_answer().unwrap_err();
        assert_eq!(error.to_string(), "takes no replies");
        assert!(!client.outbox().waits(), "the worker would sleep");
        client.flush().unwrap();
    }

    #[test]
    fn an_answer_given_before_the_server_stops_is_sent() {
        let (client, theirs) = client();
        client.answer(Reply::TimedOut, None);
        client.stop();
        assert!(client.await_answer().unwrap());
        assert_eq!(received(client, theirs), "TIMED_OUT\r\n");
    }

    /// Another thread sends no long body, not even its end.
    #[test]
    fn what_a_slow_client_has_not_taken_is_sent_before_the_worker_reads_and_waits() {
        let (client, mut theirs) = client();
        let long = Reply::Found(JobId(1), Body::new(&[b'x'; 60_000]));
        client.post(&mut vec![long], None);
        let mut outbox = client.outbox();
        outbox.ready.sent = outbox.ready.left() - 3;
        drop(outbox);
        client.post(&mut vec![INSERTED], LSN);
        thread::scope(|threads| {
            threads.spawn(|| {
                while client.outbox().worker == WorkerState::Active {
                    thread::yield_now();
                }
                client.durable(Ok(Lsn::START));
            });
            client.start_flush(&|| SEND_BYTES).unwrap();
        });
        theirs.set_nonblocking(true).unwrap();
        assert_eq!(receive(&mut theirs, 15), "x\r\nINSERTED 1\r\n");
    }

    #[test]
    fn replies_are_sent_in_order_once_they_are_durable_without_blocking_the_worker() {
        let (client, mut theirs) = client();
        client.post(&mut vec![INSERTED], LSN);
        client.start_flush(&|| SEND_BYTES).unwrap();
        client.post(&mut vec![Reply::TimedOut], None);
        client.start_flush(&|| SEND_BYTES).unwrap();
        theirs.set_nonblocking(true).unwrap();
        let nothing = theirs.read(&mut [0]).unwrap_err();
        assert_eq!(nothing.kind(), io::ErrorKind::WouldBlock);
        client.durable(Ok(Lsn::START));
        theirs.set_nonblocking(false).unwrap();
        assert_eq!(receive(&mut theirs, 23), "INSERTED 1\r\nTIMED_OUT\r\n");
        assert_eq!(client.outbox().memory(), 0);
    }

    #[test]
    fn a_reply_that_depends_on_a_failed_binlog_becomes_an_internal_error() {
        let (client, theirs) = client();
        client.post(&mut vec![Reply::Watching(1), INSERTED], LSN);
        client.durable(Err(Failed));
        client.flush().unwrap();
        assert_eq!(received(client, theirs), "WATCHING 1\r\nINTERNAL_ERROR\r\n");
    }

    #[test]
    fn a_worker_reads_on_only_while_its_waiting_replies_fit_into_the_socket() {
        let (client, mut theirs) = client();
        let most = SOCKET_SPACE / size(&INSERTED);
        let fits = |client: &Client| client.outbox().find_space(&client.stream);
        client.post(&mut vec![INSERTED; most], LSN);
        assert!(fits(&client));
        client.post(&mut vec![INSERTED], LSN);
        assert!(!fits(&client));
        client.durable(Ok(Lsn::START));
        client.flush().unwrap();
        // The client has not read them, so less space is certain.
        client.post(&mut vec![INSERTED; most], LSN);
        assert!(!fits(&client));
        receive(&mut theirs, 12 * (most + 1));
        assert!(fits(&client));
    }

    /// As when the kernel lacks memory.
    #[test]
    fn a_reply_that_does_not_fit_while_its_worker_reads_is_sent_by_the_worker_at_its_end() {
        let (client, mut theirs) = client();
        client.outbox().socket_space = SOCKET_SPACE;
        let unread = fill(&client);
        client.post(&mut vec![INSERTED], LSN);
        client.start_flush(&|| SEND_BYTES).unwrap();
        client.durable(Ok(Lsn::START));
        let end = client.stream.read(&mut Vec::with_capacity(1), 1);
        assert_eq!(end.unwrap(), 0);
        receive(&mut theirs, unread);
        client.flush().unwrap();
        assert_eq!(received(client, theirs), "INSERTED 1\r\n");
    }

    #[test]
    fn a_client_that_reads_nothing_is_disconnected_after_a_time() {
        let (client, _theirs) = client();
        fill(&client);
        client.post(&mut vec![INSERTED], None);
        let error = client.start_flush(&|| SEND_BYTES).unwrap_err();
        assert_eq!(error.to_string(), "takes no replies");
        assert_eq!(client.outbox().memory(), 0);
    }

    /// Those that wait for it to leave go on waiting, since its worker is about to notice that.
    #[test]
    fn a_client_that_closes_while_its_worker_waits_for_it_delays_the_worker_no_longer() {
        let (client, theirs) = client();
        assert!(!client.delays_its_worker());
        client.outbox().worker = WorkerState::AwaitsClient;
        assert!(client.delays_its_worker());
        drop(theirs);
        assert!(!client.delays_its_worker());
        client.end();
        assert!(client.delays_its_worker());
    }

    /// Its job may be deleted meanwhile.
    #[test]
    fn a_body_counts_until_its_reply_is_sent() {
        let (client, _theirs) = client();
        let found = Reply::Found(JobId(1), Body::new(b"a job"));
        assert!(client.post(&mut vec![found], LSN).0 >= "a job\r\n".len());
        client.durable(Ok(Lsn::START));
        client.flush().unwrap();
        assert_eq!(client.outbox().memory(), 0);
    }

    #[test]
    fn a_silent_client_keeps_no_memory_for_replies() {
        let (client, _theirs) = client();
        client.post(&mut vec![INSERTED; 100], None);
        client.start_flush(&|| SEND_BYTES).unwrap();
        assert!(client.outbox().ready.bytes.capacity() > 0);
        client.shrink();
        assert_eq!(client.outbox().ready.bytes.capacity(), 0);
    }

    #[test]
    fn short_bodies_are_copied_and_long_ones_are_sent_in_place() {
        let (client, theirs) = client();
        let found = |length: usize| Reply::Found(JobId(1), Body::new(&vec![b'x'; length - 2]));
        client.post(&mut vec![found(2047)], None);
        assert_eq!(client.outbox().ready.bodies.len(), 0);
        client.post(&mut vec![found(2048), Reply::TimedOut], None);
        assert_eq!(client.outbox().ready.bodies.len(), 1);
        client.start_flush(&|| SEND_BYTES).unwrap();
        let (short, long) = ("x".repeat(2045), "x".repeat(2046));
        let expected =
            format!("FOUND 1 2045\r\n{short}\r\nFOUND 1 2046\r\n{long}\r\nTIMED_OUT\r\n");
        assert_eq!(received(client, theirs), expected);
    }

    #[test]
    fn a_socket_for_which_a_group_pays_takes_what_fits_into_it_for_certain() {
        for most in [None, Some(6000)] {
            let (client, _theirs) = client();
            client.send_at_once(most);
            let posted = (0..20).take_while(|_| {
                client.post(&mut vec![INSERTED], LSN);
                let fits = client.outbox().find_space(&client.stream);
                // Another thread sends it.
                client.outbox().worker = WorkerState::Reading;
                client.durable(Ok(Lsn::START));
                fits
            });
            assert!((1..20).contains(&posted.count()));
            // The worker may read on.
            assert!(!client.outbox().is_stopped);
        }
    }

    /// Whatever it does not read, and however long the replies are.
    #[test]
    fn the_kernel_holds_little_for_a_narrow_socket_and_all_arrives() {
        let (client, mut theirs) = client_that_may_be_slow(PATIENCE);
        client.send_at_once(None);
        let held = fill(&client);
        assert!(held < 20_000, "{held} bytes");
        receive(&mut theirs, held);
        let found = |length: usize| Reply::Found(JobId(1), Body::new(&vec![b'x'; length - 2]));
        let mut replies = vec![INSERTED, found(60_000), found(40_000), INSERTED, found(20)];
        let mut expected = Vec::new();
        for reply in &replies {
            reply.encode(&mut expected);
            expected.extend(reply.body().map_or(&[][..], Body::wire));
        }
        client.post(&mut replies, None);
        thread::scope(|threads| {
            let sender = threads.spawn(|| client.flush());
            assert_eq!(receive(&mut theirs, expected.len()).into_bytes(), expected);
            sender.join().unwrap().unwrap();
        });
        client.send_at_once(Some(80_000));
        assert!(fill(&client) > 3 * held);
    }
}
