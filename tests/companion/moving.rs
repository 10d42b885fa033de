//! Many jobs at a time: clear, move and copy.

use super::screen::Screen;
use super::story::{on_each_server, tell};
use super::support::{BEANPOLE, Directory, Server, servers, wait_for};
use std::process::{Command, Stdio};

/// Six jobs of three states in tube `a`, and two others.
pub const MIXED: &str = r#"
    $ put -t a -p 5 -r 70 ready1 ready2
    1
    2
    $ put -t b other
    3
    $ put -t a -p 6 -r 80 -d 5000 delayed
    4
    $ put -t a -p 7 -r 90 buried1 buried2
    5
    6
    $ bury 5 6
    $ put -t a -p 5 ready3
    7
    $ put -t b another
    8"#;

const HEAD: &str = "TUBE        READY  RESERVED   DELAYED    BURIED      PUTS     USING  WATCHING   WAITING     PAUSE";

#[test]
fn clear_deletes_only_jobs_of_its_tube_that_meet_the_conditions() {
    on_each_server(&format!(
        r#"{MIXED}
        $ clear a
        ! beanpole clear: Delete 3 ready, 1 delayed and 2 buried jobs of tube 'a' at 127.0.0.1:PORT? no terminal to ask at: give --yes if you mean it
        ! Try 'beanpole help clear'.
        [2]
        $ clear a --state buried --yes
        2
        $ clear a --state lost --yes
        ! beanpole clear: invalid value 'lost' for '--state <STATE>'; [possible values: ready, reserved, delayed, buried]
        ! Try 'beanpole help clear'.
        [2]
        $ tubes
        {HEAD}
        a               3         0         1         0         6         0         0         0         0
        b               2         0         0         0         2         0         0         0         0
        default         0         0         0         0         0         0         0         0         0
        $ clear a --yes
        4
        $ tubes --names
        b
        default
        $ clear a --yes
        ! beanpole clear: there is no tube 'a'
        [1]
        $ peek 3 8 -l
        other
        another
        "#
    ));
}

#[test]
fn clear_asks_for_confirmation_at_a_terminal() {
    for program in servers() {
        let server = Server::start(&program, &[]);
        tell(&server, "$ put -q -t mail a b");
        let question = format!(
            "Delete 2 ready jobs of tube 'mail' at 127.0.0.1:{}? [y/N]",
            server.port
        );
        let mut command = server.beanpole();
        command.args(["clear", "mail"]);
        let mut screen = Screen::start(&command, 80, 24);
        screen.wait_for(&question);
        screen.type_keys("\r");
        assert_eq!(screen.wait(), Some(1));
        let mut screen = Screen::start(&command, 80, 24);
        screen.wait_for(&question);
        screen.type_keys("y\r");
        assert_eq!(screen.wait(), Some(0));
        screen.wait_for(&format!("{question} y\n2"));
        tell(&server, "$ tubes --names\ndefault");
    }
}

#[test]
fn put_shows_its_progress_at_a_terminal() {
    for program in servers() {
        let server = Server::start(&program, &[]);
        // A producer that is in no hurry.
        let script = format!(
            "{{ until [ -e go ]; do echo a; sleep 0.1; done; }} | '{BEANPOLE}' put -l > ids"
        );
        let mut command = Command::new("sh");
        command.args(["-c", &format!("cd '{}'; {script}", server.directory.text())]);
        command.env("BEANPOLE_ADDR", server.address());
        let mut screen = Screen::start(&command, 80, 24);
        screen.wait_for("putting ");
        server.directory.write("go", b"");
        assert_eq!(screen.wait(), Some(0));
        // The bar goes, and the output has nothing of it.
        wait_for("the bar to go", || screen.text().trim().is_empty());
        let ids = std::fs::read_to_string(server.directory.path().join("ids")).unwrap();
        let expected = (1..).map(|id: u32| id.to_string());
        assert!(ids.lines().eq(expected.take(ids.lines().count())), "{ids}");
    }
}

#[test]
fn clear_finds_jobs_whose_ids_are_far_apart_and_those_of_paused_tubes() {
    for program in servers() {
        let server = Server::start(&program, &[]);
        for index in 0..5 {
            let others: String = (0..300 * index).fold(String::new(), |mut text, _| {
                text += "x\n";
                text
            });
            let others = server.directory.write("others", others.as_bytes());
            let put = server
                .beanpole()
                .args(["put", "-q", "-t", "others", "-l", "-f"])
                .arg(others)
                .status();
            assert!(put.unwrap().success());
            tell(&server, &format!("$ put -q -t sparse {index}"));
        }
        tell(
            &server,
            "$ pause sparse 1000
             $ clear sparse --yes
             5
             $ clear others --yes
             3000",
        );
    }
}

#[test]
fn move_keeps_priority_time_to_run_delay_and_state() {
    on_each_server(&format!(
        r#"{MIXED}
        $ move a c
        6
        $ tubes
        {HEAD}
        b               2         0         0         0         2         0         0         0         0
        c               3         0         1         2         6         0         0         0         0
        default         0         0         0         0         0         0         0         0         0
        $ reserve -t c --all -l --delete
        ready1
        ready2
        ready3
        $ peek -t c -n 9 --buried --json
        {{"id":12,"tube":"c","state":"buried","pri":7,"age":N,"delay":4294967295,"ttr":90,"time-left":N,"file":0,"reserves":1,"timeouts":0,"releases":0,"buries":1,"kicks":0,"body":"buried1"}}
        {{"id":13,"tube":"c","state":"buried","pri":7,"age":N,"delay":4294967295,"ttr":90,"time-left":N,"file":0,"reserves":1,"timeouts":0,"releases":0,"buries":1,"kicks":0,"body":"buried2"}}
        $ move c c
        ! beanpole move: both are the same tube
        ! Try 'beanpole help move'.
        [2]
        $ move a c
        ! beanpole move: there is no tube 'a'
        [1]
        $ move b c -n 1
        1
        $ peek -t b -l
        another
        $ pause b 1000
        $ move b c --state ready
        1
        $ reserve -t c --all -l
        other
        another
        "#
    ));
}

#[test]
fn copy_leaves_everything_as_it_was() {
    on_each_server(&format!(
        r#"{MIXED}
        $ copy a c
        6
        $ copy a c --state buried
        2
        $ tubes
        {HEAD}
        a               3         0         1         2         6         0         0         0         0
        b               2         0         0         0         2         0         0         0         0
        c               3         0         1         4         8         0         0         0         0
        default         0         0         0         0         0         0         0         0         0
        $ stats job 5
        id         5
        tube       a
        state      buried
        pri        7
        age        N
        delay      0
        ttr        90
        time-left  N
        file       0
        reserves   1
        timeouts   0
        releases   0
        buries     1
        kicks      0
        $ reserve -t c --all -l
        ready1
        ready2
        ready3
        "#
    ));
}

#[test]
fn jobs_move_between_any_two_servers() {
    for source in servers() {
        for target in servers() {
            let source = Server::start(&source, &[]);
            let target = Server::start(&target, &[]);
            tell(&source, MIXED);
            let to = target.address();
            tell(
                &source,
                &format!("$ copy a a --to {to} --state ready\n3\n$ move a a --to {to}\n6"),
            );
            wait_for("the server to hear that move has gone", || {
                target
                    .said(&["stats", "a", "--json"])
                    .contains("\"current-using\":0,")
            });
            tell(
                &target,
                &format!(
                    "$ tubes\n{HEAD}\n\
                     a               6         0         1         2         9         0         0         0         0\n\
                     default         0         0         0         0         0         0         0         0         0\n"
                ),
            );
        }
    }
}

#[test]
fn a_job_that_the_other_server_does_not_take_stays_where_it_is() {
    for program in servers() {
        let source = Server::start(&program, &[]);
        let target = Server::start(&program, &["-z", "5"]);
        tell(
            &source,
            "$ put -q -t mail one 'much too long' three\n$ put -q -t mail -d 1000 'also too long'",
        );
        let to = target.address();
        tell(
            &source,
            &format!(
                "$ move mail mail --to {to} --state ready
                 1
                 ! beanpole move: job 2: put: the body is larger than the server takes (JOB_TOO_BIG)
                 [4]
                 $ copy mail mail --to {to} --state delayed
                 0
                 ! beanpole copy: job 4: put: the body is larger than the server takes (JOB_TOO_BIG)
                 [4]
                 $ reserve -t mail --all -l
                 much too long
                 three"
            ),
        );
        tell(&target, "$ reserve -t mail --all -l\none");
    }
}

#[test]
fn copy_and_dump_find_jobs_from_before_a_restart() {
    for program in servers() {
        let binlog = Directory::new();
        let mut server = Server::start(&program, &["-b", binlog.text(), "-f", "0"]);
        tell(&server, "$ put -q a b c d\n$ delete 1 2 3");
        server.restart();
        tell(&server, "$ copy default other\n1\n$ reserve -t other -l\nd");
        // It takes no job whose id would tell how far to look.
        server.restart();
        server.drain();
        let dump = server.said(&["dump"]);
        assert_eq!(dump.matches("\"body\":\"d\"").count(), 2, "{dump}");
    }
}

/// A command that runs until it waits for the second server, which stands
/// still, and is interrupted then; what it says when that server goes on.
fn interrupted(
    source: &Server,
    target: &Server,
    arguments: &[&str],
    waits: &str,
) -> (String, String, Option<i32>) {
    target.signal("STOP");
    let mut command = source.beanpole();
    // On a busy machine it may take more than the usual ten seconds until the
    // second server goes on.
    command.args(["--timeout", "5m"]);
    command.args(arguments).args(["--to", &target.address()]);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = command.spawn().unwrap();
    wait_for("it to wait", || {
        source.said(&["stats", "--json"]).contains(waits)
    });
    let kill = format!("kill -INT {}", child.id());
    let status = Command::new("sh").args(["-c", &kill]).status();
    assert!(status.unwrap().success());
    target.signal("CONT");
    let output = child.wait_with_output().unwrap();
    (
        String::from_utf8(output.stdout).unwrap(),
        String::from_utf8(output.stderr).unwrap(),
        output.status.code(),
    )
}

#[test]
fn an_interrupted_move_or_copy_finishes_the_jobs_under_way_and_counts_them() {
    for program in servers() {
        let source = Server::start(&program, &[]);
        let target = Server::start(&program, &[]);
        let said = "interrupted: 1 of 3 jobs are done, the others are as they were\n";
        tell(&source, "$ put -q -t a one two three");
        assert_eq!(
            interrupted(
                &source,
                &target,
                &["move", "a", "b"],
                "\"current-jobs-reserved\":1"
            ),
            ("1\n".into(), format!("beanpole move: {said}"), Some(130))
        );
        tell(&source, "$ reserve -t a --all -l\ntwo\nthree");
        tell(&target, "$ reserve -t b --all -l --delete\none");

        tell(&source, "$ put -q -t c one two three\n$ bury 4 5 6");
        assert_eq!(
            interrupted(&source, &target, &["move", "c", "b"], "\"cmd-peek\":1,"),
            ("1\n".into(), format!("beanpole move: {said}"), Some(130))
        );
        tell(&source, "$ peek -t c --buried -n 9 -l\ntwo\nthree");
        tell(&target, "$ peek -t b --buried -n 9 -l\none");

        assert_eq!(
            interrupted(&source, &target, &["copy", "a", "d"], "\"cmd-peek\":4,"),
            (
                "1\n".into(),
                "beanpole copy: interrupted: 1 of 2 jobs are done, the others are as they were\n"
                    .into(),
                Some(130)
            )
        );
        tell(&target, "$ reserve -t d --all -l\ntwo");
    }
}

#[test]
fn copy_of_a_few_jobs_does_not_ask_for_every_id() {
    for program in servers() {
        let server = Server::start(&program, &[]);
        let many = server.directory.write("many", &b"x\n".repeat(5000));
        tell(&server, "$ put -q -t mail one two three");
        tell(&server, &format!("$ put -q -l -f '{}'", many.display()));
        tell(
            &server,
            "$ copy mail other -n 2\n2\n$ reserve -t other --all -l\none\ntwo",
        );
        assert!(server.counted("cmd-stats-job") < 100);
    }
}
