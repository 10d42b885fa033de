//! Where clients connect, and which of them have hung up.

use crate::server::shared::Shared;
use crate::server::workers::Workers;
use crate::simulator::judge::{self, Event};
use crate::simulator::stream::{Peer, Socket, Stream};
use crate::simulator::world;
use crate::sync::{Condvar, Mutex, MutexGuard};
use std::collections::VecDeque;
use std::io;
use std::sync::Arc;

/// A client that connects: its number, its peer, and the server's end.
pub type Caller = (usize, Peer, Stream);

/// Where clients connect.
#[derive(Default)]
pub struct Door {
    state: Mutex<State>,
    rung: Condvar,
}

#[derive(Default)]
struct State {
    callers: VecDeque<Caller>,
    is_shut: bool,
}

/// As `acceptor::run`.
pub fn accept(shared: &Arc<Shared>, door: &Door) {
    let workers = Workers::new();
    loop {
        match door.wait(&shared.hangups_in_reserve) {
            Call::End => return,
            Call::HaveLeft => shared.end_waits_of_hung_up(),
            Call::Accept((who, peer, stream)) => {
                judge::see(Event::Accepts(who, peer));
                match shared.connect(stream) {
                    Ok(client) => workers.hand_over(shared, &client).expect("a thread"),
                    Err(_) => judge::see(Event::Refuses),
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
    /// Wakes the threads that listen.
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

    fn wait(&self, waiting: &HangupList) -> Call {
        let is_quiet =
            |state: &mut State| state.callers.is_empty() && !state.is_shut && !waiting.has_news();
        let waited = self.rung.wait_while(self.state(), is_quiet);
        let mut state = waited.expect("no thread panics");
        if state.is_shut {
            return Call::End;
        }
        if waiting.has_news() {
            Call::HaveLeft
        } else {
            Call::Accept(state.callers.pop_front().expect("it is not quiet"))
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no thread panics")
    }
}

/// Connections, each with its number and with the state that was reported last.
pub struct HangupList {
    door: Arc<Door>,
    sockets: Mutex<Vec<(u64, Peer, u8)>>,
}

impl HangupList {
    pub fn new() -> io::Result<HangupList> {
        Ok(HangupList {
            door: world::door(),
            sockets: Mutex::default(),
        })
    }

    pub fn add(&self, socket: &Arc<Socket>, number: u64) -> io::Result<()> {
        let peer = Peer(socket.clone());
        self.sockets().push((number, peer, 0));
        self.door.ring();
        Ok(())
    }

    pub fn take(&self) -> Vec<u64> {
        let mut gone = Vec::new();
        self.sockets().retain_mut(|(number, peer, told)| {
            let left = peer.has_left();
            if left > *told {
                *told = left;
                gone.push(*number);
            }
            left < 2
        });
        gone
    }

    fn has_news(&self) -> bool {
        let sockets = self.sockets();
        sockets
            .iter()
            .any(|(_, peer, told)| peer.has_left() > *told)
    }

    fn sockets(&self) -> MutexGuard<'_, Vec<(u64, Peer, u8)>> {
        self.sockets.lock().expect("no thread panics")
    }
}
