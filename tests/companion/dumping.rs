//! All jobs of a server in a file, and back: dump and load.

use super::moving::MIXED;
use super::story::{on_each_server, tell, without_ours};
use super::support::{Server, servers};
use std::fmt::Write;
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt;
use std::process::Stdio;

/// What `dump` writes of [`MIXED`] and one job that is not text.
const DUMP: &str = r#"{"beanpole-dump":1,"server":"127.0.0.1:PORT","version":"V"}
    {"id":1,"tube":"a","state":"ready","pri":5,"age":N,"delay":D,"ttr":70,"time-left":L,"file":F,"reserves":0,"timeouts":0,"releases":0,"buries":0,"kicks":0,"body":"ready1"}
    {"id":2,"tube":"a","state":"ready","pri":5,"age":N,"delay":D,"ttr":70,"time-left":L,"file":F,"reserves":0,"timeouts":0,"releases":0,"buries":0,"kicks":0,"body":"ready2"}
    {"id":3,"tube":"b","state":"ready","pri":1024,"age":N,"delay":D,"ttr":60,"time-left":L,"file":F,"reserves":0,"timeouts":0,"releases":0,"buries":0,"kicks":0,"body":"other"}
    {"id":4,"tube":"a","state":"delayed","pri":6,"age":N,"delay":D,"ttr":80,"time-left":L,"file":F,"reserves":0,"timeouts":0,"releases":0,"buries":0,"kicks":0,"body":"delayed"}
    {"id":5,"tube":"a","state":"buried","pri":7,"age":N,"delay":D,"ttr":90,"time-left":L,"file":F,"reserves":1,"timeouts":0,"releases":0,"buries":1,"kicks":0,"body":"buried1"}
    {"id":6,"tube":"a","state":"buried","pri":7,"age":N,"delay":D,"ttr":90,"time-left":L,"file":F,"reserves":1,"timeouts":0,"releases":0,"buries":1,"kicks":0,"body":"buried2"}
    {"id":7,"tube":"a","state":"ready","pri":5,"age":N,"delay":D,"ttr":60,"time-left":L,"file":F,"reserves":0,"timeouts":0,"releases":0,"buries":0,"kicks":0,"body":"ready3"}
    {"id":8,"tube":"b","state":"ready","pri":1024,"age":N,"delay":D,"ttr":60,"time-left":L,"file":F,"reserves":0,"timeouts":0,"releases":0,"buries":0,"kicks":0,"body":"another"}
    {"id":9,"tube":"b","state":"ready","pri":1024,"age":N,"delay":D,"ttr":60,"time-left":L,"file":F,"reserves":0,"timeouts":0,"releases":0,"buries":0,"kicks":0,"body64":"/wANCsM="}
    {"beanpole-dump-end":1,"jobs":9}"#;

#[test]
fn a_dump_has_every_job_and_loads_into_any_server() {
    for source in servers() {
        for target in servers() {
            let source = Server::start(&source, &[]);
            tell(&source, MIXED);
            tell(&source, r"$ put -q -t b < '\xff\0\r\n\xc3'");
            let file = source.directory.path().join("dump");
            tell(&source, &format!("$ dump -o '{}'", file.display()));
            let dumped = std::fs::read_to_string(&file).unwrap();
            let expected: String = DUMP
                .lines()
                .map(|line| format!("{}\n", line.trim()))
                .collect();
            assert_eq!(without_circumstances(&dumped, &source), expected);

            let target = Server::start(&target, &[]);
            tell(
                &target,
                &format!(
                    "$ load --dry-run '{}'\n9\n$ load '{}'\n9",
                    file.display(),
                    file.display()
                ),
            );
            let again = target.said(&["dump"]);
            // A buried job was reserved by id and buried to get there.
            assert_eq!(without_circumstances(&again, &target), expected);
        }
    }
}

/// The dump without what depends on the server and on the time.
fn without_circumstances(dump: &str, server: &Server) -> String {
    let mut text = String::new();
    for line in without_ours(dump).lines() {
        let mut line = line.replace(&server.port.to_string(), "PORT");
        // Only our server tells it.
        line = line.replace(",\"reserved-by\":0", "");
        for (key, mask) in [
            ("\"age\":", "N"),
            ("\"delay\":", "D"),
            ("\"time-left\":", "L"),
            ("\"file\":", "F"),
            ("\"version\":\"", "V"),
        ] {
            if let Some((before, after)) = line.split_once(key) {
                let rest = after.trim_start_matches(|c: char| c.is_ascii_digit() || c == '.');
                line = format!("{before}{key}{mask}{rest}");
            }
        }
        writeln!(text, "{line}").unwrap();
    }
    text
}

#[test]
fn a_dump_may_be_of_some_tubes_and_of_a_server_that_drains() {
    for program in servers() {
        let server = Server::start(&program, &[]);
        tell(&server, MIXED);
        server.drain();
        tell(
            &server,
            r#"
            $ put x
            ! beanpole put: body 1: the server takes no new jobs (DRAINING)
            [4]
            $ dump nobody
            ! beanpole dump: there is no tube 'nobody'
            [1]
            "#,
        );
        let dump = server.said(&["dump", "b"]);
        assert_eq!(dump.lines().count(), 4, "{dump}");
        assert!(
            dump.contains("\"body\":\"other\"") && dump.contains("\"body\":\"another\""),
            "{dump}"
        );
    }
}

#[test]
fn load_says_where_it_stopped_and_goes_on_from_there() {
    let one = r#"{"tube":"t","state":"ready","pri":1,"delay":0,"ttr":1,"body":"one"}"#;
    let dump = format!(
        "{{\"beanpole-dump\":1}}\n{one}\n{}\n{}\n{{\"beanpole-dump-end\":1}}\n",
        one.replace("one", "two").replace("\"pri\":1", "\"pri\":-1"),
        one.replace("one", "three")
    );
    for program in servers() {
        let server = Server::start(&program, &["-z", "10"]);
        let path = server.directory.write("dump", dump.as_bytes());
        let path = path.display();
        tell(
            &server,
            &format!(
                r#"
                $ load '{path}'
                ! beanpole load: {path} line 3: invalid value: integer `-1`, expected u32 at byte 36
                ! 1 job is loaded; 'load --from 4' goes on without that line
                [4]
                $ load --from 4 '{path}'
                1
                $ reserve -t t --all -l --delete
                one
                three
                "#
            ),
        );
        let big = dump
            .replace("\"pri\":-1", "\"pri\":1")
            .replace("two", "much too big");
        let path = server.directory.write("big", big.as_bytes());
        let path = path.display();
        tell(
            &server,
            &format!(
                r#"
                $ load '{path}'
                ! beanpole load: {path} line 3: the body has 12 bytes, and the server takes 10
                ! 1 job is loaded; 'load --from 4' goes on without that line
                [4]
                $ reserve -t t --all -l --delete
                one
                $ load < 'hello\n'
                ! beanpole load: stdin: not a dump of beanpole
                [4]
                $ load < '{{"beanpole-dump":2}}\n'
                ! beanpole load: stdin: a dump of version 2: only 1 is known
                [4]
                $ load < '{{"beanpole-dump":1}}\n{one}\n'
                1
                ! beanpole load: stdin: the end is missing: the dump was cut short
                [1]
                $ load --keep-going --tube new '{path}'
                2
                ! beanpole load: {path} line 3: the body has 12 bytes, and the server takes 10; left out
                [1]
                $ reserve -t new --all -l
                one
                three
                "#
            ),
        );
    }
}

#[test]
fn a_dump_is_readable_by_its_owner_only() {
    for program in servers() {
        let server = Server::start(&program, &[]);
        let path = server.directory.write("jobs", b"an earlier one");
        tell(
            &server,
            &format!("$ put -q secret\n$ dump -o '{}'", path.display()),
        );
        let mode = std::fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }
}

#[test]
fn load_reports_a_dump_with_missing_or_surplus_lines() {
    let one = r#"{"tube":"t","state":"ready","pri":1,"delay":0,"ttr":1,"body":"one"}"#;
    let end = r#"{"beanpole-dump-end":1,"jobs":3}"#;
    let dump = format!("{{\"beanpole-dump\":1}}\n{one}\n{one}\n{end}\n");
    on_each_server(
        &format!(
            "$ load --dry-run < '{dump}'
         2
         ! beanpole load: stdin: 3 jobs were written, but 2 are there
         [1]
         $ load --from 3 < '{dump}'
         1
         ! beanpole load: stdin: 3 jobs were written, but 2 are there
         [1]
         $ load < '{}{one}\\n'
         3
         ! beanpole load: stdin: line 5 is the end, and what follows is not loaded
         [1]",
            dump.replace(end, &format!("{one}\n{end}"))
        )
        .replace("}\n", "}\\n"),
    );
}

#[test]
fn a_line_that_is_cut_off_is_the_end_of_a_dump() {
    let one = r#"{"tube":"t","state":"ready","pri":1,"delay":0,"ttr":1,"body":"one"}"#;
    on_each_server(&format!(
        r#"
        $ load --dry-run < '{{"beanpole-dump":1}}\n{one}\n{{"tube":"t","sta'
        1
        ! beanpole load: stdin: the dump was cut short within line 3
        [1]
        $ load --dry-run < '{{"beanpole-dump":1}}\n{one}\n{{"tube":"t","sta\n{one}\n'
        ! beanpole load: stdin line 3: control character (\u0000-\u001F) found while parsing a string at byte 0
        ! 1 job is sound; 'load --from 4' goes on without that line
        [4]
        $ load < '{{"beanpole-dump":1}}\n{one}\n{{"tube":"t","sta'
        1
        ! beanpole load: stdin: the dump was cut short within line 3
        [1]
        "#
    ));
}

#[test]
fn a_load_that_is_killed_goes_on_from_its_note() {
    for program in servers() {
        let server = Server::start(&program, &[]);
        let job =
            "{\"tube\":\"t\",\"state\":\"ready\",\"pri\":1,\"delay\":0,\"ttr\":1,\"body\":\"\"}\n";
        let begin = format!("{{\"beanpole-dump\":1}}\n{}", job.repeat(500));
        let end = format!("{job}{{\"beanpole-dump-end\":1,\"jobs\":501}}\n");
        let note = server.directory.path().join("note");
        let mut load = server.beanpole();
        load.args(["load", "--note"])
            .arg(&note)
            .stdin(Stdio::piped());
        let mut load = load.spawn().unwrap();
        let mut input = load.stdin.take().unwrap();
        input.write_all(begin.as_bytes()).unwrap();
        assert_eq!(server.directory.wait_for("note"), "502\n");
        load.kill().unwrap();
        load.wait().unwrap();
        let dump = server.directory.write("dump", (begin + &end).as_bytes());
        let (dump, note) = (dump.display(), note.display());
        tell(
            &server,
            &format!("$ load '{dump}' --note '{note}'\n1\n$ clear t -y\n501"),
        );
        assert!(!note.to_string().is_empty() && !server.directory.path().join("note").exists());
    }
}

#[test]
fn the_note_of_a_dump_that_was_cut_short_says_where_the_whole_one_goes_on() {
    for program in servers() {
        let server = Server::start(&program, &[]);
        tell(&server, "$ put -q -t mail one two three");
        let dump = server.beanpole().arg("dump").output().unwrap().stdout;
        let text = String::from_utf8(dump.clone()).unwrap();
        // It ends within the line of the third job.
        let cut = text.rfind("three").unwrap();
        let cut = server.directory.write("cut", &dump[..cut]);
        let whole = server.directory.write("whole", &dump);
        let note = server.directory.path().join("note");
        tell(
            &server,
            &format!(
                "$ clear mail --yes\n3\n\
                 $ load --note '{note}' '{cut}'\n2\n\
                 ! beanpole load: {cut}: the dump was cut short within line 4\n[1]\n\
                 $ load --note '{note}' '{whole}'\n1\n\
                 $ reserve -t mail --all -l --delete\none\ntwo\nthree",
                note = note.display(),
                cut = cut.display(),
                whole = whole.display(),
            ),
        );
        assert!(!note.exists());
    }
}

#[test]
fn load_takes_what_ls_lists_and_buried_jobs_stay_buried() {
    for program in servers() {
        let server = Server::start(&program, &[]);
        tell(&server, "$ put -q -t mail -p 3 one two\n$ bury 2");
        let listed = server
            .beanpole()
            .args(["ls", "-j"])
            .output()
            .unwrap()
            .stdout;
        let listed = server.directory.write("listed", &listed);
        tell(
            &server,
            &format!(
                "$ load -t again '{}'\n2\n\
                 $ ls -q again --state ready --pri 3\n3\n\
                 $ ls -q again --state buried --pri 3\n4",
                listed.display()
            ),
        );
    }
}
