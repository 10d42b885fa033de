//! `ls` lists the jobs of a server or of some tubes, and `peek` shows the bodies of
//! some; neither touches any.

use crate::command::{Bodies, Invocation, Run, Tubes, ids};
use crate::failure::{Failure, Outcome, Status};
use crate::jobs::Conditions;
use crate::server::client::{Client, job};
use crate::server::finder::{each_body, first};
use crate::server::form::{Form, job_to_json};
use crate::server::reply::Job;
use crate::server::stats::{JobFacts, State};
use crate::text::output::{Output, complain, width};
use crate::text::{beginning, span};
use crate::values::parse;
use beanpole::protocol::TubeName;
use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser};

#[derive(Args)]
pub struct Ls {
    #[command(flatten)]
    tubes: Tubes,
    #[command(flatten)]
    conditions: Conditions,
    #[command(flatten)]
    rows: Rows,
}

#[derive(Args)]
struct Rows {
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
            rows: &self.rows,
            has_tubes: selection.scope.tubes.len() != 1,
            width: width(),
            output: Output::new(),
            has_rows: false,
        };
        let (name, _, text, order) = self.rows.sort.unwrap_or(&COLUMNS[0]);
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
    rows: &'a Rows,
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
        if self.rows.quiet {
            self.has_rows |= !jobs.is_empty();
            return jobs.iter().try_for_each(|job| self.output.line(job.id));
        }
        each_body(client, jobs, |job, body| self.row(job, &body))
    }

    fn row(&mut self, mut job: JobFacts, body: &[u8]) -> Outcome<()> {
        let is_first = !std::mem::replace(&mut self.has_rows, true);
        job.all.add_missing("size", body.len());
        if self.rows.json {
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

#[derive(Args)]
pub struct Peek {
    #[arg(value_name = "ID|-", conflicts_with_all = ["tube", "state"])]
    ids: Vec<String>,
    /// the tube (default: default)
    #[arg(short, long, value_name = "TUBE", value_parser = parse::<TubeName>)]
    tube: Option<TubeName>,
    /// the next ready job of the tube (the default)
    #[arg(long, group = "state")]
    ready: bool,
    /// the delayed job with the shortest delay left
    #[arg(long, group = "state")]
    delayed: bool,
    /// the buried job that would be kicked first
    #[arg(long, group = "state")]
    buried: bool,
    #[command(flatten)]
    bodies: Bodies,
}

impl Run for Peek {
    fn run(self, invocation: &Invocation) -> Outcome {
        let named = match self.ids.as_slice() {
            [] => None,
            some => Some(ids(some)?),
        };
        let mut client = invocation.connect()?;
        let (form, mut output) = (self.bodies.form(), Output::new());
        let mut show = |client: &mut Client, job: &Job| {
            let facts = match form {
                Form::Json => client.facts(&format!("stats-job {}", job.id))?,
                _ => None,
            };
            form.write(&mut output, job, facts.as_ref())
        };
        let mut all = true;
        if named.is_none() {
            let state = match (self.delayed, self.buried) {
                (true, _) => State::Delayed,
                (_, true) => State::Buried,
                _ => State::Ready,
            };
            let tube = self.tube.unwrap_or_default();
            // To look would create the tube by using it, so this comes first.
            client.known_tube(&tube)?;
            let next = first(&mut client, &tube, state)?;
            next.iter().try_for_each(|job| show(&mut client, job))?;
            all = next.is_some();
        }
        for id in named.into_iter().flatten() {
            let line = format!("peek {id}");
            let reply = client.call(&line)?;
            match job(&line, reply)? {
                Some(job) => show(&mut client, &job)?,
                None => {
                    all = false;
                    complain!("{}", Failure::no_job(id));
                }
            }
        }
        output.sync()?;
        Ok(Status::done_if(all))
    }
}
