//! A worker's life with one client: read, execute, write.
//!
//! What has arrived together is executed together and answered with one write:
//! a command on a quiet connection costs one read and one write, a thousand
//! pipelined ones hardly more.

use super::batch::{Batch, Next};
use super::client::{Answer, Client, is_short};
use super::input::Input;
use super::memory::Held;
use super::output::{MUCH, Output};
use super::permits::Permit;
use super::process;
use super::shared::Shared;
use crate::binlog::{Binlog, Failed, Position};
use crate::log::{self, Level};
use crate::protocol::framing::MAX_LINE;
use crate::protocol::{Framer, Reply, Request};
use std::io::{self, Write};
use std::sync::Arc;
use std::time::Duration;

/// So long may a client be silent and keep the large buffer that it has filled.
const KEEPS_BUFFER: Duration = Duration::from_millis(100);

/// Serves one client until its connection ends.
pub fn serve(shared: &Shared, client: &Arc<Client>) {
    let name = log::is_on(Level::Connections).then(|| client.stream.to_string());
    let note = |text: std::fmt::Arguments<'_>| {
        if let Some(name) = &name {
            log::write(Level::Connections, format_args!("{name}: {text}"));
        }
    };
    note(format_args!("connected"));
    let end = Worker {
        shared,
        client,
        name: name.as_deref(),
        framer: Framer::new(shared.limits.max_job_size),
        input: Input::default(),
        batch: Batch::default(),
        output: Output::default(),
        held: shared.memory.hold(),
        permit: None,
        read_patience: None,
        is_watched: false,
        is_owed_reply: false,
    }
    .run();
    match end {
        Ok(()) => note(format_args!("closed")),
        Err(error) => note(format_args!("closed: {error}")),
    }
    // Before the socket closes: who sees that may want to come again.
    shared.disconnect(client.id);
}

struct Worker<'a> {
    shared: &'a Shared,
    client: &'a Arc<Client>,
    /// Who it is, if anything of it is logged.
    name: Option<&'a str>,
    framer: Framer,
    input: Input,
    batch: Batch<'a>,
    output: Output,
    /// What it holds of bodies and replies, in memory.
    held: Held<'a>,
    /// Its permit to be busy, if it needs one, until it sends, reads or waits.
    permit: Option<Permit<'a>>,
    /// As it is set in the socket.
    read_patience: Option<Duration>,
    /// Whether the hang-up watcher knows it, from its first waiting on.
    is_watched: bool,
    /// Whether somebody else sends the last reply.
    is_owed_reply: bool,
}

impl Worker<'_> {
    /// Until the end of the connection, and of what others still send there.
    fn run(&mut self) -> io::Result<()> {
        let end = self.serve();
        self.await_owed();
        end
    }

    fn serve(&mut self) -> io::Result<()> {
        let patience = self.shared.limits.idle_timeout;
        if patience.is_some() {
            self.client.stream.set_write_patience(patience)?;
        }
        loop {
            self.parse();
            if self.batch.is_empty() {
                // Only now, so that all that came together shares one write.
                self.send()?;
                if self.shared.is_stopping() || !self.read()? {
                    return Ok(());
                }
            } else if self.execute()? == Next::Close {
                return self.send();
            }
        }
    }

    /// Takes whole requests out of the input, up to one that may have to wait:
    /// what stands behind that is not looked at before it has its answer.
    fn parse(&mut self) {
        if !self.batch.is_empty() {
            return;
        }
        let binlog = self.shared.binlog.as_deref();
        let mut unread = self.input.unread();
        let mut before = unread;
        while let Some(request) = self.framer.next(&mut unread) {
            if let Some(name) = self.name {
                log_request(name, &request, &before[..before.len() - unread.len()]);
            }
            before = unread;
            if !self.batch.push(request, binlog) {
                break;
            }
        }
        let left = unread.len();
        self.input.keep(left);
    }

    /// Reads once; whether the client has sent anything. That may take for ever.
    fn read(&mut self) -> io::Result<bool> {
        self.permit = None;
        // What it needs to go on reading, it gets again, but has not to give back.
        let mut gave_back = false;
        loop {
            let gives_back = !gave_back && self.input.held() > 0;
            self.set_read_patience(gives_back)?;
            let stream = &self.client.stream;
            let read = match self.framer.growing_body() {
                Some(body) => {
                    let missing = body.missing();
                    self.input.note_bypass();
                    stream.read(&mut body.bytes, missing)
                }
                None => self.input.read(stream, self.framer.needed()),
            };
            match read {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    if gives_back {
                        gave_back = true;
                        self.give_back();
                        // So that it is noticed what has become free.
                        self.shared.with_lock(|_, _| ());
                    } else if self.is_idle() {
                        return Err(io::Error::other("silent for too long"));
                    }
                }
                Err(error) => return Err(error),
                Ok(count) => {
                    self.count_held();
                    if self.framer.held() > 0 && !self.held.fits() {
                        self.framer.refuse_body();
                        self.count_held();
                    }
                    return Ok(count > 0);
                }
            }
        }
    }

    /// A client that has filled a large buffer and is silent then gives it back.
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

    /// Executes some of the requests, and sees to the replies.
    fn execute(&mut self) -> io::Result<Next> {
        let (shared, others) = (self.shared, self.held.by_others());
        // Before the lock, or those who wait for a permit would stand there too;
        // and kept as long as it goes on without having to wait.
        if self.permit.is_none() && self.has_much() {
            self.permit = Some(shared.permits.take());
        }
        let is_much = self.permit.is_some();
        let id = self.client.id;
        let next = self.batch.execute(shared, id, others, is_much);
        let (mut replies, must_keep) = self.batch.take_replies();
        // The default position is before all others: then nothing is promised.
        if let Some(binlog) = &self.shared.binlog
            && must_keep > Position::default()
        {
            self.keep(binlog, must_keep, &mut replies);
        }
        for reply in replies.drain(..) {
            self.add(reply)?;
        }
        // For its allocation.
        self.batch.replies = replies;
        if next != Next::Wait {
            return Ok(next);
        }
        match self.wait()? {
            // No answer: its job, if it was given one, comes back at a restart.
            Answer::Stop => return Ok(Next::Close),
            Answer::Reply(reply) => self.add(reply)?,
            Answer::Sent { word, rest } => {
                // Nothing can lie before it: all was sent before it waited.
                self.log_reply(word);
                self.output.add_part(&rest);
            }
        }
        Ok(Next::GoOn)
    }

    /// Whether it has more to do than what a client sends that waits for its
    /// replies.
    fn has_much(&self) -> bool {
        self.batch.is_much() || self.input.unread().len() >= MAX_LINE
    }

    /// Sees to it that what is promised is kept before it is promised. What
    /// cannot be kept is not promised.
    fn keep(&mut self, binlog: &Binlog, must_keep: Position, replies: &mut Vec<Reply>) {
        // Others must come to the log meanwhile, or nobody shares its syncs.
        self.permit = None;
        let kept = match binlog.commit_if_free(must_keep) {
            Some(kept) => kept,
            None if self.may_be_left(replies) => return self.leave(binlog, must_keep, replies),
            None => binlog.commit(must_keep),
        };
        if kept == Err(Failed) {
            // What is neither a promise nor tells of a job is true all the same.
            let told = |reply: &&mut Reply| reply.is_promise() || reply.tells_of().is_some();
            let told = replies.iter_mut().filter(told);
            told.for_each(|reply| *reply = Reply::InternalError);
        }
    }

    /// Whether these replies are one short one, with nothing before it: who
    /// writes the binlog now need not wake this worker for that, but can as
    /// well send it.
    fn may_be_left(&self, replies: &[Reply]) -> bool {
        let [reply] = replies else { return false };
        let is_alone = self.output.is_empty() && self.name.is_none();
        // A client that leaves replies unread must not be cut off for that.
        is_alone && is_short(reply) && self.client.stream.has_sent_all()
    }

    /// Leaves the reply to the thread that keeps what it promises, and does not
    /// wait: with many clients, waking each of their workers for its reply is a
    /// third of what a durable put costs.
    fn leave(&mut self, binlog: &Binlog, must_keep: Position, replies: &mut Vec<Reply>) {
        let reply = replies.pop().expect("there is one");
        // At most one at a time, or they could overtake each other.
        self.await_owed();
        self.is_owed_reply = true;
        self.client.owe_reply();
        let client = Arc::clone(self.client);
        binlog.commit_then(must_keep, move |kept| {
            client.send_owed(&kept.map_or(Reply::InternalError, |()| reply));
        });
    }

    /// Adds a reply to what is to be sent, which it sends when that is much.
    fn add(&mut self, mut reply: Reply) -> io::Result<()> {
        self.log_reply(reply.word());
        match &mut reply {
            Reply::OutOfMemory => log::client_warning(
                &self.client.stream,
                format_args!("refused for want of room: OUT_OF_MEMORY"),
            ),
            Reply::ServerStats(document) => process::complete(document, self.shared),
            Reply::Jobs(list) => {
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
        match self.output.held() < MUCH {
            true => Ok(()),
            false => self.send(),
        }
    }

    /// Sends what is to be sent, behind what somebody else sends.
    fn send(&mut self) -> io::Result<()> {
        if self.output.is_empty() {
            return Ok(());
        }
        // Sending may take as long as the client likes.
        self.permit = None;
        self.await_owed();
        self.count_held();
        let sent = self.output.send(&self.client.stream);
        self.count_held();
        sent
    }

    /// Notes what it holds beyond what each client costs.
    fn count_held(&mut self) {
        self.held
            .set(self.input.held() + self.framer.held() + self.output.held());
    }

    /// Waits until nobody else has anything to send here.
    fn await_owed(&mut self) {
        if std::mem::take(&mut self.is_owed_reply) {
            self.client.await_owed();
        }
    }

    /// Waits for the answer to a `reserve`, with all that was to be said said,
    /// and with as little memory as can be: there may be very many of these.
    fn wait(&mut self) -> io::Result<Answer> {
        self.send()?;
        self.permit = None;
        self.await_owed();
        self.give_back();
        if !self.is_watched {
            self.shared.hangups.watch(self.client)?;
            self.is_watched = true;
        }
        Ok(self.client.wait())
    }

    /// Keeps no buffer that nothing is in.
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

/// A part of a long reply, which is sent as it is made.
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

/// Logs what is asked: a command as it came. Of bodies, which are nobody's
/// business, the size alone; and what is no command may be part of one.
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
