//! `work` is stopped, in order and by force, and its commands with it.

use super::support::{PATIENT, ended, group_exists, on_each_server};
use nix::sys::signal::Signal;
use support::session::Scene;
use support::{as_root, eventually};

const STOPPING: &str = "beanpole work: stopping when the commands under way have ended";

#[test]
fn the_first_sigterm_lets_commands_finish_and_takes_no_other_job() {
    on_each_server(&[], |scene| {
        scene.tell("$ beanpole put -q first second");
        let worker = scene.begin(&format!("beanpole work -- {PATIENT}"));
        scene.wait_for_file("pid");
        worker.signal(Signal::SIGTERM);
        worker.log_line(STOPPING);
        scene.write("go", "");
        assert_eq!(ended(worker), (Some(0), String::new()));
        scene.tell("$ beanpole reserve --all -l\nsecond");
    });
}

#[test]
fn a_second_sigterm_ends_commands_and_releases_their_jobs() {
    on_each_server(&[], |scene| {
        scene.tell("$ beanpole put -q first");
        // It ignores SIGTERM, and so does what it started.
        scene.write(
            "stubborn",
            format!("trap '' TERM\nsleep 1000 &\nexec {PATIENT}"),
        );
        let worker = scene.begin("beanpole work --grace 0 -- sh stubborn");
        let group = scene.wait_for_file("pid");
        worker.signal(Signal::SIGTERM);
        worker.log_line(STOPPING);
        worker.signal(Signal::SIGTERM);
        let said = "beanpole work: job 1 of default: stopped; released";
        assert_eq!(ended(worker), (Some(0), said.into()));
        eventually("the whole group to be gone", || !group_exists(&group));
        scene.tell("$ beanpole reserve --all -l\nfirst");
    });
}

#[test]
fn an_idle_worker_stops_at_once() {
    on_each_server(&[], |scene| {
        let worker = scene.begin("beanpole work -t idle -j 4 -- true");
        scene.await_stat("current-waiting", 4);
        worker.signal(Signal::SIGHUP);
        assert_eq!(ended(worker), (Some(0), STOPPING.into()));
    });
}

/// In a container, the orphans of commands come to the worker.
#[test]
fn a_worker_that_is_the_first_process_reaps_the_orphans_of_commands() {
    if !as_root() {
        return;
    }
    let scene = Scene::ours();
    let zombie = "grep -q ') Z 1 ' /proc/[0-9]*/stat";
    scene.write(
        "do",
        format!(
            "(sleep 0.01 &)\nread job\n[ $job = 40 ] || exit 0\n\
             while {zombie} 2>/dev/null; do sleep 0.01; done; echo none"
        ),
    );
    scene.tell("$ seq 40 | beanpole put -q --lines");
    let first = "unshare --pid --fork --kill-child --mount-proc";
    scene.expect(
        &format!("{first} beanpole work --all -j 4 -- sh do"),
        "none",
    );
}

#[test]
fn a_worker_under_nohup_ignores_sighup() {
    on_each_server(&[], |scene| {
        scene.tell("$ beanpole put -q x");
        scene.write("do", "echo $$ > pid.$BEANPOLE_JOB_ID");
        let worker = scene.begin("nohup beanpole work -n 2 -- sh do");
        scene.wait_for_file("pid.1");
        worker.signal(Signal::SIGHUP);
        scene.tell("$ beanpole put -q y");
        assert_eq!(ended(worker).0, Some(0));
    });
}

#[test]
fn a_command_ends_when_its_worker_is_killed() {
    on_each_server(&[], |scene| {
        scene.tell("$ beanpole put -q x");
        let worker = scene.begin(&format!("beanpole work -- {PATIENT}"));
        let group = scene.wait_for_file("pid");
        worker.kill();
        eventually("the command to be gone", || !group_exists(&group));
    });
}
