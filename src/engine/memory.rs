//! How much memory the engine takes, in bytes, as [`Config::max_memory`] counts it: a little
//! more than it really takes.
//!
//! [`Config::max_memory`]: super::Config::max_memory

use super::Engine;
use crate::protocol::{PutOptions, TubeName, Unique};

/// A job takes this beside its body and its options.
pub const JOB: u64 = 200;

/// A page with jobs takes this beside them.
pub const PAGE: u64 = 130;

/// The options of a job take this without the text of its keys; so does a unique key that is
/// taken.
pub const OPTIONS: u64 = 400;

/// A key with a concurrency limit takes this, however many jobs have it.
pub const LIMIT: u64 = 1000;

/// A tube takes this besides its name. It has up to five collections, and most of them take
/// 200 bytes for their first members.
pub const TUBE: u64 = 1200;

/// Each tube that a connection watches beside its first one takes this. A connection that
/// waits is in the queues of all tubes that it watches.
pub const WATCH: u64 = 40;

/// What a job takes with a body of this length on the wire and these options.
pub fn of_job(body: usize, options: Option<&PutOptions>) -> u64 {
    let keys_len = options.map(|options| options.keys_len() as u64);
    JOB + body as u64 + keys_len.map_or(0, |len| OPTIONS + len)
}

/// What a unique key takes while it is taken. Its tube may be gone, so the name counts here.
/// A tombstone counts as much; this is never more than its job took.
pub fn of_key(tube: &TubeName, unique: &Unique) -> u64 {
    OPTIONS + (tube.as_str().len() + unique.key.as_str().len()) as u64
}

impl Engine {
    /// What everything in the engine takes; only this adds it up. (Before a put it is not
    /// asked whether a new page or a new key with a limit fits.)
    pub fn memory(&self) -> u64 {
        self.memory + self.jobs.page_count() * PAGE + self.keys.limited.len() as u64 * LIMIT
    }

    /// Whether this many more bytes are within the limit, together with what the
    /// caller holds.
    pub fn has_memory_for(&self, bytes: u64) -> bool {
        let limit = self.config.max_memory.unwrap_or(u64::MAX);
        self.memory() + self.outside.memory + bytes <= limit
    }

    /// How many bytes replies may take that clients perhaps do not read: what is left of
    /// the limit, and a sixteenth beyond it, so that there are lists when jobs have filled
    /// the memory.
    pub fn room_for_replies(&self) -> u64 {
        let limit = self.config.max_memory.unwrap_or(u64::MAX);
        let used = self.memory() + self.outside.memory;
        limit.saturating_add(limit / 16).saturating_sub(used)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::{Config, Peer, Time};
    use crate::protocol::Framer;

    #[test]
    fn a_job_counts_with_its_body_its_options_and_its_keys() {
        let mut engine = Engine::new(Config::new(100), Time::default());
        let id = engine.connect(Peer::default(), Time::default());
        for (options, counted) in [
            ("", 202),
            (" try:3", 602),
            (" idp:key", 605),
            (" con:key", 605 + LIMIT),
            (" con:key:2", 605),
            (" idp:another con:other:5 try:1", 614 + LIMIT),
        ] {
            let before = engine.memory();
            let text = format!("put 0 0 60 0{options}\r\n\r\n");
            let (mut framer, mut input) = (Framer::new(100), text.as_bytes());
            while let Some(request) = framer.next(&mut input) {
                engine.execute(id, request, Time::default());
            }
            let page = if before == 0 { PAGE } else { 0 };
            assert_eq!(engine.memory() - before, counted + page, "{options}");
        }
    }
}
