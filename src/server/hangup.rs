//! The hang-up watcher: notices peers that go away while their worker waits
//! in a `reserve` and cannot read.
//!
//! A connection is registered when it waits for the first time. The watcher
//! hears only of the end of the peer's stream, and once (edge-triggered). So a
//! request costs nothing here, and the thread sleeps until somebody leaves.

use super::client::Client;
use crate::engine::ConnectionId;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use std::io;

/// The list of the connections that are watched.
pub struct HangupWatcher(Epoll);

impl HangupWatcher {
    /// An empty list.
    pub fn new() -> nix::Result<HangupWatcher> {
        Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC).map(HangupWatcher)
    }

    /// Adds a connection. It stays in the list until its socket is closed. If
    /// the peer is gone already, this is noticed as well.
    pub fn watch(&self, client: &Client) -> io::Result<()> {
        let flags = EpollFlags::EPOLLRDHUP | EpollFlags::EPOLLET;
        let event = EpollEvent::new(flags, client.id.0);
        Ok(self.0.add(&client.stream.0, event)?)
    }

    /// What the thread does all its life: tells `gone` which peers are gone.
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
