//! What is said to the learner, and the lines that the learner types. Without a
//! terminal the lines come from a pipe, and are shown as if they were typed.

use crate::failure::{Failure, Outcome};
use crate::signals::{Calls, SIGHUP, SIGINT, SIGTERM, heeded, wait_for};
use crate::text::output::Output;
use std::io::{IsTerminal, Stdin, stdin};
use std::os::fd::AsFd;

/// Somebody who reads and types.
pub struct Learner {
    input: Stdin,
    /// What was typed after the last line that was taken.
    typed: Vec<u8>,
    /// Becomes readable at a signal to stop, and stays so.
    pub signals: Calls,
}

/// What the learner answers.
#[derive(Debug, PartialEq, Eq)]
pub enum Answer {
    Line(String),
    Hint,
    Skip,
    Back,
    Leave,
}

impl Learner {
    pub fn new() -> Outcome<Learner> {
        Ok(Learner {
            input: stdin(),
            typed: Vec::new(),
            signals: Calls::by_signals(&heeded(&[SIGINT, SIGTERM, SIGHUP]))?,
        })
    }

    /// Shows this text and a line feed.
    pub fn tell(&self, text: &str) -> Outcome<()> {
        let mut output = Output::new();
        output.line(text)?;
        output.sync()
    }

    /// The next answer. A line that is `wanted` has no other meaning, and an empty
    /// one asks for a hint.
    pub fn answer(&mut self, prompt: &str, wanted: &str) -> Outcome<Answer> {
        let Some(line) = self.line(prompt)? else {
            return Ok(Answer::Leave);
        };
        Ok(match line.trim() {
            text if text == wanted => Answer::Line(line),
            "?" | "" => Answer::Hint,
            "skip" => Answer::Skip,
            "back" => Answer::Back,
            "quit" => Answer::Leave,
            _ => Answer::Line(line),
        })
    }

    /// The next line; `None` at the end of the input.
    pub fn line(&mut self, prompt: &str) -> Outcome<Option<String>> {
        let mut output = Output::new();
        output.bytes(prompt.as_bytes())?;
        output.sync()?;
        let mut is_over = false;
        let length = loop {
            if let Some(at) = self.typed.iter().position(|byte| *byte == b'\n') {
                break at + 1;
            }
            if is_over {
                break self.typed.len();
            }
            match wait_for(&[self.input.as_fd(), self.signals.as_fd()], None)[..] {
                [_, true] => {
                    output.line("")?;
                    output.sync()?;
                    return Err(stopped());
                }
                [false, _] => continue,
                _ => {}
            }
            let mut bytes = [0; 1024];
            match nix::unistd::read(&self.input, &mut bytes) {
                // A terminal that is gone is an end, too.
                Ok(0) | Err(nix::Error::EIO) => is_over = true,
                Ok(count) => self.typed.extend_from_slice(&bytes[..count]),
                Err(nix::Error::EINTR) => {}
                Err(errno) => return Err(Failure::io("cannot read the answer", errno.into())),
            }
        };
        let line = String::from_utf8_lossy(&self.typed[..length]).into_owned();
        self.typed.drain(..length);
        let text = line.trim_end_matches(['\r', '\n']);
        if line.is_empty() || !self.input.is_terminal() {
            output.line(text)?;
            output.sync()?;
        }
        Ok((!line.is_empty()).then(|| text.to_owned()))
    }
}

/// The failure after a signal to stop.
pub fn stopped() -> Failure {
    Failure::Interrupted("stopped by a signal".into())
}
