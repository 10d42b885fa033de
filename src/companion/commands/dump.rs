//! `dump`: writes the jobs of a server, or of some tubes, as a file that `load`
//! reads.

use crate::command::{Command, Invocation, Kind, Opt, described, options};
use crate::failure::Outcome;
use crate::server::census::Census;
use crate::server::list::Scope;
use crate::server::stats::{JobFacts, State};
use crate::server::take::{Room, bodies, jobs_of};
use crate::server::trouble::listed;
use crate::server::tubes::stats_of;
use crate::text::dump::{END_KEY, START_KEY, VERSION};
use crate::text::file::WholeFile;
use crate::text::json::{self, Json, json};
use crate::text::output::{Output, Progress, complain};
use std::ffi::OsString;
use std::path::Path;

pub const DUMP: Command = Command {
    name: "dump",
    operands: "[TUBE…]",
    operand_kind: Kind::Tube,
    about: "write all jobs, or those of some tubes, for load to read",
    options: || described(OPTIONS),
    run: dump,
    ..Command::BLANK
};

options! {
    output: Option<OsString> =
        Opt::value("o", "output", "FILE", "write to this file when all is there (default: stdout)")
            .of(Kind::File),
}

fn dump(invocation: &Invocation) -> Outcome {
    let options = invocation.read(OPTIONS)?;
    let tubes = invocation.tubes()?;
    let mut client = invocation.connect()?;
    let version = client.server_stats()?.text("version").to_owned();
    let scope = Scope {
        tubes: tubes.existing(&mut client)?,
        states: State::ALL.into(),
    };
    let census = Census::take(&mut client, &scope)?;
    // No other user may read the bodies.
    let create = |path| WholeFile::create(Path::new(path), 0o600);
    let mut file = options.output.as_ref().map(create).transpose()?;
    let mut output = Output::new();
    let mut write = |line: Json| match &mut file {
        Some(file) => file.bytes((json::line(&line) + "\n").as_bytes()),
        None => output.json(&line),
    };
    let server = client.address.to_string();
    write(json!({START_KEY: VERSION, "server": server, "version": version}))?;
    let mut progress = Progress::new("dumping", Some(census.ids.len() as u64));
    let mut room = Room::default();
    let mut left = census.ids.as_slice();
    let mut jobs = 0u64;
    while !left.is_empty() {
        let now = left.split_off(..room.jobs().min(left.len()));
        let now = now.unwrap_or_default();
        let there = jobs_of(&mut client, now.iter().copied())?;
        let batch = bodies(&mut client, there)?;
        room.learn(batch.iter().map(|(_, body)| body.len()));
        for (job, body) in &batch {
            write(job_line(job, body))?;
        }
        jobs += batch.len() as u64;
        progress.add(now.len() as u64);
    }
    write(json!({END_KEY: 1, "jobs": jobs}))?;
    drop(progress);
    match file {
        Some(file) => file.finish()?,
        None => output.sync()?,
    }
    let names = tubes.meant(&mut client)?;
    let stats = stats_of(&mut client, &names)?;
    let paused = stats
        .iter()
        .filter(|(_, facts)| facts.number("pause-time-left") > 0);
    let paused: Vec<_> = paused.map(|(tube, _)| tube).collect();
    if !paused.is_empty() {
        complain!(
            "a dump has no pauses: pause these where it is loaded: {}",
            listed(&paused)
        );
    }
    Ok(census.verdict())
}

fn job_line(job: &JobFacts, body: &[u8]) -> Json {
    let mut line = json!({
        "tube": job.tube.as_str(),
        "state": job.state.name(),
        "pri": job.priority.0,
        "delay": job.delay_left().0,
        "ttr": job.ttr.0,
        "id": job.id.0,
    });
    for key in ["age", "reserves", "timeouts", "releases", "buries", "kicks"] {
        line[key] = job.all.number(key).into();
    }
    if let Some(words) = job.words() {
        line["words"] = words.to_string().into();
    }
    let (key, body) = json::body(body);
    line[key] = body;
    line
}
