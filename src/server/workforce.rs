//! The workers that are there, and the clients on their way to one.
//!
//! Not a channel: one of those has its reader look again and again before it
//! goes to sleep, which costs a short connection more than all of this.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard};
use std::time::Duration;

/// How long a worker waits for another client before it ends.
const LINGERS: Duration = Duration::from_secs(10);

/// Hands clients to workers.
pub struct Workforce<C> {
    state: Mutex<State<C>>,
    client_came: Condvar,
}

struct State<C> {
    /// Each will be taken by a worker that is idle, or is about to be.
    clients: VecDeque<C>,
    /// Those that wait for a client.
    idle: usize,
    /// All that will ever ask for a client again.
    workers: usize,
}

impl<C> Workforce<C> {
    /// Nobody.
    pub fn new() -> Workforce<C> {
        Workforce {
            state: Mutex::new(State {
                clients: VecDeque::new(),
                idle: 0,
                workers: 0,
            }),
            client_came: Condvar::new(),
        }
    }

    /// Gives this client to an idle worker; back if there is none. If there
    /// are `enough` workers, one that is about to be idle will do as well.
    pub fn give(&self, client: C, enough: usize) -> Result<(), C> {
        let mut state = self.lock();
        if state.clients.len() >= state.idle && state.workers < enough {
            return Err(client);
        }
        state.clients.push_back(client);
        drop(state);
        self.client_came.notify_one();
        Ok(())
    }

    /// Adds a worker, which is busy at first.
    pub fn add(&self) {
        self.lock().workers += 1;
    }

    /// Takes back that it was added: it could not be started.
    pub fn remove(&self) {
        self.lock().workers -= 1;
    }

    /// What a worker is to do next. None if there was nothing for a while: then
    /// it is no longer one.
    pub fn next(&self) -> Option<C> {
        let mut state = self.lock();
        state.idle += 1;
        let has_none = |state: &mut State<C>| state.clients.is_empty();
        let waited = self
            .client_came
            .wait_timeout_while(state, LINGERS, has_none);
        state = waited.expect("no thread panics").0;
        state.idle -= 1;
        let client = state.clients.pop_front();
        if client.is_none() {
            state.workers -= 1;
        }
        client
    }

    fn lock(&self) -> MutexGuard<'_, State<C>> {
        self.state.lock().expect("no thread panics")
    }
}
