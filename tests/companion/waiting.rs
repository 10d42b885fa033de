//! `--wait` of the acts on jobs: they take a job that a worker has at the moment at
//! which that is over.

use super::support::{ended, on_each_server, worker};
use nix::sys::signal::Signal;
use support::session::Scene;
use support::{Client, eventually};

#[test]
fn bury_and_delete_with_wait_take_a_job_when_its_worker_is_lost_late_or_releases_it() {
    on_each_server(&[], |scene| {
        scene.tell("$ beanpole put -q -t mail one two; beanpole put -q -t mail -r 1 three; beanpole put -q -t mail four");
        let mut held: Vec<Client> = (0..4).map(|_| worker(&scene)).collect();
        let bury = scene.begin("beanpole bury 1 2 3 --wait 1m -p 7");
        let delete = scene.begin("beanpole delete 4 --wait 1m");
        // Both have seen that their jobs are reserved.
        let mut client = scene.connect();
        eventually("both to wait", || client.count("cmd-stats-job") >= 4);
        held[1].exchange("release 2 0 0", "RELEASED");
        held[3].exchange("release 4 0 100", "RELEASED");
        held.remove(0).close();
        // The reference server often forgets the end of a time to run until it hears
        // from the worker.
        eventually("the third to be late", || {
            held[1].ask("list-tube-used");
            client.document("stats-job 3").contains("timeouts: 1\n")
        });
        assert_eq!(ended(bury), (Some(0), String::new()));
        assert_eq!(ended(delete).0, Some(0));
        scene.tell("$ beanpole ls mail -q --pri 7\n1\n2\n3\n$ beanpole ls mail -q --state buried | wc -l\n3");
    });
}

#[test]
fn release_and_kick_job_with_wait_act_when_the_worker_releases_the_job() {
    on_each_server(&[], |scene| {
        scene.tell("$ beanpole put -q -t mail one two");
        let mut client = scene.connect();
        for (id, act) in [(1, "release 1 -p 7 -d 1000"), (2, "kick-job 2")] {
            let mut held = worker(&scene);
            let before = client.count("cmd-stats-job");
            let waiting = scene.begin(&format!("beanpole {act} --wait 1m"));
            eventually("it to wait", || client.count("cmd-stats-job") > before);
            held.exchange(&format!("release {id} 0 0"), "RELEASED");
            assert_eq!(ended(waiting), (Some(0), String::new()));
        }
        scene.tell("$ beanpole ls mail -q --state delayed --pri 7\n1\n$ beanpole ls mail -q --state ready\n2");
    });
}

#[test]
fn delete_with_wait_takes_a_job_from_a_worker_that_touches_it() {
    let scene = Scene::ours();
    scene.tell("$ beanpole put -q -t mail one");
    let mut held = worker(&scene);
    let delete = scene.begin("beanpole delete 1 --wait 1m");
    eventually("the worker to lose it", || {
        held.send("touch 1\r\n");
        held.line() == "NOT_FOUND"
    });
    assert_eq!(ended(delete), (Some(0), String::new()));
}

#[test]
fn a_signal_ends_the_wait_for_a_worker() {
    on_each_server(&[], |scene| {
        scene.tell("$ beanpole put -q -t mail one");
        let _held = worker(&scene);
        let mut client = scene.connect();
        for act in ["bury", "delete"] {
            let before = client.count("cmd-stats-job");
            let waiting = scene.begin(&format!("beanpole {act} 1 --wait 1h"));
            eventually("it to wait", || client.count("cmd-stats-job") > before);
            waiting.signal(Signal::SIGTERM);
            let said = format!("beanpole {act}: interrupted: 1 job is still reserved");
            assert_eq!(ended(waiting), (Some(130), said));
        }
    });
}
