//! The servers under test. A server is started for one run and ended after it,
//! or it runs already.
//!
//! `sh` runs a command line with `exec` before it. So quoting works as in a
//! shell, and the process that is measured is the server itself. In a command
//! line, `{port}` stands for a port that is reserved for the server, and
//! `{dir}` for a new, empty directory that is removed afterwards. To pin a
//! server, this thread pins itself while it starts the server: a child inherits
//! the CPUs, and so does every thread that it makes.

use super::load::{Cpus, Placement, Syncing};
use companion::failure::Failure;
use companion::server::address::Address;
use nix::errno::Errno;
use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid};
use nix::unistd::Pid;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::net::{Ipv4Addr, SocketAddr, TcpStream, ToSocketAddrs};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use support::Port;

/// How long a server may take to accept connections, or to end.
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

impl Source {
    /// The same server, with a binlog if the load wants one.
    pub fn keeping(&self, sync: Option<Syncing>) -> Result<Source, Failure> {
        match (self, sync) {
            (_, None) => Ok(self.clone()),
            (Source::Command(command), Some(sync)) => {
                Ok(Source::Command(format!("{command} {}", sync.options())))
            }
            (Source::Running { address, .. }, Some(_)) => Err(Failure::Usage(format!(
                "{address}: only a server that is started here can be given a binlog"
            ))),
        }
    }
}

/// A server that accepts connections.
pub struct Server {
    /// Where it listens.
    pub address: SocketAddr,
    /// Its process, if it is known.
    pub pid: Option<Pid>,
    started: Option<Started>,
}

/// A process, its files and its port. When this value is dropped, the process
/// is ended and the files are removed.
struct Started {
    command: String,
    port: Port,
    cpus: Cpus,
    directory: PathBuf,
    /// `None` while the server is stopped.
    child: Option<(Child, Pid)>,
}

/// The directories of the servers, with their processes. When a signal ends
/// this program, it must not leave them behind.
static CHILDREN: Mutex<BTreeMap<PathBuf, Option<Pid>>> = Mutex::new(BTreeMap::new());

impl Server {
    /// Starts the server, or looks up where it runs. Pins the server and this
    /// thread.
    pub fn open(source: &Source, placement: Placement) -> Result<Server, Failure> {
        let cpus = placement.cpus(&allowed_cpus()?);
        match source {
            Source::Command(command) => Server::start(command, cpus),
            Source::Running { address, pid } => {
                pin(&cpus.generator)?;
                let doing = || format!("looking up {address}");
                let mut found = address.to_socket_addrs().map_err(Failure::of(doing()))?;
                let found = found
                    .next()
                    .ok_or_else(|| Failure::Refused(doing() + ": none"));
                Ok(Server {
                    address: found?,
                    pid: pid.map(Pid::from_raw),
                    started: None,
                })
            }
        }
    }

    /// Where the server listens, in the load generator's type.
    pub fn at(&self) -> Address {
        Address::Tcp {
            host: self.address.ip().to_string(),
            port: self.address.port(),
        }
    }

    /// What the server has written to its standard error.
    pub fn said(&self) -> String {
        self.started.as_ref().map(Started::said).unwrap_or_default()
    }

    /// Whether the server was started for this run alone.
    pub fn is_ours(&self) -> bool {
        self.started.is_some()
    }

    /// Ends the server as its users do, and keeps its files.
    pub fn stop(&mut self) -> Result<(), Failure> {
        let stopped = self.started()?.stop();
        stopped.map_err(Failure::of("ending the server"))
    }

    /// Starts the server again, with the files that it has left.
    pub fn start_again(&mut self) -> Result<(), Failure> {
        self.pid = Some(self.started()?.begin()?);
        Ok(())
    }

    /// The directory for which `{dir}` stands in the server's command line.
    pub fn data(&mut self) -> Result<PathBuf, Failure> {
        Ok(data_in(&self.started()?.directory))
    }

    fn started(&mut self) -> Result<&mut Started, Failure> {
        let needed = || Failure::Usage("this needs a server that is started here".into());
        self.started.as_mut().ok_or_else(needed)
    }

    fn start(command: &str, cpus: Cpus) -> Result<Server, Failure> {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("beanpole-bench-{}-{count}", std::process::id());
        let directory = place().join(name);
        let data = data_in(&directory);
        fs::create_dir_all(&data).map_err(Failure::of(format!("creating {}", data.display())))?;
        children().insert(directory.clone(), None);
        let port = Port::reserve(0).map_err(Failure::of("finding a free port"))?;
        let address = (Ipv4Addr::LOCALHOST, port.number).into();
        let command = command.replace("{port}", &port.number.to_string());
        let mut started = Started {
            command: command.replace("{dir}", &word(&data.to_string_lossy())),
            port,
            cpus,
            directory,
            child: None,
        };
        let pid = started.begin()?;
        Ok(Server {
            address,
            pid: Some(pid),
            started: Some(started),
        })
    }
}

/// Where servers keep their files. It is not `/tmp`, because that may be
/// memory, where a sync costs nothing.
pub fn place() -> PathBuf {
    std::env::var_os("TMPDIR").map_or("/var/tmp".into(), PathBuf::from)
}

fn data_in(directory: &Path) -> PathBuf {
    directory.join("data")
}

/// The text as the shell reads it as one word.
fn word(text: &str) -> String {
    let is_plain = |c: char| c.is_alphanumeric() || "/._-+:@,".contains(c);
    let quoted = |c: char| match is_plain(c) {
        true => vec![c],
        false => vec!['\\', c],
    };
    text.chars().flat_map(quoted).collect()
}

impl Started {
    /// Starts the process and waits until it accepts connections.
    fn begin(&mut self) -> Result<Pid, Failure> {
        let said = self.directory.join("said");
        let said = File::create(&said).map_err(Failure::of(format!("creating {said:?}")))?;
        pin(&self.cpus.server)?;
        let child = Command::new("sh")
            .args(["-c", &format!("exec {}", self.command)])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(said)
            .spawn()
            .map_err(Failure::of("starting sh"));
        pin(&self.cpus.generator)?;
        let child = child?;
        let pid = pid_of(&child)?;
        children().insert(self.directory.clone(), Some(pid));
        self.child = Some((child, pid));
        self.wait_until_it_accepts()?;
        Ok(pid)
    }

    fn wait_until_it_accepts(&mut self) -> Result<(), Failure> {
        let (command, at) = (&self.command, ("127.0.0.1", self.port.number));
        let give_up = Instant::now() + PATIENCE;
        loop {
            if TcpStream::connect(at).is_ok() {
                return Ok(());
            }
            let child = self.child.as_mut().map(|(child, _)| child.try_wait());
            let ended = child
                .transpose()
                .map_err(Failure::of("waiting for the server"))?;
            let what = match ended.flatten() {
                Some(status) => format!("ended at once ({status})"),
                None if Instant::now() > give_up => format!("does not listen on port {}", at.1),
                None => {
                    std::thread::sleep(Duration::from_millis(2));
                    continue;
                }
            };
            let what = format!("`{command}` {what} {}", self.said());
            return Err(Failure::Refused(what.trim_end().to_string()));
        }
    }

    fn said(&self) -> String {
        let said = fs::read(self.directory.join("said")).unwrap_or_default();
        String::from_utf8_lossy(&said).trim_end().to_string()
    }

    /// Asks the process to end. If it does not, kills it.
    fn stop(&mut self) -> std::io::Result<()> {
        let Some((mut child, pid)) = self.child.take() else {
            return Ok(());
        };
        let give_up = Instant::now() + PATIENCE;
        let mut asked = false;
        while !has_ended(&mut child, pid)? {
            if !std::mem::replace(&mut asked, true) {
                kill(pid, Signal::SIGTERM)?;
            } else if Instant::now() > give_up {
                eprintln!("bench: server {pid} ignores SIGTERM: killed");
                child.kill()?;
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        children().insert(self.directory.clone(), None);
        Ok(())
    }

    fn remove(&mut self) -> std::io::Result<()> {
        self.stop()?;
        children().remove(&self.directory);
        fs::remove_dir_all(&self.directory)
    }
}

/// Whether the process has ended. If so, waits for it. First it only looks: if
/// a thread of ours traces the process, waiting would take a stop away from
/// that thread.
fn has_ended(child: &mut Child, pid: Pid) -> std::io::Result<bool> {
    let flags = WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT;
    match waitid(Id::Pid(pid), flags) {
        Ok(WaitStatus::Exited(..) | WaitStatus::Signaled(..)) => {}
        Ok(_) => return Ok(false),
        // The thread that traced it has already been told of its end.
        Err(Errno::ECHILD) => return Ok(true),
        Err(err) => return Err(err.into()),
    }
    match child.wait() {
        Err(err) if err.raw_os_error() == Some(Errno::ECHILD as i32) => Ok(true),
        status => status.map(|_| true),
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        if let Err(err) = self.remove() {
            eprintln!("bench: ending a server: {err}");
        }
    }
}

fn pid_of(child: &Child) -> Result<Pid, Failure> {
    let pid = i32::try_from(child.id()).map_err(Failure::of("reading a process id"))?;
    Ok(Pid::from_raw(pid))
}

fn children() -> std::sync::MutexGuard<'static, BTreeMap<PathBuf, Option<Pid>>> {
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
            for (directory, child) in children().iter() {
                // If the server has ended just now, there is nothing to do.
                let killed = child.map_or(Ok(()), |child| kill(child, Signal::SIGKILL));
                if let Err(err) = killed.or_else(gone) {
                    eprintln!("bench: ending a server: {err}");
                }
                if let Err(err) = fs::remove_dir_all(directory) {
                    eprintln!("bench: removing {}: {err}", directory.display());
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

/// Lets this process and its children open as many files as the system allows.
pub fn raise_descriptor_limit() -> Result<u64, Failure> {
    let doing = || "raising the limit of open files";
    let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE).map_err(Failure::of(doing()))?;
    setrlimit(Resource::RLIMIT_NOFILE, hard, hard).map_err(Failure::of(doing()))?;
    Ok(hard)
}

/// The CPUs that this process could use when it was started.
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

/// Programs that only compute, on all CPUs that we may use. They end with this
/// process, however it ends.
pub struct Busy(Vec<Child>);

impl Busy {
    /// Starts so many of these programs.
    pub fn start(count: usize) -> Result<Busy, Failure> {
        pin(&allowed_cpus()?)?;
        let spin = format!(
            "while kill -0 {} 2>&-; do i=0; while [ $i -lt 9999 ]; do i=$((i+1)); done; done",
            std::process::id()
        );
        let mut busy = Busy(Vec::new());
        for _ in 0..count {
            let child = Command::new("sh")
                .args(["-c", &spin])
                .stdin(Stdio::null())
                .spawn();
            busy.0.push(child.map_err(Failure::of("starting sh"))?);
        }
        Ok(busy)
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        for child in &mut self.0 {
            if let Err(err) = child.kill().and_then(|()| child.wait()) {
                eprintln!("bench: ending a busy program: {err}");
            }
        }
    }
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
    fn a_directory_with_spaces_is_one_word_of_the_command() {
        assert_eq!(word("/var/tmp/data"), "/var/tmp/data");
        assert_eq!(word("/tmp/Bob's disk"), r"/tmp/Bob\'s\ disk");
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
