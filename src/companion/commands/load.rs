//! `load`: puts the jobs of a dump into a server.
//!
//! Jobs are put in the order of the dump. If `load` stops, all jobs up to some
//! line are in the server. It says which line that is, and `--from` continues
//! there. Jobs whose answer was lost are then put again.

use crate::command::{Command, INPUT, Invocation, Kind, Opt, described, options};
use crate::failure::{Failure, Outcome, Status};
use crate::server::client::Terms;
use crate::server::place::{Placement, Placer};
use crate::server::stats::State;
use crate::signals::interrupts;
use crate::text::base64;
use crate::text::dump::{END_KEY, START_KEY, VERSION};
use crate::text::file::{cannot_read, open};
use crate::text::json::{self, Json};
use crate::text::output::{Progress, complain, print};
use beanpole::arguments;
use beanpole::protocol::{Priority, Seconds, TubeName};
use std::io::{BufRead, BufReader, Read};
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
    from: NonZeroU64 =
        Opt::value("", "from", "LINE", "go on at this line of the dump") => NonZeroU64::MIN,
    skip: Vec<NonZeroU64> =
        Opt::value("", "skip", "LINE", "leave out this line; may be repeated").many(),
    keep_going: bool =
        Opt::flag("k", "keep-going", "leave out each line that cannot be loaded, and say so"),
    tube: Option<TubeName> =
        Opt::value("t", "tube", "TUBE", "put all of them into this tube (default: their own)").of(Kind::Tube),
    dry_run: bool =
        Opt::flag("", "dry-run", "only read the dump, and say how many would be loaded"),
}

/// How many jobs are put together.
const BATCH: usize = 500;
/// How many bytes of bodies are put together; the last body may exceed this.
const BATCH_BYTES: usize = 1 << 22;

fn load(invocation: &Invocation) -> Outcome {
    let options = invocation.read(OPTIONS)?;
    let (name, reader) = match invocation.operands() {
        [] => open(INPUT.as_ref())?,
        [path] => open(&arguments::to_os(path))?,
        _ => return Failure::usage("which dump? give one file"),
    };
    let mut dump = Dump::new(name, reader)?;
    let mut loader = None;
    let mut largest = u64::MAX;
    if !options.dry_run {
        let mut client = invocation.connect()?;
        let told = client.server_stats()?.number("max-job-size");
        largest = if told > 0 { told } else { largest };
        loader = Some(Placer::new(client));
    }
    let interrupted = interrupts()?;
    let mut progress = Progress::new("loading", None);
    let mut loaded = 0u64;
    loop {
        let batch = dump.batch(&options, largest)?;
        if interrupted.load(Ordering::SeqCst) && !batch.jobs.is_empty() {
            drop(progress);
            let why = Failure::Interrupted("interrupted".into());
            return Err(dump.stopped(loaded, batch.lines[0], why));
        }
        let (count, outcome) = match &mut loader {
            Some(placer) => {
                let (ids, outcome) = placer.place(&batch.jobs);
                (ids.len(), outcome)
            }
            None => (batch.jobs.len(), Ok(())),
        };
        loaded += count as u64;
        progress.add(count as u64);
        if let Err(failure) = outcome {
            drop(progress);
            // All jobs may be there while a burial failed: then the rest begins
            // after them.
            let next = batch.broken.map_or(dump.line + 1, |(line, _)| line);
            let line = batch.lines.get(count).copied().unwrap_or(next);
            return Err(dump.stopped(loaded, line, failure));
        }
        if let Some((line, reason)) = batch.broken {
            drop(progress);
            return Err(dump.at_fault(loaded, line, &reason));
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
    print(format!("{loaded}\n"))?;
    let sound = dump.check_end()?;
    Ok(Status::done_if(sound && dump.left_out == 0))
}

/// A dump that is being read.
struct Dump {
    name: String,
    reader: BufReader<Box<dyn Read>>,
    /// The number of the line that was read last, from 1 on.
    line: u64,
    /// The last line of the dump, once it has been read.
    end: Option<Json>,
    /// How many faulty lines were left out.
    left_out: u64,
}

/// Jobs, and the lines that they stand on.
#[derive(Default)]
struct Batch {
    jobs: Vec<Placement>,
    lines: Vec<u64>,
    /// The line after them, if it is not a job, and the reason.
    broken: Option<(u64, String)>,
}

impl Dump {
    /// Opens a dump, and reads its first line.
    fn new(name: String, reader: Box<dyn Read>) -> Outcome<Dump> {
        let reader = BufReader::with_capacity(1 << 16, reader);
        let mut dump = Dump {
            name,
            reader,
            line: 0,
            end: None,
            left_out: 0,
        };
        let first = dump.next_line()?.and_then(|line| json::parse(&line).ok());
        let version = first.and_then(|first| first.get(START_KEY)?.as_u64());
        let what = match version {
            Some(VERSION) => return Ok(dump),
            Some(other) => format!("a dump of version {other}: only {VERSION} is known"),
            None => "not a dump of beanpole".into(),
        };
        Failure::refused(format!("{}: {what}", dump.name))
    }

    fn next_line(&mut self) -> Outcome<Option<Vec<u8>>> {
        let mut line = Vec::new();
        let count = self.reader.read_until(b'\n', &mut line);
        let count = count.map_err(|error| cannot_read(&self.name, error))?;
        self.line += 1;
        Ok((count > 0).then_some(line))
    }

    /// The next of the jobs that are wanted. An empty batch means that there
    /// are no more.
    fn batch(&mut self, options: &Options, largest: u64) -> Outcome<Batch> {
        let mut batch = Batch::default();
        let mut bytes = 0;
        while self.end.is_none() && batch.jobs.len() < BATCH && bytes < BATCH_BYTES {
            let Some(line) = self.next_line()? else { break };
            let value = json::parse(&line);
            if let Ok(end) = &value
                && end.get(END_KEY).is_some()
            {
                self.end = value.ok();
                break;
            }
            let is_line = |line: &NonZeroU64| line.get() == self.line;
            if self.line < options.from.get() || options.skip.iter().any(is_line) {
                continue;
            }
            match value.and_then(|value| placement(&value, &options.tube, largest)) {
                Ok(job) => {
                    bytes += job.body.len();
                    batch.jobs.push(job);
                    batch.lines.push(self.line);
                }
                Err(reason) if options.keep_going => {
                    self.left_out += 1;
                    let Dump { name, line, .. } = self;
                    complain(format_args!(
                        "beanpole load: {name} line {line}: {reason}; left out"
                    ));
                }
                Err(reason) => {
                    batch.broken = Some((self.line, reason));
                    break;
                }
            }
        }
        Ok(batch)
    }

    /// Whether the dump is complete; if not, this prints a message.
    fn check_end(&mut self) -> Outcome<bool> {
        let end_line = self.line;
        // All lines except the first and the last are jobs.
        let there = end_line.saturating_sub(2);
        let written = self
            .end
            .as_ref()
            .map(|end| end.get("jobs").and_then(Json::as_u64));
        let flaw = match written {
            None => Some("the end is missing: the dump was cut short".into()),
            Some(Some(written)) if written != there => Some(format!(
                "{written} jobs were written, but {there} are there"
            )),
            Some(_) if self.next_line()?.is_some() => Some(format!(
                "line {end_line} is the end, and what follows is not loaded"
            )),
            Some(_) => None,
        };
        if let Some(flaw) = &flaw {
            complain(format_args!("beanpole load: {}: {flaw}", self.name));
        }
        Ok(flaw.is_none())
    }

    /// The failure that says how to go on without a faulty line.
    fn at_fault(&self, loaded: u64, line: u64, reason: &str) -> Failure {
        Failure::Refused(format!(
            "{} line {line}: {reason}\n{loaded} jobs are loaded; 'load --from {line} --skip {line}' goes on \
             without that line",
            self.name
        ))
    }

    /// The failure that says at which line to go on.
    fn stopped(&self, loaded: u64, line: u64, failure: Failure) -> Failure {
        let text = format!(
            "{} line {line}: {failure}\n{loaded} jobs are loaded; 'load --from {line}' goes on with the \
             rest",
            self.name
        );
        match failure {
            Failure::Unreachable(_) => Failure::Unreachable(format!(
                "{text};\nsome of the {BATCH} after it may be there already and come twice"
            )),
            Failure::Interrupted(_) => Failure::Interrupted(text),
            _ => Failure::Refused(text),
        }
    }
}

/// The job that this line of a dump describes. If `tube` is given, it replaces
/// the job's own tube. A body larger than `largest`, the limit of the server,
/// is an error.
fn placement(value: &Json, tube: &Option<TubeName>, largest: u64) -> Result<Placement, String> {
    let number = |key: &str| {
        let number = value.get(key).and_then(Json::as_u64);
        let number = number.and_then(|number| u32::try_from(number).ok());
        number.ok_or_else(|| format!("'{key}' is not a number from 0 to {}", u32::MAX))
    };
    let text = |key: &str| value.get(key).and_then(Json::as_text);
    let own = text("tube").and_then(|name| TubeName::parse(name.as_bytes()));
    let own = own.ok_or("'tube' is not the name of a tube")?;
    let body = match (text("body"), text("body64")) {
        (Some(text), None) => text.as_bytes().to_vec(),
        (None, Some(text)) => base64::decode(text).ok_or("'body64' is not base64")?,
        (None, None) => return Err("there is neither 'body' nor 'body64'".into()),
        (Some(_), Some(_)) => return Err("there is both 'body' and 'body64'".into()),
    };
    let size = body.len();
    if size as u64 > largest {
        return Err(format!(
            "the body has {size} bytes, and the server takes {largest}"
        ));
    }
    let state = text("state").and_then(State::parse);
    let state = state.ok_or("'state' is none of a job")?;
    Ok(Placement {
        tube: tube.clone().unwrap_or(own),
        terms: Terms {
            priority: Priority(number("pri")?),
            delay: Seconds(number("delay")?),
            ttr: Seconds(number("ttr")?),
        },
        buried: state == State::Buried,
        body,
    })
}
