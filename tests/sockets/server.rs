//! A process of the server for a test. It ends when its value is dropped.

use crate::client::Client;
use crate::port::Port;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::fs;
use std::io::{ErrorKind, Read};
use std::net::{Ipv4Addr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// How long to wait for something that must come, before the test fails.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// A running server.
pub struct Server {
    child: Child,
    pub port: u16,
    _reserved: Port,
}

impl Server {
    /// Starts the server on a port of the loopback, with these options.
    pub fn start(options: &[&str]) -> Server {
        let reserved = Port::reserve(0).expect("a free port");
        let port = reserved.number;
        let place = ["-l", "127.0.0.1", "-p", &port.to_string()];
        let mut server = Server {
            child: spawn(&[&place, options].concat(), Stdio::null),
            port,
            _reserved: reserved,
        };
        let deadline = Instant::now() + PATIENCE;
        let mut respawn_at = Instant::now() + PATIENCE / 6;
        while !server.listens() {
            let now = Instant::now();
            assert!(now < deadline, "it does not listen: {}", server.doing());
            // Under an emulator, a copy of a process with several threads may
            // wait for a lock that one of the others had, and never become
            // another program.
            if now > respawn_at && !server.doing().contains(place[3]) {
                eprintln!("it has not become a server: {}", server.doing());
                server.child.kill().expect("a process that can be killed");
                server.child.wait().expect("a process that can be reaped");
                server.child = spawn(&[&place, options].concat(), Stdio::null);
                respawn_at = now + PATIENCE / 6;
            }
            pause();
        }
        server
    }

    /// What the system says that its threads are doing.
    fn doing(&self) -> String {
        let path = |name| format!("/proc/{}/{name}", self.child.id());
        let text = |name| fs::read_to_string(path(name)).unwrap_or_else(|error| error.to_string());
        ["cmdline", "wchan", "syscall", "status"]
            .map(text)
            .join("; ")
    }

    fn listens(&mut self) -> bool {
        let ended = self.child.try_wait().expect("a child's status");
        assert_eq!(ended, None, "the server has ended");
        match TcpStream::connect((Ipv4Addr::LOCALHOST, self.port)) {
            Ok(_) => true,
            Err(error) if error.kind() == ErrorKind::ConnectionRefused => false,
            Err(error) => panic!("connecting to port {}: {error}", self.port),
        }
    }

    pub fn connect(&self) -> Client {
        Client::connect(self.port)
    }

    /// A value of `stats`.
    pub fn stat(&self, key: &str) -> String {
        self.connect().stat(key)
    }

    /// Waits until a key of `stats` has this value.
    pub fn await_stat(&self, key: &str, value: impl ToString) {
        let (mut client, value) = (self.connect(), value.to_string());
        let mut seen = String::new();
        let deadline = Instant::now() + PATIENCE;
        while seen != value {
            assert!(Instant::now() < deadline, "{key} is {seen}, not {value}");
            seen = client.stat(key);
            pause();
        }
    }

    pub fn signal(&self, signal: Signal) {
        let id = i32::try_from(self.child.id()).expect("a process id");
        kill(Pid::from_raw(id), signal).expect("a server to be told");
    }

    /// The process id, in the type that is needed to set limits.
    pub fn pid(&self) -> rustix::process::Pid {
        rustix::process::Pid::from_child(&self.child)
    }

    /// The text of a file in the process's directory below `/proc`.
    pub fn file(&self, name: &str) -> String {
        let path = format!("/proc/{}/{name}", self.child.id());
        fs::read_to_string(path).expect("what the system has about it")
    }

    /// A size in the process's status, in bytes.
    pub fn status(&self, key: &str) -> u64 {
        let status = self.file("status");
        let value = |line: &str| {
            let value = line.strip_prefix(key)?.strip_prefix(':')?;
            value.split_whitespace().next()?.parse::<u64>().ok()
        };
        status.lines().find_map(value).expect("a size") * 1024
    }

    /// The resident memory of the process, in bytes.
    pub fn memory(&self) -> usize {
        usize::try_from(self.status("VmRSS")).expect("a size")
    }

    /// Waits until the process ends.
    pub fn exit_status(&mut self) -> ExitStatus {
        exit_status(&mut self.child)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.child.kill().expect("a server that can be killed");
        self.child.wait().expect("a server that can be reaped");
    }
}

/// The result of a process that has ended by itself.
pub struct Run {
    pub status: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

/// Runs the server with options with which it ends instead of serving.
pub fn run(options: &[&str]) -> Run {
    let mut child = spawn(options, Stdio::piped);
    let status = exit_status(&mut child).code();
    let (mut stdout, mut stderr) = (String::new(), String::new());
    let out = child.stdout.as_mut().expect("a pipe");
    out.read_to_string(&mut stdout).expect("text");
    let err = child.stderr.as_mut().expect("a pipe");
    err.read_to_string(&mut stderr).expect("text");
    Run {
        status,
        stdout,
        stderr,
    }
}

fn spawn(options: &[&str], output: fn() -> Stdio) -> Child {
    let mut command = Command::new(env!("CARGO_BIN_EXE_beanpoled"));
    command.args(options).stdout(output()).stderr(output());
    command.spawn().expect("the server program")
}

fn exit_status(child: &mut Child) -> ExitStatus {
    until(|| child.try_wait().expect("a child's status"))
}

/// A temporary directory, which is removed when this value is dropped.
pub struct Folder(TempDir);

impl Folder {
    pub fn new() -> Folder {
        Folder(TempDir::new().expect("a new directory"))
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }
}

/// A path as an argument of `-l`.
pub fn unix(path: &Path) -> String {
    format!("unix:{}", path.display())
}

/// Calls `answer` again and again until it returns something.
pub fn until<T>(mut answer: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(answer) = answer() {
            return answer;
        }
        assert!(Instant::now() < deadline, "it does not come");
        pause();
    }
}

/// Lets other threads work, before a condition is checked again.
fn pause() {
    let (_sender, receiver) = mpsc::channel::<()>();
    let (Ok(()) | Err(_)) = receiver.recv_timeout(Duration::from_millis(1));
}
