//! `peek`: shows jobs and leaves them where they are.

use super::reserve::{BODY_JSON, BODY_LINES, BODY_NULL, Form};
use crate::client::{self, Client};
use crate::complain;
use crate::failure::{Failure, Outcome, Status};
use crate::invocation::Invocation;
use crate::output::Output;
use crate::reply::{Job, Reply};
use crate::stats::State;
use crate::sweep::Sweep;
use crate::table::{Command, Opt, TUBE};
use beanpole::protocol::JobId;

pub const PEEK: Command = Command {
    name: "peek",
    operands: "[ID…]",
    about: "show jobs: those with these ids, or the next of a tube",
    options: &[
        TUBE,
        Opt::flag("", "ready", "the next ready job of the tube (the default)"),
        Opt::flag(
            "",
            "delayed",
            "the delayed job with the shortest delay left",
        ),
        Opt::flag("", "buried", "the buried job that would be kicked first"),
        Opt::value("n", "count", "N", "so many (default: 1)"),
        BODY_LINES,
        BODY_NULL,
        BODY_JSON,
    ],
    run: peek,
    ..Command::BLANK
};

/// Ids looked at in vain before the search for more jobs ends.
const PATIENCE: u64 = 100_000;

fn peek(invocation: &Invocation) -> Outcome {
    invocation.at_most_one(&["ready", "delayed", "buried"])?;
    let form = Form::of(invocation)?;
    let mut state = None;
    for candidate in State::ALL {
        if candidate != State::Reserved && invocation.has(candidate.name()) {
            state = Some(candidate);
        }
    }
    let mut output = Output::new();
    let status = if invocation.operands().is_empty() {
        let count = usize::try_from(invocation.count("count")?.unwrap_or(1)).unwrap_or(usize::MAX);
        let sweep = Sweep::new(invocation.tube()?, state.unwrap_or(State::Ready));
        let mut client = invocation.connect()?;
        show_next(&mut client, &sweep, count, form, &mut output)?
    } else {
        if state.is_some() || invocation.has("count") || invocation.has("tube") {
            return Err(Failure::Usage(
                "give ids, or say which jobs of a tube, not both".into(),
            ));
        }
        let ids = invocation.ids()?;
        let mut client = invocation.connect()?;
        let mut all = true;
        for id in ids {
            if !show(&mut client, id, form, &mut output)? {
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
    sweep: &Sweep,
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
    let mut shown = 0;
    for job in sweep.look(client, count, PATIENCE)? {
        shown += u64::from(show(client, job.id, form, output)?);
    }
    Ok(Status::done_if(shown > 0))
}

/// Shows this job. Whether it exists.
fn show(client: &mut Client, id: JobId, form: Form, output: &mut Output) -> Outcome<bool> {
    match client.call(format_args!("peek {id}"))? {
        Reply::Found(job) => write(client, &job, form, output).map(|()| true),
        Reply::NotFound => Ok(false),
        other => Err(Failure::unexpected(format_args!("peek {id}"), &other)),
    }
}

fn write(client: &mut Client, job: &Job, form: Form, output: &mut Output) -> Outcome<()> {
    let facts = match form {
        Form::Json => {
            let reply = client.call(format_args!("stats-job {}", job.id))?;
            client::facts("stats-job", reply)?
        }
        _ => None,
    };
    form.write(output, job, facts.as_ref())
}
