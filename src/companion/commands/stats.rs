//! `stats`: shows the statistics of a server, a tube or a job.

use crate::command::{Invocation, Run, word};
use crate::failure::{Failure, Outcome};
use crate::server::client::Client;
use crate::server::stats::Facts;
use beanpole::protocol::{JobId, TubeName};
use clap::Args;

#[derive(Args)]
pub struct Stats {
    #[arg(value_name = "TUBE")]
    about: Vec<String>,
    /// write JSON
    #[arg(short, long)]
    json: bool,
}

enum About {
    Server,
    Tube(TubeName),
    Job(JobId),
}

impl Run for Stats {
    const MANY_SERVERS: bool = true;

    fn run(self, invocation: &Invocation) -> Outcome {
        let about = match self.about.as_slice() {
            [] => About::Server,
            [tube] => About::Tube(word(tube)?),
            [job, id] if job == "job" => About::Job(word(id)?),
            _ => return Failure::usage("about what? nothing, TUBE or job ID"),
        };
        let (found, outcome) = invocation.ask_each(|client| ask(client, &about))?;
        let show = |facts: &Facts| match about {
            About::Server => by_headings(facts),
            _ => plain(facts),
        };
        invocation.show(self.json, found, Facts::to_json, show)?;
        outcome
    }
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
