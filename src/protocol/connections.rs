//! The reply to `list-connections`: a line for each connection.

use super::document::List;
use super::{Document, TubeName};

/// What the server shows of a connection. Times are in whole seconds, rounded
/// down.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConnectionStats {
    /// Its number. They are given in ascending order and never reused.
    pub id: u64,
    /// Where it comes from, or `unix:` and the process. The engine leaves this
    /// empty; the server fills it in.
    pub address: String,
    /// How long it is connected. The server fills this in, too.
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

/// What `list-connections` answers.
pub type ConnectionList = List<ConnectionStats>;

impl ConnectionList {
    pub(super) fn document(&self) -> Document {
        let facts = |connection: &ConnectionStats| {
            let mut facts = Document::default();
            facts.add_number("id", connection.id);
            facts.add_text("address", &connection.address);
            facts.add_number("age", connection.age);
            facts.add_number("idle", connection.idle.min(connection.age));
            facts.add("producer", connection.is_producer);
            facts.add("worker", connection.is_worker);
            facts.add("waiting", connection.is_waiting);
            facts.add_name("tube", &connection.tube);
            facts.add_number("watched", connection.watched as u64);
            facts.add_number("held", connection.held as u64);
            facts.add_number("puts", connection.puts);
            facts.add_number("reserves", connection.reserves);
            facts
        };
        Document::list("connections", self.items.iter().map(facts), self.next)
    }
}
