//! `stats`: shows the statistics of a server, a tube or a job.

use crate::command::{Command, Invocation, JSON, Kind, described, options, word};
use crate::failure::{Failure, Outcome, Status};
use crate::server::client::Client;
use crate::server::names::Server;
use crate::server::stats::Facts;
use crate::text::json::{Json, line};
use crate::text::output::{complain, print};
use beanpole::protocol::{JobId, TubeName};

pub const STATS: Command = Command {
    name: "stats",
    operands: "[TUBE | job ID]",
    operand_kind: Kind::Tube,
    about: "show the statistics of the server, of a tube or of a job",
    options: || described(OPTIONS),
    many_servers: true,
    run: stats,
    ..Command::BLANK
};

options! {
    json: bool = JSON,
}

enum About {
    Server,
    Tube(TubeName),
    Job(JobId),
}

fn stats(invocation: &Invocation) -> Outcome {
    let options = invocation.read(OPTIONS)?;
    let about = match invocation.operands() {
        [] => About::Server,
        [tube] => About::Tube(word(tube)?),
        [job, id] if job == "job" => About::Job(word(id)?),
        _ => return Failure::usage("about what? nothing, TUBE or job ID"),
    };
    let several = invocation.servers.len() > 1;
    let mut found = Vec::new();
    let mut failures = Vec::new();
    for server in &invocation.servers {
        let facts = invocation
            .connect_to(&server.address)
            .and_then(|mut client| ask(&mut client, &about));
        match facts {
            Ok(facts) => found.push((server, facts)),
            Err(failure @ Failure::Unreachable(_)) => failures.push(failure),
            Err(failure) if !several => return Err(failure),
            Err(failure) => failures.push(failure.about(server.title())),
        }
    }
    // A server that is lost does not hide the answers of the others.
    if !found.is_empty() {
        print(match options.json {
            true => to_json(&found, several),
            false => to_text(&found, several, &about),
        })?;
    }
    let last = failures.pop();
    for failure in &failures {
        complain!("{failure}");
    }
    last.map_or(Ok(Status::Done), Err)
}

fn ask(client: &mut Client, about: &About) -> Outcome<Facts> {
    match about {
        About::Server => client.server_stats(),
        About::Tube(tube) => client.known_tube(tube),
        About::Job(id) => {
            let facts = client.facts(&format!("stats-job {id}"))?;
            facts.ok_or_else(|| Failure::no_job(*id))
        }
    }
}

/// The statistics of these servers; `several` tells whether several were asked,
/// even if only one has answered.
fn to_json(found: &[(&Server, Facts)], several: bool) -> String {
    let pair = |(server, facts): &(&Server, Facts)| (server.address.to_string(), facts.to_json());
    let json: Json = match found {
        [(_, facts)] if !several => facts.to_json(),
        _ => found.iter().map(pair).collect(),
    };
    line(&json) + "\n"
}

fn to_text(found: &[(&Server, Facts)], several: bool, about: &About) -> String {
    let mut text = String::new();
    for (index, (server, facts)) in found.iter().enumerate() {
        if several {
            text += &format!("{}{}\n", if index > 0 { "\n" } else { "" }, server.title());
        }
        text += &match about {
            About::Server => by_headings(facts),
            _ => plain(facts),
        };
    }
    text
}

/// One line for each key.
fn plain(facts: &Facts) -> String {
    let widths = facts.iter().map(|(key, _)| key.len());
    let width = widths.max().unwrap_or(0) + 2;
    let lines = facts.iter();
    lines
        .map(|(key, value)| format!("{key:<width$}{value}\n"))
        .collect()
}

/// The server's statistics under headings. A key that no heading knows
/// comes at the end, so nothing is left out.
fn by_headings(facts: &Facts) -> String {
    #[rustfmt::skip]
    const HEADINGS: &[(&str, &[&str])] = &[
        ("Jobs", &["current-jobs-", "total-jobs", "job-timeouts", "max-job-size"]),
        ("Tubes", &["current-tubes"]),
        ("Connections", &["current-", "total-connections"]),
        ("Commands", &["cmd-"]),
        ("Binlog", &["binlog-"]),
        ("Server", &[
            "pid", "version", "uptime", "rusage-", "draining", "id", "hostname", "os", "platform",
        ]),
        ("Other", &[""]),
    ];
    let mut left: Vec<(&str, &str)> = facts.iter().collect();
    let mut text = String::new();
    for (heading, prefixes) in HEADINGS {
        let (about, rest): (Vec<_>, Vec<_>) = left
            .into_iter()
            .partition(|(key, _)| prefixes.iter().any(|prefix| key.starts_with(prefix)));
        left = rest;
        if !about.is_empty() {
            text += &format!("{}{heading}\n", if text.is_empty() { "" } else { "\n" });
            for (key, value) in about {
                text += &format!("  {key:<26}{value}\n");
            }
        }
    }
    text
}
