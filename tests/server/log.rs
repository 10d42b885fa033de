//! The log: what it says of a panic, and that no client ever waits for it.

use beanpole::log;
use nix::sys::signal::Signal;
use std::io::{self, BufRead, BufReader, PipeWriter};
use std::os::unix::process::ExitStatusExt;
use std::process::Command;
use std::sync::mpsc;
use std::thread;
use support::{Port, Server, patience, shell};

/// Starts a daemon that logs everything to a pipe.
fn start_logging_to(log: PipeWriter) -> Server {
    let port = Port::reserve(0).expect("a free port");
    let number = port.number.to_string();
    let options = ["-VV", "-f", "1", "-l", "127.0.0.1", "-p", &number];
    let mut command = shell(r#"exec "$0" "$@" 2>&0 </dev/null"#, options);
    command.stdin(log);
    Server::listening_on(&mut command, port)
}

#[test]
fn an_unread_log_delays_neither_clients_nor_a_stop() {
    for is_closed in [false, true] {
        let (log, stderr) = io::pipe().expect("a pipe");
        let _unread = (!is_closed).then_some(log);
        let daemon = start_logging_to(stderr);
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
    let daemon = start_logging_to(stderr);
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
    // The other lines: a warning, two limits, listening, stopping; and of the client by
    // which it was seen that the daemon listens, and of this one: connected, closed, and
    // that one's quit.
    assert_eq!(lines, 2 * COMMANDS + 10);
}

/// The next test runs this one in another process.
#[test]
#[ignore = "ends the process on purpose"]
fn a_worker_that_panics_ends_the_process() {
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
    tests.args([
        "--exact",
        "log::a_worker_that_panics_ends_the_process",
        "--ignored",
    ]);
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
fn a_broken_connection_is_logged_with_its_reason() {
    let daemon = Server::start(["-V"]);
    let mut client = daemon.connect();
    client.exchange("use a", "USING a");
    let name = client.name();
    client.vanish();
    daemon.log_line(&format!("{name}: closed: Connection reset by peer"));
}

/// A page of the web can have its reader's browser send this.
#[test]
fn a_request_of_http_closes_the_connection_and_is_logged() {
    let server = Server::start([]);
    let mut client = server.connect();
    let id = client.put("precious");
    let lines = [
        "POST / HTTP/1.1\r\nHost: 127.0.0.1:11300",
        "PUT / HTTP/1.1\r\nhost: 127.0.0.1:11300",
    ];
    for line in lines {
        let mut browser = server.connect();
        let body = format!("delete {id}\r\npause-tube default 3600\r\n");
        browser.send(format!("list-tube-used\r\n{line}\r\n\r\n{body}"));
        browser.expect("USING default\r\n");
        if line.starts_with("PUT") {
            browser.expect("UNKNOWN_COMMAND\r\n");
        }
        browser.expect_end();
        if line.starts_with("POST") {
            let name = browser.name();
            server.log_line(&format!("warning: {name}: closed: it speaks HTTP"));
        }
        assert_eq!(client.reserve().id, id);
        client.exchange(&format!("release {id} 0 0"), "RELEASED");
    }
}
