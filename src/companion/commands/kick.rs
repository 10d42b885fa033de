//! `kick`: makes buried jobs of a tube ready, or delayed ones.
//!
//! The `kick` of the protocol reaches delayed jobs only if no job is buried.
//! With `--delayed`, this command kicks delayed jobs one by one, by their ids.

use crate::command::{Command, Invocation, Opt, TUBES, described, options};
use crate::failure::{Failure, Outcome, Status};
use crate::server::client::Client;
use crate::server::reply::Reply;
use crate::server::stats::{Facts, State};
use crate::server::sweep::Sweep;
use crate::server::task::Task;
use crate::server::tubes::{Pattern, Patterns, stats_of};

pub const KICK: Command = Command {
    name: "kick",
    operands: "[N]",
    about: "make N (default: 1) buried jobs ready, or delayed ones if none is buried",
    options: || described(OPTIONS),
    run: kick,
    ..Command::BLANK
};

options! {
    tubes: Vec<Pattern> = TUBES,
    all: bool = Opt::flag("", "all", "kick all that are buried, or else all that are delayed"),
    delayed: bool = Opt::flag("", "delayed", "kick delayed jobs, whether some are buried or not"),
}

/// How many jobs one request kicks at most: with many, every client would have
/// to wait.
const KICK_AT_ONCE: u64 = 10_000;

fn kick(invocation: &Invocation) -> Outcome {
    let Options {
        tubes,
        all,
        delayed,
    } = invocation.read(OPTIONS)?;
    let count = match invocation.operands() {
        [] => 1,
        [_] if all => return Failure::usage("give a count or --all, not both"),
        [count] => match count.parse() {
            Ok(count) if count > 0 => count,
            _ => return Failure::usage(format!("'{count}' is not a number of jobs")),
        },
        _ => return Failure::usage("kick takes one count"),
    };
    let mut client = invocation.connect()?;
    let tubes = Patterns(tubes).or_default().existing(&mut client)?;
    let tubes = stats_of(&mut client, &tubes)?;
    let in_tube = |facts: &Facts| match facts.jobs_in(&[State::Buried]) {
        _ if !all => count,
        buried if buried > 0 && !delayed => buried,
        _ => facts.jobs_in(&[State::Delayed]),
    };
    let most = match all {
        true => tubes.iter().map(|(_, facts)| in_tube(facts)).sum(),
        false => count,
    };
    let mut task = Task::new("kicking", most);
    for (tube, facts) in &tubes {
        let mut left = in_tube(facts);
        let mut sweep = Sweep::new(tube.clone(), State::Delayed);
        client.use_tube(tube)?;
        while left > 0 && task.goes_on()? {
            let bound = left.min(task.left).min(KICK_AT_ONCE);
            let sent = match delayed {
                true => sweep.send_to_next(&mut client, left.min(task.left), "kick-job")?,
                false => Some(kick_some(&mut client, bound)?),
            };
            let Some(count) = sent else { break };
            task.add(count);
            left -= count;
            // The next jobs would be of the other kind.
            if !delayed && count < bound {
                break;
            }
        }
    }
    let any = task.done > 0;
    task.finish(Ok(()))?;
    Ok(Status::done_if(any))
}

/// Kicks up to `bound` jobs, which the server chooses. Returns how many.
fn kick_some(client: &mut Client, bound: u64) -> Outcome<u64> {
    match client.call(format_args!("kick {bound}"))? {
        Reply::Kicked(Some(count)) if count <= bound => Ok(count),
        other => Err(Failure::unexpected(format_args!("kick {bound}"), &other)),
    }
}
