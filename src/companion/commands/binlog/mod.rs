//! `binlog`: shows the content of a server's log while no server runs.
//!
//! Nothing in the directory is changed; what is saved goes to another
//! directory. While a server has the directory locked, nothing is read.

mod cat;
mod findings;
mod live;
mod save;

use crate::command::{Invocation, Run};
use crate::failure::{Failure, Outcome, Status};
use crate::inspection::{Finding, Format, Inspection};
use crate::text::output::{Output, complain};
use cat::cat;
use clap::{Args, ValueEnum, ValueHint};
use findings::{in_words, inspect, name, read, without_body};
use live::Live;
use save::{export, repair};
use std::collections::BTreeMap;
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
    let mut live = Live::default();
    let mut records: BTreeMap<u32, u64> = BTreeMap::new();
    let flaws = read(inspection, |finding| {
        if let Finding::Record(at, ..) | Finding::NotWhole(at, _) = finding {
            *records.entry(at.number).or_default() += 1;
        }
        live.note(without_body(finding));
        Ok(())
    })?;
    let mut output = Output::new();
    output.line("FILE         FORMAT             BYTES   RECORDS LIVE JOBS")?;
    for file in inspection.files() {
        let format = match file.format {
            Format::Beanpole => "beanpole".into(),
            Format::Beanstalkd(version) => format!("beanstalkd {version}"),
            Format::Empty => "empty".into(),
        };
        let living = live.there().filter(|living| living.file == file.number);
        let records = records.get(&file.number).unwrap_or(&0);
        output.line(format_args!(
            "{:<12} {format:<12} {:>11} {records:>9} {:>9}",
            name(file.number),
            file.len,
            living.count()
        ))?;
    }
    finish(output, flaws, dir)
}

/// Reads the whole log, so that every checksum is checked.
fn verify(inspection: &Inspection, dir: &Path) -> Outcome {
    let mut output = Output::new();
    let mut live = Live::default();
    let mut records = 0u64;
    let mut flaws = read(inspection, |finding| {
        let is_record = matches!(finding, Finding::Record(..) | Finding::NotWhole(..));
        records += u64::from(is_record);
        if let Some(text) = in_words(&finding) {
            output.line(text)?;
        }
        live.note(without_body(finding));
        Ok(())
    })?;
    for id in &live.lost {
        output.line(format_args!("job {id} is lost: no record says what it was"))?;
    }
    flaws += live.lost.len();
    let (files, jobs) = (inspection.files().count(), live.there().count());
    let verdict = if flaws == 0 { "sound" } else { "damaged" };
    output.line(format_args!(
        "{verdict}: {files} files, {records} records, {jobs} jobs live"
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
