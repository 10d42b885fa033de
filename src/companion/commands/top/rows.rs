//! The tubes as rows of a table: their figures, their order and their text.

use super::sample::History;
use crate::text::colour::Colour;
use crate::text::words::span;
use crate::values::Parse;
use beanpole::protocol::TubeName;
use std::cmp::Ordering;

/// A column of the table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Column {
    #[default]
    Tube,
    Ready,
    Reserved,
    Delayed,
    Buried,
    Watching,
    Waiting,
    Puts,
    Deletes,
    Age,
}

/// Each column with its title, its width and the key of `stats-tube` with its
/// figure. The name of the tube takes the rest of the width.
const TABLE: [(Column, &str, usize, &str); 10] = [
    (Column::Tube, "TUBE", 0, ""),
    (Column::Ready, "READY", 7, "current-jobs-ready"),
    (Column::Reserved, "RSVD", 6, "current-jobs-reserved"),
    (Column::Delayed, "DLYD", 6, "current-jobs-delayed"),
    (Column::Buried, "BURY", 6, "current-jobs-buried"),
    (Column::Watching, "WATCH", 6, "current-watching"),
    (Column::Waiting, "WAIT", 5, "current-waiting"),
    (Column::Puts, "PUT/S", 6, "total-jobs"),
    (Column::Deletes, "DEL/S", 6, "cmd-delete"),
    (Column::Age, "AGE", 5, ""),
];

impl Parse for Column {
    fn parse(text: &str) -> Result<Column, String> {
        let named = Column::all().find(|column| column.head().0.eq_ignore_ascii_case(text));
        named.ok_or_else(|| format!("there is no column '{text}'"))
    }
}

impl Column {
    /// All columns, from left to right.
    pub fn all() -> impl Iterator<Item = Column> {
        TABLE.into_iter().map(|(column, ..)| column)
    }

    /// The next column, or the previous one. The first one follows the last
    /// one.
    pub fn beside(self, forward: bool) -> Column {
        let steps = if forward { 1 } else { TABLE.len() - 1 };
        TABLE[(self as usize + steps) % TABLE.len()].0
    }

    /// Its title and width.
    pub fn head(self) -> (&'static str, usize) {
        let (_, title, width, _) = TABLE[self as usize];
        (title, width)
    }
}

/// A tube of a server.
#[derive(Clone, Debug)]
pub struct Row {
    /// The index of its server.
    pub server: usize,
    pub tube: TubeName,
    /// The figure of each column, if it is known.
    figures: [Option<f64>; TABLE.len()],
    pause_left: u64,
}

impl Row {
    /// The rows of a server.
    pub fn of(server: usize, history: &History) -> impl Iterator<Item = Row> {
        let tubes = history.latest.tubes.iter();
        tubes.map(move |(tube, facts)| Row {
            server,
            tube: tube.clone(),
            figures: TABLE.map(|(column, .., key)| match column {
                Column::Tube => None,
                Column::Puts | Column::Deletes => history.tube_rate(tube, key),
                Column::Age => history.latest.ages.get(tube).map(|age| *age as f64),
                _ => Some(facts.number(key) as f64),
            }),
            pause_left: facts.number("pause-time-left"),
        })
    }

    /// The figure of this column, or 0 if it is not known.
    fn figure(&self, column: Column) -> f64 {
        self.figures[column as usize].unwrap_or(0.0)
    }

    /// How many of its jobs are not reserved.
    pub fn free_jobs(&self) -> u64 {
        let columns = [Column::Ready, Column::Delayed, Column::Buried];
        let counts = columns.map(|column| self.figure(column) as u64);
        counts.iter().sum()
    }

    /// Which row comes first by this column: the one with the larger figure, or
    /// else the one whose name comes first.
    pub fn compare(&self, other: &Row, column: Column) -> Ordering {
        let of = |row: &Row| row.figures[column as usize].unwrap_or(-1.0);
        of(other)
            .total_cmp(&of(self))
            .then_with(|| self.tube.cmp(&other.tube))
            .then(self.server.cmp(&other.server))
    }

    /// The text after the name: whether the tube is paused, and for how long.
    pub fn mark(&self) -> String {
        match self.pause_left {
            0 => String::new(),
            left => format!(" ||{}", span(left)),
        }
    }

    /// The colour of this column, if its content needs a person.
    pub fn colour(&self, column: Column) -> Option<Colour> {
        let has = |column| self.figure(column) > 0.0;
        match column {
            Column::Buried if has(column) => Some(Colour::RED),
            Column::Ready if has(column) && !has(Column::Watching) => Some(Colour::YELLOW),
            Column::Tube if self.pause_left > 0 => Some(Colour::YELLOW),
            _ => None,
        }
    }

    /// The text of this column. It is not wider than the column, except for the
    /// name, which is complete.
    pub fn cell(&self, column: Column) -> String {
        let (_, width) = column.head();
        match (column, self.figures[column as usize]) {
            (Column::Tube, _) => self.tube.to_string(),
            (Column::Puts | Column::Deletes, figure) => rate(figure, width),
            (_, None) => "-".into(),
            (Column::Age, Some(age)) => span(age as u64),
            (_, Some(figure)) => count(figure as u64, width),
        }
    }
}

/// A number in at most `width` characters; a large one loses digits.
pub fn count(number: u64, width: usize) -> String {
    let mut text = number.to_string();
    let mut left = number;
    for unit in ["k", "M", "G", "T", "P", "E"] {
        if text.len() <= width {
            break;
        }
        left /= 1000;
        text = format!("{left}{unit}");
    }
    text
}

/// A rate; a small one has a decimal.
pub fn rate(rate: Option<f64>, width: usize) -> String {
    match rate {
        None => "-".into(),
        Some(rate) if rate < 999.95 => format!("{rate:.1}"),
        Some(rate) => count(rate as u64, width),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_numbers_lose_digits_rather_than_their_column() {
        assert_eq!(count(999_999, 6), "999999");
        assert_eq!(count(1_999_999, 6), "1999k");
        assert_eq!(count(123_456_789, 7), "123456k");
        assert_eq!(count(123_456_789, 5), "123M");
        assert_eq!(count(u64::MAX, 6), "18446P");
        assert_eq!(rate(Some(12.34), 6), "12.3");
        assert_eq!(rate(Some(123_456.7), 6), "123456");
        assert_eq!(rate(None, 6), "-");
    }
}
