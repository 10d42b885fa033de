//! The stage with sockets. Each story has a server process of its own, on a
//! port of the loopback, and each client has one TCP connection.
//!
//! The stage waits for events, not for durations. Where the protocol shows no
//! event, it watches the server's threads.

use crate::player::{Received, Stage};
use nix::sys::signal::Signal;
use std::collections::BTreeMap;
use std::fs;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};
use support::story::{Side, Story};
use support::watched::{PATIENCE, Watched};

/// If nothing comes from a server at rest for this long, nothing will come.
const SILENCE: Duration = Duration::from_millis(5);
/// How long a server may take before it acts on what was sent. It need not act
/// at all: it may have stopped reading from this client.
const INERTIA: Duration = Duration::from_millis(100);
/// How late a server may notice that a time has come.
const LEEWAY: Duration = Duration::from_millis(50);

/// A server program and the clients connected to it.
pub struct Sockets {
    server: Watched,
    clients: BTreeMap<String, Client>,
    started: Instant,
    /// How much time has passed in the story.
    told: Duration,
}

struct Client {
    stream: TcpStream,
    /// Whether the server has closed the connection.
    has_ended: bool,
}

impl Sockets {
    /// Starts the program with the options of the story.
    pub fn start(program: &Path, side: Side, story: &Story) -> Sockets {
        Sockets {
            // Before the server's own clock begins, however long that takes.
            started: Instant::now(),
            server: Watched::start(program, story.server_options(side)),
            clients: BTreeMap::new(),
            told: Duration::ZERO,
        }
    }

    fn read(&mut self, client: &str, patience: Duration) -> io::Result<Received> {
        let Client { stream, has_ended } = self
            .clients
            .get_mut(client)
            .expect("a client that is connected");
        let mut bytes = vec![0; 1 << 20];
        stream.set_read_timeout(Some(patience))?;
        match stream.read(&mut bytes) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(Received::Nothing),
            Err(error) if error.kind() != ErrorKind::ConnectionReset => Err(error),
            Ok(0) | Err(_) => {
                *has_ended = true;
                Ok(Received::End)
            }
            Ok(count) => {
                bytes.truncate(count);
                Ok(Received::Bytes(bytes))
            }
        }
    }
}

impl Stage for Sockets {
    fn connect(&mut self, client: &str) -> io::Result<()> {
        let new = Client {
            stream: self.server.connect()?,
            has_ended: false,
        };
        self.clients.insert(client.to_owned(), new);
        Ok(())
    }

    fn send(&mut self, client: &str, bytes: &[u8]) -> io::Result<()> {
        self.server.come_to_rest()?;
        (&self.clients[client].stream).write_all(bytes)
    }

    fn receive(&mut self, client: &str) -> io::Result<Received> {
        self.read(client, PATIENCE)
    }

    fn receive_at_rest(&mut self, client: &str) -> io::Result<Received> {
        self.server.act_and_rest(INERTIA)?;
        self.read(client, SILENCE)
    }

    fn await_output(&mut self, client: &str) -> io::Result<()> {
        let stream = &self.clients[client].stream;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.peek(&mut [0])?;
        self.server.act_and_rest(INERTIA)
    }

    fn send_no_more(&mut self, client: &str) -> io::Result<()> {
        match self.clients[client].stream.shutdown(Shutdown::Write) {
            // The server has already closed the connection.
            Err(error) if error.kind() == ErrorKind::NotConnected => Ok(()),
            result => result,
        }
    }

    fn close(&mut self, client: &str) -> io::Result<()> {
        self.server.come_to_rest()?;
        let files = format!("/proc/{}/fd", self.server.process.pid());
        let files = || fs::read_dir(&files).map_or(0, Iterator::count);
        let open = files();
        let Client { stream, has_ended } = self.clients.remove(client).expect("a client");
        drop(stream);
        let deadline = Instant::now() + PATIENCE;
        while !has_ended && files() >= open {
            if Instant::now() > deadline {
                return Err(io::Error::other("the server keeps a connection"));
            }
            sleep(Duration::from_micros(100));
        }
        self.server.come_to_rest()
    }

    fn pass(&mut self, time: Duration) -> io::Result<()> {
        self.told += time;
        sleep(time + LEEWAY);
        self.server.come_to_rest()
    }

    fn lag(&self) -> Duration {
        self.started.elapsed().saturating_sub(self.told)
    }

    fn drain(&mut self) -> io::Result<()> {
        self.server.come_to_rest()?;
        self.server.process.signal(Signal::SIGUSR1);
        self.server.act_and_rest(PATIENCE)
    }
}
