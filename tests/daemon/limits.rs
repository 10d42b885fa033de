//! What the daemon says and does when something runs out. It goes on as before
//! when there is enough again.

use crate::program::{Client, Daemon, TempDir, as_root, eventually, run_command, shell};
use std::net::TcpStream;
use std::thread;
use std::time::{Duration, Instant};

#[test]
fn one_connection_too_many_is_closed_and_a_place_that_is_left_is_free() {
    let mut daemon = Daemon::start(["--max-connections", "2"]);
    daemon.log_line("at most 2 connections");
    let port = daemon.port();
    let (mut first, mut second) = (Client::connect(port), Client::connect(port));
    first.ask("use a", "USING a");
    second.ask("use b", "USING b");
    let mut third = Client::connect(port);
    third.expect_end();
    let name = third.into_stream().local_addr().expect("an address");
    daemon.log_line(&format!(
        "warning: {name}: closed at once: there are 2 connections already"
    ));
    first.send("quit\r\n");
    first.expect_end();
    Client::connect(port).ask("use c", "USING c");
    second.ask("use b", "USING b");
}

#[test]
fn a_burst_does_not_get_past_the_limit_and_is_a_line_or_two_in_the_log() {
    let mut daemon = Daemon::start(["--max-connections", "10"]);
    let port = daemon.port();
    let mut burst: Vec<_> = (0..300).map(|_| Client::connect(port)).collect();
    let mut late = burst.split_off(10);
    for client in &mut burst {
        client.ask("use a", "USING a");
    }
    for client in &mut late {
        client.expect_end();
    }
    assert_eq!(burst[0].stat("total-connections"), 10);
    daemon.signal(nix::sys::signal::Signal::SIGTERM);
    let (status, log) = daemon.wait();
    assert_eq!(status.code(), Some(0));
    let refused = "closed at once: there are 10 connections already";
    let refusals = log.iter().filter_map(|line| line.split_once(refused));
    let counts: Vec<u32> = refusals
        .map(|(_, more)| match more.trim_matches([' ', '(', ')']) {
            "" => 1,
            more => more
                .replace(" more of these", "")
                .parse()
                .expect("a number"),
        })
        .collect();
    assert_eq!(counts.iter().sum::<u32>(), 290, "{log:?}");
    // There are two lines, and two more after each ten seconds.
    assert!(counts.len() < 20, "{log:?}");
}

#[test]
fn without_the_option_the_system_decides() {
    let line = r#"ulimit -n 200; exec "$0" "$@""#;
    let mut daemon = Daemon::spawn(&mut shell(line, ["-p", "0"]));
    let line = daemon.log_line(" connections, because the limit of open files is 200");
    assert!(line.contains("info: at most 1"), "{line}");
    let line = r#"ulimit -n 100; exec "$0" "$@""#;
    let mut daemon = Daemon::spawn(&mut shell(line, ["-p", "0", "--max-connections", "95"]));
    daemon.log_line("warning: --max-connections 95: lowered to ");
}

#[test]
fn with_few_descriptors_it_warns_and_serves_as_many_as_it_says() {
    let line = r#"ulimit -n 64; exec "$0" "$@""#;
    let directory = TempDir::new();
    let directory = directory.path().to_str().expect("text");
    for (options, least) in [
        (&["-p", "0"][..], 50),
        (&["-p", "0", "-b", directory, "-s", "4096"], 30),
    ] {
        let mut daemon = Daemon::spawn(&mut shell(line, options.iter().copied()));
        let line = daemon.log_line("warning: at most ");
        let (_, most) = line.split_once("at most ").expect("a number");
        let most: usize = most
            .split(' ')
            .next()
            .expect("a number")
            .parse()
            .expect("a number");
        assert!(most >= least, "{line}");
        let port = daemon.port();
        let mut clients: Vec<_> = (0..most).map(|_| Client::connect(port)).collect();
        for client in &mut clients {
            client.ask("use a", "USING a");
        }
        // The binlog is in use, and there are more clients than may be served.
        let body = "x".repeat(3000);
        let (first, others) = clients.split_first_mut().expect("some");
        for id in 1..20 {
            let (put, inserted) = (
                format!("put 0 0 1 3000\r\n{body}"),
                format!("INSERTED {id}"),
            );
            first.ask(&put, &inserted);
        }
        for _ in 0..3 {
            Client::connect(port).expect_end();
        }
        for client in others {
            client.ask("use b", "USING b");
        }
        let (status, log) = {
            daemon.signal(nix::sys::signal::Signal::SIGTERM);
            daemon.wait()
        };
        assert_eq!(status.code(), Some(0));
        assert!(
            !log.iter().any(|line| line.contains("(os error 24)")),
            "{log:?}"
        );
    }
}

#[test]
fn jobs_beyond_the_memory_are_refused_and_everything_else_goes_on() {
    let mut daemon = Daemon::start(["--max-memory", "1M", "-z", "1000000"]);
    let port = daemon.port();
    let mut client = Client::connect(port);
    let body = "x".repeat(600_000);
    let put = format!("put 0 0 1 600000\r\n{body}");
    client.ask(&put, "INSERTED 1");
    client.ask(&put, "OUT_OF_MEMORY");
    daemon.log_line(": refused for want of room: OUT_OF_MEMORY");
    client.ask("use a", "USING a");
    client.ask("put 0 0 1 5\r\nsmall", "INSERTED 3");
    client.ask("delete 1", "DELETED");
    // The memory of the deleted job is free at once.
    client.ask(&put, "INSERTED 4");
}

#[test]
fn silence_is_ended_unless_it_waits_or_holds_something() {
    let mut daemon = Daemon::start(["-V", "--idle-timeout", "2"]);
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
    // These clients have large buffers, which they first give back.
    let (mut announcing, mut halved) = (Client::connect(port), Client::connect(port));
    announcing.send("put 0 0 1 3000\r\n");
    halved.send(&format!("put 0 0 1 16000\r\n{}", "x".repeat(5000)));
    silent.expect_end();
    stalled.expect_end();
    announcing.expect_end();
    halved.expect_end();
    let name = silent.into_stream().local_addr().expect("an address");
    daemon.log_line(&format!("{name}: closed: silent for too long"));
    // After this time the other clients are still connected.
    let mut producer = Client::connect(port);
    producer.expect_end();
    let mut producer = Client::connect(port);
    producer.send("use later\r\nput 0 0 100 3\r\nnew\r\n");
    producer.expect("USING later\r\nINSERTED 5\r\n");
    waiting.expect("RESERVED 5 3\r\nnew\r\n");
    holding.ask("delete 1", "DELETED");
    holding.expect_end();
}

/// Starts a daemon whose number of threads can be limited. Root may have any
/// number of threads, so as root the daemon becomes another user. `None` if the
/// tests for root do not run.
pub fn start_for_thread_limits() -> Option<Daemon> {
    match nix::unistd::geteuid().is_root() {
        true => as_root().then(|| Daemon::start(["-u", "nobody"])),
        false => Some(Daemon::start([])),
    }
}

/// Sets how many threads the user of the daemon may have.
pub fn limit_threads(daemon: &Daemon, most: &str) {
    let line = match as_root() {
        true => r#"setpriv --reuid nobody --regid $(id -g nobody) --clear-groups prlimit "$@""#,
        false => r#"prlimit "$@""#,
    };
    let (pid, limit) = (daemon.pid().to_string(), format!("--nproc={most}:"));
    let (status, _, stderr) = run_command(&mut shell(line, ["--pid", &pid, &limit]));
    assert_eq!((status, stderr.as_str()), (0, ""));
}

#[test]
fn without_descriptors_accepting_pauses_and_nobody_feels_it() {
    // The limit of descriptors becomes lower after the daemon has read it.
    let mut daemon = Daemon::start([]);
    let port = daemon.port();
    let pid = daemon.pid().to_string();
    let (status, _, stderr) = run_command(&mut shell(
        r#"prlimit "$@""#,
        ["--pid", &pid, "--nofile=80:"],
    ));
    assert_eq!((status, stderr.as_str()), (0, ""));
    let mut clients: Vec<_> = (0..86).map(|_| Client::connect(port)).collect();
    let mut waiting = clients.split_off(60);
    for client in &mut clients {
        client.ask("use a", "USING a");
    }
    daemon.log_line("warning: accepting a connection: ");

    // This takes a second or more. If the acceptor called accept in a loop, it
    // would use all of this time.
    let (start, before) = (Instant::now(), daemon.cpu_time());
    for client in &mut clients[..50] {
        client.ask("use b", "USING b");
        thread::sleep(Duration::from_millis(20));
    }
    let used = daemon.cpu_time() - before;
    assert!(used <= start.elapsed() / 5, "{used:?}");

    // The clients that leave make room for those that wait.
    drop(clients);
    for client in &mut waiting {
        client.ask("use c", "USING c");
    }
}

#[test]
fn without_threads_accepting_pauses_and_nobody_feels_it() {
    let Some(mut daemon) = start_for_thread_limits() else {
        return;
    };
    let port = daemon.port();
    let mut first = Client::connect(port);
    first.ask("use a", "USING a");
    limit_threads(&daemon, "1");
    let mut second = Client::connect(port);
    second.send("use b\r\n");
    daemon.log_line("starting a thread: Resource temporarily unavailable");
    first.ask("use c", "USING c");

    // A worker that is free again serves the second client.
    first.send("quit\r\n");
    second.expect("USING b\r\n");
    let mut third = Client::connect(port);
    third.send("use d\r\n");
    second.ask("use e", "USING e");
    limit_threads(&daemon, "1000");
    third.expect("USING d\r\n");
}

#[test]
fn stalled_clients_cost_nobody_else_anything() {
    let mut daemon = Daemon::start([]);
    let port = daemon.port();
    let mut stalled = Vec::new();
    for half in [
        "put 0 0 1",
        "put 0 0 1 100\r\nhalf",
        "reserve\r\n",
        "reserve\r",
    ] {
        let mut client = Client::connect(port);
        client.send(half);
        stalled.push(client);
    }
    let mut client = Client::connect(port);
    eventually("they are stuck", || {
        client.stat("current-waiting") == 1 && client.stat("cmd-put") == 1
    });
    client.ask("use a", "USING a");
    client.ask("put 0 0 1 3\r\njob", "INSERTED 2");
    client.ask("delete 2", "DELETED");
}

#[test]
fn with_nothing_to_do_nothing_runs() {
    let mut daemon = Daemon::start([]);
    let port = daemon.port();
    let waiting: Vec<TcpStream> = (0..100)
        .map(|_| {
            let mut client = Client::connect(port);
            client.ask("watch a", "WATCHING 2");
            client.send("reserve\r\n");
            client.into_stream()
        })
        .collect();
    let mut client = Client::connect(port);
    eventually("all of them wait", || client.stat("current-waiting") == 100);
    let mut before = None;
    eventually("all of them sleep", || {
        before = daemon.sleeps();
        before.is_some() && daemon.sleeps() == before
    });
    let cpu_time = daemon.cpu_time();
    thread::sleep(Duration::from_secs(1));
    assert_eq!(daemon.sleeps(), before);
    assert_eq!(daemon.cpu_time(), cpu_time);
    drop(waiting);
}
