//! Two servers that get the same stream, and all that they answer.
//!
//! After each step both are waited for, by what must come rather than for a
//! time: each request has one reply, and who waits for a job is counted in
//! `stats`, which a client of its own asks for. How many requests there are in
//! the bytes sent is what our framing says: if it errs, the servers differ.

use super::client::{Client, Seen, Stop, is_end};
use super::generate::{Action, CLIENTS, Stream};
use super::telling::{difference, shown, spoken};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::Signal;
use std::fmt::Write as _;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};
use support::{Server, eventually};

/// Streams that take longer may see time pass.
const SLOW: Duration = Duration::from_secs(40);

/// Who waits leaves when it would have sent so many commands meanwhile.
const WAITS: u32 = 20;

const NAMES: [&str; CLIENTS] = ["alice", "bob", "carol", "dave"];

/// What came of a stream.
pub struct Verdict {
    /// What differed, if anything did.
    pub difference: Option<String>,
    /// How many requests both have answered alike.
    pub compared: u64,
    /// What was sent and answered, as transcripts write it.
    pub transcript: String,
}

/// Two servers and their clients.
pub struct Duel {
    servers: [Server; 2],
    controls: [support::Client; 2],
    clients: [Option<Client>; CLIENTS],
    max_job_size: u32,
    patience: Duration,
    /// How many connections each server has had.
    connected: u64,
    /// How many puts were sent, whatever became of them.
    puts: u64,
    compared: u64,
    /// How many commands were left out since their client waits.
    skipped: u32,
    transcript: String,
}

impl Duel {
    /// Plays the stream on fresh servers; one may take so long for what the other
    /// has done.
    pub fn fight(programs: &[PathBuf; 2], stream: &Stream, patience: Duration) -> Verdict {
        // A thread of its own has a deadline of its own for all that it waits for.
        let fight = || Duel::fight_here(programs, stream, patience);
        let verdict = thread::scope(|scope| scope.spawn(fight).join());
        verdict.expect("servers that start and tell statistics")
    }

    fn fight_here(programs: &[PathBuf; 2], stream: &Stream, patience: Duration) -> Verdict {
        let began = Instant::now();
        let size = stream.max_job_size.to_string();
        let servers = programs.each_ref();
        let servers = servers.map(|program| Server::launch(program, ["-z", &size]));
        let mut duel = Duel {
            controls: servers.each_ref().map(Server::connect),
            servers,
            clients: [const { None }; CLIENTS],
            max_job_size: stream.max_job_size,
            patience,
            // With the one by which it was seen that the server listens.
            connected: 2,
            puts: 0,
            compared: 0,
            skipped: 0,
            transcript: format!("server: -z {size}\n"),
        };
        let difference = match duel.play(stream) {
            Ok(()) | Err(Stop::Known) => None,
            Err(Stop::Differ(difference)) => Some(difference),
        };
        Verdict {
            difference: difference.filter(|_| began.elapsed() < SLOW),
            compared: duel.compared,
            transcript: duel.transcript,
        }
    }

    fn play(&mut self, stream: &Stream) -> Result<(), Stop> {
        self.await_connections()?;
        let mut joined: Vec<u8> = Vec::new();
        let mut joined_by = None;
        for action in &stream.actions {
            match action {
                Action::Send {
                    client,
                    bytes,
                    segments,
                    joined: more,
                } => {
                    if joined_by.is_some_and(|other| other != *client) {
                        self.flush(&mut joined, &mut joined_by, 1)?;
                    }
                    if self.is_out_of_turn(*client, bytes, !joined.is_empty()) {
                        // Or else nothing more would come of a client alone.
                        self.skipped += u32::from(self.waits(*client));
                        if self.skipped == WAITS {
                            self.close(*client)?;
                        }
                        continue;
                    }
                    joined.extend_from_slice(bytes);
                    joined_by = Some(*client);
                    let may_wait = bytes.starts_with(b"reserve") || bytes.starts_with(b"quit");
                    if !more || may_wait {
                        self.flush(&mut joined, &mut joined_by, *segments)?;
                    }
                }
                Action::Close(client) => {
                    self.flush(&mut joined, &mut joined_by, 1)?;
                    if self.waiting(1) == 0 || self.waits(*client) {
                        self.close(*client)?;
                    }
                }
                Action::Drain => {
                    self.flush(&mut joined, &mut joined_by, 1)?;
                    self.drain();
                }
            }
        }
        self.flush(&mut joined, &mut joined_by, 1)
    }

    /// Whether this must not be sent now: by a client that waits, or because of
    /// one who does, and the order among those who wait is not the same.
    fn is_out_of_turn(&self, client: usize, bytes: &[u8], is_joined: bool) -> bool {
        if self.waits(client) {
            return true;
        }
        // There, others see a job before its body has come.
        let looks = bytes.starts_with(b"peek ") || bytes.starts_with(b"stats-job");
        if looks
            && self
                .clients
                .iter()
                .flatten()
                .any(|client| client.is_in_body)
        {
            return true;
        }
        let is_delicate = [&b"reserve"[..], b"quit", b"pause-tube"];
        let is_delicate = is_delicate.iter().any(|start| bytes.starts_with(start));
        is_delicate && (self.waiting(1) > 0 || is_joined && bytes.starts_with(b"pause"))
    }

    /// Whether this one waits, there at least.
    fn waits(&self, client: usize) -> bool {
        let waits = |client: &Client| client.is_waiting(1);
        self.clients[client].as_ref().is_some_and(waits)
    }

    fn waiting(&self, side: usize) -> usize {
        let clients = self.clients.iter().flatten();
        clients.filter(|client| client.is_waiting(side)).count()
    }

    /// A client closes its connection, if it has one.
    fn close(&mut self, client: usize) -> Result<(), Stop> {
        self.skipped = 0;
        if self.clients[client].take().is_some() {
            writeln!(self.transcript, "{} (closes)", NAMES[client]).ok();
            self.await_connections()?;
        }
        Ok(())
    }

    /// Sends what was joined, cut into segments, and compares what comes.
    fn flush(
        &mut self,
        joined: &mut Vec<u8>,
        by: &mut Option<usize>,
        segments: usize,
    ) -> Result<(), Stop> {
        let Some(number) = by.take() else {
            return Ok(());
        };
        let bytes = std::mem::take(joined);
        if self.clients[number].is_none() {
            self.clients[number] = Some(Client::connect(&self.servers, self.max_job_size)?);
            self.connected += 1;
            // Others may ask how many there are.
            self.await_connections()?;
        }
        let max_job_size = self.max_job_size;
        let client = self.clients[number].as_mut().expect("it is connected");
        match client.understand(&bytes, max_job_size, segments) {
            Some(puts) => self.puts += puts,
            // It leaves instead of sending what is meant to be different.
            None if self.waiting(1) == 0 => return self.close(number),
            None => return Err(Stop::Known),
        }
        let client = self.clients[number].as_mut().expect("it is connected");
        self.transcript += &spoken(NAMES[number], &bytes);
        let length = bytes.len().div_ceil(segments).max(1);
        for seen in &mut client.seen {
            seen.stream.set_nonblocking(false)?;
            for segment in bytes.chunks(length) {
                if segments > 1 {
                    thread::yield_now();
                }
                match seen.stream.write_all(segment) {
                    Err(error) if !is_end(&error) => return Err(error.into()),
                    // If it must not have closed, that will be seen.
                    _ => {}
                }
            }
            seen.stream.set_nonblocking(true)?;
        }
        self.settle()?;
        if self.clients[number]
            .as_ref()
            .is_some_and(|client| client.is_ended)
        {
            self.clients[number] = None;
            self.await_connections()?;
        }
        Ok(())
    }

    /// Waits until both servers have answered what they can, and compares.
    fn settle(&mut self) -> Result<(), Stop> {
        let give_up = Instant::now() + self.patience;
        loop {
            for client in self.clients.iter_mut().flatten() {
                client.receive()?;
            }
            let agree = self.compare()?;
            let is_answered = agree && self.has_answered(0) && self.has_answered(1);
            if is_answered && self.are_at_rest()? {
                return Ok(());
            }
            let Some(left) = give_up.checked_duration_since(Instant::now()) else {
                return Err(Stop::Differ(self.unsettled()));
            };
            if !is_answered {
                self.await_replies(left)?;
            }
        }
    }

    /// Whether each request is answered by this server, or its client waits.
    fn has_answered(&self, side: usize) -> bool {
        let open = self.clients.iter().flatten();
        let mut open = open.filter(|client| client.seen[side].replies.len() < client.due.len());
        open.all(|client| client.is_waiting(side))
    }

    /// Waits until something can be read of what is due, or for so long.
    fn await_replies(&self, longest: Duration) -> Result<(), Stop> {
        let mut due = Vec::new();
        for client in self.clients.iter().flatten() {
            let seen = client.seen.iter();
            let seen = seen.filter(|seen| seen.replies.len() < client.due.len());
            due.extend(seen.map(|seen| PollFd::new(seen.stream.as_fd(), PollFlags::POLLIN)));
        }
        let longest = PollTimeout::try_from(longest).unwrap_or(PollTimeout::MAX);
        match poll(&mut due, longest) {
            Ok(_) | Err(Errno::EINTR) => Ok(()),
            Err(error) => Err(io::Error::from(error).into()),
        }
    }

    /// Whether nothing more comes from either server: where something could, it
    /// says itself that it has seen all puts, and who waits.
    fn are_at_rest(&mut self) -> Result<bool, Stop> {
        // The line of such a put has no reply, but the job has its id.
        let is_in_body = |client: &Client| client.is_in_body;
        let is_in_body = self.clients.iter().flatten().any(is_in_body);
        let waiting = [0, 1].map(|side| self.waiting(side));
        if !is_in_body && waiting == [0, 0] {
            return Ok(true);
        }
        let mut at_rest = true;
        for (control, waiting) in self.controls.iter_mut().zip(waiting) {
            let stats = control.document("stats");
            at_rest &= !is_in_body || number_in(&stats, "cmd-put")? == self.puts;
            at_rest &= number_in(&stats, "current-waiting")? == waiting as u64;
        }
        Ok(at_rest)
    }

    /// Waits until both have noticed who has gone.
    fn await_connections(&mut self) -> Result<(), Stop> {
        let open = 1 + self.clients.iter().flatten().count() as u64;
        let give_up = Instant::now() + self.patience;
        for side in [0, 1] {
            loop {
                let stats = self.controls[side].document("stats");
                if number_in(&stats, "current-connections")? == open
                    && number_in(&stats, "total-connections")? == self.connected
                {
                    break;
                }
                if Instant::now() > give_up {
                    let side = ["ours", "theirs"][side];
                    return Err(Stop::Differ(format!("{side} keeps a connection")));
                }
            }
        }
        self.settle()
    }

    fn drain(&mut self) {
        self.transcript += "-- the server receives SIGUSR1\n";
        for (server, control) in self.servers.iter().zip(&mut self.controls) {
            server.signal(Signal::SIGUSR1);
            eventually("it drains", || control.stat("draining") == "true");
        }
    }

    /// Compares what both have answered; whether neither is ahead.
    fn compare(&mut self) -> Result<bool, Stop> {
        let mut agree = true;
        for (client, name) in self.clients.iter_mut().zip(NAMES) {
            let Some(client) = client else { continue };
            let [ours, theirs] = &client.seen;
            while let (Some(our), Some(their)) = (
                ours.replies.get(client.agreed),
                theirs.replies.get(client.agreed),
            ) {
                if our != their {
                    self.transcript += &format!(
                        "beanpole|   {name}< {}\nbeanstalkd| {name}< {}\n",
                        shown(our),
                        shown(their)
                    );
                    return Err(Stop::Differ(difference(our, their)));
                }
                writeln!(self.transcript, "{name}< {}", shown(our)).ok();
                client.agreed += 1;
                self.compared += 1;
            }
            agree &= ours.replies.len() == theirs.replies.len();
            let extra = |seen: &Seen| seen.replies.len() > client.due.len();
            if extra(ours) || extra(theirs) {
                return Err(Stop::Differ("a reply to no request".into()));
            }
        }
        Ok(agree)
    }

    /// What one of the servers still owes.
    fn unsettled(&self) -> String {
        let mut text = "one has answered what the other has not:".to_string();
        for (client, name) in self.clients.iter().zip(NAMES) {
            let Some(client) = client else { continue };
            let [ours, theirs] = client.seen.each_ref().map(|seen| {
                let rest = &seen.replies[client.agreed..];
                rest.iter().map(|reply| shown(reply)).collect::<Vec<_>>()
            });
            let due = &client.due[client.agreed..];
            if !due.is_empty() {
                write!(
                    text,
                    " {name}: due {due:?}, ours {ours:?}, theirs {theirs:?}"
                )
                .ok();
            }
        }
        text
    }
}

/// The number of this key in the document of `stats`.
fn number_in(document: &str, key: &str) -> Result<u64, Stop> {
    let mut lines = document.lines().filter_map(|line| line.split_once(": "));
    let found = lines.find(|(name, _)| *name == key);
    let number = found.and_then(|(_, value)| value.parse().ok());
    number.ok_or_else(|| Stop::Differ(format!("no {key} in stats")))
}
