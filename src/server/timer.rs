//! The timer: the thread that does what is due, such as the ends of delays, and
//! trims the heap.

use super::shared::Shared;
use crate::sync::thread;
use crate::sys;

/// What the thread does all its life. It ends when the server does.
pub fn run(shared: &Shared) {
    while !shared.is_stopping() {
        shared.await_disk_space();
        let (sleeps, is_trim_due) = shared.with_lock_last(|state, now| {
            // One time slice of what is due. If there is more, or others have used the disk
            // space, the timer does not sleep now.
            if !shared.has_binlog_backpressure() {
                state.engine.tick(now);
            }
            let is_trim_due = state.trim.due.take_if(|due| *due <= now).is_some();
            state.timer_sleeps_until = state.timer_is_wanted_at();
            let sleeps = state.timer_sleeps_until.map(|until| until.since(now));
            (sleeps, is_trim_due)
        });
        // Whatever wakes the timer, it checks again what is due.
        match sleeps {
            _ if is_trim_due => sys::trim_heap(),
            None => thread::park(),
            Some(time) if time.is_zero() => {}
            Some(time) => thread::park_timeout(time),
        }
    }
}
