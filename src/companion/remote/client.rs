//! A connection to a server, as a client uses it.
//!
//! Requests are written in the protocol's own words. They may be queued before
//! the earlier ones have their replies. While the client waits for a reply, it
//! also sends what is queued. So no number of requests makes the two sides wait
//! for each other. Nothing here connects again: only the caller knows what was
//! lost.

use crate::failure::{Failure, Outcome, plain};
use crate::remote::{Address, Facts, JobFacts, RawReply, Reply, Server, facts};
use crate::signals::timeout_until;
use beanpole::protocol::{JobId, TubeName};
use nix::poll::{PollFd, PollFlags, poll};
use std::collections::VecDeque;
use std::fmt;
use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::os::fd::{AsFd, BorrowedFd};
use std::thread;
use std::time::{Duration, Instant};

/// How long connecting may take, and each reply that the server owes at once,
/// if the caller gives no other time.
pub const PATIENCE: Duration = Duration::from_secs(10);

/// How many requests may be under way at most.
const WINDOW: usize = 1000;
/// No more requests are queued while this many bytes wait to be sent.
const WINDOW_BYTES: usize = 1 << 18;

/// How many times longer than one reply all replies to some questions may take together.
const MANY: u32 = 6;
/// How many bytes they may have together: those about 400,000 tubes.
const MANY_BYTES: u64 = 1 << 28;

/// What is said of a server that exceeds one of these.
const NO_END: &str = "its answers come to no end";

/// An open connection.
pub struct Client {
    pub address: Address,
    /// How long the client waits for a reply.
    pub patience: Duration,
    /// When it waits for none any more.
    until: Option<Instant>,
    /// How many bytes of the server were kept, as the first ones are, and how many may be.
    received: u64,
    most: u64,
    /// How many bytes of a body are kept.
    wanted: u64,
    /// Whether the server has beanpoled's extensions, once this was asked.
    is_extended: Option<bool>,
    stream: TcpStream,
    /// Bytes that were received and not parsed yet.
    input: VecDeque<u8>,
    /// How many bytes to come are the end of a body that nobody wants.
    unwanted: usize,
    /// Bytes that have to be sent.
    output: VecDeque<u8>,
}

/// What ended [`Client::wait`].
#[derive(Debug, PartialEq, Eq)]
pub enum Event {
    /// The reply to the oldest request that had none.
    Reply(RawReply),
    /// The time is up.
    Time,
    /// One of the other descriptors can be read.
    Other,
}

impl Client {
    /// Connects. No reply may take longer than `patience`.
    pub fn connect(address: &Address, patience: Duration) -> Outcome<Client> {
        let stream = address.connect(patience).map_err(|error| {
            Failure::Unreachable(format!("cannot connect to {address}: {}", plain(error)))
        });
        Ok(Client {
            address: address.clone(),
            stream: stream?,
            input: VecDeque::new(),
            output: VecDeque::new(),
            patience,
            until: None,
            received: 0,
            most: u64::MAX,
            wanted: u64::MAX,
            unwanted: 0,
            is_extended: None,
        })
    }

    /// Connects. All replies have to come until then.
    pub fn connect_until(address: &Address, until: Instant) -> Outcome<Client> {
        let patience = until.saturating_duration_since(Instant::now());
        let mut client = Client::connect(address, patience.max(Duration::from_millis(1)))?;
        client.until = Some(until);
        Ok(client)
    }

    /// Connects to the first of these servers that serves. If there are
    /// several, one that accepts a connection and does not answer does not.
    pub fn first_of(servers: &[Server], patience: Duration) -> Outcome<Client> {
        let mut reasons = Vec::new();
        for server in servers {
            let client = Client::connect(&server.address, patience).and_then(|mut client| {
                if servers.len() > 1 {
                    client.call("list-tube-used")?;
                }
                Ok(client)
            });
            match client {
                Ok(client) => return Ok(client),
                Err(failure) => reasons.push(server.of_it(failure).to_string()),
            }
        }
        Err(Failure::Unreachable(reasons.join("; ")))
    }

    /// Asks questions whose replies come to their end, whatever the server sends: together
    /// they may have a bounded time and a bounded size, and of each body only this many
    /// bytes are kept.
    pub fn within<T>(
        &mut self,
        wanted: u64,
        ask: impl FnOnce(&mut Client) -> Outcome<T>,
    ) -> Outcome<T> {
        let before = (self.until, self.most, self.wanted);
        let until = Instant::now() + self.patience * MANY;
        self.until = Some(self.until.map_or(until, |own| own.min(until)));
        self.most = self.most.min(self.received.saturating_add(MANY_BYTES));
        self.wanted = wanted;
        let answer = ask(self);
        (self.until, self.most, self.wanted) = before;
        answer
    }

    /// Queues a request of one line; CR LF is added.
    pub fn queue(&mut self, line: impl fmt::Display) {
        // Writing to memory does not fail.
        let _ = write!(self.output, "{line}\r\n");
    }

    /// Queues these bytes as they are.
    pub fn queue_bytes(&mut self, bytes: &[u8]) {
        self.output.extend(bytes);
    }

    /// Whether the server has beanpoled's extensions: lists of jobs, tubes and
    /// connections, `reserve-with-stats`, and the options of a put. A server without
    /// them would read the body of such a put as commands.
    pub fn is_extended(&mut self) -> Outcome<bool> {
        if let Some(known) = self.is_extended {
            return Ok(known);
        }
        let line = format!("list-tube-stats {} 1", u64::MAX);
        let is_extended = match self.call(&line)? {
            Reply::Ok(_) => true,
            Reply::Refused("UNKNOWN_COMMAND") => false,
            other => return Err(Failure::unexpected(line, &other)),
        };
        self.is_extended = Some(is_extended);
        Ok(is_extended)
    }

    /// The request for a job that waits up to this number of seconds, or for ever. The
    /// reply has what `stats-job` would show, if the server can tell it.
    pub fn reserve(&mut self, wait: Option<u64>) -> Outcome<String> {
        Ok(match (self.is_extended()?, wait) {
            (true, None) => "reserve-with-stats".into(),
            (true, Some(wait)) => format!("reserve-with-stats {wait}"),
            (false, None) => "reserve".into(),
            (false, Some(wait)) => format!("reserve-with-timeout {wait}"),
        })
    }

    /// The reply to a request of one line.
    pub fn call(&mut self, line: impl fmt::Display) -> Outcome<Reply> {
        self.queue(line);
        self.reply()
    }

    /// What the reply to a request of one line says, as `read` understands it.
    pub fn ask<R>(
        &mut self,
        line: impl fmt::Display,
        read: impl FnOnce(Reply, &str) -> Outcome<R>,
    ) -> Outcome<R> {
        let line = line.to_string();
        read(self.call(&line)?, &line)
    }

    /// Waits for the next reply.
    pub fn reply(&mut self) -> Outcome<Reply> {
        let until = Instant::now() + self.patience;
        self.reply_by(self.until.map_or(Some(until), |all| Some(until.min(all))))
    }

    /// Waits for the next reply until this time, or for ever.
    pub fn reply_by(&mut self, until: Option<Instant>) -> Outcome<Reply> {
        match self.wait(until, &[])? {
            Event::Reply(reply) => self.understand(reply),
            _ => Err(self.silent()),
        }
    }

    /// The failure that says that no reply came in time.
    pub fn silent(&self) -> Failure {
        // What is left of a deadline has many digits.
        let patience = (self.patience.as_secs_f64() * 10.0).round() / 10.0;
        // beanstalkd leaves those whom it cannot accept in the queue of the system.
        let why = self.if_unheard(": it hangs, or has as many connections as it takes");
        self.lost(format_args!("no reply within {patience} s{why}"))
    }

    /// This, if the server has not said anything yet.
    fn if_unheard(&self, hint: &'static str) -> &'static str {
        if self.received > 0 { "" } else { hint }
    }

    /// The meaning of this reply.
    pub fn understand(&self, reply: RawReply) -> Outcome<Reply> {
        reply.understand().map_err(|reason| self.lost(reason))
    }

    /// Makes a request about each of these, pipelined, and handles the replies, in order.
    /// `ask` queues one request.
    pub fn pipeline<T>(
        &mut self,
        about: impl IntoIterator<Item = T>,
        mut ask: impl FnMut(&mut Client, &T),
        mut answer: impl FnMut(T, Reply) -> Outcome<()>,
    ) -> Outcome<()> {
        let (mut about, mut asked) = (about.into_iter().fuse(), VecDeque::new());
        loop {
            while asked.len() < WINDOW
                && self.output.len() < WINDOW_BYTES
                && let Some(one) = about.next()
            {
                ask(self, &one);
                asked.push_back(one);
            }
            let Some(one) = asked.pop_front() else {
                return Ok(());
            };
            answer(one, self.reply()?)?;
        }
    }

    /// Sends the queued bytes and waits for a reply, until `until` comes or one
    /// of `others` can be read. If it stops waiting, some bytes may still be
    /// queued.
    pub fn wait(&mut self, until: Option<Instant>, others: &[BorrowedFd<'_>]) -> Outcome<Event> {
        loop {
            if let Some(reply) = self.take_reply()? {
                return Ok(Event::Reply(reply));
            }
            // Bytes may come for ever.
            if self.until.is_some_and(|until| until <= Instant::now()) {
                return Err(self.lost(NO_END));
            }
            let mut interest = PollFlags::POLLIN;
            if !self.output.is_empty() {
                interest |= PollFlags::POLLOUT;
            }
            let mut fds = vec![PollFd::new(self.stream.as_fd(), interest)];
            fds.extend(others.iter().map(|&fd| PollFd::new(fd, PollFlags::POLLIN)));
            match poll(&mut fds, timeout_until(until)) {
                Ok(0) if until.is_some_and(|until| until <= Instant::now()) => {
                    return Ok(Event::Time);
                }
                Ok(_) | Err(nix::Error::EINTR) => {}
                Err(errno) => return Err(self.lost(io::Error::from(errno))),
            }
            let ours = fds[0].revents().unwrap_or(PollFlags::empty());
            let is_other = fds[1..].iter().any(|fd| fd.any() == Some(true));
            if ours.contains(PollFlags::POLLOUT) {
                self.send_some()?;
            }
            if ours.intersects(PollFlags::POLLIN | PollFlags::POLLHUP | PollFlags::POLLERR) {
                self.receive_some()?;
            } else if is_other {
                return Ok(Event::Other);
            }
        }
    }

    /// The next reply, if all of it is there.
    fn take_reply(&mut self) -> Outcome<Option<RawReply>> {
        let parsed = RawReply::parse(self.input.make_contiguous(), self.wanted);
        Ok(parsed
            .map_err(|reason| self.lost(reason))?
            .map(|(reply, length)| {
                self.unwanted = length.saturating_sub(self.input.len());
                self.input.drain(..length - self.unwanted);
                reply
            }))
    }

    fn send_some(&mut self) -> Outcome<()> {
        match self.stream.write(self.output.as_slices().0) {
            Ok(count) => drop(self.output.drain(..count)),
            Err(error) if is_passing(&error) => {}
            // The server may have said why before it closed the connection, so
            // we still read.
            Err(error) if error.kind() == ErrorKind::BrokenPipe => self.output.clear(),
            Err(error) => return Err(self.lost(error)),
        }
        Ok(())
    }

    fn receive_some(&mut self) -> Outcome<()> {
        let mut buffer = [0; 1 << 16];
        match self.stream.read(&mut buffer) {
            Ok(0) => Err(self.ended("the server closed the connection")),
            Ok(count) => {
                let unwanted = self.unwanted.min(count);
                self.unwanted -= unwanted;
                self.input.extend(&buffer[unwanted..count]);
                self.received += (count - unwanted) as u64;
                match self.received > self.most {
                    true => Err(self.lost(NO_END)),
                    false => Ok(()),
                }
            }
            Err(error) if is_passing(&error) => Ok(()),
            Err(error) => Err(self.ended(error)),
        }
    }

    /// The failure that says that the server has ended the connection.
    fn ended(&self, reason: impl fmt::Display) -> Failure {
        let why = self.if_unheard(": perhaps it has as many connections as it takes");
        self.lost(format_args!("{}{why}", plain(reason)))
    }

    fn lost(&self, reason: impl fmt::Display) -> Failure {
        Failure::Unreachable(format!("{}: {}", self.address, plain(reason)))
    }

    /// Sends a request of one line about each of these, pipelined, and handles
    /// the replies. `answer` gets the line, too, for its messages.
    pub fn each<T>(
        &mut self,
        about: impl IntoIterator<Item = T>,
        line: impl Fn(&T) -> String,
        mut answer: impl FnMut(T, &str, Reply) -> Outcome<()>,
    ) -> Outcome<()> {
        let about = about.into_iter().map(|one| (line(&one), one));
        let ask = |client: &mut Client, (line, _): &(String, T)| client.queue(line);
        self.pipeline(about, ask, |(line, one), reply| answer(one, &line, reply))
    }

    /// The same, for replies that are all kept, as `read` understands them.
    pub fn all<T, R>(
        &mut self,
        about: impl IntoIterator<Item = T>,
        line: impl Fn(&T) -> String,
        read: impl Fn(Reply, &str) -> Outcome<R>,
    ) -> Outcome<Vec<(T, R)>> {
        let mut answers = Vec::new();
        self.each(about, line, |one, line, reply| {
            answers.push((one, read(reply, line)?));
            Ok(())
        })?;
        Ok(answers)
    }
}

/// Requests that the companion makes in many places.
impl Client {
    /// Makes this the tube of `put`, `peek-ready` and `kick`.
    pub fn use_tube(&mut self, tube: &TubeName) -> Outcome<()> {
        self.ask(format_args!("use {tube}"), Reply::done)
    }

    /// Makes `reserve` take jobs from these tubes and no others.
    pub fn watch_only(&mut self, tubes: &[TubeName]) -> Outcome<()> {
        let default = TubeName::default();
        let others = tubes.iter().filter(|tube| **tube != default);
        let mut lines: Vec<String> = others.map(|tube| format!("watch {tube}")).collect();
        if !tubes.contains(&default) {
            lines.push(format!("ignore {default}"));
        }
        self.each(lines, String::clone, |_, line, reply| reply.done(line))
    }

    /// The statistics of the server, with those that only beanpoled has.
    pub fn server_stats(&mut self) -> Outcome<Facts> {
        self.queue("stats");
        self.queue("list-server-stats");
        let (told, more) = (self.reply()?, self.reply()?);
        let mut told = told.read("stats", Facts::parse)?;
        // Other servers have no such command.
        if let Reply::Ok(_) = more {
            let more = more.read("list-server-stats", Facts::parse)?;
            more.iter()
                .for_each(|(key, value)| told.add_missing(key, value));
        }
        Ok(told)
    }

    /// The jobs among these that exist, in the given order, as far as the server tells.
    pub fn jobs(&mut self, ids: impl IntoIterator<Item = JobId>) -> Outcome<Vec<JobFacts>> {
        // beanpoled tells more in a list than in `stats-job`.
        let are_listed = self.is_extended()?;
        let line = |id: &JobId| match are_listed {
            true => format!("list-jobs {id} 1"),
            false => format!("stats-job {id}"),
        };
        let mut found = Vec::new();
        self.each(ids, line, |id, line, reply| {
            let told = match are_listed {
                // If it does not exist, the list begins with the next one.
                true => reply.listed(line)?.0.into_iter().next(),
                false => reply.facts(line)?,
            };
            let own = told.filter(|told| told.number("id") == id.0);
            found.extend(own.map_or(Ok(None), JobFacts::read)?);
            Ok(())
        })?;
        Ok(found)
    }

    /// What the server tells of a job, if it exists.
    pub fn job(&mut self, id: JobId) -> Outcome<Option<JobFacts>> {
        Ok(self.jobs([id])?.pop())
    }

    /// The statistics of a tube, if it exists.
    pub fn tube_stats(&mut self, tube: &TubeName) -> Outcome<Option<Facts>> {
        self.ask(format_args!("stats-tube {tube}"), Reply::facts)
    }

    /// The statistics of a tube; it is a failure if the tube does not exist.
    pub fn known_tube(&mut self, tube: &TubeName) -> Outcome<Facts> {
        let facts = self.tube_stats(tube)?;
        facts.ok_or_else(|| Failure::no_tube(tube))
    }

    /// All tubes, sorted by name.
    pub fn tubes(&mut self) -> Outcome<Vec<TubeName>> {
        let reply = self.call("list-tubes")?;
        let mut tubes = reply.read("list-tubes", facts::tubes)?;
        tubes.sort();
        Ok(tubes)
    }
}

/// Asks these servers at the same time, so that one that is silent delays no other.
pub fn ask_all<S: Sync, T: Send>(servers: &[S], ask: impl Fn(&S) -> T + Sync) -> Vec<T> {
    let ask = &ask;
    thread::scope(|scope| {
        let asking = servers
            .iter()
            .map(|server| scope.spawn(move || ask(server)));
        let asking: Vec<_> = asking.collect();
        let answers = asking.into_iter().map(|asked| asked.join());
        answers
            .map(|answer| answer.expect("a question does not panic"))
            .collect()
    })
}

/// Whether an operation that ended with this error may simply be tried again.
fn is_passing(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted)
}
