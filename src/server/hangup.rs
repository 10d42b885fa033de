//! The hang-up lists: they tell which peers send nothing more.
//!
//! Each connection is in the first list from the start. The acceptor asks it
//! before each connection that it takes, and nobody sleeps for it. A connection
//! that has waited in a reserve is in the second list as well: its worker cannot
//! read, so the acceptor waits for this list and for connections at the same time.
//! So a request costs nothing here, and the end of a connection that has never
//! waited wakes nobody but its worker.

use super::outbox::Client;
use crate::engine::ConnectionId;
use crate::sys::HangupList;
use nix::errno::Errno;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};

/// Both lists. A connection stays in them until its socket is closed.
pub struct Hangups {
    all: HangupList,
    waiting: HangupList,
}

impl Hangups {
    /// Empty lists.
    pub fn new() -> nix::Result<Hangups> {
        Ok(Hangups {
            all: HangupList::new()?,
            waiting: HangupList::new()?,
        })
    }

    /// Adds a connection. If the peer is gone already, this is noticed as well.
    pub fn watch(&self, client: &Client) -> io::Result<()> {
        Ok(self.all.add(&client.stream.0, client.id.0)?)
    }

    /// Adds a connection that waits for the first time.
    pub fn watch_waiting(&self, client: &Client) -> io::Result<()> {
        Ok(self.waiting.add(&client.stream.0, client.id.0)?)
    }

    /// Which peers have hung up since this was last asked. One that has closed
    /// its sending half first, and the rest later, may be told of twice.
    pub fn take(&self) -> Vec<ConnectionId> {
        take(&self.all)
    }

    /// The same of those that have waited.
    pub fn take_waiting(&self) -> Vec<ConnectionId> {
        take(&self.waiting)
    }
}

fn take(list: &HangupList) -> Vec<ConnectionId> {
    let mut gone = Vec::new();
    loop {
        match list.take() {
            Ok(numbers) => {
                let before = gone.len();
                gone.extend(numbers.map(ConnectionId));
                if gone.len() < before + HangupList::AT_ONCE {
                    return gone;
                }
            }
            Err(Errno::EINTR) => {}
            Err(error) => panic!("asking for clients that have left: {error}"),
        }
    }
}

/// Readable when peers that have waited have hung up.
impl AsFd for Hangups {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.waiting.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::Stream;
    use std::os::unix::net::UnixStream;

    /// A client with this number, and its peer.
    fn client(number: u64) -> (Client, UnixStream) {
        let (ours, theirs) = UnixStream::pair().unwrap();
        (
            Client::new(Stream(ours.into()), ConnectionId(number), None, None),
            theirs,
        )
    }

    #[test]
    fn all_who_have_hung_up_are_told_of_however_many_they_are() {
        let hangups = Hangups::new().unwrap();
        let many = HangupList::AT_ONCE as u64 + 1;
        let pairs: Vec<_> = (0..many).map(client).collect();
        for (client, _) in &pairs {
            hangups.watch_waiting(client).unwrap();
        }
        let (clients, peers): (Vec<_>, Vec<_>) = pairs.into_iter().unzip();
        drop(peers);
        assert_eq!(hangups.take_waiting().len(), clients.len());
        assert_eq!(hangups.take(), []);
    }
}
