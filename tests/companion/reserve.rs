//! Taking jobs, and what is done with them then.

use super::story::{on_each_server, tell};
use super::support::{BEANPOLE, Server, scripted, servers, wait_for};
use std::io::Read;
use std::process::{Command, Stdio};

#[test]
fn reserve_releases_its_jobs_unless_told_otherwise() {
    for program in servers() {
        let server = Server::start(&program, &[]);
        tell(
            &server,
            r#"
        $ put -p 5 one
        1
        $ put -p 5 two
        2
        $ put -p 9 three
        3
        $ reserve --count 2 --lines
        one
        two
        $ reserve --all --lines
        one
        two
        three
        $ reserve --count 2 --lines --bury -p 1
        one
        two
        $ peek -n 9 --buried --lines
        one
        two
        $ reserve --delete
        three⊣
        $ reserve --timeout 0
        [1]
        "#,
        );
        let stats = server.said(&["stats", "job", "1", "--json"]);
        for part in [
            r#""state":"buried","pri":1,"#,
            r#""reserves":3,"timeouts":0,"releases":0,"buries":3,"kicks":2"#,
        ] {
            assert!(stats.contains(part), "{stats}");
        }
    }
}

#[test]
fn reserve_takes_from_the_tubes_it_is_told_and_no_others() {
    on_each_server(
        r#"
        $ put in default
        1
        2
        $ put -t a x
        3
        $ put -t b y
        4
        $ reserve -t b -t a --all --lines --delete
        x
        y
        $ reserve -t default -n 3 -w 0 --lines --release -d 60
        in
        default
        [1]
        $ peek --delayed
        in⊣
        "#,
    );
}

/// `reserve` into a pipe, and the number of jobs that it holds meanwhile.
fn reserve_into_a_pipe(server: &Server, arguments: &[&str]) -> std::process::Child {
    let mut command = server.beanpole();
    command.arg("reserve").args(arguments).arg("--delete");
    command.stdout(Stdio::piped()).spawn().unwrap()
}

fn is_reserved(server: &Server, jobs: u64) -> bool {
    server.counted("current-jobs-reserved") == jobs
}

#[test]
fn reserve_does_not_delete_jobs_that_nobody_reads_from_the_pipe() {
    for program in servers() {
        let server = Server::start(&program, &[]);
        tell(&server, "$ put -q precious");
        let mut child = reserve_into_a_pipe(&server, &[]);
        wait_for("it to have the job", || is_reserved(&server, 1));
        // The reader goes.
        drop(child.stdout.take());
        assert_eq!(child.wait().unwrap().code(), Some(141));
        wait_for("the job to be given back", || is_reserved(&server, 0));
        tell(&server, "$ peek --ready -l\nprecious");
    }
}

#[test]
fn reserve_touches_jobs_until_a_slow_reader_has_read_them() {
    for program in servers() {
        let server = Server::start(&program, &[]);
        tell(&server, "$ put -q -r 1 one two three");
        let mut child = reserve_into_a_pipe(&server, &["--all", "-l"]);
        let mut output = child.stdout.take().unwrap();
        let mut first = [0; 4];
        output.read_exact(&mut first).unwrap();
        wait_for("it to have the others", || is_reserved(&server, 2));
        // Longer than their time to run, which begins anew meanwhile.
        wait_for("them to be touched", || server.counted("cmd-touch") >= 10);
        let mut rest = String::new();
        output.read_to_string(&mut rest).unwrap();
        assert_eq!((&first, rest.as_str()), (b"one\n", "two\nthree\n"));
        assert_eq!(child.wait().unwrap().code(), Some(0));
        tell(&server, "$ tubes --names\ndefault\n$ reserve -w 0\n[1]");
    }
}

#[test]
fn reserve_takes_and_releases_jobs_of_the_shortest_time_to_run() {
    on_each_server(
        r#"
        $ put -r 1 one two
        1
        2
        $ reserve --all -l
        one
        two
        $ peek -n 2 -l
        one
        two
        "#,
    );
}

#[test]
fn reserve_touches_kept_jobs_while_it_takes_others() {
    let (port, server) = scripted(&[
        ("reserve-with-timeout 0", "RESERVED 5 1\r\nx\r\n"),
        (
            "stats-job 5",
            "late OK 64\r\n---\nid: 5\ntube: a\nstate: reserved\npri: 0\nage: 0\ndelay: 0\nttr: 1\n\r\n",
        ),
        ("touch 5", "TOUCHED\r\n"),
        ("reserve-with-timeout 0", "TIMED_OUT\r\n"),
        ("bury 5 0", "BURIED\r\n"),
        ("kick-job 5", "KICKED\r\n"),
    ]);
    let mut command = Command::new(BEANPOLE);
    command.args(["-a", &port.to_string(), "reserve", "-n", "2", "-w", "0"]);
    assert_eq!(command.output().unwrap().stdout, b"x");
    server.join().unwrap();
}

#[test]
fn reserve_releases_each_of_many_jobs_once() {
    for program in servers() {
        let server = Server::start(&program, &[]);
        let mut bodies = String::new();
        (0..4500).for_each(|number| bodies += &format!("{number}\n"));
        let file = server.directory.write("bodies", bodies.as_bytes());
        tell(&server, &format!("$ put -q -l -f '{}'", file.display()));
        let taken = server.beanpole().args(["reserve", "--all", "-l"]).output();
        assert_eq!(taken.unwrap().stdout, bodies.as_bytes());
        tell(
            &server,
            "$ ls -q --tries 2\n[1]\n$ kick\n0\n[1]\n$ clear -y default\n4500",
        );
    }
}
