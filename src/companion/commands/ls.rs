//! `ls` lists the jobs of a server or of some tubes, and `peek` shows the bodies of
//! some; neither touches any.

use crate::command::{Invocation, Run, Tubes, ids};
use crate::failure::{Outcome, Status};
use crate::remote::facts::{FREE, states};
use crate::remote::finder::each_body;
use crate::remote::form::{Bodies, job_line, job_titles, job_to_json};
use crate::remote::{Reply, Scope, State};
use crate::selection::{Conditions, state};
use crate::text::output::{Output, complain, width};
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

impl Run for Ls {
    fn run(self, invocation: &Invocation) -> Outcome {
        let mut client = invocation.connect()?;
        let tubes = self.tubes.patterns().existing(&mut client)?;
        let scope = Scope::of(tubes, states(State::ALL, &self.states));
        let is_of_one = scope.tubes.len() == 1;
        // Into a pipe, a line has as many characters as there are.
        let width = width();
        let (mut output, mut has_rows) = (Output::new(), false);
        let conditions = &self.conditions;
        let pages = conditions.pages(&mut client, &scope, |client, jobs| {
            if self.quiet {
                has_rows |= !jobs.is_empty();
                return jobs.iter().try_for_each(|job| output.line(job.id));
            }
            each_body(client, jobs, |mut job, found| {
                let is_first = !std::mem::replace(&mut has_rows, true);
                if self.json {
                    job.all.add_missing("size", found.size);
                    return output.json(&job_to_json(job.id, Some(&job.all), &found.body));
                }
                if is_first {
                    output.line(job_titles(is_of_one))?;
                }
                output.line(job_line(&job, &found, is_of_one, width))
            })
        });
        let status = pages?;
        output.sync()?;
        Ok(Status::done_if(status == Status::Done && has_rows))
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
    #[arg(long, value_name = "STATE", value_parser = state(FREE))]
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
            let Some(mut job) = client.ask(&line, Reply::job)? else {
                all = false;
                if let Some(id) = line.strip_prefix("peek ") {
                    complain!("there is no job {id}");
                }
                continue;
            };
            if self.bodies.json {
                job.facts = client.job(job.id)?.map(Box::new);
            }
            self.bodies.write(&mut output, &job)?;
        }
        output.sync()?;
        Ok(Status::done_if(all))
    }
}
