//! The servers under test: started for one run and ended after it, or found
//! running.
//!
//! A command line is run by `sh` with `exec` before it, so quoting works as in
//! a shell and the process that is measured is the server itself. `{port}` in
//! it stands for a free port, `{dir}` for a new, empty directory that is
//! removed afterwards. Servers are pinned by pinning this thread while it
//! starts them: a child inherits that, and so does every thread it makes.

use super::Failure;
use super::load::Placement;
use nix::errno::Errno;
use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::fs::{self, File};
use std::net::{SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// How long a server may take until it accepts connections, or has ended.
const PATIENCE: Duration = Duration::from_secs(30);

/// Where a server comes from.
#[derive(Clone, Debug, PartialEq)]
pub enum Source {
    /// A command line that starts one.
    Command(String),
    /// The address of a running one, and its process if that is to be measured.
    Running {
        /// `host:port`
        address: String,
        /// Its process, if it is on this machine.
        pid: Option<i32>,
    },
}

/// A server that accepts connections.
pub struct Server {
    /// Where it listens.
    pub address: SocketAddr,
    /// Its process, if it is known.
    pub pid: Option<Pid>,
    started: Option<Started>,
}

/// A child process and its files; ended and removed when dropped.
struct Started {
    child: Child,
    pid: Pid,
    directory: PathBuf,
}

/// The children and their files, which a signal must not leave behind.
static CHILDREN: Mutex<Vec<(Pid, PathBuf)>> = Mutex::new(Vec::new());

impl Server {
    /// Starts the server, or looks up where it runs; pins it and this thread.
    pub fn open(source: &Source, placement: Placement) -> Result<Server, Failure> {
        let cpus = placement.cpus(&allowed_cpus()?);
        let server = match source {
            Source::Command(command) => {
                pin(&cpus.server)?;
                Server::start(command)
            }
            Source::Running { address, pid } => {
                let doing = || format!("looking up {address}");
                let mut found = address.to_socket_addrs().map_err(Failure::of(doing()))?;
                let found = found
                    .next()
                    .ok_or_else(|| Failure::new(format!("{}: none", doing())));
                Ok(Server {
                    address: found?,
                    pid: pid.map(Pid::from_raw),
                    started: None,
                })
            }
        };
        pin(&cpus.generator)?;
        server
    }

    /// What it has written to its standard error.
    pub fn said(&self) -> String {
        self.started.as_ref().map(Started::said).unwrap_or_default()
    }

    /// Whether it was started for this run alone.
    pub fn is_ours(&self) -> bool {
        self.started.is_some()
    }

    fn start(command: &str) -> Result<Server, Failure> {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("beanpole-bench-{}-{count}", std::process::id());
        let directory = std::env::temp_dir().join(name);
        let data = directory.join("data");
        fs::create_dir_all(&data).map_err(Failure::of(format!("creating {}", data.display())))?;
        let said = directory.join("said");
        let said = File::create(&said).map_err(Failure::of(format!("creating {said:?}")))?;
        let address = free_address()?;
        let line = command.replace("{port}", &address.port().to_string());
        let line = format!("exec {}", line.replace("{dir}", &data.to_string_lossy()));
        let child = Command::new("sh")
            .args(["-c", &line])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(said)
            .spawn()
            .map_err(Failure::of("starting sh"))?;
        let pid = pid_of(&child)?;
        children().push((pid, directory.clone()));
        let mut started = Started {
            child,
            pid,
            directory,
        };
        started.wait_until_it_accepts(command, address)?;
        Ok(Server {
            address,
            pid: Some(pid),
            started: Some(started),
        })
    }
}

impl Started {
    fn wait_until_it_accepts(&mut self, command: &str, at: SocketAddr) -> Result<(), Failure> {
        let give_up = Instant::now() + PATIENCE;
        loop {
            if TcpStream::connect(at).is_ok() {
                return Ok(());
            }
            let ended = self
                .child
                .try_wait()
                .map_err(Failure::of("waiting for the server"))?;
            let what = match ended {
                Some(status) => format!("ended at once ({status})"),
                None if Instant::now() > give_up => format!("does not listen on {at}"),
                None => {
                    std::thread::sleep(Duration::from_millis(2));
                    continue;
                }
            };
            let what = format!("`{command}` {what} {}", self.said());
            return Err(Failure::new(what.trim_end().to_string()));
        }
    }

    fn said(&self) -> String {
        let said = fs::read(self.directory.join("said")).unwrap_or_default();
        String::from_utf8_lossy(&said).trim_end().to_string()
    }

    fn has_ended(&mut self) -> std::io::Result<bool> {
        match self.child.try_wait() {
            // Whoever traced it was told of its end before.
            Err(err) if err.raw_os_error() == Some(Errno::ECHILD as i32) => Ok(true),
            status => Ok(status?.is_some()),
        }
    }

    /// Asks the server to end, and makes it.
    fn end(&mut self) -> std::io::Result<()> {
        let pid = self.pid;
        let give_up = Instant::now() + PATIENCE;
        let mut asked = false;
        while !self.has_ended()? {
            if !std::mem::replace(&mut asked, true) {
                kill(pid, Signal::SIGTERM)?;
            } else if Instant::now() > give_up {
                eprintln!("beanpole: server {pid} ignores SIGTERM: killed");
                self.child.kill()?;
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        children().retain(|(other, _)| *other != pid);
        fs::remove_dir_all(&self.directory)
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        if let Err(err) = self.end() {
            eprintln!("beanpole: ending a server: {err}");
        }
    }
}

fn pid_of(child: &Child) -> Result<Pid, Failure> {
    let pid = i32::try_from(child.id()).map_err(Failure::of("reading a process id"))?;
    Ok(Pid::from_raw(pid))
}

fn children() -> std::sync::MutexGuard<'static, Vec<(Pid, PathBuf)>> {
    CHILDREN
        .lock()
        .unwrap_or_else(|poisoned| poisoned.into_inner())
}

/// Ends the started servers and then this process when a signal asks for it.
pub fn end_children_on_signals() -> Result<(), Failure> {
    use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
    let signals = signal_hook::iterator::Signals::new([SIGHUP, SIGINT, SIGTERM]);
    let mut signals = signals.map_err(Failure::of("watching for signals"))?;
    let ending = move || {
        if let Some(signal) = signals.forever().next() {
            for (child, directory) in children().iter() {
                // It may have ended just now; then there is nothing to do.
                if let Err(err) = kill(*child, Signal::SIGKILL).or_else(gone) {
                    eprintln!("beanpole: ending server {child}: {err}");
                }
                if let Err(err) = fs::remove_dir_all(directory) {
                    eprintln!("beanpole: removing {}: {err}", directory.display());
                }
            }
            std::process::exit(128 + signal);
        }
    };
    let thread = std::thread::Builder::new()
        .name("signals".into())
        .spawn(ending);
    thread.map(drop).map_err(Failure::of("starting a thread"))
}

fn gone(err: Errno) -> Result<(), Errno> {
    if err == Errno::ESRCH {
        Ok(())
    } else {
        Err(err)
    }
}

/// Lets this process and its children open as many files as they may.
pub fn raise_descriptor_limit() -> Result<u64, Failure> {
    let doing = || "raising the limit of open files";
    let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE).map_err(Failure::of(doing()))?;
    setrlimit(Resource::RLIMIT_NOFILE, hard, hard).map_err(Failure::of(doing()))?;
    Ok(hard)
}

/// The CPUs that this process may use, as it was started.
pub fn allowed_cpus() -> Result<Vec<usize>, Failure> {
    static ALLOWED: Mutex<Vec<usize>> = Mutex::new(Vec::new());
    let mut allowed = ALLOWED
        .lock()
        .unwrap_or_else(|poisoned| poisoned.into_inner());
    if allowed.is_empty() {
        let doing = "asking for the CPUs of this process";
        let set = sched_getaffinity(Pid::from_raw(0)).map_err(Failure::of(doing))?;
        *allowed = (0..CpuSet::count())
            .filter(|&cpu| set.is_set(cpu) == Ok(true))
            .collect();
    }
    Ok(allowed.clone())
}

/// Pins this thread, and the children it will start.
fn pin(cpus: &[usize]) -> Result<(), Failure> {
    let doing = || format!("pinning to the CPUs {cpus:?}");
    let mut set = CpuSet::new();
    for &cpu in cpus {
        set.set(cpu).map_err(Failure::of(doing()))?;
    }
    sched_setaffinity(Pid::from_raw(0), &set).map_err(Failure::of(doing()))
}

fn free_address() -> Result<SocketAddr, Failure> {
    let listener = TcpListener::bind("127.0.0.1:0");
    listener
        .and_then(|listener| listener.local_addr())
        .map_err(Failure::of("finding a free port"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(command: &str) -> String {
        let server = Server::open(&Source::Command(command.into()), Placement::Free);
        server
            .err()
            .map(|failure| failure.to_string())
            .unwrap_or_default()
    }

    #[test]
    fn a_server_that_cannot_start_is_quoted() {
        let said = said("sh -c 'echo no room on {port} >&2; exit 7'");
        assert!(
            said.contains("ended at once (exit status: 7) no room on "),
            "{said}"
        );
    }
}
