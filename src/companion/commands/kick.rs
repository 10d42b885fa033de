//! `kick`: buried jobs of a tube become ready, or delayed ones.
//!
//! The protocol kicks delayed jobs only where none is buried. Asked for delayed
//! ones, this kicks them one by one, by their ids.

use crate::command::{Command, Invocation, Opt, TUBE, described, options};
use crate::failure::{Failure, Outcome, Status};
use crate::server::client::Client;
use crate::server::reply::Reply;
use crate::server::stats::State;
use crate::server::sweep::Sweep;
use crate::text::output::{Output, Progress};
use beanpole::protocol::{JobId, TubeName};

pub const KICK: Command = Command {
    name: "kick",
    operands: "[N]",
    about: "make N (default: 1) buried jobs ready, or delayed ones if none is buried",
    options: || described(OPTIONS),
    run: kick,
    ..Command::BLANK
};

options! {
    tube: Option<TubeName> = TUBE,
    all: bool = Opt::flag("", "all", "kick all that are buried, or else all that are delayed"),
    delayed: bool = Opt::flag("", "delayed", "kick delayed jobs, whether some are buried or not"),
}

/// Jobs kicked with one command: many at once would keep everybody waiting.
const KICK_AT_ONCE: u64 = 10_000;

fn kick(invocation: &Invocation) -> Outcome {
    let options = invocation.read(OPTIONS)?;
    let all = options.all;
    let count = match invocation.operands() {
        [] => 1,
        [_] if all => return Err(Failure::Usage("give a count or --all, not both".into())),
        [count] => match count.parse() {
            Ok(count) if count > 0 => count,
            _ => return Err(Failure::Usage(format!("'{count}' is not a number of jobs"))),
        },
        _ => return Err(Failure::Usage("kick takes one count".into())),
    };
    let tube = options.tube.unwrap_or(TubeName::default_tube());
    let mut client = invocation.connect()?;
    let mut left = match (all, client.tube_stats(&tube)?) {
        (_, None) => return Err(Failure::no_tube(&tube)),
        (false, Some(_)) => count,
        (true, Some(facts)) => match facts.number(State::Buried.count_key()) {
            _ if options.delayed => facts.number(State::Delayed.count_key()),
            0 => facts.number(State::Delayed.count_key()),
            buried => buried,
        },
    };
    let mut progress = Progress::new("kicking", Some(left));
    let mut kicked = 0;
    let mut delayed = Sweep::new(tube.clone(), State::Delayed);
    client.use_tube(&tube)?;
    while left > 0 {
        let (count, more) = match options.delayed {
            true => kick_delayed(&mut client, &mut delayed, left)?,
            false => kick_some(&mut client, left)?,
        };
        kicked += count;
        progress.add(count);
        left = if more { left.saturating_sub(count) } else { 0 };
    }
    drop(progress);
    let mut output = Output::new();
    output.line(kicked)?;
    output.sync()?;
    Ok(Status::done_if(kicked > 0))
}

/// Kicks up to so many jobs, as the server chooses them: how many that were, and
/// whether there may be more.
fn kick_some(client: &mut Client, left: u64) -> Outcome<(u64, bool)> {
    let bound = left.min(KICK_AT_ONCE);
    match client.call(format_args!("kick {bound}"))? {
        Reply::Kicked(Some(count)) => Ok((count, count == bound)),
        other => Err(Failure::unexpected(format_args!("kick {bound}"), &other)),
    }
}

/// The same, but delayed jobs alone.
fn kick_delayed(client: &mut Client, sweep: &mut Sweep, left: u64) -> Outcome<(u64, bool)> {
    let mut jobs = sweep.next(client)?;
    jobs.truncate(usize::try_from(left).unwrap_or(usize::MAX));
    let found = !jobs.is_empty();
    let mut kicked = 0;
    let ids = jobs.iter().map(|job| job.id);
    let line = |id: &JobId| format!("kick-job {id}");
    client.each(ids, line, |id, reply| match reply {
        Reply::Kicked(None) => {
            kicked += 1;
            Ok(())
        }
        // Its delay was over.
        Reply::NotFound => Ok(()),
        other => Err(Failure::unexpected(format_args!("kick-job {id}"), &other)),
    })?;
    Ok((kicked, found))
}
