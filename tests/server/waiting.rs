//! Which clients wait and for what, and which clients need not wait.

use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::time::{Duration, Instant};
use support::{Client, Folder, Server, eventually};

/// Clients that were connected before it closed, and those that connect after it.
#[test]
fn a_client_that_has_closed_is_not_there_when_another_one_asks() {
    let folder = Folder::new();
    let path = folder.join("socket");
    let server = Server::start(["-l", "127.0.0.1:0", "-l", &folder.socket("socket")]);
    server.log_line("listening on unix:");
    ask_about_closed_clients(
        || Client::connect_unix(&path),
        |stream| stream.shutdown(Shutdown::Both),
    );
    let server = Server::start([]);
    ask_about_closed_clients(
        || server.connect(),
        |stream| stream.shutdown(Shutdown::Both),
    );
}

fn ask_about_closed_clients<S: Read + Write>(
    connect: impl Fn() -> Client<S>,
    close: impl Fn(&S) -> io::Result<()>,
) {
    let mut before = connect();
    let connections = before.count("current-connections");
    let mut rounds = 0;
    let mut is_missed = || {
        const LAST_WORDS: [&str; 4] = ["", "quit\r\n", "list-tube-used\r\n", "reserve\r\n"];
        let id = before.put("x");
        let mut holder = connect();
        holder.reserve();
        holder.send(LAST_WORDS[rounds % 4]);
        let ended = close(holder.stream());
        ended.expect("a connection");
        let mut after = connect();
        let mut missed = false;
        let asker = match rounds % 3 {
            0 => &mut before,
            1 => &mut after,
            _ => {
                missed = before.count("current-connections") != connections + 1;
                &mut after
            }
        };
        asker.send("reserve-with-timeout 0\r\n");
        if asker.reply().expect("a reply").1.is_none() {
            missed = true;
            asker.reserve();
        }
        asker.delete(id);
        after.send("quit\r\n");
        after.expect_end();
        rounds += 1;
        missed
    };
    // While the machine is busy, some leave too late. So it may take several tries.
    eventually("at most 5 of 100 are missed", || {
        (0..100).filter(|_| is_missed()).count() <= 5
    });
    // A command that has waited for others counts once.
    assert_eq!(before.count("cmd-reserve-with-timeout"), rounds as u64);
}

/// Even if there is a new such client each time.
#[test]
fn half_closed_clients_that_do_not_read_delay_no_new_connection() {
    const CLIENTS: usize = 40;
    let server = Server::start(["-z", "1048576"]);
    let mut client = server.connect();
    let id = client.put(vec![b'x'; 1 << 20]);
    let mut delayed = Duration::ZERO;
    let stuck = (0..CLIENTS).map(|_| {
        let mut stuck = server.connect();
        stuck.send(format!("peek {id}\r\n").repeat(8));
        stuck.send_no_more();
        stuck.await_output();
        let came = Instant::now();
        assert_eq!(server.connect().ask("list-tube-used"), "USING default");
        delayed += came.elapsed();
        stuck
    });
    let stuck: Vec<_> = stuck.collect();
    assert!(delayed < Duration::from_secs(10), "{delayed:?}");
    for mut client in stuck {
        for _ in 0..8 {
            assert_eq!(client.job_or_none().map(|job| job.id), Some(id));
        }
        client.expect_end();
    }
}

/// What it has sent before its end is executed first.
#[test]
fn the_last_commands_of_a_half_closed_client_are_executed_while_it_holds_its_jobs() {
    let server = Server::start([]);
    for _ in 0..300 {
        let mut client = server.connect();
        let id = client.put("x");
        client.reserve();
        client.send(format!("bury {id} 0\r\n"));
        client.send_no_more();
        let mut next = server.connect();
        next.send("reserve-with-timeout 0\r\n");
        client.expect("BURIED\r\n");
        client.expect_end();
        next.expect("TIMED_OUT\r\n");
        assert_eq!(next.ask(&format!("kick-job {id}")), "KICKED");
        next.delete(id);
    }
}

#[test]
fn a_client_that_does_not_read_delays_no_other_client() {
    const MUCH: usize = 1 << 20;
    let server = Server::start(["-z", "1048576"]);
    let mut client = server.connect();
    let body = vec![b'x'; MUCH];
    let id = client.put(&body);
    let mut stuck: Vec<_> = (0..3).map(|_| server.connect()).collect();
    for one in &mut stuck {
        one.send(format!("peek {id}\r\n").repeat(16));
        one.await_output();
    }
    client.delete(id);
    for _ in 0..200 {
        let id = client.put("y");
        assert_eq!(client.reserve().body, b"y");
        client.delete(id);
    }
    // The replies that these clients were sent are still right. The server has
    // executed the rest of their commands when they read, and the job was deleted.
    for one in &mut stuck {
        let found: Vec<_> = (0..16).map(|_| one.job_or_none()).collect();
        let were_sent = found.iter().take_while(|job| job.is_some()).count();
        assert!((1..16).contains(&were_sent));
        for (number, job) in found.into_iter().enumerate() {
            assert!(job.map(|job| job.body == body) == (number < were_sent).then_some(true));
        }
        assert_eq!(one.ask("list-tube-used"), "USING default");
    }
}
