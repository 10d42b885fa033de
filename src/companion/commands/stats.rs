//! `stats`: shows the statistics of a server, of tubes or of a job.

use crate::command::{Invocation, Run, Tubes, word};
use crate::failure::{Failure, Outcome};
use crate::server::client::Client;
use crate::server::stats::Facts;
use crate::server::tubes::{Patterns, stats_of};
use crate::text::json::Json;
use beanpole::protocol::JobId;
use clap::Args;

#[derive(Args)]
#[command(override_usage = "beanpole stats [OPTIONS] [TUBE]... | job ID")]
pub struct Stats {
    #[command(flatten)]
    tubes: Tubes,
    /// write JSON
    #[arg(short, long)]
    json: bool,
}

enum About {
    Server,
    Tubes(Patterns),
    Job(JobId),
}

impl Run for Stats {
    const MANY_SERVERS: bool = true;

    fn run(self, invocation: &Invocation) -> Outcome {
        let patterns = self.tubes.patterns();
        let about = match patterns.0.as_slice() {
            [] => About::Server,
            [job, id] if job.text() == "job" => About::Job(word(id.text())?),
            _ => About::Tubes(patterns),
        };
        let (found, outcome) = invocation.ask_each(|client| ask(client, &about))?;
        let to_json = |found: &Vec<Facts>| match found.as_slice() {
            [only] => only.to_json(),
            several => several.iter().map(Facts::to_json).collect::<Json>(),
        };
        let to_text = |found: &Vec<Facts>| match about {
            About::Server => found.iter().map(by_headings).collect(),
            _ => found.iter().map(plain).collect::<Vec<_>>().join("\n"),
        };
        invocation.show(self.json, found, to_json, to_text)?;
        outcome
    }
}

fn ask(client: &mut Client, about: &About) -> Outcome<Vec<Facts>> {
    Ok(match about {
        About::Server => vec![client.server_stats()?],
        About::Tubes(patterns) => {
            let tubes = patterns.existing(client)?;
            let all = stats_of(client, &tubes)?.into_iter();
            all.map(|(_, facts)| facts).collect()
        }
        About::Job(id) => {
            let facts = client.facts(&format!("stats-job {id}"))?;
            vec![facts.ok_or_else(|| Failure::no_job(*id))?]
        }
    })
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
        ("Jobs", &["current-jobs-", "total-jobs", "job-timeouts", "max-job-size", "put"]),
        ("Tubes", &["current-tubes"]),
        ("Connections", &["current-", "total-connections", "max-connections"]),
        ("Commands", &["cmd-"]),
        ("Binlog", &["binlog-"]),
        ("Server", &[
            "pid", "version", "uptime", "rusage-", "memory-used", "max-memory", "draining", "id", "hostname", "os", "platform",
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
