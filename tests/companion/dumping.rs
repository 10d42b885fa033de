//! All jobs of a server in a file, and back: dump and load.

use super::story::tell;
use super::support::{Server, servers};
use std::io::Write as _;
use std::process::Stdio;
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
