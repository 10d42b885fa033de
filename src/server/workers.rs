//! The workers: each serves one client after the other.

use super::client::Client;
use super::shared::Shared;
use super::worker;
use crate::sync::{Receiver, Sender, bounded, thread};
use crate::sys;
use std::io;
use std::sync::Arc;
use std::time::Duration;

/// The size of a worker's stack, in bytes. Only the pages that are touched cost
/// memory.
const STACK: usize = 128 * 1024;

/// How long a worker waits for another client before it ends.
const LINGERS: Duration = Duration::from_secs(10);

/// How long the acceptor waits for a worker that is about to be idle. Then it
/// looks whether that worker has ended instead.
const SOON: Duration = Duration::from_millis(1);

/// Gives clients to idle workers and to new ones. When it is dropped, idle
/// workers end.
pub struct Workers {
    shared: Arc<Shared>,
    /// A channel without buffer: sending succeeds only if an idle worker waits
    /// for a client.
    to_idle: Sender<Arc<Client>>,
    /// The other end of the channel, for workers.
    clients: Receiver<Arc<Client>>,
}

impl Workers {
    /// There are no workers yet.
    pub fn new(shared: Arc<Shared>) -> Workers {
        let (to_idle, clients) = bounded(0);
        Workers {
            shared,
            to_idle,
            clients,
        }
    }

    /// Gives the client to an idle worker, or to a new one if none is idle.
    ///
    /// # Errors
    ///
    /// If no worker is idle, and the system has no thread left.
    pub fn hand_over(&self, client: &Arc<Client>) -> io::Result<()> {
        if self.to_idle.try_send(Arc::clone(client)).is_ok() {
            return Ok(());
        }
        while !self.may_start_one() {
            // There are as many workers as there may be clients. So one of them
            // has no client any more, and will soon be idle, or end.
            let handed = self.to_idle.send_timeout(Arc::clone(client), SOON);
            if handed.is_ok() {
                return Ok(());
            }
        }
        self.start_one(client)
            .inspect_err(|_| one_less(&self.shared))
    }

    /// Counts one more worker, unless there are as many as there may be clients.
    fn may_start_one(&self) -> bool {
        self.shared.with_lock(|state, _| {
            let most = self.shared.limits.max_connections as u64;
            let may = state.workers < most;
            state.workers += u64::from(may);
            may
        })
    }

    fn start_one(&self, client: &Arc<Client>) -> io::Result<()> {
        sys::find_room_for_threads()?;
        let (shared, clients) = (Arc::clone(&self.shared), self.clients.clone());
        let first = Arc::clone(client);
        let worker = thread::Builder::new()
            .name("worker".into())
            .stack_size(STACK);
        worker.spawn(move || work(&shared, first, &clients))?;
        Ok(())
    }
}

/// A worker's life. It ends when no client has come for a while.
fn work(shared: &Shared, first: Arc<Client>, clients: &Receiver<Arc<Client>>) {
    let mut client = first;
    loop {
        worker::serve(shared, &client);
        drop(client);
        match clients.recv_timeout(LINGERS) {
            Ok(next) => client = next,
            Err(_) => return one_less(shared),
        }
    }
}

fn one_less(shared: &Shared) {
    shared.with_lock(|state, _| state.workers -= 1);
}
