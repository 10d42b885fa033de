//! The workers: threads that serve one client after the other.
//!
//! The acceptor hands each client to an idle worker, through a channel. If none is
//! idle, it starts another one. A worker whose client has closed becomes idle, unless
//! enough others are: then it ends. So after a crowd of clients only a few threads are left.

use super::outbox::Client;
use super::shared::Shared;
use super::worker;
use crate::sync::{Receiver, Sender, spawn, unbounded};
use std::io;
use std::sync::Arc;

/// Hands clients to workers. Those that are idle end when it is dropped.
pub struct Workers {
    /// Never holds more clients than there are workers that have counted as idle.
    clients: Sender<Arc<Client>>,
    /// The other end of this channel. Each new worker gets a copy.
    receiver: Receiver<Arc<Client>>,
}

impl Workers {
    /// Without workers.
    pub fn new() -> Workers {
        let (clients, receiver) = unbounded();
        Workers { clients, receiver }
    }

    /// Has a worker serve the client.
    ///
    /// # Errors
    ///
    /// If no worker is idle, and the system has no thread left.
    pub fn hand_over(&self, shared: &Arc<Shared>, client: &Arc<Client>) -> io::Result<()> {
        let first = Arc::clone(client);
        let is_one_idle = shared.with_lock(|state, _| {
            let idle = state.idle_workers;
            state.idle_workers = idle.saturating_sub(1);
            idle > 0
        });
        if is_one_idle {
            let sent = self.clients.send(first);
            sent.expect("there is a receiver, above");
            return Ok(());
        }
        let (shared, receiver) = (Arc::clone(shared), self.receiver.clone());
        spawn("worker", move || work(&shared, &receiver, first)).map(drop)
    }
}

/// A worker's life.
fn work(shared: &Shared, receiver: &Receiver<Arc<Client>>, first: Arc<Client>) {
    let mut next = Some(first);
    while let Some(client) = next {
        worker::serve(shared, &client);
        let is_idle = shared.leave(&client, true);
        drop(client);
        next = is_idle.then(|| receiver.recv().ok()).flatten();
    }
}
