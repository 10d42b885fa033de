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

use crate::command::{Invocation, Run};
use crate::failure::{Failure, Outcome, Status};
use crate::server::client::{Client, Event};
use crate::server::reply::RawReply;
use crate::text::output::{self, Output};
use crate::text::shown;
use beanpole::protocol::command::{AfterPut, Command, Put, parse};
use clap::Args;
use std::ffi::OsString;
use std::io::{self, BufRead, Read};
use std::os::fd::BorrowedFd;
use std::os::unix::ffi::OsStringExt;
use std::time::Instant;

#[derive(Args)]
pub struct Raw {
    #[arg(value_name = "REQUEST", trailing_var_arg = true)]
    request: Vec<OsString>,
}

impl Run for Raw {
    fn run(self, invocation: &Invocation) -> Outcome {
        let mut client = invocation.connect()?;
        let is_one = !self.request.is_empty();
        if !is_one && output::has_person() {
            return prompt::run(invocation, client);
        }
        let words: Vec<_> = self.request.into_iter().map(OsString::into_vec).collect();
        let mut input = io::stdin().lock();
        let mut output = Output::new();
        let mut worst = Ok(Status::Done);
        let mut next = match is_one {
            true => Some(words.join(&b' ')),
            false => read_line(&mut input)?,
        };
        while let Some(line) = next {
            let put = put(&line);
            let body = put.map(|put| read_body(&line, put.size, &mut input));
            match exchange(&mut client, &line, body.transpose()?.as_deref(), &[]) {
                Ok(Event::Reply(reply)) => {
                    worst = match (worst, outcome_of(&reply.line)) {
                        (Ok(Status::Done), outcome) | (Ok(_), outcome @ Err(_)) => outcome,
                        (worst, _) => worst,
                    };
                    write(&mut output, &reply)?;
                }
                // The server was told to close the connection.
                Err(_) if line.starts_with(b"quit") => break,
                Ok(_) => return Err(client.silent()),
                Err(failure) => return Err(failure),
            }
            next = if is_one { None } else { read_line(&mut input)? };
        }
        worst
    }
}

/// What the status says of a reply with this line.
fn outcome_of(line: &[u8]) -> Outcome {
    match line {
        b"NOT_FOUND" | b"TIMED_OUT" | b"DEADLINE_SOON" | b"NOT_IGNORED" => Ok(Status::No),
        b"BAD_FORMAT" | b"UNKNOWN_COMMAND" | b"EXPECTED_CRLF" | b"JOB_TOO_BIG" | b"DRAINING"
        | b"OUT_OF_MEMORY" | b"INTERNAL_ERROR" => {
            Failure::refused(format!("the server answered {}", shown(line, false)))
        }
        _ => Ok(Status::Done),
    }
}

/// The put in this line, if a body follows it.
fn put(line: &[u8]) -> Option<Put> {
    match parse(line) {
        Ok(Command::Put(put)) if put.followed_by(u32::MAX) == AfterPut::Body => Some(put),
        _ => None,
    }
}

/// Sends a line and its body, and waits for the reply or for one of `others`.
/// Only to a `reserve` may the reply take any time.
///
/// A server that does not know the options of a put refuses its line, and would
/// read the body as commands: it does not get the body.
fn exchange(
    client: &mut Client,
    line: &[u8],
    body: Option<&[u8]>,
    others: &[BorrowedFd<'_>],
) -> Outcome<Event> {
    let has_options = put(line).is_some_and(|put| put.options.is_some());
    let is_read = !has_options || client.knows_options()?;
    for bytes in [Some(line), body.filter(|_| is_read)].into_iter().flatten() {
        client.queue_bytes(bytes);
        client.queue_bytes(b"\r\n");
    }
    let until = match parse(line) {
        Ok(Command::Reserve | Command::ReserveWithTimeout(_)) => None,
        _ => Some(Instant::now() + client.patience),
    };
    client.wait(until, others)
}

/// The next line without its line end; `None` at the end of the input.
fn read_line(input: &mut impl BufRead) -> Outcome<Option<Vec<u8>>> {
    let mut line = Vec::new();
    let count = input.read_until(b'\n', &mut line);
    let count = count.map_err(Failure::of("cannot read the commands"))?;
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
        io::Result::Ok(())
    };
    read().map_err(Failure::of("cannot read the body"))?;
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
