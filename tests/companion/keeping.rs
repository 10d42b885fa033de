//! `work` keeps its jobs while servers restart, come late, stall and take jobs
//! away.

use super::story::tell;
use super::support::{
    BEANPOLE, Directory, PATIENT, Running, Server, group_exists, scripted, servers, wait_for,
};
use std::path::{Path, PathBuf};
use std::process::Command;

/// A server that keeps its jobs, behind the directory where it does.
fn with_binlog(program: &Path) -> (Directory, Server) {
    let binlog = Directory::new();
    let server = Server::start(program, &["-b", binlog.text(), "-f", "0"]);
    (binlog, server)
}

#[test]
fn work_reports_once_why_all_slots_wait() {
    for program in servers() {
        let mut server = Server::start(&program, &[]);
        server.kill();
        let arguments = ["work", "-v", "-j", "4", "-n", "4", "--", "true"];
        let mut worker = Running::start(server.beanpole().args(arguments));
        let port = server.port;
        let refused = format!("cannot connect to 127.0.0.1:{port}: Connection refused");
        worker.wait_for_line(&format!("beanpole work: {refused}; trying again"));
        server.restart();
        worker.wait_for_line_with("again after ");
        tell(&server, "$ put -q a b c d");
        let (status, rest) = worker.wait();
        assert_eq!(status, 0);
        assert!(!rest.contains("connect"), "{rest}");
    }
}

#[test]
fn work_touches_a_job_while_its_command_runs() {
    let begin = |program: PathBuf| {
        let server = Server::start(&program, &[]);
        tell(&server, "$ put -r 3 slow\n1");
        let mut command = server.beanpole();
        // Twice its time to run.
        command.args(["work", "-n", "1", "--", "sleep", "6"]);
        (server, Running::start(&mut command))
    };
    for (server, worker) in servers().into_iter().map(begin).collect::<Vec<_>>() {
        assert_eq!(worker.wait(), (0, String::new()));
        tell(&server, "$ reserve -w 0\n[1]");
        assert_eq!(server.stats(&[])["job-timeouts"], 0);
    }
}

#[test]
fn work_waits_for_a_server_that_is_not_up_yet() {
    for program in servers() {
        let mut server = Server::start(&program, &[]);
        server.kill();
        let mut worker = Running::start(server.beanpole().args(["work", "-n", "1", "--", "true"]));
        let refused = "Connection refused";
        let port = server.port;
        worker.wait_for_line(&format!(
            "beanpole work: cannot connect to 127.0.0.1:{port}: {refused}; trying again"
        ));
        server.restart();
        worker.wait_for_line_with(&format!(
            "beanpole work: connected to 127.0.0.1:{port} again after "
        ));
        tell(&server, "$ put x\n1");
        assert_eq!(worker.wait(), (0, String::new()));
    }
}

#[test]
fn a_command_may_finish_when_a_restarted_server_has_lost_its_job() {
    for program in servers() {
        let mut server = Server::start(&program, &[]);
        tell(&server, "$ put -r 100 -q precious");
        let mut command = server.beanpole();
        command.args(["work", "-n", "1", "--", "sh", "-c", PATIENT]);
        let mut worker = Running::start(command.arg(server.directory.path()));
        server.directory.wait_for("pid");
        server.restart();
        worker.wait_for_line(&format!(
            "beanpole work: job 1: 127.0.0.1:{}: the server closed the connection; trying to keep it",
            server.port
        ));
        tell(&server, "$ put another\n1");
        server.directory.write("go", b"");
        worker.wait();
        // Another job of the same number is not taken for ours.
        tell(&server, "$ reserve --all -l\nanother");
    }
}

#[test]
fn a_command_and_its_children_end_when_the_server_has_taken_the_job_back() {
    let (port, server) = scripted(&[
        ("reserve-with-timeout 0", "RESERVED 5 4\r\nbody\r\n"),
        (
            "stats-job 5",
            "OK 76\r\n---\nid: 5\ntube: a\nstate: reserved\npri: 0\nage: 0\ndelay: 0\nttr: 5\nreserves: 1\n\r\n",
        ),
        ("touch 5", "TOUCHED\r\n"),
        ("touch 5", "NOT_FOUND\r\n"),
    ]);
    let directory = Directory::new();
    let script = format!("trap '' TERM\nsleep 1000 &\n{PATIENT}");
    let mut command = Command::new(BEANPOLE);
    command.args([
        "-a",
        &port.to_string(),
        "work",
        "-n",
        "1",
        "--all",
        "--grace",
        "0",
        "--",
    ]);
    let worker = Running::start(command.args(["sh", "-c", &script]).arg(directory.path()));
    let group = directory.wait_for("pid");
    let said = "beanpole work: job 5 of a: the server took it back; the command was ended\n";
    assert_eq!(worker.wait(), (1, said.into()));
    wait_for("the whole group to be gone", || !group_exists(&group));
    server.join().unwrap();
}

#[test]
fn a_command_ends_with_the_time_to_run_when_the_server_is_silent() {
    let (port, server) = scripted(&[
        ("reserve-with-timeout 0", "RESERVED 5 4\r\nbody\r\n"),
        (
            "stats-job 5",
            "OK 76\r\n---\nid: 5\ntube: a\nstate: reserved\npri: 0\nage: 0\ndelay: 0\nttr: 5\nreserves: 1\n\r\n",
        ),
        ("touch 5", "TOUCHED\r\n"),
        ("touch 5", ""),
    ]);
    let directory = Directory::new();
    let mut command = Command::new(BEANPOLE);
    command.args(["-a", &port.to_string(), "work", "-n", "1", "--all", "--"]);
    let worker = Running::start(command.args(["sh", "-c", PATIENT]).arg(directory.path()));
    let group = directory.wait_for("pid");
    let said = "beanpole work: job 5 of a: its time to run was over before the server could be \
                reached; the command was ended\n";
    assert_eq!(worker.wait(), (1, said.into()));
    wait_for("the whole group to be gone", || !group_exists(&group));
    server.join().unwrap();
}

#[test]
fn every_job_is_done_although_a_worker_and_the_server_are_killed() {
    for program in servers() {
        let (_binlog, mut server) = with_binlog(&program);
        let lines: String = (1..=100).map(|number| format!("{number}\n")).collect();
        let lines = server.directory.write("lines", lines.as_bytes());
        let put = server
            .beanpole()
            .args(["put", "-q", "-t", "mail", "-r", "5", "-l", "-f"])
            .arg(lines)
            .status();
        assert!(put.unwrap().success());
        // Some fail at first; each says when it is done.
        let script = r#"read number
            if [ $((number % 10)) = 0 ] && [ ! -e "$0/failed.$number" ]; then
                touch "$0/failed.$number"; exit 1
            fi
            sleep 0.01; touch "$0/done.$number""#;
        let worker = |server: &Server| {
            let mut command = server.beanpole();
            command.args([
                "work",
                "-t",
                "mail",
                "-j",
                "4",
                "--backoff",
                "0",
                "--",
                "sh",
                "-c",
                script,
            ]);
            command.arg(server.directory.path());
            Running::unheard(&mut command)
        };
        let count = |directory: &Directory| {
            let names = std::fs::read_dir(directory.path()).unwrap();
            names
                .filter(|name| {
                    name.as_ref()
                        .unwrap()
                        .file_name()
                        .to_string_lossy()
                        .starts_with("done")
                })
                .count()
        };
        let first = worker(&server);
        wait_for("some to be done", || count(&server.directory) >= 10);
        // Dropping it is SIGKILL.
        drop(first);
        let second = worker(&server);
        wait_for("more to be done", || count(&server.directory) >= 40);
        server.restart();
        wait_for("all to be done", || count(&server.directory) == 100);
        // One that was under way when the server ended may be done again.
        wait_for("all to be deleted", || {
            let stats = server.stats(&["mail"]);
            let mut states = ["ready", "reserved", "delayed"].into_iter();
            states.all(|state| stats[format!("current-jobs-{state}")].as_u64() == Some(0))
        });
        second.signal("TERM");
        assert_eq!(second.wait().0, 0);
        tell(
            &server,
            "$ reserve -t mail -w 0\n[1]\n$ ls mail\n! beanpole ls: there is no tube 'mail'\n[1]",
        );
    }
}

#[test]
fn a_worker_survives_a_server_that_stalls_longer_than_the_time_to_run() {
    for program in servers() {
        let server = Server::start(&program, &[]);
        tell(&server, "$ put -q -r 1 slow");
        let mut command = server.beanpole();
        command.args(["work", "-n", "2", "--", "sh", "-c", PATIENT]);
        let mut worker = Running::start(command.arg(server.directory.path()));
        server.directory.wait_for("pid");
        server.signal("STOP");
        worker.wait_for_line(
            "beanpole work: job 1 of default: its time to run was over before the server could be \
             reached; the command was ended",
        );
        server.directory.write("go", b"");
        server.signal("CONT");
        assert_eq!(worker.wait(), (1, String::new()));
        tell(&server, "$ tubes --names\ndefault\n$ reserve -w 0\n[1]");
    }
}

#[test]
fn idle_slots_take_no_job_that_a_busy_slot_is_taking_back() {
    for program in servers() {
        let (_binlog, mut server) = with_binlog(&program);
        tell(&server, "$ put -q -r 100 a b c d e f");
        let script = r#"touch "$0/started.$$"; until [ -e "$0/go" ]; do sleep 0.01; done"#;
        let mut command = server.beanpole();
        command.args(["work", "-j", "12", "--", "sh", "-c", script]);
        let worker = Running::unheard(command.arg(server.directory.path()));
        let started = |server: &Server| {
            let names = std::fs::read_dir(server.directory.path()).unwrap();
            let names = names.map(|name| name.unwrap().file_name().into_string().unwrap());
            names.filter(|name| name.starts_with("started")).count()
        };
        let jobs = |server: &Server, state: &str| {
            let count = &server.stats(&[])[format!("current-jobs-{state}")];
            count.as_u64().expect("a number of jobs")
        };
        wait_for("six to run", || started(&server) == 6);
        server.restart();
        wait_for("six to be reserved", || jobs(&server, "reserved") == 6);
        server.directory.write("go", b"");
        wait_for("all to be done", || {
            jobs(&server, "reserved") + jobs(&server, "ready") == 0
        });
        worker.signal("TERM");
        assert_eq!(worker.wait().0, 0);
        assert_eq!(started(&server), 6);
    }
}
