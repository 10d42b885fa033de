//! The few calls of the system that no package wraps safely: all `unsafe` of
//! the project stands here.

use nix::libc;
use std::collections::BTreeSet;
use std::io;
use std::os::fd::{FromRawFd, OwnedFd, RawFd};
use std::sync::{Arc, Mutex};

/// Gives memory that has been freed back to the system. The allocator keeps
/// it otherwise, for ever: the C library returns only what lies at the very
/// end of its heaps.
pub fn give_back_memory() {
    #[cfg(target_env = "gnu")]
    // SAFETY: malloc_trim takes a number and has no conditions; it may be
    // called at any time from any thread.
    unsafe {
        libc::malloc_trim(0);
    }
}

/// Has all threads allocate from one heap. The C library would give each CPU
/// several, and those of other threads than the first grow by one page and one
/// system call at a time, which bodies of some kilobytes feel.
///
/// To be called before there are other threads.
pub fn use_one_heap() {
    #[cfg(target_env = "gnu")]
    // SAFETY: mallopt takes two numbers; an option that it does not know or
    // want it leaves alone.
    unsafe {
        libc::mallopt(libc::M_ARENA_MAX, 1);
    }
}

/// So many bytes of zero. Where they are fresh from the system, which means
/// that they are zero, nobody writes them; safe code would.
pub fn zeroed_bytes(length: usize) -> Arc<[u8]> {
    let bytes = Arc::<[u8]>::new_zeroed_slice(length);
    // SAFETY: all of them are zero, and a zero is a u8.
    unsafe { bytes.assume_init() }
}

/// Has the scheduler let this thread run until it blocks, instead of switching
/// to each thread that it wakes: with many connections that halves the
/// switches. Where it is refused, nothing but speed is lost.
pub fn prefer_long_turns() {
    let priority = libc::sched_param { sched_priority: 0 };
    // SAFETY: the pointer is to a live sched_param, which the call only reads;
    // 0 means the calling thread.
    unsafe {
        libc::sched_setscheduler(0, libc::SCHED_BATCH, &priority);
    }
}

/// Takes over a descriptor that this process was started with, counted from 0
/// after the three standard ones. Each can be taken once.
///
/// # Errors
///
/// If it is not open.
///
/// # Panics
///
/// If it was taken before.
pub fn inherited_descriptor(index: u16) -> io::Result<OwnedFd> {
    static TAKEN: Mutex<BTreeSet<u16>> = Mutex::new(BTreeSet::new());
    let is_first_time = TAKEN.lock().expect("no thread panics").insert(index);
    assert!(is_first_time, "descriptor {index} was taken before");
    let fd = 3 + RawFd::from(index);
    // SAFETY: setting a flag of a descriptor, open or not, touches no memory.
    if unsafe { libc::fcntl(fd, libc::F_SETFD, libc::FD_CLOEXEC) } == -1 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: it is open, whoever started this process says that it is meant
    // for us, and nobody else here has been given it: that was asserted.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}
