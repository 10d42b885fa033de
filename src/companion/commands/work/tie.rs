//! Commands that do not outlive their worker, and stay away from its terminal:
//! the only `unsafe` of this program.
//!
//! Who is killed by SIGKILL can end nobody any more. The kernel then kills the
//! commands, but not what those have started in turn. So a second process of
//! ours, which has nothing but a socket, waits for our end and kills the groups
//! that run then.

use crate::failure::{Failure, Outcome};
use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::{SigSet, Signal, killpg};
use nix::sys::socket::{MsgFlags, send};
use nix::unistd::{ForkResult, Pid, fork, getpid, getppid, setsid};
use std::collections::BTreeSet;
use std::io::{self, Read};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Command, exit};

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

/// The process that waits for our end, as we see it.
pub struct Guard(UnixStream);

impl Guard {
    /// Starts it, as long as no thread has been started.
    #[allow(unsafe_code)]
    pub fn start() -> Outcome<Guard> {
        let start = || {
            let (ours, its) = UnixStream::pair()?;
            // SAFETY: this is the only thread, so no lock stays locked in the
            // new process.
            match unsafe { fork() }? {
                ForkResult::Parent { .. } => Ok(Guard(ours)),
                ForkResult::Child => {
                    drop(ours);
                    watch(its);
                    exit(0)
                }
            }
        };
        start().map_err(|error: io::Error| Failure::io("cannot start a process", error))
    }

    /// From now on this group is to end with us.
    pub fn takes(&self, group: Pid) {
        self.say(group.as_raw());
    }

    /// No more. This comes before its first process is reaped: as long as that
    /// is there, no other group gets the number.
    pub fn leaves(&self, group: Pid) {
        self.say(-group.as_raw());
    }

    fn say(&self, number: i32) {
        // If somebody has killed it, the kernel still kills the commands.
        let _ = send(
            self.0.as_raw_fd(),
            &number.to_ne_bytes(),
            MsgFlags::MSG_NOSIGNAL,
        );
    }
}

/// Remembers the groups that run, and kills them when nobody speaks any more.
fn watch(mut socket: UnixStream) {
    // Out of reach of the terminal; and nobody has to end it.
    let _ = setsid();
    let _ = SigSet::all().thread_block();
    let mut groups = BTreeSet::new();
    let mut number = [0; 4];
    while socket.read_exact(&mut number).is_ok() {
        match i32::from_ne_bytes(number) {
            taken @ 1.. => groups.insert(taken),
            left => groups.remove(&-left),
        };
    }
    for group in groups {
        let _ = killpg(Pid::from_raw(group), Signal::SIGKILL);
    }
}
