//! Text for people and their terminals: what a server says without what would
//! disturb a terminal, times and bodies that fit into a line, and colours.
//!
//! [`json`] is text for programs, and `output` writes both.

pub mod json;
pub(crate) mod output;

pub use beanpole::log::counted;
pub(crate) use output::{Output, Progress, cannot_read, complain, note, print};
use std::fmt::Display;
use unicode_width::UnicodeWidthChar;

/// A span of time in its largest unit.
pub fn span(seconds: u64) -> String {
    match seconds {
        0..=119 => format!("{seconds}s"),
        120..=7199 => format!("{}m", seconds / 60),
        7200..=172_799 => format!("{}h", seconds / 3600),
        _ => format!("{}d", seconds / 86_400),
    }
}

/// A body in one line, which cannot disturb a terminal, of up to `width`
/// columns if a width is given.
pub fn beginning(body: &[u8], width: Option<usize>) -> String {
    let Some(width) = width else {
        return shown(body, false);
    };
    // A character that takes a column has at most four bytes; a few may take
    // none.
    let mut text = shown(&body[..body.len().min(width.saturating_mul(8))], false);
    let mut columns = 0;
    let beyond = text.char_indices().find(|(_, character)| {
        columns += character.width().unwrap_or(0);
        columns > width
    });
    text.truncate(beyond.map_or(text.len(), |(at, _)| at));
    text
}

/// How many columns of a terminal a text takes.
pub fn columns(text: &str) -> usize {
    text.chars().filter_map(UnicodeWidthChar::width).sum()
}

/// A line of a table: texts in columns of these widths, at the left if a width is
/// negative.
pub fn row<T: Display>(cells: impl IntoIterator<Item = (T, isize)>) -> String {
    let mut line = String::new();
    for (text, width) in cells {
        let columns = width.unsigned_abs();
        let space = if line.is_empty() { "" } else { " " };
        line += &match width < 0 {
            true => format!("{space}{text:<columns$}"),
            false => format!("{space}{text:>columns$}"),
        };
    }
    line
}

/// Whether a terminal takes this character for an order, or shows other text
/// because of it: a control character, one that turns the direction of writing
/// or one that cannot be seen.
pub fn disturbs(character: char) -> bool {
    matches!(character,
        '\0'..='\x1f' | '\x7f'..='\u{9f}' | '\u{61c}' | '\u{200b}' | '\u{200e}' | '\u{200f}'
        | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}'
        | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
}

/// Bytes of a server as text, with escapes for all that is no text or would
/// [disturb](disturbs) a terminal. Line feeds and tabs stay if there may be
/// several lines.
///
/// This is the only way for bytes of a server to become text: what a [reply]
/// or a [document] says went through it, so it can be written anywhere.
///
/// [reply]: crate::remote::reply
/// [document]: crate::remote::facts
pub fn shown(bytes: &[u8], lines: bool) -> String {
    let is_kept = |c: char| matches!(c, ' '..='~') || lines && matches!(c, '\n' | '\t');
    let is_escaped = |c: char| !is_kept(c) && disturbs(c);
    let mut text = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        for (piece, last) in pieces(chunk.valid(), is_escaped) {
            text += piece;
            match last {
                None => {}
                Some(last @ ('\n' | '\t' | '\r')) => text.extend(last.escape_default()),
                Some(last @ ..='\x7f') => text += &format!("\\x{:02x}", u32::from(last)),
                Some(last) => text.extend(last.escape_unicode()),
            }
        }
        for byte in chunk.invalid() {
            text += &format!("\\x{byte:02x}");
        }
    }
    text
}

/// The pieces of a text that end with such a character, each without it, and with it.
fn pieces(
    text: &str,
    ends: impl Fn(char) -> bool + Copy,
) -> impl Iterator<Item = (&str, Option<char>)> {
    text.split_inclusive(ends).map(move |piece| {
        let last = piece.chars().next_back().filter(|last| ends(*last));
        (&piece[..piece.len() - last.map_or(0, char::len_utf8)], last)
    })
}

/// A colour that every terminal has, by its number there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Colour(u8);

const NAMES: [&str; 6] = ["red", "green", "yellow", "blue", "magenta", "cyan"];

impl Colour {
    pub const RED: Colour = Colour(0);
    pub const YELLOW: Colour = Colour(2);

    /// The colour of this name.
    pub fn parse(name: &str) -> Result<Colour, String> {
        let known = (0..).zip(NAMES).find(|(_, known)| *known == name);
        let wrong = || format!("'{name}' is none of the colours {}", NAMES.join(", "));
        known.map(|(place, _)| Colour(place)).ok_or_else(wrong)
    }

    pub fn name(self) -> &'static str {
        NAMES[usize::from(self.0)]
    }

    /// A text in this colour, if colours are wanted.
    pub fn paint(self, text: &str) -> String {
        match self.code() {
            Some(code) => format!("\x1b[1;{code}m{text}\x1b[0m"),
            None => text.into(),
        }
    }

    /// The number of the colour in an ANSI sequence, if colours are wanted.
    pub fn code(self) -> Option<u8> {
        are_wanted().then_some(31 + self.0)
    }
}

/// Whether colours are wanted: the user can refuse them with `NO_COLOR`, as
/// <https://no-color.org> describes.
fn are_wanted() -> bool {
    std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}

/// '1 job is ready' or '7 jobs are ready'.
pub fn jobs(count: u64, state: &str) -> String {
    match count {
        0 => format!("no job is {state}"),
        1 => format!("1 job is {state}"),
        _ => format!("{count} jobs are {state}"),
    }
}

/// A text as a word of a shell, for advice: the name of a tube may be `$(reboot)`.
pub fn shell_word(text: &str) -> String {
    let is_plain = |c: char| c.is_alphanumeric() || "-_./:+@%,=".contains(c);
    let escape = |c: char| Some('\\').filter(|_| !is_plain(c));
    text.chars()
        .flat_map(|c| escape(c).into_iter().chain([c]))
        .collect()
}

/// How many of several things are named at most.
pub const NAMED: usize = 5;

/// These in a row, the first few of them by name.
pub fn listed(all: &[impl ToString]) -> String {
    let named: Vec<_> = all.iter().take(NAMED).map(ToString::to_string).collect();
    let more = match all.len().saturating_sub(NAMED) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    named.join(", ") + &more
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn a_span_is_shown_in_its_largest_unit() {
        let spans = [0, 119, 120, 7200, 172_800].map(span);
        assert_eq!(spans, ["0s", "119s", "2m", "2h", "2d"]);
    }

    #[test]
    fn a_shell_reads_a_word_as_it_is() {
        for word in ["mail", "a;b", "$(exit)", "it's \"a\" `b`", "a\\b*?", "~é"] {
            let line = format!("printf %s {}", shell_word(word));
            let said = Command::new("sh").args(["-c", &line]).output();
            assert_eq!(said.expect("a shell").stdout, word.as_bytes(), "{word}");
        }
    }

    #[test]
    fn a_body_is_shown_as_escaped_text() {
        let beginning = |body: &[u8], width| beginning(body, Some(width));
        assert_eq!(beginning("é\x1b[2J\n".as_bytes(), 20), "é\\x1b[2J\\n");
        assert_eq!(beginning(b"\xff\x00a", 20), "\\xff\\x00a");
        assert_eq!(beginning("ab".repeat(100).as_bytes(), 3), "aba");
        assert_eq!(beginning("aéé".repeat(9).as_bytes(), 1), "a");
        assert_eq!(beginning("é".as_bytes(), 0), "");
        assert_eq!(beginning("é".as_bytes(), usize::MAX), "é");
        assert_eq!(beginning("工作队列".as_bytes(), 5), "工作");
        assert_eq!(beginning("e\u{301}tat".as_bytes(), 2), "e\u{301}t");
        assert_eq!(beginning(br#"{"it's":"a\\b"}"#, 20), r#"{"it's":"a\\b"}"#);
        assert_eq!(
            shown("a\tb\r\n\u{9b}\u{202e}".as_bytes(), true),
            "a\tb\\r\n\\u{9b}\\u{202e}"
        );
    }
}
