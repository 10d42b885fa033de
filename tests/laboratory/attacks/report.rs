//! The report on an attack: a line of a table with the faults below it, and the
//! same as JSON.

use super::gauge::Held;
use super::neighbour::{Felt, PHASES};
use companion::text::json::{Json, json};
use std::time::Duration;

/// What was found out about one server in one attack.
pub struct Result {
    pub attack: &'static str,
    pub about: &'static str,
    pub server: &'static str,
    pub felt: [Felt; 3],
    /// What the server held before, at the worst moment, and afterwards. The
    /// last is missing if the server is gone.
    pub held: [Option<Held>; 3],
    /// How long it took until the attack was over and the server calm again.
    pub took: Duration,
    /// What came of it.
    pub note: String,
    /// What the server did and must not do.
    pub faults: Vec<String>,
}

/// Prints the head of the table.
pub fn head() {
    println!(
        "What a well-behaved client felt, p50/p99/longest of put, reserve and delete in ms, \
         and what the server held: before/peak/after"
    );
    println!(
        "{:26} {:6} {:>15} {:>17} {:>15} {:>13} {:>15} {:>15}  s",
        "attack", "server", "before", "during", "after", "MB", "threads", "descriptors"
    );
}

/// Prints the line for one attack on one server.
pub fn line(result: &Result) {
    let [before, during, after] = result.felt.each_ref().map(felt);
    let held = |of: fn(&Held) -> u64| {
        let [before, peak, after] = result.held.map(|held| match held {
            Some(held) => of(&held).to_string(),
            None => "gone".into(),
        });
        format!("{before}/{peak}/{after}")
    };
    let mut text = format!(
        "{:26} {:6} {before:>15} {during:>17} {after:>15} {:>13} {:>15} {:>15} {:>4.1}  {}\n",
        result.attack,
        result.server,
        held(|held| held.memory >> 20),
        held(|held| held.threads),
        held(|held| held.descriptors),
        result.took.as_secs_f64(),
        result.note
    );
    for fault in &result.faults {
        text += &format!("{:26} {:6} FAULT: {fault}\n", result.attack, result.server);
    }
    // It is printed at once, because other threads may print at the same time.
    print!("{text}");
}

fn felt(felt: &Felt) -> String {
    if felt.count() == 0 {
        return "none".into();
    }
    let [p50, p99, longest] = [0.5, 0.99, 1.0].map(|share| milliseconds(felt.quantile(share)));
    format!("{p50}/{p99}/{longest}")
}

fn milliseconds(duration: Duration) -> String {
    let ms = duration.as_secs_f64() * 1000.0;
    if ms < 10.0 {
        format!("{ms:.1}")
    } else {
        format!("{ms:.0}")
    }
}

/// The same, for programs.
pub fn json(result: &Result) -> Json {
    let felt = |felt: &Felt| {
        let micros = |share| felt.quantile(share).as_micros() as u64;
        json!({
            "cycles": felt.count(),
            "refused": felt.refused,
            "p50_us": micros(0.5),
            "p99_us": micros(0.99),
            "longest_us": micros(1.0),
        })
    };
    let held = |held: &Option<Held>| {
        held.as_ref().map(|held| {
            json!({
                "memory_bytes": held.memory,
                "threads": held.threads,
                "descriptors": held.descriptors,
            })
        })
    };
    let phases = PHASES.iter().zip(&result.felt);
    let felt = phases.map(|(phase, told)| (phase.to_string(), felt(told)));
    let moments = ["before", "peak", "after"].iter().zip(&result.held);
    let held = moments.map(|(moment, told)| (moment.to_string(), held(told)));
    json!({
        "attack": result.attack,
        "about": result.about,
        "server": result.server,
        "felt": felt.collect::<Json>(),
        "held": held.collect::<Json>(),
        "took_ms": result.took.as_millis() as u64,
        "note": result.note,
        "faults": result.faults,
    })
}
