//! What `stats-tube` and `list-tube-stats` show of tubes: `stats-tube` has a line for
//! each fact, `list-tube-stats` a line for each tube, with more facts.

use super::list::{List, Listed};
use super::{Document, TubeName};

/// What the server shows of a tube. The engine chooses the keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TubeStats {
    /// Its number. They are given in ascending order and never reused.
    pub id: u64,
    /// Its name.
    pub name: TubeName,
    /// The counts and times that `stats-tube` shows, each with its key.
    pub counts: [(&'static str, u64); 13],
    /// Those that only `list-tube-stats` shows.
    pub more: [(&'static str, u64); 10],
}

impl TubeStats {
    /// What `stats-tube` shows.
    pub(super) fn facts(&self) -> Document {
        let mut facts = Document::default();
        self.add_to(&mut facts);
        facts
    }

    fn add_to(&self, facts: &mut Document) {
        facts.add_name("name", &self.name);
        for (key, number) in self.counts {
            facts.add_number(key, number);
        }
    }
}

/// What `list-tube-stats` answers.
pub type TubeList = List<TubeStats>;

impl Listed for TubeStats {
    const KEY: &'static str = "tubes";

    fn document(&self) -> Document {
        let mut facts = Document::default();
        facts.add_number("id", self.id);
        self.add_to(&mut facts);
        for (key, number) in self.more {
            facts.add_number(key, number);
        }
        facts
    }
}
