//! How the daemon ends.

use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::fs;
use std::io::Read;
use std::thread;
use std::time::Duration;
use support::{Client, Server, as_root, eventually, shell};

#[test]
fn sigterm_and_sigint_stop_the_server_cleanly_and_sighup_and_sigpipe_do_not() {
    for signal in [Signal::SIGTERM, Signal::SIGINT] {
        let daemon = Server::start([]);
        let mut client = daemon.connect();
        daemon.signal(Signal::SIGHUP);
        daemon.signal(Signal::SIGPIPE);
        client.exchange("use a", "USING a");
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
fn thousands_of_waiting_clients_and_some_stuck_ones_do_not_delay_a_stop() {
    // The other tests of this process have files open as well.
    let (_, most) = getrlimit(Resource::RLIMIT_NOFILE).expect("a limit");
    setrlimit(Resource::RLIMIT_NOFILE, most, most).expect("it can be raised so far");
    let count = usize::try_from((most / 2).min(2000)).expect("a number");
    let daemon = Server::start(["-z", "10000000"]);
    let port = daemon.port();

    let mut client = Client::connect(port);
    let body = "x".repeat(10_000_000);
    client.exchange(&format!("put 0 0 100 10000000\r\n{body}"), "INSERTED 1");
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
    let all = || client.count("current-waiting") == waiting as u64;
    eventually("all are there", all);
    assert_eq!(daemon.stop().code(), Some(0));
}

#[test]
fn sigterm_ends_the_server_as_the_first_process_of_a_container() {
    if !as_root() {
        return;
    }
    let line = r#"exec unshare --pid --fork --kill-child "$0" "$@""#;
    let launcher = Server::spawn(&mut shell(line, ["-p", "0"]));
    let port = launcher.port();
    Client::connect(port).exchange("use a", "USING a");
    let pid = launcher.pid();
    let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"));
    let first: i32 = children.expect("a list").trim().parse().expect("a child");
    kill(Pid::from_raw(first), Signal::SIGTERM).expect("it still runs");
    assert_eq!(launcher.wait().0.code(), Some(0));
}

/// Closing a socket with unread input would discard what is still on its way, and so would
/// input that comes when both of its halves are shut.
#[test]
fn executed_commands_are_answered_to_a_slow_client_that_sends_more() {
    for ends_by_signal in [true, false] {
        let server = Server::start(["-z", "400000"]);
        let mut client = server.connect();
        let id = client.put(vec![b'x'; 400_000]);
        client.send(format!("peek {id}\r\n").repeat(8));
        if !ends_by_signal {
            client.send("quit\r\n");
        }
        client.await_output();
        client.send("list-tubes\r\n".repeat(10_000));
        if ends_by_signal {
            server.signal(Signal::SIGTERM);
        }
        let (mut replies, mut bytes) = (Vec::new(), vec![0; 100_000]);
        loop {
            thread::sleep(Duration::from_millis(5));
            if ends_by_signal {
                let (Ok(()) | Err(_)) = client.try_send("list-tubes\r\n");
            }
            match client.stream().read(&mut bytes).expect("an orderly end") {
                0 => break,
                count => replies.extend_from_slice(&bytes[..count]),
            }
        }
        let found = format!("FOUND {id} 400000\r\n{}\r\n", "x".repeat(400_000));
        assert_eq!(replies.len() - replies.len() % found.len(), 8 * found.len());
        if ends_by_signal {
            assert_eq!(server.wait().0.code(), Some(0));
        }
    }
}

#[test]
fn a_connection_is_closed_for_another_whatever_it_does() {
    let folder = support::Folder::new();
    let socket = folder.join("socket");
    let at = format!("unix:{}", socket.display());
    let server = Server::start(["-l", "127.0.0.1", "-l", &at, "-z", "10000000"]);
    let mut admin = server.connect();
    let body = "x".repeat(10_000_000);
    admin.exchange(&format!("put 0 0 100 10000000\r\n{body}"), "INSERTED 1");
    for does in [
        "",
        "put 0 0 1 100\r\nhalf",
        "watch a\r\nignore default\r\nreserve\r\n",
        // It does not read its replies.
        "peek 1\r\npeek 1\r\n",
    ] {
        let (mut tcp, mut unix) = (server.connect(), Client::connect_unix(&socket));
        tcp.exchange("use a", "USING a");
        unix.exchange("use a", "USING a");
        tcp.send(does);
        unix.send(does);
        let list = admin.document("list-connections 2 10");
        let numbers: Vec<_> = list.split("{id: ").skip(1).collect();
        assert_eq!(numbers.len(), 2, "{list}");
        for number in numbers {
            let number = number.split(',').next().expect("a number");
            let line = format!("close-connection {number}");
            admin.exchange(&line, "CLOSED");
            eventually(does, || admin.ask(&line) == "NOT_FOUND");
            server.log_line(&format!(": closes connection {number}, "));
        }
        drop((tcp, unix));
    }
    assert_eq!(admin.count("current-connections"), 1);
}
