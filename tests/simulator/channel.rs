//! A channel for one value, as `crossbeam_channel` has it.

use crate::sync::{Condvar, Mutex};
use std::sync::Arc;
use std::time::Duration;

/// It takes one value at a time, and its two ends are one each.
pub fn bounded<T>(room: usize) -> (Sender<T>, Receiver<T>) {
    assert_eq!(room, 1);
    let channel = Arc::new(Channel {
        state: Mutex::new((None, true)),
        changed: Condvar::new(),
    });
    (Sender(channel.clone()), Receiver(channel))
}

struct Channel<T> {
    /// What was sent, and whether more may be.
    state: Mutex<(Option<T>, bool)>,
    changed: Condvar,
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
    pub fn send(&self, value: T) -> Result<(), ()> {
        let before = self
            .0
            .state
            .lock()
            .expect("no thread panics")
            .0
            .replace(value);
        assert!(before.is_none(), "it is full");
        self.0.changed.notify_all();
        Ok(())
    }
}

impl<T> Drop for Sender<T> {
    fn drop(&mut self) {
        self.0.state.lock().expect("no thread panics").1 = false;
        self.0.changed.notify_all();
    }
}

impl<T> Receiver<T> {
    pub fn recv_timeout(&self, time: Duration) -> Result<T, RecvTimeoutError> {
        let state = self.0.state.lock().expect("no thread panics");
        let is_idle = |state: &mut (Option<T>, bool)| state.0.is_none() && state.1;
        let waited = self.0.changed.wait_timeout_while(state, time, is_idle);
        let mut state = waited.expect("no thread panics").0;
        let is_timeout = state.1;
        state.0.take().ok_or(RecvTimeoutError { is_timeout })
    }
}
