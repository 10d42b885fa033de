//! Tests the card, `man/card.txt`: the protocol on one screen. It must agree
//! with the manual page and with the stories.

use super::EXTENSIONS;
use beanpole::protocol::command;
use std::collections::{BTreeMap, BTreeSet};
use support::page::Manual;
use support::story::{self, Action, Side, Story};
use support::text_of;

/// Replies that no story can show: beanstalkd's, when it has no memory to queue a
/// job.
const UNSEEN: [(&str, &str); 2] = [("put", "BURIED"), ("release", "BURIED")];

/// The card. Each command has one row or more.
struct Card {
    text: String,
}

impl Card {
    fn read() -> Card {
        Card {
            text: text_of("man/card.txt"),
        }
    }

    /// The replies to each command, without those that any command may get. The
    /// columns of a row are the command, the reply, and what to do then.
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
            if reply.starts_with("as above") {
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
fn the_card_fits_a_screen_of_80_columns() {
    let card = Card::read().text;
    // The manual page indents the card, and some readers of manual pages keep a
    // margin on the right.
    let widest = card.lines().map(str::len).max();
    assert!(widest <= Some(75), "{widest:?} columns");
    assert!(card.lines().count() <= 37, "{} lines", card.lines().count());
    assert!(card.is_ascii());
}

#[test]
fn the_card_has_each_command_of_the_protocol() {
    let card = Card::read();
    let replies = card.replies();
    let commands: BTreeSet<&str> = replies.keys().copied().collect();
    let protocol = command::names().filter(|it| !EXTENSIONS.contains(it));
    assert_eq!(commands, protocol.collect());
}

#[test]
fn the_card_has_each_reply_of_the_stories_and_no_other() {
    let card = Card::read();
    let replies = card.replies();
    let mut seen: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for story in story::all().iter().chain(&Manual::read().stories()) {
        for (command, reply) in answers(story) {
            // The last two lines of the card name the replies that any command
            // may get.
            let is_common = card
                .text
                .lines()
                .rev()
                .take(2)
                .any(|line| line.contains(&reply));
            let Some(known) = replies.get(command.as_str()) else {
                continue;
            };
            assert!(
                is_common || known.contains(reply.as_str()),
                "{}: {reply} to {command} is not on the card",
                story.name
            );
            seen.entry(command).or_default().insert(reply);
        }
    }
    for (command, replies) in replies {
        for reply in replies {
            if UNSEEN.contains(&(command, reply)) {
                continue;
            }
            let seen = seen.get(command).is_some_and(|seen| seen.contains(reply));
            assert!(seen, "no story answers {command} with {reply}");
        }
    }
}

/// The commands that a story sends alone, each with its answer: the first words
/// of both.
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
        let answer = after.find(|next| !matches!(next.action, Action::Waits | Action::SendsNoMore));
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
