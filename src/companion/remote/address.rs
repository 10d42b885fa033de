//! The address of a server: a host and port, a port, the path of a socket, or a
//! name from a file: `-a prod` instead of a host and a port.
//!
//! Each line of that file is a name, an address and, for a server that needs
//! care, a colour. The text after a `#` is a comment.
//!
//! ```text
//! prod  10.1.2.3:11300  red
//! test  unix:/run/beanpoled/socket
//! ```

use crate::failure::{Failure, plain};
use crate::text::{Colour, note};
use crate::values::{Parse, matches};
use nix::errno::Errno;
use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use nix::sys::socket::{
    AddressFamily, SockFlag, SockType, UnixAddr, connect, setsockopt, socket, sockopt,
};
use nix::sys::time::{TimeVal, TimeValLike};
use std::collections::HashSet;
use std::fmt;
use std::io::{self, ErrorKind, IsTerminal};
use std::net::{IpAddr, SocketAddr, TcpStream, ToSocketAddrs};
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

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

/// How long connecting may take at least: 0 would be an error.
const SHORTEST: Duration = Duration::from_millis(1);

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
        let (host, port) = match text.rsplit_once(':') {
            // With more colons, this is an IPv6 address without a port.
            Some((host, port)) if !host.contains(':') || host.ends_with(']') => {
                (host, parse_port(port)?)
            }
            _ => (text, DEFAULT_PORT),
        };
        let in_brackets = host
            .strip_prefix('[')
            .and_then(|rest| rest.strip_suffix(']'));
        let host = in_brackets.unwrap_or(host);
        if host.is_empty() || host.contains([' ', '[', ']']) {
            Err(malformed(text))
        } else {
            Ok(Address::Tcp {
                host: host.into(),
                port,
            })
        }
    }

    /// Makes a connection that does not block, within this time: the addresses that a
    /// name has share it.
    ///
    /// Reading, writing and closing are the same system calls for both kinds of
    /// socket, so a `TcpStream` serves for both.
    pub fn connect(&self, patience: Duration) -> io::Result<TcpStream> {
        let stream = match self {
            Address::Unix(path) => connect_unix(path, patience)?.into(),
            Address::Tcp { host, port } => {
                let unknown = io::Error::new(ErrorKind::NotFound, "the name has no address");
                let until = Instant::now() + patience;
                let sockets = look_up(host, *port, patience).map_err(|error| {
                    match host.contains(['.', ':']) {
                        true => error,
                        // It may have been meant as a name of ours.
                        false => io::Error::other(format!(
                            "{}, and no file of servers has this name",
                            plain(error)
                        )),
                    }
                })?;
                let left = until.saturating_duration_since(Instant::now());
                let share = left.max(SHORTEST) / (sockets.len() as u32).max(1);
                let mut tried = Err(unknown);
                for socket in &sockets {
                    tried = tried.or_else(|_| TcpStream::connect_timeout(socket, share));
                }
                tried.and_then(|stream| stream.set_nodelay(true).map(|()| stream))?
            }
        };
        // Where nobody listens on a port that clients get, too, the system may connect us
        // to ourselves.
        if matches!(self, Address::Tcp { .. }) && stream.local_addr()? == stream.peer_addr()? {
            return Err(Errno::ECONNREFUSED.into());
        }
        stream.set_nonblocking(true)?;
        Ok(stream)
    }

    /// At which of these servers something is, for a message; nothing if there is only one.
    pub fn at_one_of(&self, servers: &[Server]) -> String {
        let named = servers.iter().find(|server| server.address == *self);
        match named.filter(|_| servers.len() > 1) {
            Some(server) => format!(" at {}", server.title()),
            None => String::new(),
        }
    }

    /// A port on this machine.
    pub fn local(port: u16) -> Address {
        Address::Tcp {
            host: "127.0.0.1".into(),
            port,
        }
    }
}

/// The addresses of a host.
fn look_up(host: &str, port: u16, patience: Duration) -> io::Result<Vec<SocketAddr>> {
    if let Ok(ip) = host.parse::<IpAddr>() {
        return Ok(vec![(ip, port).into()]);
    }
    let host = host.to_owned();
    within(patience, move || {
        Ok((host, port).to_socket_addrs()?.collect())
    })
}

/// Asks what may take any time, as the system's look-up of a name does: one that takes
/// longer than this is left to itself.
fn within<T: Send + 'static>(
    patience: Duration,
    ask: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    let (sender, answer) = mpsc::channel();
    // Nobody may wait for the answer any more.
    thread::Builder::new().spawn(move || sender.send(ask()).ok())?;
    let late = || io::Error::new(ErrorKind::TimedOut, "its name was not looked up in time");
    answer
        .recv_timeout(patience)
        .unwrap_or_else(|_| Err(late()))
}

/// Connects to the socket at this path. While the queue of a server is full, connecting
/// waits as long as writing may.
fn connect_unix(path: &Path, patience: Duration) -> io::Result<OwnedFd> {
    let (family, kind) = (AddressFamily::Unix, SockType::Stream);
    let socket = socket(family, kind, SockFlag::empty(), None)?;
    fcntl(&socket, FcntlArg::F_SETFD(FdFlag::FD_CLOEXEC))?;
    // 0 would be for ever.
    let longest = patience.as_millis().clamp(1, 86_400_000) as i64;
    let longest = TimeVal::milliseconds(longest);
    setsockopt(&socket, sockopt::SendTimeout, &longest)?;
    loop {
        return match connect(socket.as_raw_fd(), &UnixAddr::new(path)?) {
            Err(Errno::EINTR) => continue,
            Err(Errno::EAGAIN) => Err(io::Error::other(
                "it takes none: it hangs, and its queue is full",
            )),
            connected => Ok(connected.map(|()| socket)?),
        };
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

/// The environment variable with the path of that file. If it is empty, there
/// is no file.
const FILE_VARIABLE: &str = "BEANPOLE_SERVERS";
/// The name of the file in the home directory, if the variable is not set.
const FILE: &str = ".beanpole_servers";
/// The file for all users, which is read after it.
const COMMON_FILE: &str = "/etc/beanpole_servers";

/// A server as the user has named it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Server {
    pub address: Address,
    /// Its name, if the user called it by one.
    pub name: Option<String>,
    /// Its warning colour, if it has one.
    pub colour: Option<Colour>,
}

/// Reads a name in the files, or an address.
impl Parse for Server {
    fn parse(text: &str) -> Result<Server, String> {
        let found = named(|name| name == text)?.pop();
        found.map_or_else(|| Address::parse(text).map(Server::from), Ok)
    }
}

/// A server or, if a pattern of names is given, all that have such a name.
#[derive(Clone)]
pub struct Servers(pub Vec<Server>);

impl Parse for Servers {
    fn parse(text: &str) -> Result<Servers, String> {
        if !text.contains(['*', '?']) || text.starts_with("unix:") {
            return Server::parse(text).map(|server| Servers(vec![server]));
        }
        let found = named(|name| matches(text.as_bytes(), name.as_bytes()))?;
        if found.is_empty() {
            return Err(format!("no server has a name like '{text}'"));
        }
        Ok(Servers(found))
    }
}

/// The servers with these names in the files, which is one's own and that of all users,
/// or the one that the variable names. The first one of a name counts.
fn named(is_meant: impl Fn(&str) -> bool) -> Result<Vec<Server>, String> {
    let chosen = std::env::var_os(FILE_VARIABLE).map(PathBuf::from);
    let own = || std::env::home_dir().map(|home| home.join(FILE));
    let files = match &chosen {
        Some(path) => vec![path.clone()],
        None => own().into_iter().chain([COMMON_FILE.into()]).collect(),
    };
    let (mut found, mut known) = (Vec::new(), HashSet::new());
    for path in files {
        let shown = path.display();
        let contents = match std::fs::read_to_string(&path) {
            Ok(contents) => contents,
            Err(error) => match error.kind() {
                ErrorKind::NotFound => continue,
                // One that was not named may be closed to us.
                ErrorKind::PermissionDenied | ErrorKind::NotADirectory if chosen.is_none() => {
                    continue;
                }
                _ => return Err(format!("cannot read {shown}: {}", plain(error))),
            },
        };
        for (number, line) in (1..).zip(contents.lines()) {
            let mut words = line.split('#').next().unwrap_or("").split_whitespace();
            let is_new = |name: &&str| is_meant(name) && known.insert(name.to_string());
            if let Some(name) = words.next().filter(is_new) {
                let wrong = |reason| format!("{shown} line {number}: {reason}");
                found.push(Server::read(name, words).map_err(wrong)?);
            }
        }
    }
    Ok(found)
}

impl From<Address> for Server {
    fn from(address: Address) -> Server {
        Server {
            address,
            name: None,
            colour: None,
        }
    }
}

impl Server {
    /// Reads what follows the name in a line of the file.
    fn read<'a>(name: &str, mut words: impl Iterator<Item = &'a str>) -> Result<Server, String> {
        let address = words.next().ok_or("the address is missing")?;
        Ok(Server {
            address: Address::parse(address)?,
            name: Some(name.into()),
            colour: words.next().map(Colour::parse).transpose()?,
        })
    }

    /// Its name, if it has one, and its address.
    pub fn title(&self) -> String {
        match &self.name {
            Some(name) => format!("{name} {}", self.address),
            None => self.address.to_string(),
        }
    }

    /// Tells a person that it is about to be changed, if it has a warning colour.
    pub fn warn(&self) {
        if let Some(colour) = self.colour.filter(|_| io::stderr().is_terminal()) {
            note(colour.paint(&self.title()));
        }
    }

    /// This failure as one of several servers': it says of which.
    pub fn of_it(&self, failure: Failure) -> Failure {
        let (address, title) = (self.address.to_string(), self.title());
        let has = |part: &str| failure.to_string().contains(part);
        match (has(&title), has(&address)) {
            (true, _) => failure,
            (false, true) => failure.map(|text| text.replacen(&address, &title, 1)),
            (false, false) => failure.about(title),
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

    #[test]
    fn a_look_up_takes_no_longer_than_connecting_may() {
        let (_never, question) = mpsc::channel::<()>();
        let asked = within(Duration::from_millis(1), move || {
            Ok(question.recv().is_ok())
        });
        assert_eq!(
            asked.map_err(|error| error.kind()),
            Err(ErrorKind::TimedOut)
        );
    }

    #[test]
    fn nobody_is_connected_to_itself() {
        let range = std::fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range");
        let port = range
            .ok()
            .and_then(|text| text.split_whitespace().next()?.parse().ok());
        let address = Address::local(port.unwrap_or(40_000));
        // Each try has another port of this machine, and one of them is the same.
        for _ in 0..40_000 {
            if let Ok(stream) = address.connect(Duration::from_secs(1)) {
                assert_ne!(stream.local_addr().unwrap(), stream.peer_addr().unwrap());
            }
        }
    }
}
