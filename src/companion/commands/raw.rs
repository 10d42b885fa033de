//! `raw`: speaks the protocol itself, as a person or a script types it.
//!
//! With operands it sends that one command. From a pipe it reads commands, one
//! in each line, and after a `put` the body that its line announces. At a
//! terminal it has a prompt, whose lines the package rustyline edits. Into a pipe or a
//! file the replies go exactly as they came; on a terminal they are made readable.
//!
//! It leaves all checks of commands to the server. The daemon's own grammar says
//! which lines are followed by a body, and which replies may take any time.

use crate::command::{Invocation, Run};
use crate::failure::{Failure, Outcome, Status};
use crate::remote::{Client, Event, RawReply, Reply};
use crate::signals::{Calls, SIGINT};
use crate::text::{Output, output, print, shown};
use beanpole::protocol::Seconds;
use beanpole::protocol::command::{Command, Put, parse};
use beanpole::protocol::framing::MAX_LINE;
use clap::Args;
use rustyline::DefaultEditor;
use rustyline::error::ReadlineError;
use std::collections::VecDeque;
use std::ffi::OsString;
use std::io::{self, BufRead, Read};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::OsStringExt;
use std::time::{Duration, Instant};

/// The protocol on one screen; its manual page shows the same text.
const CARD: &str = include_str!("card.txt");

#[derive(Args)]
#[command(after_help = CARD)]
pub struct Raw {
    #[arg(value_name = "REQUEST", trailing_var_arg = true)]
    request: Vec<OsString>,
}

impl Run for Raw {
    fn run(self, invocation: &Invocation) -> Outcome {
        let mut client = invocation.connect()?;
        let is_one = !self.request.is_empty();
        if !is_one && output::has_person() {
            return converse(invocation, client);
        }
        let words: Vec<_> = self.request.into_iter().map(OsString::into_vec).collect();
        let mut request = words.join(&b' ');
        request.extend(is_one.then_some(b'\n'));
        let mut input = request.chain(io::stdin().lock());
        let mut output = Output::new();
        let mut worst = Ok(Status::Done);
        while let Some(line) = read_line(&mut input)? {
            let put = put(&line);
            let body = put.map(|put| read_body(&line, put.size, &mut input));
            match exchange(&mut client, &line, body.transpose()?.as_deref(), &[]) {
                Ok(Event::Reply(reply)) => {
                    write(&mut output, &reply)?;
                    worst = match (worst, outcome_of(reply)) {
                        (Ok(Status::Done), outcome) | (Ok(_), outcome @ Err(_)) => outcome,
                        (worst, _) => worst,
                    };
                }
                // The server was told to close the connection.
                Err(_) if line.starts_with(b"quit") => break,
                Ok(_) => return Err(client.silent()),
                Err(failure) => return Err(failure),
            }
            if is_one {
                break;
            }
        }
        worst
    }
}

/// What the status says of a reply.
fn outcome_of(reply: RawReply) -> Outcome {
    match reply.understand() {
        Ok(Reply::No(_)) => Ok(Status::No),
        Ok(Reply::Refused(word)) => Failure::refused(format!("the server answered {word}")),
        _ => Ok(Status::Done),
    }
}

/// The put in this line, if a body follows it.
fn put(line: &[u8]) -> Option<Put> {
    match parse(line) {
        Ok((_, Command::Put(put))) if !put.trailing => Some(put),
        _ => None,
    }
}

/// Sends a line and its body, and waits for the reply or for one of `others`.
/// Only to a `reserve` may the reply take longer, as long as its line says.
///
/// A server refuses a put that is too long, or has options that it does not know, and
/// would read the body as commands: it does not get the body.
fn exchange(
    client: &mut Client,
    line: &[u8],
    body: Option<&[u8]>,
    others: &[BorrowedFd<'_>],
) -> Outcome<Event> {
    let has_options = put(line).is_some_and(|put| put.options.is_some());
    let is_read = line.len() + 2 <= MAX_LINE && (!has_options || client.is_extended()?);
    for bytes in [Some(line), body.filter(|_| is_read)].into_iter().flatten() {
        client.queue_bytes(bytes);
        client.queue_bytes(b"\r\n");
    }
    let wait = match parse(line) {
        Ok((_, Command::Reserve(ask))) => ask.timeout,
        _ => Some(Seconds(0)),
    };
    let wait = wait.map(|Seconds(time)| Duration::from_secs(time.into()));
    let until = wait.map(|wait| Instant::now() + wait + client.patience);
    client.wait(until, others)
}

/// The next line without its line end; `None` at the end of the input.
fn read_line(input: &mut impl BufRead) -> Outcome<Option<Vec<u8>>> {
    let mut line = Vec::new();
    let came = input.read_until(b'\n', &mut line);
    let count = came.map_err(Failure::of("cannot read the commands"))?;
    for end in [b'\n', b'\r'] {
        line.pop_if(|last| *last == end);
    }
    Ok((count > 0).then_some(line))
}

/// A body of this size, and the line end after it if there is one.
fn read_body(line: &[u8], size: u32, input: &mut impl BufRead) -> Outcome<Vec<u8>> {
    let mut body = Vec::new();
    let mut read = || {
        input.by_ref().take(size.into()).read_to_end(&mut body)?;
        for expected in [b'\r', b'\n'] {
            if input.fill_buf()?.first() == Some(&expected) {
                input.consume(1);
            }
        }
        io::Result::Ok(())
    };
    read().map_err(Failure::of("cannot read the body"))?;
    let (came, line) = (body.len() as u64, shown(line, false));
    if came < size.into() {
        Failure::refused(format!("'{line}' announces {size} bytes, but {came} came"))
    } else {
        Ok(body)
    }
}

/// Writes a reply: readable on a terminal, otherwise exactly as it came.
fn write(output: &mut Output, reply: &RawReply) -> Outcome<()> {
    let RawReply { line, chunk } = reply;
    let is_terminal = output::is_terminal();
    for part in [Some(line), chunk.as_ref()].into_iter().flatten() {
        if is_terminal {
            output.line(shown(part, true).trim_end_matches('\n'))?
        } else {
            output.bytes(part)?;
            output.bytes(b"\r\n")?;
        }
    }
    output.sync()
}

/// Runs a prompt until the user ends it.
fn converse(invocation: &Invocation, client: Client) -> Outcome {
    let mut prompt = Prompt {
        editor: DefaultEditor::new().map_err(unusable)?,
        pasted: VecDeque::new(),
    };
    let mut known = Some(client);
    let interrupts = Calls::by_signals(&[SIGINT])?;
    let name = format!("{}> ", invocation.servers[0].address);
    while let Some(line) = prompt.line(&name)? {
        let Some(first) = line.split_whitespace().next() else {
            continue;
        };
        // A line that is not remembered is not missed.
        let _ = prompt.editor.add_history_entry(&line);
        if matches!(first, "help" | "?") {
            print(CARD.into())?;
            continue;
        }
        let Some((line, body)) = prompt.with_body(line)? else {
            continue;
        };
        let connected = known.take().map_or_else(|| invocation.connect(), Ok);
        let request = connected.and_then(|mut client| {
            interrupts.take();
            let others = [interrupts.as_fd()];
            let event = exchange(&mut client, line.as_bytes(), body.as_deref(), &others)?;
            Ok((client, event))
        });
        match request {
            Ok((client, Event::Reply(reply))) => {
                write(&mut Output::new(), &reply)?;
                known = Some(client);
            }
            Ok((client, Event::Time)) => say(client.silent())?,
            Ok((_, Event::Other)) => {
                say("interrupted: the connection is closed, the next command opens another")?;
            }
            Err(_) if line.starts_with("quit") => break,
            Err(failure) => say(failure)?,
        }
    }
    Ok(Status::Done)
}

fn say(text: impl std::fmt::Display) -> Outcome<()> {
    print(format!("{text}\n")).map(drop)
}

struct Prompt {
    editor: DefaultEditor,
    /// Lines that were pasted after others, and are still to be run.
    pasted: VecDeque<String>,
}

impl Prompt {
    /// A line that the user types; `None` at the end.
    fn line(&mut self, prompt: &str) -> Outcome<Option<String>> {
        loop {
            if let Some(line) = self.pasted.pop_front() {
                return Ok(Some(line));
            }
            match self.editor.readline(prompt) {
                Ok(text) if text.is_empty() => return Ok(Some(text)),
                Ok(text) => self.pasted.extend(text.lines().map(String::from)),
                Err(ReadlineError::Interrupted) => {}
                Err(ReadlineError::Eof) => return Ok(None),
                Err(error) => return Err(unusable(error)),
            }
        }
    }

    /// The line as it is to be sent, and its body if it needs one, for which the
    /// user is asked. `None`: there is nothing to send.
    fn with_body(&mut self, line: String) -> Outcome<Option<(String, Option<Vec<u8>>)>> {
        let announced = put(line.as_bytes()).map(|put| put.size as usize);
        if announced.is_none() && !is_put_without_size(&line) {
            return Ok(Some((line, None)));
        }
        let Some(body) = self.line("body> ")? else {
            return Ok(None);
        };
        let length = body.len();
        let line = match announced {
            Some(bytes) if bytes != length => {
                say(format!(
                    "the body has {length} bytes, not {bytes}: nothing was sent"
                ))?;
                return Ok(None);
            }
            Some(_) => line,
            None => format!("{} {length}", line.trim_end()),
        };
        Ok(Some((line, Some(body.into()))))
    }
}

/// Whether this line is a `put` that lacks nothing but the number of bytes.
fn is_put_without_size(line: &str) -> bool {
    let with_size = parse(format!("{} 0", line.trim_end()).as_bytes());
    parse(line.as_bytes()).is_err() && matches!(with_size, Ok((_, Command::Put(_))))
}

fn unusable(error: ReadlineError) -> Failure {
    Failure::Refused(format!("cannot use the terminal: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_put_without_a_size_is_distinguished_from_a_malformed_one() {
        for (line, is_so) in [
            ("put 1 2 3", true),
            ("put 1 2 3 ", true),
            ("put 1 2 3 4", false),
            ("put 1 2 x", false),
            ("puts 1 2 3", false),
        ] {
            assert_eq!(is_put_without_size(line), is_so, "{line}");
        }
    }
}
