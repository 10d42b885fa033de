//! A server that is broken or means harm: nothing that it sends reaches a
//! terminal as anything but text, and none of its replies is read without a
//! bound.

use super::screen::Screen;
use super::support::BEANPOLE;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Command, Output};

/// A server that gives `answer` to each line, and after that `rest` for ever if
/// there is any. Returns its port.
fn answering(
    answer: impl Fn(&str) -> Vec<u8> + Clone + Send + 'static,
    rest: &'static [u8],
) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let answer = answer.clone();
            std::thread::spawn(move || serve(stream, &answer, rest));
        }
    });
    port
}

fn serve(mut stream: TcpStream, answer: &impl Fn(&str) -> Vec<u8>, rest: &[u8]) {
    let lines = BufReader::new(stream.try_clone().unwrap()).lines();
    for line in lines.map_while(Result::ok) {
        let answer = answer(&line);
        let is_endless = !rest.is_empty() && is_announced_too_large(&answer);
        if stream.write_all(&answer).is_err() {
            return;
        }
        while is_endless && stream.write_all(rest).is_ok() {}
    }
}

/// Whether more is announced than comes with this answer.
fn is_announced_too_large(answer: &[u8]) -> bool {
    let line = answer.split(|byte| *byte == b'\r').next().unwrap();
    let size = line.rsplit(|byte| *byte == b' ').next().unwrap();
    let size = String::from_utf8_lossy(size).parse::<usize>();
    size.is_ok_and(|size| size > answer.len())
}

fn document(text: &str) -> Vec<u8> {
    format!("OK {}\r\n{text}\r\n", text.len()).into_bytes()
}

/// A title for the window, a colour, the same with a control character of eight
/// bits, what turns the direction of writing, and what cannot be seen.
const EVIL: &str = "\x1b]0;owned\x07\x1b[31m\u{9b}5m\u{202e}\u{2066}\u{200b}\u{feff}\u{e0041}";

fn is_harmless(text: &str) -> bool {
    let is_control = |c: char| c.is_control() && c != '\n' && c != '\r';
    !text.contains(|c| is_control(c) || EVIL.contains(c) && !c.is_ascii())
}

fn run(port: u16, command: &str) -> Output {
    let mut beanpole = Command::new(BEANPOLE);
    beanpole.args(["-a", &port.to_string(), "--timeout", "5"]);
    beanpole.args(command.split(' ')).output().unwrap()
}

#[test]
fn no_command_writes_control_characters_of_a_server() {
    let evil = |_: &str| format!("USING {EVIL}\r\n").into_bytes();
    let broken = |_: &str| document(&format!("---\n{EVIL}\n"));
    let lying = |line: &str| match line {
        "list-tubes" => document("---\n- default\n"),
        _ => document(&format!(
            "---\nid: 1\nname: default\ntube: default\nstate: {EVIL}\npri: {EVIL}\n\
             current-jobs-ready: 1\nos: {EVIL}\nversion: \"{EVIL}\"\n{EVIL}: 1\n"
        )),
    };
    let no_answer = |_: &str| format!("{EVIL}\r\n").into_bytes();
    let longer = |_: &str| format!("INSERTED 1 {EVIL} 5\r\n").into_bytes();
    let ports = [
        answering(evil, b""),
        answering(broken, b""),
        answering(lying, b""),
        answering(no_answer, b""),
        answering(longer, b""),
    ];
    for port in ports {
        for command in [
            "tubes",
            "tubes --json",
            "ls",
            "ls --json",
            "why",
            "metrics",
            "move a b --yes",
            "edit 1",
            "bury 1",
            "stats",
            "stats --json",
            "check",
            "peek",
            "peek 1",
            "put x",
            "kick",
            "reserve -w 0",
            "tail -n 1",
            "dump",
            "clear -y default",
            "work -n 1 --all -- true",
            "pause default 1",
        ] {
            let output = run(port, command);
            for bytes in [output.stdout, output.stderr] {
                let text = String::from_utf8(bytes).expect(command);
                assert!(is_harmless(&text), "{command}: {text:?}");
            }
        }
    }
}

#[test]
fn bodies_and_replies_of_raw_are_escaped_on_a_terminal() {
    let found = |line: &str| match line {
        "use x" => format!("USING {EVIL}\r\n").into_bytes(),
        _ => format!("FOUND 1 {}\r\n{EVIL}\r\n", EVIL.len()).into_bytes(),
    };
    let port = answering(found, b"").to_string();
    for (arguments, expected) in [
        (
            &["raw", "use", "x"][..],
            r"USING \x1b]0;owned\x07\x1b[31m\u{9b}5m\u{202e}",
        ),
        (
            &["raw", "peek", "1"],
            r"\x1b]0;owned\x07\x1b[31m\u{9b}5m\u{202e}\u{2066}\u{200b}",
        ),
    ] {
        let mut command = Command::new(BEANPOLE);
        command.args(["-a", &port]).args(arguments);
        let screen = Screen::start(&command, 120, 24);
        screen.wait_for(expected);
    }
}

#[test]
fn json_escapes_control_and_direction_characters() {
    let job = "---\nid: 1\ntube: default\nstate: ready\npri: 0\nage: 0\ndelay: 0\nttr: 1\n";
    let answer = move |line: &str| match line {
        "peek 1" => format!("FOUND 1 {}\r\n{EVIL}\r\n", EVIL.len()).into_bytes(),
        _ => document(job),
    };
    let output = run(answering(answer, b""), "peek --json 1");
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(is_harmless(&text), "{text:?}");
    let written: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(written["body"], EVIL, "{text}");
}

/// Runs a command that may use 200 MB of address space, of which the program
/// itself takes a part.
fn run_in_little_memory(port: u16, command: &str) -> Output {
    let script = format!("ulimit -v 200000; exec '{BEANPOLE}' -a {port} {command}");
    Command::new("sh").args(["-c", &script]).output().unwrap()
}

#[test]
fn a_reply_announced_above_its_bound_is_refused_at_once() {
    let answer = |line: &str| match line.split(' ').next() {
        Some("peek" | "peek-ready") => b"FOUND 1 9999999999999\r\n".to_vec(),
        _ => b"OK 9999999999999\r\n".to_vec(),
    };
    let port = answering(answer, &[b'x'; 1 << 16]);
    for command in [
        "stats",
        "tubes",
        "ls",
        "peek",
        "peek 1",
        "dump",
        "raw stats",
        "check",
    ] {
        let output = run_in_little_memory(port, command);
        let said = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
        assert!(
            said.contains("9999999999999 bytes, more than"),
            "{command}: {said}"
        );
    }
}

#[test]
fn a_body_may_be_as_large_as_max_job_size() {
    let answer = |size: &'static str, line: &str| match line {
        "peek 1" => format!("FOUND 1 {}\r\n", 1 << 29).into_bytes(),
        "peek 2" => [
            b"FOUND 2 100000\r\n",
            "y".repeat(100_000).as_bytes(),
            b"\r\n",
        ]
        .concat(),
        _ => document(&format!("---\nmax-job-size: {size}\n")),
    };
    let port = answering(move |line| answer("65535", line), &[b'x'; 1 << 16]);
    let output = run_in_little_memory(port, "raw peek 1");
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(3), "{said}");
    assert!(
        said.contains("536870912 bytes, more than the 65535"),
        "{said}"
    );
    assert_eq!(run(port, "raw peek 2").status.code(), Some(3));
    let port = answering(move |line| answer("100000", line), b"");
    let output = run(port, "raw peek 2");
    assert_eq!(
        output.stdout.len(),
        "FOUND 2 100000\r\n\r\n".len() + 100_000
    );
}
