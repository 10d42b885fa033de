//! `binlog`: shows the content of a server's log while no server runs.
//!
//! Nothing in the directory is changed; what is saved goes to another
//! directory. While a server has the directory locked, nothing is read.

mod cat;
mod findings;
mod live;
mod save;

use crate::command::{Command, Invocation, Kind};
use crate::failure::{Failure, Outcome, Status};
use crate::inspection::{At, File, Finding, Format, Inspection};
use crate::text::output::{Output, complain};
use beanpole::arguments;
use cat::cat;
use findings::{in_words, inspect, name, read, without_body};
use live::Live;
use save::{export, repair};
use std::collections::BTreeMap;
use std::path::PathBuf;

pub const BINLOG: Command = Command {
    name: "binlog",
    operands: "ls|verify|cat DIR | repair|export7 DIR NEW",
    operand_kind: Kind::WordThenDirectories(&["ls", "verify", "cat", "repair", "export7"]),
    about: "look into a server's binlog while no server uses it, or save what is in it",
    run: binlog,
    ..Command::BLANK
};

fn binlog(invocation: &Invocation) -> Outcome {
    let operands: Vec<&str> = invocation.operands().iter().map(String::as_str).collect();
    let path = |text: &str| PathBuf::from(arguments::to_os(text));
    match operands.as_slice() {
        ["ls", dir] => list(&inspect(&path(dir))?),
        ["verify", dir] => verify(&inspect(&path(dir))?),
        ["cat", dir] => cat(&inspect(&path(dir))?),
        ["repair", dir, new] => repair(&inspect(&path(dir))?, &path(new)),
        ["export7", dir, new] => export(&inspect(&path(dir))?, &path(new)),
        [] => Failure::usage("what? ls, verify, cat, repair or export7"),
        [what @ ("ls" | "verify" | "cat"), ..] => {
            Failure::usage(format!("{what} takes one directory"))
        }
        [what @ ("repair" | "export7"), ..] => Failure::usage(format!(
            "{what} takes a directory, and a new one to write to"
        )),
        [what, ..] => Failure::usage(format!(
            "'{what}' is not ls, verify, cat, repair or export7"
        )),
    }
}

/// Lists the files, with the format of each and how many live jobs it holds.
fn list(inspection: &Inspection) -> Outcome {
    let mut live = Live::default();
    let mut records: BTreeMap<u32, u64> = BTreeMap::new();
    let flaws = read(inspection, |finding| {
        if let Finding::Record(At { number, .. }, ..) | Finding::NotWhole(At { number, .. }, _) =
            finding
        {
            *records.entry(number).or_default() += 1;
        }
        live.note(without_body(finding));
        Ok(())
    })?;
    let mut output = Output::new();
    output.line(format_args!(
        "{:<12} {:<12} {:>11} {:>9} {:>9}",
        "FILE", "FORMAT", "BYTES", "RECORDS", "LIVE JOBS"
    ))?;
    for File {
        number,
        len,
        format,
    } in inspection.files()
    {
        let format = match format {
            Format::Beanpole => "beanpole".into(),
            Format::Beanstalkd(version) => format!("beanstalkd {version}"),
            Format::Empty => "empty".into(),
        };
        let living = live.there().filter(|living| living.file == number);
        let living = living.count();
        let records = records.get(&number).copied().unwrap_or(0);
        output.line(format_args!(
            "{:<12} {format:<12} {len:>11} {records:>9} {living:>9}",
            name(number)
        ))?;
    }
    output.sync()?;
    if flaws > 0 {
        complain!("not everything could be read: see verify");
    }
    Ok(Status::done_if(flaws == 0))
}

/// Reads the whole log, so that every checksum is checked.
fn verify(inspection: &Inspection) -> Outcome {
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
    let files = inspection.files().count();
    let verdict = if flaws == 0 { "sound" } else { "damaged" };
    output.line(format_args!(
        "{verdict}: {files} files, {records} records, {} jobs live",
        live.there().count()
    ))?;
    output.sync()?;
    Ok(Status::done_if(flaws == 0))
}
