//! A connected socket, TCP or Unix. Its calls block, except where it is said
//! otherwise. (Who writes to a peer that is gone gets an error and no signal:
//! Rust's programs ignore SIGPIPE from their start.)

use crate::sys;
use nix::sys::socket::{
    AddressFamily, MsgFlags, Shutdown, SockaddrLike, SockaddrStorage, getpeername, send, sendmsg,
    setsockopt, shutdown, sockopt,
};
use nix::sys::time::{TimeVal, TimeValLike};
use std::fmt;
use std::io::{self, IoSlice};
use std::net::IpAddr;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::time::Duration;

/// The patience of a write is split into so many waits. After a wait in which
/// something was taken, the system does not say how long ago that was; and while
/// its buffers grow, it takes something though the peer does not read. With four
/// waits, a peer that did not read had 3.1 s instead of 2, now it has 2.4.
const WRITE_WAITS: u32 = 16;

/// A connected socket.
pub struct Stream(pub OwnedFd);

impl Stream {
    /// Reads at most `most` bytes, and appends them to the buffer, as far as
    /// that has capacity. 0 if the peer sends nothing more.
    pub fn read(&self, buffer: &mut Vec<u8>, most: usize) -> io::Result<usize> {
        retry(|| sys::receive(self.0.as_fd(), buffer, most))
    }

    /// Writes these pieces one after the other, with as few calls as possible.
    pub fn write_all(&self, mut pieces: &mut [IoSlice<'_>]) -> io::Result<()> {
        let (socket, flags) = (self.0.as_raw_fd(), MsgFlags::empty());
        let mut waits = 0;
        while !pieces.is_empty() {
            // One piece, the usual case, is cheaper to send as such.
            let written = retry(|| match &*pieces {
                [piece] => Ok(send(socket, piece, flags)?),
                pieces => Ok(sendmsg::<()>(socket, pieces, &[], flags, None)?),
            });
            match written {
                Err(error)
                    if error.kind() == io::ErrorKind::WouldBlock && waits + 1 < WRITE_WAITS =>
                {
                    waits += 1;
                }
                written => {
                    waits = 0;
                    IoSlice::advance_slices(&mut pieces, written?);
                }
            }
        }
        Ok(())
    }

    /// Writes as much as can be written without waiting, and returns how many
    /// bytes that is.
    pub fn try_write(&self, bytes: &[u8]) -> io::Result<usize> {
        match retry(|| Ok(send(self.0.as_raw_fd(), bytes, MsgFlags::MSG_DONTWAIT)?)) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(0),
            sent => sent,
        }
    }

    /// The address of the peer; `None` on a Unix socket, or if the peer has gone.
    pub fn peer_ip(&self) -> Option<IpAddr> {
        let address = getpeername::<SockaddrStorage>(self.0.as_raw_fd()).ok()?;
        let v4 = address.as_sockaddr_in().map(|address| address.ip().into());
        v4.or_else(|| Some(address.as_sockaddr_in6()?.ip().into()))
    }

    /// Whether the peer's side has received all that was written. Then there is
    /// room for a short reply.
    pub fn has_sent_all(&self) -> bool {
        sys::unsent(self.0.as_fd()).is_ok_and(|count| count == 0)
    }

    /// Sets the time after which a read without a byte fails as
    /// [`WouldBlock`](io::ErrorKind::WouldBlock). `None`, the initial value,
    /// means never.
    pub fn set_read_patience(&self, patience: Option<Duration>) -> io::Result<()> {
        Ok(setsockopt(
            &self.0,
            sockopt::ReceiveTimeout,
            &time(patience),
        )?)
    }

    /// Sets the time after which [`write_all`](Self::write_all) fails in the
    /// same way if the peer has taken nothing.
    pub fn set_write_patience(&self, patience: Option<Duration>) -> io::Result<()> {
        let each = patience.map(|patience| patience / WRITE_WAITS);
        Ok(setsockopt(&self.0, sockopt::SendTimeout, &time(each))?)
    }

    /// Makes a thread that reads from the socket see the end of the stream.
    pub fn stop_reading(&self) {
        // This fails only if the peer has already ended the connection.
        let (Ok(()) | Err(_)) = shutdown(self.0.as_raw_fd(), Shutdown::Read);
    }

    /// Ends the connection in both directions.
    pub fn close(&self) {
        // This fails only in the same case as above.
        let (Ok(()) | Err(_)) = shutdown(self.0.as_raw_fd(), Shutdown::Both);
    }
}

/// The time in the system's form: zero means no limit, and some machines cannot
/// count further than `longest`.
fn time(patience: Option<Duration>) -> TimeVal {
    let longest = Duration::from_secs(1 << 30);
    let micros = patience.unwrap_or_default().min(longest).as_micros();
    TimeVal::microseconds(micros.try_into().expect("2^50 at most"))
}

/// The peer's address, for people to read.
impl fmt::Display for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let address = getpeername::<SockaddrStorage>(self.0.as_raw_fd());
        match (address, sys::peer(&self.0)) {
            (Ok(address), Ok(peer)) if address.family() == Some(AddressFamily::Unix) => {
                write!(f, "unix:{peer}")
            }
            (Ok(address), _) => address.fmt(f),
            (Err(_), _) => f.write_str("a client that is gone"),
        }
    }
}

fn retry<T>(mut call: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    loop {
        match call() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            result => return result,
        }
    }
}
