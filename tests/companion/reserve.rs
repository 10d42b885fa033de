//! What `reserve` does with jobs whose reader is slow, or has ended.

use super::support::on_each_server;
use std::io::Read;
use std::process::{Child, Stdio};
use support::eventually;
use support::session::Scene;

/// `reserve` into a pipe.
fn reserve_into_a_pipe(scene: &Scene, arguments: &str) -> Child {
    let mut shell = scene.shell(&format!("exec beanpole reserve --delete {arguments}"));
    shell.stdout(Stdio::piped()).spawn().expect("a shell")
}

#[test]
fn reserve_does_not_delete_jobs_that_nobody_reads_from_the_pipe() {
    on_each_server(&[], |scene| {
        scene.tell("$ beanpole put -q precious");
        let mut child = reserve_into_a_pipe(&scene, "");
        scene.await_stat("current-jobs-reserved", 1);
        // The reader goes.
        drop(child.stdout.take());
        assert_eq!(child.wait().expect("our child").code(), Some(141));
        scene.await_stat("current-jobs-reserved", 0);
        scene.tell("$ beanpole peek --state ready -l\nprecious");
    });
}

#[test]
fn reserve_touches_a_job_that_is_longer_than_what_the_pipe_takes() {
    on_each_server(&["-z", "300000"], |scene| {
        scene.tell("$ head -c 300000 /dev/zero | beanpole put -q -r 1");
        let mut child = reserve_into_a_pipe(&scene, "");
        let mut output = child.stdout.take().expect("it is piped");
        output.read_exact(&mut [0]).expect("the beginning");
        let mut client = scene.connect();
        eventually("touches", || client.count("cmd-touch") >= 5);
        let mut rest = Vec::new();
        output.read_to_end(&mut rest).expect("the rest");
        assert_eq!(rest.len(), 299_999);
        assert_eq!(child.wait().expect("our child").code(), Some(0));
        scene.tell("$ beanpole ls\n[1]");
    });
}

#[test]
fn reserve_touches_jobs_until_a_slow_reader_has_read_them() {
    on_each_server(&[], |scene| {
        scene.tell("$ beanpole put -q -r 1 one two three");
        let mut child = reserve_into_a_pipe(&scene, "--all -l");
        let mut output = child.stdout.take().expect("it is piped");
        let mut first = [0; 4];
        output.read_exact(&mut first).expect("a body");
        scene.await_stat("current-jobs-reserved", 2);
        // Longer than their time to run, which begins anew meanwhile.
        let mut client = scene.connect();
        eventually("touches", || client.count("cmd-touch") >= 10);
        let mut rest = String::new();
        output.read_to_string(&mut rest).expect("bodies");
        assert_eq!((&first, rest.as_str()), (b"one\n", "two\nthree\n"));
        assert_eq!(child.wait().expect("our child").code(), Some(0));
        scene.tell("$ beanpole ls\n[1]\n$ beanpole reserve -w 0\n! beanpole reserve: no job came in time\n[1]");
    });
}
