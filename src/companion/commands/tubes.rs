//! `tubes`: a table of the tubes.

use crate::command::{Invocation, Run, Tubes};
use crate::failure::{Failure, Outcome, Status};
use crate::server::sample::Column;
use crate::server::stats::Facts;
use crate::server::tubes::stats_of;
use crate::values::parse;
use beanpole::protocol::TubeName;
use clap::Args;
use std::cmp::Reverse;

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
