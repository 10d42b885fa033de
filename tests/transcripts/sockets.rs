//! The stage with sockets. Each story has a server process of its own, on a
//! port of the loopback, and each client has one TCP connection.
//!
//! The stage waits for events, not for durations. Where the protocol shows no
//! event, it watches the server's threads: when they have woken up and all
//! sleep again, the server has dealt with all that was sent.

use crate::player::{Received, Stage};
use nix::sys::signal::Signal;
use std::collections::BTreeMap;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpStream};
use std::path::Path;
use std::process::Command;
use std::sync::mpsc;
use std::time::{Duration, Instant};
use support::Port;
use support::story::{Side, Story};

/// Where the servers listen. A stray client would be a connection that the story does
/// not know of: programs that look for a server which has ended, and whose port one of
/// these may have got, look for it at 127.0.0.1.
const HOST: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);
/// How long to wait for something that must come, before the story fails.
const PATIENCE: Duration = Duration::from_secs(15);
/// If nothing comes from a server at rest for this long, nothing will come.
const SILENCE: Duration = Duration::from_millis(5);
/// How long a server may take before it acts on what was sent. It need not act
/// at all: it may have stopped reading from this client.
const INERTIA: Duration = Duration::from_millis(100);
/// How late a server may notice that a time has come.
const LEEWAY: Duration = Duration::from_millis(50);

/// A server program and the clients connected to it.
pub struct Sockets {
    server: Server,
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
        let server = Server::start(program, story.server_options(side));
        Sockets {
            server,
            clients: BTreeMap::new(),
            started: Instant::now(),
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
        let stream = self.server.connect()?;
        self.clients.insert(
            client.to_owned(),
            Client {
                stream,
                has_ended: false,
            },
        );
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
        let Client { stream, has_ended } = self.clients.remove(client).expect("a client");
        drop(stream);
        // A server that has closed the connection has nothing left to do.
        if has_ended {
            Ok(())
        } else {
            self.server.act_and_rest(PATIENCE)
        }
    }

    fn pass(&mut self, time: Duration) -> io::Result<()> {
        self.told += time;
        wait(time + LEEWAY);
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

/// A server process that runs as long as this value lives.
struct Server {
    process: support::Server,
    port: Port,
    /// What it had done when it last came to rest.
    activity: u64,
}

impl Server {
    fn start<'a>(program: &Path, options: impl Iterator<Item = &'a str>) -> Server {
        let port = Port::reserve_at(HOST, 0).expect("a free port");
        let mut command = Command::new(program);
        command.args(["-l", &HOST.to_string(), "-p", &port.number.to_string()]);
        Server {
            process: support::Server::spawn(command.args(options)),
            port,
            activity: 0,
        }
    }

    /// Connects to the server, as soon as it listens.
    fn connect(&mut self) -> io::Result<TcpStream> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            self.come_to_rest()?;
            match TcpStream::connect((HOST, self.port.number)) {
                Err(error)
                    if error.kind() == ErrorKind::ConnectionRefused
                        && Instant::now() < deadline =>
                {
                    wait(Duration::from_millis(2));
                }
                Err(error) => return Err(error),
                Ok(stream) => {
                    stream.set_nodelay(true)?;
                    self.act_and_rest(PATIENCE)?;
                    return Ok(stream);
                }
            }
        }
    }

    /// Waits until all its threads sleep.
    fn come_to_rest(&mut self) -> io::Result<()> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            match self.process.sleeps()? {
                Some(activity) => {
                    self.activity = activity;
                    return Ok(());
                }
                None if Instant::now() < deadline => wait(Duration::from_micros(100)),
                None => return Err(io::Error::other("the server does not come to rest")),
            }
        }
    }

    /// Waits until the server has done something since it last came to rest,
    /// and rests again. Then it has dealt with all that was sent. If it has not
    /// acted within this time, it has nothing to do.
    fn act_and_rest(&mut self, within: Duration) -> io::Result<()> {
        let deadline = Instant::now() + within;
        let before = self.activity;
        while Instant::now() < deadline {
            self.come_to_rest()?;
            if self.activity != before {
                return Ok(());
            }
            wait(Duration::from_micros(100));
        }
        self.come_to_rest()
    }
}

/// Lets real time pass.
fn wait(time: Duration) {
    let (_sender, receiver) = mpsc::channel::<()>();
    receiver.recv_timeout(time).expect_err("nobody sends");
}
