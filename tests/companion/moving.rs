//! Jobs between servers: move, dump and load.

use super::support::{ended, listen, on_each_server};
use nix::sys::signal::Signal;
use std::io::Read;
use std::os::unix::process::ExitStatusExt;
use support::Server;
use support::session::Scene;

#[test]
fn an_interrupted_move_or_copy_finishes_the_jobs_under_way_and_counts_them() {
    on_each_server(&[], |source| {
        let target = Scene::ours();
        // It is interrupted while it waits for the second server, which is stopped.
        // On a busy machine that may take more than the usual ten seconds.
        let interrupted = |act: &str, key: &str, value: u64, count: u64| {
            target.signal(Signal::SIGSTOP);
            let to = target.address();
            let command = format!("beanpole --timeout 5m {act} --to {to} > out");
            let running = source.begin(&command);
            source.await_stat(key, value);
            running.signal(Signal::SIGINT);
            target.signal(Signal::SIGCONT);
            let (status, said) = running.wait();
            let (name, _) = act.split_once(' ').expect("a command");
            let expected = format!(
                "beanpole {name}: interrupted: 1 of {count} jobs are done, the others are as they were"
            );
            assert_eq!((status.code(), said), (Some(130), vec![expected]));
            assert_eq!(source.read("out"), "1\n");
        };
        source.tell("$ beanpole put -q -t a one two three");
        interrupted("move a b", "current-jobs-reserved", 1, 3);
        source.tell("$ beanpole reserve -t a --all -l\ntwo\nthree");
        target.tell("$ beanpole reserve -t b --all -l --delete\none");

        source.tell("$ beanpole put -q -t c one two three\n$ beanpole bury 4 5 6");
        interrupted("move c b", "cmd-peek", 1, 3);
        source.tell("$ beanpole peek 5 6 -l\ntwo\nthree");
        target.tell("$ beanpole peek -t b --state buried -l\none");

        interrupted("move --keep a d", "cmd-peek", 4, 2);
        target.tell("$ beanpole reserve -t d --all -l\ntwo");
    });
}

#[test]
fn a_load_that_waits_for_the_rest_of_a_line_is_interrupted_at_once() {
    on_each_server(&[], |scene| {
        let line = r#"{"body":"a"}"#;
        let loads = format!(
            "mkfifo dump; exec 9<> dump; printf '%s\\n%.5s' '{line}' '{line}' >&9; \
             exec beanpole load dump"
        );
        let loading = Server::spawn(&mut scene.shell(&loads));
        scene.await_stat("current-jobs-ready", 1);
        loading.signal(Signal::SIGINT);
        let said = format!(
            "beanpole load: dump line 2: interrupted\n\
             1 job is loaded; 'tail -n +2 dump | beanpole load -a {}' goes on there",
            scene.address()
        );
        assert_eq!(ended(loading), (Some(130), said));
    });
}

#[test]
fn what_is_interrupted_at_one_of_several_servers_is_not_done_at_the_next() {
    on_each_server(&[], |scene| {
        let silent = Scene::ours();
        silent.signal(Signal::SIGSTOP);
        scene.tell("$ beanpole put -q -t a one two");
        // The last one is the first one, by another name.
        let (first, port, second) = (scene.address(), scene.port, silent.address());
        let servers = format!("-a {first} -a {second} -a localhost:{port}");
        let deleting = scene.begin(&format!(
            "beanpole --timeout 5m {servers} delete -t a -n 1 -y"
        ));
        scene.await_stat("cmd-delete", 1);
        deleting.signal(Signal::SIGINT);
        silent.signal(Signal::SIGCONT);
        let (status, said) = ended(deleting);
        assert_eq!(status, Some(130), "{said}");
        assert!(said.contains("interrupted: 0 of 1 jobs are done"), "{said}");
        scene.tell("$ beanpole ls -q\n2");
    });
}

#[test]
fn a_load_ends_at_once_when_it_is_interrupted_before_it_has_begun() {
    let (listener, port) = listen();
    let scene = Scene::at(port);
    let loading = scene.begin("beanpole --timeout 5m load /dev/null");
    let (mut silent, _) = listener.accept().expect("a connection");
    silent.read_exact(&mut [0]).expect("a question");
    loading.signal(Signal::SIGINT);
    let (status, said) = loading.wait();
    assert_eq!((status.signal(), said), (Some(2), vec![]));
}
