//! `work`: commands that succeed, fail, hang and print much, and what becomes of
//! their jobs.

use super::screen::Screen;
use super::story::{on_each_server, tell};
use super::support::{Directory, PATIENT, Running, Server, servers};

#[test]
fn a_command_gets_body_and_statistics_and_success_deletes_the_job() {
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
        $ work -t mail -t other --count 1 -- sh -c 'env | grep ^BEANPOLE_JOB_ | grep -v AGE | grep -v LEFT | grep -v FILE | grep -v RESERVED_BY | LC_ALL=C sort'
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
fn a_command_knows_the_address_of_its_server() {
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
        TUBE        READY  RESERVED   DELAYED    BURIED      PUTS     USING  WATCHING   WAITING     PAUSE
        default         0         0         1         0         1         0         0         0         0
        $ kick
        1
        $ work --all --backoff 1000 --tries 3 -- sh -c 'kill -9 $$'
        ! beanpole work: job 1 of default: signal 9 (SIGKILL) at try 2; delayed for 2000 s
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
fn the_backoff_has_an_upper_limit() {
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
fn a_missing_command_ends_the_worker_and_releases_the_job() {
    on_each_server(
        r#"
        $ put x
        1
        $ work -- /nonexistent/command
        ! beanpole work: cannot start /nonexistent/command: No such file or directory
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
fn no_byte_is_lost_when_a_command_prints_much_and_reads_nothing() {
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
fn as_many_commands_run_as_there_are_slots() {
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

#[test]
fn a_job_whose_command_kills_its_worker_is_buried_in_the_end() {
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
fn a_job_outlives_a_restart_of_the_server_which_counts_as_no_try() {
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
        // What the end of the server has cut short counts as no reservation.
        tell(
            &server,
            r"
            $ kick
            1
            $ work --all --tries 2 -- false
            ! beanpole work: job 1 of default: exit status 1 at try 2; buried
            [1]
            ",
        );
    }
}

#[test]
fn a_release_by_hand_counts_as_no_try() {
    on_each_server(
        r#"
        $ put x
        1
        $ work --all --tries 2 --backoff 1000 -- false
        ! beanpole work: job 1 of default: exit status 1 at try 1; delayed for 1000 s
        [1]
        $ release 1
        $ work --all --tries 2 --backoff 1000 -- false
        ! beanpole work: job 1 of default: exit status 1 at try 2; delayed for 2000 s
        [1]
        "#,
    );
}

#[test]
fn a_reservation_by_reserve_counts_as_no_try() {
    on_each_server(
        r#"
        $ put x
        1
        $ reserve -l
        x
        $ reserve -l
        x
        $ work -n 1 --tries 3 -- false
        ! beanpole work: job 1 of default: exit status 1 at try 1; delayed for 1 s
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
fn exit_status_65_buries_the_job_and_75_delays_it() {
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
fn a_command_has_no_terminal_to_ask_at() {
    for program in servers() {
        let server = Server::start(&program, &[]);
        tell(&server, "$ put -q x");
        let mut command = server.beanpole();
        command.args([
            "work",
            "--all",
            "--",
            "sh",
            "-c",
            "read answer < /dev/tty || exit 9",
        ]);
        let mut screen = Screen::start(&command, 200, 24);
        screen.wait_for("exit status 9 at try 1; delayed for 1 s");
        assert_eq!(screen.wait(), Some(1));
    }
}
