//! `kick`: buried jobs of a tube become ready, or delayed ones.

use crate::command::{Command, Invocation, Opt, TUBE, described, options};
use crate::failure::{Failure, Outcome, Status};
use crate::server::reply::Reply;
use crate::server::stats::State;
use crate::text::output::{Output, Progress};
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
    tube: Option<TubeName> = TUBE,
    all: bool = Opt::flag( "", "all", "kick all that are buried, or else all that are delayed"),
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
            0 => facts.number(State::Delayed.count_key()),
            buried => buried,
        },
    };
    client.use_tube(&tube)?;
    let mut progress = Progress::new("kicking", Some(left));
    let mut kicked = 0;
    while left > 0 {
        let bound = left.min(KICK_AT_ONCE);
        match client.call(format_args!("kick {bound}"))? {
            Reply::Kicked(Some(count)) => {
                kicked += count;
                left -= bound;
                progress.add(count);
                if count < bound {
                    break;
                }
            }
            other => return Err(Failure::unexpected(format_args!("kick {bound}"), &other)),
        }
    }
    drop(progress);
    let mut output = Output::new();
    output.line(kicked)?;
    output.sync()?;
    Ok(Status::done_if(kicked > 0))
}
