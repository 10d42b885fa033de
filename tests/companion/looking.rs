//! Looking at a server: stats, tubes, ping, tail.

use super::story::tell;
use super::support::{Running, Server, servers, wait_for};
use ::support::Port;
use std::process::Stdio;

#[test]
fn ping_reports_latencies_of_each_server() {
    for program in servers() {
        let mut server = Server::start(&program, &[]);
        let mut ping = server.beanpole();
        let output = ping
            .args(["ping", "-n", "3", "-i", "10ms"])
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(0));
        let said = String::from_utf8(output.stdout).unwrap();
        let words = said.replace(|c: char| c.is_ascii_digit() || c == '.', "");
        assert_eq!(
            words,
            ":: connected in  ms\n:  ms\n:  ms\n:  ms\n \
             answers: % within , % within , % within , longest  ms\n"
        );
        // Several servers are asked in turn, and one that is not there hides none.
        let (other, dead) = (Server::start(&program, &[]), Port::reserve(0).unwrap());
        let [dead, one, two] = [dead.number, server.port, other.port].map(|port| port.to_string());
        let mut ping = server.beanpole();
        ping.args(["ping", "-a", &dead, "-a", &one, "-a", &two]);
        let output = ping
            .args(["-n", "2", "-i", "10ms", "--json"])
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(3));
        let said: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        for port in [one, two] {
            assert_eq!(said[format!("127.0.0.1:{port}")]["answers"], 2);
        }
        // Interrupted, it says what it has found; and so it does if the server ends.
        for ends in [
            |_: &mut Server, ping: &Running| ping.signal("INT"),
            |server: &mut Server, _: &Running| server.kill(),
        ] {
            let mut ping = server.beanpole();
            ping.args(["ping", "-i", "10ms"]).stderr(Stdio::null());
            let mut ping = Running::reading_output(&mut ping);
            ping.wait_for_line_with("connected in");
            ends(&mut server, &ping);
            let (_, said) = ping.wait();
            assert!(said.contains(" answers: 50% within "), "{said}");
        }
    }
}

#[test]
fn tail_shows_new_jobs_without_reserving_them() {
    for program in servers() {
        let server = Server::start(&program, &[]);
        tell(&server, "$ put -q earlier");
        let mut tail = server.beanpole();
        tail.args(["tail", "mail", "log", "-n", "5", "-i", "0.01"]);
        let tail = Running::reading_output(&mut tail);
        // It is ready when it has learned the latest id: of the second job.
        wait_for("tail to begin", || server.counted("cmd-delete") == 1);
        tell(
            &server,
            "$ put -q -t mail -p 1 one 'two\\n'\n$ put -q -t other three\n$ put -q -t log -d 1000 -r 5 < '\\xff'",
        );
        tell(
            &server,
            "$ put -q -t mail four\n$ bury 6\n$ put -q -t mail five",
        );
        let (status, said) = tail.wait();
        assert_eq!(status, 0);
        let lines: Vec<_> = said
            .lines()
            .map(|line| {
                line.replace(" buried ", " ready ")
                    .replace(" reserved ", " ready ")
            })
            .collect();
        let expected = [
            "3 mail ready pri=1 delay=0 ttr=60 bytes=3 one",
            "4 mail ready pri=1 delay=0 ttr=60 bytes=4 two\\n",
            "6 log delayed pri=1024 delay=1000 ttr=5 bytes=1 \\xff",
            "7 mail ready pri=1024 delay=0 ttr=60 bytes=4 four",
            "8 mail ready pri=1024 delay=0 ttr=60 bytes=4 five",
        ];
        let lines: Vec<_> = lines
            .iter()
            .map(|line| line.replace("6 log ready", "6 log delayed"))
            .collect();
        assert_eq!(lines, expected);
        tell(
            &server,
            "$ reserve -t mail --all -l\none\ntwo\n\nfour\nfive",
        );
    }
}

#[test]
fn a_closed_output_ends_the_program_silently_and_deletes_nothing() {
    for program in servers() {
        let server = Server::start(&program, &[]);
        tell(&server, "$ put -q x");
        let (reader, writer) = nix::unistd::pipe().unwrap();
        drop(reader);
        let mut command = server.beanpole();
        let output = command
            .args(["reserve", "--delete"])
            .stdout(writer)
            .stderr(Stdio::piped());
        let output = output.spawn().unwrap().wait_with_output().unwrap();
        assert_eq!(
            (output.status.code(), output.stderr.as_slice()),
            (Some(141), &b""[..])
        );
        // And a job that nobody read is not deleted.
        tell(&server, "$ reserve -w 0 -l\nx");
    }
}
