//! A connected socket, TCP or Unix. Its calls block, except where it is said
//! otherwise. (A write to a peer that has closed returns an error and raises
//! no signal: Rust's programs ignore SIGPIPE from their start.)

use super::LOOKS_EVERY;
use crate::engine::Peer;
use crate::sys;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{
    AddressFamily, MsgFlags, Shutdown, SockaddrLike, SockaddrStorage, getpeername, getsockopt,
    recv, send, sendmsg, setsockopt, shutdown, sockopt,
};
use nix::sys::time::{TimeVal, TimeValLike};
use std::io::{self, IoSlice};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::time::{Duration, Instant};

/// How long a peer has to receive what was sent, when the server ends the connection. When
/// the server itself stops, it waits a little longer (`STOP_GRACE`).
const RECEIVES_WITHIN: Duration = Duration::from_secs(1);

/// A connected socket.
pub struct Stream(pub OwnedFd);

impl Stream {
    /// Reads at most `most` bytes, and appends them to the buffer, as far as
    /// that has capacity. 0 if the peer sends nothing more. A signal may interrupt it.
    pub fn read(&self, buffer: &mut Vec<u8>, most: usize) -> io::Result<usize> {
        sys::receive(self.0.as_fd(), buffer, most)
    }

    /// Writes as much of these pieces as can be written without waiting, and
    /// returns how many bytes that is.
    pub fn try_write(&self, pieces: &[IoSlice<'_>]) -> io::Result<usize> {
        let (socket, flags) = (self.0.as_raw_fd(), MsgFlags::MSG_DONTWAIT);
        // One piece, the usual case, is cheaper to send as such.
        let written = match pieces {
            [piece] => send(socket, piece, flags),
            pieces => sendmsg::<()>(socket, pieces, &[], flags, None),
        };
        match written {
            Err(Errno::EAGAIN | Errno::EINTR) => Ok(0),
            written => Ok(written?),
        }
    }

    /// Whether the kernel holds what the peer has sent for us. (For a Unix socket, it holds
    /// that for the peer.)
    pub fn is_tcp(&self) -> bool {
        getsockopt(&self.0, sockopt::TcpNoDelay).is_ok()
    }

    /// Makes the kernel take this many bytes from the peer of a TCP socket, as long bodies need.
    pub fn widen(&self, bytes: usize) {
        sys::widen(self.0.as_fd(), bytes);
    }

    /// Makes the kernel take no more when it holds so much that it has not sent: this many bytes
    /// in a Unix socket, and little in one of TCP.
    pub fn hold_unsent(&self, bytes: usize) {
        sys::hold_unsent(self.0.as_fd(), bytes);
    }

    /// Waits until something can be written or, if this is wanted, read, or until this time is
    /// over. Returns false if it is over; otherwise one of these can be done, the
    /// connection has ended, or a signal has interrupted this.
    pub fn await_writable(&self, or_input: bool, time: Option<Duration>) -> io::Result<bool> {
        let longest = PollTimeout::MAX;
        let time = time.map(|time| PollTimeout::try_from(time).unwrap_or(longest));
        let mut events = PollFlags::POLLOUT;
        events.set(PollFlags::POLLIN, or_input);
        match self.poll(events, time.unwrap_or(PollTimeout::NONE)) {
            Err(Errno::EINTR) => Ok(true),
            is_ready => Ok(is_ready?),
        }
    }

    /// Whether a read would not wait.
    pub fn has_input(&self) -> bool {
        self.poll(PollFlags::POLLIN, PollTimeout::ZERO) == Ok(true)
    }

    /// Whether the peer has closed, and not only half-closed: a write fails.
    pub fn has_closed(&self) -> bool {
        self.poll(PollFlags::empty(), PollTimeout::ZERO) == Ok(true)
    }

    /// Waits for one of these events, or until both halves are shut. Returns whether that
    /// has come in time.
    fn poll(&self, events: PollFlags, time: PollTimeout) -> nix::Result<bool> {
        poll(&mut [PollFd::new(self.0.as_fd(), events)], time).map(|count| count > 0)
    }

    /// Whether the peer's side has received all that was written. Then there is
    /// space in the socket for a short reply.
    pub fn has_sent_all(&self) -> bool {
        sys::has_sent_all(self.0.as_fd())
    }

    /// Sets the time after which a read without a byte fails as
    /// [`WouldBlock`](io::ErrorKind::WouldBlock). `None`, the initial value,
    /// means never.
    pub fn set_read_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        // Some systems cannot count further than this. Zero means no limit.
        let longest = Duration::from_secs(1 << 30);
        let micros = timeout.unwrap_or_default().min(longest).as_micros();
        let time = TimeVal::microseconds(micros.try_into().expect("2^50 at most"));
        Ok(setsockopt(&self.0, sockopt::ReceiveTimeout, &time)?)
    }

    /// Makes a thread that reads from the socket see the end of the stream.
    pub fn stop_reading(&self) {
        // This fails only if the peer has already ended the connection.
        let (Ok(()) | Err(_)) = shutdown(self.0.as_raw_fd(), Shutdown::Read);
    }

    /// To be called before the socket is closed: one that is closed with unread input
    /// discards what the peer has not received yet. As long as the peer has neither ended
    /// its stream nor received all that was sent, this ends our half and drops the input,
    /// for at most [`RECEIVES_WITHIN`]. `is_stopped`:
    /// [`stop_reading`](Self::stop_reading) was called. Then the end of the input says
    /// nothing about the peer. And our half must stay open: if both are shut, Linux answers
    /// further input with a reset, and discards what is still to be sent.
    // Not inlined: the buffer would be in the caller's frame while the worker waits. And it
    // is short: pages of the stack that were touched stay with the thread.
    #[inline(never)]
    pub fn linger(&self, is_stopped: bool) {
        let (socket, until) = (self.0.as_raw_fd(), Instant::now() + RECEIVES_WITHIN);
        let mut dropped = [0; 512];
        let input = match is_stopped {
            true => PollFlags::empty(),
            false => PollFlags::POLLIN,
        };
        while Instant::now() < until {
            match recv(socket, &mut dropped, MsgFlags::MSG_DONTWAIT) {
                Ok(1..) => {}
                Ok(0) if !is_stopped => return,
                Ok(0) | Err(Errno::EAGAIN) if !self.has_sent_all() => {
                    if !is_stopped {
                        // This fails only if the peer has already ended the connection.
                        let (Ok(()) | Err(_)) = shutdown(socket, Shutdown::Write);
                    }
                    // A peer that closes is noticed at once, since a new client may want
                    // its slot. Nothing reports that it has received everything.
                    let time = PollTimeout::try_from(LOOKS_EVERY).expect("a short time");
                    let (Ok(_) | Err(_)) = self.poll(input, time);
                }
                _ => return,
            }
        }
    }

    /// Where the client comes from. It may have closed before that could be found out.
    pub fn peer(&self) -> Peer {
        let Ok(address) = getpeername::<SockaddrStorage>(self.0.as_raw_fd()) else {
            return "a client that is gone".into();
        };
        match address.family() {
            Some(AddressFamily::Inet | AddressFamily::Inet6) => address.to_string().into(),
            _ => format!("unix:{}", sys::peer(&self.0).unwrap_or_default()).into(),
        }
    }

    /// Ends the connection in both directions.
    pub fn close(&self) {
        // This fails only in the same case as above.
        let (Ok(()) | Err(_)) = shutdown(self.0.as_raw_fd(), Shutdown::Both);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;
    use std::os::unix::net::UnixStream;

    #[test]
    fn a_wait_for_a_peer_that_does_not_read_ends_at_its_timeout() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let stream = Stream(ours.into());
        let wait = Some(Duration::from_millis(1));
        assert!(stream.await_writable(false, wait).unwrap());
        let mut sent = 0;
        while let more @ 1.. = stream.try_write(&[IoSlice::new(&[b'x'; 1000])]).unwrap() {
            sent += more;
        }
        assert!(!stream.await_writable(false, wait).unwrap());
        theirs.read_exact(&mut vec![0; sent]).unwrap();
        assert!(stream.await_writable(false, None).unwrap());
    }

    #[test]
    fn a_write_to_a_closed_peer_fails() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        drop(theirs);
        let error = Stream(ours.into())
            .try_write(&[IoSlice::new(b"x")])
            .unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::BrokenPipe);
    }

    #[test]
    fn a_peer_on_a_unix_socket_is_named_by_its_process() {
        let (ours, _theirs) = UnixStream::pair().unwrap();
        let name = Stream(ours.into()).peer().to_string();
        let user = nix::unistd::geteuid();
        assert!(name.starts_with("unix:"), "{name}");
        assert!(name.ends_with(&format!("uid={user}")), "{name}");
    }
}
