//! `binlog`: shows the content of a server's log while no server runs.
//!
//! Nothing in the directory is changed; what is saved goes to another
//! directory. While a server has the directory locked, nothing is read.

mod live;
mod save;

use crate::command::{Invocation, Run};
use crate::failure::{Failure, Outcome, Status};
use crate::inspection::{Finding, Format, Inspection};
use crate::text::counted;
use crate::text::json::{self, Json, json};
use crate::text::output::{Output, complain};
use beanpole::binlog::Record;
use beanpole::engine::{Counters, StoredState};
use clap::{Args, ValueEnum, ValueHint};
use live::{in_words, inspect, name, read, say};
use save::{export, repair};
use std::path::{Path, PathBuf};

#[derive(Args)]
#[command(override_usage = "beanpole binlog [OPTIONS] ls|verify|cat DIR | repair|export7 DIR NEW")]
pub struct Binlog {
    #[arg(value_name = "WHAT")]
    what: Option<What>,
    #[arg(value_name = "DIR", value_hint = ValueHint::DirPath)]
    dir: Option<PathBuf>,
    #[arg(value_name = "NEW", value_hint = ValueHint::DirPath)]
    new: Option<PathBuf>,
}

#[derive(Clone, Copy, ValueEnum)]
enum What {
    Ls,
    Verify,
    Cat,
    Repair,
    Export7,
}

impl Run for Binlog {
    fn run(self, _: &Invocation) -> Outcome {
        let Some((what, dir)) = self.what.zip(self.dir.as_ref()) else {
            return Failure::usage("what, and in which directory?");
        };
        match (what, &self.new) {
            (What::Ls, None) => list(&inspect(dir)?, dir),
            (What::Verify, None) => verify(&inspect(dir)?, dir),
            (What::Cat, None) => cat(&inspect(dir)?),
            (What::Repair, Some(new)) => repair(&inspect(dir)?, new),
            (What::Export7, Some(new)) => export(&inspect(dir)?, new),
            (_, Some(_)) => Failure::usage("ls, verify and cat take one directory"),
            (_, None) => {
                Failure::usage("repair and export7 take a directory, and a new one to write to")
            }
        }
    }
}

/// Lists the files, with the format of each and how many live jobs it holds.
fn list(inspection: &Inspection, dir: &Path) -> Outcome {
    let live = read(inspection, false, |_| Ok(()))?;
    let mut output = Output::new();
    output.line("FILE         FORMAT             BYTES   RECORDS LIVE JOBS")?;
    for file in inspection.files() {
        let format = match file.format {
            Format::Beanpole => "beanpole".into(),
            Format::Beanstalkd(version) => format!("beanstalkd {version}"),
            Format::Empty => "empty".into(),
        };
        let living = live.there().filter(|living| living.file == file.number);
        output.line(format_args!(
            "{:<12} {format:<12} {:>11} {:>9} {:>9}",
            name(file.number),
            file.len,
            live.records.get(&file.number).unwrap_or(&0),
            living.count()
        ))?;
    }
    finish(output, live.flaws, dir)
}

/// Reads the whole log, so that every checksum is checked.
fn verify(inspection: &Inspection, dir: &Path) -> Outcome {
    let mut output = Output::new();
    let live = read(inspection, false, |finding| match in_words(finding) {
        Some(text) => output.line(text),
        None => Ok(()),
    })?;
    for loss in live.losses() {
        output.line(loss)?;
    }
    let flaws = live.flaws + live.lost.len();
    let (files, jobs) = (inspection.files().count(), live.there().count());
    let records: u64 = live.records.values().sum();
    let verdict = if flaws == 0 { "sound" } else { "damaged" };
    output.line(format_args!(
        "{verdict}: {}, {}, {} live",
        counted(files as u64, "file"),
        counted(records, "record"),
        counted(jobs as u64, "job"),
    ))?;
    finish(output, flaws, dir)
}

/// Ends with status 1 if there are flaws, and says what can be done about them.
fn finish(mut output: Output, flaws: usize, dir: &Path) -> Outcome {
    output.sync()?;
    if flaws > 0 {
        let dir = dir.display();
        complain!("'beanpole binlog repair {dir} NEW' saves what can be read");
    }
    Ok(Status::done_if(flaws == 0))
}

/// Writes every record as a line of JSON.
fn cat(inspection: &Inspection) -> Outcome {
    let mut output = Output::new();
    let live = read(inspection, false, |finding| {
        say(finding);
        record_line(finding).map_or(Ok(()), |line| output.json(&line))
    })?;
    output.sync()?;
    Ok(Status::done_if(live.flaws == 0))
}

fn record_line(finding: &Finding) -> Option<Json> {
    let (Finding::Record(at, ..) | Finding::NotWhole(at, _)) = finding else {
        return None;
    };
    let mut line = json!({"file": name(at.number), "offset": at.offset, "record": "not whole"});
    let mut add = |key: &str, value: Json| line[key] = value;
    match finding {
        Finding::Record(_, _, Record::Put(job)) => {
            add("record", "job".into());
            add("id", job.id.0.into());
            add("tube", job.tube.as_str().into());
            add("pri", job.priority.0.into());
            add("delay", job.delay.0.into());
            add("ttr", job.ttr.0.into());
            add("created-ns", job.created_at.as_nanos().into());
            add_state(job.state, &job.counters, &mut add);
            if let Some(stored) = job.options.as_deref() {
                add("options", stored.options.to_string().into());
                if stored.options.tries.is_some() {
                    add("tries-failed", stored.failed_tries.into());
                }
            }
            let (key, body) = json::body(job.body.content());
            add(&key, body);
        }
        Finding::Record(_, _, Record::Update(update)) => {
            add("record", "update".into());
            add("id", update.id.0.into());
            add("pri", update.priority.0.into());
            add("delay", update.delay.0.into());
            add_state(update.state, &update.counters, &mut add);
            if update.failed_tries > 0 {
                add("tries-failed", update.failed_tries.into());
            }
        }
        Finding::Record(_, _, Record::Delete(id)) => {
            add("record", "delete".into());
            add("id", id.0.into());
        }
        Finding::Record(_, _, Record::Mark(oldest)) => {
            add("record", "mark".into());
            add("oldest", (*oldest).into());
        }
        Finding::NotWhole(_, id) => add("id", id.0.into()),
        _ => {}
    }
    Some(line)
}

fn add_state(state: StoredState, counters: &Counters, add: &mut impl FnMut(&str, Json)) {
    match state {
        StoredState::Ready => add("state", "ready".into()),
        StoredState::Delayed { until } => {
            add("state", "delayed".into());
            add("until-ns", until.as_nanos().into());
        }
        StoredState::Buried { order } => {
            add("state", "buried".into());
            add("order", order.into());
        }
        StoredState::Deleted { until } => {
            add("state", "deleted".into());
            add("until-ns", until.as_nanos().into());
        }
    }
    add("reserves", counters.reserves.into());
    add("timeouts", counters.timeouts.into());
    add("releases", counters.releases.into());
    add("buries", counters.buries.into());
    add("kicks", counters.kicks.into());
}
