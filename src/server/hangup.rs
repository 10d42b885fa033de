//! The hang-up watcher: notices peers that go away while their worker waits
//! in a `reserve` and cannot read.
//!
//! A connection is entered the first time it waits, for the end of the peer's
//! stream alone and once (edge-triggered). So a request never costs anything
//! here, and nothing wakes up as long as nobody leaves.

use super::client::Client;
use crate::engine::ConnectionId;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use std::io;

/// The list of those who are watched.
pub struct HangupWatcher(Epoll);

impl HangupWatcher {
    /// Watches nobody yet.
    pub fn new() -> nix::Result<HangupWatcher> {
        Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC).map(HangupWatcher)
    }

    /// Adds a connection, until its socket is closed. If the peer is gone
    /// already, that is noticed as well.
    pub fn watch(&self, client: &Client) -> io::Result<()> {
        let flags = EpollFlags::EPOLLRDHUP | EpollFlags::EPOLLET;
        let event = EpollEvent::new(flags, client.id.0);
        Ok(self.0.add(&client.stream, event)?)
    }

    /// What the thread does all its life: tells `gone` who is gone.
    pub fn run(&self, mut gone: impl FnMut(&mut dyn Iterator<Item = ConnectionId>)) {
        let mut events = [EpollEvent::empty(); 64];
        loop {
            let count = match self.0.wait(&mut events, EpollTimeout::NONE) {
                Ok(count) => count,
                Err(nix::errno::Errno::EINTR) => continue,
                Err(error) => panic!("waiting for clients that leave: {error}"),
            };
            let ids = events[..count].iter().map(EpollEvent::data);
            gone(&mut ids.map(ConnectionId));
        }
    }
}
