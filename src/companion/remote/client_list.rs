//! The connections of a server as a table: who puts, who works, who waits, and how much.

use crate::failure::{Failure, Outcome};
use crate::remote::finder;
use crate::remote::{Client, Facts, Reply};
use crate::text::{row, span};
use std::cmp::Reverse;

/// The columns: their names, which are the keys of the server except `does`, and
/// their widths, negative if the text is aligned to the left.
pub const COLUMNS: [(&str, isize); 10] = [
    ("id", 7),
    ("address", -21),
    ("age", 5),
    ("idle", 5),
    ("does", -10),
    ("tube", -12),
    ("watched", 7),
    ("held", 5),
    ("puts", 8),
    ("reserves", 8),
];

/// The connections of a server: in the order in which they came or, by a column, those
/// with the largest figures first.
pub fn sorted(client: &mut Client, by: Option<&str>) -> Outcome<Vec<Facts>> {
    let Some(mut found) = finder::connections(client)? else {
        let [all, put, work, wait] = client.server_stats()?.connections();
        return Failure::refused(format!(
            "this server does not list its connections: it has {all}; {put} have put, \
             {work} have reserved, {wait} wait"
        ));
    };
    if let Some(column) = by {
        found.sort_by_cached_key(|one| (Reverse(one.number(column)), cell(column, one)));
    }
    Ok(found)
}

/// Has the server end this connection. Returns false if there is none.
pub fn close(client: &mut Client, id: u64) -> Outcome<bool> {
    client.ask(format_args!("close-connection {id}"), Reply::is_done)
}

/// The titles of the table.
pub fn titles() -> String {
    row(COLUMNS.map(|(name, width)| (name.to_uppercase(), width)))
}

/// A connection as a line of the table.
pub fn line(one: &Facts) -> String {
    row(COLUMNS.map(|(name, width)| (cell(name, one), width)))
}

fn cell(column: &str, one: &Facts) -> String {
    let is = |key: &str, word| (one.text(key) == "true").then_some(word);
    let works = is("waiting", "waits").or(is("worker", "works"));
    match column {
        "age" | "idle" => span(one.number(column)),
        "does" => match (is("producer", "puts"), works) {
            (Some(puts), Some(works)) => format!("{puts},{works}"),
            (puts, works) => puts.or(works).unwrap_or("-").into(),
        },
        _ => one.text(column).into(),
    }
}
