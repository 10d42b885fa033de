//! A process of a server for a test. It ends when its value is dropped.

use crate::client::{Client, field};
use crate::port::Port;
use crate::{eventually, patience, until};
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::time::ClockId;
use nix::unistd::Pid;
pub use rustix::process::Resource;
use rustix::process::{Rlimit, prlimit};
use signal_hook::consts::{SIGHUP, SIGINT};
use std::ffi::OsStr;
use std::fs;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::sync::{Arc, LazyLock, Mutex, Once, OnceLock, PoisonError};
use std::thread;
use std::time::Duration;

/// Our server: what `BEANPOLED` names, or what the tests of all packages together have
/// built.
pub static PROGRAM: LazyLock<String> = LazyLock::new(|| {
    let given = std::env::var_os("BEANPOLED").map(PathBuf::from);
    let program = given.unwrap_or_else(|| program("beanpoled"));
    program
        .into_os_string()
        .into_string()
        .expect("a name of letters")
});

/// A program of this project, beside the folder of the test's own.
pub fn program(name: &str) -> PathBuf {
    let test = std::env::current_exe().expect("a path");
    let folder = test.ancestors().nth(2).expect("the folder above `deps`");
    let program = folder.join(name);
    assert!(program.exists(), "build {} first", program.display());
    program
}

/// A command that hears nothing of what the person who starts the tests likes: colours, the
/// width of lines, a language, an editor, servers.
pub fn command(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(program);
    for name in [
        "BEANPOLE_ADDR",
        "BEANPOLE_SERVERS",
        "COLUMNS",
        "EDITOR",
        "LANGUAGE",
        "LINES",
        "NO_COLOR",
        "VISUAL",
        "XDG_STATE_HOME",
    ] {
        command.env_remove(name);
    }
    command.env("LC_ALL", "C.UTF-8").env("TERM", "xterm");
    command
}

/// Has `command`, which runs what its last arguments name, run this other one in its folder
/// and with its variables.
pub fn run_by<'a>(command: &'a mut Command, other: &Command) -> &'a mut Command {
    command.arg(other.get_program()).args(other.get_args());
    for (name, value) in other.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    command.current_dir(other.get_current_dir().expect("a folder"))
}

/// Makes what the processes of a test inherit the same wherever the tests run. Called
/// by all that start one.
///
/// The process that starts the tests may ignore signals, as `nohup` does, and programs
/// would inherit that; a signal that is handled here has its usual effect in them. And
/// shells and editors leak descriptors: all that is ours is closed when another program
/// begins, so what is not was leaked to us.
pub fn prepare() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let status = fs::read_to_string("/proc/self/status").expect("Linux has it");
        let mask = u64::from_str_radix(field(&status, "SigIgn"), 16);
        let ignored = mask.expect("a mask in hexadecimal digits");
        for signal in [SIGHUP, SIGINT] {
            if ignored >> (signal - 1) & 1 == 1 {
                signal_hook::flag::register(signal, Arc::default()).expect("a handler");
            }
        }
        let all = fs::read_dir("/proc/self/fdinfo").expect("Linux has it");
        for one in all.map(|one| one.expect("a descriptor")) {
            let number = one.file_name().to_string_lossy().parse();
            let flags = fs::read_to_string(one.path()).unwrap_or_default();
            let flags = flags.lines().find_map(|line| line.strip_prefix("flags:"));
            let flags = flags.and_then(|flags| i32::from_str_radix(flags.trim(), 8).ok());
            if let (Ok(number @ 3..), Some(flags)) = (number, flags)
                && flags & nix::libc::O_CLOEXEC == 0
            {
                nix::unistd::close::<i32>(number).expect("nobody else closes it");
            }
        }
    });
}

/// A running server.
pub struct Server {
    child: Child,
    log: Mutex<Receiver<String>>,
    port: OnceLock<u16>,
    /// If its port was chosen before it started.
    reserved: Option<Port>,
}

impl Server {
    /// Starts our server with these options on a free port.
    pub fn start<'a>(options: impl IntoIterator<Item = &'a str>) -> Server {
        Server::spawn(Command::new(&*PROGRAM).args(["-p", "0"]).args(options))
    }

    /// Starts a command that becomes our server.
    pub fn spawn(command: &mut Command) -> Server {
        prepare();
        command.stdout(Stdio::null());
        Server::spawn_as_it_is(command)
    }

    /// The same, wherever its standard output goes.
    pub fn spawn_as_it_is(command: &mut Command) -> Server {
        prepare();
        let command = command.stderr(Stdio::piped()).process_group(0);
        let mut child = command.spawn().expect("the program can be started");
        let stderr = BufReader::new(child.stderr.take().expect("it is piped"));
        let (tell, log) = mpsc::channel();
        thread::spawn(move || {
            let mut lines = stderr.lines().map_while(Result::ok);
            lines.all(|line| tell.send(line).is_ok());
        });
        Server {
            child,
            log: Mutex::new(log),
            port: OnceLock::new(),
            reserved: None,
        }
    }

    /// Starts any server, ours or beanstalkd, on a free port that it keeps if it is
    /// started again. Returns when it listens.
    pub fn launch<'a>(program: &Path, options: impl IntoIterator<Item = &'a str>) -> Server {
        let reserved = Port::reserve(0).expect("a free port");
        let place = ["-l", "127.0.0.1", "-p", &reserved.number.to_string()];
        Server::listening_on(Command::new(program).args(place).args(options), reserved)
    }

    /// Starts a command that becomes a server on this port.
    pub fn listening_on(command: &mut Command, reserved: Port) -> Server {
        let port = reserved.number;
        let mut server = Server::spawn(command);
        server.port.set(port).expect("it has none");
        server.reserved = Some(reserved);
        eventually("the server listens", || {
            let ended = server.child.try_wait().expect("a child's status");
            assert!(ended.is_none(), "the server has ended: {:?}", server.rest());
            has_served(port).is_ok()
        });
        server
    }

    /// Ends the server at once. Its port can be listened on again.
    pub fn kill(mut self) -> Option<Port> {
        self.child.kill().expect("a server that can be killed");
        self.child.wait().expect("a server that can be reaped");
        self.reserved.take()
    }

    /// Ends the server in order. Its port can be listened on again.
    pub fn end(mut self) -> Option<Port> {
        let reserved = self.reserved.take();
        self.stop();
        reserved
    }

    /// The port on which it listens, as soon as it does.
    pub fn port(&self) -> u16 {
        *self.port.get_or_init(|| {
            let line = self.log_line("listening on ");
            let (_, port) = line.rsplit_once(':').expect("an address with a port");
            port.parse().expect("a port")
        })
    }

    pub fn connect(&self) -> Client {
        Client::connect(self.port())
    }

    /// Waits for a line in the log that contains this text. Takes this line and all
    /// lines before it.
    #[track_caller]
    pub fn log_line(&self, what: &str) -> String {
        let log = self.log.lock().unwrap_or_else(PoisonError::into_inner);
        let mut before = Vec::new();
        loop {
            match log.recv_timeout(patience()) {
                Ok(line) if line.contains(what) => return line,
                Ok(line) => before.push(line),
                Err(error) => panic!("no line of the log says {what:?}: {error}; {before:#?}"),
            }
        }
    }

    fn rest(&mut self) -> Vec<String> {
        let log = self.log.get_mut().unwrap_or_else(PoisonError::into_inner);
        // What it started may outlive it, and keep the log open.
        std::iter::from_fn(|| log.recv_timeout(patience()).ok()).collect()
    }

    /// A value of `stats`.
    pub fn stat(&self, key: &str) -> String {
        self.connect().stat(key)
    }

    /// Waits until a key of `stats` has this value.
    #[track_caller]
    pub fn await_stat(&self, key: &str, value: impl ToString) {
        let (mut client, value) = (self.connect(), value.to_string());
        eventually(&format!("{key} is {value}"), || client.stat(key) == value);
    }

    pub fn pid(&self) -> Pid {
        Pid::from_raw(i32::try_from(self.child.id()).expect("a process id"))
    }

    /// Sends this signal. After SIGSTOP, none of its threads runs any more.
    pub fn signal(&self, signal: Signal) {
        kill(self.pid(), signal).expect("it still runs");
        if signal == Signal::SIGSTOP {
            // They stop one after the other, and the last one is told to us.
            let stopped = waitpid(self.pid(), Some(WaitPidFlag::WUNTRACED));
            assert!(
                matches!(stopped, Ok(WaitStatus::Stopped(..))),
                "{stopped:?}"
            );
        }
    }

    /// Sends SIGTERM and waits for the end.
    pub fn stop(self) -> ExitStatus {
        self.signal(Signal::SIGTERM);
        self.wait().0
    }

    /// Waits for the end. Returns the status and the rest of the log.
    #[track_caller]
    pub fn wait(mut self) -> (ExitStatus, Vec<String>) {
        let status = until("the server ends", || {
            self.child.try_wait().expect("a child's status")
        });
        (status, self.rest())
    }

    /// Sets a limit of the process, and how far it can be raised again.
    pub fn limit(&self, what: Resource, current: u64, maximum: Option<u64>) {
        let limit = Rlimit {
            current: Some(current),
            maximum,
        };
        let pid = rustix::process::Pid::from_raw(self.pid().as_raw());
        prlimit(pid, what, limit).expect("it still runs");
    }

    /// The text of a file in the process's directory below `/proc`.
    pub fn file(&self, name: &str) -> String {
        let path = format!("/proc/{}/{name}", self.pid());
        fs::read_to_string(path).expect("what the system has about it")
    }

    /// What follows `key:` in the process's status.
    pub fn status(&self, key: &str) -> String {
        field(&self.file("status"), key).to_owned()
    }

    /// A size in the process's status, in bytes.
    pub fn size(&self, key: &str) -> usize {
        let size = self.status(key);
        let (kilobytes, _) = size.split_once(' ').expect("a size in kB");
        1024 * kilobytes.parse::<usize>().expect("a number")
    }

    /// The resident memory of the process, in bytes.
    pub fn memory(&self) -> usize {
        self.size("VmRSS")
    }

    /// How often the process's threads have gone to sleep in all. `None` if one of them
    /// does not sleep now. An error if the process has ended.
    pub fn sleeps(&self) -> io::Result<Option<u64>> {
        let mut sleeps = 0;
        for thread in fs::read_dir(format!("/proc/{}/task", self.pid()))? {
            // One that ends meanwhile has no file, or one that cannot be read, or is a zombie for
            // a moment. The first one stays a zombie when the process has ended.
            let Ok(status) = fs::read_to_string(thread?.path().join("status")) else {
                return Ok(None);
            };
            let is_first = field(&status, "Pid") == field(&status, "Tgid");
            match field(&status, "State").as_bytes()[0] {
                b'S' => {}
                b'Z' if is_first => return Err(io::Error::other("the server has ended")),
                _ => return Ok(None),
            }
            let times = field(&status, "voluntary_ctxt_switches").parse::<u64>();
            sleeps += times.map_err(io::Error::other)?;
        }
        Ok(Some(sleeps))
    }

    /// The processor time that all threads of the process have used, also those that
    /// have ended.
    pub fn cpu_time(&self) -> Duration {
        let clock = ClockId::pid_cpu_clock_id(self.pid());
        clock.and_then(ClockId::now).expect("it still runs").into()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // This fails if it has ended already.
        let (Ok(()) | Err(_)) = self.child.kill();
        let (Ok(_) | Err(_)) = self.child.wait();
    }
}

/// Connects, and waits until the server has closed the connection: then it is not to
/// be found in the statistics.
fn has_served(port: u16) -> io::Result<()> {
    let mut stream = TcpStream::connect(("127.0.0.1", port))?;
    stream.set_read_timeout(Some(patience()))?;
    stream.write_all(b"quit\r\n")?;
    stream.read_to_end(&mut Vec::new())?;
    Ok(())
}

/// Runs our server with options with which it ends by itself. Returns its status, its
/// standard output and its standard error.
pub fn run<'a>(options: impl IntoIterator<Item = &'a str>) -> (i32, String, String) {
    run_command(Command::new(&*PROGRAM).args(options))
}

pub fn run_command(command: &mut Command) -> (i32, String, String) {
    prepare();
    let output = command.output().expect("the program can be started");
    let text = |bytes| String::from_utf8(bytes).expect("text");
    let status = output.status.code().expect("no signal ended it");
    (status, text(output.stdout), text(output.stderr))
}

/// A line of shell, in which `"$0" "$@"` is our server with these options.
pub fn shell<'a>(line: &str, options: impl IntoIterator<Item = &'a str>) -> Command {
    let mut shell = command("sh");
    let options = options.into_iter().map(OsStr::new);
    shell.args(["-c", line, &PROGRAM]).args(options);
    shell
}
