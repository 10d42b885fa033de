//! Where to listen: addresses, and the sockets bound to them.

use super::socket_file::{SocketAccess, SocketFile, new_socket};
use crate::log;
use crate::sys::TcpKeepIdle;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::sys::socket::{
    AddressFamily, Backlog, SockType, SockaddrLike, SockaddrStorage, UnixAddr, bind, getsockname,
    getsockopt, listen, setsockopt, sockopt,
};
use nix::unistd::User;
use std::ffi::OsStr;
use std::fmt;
use std::fs;
use std::io;
use std::net::{IpAddr, ToSocketAddrs};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

/// After how many seconds of silence the kernel asks whether a peer is still there, how
/// many seconds it waits for an answer, and how often it asks. So the jobs of a machine that
/// is gone are ready again after a minute and a half; the system's two hours would be too
/// long, and asking each minute costs little.
const SILENT_SECONDS: u32 = 60;
const PROBE_SECONDS: u32 = 10;
const PROBES: u32 = 3;

/// How much a narrow socket receives before the server reads it, in bytes. (The kernel
/// doubles this, for what it needs beside the data.)
pub const NARROW: usize = 4 << 10;

/// How many clients wait at most until they are accepted: as many as the kernel allows. A
/// C library's own number may be no more than 128, and then a client of a Unix socket that
/// does not block gets EAGAIN instead.
#[cfg(any(target_os = "linux", target_os = "freebsd"))]
const QUEUE: Backlog = Backlog::MAXALLOWABLE;
#[cfg(not(any(target_os = "linux", target_os = "freebsd")))]
const QUEUE: Backlog = Backlog::MAXCONN;

/// An address to listen on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// An IP address or the name of a host, and a port.
    Tcp(String, u16),
    /// The file of a Unix socket.
    Unix(PathBuf),
}

impl Address {
    /// Reads `unix:PATH`, or an IP address or the name of a host. A colon and a
    /// port may follow; an IPv6 address is then in brackets. Without that,
    /// the port is `port`.
    ///
    /// # Errors
    ///
    /// A message, if the text is none of these.
    pub fn new(text: &OsStr, port: u16) -> Result<Address, String> {
        if let Some(path @ [_, ..]) = text.as_bytes().strip_prefix(b"unix:") {
            return Ok(Address::Unix(OsStr::from_bytes(path).into()));
        }
        let invalid = || format!("invalid address: {}", text.display());
        let text = text.to_str().ok_or_else(invalid)?;
        let (host, rest) = match text.strip_prefix('[') {
            Some(text) => text.split_once(']').unwrap_or_default(),
            None => match text.find(':') {
                // With more than one colon it is an IPv6 address.
                Some(colon) if Some(colon) == text.rfind(':') => text.split_at(colon),
                _ => (text, ""),
            },
        };
        let port = match rest.strip_prefix(':') {
            _ if host.is_empty() || host == "unix" => return Err(invalid()),
            None if rest.is_empty() => port,
            None | Some("") => return Err(invalid()),
            Some(own) => find_port(own)?,
        };
        Ok(Address::Tcp(host.into(), port))
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Unix(path) => write!(f, "unix:{}", path.display()),
            Address::Tcp(host, port) => match host.parse() {
                Ok(IpAddr::V6(ip)) => write!(f, "[{ip}]:{port}"),
                _ => write!(f, "{host}:{port}"),
            },
        }
    }
}

/// A socket to listen on.
#[derive(Debug)]
pub struct Listener {
    /// Readable when a client has connected.
    pub socket: OwnedFd,
    /// The address of the socket itself, for people to read.
    name: String,
    /// The socket's file, if we have created it. It is removed at the end, unless
    /// another server has replaced it by its own.
    file: Option<SocketFile>,
}

impl Drop for Listener {
    fn drop(&mut self) {
        if let Some(file) = &self.file
            && let Err(error) = file.remove()
        {
            let name = &self.name;
            log::warning(format_args!("removing the socket {name}: {error}"));
        }
    }
}

impl Listener {
    /// Binds a socket for `address`, one of `all`. A Unix socket's file belongs to the user
    /// that the process will become, so that this user can connect to it and remove it.
    /// Clients can connect to a TCP socket after [`listen`](Self::listen). A Unix socket
    /// listens at once; otherwise another server would think that its file is stale.
    ///
    /// # Errors
    ///
    /// If the address cannot be used, or another server listens there already.
    pub fn bind(
        address: &Address,
        all: &[Address],
        access: &SocketAccess,
        user: Option<&User>,
    ) -> io::Result<Listener> {
        match address {
            Address::Tcp(host, port) => {
                let has_port = |it: &&Address| matches!(it, Address::Tcp(_, its) if its == port);
                let is_shared = *port > 0 && all.iter().filter(has_port).count() > 1;
                Listener::on(bind_tcp(host, *port, is_shared)?)
            }
            Address::Unix(path) => {
                let (socket, file) = SocketFile::bind(path, access, user)?;
                let mut listener = Listener::on(socket)?;
                listener.file = Some(file);
                Ok(listener)
            }
        }
    }

    /// Takes over a socket that another program has bound.
    ///
    /// # Errors
    ///
    /// If it is neither a TCP nor a Unix stream socket, or has no address. (The
    /// kernel would choose a port for it, on all of the machine's addresses.)
    pub fn on(socket: OwnedFd) -> io::Result<Listener> {
        let is_stream = getsockopt(&socket, sockopt::SockType)? == SockType::Stream;
        let address = getsockname::<SockaddrStorage>(socket.as_raw_fd())?;
        let ip_port = (address.as_sockaddr_in().map(|ip| ip.port()))
            .or_else(|| address.as_sockaddr_in6().map(|ip| ip.port()));
        if ip_port == Some(0) {
            return Err(io::Error::other("it is not bound to an address"));
        }
        let name = match address.family() {
            Some(AddressFamily::Inet | AddressFamily::Inet6) if is_stream => {
                // Connections inherit these options, so they need not be set on
                // each.
                setsockopt(&socket, sockopt::KeepAlive, &true)?;
                setsockopt(&socket, TcpKeepIdle, &SILENT_SECONDS)?;
                setsockopt(&socket, sockopt::TcpKeepInterval, &PROBE_SECONDS)?;
                setsockopt(&socket, sockopt::TcpKeepCount, &PROBES)?;
                setsockopt(&socket, sockopt::TcpNoDelay, &true)?;
                address.to_string()
            }
            Some(AddressFamily::Unix) if is_stream => {
                let path = address.as_unix_addr().and_then(UnixAddr::path);
                let path = path.map(|path| path.display().to_string());
                format!("unix:{}", path.unwrap_or_else(|| " without a path".into()))
            }
            _ => return Err(io::Error::other("neither a TCP nor a Unix stream socket")),
        };
        Ok(Listener {
            socket,
            name,
            file: None,
        })
    }

    /// From now on clients can connect. The queue is long, for many that
    /// connect at the same moment. With `narrow`, the kernel receives little from them
    /// before the server reads it.
    ///
    /// # Errors
    ///
    /// If another server listens there by now.
    pub fn listen(&self, narrow: bool) -> io::Result<()> {
        if narrow {
            setsockopt(&self.socket, sockopt::RcvBuf, &NARROW)?;
        }
        listen(&self.socket, QUEUE)?;
        // Accepting must not block if the client has disconnected again.
        fcntl(&self.socket, FcntlArg::F_SETFL(OFlag::O_NONBLOCK))?;
        Ok(())
    }
}

impl fmt::Display for Listener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

/// Binds to the first address of this host that can be used. `port_is_shared`: connections by
/// IPv4 may have a socket of their own, so one for all addresses takes none of them.
fn bind_tcp(host: &str, port: u16, port_is_shared: bool) -> io::Result<OwnedFd> {
    let mut bound = Err(io::Error::other("the name has no address"));
    let mut addresses = (host, port).to_socket_addrs()?;
    while let (Err(_), Some(address)) = (&bound, addresses.next()) {
        bound = bind_address(address.into(), port_is_shared).map_err(io::Error::from);
    }
    bound
}

/// Binds as the standard library does, but does not listen.
fn bind_address(address: SockaddrStorage, port_is_shared: bool) -> nix::Result<OwnedFd> {
    let family = address.family().expect("that of an IP address");
    let socket = new_socket(family)?;
    if family == AddressFamily::Inet6 && port_is_shared {
        setsockopt(&socket, sockopt::Ipv6V6Only, &true)?;
    }
    // With this, a restarted server can bind while the system still remembers
    // its old connections.
    setsockopt(&socket, sockopt::ReuseAddr, &true)?;
    bind(socket.as_raw_fd(), &address)?;
    Ok(socket)
}

/// Reads a port: a number, or the name of a service in the system's list.
///
/// # Errors
///
/// A message, if it is neither.
pub fn find_port(text: &str) -> Result<u16, String> {
    let list = || fs::read_to_string("/etc/services").unwrap_or_default();
    let port = text.parse().ok().or_else(|| service_port(&list(), text));
    port.ok_or_else(|| format!("neither a port nor a service: {text}"))
}

/// The TCP port of a service, in the lines of `services(5)`.
fn service_port(list: &str, service: &str) -> Option<u16> {
    list.lines().find_map(|line| {
        let mut words = line.split('#').next()?.split_whitespace();
        let (name, port) = (words.next()?, words.next()?.strip_suffix("/tcp")?);
        let is_meant = name == service || words.any(|alias| alias == service);
        is_meant.then(|| port.parse().ok()).flatten()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys;
    use nix::sys::socket::connect;
    use std::net::{TcpListener, TcpStream, UdpSocket};
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixDatagram;

    #[test]
    fn an_address_may_have_a_port_of_its_own() {
        for (text, shown) in [
            ("127.0.0.1", "127.0.0.1:1"),
            ("127.0.0.1:2", "127.0.0.1:2"),
            ("queue.example.org:3", "queue.example.org:3"),
            ("::1", "[::1]:1"),
            ("[::1]", "[::1]:1"),
            ("[::1]:2", "[::1]:2"),
            ("unix:/run/a:b", "unix:/run/a:b"),
        ] {
            let address = Address::new(OsStr::new(text), 1).expect(text);
            assert_eq!(address.to_string(), shown);
        }
        let odd = Address::new(OsStr::from_bytes(b"unix:/run/\xff"), 1);
        let path = OsStr::from_bytes(b"/run/\xff");
        assert_eq!(odd, Ok(Address::Unix(path.into())));
        for text in ["", ":2", "host:", "[::1", "[::1]2", "[]", "unix:", "[::1]:"] {
            let message = format!("invalid address: {text}");
            assert_eq!(Address::new(OsStr::new(text), 1), Err(message));
        }
    }

    #[test]
    fn services_are_found_by_their_names_and_aliases() {
        let list = "# a list\nhttp\t80/tcp www # the web\nntp 123/udp\nhttp-alt 8080/tcp";
        assert_eq!(service_port(list, "http-alt"), Some(8080));
        assert_eq!(service_port(list, "www"), Some(80));
        assert_eq!(service_port(list, "ntp"), None);
        assert_eq!(service_port(list, "web"), None);
    }

    #[test]
    fn a_connection_delays_no_small_reply_and_asks_whether_its_peer_is_there() {
        let socket = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = socket.local_addr().expect("an address");
        let listener = Listener::on(socket.into()).expect("a TCP socket");
        let _client = TcpStream::connect(address).expect("a listener");
        let ours = sys::accept(listener.socket.as_fd()).expect("a client");
        assert_eq!(getsockopt(&ours, sockopt::TcpNoDelay), Ok(true));
        assert_eq!(getsockopt(&ours, sockopt::KeepAlive), Ok(true));
        assert_eq!(getsockopt(&ours, TcpKeepIdle), Ok(SILENT_SECONDS));
        assert_eq!(
            getsockopt(&ours, sockopt::TcpKeepInterval),
            Ok(PROBE_SECONDS)
        );
        assert_eq!(getsockopt(&ours, sockopt::TcpKeepCount), Ok(PROBES));
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn more_clients_wait_to_be_accepted_than_the_c_library_thinks_of() {
        let socket = new_socket(AddressFamily::Unix).expect("a socket");
        bind(socket.as_raw_fd(), &UnixAddr::new_unnamed()).expect("a free name");
        let address = getsockname::<UnixAddr>(socket.as_raw_fd()).expect("this name");
        let listener = Listener::on(socket).expect("a Unix socket");
        listener.listen(false).expect("a free address");
        let client = || {
            let client = new_socket(AddressFamily::Unix)?;
            fcntl(&client, FcntlArg::F_SETFL(OFlag::O_NONBLOCK))?;
            connect(client.as_raw_fd(), &address).map(|()| client)
        };
        let waiting: Result<Vec<OwnedFd>, _> = (0..200).map(|_| client()).collect();
        waiting.expect("room in the queue");
    }

    #[test]
    fn a_datagram_socket_is_refused() {
        for socket in [
            UdpSocket::bind("127.0.0.1:0").expect("a socket").into(),
            UnixDatagram::unbound().expect("a socket").into(),
        ] {
            let error = Listener::on(socket).expect_err("nobody can connect to it");
            let expected = "neither a TCP nor a Unix stream socket";
            assert_eq!(error.to_string(), expected);
        }
    }
}
