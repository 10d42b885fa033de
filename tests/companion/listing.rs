//! Seeing what is in a tube, and acting on what was found.

use super::screen::Screen;
use super::story::{on_each_server, tell};
use super::support::{Running, Server, beanpoled, servers, wait_for};
use unicode_width::UnicodeWidthStr;

/// What `ls` says of jobs, line by line, without their ages and what is left.
fn table(server: &Server, arguments: &[&str]) -> Vec<String> {
    let text = server.said(&[&["ls"], arguments].concat());
    let without_age = |line: &str| {
        let words = line.split_whitespace().enumerate();
        let words = words
            .filter(|(index, _)| !(3..5).contains(index))
            .map(|(_, word)| word);
        words.collect::<Vec<_>>().join(" ")
    };
    text.lines().map(without_age).collect()
}

#[test]
fn ls_shows_what_is_in_tubes() {
    for program in servers() {
        let server = Server::start(&program, &[]);
        tell(
            &server,
            r#"
            $ put -q -t mail one 'two\n'
            $ put -q -t mail -d 1000 -p 7 three
            $ put -q -t fax '\xff\xfe'
            $ bury 2
            "#,
        );
        assert_eq!(
            table(&server, &[]),
            [
                "ID STATE PRI TRIES SIZE TUBE BODY",
                "1 ready 1024 0 3 mail one",
                "2 buried 1024 1 4 mail two\\n",
                "3 delayed 7 0 5 mail three",
                "4 ready 1024 0 2 fax \\xff\\xfe",
            ]
        );
        assert_eq!(
            table(&server, &["mail", "--tries", "1"]),
            ["ID STATE PRI TRIES SIZE BODY", "2 buried 1024 1 4 two\\n"]
        );
        tell(
            &server,
            r#"
            $ ls -q
            1
            2
            3
            4
            $ ls -q fax mail -n 2
            1
            2
            $ ls mail -q --state buried --state delayed
            2
            3
            $ ls mail -q --state reserved
            [1]
            $ ls -q --older 1h
            [1]
            $ ls -q --older 0
            1
            2
            3
            4
            $ ls -q --match '\n'
            2
            $ ls -q --match o -n 1
            1
            $ ls mail --state delayed --json
            {"id":3,"tube":"mail","state":"delayed","pri":7,"age":N,"delay":1000,"ttr":60,"time-left":N,"file":0,"reserves":0,"timeouts":0,"releases":0,"buries":0,"kicks":0,"size":5,"body":"three"}
            $ ls nobody
            ! beanpole ls: there is no tube 'nobody'
            [1]
            $ ls --state lost
            ! beanpole ls: invalid value 'lost' for '--state <STATE>'; [possible values: ready, reserved, delayed, buried]
            ! Try 'beanpole help ls'.
            [2]
            "#,
        );
    }
}

#[test]
fn acts_take_ids_from_standard_input() {
    on_each_server(
        r#"
        $ put -q -t mail a b c d e
        $ put -q -t mail -d 1000 f
        $ bury - < '1\n2\n3\n'
        $ kick-job - < '2 6'
        $ ls mail --state buried -q
        1
        3
        $ delete - < '1\nx\n'
        ! beanpole delete: standard input: 'x' is not the id of a job
        ! Try 'beanpole help delete'.
        [2]
        $ delete - < '1\n9\n'
        ! beanpole delete: there is no job 9
        [1]
        $ delete - < ''
        $ ls -q
        2
        3
        4
        5
        6
        "#,
    );
}

#[test]
fn move_and_copy_take_ids_from_standard_input() {
    for program in servers() {
        let server = Server::start(&program, &[]);
        tell(
            &server,
            r#"
            $ put -q -t mail a b
            $ put -q -t fax -d 1000 c
            $ put -q -t fax d e
            $ bury 4
            $ move - later < '4 2\n3 3 99'
            3
            ! beanpole move: there is no job 99
            [1]
            "#,
        );
        let rows = [
            "ID STATE PRI TRIES SIZE TUBE BODY",
            "1 ready 1024 0 1 mail a",
            "5 ready 1024 0 1 fax e",
        ];
        assert_eq!(table(&server, &["mail", "fax"]), rows);
        for (state, body) in [("ready", "b"), ("delayed", "c"), ("buried", "d")] {
            let rows = table(&server, &["later", "--state", state]);
            assert_eq!(rows.len(), 2, "{rows:?}");
            assert!(rows[1].ends_with(body), "{rows:?}");
        }
        tell(
            &server,
            r#"
            $ copy - again < '5\n1\n'
            2
            $ peek -t again -n 9 -l
            a
            e
            $ copy - again < '5 77'
            1
            ! beanpole copy: there is no job 77
            [1]
            $ ls again -q --match e -n 1 --state ready --state buried
            10
            "#,
        );
    }
}

#[test]
fn peek_writes_a_title_before_each_of_several_jobs() {
    on_each_server(
        r#"
        $ put -q one 'two\nlines\n'
        $ bury 1 2
        $ peek --buried
        one⊣
        $ peek -n 20 --buried
        job 1, 3 bytes:
        one
        job 2, 10 bytes:
        two
        lines

        $ peek -t typo
        ! beanpole peek: there is no tube 'typo'
        [1]
        "#,
    );
}

#[test]
fn jobs_are_found_by_list_jobs_where_the_server_has_it() {
    let server = Server::start(&beanpoled(), &[]);
    let many = server.directory.write("many", &b"x\n".repeat(3000));
    tell(
        &server,
        &format!(
            "$ put -q -l -f '{}'\n$ clear default --yes\n3000",
            many.display()
        ),
    );
    tell(
        &server,
        r#"
        $ put -q -t mail one two
        $ ls mail -q
        3001
        3002
        $ copy mail fax
        2
        $ ls fax -q
        3003
        3004
        "#,
    );
    // Those that are copied, and no others.
    assert_eq!(server.counted("cmd-stats-job"), 2);
}

/// Nor is a job put to find out how far ids go, which a draining server would
/// refuse.
#[test]
fn dump_is_complete_on_a_draining_server_with_a_binlog() {
    let directory = super::support::Directory::new();
    let server = Server::start(&beanpoled(), &["-b", directory.text()]);
    tell(&server, "$ put -q one two three\n$ delete 3 1");
    server.drain();
    tell(
        &server,
        r#"
        $ ls -q
        2
        $ dump
        {"beanpole-dump":1,"server":"127.0.0.1:PORT","version":"1.13"}
        {"id":2,"tube":"default","state":"ready","pri":1024,"age":N,"delay":0,"ttr":60,"time-left":N,"file":1,"reserves":0,"timeouts":0,"releases":0,"buries":0,"kicks":0,"body":"two"}
        {"beanpole-dump-end":1,"jobs":1}
        "#,
    );
}

#[test]
fn ls_cuts_bodies_only_at_the_width_of_a_terminal() {
    for program in servers() {
        let server = Server::start(&program, &[]);
        let body = format!(
            "{{\"type\":\"a\\\\b\",\"x\":\"{}needle\"}}",
            "x".repeat(200)
        );
        tell(
            &server,
            &format!("$ put -q '{body}' '\\x1b]0;title\\x07\\xff'"),
        );
        let ls = |columns: &str| {
            let mut command = server.beanpole();
            let output = command.arg("ls").env("COLUMNS", columns).output();
            String::from_utf8(output.unwrap().stdout).unwrap()
        };
        let whole = ls("");
        let rows: Vec<_> = whole.lines().collect();
        assert!(rows[1].ends_with("needle\"}"), "{whole}");
        assert!(rows[1].contains(r#"{"type":"a\b","x":"#), "{whole}");
        assert!(rows[2].ends_with(r"\x1b]0;title\x07\xff"), "{whole}");
        let cut = ls("90");
        assert_eq!(cut.lines().nth(1).unwrap().len(), 90, "{cut}");
        // Another command writes them alike.
        let mut tail = server.beanpole();
        let mut tail = Running::reading_output(tail.args(["tail", "-n", "1", "-i", "0.05"]));
        wait_for("it to look", || server.counted("cmd-stats") > 1);
        while tail.is_running() {
            tell(&server, "$ put -q '\\x1b\"\\n'");
        }
        assert!(tail.wait().1.ends_with(" bytes=3 \\x1b\"\\n\n"));
    }
}

#[test]
fn peek_escapes_control_characters_of_bodies_on_a_terminal() {
    for program in servers() {
        let server = Server::start(&program, &[]);
        tell(&server, "$ put -q '\\x1b]0;owned\\x07two\\nlines'");
        let mut peek = server.beanpole();
        let mut screen = Screen::start(peek.args(["peek", "1"]), 80, 5);
        assert_eq!(screen.wait(), Some(0));
        screen.wait_for("\\x1b]0;owned\\x07two\nlines");
    }
}

#[test]
fn ls_counts_the_columns_of_wide_characters() {
    for program in servers() {
        let server = Server::start(&program, &[]);
        let body = "队列".repeat(40);
        tell(&server, &format!("$ put -q {body}"));
        let listed = server
            .beanpole()
            .args(["ls", "default"])
            .env("COLUMNS", "80")
            .output();
        let listed = String::from_utf8(listed.unwrap().stdout).unwrap();
        let widest = listed.lines().map(UnicodeWidthStr::width).max();
        assert!((79..=80).contains(&widest.unwrap()), "{listed}");
    }
}
