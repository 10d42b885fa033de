//! A channel without room, as `crossbeam_channel` has it.

use crate::sync::{Condvar, Mutex};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

/// What is sent is taken by somebody who waits for it.
pub fn bounded<T>(room: usize) -> (Sender<T>, Receiver<T>) {
    assert_eq!(room, 0);
    let channel = Arc::new(Channel {
        state: Mutex::new(Handing {
            waiting: 0,
            handed: VecDeque::new(),
            is_open: true,
        }),
        changed: Condvar::new(),
    });
    (Sender(channel.clone()), Receiver(channel))
}

struct Channel<T> {
    state: Mutex<Handing<T>>,
    changed: Condvar,
}

struct Handing<T> {
    waiting: usize,
    /// For so many of those who wait.
    handed: VecDeque<T>,
    is_open: bool,
}

pub struct Sender<T>(Arc<Channel<T>>);

pub struct Receiver<T>(Arc<Channel<T>>);

/// Nothing has come in time, or nothing will.
pub struct RecvTimeoutError {
    is_timeout: bool,
}

impl RecvTimeoutError {
    pub fn is_timeout(&self) -> bool {
        self.is_timeout
    }
}

impl<T> Sender<T> {
    /// Gives it back if nobody waits for it.
    pub fn try_send(&self, value: T) -> Result<(), T> {
        let mut state = self.0.state.lock().expect("no thread panics");
        if state.handed.len() == state.waiting {
            return Err(value);
        }
        state.handed.push_back(value);
        drop(state);
        self.0.changed.notify_all();
        Ok(())
    }
}

impl<T> Drop for Sender<T> {
    fn drop(&mut self) {
        self.0.state.lock().expect("no thread panics").is_open = false;
        self.0.changed.notify_all();
    }
}

impl<T> Receiver<T> {
    pub fn recv_timeout(&self, time: Duration) -> Result<T, RecvTimeoutError> {
        let mut state = self.0.state.lock().expect("no thread panics");
        state.waiting += 1;
        self.0.changed.notify_all();
        let is_idle = |state: &mut Handing<T>| state.handed.is_empty() && state.is_open;
        let waited = self.0.changed.wait_timeout_while(state, time, is_idle);
        state = waited.expect("no thread panics").0;
        state.waiting -= 1;
        let is_timeout = state.is_open;
        state
            .handed
            .pop_front()
            .ok_or(RecvTimeoutError { is_timeout })
    }
}
