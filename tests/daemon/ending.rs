//! How the daemon ends.

use crate::limits::{limit_threads, start_for_thread_limits};
use crate::program::{Client, Daemon, as_root, eventually, shell};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::thread;

#[test]
fn a_signal_ends_it_in_order() {
    for signal in [Signal::SIGTERM, Signal::SIGINT] {
        let mut daemon = Daemon::start([]);
        let mut client = Client::connect(daemon.port());
        client.ask("use a", "USING a");
        daemon.signal(signal);
        client.expect_end();
        let (status, log) = daemon.wait();
        assert_eq!(status.code(), Some(0));
        assert!(
            log.last()
                .is_some_and(|line| line.ends_with("info: stopping"))
        );
    }
}

#[test]
fn a_hang_up_and_a_broken_pipe_do_not_end_it() {
    let mut daemon = Daemon::start([]);
    let mut client = Client::connect(daemon.port());
    daemon.signal(Signal::SIGHUP);
    daemon.signal(Signal::SIGPIPE);
    client.ask("use a", "USING a");
    assert_eq!(daemon.stop().code(), Some(0));
}

#[test]
fn draining_refuses_new_jobs_until_all_are_done_and_no_job_is_lost() {
    let mut daemon = Daemon::start([]);
    let mut client = Client::connect(daemon.port());
    client.ask("put 0 0 1 3\r\njob", "INSERTED 1");
    daemon.signal(Signal::SIGUSR1);
    daemon.log_line("drain mode");
    client.ask("put 0 0 1 3\r\nnew", "DRAINING");
    client.ask("reserve", "RESERVED 1 3\r\njob");
    client.ask("delete 1", "DELETED");
    assert_eq!(client.stat("current-jobs-ready"), 0);
}

#[test]
fn thousands_who_wait_and_some_who_are_stuck_do_not_hold_it_up() {
    // The other tests of this process have files open as well.
    let (_, most) = getrlimit(Resource::RLIMIT_NOFILE).expect("a limit");
    setrlimit(Resource::RLIMIT_NOFILE, most, most).expect("it can be raised so far");
    let count = usize::try_from((most / 2).min(2000)).expect("a number");
    let mut daemon = Daemon::start(["-z", "10000000"]);
    let port = daemon.port();

    let mut client = Client::connect(port);
    let body = "x".repeat(10_000_000);
    client.ask(&format!("put 0 0 100 10000000\r\n{body}"), "INSERTED 1");
    let mut clients = Vec::new();
    for number in 0..count {
        let mut client = Client::connect(port);
        client.send(match number % 100 {
            // This client does not read its replies.
            0 => "peek 1\r\npeek 1\r\n",
            // These two are in the middle of a body and of a line.
            1 => "put 0 0 1 100\r\nhalf",
            2 => "put 0 0",
            _ => "watch a\r\nignore default\r\nreserve\r\n",
        });
        clients.push(client);
    }
    let waiting = (0..count).filter(|number| number % 100 > 2).count();
    let all = || client.stat("current-waiting") == waiting as u64;
    eventually("all are there", all);
    assert_eq!(daemon.stop().code(), Some(0));
}

#[test]
fn commands_in_flight_are_answered_before_it_ends() {
    let mut daemon = Daemon::start([]);
    let port = daemon.port();
    // Each of these clients works as fast as it can until the end. It knows
    // which of its puts were answered.
    let workers: Vec<_> = (0..8)
        .map(|_| {
            let client = Client::connect(port).into_stream();
            thread::spawn(move || work(client))
        })
        .collect();
    let mut client = Client::connect(port);
    eventually("they are at it", || client.stat("total-jobs") > 1000);
    assert_eq!(daemon.stop().code(), Some(0));
    for worker in workers {
        worker.join().expect("each reply was whole");
    }
}

/// Puts jobs until the connection ends. It must end after a whole reply.
fn work(mut stream: TcpStream) {
    let mut replies = BufReader::new(stream.try_clone().expect("a socket"));
    let mut reply = String::new();
    while stream.write_all(b"put 0 0 1 3\r\njob\r\n").is_ok() {
        reply.clear();
        match replies.read_line(&mut reply) {
            Ok(0) | Err(_) => break,
            Ok(_) => assert!(reply.starts_with("INSERTED ") && reply.ends_with("\r\n")),
        }
    }
}

#[test]
fn as_the_first_process_of_a_container_it_ends_as_well() {
    if !as_root() {
        return;
    }
    let line = r#"exec unshare --pid --fork --kill-child "$0" "$@""#;
    let mut launcher = Daemon::spawn(&mut shell(line, ["-p", "0"]));
    let port = launcher.port();
    Client::connect(port).ask("use a", "USING a");
    let pid = launcher.pid();
    let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"));
    let first: i32 = children.expect("a list").trim().parse().expect("a child");
    kill(Pid::from_raw(first), Signal::SIGTERM).expect("it still runs");
    assert_eq!(launcher.wait().0.code(), Some(0));
}

#[test]
fn it_ends_while_accepting_pauses() {
    let Some(mut daemon) = start_for_thread_limits() else {
        return;
    };
    let port = daemon.port();
    limit_threads(&daemon, "1");
    let mut client = Client::connect(port);
    client.send("use a\r\n");
    daemon.log_line("starting a thread: ");
    assert_eq!(daemon.stop().code(), Some(0));
}
