//! One run of the command: a process in a session of its own, so that it has no
//! terminal and its group has a number. The start of a process in a session is
//! the only `unsafe` of this program.
//!
//! If the worker is killed by SIGKILL, Linux kills the command, but not what the
//! command has started: only a service manager knows that.
//!
//! The body is passed as a file that no other process sees, on Linux in memory.
//! So nothing has to wait for a command that reads it slowly or not at all. The
//! output of the command goes where our own output goes.

#[cfg(target_os = "linux")]
use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::{Signal, killpg};
use nix::unistd::{Pid, getpid, getppid, setsid};
use rustix::io::Errno;
use rustix::process::{WaitId, WaitIdOptions, waitid};
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Seek, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};

/// A running command. If it is dropped before it has ended, everything in its
/// group is killed.
pub struct Process {
    child: Child,
    /// The group of processes; its number is that of the first process.
    group: Pid,
    reaped: bool,
}

impl Process {
    /// Starts the command with this body and these variables.
    pub fn start(
        command: &[OsString],
        body: &[u8],
        variables: Vec<(String, String)>,
    ) -> io::Result<Process> {
        let mut input = nameless_file()?;
        input.write_all(body)?;
        input.rewind()?;
        let child = in_session(
            Command::new(&command[0])
                .args(&command[1..])
                .envs(variables)
                .stdin(Stdio::from(input)),
        )?;
        let pid = i32::try_from(child.id()).map_err(io::Error::other)?;
        Ok(Process {
            child,
            group: Pid::from_raw(pid),
            reaped: false,
        })
    }

    /// Whether the command has ended. It is not reaped here, so that no other
    /// process can get its number.
    pub fn has_ended(&self) -> io::Result<bool> {
        let flags = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        let pid = rustix::process::Pid::from_child(&self.child);
        match waitid(WaitId::Pid(pid), flags) {
            Ok(None) | Err(Errno::INTR) => Ok(false),
            Ok(Some(_)) => Ok(true),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Sends this signal to the command and to everything that it started.
    pub fn signal(&self, signal: Signal) {
        // The group may have ended by itself.
        let _ = killpg(self.group, signal);
    }

    /// Waits until the command has ended, and tells how.
    pub fn status(mut self) -> io::Result<ExitStatus> {
        self.reaped = true;
        self.child.wait()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if !self.reaped {
            self.signal(Signal::SIGKILL);
            let _ = self.child.wait();
        }
    }
}

/// Starts the command in a session of its own. Linux kills it when the thread
/// that starts it ends, whatever the reason.
#[allow(unsafe_code)]
fn in_session(command: &mut Command) -> io::Result<Child> {
    let worker = getpid();
    let tie = move || {
        setsid()?;
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
    unsafe { command.pre_exec(tie) }.spawn()
}

/// A file in memory.
#[cfg(target_os = "linux")]
fn nameless_file() -> io::Result<File> {
    use nix::sys::memfd::{MFdFlags, memfd_create};
    Ok(memfd_create(c"job", MFdFlags::MFD_CLOEXEC)?.into())
}

/// Other systems have no such file, or not in all of their versions.
#[cfg(not(target_os = "linux"))]
fn nameless_file() -> io::Result<File> {
    tempfile::tempfile()
}
