//! The columns of a table of tubes: each has a name for `--sort`, a title for a
//! narrow screen, a width there, and a key of `stats-tube` with its figure.

use crate::values::Parse;

/// A column of a table of tubes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Column {
    #[default]
    Tube,
    Ready,
    Reserved,
    Delayed,
    Buried,
    Total,
    Using,
    Watching,
    Waiting,
    Pause,
    /// Puts in a second.
    Put,
    /// Deletes in a second.
    Delete,
    /// Timeouts in a second.
    Timeouts,
    /// The age of the next ready job.
    Age,
}

/// The columns in the order of [`Column`], each with its name, title, width and
/// key. The name of the tube takes the width that is left.
#[rustfmt::skip]
const TABLE: [(Column, &str, &str, usize, &str); 14] = [
    (Column::Tube, "tube", "TUBE", 0, ""),
    (Column::Ready, "ready", "READY", 7, "current-jobs-ready"),
    (Column::Reserved, "reserved", "RSVD", 6, "current-jobs-reserved"),
    (Column::Delayed, "delayed", "DLYD", 6, "current-jobs-delayed"),
    (Column::Buried, "buried", "BURY", 6, "current-jobs-buried"),
    (Column::Total, "puts", "PUTS", 7, "total-jobs"),
    (Column::Using, "using", "USE", 6, "current-using"),
    (Column::Watching, "watching", "WATCH", 6, "current-watching"),
    (Column::Waiting, "waiting", "WAIT", 5, "current-waiting"),
    (Column::Pause, "pause", "PAUSE", 6, "pause-time-left"),
    (Column::Put, "put", "PUT/S", 6, "total-jobs"),
    (Column::Delete, "delete", "DEL/S", 6, "cmd-delete"),
    (Column::Timeouts, "timeouts", "TMO/S", 6, "total-timeouts"),
    (Column::Age, "age", "AGE", 5, ""),
];

impl Column {
    /// Its name.
    pub fn name(self) -> &'static str {
        TABLE[self as usize].1
    }

    /// Its title and its width on a narrow screen.
    pub fn head(self) -> (&'static str, usize) {
        let (_, _, title, width, _) = TABLE[self as usize];
        (title, width)
    }

    /// Its key in `stats-tube`; empty if it has none.
    pub fn key(self) -> &'static str {
        TABLE[self as usize].4
    }
}

/// Reads the name of a column, or its title on a narrow screen.
impl Parse for Column {
    fn parse(text: &str) -> Result<Column, String> {
        // As it was called before.
        let text = if text == "total" { "puts" } else { text };
        let is = |name: &str| name.eq_ignore_ascii_case(text);
        let mut table = TABLE.into_iter();
        let named = table.find(|(_, name, title, ..)| is(name) || is(title));
        let named = named.map(|(column, ..)| column);
        named.ok_or_else(|| format!("there is no column '{text}'"))
    }
}
