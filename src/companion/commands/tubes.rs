//! Commands on tubes: `tubes` (a table of them), `kick`, `pause`.

use crate::client::{self, Client};
use crate::failure::{Failure, Outcome, Status};
use crate::invocation::{self, Invocation, print};
use crate::json::Json;
use crate::output::{Output, Progress};
use crate::reply::Reply;
use crate::stats::{Facts, State};
use crate::table::{Command, JSON, Kind, Opt, TUBE, YAML};
use crate::yaml;
use beanpole::protocol::TubeName;

pub const TUBES: Command = Command {
    name: "tubes",
    about: "list the tubes and what is in them",
    options: &[Opt::flag("", "names", "only the names"), JSON, YAML],
    run: tubes,
    ..Command::BLANK
};

pub const KICK: Command = Command {
    name: "kick",
    operands: "[N]",
    about: "make N (default: 1) buried jobs ready, or delayed ones if none is buried",
    options: &[
        TUBE,
        Opt::flag(
            "",
            "all",
            "kick all that are buried, or else all that are delayed",
        ),
    ],
    run: kick,
    ..Command::BLANK
};

pub const PAUSE: Command = Command {
    name: "pause",
    operands: "TUBE SECONDS",
    operand_kind: Kind::Tube,
    about: "let nothing be reserved from a tube for so long; 0 ends that",
    run: pause,
    ..Command::BLANK
};

/// The columns of the table: a title and the key of `stats-tube`.
const COLUMNS: &[(&str, &str)] = &[
    ("READY", "current-jobs-ready"),
    ("RESERVED", "current-jobs-reserved"),
    ("DELAYED", "current-jobs-delayed"),
    ("BURIED", "current-jobs-buried"),
    ("TOTAL", "total-jobs"),
    ("USING", "current-using"),
    ("WATCHING", "current-watching"),
    ("WAITING", "current-waiting"),
    ("PAUSE", "pause-time-left"),
];

fn tubes(invocation: &Invocation) -> Outcome {
    invocation.no_operands()?;
    invocation.at_most_one(&["json", "yaml", "names"])?;
    let mut client = invocation.connect()?;
    let names = client.tubes()?;
    if invocation.has("names") {
        return print(names.iter().map(|name| format!("{name}\n")).collect());
    }
    let facts = stats_of(&mut client, &names)?;
    if invocation.has("json") || invocation.has("yaml") {
        let list = Json::Array(facts.iter().map(|(_, facts)| facts.to_json()).collect());
        return print(if invocation.has("json") {
            format!("{list}\n")
        } else {
            yaml::write(&list)
        });
    }
    print(table(&facts))
}

/// What the server says about those of these tubes that exist.
pub fn stats_of(client: &mut Client, names: &[TubeName]) -> Outcome<Vec<(TubeName, Facts)>> {
    let mut names = names.iter();
    let mut replies = Vec::new();
    client.pipeline(
        |client| {
            Ok(names
                .next()
                .inspect(|name| client.queue(format_args!("stats-tube {name}"))))
        },
        |name, reply| {
            replies.push((name, reply));
            Ok(())
        },
    )?;
    let mut all = Vec::new();
    for (name, reply) in replies {
        if let Some(facts) = client::facts(&format!("stats-tube {name}"), reply)? {
            all.push((name.clone(), facts));
        }
    }
    Ok(all)
}

fn table(facts: &[(TubeName, Facts)]) -> String {
    let width = facts
        .iter()
        .map(|(name, _)| name.as_str().len())
        .max()
        .unwrap_or(0)
        .max(4);
    let mut text = format!("{:<width$}", "TUBE");
    for (title, _) in COLUMNS {
        text += &format!("  {title:>8}");
    }
    text.push('\n');
    for (name, facts) in facts {
        text += &format!("{:<width$}", name.as_str());
        for (_, key) in COLUMNS {
            text += &format!("  {:>8}", facts.number(key));
        }
        text.push('\n');
    }
    text
}

/// Jobs kicked with one command: many at once would keep everybody waiting.
const KICK_AT_ONCE: u64 = 10_000;

fn kick(invocation: &Invocation) -> Outcome {
    let all = invocation.has("all");
    let count = match invocation.operands() {
        [] => 1,
        [_] if all => return Err(Failure::Usage("give a count or --all, not both".into())),
        [count] => match count.parse() {
            Ok(count) if count > 0 => count,
            _ => return Err(Failure::Usage(format!("'{count}' is not a number of jobs"))),
        },
        _ => return Err(Failure::Usage("kick takes one count".into())),
    };
    let tube = invocation.tube()?;
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

fn pause(invocation: &Invocation) -> Outcome {
    let [name, seconds] = invocation.operands() else {
        return Err(Failure::Usage(
            "which tube, and for how many seconds?".into(),
        ));
    };
    let tube = invocation::tube(name)?;
    let seconds: u32 = seconds.parse().map_err(|_| {
        Failure::Usage(format!(
            "'{seconds}' is not a number of seconds from 0 to {}",
            u32::MAX
        ))
    })?;
    let mut client = invocation.connect()?;
    match client.call(format_args!("pause-tube {tube} {seconds}"))? {
        Reply::Paused => Ok(Status::Done),
        Reply::NotFound => Err(Failure::no_tube(&tube)),
        other => Err(Failure::unexpected(
            format_args!("pause-tube {tube}"),
            &other,
        )),
    }
}
