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

use rustix::fs::{Access, access};
use rustix::io::Errno;
#[cfg(target_os = "linux")]
use rustix::process::set_parent_process_death_signal;
use rustix::process::{
    Pid, Signal, WaitId, WaitIdOptions, getpid, getppid, kill_process_group, setsid, waitid,
};
use std::env;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Seek, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};

/// Variables that the command gets in its environment, beside our own.
pub type Variables = Vec<(String, String)>;

/// A running command. If it is dropped before it has ended, everything in its
/// group is killed.
pub struct Process(Child);

impl Process {
    /// Starts the command with this body and these variables.
    pub fn start(command: &[OsString], body: &[u8], more: Variables) -> io::Result<Process> {
        let mut input = nameless_file()?;
        input.write_all(body)?;
        input.rewind()?;
        let child = in_session(
            Command::new(&command[0])
                .args(&command[1..])
                .envs(more)
                .stdin(Stdio::from(input)),
        );
        child.map(Process)
    }

    /// Whether the command has ended. It is not reaped here, so that no other
    /// process can get its number.
    pub fn has_ended(&self) -> io::Result<bool> {
        let flags = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        match waitid(WaitId::Pid(Pid::from_child(&self.0)), flags) {
            Ok(None) | Err(Errno::INTR) => Ok(false),
            Ok(Some(_)) => Ok(true),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Sends this signal to the command and to everything that it started.
    pub fn signal(&self, signal: Signal) {
        // Its group has its number. It may have ended by itself.
        let _ = kill_process_group(Pid::from_child(&self.0), signal);
    }

    /// Waits until the command has ended, and returns how.
    pub fn status(mut self) -> io::Result<ExitStatus> {
        self.0.wait()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // One that was waited for is known to have ended.
        if !matches!(self.0.try_wait(), Ok(Some(_))) {
            self.signal(Signal::KILL);
            let _ = self.0.wait();
        }
    }
}

/// Looks for a program as the system does, without starting it.
pub fn find(program: &OsStr) -> io::Result<()> {
    let path = env::var_os("PATH").unwrap_or("/bin:/usr/bin".into());
    let places: Vec<PathBuf> = match program.as_bytes().contains(&b'/') {
        true => vec![program.into()],
        false => env::split_paths(&path)
            .map(|folder| folder.join(program))
            .collect(),
    };
    let may_run = |place: &PathBuf| place.is_file() && access(place, Access::EXEC_OK).is_ok();
    if places.iter().any(may_run) {
        return Ok(());
    }
    // What is there may not be run.
    match places.iter().any(|place| place.exists()) {
        true => Err(Errno::ACCESS.into()),
        false => Err(Errno::NOENT.into()),
    }
}

/// Reaps processes that have come to us because their parent has ended: all come to
/// the first process of a container. They come to its main thread, which starts none, so
/// that the commands of the slots are left alone.
pub fn reap_orphans() {
    #[cfg(target_os = "linux")]
    {
        use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
        let flags = WaitPidFlag::WNOHANG | WaitPidFlag::__WNOTHREAD;
        while waitpid(None, Some(flags)).is_ok_and(|one| one != WaitStatus::StillAlive) {}
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
        set_parent_process_death_signal(Some(Signal::KILL))?;
        // The worker may have ended before the kernel knew of the tie.
        if getppid() == Some(worker) {
            Ok(())
        } else {
            Err(io::ErrorKind::Interrupted.into())
        }
    };
    // SAFETY: between `fork` and `exec` this makes system calls; it allocates
    // nothing and takes no lock that another thread could hold.
    unsafe { command.pre_exec(tie) }.spawn()
}

/// A file in memory.
#[cfg(target_os = "linux")]
fn nameless_file() -> io::Result<File> {
    use rustix::fs::{MemfdFlags, memfd_create};
    Ok(memfd_create(c"job", MemfdFlags::CLOEXEC)?.into())
}

/// Other systems have no such file, or not in all of their versions.
#[cfg(not(target_os = "linux"))]
fn nameless_file() -> io::Result<File> {
    tempfile::tempfile()
}
