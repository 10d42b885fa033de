//! `binlog`: directories of both servers, looked at, checked and saved while no
//! server uses them.

use super::story::tell;
use super::support::{Directory, Server, beanstalkd, servers};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

fn ours() -> PathBuf {
    servers()[0].clone()
}

/// What the program says about a directory: its status, output and errors. The
/// directory is called DIR there.
fn binlog(arguments: &[&str], directory: &Path) -> String {
    let directory = directory.to_str().unwrap();
    let arguments: Vec<_> = arguments
        .iter()
        .map(|argument| argument.replace("DIR", directory))
        .collect();
    let output = Command::new(super::support::BEANPOLE)
        .arg("binlog")
        .args(&arguments)
        .output()
        .unwrap();
    let mut text = String::from_utf8(output.stdout).unwrap();
    text += &String::from_utf8(output.stderr).unwrap();
    if !output.status.success() {
        text += &format!("[{}]\n", output.status.code().unwrap());
    }
    text.replace(directory, "DIR")
}

/// Jobs of all states in a binlog, whose server has ended: seven were put, two
/// are gone, and one segment of ours holds a dozen or so.
fn written_by(program: &Path) -> Directory {
    let directory = Directory::new();
    let server = Server::start(program, &["-b", directory.text(), "-f", "0"]);
    tell(
        &server,
        r"
        $ put -q -t mail -p 1 -r 70 one two three
        $ put -q -t mail -p 2 -d 100000 later
        $ put -q -t bin < '\xff\0'
        $ put -q -t bad first second
        $ bury 7 6
        $ delete 2
        $ put -q -t mail last
        $ delete 8
        ",
    );
    directory
}

#[test]
fn binlog_reads_nothing_while_a_server_has_the_directory() {
    for program in servers() {
        let directory = Directory::new();
        let _server = Server::start(&program, &["-b", directory.text()]);
        for command in ["ls", "verify", "cat"] {
            assert_eq!(
                binlog(&[command, "DIR"], directory.path()),
                "beanpole binlog: a server uses DIR: stop it first\n[4]\n"
            );
        }
    }
    let nowhere = Path::new("/nonexistent/binlog");
    assert_eq!(
        binlog(&["ls", "DIR"], nowhere),
        "beanpole binlog: cannot use the binlog directory: DIR: No such file or directory\n[4]\n"
    );
    assert_eq!(
        binlog(&["repair", "DIR"], nowhere),
        "beanpole binlog: repair and export7 take a directory, and a new one to write to\n\
         Try 'beanpole help binlog'.\n[2]\n"
    );
}

/// What a server that starts on this directory knows.
fn jobs_of(program: &Path, directory: &Path) -> String {
    let server = Server::start(program, &["-b", directory.to_str().unwrap(), "-f", "0"]);
    let mut text = String::new();
    for arguments in [
        &[
            "reserve", "-t", "mail", "-t", "bin", "-t", "bad", "--all", "-l",
        ][..],
        &["peek", "-t", "mail", "--delayed", "-l"],
        &["peek", "-t", "bad", "--buried", "-l"],
        &["raw", "use bad"],
        &["kick", "-t", "bad"],
        &["reserve", "-t", "bad", "-l", "--delete"],
        &["kick", "-t", "bad"],
        &["reserve", "-t", "bad", "-l", "--delete"],
        &["put", "new"],
    ] {
        let output = server.beanpole().args(arguments).output().unwrap();
        text += &output
            .stdout
            .escape_ascii()
            .to_string()
            .replace("\\n", "\n")
            .replace("\\r", "");
    }
    text
}

/// All of them, in their order and states. Of the buried ones, the second was
/// buried first.
fn all_jobs(next_id: u64) -> String {
    format!("one\nthree\n\\xff\\x00\nlater\nsecond\nUSING bad\n1\nsecond\n1\nfirst\n{next_id}\n")
}

#[test]
fn export7_writes_what_the_real_beanstalkd_starts_on() {
    for theirs in beanstalkd() {
        for program in servers() {
            let directory = written_by(&program);
            let new = directory.path().join("new");
            assert_eq!(
                binlog(&["export7", "DIR", new.to_str().unwrap()], directory.path()),
                "6\n"
            );
            // It cannot know that there was a job 8: it goes on with 8.
            assert_eq!(jobs_of(&theirs, &new), all_jobs(8));
        }
    }
}

#[test]
fn repair_writes_what_our_server_starts_on() {
    for program in servers() {
        let directory = written_by(&program);
        let new = directory.path().join("new");
        let new = new.to_str().unwrap();
        assert_eq!(binlog(&["repair", "DIR", new], directory.path()), "6\n");
        assert_eq!(
            binlog(&["repair", "DIR", new], directory.path()),
            "beanpole binlog: DIR/new is not empty\n[4]\n"
        );
        assert_eq!(jobs_of(&ours(), Path::new(new)), all_jobs(9));
    }
}

/// Changes a byte of a file.
fn damage(directory: &Directory, name: &str, offset: usize) {
    let path = directory.path().join(name);
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[offset] ^= 0x20;
    std::fs::write(&path, bytes).unwrap();
}

/// Where a record about this job begins, as `cat` says.
fn offset_of(directory: &Directory, fields: &str) -> usize {
    let said = binlog(&["cat", "DIR"], directory.path());
    let line = said
        .lines()
        .find(|line| line.contains(fields))
        .expect(fields);
    let offset = line
        .split("\"offset\":")
        .nth(1)
        .unwrap()
        .split(',')
        .next()
        .unwrap();
    offset.parse().unwrap()
}

#[test]
fn verify_names_damage_and_repair_saves_the_rest() {
    let directory = written_by(&ours());
    let offset = offset_of(&directory, "\"record\":\"job\",\"id\":3");
    let next = offset_of(&directory, "\"record\":\"job\",\"id\":4");
    damage(&directory, "binlog.1", offset + 20);
    let bytes = next - offset;
    let flaw = "there is no valid record here, though a later record says that one was synced";
    assert_eq!(
        binlog(&["verify", "DIR"], directory.path()),
        format!(
            "binlog.1 at offset {offset}: {bytes} bytes cannot be read: {flaw}\n\
             damaged: 1 file, 11 records, 5 jobs live\n\
             beanpole binlog: 'beanpole binlog repair DIR NEW' saves what can be read\n[1]\n"
        )
    );
    let new = directory.path().join("new");
    assert_eq!(
        binlog(&["repair", "DIR", new.to_str().unwrap()], directory.path()),
        format!(
            "5\nbeanpole binlog: binlog.1 at offset {offset}: {bytes} bytes cannot be read: {flaw}\n\
             beanpole binlog: what stood there is lost: jobs put there, and what happened there to others, \
             which may come back as they were before, or though they were deleted\n[1]\n"
        )
    );
    assert_eq!(jobs_of(&ours(), &new), all_jobs(9).replace("three\n", ""));
}

#[test]
fn verify_names_a_job_of_which_only_later_records_are_left() {
    let directory = written_by(&ours());
    let offset = offset_of(&directory, "\"record\":\"job\",\"id\":6");
    damage(&directory, "binlog.1", offset + 30);
    let said = binlog(&["verify", "DIR"], directory.path());
    assert!(
        said.contains("\njob 6 is lost: no record says what it was\n"),
        "{said}"
    );
    assert!(
        said.contains(
            "\ndamaged: 1 file, 11 records, 5 jobs live\nbeanpole binlog: 'beanpole binlog repair"
        ),
        "{said}"
    );
}

#[test]
fn a_torn_end_is_no_damage() {
    let directory = written_by(&ours());
    // A record that was begun, and never finished.
    let path = directory.path().join("binlog.1");
    let mut bytes = std::fs::read(&path).unwrap();
    let end = bytes.iter().rposition(|byte| *byte != 0).unwrap() + 1;
    bytes[end..end + 30].fill(7);
    std::fs::write(&path, bytes).unwrap();
    let said = binlog(&["verify", "DIR"], directory.path());
    assert!(
        said.contains(" bytes were never finished: a server drops them\nsound: 1 file"),
        "{said}"
    );
    assert_eq!(said.lines().count(), 2, "{said}");
}

/// A log of several segments.
fn of_several_segments() -> Directory {
    let directory = Directory::new();
    let server = Server::start(&ours(), &["-b", directory.text(), "-f", "0", "-s", "4096"]);
    let lines: String = (1..=300).map(|number| format!("{number}\n")).collect();
    let lines = directory.write("lines", lines.as_bytes());
    let put = server
        .beanpole()
        .args(["put", "-q", "-l", "-f"])
        .arg(lines)
        .status();
    assert!(put.unwrap().success());
    directory
}

#[test]
fn verify_goes_on_after_a_lost_header_a_cut_file_and_a_missing_one() {
    let directory = of_several_segments();
    let sound = binlog(&["verify", "DIR"], directory.path());
    assert!(
        sound.starts_with("sound: ") && sound.ends_with(" 300 jobs live\n"),
        "{sound}"
    );
    let lost = |said: &str| {
        let live = said
            .split("records, ")
            .nth(1)
            .unwrap()
            .split(' ')
            .next()
            .unwrap();
        300 - live.parse::<u64>().unwrap()
    };

    damage(&directory, "binlog.2", 10);
    let said = binlog(&["verify", "DIR"], directory.path());
    let header =
        "binlog.2 at offset 0: 44 bytes cannot be read: the checksum of its header is wrong\n";
    assert!(said.contains(header), "{said}");
    // The records of both files are there.
    assert_eq!(lost(&said), 0, "{said}");

    let directory = of_several_segments();
    let file = std::fs::OpenOptions::new()
        .write(true)
        .open(directory.path().join("binlog.2"))
        .unwrap();
    file.set_len(1000).unwrap();
    let said = binlog(&["verify", "DIR"], directory.path());
    let cut = " bytes cannot be read: the file ends where its records go on to ";
    assert!(said.contains(cut), "{said}");
    assert!((15..40).contains(&lost(&said)), "{said}");

    let directory = of_several_segments();
    std::fs::remove_file(directory.path().join("binlog.2")).unwrap();
    let said = binlog(&["verify", "DIR"], directory.path());
    assert!(said.contains("binlog.2: missing, and needed\n"), "{said}");
    assert!((40..60).contains(&lost(&said)), "{said}");
    let new = directory.path().join("new");
    let said = binlog(&["repair", "DIR", new.to_str().unwrap()], directory.path());
    assert!(said.ends_with("[1]\n"), "{said}");
    let server = Server::start(&ours(), &["-b", new.to_str().unwrap()]);
    tell(&server, "$ put next\n301");
}

#[test]
fn verify_reports_the_newest_segment_when_it_is_missing() {
    let directory = of_several_segments();
    let file = |number: &u32| directory.path().join(format!("binlog.{number}"));
    let newest = (1..).take_while(|number| file(number).exists()).last();
    let newest = newest.expect("there are several");
    std::fs::remove_file(file(&newest)).unwrap();
    let said = binlog(&["verify", "DIR"], directory.path());
    let missing = format!("binlog.{newest}: missing, and needed\n");
    assert!(said.contains(&missing), "{said}");
}

#[test]
fn repair_of_a_log_that_has_lost_all_segments_gives_an_empty_one() {
    let directory = of_several_segments();
    for number in 1.. {
        let file = directory.path().join(format!("binlog.{number}"));
        if std::fs::remove_file(file).is_err() {
            break;
        }
    }
    let said = binlog(&["verify", "DIR"], directory.path());
    let missing = "all segments are missing\ndamaged: 0 files, 0 records, 0 jobs live\n";
    assert!(said.starts_with(missing), "{said}");
    let new = directory.path().join("new");
    let said = binlog(&["repair", "DIR", new.to_str().unwrap()], directory.path());
    assert!(said.starts_with("0\n") && said.ends_with("[1]\n"), "{said}");
    let server = Server::start(&ours(), &["-b", new.to_str().unwrap()]);
    tell(&server, "$ put next\n1");
}

#[test]
fn half_written_files_of_beanstalkd_are_understood() {
    for program in beanstalkd() {
        let directory = written_by(&program);
        let offset = offset_of(&directory, "\"record\":\"job\",\"id\":5");
        let path = directory.path().join("binlog.1");
        let bytes = std::fs::read(&path).unwrap();
        // Their files are read-only, so only root could write to this one.
        std::fs::remove_file(&path).unwrap();
        // Cut off within the body of job 5, as a full disk leaves it.
        std::fs::write(&path, &bytes[..offset + 4 + 3 + 80 + 1]).unwrap();
        let said = binlog(&["verify", "DIR"], directory.path());
        assert_eq!(
            said,
            format!(
                "binlog.1 at offset {offset}: 88 bytes were never finished: a server drops them\n\
                 sound: 1 file, 4 records, 4 jobs live\n"
            )
        );
    }
}

#[test]
fn export7_loses_no_job_that_its_server_can_take() {
    for theirs in beanstalkd() {
        let directory = Directory::new();
        let server = Server::start(&ours(), &["-b", directory.text(), "-f", "0", "-z", "99999"]);
        for (body, count) in [(65_533, 1), (70_000, 2), (65_534, 1), (65_535, 1), (1, 20)] {
            let body = vec![b'x'; body];
            let lines = [body.as_slice(), b"\n"].concat().repeat(count);
            let lines = server.directory.write("lines", &lines);
            tell(&server, &format!("$ put -q -l -f '{}'", lines.display()));
        }
        drop(server);
        for (options, count) in [
            (&[][..], 21),
            (&["-z", "65536"], 22),
            (&["-z", "65537"], 23),
            (&["-z", "70001"], 23),
            (&["-z", "70002"], 25),
        ] {
            let new = Directory::new();
            assert_eq!(
                binlog(&["export7", "DIR", new.text()], directory.path()),
                "25\nbeanpole binlog: 4 of the jobs are larger than beanstalkd takes by default: start it \
                 with -z 70002, or it drops them for good\n"
            );
            let file = new.path().join("binlog.1");
            let mode = std::fs::metadata(file).unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o600);
            let server = Server::start(&theirs, &[&["-b", new.text()], options].concat());
            let stats = server.said(&["stats", "--json"]);
            let ready = format!("\"current-jobs-ready\":{count},");
            assert!(stats.contains(&ready), "{options:?}: {stats}");
        }
    }
}

#[test]
fn export7_says_which_options_beanstalkd_does_not_know() {
    let directory = Directory::new();
    let server = Server::start(&ours(), &["-b", directory.text()]);
    tell(
        &server,
        r#"
        $ put -q --unique a:1h one
        $ put -q --limit b:2 --tries 3 two
        $ put -q three
        $ delete 2
        $ put -q --unique c four
        "#,
    );
    drop(server);
    let verified = binlog(&["verify", "DIR"], directory.path());
    assert!(verified.ends_with(" records, 3 jobs live\n"), "{verified}");
    let said = binlog(&["cat", "DIR"], directory.path());
    let options = r#""options":"con:b:2 try:3","tries-failed":0,"#;
    assert!(said.contains(options), "{said}");
    let new = Directory::new();
    assert_eq!(
        binlog(&["export7", "DIR", new.text()], directory.path()),
        "3\nbeanpole binlog: beanstalkd knows no options of a put: 2 of the jobs lose theirs \
         (idp, con, try), and 1 keys of deleted jobs are no longer taken\n"
    );
}

#[test]
fn binlog_reports_a_directory_without_a_binlog() {
    let directory = Directory::new();
    for command in ["ls", "verify", "cat"] {
        assert_eq!(
            binlog(&[command, "DIR"], directory.path()),
            "beanpole binlog: there is no file of a binlog in DIR\n[1]\n"
        );
    }
}
