//! One run of the command: a process in a session of its own.
//!
//! The body is passed as a file in memory that no other process sees. So
//! nothing has to wait for a command that reads it slowly or not at all. The
//! output of the command goes where our own output goes.

use super::common::Common;
use super::tie::{self, Guard};
use nix::errno::Errno;
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::signal::{Signal, killpg};
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid};
use nix::unistd::Pid;
use std::fs::File;
use std::io::{self, Seek, Write};
use std::process::{Child, Command, ExitStatus, Stdio};

/// A running command. If it is dropped before it has ended, everything in its
/// group is killed.
pub struct Process<'a> {
    child: Child,
    guard: &'a Guard,
    /// The group of processes; its number is that of the first process.
    group: Pid,
    reaped: bool,
}

impl Process<'_> {
    /// Starts the command with this body and these variables.
    pub fn start<'a>(
        common: &'a Common,
        body: &[u8],
        variables: Vec<(String, String)>,
    ) -> io::Result<Process<'a>> {
        let mut input = File::from(memfd_create(c"job", MFdFlags::MFD_CLOEXEC)?);
        input.write_all(body)?;
        input.rewind()?;
        let mut command = Command::new(&common.program);
        command.args(&common.arguments).envs(variables);
        tie::to_this_thread(&mut command);
        let child = command.stdin(Stdio::from(input)).spawn()?;
        let pid = i32::try_from(child.id()).map_err(io::Error::other)?;
        let group = Pid::from_raw(pid);
        common.guard.takes(group);
        Ok(Process {
            child,
            guard: &common.guard,
            group,
            reaped: false,
        })
    }

    /// Whether the command has ended. It is not reaped here, so that no other
    /// process can get its number.
    pub fn has_ended(&self) -> io::Result<bool> {
        let flags = WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT;
        match waitid(Id::Pid(self.group), flags) {
            Ok(WaitStatus::StillAlive) | Err(Errno::EINTR) => Ok(false),
            Ok(_) => Ok(true),
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
        self.guard.leaves(self.group);
        self.child.wait()
    }
}

impl Drop for Process<'_> {
    fn drop(&mut self) {
        if !self.reaped {
            self.signal(Signal::SIGKILL);
            self.guard.leaves(self.group);
            let _ = self.child.wait();
        }
    }
}
