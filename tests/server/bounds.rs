//! Bounds to what one client can take from the others. It gets no memory for
//! bytes that it does not send or does not read. It gets no job that another
//! client still works on.

use support::{Client, Folder, Resource, Server, eventually};

const MIB: usize = 1 << 20;

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
        let at_once = String::from_utf8(support::put(&BODY)).expect("text");
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
        // A page or two of each stack stay, and a megabyte, which is not worth a trim.
        more < CLIENTS * 12_000 + MIB
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
