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

mod clockwork;
mod player;
mod sockets;

use clockwork::Clockwork;
use player::Stage;
use sockets::Sockets;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use std::{env, thread};
use support::page::Manual;
use support::story::{self, Side, Story};
use support::{PROGRAM, beanstalkd, left_out};

/// Stories count in seconds. A stage that is late by less than this cannot make
/// a story fail. If a stage was later, the machine may have been too slow, so
/// the story is played again when all others are over, alone, up to [`TRIES`] times.
const TOLERABLE_LAG: Duration = Duration::from_millis(500);
const TRIES: usize = 5;

/// When this number of stories has failed, the others are not played: each may wait for
/// something that never comes.
const ENOUGH: usize = 5;

/// How many servers run at the same time; most of them wait for the clock.
const SERVERS_AT_A_TIME: usize = 24;

#[test]
fn the_engine_plays_every_transcript() {
    play_all(Side::Beanpole, Clockwork::new);
}

#[test]
fn the_server_plays_every_transcript() {
    let program = Path::new(&*PROGRAM);
    play_all(Side::Beanpole, |story| {
        Sockets::start(program, Side::Beanpole, story)
    });
}

#[test]
fn beanstalkd_plays_every_transcript() {
    match beanstalkd() {
        Some(program) => play_all(Side::Beanstalkd, |story| {
            Sockets::start(&program, Side::Beanstalkd, story)
        }),
        None => left_out("a beanstalkd"),
    }
}

/// Plays every story and every exchange of the manual page, each on a stage of
/// its own, several at the same time.
fn play_all<S: Stage>(side: Side, stage: impl Fn(&Story) -> S + Sync) {
    let only = env::var("STORY").unwrap_or_default();
    let stories: Vec<_> = story::all()
        .into_iter()
        .chain(Manual::read().stories())
        .filter(|story| story.name.contains(&only))
        .collect();
    let is_late = |tried: &Result<(), (String, Duration)>| matches!(tried, Err((_, lag)) if *lag >= TOLERABLE_LAG);
    let play = |story| player::play(story, side, &mut stage(story));
    let next = AtomicUsize::new(0);
    let (failures, late) = (Mutex::new(Vec::new()), Mutex::new(Vec::new()));
    thread::scope(|scope| {
        for _ in 0..SERVERS_AT_A_TIME.min(stories.len()) {
            scope.spawn(|| {
                while let Some(story) = stories.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let failed = || failures.lock().expect("no panic while it is held");
                    if failed().len() >= ENOUGH {
                        return;
                    }
                    let tried = play(story);
                    if is_late(&tried) {
                        late.lock().expect("no panic while it is held").push(story);
                    } else {
                        failed().extend(tried.err());
                    }
                }
            });
        }
    });
    let mut failures = failures.into_inner().expect("no panic while it was held");
    for story in late.into_inner().expect("no panic while it was held") {
        let mut tries = (1..TRIES).map(|_| play(story));
        let in_time = tries.find(|tried| !is_late(tried));
        failures.extend(in_time.unwrap_or_else(|| play(story)).err());
    }
    let mut failures: Vec<_> = failures.into_iter().map(|(failure, _)| failure).collect();
    failures.sort();
    assert!(
        failures.is_empty(),
        "{} of {} stories fail:\n\n{}\n",
        failures.len(),
        stories.len(),
        failures.join("\n\n")
    );
}
