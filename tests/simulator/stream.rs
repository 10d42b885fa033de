//! A socket in memory. Its two ends are a server's and a client's. What lies
//! between them belongs to the kernel: what was written before a process ended
//! can still be read.

use crate::simulator::hangup::Door;
use crate::simulator::{judge, threads, world};
use crate::sync::{Condvar, Mutex, MutexGuard};
use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

/// Every real socket has room for this number of bytes.
const REAL_ROOM: usize = 4096;

/// The server's end.
pub struct Stream(pub Arc<Socket>);

/// The client's end.
#[derive(Clone)]
pub struct Peer(pub Arc<Socket>);

pub struct Socket {
    state: Mutex<State>,
    changed: Condvar,
    /// Whose connection this is.
    caller: usize,
    /// How many bytes may wait for the client, and how many of them on its side.
    room: usize,
    window: usize,
    door: Arc<Door>,
    /// How many bytes the server has ever written.
    written: AtomicUsize,
    /// Whether the server has closed it.
    is_closed: AtomicBool,
}

#[derive(Default)]
struct State {
    /// What the client has sent and nobody has read.
    asked: VecDeque<u8>,
    /// The client sends nothing more, or nobody wants to read it.
    is_over: bool,
    /// The client has closed it.
    is_left: bool,
    /// All that the server has written, and how much of it was read.
    answered: Vec<u8>,
    read: usize,
    /// The server has closed it.
    is_closed: bool,
    read_timeout: Option<Duration>,
    /// The worker of this connection.
    reader: Option<threads::Id>,
}

impl State {
    fn unread(&self) -> usize {
        self.answered.len() - self.read
    }

    fn has_input(&self) -> bool {
        !self.asked.is_empty() || self.is_over
    }
}

impl Stream {
    /// The connection of this caller.
    pub fn pair(caller: usize, room: usize, window: usize, door: &Arc<Door>) -> (Stream, Peer) {
        let socket = Arc::new(Socket {
            state: Mutex::default(),
            changed: Condvar::new(),
            caller,
            room,
            window,
            door: door.clone(),
            written: AtomicUsize::new(0),
            is_closed: AtomicBool::new(false),
        });
        (Stream(socket.clone()), Peer(socket))
    }

    pub fn read(&self, buffer: &mut Vec<u8>, most: usize) -> io::Result<usize> {
        world::takes_long();
        let mut state = self.0.state();
        state.reader = threads::current();
        let timeout = state.read_timeout.unwrap_or(Duration::MAX);
        let is_silent = |state: &mut State| !state.has_input();
        let changed = &self.0.changed;
        let waited = changed.wait_timeout_while(state, timeout, is_silent);
        let (mut state, waited) = waited.expect("no thread panics");
        if waited.timed_out() {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let room = buffer.capacity() - buffer.len();
        let there = state.asked.len().min(most).min(room);
        let count = match there {
            2.. if threads::one_in(3) => 1 + threads::below(there as u64) as usize,
            there => there,
        };
        buffer.extend(state.asked.drain(..count));
        Ok(count)
    }

    pub fn try_write(&self, pieces: &[IoSlice<'_>]) -> io::Result<usize> {
        let bytes: Vec<u8> = pieces.iter().flat_map(|piece| piece.to_vec()).collect();
        world::tells(&bytes);
        let mut state = self.0.state();
        if state.reader != threads::current() {
            world::tells_another(&bytes);
        }
        let count = self.0.write(&mut state, &bytes)?;
        self.0.tell(state);
        Ok(count)
    }

    pub fn await_writable(&self, or_input: bool, time: Option<Duration>) -> io::Result<bool> {
        world::takes_long();
        let state = self.0.state();
        let room = self.0.room;
        let is_full = |state: &mut State| {
            let is_open = !state.is_left && !state.is_closed;
            state.unread() >= room && is_open && !(or_input && state.has_input())
        };
        let time = time.unwrap_or(Duration::MAX);
        let waited = self.0.changed.wait_timeout_while(state, time, is_full);
        Ok(!waited.expect("no thread panics").1.timed_out())
    }

    pub fn has_input(&self) -> bool {
        self.0.state().has_input()
    }

    pub fn has_sent_all(&self) -> bool {
        // The caller relies on the room that a real socket has then.
        self.0.room >= REAL_ROOM && self.0.state().unread() <= self.0.window
    }

    pub fn has_closed(&self) -> bool {
        let state = self.0.state();
        state.is_left || state.is_closed
    }

    pub fn set_read_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        self.0.state().read_timeout = timeout;
        Ok(())
    }

    pub fn stop_reading(&self) {
        judge::see(judge::Event::StopsWaiting(self.0.caller));
        self.0.change(|state| state.is_over = true);
    }

    /// Nothing that was written is lost here.
    pub fn linger(&self, _: bool) {}

    pub fn is_tcp(&self) -> bool {
        true
    }

    pub fn widen(&self, _: usize) {}

    pub fn hold_unsent(&self, _: usize) {}

    pub fn close(&self) {
        self.0.change(|state| {
            (state.is_over, state.is_closed) = (true, true);
            // The list of hang-ups has it as soon as the judge sees it.
            self.0.is_closed.store(true, Ordering::Relaxed);
        });
        self.0.door.ring();
    }
}

impl Stream {
    /// Where the client comes from: from nowhere.
    pub fn peer(&self) -> crate::engine::Peer {
        crate::engine::Peer::default()
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.close();
    }
}

impl Peer {
    /// Sends this. What comes after the server has stopped reading goes nowhere.
    pub fn send(&self, bytes: &[u8]) {
        self.0.change(|state| {
            if !state.is_over {
                state.asked.extend(bytes);
            }
        });
    }

    /// Sends nothing more.
    pub fn half_close(&self) {
        self.0.change(|state| state.is_over = true);
        self.0.door.ring();
    }

    /// Closes the connection.
    pub fn leave(&self) {
        self.0
            .change(|state| (state.is_over, state.is_left) = (true, true));
        self.0.door.ring();
    }

    /// 0 if the client is connected; 1 if it sends nothing more, or was told that
    /// nobody reads it; 2 if it has closed.
    pub fn has_left(&self) -> u8 {
        let state = self.0.state();
        u8::from(state.is_over) + u8::from(state.is_left)
    }

    /// Takes all that has come, and waits for that until the time is over. Empty
    /// if nothing comes; `None` if nothing will.
    pub fn receive(&self, time: Duration) -> Option<Vec<u8>> {
        let is_missing = |state: &mut State| state.unread() == 0 && !state.is_closed;
        let state = self.0.state();
        let waited = self.0.changed.wait_timeout_while(state, time, is_missing);
        let mut state = waited.expect("no thread panics").0;
        let bytes = state.answered[state.read..].to_vec();
        let is_end = bytes.is_empty() && state.is_closed;
        state.read = state.answered.len();
        self.0.tell(state);
        (!is_end).then_some(bytes)
    }

    /// How much that is: this can be asked at any moment.
    pub fn written(&self) -> usize {
        self.0.written.load(Ordering::Relaxed)
    }

    /// Whether the server has closed it. This can be asked at any moment, too.
    pub fn is_closed(&self) -> bool {
        self.0.is_closed.load(Ordering::Relaxed)
    }

    /// Whether nothing more can be written before the client reads. To be asked while no
    /// thread runs.
    pub fn is_full(&self) -> bool {
        self.0.state.at_rest().unread() >= self.0.room
    }

    /// All that the server has ever written. To be asked while no thread runs.
    pub fn answered(&self) -> Vec<u8> {
        self.0.state.at_rest().answered.clone()
    }
}

impl Socket {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no thread panics")
    }

    fn write(&self, state: &mut State, bytes: &[u8]) -> io::Result<usize> {
        if state.is_left || state.is_closed {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        let count = bytes.len().min(self.room.saturating_sub(state.unread()));
        state.answered.extend_from_slice(&bytes[..count]);
        self.written.store(state.answered.len(), Ordering::Relaxed);
        Ok(count)
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        let mut state = self.state();
        change(&mut state);
        self.tell(state);
    }

    fn tell(&self, state: MutexGuard<'_, State>) {
        drop(state);
        self.changed.notify_all();
    }
}
