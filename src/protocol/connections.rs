//! The reply to `list-connections`: a line for each connection.

use super::Document;
use super::document::List;

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
    /// What else the engine says of it, with the keys.
    pub facts: Document,
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
            facts.append(&connection.facts);
            facts
        };
        Document::list("connections", self.items.iter().map(facts), self.next)
    }
}
