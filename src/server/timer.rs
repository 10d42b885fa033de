//! The timer: the thread that does what is due, such as the ends of delays, and
//! gives memory back that clients no longer need.

use super::shared::Shared;
use crate::sync::thread;
use crate::sys;

/// What the thread does all its life. It ends when the server does.
pub fn run(shared: &Shared) {
    while !shared.is_stopping() {
        shared.await_relief();
        let (sleeps, has_surplus) = shared.with_lock_last(|state, now| {
            // One piece of what is due. If there is more, the timer does not
            // sleep now.
            if state.engine.wake_at().is_some_and(|at| at <= now) && state.engine.tick(now) {
                state.sleep.last_due = now;
            }
            let has_surplus = state.surplus.due.take_if(|due| *due <= now).is_some();
            let until = state.timer_is_wanted_at(now);
            state.sleep.until = until;
            (until.map(|until| until.since(now)), has_surplus)
        });
        // Whatever wakes the timer, it checks again what is due.
        match sleeps {
            _ if has_surplus => sys::give_back_memory(),
            None => thread::park(),
            Some(time) if time.is_zero() => {}
            Some(time) => thread::park_timeout(time),
        }
    }
}
