//! `work`: commands that succeed, fail, hang, print much and ignore signals;
//! servers that restart, come late and take jobs away.

use super::screen::Screen;
use super::story::tell;
use super::support::{Directory, Running, Server, beanpoled, servers, wait_for};
use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::path::PathBuf;

/// Tells a story to a new server of each kind, in a directory of its own.
fn on_each_server(story: &str) {
    for program in servers() {
        tell(&Server::start(&program, &[]), story);
    }
}

#[test]
fn the_command_gets_the_body_and_the_facts_and_success_deletes_the_job() {
    on_each_server(
        r#"
        $ put -t mail -p 3 -r 90 'one\n' '\xff\xfe'
        1
        2
        $ work -t mail --all -- cat
        one
        \xff\xfe⊣
        $ put -t mail -p 3 -r 90 'x'
        3
        $ work -t mail -t other --count 1 -- sh -c 'env | grep ^BEANPOLE_JOB_ | grep -v AGE | grep -v LEFT | grep -v FILE | LC_ALL=C sort'
        BEANPOLE_JOB_BURIES=0
        BEANPOLE_JOB_DELAY=0
        BEANPOLE_JOB_ID=3
        BEANPOLE_JOB_KICKS=0
        BEANPOLE_JOB_PRI=3
        BEANPOLE_JOB_RELEASES=0
        BEANPOLE_JOB_RESERVES=1
        BEANPOLE_JOB_STATE=reserved
        BEANPOLE_JOB_TIMEOUTS=0
        BEANPOLE_JOB_TTR=90
        BEANPOLE_JOB_TUBE=mail
        $ tubes --names
        default
        $ work --all -- echo none
        "#,
    );
}

#[test]
fn a_command_can_talk_to_the_server_that_its_job_came_from() {
    on_each_server(
        r#"
        $ put -t in hello
        1
        $ work -t in --all -- sh -c '"$0" -a "$BEANPOLE_ADDR" put -q -t out "$(cat) again"' BEANPOLE
        $ peek -t out -l
        hello again
        "#,
    );
}

#[test]
fn a_failure_delays_the_job_and_the_last_try_buries_it() {
    on_each_server(
        r#"
        $ put x
        1
        $ work --all --backoff 1000 --tries 2 -- sh -c 'exit 7'
        ! beanpole work: job 1 of default: exit status 7 at try 1; delayed for 1000 s
        [1]
        $ tubes
        TUBE        READY  RESERVED   DELAYED    BURIED     TOTAL     USING  WATCHING   WAITING     PAUSE
        default         0         0         1         0         1         1         1         0         0
        $ kick
        1
        $ work --all --backoff 1000 --tries 3 -- sh -c 'kill -9 $$'
        ! beanpole work: job 1 of default: killed by signal 9 at try 2; delayed for 2000 s
        [1]
        $ kick
        1
        $ work --all --tries 3 -- false
        ! beanpole work: job 1 of default: exit status 1 at try 3; buried
        [1]
        $ peek --buried -l
        x
        "#,
    );
}

#[test]
fn the_back_off_has_an_upper_limit() {
    on_each_server(
        r#"
        $ put -p 9 x
        1
        $ work --all --backoff 1000 --backoff-max 1500 -- false
        ! beanpole work: job 1 of default: exit status 1 at try 1; delayed for 1000 s
        [1]
        $ kick
        1
        $ work --all --backoff 1000 --backoff-max 1500 -- false
        ! beanpole work: job 1 of default: exit status 1 at try 2; delayed for 1500 s
        [1]
        $ work --all --backoff 99999999999 -- false
        ! beanpole work: --backoff: '99999999999' is more than 4294967295 seconds
        ! Try 'beanpole help work'.
        [2]
        "#,
    );
}

#[test]
fn a_command_that_does_not_exist_ends_the_worker_and_gives_the_job_back() {
    on_each_server(
        r#"
        $ put x
        1
        $ work -- /nonexistent/command
        ! beanpole work: cannot start /nonexistent/command: No such file or directory (os error 2)
        [4]
        $ peek --ready -l
        x
        $ work
        ! beanpole work: which command?
        ! Try 'beanpole help work'.
        [2]
        "#,
    );
}

#[test]
fn a_command_that_prints_much_and_reads_nothing_loses_no_byte() {
    for program in servers() {
        let server = Server::start(&program, &["-z", "3000000"]);
        let body = server.directory.write("body", &vec![b'x'; 2_000_000]);
        let put = server
            .beanpole()
            .args(["put", "-q", "-f"])
            .arg(body)
            .status()
            .unwrap();
        assert!(put.success());
        let script = "yes | head -c 5000000; yes error | head -c 1000000 >&2";
        let output = server
            .beanpole()
            .args(["work", "--all", "--", "sh", "-c", script])
            .output();
        let output = output.unwrap();
        assert_eq!(
            (output.stdout.len(), output.stderr.len()),
            (5_000_000, 1_000_000)
        );
        tell(&server, "$ reserve -w 0\n[1]");
    }
}

#[test]
fn a_job_is_touched_while_its_command_runs() {
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
        let stats = server
            .beanpole()
            .args(["stats", "--json"])
            .output()
            .unwrap();
        let stats = String::from_utf8(stats.stdout).unwrap();
        assert!(stats.contains("\"job-timeouts\":0"), "{stats}");
    }
}

#[test]
fn so_many_slots_work_at_the_same_time() {
    for program in servers() {
        let server = Server::start(&program, &[]);
        tell(&server, "$ put -q a b c");
        // Each command waits for all three.
        let script = r#"touch "$0/started.$BEANPOLE_JOB_ID"
            while [ "$(ls "$0" | grep -c started)" -lt 3 ]; do sleep 0.01; done"#;
        let mut command = server.beanpole();
        command.args(["work", "-j", "3", "-n", "3", "--", "sh", "-c", script]);
        command.arg(server.directory.path());
        assert_eq!(Running::start(&mut command).wait(), (0, String::new()));
    }
}

/// Writes its process id, waits until it is told to go on, and ends well.
const PATIENT: &str = r#"echo $$ > "$0/pid.new"; mv "$0/pid.new" "$0/pid"
    until [ -e "$0/go" ]; do sleep 0.01; done"#;

#[test]
fn one_sigterm_lets_the_command_end_and_takes_no_other_job() {
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
fn a_second_sigterm_ends_the_command_and_releases_the_job() {
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
            let output = server
                .beanpole()
                .args(["stats", "idle", "--json"])
                .output()
                .unwrap();
            String::from_utf8_lossy(&output.stdout).contains("\"current-waiting\":4")
        });
        worker.signal("HUP");
        let said = "beanpole work: stopping when the commands under way have ended\n";
        assert_eq!(worker.wait(), (0, said.into()));
    }
}

#[test]
fn a_worker_waits_for_a_server_that_is_not_there_yet() {
    for program in servers() {
        let mut server = Server::start(&program, &[]);
        server.kill();
        let mut worker = Running::start(server.beanpole().args(["work", "-n", "1", "--", "true"]));
        let refused = "Connection refused (os error 111)";
        let port = server.port;
        worker.wait_for_line(&format!(
            "beanpole work: cannot connect to 127.0.0.1:{port}: {refused}; trying again"
        ));
        server.restart();
        worker.wait_for_line(&format!(
            "beanpole work: connected to 127.0.0.1:{port} again"
        ));
        tell(&server, "$ put x\n1");
        assert_eq!(worker.wait(), (0, String::new()));
    }
}

#[test]
fn a_job_outlives_the_restart_of_a_server_with_a_binlog() {
    for program in servers() {
        let binlog = Directory::new();
        let mut server = Server::start(&program, &["-b", binlog.text(), "-f", "0"]);
        tell(&server, "$ put -r 100 -q precious");
        let mut command = server.beanpole();
        command.args(["work", "-n", "1", "--", "sh", "-c", PATIENT]);
        let mut worker = Running::start(command.arg(server.directory.path()));
        server.directory.wait_for("pid");
        server.restart();
        worker.wait_for_line("beanpole work: job 1: taken back");
        server.directory.write("go", b"");
        assert_eq!(worker.wait().0, 0);
        tell(&server, "$ reserve -w 0\n[1]");
    }
}

#[test]
fn a_server_that_forgot_the_job_lets_the_command_end_in_peace() {
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

/// A server of our own making: it answers each line of this script in turn and
/// says which lines it got.
fn scripted(script: &'static [(&'static str, &'static str)]) -> (u16, std::thread::JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let thread = std::thread::spawn(move || {
        let (stream, _) = listener.accept().unwrap();
        let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
        for (expected, answer) in script {
            assert_eq!(lines.next().unwrap().unwrap(), *expected);
            (&stream).write_all(answer.as_bytes()).unwrap();
        }
        // Until the worker has gone.
        lines.for_each(drop);
    });
    (port, thread)
}

#[test]
fn when_the_server_took_the_job_away_the_command_and_its_children_end() {
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
    let mut command = std::process::Command::new(super::support::BEANPOLE);
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
fn when_the_server_is_silent_the_command_ends_with_its_time_to_run() {
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
    let mut command = std::process::Command::new(super::support::BEANPOLE);
    command.args(["-a", &port.to_string(), "work", "-n", "1", "--all", "--"]);
    let worker = Running::start(command.args(["sh", "-c", PATIENT]).arg(directory.path()));
    let group = directory.wait_for("pid");
    let said = "beanpole work: job 5 of a: its time to run was over before the server could be \
                reached; the command was ended\n";
    assert_eq!(worker.wait(), (1, said.into()));
    wait_for("the whole group to be gone", || !group_exists(&group));
    server.join().unwrap();
}

fn group_exists(group: &str) -> bool {
    let group = nix::unistd::Pid::from_raw(group.trim().parse().unwrap());
    nix::sys::signal::killpg(group, None).is_ok()
}

#[test]
fn a_worker_under_nohup_does_not_hear_the_terminal_go() {
    for program in servers() {
        let server = Server::start(&program, &[]);
        tell(&server, "$ put -q -t mail x");
        let mut command = std::process::Command::new("nohup");
        command
            .arg(super::support::BEANPOLE)
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

#[test]
fn every_job_is_done_whatever_ends_meanwhile() {
    for program in servers() {
        let binlog = Directory::new();
        let mut server = Server::start(&program, &["-b", binlog.text(), "-f", "0"]);
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
            let output = server
                .beanpole()
                .args(["stats", "mail", "--json"])
                .output()
                .unwrap();
            let stats = String::from_utf8_lossy(&output.stdout).into_owned();
            ["ready", "reserved", "delayed"]
                .iter()
                .all(|state| stats.contains(&format!("\"current-jobs-{state}\":0,")))
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
fn a_server_that_stalled_longer_than_the_time_to_run_does_not_end_the_worker() {
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
fn idle_slots_leave_the_jobs_of_busy_ones_alone_when_the_server_restarts() {
    for program in servers() {
        let binlog = Directory::new();
        let mut server = Server::start(&program, &["-b", binlog.text(), "-f", "0"]);
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
            let output = server.beanpole().args(["stats", "--json"]).output();
            let said = String::from_utf8(output.unwrap().stdout).unwrap();
            let key = format!("\"current-jobs-{state}\":");
            let number = said.split(&key).nth(1).unwrap().split(',').next();
            number.unwrap().parse::<u64>().unwrap()
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

#[test]
fn a_command_that_kills_its_worker_is_buried_in_the_end() {
    on_each_server(
        r#"
        $ put x
        1
        $ work -n 1 --tries 2 -- sh -c 'kill -9 $PPID'
        [signal: 9 (SIGKILL)]
        $ work -n 1 --tries 2 -- sh -c 'kill -9 $PPID'
        [signal: 9 (SIGKILL)]
        $ work -n 1 --tries 2 -- sh -c 'kill -9 $PPID'
        ! beanpole work: job 1 of default: reserved 2 times to no end; buried without another try
        [1]
        $ kick
        1
        $ work --all --tries 2 -- cat
        x⊣
        "#,
    );
}

#[test]
fn a_restart_of_the_server_is_no_try_but_an_end_without_a_word() {
    for program in servers() {
        let binlog = Directory::new();
        let mut server = Server::start(&program, &["-b", binlog.text(), "-f", "0"]);
        tell(&server, "$ put -r 100 -q precious");
        let script = format!("{PATIENT}; exit 1");
        let mut command = server.beanpole();
        command.args(["work", "-n", "1", "--tries", "2", "--backoff", "1000", "--"]);
        command.args(["sh", "-c", &script]);
        let mut worker = Running::start(command.arg(server.directory.path()));
        for _ in 0..2 {
            server.directory.wait_for("pid");
            server.end();
            server.restart();
            worker.wait_for_line("beanpole work: job 1: taken back");
        }
        server.directory.write("go", b"");
        let said = "beanpole work: job 1 of default: exit status 1 at try 1; delayed for 1000 s\n";
        assert_eq!(worker.wait(), (1, said.into()));
        let end = match program == beanpoled() {
            true => "reserved 2 times to no end; buried without another try",
            // It has forgotten its reservations.
            false => "exit status 1 at try 2; buried",
        };
        let again = "$ kick\n1\n$ work --all --tries 2 -- false";
        tell(
            &server,
            &format!("{again}\n! beanpole work: job 1 of default: {end}\n[1]"),
        );
    }
}

#[test]
fn what_is_released_by_hand_has_as_many_tries_again() {
    on_each_server(
        r#"
        $ put x
        1
        $ work --all --tries 2 --backoff 1000 -- false
        ! beanpole work: job 1 of default: exit status 1 at try 1; delayed for 1000 s
        [1]
        $ release 1
        $ touch --for 0 1
        holding job 1
        $ work --all --tries 2 --backoff 1000 -- false
        ! beanpole work: job 1 of default: exit status 1 at try 2; delayed for 2000 s
        [1]
        "#,
    );
}

#[test]
fn a_command_that_runs_too_long_has_failed() {
    on_each_server(
        r#"
        $ put x
        1
        $ work --all --timeout 1 --tries 1 -- sleep 1000
        ! beanpole work: job 1 of default: it ran too long at try 1; buried
        [1]
        "#,
    );
}

#[test]
fn the_command_can_have_its_job_buried_or_ask_for_another_time() {
    on_each_server(
        r#"
        $ put x
        1
        $ work --all --tries 1 -- sh -c 'exit 75'
        ! beanpole work: job 1 of default: exit status 75; delayed for 60 s
        [1]
        $ kick
        1
        $ work --all --again 1000 -- sh -c 'exit 75'
        ! beanpole work: job 1 of default: exit status 75; delayed for 1000 s
        [1]
        $ kick
        1
        $ work --all -- sh -c 'exit 65'
        ! beanpole work: job 1 of default: exit status 65; buried
        [1]
        $ peek --buried -l
        x
        "#,
    );
}

#[test]
fn a_command_that_asks_at_the_terminal_fails_and_waits_for_nobody() {
    for program in servers() {
        let server = Server::start(&program, &[]);
        tell(&server, "$ put -q x");
        let mut command = server.beanpole();
        command.args(["work", "--all", "--", "sh", "-c", "read answer < /dev/tty"]);
        let mut screen = Screen::start(&command, 200, 24);
        screen.wait_for("exit status 2 at try 1; delayed for 1 s");
        assert_eq!(screen.wait(), Some(1));
    }
}

#[test]
fn the_command_ends_with_its_worker_however_that_ends() {
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
