//! The well-behaved client. Some 200 times a second it puts a job, reserves it
//! and deletes it, in a tube of its own, and notes how long such a cycle took.
//!
//! A cycle that could not begin when it was due counts from the time when it
//! was due: if one reply takes three seconds, the 600 cycles behind it wait as
//! well.

use crate::peer::Peer;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// The time from one cycle to the next.
const PACE: Duration = Duration::from_millis(5);

/// The phases of a run, in order.
pub const PHASES: [&str; 3] = ["before", "during", "after"];

/// What the client felt in one phase.
#[derive(Clone, Debug, Default)]
pub struct Felt {
    cycles: Vec<Duration>,
    /// How many cycles the server did not do as it should.
    pub refused: usize,
    /// What it answered instead the last time, or why the connection was lost.
    pub refusal: Option<String>,
}

impl Felt {
    /// How many cycles were done.
    pub fn count(&self) -> usize {
        self.cycles.len()
    }

    /// The duration that this share of the cycles did not exceed.
    pub fn quantile(&self, share: f64) -> Duration {
        let mut sorted = self.cycles.clone();
        sorted.sort_unstable();
        let rank = (share * sorted.len() as f64).ceil() as usize;
        let at = rank.clamp(1, sorted.len().max(1)) - 1;
        sorted.get(at).copied().unwrap_or_default()
    }
}

/// Runs cycles until it is told that the last phase is over.
pub fn live(address: SocketAddr, phase: &AtomicUsize, over: &AtomicBool) -> [Felt; 3] {
    let mut felt: [Felt; 3] = Default::default();
    let mut peer = None;
    let mut due = Instant::now();
    while !over.load(Ordering::Relaxed) {
        std::thread::sleep(due.saturating_duration_since(Instant::now()));
        let done = cycle(address, &mut peer);
        // A cycle belongs to the phase in which it ends.
        let felt = &mut felt[phase.load(Ordering::Relaxed)];
        match done {
            Ok(()) => felt.cycles.push(due.elapsed()),
            Err(error) => {
                peer = None;
                felt.refused += 1;
                felt.refusal = Some(error.to_string());
                due = Instant::now();
            }
        }
        due += PACE;
    }
    felt
}

fn cycle(address: SocketAddr, peer: &mut Option<Peer>) -> io::Result<()> {
    if peer.is_none() {
        let mut new = Peer::connect(address)?;
        let tube = "use neighbour\r\nwatch neighbour\r\nignore default\r\n";
        new.send(tube)?;
        for _ in 0..3 {
            new.reply()?;
        }
        *peer = Some(new);
    }
    let peer = peer.as_mut().expect("it was connected just now");
    expect(peer, "put 0 0 60 5\r\nhello\r\n", "INSERTED ")?;
    let id = expect(peer, "reserve-with-timeout 60\r\n", "RESERVED ")?;
    let id = id.split(' ').nth(1).unwrap_or_default();
    expect(peer, &format!("delete {id}\r\n"), "DELETED").map(drop)
}

fn expect(peer: &mut Peer, command: &str, word: &str) -> io::Result<String> {
    let reply = peer.ask(command)?;
    match reply.starts_with(word) {
        true => Ok(reply),
        false => Err(io::Error::other(reply)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_values_that_were_felt() {
        let cycles = (1..=200).rev().map(Duration::from_millis).collect();
        let felt = Felt {
            cycles,
            ..Felt::default()
        };
        let quantiles = [0.5, 0.99, 1.0].map(|share| felt.quantile(share).as_millis());
        assert_eq!(quantiles, [100, 198, 200]);
        assert_eq!(Felt::default().quantile(0.99), Duration::ZERO);
    }
}
