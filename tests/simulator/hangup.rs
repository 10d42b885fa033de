//! Where clients come in, and who has hung up.

use crate::engine::ConnectionId;
use crate::server::outbox::Client;
use crate::server::shared::Shared;
use crate::server::workers;
use crate::simulator::judge;
use crate::simulator::stream::{Peer, Stream};
use crate::sync::{Condvar, Mutex, MutexGuard};
use std::collections::VecDeque;
use std::io;
use std::sync::Arc;

/// A client that connects: who it is, and the server's end.
pub type Caller = (usize, Peer, Stream);

/// Where clients come in.
#[derive(Default)]
pub struct Door {
    state: Mutex<State>,
    rung: Condvar,
}

#[derive(Default)]
struct State {
    callers: VecDeque<Caller>,
    is_shut: bool,
    /// The connections in each of the lists, and what was told of them.
    all: Vec<(ConnectionId, Peer, u8)>,
    waiting: Vec<(ConnectionId, Peer, u8)>,
}

/// As `acceptor::run`.
pub fn accept(shared: &Arc<Shared>, door: &Door) {
    loop {
        match door.wait() {
            Call::End => return,
            Call::HaveLeft => shared.end_waits_of_the_gone(),
            Call::Accept((who, peer, stream)) => {
                judge::connects(who, peer);
                if let Ok(client) = shared.connect(stream, None) {
                    shared.hangups.watch(&client).expect("memory");
                    workers::hand_over(shared, &client).expect("a thread");
                }
            }
        }
    }
}

/// What the acceptor has to do.
enum Call {
    Accept(Caller),
    HaveLeft,
    End,
}

impl Door {
    /// Wakes those who listen.
    pub fn ring(&self) {
        let state = self.state();
        drop(state);
        self.rung.notify_all();
    }

    pub fn call(&self, caller: Caller) {
        let mut state = self.state();
        if !state.is_shut {
            state.callers.push_back(caller);
        }
        drop(state);
        self.rung.notify_all();
    }

    pub fn shut(&self) {
        let mut state = self.state();
        state.is_shut = true;
        let callers = std::mem::take(&mut state.callers);
        drop(state);
        drop(callers);
        self.rung.notify_all();
    }

    fn wait(&self) -> Call {
        let is_quiet = |state: &mut State| {
            state.callers.is_empty() && !state.is_shut && !has_news(&state.waiting)
        };
        let waited = self.rung.wait_while(self.state(), is_quiet);
        let mut state = waited.expect("no thread panics");
        if state.is_shut {
            return Call::End;
        }
        match has_news(&state.waiting) {
            true => Call::HaveLeft,
            false => Call::Accept(state.callers.pop_front().expect("it is not quiet")),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no thread panics")
    }
}

fn has_news(list: &[(ConnectionId, Peer, u8)]) -> bool {
    list.iter().any(|(_, peer, told)| peer.has_left() > *told)
}

fn take(list: &mut Vec<(ConnectionId, Peer, u8)>) -> Vec<ConnectionId> {
    let mut gone = Vec::new();
    for (id, peer, told) in &mut *list {
        let left = peer.has_left();
        if left > *told {
            *told = left;
            gone.push(*id);
        }
    }
    list.retain(|(_, _, told)| *told < 2);
    gone
}

/// The two lists of a server.
pub struct Hangups(Arc<Door>);

impl Hangups {
    pub fn new() -> io::Result<Hangups> {
        Ok(Hangups(crate::simulator::world::door()))
    }

    pub fn watch(&self, client: &Client) -> io::Result<()> {
        let one = (client.id, client.stream.peer(), 0);
        self.0.state().all.push(one);
        Ok(())
    }

    pub fn watch_waiting(&self, client: &Client) -> io::Result<()> {
        let one = (client.id, client.stream.peer(), 0);
        self.0.state().waiting.push(one);
        self.0.ring();
        Ok(())
    }

    pub fn take_waiting(&self) -> Vec<ConnectionId> {
        take(&mut self.0.state().waiting)
    }

    pub fn take(&self) -> Vec<ConnectionId> {
        take(&mut self.0.state().all)
    }
}
