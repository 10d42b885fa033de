//! What the daemon says and does when something runs out. It goes on as before
//! when there is enough again.

use nix::sys::signal::Signal;
use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::thread;
use std::time::{Duration, Instant};
use support::{
    Client, Folder, Resource, Server, as_root, eventually, is_mighty, run_command, shell,
};

/// Tries it often. On a busy machine the system may notify the server too late.
fn expect_few_refused(is_refused: impl FnMut(&i32) -> bool) {
    let refused = (0..300).filter(is_refused).count();
    assert!(refused <= 15, "{refused} of 300 were refused");
}

/// Their workers may still wait until they have received everything.
#[test]
fn a_script_that_asks_and_quits_makes_room_for_the_next_one() {
    let folder = Folder::new();
    let (path, at) = (folder.join("socket"), folder.socket("socket"));
    let daemon = Server::start(["-l", &at, "--max-connections", "1"]);
    daemon.log_line("listening on unix:");
    expect_few_refused(|_| {
        let mut script = UnixStream::connect(&path).expect("it listens");
        let (Ok(()) | Err(_)) = script.write_all(b"stats\r\nquit\r\n");
        let mut answer = String::new();
        let is_refused = script.read_to_string(&mut answer).is_err();
        assert!(is_refused || answer.starts_with("OK "), "{answer:?}");
        // As above: another test may be starting a daemon.
        let (Ok(()) | Err(_)) = script.shutdown(Shutdown::Both);
        is_refused
    });
}

#[test]
fn short_lived_clients_start_hardly_more_threads_than_clients_are_allowed() {
    const MOST: usize = 8;
    let daemon = Server::start(["--max-connections", "8"]);
    let port = daemon.port();
    let threads = |daemon: &Server| daemon.status("Threads").trim().parse::<usize>();
    Client::connect(port).exchange("use a", "USING a");
    let at_first = threads(&daemon).expect("a number");
    let come_and_go = || {
        for _ in 0..1000 {
            let mut client = Client::connect(port);
            // There may be too many at the moment.
            let (Ok(()) | Err(_)) = client.try_send("use a\r\n");
            client.lines(1);
        }
    };
    let peak = thread::scope(|scope| {
        let crowd: Vec<_> = (0..4).map(|_| scope.spawn(come_and_go)).collect();
        let mut peak = 0;
        while crowd.iter().any(|client| !client.is_finished()) {
            peak = peak.max(threads(&daemon).expect("a number"));
        }
        peak
    });
    // A few more have clients that are just leaving.
    let most = at_first + MOST + 8;
    assert!(peak < most, "{peak} threads, at first {at_first}");
}

#[test]
fn a_burst_of_connections_stays_within_the_limit_and_is_logged_in_few_lines() {
    let daemon = Server::start(["--max-connections", "10"]);
    let port = daemon.port();
    let mut burst: Vec<_> = (0..300).map(|_| Client::connect(port)).collect();
    let mut late = burst.split_off(10);
    for client in &mut burst {
        client.exchange("use a", "USING a");
    }
    for client in &mut late {
        client.expect_end();
    }
    assert_eq!(burst[0].count("total-connections"), 10);
    daemon.signal(Signal::SIGTERM);
    let (status, log) = daemon.wait();
    assert_eq!(status.code(), Some(0));
    let name = late[0].name();
    for told in [
        &format!("warning: {name}: closed at once: the limit of connections, 10, is reached"),
        "warning: most connections have: 127.0.0.1 10",
    ] {
        assert!(log.iter().any(|line| line.contains(told)), "{log:?}");
    }
    let refused = "closed at once: the limit of connections, 10, is reached";
    let refusals = log.iter().filter_map(|line| line.split_once(refused));
    // Each line counts for one, or for what it says.
    let count = |(_, more): (&str, &str)| {
        let digits: String = more.chars().filter(char::is_ascii_digit).collect();
        digits.parse().unwrap_or(1)
    };
    let counts: Vec<u32> = refusals.map(count).collect();
    assert_eq!(counts.iter().sum::<u32>(), 290, "{log:?}");
    // There are two lines, and two more after each ten seconds.
    assert!(counts.len() < 20, "{log:?}");
}

/// Root has no such limit.
#[test]
fn the_users_limit_of_processes_bounds_the_number_of_connections() {
    if !as_root() {
        return;
    }
    // That many, since others may run as this user.
    let line = r#"exec prlimit --nproc=500 "$0" "$@""#;
    let daemon = Server::spawn(&mut shell(line, ["-p", "0", "-u", "nobody"]));
    daemon.log_line("at most 468 connections, because the user's limit of processes is 500");
    let daemon = Server::spawn(&mut shell(line, ["-V", "-p", "0"]));
    let line = daemon.log_line(" connections, because");
    assert!(!line.contains("processes"), "{line}");
}

#[test]
fn a_server_with_few_descriptors_warns_and_serves_as_many_clients_as_it_says() {
    let line = r#"ulimit -n 64; exec "$0" "$@""#;
    let directory = Folder::new();
    // The way to a service manager takes a descriptor as well.
    let manager = directory.join("manager");
    let _hears = UnixDatagram::bind(&manager).expect("a socket");
    for (options, least) in [
        (&["-p", "0"][..], 42),
        (&["-p", "0", "-b", directory.text(), "-s", "4096"], 22),
    ] {
        let mut command = shell(line, options.iter().copied());
        let daemon = Server::spawn(command.env("NOTIFY_SOCKET", &manager));
        let most = at_most(
            &daemon,
            " connections, because the limit of open files is 64",
        );
        assert!(most >= least, "{most}");
        let mut clients: Vec<_> = (0..most).map(|_| daemon.connect()).collect();
        for client in &mut clients {
            client.exchange("use a", "USING a");
        }
        // The binlog is in use, and there are more clients than may be served.
        for _ in 1..20 {
            clients[0].put(vec![b'x'; 3000]);
        }
        for _ in 0..3 {
            daemon.connect().expect_end();
        }
        for client in &mut clients {
            client.exchange("use b", "USING b");
        }
        daemon.signal(Signal::SIGTERM);
        let (status, log) = daemon.wait();
        assert_eq!(status.code(), Some(0));
        let lacks = |line: &String| line.contains("(os error 24)");
        assert!(!log.iter().any(lacks), "{log:?}");
    }
    let daemon = Server::spawn(&mut shell(line, ["-p", "0", "--max-connections", "60"]));
    daemon.log_line("warning: --max-connections 60: lowered to ");
}

#[test]
fn a_limit_of_memory_may_be_lifted_and_be_more_than_there_is() {
    let daemon = Server::start(["-V", "--max-memory", "0"]);
    daemon.log_line("info: no limit of memory");
    let daemon = Server::start(["--max-memory", "1000000G"]);
    daemon.log_line("warning: --max-memory: 1073741824000000 is more than the usual ");
}

/// A number that the daemon logs.
fn at_most(daemon: &Server, of_what: &str) -> u64 {
    let line = daemon.log_line(of_what);
    let (before, _) = line.split_once(of_what).expect("it is there");
    let (_, number) = before.rsplit_once("at most ").expect("a number");
    number.parse().expect("a number")
}

#[test]
fn a_user_may_allow_more_connections_than_the_memory_suggests_and_not_more_than_can_be() {
    let line = r#"ulimit -v 49152; exec "$0" "$@""#;
    let daemon = Server::spawn(&mut shell(line, ["-p", "0", "--max-connections", "150"]));
    daemon.log_line("warning: --max-connections 150 is more than the usual ");
    // What is for jobs is less then, and not nothing.
    let most = at_most(
        &daemon,
        " bytes of memory for clients, because the rest of the",
    );
    assert!((9 << 20..20 << 20).contains(&most), "{most}");
    assert_eq!(daemon.stat("max-connections"), "150");
}

#[test]
fn a_full_server_takes_little_more_memory_than_max_memory() {
    const PUTS: usize = 1000;
    let daemon = Server::start(["--max-memory", "16M"]);
    let mut client = daemon.connect();
    let before = daemon.memory();
    // The smallest jobs need the most memory beside their bodies.
    let puts = "put 0 0 1 0\r\n\r\n".repeat(PUTS);
    let mut reply = String::new();
    while reply != "OUT_OF_MEMORY" {
        client.send(&puts);
        reply = client.lines(PUTS).pop().expect("a reply");
    }
    let more = daemon.memory() - before;
    // Where addresses have four bytes, a job takes less than half of what counts.
    assert!((4 << 20..18 << 20).contains(&more), "{more} bytes");
}

#[test]
fn an_idle_client_is_disconnected_unless_it_waits_or_holds_a_job() {
    let daemon = Server::start(["-V", "--idle-timeout", "1"]);
    let port = daemon.port();
    // Each client sends all that it has to say at once, so that the time
    // between two commands is no silence.
    let mut holding = Client::connect(port);
    holding.send("put 0 0 100 3\r\njob\r\nreserve\r\n");
    holding.expect("INSERTED 1\r\nRESERVED 1 3\r\njob\r\n");
    let mut waiting = Client::connect(port);
    waiting.send("watch later\r\nreserve\r\n");
    waiting.expect("WATCHING 2\r\n");
    let (mut silent, mut stalled) = (Client::connect(port), Client::connect(port));
    stalled.send("put 0 0 1 1000\r\nhalf of it");
    // These clients have large buffers, which are trimmed first.
    let (mut announcing, mut halved) = (Client::connect(port), Client::connect(port));
    announcing.send("put 0 0 1 3000\r\n");
    halved.send(format!("put 0 0 1 16000\r\n{}", "x".repeat(5000)));
    silent.expect_end();
    stalled.expect_end();
    announcing.expect_end();
    halved.expect_end();
    let name = silent.name();
    daemon.log_line(&format!("{name}: closed: silent for too long"));
    // After this time the other clients are still connected.
    let mut producer = Client::connect(port);
    producer.expect_end();
    let mut producer = Client::connect(port);
    producer.send("use later\r\nput 0 0 100 3\r\nnew\r\n");
    producer.expect("USING later\r\nINSERTED 5\r\n");
    waiting.expect("RESERVED 5 3\r\nnew\r\n");
    holding.exchange("delete 1", "DELETED");
    holding.expect_end();
}

/// Starts a daemon whose number of threads can be limited. Root may have any
/// number of threads, so as root the daemon becomes another user. `None` if the
/// tests for root do not run.
fn start_for_thread_limits() -> Option<Server> {
    if nix::unistd::geteuid().is_root() {
        as_root().then(|| Server::start(["-u", "nobody"]))
    } else {
        Some(Server::start([]))
    }
}

/// Sets how many threads the user of the daemon may have.
fn limit_threads(daemon: &Server, most: &str) {
    let line = if is_mighty() {
        r#"setpriv --reuid nobody --regid $(id -g nobody) --clear-groups prlimit "$@""#
    } else {
        r#"prlimit "$@""#
    };
    let (pid, limit) = (daemon.pid().to_string(), format!("--nproc={most}:"));
    let (status, _, stderr) = run_command(&mut shell(line, ["--pid", &pid, &limit]));
    assert_eq!((status, stderr.as_str()), (0, ""));
}

#[test]
fn accepting_pauses_without_descriptors_and_connected_clients_are_served() {
    // The limit of descriptors becomes lower after the daemon has read it.
    let daemon = Server::start([]);
    let port = daemon.port();
    daemon.limit(Resource::Nofile, 80, Some(80));
    let mut clients: Vec<_> = (0..86).map(|_| Client::connect(port)).collect();
    let mut waiting = clients.split_off(60);
    for client in &mut clients {
        client.exchange("use a", "USING a");
    }
    daemon.log_line("warning: accepting a connection: ");

    // If the acceptor called accept in a loop, it would use all of this time.
    let (start, before) = (Instant::now(), daemon.cpu_time());
    for client in &mut clients[..25] {
        client.exchange("use b", "USING b");
        thread::sleep(Duration::from_millis(20));
    }
    let used = daemon.cpu_time() - before;
    assert!(used <= start.elapsed() / 5, "{used:?}");

    // The clients that leave make room for those that wait.
    drop(clients);
    for client in &mut waiting {
        client.exchange("use c", "USING c");
    }
}

#[test]
fn accepting_pauses_without_threads_and_connected_clients_are_served() {
    let Some(daemon) = start_for_thread_limits() else {
        return;
    };
    let port = daemon.port();
    let mut first = Client::connect(port);
    first.exchange("use a", "USING a");
    limit_threads(&daemon, "1");
    let mut second = Client::connect(port);
    second.send("use b\r\n");
    daemon.log_line("starting a thread: Resource temporarily unavailable");
    first.exchange("use c", "USING c");

    // A worker that is free again serves the second client.
    first.send("quit\r\n");
    second.expect("USING b\r\n");
    let mut third = Client::connect(port);
    third.send("use d\r\n");
    second.exchange("use e", "USING e");
    limit_threads(&daemon, "1000");
    third.expect("USING d\r\n");

    // Nor does a pause delay the end.
    limit_threads(&daemon, "1");
    (0..40).for_each(|_| drop(daemon.connect()));
    daemon.log_line("starting a thread: ");
    assert_eq!(daemon.stop().code(), Some(0));
}

#[test]
fn an_idle_server_runs_no_thread() {
    let daemon = Server::start([]);
    let waiting: Vec<_> = (0..100).map(|_| daemon.connect()).collect();
    let waiting = waiting.into_iter().map(|mut client| {
        client.exchange("watch a", "WATCHING 2");
        client.send("reserve\r\n");
        client
    });
    let waiting: Vec<_> = waiting.collect();
    let mut client = daemon.connect();
    eventually("all of them wait", || {
        client.count("current-waiting") == 100
    });
    let mut before = None;
    eventually("all of them sleep", || {
        before = daemon.sleeps().expect("it runs");
        before.is_some() && daemon.sleeps().expect("it runs") == before
    });
    let cpu_time = daemon.cpu_time();
    thread::sleep(Duration::from_secs(1));
    assert_eq!(daemon.sleeps().expect("it runs"), before);
    assert_eq!(daemon.cpu_time(), cpu_time);
    drop(waiting);
}
