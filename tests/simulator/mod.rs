//! The whole server at once, except what waits for the system: its own workers,
//! batches, locks, waits, timer and binlog, on sockets in memory, with a simulated
//! disk and clock, with clients of any behaviour, and with faults of all kinds.
//!
//! `world.rs` says what can happen to the server, `judge` what it promises,
//! `plan.rs` what clients do, `threads.rs` which thread runs next, and `life.rs` how a
//! process begins and ends. Most histories are random; `written.rs` has some more,
//! each of which is tried in many orders of its threads.
//!
//! Some lives, and the end of half of the histories, have an evening: all clients
//! leave, all jobs are deleted, and the keys become free. Then nothing may be
//! left, neither in the memory that `--max-memory` counts, nor on the heap, nor
//! on the disk.
//!
//! It is built from the daemon's own crate: with `cfg(simulated)`, `src/sync.rs`
//! and `src/server/mod.rs` replace locks, threads, clocks and sockets by the ones here.
//! All else is the server's own code.
//!
//! `cargo test -p beanpole-simulator` plays the written histories and the first random
//! ones, some of them twice: the same seed has to take the same steps again.
//! `BEANPOLE_SEARCH=20` plays twenty times as many. After `--` may follow
//! `5000..6000`, for the random ones with these seeds, or `pause`, for the written
//! ones that have this text in their name. The first history that fails is shown, and the
//! shortest one that can be found that fails in this way; `17` does that with the
//! seed 17, and `pause 17` with a written one.

mod clients;
#[path = "../binlog/disk.rs"]
mod disk;
pub(crate) mod hangup;
#[path = "../binlog/history.rs"]
mod history;
pub(crate) mod judge;
mod life;
#[path = "../model/naive.rs"]
mod naive;
mod plan;
mod stored;
pub(crate) mod stream;
pub(crate) mod sync;
mod threads;
mod world;
mod written;

use disk::{Disk, Random};
use judge::Legacy;
use plan::{End, Life, Plan};
use stats_alloc::{INSTRUMENTED_SYSTEM, StatsAlloc};
use std::alloc::System;
use std::cell::RefCell;
use std::ops::Range;
use std::panic;
use std::time::{Duration, Instant};
use support::search;

/// The start of all histories, in nanoseconds since the epoch.
const START: u64 = 1_700_000_000_000_000_000;

/// How many random histories are played: those with the first seeds. How long
/// that takes depends on the machine, and what they find does not.
const USUAL: u64 = 2_000;

/// In how many orders each written history is tried.
const ORDERS: u64 = 120;

/// One in this number is played twice.
const PLAYED_AGAIN: u64 = 20;

#[global_allocator]
static HEAP: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

thread_local! {
    static LAST_PANIC: RefCell<String> = const { RefCell::new(String::new()) };
}

/// What the last panic said.
pub fn last_panic() -> String {
    LAST_PANIC.take()
}

/// Plays what the command line names.
pub fn main() {
    panic::set_hook(Box::new(|panic| {
        let place = panic.location().map(ToString::to_string);
        let words = panic.payload_as_str().unwrap_or("a panic");
        if std::env::var_os("RUST_BACKTRACE").is_some() {
            eprintln!("{words}\n{}", std::backtrace::Backtrace::force_capture());
        }
        LAST_PANIC.set(format!("{words} ({})", place.unwrap_or_default()));
    }));
    let words: Vec<String> = std::env::args().skip(1).collect();
    // Options are for the test harness, which is not here.
    let words = words.iter().filter(|word| !word.starts_with('-'));
    let words: Vec<&str> = words.map(String::as_str).collect();
    let number = |text: &str| text.parse::<u64>();
    let seeds = |text: &str| match text.split_once("..") {
        Some((from, to)) => Some(number(from).ok()?..number(to).ok()?),
        None => number(text).ok().map(|seed| seed..seed + 1),
    };
    let (orders, usual) = (0..search::tries(ORDERS), 0..search::tries(USUAL));
    let played = match words[..] {
        [] => play_written("", orders) + play_all("random histories", usual, Plan::of),
        [word] => match seeds(word) {
            Some(seeds) => play_all("random histories", seeds, Plan::of),
            None => play_written(word, orders),
        },
        [word, seed] => play_written(word, seeds(seed).expect("seeds")),
        _ => panic!("a name or seeds, and nothing more"),
    };
    println!("test result: ok. {played} passed; 0 failed; 0 ignored");
}

/// Plays those that have this text in their name, in these orders. Returns how many
/// there are.
fn play_written(word: &str, orders: Range<u64>) -> u32 {
    let all = written::all().into_iter();
    let named = all.filter(|(name, _)| name.contains(word));
    let played = named.map(|(name, plan)| play_all(name, orders.clone(), |_| plan.clone()));
    played.sum()
}

fn play_all(name: &str, seeds: Range<u64>, plan: impl Fn(u64) -> Plan) -> u32 {
    let is_one = seeds.end - seeds.start == 1;
    let mut tally = Tally::default();
    for seed in seeds {
        let plan = plan(seed);
        if is_one {
            println!("{}", short(&format!("{plan:#?}")));
        }
        let mut played = play(&plan, seed);
        if let (Ok(once), 0) = (&played, seed % PLAYED_AGAIN)
            && let again = play(&plan, seed)
            && again.as_ref() != Ok(once)
        {
            played = Err(format!(
                "it is {again:?} the second time, {once:?} the first"
            ));
        }
        match played {
            Ok(more) => tally.add(&more),
            Err(what) => {
                println!("test {name} ... FAILED after {tally:?}");
                report(&plan, name, seed, what);
            }
        }
    }
    println!("test {name} ... ok: {tally:?}");
    1
}

fn report(plan: &Plan, name: &str, seed: u64, what: String) -> ! {
    println!("seed {seed}: {what}");
    let (least, again, what) = shrink(plan, seed, what);
    println!("The shortest history that fails in this way, with the threads' seed {again}:");
    println!("{}\n{what}", short(&format!("{least:#?}")));
    let words = match name {
        "random histories" => seed.to_string(),
        name => format!("'{name}' {seed}"),
    };
    println!("cargo test -p beanpole-simulator -- {words}");
    println!("test result: FAILED. 0 passed; 1 failed; 0 ignored");
    std::process::exit(1);
}

/// A text in which long runs of the same letter are abbreviated.
fn short(text: &str) -> String {
    let mut short = String::new();
    let runs = text.as_bytes().chunk_by(|one, other| one == other);
    for run in runs.map(|run| std::str::from_utf8(run).unwrap_or("?")) {
        match run.len() {
            9.. if !run.starts_with(' ') => short += &format!("{}<{}>", &run[..1], run.len()),
            _ => short += run,
        }
    }
    short
}

/// Takes away what is not needed to fail.
fn shrink(plan: &Plan, seed: u64, what: String) -> (Plan, u64, String) {
    let mut least = (plan.clone(), seed, what);
    let until = Instant::now() + Duration::from_secs(20);
    'again: loop {
        for smaller in least.0.smaller() {
            for other in 0..30 {
                if Instant::now() > until {
                    return least;
                }
                let again = match other {
                    0 => least.1,
                    other => seed.wrapping_mul(31) + other,
                };
                if let Err(what) = play(&smaller, again)
                    && kind(&what) == kind(&least.2)
                {
                    least = (smaller, again, what);
                    continue 'again;
                }
            }
        }
        return least;
    }
}

/// Failures with the same words, but for numbers, are of one kind.
fn kind(what: &str) -> String {
    let what = what.split_once(": ").map_or(what, |(_, what)| what);
    what.chars()
        .take(30)
        .filter(|c| !c.is_ascii_digit())
        .collect()
}

/// How much was played.
#[derive(Debug, Default, PartialEq)]
struct Tally {
    histories: u64,
    steps: u64,
    starts: u64,
    power_cuts: u64,
}

impl Tally {
    fn add(&mut self, other: &Tally) {
        self.histories += other.histories;
        self.steps += other.steps;
        self.starts += other.starts;
        self.power_cuts += other.power_cuts;
    }
}

/// Plays a history, and returns what is wrong.
fn play(plan: &Plan, seed: u64) -> Result<Tally, String> {
    let mut random = Random::new(seed.wrapping_mul(7) + 3);
    let mut disk = Disk::default();
    let mut legacy = Legacy::none();
    let mut now = START;
    let mut tally = Tally {
        histories: 1,
        ..Tally::default()
    };
    // A last life reads what is left; in half of the histories, after all jobs were
    // deleted.
    let last = [End::Evening, End::Done].map(|end| Life {
        end,
        ..Life::default()
    });
    let last = &last[random.below(2) as usize..];
    for (number, life) in plan.lives.iter().chain(last).enumerate() {
        if number >= plan.lives.len() && plan.is_shared {
            disk.set_capacity(None); // or it might not start
        }
        let at = format!("life {number}: ");
        let lived = life::live(plan, life, disk, legacy, now, random.next());
        let left = lived.map_err(|what| at + &what)?;
        (disk, legacy) = (left.disk, left.legacy);
        tally.steps += left.steps;
        tally.starts += 1;
        if let Some(survival) = life.cut {
            tally.power_cuts += 1;
            disk = world::cut(&disk, survival, random.next());
            legacy.lose();
        }
        now = left.ended_at.saturating_add_signed(life.jump);
        legacy.restart_at(now);
    }
    Ok(tally)
}
