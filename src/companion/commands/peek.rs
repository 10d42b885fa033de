//! `peek`: shows jobs and leaves them where they are.

use crate::command::{
    BODY_JSON, BODY_LINES, BODY_NULL, Command, Invocation, Opt, TUBE, at_most_one, described,
    options,
};
use crate::failure::{Failure, Outcome, Status};
use crate::server::client::{self, Client};
use crate::server::form::Form;
use crate::server::reply::Job;
use crate::server::stats::State;
use crate::server::sweep::Sweep;
use crate::text::output::{Output, complain};
use beanpole::protocol::{JobId, TubeName};
use std::num::NonZeroU64;

pub const PEEK: Command = Command {
    name: "peek",
    operands: "[ID…|-]",
    about: "show jobs: those with these ids, or the next of a tube",
    options: || described(OPTIONS),
    run: peek,
    ..Command::BLANK
};

options! {
    tube: Option<TubeName> = TUBE,
    ready: bool = Opt::flag("", "ready", "the next ready job of the tube (the default)"),
    delayed: bool = Opt::flag( "", "delayed", "the delayed job with the shortest delay left"),
    buried: bool = Opt::flag("", "buried", "the buried job that would be kicked first"),
    count: Option<NonZeroU64> = Opt::value("n", "count", "N", "show N jobs (default: 1)"),
    lines: bool = BODY_LINES,
    null: bool = BODY_NULL,
    json: bool = BODY_JSON,
}

/// The search for more jobs ends after this many ids in a row without one.
const PATIENCE: u64 = 100_000;

fn peek(invocation: &Invocation) -> Outcome {
    let options = invocation.read(OPTIONS)?;
    at_most_one(&[
        ("ready", options.ready),
        ("delayed", options.delayed),
        ("buried", options.buried),
    ])?;
    let form = Form::of(options.lines, options.null, options.json)?;
    let states = [
        (options.ready, State::Ready),
        (options.delayed, State::Delayed),
        (options.buried, State::Buried),
    ];
    let state = states.into_iter().find(|(given, _)| *given);
    let by_id = !invocation.operands().is_empty();
    if by_id && (state.is_some() || options.count.is_some() || options.tube.is_some()) {
        return Failure::usage("give ids, or say which jobs of a tube, not both");
    }
    let ids = if by_id { invocation.ids()? } else { Vec::new() };
    let mut show = Show {
        client: invocation.connect()?,
        form,
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
    if !by_id {
        let tube = options.tube.unwrap_or(TubeName::default_tube());
        // The sweep would create the tube by using it, so this must come first.
        show.client.known_tube(&tube)?;
        let state = state.map_or(State::Ready, |(_, state)| state);
        let count = options.count.map_or(1, NonZeroU64::get);
        all = show.next(Sweep::new(tube, state), count)?;
    }
    show.output.sync()?;
    Ok(Status::done_if(all))
}

/// A connection, and the form in which jobs are shown.
struct Show {
    client: Client,
    form: Form,
    has_titles: bool,
    output: Output,
}

impl Show {
    /// Shows up to `count` jobs of a sweep. Returns whether there was any.
    fn next(&mut self, mut sweep: Sweep, count: u64) -> Outcome<bool> {
        if count == 1 {
            let first = sweep.first(&mut self.client)?;
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
        for job in sweep.look(&mut self.client, count, PATIENCE)? {
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
