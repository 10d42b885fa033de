//! The server program, ended with the value that stands for it.

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

/// How long to wait for what must come before a test is said to fail.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// A running server.
pub struct Server {
    child: Child,
    pub port: u16,
    _reserved: Port,
}

impl Server {
    /// Starts it on a port of the loopback, with further options.
    pub fn start(options: &[&str]) -> Server {
        let reserved = Port::reserve(0).expect("a free port");
        let port = reserved.number;
        let place = ["-l", "127.0.0.1", "-p", &port.to_string()];
        let mut server = Server {
            child: spawn(&[&place, options].concat(), Stdio::null),
            port,
            _reserved: reserved,
        };
        until(|| server.listens().then_some(()));
        server
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

    /// Waits until a value of `stats` is this.
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

    /// For those who set its limits.
    pub fn pid(&self) -> rustix::process::Pid {
        rustix::process::Pid::from_child(&self.child)
    }

    /// A file that the system has about the process.
    pub fn file(&self, name: &str) -> String {
        let path = format!("/proc/{}/{name}", self.child.id());
        fs::read_to_string(path).expect("what the system has about it")
    }

    /// A size in its status, in bytes.
    pub fn status(&self, key: &str) -> u64 {
        let status = self.file("status");
        let value = |line: &str| {
            let value = line.strip_prefix(key)?.strip_prefix(':')?;
            value.split_whitespace().next()?.parse::<u64>().ok()
        };
        status.lines().find_map(value).expect("a size") * 1024
    }

    /// The memory that it has, in bytes.
    pub fn memory(&self) -> usize {
        usize::try_from(self.status("VmRSS")).expect("a size")
    }

    /// Waits for its end.
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

/// What a run of the server program that must end has left.
pub struct Run {
    pub status: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

/// Runs the server program with options with which it does not serve.
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

/// A directory of a test's own, removed with it.
pub struct Folder(TempDir);

impl Folder {
    pub fn new() -> Folder {
        Folder(TempDir::new().expect("a new directory"))
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }
}

/// As an argument of `-l`.
pub fn unix(path: &Path) -> String {
    format!("unix:{}", path.display())
}

/// Asks until there is an answer.
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

/// Lets others work before something is looked at again.
fn pause() {
    let (_sender, receiver) = mpsc::channel::<()>();
    let (Ok(()) | Err(_)) = receiver.recv_timeout(Duration::from_millis(1));
}
