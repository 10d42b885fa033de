//! The timer: the one thread that makes things happen when nobody asks.

use super::shared::{Guard, Shared};
use crate::engine::Time;
use crate::sys;

/// What the thread does all its life. Ends when the server does.
pub fn run(shared: &Shared) {
    while !shared.is_stopping() {
        let (mut state, now) = do_what_is_due(shared);
        let until = state.timer_is_wanted_at(now);
        state.sleep.begin(until);
        // Whatever wakes it, it looks again what is due.
        shared.await_call_to_timer(state, until.map(|until| until.since(now)));
    }
}

/// Lets things happen until nothing is due; the state is locked then.
fn do_what_is_due(shared: &Shared) -> (Guard<'_>, Time) {
    loop {
        let (mut state, now) = shared.lock_last();
        if state.engine.wake_at().is_some_and(|at| at <= now) {
            if state.engine.tick(now) {
                state.sleep.note_due(now);
            }
            shared.finish(state, now);
        } else if state.surplus.is_due(now) {
            drop(state);
            sys::give_back_memory();
        } else {
            return (state, now);
        }
    }
}
