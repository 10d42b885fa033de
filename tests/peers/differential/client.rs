//! A client of both servers: what is due to it for what it has sent, and what
//! has come.

use super::mask::masked;
use beanpole::protocol::{Command, Framer, Request};
use std::io::{self, ErrorKind, Read};
use std::net::TcpStream;
use support::Server;

/// What one of the servers has sent to one client.
pub struct Seen {
    pub stream: TcpStream,
    unread: Vec<u8>,
    /// Its replies, masked; the end of the connection is one as well.
    pub replies: Vec<Vec<u8>>,
}

/// A client, connected to both servers.
pub struct Client {
    framer: Framer,
    /// What it has sent and the framing has not understood yet.
    input: Vec<u8>,
    /// Whether the body of a put is still to come, or a part of it.
    pub is_in_body: bool,
    pub due: Vec<Due>,
    /// How many replies were compared.
    pub agreed: usize,
    pub seen: [Seen; 2],
    pub is_ended: bool,
}

/// What is due for a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Due {
    Reply,
    /// A reply, now or when there is a job.
    ReplyOrWaiting,
    /// The end of the connection.
    End,
}

/// Why a duel ends early.
pub enum Stop {
    Differ(String),
    /// The stream has come to one of the differences that are meant.
    Known,
}

impl From<io::Error> for Stop {
    fn from(error: io::Error) -> Stop {
        Stop::Differ(error.to_string())
    }
}

impl Client {
    /// One that has just come to both.
    pub fn connect(servers: &[Server; 2], max_job_size: u32) -> Result<Client, Stop> {
        let connect = |server: &Server| {
            let stream = server.connect().into_stream();
            stream.set_nonblocking(true)?;
            io::Result::Ok(Seen {
                stream,
                unread: Vec::new(),
                replies: Vec::new(),
            })
        };
        let [ours, theirs] = servers;
        Ok(Client {
            framer: Framer::new(max_job_size),
            input: Vec::new(),
            is_in_body: false,
            due: Vec::new(),
            agreed: 0,
            seen: [connect(ours)?, connect(theirs)?],
            is_ended: false,
        })
    }

    /// Whether the first request that this server has not answered may wait.
    pub fn is_waiting(&self, side: usize) -> bool {
        self.due.get(self.seen[side].replies.len()) == Some(&Due::ReplyOrWaiting)
    }

    /// Notes what is due for these bytes; how many puts were among them. None if
    /// the servers are meant to answer them differently.
    pub fn understand(&mut self, bytes: &[u8], max_job_size: u32, segments: usize) -> Option<u64> {
        let mut puts = 0;
        self.input.extend_from_slice(bytes);
        let mut unread = &self.input[..];
        if self.due.last() == Some(&Due::End) {
            return Some(0);
        }
        loop {
            let before = unread;
            let Some(request) = self.framer.next(&mut unread) else {
                break;
            };
            let line = &before[..before.len() - unread.len()];
            let is_put = matches!(request, Request::Command(Command::Put(_)));
            puts += u64::from(is_put);
            self.is_in_body = is_put;
            match request {
                Request::Refused(_) if loses_its_end(line, segments) => return None,
                // What follows its numbers is no body then.
                Request::Command(Command::Put(put)) if put.trailing && put.size <= max_job_size => {
                    self.is_in_body = false;
                    self.due.push(Due::Reply);
                }
                Request::Command(Command::Put(_)) => {}
                Request::Command(Command::Quit) => {
                    self.due.push(Due::End);
                    break;
                }
                other if other.may_wait() => self.due.push(Due::ReplyOrWaiting),
                _ => self.due.push(Due::Reply),
            }
        }
        let left = unread.len();
        self.input.drain(..self.input.len() - left);
        Some(puts)
    }

    /// Takes what has come from both servers.
    pub fn receive(&mut self) -> Result<(), Stop> {
        for seen in &mut self.seen {
            if seen.replies.len() < self.due.len() {
                seen.receive()?;
            }
        }
        let is_end = |seen: &Seen| seen.replies.last().is_some_and(|reply| reply == END);
        self.is_ended = self.seen.iter().all(is_end);
        Ok(())
    }
}

/// Whether beanstalkd does not see where this line ends, which is too long: the
/// CR LF is cut in two by its buffer or by a segment, or hidden by another CR.
fn loses_its_end(line: &[u8], segments: usize) -> bool {
    let Some(rest) = line.get(224..) else {
        return false;
    };
    rest.len() % 224 == 1 || segments > 1 || rest.iter().filter(|&&byte| byte == b'\r').count() > 1
}

const END: &[u8] = b"(is closed)";

pub fn is_end(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::ConnectionReset | ErrorKind::BrokenPipe
    )
}

impl Seen {
    fn receive(&mut self) -> Result<(), Stop> {
        // Mostly a short reply; clearing more would take longer than reading it.
        let mut buffer = [0; 2048];
        let mut ended = false;
        loop {
            match self.stream.read(&mut buffer) {
                Ok(0) => ended = true,
                Ok(count) => {
                    self.unread.extend_from_slice(&buffer[..count]);
                    if count == buffer.len() {
                        continue;
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) if is_end(&error) => ended = true,
                Err(error) => return Err(error.into()),
            }
            break;
        }
        while let Some((line, body, length)) = first_reply(&self.unread)? {
            self.replies.push(masked(line, body));
            self.unread.drain(..length);
        }
        if ended && self.replies.last().is_none_or(|reply| reply != END) {
            self.replies.push(END.to_vec());
        }
        Ok(())
    }
}

/// The first reply in these bytes, if all of it has come: its line, its body if it has
/// one, and the length of all.
#[allow(clippy::type_complexity, reason = "it is taken apart at once")]
fn first_reply(bytes: &[u8]) -> Result<Option<(&[u8], Option<&[u8]>, usize)>, Stop> {
    let Some(end) = bytes.windows(2).position(|pair| pair == b"\r\n") else {
        return Ok(None);
    };
    let (line, rest) = (&bytes[..end], &bytes[end + 2..]);
    let text = String::from_utf8_lossy(line);
    let words: Vec<&str> = text.split(' ').collect();
    let size = match words[..] {
        ["RESERVED" | "FOUND", _, size] | ["OK", size] => size.parse::<usize>(),
        _ => return Ok(Some((line, None, end + 2))),
    };
    let size = size.map_err(|error| Stop::Differ(format!("{text}: {error}")))?;
    match rest.get(size..size + 2) {
        None => Ok(None),
        Some(b"\r\n") => Ok(Some((line, Some(&rest[..size]), end + size + 4))),
        Some(_) => Err(Stop::Differ(format!("{text}: a body of another length"))),
    }
}
