//! `clients`: lists the connections of a server: who puts, who works, who waits,
//! and how much.

use crate::command::{Invocation, Run, Tubes};
use crate::failure::{Failure, Outcome, Status};
use crate::server::finder::connections;
use crate::server::stats::Facts;
use crate::text::output::{Output, complain};
use crate::text::span;
use crate::values::Parse;
use beanpole::protocol::TubeName;
use clap::Args;
use clap::builder::PossibleValuesParser;
use std::cmp::Reverse;
use std::num::NonZeroUsize;

#[derive(Args)]
pub struct Clients {
    #[command(flatten)]
    tubes: Tubes,
    /// at most N (default: all)
    #[arg(short = 'n', long, value_name = "N")]
    count: Option<NonZeroUsize>,
    /// sort by this column, the most first (default: id)
    #[arg(short, long, value_name = "COLUMN", value_parser = PossibleValuesParser::new(COLUMNS.map(|(name, _)| name)))]
    sort: Option<String>,
    /// write each connection as a line of JSON
    #[arg(short, long)]
    json: bool,
}

/// The columns: their names, which are the keys of the server except `does`, and
/// their widths, negative if the text stands at the left.
const COLUMNS: [(&str, i8); 10] = [
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

/// How many connections are kept in memory to be sorted.
const MOST: usize = 10_000;

impl Run for Clients {
    fn run(self, invocation: &Invocation) -> Outcome {
        let mut client = invocation.connect()?;
        let patterns = self.tubes.patterns();
        let mut table = Table {
            output: Output::new(),
            is_json: self.json,
            left: self.count.map_or(usize::MAX, NonZeroUsize::get),
            has_rows: false,
        };
        let (mut kept, mut left_out) = (Vec::new(), 0);
        let is_listed = connections(&mut client, |mut page| {
            page.retain(|one| {
                let tube = <TubeName as Parse>::parse(one.text("tube"));
                tube.is_ok_and(|tube| patterns.mean(&tube))
            });
            let Some(column) = &self.sort else {
                page.iter().try_for_each(|one| table.row(one))?;
                return Ok(table.left > 0);
            };
            kept.extend(page);
            kept.sort_by_cached_key(|one| (Reverse(one.number(column)), text(column, one)));
            left_out += kept.len().saturating_sub(MOST);
            kept.truncate(MOST);
            Ok(true)
        })?;
        if !is_listed {
            let [all, put, work, wait] = client.server_stats()?.connections();
            return Failure::refused(format!(
                "this server does not list its connections: it has {all}; {put} have put, \
                 {work} have reserved, {wait} wait"
            ));
        }
        kept.iter().try_for_each(|one| table.row(one))?;
        table.output.sync()?;
        if left_out > 0 && table.left > 0 {
            complain!("{left_out} more connections are not shown");
        }
        Ok(Status::done_if(table.has_rows))
    }
}

struct Table {
    output: Output,
    is_json: bool,
    /// How many more rows are wanted.
    left: usize,
    has_rows: bool,
}

impl Table {
    fn row(&mut self, one: &Facts) -> Outcome<()> {
        if self.left == 0 {
            return Ok(());
        }
        self.left -= 1;
        let is_first = !std::mem::replace(&mut self.has_rows, true);
        if self.is_json {
            return self.output.json(&one.to_json());
        }
        if is_first {
            self.output.line(line(|name| name.to_uppercase()))?;
        }
        self.output.line(line(|name| text(name, one)))
    }
}

fn line(text: impl Fn(&str) -> String) -> String {
    let cells = COLUMNS.map(|(name, width)| {
        let (text, columns) = (text(name), usize::from(width.unsigned_abs()));
        match width < 0 {
            true => format!("{text:<columns$}"),
            false => format!("{text:>columns$}"),
        }
    });
    cells.join(" ")
}

fn text(column: &str, one: &Facts) -> String {
    let is = |key: &str, word| (one.text(key) == "true").then_some(word);
    match column {
        "age" | "idle" => span(one.number(column)),
        "does" => match (
            is("producer", "puts"),
            is("worker", "works"),
            is("waiting", "waits"),
        ) {
            (None, None, None) => "-".into(),
            (puts, works, waits) => {
                let does = [puts, waits.or(works)].into_iter().flatten();
                does.collect::<Vec<_>>().join(",")
            }
        },
        _ => one.text(column).into(),
    }
}
