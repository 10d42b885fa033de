//! `tubes`: a table of the tubes.

use crate::command::{Command, Invocation, JSON, Opt, YAML, at_most_one, described, options};
use crate::failure::Outcome;
use crate::server::stats::Facts;
use crate::server::tubes::stats_of;
use crate::text::json::Json;
use crate::text::output::print;
use crate::text::yaml::print_as;
use beanpole::protocol::TubeName;

pub const TUBES: Command = Command {
    name: "tubes",
    about: "list the tubes and what is in them",
    options: || described(OPTIONS),
    run: tubes,
    ..Command::BLANK
};

options! {
    names: bool = Opt::flag("", "names", "only the names"),
    json: bool = JSON,
    yaml: bool = YAML,
}

/// The columns of the table: each has a title and a key of `stats-tube`.
const COLUMNS: &[(&str, &str)] = &[
    ("READY", "current-jobs-ready"),
    ("RESERVED", "current-jobs-reserved"),
    ("DELAYED", "current-jobs-delayed"),
    ("BURIED", "current-jobs-buried"),
    ("TOTAL", "total-jobs"),
    ("USING", "current-using"),
    ("WATCHING", "current-watching"),
    ("WAITING", "current-waiting"),
    ("PAUSE", "pause-time-left"),
];

fn tubes(invocation: &Invocation) -> Outcome {
    let options = invocation.read(OPTIONS)?;
    invocation.no_operands()?;
    at_most_one(&[
        ("json", options.json),
        ("yaml", options.yaml),
        ("names", options.names),
    ])?;
    let mut client = invocation.connect()?;
    let names = client.tubes()?;
    if options.names {
        return print(names.iter().map(|name| format!("{name}\n")).collect());
    }
    let facts = stats_of(&mut client, &names)?;
    if options.json || options.yaml {
        let list = Json::Array(facts.iter().map(|(_, facts)| facts.to_json()).collect());
        return print_as(&list, options.yaml);
    }
    print(table(&facts))
}

/// The column of names has room for names up to this length. A longer name
/// moves only the figures of its own row to the right.
const LONGEST: usize = 40;

fn table(facts: &[(TubeName, Facts)]) -> String {
    let widths = facts.iter().map(|(name, _)| name.as_str().len());
    let width = widths.filter(|width| *width <= LONGEST).max();
    let width = width.unwrap_or(0).max(4);
    let mut text = format!("{:<width$}", "TUBE");
    for (title, _) in COLUMNS {
        text += &format!("  {title:>8}");
    }
    text.push('\n');
    for (name, facts) in facts {
        text += &format!("{:<width$}", name.as_str());
        for (_, key) in COLUMNS {
            text += &format!("  {:>8}", facts.number(key));
        }
        text.push('\n');
    }
    text
}
