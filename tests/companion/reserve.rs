//! Taking jobs, and what is done with them then.

use super::story::tell;
use super::support::{Server, servers, wait_for};
use std::io::Read;
use std::process::Stdio;

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
