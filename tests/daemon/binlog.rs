//! The directory of the binlog: which server may have it, and what waits for
//! it.

use crate::port::Port;
use crate::program::{Client, Daemon, PROGRAM, TempDir, run};
use nix::sys::signal::Signal;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::{Shutdown, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixDatagram;
use std::process::Command;
use std::thread;
use std::time::Duration;

fn text(directory: &TempDir) -> &str {
    directory.path().to_str().expect("text")
}

/// The status with which the daemon refuses to start, and the last line that it
/// says.
fn failure(directory: &str) -> (i32, String) {
    let (status, _, stderr) = run(["-p", "0", "-b", directory]);
    (status, stderr.lines().last().unwrap_or_default().into())
}

#[test]
fn a_directory_that_cannot_be_used_is_status_10() {
    let directory = TempDir::new();
    let missing = format!("{}/missing", text(&directory));
    let (status, line) = failure(&missing);
    assert_eq!(status, 10);
    assert!(
        line.contains(&missing) && line.contains("No such file"),
        "{line}"
    );

    let mut other = Daemon::start(["-b", text(&directory)]);
    other.port();
    let (status, line) = failure(text(&directory));
    assert_eq!(status, 10);
    let message = format!("{} is locked by another server", text(&directory));
    assert!(line.contains(&message), "{line}");
}

#[test]
fn jobs_survive_a_restart_and_the_files_are_for_nobody_else() {
    let directory = TempDir::new();
    let mut daemon = Daemon::start(["-b", text(&directory)]);
    let mut client = Client::connect(daemon.port());
    client.ask("put 0 0 1 3\r\njob", "INSERTED 1");
    for file in fs::read_dir(directory.path()).expect("a directory") {
        let file = file.expect("a file");
        let mode = file.metadata().expect("a file").permissions().mode();
        assert_eq!(mode & 0o7777, 0o600, "{:?}", file.file_name());
    }
    assert_eq!(daemon.stop().code(), Some(0));
    let mut daemon = Daemon::start(["-b", text(&directory)]);
    let mut client = Client::connect(daemon.port());
    client.ask("reserve", "RESERVED 1 3\r\njob");
}

/// A reply that waits for the disk may be sent by the thread that has written
/// last, and not by the client's own worker.
#[test]
fn no_reply_overtakes_one_that_waits_for_the_disk() {
    let directory = TempDir::new();
    let mut daemon = Daemon::start(["-b", text(&directory), "-f", "0"]);
    let port = daemon.port();
    let put = b"put 0 0 60 1\r\nx\r\n";
    let talk = move || {
        let mut stream = Client::connect(port).into_stream();
        stream.set_nodelay(true).expect("a socket");
        let mut answers = BufReader::new(stream.try_clone().expect("a descriptor"));
        let mut answer = || {
            let mut line = String::new();
            answers.read_line(&mut line).expect("an answer");
            line
        };
        for _ in 0..100 {
            for segment in [&put[..], b"use default\r\n", put, b"reserve\r\n"] {
                stream.write_all(segment).expect("a server");
                // Mostly this is long enough for the server to read the segment
                // before the next one comes.
                thread::sleep(Duration::from_micros(20));
            }
            let begins = [
                "INSERTED ",
                "USING default\r\n",
                "INSERTED ",
                "RESERVED ",
                "x\r\n",
            ];
            for begin in begins {
                let line = answer();
                assert!(line.starts_with(begin), "{line:?}, not {begin:?}");
            }
        }
        stream.write_all(put).expect("a server");
        stream.shutdown(Shutdown::Write).expect("a connection");
        assert!(answer().starts_with("INSERTED "));
        assert_eq!(answer(), "");
    };
    let clients: Vec<_> = (0..8).map(|_| thread::spawn(talk)).collect();
    for client in clients {
        client.join().expect("replies in order");
    }
    assert_eq!(Client::connect(port).stat("total-jobs"), 8 * 201);
    assert_eq!(daemon.stop().code(), Some(0));
}

#[test]
fn a_second_server_waits_without_listening_and_takes_over() {
    let directory = TempDir::new();
    let options = ["-b", text(&directory)];
    let mut first = Daemon::start(options);
    Client::connect(first.port()).ask("put 0 0 1 3\r\njob", "INSERTED 1");

    let reserved = Port::reserve(0).expect("a port");
    let port = reserved.number;
    let notify = directory.path().join("notify");
    let manager = UnixDatagram::bind(&notify).expect("a socket");
    let mut command = Command::new(PROGRAM);
    command
        .args(options)
        .args(["--wait", "-p", &port.to_string()]);
    let mut second = Daemon::spawn(command.env("NOTIFY_SOCKET", &notify));
    let waiting = format!("aiting: another server has {} locked", text(&directory));
    second.log_line(&waiting);
    let mut status = [0; 1000];
    let count = manager.recv(&mut status).expect("a message");
    assert_eq!(&status[..count], b"STATUS=Recovering jobs");
    let count = manager.recv(&mut status).expect("a message");
    assert_eq!(status[..count], *format!("STATUS=W{waiting}").as_bytes());
    assert!(TcpStream::connect(("127.0.0.1", port)).is_err());
    // The second server does not forget that it was told to drain.
    second.signal(Signal::SIGUSR1);

    first.signal(Signal::SIGKILL);
    drop(first);
    assert_eq!(second.port(), port);
    let mut client = Client::connect(port);
    client.ask("put 0 0 1 3\r\nnew", "DRAINING");
    client.ask("reserve", "RESERVED 1 3\r\njob");
    assert_eq!(second.stop().code(), Some(0));
}

#[test]
fn who_waits_for_the_directory_can_be_ended_and_leaves_no_socket() {
    let directory = TempDir::new();
    let options = ["-b", text(&directory)];
    let mut first = Daemon::start(options);
    first.port();
    let socket = directory.path().join("socket");
    let place = format!("unix:{}", socket.display());
    let mut second = Daemon::start(options.into_iter().chain(["--wait", "-l", &place]));
    second.log_line("waiting: another server has");
    assert!(socket.exists());
    assert_eq!(second.stop().code(), Some(0));
    assert!(!socket.exists());
}
