//! Two servers that get the same stream, and all that they answer.
//!
//! After each step both have come to rest, so all has come that comes of it. Our framing
//! says which requests there are in the bytes, and so whether the servers are meant to
//! answer them alike. If it errs, the servers differ.

use super::generate::{Action, CLIENTS, Stream};
use super::mask::masked;
use beanpole::protocol::{Command, Framer, Request};
use nix::sys::signal::Signal;
use std::fmt::Write as _;
use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};
use support::watched::Watched;

/// Streams that take longer may see time pass.
const SLOW: Duration = Duration::from_secs(40);

/// A client that waits leaves when it would have sent this many commands meanwhile.
const WAITS: u32 = 20;

const NAMES: [&str; CLIENTS] = ["alice", "bob", "carol", "dave"];

/// What came of a stream.
pub struct Verdict {
    /// What differed, if anything did.
    pub difference: Option<String>,
    /// How many steps both have answered alike.
    pub compared: u64,
    /// What was sent and answered, as transcripts write it.
    pub transcript: String,
}

/// Two servers and their clients.
pub struct Duel {
    servers: [Watched; 2],
    clients: [Option<Client>; CLIENTS],
    /// The client that waits for a job. There is one at most, since the order among
    /// those that wait is not the same.
    waiting: Option<usize>,
    /// How many commands were left out since it waits.
    skipped: u32,
    max_job_size: u32,
    patience: Duration,
    compared: u64,
    transcript: String,
}

/// A client, connected to both servers.
struct Client {
    sides: [Side; 2],
    framer: Framer,
    /// What it has sent and the framing has not understood yet.
    input: Vec<u8>,
    /// Whether the body of a put is still to come, or a part of it.
    is_in_body: bool,
    /// Whether the last request may have to wait for its answer.
    may_wait: bool,
}

/// A connection to one of the servers.
struct Side {
    stream: TcpStream,
    /// What has come and was not yet compared.
    come: Vec<u8>,
    is_ended: bool,
}

/// Why a duel ends early.
enum Stop {
    Differ(String),
    /// The stream has come to one of the differences that are meant.
    Known,
}

impl From<io::Error> for Stop {
    fn from(error: io::Error) -> Stop {
        Stop::Differ(error.to_string())
    }
}

impl Duel {
    /// Plays the stream on fresh servers; one may take so long for what the other
    /// has done.
    pub fn fight(programs: &[PathBuf; 2], stream: &Stream, patience: Duration) -> Verdict {
        let began = Instant::now();
        let size = stream.max_job_size.to_string();
        let servers = programs.each_ref();
        let mut duel = Duel {
            servers: servers.map(|program| Watched::start(program, ["-z", &size])),
            clients: [const { None }; CLIENTS],
            waiting: None,
            skipped: 0,
            max_job_size: stream.max_job_size,
            patience,
            compared: 0,
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
        for action in &stream.actions {
            match action {
                Action::Send { client, bytes, .. } if self.is_out_of_turn(*client, bytes) => {
                    // Or else nothing more would come of a client alone.
                    self.skipped += u32::from(self.waiting == Some(*client));
                    if self.skipped == WAITS {
                        self.close(*client)?;
                    }
                }
                Action::Send {
                    client,
                    bytes,
                    segments,
                } => self.send(*client, bytes, *segments)?,
                Action::Close(client) => {
                    if self.waiting.is_none_or(|waiting| waiting == *client) {
                        self.close(*client)?;
                    }
                }
                Action::Drain => {
                    self.transcript += "-- the server receives SIGUSR1\n";
                    for server in &self.servers {
                        server.process.signal(Signal::SIGUSR1);
                    }
                    self.settle()?;
                }
            }
        }
        Ok(())
    }

    /// Whether this must not be sent now: by a client that waits, or because of one that
    /// does.
    fn is_out_of_turn(&self, client: usize, bytes: &[u8]) -> bool {
        let says = |command: &&str| {
            let mut lines = bytes.split(|&byte| byte == b'\n');
            lines.any(|line| line.starts_with(command.as_bytes()))
        };
        let mut clients = self.clients.iter().flatten();
        self.waiting == Some(client)
            || self.waiting.is_some() && ["reserve", "quit", "pause-tube"].iter().any(says)
            // There, others see a job before its body has come.
            || ["peek ", "stats-job"].iter().any(says) && clients.any(|client| client.is_in_body)
    }

    /// A client closes its connection, if it has one.
    fn close(&mut self, client: usize) -> Result<(), Stop> {
        if self.waiting == Some(client) {
            (self.waiting, self.skipped) = (None, 0);
        }
        if self.clients[client].take().is_some() {
            writeln!(self.transcript, "{} (closes)", NAMES[client]).ok();
            self.settle()?;
        }
        Ok(())
    }

    /// Sends bytes, cut into segments, and compares what comes.
    fn send(&mut self, number: usize, bytes: &[u8], segments: usize) -> Result<(), Stop> {
        if self.clients[number].is_none() {
            self.clients[number] = Some(Client::connect(&mut self.servers, self.max_job_size)?);
        }
        let client = self.clients[number].as_mut().expect("it is connected");
        match client.is_understood_alike(bytes, segments) {
            true => {}
            // It leaves instead.
            false if self.waiting.is_none() => return self.close(number),
            false => return Err(Stop::Known),
        }
        writeln!(self.transcript, "{}: {}", NAMES[number], shown(bytes)).ok();
        let length = bytes.len().div_ceil(segments);
        for side in &mut client.sides {
            side.stream.set_nonblocking(false)?;
            for segment in bytes.chunks(length) {
                if segments > 1 {
                    thread::yield_now();
                }
                match side.stream.write_all(segment) {
                    Err(error) if !is_end(&error) => return Err(error.into()),
                    // If it must not have closed, that will be seen.
                    _ => {}
                }
            }
            side.stream.set_nonblocking(true)?;
        }
        let may_wait = client.may_wait;
        let is_answered = self.settle()?.contains(&number);
        if may_wait && !is_answered {
            self.waiting = Some(number);
        }
        Ok(())
    }

    /// Waits until both servers have dealt with what was sent, and compares what has
    /// come. Returns the clients to which something has come.
    fn settle(&mut self) -> Result<Vec<usize>, Stop> {
        for server in &mut self.servers {
            server.act_and_rest(self.patience)?;
        }
        let give_up = Instant::now() + self.patience;
        loop {
            for client in self.clients.iter_mut().flatten() {
                client.sides.iter_mut().try_for_each(Side::receive)?;
            }
            match self.difference() {
                None => break,
                Some(difference) if Instant::now() > give_up => {
                    return Err(Stop::Differ(difference));
                }
                // It may still be on its way.
                Some(_) => thread::sleep(Duration::from_millis(1)),
            }
        }
        let mut answered = Vec::new();
        for (number, place) in self.clients.iter_mut().enumerate() {
            let Some(client) = place else { continue };
            let [come, _] = client
                .sides
                .each_mut()
                .map(|side| std::mem::take(&mut side.come));
            if !come.is_empty() {
                writeln!(self.transcript, "{}< {}", NAMES[number], shown(&come)).ok();
                answered.push(number);
            }
            if client.sides[0].is_ended {
                *place = None;
            }
        }
        if self
            .waiting
            .is_some_and(|waiting| answered.contains(&waiting))
        {
            (self.waiting, self.skipped) = (None, 0);
        }
        self.compared += 1;
        Ok(answered)
    }

    /// The first line in which what has come from the two is different.
    fn difference(&self) -> Option<String> {
        let named = self.clients.iter().zip(NAMES);
        let mut clients = named.filter_map(|(client, name)| Some((client.as_ref()?, name)));
        clients.find_map(|(client, name)| {
            let [ours, theirs] = client.sides.each_ref().map(|side| masked(&side.come));
            let lines = |bytes: &[u8]| bytes.split(|&byte| byte == b'\n').map(shown).collect();
            let (ours, theirs): (Vec<_>, Vec<_>) = (lines(&ours), lines(&theirs));
            let longest = ours.len().max(theirs.len());
            let differs = |at: &usize| ours.get(*at) != theirs.get(*at);
            let at = (0..longest).find(differs)?;
            let [our, their] = [ours, theirs].map(|lines| lines.get(at).cloned());
            Some(format!("{name}: ours {our:?}, theirs {their:?}"))
        })
    }
}

impl Client {
    fn connect(servers: &mut [Watched; 2], max_job_size: u32) -> Result<Client, Stop> {
        let connect = |server: &mut Watched| {
            let stream = server.connect()?;
            stream.set_nonblocking(true)?;
            io::Result::Ok(Side {
                stream,
                come: Vec::new(),
                is_ended: false,
            })
        };
        let [ours, theirs] = servers;
        Ok(Client {
            sides: [connect(ours)?, connect(theirs)?],
            framer: Framer::new(max_job_size),
            input: Vec::new(),
            is_in_body: false,
            may_wait: false,
        })
    }

    /// Whether the servers are meant to answer these bytes alike.
    fn is_understood_alike(&mut self, bytes: &[u8], segments: usize) -> bool {
        self.input.extend_from_slice(bytes);
        let mut unread = &self.input[..];
        loop {
            let before = unread;
            let Some(request) = self.framer.next(&mut unread) else {
                break;
            };
            let line = &before[..before.len() - unread.len()];
            self.is_in_body = matches!(
                request,
                Request::Command(_, Command::Put(_) | Command::PutTooBig)
            );
            self.may_wait = matches!(request, Request::Command(_, Command::Reserve(_)));
            match request {
                Request::Refused(_) if loses_its_end(line, segments) => return false,
                Request::Http => return false,
                Request::Command(_, Command::Quit) => break,
                _ => {}
            }
        }
        let left = unread.len();
        self.input.drain(..self.input.len() - left);
        true
    }
}

impl Side {
    /// Takes what has come.
    fn receive(&mut self) -> Result<(), Stop> {
        let mut buffer = [0; 4096];
        while !self.is_ended {
            match self.stream.read(&mut buffer) {
                Ok(count @ 1..) => self.come.extend_from_slice(&buffer[..count]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) if !is_end(&error) => return Err(error.into()),
                Ok(0) | Err(_) => {
                    self.come.extend_from_slice(b"(is closed)");
                    self.is_ended = true;
                }
            }
        }
        Ok(())
    }
}

fn is_end(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::ConnectionReset | ErrorKind::BrokenPipe
    )
}

/// Whether beanstalkd does not see where this line ends, which is too long: the
/// CR LF is cut in two by its buffer or by a segment, or hidden by another CR.
fn loses_its_end(line: &[u8], segments: usize) -> bool {
    let Some(rest) = line.get(224..) else {
        return false;
    };
    rest.len() % 224 == 1 || segments > 1 || rest.iter().filter(|&&byte| byte == b'\r').count() > 1
}

/// Bytes as a transcript shows them, the end of long ones left out.
fn shown(bytes: &[u8]) -> String {
    match bytes.len() {
        ..=300 => bytes.escape_ascii().to_string(),
        all => format!("{}... ({all} bytes)", bytes[..200].escape_ascii()),
    }
}
