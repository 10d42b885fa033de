//! Bounds to what one client can take from the others. It gets no memory for
//! bytes that it does not send or does not read. It gets no job that another
//! client still works on.

use nix::sys::signal::Signal;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use support::{Client, Folder, Resource, Server, eventually, patience, put};

const MIB: usize = 1 << 20;

/// A name of 200 bytes.
fn long_name(number: usize) -> String {
    format!("{number:0>200}")
}

/// Watches this number of tubes with long names.
fn watch_many(client: &mut Client, count: usize) {
    let lines = (0..count).map(|number| format!("watch {}\r\n", long_name(number)));
    client.send(lines.collect::<String>());
    client.lines(count);
}

#[test]
fn lists_for_clients_that_do_not_read_take_no_memory() {
    const TUBES: usize = 2000;
    let server = Server::start([]);
    let mut owner = server.connect();
    watch_many(&mut owner, TUBES);
    for _ in 0..1000 {
        owner.put("");
    }
    let before = server.memory();
    let commands = ["list-tubes\r\n", "stats\r\n", "list-jobs 0 1000\r\n"];
    let asked = commands.map(|line| line.repeat(256));
    let clients: Vec<_> = (0..30)
        .map(|number| {
            let mut client = server.connect();
            client.send(&asked[number % 3]);
            client.await_output();
            client
        })
        .collect();
    // The replies to all of these commands would take a gigabyte together.
    owner.ask("list-tube-used");
    let more = server.memory().saturating_sub(before);
    assert!(more < 16 * MIB, "{more} bytes for {}", clients.len());
}

/// They count even if the tubes are gone, and no client gets one for which there is no room.
#[test]
fn long_lists_of_tubes_that_clients_do_not_read_count_as_memory() {
    const TUBES: usize = 5000;
    let folder = Folder::new();
    let path = folder.join("socket");
    let server = Server::start(["-l", &folder.socket("socket"), "--max-memory", "16M"]);
    server.log_line("listening on unix:");
    let mut owner = Client::connect_unix(&path);
    for half in 0..2 {
        let lines = (0..TUBES / 2)
            .map(|number| format!("watch {half}{}\r\n", long_name(number).split_off(1)));
        owner.send(lines.collect::<String>());
        owner.lines(TUBES / 2);
    }
    let before = owner.count("memory-used");
    let mut readers = Vec::new();
    let is_refused = |reader: &mut Client<UnixStream>| {
        reader.send("list-tubes\r\n");
        let line = reader.line();
        line == "OUT_OF_MEMORY"
    };
    eventually("one gets no list", || {
        readers.push(Client::connect_unix(&path));
        is_refused(readers.last_mut().expect("it is there"))
    });
    assert!(readers.len() > 5, "{} readers", readers.len());
    assert!(owner.count("memory-used") > before + 5 * 900_000);
    assert!(server.memory() < 40 * MIB, "{} bytes", server.memory());
    readers.clear();
    let mut again = Client::connect_unix(&path);
    eventually("there is room again", || !is_refused(&mut again));
}

/// However many they are: it counts with its job, then until the last of them is gone.
#[test]
fn a_long_body_that_clients_do_not_read_counts_once() {
    const BODY: u64 = 900_000;
    let folder = Folder::new();
    let path = folder.join("socket");
    let socket = folder.socket("socket");
    let server = Server::start(["-l", &socket, "--max-memory", "16M", "-z", "1000000"]);
    server.log_line("listening on unix:");
    let mut owner = Client::connect_unix(&path);
    let id = owner.put(vec![b'x'; BODY as usize]);
    let mut readers: Vec<_> = (0..80).map(|_| Client::connect_unix(&path)).collect();
    for reader in &mut readers {
        reader.send("peek-ready\r\n");
        assert_eq!(reader.line(), "FOUND 1 900000");
    }
    owner.put("there is room");
    owner.delete(id);
    let used = owner.count("memory-used");
    assert!((BODY..BODY + 100_000).contains(&used), "{used} bytes");
    let mut used_by = |readers: usize, is_right: fn(u64) -> bool| {
        eventually(&format!("{readers} readers are left"), || {
            is_right(owner.count("memory-used"))
        });
    };
    readers.truncate(1);
    used_by(1, |bytes| (BODY..BODY + 10_000).contains(&bytes));
    readers.clear();
    used_by(0, |bytes| bytes < 10_000);
}

// The bounds are glibc's; musl's allocator takes some ten bytes more for each.
#[cfg(target_env = "gnu")]
#[test]
fn a_job_takes_at_most_199_bytes_and_290_where_most_of_its_neighbours_are_deleted() {
    const BODY: [u8; 100] = [b'x'; 100];
    // How many jobs of each 320 remain, their delay, and how many bytes each may take.
    for (kept, delay, most, rounds) in
        [(320, 0, 199, 300), (320, 1000, 199, 300), (20, 0, 290, 600)]
    {
        let at_once = String::from_utf8(put(&BODY)).expect("text");
        let put = at_once.replacen("put 0 0", &format!("put 0 {delay}"), 1);
        let server = Server::start([]);
        let mut client = server.connect();
        let mut round = |first: usize| {
            client.send(put.repeat(320));
            client.lines(320);
            let deleted = (0..320).filter(|job| job % (320 / kept) != 0);
            let deletes = deleted.map(|job| format!("delete {}\r\n", first + job));
            client.send(deletes.collect::<String>());
            client.lines(320 - kept);
        };
        // Before it is measured, the server has what does not grow with the jobs.
        let (first, measured) = (0..100, 100..100 + rounds);
        first.for_each(|number| round(1 + 320 * number));
        let before = server.memory();
        measured.for_each(|number| round(1 + 320 * number));
        let each = (server.memory() - before) / (rounds * kept);
        assert!(each <= most, "{each} bytes for each of {}", rounds * kept);
    }
}

#[test]
fn one_of_two_incoming_bodies_is_refused_if_there_is_no_room_for_both() {
    let server = Server::start(["-z", "900000", "--max-memory", "1000000"]);
    let mut announcers = [server.connect(), server.connect()];
    for announcer in &mut announcers {
        announcer.send("put 0 0 60 900000\r\n");
        announcer.send(vec![b'x'; 600_000]);
        announcer.await_read();
    }
    let mut client = server.connect();
    eventually("one makes way", || {
        client.send(put(&[b'x'; 200_000]));
        client.line().starts_with("INSERTED")
    });
    let [_, second] = &mut announcers;
    second.send(vec![b'x'; 300_000]);
    second.send("\r\n");
    assert_eq!(second.line(), "OUT_OF_MEMORY");
}

#[test]
fn an_unfinished_body_takes_memory_only_for_bytes_that_have_arrived() {
    let server = Server::start([]);
    let mut clients: Vec<_> = (0..300).map(|_| server.connect()).collect();
    let served = |clients: &mut [Client]| {
        for client in clients {
            assert_eq!(client.ask("list-tube-used"), "USING default");
        }
    };
    served(&mut clients);
    let before = server.memory();
    for client in &mut clients {
        client.send("put 0 0 60 62000\r\nx");
    }
    server.await_stat("cmd-put", clients.len());
    let more = server.memory().saturating_sub(before);
    assert!(more < 300 * 20_000, "{more} bytes for 300 bodies");
}

#[test]
fn a_body_for_which_the_system_has_no_memory_is_refused() {
    let server = Server::start(["-z", "1073741824"]);
    let room = server.size("VmSize") as u64 + 60 * MIB as u64;
    server.limit(Resource::As, room, Some(room));
    let mut client = server.connect();
    client.send("put 0 0 60 200000000\r\n");
    client.send(vec![b'x'; 200_000_000]);
    client.send("\r\n");
    assert_eq!(client.line(), "OUT_OF_MEMORY");
    let id = client.put("a small one");
    client.delete(id);
}

/// Each page of a mapping costs a fault when it is first touched. (musl's allocator makes a
/// mapping for each long body.)
#[cfg(target_env = "gnu")]
#[test]
fn long_bodies_have_their_place_in_the_heap() {
    const SIZE: usize = 300_000;
    let server = Server::start(["-z", "300000"]);
    let mut client = server.connect();
    let mut cycle = || {
        let id = client.put(vec![b'x'; SIZE]);
        assert_eq!(client.reserve().id, id);
        client.exchange(&format!("delete {id}"), "DELETED");
    };
    // The tenth field is the number of faults that needed no disk.
    let faults = || -> usize {
        let stat = server.file("stat");
        let (_, fields) = stat.rsplit_once(')').expect("a name");
        let field = fields.split_whitespace().nth(7).expect("the tenth");
        field.parse().expect("a number")
    };
    (0..10).for_each(|_| cycle());
    let before = faults();
    (0..50).for_each(|_| cycle());
    let pages = (faults() - before) / 50;
    assert!(pages < SIZE / 4096 / 2, "{pages} faults for each job");
}

// Only glibc can be told how many mappings it may make.
#[cfg(target_env = "gnu")]
#[test]
fn large_bodies_do_not_take_the_mappings_that_threads_need() {
    const BODIES: usize = 1200;
    let server = Server::start(["-z", "200000"]);
    let mut client = server.connect();
    let body = vec![b'x'; 140_000];
    let ids: Vec<_> = (0..BODIES).map(|_| client.put(&body)).collect();
    // With gaps between them, the kernel cannot join two of their mappings.
    for id in ids.iter().step_by(2) {
        client.delete(*id);
    }
    let mappings = server.file("maps").lines().count();
    assert!(mappings < 450, "{mappings} mappings for {BODIES} bodies");
}

#[test]
fn a_silent_client_does_not_keep_the_buffer_that_it_has_filled() {
    const CLIENTS: usize = 100;
    let server = Server::start([]);
    let mut clients: Vec<_> = (0..CLIENTS).map(|_| server.connect()).collect();
    for client in &mut clients {
        client.ask("list-tube-used");
    }
    let before = server.memory();
    for client in &mut clients {
        client.send("touch 1\r\n".repeat(10_000));
    }
    for client in &mut clients {
        client.lines(10_000);
    }
    eventually("the buffers are given back", || {
        let more = server.memory().saturating_sub(before);
        more < CLIENTS * 4_000
    });
}

/// Jobs that stay lie between them, and at the end of the heap. (musl's allocator gives
/// several blocks of one size back together, when all of them are free.)
#[cfg(target_env = "gnu")]
#[test]
fn memory_of_jobs_that_are_gone_goes_back_to_the_system() {
    const JOBS: usize = 3000;
    let server = Server::start([]);
    let mut client = server.connect();
    let before = server.memory();
    let put = format!("put 0 0 60 20000\r\n{}\r\n", "x".repeat(20_000));
    for _ in 0..JOBS / 10 {
        client.send(put.repeat(10));
        client.lines(10);
    }
    let grown = || server.memory().saturating_sub(before);
    assert!(grown() > JOBS * 20_000);
    let gone = (1..=JOBS).filter(|id| id % 100 != 0);
    let deletes: String = gone.map(|id| format!("delete {id}\r\n")).collect();
    client.send(deletes);
    client.lines(JOBS - JOBS / 100);
    eventually("little is left", || grown() < JOBS * 20_000 / 10);
}

#[test]
fn a_client_that_does_not_read_counts_as_idle() {
    let server = Server::start(["-z", "1048576", "--idle-timeout", "1"]);
    let mut client = server.connect();
    let id = client.put(vec![b'x'; MIB]);
    let mut stuck = server.connect();
    stuck.send(format!("peek {id}\r\n").repeat(64));
    stuck.await_output();
    server.await_stat("current-connections", 1);
}

#[test]
fn a_stopping_server_gives_no_client_a_job_that_another_one_holds() {
    let folder = Folder::new();
    let path = folder.join("socket");
    let server = Server::start(["-l", "127.0.0.1:0", "-l", &folder.socket("socket")]);
    let mut owner = server.connect();
    let other = owner.put(vec![b'x'; 2000]);
    assert_eq!(owner.reserve().id, other);
    let id = owner.put("in work");
    let mut worker = server.connect();
    assert_eq!(worker.reserve().id, id);
    let mut late = UnixStream::connect(&path).expect("a server");
    late.set_read_timeout(Some(patience())).expect("a socket");
    // This makes the server's buffer for this client large, so that it reads
    // what follows at once.
    late.write_all(&b"ignore default\r\n".repeat(500)).unwrap();
    late.read_exact(&mut vec![0; b"NOT_IGNORED\r\n".len() * 500])
        .unwrap();
    // This client does not read, and its replies are more than the socket
    // holds. So the server does not come to its reserves, and no command
    // behind a reserve begins before that one is answered.
    let reserves = "reserve-with-timeout 0\r\n".repeat(2);
    let asked = format!("peek {other}\r\n").repeat(250) + &reserves;
    late.write_all(asked.as_bytes()).unwrap();
    let some = "FOUND 1 2000\r\n";
    late.read_exact(&mut vec![0; some.len()]).unwrap();
    server.signal(Signal::SIGTERM);
    owner.expect_end();
    worker.expect_end();
    // On a slow machine the server has not read all of the commands. Then the
    // connection is reset.
    let mut rest = Vec::new();
    let (Ok(_) | Err(_)) = late.read_to_end(&mut rest);
    let rest = String::from_utf8(rest).expect("text");
    assert!(!rest.contains("RESERVED"), "it has got somebody's job");
    assert_eq!(server.wait().0.code(), Some(0));
}
