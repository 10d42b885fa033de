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

/// A connected socket.
pub struct Stream(pub OwnedFd);

impl Stream {
    /// Reads at most `most` bytes, and appends them to the buffer, as far as
    /// that has capacity. 0 if the peer sends nothing more.
    pub fn read(&self, buffer: &mut Vec<u8>, most: usize) -> io::Result<usize> {
        retry(|| sys::receive(self.0.as_fd(), buffer, most))
    }

    /// Writes these pieces one after the other, with as few calls as possible.
    /// Before each call, `goes_on` is told after how many waits the peer has still
    /// taken nothing; an error of it ends the writing.
    pub fn write_all(
        &self,
        mut pieces: &mut [IoSlice<'_>],
        mut goes_on: impl FnMut(u32) -> io::Result<()>,
    ) -> io::Result<()> {
        let (socket, flags) = (self.0.as_raw_fd(), MsgFlags::empty());
        let mut waits = 0;
        while !pieces.is_empty() {
            goes_on(waits)?;
            // One piece, the usual case, is cheaper to send as such.
            let written = retry(|| match &*pieces {
                [piece] => Ok(send(socket, piece, flags)?),
                pieces => Ok(sendmsg::<()>(socket, pieces, &[], flags, None)?),
            });
            match written {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => waits += 1,
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

    /// How many bytes the peer has sent in all; `None` if the system cannot tell.
    /// To be asked when it has sent the end of its stream.
    pub fn received(&self) -> Option<u64> {
        sys::received(&self.0)
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

    /// Sets how long one wait of [`write_all`](Self::write_all) takes. `None`, the
    /// initial value, means for ever.
    pub fn set_write_wait(&self, wait: Option<Duration>) -> io::Result<()> {
        Ok(setsockopt(&self.0, sockopt::SendTimeout, &time(wait))?)
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixStream;

    #[test]
    fn who_writes_to_a_peer_that_does_not_read_is_asked_before_each_wait() {
        let (writing, _reading) = UnixStream::pair().unwrap();
        let stream = Stream(writing.into());
        let wait = Duration::from_millis(1);
        stream.set_write_wait(Some(wait)).unwrap();
        let mut asked = Vec::new();
        let written = stream.write_all(&mut [IoSlice::new(&[b'x'; 1 << 20])], |waits| {
            asked.push(waits);
            match waits {
                0..3 => Ok(()),
                _ => Err(io::Error::other("the lease is over")),
            }
        });
        assert_eq!(written.unwrap_err().to_string(), "the lease is over");
        assert_eq!(asked, [0, 0, 1, 2, 3]);
    }

    #[test]
    fn a_write_to_a_peer_that_is_gone_fails() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        drop(theirs);
        let error = Stream(ours.into()).try_write(b"x").unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::BrokenPipe);
    }

    #[test]
    fn a_call_that_a_signal_interrupts_is_made_again() {
        let mut calls = [Err(io::ErrorKind::Interrupted.into()), Ok(7)].into_iter();
        assert_eq!(retry(|| calls.next().unwrap()).unwrap(), 7);
    }

    #[test]
    fn a_peer_on_a_unix_socket_is_named_by_its_process() {
        let (ours, _theirs) = UnixStream::pair().unwrap();
        let name = Stream(ours.into()).to_string();
        let user = nix::unistd::geteuid();
        assert!(name.starts_with("unix:"), "{name}");
        assert!(name.ends_with(&format!("uid={user}")), "{name}");
    }
}
