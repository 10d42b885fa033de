//! Jobs that are written as JSON are put again, one is edited, and what is large
//! is found.

use super::story::{on_each_server, tell};
use super::support::{Server, servers};

#[test]
fn put_makes_jobs_of_the_json_that_ls_dump_and_reserve_write() {
    for program in servers() {
        let server = Server::start(&program, &[]);
        tell(
            &server,
            r"
            $ put -q -t mail -p 7 -r 9 one
            $ put -q -t fax -d 100000 '\xff\xfe'
            $ put -q -t mail two
            $ bury 3
            ",
        );
        for command in [
            &["ls", "-j"][..],
            &["dump"],
            &["reserve", "-j", "-t", "mail", "--all"],
        ] {
            let written = server.beanpole().args(command).output().unwrap();
            let lines = server.directory.write("lines", &written.stdout);
            let other = Server::start(&program, &[]);
            let some = command[0] == "reserve";
            let ids = if some { "1" } else { "1\n2\n3" };
            tell(
                &other,
                &format!("$ put --json -f '{}'\n{ids}", lines.display()),
            );
            tell(
                &other,
                match some {
                    true => "$ reserve -t mail -l\none\n$ kick -t mail 1\n0\n[1]",
                    // A job that was buried is buried again.
                    false => "$ reserve -t mail -l\none\n$ ls -q --state buried\n3",
                },
            );
            let listed = other.said(&["ls", "-j"]);
            assert!(listed.contains("\"pri\":7,"), "{listed}");
            assert!(listed.contains("\"ttr\":9,"), "{listed}");
            if !some {
                assert!(listed.contains("\"body64\":\"//4=\""), "{listed}");
                assert!(listed.contains("\"state\":\"delayed\""), "{listed}");
                assert!(listed.contains("\"body\":\"two\""), "{listed}");
            }
        }
    }
}

#[test]
fn put_reports_lines_at_fault_and_puts_the_others() {
    on_each_server(
        r#"
        $ put --json < '{"body":"a"}\n\n{"body":1}\n{"tube":"mail","delay":50000,"body64":"Yg=="}\n{"pri":-1,"body":"c"}\nx\n{"body":"d"}'
        1
        2
        3
        ! beanpole put: stdin 3: invalid type: integer `1`, expected a string at byte 9
        ! beanpole put: stdin 5: invalid value: integer `-1`, expected u32 at byte 9
        ! beanpole put: stdin 6: expected value at byte 1
        [1]
        $ put --json -t other -p 3 -d 0 < '{"tube":"mail","pri":5,"delay":50000,"body":"e"}\n'
        4
        $ reserve -t default -t other --all -l
        e
        a
        d
        $ put --json x
        ! beanpole put: bodies given as operands are not split
        ! Try 'beanpole help put'.
        [2]
        "#,
    );
}

#[test]
fn edit_replaces_a_job_or_changes_nothing() {
    for program in servers() {
        let server = Server::start(&program, &[]);
        tell(
            &server,
            "$ put -q -t mail -p 7 'a posion' same\n$ put -q -t mail -d 90000 late\n$ bury 1",
        );
        let edit = |editor: &str, arguments: &[&str]| {
            let mut command = server.beanpole();
            command.arg("edit").args(arguments).env("EDITOR", editor);
            // What it leaves for whoever has lost a job is gone with the test.
            command.env("TMPDIR", server.directory.path());
            let output = command.env_remove("VISUAL").output().unwrap();
            let said = [output.stdout, output.stderr].concat();
            (
                String::from_utf8(said).unwrap(),
                output.status.code().unwrap(),
            )
        };
        let said = |text: &str, code| (String::from(text), code);
        let swap = "sed -i s/posion/poison/";
        assert_eq!(edit(swap, &["1", "--buried"]), said("4\n", 0));
        tell(&server, "$ ls -q mail --state buried\n4");
        assert_eq!(edit("sed -i s/poison/cake/", &["4"]), said("5\n", 0));
        assert_eq!(
            edit("true", &["2"]),
            said("beanpole edit: job 2 is as it was\n", 1)
        );
        assert_eq!(edit("sed -i s/late/later/", &["3"]), said("6\n", 0));
        assert_eq!(
            edit("false", &["2"]),
            said("beanpole edit: false failed: nothing has changed\n", 4)
        );
        assert_eq!(
            edit("true", &["99"]),
            said("beanpole edit: there is no job 99\n", 1)
        );
        let taken = format!(
            "'{}' delete 2; sed -i s/same/other/",
            super::support::BEANPOLE
        );
        assert_eq!(
            edit(&taken, &["2"]).0.lines().next(),
            Some("beanpole edit: job 2 was taken by somebody else meanwhile")
        );
        tell(
            &server,
            "$ ls -q mail --state delayed\n6\n$ reserve -t mail --all -l\na cake",
        );
    }
}
