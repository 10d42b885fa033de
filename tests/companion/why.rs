//! `why` says what keeps jobs from being done; `check` and `top` name it, too.

use super::support::on_each_server;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::thread;
use std::time::Instant;
use support::session::Scene;
use support::{Client, eventually, patience};

/// A worker that watches these tubes, and has reserved a job.
fn worker(scene: &Scene, tubes: &[&str]) -> Client {
    let mut client = scene.connect();
    for tube in tubes {
        client.ask(&format!("watch {tube}"));
    }
    client.reserve();
    client
}

/// What `why mail` says must fit, but for the number of a connection, which only our
/// server has.
fn why_mail(scene: &Scene, expected: &str) {
    let cut = "sed 's/by connection [0-9]*/by a worker/'";
    scene.expect(&format!("beanpole why mail | {cut}"), expected);
}

#[test]
fn why_names_the_job_that_keeps_workers_busy() {
    on_each_server(&[], |scene| {
        scene.tell(
            "
            $ beanpole put -q -t mail -p 7 -r 100000 slow next
            $ beanpole put -q -t post -p 5 urgent more",
        );
        let _worker = worker(&scene, &["mail", "post"]);
        why_mail(
            &scene,
            "mail: Its worker holds no job of it and does not ask for one; 2 jobs are ready.",
        );
        let _second = worker(&scene, &["mail"]);
        why_mail(
            &scene,
            "mail: None of its 2 workers asks for a job: 1 job is reserved, 1 job is ready. Job 1 is held by a worker for another 27h, at try 1.",
        );
    });
}

#[test]
fn why_uses_the_singular_for_one_worker_and_one_job() {
    on_each_server(&[], |scene| {
        scene.tell("$ beanpole put -q -t mail -r 100000 slow next");
        let _worker = worker(&scene, &["mail"]);
        why_mail(
            &scene,
            "mail: Its worker is busy: 1 job is reserved, 1 job is ready. Job 1 is held by a worker for another 27h, at try 1.",
        );
    });
}

#[test]
fn why_names_the_limit_that_keeps_ready_jobs_from_workers() {
    let scene = Scene::ours();
    scene.tell(
        "
        $ beanpole put -q -t web -r 100000 --limit deploy one two
        $ beanpole put -q -t mail --limit deploy three",
    );
    let _worker = worker(&scene, &["web"]);
    let mut waiting = scene.connect();
    waiting.send("watch web\r\nwatch mail\r\nreserve\r\n");
    scene.await_stat("current-waiting", 1);
    scene.tell(
        "
        $ beanpole why
        web: Its ready job waits for limit deploy:1: job 1 with this key is reserved. Job 1 is held by connection <number> for another 27h, at try 1.
        mail: Its ready job waits for limit deploy:1: jobs with this key are reserved in other tubes.
        [1]
        $ beanpole put -q -t mail -p 1 --limit deploy four
        $ beanpole why mail
        mail: All 2 ready jobs wait for limit deploy:1: jobs with this key are reserved in other tubes.
        [1]",
    );
}

#[test]
fn unique_keys_are_named_if_they_take_their_quarter_of_the_memory() {
    let program = support::program("beanpoled");
    let scene = Scene::start(&program, &["--max-memory", "10000"]);
    scene.tell(
        "
        $ for n in 1 2 3 4 5 6; do beanpole put -q --unique k$n:60 x; beanpole delete $n; done
        $ beanpole put --unique k7:60 x
        ! beanpole put: body 1: the server has no room for it (OUT_OF_MEMORY)
        [4]
        $ beanpole why
        The server takes no jobs with new unique keys: such keys take a quarter of its memory. It has refused 1 put. Deleted jobs have left 6 unique keys taken.
        [1]
        $ beanpole put -q x",
    );
}

#[test]
fn a_tube_that_is_full_or_whose_jobs_expire_is_named() {
    let program = support::program("beanpoled");
    let scene = Scene::start(&program, &["--max-jobs-per-tube", "2"]);
    scene.tell("$ beanpole put -q -t mail one; beanpole put -q -t mail --expire 1 old");
    scene.await_stat("jobs-expired", 1);
    scene.tell(
        "
        $ beanpole check
        BEANSTALK OK: ready 1, reserved 0, delayed 0, buried 0, full 0, <any>
        $ beanpole put -q -t mail two
        $ beanpole put -q -t mail three
        ! beanpole put: body 1: the server has no room for it (OUT_OF_MEMORY)
        [4]
        $ beanpole check
        BEANSTALK CRITICAL: full 1: mail (limit 0) | <any>
        [2]
        $ beanpole why mail
        mail: Nobody watches it; 2 jobs are ready. It is full: puts are refused while it has 2 jobs. Of its jobs, 1 expired untaken.
        [1]
        $ beanpole metrics | grep -e 'tube_max_jobs{' -e 'by_tubes_total{' -e 'expired_total{' | grep mail
        beanstalk_tube_expired_total{tube=\"mail\",server=\"127.0.0.1:PORT\"} 1
        beanstalk_tube_max_jobs{tube=\"mail\",server=\"127.0.0.1:PORT\"} 2",
    );
}

#[test]
fn why_check_and_top_name_a_job_that_makes_workers_crash() {
    on_each_server(&[], |scene| {
        scene.tell("$ beanpole put -q -t mail -d 100000 later\n$ beanpole put -q -t mail poison");
        let mut watcher = scene.connect();
        watcher.ask("watch mail");
        let lose_a_worker = || {
            worker(&scene, &["mail"]).close();
            scene.await_stat("current-jobs-reserved", 0);
        };
        lose_a_worker();
        lose_a_worker();
        scene.tell(
            "
            $ beanpole check --limit tries=2 -t mail
            BEANSTALK OK: ready 1, reserved 0, delayed 1, buried 0, tries 2 of job 2, workers 1, answer <number>us | <any> 'tries'=2;;2;0 'workers'=1;;;0 <any>",
        );
        lose_a_worker();
        scene.tell(
            "
            $ beanpole why
            mail: Job 2 was reserved 3 times, and each time the worker was lost or took too long: 'beanpole ls mail --tries 3' lists such jobs. Its worker holds no job of it and does not ask for one; 1 job is ready.
            [1]
            $ beanpole check --limit tries=2 -t mail
            BEANSTALK CRITICAL: tries 3 of job 2 (limit 2) | <any>
            [2]
            $ COLUMNS=150 beanpole top -i 0.01 | grep -o 'job 2 fails.*'
            job 2 fails at each of 3 tries
            # A job that was released or buried has not failed so.
            $ beanpole bury 2
            $ beanpole why mail
            mail: 1 job is buried, the next one to be kicked is 2. None is ready; 1 job is delayed, the next one for another 27h.
            [1]",
        );
    });
}

#[test]
fn jobs_that_time_out_are_named() {
    let scene = Scene::ours();
    scene.tell("$ beanpole put -q -t mail -r 1 slow");
    // Each of them gets the job when the one before has had it for too long. Many wait,
    // so that this goes on.
    let _late: Vec<Client> = (0..4).map(|_| worker(&scene, &["mail"])).collect();
    let mut waiting: Vec<Client> = (0..100).map(|_| scene.connect()).collect();
    let reserve = |client: &mut Client| client.send("watch mail\r\nreserve\r\n");
    waiting.iter_mut().for_each(reserve);
    scene.tell(
        "
        $ beanpole top -i 10ms | grep -o '^mail !job'
        mail !job
        $ COLUMNS=200 beanpole top -i 10ms | grep -o 'job 1 fails.*'
        job 1 fails at each of <number> tries, <number> timeouts
        $ beanpole why
        mail: Job 1 was reserved <number> times, and each time the worker was lost or took<any>of <number> reservations timed out.
        [1]",
    );
}

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
fn a_producer_that_puts_into_default_is_no_worker() {
    on_each_server(&[], |scene| {
        let mut producer = scene.connect();
        producer.put("x");
        scene.tell(
            "
            $ beanpole why
            default: Nobody watches it; 1 job is ready.
            [1]
            $ beanpole why default
            default: Nobody watches it; 1 job is ready.
            [1]
            $ COLUMNS=120 beanpole top -i 10ms | grep -o 'nobody watches'
            nobody watches
            $ beanpole check -t default --limit workers=1 | grep -o 'workers.*)'
            workers 0 (limit 1)
            $ beanpole metrics | grep 'tube_watching{tube=\"default\"' | cut -d ' ' -f 2
            0",
        );
        let mut worker = scene.connect();
        worker.reserve();
        producer.put("y");
        scene.expect(
            "beanpole why default | cut -d. -f1",
            "default: Its worker is busy: 1 job is reserved, 1 job is ready",
        );
    });
}

#[test]
fn timeouts_of_jobs_that_are_done_are_no_trouble() {
    on_each_server(&[], |scene| {
        let mut watcher = scene.connect();
        watcher.ask("watch mail");
        scene.tell("$ beanpole put -q -t mail -r 1 a b c");
        let mut late: Vec<Client> = (0..3).map(|_| worker(&scene, &["mail"])).collect();
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
        let mut client = scene.connect();
        client.exchange("use mail", "USING mail");
        for _ in 0..20 {
            client.send("put 0 0 60 1\r\nx\r\n".repeat(1000));
            client.lines(1000);
        }
        client.close();
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
                said.contains(" It grows by ") && said.ends_with(by)
            });
            stop.store(true, SeqCst);
        });
        let said = scene.out("beanpole why");
        assert!(!said.contains("grows"), "{said}");
    });
}
