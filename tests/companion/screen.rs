//! The program on a terminal: a pseudo-terminal whose screen is kept as text.

use super::support::wait_for;
use nix::pty::{OpenptyResult, Winsize, openpty};
use std::fs::File;
use std::io::{Read, Write};
use std::num::NonZero;
use std::os::fd::OwnedFd;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};

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
        let winsize = Winsize {
            ws_row: rows,
            ws_col: columns,
            ws_xpixel: 0,
            ws_ypixel: 0,
        };
        let OpenptyResult { master, slave } = openpty(&winsize, None).unwrap();
        let stdio = || Stdio::from(slave.try_clone().unwrap());
        // In a session of its own, of which this is the terminal, so that it
        // hears of a new size.
        let mut session = Command::new("setsid");
        session
            .arg("-c")
            .arg(command.get_program())
            .args(command.get_args());
        for (name, value) in command.get_envs() {
            session.env(name, value.unwrap());
        }
        let child = session
            .stdin(stdio())
            .stdout(stdio())
            .stderr(stdio())
            .spawn()
            .unwrap();
        let parser = Arc::new(Mutex::new(vt100::Parser::new(size(rows), size(columns), 0)));
        let mut output = File::from(master.try_clone().unwrap());
        let shared = parser.clone();
        std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(count @ 1..) = output.read(&mut bytes) {
                shared.lock().unwrap().process(&bytes[..count]);
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
        self.keyboard.write_all(keys.as_bytes()).unwrap();
    }

    /// Makes the terminal larger or smaller.
    pub fn resize(&mut self, columns: u16, rows: u16) {
        self.parser
            .lock()
            .unwrap()
            .screen_mut()
            .set_size(size(rows), size(columns));
        let stty = Command::new("stty")
            .args(["cols", &columns.to_string(), "rows", &rows.to_string()])
            .stdin(Stdio::from(self.terminal.try_clone().unwrap()))
            .status();
        assert!(stty.unwrap().success());
    }

    /// What stands on the screen, without spaces at the ends of lines.
    pub fn text(&self) -> String {
        let contents = self.parser.lock().unwrap().screen().contents();
        let lines: Vec<_> = contents.lines().map(str::trim_end).collect();
        lines.join("\n")
    }

    /// The colour of the character in this row and column, counted from 0.
    pub fn colour_at(&self, row: u16, column: u16) -> vt100::Color {
        let parser = self.parser.lock().unwrap();
        let cell = parser.screen().cell(row, column);
        cell.expect("it is on the screen").fgcolor()
    }

    /// Waits until the screen shows this somewhere.
    pub fn wait_for(&self, text: &str) {
        let mut last = String::new();
        let shown = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            wait_for(text, || {
                last = self.text();
                last.contains(text)
            });
        }));
        assert!(shown.is_ok(), "'{text}' never came; the screen is:\n{last}");
    }

    /// Waits until the screen is this, once spans of time are masked.
    pub fn wait_for_screen(&self, expected: &str) {
        let expected = expected.trim_matches('\n');
        let mut last = String::new();
        let shown = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            wait_for("the screen", || {
                last = without_spans(&self.text());
                last == expected
            });
        }));
        assert!(
            shown.is_ok(),
            "the screen is:\n{last}\n\nexpected:\n{expected}"
        );
    }

    /// Waits for the program's end: its exit status.
    pub fn wait(&mut self) -> Option<i32> {
        self.child.wait().unwrap().code()
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn size(length: u16) -> NonZero<u16> {
    NonZero::new(length).expect("a terminal has a size")
}

/// The text with ` N` for the digits of a span in seconds and the space before.
pub fn without_spans(text: &str) -> String {
    let mut masked = String::new();
    let mut digits = String::new();
    let mut before = ' ';
    for character in text.chars().chain(['\n']) {
        if character.is_ascii_digit() && (before == ' ' || !digits.is_empty()) {
            digits.push(character);
            continue;
        }
        if character == 's' && !digits.is_empty() {
            masked.truncate(masked.trim_end_matches(' ').len());
            masked += " N";
        } else {
            masked += &digits;
        }
        digits.clear();
        masked.push(character);
        before = character;
    }
    masked.trim_end_matches('\n').into()
}
