//! `check`: tells whether a server is well, for monitoring in the manner of
//! Nagios.
//!
//! It prints one line, with the figures after a bar. The statuses are 0 OK, 1
//! WARNING, 2 CRITICAL, 3 UNKNOWN. A limit is `CRITICAL` or `WARNING,CRITICAL`.

use crate::command::{Command, Invocation, Kind, Opt, described, options};
use crate::failure::{Failure, Outcome, Status};
use crate::server::census::oldest;
use crate::server::client::Client;
use crate::server::list::Scope;
use crate::server::names::Server;
use crate::server::stats::State;
use crate::server::trouble::Trouble;
use crate::server::tubes::{Pattern, Patterns, names_with_ready, next_ready, stats_of};
use crate::text::output::print;
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
        Failure::Unreachable(_) => Level::Critical.described().1,
        _ => Level::Unknown.described().1,
    }),
    ..Command::BLANK
};

options! {
    tubes: Vec<Pattern> =
        Opt::value("t", "tube", "TUBE", "only this tube; may be repeated (default: the whole server)")
            .of(Kind::Tube).many(),
    ready_max: Option<Limit> =
        Opt::value("", "ready-max", "[N,]N", "warning and critical limit of ready jobs"),
    delayed_max: Option<Limit> = Opt::value("", "delayed-max", "[N,]N", "of delayed jobs"),
    buried_max: Option<Limit> = Opt::value("", "buried-max", "[N,]N", "of buried jobs"),
    age_max: Option<Oldest> =
        Opt::value("", "age-max", "[TIME,]TIME", "of the age of a tube's next ready job"),
    oldest_max: Option<Oldest> =
        Opt::value("", "oldest-max", "[TIME,]TIME", "of the age of the oldest job in any state"),
    pause_max: Option<Oldest> =
        Opt::value("", "pause-max", "[TIME,]TIME", "of the time that a tube is still paused"),
    unwatched_max: Option<Limit> =
        Opt::value("", "unwatched-max", "[N,]N", "of tubes with ready jobs that nobody watches"),
    timeouts_max: Option<Limit> =
        Opt::value("", "timeouts-max", "[N,]N", "of timeouts since the server was started"),
    workers_min: Option<Least> =
        Opt::value("", "workers-min", "[N,]N",
            "of workers; with --tube, of those who watch it"),
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
    /// Its name, and the exit status that monitoring plugins use for it.
    fn described(self) -> (&'static str, Status) {
        let (name, code) = match self {
            Level::Ok => ("OK", 0),
            Level::Warning => ("WARNING", 1),
            Level::Critical => ("CRITICAL", 2),
            Level::Unknown => ("UNKNOWN", 3),
        };
        (name, Status::Own(ExitCode::from(code)))
    }
}

/// The limits of a figure. A figure that just reaches a limit is still within
/// it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limit {
    warning: Option<u64>,
    critical: u64,
    /// Whether a figure below the limit is bad, and not one above it.
    is_minimum: bool,
}

/// The limits of a figure that must not be lower.
pub struct Least(Limit);
/// The limits of an age in seconds that must not be higher.
pub struct Oldest(Limit);

impl Parse for Limit {
    fn parse(text: &str) -> Result<Limit, String> {
        Limit::of_numbers(text, false)
    }
}

impl Parse for Least {
    fn parse(text: &str) -> Result<Least, String> {
        Limit::of_numbers(text, true).map(Least)
    }
}

impl Parse for Oldest {
    fn parse(text: &str) -> Result<Oldest, String> {
        let seconds = |limit: &str| Seconds::parse(limit).map(|Seconds(age)| age.into());
        Limit::read(text, false, seconds).map(Oldest)
    }
}

impl Limit {
    fn of_numbers(text: &str, is_minimum: bool) -> Result<Limit, String> {
        let wrong = |_| format!("'{text}' is not N or N,N");
        Limit::read(text, is_minimum, |limit| limit.parse().map_err(wrong))
    }

    fn read(
        text: &str,
        is_minimum: bool,
        read: impl Fn(&str) -> Result<u64, String>,
    ) -> Result<Limit, String> {
        let (warning, critical) = match text.split_once(',') {
            None => (None, text),
            Some((warning, critical)) => (Some(warning), critical),
        };
        let limit = Limit {
            warning: warning.map(&read).transpose()?,
            critical: read(critical)?,
            is_minimum,
        };
        match limit.warning {
            Some(warning) if limit.level(warning) == Level::Critical => Err(format!(
                "a warning at {warning} would never come: at {} it is critical",
                limit.critical
            )),
            _ => Ok(limit),
        }
    }

    fn level(self, value: u64) -> Level {
        let breaks = |limit: u64| match self.is_minimum {
            true => value < limit,
            false => value > limit,
        };
        match self.warning {
            _ if breaks(self.critical) => Level::Critical,
            Some(warning) if breaks(warning) => Level::Warning,
            _ => Level::Ok,
        }
    }
}

/// A figure of a server, with its limits.
struct Reading {
    name: &'static str,
    unit: &'static str,
    value: u64,
    limit: Option<Limit>,
}

impl Reading {
    fn level(&self) -> Level {
        let level = |limit: Limit| limit.level(self.value);
        self.limit.map_or(Level::Ok, level)
    }

    /// The form in which plugins write figures:
    /// `'name'=value;warning;critical;minimum`. A colon follows a limit that is
    /// a minimum.
    fn performance(&self, prefix: &str) -> String {
        let Reading {
            name, unit, value, ..
        } = self;
        let colon = match self.limit {
            Some(Limit {
                is_minimum: true, ..
            }) => ":",
            _ => "",
        };
        let bounds = self
            .limit
            .map(|limit| [limit.warning, Some(limit.critical)]);
        let bounds = bounds.unwrap_or_default();
        let [warning, critical] =
            bounds.map(|bound| bound.map_or(String::new(), |bound| format!("{bound}{colon}")));
        format!("'{prefix}{name}'={value}{unit};{warning};{critical};0")
    }

    /// The figure for people; its limits are added if they matter.
    fn text(&self, with_limit: bool) -> String {
        let Reading {
            name, unit, value, ..
        } = self;
        let mut text = format!("{name} {value}{unit}");
        if let Some(limit) = self.limit.filter(|_| with_limit) {
            let warning = limit
                .warning
                .map_or(String::new(), |warning| format!("{warning}, "));
            text += &format!(" (limit {warning}{})", limit.critical);
        }
        text
    }
}

fn check(invocation: &Invocation) -> Outcome {
    let mut options = invocation.read(OPTIONS)?;
    invocation.no_operands()?;
    let patterns = Patterns(std::mem::take(&mut options.tubes));
    let mut worst = Level::Ok;
    let mut texts = Vec::new();
    let mut figures = Vec::new();
    let several = invocation.servers.len() > 1;
    for Server { address, .. } in &invocation.servers {
        let prefix = match several {
            true => format!("{address} "),
            false => String::new(),
        };
        let client = invocation.connect_to(address);
        let found = client.and_then(|mut client| readings(&mut client, &patterns, &options));
        let (level, text) = match found {
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
    let (name, status) = worst.described();
    let (texts, figures) = (texts.join("; "), figures.join(" "));
    print(format!("BEANSTALK {name}: {texts}{bar}{figures}\n"))?;
    Ok(status)
}

/// The level of a server, and the text about it: the figures that are wrong, or
/// all figures if none is.
fn verdict(readings: &[Reading], draining: bool) -> (Level, String) {
    let worst = readings.iter().map(Reading::level).max();
    let worst = worst.unwrap_or(Level::Ok);
    let is_ill = worst > Level::Ok;
    let said = readings.iter();
    let said = said.filter(|reading| !is_ill || reading.level() > Level::Ok);
    let mut text: Vec<_> = said.map(|reading| reading.text(is_ill)).collect();
    if draining {
        text.push("draining".into());
    }
    // A server in drain mode refuses the jobs of producers.
    let least = if draining { Level::Warning } else { Level::Ok };
    (worst.max(least), text.join(", "))
}

/// The figures of a server, or of these tubes of it, and whether it is in drain
/// mode. A tube that does not exist counts as empty, without watchers.
fn readings(
    client: &mut Client,
    patterns: &Patterns,
    options: &Options,
) -> Outcome<(Vec<Reading>, bool)> {
    let server = client.server_stats()?;
    // A tube that is given twice counts once.
    let tubes = patterns.named(client)?;
    let tubes = tubes.as_slice();
    let of_tubes = stats_of(client, tubes)?;
    let sum = |key: &str| match tubes {
        [] => server.number(key),
        _ => of_tubes.iter().map(|(_, facts)| facts.number(key)).sum(),
    };
    let limits = [
        options.ready_max,
        None,
        options.delayed_max,
        options.buried_max,
    ];
    let reading = |name, unit, value, limit| Reading {
        name,
        unit,
        value,
        limit,
    };
    let counts = State::ALL.into_iter().zip(limits);
    let mut readings: Vec<_> = counts
        .map(|(state, limit)| reading(state.name(), "", sum(state.count_key()), limit))
        .collect();
    // These cost a request for each tube, so they are made only if they are
    // asked for.
    let wants_tubes =
        options.unwatched_max.is_some() || options.pause_max.is_some() || options.age_max.is_some();
    let of_all = match tubes {
        [] if wants_tubes => {
            let all = client.tubes()?;
            stats_of(client, &all)?
        }
        _ => of_tubes.clone(),
    };
    if let Some(Oldest(limit)) = &options.age_max {
        let ready = names_with_ready(&of_all);
        let ages = next_ready(client, &ready)?.into_iter().map(|job| job.age);
        readings.push(reading("age", "s", ages.max().unwrap_or(0), Some(*limit)));
    }
    if let Some(Oldest(limit)) = &options.oldest_max {
        let scope = Scope {
            tubes: tubes.into(),
            states: State::ALL.into(),
        };
        let age = oldest(client, &scope)?.map_or(0, |job| job.age);
        readings.push(reading("oldest", "s", age, Some(*limit)));
    }
    if let Some(Oldest(limit)) = &options.pause_max {
        let left = of_all
            .iter()
            .map(|(_, facts)| facts.number("pause-time-left"));
        readings.push(reading("pause", "s", left.max().unwrap_or(0), Some(*limit)));
    }
    if let Some(limit) = options.unwatched_max {
        let unwatched = of_all.iter();
        let unwatched = unwatched.filter(|(_, facts)| Trouble::of(facts) == Trouble::Unwatched);
        readings.push(reading(
            "unwatched",
            "",
            unwatched.count() as u64,
            Some(limit),
        ));
    }
    if let Some(limit) = options.timeouts_max {
        let timeouts = server.number("job-timeouts");
        readings.push(reading("timeouts", "", timeouts, Some(limit)));
    }
    // With several tubes, the one with the fewest watchers counts.
    let watchers = |tube: &TubeName| {
        let found = of_tubes.iter().find(|(name, _)| name == tube);
        found.map_or(0, |(_, facts)| facts.watching())
    };
    let workers = tubes.iter().map(watchers).min();
    let workers = workers.unwrap_or_else(|| server.number("current-workers"));
    let limit = options.workers_min.as_ref().map(|Least(limit)| *limit);
    readings.push(reading("workers", "", workers, limit));
    Ok((readings, server.text("draining") == "true"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reading(name: &'static str, value: u64, limit: Option<Limit>) -> Reading {
        Reading {
            name,
            unit: if name == "age" { "s" } else { "" },
            value,
            limit,
        }
    }

    fn most(text: &str) -> Option<Limit> {
        Limit::parse(text).ok()
    }

    fn least(text: &str) -> Option<Limit> {
        Least::parse(text).ok().map(|Least(limit)| limit)
    }

    #[test]
    fn a_limit_is_what_may_just_be_reached() {
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
    fn figures_are_written_as_plugins_write_them() {
        for (reading, expected) in [
            (reading("age", 5, most("4,9")), "'x:1 age'=5s;4;9;0"),
            (
                reading("workers", 5, least("4,2")),
                "'x:1 workers'=5;4:;2:;0",
            ),
            (reading("ready", 5, None), "'x:1 ready'=5;;;0"),
        ] {
            assert_eq!(reading.performance("x:1 "), expected);
        }
    }

    #[test]
    fn what_is_wrong_is_said_and_what_is_well_is_left_out_then() {
        let readings = [
            reading("ready", 5, most("4,9")),
            reading("buried", 1, most("0")),
            reading("delayed", 0, None),
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
