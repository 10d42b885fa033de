//! Tests the proofs of the manual page. Each paragraph of its source begins
//! with a comment that names the stories, or other tests, that prove its
//! sentences. Only people can judge whether they do. But these tests check that
//! each paragraph has a proof, and that the commands, replies, keys and numbers
//! of the paragraph occur in it.

use super::{documents, stories_by_name, words_said};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use support::page::{Manual, NAME, Section};
use support::story::Story;
use support::{source, text_of};

/// Sections that only name things.
const NAMES_ONLY: [&str; 2] = ["NAME", "SEE ALSO"];
/// Macros that show no text by themselves.
const FRAMES: [&str; 6] = [".Bl ", ".El", ".Bd ", ".Ed", ".D1 ", ".Dl "];
/// The marks of paragraphs that need no proof: explanations of words, advice for
/// clients, and exercises, which have their answers elsewhere on the page.
const NO_PROOF: [&str; 3] = ["terms.", "advice.", "exercise."];

/// A paragraph of the page. It begins with a section, with `.Pp`, or with an
/// item of a list that has no name.
struct Paragraph<'a> {
    /// The number of its first line.
    line: usize,
    says_something: bool,
    /// What follows `Proof:` on its first line.
    proof: Option<&'a str>,
    /// What follows `No proof:` on its first line.
    no_proof: Option<&'a str>,
    /// The commands, replies and keys that it names.
    words: Vec<&'a str>,
    /// The numbers in its sentences that have three digits or more.
    numbers: Vec<&'a str>,
}

fn paragraphs_of<'a>(section: &Section<'a>) -> Vec<Paragraph<'a>> {
    let mut paragraphs: Vec<Paragraph> = Vec::new();
    let mut inside_display = false;
    let mut begins = true;
    for &(number, line) in &section.lines {
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
                numbers: Vec::new(),
            });
            begins = false;
        }
        let is_frame = FRAMES.iter().any(|frame| line.starts_with(frame));
        if !inside_display && !is_frame && !line.starts_with(".\\\"") {
            let paragraph = paragraphs.last_mut().expect("one has begun");
            paragraph.says_something = true;
            paragraph.words.extend(marked_words(line));
            paragraph.numbers.extend(large_numbers(line));
        }
    }
    paragraphs
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

/// The numbers on a line that have three digits or more.
fn large_numbers(line: &str) -> impl Iterator<Item = &str> {
    let numbers = line.split(|c: char| !c.is_ascii_digit());
    numbers.filter(|number| number.len() >= 3)
}

/// What a paragraph's proof names: stories and other tests.
#[derive(Default)]
struct Evidence {
    /// The commands, replies and keys that occur in the stories.
    said: BTreeSet<String>,
    /// The texts of the stories.
    stories: String,
    other_tests: String,
}

impl Evidence {
    /// The exchanges of the section itself.
    fn below(section: &Section) -> Evidence {
        let Some(text) = section.exchanges() else {
            return Evidence::default();
        };
        let story = Story::parse(NAME, &text).expect("it is played");
        Evidence {
            said: words_said(&story),
            stories: text,
            other_tests: String::new(),
        }
    }

    /// Adds the story or the file of this name. False if there is none.
    fn add(&mut self, name: &str, stories: &BTreeMap<String, Story>) -> bool {
        if name == "below" {
            return !self.stories.is_empty();
        }
        if let Some(story) = stories.get(name) {
            self.said.extend(words_said(story));
            let path = format!("tests/transcripts/{}", story.name);
            self.stories += &text_of(&path);
            return true;
        }
        let file = fs::read_to_string(source(name)).ok();
        let text = file.filter(|_| name.contains('/'));
        self.other_tests += text.as_deref().unwrap_or_default();
        text.is_some()
    }

    fn has_word(&self, word: &str) -> bool {
        self.said.contains(word) || self.other_tests.contains(word)
    }

    fn has_number(&self, number: &str) -> bool {
        let mut texts = [&self.stories, &self.other_tests].into_iter();
        texts.any(|text| large_numbers(text).any(|it| it == number))
    }
}

#[test]
fn each_paragraph_names_a_proof_that_has_its_commands_and_numbers() {
    let manual = Manual::read();
    let stories = stories_by_name();
    let mut faults = Vec::new();
    for section in manual.sections() {
        for paragraph in paragraphs_of(&section) {
            if !paragraph.says_something || NAMES_ONLY.contains(&section.title) {
                continue;
            }
            let at = format!("{NAME}:{}", paragraph.line);
            let Some(proof) = paragraph.proof else {
                if !paragraph.no_proof.is_some_and(|it| NO_PROOF.contains(&it)) {
                    faults.push(format!("{at}: a paragraph without `Proof:' or `No proof:'"));
                }
                continue;
            };
            let mut evidence = Evidence::below(&section);
            for name in proof.split(' ') {
                if !evidence.add(name, &stories) {
                    faults.push(format!("{at}: there is no story `{name}'"));
                }
            }
            let words = paragraph.words.iter().filter(|it| !evidence.has_word(it));
            let numbers = paragraph
                .numbers
                .iter()
                .filter(|it| !evidence.has_number(it));
            let missing = words.chain(numbers);
            faults.extend(missing.map(|it| format!("{at}: {proof} does not have {it}")));
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn the_manual_lists_the_statistics_that_are_not_whole_numbers() {
    let manual = Manual::read();
    let mut sections = manual.sections();
    let statistics = sections.find(|section| section.title == "STATISTICS");
    let paragraphs = paragraphs_of(&statistics.expect("a section about statistics"));
    let names_texts = |it: &&Paragraph| it.words.contains(&"hostname");
    let named = paragraphs
        .iter()
        .find(names_texts)
        .expect("one about texts");
    let named: BTreeSet<&str> = named.words.iter().copied().collect();
    let stories = stories_by_name();
    let stories = ["stats", "stats-tube", "stats-job"].map(|name| &stories[name]);
    let is_whole_number = |value: &str| {
        let digits = value.replace("<number>", "0");
        digits.bytes().all(|byte| byte.is_ascii_digit())
    };
    let lines: Vec<String> = stories.into_iter().flat_map(documents).flatten().collect();
    let facts = lines.iter().filter_map(|line| line.split_once(": "));
    // A job's `id` is a number, the server's `id` is a text.
    let others = facts.filter(|(_, value)| !is_whole_number(value));
    assert_eq!(named, others.map(|(key, _)| key).collect());
}
