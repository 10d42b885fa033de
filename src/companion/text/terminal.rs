//! A terminal in raw mode: its size, its keys, and its old mode back at the end.

use crate::failure::{Failure, Outcome};
use rustix::termios::{self, OptionalActions, Termios};
use std::collections::VecDeque;
use std::io::{self, IsTerminal, Write};
use std::os::fd::{AsFd, BorrowedFd};

/// Standard input and output as a terminal in raw mode. When this goes, the
/// terminal is as it was.
pub struct Terminal {
    input: io::Stdin,
    before: Termios,
    /// Keys that were read together with earlier ones.
    keys: VecDeque<Key>,
    /// The beginning of a character whose rest has not come.
    partial: Vec<u8>,
    /// What undoes the things written by [`Terminal::full_screen`].
    goodbye: &'static str,
}

/// A key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Key {
    Char(char),
    /// A letter together with the control key.
    Ctrl(char),
    Enter,
    Escape,
    Tab,
    Backspace,
    Delete,
    Up,
    Down,
    Left,
    Right,
    Home,
    End,
    PageUp,
    PageDown,
    /// The other side has hung up.
    Closed,
}

/// Whether there is a terminal to talk to a person at.
pub fn is_there() -> bool {
    io::stdin().is_terminal() && io::stdout().is_terminal()
}

/// How many columns the terminal has that standard output goes to, if any.
pub fn width() -> Option<usize> {
    let size = termios::tcgetwinsize(io::stdout()).ok()?;
    Some(size.ws_col.into()).filter(|&width| width > 0)
}

impl Terminal {
    /// Raw mode: each key by itself, none echoed, none a signal.
    pub fn raw() -> Outcome<Terminal> {
        let fail =
            |errno: rustix::io::Errno| Failure::io("cannot set up the terminal", errno.into());
        let before = termios::tcgetattr(io::stdin()).map_err(fail)?;
        let mut raw = before.clone();
        raw.make_raw();
        termios::tcsetattr(io::stdin(), OptionalActions::Drain, &raw).map_err(fail)?;
        Ok(Terminal {
            input: io::stdin(),
            before,
            keys: VecDeque::new(),
            partial: Vec::new(),
            goodbye: "",
        })
    }

    /// Raw mode and a screen of its own, without a cursor.
    pub fn full_screen() -> Outcome<Terminal> {
        let mut terminal = Terminal::raw()?;
        terminal.goodbye = "\x1b[?25h\x1b[?1049l";
        terminal.write("\x1b[?1049h\x1b[?25l\x1b[2J")?;
        Ok(terminal)
    }

    /// Columns and rows.
    pub fn size(&self) -> (usize, usize) {
        match termios::tcgetwinsize(io::stdout()) {
            Ok(size) if size.ws_col > 0 && size.ws_row > 0 => {
                (size.ws_col.into(), size.ws_row.into())
            }
            _ => (80, 24),
        }
    }

    /// Writes this at once.
    pub fn write(&self, text: &str) -> Outcome<()> {
        let mut output = io::stdout().lock();
        output
            .write_all(text.as_bytes())
            .and_then(|()| output.flush())
            .map_err(Failure::output)
    }

    /// The next key. Waits until something is typed; what is no key we know is
    /// `None`.
    pub fn key(&mut self) -> Outcome<Option<Key>> {
        if self.keys.is_empty() {
            let mut bytes = [0; 1024];
            match nix::unistd::read(&self.input, &mut bytes) {
                Ok(0) => self.keys.push_back(Key::Closed),
                Ok(count) => {
                    self.partial.extend_from_slice(&bytes[..count]);
                    let used = decode(&self.partial, &mut self.keys);
                    self.partial.drain(..used);
                }
                Err(nix::Error::EINTR) => {}
                Err(nix::Error::EIO) => self.keys.push_back(Key::Closed),
                Err(errno) => {
                    return Err(Failure::io("cannot read from the terminal", errno.into()));
                }
            }
        }
        Ok(self.keys.pop_front())
    }

    /// Whether keys have been read that nobody has asked for yet.
    pub fn has_keys(&self) -> bool {
        !self.keys.is_empty()
    }
}

/// What becomes readable when a key is pressed.
impl AsFd for Terminal {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.input.as_fd()
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        // Nothing can be done about a terminal that has gone.
        let _ = self.write(self.goodbye);
        let _ = termios::tcsetattr(io::stdin(), OptionalActions::Drain, &self.before);
    }
}

/// The keys that these bytes are, and how many bytes those take: all but the
/// beginning of a character. Sequences arrive in one piece, so an escape at
/// the end is the key of that name.
fn decode(bytes: &[u8], keys: &mut VecDeque<Key>) -> usize {
    let mut at = 0;
    while at < bytes.len() {
        let rest = &bytes[at..];
        let (key, length) = match rest {
            [0x1b, b'[' | b'O', ..] => sequence(rest),
            [0x1b, ..] => (Some(Key::Escape), 1),
            [b'\r' | b'\n', ..] => (Some(Key::Enter), 1),
            [b'\t', ..] => (Some(Key::Tab), 1),
            [0x7f | 0x08, ..] => (Some(Key::Backspace), 1),
            [control @ 0..=0x1a, ..] => {
                let letter = if *control == 0 {
                    ' '
                } else {
                    char::from(control + b'a' - 1)
                };
                (Some(Key::Ctrl(letter)), 1)
            }
            [control @ ..=0x1f, ..] => (Some(Key::Ctrl(char::from(control + 0x40))), 1),
            _ => match character(rest) {
                Some((character, length)) => (character.map(Key::Char), length),
                None => return at,
            },
        };
        keys.extend(key);
        at += length;
    }
    at
}

/// The first character: `None` if it is cut off, `Some((None, 1))` if these
/// bytes are none.
fn character(bytes: &[u8]) -> Option<(Option<char>, usize)> {
    let chunk = bytes.utf8_chunks().next()?;
    match chunk.valid().chars().next() {
        Some(character) => Some((Some(character), character.len_utf8())),
        None if chunk.invalid().len() == bytes.len() && bytes.len() < 4 => {
            let cut_off =
                std::str::from_utf8(bytes).is_err_and(|error| error.error_len().is_none());
            (!cut_off).then_some((None, bytes.len()))
        }
        None => Some((None, chunk.invalid().len())),
    }
}

/// A sequence that begins with an escape and a bracket, or `O`. One that is
/// not known is no key.
fn sequence(bytes: &[u8]) -> (Option<Key>, usize) {
    let ends = bytes[2..]
        .iter()
        .position(|byte| (0x40..0x7f).contains(byte));
    let Some(end) = ends.map(|end| end + 2) else {
        return (Some(Key::Escape), bytes.len());
    };
    let key = match &bytes[2..=end] {
        b"A" => Some(Key::Up),
        b"B" => Some(Key::Down),
        b"C" => Some(Key::Right),
        b"D" => Some(Key::Left),
        b"H" | b"1~" | b"7~" => Some(Key::Home),
        b"F" | b"4~" | b"8~" => Some(Key::End),
        b"3~" => Some(Key::Delete),
        b"5~" => Some(Key::PageUp),
        b"6~" => Some(Key::PageDown),
        _ => None,
    };
    (key, end + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(bytes: &[u8]) -> (Vec<Key>, usize) {
        let mut keys = VecDeque::new();
        let used = decode(bytes, &mut keys);
        (keys.into(), used)
    }

    #[test]
    fn keys_are_told_apart_by_their_bytes() {
        use Key::*;
        for (bytes, expected) in [
            (&b"aB1"[..], vec![Char('a'), Char('B'), Char('1')]),
            ("é😀".as_bytes(), vec![Char('é'), Char('😀')]),
            (b"\x1b", vec![Escape]),
            (b"\x1b[A\x1bOB\x1b[C\x1b[D", vec![Up, Down, Right, Left]),
            (
                b"\x1b[H\x1b[4~\x1b[3~\x1b[5~\x1b[6~",
                vec![Home, End, Delete, PageUp, PageDown],
            ),
            (b"\x1b[1;5A\x1b[99~x", vec![Char('x')]),
            (
                b"\r\n\t\x7f\x08",
                vec![Enter, Enter, Tab, Backspace, Backspace],
            ),
            (
                b"\x01\x03\x00\x1a",
                vec![Ctrl('a'), Ctrl('c'), Ctrl(' '), Ctrl('z')],
            ),
            (b"\xffa", vec![Char('a')]),
        ] {
            assert_eq!(
                keys(bytes),
                (expected, bytes.len()),
                "{}",
                bytes.escape_ascii()
            );
        }
    }

    #[test]
    fn a_character_that_is_cut_off_waits_for_its_rest() {
        assert_eq!(keys(b"a\xc3"), (vec![Key::Char('a')], 1));
        assert_eq!(keys(b"\xf0\x9f\x98"), (vec![], 0));
        assert_eq!(keys("😀".as_bytes()), (vec![Key::Char('😀')], 4));
    }
}
