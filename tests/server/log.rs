//! The log: what it says of a panic, and that no client ever waits for it.

use beanpole::log;
use nix::sys::signal::{Signal, kill};
use nix::sys::socket::{setsockopt, sockopt};
use nix::unistd::Pid;
use std::io::{self, BufRead, BufReader, PipeWriter, Write};
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitStatus};
use std::sync::mpsc;
use std::thread;
use support::{Client, Folder, PROGRAM, Server, eventually, patience};

/// A daemon that logs everything to a pipe, and listens on a socket in a
/// directory.
struct Logging {
    daemon: Child,
    directory: Folder,
}

impl Logging {
    fn start(stderr: PipeWriter) -> Logging {
        let directory = Folder::new();
        let place = format!("unix:{}/socket", directory.path().display());
        let options = ["-VV", "-f", "1", "-l", &place];
        let daemon = Command::new(&*PROGRAM).args(options).stderr(stderr).spawn();
        let daemon = daemon.expect("it starts");
        Logging { daemon, directory }
    }

    fn connect(&self) -> Client<UnixStream> {
        let path = self.directory.path().join("socket");
        let mut stream = None;
        eventually("it listens", || {
            stream = UnixStream::connect(&path).ok();
            stream.is_some()
        });
        let stream = stream.expect("it listens");
        stream.set_read_timeout(Some(patience())).expect("a socket");
        Client::over(stream)
    }

    /// Ends the daemon with SIGTERM.
    fn stop(mut self) -> ExitStatus {
        let pid = i32::try_from(self.daemon.id()).expect("a number");
        kill(Pid::from_raw(pid), Signal::SIGTERM).expect("it still runs");
        let mut status = None;
        eventually("it ends", || {
            status = self.daemon.try_wait().expect("it can be waited for");
            status.is_some()
        });
        status.expect("it has ended")
    }
}

impl Drop for Logging {
    fn drop(&mut self) {
        // This fails if the daemon has ended already.
        let (Ok(()) | Err(_)) = self.daemon.kill();
        let (Ok(_) | Err(_)) = self.daemon.wait();
    }
}

#[test]
fn an_unread_log_delays_neither_clients_nor_a_stop() {
    for is_closed in [false, true] {
        let (log, stderr) = io::pipe().expect("a pipe");
        let _unread = (!is_closed).then_some(log);
        let daemon = Logging::start(stderr);
        let mut client = daemon.connect();
        // Four times as much as fits into the pipe and the buffer.
        for _ in 0..100 {
            client.send("use a\r\n".repeat(200));
            client.expect(&"USING a\r\n".repeat(200));
        }
        assert_eq!(daemon.stop().code(), Some(0));
        client.expect_end();
    }
}

#[test]
fn log_lines_that_are_not_read_in_time_are_dropped_and_counted() {
    const COMMANDS: usize = 20_000;
    let (log, stderr) = io::pipe().expect("a pipe");
    let daemon = Logging::start(stderr);
    let mut client = daemon.connect();
    for _ in 0..COMMANDS / 200 {
        client.send("use a\r\n".repeat(200));
        client.expect(&"USING a\r\n".repeat(200));
    }
    let dropped = |line: &String| {
        let (_, count) = line.split_once("warning: ")?;
        let (count, _) = count.split_once(" lines of the log were dropped")?;
        count.parse::<usize>().ok()
    };
    let (to_us, counted) = mpsc::channel();
    let reader = thread::spawn(move || {
        let lines = BufReader::new(log).lines().map(|line| line.expect("text"));
        let lines = lines.inspect(|line| {
            // The test waits for the first count only.
            dropped(line).map(|count| to_us.send(count).ok());
        });
        lines.collect::<Vec<String>>()
    });
    // When the count has come, the reader keeps up, and no line is dropped at
    // the end without being counted.
    counted.recv_timeout(patience()).expect("a count");
    assert_eq!(daemon.stop().code(), Some(0));
    let lines = reader.join().expect("it has read");
    let counts: Vec<usize> = lines.iter().filter_map(dropped).collect();
    let lines = lines.len() - counts.len() + counts.iter().sum::<usize>();
    // The seven other lines: a warning, two limits, listening, connected,
    // stopping and closed.
    assert_eq!(lines, 2 * COMMANDS + 7);
}

/// The next test runs this one in another process.
#[test]
#[ignore = "ends the process on purpose"]
fn panic_in_a_worker() {
    log::start(0).expect("a thread");
    let worker = thread::Builder::new().name("worker".into());
    let worker = worker
        .spawn(|| panic!("two words\nand a line"))
        .expect("a thread");
    worker.join().expect_err("nobody gets here");
}

#[test]
fn a_panic_is_one_line_of_the_log_and_ends_the_process() {
    let mut tests = Command::new(std::env::current_exe().expect("a path"));
    tests.args(["--exact", "log::panic_in_a_worker", "--ignored"]);
    let output = tests.output().expect("it can be started");
    // Also in a build in which a panic ends one thread only.
    assert_eq!(output.status.signal(), Some(Signal::SIGABRT as i32));
    let text = String::from_utf8(output.stderr).expect("text");
    let lines: Vec<_> = text.lines().collect();
    assert_eq!(lines.len(), 1, "{text}");
    let (time, words) = lines[0].split_once(' ').expect("a time");
    assert!(time.ends_with('Z'));
    let begin = "error: panic in thread worker at tests/server/log.rs:";
    assert!(words.starts_with(begin), "{words}");
    assert!(words.ends_with(": two words and a line"), "{words}");
}

#[test]
fn a_full_log_pipe_does_not_delay_the_start() {
    let (log, mut stderr) = io::pipe().expect("a pipe");
    // A pipe has room for 64 KiB.
    stderr.write_all(&[b'x'; 64 * 1024]).expect("room");
    let daemon = Logging::start(stderr);
    daemon.connect().exchange("use a", "USING a");
    assert_eq!(daemon.stop().code(), Some(0));
    drop(log);
}

#[test]
fn a_broken_connection_is_logged_with_its_reason() {
    let daemon = Server::start(["-V"]);
    let mut client = Client::connect(daemon.port());
    client.exchange("use a", "USING a");
    let stream = client.into_stream();
    let name = stream.local_addr().expect("an address");
    let at_once = nix::libc::linger {
        l_onoff: 1,
        l_linger: 0,
    };
    setsockopt(&stream, sockopt::Linger, &at_once).expect("a socket");
    drop(stream);
    daemon.log_line(&format!("{name}: closed: Connection reset by peer"));
}
