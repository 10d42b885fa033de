//! What `list-connections` tells: a line for each connection.

use super::TubeName;
use std::io::Write;

/// What the server tells of a connection. Times are in whole seconds, rounded
/// down.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConnectionStats {
    /// Its number. They are given in ascending order and never reused.
    pub id: u64,
    /// Where it comes from, or `unix:` and the process. The engine leaves this
    /// empty; the server fills it in.
    pub address: String,
    /// How long it is connected. This, too, only the server knows.
    pub age: u64,
    /// How long it has sent no command; at most its age.
    pub idle: u64,
    /// Whether it has sent a put.
    pub is_producer: bool,
    /// Whether it has asked for a job.
    pub is_worker: bool,
    /// Whether it waits in a `reserve`.
    pub is_waiting: bool,
    /// The tube that it uses.
    pub tube: TubeName,
    /// How many tubes it watches.
    pub watched: usize,
    /// How many jobs it holds.
    pub held: usize,
    /// How many puts it has sent.
    pub puts: u64,
    /// How many jobs it has got.
    pub reserves: u64,
}

/// Some connections, in the order of their ids, and where the next ones begin.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConnectionList {
    /// The connections.
    pub connections: Vec<ConnectionStats>,
    /// The first connection that is left out; `None` if these are the last ones.
    pub next: Option<u64>,
}

impl ConnectionList {
    /// Appends the bytes of the whole reply.
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        let none = if self.connections.is_empty() {
            " []"
        } else {
            ""
        };
        let mut yaml = format!("---\nconnections:{none}\n");
        for one in &self.connections {
            yaml += &format!(
                "- {{id: {}, address: \"{}\", age: {}, idle: {}, producer: {}, worker: {}, \
                waiting: {}, tube: \"{}\", watched: {}, held: {}, puts: {}, reserves: {}}}\n",
                one.id,
                one.address,
                one.age,
                one.idle.min(one.age),
                one.is_producer,
                one.is_worker,
                one.is_waiting,
                one.tube,
                one.watched,
                one.held,
                one.puts,
                one.reserves
            );
        }
        yaml += &format!("next: {}\n", self.next.unwrap_or(0));
        write!(out, "OK {}\r\n{yaml}\r\n", yaml.len()).expect("a Vec takes all bytes");
    }
}
