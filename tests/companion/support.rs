//! Servers to try the program on.

use ::support::Port;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Once};
use std::thread::JoinHandle;
use std::time::Duration;

/// The program under test.
pub const BEANPOLE: &str = env!("CARGO_BIN_EXE_beanpole");

/// The servers that every story runs on: ours first, which the tests of all
/// packages together have built.
pub fn servers() -> Vec<PathBuf> {
    [vec![beanpoled()], beanstalkd()].concat()
}

/// Our server, beside the program.
pub fn beanpoled() -> PathBuf {
    let program = Path::new(BEANPOLE).with_file_name("beanpoled");
    assert!(program.exists(), "build {} first", program.display());
    program
}

/// The beanstalkd that is installed or named, if there is one.
pub fn beanstalkd() -> Vec<PathBuf> {
    static ONCE: Once = Once::new();
    let found = ::support::beanstalkd();
    if found.is_none() {
        ONCE.call_once(|| ::support::left_out("a beanstalkd, for each story once more"));
    }
    found.into_iter().collect()
}

/// A running server, ended when this goes.
pub struct Server {
    child: Child,
    pub port: u16,
    _reserved: Port,
    program: PathBuf,
    options: Vec<String>,
    /// A place for files of the test.
    pub directory: Directory,
}

impl Server {
    pub fn start(program: &Path, options: &[&str]) -> Server {
        ::support::prepare();
        let options: Vec<_> = options.iter().map(|option| String::from(*option)).collect();
        let reserved = Port::reserve(0).expect("there is a free port");
        let port = reserved.number;
        Server {
            child: spawn(program, port, &options),
            port,
            _reserved: reserved,
            program: program.into(),
            options,
            directory: Directory::new(),
        }
    }

    /// Ends the server at once, and starts it again in the same place.
    pub fn restart(&mut self) {
        self.kill();
        self.child = spawn(&self.program, self.port, &self.options);
    }

    /// Ends the server at once.
    pub fn kill(&mut self) {
        self.child.kill().expect("the server can be ended");
        self.child.wait().expect("the server ends");
    }

    /// Lets the server end in order.
    pub fn end(&mut self) {
        self.signal("TERM");
        self.child.wait().expect("the server ends");
    }

    pub fn signal(&self, name: &str) {
        send(name, self.child.id());
    }
    /// The address for BEANPOLE_ADDR.
    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// What the program writes to its output when it is run on this server.
    pub fn said(&self, arguments: &[&str]) -> String {
        self.run(arguments).1
    }

    /// A number among the server's statistics.
    pub fn counted(&self, key: &str) -> u64 {
        self.stats(&[])[key].as_u64().expect(key)
    }

    /// What a command of the program writes to its standard output, and its exit
    /// status.
    pub fn run(&self, arguments: &[&str]) -> (Option<i32>, String) {
        let output = self.beanpole().args(arguments).output();
        let output = output.expect("the program runs");
        let said = String::from_utf8(output.stdout).expect("it writes text");
        (output.status.code(), said)
    }

    /// The statistics of the server, of a tube or of a job.
    pub fn stats(&self, about: &[&str]) -> serde_json::Value {
        let (_, said) = self.run(&[&["stats", "--json"], about].concat());
        // A tube that does not exist has none.
        serde_json::from_str(&said).unwrap_or_default()
    }

    /// A command of the program, to be run on this server.
    pub fn beanpole(&self) -> Command {
        let mut command = Command::new(BEANPOLE);
        command.env("BEANPOLE_ADDR", self.address());
        command
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Starts a server there.
fn spawn(program: &Path, port: u16, options: &[String]) -> Child {
    let mut child = Command::new(program)
        .args(["-l", "127.0.0.1", "-p", &port.to_string()])
        .args(options)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("the server can be started");
    wait_for("the server to listen", || {
        let ended = child.try_wait().expect("it can be asked about");
        assert_eq!(ended, None, "the server has ended");
        has_served(port).is_ok()
    });
    child
}

/// Connects, and waits until the server has closed the connection: it is not
/// to be found in the statistics.
fn has_served(port: u16) -> io::Result<()> {
    let mut stream = TcpStream::connect(("127.0.0.1", port))?;
    stream.write_all(b"quit\r\n")?;
    stream.read_to_end(&mut Vec::new())?;
    Ok(())
}

/// A directory of its own, removed when this goes.
pub struct Directory(tempfile::TempDir);

impl Directory {
    pub fn new() -> Directory {
        Directory(tempfile::tempdir().expect("a directory can be made"))
    }

    pub fn path(&self) -> &Path {
        self.0.path()
    }

    pub fn text(&self) -> &str {
        self.path().to_str().expect("its name is text")
    }

    /// Writes a file there and says where it is.
    pub fn write(&self, name: &str, content: &[u8]) -> PathBuf {
        let path = self.path().join(name);
        std::fs::write(&path, content).expect("a file can be written");
        path
    }

    /// Waits until this file is there and says what is in it.
    pub fn wait_for(&self, name: &str) -> String {
        let path = self.path().join(name);
        wait_for(name, || path.exists());
        std::fs::read_to_string(path).expect("it can be read")
    }
}

/// A program that runs beside the test.
pub struct Running {
    child: Child,
    said: BufReader<Box<dyn Read>>,
}

impl Running {
    /// Starts it, to read its error output.
    pub fn start(command: &mut Command) -> Running {
        command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped());
        let mut child = command.spawn().expect("the program starts");
        let said = child.stderr.take().expect("it has an error output");
        Running {
            child,
            said: BufReader::new(Box::new(said)),
        }
    }

    /// Starts it, whatever it says.
    pub fn unheard(command: &mut Command) -> Running {
        command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let child = command.spawn().expect("the program starts");
        Running {
            child,
            said: BufReader::new(Box::new(std::io::empty())),
        }
    }

    /// Starts it, to read its standard output.
    pub fn reading_output(command: &mut Command) -> Running {
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("the program starts");
        let said = child.stdout.take().expect("it has an output");
        Running {
            child,
            said: BufReader::new(Box::new(said)),
        }
    }

    pub fn signal(&self, name: &str) {
        send(name, self.child.id());
    }

    /// Waits for this line in its output; others before it do not count.
    pub fn wait_for_line(&mut self, expected: &str) {
        let mut said = String::new();
        loop {
            let mut line = String::new();
            let count = self.said.read_line(&mut line).expect("it says something");
            assert!(count > 0, "it ended without '{expected}' but with: {said}");
            if line.trim_end() == expected {
                return;
            }
            said += &line;
        }
    }

    /// Waits for a line with this in it.
    pub fn wait_for_line_with(&mut self, expected: &str) -> String {
        loop {
            let mut line = String::new();
            let count = self.said.read_line(&mut line).expect("it says something");
            assert!(count > 0, "it ended without '{expected}'");
            if line.contains(expected) {
                return line;
            }
        }
    }

    pub fn is_running(&mut self) -> bool {
        self.child
            .try_wait()
            .expect("it can be asked about")
            .is_none()
    }

    /// Waits for its end: its exit status, and what it had left to say.
    pub fn wait(mut self) -> (i32, String) {
        let mut said = String::new();
        self.said.read_to_string(&mut said).expect("it is text");
        let status = self.child.wait().expect("it ends");
        (status.code().unwrap_or(-1), said)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn send(signal: &str, process: u32) {
    let command = format!("kill -{signal} {process}");
    let status = Command::new("sh").args(["-c", &command]).status();
    assert!(status.is_ok_and(|status| status.success()));
}

/// Waits for an event; that it never comes is a failure.
#[track_caller]
pub fn wait_for(what: &str, happened: impl FnMut() -> bool) {
    ::support::eventually(what, happened);
}

/// Writes its process id, waits until it is told to go on, and ends well.
pub const PATIENT: &str = r#"echo $$ > "$0/pid.new"; mv "$0/pid.new" "$0/pid"
    until [ -e "$0/go" ]; do sleep 0.01; done"#;

/// A server of our own making: it answers each line of this script in turn and
/// says which lines it got. What begins with `late` comes half a second late.
pub fn scripted(script: &'static [(&'static str, &'static str)]) -> (u16, JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let thread = std::thread::spawn(move || {
        let (stream, _) = listener.accept().unwrap();
        let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
        for (expected, answer) in script {
            assert_eq!(lines.next().unwrap().unwrap(), *expected);
            let late = answer.strip_prefix("late ");
            late.inspect(|_| std::thread::sleep(Duration::from_millis(500)));
            (&stream)
                .write_all(late.unwrap_or(answer).as_bytes())
                .unwrap();
        }
        // Until the program has gone.
        lines.for_each(drop);
    });
    (port, thread)
}

pub fn group_exists(group: &str) -> bool {
    let group = nix::unistd::Pid::from_raw(group.trim().parse().unwrap());
    nix::sys::signal::killpg(group, None).is_ok()
}

/// A line to a server that is cut as soon as these bytes are on it, in either
/// direction; they do not arrive. All that the client sends without their answer
/// does. After that it serves anew if `again` is true.
pub struct CutLine {
    pub port: u16,
}

impl CutLine {
    pub fn to(server: &Server, cut_at: &'static str, again: bool) -> CutLine {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let server = server.port;
        std::thread::spawn(move || {
            let line = Arc::new(Cut {
                at: cut_at,
                is_cut: AtomicBool::new(false),
                asked: AtomicUsize::new(0),
            });
            for client in listener.incoming() {
                let (client, server) = (
                    client.unwrap(),
                    TcpStream::connect(("127.0.0.1", server)).unwrap(),
                );
                if line.is_cut.load(Ordering::SeqCst) && !again {
                    return;
                }
                let ways = [(&client, &server, false), (&server, &client, true)];
                let ways = ways.map(|(from, to, is_answer)| {
                    let (from, to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
                    let line = Arc::clone(&line);
                    std::thread::spawn(move || carry(from, to, &line, is_answer))
                });
                drop((client, server, ways));
            }
        });
        CutLine { port }
    }
}

/// Carries bytes until the line is cut or one side closes it.
fn carry(mut from: TcpStream, mut to: TcpStream, line: &Cut, is_answer: bool) {
    let mut bytes = [0; 1 << 16];
    while let Ok(count @ 1..) = from.read(&mut bytes) {
        let text = String::from_utf8_lossy(&bytes[..count]);
        let is_cut = text.contains(line.at) && !line.is_cut.swap(true, Ordering::SeqCst);
        if is_cut && is_answer {
            line.await_silence();
        }
        if is_cut || to.write_all(&bytes[..count]).is_err() {
            break;
        }
        if !is_answer {
            line.asked.fetch_add(count, Ordering::SeqCst);
        }
    }
    let _ = from.shutdown(Shutdown::Both);
    let _ = to.shutdown(Shutdown::Both);
}

/// Where a line is cut, and what has become of it.
struct Cut {
    at: &'static str,
    is_cut: AtomicBool,
    /// How many bytes have been carried to the server.
    asked: AtomicUsize,
}

impl Cut {
    /// Waits until the client sends nothing more, since it waits for an answer.
    fn await_silence(&self) {
        let asked = || self.asked.load(Ordering::SeqCst);
        let mut before = usize::MAX;
        while std::mem::replace(&mut before, asked()) != asked() {
            std::thread::sleep(Duration::from_millis(300));
        }
    }
}
