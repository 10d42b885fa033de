//! What becomes of jobs that are on their way when the line is cut, and what the
//! program says of them.

use super::story::tell;
use super::support::{CutLine, Running, Server, servers, wait_for};
use std::path::{Display, PathBuf};

/// A dump of a ready job, two buried ones and a ready one.
fn dump(server: &Server) -> PathBuf {
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
    let text = format!("{{\"beanpole-dump\":1}}\n{jobs}{{\"beanpole-dump-end\":1,\"jobs\":4}}\n");
    server.directory.write("dump", text.as_bytes())
}

const IN_PLACE: &str = "$ ls t -q --state ready\n1\n4\n$ ls t -q --state buried\n2\n3";

/// Loads the dump over a line that is cut when this word passes, and that may
/// come back.
fn load(word: &'static str, comes_back: bool, story: impl Fn(Display<'_>, u16) -> String) {
    for program in servers() {
        let server = Server::start(&program, &[]);
        let (dump, line) = (dump(&server), CutLine::to(&server, word, comes_back));
        tell(&server, &story(dump.display(), line.port));
    }
}

/// With a new connection, the jobs that were put are buried nevertheless.
#[test]
fn load_buries_its_jobs_over_a_new_connection_after_the_first_is_lost() {
    load("reserve-job", true, |dump, port| {
        format!(
            "$ load -a {port} '{dump}'\n\
             ! beanpole load: {dump} line 6: 127.0.0.1:{port}: the server closed the connection\n\
             ! 4 jobs are loaded; 'load --from 6' goes on there\n[3]\n\
             {IN_PLACE}\n$ load --from 6 '{dump}'\n0"
        )
    });
}

/// Without one, it says how to bury them.
#[test]
fn load_says_how_to_bury_jobs_that_it_could_not_and_does_not_count_them() {
    load("reserve-job", false, |dump, port| {
        format!(
            "$ load -a {port} '{dump}'\n\
             ! beanpole load: {dump} line 6: 127.0.0.1:{port}: the server closed the connection\n\
             ! 2 jobs that should be buried are delayed for 136 years instead: 'seq 2 3 | beanpole bury -a 127.0.0.1:{port} -' buries them\n\
             ! 2 jobs are loaded; 'load --from 6' goes on there\n[3]\n\
             $ ls t -q --state delayed\n2\n3\n$ bury - < '2\\n3\\n'\n{IN_PLACE}"
        )
    });
}

/// The answers to all puts are lost: those that wait to be buried are deleted
/// again, and come when the load goes on.
#[test]
fn load_leaves_no_job_delayed_that_should_be_buried_when_answers_are_lost() {
    load("INSERTED", true, |dump, port| {
        format!(
            "$ load -a {port} '{dump}'\n\
             ! beanpole load: {dump} line 2: 127.0.0.1:{port}: the server closed the connection\n\
             ! no job is loaded; 'load --from 2' goes on there\n\
             ! some of the 4 from there on may be there already and come twice\n[3]\n\
             $ ls t -q --state delayed\n[1]\n$ load --from 2 '{dump}'\n4\n\
             $ reserve -t t --all -l\na\nd\na\nd\n$ kick -t t 9\n2"
        )
    });
}

#[test]
fn move_says_which_jobs_may_be_in_both_tubes_when_a_connection_is_lost() {
    for program in servers() {
        let server = Server::start(&program, &[]);
        let (here, there) = (
            CutLine::to(&server, "delete ", false),
            CutLine::to(&server, "INSERTED", false),
        );
        let (here, there, own) = (here.port, there.port, server.address());
        tell(
            &server,
            &format!(
                "$ put -q -t from a b\n\
                 $ move from to -a {here} --to {own}\n0\n\
                 ! beanpole move: 127.0.0.1:{here}: the server closed the connection\n\
                 ! 1 job may be in both places: 'echo 1 | beanpole peek -a 127.0.0.1:{here} -' shows which are still here; in the same order, 'echo 3 | beanpole peek -a 127.0.0.1:PORT -' shows them there\n[3]\n\
                 $ delete 3\n\
                 $ move from to --to {there}\n0\n\
                 ! beanpole move: 127.0.0.1:{there}: the server closed the connection\n\
                 ! no answer has come about 1 job, from 1 on: still here, and perhaps there, too, where 'beanpole ls -a 127.0.0.1:{there} to' lists what came last\n[3]\n\
                 $ ls -q from to\n1\n2\n4"
            ),
        );
    }
}

#[test]
fn put_goes_on_with_the_next_server_that_serves() {
    for program in servers() {
        let (server, other) = (Server::start(&program, &[]), Server::start(&program, &[]));
        let (gone, second) = (
            CutLine::to(&server, "INSERTED", false).port,
            other.address(),
        );
        tell(
            &server,
            &format!(
                "$ put -a 1 -a 127.0.0.1:PORT first\n1\n\
                 $ put -a {gone} -a {second} a\n1\n\
                 ! beanpole put: 127.0.0.1:{gone}: the server closed the connection; going on at {second}, where 1 bodies may come twice"
            ),
        );
        tell(&other, "$ peek 1\na⊣");
    }
}

#[test]
fn a_worker_goes_to_the_first_server_that_serves() {
    for program in servers() {
        let (mut server, other) = (Server::start(&program, &[]), Server::start(&program, &[]));
        let (first, second) = (server.address(), other.address());
        let frozen = Server::start(&program, &[]);
        frozen.signal("STOP");
        let hung = frozen.address();
        let mut work = server.beanpole();
        work.args([
            "--timeout",
            "0.5",
            "work",
            "-n",
            "2",
            "-a",
            &hung,
            "-a",
            &first,
            "-a",
            &second,
        ]);
        work.args(["--", "sh", "-c", "echo $BEANPOLE_ADDR >&2"]);
        let mut work = Running::start(&mut work);
        tell(&server, "$ put -q x");
        work.wait_for_line(&first);
        wait_for("the job to be done", || {
            let stats = server
                .beanpole()
                .args(["stats", "--json"])
                .output()
                .unwrap();
            String::from_utf8_lossy(&stats.stdout).contains("\"cmd-delete\":1,")
        });
        server.kill();
        tell(&other, "$ put -q y");
        work.wait_for_line(&second);
        assert_eq!(work.wait().0, 0);
    }
}
