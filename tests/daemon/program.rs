//! A process of the daemon for a test, and clients of it.

use nix::sys::signal::{self, Signal};
use nix::unistd::Pid;
use std::ffi::OsStr;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::{Duration, Instant};

pub const PROGRAM: &str = env!("CARGO_BIN_EXE_beanpoled");

/// How long to wait for something that must come, before the test fails.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Whether the tests that need root run.
pub fn as_root() -> bool {
    let wanted = std::env::var_os("TEST_AS_ROOT").is_some();
    assert!(
        !wanted || nix::unistd::geteuid().is_root(),
        "TEST_AS_ROOT is set, but we are not root"
    );
    wanted
}

/// A running daemon. It is killed at the end of the test if it still runs.
pub struct Daemon {
    child: Child,
    log: Receiver<String>,
}

impl Daemon {
    /// Starts the daemon with these options on a free port.
    pub fn start<'a>(options: impl IntoIterator<Item = &'a str>) -> Daemon {
        Daemon::spawn(Command::new(PROGRAM).args(["-p", "0"]).args(options))
    }

    /// Starts a command that becomes the daemon.
    pub fn spawn(command: &mut Command) -> Daemon {
        let mut child = command
            .stderr(Stdio::piped())
            .process_group(0)
            .spawn()
            .expect("the program can be started");
        let stderr = BufReader::new(child.stderr.take().expect("it is piped"));
        let (tell, log) = mpsc::channel();
        thread::spawn(move || {
            for line in stderr.lines().map_while(Result::ok) {
                if tell.send(line).is_err() {
                    return;
                }
            }
        });
        Daemon { child, log }
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Waits for a line in the log that contains this text. Takes this line and
    /// all lines before it.
    pub fn log_line(&mut self, what: &str) -> String {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let patience = deadline.saturating_duration_since(Instant::now());
            match self.log.recv_timeout(patience) {
                Ok(line) if line.contains(what) => return line,
                Ok(_) => {}
                Err(error) => panic!("no line in the log says {what:?}: {error}"),
            }
        }
    }

    /// Waits until the daemon listens, and returns its port.
    pub fn port(&mut self) -> u16 {
        let line = self.log_line("listening on ");
        let (_, port) = line.rsplit_once(':').expect("an address with a port");
        port.parse().expect("a port")
    }

    pub fn signal(&self, signal: Signal) {
        let pid = i32::try_from(self.pid()).expect("a process id");
        signal::kill(Pid::from_raw(pid), signal).expect("it still runs");
    }

    /// Sends SIGTERM and waits for the end.
    pub fn stop(self) -> ExitStatus {
        self.signal(Signal::SIGTERM);
        self.wait().0
    }

    /// Waits for the end. Returns the status and the rest of the log.
    pub fn wait(mut self) -> (ExitStatus, Vec<String>) {
        let deadline = Instant::now() + PATIENCE;
        let status = loop {
            match self.child.try_wait().expect("it can be waited for") {
                Some(status) => break status,
                None => assert!(Instant::now() < deadline, "it does not end"),
            }
            thread::sleep(Duration::from_millis(2));
        };
        (status, self.log.iter().collect())
    }

    /// What follows `name:` in /proc/PID/status.
    pub fn status(&self, name: &str) -> String {
        let path = format!("/proc/{}/status", self.pid());
        field(&fs::read_to_string(path).expect("it still runs"), name)
    }

    /// How often the daemon's threads have gone to sleep in all. `None` if one
    /// of them does not sleep now.
    pub fn sleeps(&self) -> Option<u64> {
        let threads = fs::read_dir(format!("/proc/{}/task", self.pid()));
        let sleeps = threads.expect("it still runs").map(|thread| {
            let status = fs::read_to_string(thread.ok()?.path().join("status")).ok()?;
            let sleeps = field(&status, "State").starts_with('S');
            sleeps.then(|| number(&status, "voluntary_ctxt_switches"))
        });
        sleeps.sum()
    }

    /// The processor time that the daemon has used.
    pub fn cpu_time(&self) -> Duration {
        let path = format!("/proc/{}/stat", self.pid());
        let stat = fs::read_to_string(path).expect("it still runs");
        let (_, after_name) = stat.rsplit_once(')').expect("a name in parentheses");
        let fields: Vec<_> = after_name.split_whitespace().collect();
        let ticks: u64 = [11, 12].iter().map(|&at| parse(fields[at])).sum();
        // The kernel shows times in hundredths of a second.
        Duration::from_millis(10 * ticks)
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) {
            self.child.kill().expect("it can be killed");
            self.child.wait().expect("it ends");
        }
    }
}

/// A temporary directory, which is removed at the end of the test.
pub struct TempDir(tempfile::TempDir);

impl TempDir {
    pub fn new() -> TempDir {
        TempDir(tempfile::tempdir().expect("it can be made"))
    }

    pub fn path(&self) -> &Path {
        self.0.path()
    }
}

/// Runs the daemon with options with which it ends by itself. Returns its
/// status, its standard output and its standard error.
pub fn run<'a>(options: impl IntoIterator<Item = &'a str>) -> (i32, String, String) {
    run_command(Command::new(PROGRAM).args(options))
}

pub fn run_command(command: &mut Command) -> (i32, String, String) {
    let output = command.output().expect("the program can be started");
    let text = |bytes| String::from_utf8(bytes).expect("text");
    let status = output.status.code().expect("no signal ended it");
    (status, text(output.stdout), text(output.stderr))
}

/// A line of shell, in which `"$0" "$@"` is the program with these options.
pub fn shell<'a>(line: &str, options: impl IntoIterator<Item = &'a str>) -> Command {
    let mut shell = Command::new("sh");
    let options = options.into_iter().map(OsStr::new);
    shell.args(["-c", line, PROGRAM]).args(options);
    shell
}

/// A client that sends and expects bytes, over any stream.
pub struct Client<S>(S);

impl Client<TcpStream> {
    pub fn connect(port: u16) -> Client<TcpStream> {
        Client::new(TcpStream::connect(("127.0.0.1", port)).expect("somebody listens"))
    }

    pub fn new(stream: TcpStream) -> Client<TcpStream> {
        stream.set_read_timeout(Some(PATIENCE)).expect("a socket");
        Client(stream)
    }
}

impl<S: Read + Write> Client<S> {
    pub fn over(stream: S) -> Client<S> {
        Client(stream)
    }

    pub fn send(&mut self, bytes: &str) {
        self.0.write_all(bytes.as_bytes()).expect("it can be sent");
    }

    pub fn expect(&mut self, bytes: &str) {
        let mut received = vec![0; bytes.len()];
        let result = self.0.read_exact(&mut received);
        let received = String::from_utf8_lossy(&received);
        assert_eq!((received.as_ref(), result.err()).0, bytes);
    }

    pub fn expect_end(&mut self) {
        let mut received = Vec::new();
        // A reset is an end as well: the server has not read the last bytes.
        let (Ok(_) | Err(_)) = self.0.read_to_end(&mut received);
        assert_eq!(String::from_utf8_lossy(&received), "");
    }

    /// Sends a line and expects this answer.
    pub fn ask(&mut self, line: &str, answer: &str) {
        self.send(&format!("{line}\r\n"));
        self.expect(&format!("{answer}\r\n"));
    }

    /// A number in the answer to `stats`.
    pub fn stat(&mut self, key: &str) -> u64 {
        self.send("stats\r\n");
        let mut line = Vec::new();
        while !line.ends_with(b"\r\n") {
            let mut byte = [0];
            self.0.read_exact(&mut byte).expect("a line");
            line.push(byte[0]);
        }
        let line = String::from_utf8(line).expect("text");
        let size: usize = line[3..].trim().parse().expect("a size");
        let mut body = vec![0; size + 2];
        self.0.read_exact(&mut body).expect("a body");
        number(&String::from_utf8(body).expect("text"), key)
    }

    pub fn into_stream(self) -> S {
        self.0
    }
}

/// Waits until a condition holds.
pub fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < deadline, "it did not come to be: {what}");
        thread::sleep(Duration::from_millis(2));
    }
}

fn field(text: &str, name: &str) -> String {
    let mut lines = text.lines().filter_map(|line| line.split_once(':'));
    let (_, value) = lines.find(|(key, _)| *key == name).expect("the field");
    value.trim().into()
}

fn number(text: &str, name: &str) -> u64 {
    parse(&field(text, name))
}

fn parse(number: &str) -> u64 {
    number.parse().expect("a number")
}
