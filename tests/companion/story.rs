//! Stories: what somebody types at a shell, and what comes back.
//!
//! ```text
//! $ put hello                 runs `beanpole put hello`
//! 1                           its standard output
//! $ delete 7
//! ! beanpole delete: …        a line of its standard error
//! [1]                         its exit status, if not 0
//! $ put --lines < 'a\nb\n'    with this standard input
//! ```
//!
//! Words may stand in single quotes, in which `\n`, `\0` and `\xNN` mean what
//! they mean in Rust. Bytes that are not text are written so in the output
//! too; output that does not end its last line is followed by `⊣`. `PORT`
//! stands for the port of the server, and `N` for an age or a time left.

use super::support::{BEANPOLE, Server};
use std::ffi::OsString;
use std::io::Write;
use std::os::unix::ffi::OsStringExt;
use std::process::{Output, Stdio};
/// Tells a story to this server.
#[track_caller]
pub fn tell(server: &Server, story: &str) {
    let expected: String = story
        .lines()
        .map(|line| format!("{}\n", line.trim_start()))
        .collect();
    let mut told = String::new();
    for line in expected
        .trim()
        .lines()
        .filter(|line| line.starts_with("$ "))
    {
        told += &format!("{line}\n");
        told += &run(server, &line[2..]);
    }
    let (told, expected) = (told.trim(), expected.trim());
    assert!(told == expected, "told:\n{told}\n\nexpected:\n{expected}");
}

fn run(server: &Server, line: &str) -> String {
    let port = server.port.to_string();
    let mut words = words(
        &line
            .replace("PORT", &port)
            .replace(" BEANPOLE", &format!(" '{BEANPOLE}'")),
    );
    let input = match words.iter().position(|word| word == b"<") {
        Some(at) => words.drain(at..).nth(1).expect("input follows <"),
        None => Vec::new(),
    };
    let mut child = server
        .beanpole()
        .args(words.into_iter().map(OsString::from_vec))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program starts");
    let mut stdin = child.stdin.take().expect("it has an input");
    // It need not read its input.
    let _ = stdin.write_all(&input);
    drop(stdin);
    let output = child.wait_with_output().expect("the program ends");
    without_times(&without_ours(&told(&output).replace(&port, "PORT")))
}

/// What only beanpoled tells in its statistics.
const OURS: [&str; 6] = [
    "reserved-by",
    "total-reserves",
    "total-releases",
    "total-buries",
    "total-timeouts",
    "total-kicks",
];

/// The text without what only beanpoled tells, and with a table of a job as it is
/// without this.
pub fn without_ours(text: &str) -> String {
    let mut text = String::from(text);
    for key in OURS {
        let pair = format!(",\"{key}\":");
        let mut parts = text.split(&pair);
        let mut rest = parts.next().unwrap_or_default().to_owned();
        for part in parts {
            rest += part.trim_start_matches(|c: char| c.is_ascii_digit());
        }
        text = rest;
    }
    let is_job = text.contains("\nreserved-by  ");
    let is_ours = |line: &&str| OURS.iter().any(|key| line.starts_with(&format!("{key} ")));
    let lines = text.split_inclusive('\n').filter(|line| !is_ours(line));
    let narrower = |line: &str| match line.split_at_checked("time-left".len()) {
        Some((key, value)) if is_job => {
            format!("{key}{}", value.strip_prefix("  ").unwrap_or(value))
        }
        _ => line.into(),
    };
    lines.map(narrower).collect()
}

/// The text with `N` for what depends on how fast the machine is.
fn without_times(text: &str) -> String {
    let mut text = String::from(text);
    const BEFORE: [&str; 6] = [
        "\"age\":",
        "\"time-left\":",
        "
age        ",
        "
time-left  ",
        "
age: ",
        "
time-left: ",
    ];
    for before in BEFORE {
        let mut parts = text.split(before);
        let mut masked = parts.next().unwrap_or_default().to_owned();
        for part in parts {
            masked += before;
            masked += "N";
            masked += part.trim_start_matches(|c: char| c.is_ascii_digit());
        }
        text = masked;
    }
    text
}

fn told(output: &Output) -> String {
    let mut text = readable(&output.stdout);
    for line in readable(&output.stderr).lines() {
        text += &format!("! {line}\n");
    }
    match output.status.code() {
        Some(0) => {}
        Some(code) => text += &format!("[{code}]\n"),
        None => text += &format!("[{}]\n", output.status),
    }
    text
}

fn readable(bytes: &[u8]) -> String {
    let mut text = String::new();
    for chunk in bytes.utf8_chunks() {
        for character in chunk.valid().chars() {
            match character {
                '\n' => text.push('\n'),
                '\0'..='\x1f' | '\x7f' => {
                    text += &character.to_string().as_bytes().escape_ascii().to_string();
                }
                other => text.push(other),
            }
        }
        text += &chunk.invalid().escape_ascii().to_string();
    }
    if !text.is_empty() && !text.ends_with('\n') {
        text += "⊣\n";
    }
    text
}

fn words(line: &str) -> Vec<Vec<u8>> {
    let mut words = Vec::new();
    let mut rest = line.trim();
    while !rest.is_empty() {
        let (word, after) = match rest.strip_prefix('\'') {
            Some(quoted) => {
                let (word, after) = quoted.split_once('\'').expect("a quote is closed");
                (unescape(word), after)
            }
            None => {
                let (word, after) = rest.split_once(' ').unwrap_or((rest, ""));
                (word.into(), after)
            }
        };
        words.push(word);
        rest = after.trim_start();
    }
    words
}

fn unescape(text: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        let meant = match (byte, byte == b'\\') {
            (_, false) => byte,
            _ => match rest.next() {
                Some(b'n') => b'\n',
                Some(b'r') => b'\r',
                Some(b'0') => b'\0',
                Some(b'\\') => b'\\',
                Some(b'x') => {
                    let digits: Vec<u8> = rest.by_ref().take(2).collect();
                    let digits = String::from_utf8(digits).expect("digits");
                    u8::from_str_radix(&digits, 16).expect("two hexadecimal digits")
                }
                other => panic!("unknown escape {other:?}"),
            },
        };
        bytes.push(meant);
    }
    bytes
}
