//! A channel, as `crossbeam_channel` has it.

use crate::sync::{Condvar, Mutex};
use std::collections::VecDeque;
use std::sync::Arc;

/// What is sent is taken by one of those who receive.
pub fn unbounded<T>() -> (Sender<T>, Receiver<T>) {
    let channel = Arc::new(Channel {
        state: Mutex::new((VecDeque::new(), true)),
        changed: Condvar::new(),
    });
    (Sender(channel.clone()), Receiver(channel))
}

struct Channel<T> {
    /// What is on its way, and whether more may come.
    state: Mutex<(VecDeque<T>, bool)>,
    changed: Condvar,
}

pub struct Sender<T>(Arc<Channel<T>>);

pub struct Receiver<T>(Arc<Channel<T>>);

impl<T> Sender<T> {
    pub fn send(&self, value: T) -> Result<(), ()> {
        let mut state = self.0.state.lock().expect("no thread panics");
        state.0.push_back(value);
        drop(state);
        self.0.changed.notify_one();
        Ok(())
    }
}

impl<T> Drop for Sender<T> {
    fn drop(&mut self) {
        self.0.state.lock().expect("no thread panics").1 = false;
        self.0.changed.notify_all();
    }
}

impl<T> Clone for Receiver<T> {
    fn clone(&self) -> Receiver<T> {
        Receiver(self.0.clone())
    }
}

impl<T> Receiver<T> {
    /// An error if nothing more comes.
    pub fn recv(&self) -> Result<T, ()> {
        let state = self.0.state.lock().expect("no thread panics");
        let is_silent = |(sent, is_open): &mut (VecDeque<T>, bool)| sent.is_empty() && *is_open;
        let state = self.0.changed.wait_while(state, is_silent);
        state.expect("no thread panics").0.pop_front().ok_or(())
    }
}
