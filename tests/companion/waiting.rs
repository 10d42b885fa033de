//! `bury --wait` and `delete --wait`: they take a job that a worker has at the
//! moment at which that is over.

use super::story::tell;
use super::support::{Running, Server, beanpoled, servers, wait_for};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// A connection that has reserved a job of this tube.
fn worker(server: &Server, tube: &str) -> TcpStream {
    let mut stream = TcpStream::connect(("127.0.0.1", server.port)).unwrap();
    write!(stream, "watch {tube}\r\nreserve\r\n").unwrap();
    let mut lines = BufReader::new(&stream).lines();
    lines.next().unwrap().unwrap();
    assert!(lines.next().unwrap().unwrap().starts_with("RESERVED "));
    drop(lines);
    stream
}

/// A worker that waits for jobs and finishes each, but dies of a poison job, and
/// is started again.
fn work(server: &Server, is_over: &AtomicBool) {
    while !is_over.load(Ordering::SeqCst) {
        let mut stream = TcpStream::connect(("127.0.0.1", server.port)).unwrap();
        stream.write_all(b"watch mail\r\n").unwrap();
        let mut replies = BufReader::new(stream.try_clone().unwrap());
        let mut line = String::new();
        replies.read_line(&mut line).unwrap();
        while !is_over.load(Ordering::SeqCst) {
            stream.write_all(b"reserve-with-timeout 1\r\n").unwrap();
            line.clear();
            replies.read_line(&mut line).unwrap();
            let words: Vec<_> = line.split_whitespace().collect();
            let ["RESERVED", id, size] = words[..] else {
                continue;
            };
            let mut body = vec![0; size.parse::<usize>().unwrap() + 2];
            replies.read_exact(&mut body).unwrap();
            if body.starts_with(b"poison") {
                std::thread::sleep(Duration::from_millis(3));
                break;
            }
            write!(stream, "delete {id}\r\n").unwrap();
            line.clear();
            replies.read_line(&mut line).unwrap();
        }
    }
}

#[test]
fn a_poison_job_is_taken_from_a_busy_tube_whose_workers_wait() {
    let server = Server::start(&beanpoled(), &[]);
    tell(
        &server,
        "$ put -q -t mail poison\n$ put -q -t mail 'poison too'",
    );
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| work(&server, &is_over));
        }
        scope.spawn(|| {
            while !is_over.load(Ordering::SeqCst) {
                server
                    .beanpole()
                    .args(["put", "-q", "-t", "mail", "good", "good"])
                    .status()
                    .unwrap();
            }
        });
        wait_for("workers to die", || {
            let output = server
                .beanpole()
                .args(["stats", "job", "1", "--json"])
                .output()
                .unwrap();
            let text = String::from_utf8(output.stdout).unwrap();
            let reserves = text.split("\"reserves\":").nth(1).unwrap();
            reserves.split(',').next().unwrap().parse::<u64>().unwrap() > 5
        });
        tell(&server, "$ bury 1 --wait 1m\n$ delete 2 --wait 1m");
        is_over.store(true, Ordering::SeqCst);
    });
    tell(
        &server,
        r#"
        $ peek -t mail --buried -l
        poison
        $ peek 2
        ! beanpole peek: there is no job 2
        [1]
        "#,
    );
    // Nothing else was held up or taken.
    let output = server
        .beanpole()
        .args(["stats", "mail", "--json"])
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    for fact in [
        "\"cmd-pause-tube\":0",
        "\"total-kicks\":0",
        "\"total-releases\":0",
    ] {
        assert!(text.contains(fact), "{fact}: {text}");
    }
}

#[test]
fn a_job_is_taken_when_its_worker_is_lost_or_late_or_gives_it_back() {
    for program in servers() {
        let server = Server::start(&program, &[]);
        tell(
            &server,
            "$ put -q -t mail one two\n$ put -q -t mail -r 1 three\n$ put -q -t mail four",
        );
        let mut held: Vec<_> = (0..4).map(|_| worker(&server, "mail")).collect();
        let mut command = server.beanpole();
        let bury = Running::start(command.args(["bury", "1", "2", "3", "--wait", "1m", "-p", "7"]));
        let mut command = server.beanpole();
        let delete = Running::start(command.args(["delete", "4", "--wait", "1m"]));
        std::thread::sleep(Duration::from_millis(100));
        held[1].write_all(b"release 2 0 0\r\n").unwrap();
        held[3].write_all(b"release 4 0 100\r\n").unwrap();
        held.remove(0);
        // The reference server often forgets the end of a time to run until it hears
        // from the worker.
        std::thread::sleep(Duration::from_millis(1100));
        held[1].write_all(b"list-tube-used\r\n").unwrap();
        let (status, said) = bury.wait();
        assert_eq!((status, said.as_str()), (0, ""));
        assert_eq!(delete.wait().0, 0);
        tell(
            &server,
            "$ ls mail -q --state buried --pri 7\n1\n2\n3\n$ ls mail -q\n1\n2\n3",
        );
    }
}

#[test]
fn waiting_in_vain_for_a_reserved_job_is_reported_and_changes_nothing() {
    for program in servers() {
        let server = Server::start(&program, &[]);
        tell(&server, "$ put -q -t mail one");
        let held = worker(&server, "mail");
        tell(
            &server,
            r#"
            $ bury 1 9 --wait 50ms
            ! beanpole bury: there is no job 9
            ! beanpole bury: job 1 is reserved by another connection, and only that may act on it
            [1]
            "#,
        );
        drop(held);
        wait_for("it to be ready", || {
            let output = server
                .beanpole()
                .args(["ls", "-q", "--state", "ready"])
                .output();
            output.unwrap().stdout == b"1\n"
        });
    }
}
