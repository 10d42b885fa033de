//! Sockets: TCP and Unix ones behind one type.

use crate::sys;
use nix::sys::socket::{MsgFlags, getsockopt, send, sockopt};
use std::fmt;
use std::io::{self, IoSlice, Write};
use std::net::{Shutdown, TcpStream};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

/// A connected socket.
pub enum Stream {
    /// Over TCP.
    Tcp(TcpStream),
    /// Over a Unix socket.
    Unix(UnixStream),
}

impl Stream {
    /// Reads some bytes behind those in the buffer, into room that it has:
    /// `most` at most. 0 if the peer sends nothing more.
    pub fn read(&self, buffer: &mut Vec<u8>, most: usize) -> io::Result<usize> {
        retry(|| sys::receive(self.as_fd(), buffer, most))
    }

    /// Writes these pieces one after the other, with as few calls as it takes.
    pub fn write_all(&self, mut pieces: &mut [IoSlice<'_>]) -> io::Result<()> {
        while !pieces.is_empty() {
            // One piece, the usual case, is cheaper to send as such.
            let written = retry(|| match (self, &*pieces) {
                (Stream::Tcp(stream), [piece]) => (&*stream).write(piece),
                (Stream::Unix(stream), [piece]) => (&*stream).write(piece),
                (Stream::Tcp(stream), pieces) => (&*stream).write_vectored(pieces),
                (Stream::Unix(stream), pieces) => (&*stream).write_vectored(pieces),
            })?;
            if written == 0 {
                return Err(io::ErrorKind::WriteZero.into());
            }
            IoSlice::advance_slices(&mut pieces, written);
        }
        Ok(())
    }

    /// Writes as much as can be written without waiting: how many bytes.
    pub fn try_write(&self, bytes: &[u8]) -> io::Result<usize> {
        let flags = MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_NOSIGNAL;
        let sent = retry(|| Ok(send(self.as_fd().as_raw_fd(), bytes, flags)?));
        match sent {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(0),
            sent => sent,
        }
    }

    /// Whether all that was written is with the peer's side: then there is room
    /// for a short reply.
    pub fn has_sent_all(&self) -> bool {
        sys::unsent(self.as_fd()).is_ok_and(|count| count == 0)
    }

    /// Sets after how long without a byte reading fails as
    /// [`WouldBlock`](io::ErrorKind::WouldBlock); `None`, as it is at first:
    /// never.
    pub fn set_read_patience(&self, patience: Option<Duration>) -> io::Result<()> {
        match self {
            Stream::Tcp(stream) => stream.set_read_timeout(patience),
            Stream::Unix(stream) => stream.set_read_timeout(patience),
        }
    }

    /// The same for writing.
    pub fn set_write_patience(&self, patience: Option<Duration>) -> io::Result<()> {
        match self {
            Stream::Tcp(stream) => stream.set_write_timeout(patience),
            Stream::Unix(stream) => stream.set_write_timeout(patience),
        }
    }

    /// Has a thread that reads from it see the end.
    pub fn stop_reading(&self) {
        self.shutdown(Shutdown::Read);
    }

    /// Ends it in both directions.
    pub fn close(&self) {
        self.shutdown(Shutdown::Both);
    }

    fn shutdown(&self, how: Shutdown) {
        // It fails only where the peer has already ended the connection.
        let (Ok(()) | Err(_)) = match self {
            Stream::Tcp(stream) => stream.shutdown(how),
            Stream::Unix(stream) => stream.shutdown(how),
        };
    }
}

/// Where the peer is, for people to read.
impl fmt::Display for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Stream::Tcp(stream) => match stream.peer_addr() {
                Ok(address) => address.fmt(f),
                Err(_) => f.write_str("a client that is gone"),
            },
            Stream::Unix(stream) => match getsockopt(stream, sockopt::PeerCredentials) {
                Ok(peer) => write!(f, "unix:pid={},uid={}", peer.pid(), peer.uid()),
                Err(_) => f.write_str("a client that is gone"),
            },
        }
    }
}

impl AsFd for Stream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Stream::Tcp(stream) => stream.as_fd(),
            Stream::Unix(stream) => stream.as_fd(),
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
