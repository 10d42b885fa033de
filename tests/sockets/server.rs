//! The server program, ended with the value that stands for it.

use crate::client::Client;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::io::{ErrorKind, Read};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};
use std::{env, fs, process};

/// How long to wait for what must come before a test is said to fail.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// A running server.
pub struct Server {
    child: Child,
    pub port: u16,
}

impl Server {
    /// Starts it on a free port of the loopback, with further options.
    pub fn start(options: &[&str]) -> Server {
        for _ in 0..10 {
            let port = free_port();
            let place = ["-l", "127.0.0.1", "-p", &port.to_string()];
            let mut server = Server::spawn(&[&place, options].concat(), port, Stdio::null);
            // Somebody else may have been faster with that port.
            if server.listens() && server.stat("pid") == server.child.id().to_string() {
                return server;
            }
        }
        panic!("no server with {options:?}: {}", run(options).stderr);
    }

    fn spawn(options: &[&str], port: u16, output: fn() -> Stdio) -> Server {
        let mut command = Command::new(env!("CARGO_BIN_EXE_beanpoled"));
        command.args(options).stdout(output()).stderr(output());
        let child = command.spawn().expect("the server program");
        Server { child, port }
    }

    /// Waits until it listens; no if it ends instead.
    fn listens(&mut self) -> bool {
        let port = self.port;
        until(|| {
            let ended = self.child.try_wait().expect("a child's status").is_some();
            let connected = || match TcpStream::connect((Ipv4Addr::LOCALHOST, port)) {
                Ok(_) => true,
                Err(error) if error.kind() == ErrorKind::ConnectionRefused => false,
                Err(error) => panic!("connecting to port {port}: {error}"),
            };
            ended
                .then_some(false)
                .or_else(|| connected().then_some(true))
        })
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

    /// Waits for its end.
    pub fn exit_status(&mut self) -> ExitStatus {
        until(|| self.child.try_wait().expect("a child's status"))
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
    let mut server = Server::spawn(options, 0, Stdio::piped);
    let status = server.exit_status().code();
    let (mut stdout, mut stderr) = (String::new(), String::new());
    let out = server.child.stdout.as_mut().expect("a pipe");
    out.read_to_string(&mut stdout).expect("text");
    let err = server.child.stderr.as_mut().expect("a pipe");
    err.read_to_string(&mut stderr).expect("text");
    Run {
        status,
        stdout,
        stderr,
    }
}

/// A directory of a test's own, removed with it.
pub struct Folder(PathBuf);

impl Folder {
    pub fn new() -> Folder {
        static NUMBER: AtomicUsize = AtomicUsize::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        // The path of a Unix socket is short.
        let name = format!("beanpole-{}-{number}", process::id());
        let path = env::temp_dir().join(name);
        fs::create_dir(&path).expect("a new directory");
        Folder(path)
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        fs::remove_dir_all(&self.0).expect("a directory that can be removed");
    }
}

/// As an argument of `-l`.
pub fn unix(path: &Path) -> String {
    format!("unix:{}", path.display())
}

/// A port that nobody listens on, for now.
pub fn free_port() -> u16 {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
    listener.local_addr().expect("its address").port()
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
