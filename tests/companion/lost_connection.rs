//! What becomes of jobs that are on their way when the line is cut, or a server silent,
//! and what the program says of them.

use super::support::{ended, line_cut_at, listen, on_each_server};
use nix::sys::signal::Signal;
use std::io::{BufRead, BufReader, Write};
use std::thread;
use support::session::Scene;

const IN_PLACE: &str =
    "$ beanpole ls t -q --state ready\n1\n4\n$ beanpole ls t -q --state buried\n2\n3\n";

/// Loads a dump of a ready job, two buried ones and a ready one over a line that is cut
/// when this has passed so often, and that may come back.
fn load(at: &'static str, times: usize, comes_back: bool, session: &str) {
    on_each_server(&[], |scene| {
        let job = |state: &str, body: &str| {
            format!(
                "{{\"tube\":\"t\",\"state\":\"{state}\",\"pri\":7,\"delay\":0,\"ttr\":9,\"body\":\"{body}\"}}\n"
            )
        };
        let jobs = [
            ("ready", "a"),
            ("buried", "b"),
            ("buried", "c"),
            ("ready", "d"),
        ];
        let jobs: String = jobs.iter().map(|(state, body)| job(state, body)).collect();
        let dump =
            format!("{{\"beanpole-dump\":1}}\n{jobs}{{\"beanpole-dump-end\":1,\"jobs\":4}}\n");
        scene.write("dump", dump);
        let line = line_cut_at(&scene, at, times, comes_back);
        scene.tell(&session.replace("LINE", &line.to_string()));
    });
}

#[test]
fn load_says_how_to_bury_the_jobs_that_it_could_not_bury() {
    let session = "$ beanpole load -a LINE dump
! beanpole load: dump line 6: 127.0.0.1:LINE: the server closed the connection
! 2 jobs that should be buried may be delayed for 136 years instead: 'seq 2 3 | beanpole bury -a 127.0.0.1:LINE -' buries them
! 4 jobs are loaded; 'tail -n +6 dump | beanpole load -a 127.0.0.1:LINE' goes on there
[3]
$ beanpole ls t -q --state delayed
2
3
$ seq 2 3 | beanpole bury -
";
    load("reserve-job", 1, false, &[session, IN_PLACE].concat());
}

/// The answers to all puts are lost, so the ids of those that wait to be buried are
/// not known.
#[test]
fn load_says_how_to_find_jobs_that_should_be_buried_when_answers_are_lost() {
    let session = "$ beanpole load -a LINE dump
! beanpole load: dump line 2: 127.0.0.1:LINE: the server closed the connection
! jobs without an answer that should be buried may be there with a delay of 136 years: 'beanpole ls -a 127.0.0.1:LINE --state delayed' lists them
! no job is loaded; 'tail -n +2 dump | beanpole load -a 127.0.0.1:LINE' goes on there
! some of the 4 from there on may be there already and come twice
[3]
$ beanpole ls -q --state delayed | beanpole delete -
$ tail -n +2 dump | beanpole load
4
$ beanpole reserve -t t --all -l | xargs
a d a d
$ beanpole kick -t t 9
2";
    load("INSERTED", 4, true, session);
}

#[test]
fn move_says_which_jobs_may_be_in_both_tubes_when_a_connection_is_lost() {
    on_each_server(&[], |scene| {
        let here = line_cut_at(&scene, "delete ", 1, false);
        let there = line_cut_at(&scene, "INSERTED", 1, false);
        let session = "$ beanpole put -q -t from a b
$ beanpole move from to -a HERE --to $BEANPOLE_ADDR
0
! beanpole move: 127.0.0.1:HERE: the server closed the connection
! 1 job may be in both places: 'echo 1 | beanpole peek -a 127.0.0.1:HERE -' shows which are still here; in the same order, 'echo 3 | beanpole peek -a 127.0.0.1:PORT -' shows them there
[3]
$ beanpole delete 3
$ beanpole move from to --to THERE
0
! beanpole move: 127.0.0.1:THERE: the server closed the <any>
! no answer has come about 1 job, from 1 on: still here, and perhaps there, too, where 'beanpole ls -a 127.0.0.1:THERE to' lists what came last
[3]
$ beanpole ls -q from to
1
2
4";
        let session = session.replace("THERE", &there.to_string());
        scene.tell(&session.replace("HERE", &here.to_string()));
    });
}

#[test]
fn the_jobs_count_that_were_done_before_the_server_is_lost() {
    let (listener, port) = listen();
    let document = |text: &str| format!("OK {}\r\n{text}\r\n", text.len());
    let server = thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("a client");
        let lines = BufReader::new(stream.try_clone().expect("a copy")).lines();
        let job = |id| {
            format!(
                "- {{id: {id}, tube: \"t\", state: \"ready\", pri: 0, age: 0, ttr: 1, \
                 time-left: 0, reserves: 0}}\n"
            )
        };
        let jobs = format!("---\njobs:\n{}next: 0\n", [1, 2, 3].map(job).concat());
        for line in lines.map(|line| line.expect("a line")) {
            let answer = match line.split(' ').next() {
                Some("list-jobs") => document(&jobs),
                Some("delete") if line.ends_with('3') => return,
                Some("delete") => "DELETED\r\n".into(),
                _ => document("---\ncurrent-jobs-ready: 3\n"),
            };
            stream.write_all(answer.as_bytes()).expect("a client");
        }
    });
    Scene::at(port).tell(
        "
        $ beanpole delete -t t -y
        2
        ! beanpole delete: 127.0.0.1:PORT: the server closed the connection
        [3]",
    );
    server.join().expect("no surprise");
}

#[test]
fn put_reports_how_far_it_got_when_the_server_is_lost() {
    let (listener, port) = listen();
    let server = thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("a client");
        let mut lines = BufReader::new(stream.try_clone().expect("a copy")).lines();
        assert_eq!(
            lines.next().expect("a line").expect("a line"),
            "use default"
        );
        stream.write_all(b"USING default\r\n").expect("a client");
        // Three times `put`, and its body.
        assert_eq!(lines.take(6).count(), 6);
        stream
            .write_all(b"INSERTED 8\r\nINSERTED 9\r\n")
            .expect("a client");
    });
    Scene::at(port).tell(
        "
        $ beanpole put -t default -- a b c
        8
        9
        ! beanpole put: 127.0.0.1:PORT: the server closed the connection
        ! the first 2 bodies were answered; the next 1 may be jobs, too
        [3]",
    );
    server.join().expect("no surprise");
}

#[test]
fn work_connects_to_the_first_server_that_answers() {
    on_each_server(&[], |mut scene| {
        let (frozen, other) = (Scene::ours(), Scene::ours());
        frozen.signal(Signal::SIGSTOP);
        let [hung, first, second] = [&frozen, &scene, &other].map(Scene::address);
        let work = scene.begin(&format!(
            "beanpole --timeout 0.5 work -n 2 -a {hung} -a {first} -a {second} -- sh -c 'echo $BEANPOLE_ADDR >&2'"
        ));
        scene.tell("$ beanpole put -q x");
        work.log_line(&first);
        scene.await_stat("cmd-delete", 1);
        scene.kill();
        other.tell("$ beanpole put -q y");
        work.log_line(&second);
        assert_eq!(ended(work).0, Some(0));
    });
}

#[test]
fn a_worker_is_not_connected_again_before_the_server_has_answered() {
    let (listener, port) = listen();
    let scene = Scene::at(port);
    let worker = scene.begin("beanpole work -- true");
    // As a server does that has as many connections as it takes.
    for _ in 0..3 {
        drop(listener.accept().expect("a connection"));
    }
    worker.signal(Signal::SIGTERM);
    let (status, said) = ended(worker);
    assert_eq!(status, Some(0));
    assert_eq!(said.matches("trying again").count(), 1, "{said}");
    assert!(!said.contains("connected to"), "{said}");
}
