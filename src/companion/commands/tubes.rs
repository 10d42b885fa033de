//! `tubes`: a table of the tubes.

use crate::command::{Command, Invocation, JSON, Kind, Opt, at_most_one, described, options};
use crate::failure::{Failure, Outcome, Status};
use crate::server::columns::Column;
use crate::server::stats::Facts;
use crate::server::tubes::stats_of;
use crate::text::json::{self, Json};
use crate::text::output::print;
use beanpole::protocol::TubeName;

pub const TUBES: Command = Command {
    name: "tubes",
    operands: "[TUBE…]",
    operand_kind: Kind::Tube,
    about: "list the tubes and what is in them",
    options: || described(OPTIONS),
    run: tubes,
    ..Command::BLANK
};

options! {
    sort: Column =
        Opt::value("s", "sort", "COLUMN", "sort by this column, the most first (default: tube)"),
    names: bool = Opt::flag("", "names", "only the names"),
    json: bool = JSON,
}

/// The columns after the name of the tube.
const COLUMNS: [Column; 9] = {
    use Column::*;
    [
        Ready, Reserved, Delayed, Buried, Total, Using, Watching, Waiting, Pause,
    ]
};

fn tubes(invocation: &Invocation) -> Outcome {
    let options = invocation.read(OPTIONS)?;
    let patterns = invocation.tubes()?;
    at_most_one(&[("json", options.json), ("names", options.names)])?;
    let sort = options.sort;
    if sort != Column::Tube && !COLUMNS.contains(&sort) {
        return Failure::usage(format!("--sort: there is no column '{}'", sort.name()));
    }
    let mut client = invocation.connect()?;
    let mut names = client.tubes()?;
    names.retain(|name| patterns.mean(name));
    let all = !names.is_empty() || patterns.0.is_empty();
    if options.names {
        print(names.iter().map(|name| format!("{name}\n")).collect())?;
        return Ok(Status::done_if(all));
    }
    let mut facts = stats_of(&mut client, &names)?;
    let key = sort.key();
    facts.sort_by_key(|(_, facts)| std::cmp::Reverse(facts.number(key)));
    if options.json {
        let list = facts
            .iter()
            .map(|(_, facts)| facts.to_json())
            .collect::<Json>();
        print(json::line(&list) + "\n")?;
        return Ok(Status::done_if(all));
    }
    print(table(&facts))?;
    Ok(Status::done_if(all))
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
            text += &format!("  {:>8}", facts.number(column.key()));
        }
        text.push('\n');
    }
    text
}
