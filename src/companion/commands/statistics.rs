//! What a server tells of itself: `stats` shows its statistics, those of tubes or those of
//! a job, `tubes` is a table of the tubes, and `clients` one of the connections: who puts,
//! who works, who waits, and how much.

use crate::command::{Invocation, Run, Tubes, word};
use crate::failure::{Failure, Outcome, Status};
use crate::remote::facts::Facts;
use crate::remote::finder::connections;
use crate::remote::patterns::Pattern;
use crate::remote::tubes::{Column, column_of, stats_of};
use crate::text::json::Json;
use crate::text::output::Output;
use crate::text::{row, span};
use crate::values::{Count, Parse, parse};
use beanpole::protocol::{JobId, TubeName};
use clap::Args;
use clap::builder::PossibleValuesParser;
use std::cmp::Reverse;

#[derive(Args)]
#[command(override_usage = "beanpole stats [OPTIONS] [TUBE]... | job ID")]
pub struct Stats {
    #[command(flatten)]
    tubes: Tubes,
    /// write JSON
    #[arg(short, long)]
    json: bool,
}

#[derive(Args)]
pub struct List {
    #[command(flatten)]
    tubes: Tubes,
    /// sort by this column, the most first (default: tube)
    #[arg(short, long, value_name = "COLUMN", ignore_case = true, value_parser = column_of(&COLUMNS))]
    sort: Option<Column>,
    /// only the names
    #[arg(long)]
    names: bool,
    /// write JSON
    #[arg(short, long, conflicts_with = "names")]
    json: bool,
}

impl Run for Stats {
    const MANY_SERVERS: bool = true;

    fn run(self, invocation: &Invocation) -> Outcome {
        let patterns = self.tubes.patterns();
        let job: Option<JobId> = match patterns.0.as_slice() {
            [job, id] if job.text() == "job" => Some(word(id.text())?),
            _ => None,
        };
        let (found, outcome) = invocation.ask_each(|client| {
            if let Some(id) = job {
                let facts = client.facts(&format!("stats-job {id}"))?;
                return Ok(vec![facts.ok_or_else(|| Failure::no_job(id))?]);
            }
            if patterns.0.is_empty() {
                return Ok(vec![client.server_stats()?]);
            }
            patterns.existing(client).map_err(|failure| {
                let mut texts = patterns.0.iter().map(Pattern::text);
                match texts.find(|text| word::<JobId>(text).is_ok()) {
                    Some(id) => failure.with(format_args!("'stats job {id}' is for a job")),
                    None => failure,
                }
            })?;
            let all = stats_of(client, &patterns)?.into_iter();
            Ok(all.map(|(_, facts)| facts).collect())
        })?;
        let to_json = |found: &Vec<Facts>| match found.as_slice() {
            [only] => only.to_json(),
            several => several.iter().map(Facts::to_json).collect::<Json>(),
        };
        let to_text = |found: &Vec<Facts>| found.iter().map(lines).collect::<Vec<_>>().join("\n");
        invocation.show(self.json, found, to_json, to_text)?;
        outcome
    }
}

/// One line for each key.
fn lines(facts: &Facts) -> String {
    let widths = facts.iter().map(|(key, _)| key.len());
    let width = widths.max().unwrap_or(0) + 2;
    let lines = facts.iter();
    lines
        .map(|(key, value)| format!("{key:<width$}{value}\n"))
        .collect()
}

/// The columns.
const COLUMNS: [Column; 10] = {
    use Column::*;
    [
        Tube, Ready, Reserved, Delayed, Buried, Total, Using, Watching, Waiting, Pause,
    ]
};

impl Run for List {
    const MANY_SERVERS: bool = true;

    fn run(self, invocation: &Invocation) -> Outcome {
        let patterns = self.tubes.patterns();
        let (mut found, outcome) = invocation.ask_each(|client| {
            if !self.names {
                return stats_of(client, &patterns);
            }
            let names = client.tubes()?.into_iter();
            let meant = names.filter(|name| patterns.mean(name));
            Ok(meant.map(|name| (name, Facts::default())).collect())
        })?;
        let any = found.iter().any(|(_, tubes)| !tubes.is_empty());
        if let Some(sort) = self.sort {
            for (_, tubes) in &mut found {
                tubes.sort_by_cached_key(|(_, facts)| Reverse(figure(sort, facts)));
            }
        }
        let to_json = |tubes: &Found| tubes.iter().map(|(_, facts)| facts.to_json()).collect();
        let to_text = |tubes: &Found| {
            if self.names {
                tubes.iter().map(|(name, _)| format!("{name}\n")).collect()
            } else {
                table(tubes)
            }
        };
        invocation.show(self.json, found, to_json, to_text)?;
        outcome?;
        Ok(Status::done_if(any || patterns.0.is_empty()))
    }
}

type Found = Vec<(TubeName, Facts)>;

/// A figure of a tube, without the connection that asks: it watches and uses
/// `default`.
fn figure(column: Column, facts: &Facts) -> u64 {
    let ours = u64::from(facts.text("name") == "default");
    match column {
        Column::Watching => facts.watching(),
        Column::Using => facts.number(column.key()).saturating_sub(ours),
        _ => facts.number(column.key()),
    }
}

/// The column of names has room for names up to this length. A longer name
/// moves only the figures of its own row to the right.
const LONGEST: usize = 40;

fn table(facts: &[(TubeName, Facts)]) -> String {
    let widths = facts.iter().map(|(name, _)| name.as_str().len());
    let width = widths.filter(|width| *width <= LONGEST).max();
    let width = width.unwrap_or(0).max(4) as isize;
    let width = |column| if column == Column::Tube { -width } else { 9 };
    let line = |cell: &dyn Fn(Column) -> String| {
        row(COLUMNS.map(|column| (cell(column), width(column)))) + "\n"
    };
    let mut text = line(&|column| column.name().to_uppercase());
    for (name, facts) in facts {
        text += &line(&|column| match column {
            Column::Tube => name.to_string(),
            _ => figure(column, facts).to_string(),
        });
    }
    text
}

#[derive(Args)]
pub struct Clients {
    #[command(flatten)]
    tubes: Tubes,
    /// at most N (default: all)
    #[arg(short = 'n', long, value_name = "N", value_parser = parse::<Count>)]
    count: Option<Count>,
    /// sort by this column, the most first (default: id)
    #[arg(short, long, value_name = "COLUMN", value_parser = PossibleValuesParser::new(CLIENT_COLUMNS.map(|(name, _)| name)))]
    sort: Option<String>,
    /// write each connection as a line of JSON
    #[arg(short, long)]
    json: bool,
}

/// The columns: their names, which are the keys of the server except `does`, and
/// their widths, negative if the text is aligned to the left.
const CLIENT_COLUMNS: [(&str, isize); 10] = [
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

/// How many connections are listed at most.
const MOST_LISTED: usize = 100_000;

impl Run for Clients {
    fn run(self, invocation: &Invocation) -> Outcome {
        let mut client = invocation.connect()?;
        let Some(mut found) = connections(&mut client, MOST_LISTED)? else {
            let [all, put, work, wait] = client.server_stats()?.connections();
            return Failure::refused(format!(
                "this server does not list its connections: it has {all}; {put} have put, \
                 {work} have reserved, {wait} wait"
            ));
        };
        let patterns = self.tubes.patterns();
        found.retain(|one| {
            let tube = <TubeName as Parse>::parse(one.text("tube"));
            tube.is_ok_and(|tube| patterns.mean(&tube))
        });
        if let Some(column) = &self.sort {
            found.sort_by_cached_key(|one| (Reverse(one.number(column)), client_text(column, one)));
        }
        found.truncate(Count::most(self.count));
        let line = |text: &dyn Fn(&str) -> String| {
            row(CLIENT_COLUMNS.map(|(name, width)| (text(name), width)))
        };
        let mut output = Output::new();
        if !self.json && !found.is_empty() {
            output.line(line(&str::to_uppercase))?;
        }
        for one in &found {
            if self.json {
                output.json(&one.to_json())?
            } else {
                output.line(line(&|name| client_text(name, one)))?
            }
        }
        output.sync()?;
        Ok(Status::done_if(!found.is_empty()))
    }
}

fn client_text(column: &str, one: &Facts) -> String {
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
