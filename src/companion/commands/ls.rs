//! `ls` lists the jobs of a server or of some tubes, and `peek` shows the bodies of
//! some; neither touches any.

use crate::command::{Invocation, Run, Tubes, ids};
use crate::failure::{Outcome, Status};
use crate::remote::client::job;
use crate::remote::finder::each_body;
use crate::remote::form::{Bodies, job_to_json};
use crate::remote::{Client, JobFacts, Scope, State};
use crate::selection::{Conditions, state};
use crate::text::output::{Output, complain, width};
use crate::text::{beginning, row, span};
use crate::values::parse;
use beanpole::protocol::TubeName;
use clap::Args;

#[derive(Args)]
pub struct Ls {
    #[command(flatten)]
    tubes: Tubes,
    /// only jobs in this state; may be repeated (default: all)
    #[arg(long = "state", value_name = "STATE", value_parser = state(State::ALL))]
    states: Vec<State>,
    #[command(flatten)]
    conditions: Conditions,
    /// only the ids
    #[arg(short, long)]
    quiet: bool,
    /// write JSON
    #[arg(short, long, conflicts_with = "quiet")]
    json: bool,
}

/// A column: its name; its width, negative if its text is aligned to the left; and its
/// text.
type Column = (&'static str, isize, fn(&JobFacts) -> String);

// The tube is the last one: where only one tube is listed, it is left out.
#[rustfmt::skip]
static COLUMNS: [Column; 8] = [
    ("id", 9, |job| job.id.to_string()),
    ("state", -8, |job| job.state.name().into()),
    ("pri", 10, |job| job.priority.0.to_string()),
    ("age", 5, |job| span(job.age)),
    ("left", 5, left),
    ("tries", 5, |job| job.reserves.to_string()),
    ("size", 7, |job| job.all.number("size").to_string()),
    ("tube", -12, |job| job.tube.to_string()),
];

impl Run for Ls {
    fn run(self, invocation: &Invocation) -> Outcome {
        let mut client = invocation.connect()?;
        let scope = Scope {
            tubes: self.tubes.patterns().existing(&mut client)?,
            states: match self.states.as_slice() {
                [] => State::ALL.into(),
                some => some.into(),
            },
        };
        let most = self.conditions.most();
        let mut table = Table {
            ls: &self,
            columns: &COLUMNS[..COLUMNS.len() - usize::from(scope.tubes.len() == 1)],
            width: width(),
            output: Output::new(),
            has_rows: false,
        };
        let show = |client: &mut Client, jobs| table.show(client, jobs);
        let status = self.conditions.pages(&mut client, &scope, most, show)?;
        table.output.sync()?;
        Ok(Status::done_if(status == Status::Done && table.has_rows))
    }
}

/// What is left of the delay of a delayed job, or of the time to run of a
/// reserved one.
fn left(job: &JobFacts) -> String {
    match job.state {
        State::Delayed | State::Reserved => span(job.time_left.0.into()),
        _ => "-".into(),
    }
}

/// The rows, in one of three forms: a table, ids, or JSON.
struct Table<'a> {
    ls: &'a Ls,
    columns: &'static [Column],
    /// How many characters a line may have; into a pipe, as many as there are.
    width: Option<usize>,
    output: Output,
    has_rows: bool,
}

impl Table<'_> {
    fn show(&mut self, client: &mut Client, jobs: Vec<JobFacts>) -> Outcome<()> {
        if self.ls.quiet {
            self.has_rows |= !jobs.is_empty();
            return jobs.iter().try_for_each(|job| self.output.line(job.id));
        }
        each_body(client, jobs, |job, body| self.row(job, &body))
    }

    fn row(&mut self, mut job: JobFacts, body: &[u8]) -> Outcome<()> {
        let is_first = !std::mem::replace(&mut self.has_rows, true);
        job.all.add_missing("size", body.len());
        if self.ls.json {
            let json = job_to_json(job.id, Some(&job.all), body);
            return self.output.json(&json);
        }
        if is_first {
            let titles = self.columns(|(name, ..)| name.to_uppercase());
            self.output.line(titles + "BODY")?;
        }
        let facts = self.columns(|(.., text)| text(&job)) + &job.note();
        let used = facts.chars().count();
        let width = self.width.map(|width| width.saturating_sub(used));
        self.output.line(facts + &beginning(body, width))
    }

    /// A line up to the body.
    fn columns(&self, text: impl Fn(&Column) -> String) -> String {
        let cells = self.columns.iter();
        row(cells.map(|column| (text(column), column.1))) + " "
    }
}

#[derive(Args)]
pub struct Peek {
    #[arg(value_name = "ID|-", conflicts_with_all = ["tube", "state"])]
    ids: Vec<String>,
    /// the tube (default: default)
    #[arg(short, long, value_name = "TUBE", value_parser = parse::<TubeName>)]
    tube: Option<TubeName>,
    /// its next job in this state (default: ready)
    #[arg(long, value_name = "STATE", value_parser = state(State::FREE))]
    state: Option<State>,
    #[command(flatten)]
    bodies: Bodies,
}

impl Run for Peek {
    fn run(self, invocation: &Invocation) -> Outcome {
        let state = self.state.unwrap_or(State::Ready);
        let lines = match self.ids.as_slice() {
            [] => vec![format!("peek-{}", state.name())],
            some => ids(some)?.iter().map(|id| format!("peek {id}")).collect(),
        };
        let mut client = invocation.connect()?;
        if self.ids.is_empty() {
            let tube = self.tube.unwrap_or_default();
            // To use the tube would create it, so this comes first.
            client.known_tube(&tube)?;
            client.use_tube(&tube)?;
        }
        let (mut output, mut all) = (Output::new(), true);
        for line in lines {
            let reply = client.call(&line)?;
            let Some(mut job) = job(&line, reply)? else {
                all = false;
                if let Some(id) = line.strip_prefix("peek ") {
                    complain!("there is no job {id}");
                }
                continue;
            };
            if self.bodies.json {
                let facts = client.facts(&format!("stats-job {}", job.id))?;
                job.facts = facts.map(Box::new);
            }
            self.bodies.write(&mut output, &job)?;
        }
        output.sync()?;
        Ok(Status::done_if(all))
    }
}
