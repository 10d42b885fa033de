//! Makes sure that commands do not outlive their worker, and keeps them away
//! from its terminal. This is the only `unsafe` of this program.
//!
//! If a worker is killed by SIGKILL, it cannot end its commands. The kernel
//! then kills the commands, but not the processes that they have started. So a
//! second process of ours, which has nothing but a socket, waits for our end.
//! It then kills the groups that still run.

use crate::failure::{Failure, Outcome};
#[cfg(target_os = "linux")]
use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::{SigSet, Signal, killpg};
use nix::unistd::{ForkResult, Pid, fork, getpid, getppid, setsid};
use std::collections::BTreeSet;
use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, exit};

/// Starts the command in a session of its own, which is also a group of its own.
/// Linux kills the command when the thread that starts it ends, whatever the
/// reason. On other systems only the [`Guard`] does so. Before the command does
/// anything, the guard knows its group.
#[allow(unsafe_code)]
pub fn start(mut command: Command, guard: &Guard) -> io::Result<Child> {
    let worker = getpid();
    let (mut started, tell_us) = io::pipe()?;
    let guards = guard.0.try_clone()?;
    let tie = move || {
        let group = setsid()?;
        (&tell_us).write_all(&group.as_raw().to_ne_bytes())?;
        tell(&guards, group.as_raw());
        #[cfg(target_os = "linux")]
        set_pdeathsig(Signal::SIGKILL)?;
        // The worker may have ended before the kernel knew of the tie.
        match getppid() == worker {
            true => Ok(()),
            false => Err(io::ErrorKind::Interrupted.into()),
        }
    };
    // SAFETY: between `fork` and `exec` this makes system calls; it allocates
    // nothing and takes no lock that another thread could hold.
    unsafe { command.pre_exec(tie) };
    let child = command.spawn();
    // With it goes our own end of the pipe.
    drop(command);
    child.inspect_err(|_| {
        // There may have been a process that could not become the command. Its
        // number will be another one's.
        let mut group = [0; 4];
        if started.read_exact(&mut group).is_ok() {
            guard.leaves(Pid::from_raw(i32::from_ne_bytes(group)));
        }
    })
}

/// The process that waits for our end, as we see it.
pub struct Guard(UnixStream);

impl Guard {
    /// Starts the process. No other thread may have been started before.
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

    /// This group is not killed any more. This has to come before its first
    /// process is reaped: until then no other group can get the number.
    pub fn leaves(&self, group: Pid) {
        tell(&self.0, -group.as_raw());
    }
}

/// Tells the guard a group that is killed when we end, or, as a negative number,
/// one that is not any more.
fn tell(mut guard: &UnixStream, number: i32) {
    // If the guard has been killed, the kernel still kills the commands.
    let _ = guard.write_all(&number.to_ne_bytes());
}

/// Remembers the groups that run, and kills them when the other end of the
/// socket is closed.
fn watch(mut socket: UnixStream) {
    // Neither the terminal nor a signal is to end it: it ends by itself.
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
