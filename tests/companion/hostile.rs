//! A server that is broken or means harm: nothing that it sends reaches a
//! terminal as anything but text, and none of its replies is read without a
//! bound.

use super::screen::Screen;
use super::support::{listen, on_each_server};
use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};
use support::session::Scene;
use support::{eventually, patience};

/// A server that gives `answer` to each line, and, if that announces more than it has,
/// goes on for ever.
fn answering(answer: impl Fn(&str) -> Vec<u8> + Clone + Send + 'static) -> Scene {
    let (listener, port) = listen();
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let answer = answer.clone();
            thread::spawn(move || serve(stream, &answer));
        }
    });
    Scene::at(port)
}

fn serve(mut stream: TcpStream, answer: &impl Fn(&str) -> Vec<u8>) {
    let lines = BufReader::new(stream.try_clone().expect("a copy")).lines();
    for line in lines.map_while(Result::ok) {
        let answer = answer(&line);
        if stream.write_all(&answer).is_err() {
            return;
        }
        let first = String::from_utf8_lossy(&answer);
        let size = first
            .lines()
            .next()
            .and_then(|line| line.rsplit(' ').next());
        let size = size.and_then(|size| size.parse::<usize>().ok());
        if size.is_some_and(|size| size > answer.len()) {
            while stream.write_all(&[b'x'; 1 << 16]).is_ok() {}
        }
    }
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
    for scene in [
        answering(evil),
        answering(broken),
        answering(lying),
        answering(no_answer),
        answering(longer),
    ] {
        scene.write(
            "dump",
            r#"{"beanpole-dump":1}
{"id":1,"tube":"default","state":"ready","pri":0,"ttr":1,"body":"x"}
{"beanpole-dump-end":1,"jobs":1}
"#,
        );
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
            "clients",
            "top",
            "load dump",
            "dump",
            "delete -y -t default",
            "work -n 1 --all -- true",
            "pause default 1",
        ] {
            let (said, error) = scene.said(&format!("beanpole --timeout 5 {command}"));
            assert!(!error.contains("Try 'beanpole help"), "{command}: {error}");
            assert!(
                is_harmless(&said) && is_harmless(&error),
                "{command}: {said:?} {error:?}"
            );
        }
    }
}

#[test]
fn bodies_and_replies_are_escaped_on_a_terminal() {
    let found = |line: &str| match line {
        "use x" => format!("USING {EVIL}\r\n").into_bytes(),
        _ => format!("FOUND 1 {}\r\n{EVIL}\r\n", EVIL.len()).into_bytes(),
    };
    let scene = answering(found);
    for (command, expected) in [
        (
            "beanpole raw use x",
            r"USING \x1b]0;owned\x07\x1b[31m\u{9b}5m\u{202e}",
        ),
        (
            "beanpole raw peek 1",
            r"\x1b]0;owned\x07\x1b[31m\u{9b}5m\u{202e}\u{2066}\u{200b}",
        ),
        ("beanpole peek 1", r"\x1b]0;owned\x07\x1b[31m"),
    ] {
        Screen::start(&scene.shell(command), 120, 24).wait_for(expected);
    }
}

#[test]
fn json_escapes_control_and_direction_characters() {
    let job = "---\nid: 1\ntube: default\nstate: ready\npri: 0\nage: 0\ndelay: 0\nttr: 1\n";
    let answer = move |line: &str| match line {
        "peek 1" => format!("FOUND 1 {}\r\n{EVIL}\r\n", EVIL.len()).into_bytes(),
        "stats-job 1" => document(job),
        _ => b"UNKNOWN_COMMAND\r\n".to_vec(),
    };
    let text = answering(answer).out("beanpole peek --json 1");
    assert!(is_harmless(&text), "{text:?}");
    let written: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!(written["body"], EVIL, "{text}");
}

/// A command that may use 200 MB of address space, of which the program itself takes a
/// part.
fn in_little_memory(command: &str) -> String {
    format!("ulimit -v 200000; exec beanpole {command}")
}

#[test]
fn a_reply_announced_above_its_bound_is_refused_at_once() {
    let scene = answering(|line| match line.split(' ').next() {
        Some("peek" | "peek-ready") => b"FOUND 1 9999999999999\r\n".to_vec(),
        _ => b"OK 9999999999999\r\n".to_vec(),
    });
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
        let (said, error) = scene.said(&in_little_memory(command));
        let refused = [&*said, &error]
            .concat()
            .contains("9999999999999 bytes, more than");
        assert!(refused, "{command}: {said} {error}");
    }
}

/// What a server without lists says, but for the jobs.
fn plain(line: &str) -> Vec<u8> {
    let word = line.split(' ').next().unwrap_or_default();
    match word {
        "use" => b"USING default\r\n".to_vec(),
        "ignore" | "watch" => b"WATCHING 1\r\n".to_vec(),
        "touch" => b"TOUCHED\r\n".to_vec(),
        "delete" => b"DELETED\r\n".to_vec(),
        "reserve-with-timeout" | "reserve" => b"RESERVED 1 1\r\nx\r\n".to_vec(),
        "list-tubes" => document("---\n- default\n"),
        "stats" => document("---\nid: 1\ncurrent-jobs-ready: 1\ncmd-put: 1\n"),
        "stats-tube" => document("---\nname: default\ncurrent-jobs-ready: 1\n"),
        "stats-job" => document(JOB),
        _ => b"UNKNOWN_COMMAND\r\n".to_vec(),
    }
}

const JOB: &str = "---\nid: 1\ntube: default\nstate: ready\npri: 0\nage: 0\ndelay: 0\nttr: 60\n";

#[test]
fn the_statistics_of_many_tubes_take_longer_than_a_reply_may() {
    let tubes: String = (0..30).map(|number| format!("- t{number}\n")).collect();
    let scene = answering(move |line| match line {
        "list-tubes" => document(&format!("---\n{tubes}")),
        _ => {
            let is_slow = line.starts_with("stats-tube");
            thread::sleep(Duration::from_millis(if is_slow { 100 } else { 0 }));
            plain(line)
        }
    });
    let written = scene.out("beanpole --timeout 2 metrics");
    assert_eq!(written.matches("beanstalk_tube_watching{").count(), 30);
}

/// The same, with lists that never end, without anything in them or with much.
fn endless(what: &'static str) -> impl Fn(&str) -> Vec<u8> + Clone {
    move |line| {
        let words: Vec<&str> = line.split(' ').collect();
        match words[..] {
            [
                "list-tube-stats" | "list-connections" | "list-jobs",
                from,
                ..,
            ] => {
                let next = from.parse::<u64>().map_or(0, |from| from.wrapping_add(1));
                let from = from.to_owned();
                let item = what.replace("FROM", &from);
                document(&format!("---\nall:\n{item}next: {next}\n"))
            }
            _ => plain(line),
        }
    }
}

const TUBE: &str = "- {name: tFROM, current-jobs-ready: 1000, id: FROM}\n";

#[test]
fn a_list_without_an_end_ends_no_sight_of_another_server() {
    let good = Scene::ours();
    good.tell("$ beanpole put -q -t mail x");
    for item in ["", TUBE] {
        let scene = &answering(endless(item));
        let both = &format!("-a {} -a {}", scene.address(), good.address());
        thread::scope(|scope| {
            for command in ["tubes", "why", "clients", "stats default", "metrics", "top"] {
                scope.spawn(move || {
                    let (said, error) = scene.said(&format!("beanpole --timeout 0.3 {command}"));
                    let told = [said, error].concat();
                    // It may just be asked for more when the time is over.
                    let is_ended = told.contains("no end") || told.contains("no reply within");
                    assert!(is_ended, "{command}: {told}");
                });
            }
            for command in ["tubes", "why", "stats mail", "metrics", "top"] {
                let good = &good;
                scope.spawn(move || {
                    let line = format!("beanpole --timeout 1 {both} {command}");
                    let (said, error) = good.said(&line);
                    assert!(said.contains("mail"), "{command}: {said} {error}");
                });
            }
        });
    }
}

#[test]
fn each_message_about_one_of_several_servers_says_which() {
    let (silent, port) = listen();
    let (good, lying) = (Scene::ours(), answering(|_| document("nonsense\n")));
    let bad = [
        lying.address(),
        format!("127.0.0.1:{port}"),
        "127.0.0.1:1".into(),
    ];
    let servers = format!("-a {} -a {}", good.address(), bad.join(" -a "));
    for command in [
        "stats",
        "stats default",
        "tubes",
        "why",
        "metrics",
        "top",
        "check",
    ] {
        let (said, error) = good.said(&format!("beanpole --timeout 1 {servers} {command}"));
        let messages: Vec<_> = match command {
            "check" => said
                .split(" OK |")
                .take(1)
                .flat_map(|told| told.split("; "))
                .collect(),
            _ => error.lines().collect(),
        };
        for address in &bad {
            let mut about = messages.iter().filter(|message| message.contains(address));
            assert!(about.next().is_some(), "{command}: {address}: {messages:?}");
        }
    }
    drop(silent);
}

#[test]
fn a_reply_that_comes_byte_by_byte_has_one_deadline() {
    for begins in ["", "OK 1000\r\n", "FOUND 1 1000\r\n"] {
        let (listener, port) = listen();
        thread::spawn(move || {
            for mut stream in listener.incoming().flatten() {
                let mut sent = stream.write_all(begins.as_bytes());
                while sent.is_ok() {
                    thread::sleep(Duration::from_millis(100));
                    sent = stream.write_all(b"x");
                }
            }
        });
        let (said, error) = Scene::at(port).said("beanpole --timeout 0.5 peek 1");
        assert_eq!(said, "", "{error}");
        assert!(error.contains("no reply within 0.5 s"), "{error}");
    }
}

#[test]
fn a_walk_through_jobs_without_an_end_ends() {
    let scene = answering(endless(""));
    let (_, error) = scene.said("beanpole dump");
    assert!(
        error.contains("the server's list of jobs has no end"),
        "{error}"
    );
}

#[test]
fn a_body_of_which_little_is_wanted_takes_little_memory() {
    let large = |line: &str| match line.split(' ').next() {
        // It goes on for ever.
        Some("peek" | "peek-ready") => b"FOUND 1 1073741824\r\n".to_vec(),
        _ => plain(line),
    };
    let scene = answering(large);
    for command in ["why", "metrics --age", "top"] {
        let (said, error) = scene.said(&in_little_memory(command));
        let told = [said, error].concat();
        assert!(!told.contains("memory allocation"), "{command}: {told}");
        // Where all is slow, the time is over first.
        let is_ended = told.contains("is not of the beanstalk protocol");
        let is_late = told.contains("no end") || told.contains("no reply within");
        assert!(is_ended || is_late, "{command}: {told}");
    }
}

#[test]
fn a_large_body_is_no_reason_not_to_answer() {
    on_each_server(&["-z", "300000000"], |scene| {
        scene.tell("$ head -c 200000000 /dev/zero | beanpole --timeout 1m put -t mail\n1");
        let why = scene.out(&in_little_memory("--timeout 1m why"));
        assert_eq!(why, "mail: Nobody watches it; 1 job is ready.\n");
        // It asks for no longer than 5 s.
        eventually("an answer in time", || {
            scene.out(&in_little_memory("top")).contains("mail")
        });
    });
}

#[test]
fn a_worker_outlives_statistics_that_are_none() {
    for wrong in [
        "x".repeat(1 << 22),
        format!("---\n{}", "k: v\n".repeat(1 << 18)),
        "---\n".into(),
    ] {
        let asked = Arc::new(AtomicUsize::new(0));
        let scene = answering(move |line| match line.split(' ').next() {
            Some("stats-job") if asked.fetch_add(1, Ordering::SeqCst) == 0 => document(&wrong),
            _ => plain(line),
        });
        let (said, error) = scene.said("beanpole work -n 1 -- cat");
        assert_eq!(said, "x", "{error}");
        assert!(error.contains("beanpole work: job 1: "), "{error}");
    }
}

#[test]
fn kick_tells_what_it_has_done_before_the_server_refuses() {
    let asked = Arc::new(AtomicUsize::new(0));
    let scene = answering(move |line| match line.split(' ').next() {
        Some("kick") if asked.fetch_add(1, Ordering::SeqCst) == 0 => b"KICKED 2\r\n".to_vec(),
        Some("kick") => b"INTERNAL_ERROR\r\n".to_vec(),
        _ => plain(line),
    });
    let (said, error) = scene.said("beanpole kick --all -t mail -t post");
    assert_eq!(said, "2\n", "{error}");
    assert!(error.contains("(INTERNAL_ERROR)"), "{error}");
}

#[test]
fn work_waits_before_it_asks_a_server_again_that_answers_nonsense() {
    let (tell, deletes) = mpsc::channel();
    let scene = answering(move |line| match line.split(' ').next() {
        Some("delete") => {
            // Nobody waits for the times of more than three.
            let (Ok(()) | Err(_)) = tell.send(Instant::now());
            b"NONSENSE\r\n".to_vec()
        }
        Some("reserve-job") => b"RESERVED 1 1\r\nx\r\n".to_vec(),
        Some("peek") => b"FOUND 1 1\r\nx\r\n".to_vec(),
        _ => plain(line),
    });
    let _worker = scene.begin("beanpole work -n 1 -- true");
    let [_, second, third] = [(); 3].map(|()| deletes.recv_timeout(patience()).expect("a delete"));
    // The first attempt comes at once, and others do not.
    assert!(third - second >= Duration::from_millis(500));
}
