//! The tubes as rows of a table: filtered, sorted, and as text.

use super::sample::History;
use crate::server::stats::Facts;
use crate::text::colour::Colour;
use crate::text::words::span;
use crate::values::Parse;
use beanpole::protocol::TubeName;
use std::cmp::Ordering;

/// A column of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Column {
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

impl Parse for Column {
    fn parse(text: &str) -> Result<Column, String> {
        let mut columns = Column::ALL.into_iter();
        let named = columns.find(|column| column.head().0.eq_ignore_ascii_case(text));
        named.ok_or_else(|| format!("there is no column '{text}'"))
    }
}

impl Column {
    pub const ALL: [Column; 10] = [
        Column::Tube,
        Column::Ready,
        Column::Reserved,
        Column::Delayed,
        Column::Buried,
        Column::Watching,
        Column::Waiting,
        Column::Puts,
        Column::Deletes,
        Column::Age,
    ];

    /// Its title and width. The name takes what is left.
    pub fn head(self) -> (&'static str, usize) {
        match self {
            Column::Tube => ("TUBE", 0),
            Column::Ready => ("READY", 7),
            Column::Reserved => ("RSVD", 6),
            Column::Delayed => ("DLYD", 6),
            Column::Buried => ("BURY", 6),
            Column::Watching => ("WATCH", 6),
            Column::Waiting => ("WAIT", 5),
            Column::Puts => ("PUT/S", 6),
            Column::Deletes => ("DEL/S", 6),
            Column::Age => ("AGE", 5),
        }
    }
}

/// A tube of a server.
#[derive(Clone, Debug)]
pub struct Row {
    /// Which server, counted from 0.
    pub server: usize,
    pub tube: TubeName,
    pub ready: u64,
    pub reserved: u64,
    pub delayed: u64,
    pub buried: u64,
    pub watching: u64,
    pub waiting: u64,
    pub puts: Option<f64>,
    pub deletes: Option<f64>,
    pub age: Option<u64>,
    pub pause_left: u64,
}

impl Row {
    /// The rows of a server.
    pub fn of(server: usize, history: &History) -> impl Iterator<Item = Row> {
        history
            .latest
            .tubes
            .iter()
            .map(move |(tube, facts)| Row::new(server, history, tube, facts))
    }

    fn new(server: usize, history: &History, tube: &TubeName, facts: &Facts) -> Row {
        Row {
            server,
            tube: tube.clone(),
            ready: facts.number("current-jobs-ready"),
            reserved: facts.number("current-jobs-reserved"),
            delayed: facts.number("current-jobs-delayed"),
            buried: facts.number("current-jobs-buried"),
            watching: facts.number("current-watching"),
            waiting: facts.number("current-waiting"),
            puts: history.tube_rate(tube, facts, "total-jobs"),
            deletes: history.tube_rate(tube, facts, "cmd-delete"),
            age: history.latest.ages.get(tube).copied(),
            pause_left: facts.number("pause-time-left"),
        }
    }

    /// Which comes first by this column: of figures, the larger one.
    pub fn compare(&self, other: &Row, column: Column) -> Ordering {
        let rate = |rate: Option<f64>| rate.unwrap_or(-1.0);
        let by_column = match column {
            Column::Tube => Ordering::Equal,
            Column::Ready => other.ready.cmp(&self.ready),
            Column::Reserved => other.reserved.cmp(&self.reserved),
            Column::Delayed => other.delayed.cmp(&self.delayed),
            Column::Buried => other.buried.cmp(&self.buried),
            Column::Watching => other.watching.cmp(&self.watching),
            Column::Waiting => other.waiting.cmp(&self.waiting),
            Column::Puts => rate(other.puts).total_cmp(&rate(self.puts)),
            Column::Deletes => rate(other.deletes).total_cmp(&rate(self.deletes)),
            Column::Age => other.age.cmp(&self.age),
        };
        by_column
            .then_with(|| self.tube.cmp(&other.tube))
            .then(self.server.cmp(&other.server))
    }

    /// What stands after the name: that the tube is paused, and for how long.
    pub fn mark(&self) -> String {
        match self.pause_left {
            0 => String::new(),
            left => format!(" ||{}", span(left)),
        }
    }

    /// The colour of what needs a person in this column.
    pub fn colour(&self, column: Column) -> Option<Colour> {
        match column {
            Column::Buried if self.buried > 0 => Some(Colour::Red),
            Column::Ready if self.ready > 0 && self.watching == 0 => Some(Colour::Yellow),
            Column::Tube if self.pause_left > 0 => Some(Colour::Yellow),
            _ => None,
        }
    }

    /// What stands in this column, at most as wide as it is; the name is whole.
    pub fn cell(&self, column: Column) -> String {
        let (_, width) = column.head();
        match column {
            Column::Tube => self.tube.to_string(),
            Column::Ready => count(self.ready, width),
            Column::Reserved => count(self.reserved, width),
            Column::Delayed => count(self.delayed, width),
            Column::Buried => count(self.buried, width),
            Column::Watching => count(self.watching, width),
            Column::Waiting => count(self.waiting, width),
            Column::Puts => rate(self.puts, width),
            Column::Deletes => rate(self.deletes, width),
            Column::Age => self.age.map_or("-".into(), span),
        }
    }
}

/// A number in at most so many columns, at the price of digits.
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

/// A rate: with a decimal if it is small.
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
