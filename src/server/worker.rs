//! A worker's life with one client: read, execute, write.
//!
//! Commands that have arrived together are executed together and answered with
//! one write. So a command on a quiet connection costs one read and one write,
//! and a thousand pipelined ones hardly more.

use super::batch::{Batch, Next, size};
use super::client::{Answer, Client, is_short};
use super::input::Input;
use super::memory::Held;
use super::output::{Output, SEND_BYTES};
use super::process;
use super::shared::Shared;
use crate::binlog::{Binlog, Failed, Lsn, Moment};
use crate::log::{self, Level};
use crate::protocol::framing::MAX_LINE;
use crate::protocol::{Framer, Reply, Request, RestsOn};
use std::io::{self, Write};
use std::slice;
use std::sync::Arc;
use std::time::Duration;

/// How long a client may be silent and keep a large buffer.
const KEEPS_BUFFER: Duration = Duration::from_millis(100);

/// About how many bytes of replies are left to other threads before this one
/// looks whether the client takes them. Every socket has room for twice as many.
/// A reply that finds no room could be finished by nobody: the worker sleeps in
/// its read.
const LEFT_UNSEEN: usize = 2048;

/// The time allowed for a write is split into so many waits. After a wait in which
/// the client took something, nobody knows how long ago that was; and while its
/// buffers grow, the system takes something though the client does not read. Of
/// 2 s, a client that did not read got 3.1 s with four waits, and gets 2.4 s with
/// these.
const WRITE_WAITS: u32 = 16;

/// On shared storage a wait is at most so long, because the server may have lost
/// the lock since the last one.
const LONGEST_SHARED_WAIT: Duration = Duration::from_secs(1);

/// Serves one client until its connection ends.
pub fn serve(shared: &Shared, client: &Arc<Client>) {
    let name = log::is_on(Level::Connections).then(|| client.stream.to_string());
    let note = |text: std::fmt::Arguments<'_>| {
        if let Some(name) = &name {
            log::write(Level::Connections, format_args!("{name}: {text}"));
        }
    };
    note(format_args!("connected"));
    match Worker::new(shared, client, name.as_deref()).run() {
        Ok(()) => note(format_args!("closed")),
        Err(error) => note(format_args!("closed: {error}")),
    }
    // This comes before the socket closes: a client that sees it closed may
    // connect again at once, and must find its place free.
    shared.disconnect(client.id);
}

/// How long one wait of a write takes at most; `None` for no limit.
fn write_wait(shared: &Shared) -> Option<Duration> {
    let patience = shared.limits.idle_timeout;
    let usual = patience.map(|patience| patience / WRITE_WAITS);
    let longest = shared.moment().map(|_| LONGEST_SHARED_WAIT);
    usual.into_iter().chain(longest).min()
}

struct Worker<'a> {
    shared: &'a Shared,
    client: &'a Arc<Client>,
    /// The client's address, if its connection is logged.
    name: Option<&'a str>,
    framer: Framer,
    input: Input,
    batch: Batch,
    output: Output,
    /// How much memory it holds for input, bodies and replies.
    held: Held<'a>,
    /// The read timeout that is set in the socket.
    read_patience: Option<Duration>,
    /// As [`write_wait`].
    write_wait: Option<Duration>,
    /// Whether the client has waited, and is in the list of those that have.
    has_waited: bool,
    /// How many bytes it has read.
    received: u64,
    /// Whether another thread sends the last reply.
    is_owed_reply: bool,
    /// About how many bytes were left to other threads since it was seen that the
    /// client has taken all; [`LEFT_UNSEEN`] if this one has sent since.
    unseen: usize,
    /// When the latest replies in the output were made, if they tell anything
    /// that needs a look at shared storage before they are sent.
    made: Option<Moment>,
}

impl<'a> Worker<'a> {
    fn new(shared: &'a Shared, client: &'a Arc<Client>, name: Option<&'a str>) -> Worker<'a> {
        Worker {
            shared,
            client,
            name,
            framer: Framer::new(shared.limits.max_job_size),
            input: Input::default(),
            batch: Batch::default(),
            output: Output::default(),
            held: shared.memory.hold(),
            read_patience: None,
            write_wait: write_wait(shared),
            received: 0,
            has_waited: false,
            is_owed_reply: false,
            unseen: LEFT_UNSEEN,
            made: None,
        }
    }

    /// Serves until the end of the connection, and until other threads have
    /// sent what they still have to send there.
    fn run(&mut self) -> io::Result<()> {
        let end = self.serve();
        self.await_owed();
        end
    }

    fn serve(&mut self) -> io::Result<()> {
        if self.write_wait.is_some() {
            self.client.stream.set_write_wait(self.write_wait)?;
        }
        loop {
            self.parse();
            if self.batch.is_empty() {
                // Only now, so that all replies to commands that came together
                // share one write.
                self.send()?;
                if self.shared.is_stopping() || !self.read()? {
                    return Ok(());
                }
            } else if self.execute()? == Next::Close {
                return self.send();
            }
        }
    }

    /// Takes complete requests out of the input, until one may have to wait.
    /// The bytes after that one are not parsed before it has its answer.
    fn parse(&mut self) {
        if !self.batch.is_empty() {
            // Requests are left: the replies to the first ones had to be sent.
            return;
        }
        let mut unread = self.input.unread();
        let mut before = unread;
        while let Some(request) = self.framer.next(&mut unread) {
            if let Some(name) = self.name {
                log_request(name, &request, &before[..before.len() - unread.len()]);
            }
            before = unread;
            if !self.batch.push(request) {
                break;
            }
        }
        let left = unread.len();
        self.input.keep(left);
    }

    /// Reads once. Returns whether the client has sent anything. This may take
    /// for ever.
    fn read(&mut self) -> io::Result<bool> {
        // After it has given its buffer back, the next read allocates a new
        // one, which need not be given back again.
        let mut gave_back = false;
        loop {
            let gives_back = !gave_back && self.input.held() > 0;
            self.set_read_patience(gives_back)?;
            let stream = &self.client.stream;
            let read = match self.framer.growing_body() {
                Some(body) => {
                    let missing = body.missing();
                    self.input.was_filled = false;
                    stream.read(&mut body.bytes, missing)
                }
                None => self.input.read(stream, self.framer.needed()),
            };
            match read {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    if gives_back {
                        gave_back = true;
                        self.give_back();
                        // Each use of the lock notices what has become free.
                        self.shared.with_lock(|_, _| ());
                    } else if self.is_idle() {
                        return Err(io::Error::other("silent for too long"));
                    }
                }
                Err(error) => return Err(error),
                Ok(count) => {
                    self.received += count as u64;
                    self.count_held();
                    if self.framer.held() > 0 && !self.shared.has_memory() {
                        self.framer.refuse_body();
                        self.count_held();
                    }
                    return Ok(count > 0);
                }
            }
        }
    }

    /// A client that has a large buffer and is silent gives the buffer back.
    fn set_read_patience(&mut self, gives_back: bool) -> io::Result<()> {
        let patience = match gives_back {
            true => Some(KEEPS_BUFFER),
            false => self.shared.limits.idle_timeout,
        };
        if self.read_patience != patience {
            self.client.stream.set_read_patience(patience)?;
            self.read_patience = patience;
        }
        Ok(())
    }

    /// Whether it holds no job.
    fn is_idle(&self) -> bool {
        let id = self.client.id;
        self.shared.with_lock(|state, _| state.engine.is_idle(id))
    }

    /// Executes some of the requests, and handles their replies.
    fn execute(&mut self) -> io::Result<Next> {
        let (shared, others) = (self.shared, self.held.by_others());
        let (id, has_much) = (self.client.id, self.has_much());
        let next = self.batch.execute(shared, id, others, has_much);
        if self.batch.is_empty() && self.input.unread().is_empty() {
            self.client.note_executed(self.received);
        }
        if shared.binlog.is_some() {
            // A job may be gone while its body waits here for the disk.
            self.count_held();
        }
        if next == Next::AwaitRoom {
            // The replies before it wait, too: they come with the next ones.
            self.batch.await_room(shared);
            return Ok(Next::GoOn);
        }
        let (mut replies, needed) = self.batch.take_replies();
        let made = self.shared.moment();
        if let (Some(binlog), Some(lsn)) = (&self.shared.binlog, needed) {
            self.keep(binlog, lsn, &mut replies);
        }
        self.note_made(made, &replies);
        for reply in replies.drain(..) {
            self.add(reply)?;
        }
        // The empty vector is kept for its allocation.
        self.batch.replies = replies;
        if next != Next::Wait {
            return Ok(next);
        }
        match self.wait()? {
            // The client gets no answer. If it was given a job, that job is
            // ready after a restart.
            Answer::Stop => return Ok(Next::Close),
            Answer::Reply(reply) => {
                self.note_made(self.shared.moment(), slice::from_ref(&reply));
                self.add(reply)?;
            }
            Answer::Sent { word, rest } => {
                // The output is empty: everything was sent before the wait.
                self.made = self.shared.moment();
                self.log_reply(word);
                self.output.add_part(&rest);
            }
        }
        Ok(Next::GoOn)
    }

    /// Notes when these replies were made, before they are added to the output.
    /// That the server has failed is true without a look.
    fn note_made(&mut self, made: Option<Moment>, replies: &[Reply]) {
        if self.output.is_empty() {
            self.made = None;
        }
        let tells = |reply: &Reply| *reply != Reply::InternalError;
        if made.is_some() && replies.iter().any(tells) {
            self.made = made;
        }
    }

    /// Whether it has much to do: more than a client sends that waits for each
    /// reply.
    fn has_much(&self) -> bool {
        // The bytes of a body that has not come whole are no further commands.
        let has_more = self.input.unread().len() >= MAX_LINE && !self.framer.awaits_body();
        self.batch.is_much() || has_more
    }

    /// Makes sure that what the replies rest on is kept before they are sent.
    /// What cannot be kept is not promised.
    fn keep(&mut self, binlog: &Binlog, needed: Lsn, replies: &mut Vec<Reply>) {
        let kept = match binlog.commit_if_free(needed) {
            Some(kept) => kept,
            None if self.may_be_left(replies) => return self.leave(binlog, needed, replies),
            None => binlog.commit(needed),
        };
        if kept == Err(Failed) {
            // A reply that rests on nothing is true all the same.
            let rests = |reply: &&mut Reply| reply.rests_on() != RestsOn::Nothing;
            let untrue = replies.iter_mut().filter(rests);
            untrue.for_each(|reply| *reply = Reply::InternalError);
        }
    }

    /// Whether there is one short reply, and nothing to send before it. Then
    /// the thread that is writing the binlog can send it, and need not wake
    /// this worker.
    fn may_be_left(&mut self, replies: &[Reply]) -> bool {
        let [reply] = replies else { return false };
        let is_alone = self.output.is_empty() && self.name.is_none();
        if !is_alone || !is_short(reply) {
            return false;
        }
        // A client that leaves replies unread must not be cut off for that.
        if self.unseen + size(reply) > LEFT_UNSEEN {
            if !self.client.stream.has_sent_all() {
                return false;
            }
            self.unseen = 0;
        }
        self.unseen += size(reply);
        true
    }

    /// Leaves the reply to the thread that is writing the binlog, and does not
    /// wait. With many clients, waking the worker of each for its reply is a
    /// third of what a durable put costs.
    fn leave(&mut self, binlog: &Binlog, needed: Lsn, replies: &mut Vec<Reply>) {
        let reply = replies.pop().expect("there is one");
        // At most one reply is left to others at a time, or replies could
        // overtake each other.
        self.await_owed();
        self.is_owed_reply = true;
        self.client.owe_reply();
        let client = Arc::clone(self.client);
        binlog.commit_then(needed, move |kept| {
            client.send_owed(&kept.map_or(Reply::InternalError, |()| reply));
        });
    }

    /// Adds a reply to the output, and sends the output if it is much.
    fn add(&mut self, mut reply: Reply) -> io::Result<()> {
        self.log_reply(reply.word());
        match &mut reply {
            Reply::OutOfMemory => log::client_warning(
                &self.client.stream,
                format_args!("refused for want of room: OUT_OF_MEMORY"),
            ),
            Reply::ServerStats(document) => process::complete(document, self.shared),
            Reply::Jobs(list) => {
                // The engine knows no files, and a thousand jobs are too many
                // to look up under the lock.
                if let Some(binlog) = &self.shared.binlog {
                    let jobs = list.jobs.iter_mut();
                    jobs.for_each(|job| job.file = binlog.segment_of(job.id));
                }
            }
            _ => {}
        }
        match &reply {
            Reply::Tubes(names) => names.encode(self),
            Reply::Jobs(list) => {
                self.output.list_bytes = list.memory();
                let added = list.encode(self);
                self.output.list_bytes = 0;
                self.count_held();
                added
            }
            reply => {
                self.output.add(reply);
                self.send_if_much()
            }
        }
    }

    fn send_if_much(&mut self) -> io::Result<()> {
        match self.output.held() < SEND_BYTES {
            true => Ok(()),
            false => self.send(),
        }
    }

    /// Sends the output, after a reply that another thread sends.
    fn send(&mut self) -> io::Result<()> {
        if self.output.is_empty() {
            // Another thread may send the reply; what was executed counts as the
            // engine's alone from now on.
            self.count_held();
            return Ok(());
        }
        self.await_owed();
        self.count_held();
        let (shared, made, wait) = (self.shared, self.made, self.write_wait);
        let sent = self.output.send(&self.client.stream, |waits| {
            if let (Some(patience), Some(wait)) = (shared.limits.idle_timeout, wait)
                && wait * waits >= patience
            {
                return Err(io::Error::other("takes no replies"));
            }
            match &shared.binlog {
                // Another server has the jobs. The client connects to that one
                // when it finds this connection closed.
                Some(binlog) if binlog.confirm(made) == Err(Failed) => {
                    Err(io::Error::other("the binlog failed"))
                }
                _ => Ok(()),
            }
        });
        self.unseen = LEFT_UNSEEN;
        self.count_held();
        sent
    }

    /// Notes how much memory it holds, beyond what each client costs.
    fn count_held(&mut self) {
        self.held
            .set(self.input.held() + self.framer.held() + self.batch.held() + self.output.held());
    }

    /// Waits until no other thread has anything to send to this client.
    fn await_owed(&mut self) {
        if std::mem::take(&mut self.is_owed_reply) {
            self.client.await_owed();
        }
    }

    /// Sends all output, and waits for the answer to a `reserve`. Meanwhile it
    /// holds as little memory as possible, because very many may wait.
    fn wait(&mut self) -> io::Result<Answer> {
        self.send()?;
        self.await_owed();
        self.give_back();
        // It registers only now, and only once, because most clients never
        // wait.
        if !std::mem::replace(&mut self.has_waited, true) {
            self.shared.hangups.watch_waiting(self.client)?;
        }
        self.unseen = LEFT_UNSEEN;
        Ok(self.client.wait())
    }

    /// Frees all buffers that are empty.
    fn give_back(&mut self) {
        self.output = Output::default();
        self.batch = Batch::default();
        self.input.give_back();
        self.count_held();
    }

    fn log_reply(&self, word: &str) {
        if let Some(name) = self.name {
            log::write(Level::Commands, format_args!("{name}: {word}"));
        }
    }
}

/// Writes a part of a long reply, which is sent as it is made.
impl Write for Worker<'_> {
    fn write(&mut self, part: &[u8]) -> io::Result<usize> {
        self.output.add_part(part);
        self.send_if_much()?;
        Ok(part.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Logs a request. A command is logged as it came. Of a body only the size is
/// logged, because its contents are private. A line that is no command is not
/// shown either, because it may be part of a body.
fn log_request(name: &str, request: &Request, line: &[u8]) {
    let write = |text: std::fmt::Arguments<'_>| {
        log::write(Level::Commands, format_args!("{name}: {text}"));
    };
    match request {
        Request::Command(_) => write(format_args!("{}", line.trim_ascii_end().escape_ascii())),
        Request::Body(Ok(body)) => write(format_args!("a body of {} bytes", body.content().len())),
        Request::Body(Err(reason)) => write(format_args!("no body: {reason:?}")),
        Request::Refused(_) => write(format_args!("a line that is no command")),
        Request::GoOn => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::{Config, ConnectionId, Engine};
    use crate::protocol::{Body, JobId};
    use crate::server::{Clock, Limits, Stream};
    use std::io::Read;
    use std::os::unix::net::UnixStream;

    /// Has this done by a worker whose peer is the stream.
    fn with_worker(work: impl FnOnce(Worker, UnixStream)) {
        let clock = Clock::start();
        let limits = Limits::of_one_client(10_000);
        let engine = Engine::new(Config::new(10_000), clock.now());
        let shared = Shared::new(engine, None, clock, limits).unwrap();
        let (ours, theirs) = UnixStream::pair().unwrap();
        let client = Arc::new(Client::new(Stream(ours.into()), ConnectionId(0)));
        work(Worker::new(&shared, &client, None), theirs);
    }

    #[test]
    fn one_short_reply_with_nothing_before_it_may_be_left_to_others() {
        with_worker(|mut worker, _theirs| {
            let long = Body::new(&[b'x'; 2046]);
            assert!(worker.may_be_left(&[Reply::TimedOut]));
            assert!(!worker.may_be_left(&[]));
            assert!(!worker.may_be_left(&[Reply::TimedOut, Reply::TimedOut]));
            assert!(!worker.may_be_left(&[Reply::Found(JobId(1), long)]));
            worker.output.add(&Reply::TimedOut);
            assert!(!worker.may_be_left(&[Reply::TimedOut]));
        });
    }

    #[test]
    fn to_a_client_that_does_not_read_only_so_much_is_left() {
        with_worker(|mut worker, mut theirs| {
            assert!(worker.may_be_left(&[Reply::TimedOut]));
            worker.client.stream.try_write(b"x").unwrap();
            let mut left = || {
                let more = (0..1000).take_while(|_| worker.may_be_left(&[Reply::TimedOut]));
                more.count()
            };
            let most = LEFT_UNSEEN / size(&Reply::TimedOut);
            assert_eq!((left(), left()), (most - 1, 0));
            theirs.read_exact(&mut [0]).unwrap();
            assert_eq!(left(), 1000);
        });
    }

    #[test]
    fn more_than_a_line_waits_where_no_body_is_awaited() {
        with_worker(|mut worker, mut theirs| {
            theirs.write_all(&[b'x'; MAX_LINE - 1]).unwrap();
            worker.input.read(&worker.client.stream, 0).unwrap();
            assert!(!worker.has_much());
            theirs.write_all(b"x").unwrap();
            worker.input.read(&worker.client.stream, 0).unwrap();
            assert!(worker.has_much());
            worker.framer.next(&mut &b"put 0 0 1 1000\r\n"[..]);
            assert!(!worker.has_much());
            worker.batch.push(Request::GoOn);
            assert!(worker.has_much());
        });
    }

    #[test]
    fn much_output_is_sent_before_there_is_more() {
        with_worker(|mut worker, _theirs| {
            worker.output.add_part(&[b'x'; SEND_BYTES - 1]);
            worker.send_if_much().unwrap();
            assert!(!worker.output.is_empty());
            worker.output.add_part(b"x");
            worker.send_if_much().unwrap();
            assert!(worker.output.is_empty());
        });
    }

    #[test]
    fn who_waits_has_no_large_buffer() {
        with_worker(|mut worker, mut theirs| {
            theirs.write_all(b"x").unwrap();
            worker.input.read(&worker.client.stream, 5000).unwrap();
            worker.count_held();
            assert_eq!(worker.shared.memory.held(), 8192);
            worker.input.keep(0);
            worker.give_back();
            assert_eq!(worker.shared.memory.held(), 0);
        });
    }
}
