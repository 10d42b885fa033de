//! The manuals say what is so, and all that is so: each command, reply, key and option
//! is documented, each paragraph about the protocol names its proof, the card and the
//! translations agree with the page, and the examples of the companion's page are what
//! a shell shows.

mod card;
mod companion;
mod proofs;
mod recipes;
mod translations;

use beanpole::protocol::command;
use std::collections::{BTreeMap, BTreeSet};
use support::page::{Manual, NOT_AN_EXCHANGE, shown};
use support::story::{self, Action, Side, Story};
use support::text_of;

/// How that comment goes on if the display shows a file.
const BUT: &str = ", but ";
/// How that comment goes on if the HTML edition has a picture instead.
const PICTURE: &str = ".  Picture: ";
/// The files that the page shows.
const FILES: [&str; 2] = ["man/card.txt", "tests/peers/clients/thirty_lines.py"];

/// The commands that beanstalkd does not have.
const EXTENSIONS: [&str; 7] = [
    "reserve-with-stats",
    "list-jobs",
    "list-connections",
    "list-tube-stats",
    "list-server-stats",
    "bury-later",
    "close-connection",
];

/// The first word of every reply, without [`REPLIES_IN_DISTRESS`].
const REPLIES: [&str; 24] = [
    "INSERTED",
    "BURIED",
    "EXPECTED_CRLF",
    "JOB_TOO_BIG",
    "DRAINING",
    "USING",
    "RESERVED",
    "DEADLINE_SOON",
    "TIMED_OUT",
    "DELETED",
    "NOT_FOUND",
    "RELEASED",
    "TOUCHED",
    "WATCHING",
    "NOT_IGNORED",
    "FOUND",
    "KICKED",
    "OK",
    "PAUSED",
    "CLOSED",
    "BAD_FORMAT",
    "UNKNOWN_COMMAND",
    // KICKED has two forms: with a count after kick, and alone after kick-job.
    "KICKED 1",
    "KICKED\r\n",
];

/// The replies of a server that has no memory left, or whose disk is full or
/// broken. The stories and the exchanges of the manual need not have them.
const REPLIES_IN_DISTRESS: [&str; 2] = ["OUT_OF_MEMORY", "INTERNAL_ERROR"];

#[test]
fn every_command_and_reply_is_played_in_a_story() {
    assert_eq!(unsaid(&story::all()), BTreeSet::new(), "in no story");
}

#[test]
fn every_command_and_reply_is_played_in_an_exchange_of_the_manual() {
    let stories = Manual::read().stories();
    assert_eq!(unsaid(&stories), BTreeSet::new(), "in no exchange");
}

#[test]
fn the_manual_explains_each_command_and_shows_it_in_the_same_section() {
    let manual = Manual::read();
    let commands = manual.commands();
    let explained: BTreeSet<&str> = commands.iter().map(|&(command, _)| command).collect();
    assert_eq!(explained, command::names().collect());
    for (command, exchanges) in &commands {
        let is_sent = |line: &str| {
            let sent = line.split_once(": ").map(|(_, sent)| sent);
            sent.and_then(|sent| sent.split(' ').next()) == Some(command)
        };
        assert!(exchanges.lines().any(is_sent), "{command} is not shown");
    }
}

#[test]
fn the_manual_explains_each_reply_word() {
    let manual = Manual::read();
    let explained: BTreeSet<&str> = manual.replies().into_iter().collect();
    let words = REPLIES.map(|reply| reply.split([' ', '\r']).next().expect("a word"));
    let all = words.into_iter().chain(REPLIES_IN_DISTRESS);
    assert_eq!(explained, all.collect::<BTreeSet<_>>());
}

#[test]
fn the_manual_explains_each_key_in_the_order_in_which_it_is_sent() {
    let manual = Manual::read();
    for section in [
        "Of the server",
        "Of a tube",
        "Of a job",
        "list-server-stats",
    ] {
        let sent = keys_sent(section);
        assert!(!sent.is_empty(), "{section}: no document");
        assert_eq!(manual.keys(section), sent, "{section}");
    }
}

/// The commands and replies that do not appear in these stories.
fn unsaid(stories: &[Story]) -> BTreeSet<&'static str> {
    let said: BTreeSet<String> = stories.iter().flat_map(words_said).collect();
    let all = command::names().chain(REPLIES);
    all.filter(|word| !said.contains(*word)).collect()
}

/// The commands, replies and keys of a story. Of a line these are its first word, its first
/// two, and the line with its end.
fn words_said(story: &Story) -> BTreeSet<String> {
    let mut said = BTreeSet::new();
    for step in story.steps_for(Side::Beanpole) {
        if let Action::Send(bytes) | Action::Expect(bytes) = step.action {
            for line in String::from_utf8_lossy(&bytes).split_inclusive("\r\n") {
                let words: Vec<&str> = line.trim_end().split(' ').collect();
                said.insert(words[0].to_owned());
                said.extend(words.get(..2).map(|two| two.join(" ")));
                said.insert(line.to_owned());
            }
        }
    }
    for lines in documents(story) {
        said.insert("OK".to_owned());
        said.extend(keys(&lines).map(str::to_owned));
    }
    said
}

/// The keys of the document that this subsection describes. They are taken
/// from the story about that document. The story is played, so these are
/// the keys that the server sends.
fn keys_sent(title: &str) -> Vec<String> {
    let about = match title {
        "Of the server" => "stats",
        "Of a tube" => "stats-tube",
        "Of a job" => "stats-job",
        "list-server-stats" => title,
        _ => panic!("{title}: not a section about keys"),
    };
    let story = &stories_by_name()[about];
    let lines = documents(story)
        .find(|lines| !lines.iter().any(|line| line == "..."))
        .unwrap_or_else(|| panic!("{about}: no document in full"));
    keys(&lines).map(str::to_owned).collect()
}

/// The transcripts by their names, without number and ending.
fn stories_by_name() -> BTreeMap<String, Story> {
    let stories = story::all().into_iter().map(|story| {
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

/// The keys in a document. In a list, each line has several.
fn keys(lines: &[String]) -> impl Iterator<Item = &str> {
    let facts = lines
        .iter()
        .flat_map(|line| match line.strip_prefix("- {") {
            Some(item) => item.split(", ").collect(),
            None => vec![line.as_str()],
        });
    facts.filter_map(|fact| Some(fact.split_once(": ")?.0))
}

#[test]
fn files_shown_in_the_manual_are_the_files() {
    let manual = Manual::read();
    let mut files = Vec::new();
    for (index, line) in manual.text.lines().enumerate() {
        let mark = line.strip_prefix(NOT_AN_EXCHANGE);
        let Some(file) = mark.and_then(|mark| mark.strip_prefix(BUT)) else {
            continue;
        };
        let file = file.trim_end_matches('.');
        let display = manual.text.lines().skip(index + 2);
        let lines = display.take_while(|&line| line != ".Ed").map(shown);
        let display: String = lines.map(|line| line + "\n").collect();
        assert_eq!(display, text_of(file), "{file}");
        files.push(file);
    }
    assert_eq!(files, FILES);
}

#[test]
fn each_picture_has_the_words_of_its_text_version() {
    let manual = Manual::read();
    let mut pictures = Vec::new();
    for (index, line) in manual.text.lines().enumerate() {
        let mark = line.strip_prefix(NOT_AN_EXCHANGE);
        let Some(name) = mark.and_then(|mark| mark.strip_prefix(PICTURE)) else {
            continue;
        };
        let rest = manual.text.lines().skip(index + 2);
        let display = rest.take_while(|&line| line != ".Ed");
        let letters: String = display.map(|line| shown(line) + "\n").collect();
        let drawing = text_of(&format!("man/pictures/{name}.svg"));
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
