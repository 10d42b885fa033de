//! A terminal in raw mode, and its keys. At the end it gets its old
//! mode back.

use crate::failure::{Failure, Outcome};
use crate::text::print;
use nix::sys::signal::{Signal, raise};
use rustix::termios::{self, OptionalActions, Termios};
use std::io;

/// Standard input and output as a terminal in raw mode. When this is dropped,
/// the terminal gets its old mode back.
pub struct Terminal {
    /// It becomes readable when a key is pressed.
    pub input: io::Stdin,
    before: Termios,
}

/// These begin and end the use of a separate screen without a cursor.
const FULL_SCREEN: &str = "\x1b[?1049h\x1b[?25l\x1b[2J";
const GOODBYE: &str = "\x1b[?25h\x1b[?1049l";

/// A key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Key {
    Char(char),
    /// A letter together with the control key.
    Ctrl(char),
    Enter,
    Escape,
    Up,
    Down,
    Home,
    End,
    PageUp,
    PageDown,
    /// The other side has hung up.
    Closed,
}

impl Terminal {
    /// Switches to raw mode, in which each key comes by itself, none is echoed
    /// and none sends a signal, and to a separate screen without a cursor.
    pub fn full_screen() -> Outcome<Terminal> {
        let terminal = Terminal {
            input: io::stdin(),
            before: termios::tcgetattr(io::stdin()).map_err(no_terminal)?,
        };
        terminal.begin()?;
        Ok(terminal)
    }

    /// Leaves the terminal to the shell, until the shell lets the program go
    /// on.
    pub fn suspend(&self) -> Outcome<()> {
        self.end();
        raise(Signal::SIGTSTP).map_err(|errno| Failure::io("cannot stop", errno.into()))?;
        self.begin()
    }

    fn begin(&self) -> Outcome<()> {
        let mut raw = self.before.clone();
        raw.make_raw();
        termios::tcsetattr(&self.input, OptionalActions::Drain, &raw).map_err(no_terminal)?;
        self.write(FULL_SCREEN)
    }

    fn end(&self) {
        // If the terminal is gone, nothing can be done about it.
        let _ = self.write(GOODBYE);
        let _ = termios::tcsetattr(&self.input, OptionalActions::Drain, &self.before);
    }

    /// Writes this text at once.
    pub fn write(&self, text: &str) -> Outcome<()> {
        print(text.into()).map(drop)
    }

    /// Waits until something is typed, and returns the keys.
    pub fn keys(&self) -> Outcome<Vec<Key>> {
        let mut bytes = [0; 1024];
        match nix::unistd::read(&self.input, &mut bytes) {
            Ok(0) | Err(nix::Error::EIO) => Ok(vec![Key::Closed]),
            Ok(count) => Ok(decode(&bytes[..count])),
            Err(nix::Error::EINTR) => Ok(Vec::new()),
            Err(errno) => Err(Failure::io("cannot read from the terminal", errno.into())),
        }
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        self.end();
    }
}

fn no_terminal(errno: rustix::io::Errno) -> Failure {
    Failure::io("cannot set up the terminal", errno.into())
}

/// The keys in these bytes. Only ASCII means something here. Sequences arrive
/// in one piece, so an escape at the end is the key Escape.
fn decode(bytes: &[u8]) -> Vec<Key> {
    let (mut keys, mut rest) = (Vec::new(), bytes);
    while let [first, after @ ..] = rest {
        rest = after;
        keys.extend(match (first, after) {
            // A sequence: an escape, a bracket or O, and what ends with a letter or ~.
            (0x1b, [b'[' | b'O', tail @ ..]) => {
                let end = tail.iter().position(|byte| (0x40..0x7f).contains(byte));
                let (sequence, after) = tail.split_at(end.map_or(tail.len(), |end| end + 1));
                rest = after;
                match sequence {
                    b"A" => Some(Key::Up),
                    b"B" => Some(Key::Down),
                    b"H" | b"1~" | b"7~" => Some(Key::Home),
                    b"F" | b"4~" | b"8~" => Some(Key::End),
                    b"5~" => Some(Key::PageUp),
                    b"6~" => Some(Key::PageDown),
                    _ => None,
                }
            }
            (0x1b, _) => Some(Key::Escape),
            (b'\r' | b'\n', _) => Some(Key::Enter),
            (1..=0x1a, _) => Some(Key::Ctrl(char::from(first + b'a' - 1))),
            (b' '..=b'~', _) => Some(Key::Char(char::from(*first))),
            _ => None,
        });
    }
    keys
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_decoded_from_their_bytes() {
        use Key::*;
        for (bytes, expected) in [
            (&b"aB1"[..], vec![Char('a'), Char('B'), Char('1')]),
            (b"\x1b", vec![Escape]),
            (b"\x1b[A\x1bOB\x1b[C\x1b[D", vec![Up, Down]),
            (
                b"\x1b[H\x1b[4~\x1b[3~\x1b[5~\x1b[6~",
                vec![Home, End, PageUp, PageDown],
            ),
            (b"\x1b[1;5A\x1b[99~x", vec![Char('x')]),
            (b"\r\n\x7f", vec![Enter, Enter]),
            (b"\x01\x03\x1a", vec![Ctrl('a'), Ctrl('c'), Ctrl('z')]),
            (b"\xff\0a", vec![Char('a')]),
        ] {
            assert_eq!(decode(bytes), expected, "{}", bytes.escape_ascii());
        }
    }
}
