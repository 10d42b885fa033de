//! The tubes as rows of a table: their figures, their order and their text.

use super::sample::History;
use crate::server::columns::{self, Column};
use crate::server::trouble::Trouble;
use crate::text::colour::Colour;
use crate::text::words::span;
use beanpole::protocol::TubeName;
use std::cmp::Ordering;

/// The columns, from left to right.
pub const SHOWN: [Column; 10] = {
    use Column::*;
    [
        Tube, Ready, Reserved, Delayed, Buried, Watching, Waiting, Put, Delete, Age,
    ]
};

/// The column beside this one: the next, or the previous one. The first one
/// follows the last one.
pub fn beside(column: Column, forward: bool) -> Column {
    let steps = if forward { 1 } else { SHOWN.len() - 1 };
    let place = SHOWN.iter().position(|shown| *shown == column);
    SHOWN[(place.unwrap_or(0) + steps) % SHOWN.len()]
}

/// A tube of a server.
#[derive(Clone, Debug)]
pub struct Row {
    /// The index of its server.
    pub server: usize,
    pub tube: TubeName,
    /// The figure of each column, if it is known.
    figures: [Option<f64>; columns::COUNT],
    pause_left: u64,
    trouble: Trouble,
    /// Whether ready jobs lack a worker that watches, or wait for a limit.
    is_held_up: bool,
}

impl Row {
    /// The rows of a server, of the tubes that are to be shown.
    pub fn of(
        server: usize,
        history: &History,
        is_shown: impl Fn(&TubeName) -> bool,
    ) -> impl Iterator<Item = Row> {
        let tubes = history.latest.tubes.iter();
        let tubes = tubes.filter(move |(tube, _)| is_shown(tube));
        tubes.map(move |(tube, facts)| Row {
            server,
            tube: tube.clone(),
            figures: Column::all().map(|column| match column {
                Column::Tube => None,
                Column::Put | Column::Delete => history.tube_rate(tube, column.key()),
                Column::Age => {
                    (history.latest.ages.get(tube).copied().flatten()).map(|age| age as f64)
                }
                _ => Some(facts.number(column.key()) as f64),
            }),
            pause_left: facts.number("pause-time-left"),
            trouble: Trouble::of(facts),
            is_held_up: Trouble::all(facts)
                .any(|kind| matches!(kind, Trouble::Unwatched | Trouble::Limited)),
        })
    }

    /// The figure of this column, or 0 if it is not known.
    fn figure(&self, column: Column) -> f64 {
        self.figures[column as usize].unwrap_or(0.0)
    }

    /// Which row comes first by this column: the one with the larger figure, or
    /// else the one whose name comes first. By name, tubes in trouble come
    /// first, the worst before the others.
    pub fn compare(&self, other: &Row, column: Column) -> Ordering {
        let of = |row: &Row| row.figures[column as usize].unwrap_or(-1.0);
        let trouble = |row: &Row| match column {
            Column::Tube => row.trouble,
            _ => Trouble::None,
        };
        trouble(other)
            .cmp(&trouble(self))
            .then_with(|| of(other).total_cmp(&of(self)))
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
            Column::Ready if self.is_held_up => Some(Colour::YELLOW),
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
            (Column::Put | Column::Delete, figure) => rate(figure, width),
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
