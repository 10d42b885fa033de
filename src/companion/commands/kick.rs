//! `kick`: makes buried jobs of a tube ready, or delayed ones.
//!
//! The `kick` of the protocol reaches delayed jobs only if no job is buried.
//! With `--delayed`, this command kicks delayed jobs one by one, by their ids.

use crate::command::{Command, Invocation, Opt, TUBE, described, options};
use crate::failure::{Failure, Outcome, Status};
use crate::server::client::Client;
use crate::server::reply::Reply;
use crate::server::stats::State;
use crate::server::sweep::Sweep;
use crate::text::output::{Progress, print};
use beanpole::protocol::TubeName;

pub const KICK: Command = Command {
    name: "kick",
    operands: "[N]",
    about: "make N (default: 1) buried jobs ready, or delayed ones if none is buried",
    options: || described(OPTIONS),
    run: kick,
    ..Command::BLANK
};

options! {
    tube: TubeName = TUBE => TubeName::default_tube(),
    all: bool = Opt::flag("", "all", "kick all that are buried, or else all that are delayed"),
    delayed: bool = Opt::flag("", "delayed", "kick delayed jobs, whether some are buried or not"),
}

/// How many jobs one request kicks at most: with many, every client would have
/// to wait.
const KICK_AT_ONCE: u64 = 10_000;

fn kick(invocation: &Invocation) -> Outcome {
    let Options { tube, all, delayed } = invocation.read(OPTIONS)?;
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
    let facts = client.known_tube(&tube)?;
    let mut left = match facts.jobs_in(&[State::Buried]) {
        _ if !all => count,
        buried if buried > 0 && !delayed => buried,
        _ => facts.jobs_in(&[State::Delayed]),
    };
    let mut progress = Progress::new("kicking", Some(left));
    let mut kicked = 0;
    let mut sweep = Sweep::new(tube.clone(), State::Delayed);
    client.use_tube(&tube)?;
    while left > 0 {
        let bound = left.min(KICK_AT_ONCE);
        let sent = match delayed {
            true => sweep.send_to_next(&mut client, left, "kick-job")?,
            false => Some(kick_some(&mut client, bound)?),
        };
        let Some(count) = sent else { break };
        kicked += count;
        progress.add(count);
        left -= count;
        // The next jobs would be of the other kind.
        if !delayed && count < bound {
            break;
        }
    }
    drop(progress);
    print(format!("{kicked}\n"))?;
    Ok(Status::done_if(kicked > 0))
}

/// Kicks up to `bound` jobs, which the server chooses. Returns how many.
fn kick_some(client: &mut Client, bound: u64) -> Outcome<u64> {
    match client.call(format_args!("kick {bound}"))? {
        Reply::Kicked(Some(count)) if count <= bound => Ok(count),
        other => Err(Failure::unexpected(format_args!("kick {bound}"), &other)),
    }
}
