//! The manual page of the protocol, `man/beanpole-protocol.7`, as far as it
//! can be tested: its exchanges as stories, its commands, replies and keys,
//! what its paragraphs say is their proof, and the card, `man/card.txt`.
//!
//! Each display of the page is an exchange, but for those below a comment that
//! says so. The exchanges of one section make one story.

use crate::story::{Action, Side, Story};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

/// The name of the page in `man`.
const NAME: &str = "beanpole-protocol.7";
/// How the comment begins that stands above a display that is something else.
const NOT_AN_EXCHANGE: &str = ".\\\" Not an exchange";
/// How it goes on if the display is a file, and what files there are to show.
const BUT: &str = ", but ";
const FILES: [&str; 2] = ["man/card.txt", "tests/clients/thirty_lines.py"];

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

    /// The commands that have their line in some section, and the exchanges
    /// there.
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

    /// The keys of the document that this subsection describes, as the story
    /// about it shows them; as it is played, these are the keys that there are.
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
    /// The commands whose lines stand here.
    fn commands(&self) -> Vec<&'a str> {
        let lines = self.items(".D1 Ic ").into_iter();
        lines.filter_map(|line| line.split(' ').next()).collect()
    }

    /// The replies that are explained here, without arguments.
    fn replies(&self) -> Vec<&'a str> {
        let items = self.items(".It Dv ").into_iter();
        items.filter_map(|item| item.split(' ').next()).collect()
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

/// Sections that only name things.
const NAMES_ONLY: [&str; 2] = ["NAME", "SEE ALSO"];
/// Macros that say nothing by themselves.
const FRAMES: [&str; 6] = [".Bl ", ".El", ".Bd ", ".Ed", ".D1 ", ".Dl "];
/// What a paragraph may be that needs no proof: words and how they are meant,
/// or what a client had better do.
const NO_PROOF: [&str; 2] = ["terms.", "advice."];

/// A paragraph of the page: what begins with a section, with `.Pp` or with a
/// nameless item of a list.
struct Paragraph<'a> {
    /// The number of its first line.
    line: usize,
    says_something: bool,
    /// What stands behind `Proof:` on its first line.
    proof: Option<&'a str>,
    /// What stands behind `No proof:` on its first line.
    no_proof: Option<&'a str>,
    /// The commands, replies and keys that it names.
    words: Vec<&'a str>,
}

impl<'a> Section<'a> {
    fn paragraphs(&self) -> Vec<Paragraph<'a>> {
        let mut paragraphs: Vec<Paragraph> = Vec::new();
        let mut inside_display = false;
        let mut begins = true;
        for &(number, line) in &self.lines {
            if line.starts_with(".Bd ") {
                inside_display = true;
            } else if line == ".Ed" {
                inside_display = false;
            } else if !inside_display && (line == ".Pp" || line == ".It") {
                begins = true;
                continue;
            }
            if begins {
                let mark = line.strip_prefix(".\\\" ").unwrap_or_default();
                paragraphs.push(Paragraph {
                    line: number,
                    says_something: false,
                    proof: mark.strip_prefix("Proof: "),
                    no_proof: mark.strip_prefix("No proof: "),
                    words: Vec::new(),
                });
                begins = false;
            }
            let is_frame = FRAMES.iter().any(|frame| line.starts_with(frame));
            if !inside_display && !is_frame && !line.starts_with(".\\\"") {
                let paragraph = paragraphs.last_mut().expect("one has begun");
                paragraph.says_something = true;
                paragraph.words.extend(marked_words(line));
            }
        }
        paragraphs
    }
}

/// The words on a line that its macros mark as commands, replies or keys.
fn marked_words(line: &str) -> Vec<&str> {
    let Some(macros) = line.strip_prefix('.') else {
        return Vec::new();
    };
    let mut is_marked = false;
    let mut words = Vec::new();
    for token in macros.split(' ') {
        match token {
            "Ic" | "Dv" | "Va" => is_marked = true,
            "Ar" | "Ta" | "Em" | "Ql" | "No" => is_marked = false,
            _ if is_marked && token.starts_with(|c: char| c.is_ascii_alphabetic()) => {
                words.push(token);
            }
            _ => {}
        }
    }
    words
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

/// The commands, replies and keys that stand in a story.
fn words_said(story: &Story) -> BTreeSet<String> {
    let mut said = BTreeSet::new();
    for step in story.steps_for(Side::Beanpole) {
        if let Action::Send(bytes) | Action::Expect(bytes) = step.action {
            let text = String::from_utf8_lossy(&bytes).into_owned();
            let words = text.split("\r\n").filter_map(|line| line.split(' ').next());
            said.extend(words.map(str::to_owned));
        }
    }
    for lines in documents(story) {
        said.insert("OK".to_owned());
        said.extend(keys(&lines).map(str::to_owned));
    }
    said
}

#[test]
fn each_paragraph_has_its_proof() {
    let manual = Manual::read();
    let transcripts = stories_by_name();
    let mut faults = Vec::new();
    for section in manual.sections() {
        let exchanges = section.exchanges();
        let below = exchanges.map(|text| Story::parse(NAME, &text).expect("it is played"));
        for paragraph in section.paragraphs() {
            if !paragraph.says_something || NAMES_ONLY.contains(&section.title) {
                continue;
            }
            let mut fault =
                |what: String| faults.push(format!("{NAME}:{}: {what}", paragraph.line));
            let Some(proof) = paragraph.proof else {
                if !paragraph.no_proof.is_some_and(|it| NO_PROOF.contains(&it)) {
                    fault("a paragraph without `Proof:' or `No proof:'".to_owned());
                }
                continue;
            };
            let mut said = below.as_ref().map(words_said).unwrap_or_default();
            let mut tests = String::new();
            for name in proof.split(' ') {
                if name == "below" && below.is_some() {
                } else if let Some(story) = transcripts.get(name) {
                    said.extend(words_said(story));
                } else if let Some(text) = test_file(name) {
                    tests += &text;
                } else {
                    fault(format!("`{name}' proves nothing: there is no such story"));
                }
            }
            for word in &paragraph.words {
                if !said.contains(*word) && !tests.contains(word) {
                    fault(format!("{word} does not stand in {proof}"));
                }
            }
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

/// The text of a file of other tests.
fn test_file(name: &str) -> Option<String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let path = name.starts_with("tests/").then(|| root.join(name))?;
    fs::read_to_string(path).ok()
}

#[test]
fn whoever_plays_in_a_story_is_introduced() {
    let manual = Manual::read();
    let notation = manual
        .sections()
        .find(|section| section.title == "NOTATION");
    let lines = notation.expect("a section about notation").lines;
    let introduced: BTreeSet<&str> = lines
        .iter()
        .filter(|(_, line)| !line.starts_with('.') && !line.contains([':', '<', '(']))
        .flat_map(|(_, line)| line.split([' ', ',', ';', '.']))
        .collect();
    for story in crate::stories() {
        for step in story.steps_for(Side::Beanpole) {
            let client = step.client.as_str();
            assert!(
                client.is_empty() || introduced.contains(client),
                "{}:{}: who is {client}?",
                story.name,
                step.line
            );
        }
    }
}

/// The card: the whole protocol on one screen, a line for each command.
struct Card {
    text: String,
}

impl Card {
    fn read() -> Card {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(FILES[0]);
        let text = fs::read_to_string(&path)
            .unwrap_or_else(|error| panic!("cannot read {}: {error}", path.display()));
        Card { text }
    }

    /// What it says that each command may be answered, without what any may.
    /// The columns of a row are its command, its reply and what that asks.
    fn replies(&self) -> BTreeMap<&str, BTreeSet<&str>> {
        let head = self.text.lines().next().expect("a head");
        let column = |title| head.find(title).expect("a column");
        let (get, then) = (column("GET"), column("AND THEN"));
        let mut replies: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
        let mut command = "";
        let rows = self.text.lines().skip(1);
        for row in rows.take_while(|row| !row.starts_with('+')) {
            let before = command;
            command = row[..get]
                .split(' ')
                .next()
                .filter(|it| !it.is_empty())
                .unwrap_or(before);
            let reply = &row[get..then];
            let mut words: BTreeSet<&str> = reply
                .split(", ")
                .filter_map(|reply| reply.split(' ').next())
                .filter(|word| word.starts_with(|c: char| c.is_ascii_uppercase()))
                .collect();
            if reply.starts_with("the same") {
                words.extend(&replies[before]);
            }
            if reply.contains('!') {
                words.insert("NOT_FOUND");
            }
            replies.entry(command).or_default().extend(words);
        }
        replies
    }
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
fn the_card_fits_a_screen_of_80_columns() {
    let card = Card::read().text;
    // The manual is indented, and some keep a margin on the right.
    let widest = card.lines().map(str::len).max();
    assert!(widest <= Some(75), "{widest:?} columns");
    assert!(card.lines().count() <= 33, "{} lines", card.lines().count());
    assert!(card.is_ascii());
}

#[test]
fn the_card_tells_what_the_manual_tells() {
    let (card, manual) = (Card::read(), Manual::read());
    let replies = card.replies();
    let commands: BTreeSet<&str> = replies.keys().copied().collect();
    assert_eq!(commands, BTreeSet::from(crate::COMMANDS));
    for section in manual.sections() {
        let commands = section.commands();
        if commands.is_empty() {
            continue;
        }
        for reply in section.replies() {
            let known = commands
                .iter()
                .any(|command| replies[command].contains(reply));
            assert!(known, "{reply} to {commands:?} does not stand on the card");
        }
    }
}

#[test]
fn the_card_tells_what_the_stories_tell() {
    let card = Card::read();
    let replies = card.replies();
    let mut seen: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for story in crate::stories().iter().chain(&Manual::read().stories()) {
        for (command, reply) in answers(story) {
            // To any command, and to one whose client sends no more.
            let is_common = card
                .text
                .lines()
                .rev()
                .take(2)
                .any(|line| line.contains(&reply));
            let is_farewell = command == "reserve" && reply == "TIMED_OUT";
            let Some(known) = replies.get(command.as_str()) else {
                continue;
            };
            assert!(
                is_common || is_farewell || known.contains(reply.as_str()),
                "{}: {reply} to {command} does not stand on the card",
                story.name
            );
            seen.entry(command).or_default().insert(reply);
        }
    }
    for (command, replies) in replies {
        for reply in replies {
            let seen = seen.get(command).is_some_and(|seen| seen.contains(reply));
            assert!(seen, "no story answers {command} with {reply}");
        }
    }
}

/// The commands in a story that are sent alone, and how each is answered: the
/// first words.
fn answers(story: &Story) -> Vec<(String, String)> {
    let first_word = |bytes: &[u8]| {
        let text = String::from_utf8_lossy(bytes).into_owned();
        text.split([' ', '\r'])
            .next()
            .unwrap_or_default()
            .to_owned()
    };
    let steps = story.steps_for(Side::Beanpole);
    let mut answers = Vec::new();
    for (index, step) in steps.iter().enumerate() {
        let Action::Send(sent) = &step.action else {
            continue;
        };
        let lines = sent.windows(2).filter(|pair| *pair == b"\r\n").count();
        let is_alone =
            sent.ends_with(b"\r\n") && lines == if sent.starts_with(b"put ") { 2 } else { 1 };
        let mut after = steps[index + 1..]
            .iter()
            .filter(|next| next.client == step.client);
        let answer = after.find(|next| !matches!(next.action, Action::Waits));
        match answer.map(|answer| &answer.action) {
            Some(Action::Expect(reply)) if is_alone => {
                answers.push((first_word(sent), first_word(reply)));
            }
            Some(Action::ExpectDocument(document)) if is_alone => {
                answers.push((first_word(sent), first_word(&document.head)));
            }
            _ => {}
        }
    }
    answers
}
