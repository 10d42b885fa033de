//! Many jobs at a time: clear, move and copy.

use super::screen::Screen;
use super::story::tell;
use super::support::{BEANPOLE, Server, servers, wait_for};
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
        tell(&source, "$ peek 5 6 -l\ntwo\nthree");
        tell(&target, "$ peek -t b --buried -l\none");

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
