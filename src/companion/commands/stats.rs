//! `stats`: shows the statistics of a server, a tube or a job. With `--watch`
//! it shows them again and again, with the changes.

use crate::command::{
    Command, Interval, Invocation, JSON, Kind, Opt, YAML, at_most_one, described, options, word,
};
use crate::failure::{Failure, Outcome, Status};
use crate::server::client::Client;
use crate::server::names::Server;
use crate::server::sample::Link;
use crate::server::stats::Facts;
use crate::text::json::{Json, float};
use crate::text::output::{complain, is_terminal, print};
use crate::text::yaml::print_as;
use beanpole::protocol::{JobId, TubeName};
use std::time::Instant;

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
    watch: Option<Interval> =
        Opt::value("", "watch", "TIME", "again each TIME, with rates"),
}

enum About {
    Server,
    Tube(TubeName),
    Job(JobId),
}

/// A server, and its answer to the last request.
struct Watched<'a> {
    server: &'a Server,
    link: Link,
    before: Option<(Instant, Facts)>,
}

/// The statistics of a server, and how fast its numbers grow, per second.
struct Said {
    facts: Facts,
    rates: Vec<(String, f64)>,
}

fn stats(invocation: &Invocation) -> Outcome {
    let options = invocation.read(OPTIONS)?;
    at_most_one(&[("json", options.json), ("yaml", options.yaml)])?;
    let about = match invocation.operands() {
        [] => About::Server,
        [tube] => About::Tube(word(tube)?),
        [job, id] if job == "job" => About::Job(word(id)?),
        _ => return Failure::usage("about what? nothing, TUBE or job ID"),
    };
    let several = invocation.servers.len() > 1;
    let watched = invocation.servers.iter().map(|server| Watched {
        server,
        link: Link::new(server.address.clone(), invocation.patience),
        before: None,
    });
    let mut watched: Vec<_> = watched.collect();
    loop {
        let mut found = Vec::new();
        let mut failures = Vec::new();
        for one in &mut watched {
            match one.look(&about) {
                Ok(said) => found.push((one.server, said)),
                Err(failure @ Failure::Unreachable(_)) => failures.push(failure),
                Err(failure) if !several => return Err(failure),
                Err(failure) => failures.push(failure.about(one.server.title())),
            }
        }
        // A server that is lost does not hide the answers of the others.
        if !found.is_empty() {
            show(&found, several, &about, &options)?;
        }
        let last = match options.watch {
            None => failures.pop(),
            Some(_) => None,
        };
        for failure in &failures {
            complain!("{failure}");
        }
        match options.watch {
            Some(Interval(time)) => std::thread::sleep(time),
            None => return last.map_or(Ok(Status::Done), Err),
        }
    }
}

impl Watched<'_> {
    fn look(&mut self, about: &About) -> Outcome<Said> {
        let facts = self.link.ask(|client| ask(client, about))?;
        let now = Instant::now();
        let rates = match &self.before {
            Some((then, before)) => growth(before, &facts, now.duration_since(*then).as_secs_f64()),
            None => Vec::new(),
        };
        self.before = Some((now, facts.clone()));
        Ok(Said { facts, rates })
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

/// How fast the numbers that have changed grow. Times are left out, because
/// they change by themselves.
fn growth(before: &Facts, now: &Facts, seconds: f64) -> Vec<(String, f64)> {
    const TIMES: [&str; 4] = ["uptime", "age", "time-left", "pause-time-left"];
    let number = |facts: &Facts, key| facts.text(key).parse::<f64>().ok();
    let keys = now.iter().map(|(key, _)| key);
    let rates = keys.filter(|key| !TIMES.contains(key)).filter_map(|key| {
        let grown = number(now, key)? - number(before, key)?;
        (grown != 0.0).then(|| (key.to_owned(), grown / seconds.max(0.001)))
    });
    rates.collect()
}

/// Writes the statistics of these servers. `several` tells whether several were
/// asked, even if only one has answered.
fn show(found: &[(&Server, Said)], several: bool, about: &About, options: &Options) -> Outcome {
    if options.json || options.yaml {
        let pair = |(server, said): &(&Server, Said)| (server.address.to_string(), said.to_json());
        let json = match found {
            [(_, said)] if !several => said.to_json(),
            _ => found.iter().map(pair).collect(),
        };
        return print_as(&json, options.yaml);
    }
    let mut text = String::new();
    if options.watch.is_some() && is_terminal() {
        text += "\x1b[H\x1b[J";
    }
    for (index, (server, said)) in found.iter().enumerate() {
        if several {
            text += &format!("{}{}\n", if index > 0 { "\n" } else { "" }, server.title());
        }
        text += &match about {
            About::Server => said.by_headings(),
            _ => said.plain(),
        };
    }
    if options.watch.is_some() {
        text.push('\n');
    }
    print(text)
}

impl Said {
    fn to_json(&self) -> Json {
        let mut json = self.facts.to_json();
        if !self.rates.is_empty() {
            let rates = self.rates.iter();
            json["per-second"] = rates
                .map(|(key, rate)| (key.as_str(), float(*rate)))
                .collect();
        }
        json
    }

    /// A line for a key: its value, and how fast the value grows.
    fn line(&self, key: &str, value: &str, width: usize) -> String {
        match self.rates.iter().find(|(known, _)| known == key) {
            Some((_, rate)) => format!("{key:<width$}{value:<14}{rate:+.1}/s\n"),
            None => format!("{key:<width$}{value}\n"),
        }
    }

    /// One line for each key.
    fn plain(&self) -> String {
        let widths = self.facts.iter().map(|(key, _)| key.len());
        let width = widths.max().unwrap_or(0) + 2;
        let lines = self.facts.iter();
        lines
            .map(|(key, value)| self.line(key, value, width))
            .collect()
    }

    /// The server's statistics under headings. A key that no heading knows
    /// comes at the end, so nothing is left out.
    fn by_headings(&self) -> String {
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
        let mut left: Vec<(&str, &str)> = self.facts.iter().collect();
        let mut text = String::new();
        for (heading, prefixes) in HEADINGS {
            let (about, rest): (Vec<_>, Vec<_>) = left
                .into_iter()
                .partition(|(key, _)| prefixes.iter().any(|prefix| key.starts_with(prefix)));
            left = rest;
            if !about.is_empty() {
                text += &format!("{}{heading}\n", if text.is_empty() { "" } else { "\n" });
                for (key, value) in about {
                    text += "  ";
                    text += &self.line(key, value, 26);
                }
            }
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_changed_has_a_rate() {
        let facts = |text: &str| Facts::parse(text.as_bytes()).unwrap();
        let before = facts("cmd-put: 10\ncurrent-jobs-ready: 5\nuptime: 1\nversion: \"1.12\"");
        let now = facts("cmd-put: 15\ncurrent-jobs-ready: 4\nuptime: 3\nversion: \"1.12\"");
        let rates = growth(&before, &now, 2.0);
        let expected = [("cmd-put".into(), 2.5), ("current-jobs-ready".into(), -0.5)];
        assert_eq!(rates, expected);
        let said = Said { facts: now, rates };
        assert_eq!(
            said.plain(),
            "cmd-put             15            +2.5/s\n\
             current-jobs-ready  4             -0.5/s\n\
             uptime              3\n\
             version             1.12\n"
        );
    }
}
