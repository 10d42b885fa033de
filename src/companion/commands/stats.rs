//! `stats` shows the statistics of a server, of tubes or of a job, and `tubes` those of
//! tubes as a table.

use crate::command::{Invocation, Run, Tubes, word};
use crate::failure::{Failure, Outcome, Status};
use crate::server::client::Client;
use crate::server::stats::Facts;
use crate::server::tubes::{Column, Patterns, stats_of};
use crate::text::json::Json;
use crate::values::parse;
use beanpole::protocol::{JobId, TubeName};
use clap::Args;
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
    #[arg(short, long, value_name = "COLUMN", value_parser = parse::<Column>)]
    sort: Option<Column>,
    /// only the names
    #[arg(long)]
    names: bool,
    /// write JSON
    #[arg(short, long, conflicts_with = "names")]
    json: bool,
}

enum About {
    Server,
    Tubes(Patterns),
    Job(JobId),
}

impl Run for Stats {
    const MANY_SERVERS: bool = true;

    fn run(self, invocation: &Invocation) -> Outcome {
        let patterns = self.tubes.patterns();
        let about = match patterns.0.as_slice() {
            [] => About::Server,
            [job, id] if job.text() == "job" => About::Job(word(id.text())?),
            _ => About::Tubes(patterns),
        };
        let (found, outcome) = invocation.ask_each(|client| ask(client, &about))?;
        let to_json = |found: &Vec<Facts>| match found.as_slice() {
            [only] => only.to_json(),
            several => several.iter().map(Facts::to_json).collect::<Json>(),
        };
        let to_text = |found: &Vec<Facts>| found.iter().map(lines).collect::<Vec<_>>().join("\n");
        invocation.show(self.json, found, to_json, to_text)?;
        outcome
    }
}

fn ask(client: &mut Client, about: &About) -> Outcome<Vec<Facts>> {
    Ok(match about {
        About::Server => vec![client.server_stats()?],
        About::Tubes(patterns) => {
            let tubes = patterns.existing(client)?;
            let all = stats_of(client, &tubes)?.into_iter();
            all.map(|(_, facts)| facts).collect()
        }
        About::Job(id) => {
            let facts = client.facts(&format!("stats-job {id}"))?;
            vec![facts.ok_or_else(|| Failure::no_job(*id))?]
        }
    })
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

/// The columns after the name of the tube.
const COLUMNS: [Column; 9] = {
    use Column::*;
    [
        Ready, Reserved, Delayed, Buried, Total, Using, Watching, Waiting, Pause,
    ]
};

impl Run for List {
    const MANY_SERVERS: bool = true;

    fn run(self, invocation: &Invocation) -> Outcome {
        let patterns = self.tubes.patterns();
        let sort = self.sort.unwrap_or(Column::Tube);
        if sort != Column::Tube && !COLUMNS.contains(&sort) {
            return Failure::usage(format!("--sort: there is no column '{}'", sort.name()));
        }
        let (mut found, outcome) = invocation.ask_each(|client| {
            let mut names = client.tubes()?;
            names.retain(|name| patterns.mean(name));
            match self.names {
                true => Ok(names
                    .into_iter()
                    .map(|name| (name, Facts::default()))
                    .collect()),
                false => stats_of(client, &names),
            }
        })?;
        let any = found.iter().any(|(_, tubes)| !tubes.is_empty());
        for (_, tubes) in &mut found {
            tubes.sort_by_key(|(_, facts)| Reverse(figure(sort, facts)));
        }
        let to_json = |tubes: &Found| tubes.iter().map(|(_, facts)| facts.to_json()).collect();
        let to_text = |tubes: &Found| {
            if self.names {
                names(tubes)
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

fn names(tubes: &[(TubeName, Facts)]) -> String {
    tubes.iter().map(|(name, _)| format!("{name}\n")).collect()
}

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
    let width = width.unwrap_or(0).max(4);
    let mut text = format!("{:<width$}", "TUBE");
    for column in COLUMNS {
        text += &format!("  {:>8}", column.name().to_uppercase());
    }
    text.push('\n');
    for (name, facts) in facts {
        text += &format!("{:<width$}", name.as_str());
        for column in COLUMNS {
            text += &format!("  {:>8}", figure(column, facts));
        }
        text.push('\n');
    }
    text
}
