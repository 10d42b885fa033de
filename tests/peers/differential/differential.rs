//! `differential`: commands that our server and beanstalkd answer
//! differently.
//!
//! A seed makes a stream of commands (`generate`). They are valid, nearly valid
//! or garbage, and come on up to four connections, in segments of any size.
//! Both servers get the stream step by step (`duel`). All replies are compared,
//! except what must differ (`mask`). If there is a difference, the test prints
//! the seed, makes the stream as small as it can (`shrink`), and prints it in
//! the notation of the transcripts.
//!
//! Nothing in a stream takes time: delays, times to run, pauses and timeouts
//! are zero or long. The differences that beanpoled(8) lists are also left out:
//! two clients that wait, lines of 225 bytes, odd numbers after
//! reserve-with-timeout.

mod duel;
mod generate;
mod mask;
mod shrink;

use duel::{Duel, Verdict};
use std::ops::Range;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};
use std::{env, process};

/// How long one server may take to send what the other one has sent.
const PATIENCE: Duration = Duration::from_secs(5);
/// How many commands a stream has.
const COMMANDS: usize = 600;
/// After this number of different streams, no more are played.
const ENOUGH: usize = 10;

fn main() -> ExitCode {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let [ours, theirs, seed, streams, seconds] = &arguments[..] else {
        usage();
    };
    let number = |text: &String| text.parse::<u64>().unwrap_or_else(|_| usage());
    let (seed, streams) = (number(seed), number(streams));
    let seconds = Duration::from_secs(number(seconds));
    let servers = [ours, theirs].map(PathBuf::from);
    let differing = compare(&servers, seed..seed + streams, seconds);
    ExitCode::from(u8::from(differing > 0))
}

fn usage() -> ! {
    eprintln!("Usage: differential OURS THEIRS FIRST-SEED STREAMS SECONDS");
    eprintln!("Status 1 if the servers differ. No stream begins after this number of seconds.");
    process::exit(2);
}

/// Plays the streams of these seeds. Returns how many the servers answer differently.
fn compare(servers: &[PathBuf; 2], seeds: Range<u64>, longest: Duration) -> usize {
    let began = Instant::now();
    let (mut compared, mut differing, mut played) = (0, 0, 0);
    for seed in seeds {
        if began.elapsed() > longest || differing == ENOUGH {
            break;
        }
        let stream = generate::stream(seed, COMMANDS);
        let verdict = Duel::fight(servers, &stream, PATIENCE);
        compared += verdict.compared;
        played += 1;
        if verdict.difference.is_none() {
            continue;
        }
        println!("seed {seed}: {}", summary(&verdict));
        match shrink::smallest(servers, stream) {
            Some(verdict) => {
                differing += 1;
                println!("{}\n{}", summary(&verdict), verdict.transcript);
            }
            // On a machine that is too slow, time does pass.
            None => println!("it did not come again"),
        }
    }
    println!("{played} streams, {compared} commands compared, {differing} streams differ");
    differing
}

fn summary(verdict: &Verdict) -> &str {
    verdict.difference.as_deref().unwrap_or("no difference")
}
