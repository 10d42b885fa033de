//! Counts the system calls of a process, by tracing it.

use companion::failure::Failure;
use nix::errno::Errno;
use nix::sys::ptrace::{self, Options};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;
use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;
use std::time::Duration;

/// The system calls that a process has begun since it was attached.
pub struct Counter {
    count: Arc<AtomicU64>,
}

impl Counter {
    /// Begins to count the calls of a process that this one has started. A
    /// thread counts until that process ends.
    pub fn attach(pid: Pid) -> Result<Counter, Failure> {
        let count = Arc::new(AtomicU64::new(0));
        let (say, attached) = mpsc::channel();
        let counting = Arc::clone(&count);
        // A process can be traced only by the thread that attached to it.
        let trace = move || {
            let result = seize(pid);
            let go_on = result.is_ok();
            if say.send(result).is_ok() && go_on {
                follow(&counting);
            }
        };
        let thread = std::thread::Builder::new()
            .name("tracer".into())
            .spawn(trace);
        thread.map_err(Failure::of("starting a thread"))?;
        let doing = || format!("tracing process {pid}");
        attached
            .recv()
            .map_err(Failure::of(doing()))?
            .map_err(Failure::of(doing()))?;
        Ok(Counter { count })
    }

    /// Waits until no call was begun for a moment, and returns how many there
    /// were. A server may answer first, and begin to wait only then.
    pub fn settled(&self) -> u64 {
        let mut seen = self.count.load(Ordering::Relaxed);
        for _ in 0..50 {
            std::thread::sleep(Duration::from_millis(20));
            match self.count.load(Ordering::Relaxed) {
                now if now == seen => break,
                now => seen = now,
            }
        }
        seen
    }
}

/// Attaches to all threads of a process, and lets each run to its next call.
fn seize(pid: Pid) -> Result<(), std::io::Error> {
    for task in fs::read_dir(format!("/proc/{pid}/task"))? {
        let name = task?.file_name();
        let thread = name.to_str().and_then(|name| name.parse().ok());
        let thread = Pid::from_raw(thread.ok_or(std::io::ErrorKind::InvalidData)?);
        ptrace::seize(
            thread,
            Options::PTRACE_O_TRACESYSGOOD | Options::PTRACE_O_TRACECLONE,
        )?;
        ptrace::interrupt(thread)?;
    }
    Ok(())
}

/// Counts until there is nothing left to trace.
fn follow(count: &AtomicU64) {
    // These flags wait for all threads that this thread traces, and for nothing
    // else.
    let flags = WaitPidFlag::__WALL | WaitPidFlag::__WNOTHREAD;
    loop {
        let (thread, signal) = match waitpid(None, Some(flags)) {
            Ok(WaitStatus::PtraceSyscall(thread)) => {
                let entered = ptrace::syscall_info(thread).map(|info| info.op);
                if entered == Ok(nix::libc::PTRACE_SYSCALL_INFO_ENTRY) {
                    count.fetch_add(1, Ordering::Relaxed);
                }
                (thread, None)
            }
            Ok(WaitStatus::Stopped(thread, signal)) => (thread, Some(signal)),
            Ok(WaitStatus::PtraceEvent(thread, ..)) => (thread, None),
            Ok(_) | Err(Errno::EINTR) => continue,
            Err(_) => return,
        };
        match ptrace::syscall(thread, signal) {
            // ESRCH: the thread was killed while it was stopped.
            Ok(()) | Err(Errno::ESRCH) => {}
            Err(err) => eprintln!("bench: tracing thread {thread}: {err}"),
        }
    }
}
