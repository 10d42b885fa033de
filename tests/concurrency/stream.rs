//! A socket in memory.

use crate::sync::{self, Condvar, Mutex, MutexGuard, thread};
use std::collections::VecDeque;
use std::fmt;
use std::io::{self, IoSlice};
use std::sync::Arc;
use std::time::Duration;

/// The server's end.
pub struct Stream(Arc<Socket>);

/// The client's end.
#[derive(Clone)]
pub struct Peer(Arc<Socket>);

struct Socket {
    state: Mutex<State>,
    changed: Condvar,
    /// So many bytes are taken without waiting.
    room: usize,
}

#[derive(Default)]
struct State {
    /// What the client has sent and nobody has read, each piece as it was sent:
    /// it is read by itself.
    asked: VecDeque<Vec<u8>>,
    /// The client sends nothing more, or nobody wants to read it.
    is_over: bool,
    answered: Vec<u8>,
    is_closed: bool,
    /// After how long reading ends when nothing comes.
    patience: Option<Duration>,
}

impl Stream {
    /// A connection.
    pub fn pair(room: usize) -> (Stream, Peer) {
        let socket = Arc::new(Socket {
            state: Mutex::default(),
            changed: Condvar::new(),
            room,
        });
        (Stream(socket.clone()), Peer(socket))
    }

    pub fn read(&self, buffer: &mut Vec<u8>, most: usize) -> io::Result<usize> {
        sync::take_long();
        let is_silent = |state: &mut State| state.asked.is_empty() && !state.is_over;
        let mut state = self.0.state();
        if state.patience.is_some_and(sync::passes) && is_silent(&mut state) {
            drop(state);
            thread::yield_now();
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let waited = self.0.changed.wait_while(state, is_silent);
        state = waited.expect("no thread panics");
        let Some(mut piece) = state.asked.pop_front() else {
            return Ok(0);
        };
        let room = buffer.capacity() - buffer.len();
        let count = piece.len().min(most).min(room);
        buffer.extend(piece.drain(..count));
        if !piece.is_empty() {
            state.asked.push_front(piece);
        }
        Ok(count)
    }

    pub fn write_all(
        &self,
        pieces: &mut [IoSlice<'_>],
        mut goes_on: impl FnMut(u32) -> io::Result<()>,
    ) -> io::Result<()> {
        goes_on(0)?;
        let told: Vec<u8> = pieces.iter().flat_map(|piece| piece.to_vec()).collect();
        sync::must_be_told(&told);
        let mut state = self.0.state();
        if state.is_closed {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        pieces
            .iter()
            .for_each(|piece| state.answered.extend_from_slice(piece));
        self.0.tell(state);
        Ok(())
    }

    pub fn try_write(&self, bytes: &[u8]) -> io::Result<usize> {
        sync::must_be_told(bytes);
        let mut state = self.0.state();
        let count = bytes
            .len()
            .min(self.0.room.saturating_sub(state.answered.len()));
        state.answered.extend_from_slice(&bytes[..count]);
        self.0.tell(state);
        Ok(count)
    }

    pub fn has_sent_all(&self) -> bool {
        true
    }

    pub fn set_read_patience(&self, patience: Option<Duration>) -> io::Result<()> {
        self.0.state().patience = patience;
        Ok(())
    }

    pub fn set_write_wait(&self, _: Option<Duration>) -> io::Result<()> {
        Ok(())
    }

    pub fn stop_reading(&self) {
        let mut state = self.0.state();
        state.is_over = true;
        self.0.tell(state);
    }

    pub fn close(&self) {
        let mut state = self.0.state();
        (state.is_over, state.is_closed) = (true, true);
        self.0.tell(state);
    }

    pub fn peer(&self) -> Peer {
        Peer(self.0.clone())
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.close();
    }
}

impl fmt::Display for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a client")
    }
}

impl Peer {
    pub fn send(&self, bytes: &str) {
        let mut state = self.0.state();
        // What comes after the server has stopped reading goes nowhere.
        if !state.is_over {
            state.asked.push_back(bytes.as_bytes().to_vec());
        }
        self.0.tell(state);
    }

    /// Sends nothing more.
    pub fn leave(&self) {
        let mut state = self.0.state();
        state.is_over = true;
        self.0.tell(state);
    }

    /// Whether it sends nothing more, or was told that nobody reads it.
    pub fn has_left(&self) -> bool {
        self.0.state().is_over
    }

    /// Waits until so many lines have come, or the connection has ended: all
    /// that came.
    pub fn receive(&self, lines: usize) -> String {
        let is_missing = |state: &mut State| {
            let ends = state.answered.iter().filter(|&&byte| byte == b'\n');
            ends.count() < lines && !state.is_closed
        };
        let waited = self.0.changed.wait_while(self.0.state(), is_missing);
        let state = waited.expect("no thread panics");
        String::from_utf8(state.answered.clone()).expect("text")
    }
}

impl Socket {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no thread panics")
    }

    fn tell(&self, state: MutexGuard<'_, State>) {
        drop(state);
        self.changed.notify_all();
    }
}
