//! Jobs between servers: move, dump and load.

use super::support::on_each_server;
use nix::sys::signal::Signal;
use support::session::{Scene, servers};

#[test]
fn jobs_move_between_any_two_servers() {
    for source in servers() {
        for target in servers() {
            let (source, target) = (Scene::start(&source, &[]), Scene::start(&target, &[]));
            let to = target.address();
            source.tell(&format!(
                "
                $ beanpole put -q -t a -p 5 one two; beanpole put -q -t a -d 5000 three; beanpole put -q -t a four
                $ beanpole bury 4
                $ beanpole move --keep a a --to {to} --state ready
                2
                $ beanpole move a a --to {to}
                4
                $ beanpole dump a
                ! beanpole dump: there is no tube 'a'
                [1]
                $ beanpole dump -a {to} | beanpole load
                6"
            ));
            // What was dumped there is here now.
            for scene in [&source, &target] {
                scene.tell(
                    "
                    $ beanpole tubes a | tail -n 1 | tr -s ' ' | cut -d ' ' -f -6
                    a 4 0 1 1 6",
                );
            }
        }
    }
}

#[test]
fn tubes_keep_their_names_on_the_other_server_and_several_are_asked_about() {
    for program in servers() {
        let (source, target) = (Scene::start(&program, &[]), Scene::start(&program, &[]));
        let to = target.address();
        source.tell(&format!(
            "
            $ for tube in a b c; do beanpole put -q -t $tube -p 5 in-$tube; done
            $ beanpole move '*' --to {to}
            ! beanpole move: Move 3 ready jobs of <number> tubes to tubes of these names at <any>? no terminal to ask at: give --yes if you mean it
            ! Try 'beanpole help move'.
            [2]
            $ beanpole move '*' --to {to} --dry-run
            3
            $ beanpole move a --to {to} --keep
            1
            $ beanpole move '*' --to {to} --yes
            3
            $ beanpole ls
            [1]
            $ beanpole -a {to} move a
            ! beanpole move: which jobs to 'a'? give FROM and TO, or - and TO
            ! Try 'beanpole help move'.
            [2]
            $ beanpole -a {to} move a --to {to}
            ! beanpole move: both are the same tube
            ! Try 'beanpole help move'.
            [2]"
        ));
        target.tell(
            "
            $ for tube in a b c; do beanpole ls $tube -q | wc -l; done
            2
            1
            1",
        );
    }
}

#[test]
fn move_leaves_a_job_that_the_other_server_refuses() {
    for program in servers() {
        let (source, target) = (
            Scene::start(&program, &[]),
            Scene::start(&program, &["-z", "5"]),
        );
        let to = target.address();
        source.tell(&format!(
            "
            $ beanpole put -q -t mail one 'much too long' three; beanpole put -q -t mail -d 1000 'also too long'
            $ beanpole move mail mail --to {to} --state ready
            1
            ! beanpole move: job 2: put: the body is larger than the server takes (JOB_TOO_BIG)
            [4]
            $ beanpole move --keep mail mail --to {to} --state delayed
            0
            ! beanpole move: job 4: put: the body is larger than the server takes (JOB_TOO_BIG)
            [4]
            $ beanpole reserve -t mail --all -l
            much too long
            three"
        ));
        target.tell("$ beanpole reserve -t mail --all -l\none");
    }
}

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
