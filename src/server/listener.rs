//! Where to listen: addresses, and the sockets bound to them.

use super::Stream;
use crate::{log, sys};
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::sys::socket::{
    AddressFamily, Backlog, SockFlag, SockType, SockaddrLike, SockaddrStorage, UnixAddr, bind,
    getsockname, getsockopt, listen, setsockopt, socket, sockopt,
};
use nix::unistd::{Group, Uid, User};
use std::fmt;
use std::fs::{self, Permissions};
use std::io;
use std::net::{IpAddr, ToSocketAddrs};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, PermissionsExt, chown};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

/// A place to listen at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// An IP address or the name of a host, and the number of a port or the
    /// name of a service.
    Tcp(String, String),
    /// The file of a Unix socket.
    Unix(PathBuf),
}

impl Address {
    /// Reads `unix:PATH`, or an IP address or the name of a host. A colon and a
    /// port may follow; an IPv6 address then stands in brackets. Without that,
    /// the port is `port`.
    ///
    /// # Errors
    ///
    /// A message, if the text is none of these.
    pub fn new(text: &str, port: &str) -> Result<Address, String> {
        if let Some(path) = text.strip_prefix("unix:").filter(|path| !path.is_empty()) {
            return Ok(Address::Unix(path.into()));
        }
        let (host, rest) = match text.strip_prefix('[') {
            Some(text) => text.split_once(']').unwrap_or_default(),
            None => match text.find(':') {
                // With more than one colon it is an IPv6 address.
                Some(colon) if Some(colon) == text.rfind(':') => text.split_at(colon),
                _ => (text, ""),
            },
        };
        let port = match rest.strip_prefix(':') {
            None if rest.is_empty() => Some(port),
            own => own.filter(|own| !own.is_empty()),
        };
        match port {
            Some(port) if !host.is_empty() && host != "unix" => {
                Ok(Address::Tcp(host.into(), port.into()))
            }
            _ => Err(format!("invalid address: {text}")),
        }
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

/// Who may connect to a Unix socket: everybody who may write to its file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SocketAccess {
    /// The file's permissions.
    pub mode: u32,
    /// The file's group; `None`: the group of the user.
    pub group: Option<String>,
}

/// A socket to listen on.
#[derive(Debug)]
pub struct Listener {
    /// Readable when a client has connected.
    pub socket: OwnedFd,
    /// The address of the socket itself.
    place: String,
    /// The socket's file, if we have made it: it is removed at the end.
    file: Option<PathBuf>,
}

impl Drop for Listener {
    fn drop(&mut self) {
        if let Some(path) = &self.file
            && let Err(error) = fs::remove_file(path)
            && error.kind() != io::ErrorKind::NotFound
        {
            let path = path.display();
            log::warning(format_args!("removing the socket {path}: {error}"));
        }
    }
}

impl Listener {
    /// Binds a socket. A Unix socket's file belongs to the user that the
    /// process will become, so that this user can connect to it and remove it.
    /// Clients can connect to a TCP socket after [`listen`](Self::listen). A
    /// Unix socket listens at once; otherwise another server would think that
    /// its file is stale.
    ///
    /// # Errors
    ///
    /// If the address cannot be used, or another server listens there already.
    pub fn bind(
        address: &Address,
        access: &SocketAccess,
        user: Option<&User>,
    ) -> io::Result<Listener> {
        match address {
            Address::Tcp(host, port) => Listener::on(bind_tcp(host, find_port(port)?)?),
            Address::Unix(path) => {
                let group = access.group.as_deref().map(find_group).transpose()?;
                remove_if_stale(path)?;
                let mut listener = Listener::on(UnixListener::bind(path)?.into())?;
                listener.file = Some(path.clone());
                // Only root can give files away, and only root will become
                // another user.
                let user = user.filter(|_| Uid::effective().is_root());
                let group = group.or(user.map(|user| user.gid.as_raw()));
                chown(path, user.map(|user| user.uid.as_raw()), group)?;
                fs::set_permissions(path, Permissions::from_mode(access.mode))?;
                Ok(listener)
            }
        }
    }

    /// Takes over a socket that another program has bound.
    ///
    /// # Errors
    ///
    /// If it is neither a TCP nor a Unix stream socket.
    pub fn on(socket: OwnedFd) -> io::Result<Listener> {
        let is_stream = getsockopt(&socket, sockopt::SockType)? == SockType::Stream;
        let address = getsockname::<SockaddrStorage>(socket.as_raw_fd())?;
        let place = match address.family() {
            Some(AddressFamily::Inet | AddressFamily::Inet6) if is_stream => {
                // Connections inherit these options, so they need not be set on
                // each.
                setsockopt(&socket, sockopt::KeepAlive, &true)?;
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
        let file = None;
        Ok(Listener {
            socket,
            place,
            file,
        })
    }

    /// From now on clients can connect. The queue is long, for many that
    /// connect at the same moment.
    ///
    /// # Errors
    ///
    /// If another server listens there by now.
    pub fn listen(&self) -> io::Result<()> {
        listen(&self.socket, Backlog::MAXCONN)?;
        // Accepting must not block if the client is gone again.
        fcntl(&self.socket, FcntlArg::F_SETFL(OFlag::O_NONBLOCK))?;
        Ok(())
    }

    /// The next connection. Its socket has the listener's options, but it is
    /// blocking.
    ///
    /// # Errors
    ///
    /// As for `accept(2)`; also if no connection is waiting.
    pub fn accept(&self) -> nix::Result<Stream> {
        sys::accept(self.socket.as_fd()).map(Stream)
    }
}

impl fmt::Display for Listener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.place)
    }
}

fn bind_tcp(host: &str, port: u16) -> io::Result<OwnedFd> {
    let mut last_error = io::Error::other("the name has no address");
    for address in (host, port).to_socket_addrs()? {
        match bind_address(address.into()) {
            Ok(socket) => return Ok(socket),
            Err(error) => last_error = error.into(),
        }
    }
    Err(last_error)
}

/// Binds as the standard library does, but does not listen.
fn bind_address(address: SockaddrStorage) -> nix::Result<OwnedFd> {
    let family = address.family().expect("that of an IP address");
    let socket = socket(family, SockType::Stream, SockFlag::SOCK_CLOEXEC, None)?;
    // With this, a restarted server can bind while the system still remembers
    // its old connections.
    setsockopt(&socket, sockopt::ReuseAddr, &true)?;
    bind(socket.as_raw_fd(), &address)?;
    Ok(socket)
}

/// Reads a port: a number, or the name of a service in the system's list.
fn find_port(text: &str) -> io::Result<u16> {
    let list = || fs::read_to_string("/etc/services").unwrap_or_default();
    let port = text.parse().ok().or_else(|| service_port(&list(), text));
    port.ok_or_else(|| io::Error::other(format!("neither a port nor a service: {text}")))
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

fn find_group(name: &str) -> io::Result<u32> {
    match Group::from_name(name)? {
        Some(group) => Ok(group.gid.as_raw()),
        None => Err(io::Error::other(format!("no such group: {name}"))),
    }
}

/// Removes a socket's file if no server listens on it any more. A file that is
/// no socket stays, and binding will fail.
fn remove_if_stale(path: &Path) -> io::Result<()> {
    let is_socket = fs::symlink_metadata(path).is_ok_and(|file| file.file_type().is_socket());
    if is_socket
        && let Err(error) = UnixStream::connect(path)
        && error.kind() == io::ErrorKind::ConnectionRefused
    {
        fs::remove_file(path)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_may_have_a_port_of_its_own() {
        for (text, place) in [
            ("127.0.0.1", "127.0.0.1:1"),
            ("127.0.0.1:2", "127.0.0.1:2"),
            ("queue.example.org:beanstalk", "queue.example.org:beanstalk"),
            ("::1", "[::1]:1"),
            ("[::1]", "[::1]:1"),
            ("[::1]:2", "[::1]:2"),
            ("unix:/run/a:b", "unix:/run/a:b"),
        ] {
            let address = Address::new(text, "1").expect(text);
            assert_eq!(address.to_string(), place);
        }
        for text in ["", ":2", "host:", "[::1", "[::1]2", "[]", "unix:", "[::1]:"] {
            let message = format!("invalid address: {text}");
            assert_eq!(Address::new(text, "1"), Err(message));
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
}
