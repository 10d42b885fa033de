//! `stats`: what the server says about itself, a tube or a job.

use crate::command::{
    Command, Invocation, JSON, Kind, YAML, at_most_one, described, options, word,
};
use crate::failure::{Failure, Outcome, Status};
use crate::server::address::Address;
use crate::server::client;
use crate::server::stats::Facts;
use crate::text::json::Json;
use crate::text::output::print;
use crate::text::yaml::print_as;
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
    yaml: bool = YAML,
}

enum About {
    Server,
    Tube(TubeName),
    Job(JobId),
}

fn stats(invocation: &Invocation) -> Outcome {
    let options = invocation.read(OPTIONS)?;
    at_most_one(&[("json", options.json), ("yaml", options.yaml)])?;
    let about = match invocation.operands() {
        [] => About::Server,
        [tube] => About::Tube(word(tube)?),
        [job, id] if job == "job" => About::Job(word(id)?),
        _ => return Err(Failure::Usage("about what? nothing, TUBE or job ID".into())),
    };
    let mut found = Vec::new();
    for address in invocation.addresses() {
        found.push((address, ask(invocation, address, &about)?));
    }
    if options.json || options.yaml {
        let json = match found.as_slice() {
            [(_, facts)] => facts.to_json(),
            several => {
                let pair =
                    |(address, facts): &(&Address, Facts)| (address.to_string(), facts.to_json());
                Json::Object(several.iter().map(pair).collect())
            }
        };
        return print_as(&json, options.yaml);
    }
    let mut text = String::new();
    for (address, facts) in &found {
        if found.len() > 1 {
            text += &format!("{}{address}\n", if text.is_empty() { "" } else { "\n" });
        }
        text += &match about {
            About::Server => server_text(facts),
            _ => plain_text(facts),
        };
    }
    print(text)?;
    Ok(Status::Done)
}

fn ask(invocation: &Invocation, address: &Address, about: &About) -> Outcome<Facts> {
    let mut client = invocation.connect_to(address)?;
    match about {
        About::Server => client.server_stats(),
        About::Tube(tube) => client
            .tube_stats(tube)?
            .ok_or_else(|| Failure::no_tube(tube)),
        About::Job(id) => {
            let reply = client.call(format_args!("stats-job {id}"))?;
            client::facts("stats-job", reply)?.ok_or_else(|| Failure::no_job(*id))
        }
    }
}

/// Keys and values, a pair a line.
fn plain_text(facts: &Facts) -> String {
    let width = facts.iter().map(|(key, _)| key.len()).max().unwrap_or(0);
    facts
        .iter()
        .map(|(key, value)| format!("{key:<width$}  {value}\n"))
        .collect()
}

/// The server's statistics by what they are about. A key that none of the
/// headings knows comes at the end, so that nothing is left out.
fn server_text(facts: &Facts) -> String {
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
            text += &about
                .iter()
                .map(|(key, value)| format!("  {key:<26}{value}\n"))
                .collect::<String>();
        }
    }
    text
}
