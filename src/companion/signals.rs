//! Lets a thread wait for signals and calls of other threads: a socket becomes
//! readable when one has come. And lets signals end the program.

use crate::failure::{Failure, Outcome};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use signal_hook::flag;
use std::io::{Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Instant;

pub use signal_hook::consts::{SIGCHLD, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGWINCH};

/// Signals and calls that wake one waiting thread. Others may have it, too, to call.
pub struct Calls {
    arrivals: UnixStream,
    sender: UnixStream,
}

impl Calls {
    /// Wakes the thread at these signals; their usual effect is switched off.
    pub fn by_signals(signals: &[i32]) -> Outcome<Calls> {
        let create = || {
            let (arrivals, sender) = UnixStream::pair()?;
            arrivals.set_nonblocking(true)?;
            sender.set_nonblocking(true)?;
            for &signal in signals {
                signal_hook::low_level::pipe::register(signal, sender.try_clone()?)?;
            }
            Ok(Calls { arrivals, sender })
        };
        create().map_err(|error| Failure::io("cannot wait for signals", error))
    }

    /// Wakes the thread.
    pub fn call(&self) {
        // If there is no room, many calls wait already: one more changes
        // nothing.
        let _ = (&self.sender).write(&[1]);
    }

    /// Whether a signal or a call has come since the last time this was asked.
    pub fn take(&self) -> bool {
        let mut taken = false;
        while matches!((&self.arrivals).read(&mut [0; 64]), Ok(1..)) {
            taken = true;
        }
        taken
    }

    /// Waits for a signal or a call, at most until this time, and takes it.
    pub fn wait(&self, until: Option<Instant>) {
        wait_for(&[self.as_fd()], until);
        self.take();
    }
}

impl AsFd for Calls {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.arrivals.as_fd()
    }
}

/// The signals among these that are not ignored. A program that starts us may
/// ignore some for us, as `nohup` does.
pub fn heeded(signals: &[i32]) -> Vec<i32> {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let read = ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    let mask = read.unwrap_or(0);
    let is_heeded = |signal: &i32| mask >> (signal - 1) & 1 == 0;
    signals.iter().copied().filter(is_heeded).collect()
}

/// The flag that the first signal to stop sets, if that is heeded. There is one: work at
/// several servers, one after the other, stops at all of them.
static INTERRUPTED: OnceLock<Arc<AtomicBool>> = OnceLock::new();

/// From now on the first signal to stop only interrupts. The second one ends the program.
pub fn heed_interrupts() -> Outcome<()> {
    if INTERRUPTED.get().is_none() {
        let flag = end_if(false, 130)?;
        INTERRUPTED.get_or_init(|| flag);
    }
    Ok(())
}

/// Whether such a signal has come.
pub fn is_interrupted() -> bool {
    let flag = INTERRUPTED.get();
    flag.is_some_and(|flag| flag.load(Ordering::SeqCst))
}

/// Has the first signal to stop end the program, with success: for programs
/// that serve until they are told to stop. The system does the same by itself,
/// except for the first process of a container.
pub fn end_at_signals() -> Outcome<()> {
    end_if(true, 0).map(drop)
}

/// A flag that each signal to stop sets. If it is set already, as it may be from the
/// beginning, the signal ends the program with this status.
fn end_if(is_set: bool, status: i32) -> Outcome<Arc<AtomicBool>> {
    let flag = Arc::new(AtomicBool::new(is_set));
    for signal in heeded(&[SIGINT, SIGTERM, SIGHUP]) {
        flag::register_conditional_shutdown(signal, status, flag.clone())
            .and_then(|_| flag::register(signal, flag.clone()))
            .map_err(|error| Failure::io("cannot wait for signals", error))?;
    }
    Ok(flag)
}

/// Waits until one of these can be read or the time has come. Returns for each
/// whether it can be read. It may return earlier, so the caller has to check
/// what has happened.
pub fn wait_for(readable: &[BorrowedFd<'_>], until: Option<Instant>) -> Vec<bool> {
    let fds = readable.iter();
    let mut fds: Vec<_> = fds.map(|&fd| PollFd::new(fd, PollFlags::POLLIN)).collect();
    // After an error the caller checks as well; an error does not last.
    let _ = poll(&mut fds, timeout_until(until));
    fds.iter().map(|fd| fd.any() == Some(true)).collect()
}

/// The time until then, for `poll`. It is rounded up, so that `poll` does not
/// return too early.
pub fn timeout_until(until: Option<Instant>) -> PollTimeout {
    let Some(until) = until else {
        return PollTimeout::NONE;
    };
    let left = until.saturating_duration_since(Instant::now());
    let ms = left.as_nanos().div_ceil(1_000_000);
    PollTimeout::try_from(ms).unwrap_or(PollTimeout::MAX)
}
