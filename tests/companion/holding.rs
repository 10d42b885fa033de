//! `work` keeps its jobs while servers restart, come late, stall and take jobs back.

use super::support::{PATIENT, ended, group_exists, on_each_server};
use nix::sys::signal::Signal;
use std::fs;
use support::eventually;
use support::session::Scene;

/// How many files in the folder have names that begin so.
fn count(scene: &Scene, name: &str) -> usize {
    let files = fs::read_dir(scene.folder.path()).expect("a folder");
    let names = files.map(|file| file.expect("a file").file_name());
    names
        .filter(|file| file.to_string_lossy().starts_with(name))
        .count()
}

#[test]
fn work_waits_for_a_server_and_reports_once_why_all_slots_wait() {
    on_each_server(&[], |mut scene| {
        scene.kill();
        let worker = scene.begin("beanpole work -v -j 4 -n 4 -- true");
        let address = scene.address();
        worker.log_line(&format!(
            "work: cannot connect to {address}: Connection refused; trying again"
        ));
        scene.start_again();
        worker.log_line(&format!("work: connected to {address} again after "));
        scene.tell("$ beanpole put -q a b c d");
        let (status, rest) = ended(worker);
        assert!(status == Some(0) && !rest.contains("connect"), "{rest}");
    });
}

#[test]
fn a_command_may_finish_when_a_restarted_server_has_lost_its_job() {
    on_each_server(&[], |mut scene| {
        scene.tell("$ beanpole put -r 100 -q precious");
        let worker = scene.begin(&format!("beanpole work -n 1 -- {PATIENT}"));
        scene.wait_for_file("pid");
        scene.restart();
        worker.log_line("the server closed the connection; trying to keep it");
        scene.tell("$ beanpole put -q another");
        scene.write("go", "");
        ended(worker);
        // Another job of the same number is not taken for ours.
        scene.tell("$ beanpole reserve --all -l\nanother");
    });
}

#[test]
fn a_command_and_its_children_end_when_the_job_is_taken_back() {
    let scene = Scene::ours();
    scene.tell("$ beanpole put -q -t a -r 2 body");
    scene.write(
        "stubborn",
        format!("trap '' TERM\nsleep 1000 &\nexec {PATIENT}"),
    );
    let worker = scene.begin("beanpole work -t a -n 1 --grace 0 -- sh stubborn");
    let group = scene.wait_for_file("pid");
    scene.tell("$ beanpole delete 1 --wait 1m");
    let said = "beanpole work: job 1 of a: the server took it back; the command was ended";
    assert_eq!(ended(worker), (Some(1), said.into()));
    eventually("the whole group to be gone", || !group_exists(&group));
}

#[test]
fn every_job_is_done_although_a_worker_and_the_server_are_killed() {
    on_each_server(&["-b", "jobs", "-f", "0"], |mut scene| {
        scene.tell("$ seq 100 | beanpole put -q -t mail -r 5 -l");
        // Every tenth fails at first; each says when it is done.
        scene.write(
            "do",
            "read number
            if [ $((number % 10)) = 0 ] && [ ! -e failed.$number ]; then
                touch failed.$number; exit 1
            fi
            sleep 0.01; touch done.$number",
        );
        let worker = "beanpole work -t mail -j 4 --backoff 0 -- sh do";
        let first = scene.begin(worker);
        eventually("some to be done", || count(&scene, "done") >= 10);
        first.kill();
        let second = scene.begin(worker);
        eventually("more to be done", || count(&scene, "done") >= 40);
        scene.restart();
        eventually("all to be done", || count(&scene, "done") == 100);
        // One that was under way when the server ended may be done again.
        let left = ["ready", "reserved", "delayed"].map(|state| format!("current-jobs-{state}"));
        let mut client = scene.connect();
        eventually("all to be deleted", || {
            left.iter().all(|key| client.count(key) == 0)
        });
        second.signal(Signal::SIGTERM);
        assert_eq!(ended(second).0, Some(0));
        assert_eq!(client.count("current-jobs-buried"), 0);
    });
}

#[test]
fn a_worker_survives_a_server_that_stalls_longer_than_the_time_to_run() {
    on_each_server(&[], |scene| {
        scene.tell("$ beanpole put -q -r 1 slow");
        let worker = scene.begin(&format!("beanpole work -n 2 -- {PATIENT}"));
        scene.wait_for_file("pid");
        scene.signal(Signal::SIGSTOP);
        worker.log_line(
            "job 1 of default: its time to run was over before the server could be reached",
        );
        scene.write("go", "");
        scene.signal(Signal::SIGCONT);
        assert_eq!(ended(worker), (Some(1), String::new()));
        scene.tell("$ beanpole reserve -w 0\n! beanpole reserve: no job came in time\n[1]");
    });
}

#[test]
fn idle_slots_take_no_job_that_a_busy_slot_is_taking_back() {
    on_each_server(&["-b", "jobs", "-f", "0"], |mut scene| {
        scene.tell("$ beanpole put -q -r 100 a b c d e f");
        scene.write(
            "do",
            "touch started.$$; until [ -e go ]; do sleep 0.01; done",
        );
        let worker = scene.begin("beanpole work -j 12 -- sh do");
        eventually("six to run", || count(&scene, "started") == 6);
        scene.restart();
        scene.await_stat("current-jobs-reserved", 6);
        scene.write("go", "");
        scene.await_stat("current-jobs-reserved", 0);
        scene.await_stat("current-jobs-ready", 0);
        worker.signal(Signal::SIGTERM);
        assert_eq!(ended(worker).0, Some(0));
        assert_eq!(count(&scene, "started"), 6);
    });
}

#[test]
fn a_job_outlives_a_restart_of_the_server_which_counts_as_no_try() {
    on_each_server(&["-b", "jobs", "-f", "0"], |mut scene| {
        scene.tell("$ beanpole put -r 100 -q precious");
        scene.write("do", format!("{PATIENT}; exit 1"));
        let worker = scene.begin("beanpole work -n 1 --tries 2 --backoff 1000 -- sh do");
        scene.wait_for_file("pid");
        for _ in 0..2 {
            scene.end();
            scene.start_again();
            worker.log_line("beanpole work: job 1: taken back");
        }
        scene.write("go", "");
        let said = "beanpole work: job 1 of default: exit status 1 at try 1; delayed for 1000 s";
        assert_eq!(ended(worker), (Some(1), said.into()));
        // What the end of the server has cut short counts as no reservation.
        scene.tell(
            "
            $ beanpole kick
            1
            $ beanpole work --all --tries 2 -- false
            ! beanpole work: job 1 of default: exit status 1 at try 2; buried
            [1]",
        );
    });
}
