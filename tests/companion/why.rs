//! `why` says what keeps jobs from being done; `check` and `top` name it, too.

use super::support::{on_each_server, worker};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::thread;
use std::time::Instant;
use support::{Client, eventually, patience};

#[test]
fn why_says_of_a_worker_that_takes_one_job_after_the_other_that_it_is_busy() {
    on_each_server(&[], |scene| {
        scene.tell("$ beanpole put -q -t mail -r 100000 one two");
        let mut worker = scene.connect();
        worker.exchange("watch mail", "WATCHING 2");
        worker.exchange("use mail", "USING mail");
        // It holds a job for a moment at a time.
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let working = thread::spawn(move || {
            while !stopped.load(SeqCst) {
                worker.put("x");
                let id = worker.reserve().id;
                worker.delete(id);
            }
        });
        // It may be looked at while it has a job.
        eventually("a look between two jobs", || {
            let said = scene.out("beanpole why mail");
            assert!(!said.contains("does not ask"), "{said}");
            said.contains("Its worker is busy; ")
        });
        stop.store(true, SeqCst);
        working.join().expect("a worker");
    });
}

#[test]
fn timeouts_of_jobs_that_are_done_are_no_trouble() {
    on_each_server(&[], |scene| {
        let mut watcher = scene.connect();
        watcher.ask("watch mail");
        scene.tell("$ beanpole put -q -t mail -r 1 a b c");
        let mut late: Vec<Client> = (0..3).map(|_| worker(&scene)).collect();
        // beanstalkd often forgets a reservation until its holder sends something.
        eventually("three timeouts", || {
            late.iter_mut()
                .for_each(|client| drop(client.ask("list-tube-used")));
            scene
                .out("beanpole ls mail --state ready -q")
                .lines()
                .count()
                == 3
        });
        // beanstalkd tells of one of its ready jobs alone.
        if !scene.out("beanpole clients").is_empty() {
            scene.expect(
                "COLUMNS=120 beanpole top -i 10ms | grep -o '^mail !time'",
                "mail !time",
            );
        }
        scene.tell(
            "
            $ beanpole why mail | grep -o -e 'have timed out 3 times' -e '3 of 3 reservations timed out'
            <any>3<any>
            $ beanpole delete 1 2 3; beanpole put -q -t mail -r 1 d
            $ COLUMNS=120 beanpole top -i 10ms | grep -c -e '!time' -e timeouts
            0
            [1]
            $ beanpole why
            Nothing is in the way of any job.",
        );
        drop(late);
    });
}

#[test]
fn growth_is_told_however_many_jobs_wait_and_whoever_puts_them() {
    on_each_server(&[], |scene| {
        // It has put most, and puts none now.
        let mut client = scene.connect();
        client.exchange("use mail", "USING mail");
        for _ in 0..20 {
            client.send("put 0 0 60 1\r\nx\r\n".repeat(1000));
            client.lines(1000);
        }
        // In ten minutes there would not be twice as many.
        let stop = AtomicBool::new(false);
        let is_listed = !scene.out("beanpole clients").is_empty();
        thread::scope(|scope| {
            scope.spawn(|| {
                let begun = Instant::now();
                while !stop.load(SeqCst) && begun.elapsed() < patience() {
                    let mut producer = scene.connect();
                    producer.exchange("use mail", "USING mail");
                    producer.put("x");
                }
            });
            let by = match is_listed {
                true => "; no one connection puts most of them.\n",
                false => "; from whom, this server does not tell.\n",
            };
            let begin = "mail: Nobody watches it; ";
            // A slow machine may see none of them come, or one alone.
            eventually("growth", || {
                let said = scene.out("beanpole why");
                assert!(said.starts_with(begin), "{said}");
                assert!(!said.contains(&client.name()), "{said}");
                said.contains(" It grows by ") && said.ends_with(by)
            });
            stop.store(true, SeqCst);
        });
        let said = scene.out("beanpole why");
        assert!(!said.contains("grows"), "{said}");
    });
}
