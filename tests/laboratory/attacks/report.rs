//! The report on an attack: a line of a table with the faults below it, and the
//! same as JSON.

use super::gauge::Held;
use super::neighbour::Felt;
use std::time::Duration;

/// What was found out about one server in one attack.
pub struct Result {
    pub attack: &'static str,
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
