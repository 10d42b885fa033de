//! A command that does not outlive its worker, and stays away from its
//! terminal: the only `unsafe` of this program.
//!
//! Who is killed by SIGKILL can end nobody any more; so the kernel is to do it.
//! It can be told so only by the new process itself, before it becomes the
//! command.

use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::Signal;
use nix::unistd::{getpid, getppid, setsid};
use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;

/// Gives the command a session of its own, which is also a group of its own,
/// and has the kernel kill it when the thread that starts it ends, however
/// that comes about.
#[allow(unsafe_code)]
pub fn to_this_thread(command: &mut Command) {
    let worker = getpid();
    let tie = move || {
        setsid()?;
        set_pdeathsig(Signal::SIGKILL)?;
        // The worker may have ended before the kernel knew.
        match getppid() == worker {
            true => Ok(()),
            false => Err(io::ErrorKind::Interrupted.into()),
        }
    };
    // SAFETY: between `fork` and `exec` this makes three system calls; it
    // allocates nothing and takes no lock that another thread could hold.
    unsafe { command.pre_exec(tie) };
}
