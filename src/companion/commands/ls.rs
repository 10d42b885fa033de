//! `ls`: lists the jobs of a server or of some tubes, without touching any.

use crate::command::{Invocation, Run, Tubes};
use crate::failure::{Outcome, Status};
use crate::jobs::Conditions;
use crate::server::client::Client;
use crate::server::finder::each_body;
use crate::server::form::job_to_json;
use crate::server::stats::{JobFacts, State};
use crate::text::output::{Output, width};
use crate::text::{beginning, span};
use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser};

#[derive(Args)]
pub struct Ls {
    #[command(flatten)]
    tubes: Tubes,
    #[command(flatten)]
    conditions: Conditions,
    #[command(flatten)]
    form: Form,
}

#[derive(Args)]
struct Form {
    /// only the ids
    #[arg(short, long)]
    quiet: bool,
    /// write JSON
    #[arg(short, long, conflicts_with = "quiet")]
    json: bool,
    /// sort by this column (default: id)
    #[arg(short, long, value_name = "COLUMN", value_parser = column())]
    sort: Option<&'static Column>,
}

fn column() -> impl TypedValueParser<Value = &'static Column> {
    let names = PossibleValuesParser::new(COLUMNS.iter().map(|(name, ..)| *name));
    let named = |name: String| COLUMNS.iter().find(|(known, ..)| *known == name);
    names.map(move |name| named(name).expect("it is one of these"))
}

/// A column: its name; its width, negative if its text stands at the left; its
/// text; and by what to sort, so that jobs that stand out come first: the most
/// urgent, the oldest, the largest, those with the most tries and the least time
/// left. Without that, the text is sorted.
type Column = (
    &'static str,
    i8,
    fn(&JobFacts) -> String,
    Option<fn(&JobFacts) -> u64>,
);

#[rustfmt::skip]
static COLUMNS: [Column; 8] = [
    ("id", 9, |job| job.id.to_string(), Some(|job| job.id.0)),
    ("state", -8, |job| job.state.name().into(), None),
    ("pri", 10, |job| job.priority.0.to_string(), Some(|job| job.priority.0.into())),
    ("age", 5, |job| span(job.age), Some(|job| !job.age)),
    ("left", 5, |job| left(job).map_or("-".into(), span), Some(|job| left(job).unwrap_or(u64::MAX))),
    ("tries", 5, |job| job.reserves.to_string(), Some(|job| !job.reserves)),
    ("size", 7, |job| job.all.number("size").to_string(), Some(|job| !job.all.number("size"))),
    ("tube", -12, |job| job.tube.to_string(), None),
];

impl Run for Ls {
    fn run(self, invocation: &Invocation) -> Outcome {
        let mut client = invocation.connect()?;
        let tubes = self.tubes.patterns();
        let mut selection = self.conditions.of(&mut client, &tubes)?;
        let mut table = Table {
            form: &self.form,
            has_tubes: selection.scope.tubes.len() != 1,
            width: width(),
            output: Output::new(),
            has_rows: false,
        };
        let (name, _, text, order) = self.form.sort.unwrap_or(&COLUMNS[0]);
        let status = match *name {
            "id" => selection.pages(&mut client, |client, jobs| table.show(client, jobs))?,
            _ => {
                // The first ones of all that are sorted are wanted.
                let most = std::mem::replace(&mut selection.most, usize::MAX);
                let mut all = Vec::new();
                let status = selection.pages(&mut client, |client, mut jobs| {
                    if *name == "size" {
                        measure(client, &mut jobs)?;
                    }
                    all.extend(jobs);
                    Ok(())
                })?;
                all.sort_by_cached_key(|job| match order {
                    Some(order) => (order(job), String::new()),
                    None => (0, text(job)),
                });
                all.truncate(most);
                table.show(&mut client, all)?;
                status
            }
        };
        table.output.sync()?;
        Ok(Status::done_if(status == Status::Done && table.has_rows))
    }
}

/// Adds to these jobs how large their bodies are, unless the server has told it.
fn measure(client: &mut Client, jobs: &mut [JobFacts]) -> Outcome<()> {
    let unknown = jobs.iter_mut().filter(|job| job.all.get("size").is_none());
    each_body(client, unknown, |job, body| {
        job.all.add_missing("size", body.len());
        Ok(())
    })
}

/// What is left of the delay of a delayed job, or of the time to run of a
/// reserved one.
fn left(job: &JobFacts) -> Option<u64> {
    let has = matches!(job.state, State::Delayed | State::Reserved);
    has.then_some(job.time_left.0.into())
}

/// The rows, in one of three forms: a table, ids, or JSON.
struct Table<'a> {
    form: &'a Form,
    /// Whether there is a column for the tube: not if exactly one tube is
    /// named.
    has_tubes: bool,
    /// How many characters a line may have; into a pipe, as many as there are.
    width: Option<usize>,
    output: Output,
    has_rows: bool,
}

impl Table<'_> {
    fn show(&mut self, client: &mut Client, jobs: Vec<JobFacts>) -> Outcome<()> {
        if self.form.quiet {
            self.has_rows |= !jobs.is_empty();
            return jobs.iter().try_for_each(|job| self.output.line(job.id));
        }
        each_body(client, jobs, |job, body| self.row(job, &body))
    }

    fn row(&mut self, mut job: JobFacts, body: &[u8]) -> Outcome<()> {
        let is_first = !std::mem::replace(&mut self.has_rows, true);
        job.all.add_missing("size", body.len());
        if self.form.json {
            let json = job_to_json(job.id, Some(&job.all), body);
            return self.output.json(&json);
        }
        if is_first {
            let titles = self.columns(|(name, ..)| name.to_uppercase());
            self.output.line(titles + "BODY")?;
        }
        let facts = self.columns(|(_, _, text, _)| text(&job)) + &job.note();
        let used = facts.chars().count();
        let width = self.width.map(|width| width.saturating_sub(used));
        self.output.line(facts + &beginning(body, width))
    }

    /// A line up to the body.
    fn columns(&self, text: impl Fn(&Column) -> String) -> String {
        let mut line = String::new();
        for column in COLUMNS
            .iter()
            .filter(|(name, ..)| *name != "tube" || self.has_tubes)
        {
            let (text, width) = (text(column), usize::from(column.1.unsigned_abs()));
            line += &match column.1 < 0 {
                true => format!("{text:<width$} "),
                false => format!("{text:>width$} "),
            };
            if ["size", "tube"].contains(&column.0) {
                line.push(' ');
            }
        }
        line
    }
}
