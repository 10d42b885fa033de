//! A line of the screen, and how it is drawn: with plain ANSI sequences, and
//! only if it has changed.

use crate::failure::Outcome;
use crate::text::colour::Colour;
use crate::text::terminal::Terminal;
use std::fmt::Write;

/// A line of the screen: pieces of text, some of them in a colour.
#[derive(Clone, Default)]
pub struct Line {
    style: Style,
    pieces: Vec<(String, Option<Colour>)>,
}

/// How a line stands out, as the number of the ANSI sequence.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub enum Style {
    #[default]
    Plain = 0,
    Bold = 1,
    Dim = 2,
    Reverse = 7,
}

impl Line {
    pub fn plain(text: impl Into<String>) -> Line {
        Line::default().add(text)
    }

    pub fn bold(text: impl Into<String>) -> Line {
        Line::plain(text).styled(Style::Bold)
    }

    pub fn styled(self, style: Style) -> Line {
        Line { style, ..self }
    }

    /// The same line with this text at its end.
    pub fn add(self, text: impl Into<String>) -> Line {
        self.add_in(None, text)
    }

    /// The same line with this text at its end, in a colour if one is given.
    pub fn add_in(mut self, colour: Option<Colour>, text: impl Into<String>) -> Line {
        self.pieces.push((text.into(), colour));
        self
    }

    /// Its text, cut to this width.
    pub fn text(&self, width: usize) -> String {
        let texts = self.pieces.iter().map(|(text, _)| text.as_str());
        clip(&texts.collect::<String>(), width)
    }

    /// Its text, cut to this width, with the sequences for a terminal.
    fn painted(&self, width: usize) -> String {
        let base = format!("0;{}", self.style as u8);
        let mut painted = format!("\x1b[{base}m");
        let mut room = width;
        for (text, colour) in &self.pieces {
            let text = clip(text, room);
            room -= text.chars().count();
            painted += &match colour.and_then(Colour::code) {
                Some(code) => format!("\x1b[{base};{code}m{text}\x1b[{base}m"),
                None => text,
            };
        }
        if self.style == Style::Reverse {
            painted += &" ".repeat(room);
        }
        painted + "\x1b[0m"
    }
}

/// The first `width` characters of a text.
pub fn clip(text: &str, width: usize) -> String {
    text.chars().take(width).collect()
}

/// The lines that the terminal shows.
#[derive(Default)]
pub struct Drawn {
    lines: Vec<String>,
    size: (usize, usize),
}

impl Drawn {
    /// Draws the lines that have changed. If the size of the terminal has
    /// changed, it draws all lines.
    pub fn draw(
        &mut self,
        terminal: &Terminal,
        lines: &[Line],
        size: (usize, usize),
    ) -> Outcome<()> {
        let lines: Vec<_> = lines.iter().map(|line| line.painted(size.0)).collect();
        let mut text = String::new();
        if self.size != size {
            text += "\x1b[2J";
            self.lines.clear();
        }
        for (index, line) in lines.iter().enumerate() {
            if self.lines.get(index) != Some(line) {
                // Writing to memory does not fail.
                let _ = write!(text, "\x1b[{};1H\x1b[K{line}", index + 1);
            }
        }
        *self = Drawn { lines, size };
        terminal.write(&text)
    }
}
