//! A transcript as data: its text is parsed into the steps to play.

use crate::{source, text_of};
use std::fs;
use std::time::Duration;

/// One transcript.
pub struct Story {
    /// The name of its file.
    pub name: String,
    /// What the lines `server:` add to the command line, and of which server;
    /// `None`: of both.
    server_options: Vec<(Option<Side>, String)>,
    steps: Vec<Step>,
    /// The only server for which the rest of the story is meant.
    rest: Option<Side>,
}

/// One thing that a client or the world does, or that a client must see.
#[derive(Clone)]
pub struct Step {
    /// Its line in the file, from 1.
    pub line: usize,
    /// The client that does or sees it; empty if it is no client's step.
    pub client: String,
    /// What happens.
    pub action: Action,
    /// The server that it is meant for; `None`: for both.
    only: Option<Side>,
}

/// What a step does or expects.
#[derive(Clone)]
pub enum Action {
    /// The client sends these bytes, in one write.
    Send(Vec<u8>),
    /// These bytes come. `<number>`, `<hex>` and `<text>` stand for what
    /// varies.
    Expect(Vec<u8>),
    /// A line with a length comes, and then a document of that many bytes.
    ExpectDocument(Document),
    /// Nothing comes.
    Waits,
    /// Something has come, but the client leaves it unread for now.
    ReadsLater,
    /// The client connects, and says nothing.
    Connects,
    /// The client closes its connection.
    Closes,
    /// The client closes its sending half.
    SendsNoMore,
    /// The end of the stream comes.
    IsClosed,
    /// Time passes.
    Pass(Duration),
    /// The server gets SIGUSR1.
    Drain,
}

/// The reply to stats, to the other commands for statistics, and to lists.
#[derive(Clone)]
pub struct Document {
    /// The line before it, as a pattern, with CR LF.
    pub head: Vec<u8>,
    /// Its lines, as patterns; `...` stands for any number of lines.
    pub lines: Vec<(Option<Side>, String)>,
}

/// The two servers with which a story is played.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// Ours.
    Beanpole,
    /// The real one.
    Beanstalkd,
}

/// All transcripts, in the order of their numbers.
pub fn all() -> Vec<Story> {
    let folder = "tests/transcripts";
    let entries = fs::read_dir(source(folder)).expect("the folder of the transcripts");
    let files = entries.map(|entry| entry.expect("an entry").file_name());
    let names = files.map(|name| name.into_string().expect("a name in UTF-8"));
    let mut names: Vec<String> = names.filter(|name| name.ends_with(".txt")).collect();
    names.sort();
    let parse = |name: &String| Story::parse(name, &text_of(&format!("{folder}/{name}")));
    let stories: Result<_, String> = names.iter().map(parse).collect();
    stories.unwrap_or_else(|error| panic!("{error}"))
}

impl Story {
    /// Reads a transcript. An error names the file, the line and the reason.
    pub fn parse(name: &str, text: &str) -> Result<Story, String> {
        let mut story = Story {
            name: name.to_owned(),
            server_options: Vec::new(),
            steps: Vec::new(),
            rest: None,
        };
        let mut explained = false;
        for (index, line) in text.lines().enumerate() {
            let (only, rest) = split_side(line);
            let read = if only.is_some() && !explained {
                Err("a difference needs its reason, in a comment just above")
            } else {
                story.read_line(index + 1, only.or(story.rest), rest)
            };
            read.map_err(|reason| format!("{name}:{}: {reason}: {line}", index + 1))?;
            explained = only.is_some() || line.starts_with('#');
        }
        for side in [Side::Beanpole, Side::Beanstalkd] {
            story.check_that_what_is_sent_is_answered(side)?;
        }
        Ok(story)
    }

    /// What to add to the command line of this server.
    pub fn server_options(&self, side: Side) -> impl Iterator<Item = &str> {
        let options = self.server_options.iter();
        let meant = options.filter(move |(only, _)| only.is_none_or(|only| only == side));
        meant.map(|(_, option)| option.as_str())
    }

    /// The steps for one of the servers, without those meant for the other.
    /// Lines that a client sends one after the other are joined to one write.
    pub fn steps_for(&self, side: Side) -> Vec<Step> {
        let mut steps: Vec<Step> = Vec::new();
        for mut step in self
            .steps
            .iter()
            .filter(|step| step.only.is_none_or(|only| only == side))
            .cloned()
        {
            if let Action::ExpectDocument(document) = &mut step.action {
                document
                    .lines
                    .retain(|(only, _)| only.is_none_or(|only| only == side));
            }
            match (steps.last_mut(), &step.action) {
                (
                    Some(Step {
                        client,
                        action: Action::Send(before),
                        ..
                    }),
                    Action::Send(bytes),
                ) if *client == step.client => {
                    before.extend_from_slice(bytes);
                }
                _ => steps.push(step),
            }
        }
        steps
    }

    fn read_line(
        &mut self,
        line: usize,
        only: Option<Side>,
        text: &str,
    ) -> Result<(), &'static str> {
        if text.is_empty() || text.starts_with('#') {
            return Ok(());
        }
        if text.ends_with(' ') {
            return Err("a space at the end is easily lost, write \\s");
        }
        if text == "-- from here on beanpole only" {
            self.rest = Some(Side::Beanpole);
            return Ok(());
        }
        if let Some(options) = text.strip_prefix("server: ") {
            let options = options.split(' ').map(str::to_owned);
            self.server_options
                .extend(options.map(|option| (only, option)));
            return Ok(());
        }
        if let Some(document_line) = text.strip_prefix("    ") {
            let reply = self.steps.last_mut().ok_or("a document without a reply")?;
            if let Action::Expect(head) = &mut reply.action {
                let head = std::mem::take(head);
                reply.action = Action::ExpectDocument(Document {
                    head,
                    lines: Vec::new(),
                });
            }
            let Action::ExpectDocument(document) = &mut reply.action else {
                return Err("a document without a reply");
            };
            let line = String::from_utf8(read_bytes(document_line)?).map_err(|_| "not text")?;
            document.lines.push((only, line));
            return Ok(());
        }
        let (client, action) = read_step(text)?;
        self.steps.push(Step {
            line,
            client,
            action,
            only,
        });
        Ok(())
    }

    /// After a client has sent something, the story must say what comes back to
    /// it, before anybody else acts. So nothing is left to chance.
    fn check_that_what_is_sent_is_answered(&self, side: Side) -> Result<(), String> {
        let steps = self.steps_for(side);
        for (index, step) in steps.iter().enumerate() {
            let next = steps
                .get(index + 1)
                .filter(|next| next.client == step.client);
            if matches!(step.action, Action::Send(_)) && next.is_none() {
                return Err(format!(
                    "{}:{}: what comes back? Say (waits) if nothing does",
                    self.name, step.line
                ));
            }
        }
        Ok(())
    }
}

/// Splits off the mark of a line that is meant for one server only.
fn split_side(line: &str) -> (Option<Side>, &str) {
    for (mark, side) in [
        ("beanpole|   ", Side::Beanpole),
        ("beanstalkd| ", Side::Beanstalkd),
    ] {
        if let Some(rest) = line.strip_prefix(mark) {
            return (Some(side), rest);
        }
    }
    (None, line)
}

/// Reads a line that is a step of its own: the client and what happens.
fn read_step(text: &str) -> Result<(String, Action), &'static str> {
    if let Some(event) = text.strip_prefix("-- ") {
        return Ok((String::new(), read_event(event)?));
    }
    let end = text
        .find(|c: char| !c.is_ascii_lowercase())
        .ok_or("neither a step nor a comment")?;
    let (client, rest) = text.split_at(end);
    let action = match rest {
        " (waits)" => Action::Waits,
        " (reads later)" => Action::ReadsLater,
        " (connects)" => Action::Connects,
        " (closes)" => Action::Closes,
        " (sends no more)" => Action::SendsNoMore,
        " (is closed)" => Action::IsClosed,
        _ => match (rest.strip_prefix(':'), rest.strip_prefix('<')) {
            (Some(line), _) => Action::Send(read_line_bytes(line)?),
            (_, Some(line)) => Action::Expect(read_line_bytes(line)?),
            _ => return Err("neither a step nor a comment"),
        },
    };
    match client {
        "" => Err("a step of nobody"),
        _ => Ok((client.to_owned(), action)),
    }
}

/// Reads a step that is not a client's: `1 second passes`, or the signal.
fn read_event(event: &str) -> Result<Action, &'static str> {
    if event == "the server receives SIGUSR1" {
        return Ok(Action::Drain);
    }
    let seconds = event
        .strip_suffix(" second passes")
        .or_else(|| event.strip_suffix(" seconds pass"));
    let seconds = seconds
        .and_then(|number| number.parse().ok())
        .ok_or("an unknown event")?;
    Ok(Action::Pass(
        Duration::try_from_secs_f64(seconds).map_err(|_| "not a time")?,
    ))
}

/// Reads the bytes of a line. CR LF ends them, unless a backslash ends the
/// line.
fn read_line_bytes(line: &str) -> Result<Vec<u8>, &'static str> {
    let line = line.strip_prefix(' ').unwrap_or(line);
    let backslashes = line.bytes().rev().take_while(|&byte| byte == b'\\').count();
    match line.strip_suffix('\\').filter(|_| backslashes % 2 == 1) {
        Some(open) => read_bytes(open),
        None => Ok([read_bytes(line)?, b"\r\n".to_vec()].concat()),
    }
}

/// Resolves the escapes and the repetitions in a text.
fn read_bytes(text: &str) -> Result<Vec<u8>, &'static str> {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let [first, after @ ..] = rest {
        rest = match (first, after) {
            (b'\\', [b'x', digits @ ..]) => {
                let (digits, after) = digits
                    .split_at_checked(2)
                    .ok_or("\\x without its two digits")?;
                let digits = std::str::from_utf8(digits).map_err(|_| "not text")?;
                bytes.push(u8::from_str_radix(digits, 16).map_err(|_| "not a hexadecimal number")?);
                after
            }
            (b'\\', [letter, after @ ..]) => {
                bytes.push(match letter {
                    b'r' => b'\r',
                    b'n' => b'\n',
                    b't' => b'\t',
                    b's' => b' ',
                    b'0' => b'\0',
                    b'\\' => b'\\',
                    _ => return Err("an unknown escape"),
                });
                after
            }
            (b'{', after) => {
                let length = after
                    .iter()
                    .position(|&byte| byte == b'}')
                    .ok_or("a brace without its pair")?;
                let inside = std::str::from_utf8(&after[..length]).map_err(|_| "not text")?;
                match inside.split_once(" times ") {
                    Some((count, what)) => {
                        let count = count.parse().map_err(|_| "not a number of times")?;
                        bytes.extend(what.as_bytes().repeat(count));
                        &after[length + 1..]
                    }
                    None => {
                        bytes.push(b'{');
                        after
                    }
                }
            }
            (&byte, after) => {
                bytes.push(byte);
                after
            }
        };
    }
    Ok(bytes)
}

/// Whether the lines fit the patterns. `...` stands for any number of lines.
pub fn lines_fit(patterns: &[&str], lines: &[&str]) -> bool {
    match (patterns, lines) {
        ([], lines) => lines.is_empty(),
        (["...", patterns @ ..], lines) => {
            (0..=lines.len()).any(|skip| lines_fit(patterns, &lines[skip..]))
        }
        ([pattern, patterns @ ..], [line, lines @ ..]) => {
            fits(pattern.as_bytes(), line.as_bytes()) && lines_fit(patterns, lines)
        }
        (_, []) => false,
    }
}

/// Whether the bytes fit the pattern, which may have placeholders.
pub fn fits(pattern: &[u8], bytes: &[u8]) -> bool {
    if !pattern.contains(&b'<') {
        return pattern == bytes;
    }
    for (placeholder, alphabet) in PLACEHOLDERS {
        if let Some(pattern) = pattern.strip_prefix(placeholder.as_bytes()) {
            let length = bytes.iter().take_while(|&&byte| alphabet(byte)).count();
            return (1..=length)
                .rev()
                .any(|length| fits(pattern, &bytes[length..]));
        }
    }
    match (pattern, bytes) {
        ([expected, pattern @ ..], [byte, bytes @ ..]) => expected == byte && fits(pattern, bytes),
        _ => false,
    }
}

/// The placeholders for bytes that vary from run to run, and which bytes each
/// may stand for.
const PLACEHOLDERS: [(&str, Alphabet); 4] = [
    ("<any>", |_| true),
    ("<number>", |byte| byte.is_ascii_digit()),
    ("<hex>", |byte| byte.is_ascii_hexdigit()),
    ("<text>", |byte| byte != b'"' && byte >= b' '),
];

type Alphabet = fn(u8) -> bool;
