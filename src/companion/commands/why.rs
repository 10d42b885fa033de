//! `why`: says in sentences what keeps jobs from being done.

use crate::command::{Command, Invocation, Kind};
use crate::failure::{Failure, Outcome, Status};
use crate::server::census::probe;
use crate::server::client::Client;
use crate::server::stats::Facts;
use crate::server::trouble::{Trouble, late, sentences};
use crate::server::tubes::stats_of;
use crate::text::output::Output;
use beanpole::protocol::TubeName;

pub const WHY: Command = Command {
    name: "why",
    operands: "[TUBE…]",
    operand_kind: Kind::Tube,
    about: "say what keeps jobs from being done, the worst first",
    run: why,
    ..Command::BLANK
};

/// How many tubes are told of, if none is named.
const TUBES: usize = 20;

fn why(invocation: &Invocation) -> Outcome {
    let tubes = invocation.tubes()?;
    let mut client = invocation.connect()?;
    let named = tubes.existing(&mut client)?;
    let mut output = Output::new();
    let server = of_server(&mut client)?;
    let names = client.tubes()?;
    let all = stats_of(&mut client, &names)?;
    let tubes = match named.as_slice() {
        [] => troubled(&mut client, &all)?,
        named => {
            let known = |name: &TubeName| {
                let found = all.iter().find(|(known, _)| known == name);
                found.cloned().ok_or_else(|| Failure::no_tube(name))
            };
            named.iter().map(known).collect::<Outcome<_>>()?
        }
    };
    let mut is_well = server.is_empty();
    for sentence in server {
        output.line(sentence)?;
    }
    for (name, facts) in tubes.iter().take(TUBES.max(named.len())) {
        let mut said = sentences(&mut client, name, facts, &all)?;
        is_well &= said.is_empty();
        if said.is_empty() {
            said.push("Nothing is in its way.".into());
        }
        output.line(format_args!("{name}: {}", said.join(" ")))?;
        output.sync()?;
    }
    if named.is_empty() && tubes.len() > TUBES {
        output.line(format_args!("And {} more tubes.", tubes.len() - TUBES))?;
    }
    if named.is_empty() && tubes.is_empty() && is_well {
        output.line("Nothing is in the way of any job.")?;
    }
    output.sync()?;
    Ok(Status::done_if(is_well))
}

/// What is in the way of all jobs. To know whether there is room for one, it is
/// tried, if the server keeps jobs on a disk.
fn of_server(client: &mut Client) -> Outcome<Vec<String>> {
    let stats = client.server_stats()?;
    let mut said = Vec::new();
    if stats.text("draining") == "true" {
        said.push("The server drains: it takes no new jobs.".into());
    } else if stats.number("binlog-current-index") > 0
        && let Err(reply) = probe(client)?
    {
        let meaning = reply.refusal().unwrap_or("the server refuses it");
        said.push(format!("No job can be put: {meaning} ({reply})."));
    }
    Ok(said)
}

/// The tubes that are in trouble, the worst first.
fn troubled(client: &mut Client, all: &[(TubeName, Facts)]) -> Outcome<Vec<(TubeName, Facts)>> {
    let late = late(client, all)?;
    let mut tubes = all.to_vec();
    let trouble = |(name, facts): &(TubeName, Facts)| (Trouble::of(facts), late.contains(name));
    tubes.retain(|tube| trouble(tube) != (Trouble::None, false));
    // Of tubes in the same trouble, the one with the most jobs comes first.
    let jobs =
        |facts: &Facts| facts.number("current-jobs-ready") + facts.number("current-jobs-buried");
    tubes.sort_by_key(|tube| std::cmp::Reverse((trouble(tube), jobs(&tube.1))));
    Ok(tubes)
}
