//! Reads the manual page of the protocol, `man/beanpole-protocol.7`: its exchanges,
//! which the transcripts' suite plays as stories, and its commands, replies and keys.
//! The manual's suite tests what the page says.
//!
//! Each display of the page is an exchange, unless a comment above it says that
//! it is none. The exchanges of one section make one story.

use crate::story::Story;
use crate::text_of;

/// The name of the page in `man`.
pub const NAME: &str = "beanpole-protocol.7";
/// The beginning of the comment above a display that is not an exchange.
pub const NOT_AN_EXCHANGE: &str = ".\\\" Not an exchange";
/// The page, as the lines of its source.
pub struct Manual {
    pub text: String,
}

/// A section of the page, or a subsection.
pub struct Section<'a> {
    pub title: &'a str,
    /// Its lines, each with its number, up to the next section or subsection.
    pub lines: Vec<(usize, &'a str)>,
}

impl Manual {
    /// Reads the page.
    pub fn read() -> Manual {
        let text = text_of(&format!("man/{NAME}"));
        Manual { text }
    }

    /// The exchanges: a story for each section that has any. Its line numbers
    /// are those of the page.
    pub fn stories(&self) -> Vec<Story> {
        self.sections()
            .filter_map(|section| {
                let exchanges = section.exchanges()?;
                let name = format!("{NAME} ({})", section.title);
                Some(Story::parse(&name, &exchanges).unwrap_or_else(|error| panic!("{error}")))
            })
            .collect()
    }

    /// The commands that a section explains, each with the exchanges of that
    /// section.
    pub fn commands(&self) -> Vec<(&str, String)> {
        let mut commands = Vec::new();
        for section in self.sections() {
            let exchanges = section.exchanges().unwrap_or_default();
            let here = section.commands().into_iter();
            commands.extend(here.map(|command| (command, exchanges.clone())));
        }
        commands
    }

    /// The replies that the page explains, without arguments.
    pub fn replies(&self) -> Vec<&str> {
        self.sections()
            .flat_map(|section| section.replies())
            .collect()
    }

    /// The keys of statistics that the subsection of this title explains.
    pub fn keys(&self, title: &str) -> Vec<&str> {
        self.sections()
            .filter(|section| section.title == title)
            .flat_map(|section| section.items(".It Va "))
            .flat_map(|item| item.split(" , "))
            .collect()
    }

    /// The sections and subsections, in the order of the page.
    pub fn sections(&self) -> impl Iterator<Item = Section<'_>> {
        let mut sections: Vec<Section> = Vec::new();
        for (number, line) in (1..).zip(self.text.lines()) {
            let title = line
                .strip_prefix(".Sh ")
                .or_else(|| line.strip_prefix(".Ss "));
            match (title, sections.last_mut()) {
                (Some(title), _) => sections.push(Section {
                    title,
                    lines: Vec::new(),
                }),
                (None, Some(section)) => section.lines.push((number, line)),
                (None, None) => {}
            }
        }
        sections.into_iter()
    }
}

impl<'a> Section<'a> {
    /// The commands that this section explains.
    pub fn commands(&self) -> Vec<&'a str> {
        let lines = self.items(".D1 Ic ").into_iter();
        lines.filter_map(|line| line.split(' ').next()).collect()
    }

    /// The replies that this section explains, without arguments.
    pub fn replies(&self) -> Vec<&'a str> {
        let items = self.items(".It Dv ").into_iter();
        items.filter_map(|item| item.split(' ').next()).collect()
    }

    /// The rest of each line that begins with this mark.
    fn items(&self, mark: &str) -> Vec<&'a str> {
        self.lines
            .iter()
            .filter_map(|(_, line)| line.strip_prefix(mark))
            .collect()
    }

    /// The exchanges as the text of a transcript. All lines before and between
    /// them become empty lines, so that the line numbers stay the same.
    pub fn exchanges(&self) -> Option<String> {
        let mut text = String::new();
        let mut before = "";
        let mut inside = false;
        let mut is_ours_alone = false;
        for &(number, line) in &self.lines {
            if line == ".Ed" {
                inside = false;
            } else if line.starts_with(".Bd ") {
                inside = !before.starts_with(NOT_AN_EXCHANGE);
            } else if inside {
                let lines = text.matches('\n').count();
                text.extend(std::iter::repeat_n('\n', number - 1 - lines));
                match line.strip_prefix(".\\\" ") {
                    Some("beanpole|") => text.push('#'),
                    Some(hidden) => text.push_str(hidden),
                    None if is_ours_alone => text.push_str(&format!("beanpole|   {}", shown(line))),
                    None => text.push_str(&shown(line)),
                }
                text.push('\n');
                is_ours_alone = line.ends_with("\" beanpole|");
            }
            before = line;
        }
        (!text.is_empty()).then_some(text)
    }
}

/// A line of a literal display, as a reader of the page sees it.
pub fn shown(line: &str) -> String {
    assert!(
        !line.starts_with(['.', '\'']),
        "a macro in an exchange: {line}"
    );
    let (mut shown, mut rest) = (String::new(), line);
    while let Some((before, escape)) = rest.split_once('\\') {
        let (stands_for, after) = [("e", "\\"), ("&", ""), ("-", "-")]
            .iter()
            .find_map(|(code, stands_for)| Some((stands_for, escape.strip_prefix(code)?)))
            .unwrap_or_else(|| panic!("an unknown escape in an exchange: {line}"));
        shown.push_str(before);
        shown.push_str(stands_for);
        rest = after;
    }
    shown + rest
}
