//! `peek`: shows jobs and leaves them where they are.

use crate::command::{Bodies, Invocation, Run, ids};
use crate::failure::{Failure, Outcome, Status};
use crate::server::client::{self, Client};
use crate::server::finder::{first, near};
use crate::server::form::Form;
use crate::server::reply::Job;
use crate::server::stats::State;
use crate::text::output::{Output, complain};
use crate::values::parse;
use beanpole::protocol::{JobId, TubeName};
use clap::Args;
use std::num::NonZeroU64;

#[derive(Args)]
pub struct Peek {
    #[arg(value_name = "ID|-")]
    ids: Vec<String>,
    #[command(flatten)]
    next: Next,
    #[command(flatten)]
    bodies: Bodies,
}

#[derive(Args)]
#[group(multiple = true, conflicts_with = "ids")]
struct Next {
    /// the tube (default: default)
    #[arg(short, long, value_name = "TUBE", value_parser = parse::<TubeName>)]
    tube: Option<TubeName>,
    /// the next ready job of the tube (the default)
    #[arg(long)]
    ready: bool,
    /// the delayed job with the shortest delay left
    #[arg(long, conflicts_with = "ready")]
    delayed: bool,
    /// the buried job that would be kicked first
    #[arg(long, conflicts_with_all = ["ready", "delayed"])]
    buried: bool,
    /// show N jobs (default: 1)
    #[arg(short = 'n', long, value_name = "N", value_parser = parse::<NonZeroU64>)]
    count: Option<NonZeroU64>,
}

/// The search for more jobs ends after this many ids in a row without one.
const PATIENCE: u64 = 100_000;

impl Run for Peek {
    fn run(self, invocation: &Invocation) -> Outcome {
        let Next {
            tube,
            delayed,
            buried,
            count,
            ..
        } = self.next;
        let state = match (delayed, buried) {
            (true, _) => State::Delayed,
            (_, true) => State::Buried,
            _ => State::Ready,
        };
        let ids = match self.ids.as_slice() {
            [] => Vec::new(),
            some => ids(some)?,
        };
        let mut show = Show {
            client: invocation.connect()?,
            form: self.bodies.form(),
            has_titles: false,
            output: Output::new(),
        };
        let mut all = true;
        for id in ids {
            if !show.by_id(id)? {
                all = false;
                complain!("{}", Failure::no_job(id));
            }
        }
        if self.ids.is_empty() {
            let tube = tube.unwrap_or_default();
            // To look would create the tube by using it, so this comes first.
            show.client.known_tube(&tube)?;
            all = show.next(&tube, state, count.map_or(1, NonZeroU64::get))?;
        }
        show.output.sync()?;
        Ok(Status::done_if(all))
    }
}

/// A connection, and the form in which jobs are shown.
struct Show {
    client: Client,
    form: Form,
    has_titles: bool,
    output: Output,
}

impl Show {
    /// Shows up to `count` jobs of a tube. Returns whether there was any.
    fn next(&mut self, tube: &TubeName, state: State, count: u64) -> Outcome<bool> {
        if count == 1 {
            let first = first(&mut self.client, tube, state)?;
            first.iter().try_for_each(|job| self.job(job))?;
            return Ok(first.is_some());
        }
        // Bodies alone would not show where each ends and to which job it
        // belongs.
        if self.form == Form::Exact {
            (self.form, self.has_titles) = (Form::Ended(b'\n'), true);
        }
        let mut any = false;
        let count = usize::try_from(count).unwrap_or(usize::MAX);
        for job in near(&mut self.client, tube, state, count, PATIENCE)? {
            any |= self.by_id(job.id)?;
        }
        Ok(any)
    }

    /// Shows the job with this id. Returns whether it exists.
    fn by_id(&mut self, id: JobId) -> Outcome<bool> {
        let line = format!("peek {id}");
        let reply = self.client.call(&line)?;
        let Some(job) = client::job(line, reply)? else {
            return Ok(false);
        };
        if self.has_titles {
            let size = job.body.len();
            self.output.line(format_args!("job {id}, {size} bytes:"))?;
        }
        self.job(&job).map(|()| true)
    }

    fn job(&mut self, job: &Job) -> Outcome<()> {
        let facts = match self.form {
            Form::Json => self.client.facts(&format!("stats-job {}", job.id))?,
            _ => None,
        };
        self.form.write(&mut self.output, job, facts.as_ref())
    }
}
