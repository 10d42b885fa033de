//! `work` is stopped, in order and by force, and its commands with it.

use super::story::tell;
use super::support::{BEANPOLE, PATIENT, Running, Server, group_exists, servers, wait_for};
use std::process::{Command, Stdio};

#[test]
fn the_first_sigterm_lets_commands_finish_and_takes_no_other_job() {
    for program in servers() {
        let server = Server::start(&program, &[]);
        tell(&server, "$ put -q first second");
        let mut worker = Running::start(
            server
                .beanpole()
                .args(["work", "--", "sh", "-c", PATIENT])
                .arg(server.directory.path()),
        );
        server.directory.wait_for("pid");
        worker.signal("TERM");
        worker.wait_for_line("beanpole work: stopping when the commands under way have ended");
        server.directory.write("go", b"");
        assert_eq!(worker.wait(), (0, String::new()));
        tell(&server, "$ reserve --all -l\nsecond");
    }
}

#[test]
fn a_second_sigterm_ends_commands_and_releases_their_jobs() {
    for program in servers() {
        let server = Server::start(&program, &[]);
        tell(&server, "$ put first\n1");
        // It ignores SIGTERM, and so does what it started.
        let script = format!("trap '' TERM\nsleep 1000 &\n{PATIENT}");
        let mut command = server.beanpole();
        command.args(["work", "--grace", "0", "--", "sh", "-c", &script]);
        let mut worker = Running::start(command.arg(server.directory.path()));
        let group = server.directory.wait_for("pid");
        worker.signal("TERM");
        worker.wait_for_line("beanpole work: stopping when the commands under way have ended");
        worker.signal("TERM");
        assert_eq!(
            worker.wait(),
            (
                0,
                "beanpole work: job 1 of default: stopped; released\n".into()
            )
        );
        wait_for("the whole group to be gone", || !group_exists(&group));
        tell(&server, "$ reserve --all -l\nfirst");
    }
}

#[test]
fn an_idle_worker_stops_at_once() {
    for program in servers() {
        let server = Server::start(&program, &[]);
        let worker = Running::start(
            server
                .beanpole()
                .args(["work", "-t", "idle", "-j", "4", "--", "true"]),
        );
        wait_for("four to wait", || {
            server.stats(&["idle"])["current-waiting"] == 4
        });
        worker.signal("HUP");
        let said = "beanpole work: stopping when the commands under way have ended\n";
        assert_eq!(worker.wait(), (0, said.into()));
    }
}

#[test]
fn a_worker_under_nohup_ignores_sighup() {
    for program in servers() {
        let server = Server::start(&program, &[]);
        tell(&server, "$ put -q -t mail x");
        let mut command = Command::new("nohup");
        command
            .arg(BEANPOLE)
            .args(["work", "-t", "mail", "-n", "2", "--"]);
        command
            .args(["sh", "-c", "echo $$ > \"$0/pid.$BEANPOLE_JOB_ID\""])
            .arg(server.directory.path());
        let worker = Running::start(command.env("BEANPOLE_ADDR", server.address()));
        server.directory.wait_for("pid.1");
        worker.signal("HUP");
        tell(&server, "$ put -q -t mail y");
        assert_eq!(worker.wait(), (0, String::new()));
    }
}

/// These tests may be started with nohup, or in the background of a script.
#[test]
fn tests_of_signals_pass_when_the_caller_ignores_signals() {
    let tests = std::env::current_exe().expect("the tests have a name");
    let mut command = Command::new("sh");
    command.args(["-c", "trap '' HUP INT; exec \"$@\"", "sh"]);
    command.arg(tests).args(["--exact", "-q"]);
    command.arg("stopping::an_idle_worker_stops_at_once");
    let mut running = command.stdout(Stdio::null()).spawn().expect("it starts");
    let mut status = None;
    wait_for("the tests to end", || {
        status = running.try_wait().expect("our child");
        status.is_some()
    });
    assert!(status.is_some_and(|status| status.success()));
}

#[test]
fn a_command_ends_when_its_worker_is_killed() {
    for program in servers() {
        let server = Server::start(&program, &[]);
        tell(&server, "$ put -q x");
        let mut command = server.beanpole();
        command.args(["work", "--", "sh", "-c", PATIENT]);
        let worker = Running::unheard(command.arg(server.directory.path()));
        let group = server.directory.wait_for("pid");
        worker.signal("KILL");
        wait_for("the command to be gone", || !group_exists(&group));
    }
}
