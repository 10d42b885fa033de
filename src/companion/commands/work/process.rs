//! One run of the command: a process in a session of its own.
//!
//! The body is passed as a file that no other process sees, on Linux in memory.
//! So nothing has to wait for a command that reads it slowly or not at all. The
//! output of the command goes where our own output goes.

use super::common::Common;
use super::tie::{self, Guard};
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use rustix::io::Errno;
use rustix::process::{WaitId, WaitIdOptions, waitid};
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
        let mut input = nameless_file()?;
        input.write_all(body)?;
        input.rewind()?;
        let mut command = Command::new(&common.program);
        command.args(&common.arguments).envs(variables);
        command.stdin(Stdio::from(input));
        let child = tie::start(command, &common.guard)?;
        let pid = i32::try_from(child.id()).map_err(io::Error::other)?;
        let group = Pid::from_raw(pid);
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

/// A file in memory.
#[cfg(target_os = "linux")]
fn nameless_file() -> io::Result<File> {
    use nix::sys::memfd::{MFdFlags, memfd_create};
    Ok(memfd_create(c"job", MFdFlags::MFD_CLOEXEC)?.into())
}

/// Other systems have no such file, or not in all of their versions.
#[cfg(not(target_os = "linux"))]
fn nameless_file() -> io::Result<File> {
    use std::os::unix::fs::OpenOptionsExt;
    use std::sync::atomic::{AtomicU32, Ordering};
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    let path = format!("beanpole-job.{}.{count}", std::process::id());
    let path = std::env::temp_dir().join(path);
    let mut options = File::options();
    options.read(true).write(true).create_new(true).mode(0o600);
    let file = options.open(&path)?;
    std::fs::remove_file(path)?;
    Ok(file)
}
