//! What signals do, and how the server ends.

use crate::client::{Client, put};
use crate::server::{Folder, Server, unix};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::signal::Signal;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::mpsc;
use std::thread;

#[test]
fn sigusr1_switches_drain_mode_on() {
    let server = Server::start(&[]);
    let mut client = server.connect();
    let id = client.put("x");
    assert_eq!(client.stat("draining"), "false");
    server.signal(Signal::SIGUSR1);
    server.await_stat("draining", "true");
    client.send(put(b"y"));
    client.expect("DRAINING\r\n");
    assert_eq!(client.reserve().id, id);
    client.delete(id);
}

#[test]
fn sigpipe_harms_nobody() {
    let server = Server::start(&["-z", "1048576"]);
    let mut client = server.connect();
    let id = client.put(vec![b'x'; 1 << 20]);
    server.signal(Signal::SIGPIPE);
    for _ in 0..5 {
        let mut reader = server.connect();
        reader.send(format!("peek {id}\r\n").repeat(8));
        reader.await_output();
        reader.vanish();
    }
    server.await_stat("current-connections", 2);
    client.delete(id);
}

#[test]
fn sigterm_and_sigint_end_it_in_order() {
    for signal in [Signal::SIGTERM, Signal::SIGINT] {
        let folder = Folder::new();
        let path = folder.path("socket");
        let mut server = Server::start(&["-l", &unix(&path)]);
        let mut local = UnixStream::connect(&path).unwrap();
        local.write_all(b"list-tube-used\r\n").unwrap();
        let mut line = [0; 15];
        local.read_exact(&mut line).unwrap();
        assert_eq!(&line, b"USING default\r\n");

        server.signal(signal);
        assert_eq!(server.exit_status().code(), Some(0));
        assert_eq!(local.read(&mut line).unwrap(), 0);
        assert!(!path.exists());
    }
}

#[test]
fn what_the_server_has_read_is_answered_before_it_ends() {
    const BATCH: usize = 50;
    let mut server = Server::start(&[]);
    let putting = |port| {
        let mut client = Client::connect(port);
        let (sender, started) = mpsc::channel();
        let thread = thread::spawn(move || {
            loop {
                // When the server ends, it may not read this at all. But if it
                // does, it reads all of it at once.
                if client
                    .try_send("put 0 0 60 1\r\nx\r\n".repeat(BATCH))
                    .is_err()
                {
                    return;
                }
                let replies = client.lines(BATCH);
                if replies.is_empty() {
                    return;
                }
                assert_eq!(replies.len(), BATCH);
                assert!(replies.iter().all(|reply| reply.starts_with("INSERTED ")));
                // After the first message, nobody receives any more.
                let (Ok(()) | Err(_)) = sender.send(());
            }
        });
        started.recv().unwrap();
        thread
    };
    let clients: Vec<_> = (0..4).map(|_| putting(server.port)).collect();
    server.signal(Signal::SIGTERM);
    for client in clients {
        client.join().unwrap();
    }
    assert_eq!(server.exit_status().code(), Some(0));
}

#[test]
fn it_ends_with_thousands_who_wait_and_some_who_do_not_read() {
    // The other tests of this process have files open as well.
    let (_, most) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
    setrlimit(Resource::RLIMIT_NOFILE, most, most).unwrap();
    let count = usize::try_from((most / 2).min(2000)).unwrap();
    let folder = Folder::new();
    let path = folder.path("socket");
    let mut server = Server::start(&["-z", "1048576", "-l", &unix(&path)]);
    let id = server.connect().put(vec![b'x'; 1 << 20]);
    let mut stuck: Vec<_> = (0..5).map(|_| server.connect()).collect();
    for one in &mut stuck {
        one.send(format!("peek {id}\r\n").repeat(16));
        one.await_output();
    }
    let mut waiters: Vec<_> = (0..count).map(|_| server.connect()).collect();
    for waiter in &mut waiters {
        waiter.send("watch none\r\nignore default\r\nreserve\r\n");
    }
    server.await_stat("current-waiting", count);

    server.signal(Signal::SIGTERM);
    assert_eq!(server.exit_status().code(), Some(0));
    assert!(!path.exists());
    for waiter in &mut waiters {
        waiter.expect("WATCHING 2\r\nWATCHING 1\r\n");
        waiter.expect_end();
    }
}
