//! The program on a terminal: a pseudo-terminal whose screen is kept as text.

use ::support::{eventually, prepare, run_by, until};
use nix::pty::{OpenptyResult, Winsize, openpty};
use std::fs::File;
use std::io::{Read, Write};
use std::num::NonZero;
use std::os::fd::OwnedFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

/// A program on a terminal of its own.
pub struct Screen {
    child: Child,
    keyboard: File,
    /// Kept, so that the terminal can be resized.
    terminal: OwnedFd,
    parser: Arc<Mutex<vt100::Parser>>,
}

impl Screen {
    /// Starts the program on a terminal of this size.
    pub fn start(command: &Command, columns: u16, rows: u16) -> Screen {
        prepare();
        let winsize = Winsize {
            ws_row: rows,
            ws_col: columns,
            ws_xpixel: 0,
            ws_ypixel: 0,
        };
        let OpenptyResult { master, slave } = openpty(&winsize, None).expect("a terminal");
        let stdio = || Stdio::from(slave.try_clone().expect("a copy"));
        // In a session of its own, of which this is the terminal, so that it
        // hears of a new size.
        let mut session = Command::new("setsid");
        run_by(session.arg("-c"), command);
        session.stdin(stdio()).stdout(stdio()).stderr(stdio());
        let child = session.spawn().expect("the program starts");
        let empty = vt100::Parser::new(size(rows), size(columns), 0);
        let parser = Arc::new(Mutex::new(empty));
        let mut output = File::from(master.try_clone().expect("a copy"));
        let shared = parser.clone();
        thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(count @ 1..) = output.read(&mut bytes) {
                shared.lock().expect("no panic").process(&bytes[..count]);
            }
        });
        Screen {
            child,
            keyboard: File::from(master),
            terminal: slave,
            parser,
        }
    }

    /// Types these bytes.
    pub fn type_keys(&mut self, keys: &str) {
        self.keyboard
            .write_all(keys.as_bytes())
            .expect("a terminal");
    }

    /// Makes the terminal larger or smaller.
    pub fn resize(&mut self, columns: u16, rows: u16) {
        let mut parser = self.parser.lock().expect("no panic");
        parser.screen_mut().set_size(size(rows), size(columns));
        drop(parser);
        let size = ["cols", &columns.to_string(), "rows", &rows.to_string()];
        let terminal = Stdio::from(self.terminal.try_clone().expect("a copy"));
        let stty = Command::new("stty").args(size).stdin(terminal).status();
        assert!(stty.is_ok_and(|status| status.success()));
    }

    /// The text on the screen, without spaces at the ends of lines.
    pub fn text(&self) -> String {
        let parser = self.parser.lock().unwrap_or_else(PoisonError::into_inner);
        let contents = parser.screen().contents();
        let lines: Vec<_> = contents.lines().map(str::trim_end).collect();
        lines.join("\n")
    }

    /// The colour of the character in this row and column, counted from 0.
    pub fn colour_at(&self, row: u16, column: u16) -> vt100::Color {
        let parser = self.parser.lock().expect("no panic");
        let cell = parser.screen().cell(row, column);
        cell.expect("it is on the screen").fgcolor()
    }

    /// Waits until the screen shows this somewhere.
    #[track_caller]
    pub fn wait_for(&self, text: &str) {
        self.wait_until(text, |screen| screen.contains(text));
    }

    /// Waits until the screen is this, once spans of time are masked.
    #[track_caller]
    pub fn wait_for_screen(&self, expected: &str) {
        let expected = expected.trim_matches('\n');
        self.wait_until(expected, |screen| without_spans(screen) == expected);
    }

    #[track_caller]
    pub fn wait_until(&self, what: &str, is_so: impl Fn(&str) -> bool) {
        let wait = || eventually("the screen", || is_so(&self.text()));
        let shown = catch_unwind(AssertUnwindSafe(wait));
        assert!(
            shown.is_ok(),
            "no '{what}'; the screen is:\n{}",
            self.text()
        );
    }

    /// Waits for the program's end: its exit status.
    #[track_caller]
    pub fn wait(&mut self) -> Option<i32> {
        until("the program ends", || {
            self.child.try_wait().expect("our child")
        })
        .code()
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        // This fails if it has ended already.
        let (Ok(()) | Err(_)) = self.child.kill();
        let (Ok(_) | Err(_)) = self.child.wait();
    }
}

fn size(length: u16) -> NonZero<u16> {
    NonZero::new(length).expect("a terminal has a size")
}

/// The text with ` N` for the digits of a span in seconds and the space before.
pub fn without_spans(text: &str) -> String {
    let mut masked = String::new();
    let mut parts = text.split('s').peekable();
    while let Some(part) = parts.next() {
        let before = part.trim_end_matches(|c: char| c.is_ascii_digit());
        match parts.peek() {
            Some(_) if before.len() < part.len() && before.ends_with(' ') => {
                masked += before.trim_end_matches(' ');
                masked += " Ns";
            }
            Some(_) => masked += &format!("{part}s"),
            None => masked += part,
        }
    }
    masked
}
