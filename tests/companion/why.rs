//! `why` says what keeps jobs from being done, and `check` can watch it.

use super::story::tell;
use super::support::{Running, Server, beanpoled, servers, wait_for};
use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;

#[test]
fn why_names_the_job_that_keeps_workers_busy() {
    for program in servers() {
        let server = Server::start(&program, &[]);
        tell(
            &server,
            "$ put -q -t mail -p 7 -r 100000 slow next\n$ put -q -t post -p 5 urgent",
        );
        let mut worker = server.beanpole();
        worker.args(["work", "-t", "mail", "-t", "post", "--", "sleep", "100"]);
        // The first is urgent.
        let _worker = Running::unheard(&mut worker);
        wait_for("it to be reserved", || is_reserved(&server, "post"));
        tell(
            &server,
            "$ why mail\n\
             mail: Its worker is busy with other tubes; 2 jobs are ready.\n[1]",
        );
        let mut second = server.beanpole();
        second.args(["work", "-t", "mail", "--", "sleep", "100"]);
        let _second = Running::unheard(&mut second);
        wait_for("it to be reserved", || is_reserved(&server, "mail"));
        assert_eq!(
            why(&server, &["mail"]),
            "mail: All of its 2 workers are busy: 1 job is reserved, 1 job is ready. \
             Job 1 is held by a worker for another 27h, at try 1.\n"
        );
    }
}

#[test]
fn why_names_the_limit_that_keeps_ready_jobs_from_workers() {
    let server = Server::start(&beanpoled(), &[]);
    tell(
        &server,
        "$ put -q -t web -r 100000 --limit deploy one two\n\
         $ put -q -t mail --limit deploy three",
    );
    let mut workers = server.beanpole();
    workers.args([
        "work", "-t", "web", "-t", "mail", "-j", "2", "--", "sleep", "100",
    ]);
    let _workers = Running::unheard(&mut workers);
    wait_for("one to be reserved", || is_reserved(&server, "web"));
    wait_for("the other to wait", || says(&server, "web", "waiting\":1"));
    assert_eq!(
        why(&server, &[]),
        "mail: Its ready job waits for limit deploy:1: jobs with this key are reserved in other tubes.\n\
         web: Its ready job waits for limit deploy:1: job 2 with this key is reserved. Job 2 is held by a worker for another 27h, at try 1.\n"
    );
    tell(
        &server,
        "$ put -q -t mail -d 100000 later\n\
         $ put -q -t mail -p 1 --limit deploy four\n\
         $ why mail\n\
         mail: All 2 ready jobs wait for limit deploy:1: jobs with this key are reserved in other tubes.\n[1]",
    );
}

/// A worker that takes a job, and is lost.
fn lose_a_worker(server: &Server, tube: &str) {
    let mut stream = TcpStream::connect(("127.0.0.1", server.port)).unwrap();
    write!(stream, "watch {tube}\r\nreserve-with-timeout 0\r\n").unwrap();
    let mut lines = BufReader::new(stream).lines();
    assert_eq!(lines.next().unwrap().unwrap(), "WATCHING 2");
    let reserved = lines.next().unwrap().unwrap();
    assert!(reserved.starts_with("RESERVED"), "{reserved}");
    drop(lines);
    wait_for("it to be ready again", || {
        says(server, tube, "jobs-reserved\":0")
    });
}

#[test]
fn why_check_and_top_name_a_job_at_which_workers_are_lost() {
    for program in servers() {
        let server = Server::start(&program, &[]);
        tell(
            &server,
            "$ put -q -t mail -d 100000 later\n$ put -q -t mail poison",
        );
        let mut watcher = TcpStream::connect(("127.0.0.1", server.port)).unwrap();
        watcher.write_all(b"watch mail\r\n").unwrap();
        wait_for("somebody to watch", || {
            says(&server, "mail", "watching\":1")
        });
        for _ in 0..2 {
            lose_a_worker(&server, "mail");
        }
        let check = |level: &str, told: &str| {
            let figures = "'ready'=1;;;0 'reserved'=0;;;0 'delayed'=1;;;0 'buried'=0;;;0";
            let command = "$ check --tries-max 2 -t mail\nBEANSTALK";
            (
                format!("{command} {level}: {told} | {figures} "),
                "'workers'=1;;;0",
            )
        };
        let told = "ready 1, reserved 0, delayed 1, buried 0, tries 2 of job 2, workers 1";
        let (before, after) = check("OK", told);
        tell(&server, &format!("{before}'tries'=2;;2;0 {after}"));
        lose_a_worker(&server, "mail");
        tell(
            &server,
            "$ why\n\
             mail: Job 2 was reserved 3 times, and each time the worker was lost or took too long: 'beanpole ls mail --tries 3' lists such jobs. Its worker is busy with other tubes; 1 job is ready.\n\
             [1]\n\
             $ ls mail --tries 3 -q\n2",
        );
        let (before, after) = check("CRITICAL", "tries 3 of job 2 (limit 2)");
        tell(&server, &format!("{before}'tries'=3;;2;0 {after}\n[2]"));
        let mut command = server.beanpole();
        let output = command
            .args(["top", "-i", "0.01", "--json"])
            .output()
            .unwrap();
        let json = String::from_utf8(output.stdout).unwrap();
        let trouble = "\"grave\":true,\"trouble\":\"job 2 fails at each of 3 tries\"";
        assert!(json.contains(trouble), "{json}");
        // A job that was released or buried has not failed so.
        tell(
            &server,
            "$ bury 2\n$ why mail\nmail: 1 job is buried, the next one to be kicked is 2. None is ready; 1 job is delayed, the next one for another 27h.\n[1]",
        );
    }
}

#[test]
fn why_uses_the_singular_for_one_worker_and_one_job() {
    for program in servers() {
        let server = Server::start(&program, &[]);
        tell(&server, "$ put -q -t mail -r 100000 slow next");
        let mut worker = server.beanpole();
        worker.args(["work", "-t", "mail", "--", "sleep", "100"]);
        let _worker = Running::unheard(&mut worker);
        wait_for("it to be reserved", || is_reserved(&server, "mail"));
        assert_eq!(
            why(&server, &["mail"]),
            "mail: Its worker is busy: 1 job is reserved, 1 job is ready. \
             Job 1 is held by a worker for another 27h, at try 1.\n"
        );
    }
}

/// What `why` says of a tube or of all, without the number of a connection,
/// which only beanpoled tells.
fn why(server: &Server, arguments: &[&str]) -> String {
    let (status, said) = said(server, &[&["why"], arguments].concat());
    assert_eq!(status, Some(1), "{said}");
    let mut parts = said.split("by connection ");
    let mut told = String::from(parts.next().unwrap());
    for part in parts {
        told += &format!(
            "by a worker{}",
            part.trim_start_matches(|c: char| c.is_ascii_digit())
        );
    }
    told
}

/// What a command says, with its figures.
fn said(server: &Server, arguments: &[&str]) -> (Option<i32>, String) {
    let output = server.beanpole().args(arguments).output().unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    (output.status.code(), said)
}

#[test]
fn top_marks_a_tube_whose_jobs_time_out_and_check_measures_their_rate() {
    let server = Server::start(&beanpoled(), &[]);
    tell(&server, "$ put -q -t mail -r 1 slow");
    // Each of them gets the job when the one before has had it for too long.
    let mut workers = Vec::new();
    for _ in 0..4 {
        let stream = TcpStream::connect(("127.0.0.1", server.port)).unwrap();
        (&stream).write_all(b"watch mail\r\nreserve\r\n").unwrap();
        let mut lines = BufReader::new(stream).lines();
        assert_eq!(lines.next().unwrap().unwrap(), "WATCHING 2");
        assert_eq!(lines.next().unwrap().unwrap(), "RESERVED 1 4");
        workers.push(lines);
    }
    let (_, top) = said(&server, &["top", "-i", "10ms"]);
    assert!(top.contains("\nmail !job"), "{top}");
    let (_, top) = said(&server, &["top", "-i", "10ms", "--json"]);
    assert!(
        top.contains("job 1 fails at each of 4 tries, 3 timeouts"),
        "{top}"
    );
    let (status, why) = said(&server, &["why"]);
    let reason = "mail: Job 1 was reserved 3 times, and each time the worker was lost or took";
    assert!(status == Some(1) && why.starts_with(reason), "{why}");
    assert!(why.contains("3 of 4 reservations timed out."), "{why}");
    let check = [
        "check",
        "-t",
        "mail",
        "--timeouts-max",
        "0",
        "--during",
        "2s",
    ];
    let (status, check) = said(&server, &check);
    let reason = "BEANSTALK CRITICAL: timeouts ";
    assert!(status == Some(2) && check.starts_with(reason), "{check}");
    // Those of another tube do not count.
    let check = [
        "check",
        "-t",
        "default",
        "--timeouts-max",
        "0",
        "--during",
        "10ms",
    ];
    assert_eq!(said(&server, &check).0, Some(0));
}

fn is_reserved(server: &Server, tube: &str) -> bool {
    says(server, tube, "jobs-reserved\":1")
}

fn says(server: &Server, tube: &str, what: &str) -> bool {
    let output = server.beanpole().args(["stats", tube, "--json"]).output();
    String::from_utf8_lossy(&output.unwrap().stdout).contains(what)
}
