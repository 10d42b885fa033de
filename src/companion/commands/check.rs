//! `check`: says in one line for monitoring whether a server is well, in the manner of
//! Nagios.
//!
//! The line of `check` has the figures after a bar. The statuses are 0 OK, 1 WARNING,
//! 2 CRITICAL, 3 UNKNOWN. Each figure may have limits. There is none of pauses or of what a
//! worker is busy with: whatever keeps ready jobs from being done, their age grows, and
//! `why` names the reason.

use crate::command::{Invocation, Run};
use crate::failure::{Failure, Outcome, Status};
use crate::remote::client::ask_all;
use crate::remote::trouble::is_full;
use crate::remote::tubes::Asked;
use crate::remote::{Client, Pattern, Patterns, Refusal, Sample, State};
use crate::text::{listed, print};
use crate::values::{Parse, parse};
use beanpole::protocol::Seconds;
use clap::Args;
use std::cmp::Reverse;
use std::time::{Duration, Instant};

#[derive(Args)]
pub struct Check {
    /// only this tube; may be repeated (default: the whole server)
    #[arg(short = 't', long = "tube", value_name = "TUBE", value_parser = parse::<Pattern>)]
    tubes: Vec<Pattern>,
    // Square brackets would be a link.
    #[arg(
        help = "KEY=[WARN,]CRIT: beyond this a figure is a warning, or critical; may be repeated"
    )]
    #[arg(long = "limit", value_name = "LIMIT", value_parser = parse::<Limit>)]
    limits: Vec<Limit>,
}

/// The figures in the order in which they are written.
#[rustfmt::skip]
const FIGURES: [&str; 11] = [
    "ready", "reserved", "delayed", "buried", "full", "age", "tries", WORKERS, "memory",
    "connections", "answer",
];
/// Of which there should be no less.
const WORKERS: &str = "workers";

fn unit(figure: &str) -> &'static str {
    match figure {
        "age" => "s",
        "memory" | "connections" => "%",
        "answer" => "us",
        _ => "",
    }
}

/// How long servers may take if the user does not say it: monitors give up after ten
/// seconds.
const SOON: Duration = Duration::from_secs(9);

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
    const fn status(self) -> u8 {
        [0, 1, 3, 2][self as usize]
    }

    fn of(failure: &Failure) -> Level {
        match failure {
            Failure::Unreachable(_) => Level::Critical,
            _ => Level::Unknown,
        }
    }
}

/// The limits of a figure. A figure that just reaches a limit is still within it.
#[derive(Clone, Copy)]
struct Limit {
    key: &'static str,
    warning: Option<u64>,
    critical: Option<u64>,
}

impl Parse for Limit {
    fn parse(text: &str) -> Result<Limit, String> {
        let (key, bounds) = text.split_once('=').unwrap_or((text, ""));
        let Some(key) = FIGURES.into_iter().find(|known| *known == key) else {
            let keys = FIGURES.join(", ");
            return Err(format!(
                "'{text}' is not KEY=[WARN,]CRIT; a key is one of {keys}"
            ));
        };
        let read = |bound: &str| match unit(key) {
            "s" => Seconds::parse(bound).map(|time| time.0.into()),
            _ => bound
                .parse()
                .map_err(|_| format!("'{bound}' is not a number for {key}")),
        };
        let (warning, critical) = match bounds.split_once(',') {
            None => (None, read(bounds)?),
            Some((warning, critical)) => (Some(read(warning)?), read(critical)?),
        };
        let limit = Limit {
            key,
            warning,
            critical: Some(critical),
        };
        match warning.filter(|warning| limit.level(*warning) == Level::Critical) {
            None => Ok(limit),
            Some(warning) => Err(format!(
                "a warning at {key} {warning} would never come: at {critical} it is critical"
            )),
        }
    }
}

impl Limit {
    fn level(self, value: u64) -> Level {
        let breaks = |limit| match self.key {
            WORKERS => value < limit,
            _ => value > limit,
        };
        match self {
            _ if self.critical.is_some_and(breaks) => Level::Critical,
            _ if self.warning.is_some_and(breaks) => Level::Warning,
            _ => Level::Ok,
        }
    }
}

/// A figure of a server, with its limits.
struct Reading {
    limit: Limit,
    value: u64,
    /// What is said of it beside its value.
    about: String,
}

impl Reading {
    fn level(&self) -> Level {
        self.limit.level(self.value)
    }

    /// The form in which plugins write figures:
    /// `'name'=value;warning;critical;minimum`. A colon follows a limit that is
    /// a minimum.
    fn performance(&self, prefix: &str) -> String {
        let (key, value) = (self.limit.key, self.value);
        let (unit, colon) = (unit(key), if key == WORKERS { ":" } else { "" });
        let [warning, critical] = [self.limit.warning, self.limit.critical]
            .map(|bound| bound.map_or(String::new(), |bound| format!("{bound}{colon}")));
        format!("'{prefix}{key}'={value}{unit};{warning};{critical};0")
    }

    /// The figure for people; the limits are added that it is beyond.
    fn text(&self) -> String {
        let key = self.limit.key;
        let text = format!("{key} {}{}{}", self.value, unit(key), self.about);
        if self.level() == Level::Ok {
            return text;
        }
        let bounds = [self.limit.warning, self.limit.critical].into_iter();
        let bounds: Vec<_> = bounds.flatten().map(|bound| bound.to_string()).collect();
        format!("{text} (limit {})", bounds.join(", "))
    }
}

impl Run for Check {
    const FAILED: Option<u8> = Some(Level::Unknown.status());

    fn run(self, invocation: &Invocation) -> Outcome {
        let until = Instant::now() + invocation.timeout.unwrap_or(SOON);
        let all = ask_all(&invocation.servers, |server| {
            self.readings(&mut Client::connect_until(&server.address, until)?)
        });
        let are_many = all.len() > 1;
        let (mut said, mut figures) = (Vec::new(), Vec::new());
        for (server, found) in invocation.servers.iter().zip(all) {
            // The names of figures stay the same when a server gets another name.
            let [name, title] = match are_many {
                true => [server.address.to_string(), server.title()].map(|name| name + " "),
                false => Default::default(),
            };
            said.push(match found {
                Ok((readings, refused)) => {
                    figures.extend(readings.iter().map(|reading| reading.performance(&name)));
                    let (level, text) = verdict(&readings, refused);
                    (level, title + &text)
                }
                Err(failure) if are_many => {
                    (Level::of(&failure), server.of_it(failure).to_string())
                }
                Err(failure) => (Level::of(&failure), failure.to_string()),
            });
        }
        // The worst first; of several, those that are well are only counted.
        said.sort_by_key(|(level, _)| Reverse(*level));
        let (worst, count) = (said[0].0, said.len());
        if are_many {
            said.retain(|(level, _)| *level > Level::Ok);
        }
        let mut texts: Vec<_> = said.into_iter().map(|(_, text)| text).collect();
        if texts.len() < count {
            texts.push(format!("{} OK", count - texts.len()));
        }
        let bar = if figures.is_empty() { "" } else { " | " };
        let (name, texts, figures) = (worst.name(), texts.join("; "), figures.join(" "));
        print(format!("BEANSTALK {name}: {texts}{bar}{figures}\n"))?;
        Ok(Status::Own(worst.status()))
    }
}

/// The level of a server, and the text about it: what is wrong, or all figures if nothing
/// is. Drain mode is intended, and a lack of room is not.
fn verdict(readings: &[Reading], refused: Option<Refusal>) -> (Level, String) {
    let refused = refused.map(|reason| match reason {
        Refusal::Drains => (Level::Warning, "draining".into()),
        _ => {
            let text = format!("takes no new jobs: {}", reason.words());
            (Level::Critical, text)
        }
    });
    let figures = readings
        .iter()
        .map(|reading| (reading.level(), reading.text()));
    let mut said: Vec<_> = refused.into_iter().chain(figures).collect();
    let worst = said.iter().map(|(level, _)| *level).max();
    let worst = worst.unwrap_or(Level::Ok);
    said.retain(|(level, _)| worst == Level::Ok || *level > Level::Ok);
    let texts: Vec<_> = said.into_iter().map(|(_, text)| text).collect();
    (worst, texts.join(", "))
}

impl Check {
    /// The limits of a figure that were given last, if any were.
    fn limit(&self, name: &str) -> Option<Limit> {
        let mut given = self.limits.iter().rev();
        given.find(|limit| limit.key == name).copied()
    }

    fn reading(&self, key: &'static str, value: u64) -> Reading {
        let none = Limit {
            key,
            warning: None,
            critical: None,
        };
        Reading {
            limit: self.limit(key).unwrap_or(none),
            value,
            about: String::new(),
        }
    }

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
        let [wants_age, wants_tries] = ["age", "tries"].map(|name| self.limit(name).is_some());
        let server = client.server_stats()?;
        let is_bounded = server.number("max-jobs-per-tube") > 0;
        let sample = if tubes.is_empty() && !wants_age && !wants_tries && !is_bounded {
            Sample {
                server,
                ..Sample::default()
            }
        } else {
            Sample::take(client, &patterns, Asked::all_if(wants_age || wants_tries))?
        };
        let of_tubes = || sample.tubes.iter().map(|(_, facts)| facts);
        let jobs = |state: State| match tubes.is_empty() {
            true => sample.server.jobs_in(&[state]),
            false => of_tubes().map(|facts| facts.jobs_in(&[state])).sum(),
        };
        let states = State::ALL.into_iter();
        let counts = states.map(|state| self.reading(state.name(), jobs(state)));
        let mut readings: Vec<_> = counts.collect();
        if is_bounded {
            let full = sample.tubes.iter().filter(|(_, facts)| is_full(facts));
            let full: Vec<_> = full.map(|(name, _)| name.as_str()).collect();
            let mut reading = self.reading("full", full.len() as u64);
            if !full.is_empty() {
                reading.about = format!(": {}", listed(&full));
            }
            reading.limit.critical.get_or_insert(0);
            readings.push(reading);
        }
        if wants_age {
            let ready = sample.jobs.iter().filter(|job| job.state == State::Ready);
            let next = ready.map(|job| job.age);
            // The last one may be much older, if jobs of smaller priorities keep coming.
            let ages = ["first-ready-age", "last-ready-age"];
            let told = of_tubes().flat_map(|tube| ages.map(|key| tube.number(key)));
            readings.push(self.reading("age", next.chain(told).max().unwrap_or(0)));
        }
        if wants_tries {
            let most = sample.jobs.iter().max_by_key(|job| job.reserves);
            let mut reading = self.reading("tries", most.map_or(0, |job| job.reserves));
            reading.about = most.map_or(String::new(), |job| format!(" of job {}", job.id));
            readings.push(reading);
        }
        // With several tubes, the one with the fewest watchers counts.
        let watchers = of_tubes().map(|tube| tube.workers(&sample.server, sample.idle));
        let workers = match tubes.len() {
            0 => sample.server.number("current-workers"),
            named if sample.tubes.len() < named => 0,
            _ => watchers.min().unwrap_or(0),
        };
        readings.push(self.reading(WORKERS, workers));
        for (name, used, all) in [
            ("memory", "memory-used", "max-memory"),
            ("connections", "current-connections", "max-connections"),
        ] {
            let [used, all] = [used, all].map(|key| sample.server.number(key));
            let percent = used.saturating_mul(100).checked_div(all);
            let wanted = percent.filter(|_| self.limit(name).is_some());
            readings.extend(wanted.map(|percent| self.reading(name, percent)));
        }
        readings.push(self.reading("answer", answer));
        Ok((readings, Refusal::of(&sample.server)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::remote::Facts;

    fn reading(value: u64, limit: &str) -> Reading {
        Reading {
            limit: Limit::parse(limit).unwrap(),
            value,
            about: String::new(),
        }
    }

    fn unlimited(name: &'static str, value: u64) -> Reading {
        Reading {
            limit: Limit {
                key: name,
                warning: None,
                critical: None,
            },
            ..reading(value, "ready=0")
        }
    }

    #[test]
    fn a_figure_equal_to_its_limit_is_within_it() {
        for (limit, value, level) in [
            ("ready=4,9", 4, Level::Ok),
            ("ready=4,9", 5, Level::Warning),
            ("age=4,9s", 9, Level::Warning),
            ("ready=4,9", 10, Level::Critical),
            ("workers=3,2", 3, Level::Ok),
            ("workers=3,2", 2, Level::Warning),
            ("workers=3,2", 1, Level::Critical),
            ("memory=4", 5, Level::Critical),
        ] {
            assert_eq!(reading(value, limit).level(), level, "{limit} {value}");
        }
    }

    #[test]
    fn performance_data_follows_the_format_of_plugins() {
        for (reading, expected) in [
            (reading(5, "age=4,9"), "'x:1 age'=5s;4;9;0"),
            (reading(5, "workers=4,2"), "'x:1 workers'=5;4:;2:;0"),
            (reading(5, "workers=2"), "'x:1 workers'=5;;2:;0"),
            (
                reading(5, "connections=90,99"),
                "'x:1 connections'=5%;90;99;0",
            ),
            (unlimited("ready", 5), "'x:1 ready'=5;;;0"),
        ] {
            assert_eq!(reading.performance("x:1 "), expected);
        }
    }

    #[test]
    fn a_bad_result_names_only_the_figures_beyond_their_limits() {
        let readings = [
            reading(5, "ready=4,9"),
            reading(1, "buried=0"),
            unlimited("delayed", 0),
        ];
        let text = "draining, ready 5 (limit 4, 9), buried 1 (limit 0)";
        let drains = Some(Refusal::Drains);
        assert_eq!(verdict(&readings, drains), (Level::Critical, text.into()));
        assert_eq!(
            verdict(&readings[2..], None),
            (Level::Ok, "delayed 0".into())
        );
        assert_eq!(
            verdict(&readings[2..], drains),
            (Level::Warning, "draining".into())
        );
    }

    #[test]
    fn a_server_without_room_for_jobs_is_critical() {
        let stats = Facts::parse(b"put-refusal: 3\ndraining: false").unwrap();
        let text = "takes no new jobs: its memory is full";
        let readings = [unlimited("ready", 1)];
        assert_eq!(
            verdict(&readings, Refusal::of(&stats)),
            (Level::Critical, text.into())
        );
        let stats = Facts::parse(b"put-refusal: 0\ndraining: false").unwrap();
        assert_eq!(verdict(&readings, Refusal::of(&stats)).0, Level::Ok);
    }
}
