//! Reads and tests the manual page of the protocol, `man/beanpole-protocol.7`:
//! its exchanges, which are played as stories, its commands, replies and keys,
//! and the files that it shows. `proofs` tests the proofs of its paragraphs,
//! `card` the table in it that fits on a screen, and `translations` what it says
//! in other languages.
//!
//! Each display of the page is an exchange, unless a comment above it says that
//! it is none. The exchanges of one section make one story.

#[path = "card.rs"]
mod card;
#[path = "proofs.rs"]
mod proofs;
#[path = "translations.rs"]
mod translations;

use crate::story::{Action, Side, Story};
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// The name of the page in `man`.
const NAME: &str = "beanpole-protocol.7";
/// The beginning of the comment above a display that is not an exchange.
const NOT_AN_EXCHANGE: &str = ".\\\" Not an exchange";
/// How that comment goes on if the display shows a file.
const BUT: &str = ", but ";
/// How that comment goes on if the HTML edition has a picture instead.
const PICTURE: &str = ".  Picture: ";
/// The files that the page shows.
const FILES: [&str; 2] = ["man/card.txt", "tests/peers/clients/thirty_lines.py"];

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

    /// The keys of the document that this subsection describes. They are taken
    /// from the story about that document. The story is played, so these are
    /// the keys that the server sends.
    pub fn keys_sent(&self, title: &str) -> Vec<String> {
        let about = match title {
            "Of the server" => "stats",
            "Of a tube" => "stats-tube",
            "Of a job" => "stats-job",
            _ => panic!("{title}: not a section about keys"),
        };
        let story = &stories_by_name()[about];
        let lines = documents(story)
            .find(|lines| !lines.iter().any(|line| line == "..."))
            .unwrap_or_else(|| panic!("{about}: no document in full"));
        keys(&lines).map(str::to_owned).collect()
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
    /// The commands that this section explains.
    fn commands(&self) -> Vec<&'a str> {
        let lines = self.items(".D1 Ic ").into_iter();
        lines.filter_map(|line| line.split(' ').next()).collect()
    }

    /// The replies that this section explains, without arguments.
    fn replies(&self) -> Vec<&'a str> {
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
    fn exchanges(&self) -> Option<String> {
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

/// The transcripts by their names, without number and ending.
fn stories_by_name() -> BTreeMap<String, Story> {
    let stories = crate::stories().into_iter().map(|story| {
        let name = story.name.split_once('-').expect("a number").1;
        (name.trim_end_matches(".txt").to_owned(), story)
    });
    stories.collect()
}

/// The documents in a story, as lines.
fn documents(story: &Story) -> impl Iterator<Item = Vec<String>> {
    let steps = story.steps_for(Side::Beanpole).into_iter();
    steps.filter_map(|step| match step.action {
        Action::ExpectDocument(document) => {
            Some(document.lines.into_iter().map(|(_, line)| line).collect())
        }
        _ => None,
    })
}

fn keys(lines: &[String]) -> impl Iterator<Item = &str> {
    lines
        .iter()
        .filter_map(|line| Some(line.split_once(": ")?.0))
}

/// The text of a file, if there is one of this name below the root.
fn text_of(name: &str) -> Option<String> {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(name)).ok()
}

#[test]
fn what_the_manual_shows_of_files_is_what_they_say() {
    let manual = Manual::read();
    let mut files = Vec::new();
    for (index, line) in manual.text.lines().enumerate() {
        let mark = line.strip_prefix(NOT_AN_EXCHANGE);
        let Some(file) = mark.and_then(|mark| mark.strip_prefix(BUT)) else {
            continue;
        };
        let file = file.trim_end_matches('.');
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(file);
        let display = manual.text.lines().skip(index + 2);
        let lines = display.take_while(|&line| line != ".Ed").map(shown);
        let display: String = lines.map(|line| line + "\n").collect();
        assert_eq!(display, fs::read_to_string(path).expect("a file"), "{file}");
        files.push(file);
    }
    assert_eq!(files, FILES);
}

#[test]
fn a_picture_says_what_its_letters_say() {
    let manual = Manual::read();
    let mut pictures = Vec::new();
    for (index, line) in manual.text.lines().enumerate() {
        let mark = line.strip_prefix(NOT_AN_EXCHANGE);
        let Some(name) = mark.and_then(|mark| mark.strip_prefix(PICTURE)) else {
            continue;
        };
        let display = manual.text.lines().skip(index + 2);
        let display = display.take_while(|&line| line != ".Ed");
        let letters: String = display.map(|line| shown(line) + "\n").collect();
        let drawing = text_of(&format!("man/pictures/{name}.svg")).expect("a drawing");
        let texts = drawing.split("<text").skip(1).map(|text| {
            let text = text.split_once('>').expect("the end of a tag").1;
            text.split_once("</text>").expect("the end of a text").0
        });
        let texts = texts.collect::<Vec<_>>().join(" ");
        assert_eq!(words_of(&texts), words_of(&letters), "{name}");
        pictures.push(name);
    }
    assert_eq!(pictures, ["states", "put", "ttr", "pause"]);
}

/// The words and numbers of a picture, sorted. A lone `v` is the tip of an arrow.
fn words_of(text: &str) -> Vec<&str> {
    let is_word = |c: char| c.is_alphanumeric() || "-_()".contains(c);
    let words = text.split(|c: char| !is_word(c));
    let mut words: Vec<&str> = words
        .map(|word| word.trim_matches(['-', '_']))
        .filter(|word| !word.is_empty() && *word != "v")
        .collect();
    words.sort_unstable();
    words
}
