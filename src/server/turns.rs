//! Turns: how many workers may be busy with much at a time.
//!
//! A client that sends faster than it is served keeps its worker running. Fifty
//! of those would fill the scheduler's queues, and whoever brings one command
//! would wait there for all of them, lock or no lock. So a worker with much to
//! do takes a turn first, and there are fewer turns than CPUs; who has none
//! sleeps. Turns are handed over in the order of asking.

use super::sync::{Condvar, Mutex, MutexGuard, thread};

/// The turns that there are.
pub struct Turns {
    state: Mutex<State>,
    handed_over: Condvar,
}

struct State {
    /// Turns that nobody has.
    free: usize,
    /// Workers that sleep until they get one.
    waiting: usize,
    /// Turns that were given to those who sleep, and not taken yet.
    handed: usize,
}

/// The right to be busy; given back when it is dropped.
pub struct Turn<'a>(&'a Turns);

impl Turns {
    /// One less than there are CPUs, which is left to everybody else.
    pub fn new() -> Turns {
        let cpus = thread::available_parallelism().map_or(1, usize::from);
        Turns {
            state: Mutex::new(State {
                free: (cpus - 1).max(1),
                waiting: 0,
                handed: 0,
            }),
            handed_over: Condvar::new(),
        }
    }

    /// A turn, when it comes.
    pub fn take(&self) -> Turn<'_> {
        let mut state = self.lock();
        if state.free > 0 {
            state.free -= 1;
        } else {
            state.waiting += 1;
            let none = |state: &mut State| state.handed == 0;
            let waited = self.handed_over.wait_while(state, none);
            waited.expect("no thread panics").handed -= 1;
        }
        Turn(self)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no thread panics")
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        if state.waiting == 0 {
            state.free += 1;
            return;
        }
        state.waiting -= 1;
        state.handed += 1;
        drop(state);
        self.0.handed_over.notify_one();
    }
}
