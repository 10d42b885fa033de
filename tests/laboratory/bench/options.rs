//! The arguments of `bench`, and the usage that describes them.

use super::arguments::{Opt, described, options, read};
use super::load::{Held, Length, Load, Placement, Syncing, Work};
use super::servers::Source;
use crate::load::arrivals::Rate;
use crate::load::jobs::STAMP;
use beanpole::arguments::{Given, ParsingStyle};
use companion::command::Number;
use companion::failure::{Failure, Outcome};
use companion::values::Parse;

use std::ffi::OsString;
use std::path::PathBuf;

/// The words that the first argument may be.
const SCENARIOS: &[(&str, &str)] = &[
    ("put", "put jobs"),
    ("cycle", "put, reserve and delete jobs"),
    (
        "crowd",
        "put, cycle or handoff, with a thread for each connection",
    ),
    (
        "handoff",
        "put jobs while consumers wait: from put to RESERVED",
    ),
    ("connect", "connect, put one job, close"),
    (
        "tubes",
        "cycle while many tubes exist, and many are watched",
    ),
    ("ready", "fill the server with ready jobs and drain it"),
    (
        "delayed",
        "fill the server with delayed jobs; leave them alone",
    ),
    ("mature", "many delayed jobs become ready in one second"),
    (
        "idle",
        "many connections wait in reserve; then a job for each",
    ),
    ("recovery", "fill a binlog, end the server, start it again"),
    ("calls", "count the server's system calls"),
    (
        "timers",
        "single timers on an idle server: how late is each?",
    ),
    ("table", "all of these, ours against theirs, with goals"),
];

/// What was asked for.
#[derive(Debug, PartialEq)]
pub enum Request {
    /// `-h`: this text.
    Usage(String),
    /// One scenario.
    Run(Box<Load>, Setup),
    /// The whole table, or its short form.
    Table(Setup, bool),
}

/// On which servers a load runs, how often, and where the result goes.
#[derive(Debug, PartialEq)]
pub struct Setup {
    /// One or two servers. A ratio is that of the first to the second.
    pub servers: Vec<Source>,
    /// How many runs on each.
    pub rounds: usize,
    /// Where to write JSON.
    pub json: Option<PathBuf>,
}

/// The type of most numbers. A larger number would be a mistake.
type Many = Number<1, 100_000_000>;

options! {
    help: bool = Opt::flag("h", "help", "print this"),
    ours: Option<String> =
        Opt::value("", "ours", "SERVER", "the server to measure: a command line or HOST:PORT"),
    theirs: Option<String> = Opt::value("", "theirs", "SERVER", "the server to compare it with"),
    ours_pid: Option<Number<1, { i32::MAX as u64 }>> =
        Opt::value("", "ours-pid", "PID", "the process of a running server, to account for it"),
    theirs_pid: Option<Number<1, { i32::MAX as u64 }>> =
        Opt::value("", "theirs-pid", "PID", "the same of the other"),
    rounds: Option<Number<1, 1000>> =
        Opt::value("r", "rounds", "N", "runs on each server, in the order A B B A (5)"),
    place: Option<Placement> =
        Opt::value("p", "place", "PLACE", "one (CPU for all), apart, or free (free)"),
    busy: Option<Number<0, 1000>> =
        Opt::value("", "busy", "N", "programs that compute beside it on all CPUs (0)"),
    connections: Option<Number<1, 1_000_000>> =
        Opt::value("c", "connections", "N", "connections that work at the same time"),
    // A larger number could fill the sockets' buffers in both directions.
    depth: Option<Number<1, 4096>> =
        Opt::value("d", "depth", "N", "requests sent together on a connection"),
    body: Option<Number<{ STAMP as u64 }, { 1 << 30 }>> =
        Opt::value("b", "body", "BYTES", "size of a body in bytes (100)"),
    count: Option<Many> = Opt::value("n", "count", "N", "jobs in a run"),
    seconds: Option<Span> = Opt::value("s", "seconds", "SECONDS", "length of a run instead"),
    rate: Option<Many> =
        Opt::value("", "rate", "N", "put, cycle, handoff: jobs a second, whatever it answers"),
    seed: Option<u32> = Opt::value("", "seed", "N", "for the random gaps of --rate (1)"),
    sync: Option<Syncing> =
        Opt::value("f", "sync", "MS", "with a binlog, synced within MS milliseconds, or never"),
    priorities: Option<Many> =
        Opt::value("", "priorities", "N", "spread jobs over so many priorities (1)"),
    producers: Option<Many> =
        Opt::value("", "producers", "N", "handoff: producers, one job in flight each (1)"),
    consumers: Option<Number<0, 100_000>> =
        Opt::value("", "consumers", "N", "handoff (2), mature (64; 0: just look): consumers"),
    tubes: Option<Many> = Opt::value("", "tubes", "N", "tubes: how many exist (10000)"),
    watched: Option<Many> = Opt::value("", "watched", "N", "tubes: how many are watched (1)"),
    held: Option<Held> =
        Opt::value("", "held", "HOW", "tubes: exist because of a watch or a job each (watch)"),
    due: Option<Number<1, { u32::MAX as u64 }>> =
        Opt::value("", "due", "N", "delayed: jobs that become due each second (300)"),
    delay: Option<Number<1, { u32::MAX as u64 }>> =
        Opt::value("", "delay", "SECONDS", "mature: seconds from put to due, at least (3)"),
    together: bool = Opt::flag("", "together", "mature, crowd: all jobs are due at once"),
    work: Option<Work> =
        Opt::value("w", "work", "WORK", "crowd: put, cycle or handoff (cycle)"),
    idle: Option<Span> =
        Opt::value("", "idle", "SECONDS", "delayed, idle, calls: how long to look on idly (5)"),
    settle: Option<Span> =
        Opt::value("", "settle", "SECONDS", "ready: pause before memory is read at the end (60)"),
    json: Option<OsString> = Opt::value("", "json", "FILE", "write the result to this file too"),
    quick: bool = Opt::flag("", "quick", "table: only what noise cannot change; fails if missed"),
}

/// A number of seconds that need not be whole.
struct Span(f64);

impl Parse for Span {
    fn parse(text: &str) -> Result<Span, String> {
        match text.parse() {
            Ok(seconds) if (0.0..=86_400.0).contains(&seconds) => Ok(Span(seconds)),
            _ => Err(format!("'{text}' is not a number of seconds")),
        }
    }
}

impl Parse for Placement {
    fn parse(text: &str) -> Result<Placement, String> {
        let all = [Placement::One, Placement::Apart, Placement::Free];
        let named = all.into_iter().find(|place| place.name() == text);
        named.ok_or_else(|| format!("'{text}' is not one, apart or free"))
    }
}

impl Parse for Work {
    fn parse(text: &str) -> Result<Work, String> {
        let all = [Work::Put, Work::Cycle, Work::Handoff];
        let named = all.into_iter().find(|work| work.name() == text);
        named.ok_or_else(|| format!("'{text}' is not put, cycle or handoff"))
    }
}

impl Parse for Held {
    fn parse(text: &str) -> Result<Held, String> {
        match text {
            "watch" => Ok(Held::Watch),
            "job" => Ok(Held::Job),
            _ => Err(format!("'{text}' is not watch or job")),
        }
    }
}

impl Parse for Syncing {
    fn parse(text: &str) -> Result<Syncing, String> {
        match text {
            "never" => Ok(Syncing::Never),
            _ => u32::parse(text).map(Syncing::WithinMs),
        }
    }
}

fn usage() -> String {
    let mut brief = "\
Usage: bench SCENARIO [--ours SERVER] [--theirs SERVER] [OPTION]...
Measures one server, or two in turns, and checks every reply.

A SERVER is HOST:PORT, or a command line in which {port} stands for the port to
listen on and {dir} for a new, empty directory (below TMPDIR or /var/tmp). With
--sync, '-b {dir} -f MS' is added to it, or '-b {dir} -F' for 'never'. Without
--ours it is the beanpoled beside this program or in PATH; without --theirs the
table takes the beanstalkd in PATH.

Status 0: done; 1: the quick table missed a goal; 2: usage; 4: a run failed, or
a reply was wrong.

Scenarios:\n"
        .to_string();
    for (name, what) in SCENARIOS {
        brief.push_str(&format!("    {name:<10} {what}\n"));
    }
    brief.push_str("\nOptions:\n");
    for option in described(OPTIONS) {
        let short = match option.short {
            "" => "    ".into(),
            letter => format!("-{letter}, "),
        };
        let names = format!("{short}--{} {}", option.long, option.value);
        brief.push_str(&format!("  {:<24} {}\n", names.trim_end(), option.about));
    }
    brief
}

/// Reads what these arguments ask for.
pub fn parse(arguments: &[OsString]) -> Outcome<Request> {
    let table: Vec<_> = described(OPTIONS).iter().map(Opt::syntax).collect();
    let given =
        Given::split(&table, ParsingStyle::FloatingFrees, arguments).map_err(Failure::Usage)?;
    let mut options = Options::default();
    read(&given, OPTIONS, &mut options)?;
    if options.help {
        return Ok(Request::Usage(usage()));
    }
    let scenario = match given.operands.as_slice() {
        [scenario] if SCENARIOS.iter().any(|(name, _)| name == scenario) => scenario,
        [unknown] => return Err(Failure::Usage(format!("no scenario is called {unknown}"))),
        [] => return Err(Failure::Usage("which scenario?".into())),
        [_, extra, ..] => return Err(Failure::Usage(format!("unknown argument: {extra}"))),
    };
    let is_table = scenario == "table";
    let source =
        |text: String, pid: Option<Number<1, { i32::MAX as u64 }>>| match text.contains("{port}") {
            true => Source::Command(text),
            false => Source::Running {
                address: text,
                pid: pid.and_then(|Number(pid)| i32::try_from(pid).ok()),
            },
        };
    let ours = options
        .ours
        .clone()
        .map(|text| source(text, options.ours_pid));
    let theirs = options
        .theirs
        .clone()
        .map(|text| source(text, options.theirs_pid));
    let ours = ours.or_else(installed_beanpoled);
    let ours = ours.ok_or_else(|| Failure::Usage("no beanpoled found: --ours?".into()))?;
    let theirs = theirs.or_else(|| is_table.then(installed_beanstalkd)?);
    let setup = Setup {
        servers: [Some(ours), theirs].into_iter().flatten().collect(),
        rounds: options.rounds.map_or(5, |Number(rounds)| rounds),
        json: options.json.clone().map(PathBuf::from),
    };
    Ok(match is_table {
        true => Request::Table(setup, options.quick),
        false => Request::Run(Box::new(options.load(scenario)), setup),
    })
}

impl Options {
    /// The load of a scenario. Options replace its usual values.
    fn load(self, scenario: &str) -> Load {
        let usual = Load::new(scenario);
        let length = match (self.seconds, self.count) {
            (Some(Span(seconds)), _) => Length::Seconds(seconds),
            (None, Some(Number(count))) => Length::Count(count),
            (None, None) => usual.length,
        };
        // Each of these numbers fits, because its option has bounds.
        let narrow = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
        Load {
            scenario: usual.scenario,
            connections: self.connections.map_or(usual.connections, |Number(n)| n),
            depth: self.depth.map_or(usual.depth, |Number(n)| n),
            body: self.body.map_or(usual.body, |Number(n)| n),
            length,
            placement: self.place.unwrap_or(usual.placement),
            sync: self.sync.or(usual.sync),
            priorities: self
                .priorities
                .map_or(usual.priorities, |Number(n)| narrow(n)),
            producers: self.producers.map_or(usual.producers, |Number(n)| n),
            consumers: self.consumers.map_or(usual.consumers, |Number(n)| n),
            tubes: self.tubes.map_or(usual.tubes, |Number(n)| n),
            watched: self.watched.map_or(usual.watched, |Number(n)| n),
            held: self.held.unwrap_or(usual.held),
            due_per_second: self.due.map_or(usual.due_per_second, |Number(n)| narrow(n)),
            delay: self.delay.map_or(usual.delay, |Number(n)| narrow(n)),
            idle_seconds: self
                .idle
                .map_or(usual.idle_seconds, |Span(seconds)| seconds),
            settle_seconds: self
                .settle
                .map_or(usual.settle_seconds, |Span(seconds)| seconds),
            rate: self.rate.map(|Number(rate)| Rate {
                jobs_per_second: rate as f64,
                seed: self.seed.unwrap_or(1).into(),
            }),
            busy: self.busy.map_or(usual.busy, |Number(n)| n),
            together: self.together,
            work: self.work.unwrap_or(usual.work),
        }
    }
}

/// Our server beside this program, or else in PATH.
fn installed_beanpoled() -> Option<Source> {
    let own = std::env::current_exe().ok();
    let beside = own.and_then(|own| Some(own.parent()?.join("beanpoled")));
    let found = beside
        .filter(|path| path.is_file())
        .or_else(|| in_path("beanpoled"))?;
    Some(on_loopback(&found))
}

fn installed_beanstalkd() -> Option<Source> {
    in_path("beanstalkd").map(|found| on_loopback(&found))
}

fn on_loopback(program: &std::path::Path) -> Source {
    Source::Command(format!("'{}' -l 127.0.0.1 -p {{port}}", program.display()))
}

fn in_path(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path)
        .map(|place| place.join(program))
        .find(|path| path.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Result<Request, String> {
        let arguments: Vec<OsString> = line.split(' ').map(OsString::from).collect();
        parse(&arguments).map_err(|failure| failure.to_string())
    }

    #[test]
    fn options_change_what_a_scenario_brings() {
        let line = "cycle --ours a:1 --theirs b:2 --theirs-pid 7 -c 64 -s 2.5 -p apart -r 3";
        let load = Load {
            connections: 64,
            length: Length::Seconds(2.5),
            placement: Placement::Apart,
            ..Load::new("cycle")
        };
        let servers = vec![
            Source::Running {
                address: "a:1".into(),
                pid: None,
            },
            Source::Running {
                address: "b:2".into(),
                pid: Some(7),
            },
        ];
        let setup = Setup {
            servers,
            rounds: 3,
            json: None,
        };
        assert_eq!(parsed(line), Ok(Request::Run(Box::new(load), setup)));
    }

    #[test]
    fn what_cannot_be_is_told() {
        for (line, message) in [
            ("dance --ours a:1", "no scenario is called dance"),
            ("put cycle --ours a:1", "unknown argument: cycle"),
            (
                "put --ours a:1 -b 15",
                "--body: '15' is not a number from 16 to 1073741824",
            ),
            (
                "put --ours a:1 -d 5000",
                "--depth: '5000' is not a number from 1 to 4096",
            ),
            (
                "put --ours a:1 -s -1",
                "--seconds: '-1' is not a number of seconds",
            ),
            (
                "put --ours a:1 -p here",
                "--place: 'here' is not one, apart or free",
            ),
            (
                "crowd --ours a:1 -w sleep",
                "--work: 'sleep' is not put, cycle or handoff",
            ),
            (
                "put --ours a:1 --ours-pid x",
                "--ours-pid: 'x' is not a number from 1 to 2147483647",
            ),
        ] {
            assert_eq!(parsed(line), Err(message.into()), "{line}");
        }
    }
}
