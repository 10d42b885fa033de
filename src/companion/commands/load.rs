//! `load`: puts the jobs of a dump into a server.
//!
//! Jobs are put in the order of the dump, so if it stops, everything up to
//! some line is there; it says which, and `--from` goes on after it. Jobs of
//! which the server's answer was lost are then put again.

use crate::command::{Command, Invocation, Kind, Opt, described, options};
use crate::failure::{Failure, Outcome, Status};
use crate::server::client::Terms;
use crate::server::place::{Placement, Placer};
use crate::server::stats::State;
use crate::signals::interrupts;
use crate::text::base64;
use crate::text::dump::{END_KEY, START_KEY, VERSION};
use crate::text::json::{self, Json};
use crate::text::output::{Output, Progress, complain};
use beanpole::arguments;
use beanpole::protocol::{Priority, Seconds, TubeName};
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::num::NonZeroU64;
use std::sync::atomic::Ordering;

pub const LOAD: Command = Command {
    name: "load",
    operands: "[FILE]",
    operand_kind: Kind::File,
    about: "put the jobs of a dump into a server",
    options: || described(OPTIONS),
    run: load,
    ..Command::BLANK
};

options! {
    from: Option<NonZeroU64> = Opt::value("", "from", "LINE", "go on at this line of the dump"),
    check: bool = Opt::flag("", "check", "only read the dump, and say what is in it"),
}

/// Jobs put into place at one go.
const BATCH: usize = 500;
/// Bytes of bodies at one go.
const BATCH_BYTES: usize = 1 << 22;

fn load(invocation: &Invocation) -> Outcome {
    let options = invocation.read(OPTIONS)?;
    let from = options.from.map_or(1, NonZeroU64::get);
    let mut dump = match invocation.operands() {
        [] => Dump::new("stdin".into(), Box::new(io::stdin()))?,
        [path] if path == "-" => Dump::new("stdin".into(), Box::new(io::stdin()))?,
        [path] => {
            let path = arguments::to_os(path);
            let name = path.to_string_lossy().into_owned();
            let file = File::open(&path);
            let file =
                file.map_err(|error| Failure::io(format_args!("cannot read {name}"), error))?;
            Dump::new(name, Box::new(file))?
        }
        _ => return Err(Failure::Usage("which dump? give one file".into())),
    };
    let mut loader = if options.check {
        None
    } else {
        Some(Placer::new(invocation.connect()?))
    };
    let interrupted = interrupts()?;
    let mut progress = Progress::new("loading", None);
    let mut loaded = 0u64;
    loop {
        let batch = dump.batch(from)?;
        if interrupted.load(Ordering::SeqCst) && !batch.jobs.is_empty() {
            drop(progress);
            return Err(dump.stopped(
                loaded,
                batch.lines[0],
                Failure::Interrupted("interrupted".into()),
            ));
        }
        if let Some(placer) = &mut loader {
            let (ids, outcome) = placer.place(&batch.jobs);
            loaded += ids.len() as u64;
            if let Err(failure) = outcome {
                drop(progress);
                let line = batch.lines.get(ids.len()).copied().unwrap_or(dump.line + 1);
                return Err(dump.stopped(loaded, line, failure));
            }
        } else {
            loaded += batch.jobs.len() as u64;
        }
        progress.add(batch.jobs.len() as u64);
        if let Some((line, reason)) = batch.broken {
            drop(progress);
            return Err(dump.stopped(loaded, line, Failure::Refused(reason)));
        }
        if batch.jobs.is_empty() {
            break;
        }
    }
    drop(progress);
    let parked = loader.map_or(0, |placer| placer.parked);
    if parked > 0 {
        complain(format_args!(
            "beanpole load: {parked} buried jobs are delayed for 136 years instead: the server cannot \
             reserve by id"
        ));
    }
    let mut output = Output::new();
    output.line(loaded)?;
    output.sync()?;
    if !dump.ended {
        complain(format_args!(
            "beanpole load: {}: the end is missing: the dump was cut short",
            dump.name
        ));
    }
    Ok(Status::done_if(dump.ended))
}

/// A dump that is being read.
struct Dump {
    name: String,
    reader: BufReader<Box<dyn Read>>,
    /// The number of the line that was read last.
    line: u64,
    ended: bool,
}

/// Jobs and the lines that they stand on.
struct Batch {
    jobs: Vec<Placement>,
    lines: Vec<u64>,
    /// The line after them that is no job, and why.
    broken: Option<(u64, String)>,
}

impl Dump {
    /// Reads the first line.
    fn new(name: String, reader: Box<dyn Read>) -> Outcome<Dump> {
        let reader = BufReader::with_capacity(1 << 16, reader);
        let mut dump = Dump {
            name,
            reader,
            line: 0,
            ended: false,
        };
        let first = dump.next_line()?.and_then(|line| json::parse(&line).ok());
        match first
            .as_ref()
            .and_then(|first| first.get(START_KEY))
            .and_then(Json::as_u64)
        {
            Some(VERSION) => Ok(dump),
            Some(other) => {
                let name = &dump.name;
                Err(Failure::Refused(format!(
                    "{name}: a dump of version {other}: only {VERSION} is known"
                )))
            }
            None => Err(Failure::Refused(format!(
                "{}: not a dump of beanpole",
                dump.name
            ))),
        }
    }

    fn next_line(&mut self) -> Outcome<Option<Vec<u8>>> {
        let mut line = Vec::new();
        let count = self.reader.read_until(b'\n', &mut line);
        let count =
            count.map_err(|error| Failure::io(format_args!("cannot read {}", self.name), error))?;
        self.line += 1;
        Ok((count > 0).then_some(line))
    }

    /// The next jobs, from this line on. None: that is all.
    fn batch(&mut self, from: u64) -> Outcome<Batch> {
        let mut batch = Batch {
            jobs: Vec::new(),
            lines: Vec::new(),
            broken: None,
        };
        let mut bytes = 0;
        while batch.jobs.len() < BATCH && bytes < BATCH_BYTES {
            let Some(line) = self.next_line()? else { break };
            if self.line < from {
                continue;
            }
            let job = json::parse(&line).and_then(|value| {
                self.ended = value.get(END_KEY).is_some();
                if self.ended {
                    Ok(None)
                } else {
                    placement(&value).map(Some)
                }
            });
            match job {
                Ok(None) => break,
                Ok(Some(job)) => {
                    bytes += job.body.len();
                    batch.jobs.push(job);
                    batch.lines.push(self.line);
                }
                Err(reason) => {
                    batch.broken = Some((self.line, reason));
                    break;
                }
            }
        }
        Ok(batch)
    }

    /// The failure that says how to go on.
    fn stopped(&self, loaded: u64, line: u64, failure: Failure) -> Failure {
        let text = format!(
            "{} line {line}: {failure}\n{loaded} jobs are loaded; 'load --from {line}' goes on with the \
             rest",
            self.name
        );
        match failure {
            Failure::Unreachable(_) => {
                let doubled =
                    format!("some of the {BATCH} after it may be there already and come twice");
                Failure::Unreachable(format!("{text};\n{doubled}"))
            }
            Failure::Interrupted(_) => Failure::Interrupted(text),
            _ => Failure::Refused(text),
        }
    }
}

/// The job that this line of a dump describes.
fn placement(value: &Json) -> Result<Placement, String> {
    let number = |key: &str| {
        let number = value
            .get(key)
            .and_then(Json::as_u64)
            .and_then(|number| u32::try_from(number).ok());
        number.ok_or_else(|| format!("'{key}' is not a number from 0 to {}", u32::MAX))
    };
    let text = |key: &str| value.get(key).and_then(Json::as_text);
    let tube = text("tube").and_then(|name| TubeName::parse(name.as_bytes()));
    let body = match (text("body"), text("body64")) {
        (Some(text), None) => Ok(text.as_bytes().to_vec()),
        (None, Some(text)) => base64::decode(text).ok_or("'body64' is not base64"),
        (None, None) => Err("there is neither 'body' nor 'body64'"),
        (Some(_), Some(_)) => Err("there is both 'body' and 'body64'"),
    };
    let state = text("state")
        .and_then(State::parse)
        .ok_or("'state' is none of a job")?;
    Ok(Placement {
        tube: tube.ok_or("'tube' is not the name of a tube")?,
        terms: Terms {
            priority: Priority(number("pri")?),
            delay: Seconds(number("delay")?),
            ttr: Seconds(number("ttr")?),
        },
        buried: state == State::Buried,
        body: body?,
    })
}
