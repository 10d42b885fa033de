//! `bench`: load on a server that runs, which is empty again afterwards.

use super::story::on_each_server;
use super::support::{Server, servers};

fn bench(server: &Server, arguments: &str) -> String {
    let mut command = server.beanpole();
    let output = command
        .arg("bench")
        .args(arguments.split(' '))
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{arguments}: {said}");
    String::from_utf8(output.stdout).unwrap()
}

/// The number after this key in a line of JSON.
fn number(json: &str, key: &str) -> f64 {
    let after = json.split(&format!("\"{key}\":")).nth(1).expect(key);
    after.split([',', '}']).next().unwrap().parse().unwrap()
}

#[test]
fn every_scenario_tells_what_was_done_and_leaves_nothing_behind() {
    for program in servers() {
        let server = Server::start(&program, &[]);
        for (arguments, jobs) in [
            ("put -n 500", 500.0),
            ("put -n 640 -c 4 -d 16 -b 5000", 640.0),
            ("put -n 50 -c 4 -r 1000", 50.0),
            ("cycle -n 300 -c 3", 300.0),
            ("cycle -n 64 -d 8 -r 2000 --seed 2", 64.0),
            ("handoff -n 200 -c 2 -w 4", 200.0),
            ("handoff -n 20 -r 500", 20.0),
        ] {
            let json = bench(&server, &format!("{arguments} --json"));
            assert_eq!(number(&json, "jobs"), jobs, "{arguments}");
            assert!(number(&json, "p50") <= number(&json, "p99"), "{json}");
            assert!(number(&json, "p99") <= number(&json, "longest"), "{json}");
            let counts: f64 = json.split("\"count\":").skip(1).map(first_number).sum();
            let commands = if arguments.starts_with("cycle") {
                3.0
            } else {
                1.0
            };
            assert_eq!(counts, jobs * commands, "{json}");
        }
        let text = bench(&server, "put -s 1");
        assert!(text.starts_with("put: 1 connections, depth 1, "), "{text}");
        assert!(text.contains("\nlatency in microseconds: p50 "), "{text}");
        let stats = server
            .beanpole()
            .args(["stats", "--json"])
            .output()
            .unwrap()
            .stdout;
        let stats = String::from_utf8(stats).unwrap();
        for state in ["ready", "reserved", "delayed", "buried"] {
            assert_eq!(
                number(&stats, &format!("current-jobs-{state}")),
                0.0,
                "{stats}"
            );
        }
    }
}

fn first_number(text: &str) -> f64 {
    text.split([',', '}']).next().unwrap().parse().unwrap()
}

#[test]
fn what_makes_no_sense_is_refused() {
    on_each_server(
        r#"
        $ bench
        ! beanpole bench: what? put, cycle or handoff
        ! Try 'beanpole help bench'.
        [2]
        $ bench dance
        ! beanpole bench: 'dance' is not put, cycle or handoff
        ! Try 'beanpole help bench'.
        [2]
        $ bench put -b 15
        ! beanpole bench: --body: '15' is not a size from 16 to 1073741824 bytes
        ! Try 'beanpole help bench'.
        [2]
        $ bench put -n 1 -s 1
        ! beanpole bench: --count and --seconds exclude each other
        ! Try 'beanpole help bench'.
        [2]
        $ bench put -w 1
        ! beanpole bench: --consumers goes with handoff, --depth with the others
        ! Try 'beanpole help bench'.
        [2]
        "#,
    );
}

#[test]
fn a_server_that_refuses_ends_the_run() {
    for program in servers() {
        let server = Server::start(&program, &["-z", "50"]);
        let mut command = server.beanpole();
        let output = command.args(["bench", "put"]).output().unwrap();
        assert_eq!(output.status.code(), Some(4));
        let said = String::from_utf8(output.stderr).unwrap();
        let line = "beanpole bench: connection 0: unexpected reply JOB_TOO_BIG\n";
        assert_eq!(said, line);
        server.signal("STOP");
        let mut command = server.beanpole();
        let output = command.args(["bench", "--timeout", "0.1", "put"]).output();
        let said = String::from_utf8(output.unwrap().stderr).unwrap();
        assert_eq!(said, "beanpole bench: no reply for 0.1 s\n");
        server.signal("CONT");
    }
}
