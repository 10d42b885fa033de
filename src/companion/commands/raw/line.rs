//! A line that is being typed, and the lines that were typed before: how keys
//! change them. Nothing here draws.

use crate::text::terminal::Key;

/// A line and a cursor in it.
#[derive(Default)]
pub struct Line {
    characters: Vec<char>,
    /// The index of the character after the cursor; at the end of the line, its
    /// length.
    cursor: usize,
    /// The lines that were typed before, the latest last.
    history: Vec<String>,
    /// The index of the earlier line that is shown; their number if none is.
    at: usize,
    /// The text that had been typed before an earlier line was shown.
    unfinished: String,
}

/// What the caller has to do after a key.
#[derive(Debug, PartialEq, Eq)]
pub enum Typed {
    /// Nothing; the line may have changed.
    Go,
    /// The line is complete.
    Done,
    /// The line is to be dropped.
    Abandoned,
    /// There will be no more lines.
    End,
    /// The word at the cursor is to be completed.
    Complete,
    /// The screen is to be cleared.
    Clear,
}

impl Line {
    /// An empty line, with these lines typed before it.
    pub fn new(history: Vec<String>) -> Line {
        let at = history.len();
        Line {
            history,
            at,
            ..Line::default()
        }
    }

    /// The text.
    pub fn text(&self) -> String {
        self.characters.iter().collect()
    }

    /// The text before the cursor.
    pub fn before_cursor(&self) -> String {
        self.characters[..self.cursor].iter().collect()
    }

    /// The part of the line that can be seen in this many columns, and the
    /// column of the cursor in it.
    pub fn window(&self, width: usize) -> (String, usize) {
        let width = width.max(2);
        let start = (self.cursor + 1).saturating_sub(width);
        let seen = self.characters[start..].iter().take(width);
        (seen.collect(), self.cursor - start)
    }

    /// Empties the line, remembers its text and returns it.
    pub fn take(&mut self) -> String {
        let text = self.text();
        if !text.trim().is_empty() && self.history.last() != Some(&text) {
            self.history.push(text.clone());
        }
        self.clear();
        text
    }

    /// Empties the line and forgets its text.
    pub fn clear(&mut self) {
        self.set("");
        self.at = self.history.len();
    }

    /// Inserts this text at the cursor.
    pub fn insert(&mut self, text: &str) {
        let characters: Vec<char> = text.chars().collect();
        let count = characters.len();
        self.characters.splice(self.cursor..self.cursor, characters);
        self.cursor += count;
    }

    /// Does what a key means.
    pub fn press(&mut self, key: Key) -> Typed {
        match key {
            Key::Char(character) => self.insert(character.encode_utf8(&mut [0; 4])),
            Key::Enter => return Typed::Done,
            Key::Tab => return Typed::Complete,
            Key::Closed => return Typed::End,
            Key::Ctrl('c') => return Typed::Abandoned,
            Key::Ctrl('l') => return Typed::Clear,
            Key::Ctrl('d') if self.characters.is_empty() => return Typed::End,
            Key::Ctrl('d') | Key::Delete => self.remove(self.cursor, self.cursor + 1),
            Key::Backspace => self.remove(self.cursor.saturating_sub(1), self.cursor),
            Key::Ctrl('u') => self.remove(0, self.cursor),
            Key::Ctrl('k') => self.remove(self.cursor, self.characters.len()),
            Key::Ctrl('w') => self.remove(self.word_before(), self.cursor),
            Key::Left | Key::Ctrl('b') => self.cursor = self.cursor.saturating_sub(1),
            Key::Right | Key::Ctrl('f') => {
                self.cursor = (self.cursor + 1).min(self.characters.len())
            }
            Key::Home | Key::Ctrl('a') => self.cursor = 0,
            Key::End | Key::Ctrl('e') => self.cursor = self.characters.len(),
            Key::Up | Key::Ctrl('p') => self.recall(self.at.checked_sub(1)),
            Key::Ctrl('r') => self.recall(self.sought()),
            Key::Down | Key::Ctrl('n') => self.recall(Some(self.at + 1)),
            _ => {}
        }
        Typed::Go
    }

    fn remove(&mut self, from: usize, to: usize) {
        let to = to.min(self.characters.len());
        self.characters.drain(from.min(to)..to);
        self.cursor = from.min(to);
    }

    fn word_before(&self) -> usize {
        let before = &self.characters[..self.cursor];
        let end = before.iter().rposition(|c| *c != ' ').unwrap_or(0);
        before[..end]
            .iter()
            .rposition(|c| *c == ' ')
            .map_or(0, |space| space + 1)
    }

    /// The index of the latest line before the shown one that contains the
    /// typed text.
    fn sought(&self) -> Option<usize> {
        let typed = match self.at == self.history.len() {
            true => self.text(),
            false => self.unfinished.clone(),
        };
        let before = &self.history[..self.at];
        before.iter().rposition(|line| line.contains(&typed))
    }

    /// Shows an earlier line, or the unfinished one after all of them.
    fn recall(&mut self, at: Option<usize>) {
        let Some(at) = at.filter(|at| *at <= self.history.len()) else {
            return;
        };
        if self.at == self.history.len() {
            self.unfinished = self.text();
        }
        self.at = at;
        let text = self.history.get(at).unwrap_or(&self.unfinished).clone();
        self.set(&text);
    }

    fn set(&mut self, text: &str) {
        self.characters = text.chars().collect();
        self.cursor = self.characters.len();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The line after these keys, with `|` for the cursor.
    fn after(history: &[&str], keys: &[Key]) -> String {
        let mut line = Line::new(history.iter().map(|line| String::from(*line)).collect());
        for key in keys {
            assert_eq!(line.press(*key), Typed::Go);
        }
        let (before, all) = (line.before_cursor(), line.text());
        format!("{before}|{}", &all[before.len()..])
    }

    #[test]
    fn a_line_is_edited_at_its_cursor() {
        use Key::*;
        let typed = [Char('p'), Char('u'), Char(' '), Char('é')];
        for (keys, expected) in [
            (&[][..], "pu é|"),
            (&[Left, Left, Char('t')], "put| é"),
            (&[Home, Delete, Right], "u| é"),
            (
                &[Backspace, Backspace, Backspace, Backspace, Backspace],
                "|",
            ),
            (&[Ctrl('a'), Ctrl('d'), Ctrl('e')], "u é|"),
            (&[Left, Ctrl('u')], "|é"),
            (&[Home, Right, Ctrl('k')], "p|"),
            (&[Ctrl('w')], "pu |"),
            (&[Ctrl('w'), Ctrl('w')], "|"),
            (&[Right, Delete, Key::End], "pu é|"),
        ] {
            assert_eq!(
                after(&[], &[&typed[..], keys].concat()),
                expected,
                "{keys:?}"
            );
        }
    }

    #[test]
    fn earlier_lines_come_back_and_so_does_the_unfinished_one() {
        use Key::*;
        let history = ["first", "second"];
        assert_eq!(after(&history, &[Char('x'), Up]), "second|");
        assert_eq!(after(&history, &[Char('x'), Up, Up, Up]), "first|");
        assert_eq!(after(&history, &[Char('x'), Up, Up, Down]), "second|");
        assert_eq!(after(&history, &[Char('x'), Up, Down, Down]), "x|");
        let (find, twice) = ([Char('r'), Ctrl('r')], [Char('r'), Ctrl('r'), Ctrl('r')]);
        assert_eq!(after(&["reserve", "put", "use r", "peek"], &find), "use r|");
        assert_eq!(
            after(&["reserve", "put", "use r", "peek"], &twice),
            "reserve|"
        );
        assert_eq!(after(&history, &[Char('x'), Ctrl('r')]), "x|");
    }

    #[test]
    fn a_line_is_remembered_once_in_a_row_and_not_if_it_is_empty() {
        let mut line = Line::default();
        for text in ["a", "a", " ", "", "b"] {
            line.insert(text);
            assert_eq!(line.take(), text);
        }
        assert_eq!(line.history, ["a", "b"]);
        assert_eq!(line.press(Key::Ctrl('d')), Typed::End);
        line.insert("c");
        assert_eq!(line.press(Key::Ctrl('d')), Typed::Go);
    }

    #[test]
    fn a_long_line_is_seen_where_the_cursor_is() {
        let mut line = Line::default();
        line.insert("abcdefgh");
        assert_eq!(line.window(20), ("abcdefgh".into(), 8));
        assert_eq!(line.window(5), ("efgh".into(), 4));
        line.press(Key::Home);
        assert_eq!(line.window(5), ("abcde".into(), 0));
    }
}
