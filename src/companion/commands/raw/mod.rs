//! `raw`: speaks the protocol itself, as a person or a script types it.
//!
//! With operands it sends that one command. From a pipe it reads commands, one
//! in each line, and after a `put` the body that its line announces. At a
//! terminal it has a prompt with history and completion. Into a pipe or a file
//! the replies go exactly as they came; on a terminal they are made readable.
//!
//! It leaves all checks of commands to the server.

mod history;
mod line;
mod words;

use crate::command::{Command, Invocation, Kind};
use crate::failure::{Failure, Outcome, Status};
use crate::server::client::{Client, Event};
use crate::server::reply::RawReply;
use crate::signals::{Calls, SIGINT};
use crate::text::output::{self, Output};
use crate::text::terminal::{self, Terminal};
use crate::text::words::shown;
use history::History;
use line::{Line, Typed};
use std::io::{self, BufRead, Read};
use std::os::fd::AsFd;
use std::time::Instant;

pub const RAW: Command = Command {
    name: "raw",
    operands: "[COMMAND…]",
    operand_kind: Kind::Words(&words::NAMES),
    about: "speak the protocol: one command, a script from a pipe, or a prompt",
    options_first: true,
    run: raw,
    ..Command::BLANK
};

fn raw(invocation: &Invocation) -> Outcome {
    let mut session = Session {
        client: invocation.connect()?,
        output: Output::new(),
        worst: Ok(Status::Done),
    };
    let given = invocation.operands();
    if !given.is_empty() {
        let line = given.join(" ");
        let mut input = io::stdin().lock();
        session.send(line.as_bytes(), &mut input)?;
    } else if terminal::is_there() {
        return prompt(invocation, session.client);
    } else {
        let mut input = io::stdin().lock();
        while let Some(line) = read_line(&mut input)? {
            if !session.send(&line, &mut input)? {
                break;
            }
        }
    }
    session.worst
}

/// Sends commands one after the other, without a person.
struct Session {
    client: Client,
    output: Output,
    /// The outcome of the worst reply up to now.
    worst: Outcome,
}

impl Session {
    /// Sends a line, and the body that it announces from this input; then
    /// writes the reply. Returns whether another line may follow.
    fn send(&mut self, line: &[u8], input: &mut impl BufRead) -> Outcome<bool> {
        self.client.queue_bytes(line);
        self.client.queue_bytes(b"\r\n");
        let text = String::from_utf8_lossy(line);
        if let Some(bytes) = words::announced(&text) {
            let mut body = Vec::new();
            let limit = u64::try_from(bytes).unwrap_or(u64::MAX);
            let read = input
                .by_ref()
                .take(limit)
                .read_to_end(&mut body)
                .and_then(|_| skip_line_end(input));
            read.map_err(|error| Failure::io("cannot read the body", error))?;
            if body.len() < bytes {
                let what = format!("'{text}' announces {bytes} bytes, but {} came", body.len());
                return Failure::refused(what);
            }
            self.client.queue_bytes(&body);
            self.client.queue_bytes(b"\r\n");
        }
        let reply = match self.client.wait(latest(&self.client, &text), &[]) {
            Ok(Event::Reply(reply)) => reply,
            // The server was told to close the connection.
            Err(_) if line.starts_with(b"quit") => return Ok(false),
            Ok(_) => return Err(self.client.silent()),
            Err(failure) => return Err(failure),
        };
        self.note(&reply);
        write(&mut self.output, &reply)?;
        Ok(true)
    }

    fn note(&mut self, reply: &RawReply) {
        let line = String::from_utf8_lossy(&reply.line);
        match (line.as_ref(), &self.worst) {
            (_, Err(_)) => {}
            ("NOT_FOUND" | "TIMED_OUT" | "DEADLINE_SOON" | "NOT_IGNORED", _) => {
                self.worst = Ok(Status::No);
            }
            (
                "BAD_FORMAT" | "UNKNOWN_COMMAND" | "EXPECTED_CRLF" | "JOB_TOO_BIG" | "DRAINING"
                | "OUT_OF_MEMORY" | "INTERNAL_ERROR",
                _,
            ) => self.worst = Failure::refused(format!("the server answered {line}")),
            _ => {}
        }
    }
}

/// When the reply to this line must have come; `None` if it may take any time.
fn latest(client: &Client, line: &str) -> Option<Instant> {
    (!words::may_wait(line)).then(|| Instant::now() + client.patience)
}

/// The next line without its line end; `None` at the end of the input.
fn read_line(input: &mut impl BufRead) -> Outcome<Option<Vec<u8>>> {
    let mut line = Vec::new();
    let count = input.read_until(b'\n', &mut line);
    let count = count.map_err(|error| Failure::io("cannot read the commands", error))?;
    if line.last() == Some(&b'\n') {
        line.pop();
        if line.last() == Some(&b'\r') {
            line.pop();
        }
    }
    Ok((count > 0).then_some(line))
}

/// Takes a line end from the input, if one comes next.
fn skip_line_end(input: &mut impl BufRead) -> io::Result<()> {
    for expected in [b'\r', b'\n'] {
        if input.fill_buf()?.first() == Some(&expected) {
            input.consume(1);
        }
    }
    Ok(())
}

/// Writes a reply: readable on a terminal, otherwise exactly as it came.
fn write(output: &mut Output, reply: &RawReply) -> Outcome<()> {
    let RawReply { line, chunk } = reply;
    if output::is_terminal() {
        output.line(shown(line, false))?;
        if let Some(chunk) = chunk {
            let text = shown(chunk, true);
            output.bytes(text.as_bytes())?;
            if !text.ends_with('\n') {
                output.bytes(b"\n")?;
            }
        }
    } else {
        for part in [Some(line), chunk.as_ref()].into_iter().flatten() {
            output.bytes(part)?;
            output.bytes(b"\r\n")?;
        }
    }
    output.sync()
}

/// Runs a prompt until the user ends it.
fn prompt(invocation: &Invocation, client: Client) -> Outcome {
    let mut client = Some(client);
    let mut history = History::find();
    let mut line = Line::new(history.lines());
    let mut interrupts = Calls::by_signals(&[SIGINT])?;
    let name = format!("{}> ", invocation.address());
    while let Some(text) = edit(&name, &mut line, &mut client)? {
        if text.trim().is_empty() {
            continue;
        }
        history.add(&text);
        if let Some(beginning) = words::help_wanted(&text) {
            help(beginning)?;
            continue;
        }
        let Some(request) = with_body(&text)? else {
            continue;
        };
        let mut connected = match client.take().map_or_else(|| invocation.connect(), Ok) {
            Ok(connected) => connected,
            Err(failure) => {
                say(&failure.to_string())?;
                continue;
            }
        };
        connected.queue_bytes(&request);
        interrupts.take();
        match connected.wait(latest(&connected, &text), &[interrupts.as_fd()]) {
            Ok(Event::Reply(reply)) => {
                write(&mut Output::new(), &reply)?;
                client = Some(connected);
            }
            Ok(Event::Time) => say(&connected.silent().to_string())?,
            Ok(Event::Other) => {
                say("interrupted: the connection is closed, the next command opens another")?
            }
            Err(_) if text.starts_with("quit") => return Ok(Status::Done),
            Err(failure) => say(&failure.to_string())?,
        }
    }
    Ok(Status::Done)
}

fn say(text: &str) -> Outcome<()> {
    let mut output = Output::new();
    output.line(text)?;
    output.sync()
}

fn help(beginning: &str) -> Outcome<()> {
    let mut output = Output::new();
    let commands = words::COMMANDS.iter();
    for (name, arguments) in commands.filter(|(name, _)| name.starts_with(beginning)) {
        output.line(format!("{name} {arguments}").trim_end())?;
    }
    output.line("After put comes the body; without <bytes> they are counted.")?;
    output.sync()
}

/// The bytes to send for this line. If the line needs a body, the user is asked
/// for it. `None`: there is nothing to send.
fn with_body(text: &str) -> Outcome<Option<Vec<u8>>> {
    let counted = words::is_put_without_size(text);
    let announced = words::announced(text);
    if !counted && announced.is_none() {
        return Ok(Some(format!("{text}\r\n").into_bytes()));
    }
    let Some(body) = edit("body> ", &mut Line::default(), &mut None)? else {
        return Ok(None);
    };
    let line = match announced {
        Some(bytes) if bytes != body.len() => {
            say(&format!(
                "the body has {} bytes, not {bytes}: nothing was sent",
                body.len()
            ))?;
            return Ok(None);
        }
        Some(_) => text.to_owned(),
        None => format!("{} {}", text.trim_end(), body.len()),
    };
    Ok(Some(format!("{line}\r\n{body}\r\n").into_bytes()))
}

/// A line that the user types at a prompt; `None` at the end. This connection
/// is asked for tubes, to complete their names.
fn edit(prompt: &str, line: &mut Line, client: &mut Option<Client>) -> Outcome<Option<String>> {
    let mut terminal = Terminal::raw()?;
    loop {
        draw(&terminal, prompt, line)?;
        let Some(key) = terminal.key()? else { continue };
        match line.press(key) {
            Typed::Go => {}
            Typed::Done => {
                // The arguments that were shown are not part of the line.
                if line.before_cursor() == line.text() {
                    terminal.write("\x1b[K")?;
                }
                terminal.write("\r\n")?;
                return Ok(Some(line.take()));
            }
            Typed::Abandoned => {
                line.clear();
                terminal.write("^C\r\n")?;
            }
            Typed::End => {
                terminal.write("\r\n")?;
                return Ok(None);
            }
            Typed::Clear => terminal.write("\x1b[2J\x1b[H")?,
            Typed::Complete => complete(&terminal, line, client)?,
        }
    }
}

/// Completes the last word as far as it is certain, or shows the candidates.
fn complete(terminal: &Terminal, line: &mut Line, client: &mut Option<Client>) -> Outcome<()> {
    let before = line.before_cursor();
    let tubes = || {
        let tubes = client.as_mut().and_then(|client| client.tubes().ok());
        let tubes = tubes.unwrap_or_default();
        tubes.iter().map(ToString::to_string).collect()
    };
    let candidates = words::candidates(&before, tubes);
    let word = before.rsplit(' ').next().unwrap_or_default();
    let Some(first) = candidates.first() else {
        return Ok(());
    };
    let common = candidates.iter().fold(first.as_str(), |common, other| {
        let pairs = common.bytes().zip(other.bytes());
        let same = pairs.take_while(|(one, two)| one == two);
        &common[..same.count()]
    });
    line.insert(&common[word.len()..]);
    if candidates.len() == 1 {
        if words::more_follow(&line.before_cursor()) {
            line.insert(" ");
        }
    } else if common.len() == word.len() {
        terminal.write(&format!("\r\n{}\r\n", candidates.join("  ")))?;
    }
    Ok(())
}

fn draw(terminal: &Terminal, prompt: &str, line: &Line) -> Outcome<()> {
    let (columns, _) = terminal.size();
    let room = columns.saturating_sub(prompt.chars().count() + 1);
    let (seen, cursor) = line.window(room);
    let fits = |hint: &String| seen.chars().count() + hint.len() <= room;
    let hint = Some(words::hint(&line.text())).filter(fits);
    let hint = hint.unwrap_or_default();
    let column = prompt.chars().count() + cursor;
    terminal.write(&format!(
        "\r\x1b[K{prompt}{seen}\x1b[2m{hint}\x1b[0m\r\x1b[{column}C"
    ))
}
