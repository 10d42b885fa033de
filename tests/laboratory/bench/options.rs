//! The command line of `bench`.

use super::Failure;
use super::load::{Held, Length, Load, Placement, Syncing};
use super::servers::Source;
use companion::command::{Kind, Opt};
use getopts::Options;
use std::path::PathBuf;

/// What the first argument may be.
pub const SCENARIOS: &[(&str, &str)] = &[
    ("put", "put jobs"),
    ("cycle", "put, reserve and delete jobs"),
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
    ("table", "all of these, ours against theirs, with goals"),
];

/// What was asked for.
#[derive(Debug, PartialEq)]
pub enum Request {
    /// `-h`: this text.
    Usage(String),
    /// One scenario.
    Run(Load, Setup),
    /// The whole table, or its short form.
    Table(Setup, bool),
    /// A picture of an earlier result.
    Draw(PathBuf, PathBuf),
}

/// On which servers, how often, and where the result goes.
#[derive(Debug, PartialEq)]
pub struct Setup {
    /// One or two servers; ratios are the first by the second.
    pub servers: Vec<Source>,
    /// How many runs on each.
    pub rounds: usize,
    /// Where to write JSON.
    pub json: Option<PathBuf>,
    /// Where to write the picture.
    pub svg: Option<PathBuf>,
}

/// As the table of commands has them.
pub const OPTIONS: &[Opt] = &[
    Opt::value(
        "",
        "ours",
        "SERVER",
        "the server to measure: a command line or HOST:PORT",
    ),
    Opt::value("", "theirs", "SERVER", "the server to compare it with"),
    Opt::value(
        "",
        "ours-pid",
        "PID",
        "the process of a running server, to account for it",
    ),
    Opt::value("", "theirs-pid", "PID", "the same of the other"),
    Opt::value(
        "r",
        "rounds",
        "N",
        "runs on each server, in the order A B B A (5)",
    ),
    Opt::value(
        "p",
        "place",
        "PLACE",
        "one (CPU for all), apart, or free (free)",
    )
    .of(Kind::Words(&["one", "apart", "free"])),
    Opt::value(
        "c",
        "connections",
        "N",
        "connections that work at the same time",
    ),
    Opt::value("d", "depth", "N", "requests sent together on a connection"),
    Opt::value("b", "body", "BYTES", "size of a body in bytes (100)"),
    Opt::value("n", "count", "N", "jobs in a run"),
    Opt::value("s", "seconds", "SECONDS", "length of a run instead"),
    Opt::value(
        "f",
        "sync",
        "MS",
        "with a binlog, synced within MS milliseconds, or never",
    ),
    Opt::value(
        "",
        "priorities",
        "N",
        "spread jobs over so many priorities (1)",
    ),
    Opt::value(
        "",
        "producers",
        "N",
        "handoff: producers, one job in flight each (1)",
    ),
    Opt::value(
        "",
        "consumers",
        "N",
        "handoff (2), mature (64; 0: just look): consumers",
    ),
    Opt::value("", "tubes", "N", "tubes: how many exist (10000)"),
    Opt::value("", "watched", "N", "tubes: how many are watched (1)"),
    Opt::value(
        "",
        "held",
        "HOW",
        "tubes: exist because of a watch or a job each (watch)",
    )
    .of(Kind::Words(&["watch", "job"])),
    Opt::value(
        "",
        "due",
        "N",
        "delayed: jobs that become due each second (300)",
    ),
    Opt::value(
        "",
        "delay",
        "SECONDS",
        "mature: seconds from put to due, at least (3)",
    ),
    Opt::value(
        "",
        "idle",
        "SECONDS",
        "delayed, idle, calls: how long to look on idly (5)",
    ),
    Opt::value(
        "",
        "settle",
        "SECONDS",
        "ready: pause before memory is read at the end (60)",
    ),
    Opt::value("", "json", "FILE", "write the result to this file too").of(Kind::File),
    Opt::value("", "svg", "FILE", "draw the result in this file").of(Kind::File),
    Opt::value("", "from", "FILE", "draw this JSON, of an earlier run").of(Kind::File),
    Opt::flag(
        "",
        "quick",
        "table: only what noise cannot change; fails if missed",
    ),
];

fn options() -> Options {
    let mut options = Options::new();
    for option in OPTIONS {
        let Opt {
            short,
            long,
            value,
            about,
            ..
        } = option;
        match value.is_empty() {
            true => options.optflag(short, long, about),
            false => options.optopt(short, long, about, value),
        };
    }
    options.optflag("h", "help", "print this");
    options
}

fn usage() -> String {
    let mut brief = "\
Usage: bench SCENARIO [--ours SERVER] [--theirs SERVER] [OPTION]...
       bench --from JSON --svg FILE
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
    options().usage(brief.trim_end())
}

/// What the arguments after `bench` ask for.
pub fn parse(arguments: &[String]) -> Result<Request, Failure> {
    let given = options()
        .parse(arguments)
        .map_err(|err| Failure::usage(err.to_string()))?;
    if given.opt_present("h") {
        return Ok(Request::Usage(usage()));
    }
    let path = |name: &str| given.opt_str(name).map(PathBuf::from);
    if let Some(from) = path("from") {
        return match (path("svg"), given.free.as_slice()) {
            (Some(svg), []) => Ok(Request::Draw(from, svg)),
            (None, _) => Err(Failure::usage("--from: draw it where? --svg FILE".into())),
            (_, [extra, ..]) => Err(Failure::usage(format!("unknown argument: {extra}"))),
        };
    }
    let scenario = match given.free.as_slice() {
        [scenario] if SCENARIOS.iter().any(|(name, _)| name == scenario) => scenario,
        [unknown] => return Err(Failure::usage(format!("no scenario is called {unknown}"))),
        [] => return Err(Failure::usage("which scenario?".into())),
        [_, extra, ..] => return Err(Failure::usage(format!("unknown argument: {extra}"))),
    };
    let number = |name: &str, least: usize, most: usize, otherwise: usize| {
        let Some(text) = given.opt_str(name) else {
            return Ok(otherwise);
        };
        match text.parse() {
            Ok(number) if (least..=most).contains(&number) => Ok(number),
            _ => Err(Failure::usage(format!(
                "--{name} {text}: not within {least} to {most}"
            ))),
        }
    };
    let narrow = |name: &str, least: usize, otherwise: u32| {
        let number = number(name, least, 1_000_000_000, otherwise as usize);
        number.map(|number| u32::try_from(number).unwrap_or(u32::MAX))
    };
    let seconds = |name: &str, otherwise: f64| {
        let Some(text) = given.opt_str(name) else {
            return Ok(otherwise);
        };
        match text.parse() {
            Ok(seconds) if (0.0..=86_400.0).contains(&seconds) => Ok(seconds),
            _ => Err(Failure::usage(format!(
                "--{name} {text}: not a number of seconds"
            ))),
        }
    };
    let pid = |name: &str| match given.opt_str(name).map(|text| text.parse::<i32>()) {
        None => Ok(None),
        Some(Ok(pid)) if pid > 0 => Ok(Some(pid)),
        Some(_) => Err(Failure::usage(format!("--{name}: not a process id"))),
    };
    let server = |name: &str, pid: Option<i32>| {
        let text = given.opt_str(name)?;
        Some(match text.contains("{port}") {
            true => Source::Command(text),
            false => Source::Running { address: text, pid },
        })
    };
    let is_table = scenario == "table";
    let ours = server("ours", pid("ours-pid")?).or_else(installed_beanpoled);
    let theirs = server("theirs", pid("theirs-pid")?);
    let ours = ours.ok_or_else(|| Failure::usage("no beanpoled found: --ours?".into()))?;
    let theirs = theirs.or_else(|| is_table.then(installed_beanstalkd)?);
    let setup = Setup {
        servers: [Some(ours), theirs].into_iter().flatten().collect(),
        rounds: number("rounds", 1, 1000, 5)?,
        json: path("json"),
        svg: path("svg"),
    };
    if is_table {
        return Ok(Request::Table(setup, given.opt_present("quick")));
    }
    let usual = Load::new(scenario);
    let Length::Count(usual_count) = usual.length else {
        unreachable!("loads come with a count")
    };
    let length = match given.opt_present("seconds") {
        true => Length::Seconds(seconds("seconds", 0.0)?),
        false => Length::Count(number("count", 1, 100_000_000, usual_count)?),
    };
    let load = Load {
        scenario: scenario.clone(),
        connections: number("connections", 1, 1_000_000, usual.connections)?,
        // More could fill the sockets' buffers in both directions.
        depth: number("depth", 1, 4096, usual.depth)?,
        body: number("body", super::jobs::STAMP, 1 << 30, usual.body)?,
        length,
        placement: match given.opt_str("place").as_deref() {
            None => usual.placement,
            Some("one") => Placement::One,
            Some("apart") => Placement::Apart,
            Some("free") => Placement::Free,
            Some(other) => return Err(Failure::usage(format!("--place {other}: which is that?"))),
        },
        sync: match given.opt_str("sync").as_deref() {
            None => usual.sync,
            Some("never") => Some(Syncing::Never),
            Some(_) => Some(Syncing::WithinMs(narrow("sync", 0, 0)?)),
        },
        priorities: narrow("priorities", 1, usual.priorities)?,
        producers: number("producers", 1, 100_000, usual.producers)?,
        consumers: number("consumers", 0, 100_000, usual.consumers)?,
        tubes: number("tubes", 1, 10_000_000, usual.tubes)?,
        watched: number("watched", 1, 10_000_000, usual.watched)?,
        held: match given.opt_str("held").as_deref() {
            None | Some("watch") => Held::Watch,
            Some("job") => Held::Job,
            Some(other) => return Err(Failure::usage(format!("--held {other}: which is that?"))),
        },
        due_per_second: narrow("due", 1, usual.due_per_second)?,
        delay: narrow("delay", 1, usual.delay)?,
        idle_seconds: seconds("idle", usual.idle_seconds)?,
        settle_seconds: seconds("settle", usual.settle_seconds)?,
    };
    Ok(Request::Run(load, setup))
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
        let arguments: Vec<String> = line.split(' ').map(String::from).collect();
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
            svg: None,
        };
        assert_eq!(parsed(line), Ok(Request::Run(load, setup)));
    }

    #[test]
    fn what_cannot_be_is_told() {
        for (line, message) in [
            ("dance --ours a:1", "no scenario is called dance"),
            ("put cycle --ours a:1", "unknown argument: cycle"),
            (
                "put --ours a:1 -b 15",
                "--body 15: not within 16 to 1073741824",
            ),
            (
                "put --ours a:1 -d 5000",
                "--depth 5000: not within 1 to 4096",
            ),
            (
                "put --ours a:1 -s -1",
                "--seconds -1: not a number of seconds",
            ),
            ("put --ours a:1 -p here", "--place here: which is that?"),
            (
                "put --ours a:1 --ours-pid x",
                "--ours-pid: not a process id",
            ),
        ] {
            assert_eq!(parsed(line), Err(message.into()), "{line}");
        }
    }
}
