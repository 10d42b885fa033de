//! The workers: threads that serve one client after the other.
//!
//! A client goes to the worker that became idle last, so those that are not needed
//! any more stay idle, and end. If none is idle, another one is started. When there
//! are as many as there may be connections, one of them is just leaving its client:
//! it finds the new one in a queue. The acceptor waits for none of this.

use super::outbox::Client;
use super::shared::Shared;
use super::worker;
use crate::engine::ConnectionId;
use crate::sync::{Sender, bounded, thread};
use crate::sys;
use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::time::Duration;

/// The size of a worker's stack, in bytes. Only the pages that are touched cost
/// memory.
const STACK: usize = 128 * 1024;

/// How long a worker waits for another client before it ends.
const LINGERS: Duration = Duration::from_secs(10);

/// The workers, as the one lock guards them.
#[derive(Default)]
pub struct Workers {
    /// How many there are: never more than there may be connections.
    pub count: usize,
    /// Those without a client, in the order in which they became idle. A worker
    /// whose sender is dropped ends.
    pub idle: Vec<Sender<Arc<Client>>>,
    /// Clients that wait for a worker. While there is one, no worker is idle.
    queue: VecDeque<Arc<Client>>,
}

impl Workers {
    /// Forgets a client that needs no worker any more. Returns whether it was
    /// still waiting for one.
    pub fn forget(&mut self, id: ConnectionId) -> bool {
        let before = self.queue.len();
        self.queue.retain(|client| client.id != id);
        self.queue.len() < before
    }
}

/// Has a worker serve the client.
///
/// # Errors
///
/// If no worker is idle, and the system has no thread left.
pub fn hand_over(shared: &Arc<Shared>, client: &Arc<Client>) -> io::Result<()> {
    loop {
        let (idle, starts) = shared.with_lock(|state, _| {
            let workers = &mut state.workers;
            let idle = workers.idle.pop();
            let starts = idle.is_none() && workers.count < shared.limits.max_connections;
            if starts {
                workers.count += 1;
            } else if idle.is_none() {
                workers.queue.push_back(Arc::clone(client));
            }
            (idle, starts)
        });
        match idle {
            // It fails if the worker does not listen yet. Then that one ends.
            Some(idle) if idle.try_send(Arc::clone(client)).is_err() => {}
            None if starts => return start(shared, client),
            _ => return Ok(()),
        }
    }
}

fn start(shared: &Arc<Shared>, client: &Arc<Client>) -> io::Result<()> {
    let (serving, first) = (Arc::clone(shared), Arc::clone(client));
    let worker = thread::Builder::new().name("worker".into());
    let started = sys::find_room_for_threads().and_then(|()| {
        let worker = worker.stack_size(STACK);
        worker.spawn(move || work(&serving, first))
    });
    if started.is_err() {
        shared.with_lock(|state, _| state.workers.count -= 1);
    }
    started.map(drop)
}

/// A worker's life. It ends when no client has come for a while.
fn work(shared: &Shared, first: Arc<Client>) {
    let mut next = Some(first);
    while let Some(client) = next {
        worker::serve(shared, &client);
        drop(client);
        next = next_client(shared);
    }
}

/// The next client, for a worker that has closed its last one; `None` if it is to
/// end. Then it counts no more.
fn next_client(shared: &Shared) -> Option<Arc<Client>> {
    // Without a buffer, so that a client that is sent has a worker.
    let (sender, clients) = bounded(0);
    let queued = shared.closed(|state| {
        let queued = state.workers.queue.pop_front();
        if queued.is_none() && !shared.is_stopping() {
            state.workers.idle.push(sender);
        }
        queued
    });
    if queued.is_some() {
        return queued;
    }
    loop {
        match clients.recv_timeout(LINGERS) {
            Ok(client) => return Some(client),
            Err(error) if error.is_timeout() => {
                // The worker that has been idle for longest ends: this one, unless
                // the acceptor has just chosen it.
                let longest = shared.with_lock(|state, _| {
                    let idle = &mut state.workers.idle;
                    (!idle.is_empty()).then(|| idle.remove(0))
                });
                drop(longest);
            }
            Err(_) => {
                return shared.with_lock(|state, _| {
                    let queued = state.workers.queue.pop_front();
                    state.workers.count -= usize::from(queued.is_none());
                    queued
                });
            }
        }
    }
}
