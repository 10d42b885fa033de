//! The address of a server: a host and port, a port, or the path of a socket.

use std::fmt;
use std::io::{self, ErrorKind};
use std::net::{TcpStream, ToSocketAddrs};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::Duration;

/// The address of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// A host, by name or number, and a port.
    Tcp {
        /// A name, an IPv4 address or an IPv6 address without brackets.
        host: String,
        /// The port.
        port: u16,
    },
    /// The path of a Unix socket.
    Unix(PathBuf),
}

/// The environment variable that holds the address of the server.
pub const ADDRESS_VARIABLE: &str = "BEANPOLE_ADDR";

/// The port that beanstalkd listens on by default.
pub const DEFAULT_PORT: u16 = 11300;

impl Address {
    /// Reads `HOST:PORT`, `HOST`, `PORT` or `unix:PATH`.
    ///
    /// An IPv6 address needs brackets if a port follows it.
    pub fn parse(text: &str) -> Result<Address, String> {
        if let Some(path) = text.strip_prefix("unix:") {
            return match path {
                "" => Err("the path after 'unix:' is missing".into()),
                path => Ok(Address::Unix(path.into())),
            };
        }
        if text.contains('/') {
            return Err(malformed(text));
        }
        if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
            return Ok(Address::local(parse_port(text)?));
        }
        let in_brackets = text.strip_prefix('[').and_then(|rest| rest.split_once(']'));
        let (host, port) = match (in_brackets, text.split_once(':')) {
            (Some((host, "")), _) => (host, DEFAULT_PORT),
            (Some((host, port)), _) => {
                let port = port.strip_prefix(':').ok_or_else(|| malformed(text))?;
                (host, parse_port(port)?)
            }
            // Several colons: this is an IPv6 address without a port.
            (None, Some((_, rest))) if rest.contains(':') => (text, DEFAULT_PORT),
            (None, Some((host, port))) => (host, parse_port(port)?),
            (None, None) => (text, DEFAULT_PORT),
        };
        if host.is_empty() || host.contains([' ', '[', ']']) {
            return Err(malformed(text));
        }
        Ok(Address::Tcp {
            host: host.into(),
            port,
        })
    }

    /// Makes a connection that does not block. Each attempt may take as long as
    /// `patience`.
    ///
    /// Reading, writing and closing are the same system calls for both kinds of
    /// socket, so a `TcpStream` serves for both.
    pub fn connect(&self, patience: Duration) -> io::Result<TcpStream> {
        let stream = match self {
            Address::Unix(path) => TcpStream::from(OwnedFd::from(UnixStream::connect(path)?)),
            Address::Tcp { host, port } => {
                let unknown = |why: &str| io::Error::new(ErrorKind::NotFound, why);
                let found = (host.as_str(), *port).to_socket_addrs();
                let found = found.map_err(|error| {
                    let text = error.to_string();
                    unknown(text.rsplit(": ").next().unwrap_or(&text))
                })?;
                let mut tried = Err(unknown("the name has no address"));
                for socket in found {
                    tried = TcpStream::connect_timeout(&socket, patience);
                    if tried.is_ok() {
                        break;
                    }
                }
                tried.and_then(|stream| stream.set_nodelay(true).map(|()| stream))?
            }
        };
        stream.set_nonblocking(true)?;
        Ok(stream)
    }

    /// A port on this machine.
    pub fn local(port: u16) -> Address {
        Address::Tcp {
            host: "127.0.0.1".into(),
            port,
        }
    }
}

fn malformed(text: &str) -> String {
    format!("'{text}' is not an address: give HOST:PORT, PORT or unix:PATH")
}

fn parse_port(text: &str) -> Result<u16, String> {
    match text.parse() {
        Ok(port) if port > 0 => Ok(port),
        _ => Err(format!("'{text}' is not a port from 1 to 65535")),
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Tcp { host, port } if host.contains(':') => write!(f, "[{host}]:{port}"),
            Address::Tcp { host, port } => write!(f, "{host}:{port}"),
            Address::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_a_host_and_port_a_port_or_the_path_of_a_socket() {
        for (text, meaning) in [
            ("queue.example:11301", "queue.example:11301"),
            ("queue.example", "queue.example:11300"),
            ("11301", "127.0.0.1:11301"),
            ("[::1]:11301", "[::1]:11301"),
            ("[::1]", "[::1]:11300"),
            ("::1", "[::1]:11300"),
            ("unix:/run/beanpole.sock", "unix:/run/beanpole.sock"),
        ] {
            assert_eq!(Address::parse(text).unwrap().to_string(), meaning);
        }
        for text in [
            "", ":1", "h:", "h:0", "h:x", "65536", "unix:", "[::1]1", "a/b:1",
        ] {
            assert!(Address::parse(text).is_err(), "{text:?}");
        }
    }
}
