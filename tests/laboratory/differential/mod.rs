//! `attack differential`: commands that our server and beanstalkd answer
//! differently.
//!
//! A seed makes a stream of commands (`generate`). They are valid, nearly valid
//! or garbage, and come on up to four connections, in segments of any size.
//! Both servers get the stream step by step (`duel`). All replies are compared,
//! except what must differ (`mask`). If there is a difference, the test tells
//! the seed, makes the stream as small as it can (`shrink`), and prints it in
//! the notation of the transcripts.
//!
//! Nothing in a stream takes time: delays, times to run, pauses and timeouts
//! are zero or long. The differences that beanpoled(8) lists are also left out:
//! two clients that wait, lines of 225 bytes, odd numbers after
//! reserve-with-timeout.

mod client;
mod duel;
mod generate;
mod mask;
mod shrink;
mod telling;

use crate::attacks::{finish, ours};
use crate::bench::servers;
use companion::failure::Failure;
use duel::{Duel, Verdict};
use std::process::ExitCode;
use std::time::{Duration, Instant};

const USAGE: &str = "\
Usage: attack differential [OPTION]...
Sends the same commands to two servers, and compares what they answer.
Status 1 if they differ.

  --ours COMMAND     start our server so; {port} stands for its port
  --theirs COMMAND   the other one, by default Debian's beanstalkd
  --seed N           the first stream (default 1)
  --streams N        how many streams (default 100)
  --commands N       how many commands in each (default 600)
  --seconds N        begin no stream after so many seconds
  -h, --help         this text
";

/// How long one server may take to send what the other one has sent.
const PATIENCE: Duration = Duration::from_secs(5);

/// Runs `attack differential` with these arguments. The status is 0; 1 if there
/// is a difference, 2 if the arguments cannot be understood, 4 if a run failed.
pub fn run(arguments: &[String]) -> ExitCode {
    finish(carry_out(arguments), "differential")
}

fn carry_out(arguments: &[String]) -> Result<bool, Failure> {
    let mut options = getopts::Options::new();
    for name in ["ours", "theirs", "seed", "streams", "commands", "seconds"] {
        options.optopt("", name, "", "");
    }
    options.optflag("h", "help", "");
    let given = options.parse(arguments);
    let given = given.map_err(|error| Failure::Usage(error.to_string()))?;
    if given.opt_present("help") {
        print!("{USAGE}");
        return Ok(true);
    }
    let number = |name: &str, default: u64| {
        let number = given.opt_get_default(name, default);
        number.map_err(|error| Failure::Usage(format!("--{name}: {error}")))
    };
    let theirs = "/usr/bin/beanstalkd -l 127.0.0.1 -p {port}".to_string();
    let servers = [
        given.opt_str("ours").map_or_else(ours, Ok)?,
        given.opt_str("theirs").unwrap_or(theirs),
    ];
    let (first, streams) = (number("seed", 1)?, number("streams", 100)?);
    let commands = usize::try_from(number("commands", 600)?).unwrap_or(usize::MAX);
    let seconds = number("seconds", u64::MAX >> 32)?;
    servers::end_children_on_signals()?;
    compare(
        &servers,
        first,
        streams,
        commands,
        Duration::from_secs(seconds),
    )
}

fn compare(
    servers: &[String; 2],
    first: u64,
    streams: u64,
    commands: usize,
    longest: Duration,
) -> Result<bool, Failure> {
    let began = Instant::now();
    let (mut compared, mut differing, mut played) = (0, 0, 0);
    for seed in first..first.saturating_add(streams) {
        if began.elapsed() > longest {
            break;
        }
        let stream = generate::stream(seed, commands);
        let verdict = Duel::fight(servers, &stream, PATIENCE)?;
        compared += verdict.compared;
        played += 1;
        if verdict.difference.is_none() {
            continue;
        }
        println!("seed {seed}: {}", summary(&verdict));
        match shrink::smallest(servers, stream)? {
            Some(verdict) => {
                differing += 1;
                println!("{}\n{}", summary(&verdict), verdict.transcript);
            }
            // On a machine that is too slow, time does pass.
            None => println!("it did not come again"),
        }
        if differing >= 10 {
            break;
        }
    }
    println!("{played} streams, {compared} commands compared, {differing} streams differ");
    Ok(differing == 0)
}

fn summary(verdict: &Verdict) -> &str {
    verdict.difference.as_deref().unwrap_or("no difference")
}
