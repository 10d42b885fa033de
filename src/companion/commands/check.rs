//! `check`: says in one line for monitoring whether a server is well, in the manner of
//! Nagios.
//!
//! The line of `check` has the figures after a bar. The statuses are 0 OK, 1 WARNING,
//! 2 CRITICAL, 3 UNKNOWN. A limit is `CRITICAL` or `WARNING,CRITICAL`. There is no limit of
//! pauses, of watchers or of the oldest job: whatever keeps ready jobs from being done, the
//! age of the next one grows, and `why` names the reason.

use crate::command::{Invocation, Run};
use crate::failure::{Failure, Outcome, Status};
use crate::remote::client::ask_all;
use crate::remote::trouble::is_full;
use crate::remote::{Client, Facts, Pattern, Patterns, Refusal, Sample, Server, State};
use crate::text::{listed, print};
use crate::values::{Parse, parse};
use beanpole::protocol::Seconds;
use clap::{Args, value_parser};
use std::process::ExitCode;
use std::time::Instant;

#[derive(Args)]
pub struct Check {
    /// only this tube; may be repeated (default: the whole server)
    #[arg(short = 't', long = "tube", value_name = "TUBE", value_parser = parse::<Pattern>)]
    tubes: Vec<Pattern>,
    /// warning and critical limit of ready jobs
    #[arg(long, value_name = "[N,]N", value_parser = most)]
    ready_max: Option<Limit>,
    /// of buried jobs
    #[arg(long, value_name = "[N,]N", value_parser = most)]
    buried_max: Option<Limit>,
    /// of the age of a tube's next or last ready job
    #[arg(long, value_name = "[TIME,]TIME", value_parser = time)]
    age_max: Option<Limit>,
    /// of the tries of a next or reserved job (default: none)
    #[arg(long, value_name = "[N,]N", value_parser = most)]
    tries_max: Option<Limit>,
    /// of workers; with --tube, of those who watch it
    #[arg(long, value_name = "[N,]N", value_parser = least)]
    workers_min: Option<Limit>,
    /// warn if more of the memory or connections is in use (default: never)
    #[arg(long, value_name = "PERCENT", value_parser = value_parser!(u64).range(1..=100))]
    room: Option<u64>,
}

/// How bad the state of a server is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Level {
    Ok,
    Warning,
    Unknown,
    Critical,
}

impl Level {
    fn name(self) -> &'static str {
        ["OK", "WARNING", "UNKNOWN", "CRITICAL"][self as usize]
    }

    /// The exit status that monitoring plugins use for it.
    fn exit_code(self) -> ExitCode {
        ExitCode::from([0, 1, 3, 2][self as usize])
    }

    fn of(failure: &Failure) -> Level {
        match failure {
            Failure::Unreachable(_) => Level::Critical,
            _ => Level::Unknown,
        }
    }
}

/// The limits of a figure. A figure that just reaches a limit is still within
/// it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Limit {
    warning: Option<u64>,
    critical: Option<u64>,
    /// Whether a figure below the limit is bad, and not one above it.
    is_minimum: bool,
}

/// Reads the limits of a figure that must not be higher.
fn most(text: &str) -> Result<Limit, String> {
    Limit::read(text, false, number)
}

/// Reads the limits of a figure that must not be lower.
fn least(text: &str) -> Result<Limit, String> {
    Limit::read(text, true, number)
}

/// Reads the limits of a time that must not be longer.
fn time(text: &str) -> Result<Limit, String> {
    Limit::read(text, false, |one| {
        Seconds::parse(one).map(|time| time.0.into())
    })
}

fn number(text: &str) -> Result<u64, String> {
    text.parse()
        .map_err(|_| format!("'{text}' is not N or N,N"))
}

impl Limit {
    fn read(
        text: &str,
        is_minimum: bool,
        read: fn(&str) -> Result<u64, String>,
    ) -> Result<Limit, String> {
        let (warning, critical) = match text.split_once(',') {
            None => (None, read(text)?),
            Some((warning, critical)) => (Some(read(warning)?), read(critical)?),
        };
        let limit = Limit {
            warning,
            critical: Some(critical),
            is_minimum,
        };
        match warning.filter(|warning| limit.level(*warning) == Level::Critical) {
            None => Ok(limit),
            Some(warning) => Err(format!(
                "a warning at {warning} would never come: at {critical} it is critical"
            )),
        }
    }

    fn level(self, value: u64) -> Level {
        let breaks = |limit: Option<u64>| {
            if self.is_minimum {
                limit.is_some_and(|limit| value < limit)
            } else {
                limit.is_some_and(|limit| value > limit)
            }
        };
        match (breaks(self.critical), breaks(self.warning)) {
            (true, _) => Level::Critical,
            (_, true) => Level::Warning,
            _ => Level::Ok,
        }
    }
}

/// A figure of a server, with its limits.
#[derive(Default)]
struct Reading {
    name: &'static str,
    unit: &'static str,
    value: u64,
    limit: Limit,
    /// What is said of it beside its value.
    about: String,
}

impl Reading {
    fn new(name: &'static str, value: u64, limit: Option<Limit>) -> Reading {
        Reading {
            name,
            value,
            limit: limit.unwrap_or_default(),
            ..Reading::default()
        }
    }

    fn level(&self) -> Level {
        self.limit.level(self.value)
    }

    /// The form in which plugins write figures:
    /// `'name'=value;warning;critical;minimum`. A colon follows a limit that is
    /// a minimum.
    fn performance(&self, prefix: &str) -> String {
        let (name, value, unit) = (self.name, self.value, self.unit);
        let colon = if self.limit.is_minimum { ":" } else { "" };
        let bound = |limit: Option<u64>| limit.map(|limit| format!("{limit}{colon}"));
        let [warning, critical] = [self.limit.warning, self.limit.critical].map(bound);
        let (warning, critical) = (warning.unwrap_or_default(), critical.unwrap_or_default());
        format!("'{prefix}{name}'={value}{unit};{warning};{critical};0")
    }

    /// The figure for people; its limits are added if they matter.
    fn text(&self, with_limit: bool) -> String {
        let text = format!("{} {}{}{}", self.name, self.value, self.unit, self.about);
        let bounds = [self.limit.warning, self.limit.critical]
            .into_iter()
            .flatten();
        let limits: Vec<_> = bounds.map(|limit| limit.to_string()).collect();
        if with_limit && !limits.is_empty() {
            format!("{text} (limit {})", limits.join(", "))
        } else {
            text
        }
    }
}

impl Run for Check {
    const MANY_SERVERS: bool = true;

    fn exit_code(failure: &Failure) -> ExitCode {
        Level::of(failure).exit_code()
    }

    fn run(self, invocation: &Invocation) -> Outcome {
        let mut worst = Level::Ok;
        let (mut texts, mut figures) = (Vec::new(), Vec::new());
        let until = Instant::now() + invocation.patience;
        let all = ask_all(&invocation.servers, |server| {
            self.readings(&mut Client::connect_until(&server.address, until)?)
        });
        for (Server { address, .. }, found) in invocation.servers.iter().zip(all) {
            let (level, text, readings) = match found {
                Ok((readings, refused)) => {
                    let (level, text) = verdict(&readings, refused);
                    (level, text, readings)
                }
                Err(failure) => (Level::of(&failure), failure.to_string(), Vec::new()),
            };
            let prefix = match invocation.servers.len() {
                1 => String::new(),
                _ => format!("{address} "),
            };
            worst = worst.max(level);
            figures.extend(readings.iter().map(|reading| reading.performance(&prefix)));
            // Most failures name their server.
            texts.push(if text.contains(prefix.trim_end()) {
                text
            } else {
                format!("{prefix}{text}")
            });
        }
        let bar = if figures.is_empty() { "" } else { " | " };
        let (name, texts, figures) = (worst.name(), texts.join("; "), figures.join(" "));
        print(format!("BEANSTALK {name}: {texts}{bar}{figures}\n"))?;
        Ok(Status::Own(worst.exit_code()))
    }
}

/// The level of a server, and the text about it: the figures that are wrong, or
/// all figures if none is. The text begins with the reason why it accepts no new jobs:
/// drain mode is intended, and a lack of room is not.
fn verdict(readings: &[Reading], refused: Option<Refusal>) -> (Level, String) {
    let most = readings.iter().map(Reading::level).max();
    let worst = most.unwrap_or(Level::Ok);
    let is_ill = worst > Level::Ok;
    let said = readings.iter();
    let said = said.filter(|reading| !is_ill || reading.level() > Level::Ok);
    let mut text: Vec<_> = said.map(|reading| reading.text(is_ill)).collect();
    let least = match refused {
        None => Level::Ok,
        Some(Refusal::Drains) => {
            text.push("draining".into());
            Level::Warning
        }
        Some(reason) => {
            text.insert(0, format!("takes no new jobs: {}", reason.words()));
            Level::Critical
        }
    };
    (worst.max(least), text.join(", "))
}

impl Check {
    /// The figures of a server, or of some tubes of it, and why it takes no new
    /// jobs. A tube that does not exist counts as empty, without watchers.
    fn readings(&self, client: &mut Client) -> Outcome<(Vec<Reading>, Option<Refusal>)> {
        let patterns = Patterns(self.tubes.clone());
        let tubes = patterns.named(client)?;
        let asked = Instant::now();
        client.call("list-tube-used")?;
        let answer = u64::try_from(asked.elapsed().as_micros()).unwrap_or(u64::MAX);
        // The jobs of each tube cost requests for each, so they are asked for only if
        // they are wanted.
        let wants_jobs = self.age_max.or(self.tries_max).is_some();
        let server = client.server_stats()?;
        let is_bounded = server.number("max-jobs-per-tube") > 0;
        let sample = if tubes.is_empty() && !wants_jobs && !is_bounded {
            Sample {
                server,
                ..Sample::default()
            }
        } else {
            Sample::once(client, &patterns, wants_jobs)?
        };
        let of_tubes = || sample.tubes.iter().map(|(_, facts)| facts);
        let jobs = |state: State| {
            if tubes.is_empty() {
                sample.server.jobs_in(&[state])
            } else {
                of_tubes().map(|facts| facts.jobs_in(&[state])).sum()
            }
        };
        let limits = [self.ready_max, None, None, self.buried_max];
        let states = State::ALL.into_iter().zip(limits);
        let counts = states.map(|(state, limit)| Reading::new(state.name(), jobs(state), limit));
        let mut readings: Vec<_> = counts.collect();
        let are_full = sample.tubes.iter().filter(|(_, facts)| is_full(facts));
        let full: Vec<_> = are_full.map(|(name, _)| name.as_str()).collect();
        if is_bounded {
            readings.push(Reading {
                about: if full.is_empty() {
                    String::new()
                } else {
                    format!(": {}", listed(&full))
                },
                ..Reading::new("full", full.len() as u64, most("0").ok())
            });
        }
        if self.age_max.is_some() {
            let next = sample.next.iter().map(|job| job.age);
            // The last one may be much older, if jobs of smaller priorities keep coming.
            let ages = ["first-ready-age", "last-ready-age"];
            let told = of_tubes().flat_map(|tube| ages.map(|key| tube.number(key)));
            let age = next.chain(told).max().unwrap_or(0);
            readings.push(Reading {
                unit: "s",
                ..Reading::new("age", age, self.age_max)
            });
        }
        if self.tries_max.is_some() {
            let jobs = sample.next.iter().chain(&sample.others);
            let most = jobs.max_by_key(|job| job.reserves);
            let tries = most.map_or(0, |job| job.reserves);
            readings.push(Reading {
                about: most.map_or(String::new(), |job| format!(" of job {}", job.id)),
                ..Reading::new("tries", tries, self.tries_max)
            });
        }
        // With several tubes, the one with the fewest watchers counts.
        let watchers = if sample.tubes.len() < tubes.len() {
            Some(0)
        } else {
            of_tubes().map(|tube| tube.workers(&sample.server)).min()
        };
        let of_server = sample.server.number("current-workers");
        let workers = watchers.filter(|_| !tubes.is_empty()).unwrap_or(of_server);
        readings.push(Reading::new("workers", workers, self.workers_min));
        if let Some(most) = self.room {
            readings.extend(in_use(&sample.server, most));
        }
        readings.push(Reading {
            unit: "us",
            ..Reading::new("answer", answer, None)
        });
        Ok((readings, Refusal::of(&sample.server)))
    }
}

/// How much of what is limited is in use, in percent, as far as the server reports
/// it. There is a warning above `most`.
fn in_use(server: &Facts, most: u64) -> impl Iterator<Item = Reading> {
    let limits = [
        ("memory", "memory-used", "max-memory"),
        ("connections", "current-connections", "max-connections"),
    ];
    limits.into_iter().filter_map(move |(name, used, all)| {
        let used = server.number(used).saturating_mul(100);
        let limit = Limit {
            warning: Some(most),
            ..Limit::default()
        };
        let percent = used.checked_div(server.number(all))?;
        Some(Reading {
            unit: "%",
            ..Reading::new(name, percent, Some(limit))
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reading(name: &'static str, value: u64, limit: Result<Limit, String>) -> Reading {
        Reading {
            unit: if name == "age" { "s" } else { "" },
            ..Reading::new(name, value, limit.ok())
        }
    }

    fn none() -> Result<Limit, String> {
        Err(String::new())
    }

    #[test]
    fn a_figure_equal_to_its_limit_is_within_it() {
        for (limit, value, level) in [
            (most("4,9"), 4, Level::Ok),
            (most("4,9"), 5, Level::Warning),
            (most("4,9"), 9, Level::Warning),
            (most("4,9"), 10, Level::Critical),
            (least("3,2"), 3, Level::Ok),
            (least("3,2"), 2, Level::Warning),
            (least("3,2"), 1, Level::Critical),
            (most("4"), 5, Level::Critical),
        ] {
            assert_eq!(reading("x", value, limit).level(), level, "{value}");
        }
    }

    #[test]
    fn performance_data_follows_the_format_of_plugins() {
        for (reading, expected) in [
            (reading("age", 5, most("4,9")), "'x:1 age'=5s;4;9;0"),
            (
                reading("workers", 5, least("4,2")),
                "'x:1 workers'=5;4:;2:;0",
            ),
            (reading("ready", 5, none()), "'x:1 ready'=5;;;0"),
        ] {
            assert_eq!(reading.performance("x:1 "), expected);
        }
    }

    #[test]
    fn a_bad_result_names_only_the_figures_beyond_their_limits() {
        let readings = [
            reading("ready", 5, most("4,9")),
            reading("buried", 1, most("0")),
            reading("delayed", 0, none()),
        ];
        let text = "ready 5 (limit 4, 9), buried 1 (limit 0), draining";
        let drains = Some(Refusal::Drains);
        assert_eq!(verdict(&readings, drains), (Level::Critical, text.into()));
        assert_eq!(
            verdict(&readings[2..], None),
            (Level::Ok, "delayed 0".into())
        );
        assert_eq!(
            verdict(&readings[2..], drains),
            (Level::Warning, "delayed 0, draining".into())
        );
    }

    #[test]
    fn a_server_without_room_for_jobs_is_critical() {
        let stats = Facts::parse(b"put-refusal: 3\ndraining: false").unwrap();
        let text = "takes no new jobs: its memory is full, ready 1";
        let readings = [reading("ready", 1, none())];
        assert_eq!(
            verdict(&readings, Refusal::of(&stats)),
            (Level::Critical, text.into())
        );
        let stats = Facts::parse(b"put-refusal: 0\ndraining: false").unwrap();
        assert_eq!(verdict(&readings, Refusal::of(&stats)).0, Level::Ok);
    }

    #[test]
    fn use_of_memory_or_connections_above_the_limit_is_a_warning() {
        let stats =
            b"memory-used: 91\nmax-memory: 100\ncurrent-connections: 1\nmax-connections: 50";
        let readings: Vec<_> = in_use(&Facts::parse(stats).unwrap(), 90).collect();
        let text = "memory 91% (limit 90)";
        assert_eq!(verdict(&readings, None), (Level::Warning, text.into()));
        assert_eq!(readings[1].performance(""), "'connections'=2%;90;;0");
        // A server without a limit has room.
        let stats = Facts::parse(b"memory-used: 91\nmax-memory: 0").unwrap();
        assert_eq!(in_use(&stats, 90).count(), 0);
    }
}
