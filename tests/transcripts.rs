//! Plays the transcripts in `tests/transcripts/*.txt`, which are stories that
//! document the protocol, and the exchanges in the manual page of the protocol.
//! Compares every byte.
//!
//! Each story is played on several stages. The first is the engine, with a
//! clock that moves only when the story says so. The second is our own server,
//! over sockets. The third is the real beanstalkd, if it is installed or the
//! environment variable `BEANSTALKD` names its path; so each story also proves that
//! the two servers agree. `STORY=07` plays only the stories whose file name contains `07`,
//! `STORY=protocol` those of the manual page.
//!
//! The first transcript explains how they are written.

#[path = "transcripts/clockwork.rs"]
mod clockwork;
#[path = "transcripts/manual.rs"]
mod manual;
#[path = "transcripts/player.rs"]
mod player;
#[path = "transcripts/sockets.rs"]
mod sockets;
#[path = "transcripts/story.rs"]
mod story;

use beanpole::protocol::command;
use clockwork::Clockwork;
use manual::Manual;
use player::Stage;
use sockets::Sockets;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use std::{env, fs, thread};
use story::{Action, Side, Story};
use support::{beanstalkd, left_out};

/// Stories count in seconds. A stage that is late by less than this cannot make
/// a story fail. If a stage was later, the machine may have been too slow, so
/// the story is played again, up to [`TRIES`] times in all.
const TOLERABLE_LAG: Duration = Duration::from_millis(500);
const TRIES: usize = 5;

/// When so many stories have failed, the others are not played: each may wait for
/// something that never comes.
const ENOUGH: usize = 5;

/// How many servers run at the same time; most of them wait for the clock.
const SERVERS_AT_A_TIME: usize = 24;

/// The first word of every command of the protocol, without our extensions.
const COMMANDS: [&str; 25] = [
    "put",
    "use",
    "reserve",
    "reserve-with-timeout",
    "reserve-job",
    "delete",
    "release",
    "bury",
    "touch",
    "watch",
    "ignore",
    "peek",
    "peek-ready",
    "peek-delayed",
    "peek-buried",
    "kick",
    "kick-job",
    "stats",
    "stats-job",
    "stats-tube",
    "list-tubes",
    "list-tube-used",
    "list-tubes-watched",
    "quit",
    "pause-tube",
];

/// The commands that are extensions.
const EXTENSIONS: [&str; 2] = ["list-jobs", "list-connections"];

/// The first word of every reply, without [`REPLIES_IN_DISTRESS`].
const REPLIES: [&str; 23] = [
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
fn the_engine_tells_every_story() {
    play_all(Side::Beanpole, Clockwork::new);
}

#[test]
fn our_server_tells_every_story() {
    let program = Path::new(env!("CARGO_BIN_EXE_beanpoled"));
    play_all(Side::Beanpole, |story| {
        Sockets::start(program, Side::Beanpole, story)
    });
}

#[test]
fn beanstalkd_agrees_with_every_story() {
    match beanstalkd() {
        Some(program) => play_all(Side::Beanstalkd, |story| {
            Sockets::start(&program, Side::Beanstalkd, story)
        }),
        None => left_out("a beanstalkd"),
    }
}

#[test]
fn every_command_and_every_reply_stands_in_a_story() {
    assert_eq!(unsaid(&stories()), [] as [&str; 0], "in no story");
}

#[test]
fn every_command_and_every_reply_stands_in_an_exchange_of_the_manual() {
    let stories = Manual::read().stories();
    assert_eq!(unsaid(&stories), [] as [&str; 0], "in no exchange");
}

/// The other tests compare these names with the manual, the card and the stories.
#[test]
fn the_tests_know_each_command_that_the_server_knows() {
    let tested: BTreeSet<&str> = COMMANDS.into_iter().chain(EXTENSIONS).collect();
    assert_eq!(tested, command::names().collect());
}

#[test]
fn the_manual_explains_each_command_where_it_shows_it() {
    let manual = Manual::read();
    let commands = manual.commands();
    let explained: BTreeSet<&str> = commands.iter().map(|&(command, _)| command).collect();
    let all = COMMANDS.into_iter().chain(EXTENSIONS);
    assert_eq!(explained, all.collect());
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
    for section in ["Of the server", "Of a tube", "Of a job"] {
        let sent = manual.keys_sent(section);
        assert!(!sent.is_empty(), "{section}: no document");
        assert_eq!(manual.keys(section), sent, "{section}");
    }
}

/// The commands and replies that do not appear in these stories.
fn unsaid(stories: &[Story]) -> Vec<&'static str> {
    let mut said = BTreeSet::new();
    for story in stories {
        for step in story.steps_for(Side::Beanpole) {
            match step.action {
                Action::Send(bytes) | Action::Expect(bytes) => {
                    let text = String::from_utf8_lossy(&bytes).into_owned();
                    for line in text.split_inclusive("\r\n") {
                        let word = line.split([' ', '\r']).next().unwrap_or(line);
                        let two: Vec<&str> = line.trim_end().split(' ').take(2).collect();
                        said.extend([word.to_owned(), two.join(" "), line.to_owned()]);
                    }
                }
                Action::ExpectDocument(_) => drop(said.insert("OK".to_owned())),
                _ => {}
            }
        }
    }
    let all = COMMANDS.into_iter().chain(EXTENSIONS).chain(REPLIES);
    all.filter(|&word| !said.contains(word)).collect()
}

#[test]
fn the_stories_are_numbered_like_chapters() {
    for (index, story) in stories().iter().enumerate() {
        let number = format!("{:02}-", index + 1);
        assert!(
            story.name.starts_with(&number),
            "{} should be number {number}",
            story.name
        );
    }
}

/// Reads all stories, in the order of their numbers.
fn stories() -> Vec<Story> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/transcripts");
    let mut texts = BTreeMap::new();
    for entry in fs::read_dir(&folder).expect("the folder of the transcripts") {
        let path = entry.expect("an entry of that folder").path();
        if path.extension().is_some_and(|extension| extension == "txt") {
            let name = path
                .file_name()
                .expect("a name")
                .to_string_lossy()
                .into_owned();
            texts.insert(
                name,
                fs::read_to_string(&path).expect("a transcript in UTF-8"),
            );
        }
    }
    let parse = |(name, text): (String, String)| {
        Story::parse(&name, &text).unwrap_or_else(|error| panic!("{error}"))
    };
    texts.into_iter().map(parse).collect()
}

/// Plays a story. If it fails and the stage was late, plays it again.
fn play<S: Stage>(story: &Story, side: Side, stage: impl Fn(&Story) -> S) -> Result<(), String> {
    let mut told = Ok(());
    for _ in 0..TRIES {
        match player::play(story, side, &mut stage(story)) {
            Ok(()) => return Ok(()),
            Err((failure, lag)) => {
                told = Err(failure);
                if lag < TOLERABLE_LAG {
                    break;
                }
            }
        }
    }
    told
}

/// Plays every story and every exchange of the manual page, each on a stage of
/// its own, several at the same time.
fn play_all<S: Stage>(side: Side, stage: impl Fn(&Story) -> S + Sync) {
    let only = env::var("STORY").unwrap_or_default();
    let stories: Vec<_> = stories()
        .into_iter()
        .chain(Manual::read().stories())
        .filter(|story| story.name.contains(&only))
        .collect();
    let next = AtomicUsize::new(0);
    let failures = Mutex::new(Vec::new());
    thread::scope(|scope| {
        for _ in 0..SERVERS_AT_A_TIME.min(stories.len()) {
            scope.spawn(|| {
                while let Some(story) = stories.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let failed = || failures.lock().expect("no panic while it is held");
                    if failed().len() >= ENOUGH {
                        return;
                    }
                    if let Err(failure) = play(story, side, &stage) {
                        failed().push(failure);
                    }
                }
            });
        }
    });
    let mut failures = failures.into_inner().expect("no panic while it was held");
    failures.sort();
    assert!(
        failures.is_empty(),
        "{} of {} stories fail:\n\n{}\n",
        failures.len(),
        stories.len(),
        failures.join("\n\n")
    );
}
