//! `raw`: speaks the protocol itself, as a person or a script types it.
//!
//! With operands it sends that one command. From a pipe it reads commands, one
//! in each line, and after a `put` the body that its line announces. At a
//! terminal it has a [prompt]. Into a pipe or a file the replies go exactly as
//! they came; on a terminal they are made readable.
//!
//! It leaves all checks of commands to the server. The daemon's own grammar says
//! which lines are followed by a body, and which replies may take any time.

mod prompt;
mod words;

use crate::command::{Invocation, Run};
use crate::failure::{Failure, Outcome, Status};
use crate::server::client::{Client, Event};
use crate::server::reply::RawReply;
use crate::text::output::{self, Output};
use crate::text::terminal;
use crate::text::words::shown;
use beanpole::protocol::command::{AfterPut, Command, Put, parse};
use clap::Args;
use std::ffi::OsString;
use std::io::{self, BufRead, Read};
use std::os::unix::ffi::OsStringExt;
use std::time::Instant;

#[derive(Args)]
pub struct Raw {
    #[arg(value_name = "COMMAND", trailing_var_arg = true, value_parser = words::Any)]
    command: Vec<OsString>,
}

impl Run for Raw {
    fn run(self, invocation: &Invocation) -> Outcome {
        let client = invocation.connect()?;
        if self.command.is_empty() && terminal::is_there() {
            return prompt::run(invocation, client);
        }
        let mut session = Session {
            client,
            output: Output::new(),
            worst: Ok(Status::Done),
        };
        let mut input = io::stdin().lock();
        if self.command.is_empty() {
            while let Some(line) = read_line(&mut input)?
                && session.send(&line, &mut input)?
            {}
        } else {
            let words: Vec<_> = self.command.into_iter().map(OsString::into_vec).collect();
            session.send(&words.join(&b' '), &mut input)?;
        }
        session.worst
    }
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
        let body = match put(line) {
            Some(Put { size, .. }) => Some(read_body(line, size, input)?),
            None => None,
        };
        queue(&mut self.client, line, body.as_deref())?;
        match self.client.wait(latest(&self.client, line), &[]) {
            Ok(Event::Reply(reply)) => {
                self.note(&reply);
                write(&mut self.output, &reply)?;
                Ok(true)
            }
            // The server was told to close the connection.
            Err(_) if line.starts_with(b"quit") => Ok(false),
            Ok(_) => Err(self.client.silent()),
            Err(failure) => Err(failure),
        }
    }

    fn note(&mut self, RawReply { line, .. }: &RawReply) {
        match (line.as_slice(), &self.worst) {
            (_, Err(_)) => {}
            (b"NOT_FOUND" | b"TIMED_OUT" | b"DEADLINE_SOON" | b"NOT_IGNORED", _) => {
                self.worst = Ok(Status::No);
            }
            (
                b"BAD_FORMAT" | b"UNKNOWN_COMMAND" | b"EXPECTED_CRLF" | b"JOB_TOO_BIG"
                | b"DRAINING" | b"OUT_OF_MEMORY" | b"INTERNAL_ERROR",
                _,
            ) => {
                let line = shown(line, false);
                self.worst = Failure::refused(format!("the server answered {line}"));
            }
            _ => {}
        }
    }
}

/// The put in this line, if a body follows it.
fn put(line: &[u8]) -> Option<Put> {
    match parse(line) {
        Ok(Command::Put(put)) if put.followed_by(u32::MAX) == AfterPut::Body => Some(put),
        _ => None,
    }
}

/// Queues a line and its body. A server that does not know the options of a put
/// refuses its line, and would read the body as commands: it does not get the
/// body.
fn queue(client: &mut Client, line: &[u8], body: Option<&[u8]>) -> Outcome<()> {
    let has_options = put(line).is_some_and(|put| put.options.is_some());
    let is_read = !has_options || client.knows_words()?;
    client.queue_bytes(line);
    client.queue_bytes(b"\r\n");
    if let Some(body) = body.filter(|_| is_read) {
        client.queue_bytes(body);
        client.queue_bytes(b"\r\n");
    }
    Ok(())
}

/// When the reply to this line must have come; `None` if it may take any time.
fn latest(client: &Client, line: &[u8]) -> Option<Instant> {
    match parse(line) {
        Ok(Command::Reserve | Command::ReserveWithTimeout(_)) => None,
        _ => Some(Instant::now() + client.patience),
    }
}

/// The next line without its line end; `None` at the end of the input.
fn read_line(input: &mut impl BufRead) -> Outcome<Option<Vec<u8>>> {
    let mut line = Vec::new();
    let count = input.read_until(b'\n', &mut line);
    let count = count.map_err(|error| Failure::io("cannot read the commands", error))?;
    let line = line.strip_suffix(b"\n").unwrap_or(&line);
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    Ok((count > 0).then(|| line.to_vec()))
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
        Ok(())
    };
    read().map_err(|error| Failure::io("cannot read the body", error))?;
    let (came, line) = (body.len() as u64, shown(line, false));
    match came < size.into() {
        true => Failure::refused(format!("'{line}' announces {size} bytes, but {came} came")),
        false => Ok(body),
    }
}

/// Writes a reply: readable on a terminal, otherwise exactly as it came.
fn write(output: &mut Output, reply: &RawReply) -> Outcome<()> {
    let RawReply { line, chunk } = reply;
    let is_terminal = output::is_terminal();
    for part in [Some(line), chunk.as_ref()].into_iter().flatten() {
        match is_terminal {
            true => output.line(shown(part, true).trim_end_matches('\n'))?,
            false => {
                output.bytes(part)?;
                output.bytes(b"\r\n")?;
            }
        }
    }
    output.sync()
}
