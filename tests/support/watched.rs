//! A server whose threads are watched: when they have woken up and all sleep again, it
//! has dealt with all that was sent. So a test waits for events where the protocol
//! shows none.

use crate::{Port, Server};
use std::io::{self, ErrorKind};
use std::net::{Ipv4Addr, TcpStream};
use std::path::Path;
use std::process::Command;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Where it listens. A stray client would be a connection that the test does not know
/// of: programs that look for a server which has ended, and whose port this one may have
/// got, look for it at 127.0.0.1.
const HOST: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);

/// How long to wait for what must come.
pub const PATIENCE: Duration = Duration::from_secs(120);

/// A server process that runs as long as this value lives.
pub struct Watched {
    pub process: Server,
    port: Port,
    /// What it had done when it last came to rest.
    activity: u64,
}

impl Watched {
    pub fn start<'a>(program: &Path, options: impl IntoIterator<Item = &'a str>) -> Watched {
        let port = Port::reserve_at(HOST, 0).expect("a free port");
        let mut command = Command::new(program);
        command.args(["-l", &HOST.to_string(), "-p", &port.number.to_string()]);
        Watched {
            process: Server::spawn(command.args(options)),
            port,
            activity: 0,
        }
    }

    /// Connects to the server, as soon as it listens.
    pub fn connect(&mut self) -> io::Result<TcpStream> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            self.come_to_rest()?;
            match TcpStream::connect((HOST, self.port.number)) {
                Err(error)
                    if error.kind() == ErrorKind::ConnectionRefused
                        && Instant::now() < deadline =>
                {
                    sleep(Duration::from_millis(2));
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

    /// Waits until all its threads sleep: at a moment between two looks, each of which takes
    /// a while, and sees one thread before and another one after it has woken up.
    pub fn come_to_rest(&mut self) -> io::Result<()> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            match self.process.sleeps()? {
                Some(activity) if self.process.sleeps()? == Some(activity) => {
                    self.activity = activity;
                    return Ok(());
                }
                _ if Instant::now() < deadline => sleep(Duration::from_micros(100)),
                _ => return Err(io::Error::other("the server does not come to rest")),
            }
        }
    }

    /// Waits until the server has done something since it last came to rest,
    /// and rests again. Then it has dealt with all that was sent. If it has not
    /// acted within this time, it has nothing to do.
    pub fn act_and_rest(&mut self, within: Duration) -> io::Result<()> {
        let deadline = Instant::now() + within;
        let before = self.activity;
        while Instant::now() < deadline {
            self.come_to_rest()?;
            if self.activity != before {
                return Ok(());
            }
            sleep(Duration::from_micros(100));
        }
        self.come_to_rest()
    }
}
