//! Who is connected: `clients`, and what other commands say of connections.

use super::story::tell;
use super::support::{Server, beanpoled, beanstalkd, servers, wait_for};
use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};

/// What a command says, and its exit status.
fn said(server: &Server, arguments: &[&str]) -> (Option<i32>, String) {
    let output = server.beanpole().args(arguments).output().unwrap();
    let said = [output.stdout, output.stderr].concat();
    (output.status.code(), String::from_utf8(said).unwrap())
}

/// A connection that has sent these lines, and got as many lines of replies.
fn client(server: &Server, lines: &str, replies: usize) -> TcpStream {
    let mut stream = TcpStream::connect(("127.0.0.1", server.port)).unwrap();
    stream.write_all(lines.as_bytes()).unwrap();
    let mut got = BufReader::new(&stream).lines();
    (0..replies).for_each(|_| drop(got.next().unwrap().unwrap()));
    drop(got);
    stream
}

#[test]
fn clients_lists_who_puts_who_works_and_who_waits() {
    let server = Server::start(&beanpoled(), &[]);
    let put = "put 0 0 60 1\r\nx\r\n";
    let producer = client(&server, &format!("use mail\r\n{}", put.repeat(3)), 4);
    let worker = client(&server, "watch mail\r\nreserve\r\n", 3);
    let waiting = client(&server, "reserve\r\n", 0);
    let address = |stream: &TcpStream| stream.local_addr().unwrap().to_string();
    wait_for("one to wait", || {
        said(&server, &["clients"]).1.contains("waits")
    });
    let rows = |arguments: &[&str]| -> Vec<Vec<String>> {
        let (status, text) = said(&server, &[&["clients"], arguments].concat());
        assert_eq!(status, Some(0), "{text}");
        let words = |line: &str| line.split_whitespace().map(String::from).collect();
        text.lines().skip(1).map(words).collect()
    };
    let by_puts = rows(&["--sort", "puts"]);
    let without_times = |row: &Vec<String>| [&row[1..2], &row[4..]].concat().join(" ");
    let first = format!("{} puts mail 1 0 3 0", address(&producer));
    assert_eq!(without_times(&by_puts[0]), first);
    let by_held = rows(&["--sort", "held", "-n", "1"]);
    assert_eq!(by_held.len(), 1);
    let first = format!("{} works default 2 1 0 1", address(&worker));
    assert_eq!(without_times(&by_held[0]), first);
    let in_order = rows(&[]);
    assert!(
        in_order
            .iter()
            .any(|row| row[1] == address(&waiting) && row[4] == "waits")
    );
    assert!(in_order.is_sorted_by_key(|row| row[0].parse::<u64>().unwrap()));
    // By the tube that they use.
    assert_eq!(rows(&["ma*"]), [by_puts[0].clone()]);
    let (status, none) = said(&server, &["clients", "-t", "fax"]);
    assert_eq!((status, none.as_str()), (Some(1), ""));
    let (_, json) = said(&server, &["clients", "mail", "--json"]);
    let begin = format!(
        "{{\"id\":{},\"address\":\"{}\",\"age\":",
        by_puts[0][0],
        address(&producer)
    );
    assert!(json.starts_with(&begin), "{json}");
    let end = "\"producer\":true,\"worker\":false,\"waiting\":false,\"tube\":\"mail\",\"watched\":1,\"held\":0,\"puts\":3,\"reserves\":0}\n";
    assert!(json.ends_with(end), "{json}");
    // It is told with a reserved job who has it.
    let (_, listed) = said(&server, &["ls", "mail", "--state", "reserved"]);
    assert!(
        listed.contains(&format!(" connection {}  x", by_held[0][0])),
        "{listed}"
    );
}

#[test]
fn clients_names_the_process_at_the_other_end_of_a_unix_socket() {
    let place = super::support::Directory::new();
    let path = place.path().join("socket");
    let listen = format!("unix:{}", path.display());
    // The second address is the one that the tests use.
    let server = Server::start(&beanpoled(), &["-l", &listen]);
    let mut stream = UnixStream::connect(&path).unwrap();
    stream.write_all(b"use mail\r\n").unwrap();
    BufReader::new(&stream).lines().next().unwrap().unwrap();
    let mut command = server.beanpole();
    let output = command
        .args(["-a", &listen, "clients", "mail"])
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let process = format!("unix:pid={},uid=", std::process::id());
    assert!(text.contains(&process), "{text}");
}

#[test]
fn more_connections_than_one_reply_has_are_all_listed() {
    let server = Server::start(&beanpoled(), &[]);
    let many: Vec<_> = (0..250)
        .map(|_| client(&server, "use many\r\n", 1))
        .collect();
    for sort in [vec![], vec!["--sort", "age"]] {
        let (_, text) = said(&server, &[vec!["clients", "many"], sort].concat());
        assert_eq!(text.lines().count(), 1 + many.len(), "{text}");
    }
}

#[test]
fn clients_reports_only_the_number_if_the_server_does_not_list_connections() {
    for program in beanstalkd() {
        let server = Server::start(&program, &[]);
        tell(
            &server,
            r#"
            $ clients
            ! beanpole clients: this server does not list its connections: it has 1; 0 have put, 0 have reserved, 0 wait
            [4]
            "#,
        );
    }
}

#[test]
fn the_connection_that_puts_most_into_a_tube_that_grows_is_named() {
    for program in servers() {
        let server = Server::start(&program, &[]);
        tell(&server, "$ put -q -t mail one\n$ put -q -t quiet one");
        let _watcher = client(&server, "watch mail\r\nwatch quiet\r\n", 2);
        let _other = client(&server, "use mail\r\nput 9 0 60 1\r\nx\r\n", 2);
        let runaway = client(&server, "use mail\r\n", 1);
        let (told, is_over) = (
            runaway.local_addr().unwrap().to_string(),
            AtomicBool::new(false),
        );
        let puts = "put 9 0 60 1\r\nx\r\n".repeat(100);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut replies = BufReader::new(&runaway).lines();
                while !is_over.load(Ordering::SeqCst) {
                    (&runaway).write_all(puts.as_bytes()).unwrap();
                    (0..100).for_each(|_| drop(replies.next().unwrap().unwrap()));
                    std::thread::sleep(std::time::Duration::from_millis(5));
                }
            });
            wait_for("many jobs", || {
                let (_, text) = said(&server, &["stats", "mail", "--json"]);
                let count = text.split("jobs-ready\":").nth(1).unwrap();
                count.split(',').next().unwrap().parse::<u64>().unwrap() >= 1000
            });
            let why = said(&server, &["why"]).1;
            let top = said(&server, &["top", "-i", "200ms", "--json"]).1;
            is_over.store(true, Ordering::SeqCst);
            let from = match program == beanpoled() {
                true => format!("; most of them come from {told}."),
                false => "; from whom, this server does not tell.".into(),
            };
            assert!(
                why.starts_with("mail: ") && why.lines().count() == 1,
                "{why}"
            );
            assert!(why.contains("It grows by ") && why.contains(&from), "{why}");
            let from = format!("/s, most from {told}\"");
            let is_named = top.contains("\"trouble\":\"grows by ") && top.contains(&from);
            assert_eq!(is_named, program == beanpoled(), "{top}");
        });
        // A large tube that does not grow is in no trouble.
        assert!(!said(&server, &["why", "mail"]).1.contains("grows"));
    }
}
