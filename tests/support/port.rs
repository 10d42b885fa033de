//! A port of the loopback for a server that will be started later.
//!
//! If a test asks the system for a free port and lets go of it, another process
//! may get the same port. So the port stays bound to a socket of ours that does
//! not listen. The system then gives the port to no other program, and a client that
//! connects is refused. A server that is told the number can listen there, as
//! often as it is started, if it sets `SO_REUSEADDR`. Servers do that so that
//! they can be restarted.

use nix::sys::socket::{
    AddressFamily, SockFlag, SockType, SockaddrIn, bind, getsockname, setsockopt, socket, sockopt,
};
use std::io;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::fd::{AsRawFd, OwnedFd};

/// A TCP port of a loopback address, kept as long as this value lives.
#[derive(Debug)]
pub struct Port {
    /// The number, for the server that will listen there.
    pub number: u16,
    _bound: OwnedFd,
}

impl Port {
    /// Reserves the port of this number at 127.0.0.1, or with 0 any port that is free.
    ///
    /// # Errors
    ///
    /// If another process listens there, or this process may not bind the port,
    /// or no descriptor is left.
    pub fn reserve(number: u16) -> io::Result<Port> {
        Port::reserve_at(Ipv4Addr::LOCALHOST, number)
    }

    /// The same at another address.
    pub fn reserve_at(host: Ipv4Addr, number: u16) -> io::Result<Port> {
        let (family, flags) = (AddressFamily::Inet, SockFlag::SOCK_CLOEXEC);
        let bound = socket(family, SockType::Stream, flags, None)?;
        setsockopt(&bound, sockopt::ReuseAddr, &true)?;
        let place = SockaddrIn::from(SocketAddrV4::new(host, number));
        bind(bound.as_raw_fd(), &place)?;
        Ok(Port {
            number: getsockname::<SockaddrIn>(bound.as_raw_fd())?.port(),
            _bound: bound,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream};

    #[test]
    fn a_reserved_port_is_given_only_to_a_server_that_asks_for_its_number() {
        let port = Port::reserve(0).unwrap();
        let place = ("127.0.0.1", port.number);
        let refused = TcpStream::connect(place).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused);
        let _server = TcpListener::bind(place).unwrap();
        TcpStream::connect(place).unwrap();
        assert!(Port::reserve(port.number).is_err());
    }
}
