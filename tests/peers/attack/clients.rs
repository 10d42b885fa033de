//! What the bad clients do: they make the server hold much, and are slow, silent or
//! suddenly gone.

use std::io::{ErrorKind, Write};
use std::thread::{self, sleep};
use std::time::Duration;
use support::{Client, Server, eventually, put};

/// How many commands are sent together, if all of them are answered.
const BATCH: usize = 500;

/// A client that sends a byte now and then is not silent, however long its line takes.
/// One that stops in the middle of a line is.
pub fn trickled_lines(server: &Server) {
    let mut clients: Vec<Client> = (0..50).map(|_| server.connect()).collect();
    for byte in b"list-tube-used\r\n" {
        clients.iter_mut().for_each(|client| client.send([*byte]));
        sleep(Duration::from_millis(200));
    }
    for client in &mut clients {
        client.expect("USING default\r\n");
        client.send("list-tu");
    }
    clients.iter_mut().for_each(Client::expect_end);
}

/// Each of 30 clients peeks at a hundred bodies of 60 kB, which are then deleted, and
/// reads none of them.
pub fn unread_jobs(server: &Server) {
    let mut producer = server.connect();
    producer.exchange("use unread", "USING unread");
    let body = vec![b'x'; 60_000];
    let mut clients: Vec<Client> = (0..30).map(|_| server.connect()).collect();
    for client in &mut clients {
        let mut ids = Vec::new();
        for _ in 0..100 {
            producer.send(put(&body));
            let line = producer.line();
            match line.strip_prefix("INSERTED ") {
                Some(id) => ids.push(id.to_owned()),
                None => assert_eq!(line, "OUT_OF_MEMORY"),
            }
        }
        let peeks: String = ids.iter().map(|id| format!("peek {id}\r\n")).collect();
        send_without_waiting(client, peeks.as_bytes());
        if !ids.is_empty() {
            client.await_output();
        }
        ids.iter()
            .for_each(|id| producer.delete(id.parse().expect("a number")));
    }
}

/// Sends what the server takes at once; it does not read from a client that does not
/// read.
fn send_without_waiting(client: &Client, bytes: &[u8]) {
    let mut stream = client.stream();
    stream.set_nonblocking(true).expect("a socket");
    match stream.write(bytes) {
        Err(error) if error.kind() != ErrorKind::WouldBlock => panic!("sending: {error}"),
        Ok(_) | Err(_) => {}
    }
    stream.set_nonblocking(false).expect("a socket");
}

/// Whatever a client has done, while it is silent it takes no more memory than the
/// manual says, and a share of the gaps between the pieces of memory that others use.
pub fn silent_after_all_sizes(server: &Server) {
    const CLIENTS: usize = 200;
    const SILENT: usize = 12_000 + 4_000;
    let before = server.memory();
    let mut clients: Vec<Client> = (0..CLIENTS).map(|_| server.connect()).collect();
    for (number, client) in clients.iter_mut().enumerate() {
        enter(client, &format!("sizes-{number}"));
        for size in (0..1000).step_by(16) {
            let body = vec![b'x'; size];
            client.send(put(&body).repeat(8));
            for _ in 0..8 {
                client.inserted();
            }
            take(client, 8, true);
        }
        // Most of what a silent client takes is the deepest that its thread's stack has been.
        one_at_a_time(client);
        for other in 0..30 {
            client.exchange(&format!("use gone-{other}"), &format!("USING gone-{other}"));
        }
    }
    // The server gives memory back late.
    eventually("200 silent clients take 16 kB each", || {
        server.memory() <= before + CLIENTS * SILENT
    });
}

/// Brings jobs into all states, with one command at a time.
fn one_at_a_time(client: &mut Client) {
    let mut ids: Vec<u64> = (0..40).map(|_| client.put("one")).collect();
    for id in &mut ids {
        *id = client.reserve().id;
    }
    for ids in ids.chunks_exact(4) {
        client.exchange(&format!("release {} 0 100", ids[0]), "RELEASED");
        client.exchange(&format!("release {} 5 0", ids[1]), "RELEASED");
        client.exchange(&format!("bury {} 0", ids[2]), "BURIED");
        client.exchange(&format!("touch {}", ids[3]), "TOUCHED");
    }
    client.exchange("kick 100", "KICKED 10");
    ids.into_iter().for_each(|id| client.delete(id));
}

/// Eight clients open two thousand connections in all, and drop them in several ways:
/// with an answer read or unread, in the middle of a command, or by a reset.
pub fn connections(server: &Server) {
    let come_and_go = || {
        for number in 0..250 {
            let mut client = server.connect();
            match number % 5 {
                0 => client.exchange("list-tube-used", "USING default"),
                1 => client.send("watch somewhere\r\nreserve\r\n"),
                2 => client.send("use somewhere\r\nput 0 0 60 1000\r\nhalf"),
                3 => client.vanish(),
                _ => {}
            }
        }
    };
    thread::scope(|scope| (0..8).for_each(|_| drop(scope.spawn(come_and_go))));
}

/// A client has 9,000 tubes, which others list, and one has reserved 20,000 jobs. Then
/// both go.
pub fn tubes_and_reserved_jobs(server: &Server) {
    let mut client = server.connect();
    for first in (0..9_000).step_by(BATCH) {
        let tubes = first..first + BATCH;
        client.send(
            tubes
                .clone()
                .map(|tube| format!("watch tube-{tube}\r\n"))
                .collect::<String>(),
        );
        tubes.for_each(|tube| client.expect(&format!("WATCHING {}\r\n", tube + 2)));
    }
    let mut reader = server.connect();
    for _ in 0..5 {
        assert!(reader.document("list-tubes").contains("tube-8999"));
    }
    client.close();
    let mut holder = server.connect();
    enter(&mut holder, "held");
    for _ in 0..40 {
        holder.send(put(b"abcdefgh").repeat(BATCH));
        for _ in 0..BATCH {
            holder.inserted();
        }
        take(&mut holder, BATCH, false);
    }
    holder.close();
    let mut heir = server.connect();
    enter(&mut heir, "held");
    (0..40).for_each(|_| take(&mut heir, BATCH, true));
    heir.exchange("reserve-with-timeout 0", "TIMED_OUT");
}

/// Uses this tube and watches no other.
fn enter(client: &mut Client, tube: &str) {
    client.exchange(&format!("use {tube}"), &format!("USING {tube}"));
    client.exchange(&format!("watch {tube}"), "WATCHING 2");
    client.exchange("ignore default", "WATCHING 1");
}

/// Reserves this number of jobs, and deletes them if it should.
fn take(client: &mut Client, count: usize, and_delete: bool) {
    client.send("reserve\r\n".repeat(count));
    let ids: Vec<u64> = (0..count).map(|_| client.job().id).collect();
    if and_delete {
        client.send(
            ids.iter()
                .map(|id| format!("delete {id}\r\n"))
                .collect::<String>(),
        );
        client.expect(&"DELETED\r\n".repeat(count));
    }
}
