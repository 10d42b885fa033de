//! `check`: whether a server is well, for monitoring in the manner of Nagios.
//!
//! One line, with the figures after a bar; statuses 0 OK, 1 WARNING, 2
//! CRITICAL, 3 UNKNOWN. A limit is `CRITICAL` or `WARNING,CRITICAL`.

use crate::command::{Command, Invocation, Kind, Opt, described, options};
use crate::failure::{Failure, Outcome, Status};
use crate::server::client::Client;
use crate::server::names::Server;
use crate::server::stats::{Facts, State};
use crate::server::tubes::{names_with_ready, next_ready, stats_of};
use crate::text::output::Output;
use crate::values::Parse;
use beanpole::protocol::{Seconds, TubeName};
use std::process::ExitCode;

pub const CHECK: Command = Command {
    name: "check",
    about: "say in one line whether a server is well, for monitoring",
    options: || described(OPTIONS),
    many_servers: true,
    run: check,
    failure_status: Some(|failure| match failure {
        Failure::Unreachable(_) => Level::Critical.status(),
        _ => Level::Unknown.status(),
    }),
    ..Command::BLANK
};

options! {
    tubes: Vec<TubeName> =
        Opt::value("t", "tube", "TUBE", "only this tube; may be repeated (default: the whole server)")
            .of(Kind::Tube).many(),
    ready_max: Option<Most> =
        Opt::value("", "ready-max", "[N,]N", "warning and critical limit of ready jobs"),
    delayed_max: Option<Most> = Opt::value("", "delayed-max", "[N,]N", "of delayed jobs"),
    buried_max: Option<Most> = Opt::value("", "buried-max", "[N,]N", "of buried jobs"),
    age_max: Option<Oldest> =
        Opt::value("", "age-max", "[TIME,]TIME", "of the age of a tube's next ready job"),
    workers_min: Option<Least> =
        Opt::value("", "workers-min", "[N,]N",
            "of workers; with --tube, of those who watch it"),
}

impl Options {
    /// The limit of this figure, if it has one.
    fn limit(&self, figure: Figure) -> Option<Limit> {
        match figure {
            Figure::Ready => self.ready_max.map(|Most(limit)| limit),
            Figure::Reserved => None,
            Figure::Delayed => self.delayed_max.map(|Most(limit)| limit),
            Figure::Buried => self.buried_max.map(|Most(limit)| limit),
            Figure::Age => self.age_max.map(|Oldest(limit)| limit),
            Figure::Workers => self.workers_min.map(|Least(limit)| limit),
        }
    }
}

/// How bad it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Level {
    Ok,
    Warning,
    Unknown,
    Critical,
}

impl Level {
    fn name(self) -> &'static str {
        match self {
            Level::Ok => "OK",
            Level::Warning => "WARNING",
            Level::Critical => "CRITICAL",
            Level::Unknown => "UNKNOWN",
        }
    }

    fn status(self) -> Status {
        Status::Own(ExitCode::from(match self {
            Level::Ok => 0,
            Level::Warning => 1,
            Level::Critical => 2,
            Level::Unknown => 3,
        }))
    }
}

/// What is looked at.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Figure {
    Ready,
    Reserved,
    Delayed,
    Buried,
    Age,
    Workers,
}

impl Figure {
    const ALL: [Figure; 6] = [
        Figure::Ready,
        Figure::Reserved,
        Figure::Delayed,
        Figure::Buried,
        Figure::Age,
        Figure::Workers,
    ];

    fn name(self) -> &'static str {
        match self {
            Figure::Ready => "ready",
            Figure::Reserved => "reserved",
            Figure::Delayed => "delayed",
            Figure::Buried => "buried",
            Figure::Age => "age",
            Figure::Workers => "workers",
        }
    }

    fn unit(self) -> &'static str {
        if self == Figure::Age { "s" } else { "" }
    }
}

/// Up to where it is well, and up to where it is not critical.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Limit {
    warning: Option<u64>,
    critical: u64,
}

/// A limit of what should not be more.
#[derive(Clone, Copy)]
struct Most(Limit);
/// A limit of what should not be less.
#[derive(Clone, Copy)]
struct Least(Limit);
/// A limit of what should not be older.
#[derive(Clone, Copy)]
struct Oldest(Limit);

impl Parse for Most {
    fn parse(text: &str) -> Result<Most, String> {
        let limit = Limit::read(text, |limit| limit.parse().map_err(|_| not_numbers(text)))?;
        limit
            .in_order(|warning| warning <= limit.critical)
            .map(Most)
    }
}

impl Parse for Least {
    fn parse(text: &str) -> Result<Least, String> {
        let limit = Limit::read(text, |limit| limit.parse().map_err(|_| not_numbers(text)))?;
        limit
            .in_order(|warning| warning >= limit.critical)
            .map(Least)
    }
}

impl Parse for Oldest {
    fn parse(text: &str) -> Result<Oldest, String> {
        let limit = Limit::read(text, |limit| {
            Seconds::parse(limit).map(|Seconds(age)| age.into())
        })?;
        limit
            .in_order(|warning| warning <= limit.critical)
            .map(Oldest)
    }
}

fn not_numbers(text: &str) -> String {
    format!("'{text}' is not N or N,N")
}

impl Limit {
    fn read(text: &str, read: impl Fn(&str) -> Result<u64, String>) -> Result<Limit, String> {
        let (warning, critical) = match text.split_once(',') {
            None => (None, text),
            Some((warning, critical)) => (Some(warning), critical),
        };
        Ok(Limit {
            warning: warning.map(&read).transpose()?,
            critical: read(critical)?,
        })
    }

    /// This limit, if nothing is critical before it is a warning.
    fn in_order(self, comes_first: impl Fn(u64) -> bool) -> Result<Limit, String> {
        match self.warning {
            Some(warning) if !comes_first(warning) => Err(format!(
                "a warning at {warning} would never come: at {} it is critical",
                self.critical
            )),
            _ => Ok(self),
        }
    }
}

impl Limit {
    fn level(self, value: u64, is_minimum: bool) -> Level {
        let breaks = |limit: u64| {
            if is_minimum {
                value < limit
            } else {
                value > limit
            }
        };
        match (breaks(self.critical), self.warning.is_some_and(breaks)) {
            (true, _) => Level::Critical,
            (false, true) => Level::Warning,
            (false, false) => Level::Ok,
        }
    }
}

/// A figure of a server with its limit.
struct Reading {
    figure: Figure,
    value: u64,
    limit: Option<Limit>,
}

impl Reading {
    fn level(&self) -> Level {
        let is_minimum = self.figure == Figure::Workers;
        self.limit
            .map_or(Level::Ok, |limit| limit.level(self.value, is_minimum))
    }

    /// As plugins write figures: `'name'=value;warning;critical;minimum`.
    fn performance(&self, prefix: &str) -> String {
        let range = |limit: u64| match self.figure {
            // Alert below it.
            Figure::Workers => format!("{limit}:"),
            _ => limit.to_string(),
        };
        let warning = self
            .limit
            .and_then(|limit| limit.warning)
            .map(range)
            .unwrap_or_default();
        let critical = self
            .limit
            .map(|limit| range(limit.critical))
            .unwrap_or_default();
        let Reading { figure, value, .. } = self;
        format!(
            "'{prefix}{}'={value}{};{warning};{critical};0",
            figure.name(),
            figure.unit()
        )
    }
}

fn check(invocation: &Invocation) -> Outcome {
    let mut options = invocation.read(OPTIONS)?;
    invocation.no_operands()?;
    // A tube that is named twice counts once.
    options.tubes.sort();
    options.tubes.dedup();
    let mut worst = Level::Ok;
    let mut texts = Vec::new();
    let mut figures = Vec::new();
    let several = invocation.servers.len() > 1;
    for Server { address, .. } in &invocation.servers {
        let prefix = if several {
            format!("{address} ")
        } else {
            String::new()
        };
        let (level, text) = match invocation
            .connect_to(address)
            .and_then(|mut client| readings(&mut client, &options))
        {
            Ok((readings, draining)) => {
                figures.extend(readings.iter().map(|reading| reading.performance(&prefix)));
                verdict(&readings, draining)
            }
            Err(failure @ Failure::Unreachable(_)) => (Level::Critical, failure.to_string()),
            Err(failure) => (Level::Unknown, failure.to_string()),
        };
        worst = worst.max(level);
        texts.push(format!("{prefix}{text}"));
    }
    let bar = if figures.is_empty() { "" } else { " | " };
    let mut output = Output::new();
    output.line(format_args!(
        "BEANSTALK {}: {}{bar}{}",
        worst.name(),
        texts.join("; "),
        figures.join(" ")
    ))?;
    output.sync()?;
    Ok(worst.status())
}

/// The level of a server and what to say about it: what is wrong, or the
/// figures if nothing is.
fn verdict(readings: &[Reading], draining: bool) -> (Level, String) {
    let worst = readings
        .iter()
        .map(Reading::level)
        .max()
        .unwrap_or(Level::Ok);
    let said = readings
        .iter()
        .filter(|reading| worst == Level::Ok || reading.level() > Level::Ok);
    let mut text: Vec<_> = said
        .map(
            |Reading {
                 figure,
                 value,
                 limit,
             }| {
                let limit = match limit.filter(|_| worst > Level::Ok) {
                    Some(Limit { warning, critical }) => {
                        let limits = [warning, Some(critical)].into_iter().flatten();
                        let limits: Vec<_> = limits.map(|limit| limit.to_string()).collect();
                        format!(" (limit {})", limits.join(", "))
                    }
                    None => String::new(),
                };
                format!("{} {value}{}{limit}", figure.name(), figure.unit())
            },
        )
        .collect();
    if draining {
        text.push("draining".into());
    }
    // Producers are refused.
    let least = if draining { Level::Warning } else { Level::Ok };
    (worst.max(least), text.join(", "))
}

/// The figures of a server, or of these tubes of it, and whether it drains. A
/// tube that does not exist is empty and watched by nobody.
fn readings(client: &mut Client, options: &Options) -> Outcome<(Vec<Reading>, bool)> {
    let server = client.server_stats()?;
    let tubes = options.tubes.as_slice();
    let of_tubes = stats_of(client, tubes)?;
    let sum = |key: &str| match tubes {
        [] => server.number(key),
        _ => of_tubes.iter().map(|(_, facts)| facts.number(key)).sum(),
    };
    let mut readings = Vec::new();
    for figure in Figure::ALL {
        let value = match figure {
            Figure::Ready => sum(State::Ready.count_key()),
            Figure::Reserved => sum(State::Reserved.count_key()),
            Figure::Delayed => sum(State::Delayed.count_key()),
            Figure::Buried => sum(State::Buried.count_key()),
            Figure::Workers if tubes.is_empty() => server.number("current-workers"),
            // Of several tubes, the one that has the fewest.
            Figure::Workers => tubes
                .iter()
                .map(|tube| watchers(&of_tubes, tube))
                .min()
                .unwrap_or(0),
            // It costs a look at each tube: only if it matters.
            Figure::Age if options.limit(figure).is_none() => continue,
            Figure::Age => {
                let all = if tubes.is_empty() {
                    client.tubes()?
                } else {
                    Vec::new()
                };
                let of_all = stats_of(client, &all)?;
                let ready = names_with_ready(if tubes.is_empty() { &of_all } else { &of_tubes });
                let jobs = next_ready(client, &ready)?;
                jobs.iter().map(|job| job.age).max().unwrap_or(0)
            }
        };
        readings.push(Reading {
            figure,
            value,
            limit: options.limit(figure),
        });
    }
    Ok((readings, server.text("draining") == "true"))
}

fn watchers(tubes: &[(TubeName, Facts)], wanted: &TubeName) -> u64 {
    let found = tubes.iter().find(|(name, _)| name == wanted);
    found.map_or(0, |(_, facts)| facts.number("current-watching"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reading(figure: Figure, value: u64, limit: &str) -> Reading {
        Reading {
            figure,
            value,
            limit: Limit::read(limit, |limit| limit.parse().map_err(|_| String::new())).ok(),
        }
    }

    #[test]
    fn a_limit_is_what_may_just_be_reached() {
        for (value, level) in [
            (4, Level::Ok),
            (5, Level::Warning),
            (9, Level::Warning),
            (10, Level::Critical),
        ] {
            assert_eq!(
                reading(Figure::Ready, value, "4,9").level(),
                level,
                "{value}"
            );
        }
        for (value, level) in [(3, Level::Ok), (2, Level::Warning), (1, Level::Critical)] {
            assert_eq!(
                reading(Figure::Workers, value, "3,2").level(),
                level,
                "{value}"
            );
        }
        assert_eq!(reading(Figure::Ready, 5, "4").level(), Level::Critical);
    }

    #[test]
    fn figures_are_written_as_plugins_write_them() {
        assert_eq!(
            reading(Figure::Age, 5, "4,9").performance(""),
            "'age'=5s;4;9;0"
        );
        assert_eq!(
            reading(Figure::Workers, 5, "4,2").performance("x:1 "),
            "'x:1 workers'=5;4:;2:;0"
        );
        assert_eq!(
            reading(Figure::Ready, 5, "no").performance(""),
            "'ready'=5;;;0"
        );
    }

    #[test]
    fn what_is_wrong_is_said_and_what_is_well_is_left_out_then() {
        let readings = [
            reading(Figure::Ready, 5, "4,9"),
            reading(Figure::Buried, 1, "0"),
            reading(Figure::Delayed, 0, ""),
        ];
        let text = "ready 5 (limit 4, 9), buried 1 (limit 0), draining";
        assert_eq!(verdict(&readings, true), (Level::Critical, text.into()));
        assert_eq!(
            verdict(&readings[2..], false),
            (Level::Ok, "delayed 0".into())
        );
        assert_eq!(
            verdict(&readings[2..], true),
            (Level::Warning, "delayed 0, draining".into())
        );
    }
}
