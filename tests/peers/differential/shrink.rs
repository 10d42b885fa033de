//! Makes a stream for which the servers differ as small as it can. It leaves
//! out parts as long as the servers still differ, in whatever way.

use super::duel::{Duel, Verdict};
use super::generate::Stream;
use std::path::PathBuf;
use std::time::Duration;

/// How long one server may take to send what the other one has sent, while many
/// streams are tried.
const PATIENCE: Duration = Duration::from_millis(300);

/// How many smaller streams are tried.
const TRIES: usize = 400;

/// The verdict on the smallest stream that was found. `None` if the servers do
/// not differ when they get the whole stream again.
pub fn smallest(servers: &[PathBuf; 2], mut stream: Stream) -> Option<Verdict> {
    let mut best = Duel::fight(servers, &stream, PATIENCE);
    best.difference.as_ref()?;
    let mut tries = 0;
    let mut part = stream.actions.len().div_ceil(2);
    while part > 0 && tries < TRIES {
        // It begins at the end, so that the actions after the difference go
        // first.
        let mut end = stream.actions.len();
        let mut shorter = false;
        while end > 0 && tries < TRIES {
            let begin = end.saturating_sub(part);
            let mut without = stream.clone();
            without.actions.drain(begin..end);
            tries += 1;
            let verdict = Duel::fight(servers, &without, PATIENCE);
            if verdict.difference.is_some() {
                (stream, best, shorter) = (without, verdict, true);
            }
            end = begin;
        }
        if !shorter || part > 1 {
            part /= 2;
        }
    }
    Some(best)
}
