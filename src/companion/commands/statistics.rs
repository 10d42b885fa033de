//! What a server tells of itself: `stats` shows its statistics, those of tubes or those of
//! a job, `tubes` is a table of the tubes, and `clients` one of the connections: who puts,
//! who works, who waits, and how much.

use crate::command::{Invocation, Run, Tubes, word};
use crate::failure::{Failure, Outcome, Status};
use crate::remote::client_list;
use crate::remote::tubes::{column_of, stats_of};
use crate::remote::{Client, Column, Facts, Known, Pattern, Server};
use crate::text::{Output, complain, row};
use crate::values::{Count, Parse, parse};
use beanpole::protocol::{JobId, TubeName};
use clap::Args;
use clap::builder::PossibleValuesParser;
use serde::{Serialize, Serializer};
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
    /// only tubes in trouble: 'why' says in which
    #[arg(long)]
    trouble: bool,
    /// write JSON
    #[arg(short, long)]
    json: bool,
}

impl Run for Stats {
    fn run(self, invocation: &Invocation) -> Outcome {
        let patterns = self.tubes.patterns();
        // What comes after -t is always a tube.
        let job: Option<JobId> = match self.tubes.operands.as_slice() {
            [job, id] if patterns.0.len() == 2 && job.text() == "job" => Some(word(id.text())?),
            _ => None,
        };
        let ask = |client: &mut Client| {
            if let Some(id) = job {
                let job = client.job(id)?.ok_or_else(|| Failure::no_job(id))?;
                return Ok(Documents(vec![job.all]));
            }
            if patterns.0.is_empty() {
                return Ok(Documents(vec![client.server_stats()?]));
            }
            patterns.existing(client).map_err(|failure| {
                let mut texts = patterns.0.iter().map(Pattern::text);
                match texts.find(|text| word::<JobId>(text).is_ok()) {
                    Some(id) => failure.with(format_args!("'stats job {id}' is for a job")),
                    None => failure,
                }
            })?;
            let all = stats_of(client, &patterns)?.into_iter();
            Ok(Documents(all.map(|(_, facts)| facts).collect()))
        };
        let to_text =
            |Documents(all): &Documents| all.iter().map(lines).collect::<Vec<_>>().join("\n");
        invocation.show_each(self.json, ask, to_text)?;
        Ok(Status::Done)
    }
}

/// Statistics. In JSON they are a list, unless they are of one thing.
struct Documents(Vec<Facts>);

impl Serialize for Documents {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match self.0.as_slice() {
            [only] => only.serialize(to),
            all => all.serialize(to),
        }
    }
}

/// One line for each key.
fn lines(facts: &Facts) -> String {
    let widths = facts.iter().map(|(key, _)| key.len());
    // A format takes no width above 65535.
    let width = widths.max().unwrap_or(0).min(200);
    let line = |(key, value)| format!("{key:<width$}  {value}\n");
    facts.iter().map(line).collect()
}

/// The columns.
const COLUMNS: [Column; 10] = {
    use Column::*;
    [
        Tube, Ready, Reserved, Delayed, Buried, Total, Using, Watching, Waiting, Pause,
    ]
};

impl Run for List {
    fn run(self, invocation: &Invocation) -> Outcome {
        let patterns = self.tubes.patterns();
        let ask = |client: &mut Client| {
            let mut tubes: Vec<Facts> = if self.trouble {
                let known = Known::of(client, true)?.tubes.into_iter();
                let wanted =
                    known.filter(|(name, tube)| patterns.mean(name) && tube.severity() > 0);
                wanted.map(|(_, tube)| tube.counted.facts).collect()
            } else {
                let all = stats_of(client, &patterns)?.into_iter();
                all.map(|(_, facts)| facts).collect()
            };
            if let Some(sort) = self.sort {
                tubes.sort_by_cached_key(|facts| Reverse(figure(sort, facts)));
            }
            Ok(tubes)
        };
        let found = invocation.show_each(self.json, ask, |tubes| table(tubes))?;
        let any = found.iter().any(|tubes| !tubes.is_empty());
        if !any && !patterns.0.is_empty() && !self.trouble {
            complain!("there is no such tube");
        }
        Ok(Status::done_if(any || patterns.0.is_empty()))
    }
}

/// A figure of a tube, without the connection that asks.
fn figure(column: Column, facts: &Facts) -> u64 {
    match column {
        Column::Watching | Column::Using => facts.others(column.key()),
        _ => facts.number(column.key()),
    }
}

/// The column of names has room for names up to this length. A longer name
/// moves only the figures of its own row to the right.
const LONGEST: usize = 40;

fn table(tubes: &[Facts]) -> String {
    let widths = tubes.iter().map(|facts| facts.text("name").len());
    let longest = widths.filter(|width| *width <= LONGEST).max();
    let width = longest.unwrap_or(0).max(4) as isize;
    let width = |column| if column == Column::Tube { -width } else { 9 };
    let line = |cell: &dyn Fn(Column) -> String| {
        row(COLUMNS.map(|column| (cell(column), width(column)))) + "\n"
    };
    let mut text = line(&|column| column.name().to_uppercase());
    for facts in tubes {
        text += &line(&|column| match column {
            Column::Tube => facts.text("name").into(),
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
    #[arg(short, long, value_name = "COLUMN", value_parser = PossibleValuesParser::new(client_list::COLUMNS.map(|(name, _)| name)))]
    sort: Option<String>,
    /// write each connection as a line of JSON
    #[arg(short, long)]
    json: bool,
    /// close the connection with this number; may be repeated (default: list)
    #[arg(long = "close", value_name = "ID", value_parser = parse::<u64>, conflicts_with_all = ["operands", "tubes", "count", "sort", "json"])]
    closed: Vec<u64>,
}

impl Run for Clients {
    fn run(self, invocation: &Invocation) -> Outcome {
        let mut client = invocation.connect()?;
        if !self.closed.is_empty() {
            invocation.servers.iter().for_each(Server::warn);
            let mut all = true;
            for id in self.closed {
                if !client_list::close(&mut client, id)? {
                    all = false;
                    complain!("there is no connection {id}");
                }
            }
            return Ok(Status::done_if(all));
        }
        let mut found = client_list::sorted(&mut client, self.sort.as_deref())?;
        let patterns = self.tubes.patterns();
        patterns.existing(&mut client)?;
        found.retain(|one| {
            let tube = <TubeName as Parse>::parse(one.text("tube"));
            tube.is_ok_and(|tube| patterns.mean(&tube))
        });
        found.truncate(Count::most(self.count));
        let mut output = Output::new();
        if !self.json && !found.is_empty() {
            output.line(client_list::titles())?;
        }
        for one in &found {
            if self.json {
                output.json(one)?
            } else {
                output.line(client_list::line(one))?
            }
        }
        output.sync()?;
        Ok(Status::done_if(!found.is_empty()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_of_any_length_has_its_line() {
        let key = "k".repeat(70_000);
        let mut facts = Facts::default();
        facts.add_missing(&key, 1);
        assert_eq!(lines(&facts), format!("{key}  1\n"));
    }
}
