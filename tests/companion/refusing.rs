//! A beanstalkd whose binlog has had no room: what the program asks of it is
//! still answered, and nothing is left behind.

use super::story::tell;
use super::support::{Directory, Server, beanstalkd};
use std::path::Path;
use std::process::Command;

/// A server that has no room for another file of its binlog, and how many jobs
/// it took before it refused the first.
fn full(program: &Path) -> (Directory, Server, u64) {
    let binlog = Directory::new();
    let server = Server::start(program, &["-b", binlog.text(), "-s", "16384"]);
    std::fs::remove_dir_all(binlog.path()).unwrap();
    for size in [4000, 400, 0] {
        let lines = format!("{}\n", "x".repeat(size)).repeat(60);
        let lines = server.directory.write("lines", lines.as_bytes());
        let mut put = server.beanpole();
        put.args(["put", "-q", "-t", "mail", "-l", "-f"]).arg(lines);
        let said = said(&mut put);
        assert!(said.contains("(OUT_OF_MEMORY)"), "{said}");
    }
    let count = said(server.beanpole().args(["ls", "-q", "mail"]));
    (binlog, server, count.lines().count() as u64 - 1)
}

/// What a command writes, its error output last.
fn said(command: &mut Command) -> String {
    let output = command.output().unwrap();
    String::from_utf8([output.stdout, output.stderr].concat()).unwrap()
}

/// The last line of what a command says of jobs that the server refused.
const STRANGE: &str =
    "is in the state 'invalid', which the protocol does not have: such jobs are passed over";

#[test]
fn a_beanstalkd_whose_disk_was_full_can_be_evacuated() {
    for program in beanstalkd() {
        let (_binlog, server, count) = full(&program);
        let other = Server::start(&program, &[]);
        // Each of these asks for the latest id by a job that is refused.
        let listed = said(server.beanpole().args(["ls", "mail", "--json"]));
        assert!(listed.contains(STRANGE), "{listed}");
        assert_eq!(listed.matches("\"state\":\"ready\"").count() as u64, count);
        let address = other.address();
        let copied = said(
            server
                .beanpole()
                .args(["copy", "mail", "mail", "--to", &address]),
        );
        assert!(copied.starts_with(&format!("{count}\n")), "{copied}");
        let dump = other.directory.path().join("dump");
        let dumped = said(server.beanpole().args(["dump", "-o"]).arg(&dump));
        assert!(dumped.starts_with("beanpole dump: job") && dumped.trim_end().ends_with(STRANGE));
        tell(
            &other,
            &format!("$ load -t loaded '{}'\n{count}", dump.display()),
        );
        // The jobs that were refused are told, and nothing can be done to them.
        let refused = count + 1;
        tell(
            &server,
            &format!(
                "$ delete {refused}\n\
                 ! beanpole delete: job {refused} is invalid: this is no state for it\n[1]"
            ),
        );
        let cleared = said(server.beanpole().args(["clear", "mail", "-y"]));
        assert!(cleared.starts_with(&format!("{count}\n")), "{cleared}");
        tell(&server, "$ tubes --names\ndefault\nmail");
    }
}

#[test]
fn tail_says_why_it_cannot_begin_when_the_server_has_no_room() {
    for program in beanstalkd() {
        let (_binlog, server, _) = full(&program);
        tell(
            &server,
            "$ tail -n 1\n! beanpole tail: the job that tells the latest id: \
             the server has no room for it (OUT_OF_MEMORY)\n[4]",
        );
    }
}
