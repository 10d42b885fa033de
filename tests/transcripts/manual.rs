//! The manual page of the protocol, `man/beanpole-protocol.7`, as far as it
//! can be tested: its exchanges as stories, its commands, replies and keys.
//!
//! Each display of the page is an exchange, but for those below a comment that
//! says so. The exchanges of one section make one story.

use crate::story::Story;
use std::fs;
use std::path::Path;

/// The name of the page in `man`.
const NAME: &str = "beanpole-protocol.7";
/// What stands above a display that is something else.
const NOT_AN_EXCHANGE: &str = ".\\\" Not an exchange.";

/// The page, as the lines of its source.
pub struct Manual {
    text: String,
}

/// A section of the page, or a subsection.
struct Section<'a> {
    title: &'a str,
    /// Its lines, each with its number, up to the next section or subsection.
    lines: Vec<(usize, &'a str)>,
}

impl Manual {
    /// Reads the page.
    pub fn read() -> Manual {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("man").join(NAME);
        let text = fs::read_to_string(&path)
            .unwrap_or_else(|error| panic!("cannot read {}: {error}", path.display()));
        Manual { text }
    }

    /// The exchanges: a story for each section that has any. The numbers of
    /// their lines are those of the page.
    pub fn stories(&self) -> Vec<Story> {
        self.sections()
            .filter_map(|section| {
                let exchanges = section.exchanges()?;
                let name = format!("{NAME} ({})", section.title);
                Some(Story::parse(&name, &exchanges).unwrap_or_else(|error| panic!("{error}")))
            })
            .collect()
    }

    /// The titles of the subsections that describe a command each, and the
    /// exchanges there.
    pub fn commands(&self) -> Vec<(&str, String)> {
        self.sections()
            .filter(|section| section.has_line_that_begins(&format!(".D1 Ic {}", section.title)))
            .map(|section| (section.title, section.exchanges().unwrap_or_default()))
            .collect()
    }

    /// The replies that the section `REPLIES` explains, without arguments.
    pub fn replies(&self) -> Vec<&str> {
        self.sections()
            .filter(|section| section.title.starts_with("Replies "))
            .flat_map(|section| section.items(".It Dv "))
            .filter_map(|item| item.split(' ').next())
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

    /// The keys in the document that an exchange in this subsection shows; it
    /// shows all of it, and as it is played, these are the keys that there are.
    pub fn keys_sent(&self, title: &str) -> Vec<String> {
        let mut keys = Vec::new();
        for section in self.sections().filter(|section| section.title == title) {
            for line in section.exchanges().unwrap_or_default().lines() {
                let document_line = line
                    .strip_prefix("beanpole|   ")
                    .unwrap_or(line)
                    .strip_prefix("    ");
                assert_ne!(document_line, Some("..."), "{title}: not all of it");
                keys.extend(
                    document_line.and_then(|line| Some(line.split_once(": ")?.0.to_owned())),
                );
            }
        }
        keys
    }

    fn sections(&self) -> impl Iterator<Item = Section<'_>> {
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
    fn has_line_that_begins(&self, start: &str) -> bool {
        self.lines.iter().any(|(_, line)| line.starts_with(start))
    }

    /// What stands behind this mark, on the lines that begin with it.
    fn items(&self, mark: &str) -> Vec<&'a str> {
        self.lines
            .iter()
            .filter_map(|(_, line)| line.strip_prefix(mark))
            .collect()
    }

    /// The exchanges as the text of a transcript, with empty lines for all that
    /// stands before and between them.
    fn exchanges(&self) -> Option<String> {
        let mut text = String::new();
        let mut before = "";
        let mut inside = false;
        let mut is_ours_alone = false;
        for &(number, line) in &self.lines {
            if line == ".Ed" {
                inside = false;
            } else if line.starts_with(".Bd ") {
                inside = before != NOT_AN_EXCHANGE;
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

/// A line of a literal display as a reader of the page sees it.
fn shown(line: &str) -> String {
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
