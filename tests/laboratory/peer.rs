//! A client that does only what it is told: it also sends half a command, and
//! reads replies only when it is told to. The attacks and the
//! differential test use it.

use companion::server::reply::Frame;
use nix::sys::socket::{setsockopt, sockopt};
use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

pub use support::Random;

/// How long a server may be silent, or not read, before a client gives up.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// One connection.
#[derive(Debug)]
pub struct Peer {
    /// The socket, for attacks that do to it what no client should do.
    pub stream: TcpStream,
    /// The bytes that have come and were not taken yet.
    unread: Vec<u8>,
}

impl Peer {
    /// Connects. The peer waits for each reply for up to [`PATIENCE`].
    pub fn connect(address: SocketAddr) -> io::Result<Peer> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        Ok(Peer {
            stream,
            unread: Vec::new(),
        })
    }

    /// Sends all these bytes.
    pub fn send(&mut self, bytes: impl AsRef<[u8]>) -> io::Result<()> {
        self.stream.write_all(bytes.as_ref())
    }

    /// The next reply: its line, and the body or document if it has one.
    pub fn reply(&mut self) -> io::Result<(String, Option<Vec<u8>>)> {
        loop {
            let frame = Frame::first(&self.unread).map_err(io::Error::other)?;
            if let Some(frame) = frame {
                let line = String::from_utf8_lossy(frame.line).into_owned();
                let (chunk, length) = (frame.chunk.map(<[u8]>::to_vec), frame.length);
                self.unread.drain(..length);
                return Ok((line, chunk));
            }
            self.receive()?;
        }
    }

    /// Sends a command, and takes the line of its reply.
    pub fn ask(&mut self, command: impl AsRef<[u8]>) -> io::Result<String> {
        self.send(command)?;
        Ok(self.reply()?.0)
    }

    /// Sends commands and takes so many replies, which all must begin so. The
    /// buffers of both sides must be able to hold all of them.
    pub fn ask_all(&mut self, commands: &[u8], replies: usize, word: &str) -> io::Result<()> {
        self.ask_each(commands, replies, |line| {
            if line.starts_with(word.as_bytes()) {
                return Ok(());
            }
            let line = line.escape_ascii();
            Err(io::Error::other(format!("`{line}` instead of {word}")))
        })
    }

    /// Sends commands, takes so many replies, and shows the line of each.
    pub fn ask_each(
        &mut self,
        commands: &[u8],
        replies: usize,
        mut see: impl FnMut(&[u8]) -> io::Result<()>,
    ) -> io::Result<()> {
        self.send(commands)?;
        let mut at = 0;
        for _ in 0..replies {
            let length = loop {
                match Frame::first(&self.unread[at..]).map_err(io::Error::other)? {
                    Some(frame) => {
                        see(frame.line)?;
                        break frame.length;
                    }
                    None => {
                        self.unread.drain(..std::mem::take(&mut at));
                        self.receive()?;
                    }
                }
            };
            at += length;
        }
        self.unread.drain(..at);
        Ok(())
    }

    /// Reads what is there into the unread bytes. The end is an error.
    fn receive(&mut self) -> io::Result<()> {
        let mut buffer = [0; 64 * 1024];
        match self.stream.read(&mut buffer)? {
            0 => Err(ErrorKind::UnexpectedEof.into()),
            count => {
                self.unread.extend_from_slice(&buffer[..count]);
                Ok(())
            }
        }
    }

    /// Sends as much of these bytes as the server takes until this moment, and
    /// reads nothing. Returns how many bytes that was.
    pub fn press(&mut self, bytes: &[u8], until: Instant) -> io::Result<usize> {
        self.stream.set_nonblocking(true)?;
        let mut sent = 0;
        while sent < bytes.len() && Instant::now() < until {
            match self.stream.write(&bytes[sent..]) {
                Ok(count) => sent += count,
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    std::thread::sleep(Duration::from_millis(2));
                }
                Err(error) => return Err(error),
            }
        }
        self.stream.set_nonblocking(false)?;
        Ok(sent)
    }

    /// Drops the connection so that the server sees a reset.
    pub fn reset(self) -> io::Result<()> {
        let linger = nix::libc::linger {
            l_onoff: 1,
            l_linger: 0,
        };
        Ok(setsockopt(&self.stream, sockopt::Linger, &linger)?)
    }
}
