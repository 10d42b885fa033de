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
    count: Option<NonZeroU64> = Opt::value("n", "count", "N", "so many (default: 1)"),
    lines: bool = BODY_LINES,
    null: bool = BODY_NULL,
    json: bool = BODY_JSON,
}

/// Ids looked at in vain before the search for more jobs ends.
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
    let mut output = Output::new();
    let status = if invocation.operands().is_empty() {
        let count = options.count.map_or(1, NonZeroU64::get);
        let count = usize::try_from(count).unwrap_or(usize::MAX);
        let tube = options.tube.unwrap_or(TubeName::default_tube());
        let mut client = invocation.connect()?;
        // Before the sweep uses it: then it exists.
        client.known_tube(&tube)?;
        let mut sweep = Sweep::new(tube, state.map_or(State::Ready, |(_, state)| state));
        show_next(&mut client, &mut sweep, count, form, &mut output)?
    } else {
        if state.is_some() || options.count.is_some() || options.tube.is_some() {
            return Failure::usage("give ids, or say which jobs of a tube, not both");
        }
        let ids = invocation.ids()?;
        let mut client = invocation.connect()?;
        let mut all = true;
        for id in ids {
            if !show(&mut client, id, form, false, &mut output)? {
                all = false;
                complain(format_args!("beanpole peek: {}", Failure::no_job(id)));
            }
        }
        Status::done_if(all)
    };
    output.sync()?;
    Ok(status)
}

fn show_next(
    client: &mut Client,
    sweep: &mut Sweep,
    count: usize,
    form: Form,
    output: &mut Output,
) -> Outcome {
    if count == 1 {
        let Some(job) = sweep.first(client)? else {
            return Ok(Status::No);
        };
        write(client, &job, form, output)?;
        return Ok(Status::Done);
    }
    // Bodies alone would not say where one ends, and whose it is.
    let (form, has_titles) = match form {
        Form::Exact => (Form::Ended(b'\n'), true),
        form => (form, false),
    };
    let mut shown = 0;
    for job in sweep.look(client, count, PATIENCE)? {
        shown += u64::from(show(client, job.id, form, has_titles, output)?);
    }
    Ok(Status::done_if(shown > 0))
}

/// Shows this job. Whether it exists.
fn show(
    client: &mut Client,
    id: JobId,
    form: Form,
    has_title: bool,
    output: &mut Output,
) -> Outcome<bool> {
    let line = format!("peek {id}");
    let reply = client.call(&line)?;
    let Some(job) = client::job(line, reply)? else {
        return Ok(false);
    };
    if has_title {
        output.line(format_args!("job {id}, {} bytes:", job.body.len()))?;
    }
    write(client, &job, form, output).map(|()| true)
}

fn write(client: &mut Client, job: &Job, form: Form, output: &mut Output) -> Outcome<()> {
    let facts = match form {
        Form::Json => client.facts(&format!("stats-job {}", job.id))?,
        _ => None,
    };
    form.write(output, job, facts.as_ref())
}
