//! `peek`: shows jobs and leaves them where they are.

use crate::command::{Bodies, Invocation, Run, ids};
use crate::failure::{Failure, Outcome, Status};
use crate::server::client;
use crate::server::finder::near;
use crate::server::form::Form;
use crate::server::stats::State;
use crate::text::output::{Output, complain};
use crate::values::parse;
use beanpole::protocol::TubeName;
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
        let next = self.next;
        let state = match (next.delayed, next.buried) {
            (true, _) => State::Delayed,
            (_, true) => State::Buried,
            _ => State::Ready,
        };
        let is_named = !self.ids.is_empty();
        let mut ids = match is_named {
            true => ids(&self.ids)?,
            false => Vec::new(),
        };
        let mut client = invocation.connect()?;
        let (mut form, mut has_titles) = (self.bodies.form(), false);
        if !is_named {
            let tube = next.tube.unwrap_or_default();
            // To look would create the tube by using it, so this comes first.
            client.known_tube(&tube)?;
            let count = next.count.map_or(1, NonZeroU64::get);
            let count = usize::try_from(count).unwrap_or(usize::MAX);
            let jobs = near(&mut client, &tube, state, count, PATIENCE)?;
            ids.extend(jobs.iter().map(|job| job.id));
            // Bodies alone would not show where each ends and to which job it
            // belongs.
            has_titles = count > 1 && form == Form::Exact;
            form = if has_titles { Form::Ended(b'\n') } else { form };
        }
        let mut output = Output::new();
        let mut shown = 0;
        for id in &ids {
            let line = format!("peek {id}");
            let reply = client.call(&line)?;
            let Some(job) = client::job(&line, reply)? else {
                if is_named {
                    complain!("{}", Failure::no_job(*id));
                }
                continue;
            };
            shown += 1;
            if has_titles {
                let size = job.body.len();
                output.line(format_args!("job {id}, {size} bytes:"))?;
            }
            let facts = match form {
                Form::Json => client.facts(&format!("stats-job {id}"))?,
                _ => None,
            };
            form.write(&mut output, &job, facts.as_ref())?;
        }
        output.sync()?;
        let all = if is_named { ids.len() } else { 1 };
        Ok(Status::done_if(shown >= all))
    }
}
