//! `load`: puts the jobs of a dump into a server.
//!
//! Jobs are put in the order of the dump. If `load` stops, all jobs up to some
//! line are in the server. It says which line that is, and `--from` continues
//! there. Jobs whose answer was lost are then put again.

use crate::command::{INPUT, Invocation, Run};
use crate::failure::{Failure, Outcome, Status};
use crate::server::client::Terms;
use crate::server::form::{DUMP_VERSION, Line, Told};
use crate::server::place::{Placement, Placer};
use crate::server::stats::State;
use crate::signals::interrupts;
use crate::text::file::{WholeFile, cannot_read, open};
use crate::text::output::{Progress, complain, print};
use crate::values::{Parse, parse};
use beanpole::protocol::TubeName;
use clap::{Args, ValueHint};
use std::ffi::OsString;
use std::fs::{Metadata, metadata, remove_file};
use std::io::{BufRead, BufReader, ErrorKind, Read};
use std::num::NonZeroU64;
use std::path::Path;
use std::sync::atomic::Ordering;

#[derive(Args)]
pub struct Load {
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
    file: Option<OsString>,
    /// go on at this line of the dump
    #[arg(long, value_name = "LINE", value_parser = parse::<NonZeroU64>)]
    from: Option<NonZeroU64>,
    /// leave out this line; may be repeated
    #[arg(long, value_name = "LINE", value_parser = parse::<NonZeroU64>)]
    skip: Vec<NonZeroU64>,
    /// leave out each line that cannot be loaded, and say so
    #[arg(short, long)]
    keep_going: bool,
    /// put all of them into this tube (default: their own)
    #[arg(short, long, value_name = "TUBE", value_parser = parse::<TubeName>)]
    tube: Option<TubeName>,
    /// note there how far it has come, and go on from there (default: nowhere)
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    note: Option<OsString>,
    /// only read the dump, and say how many would be loaded
    #[arg(long)]
    dry_run: bool,
}

/// How many jobs are put together.
const BATCH: usize = 500;
/// How many bytes of bodies are put together; the last body may exceed this.
const BATCH_BYTES: usize = 1 << 22;

impl Run for Load {
    fn run(mut self, invocation: &Invocation) -> Outcome {
        let note = self.note.take().filter(|_| !self.dry_run);
        let note = note.as_deref().map(Path::new);
        self.from = self.from.max(note.map(noted).transpose()?.flatten());
        let (name, reader) = open(self.file.as_deref().unwrap_or(INPUT.as_ref()))?;
        let size = metadata(&name)
            .ok()
            .filter(Metadata::is_file)
            .map(|file| file.len());
        let mut dump = Dump::new(name, reader, size)?;
        let mut loader = None;
        let mut largest = u64::MAX;
        if !self.dry_run {
            let mut client = invocation.connect()?;
            let told = client.server_stats()?.number("max-job-size");
            largest = if told > 0 { told } else { largest };
            loader = Some(Placer::new(client));
        }
        let interrupted = interrupts()?;
        let mut progress = Progress::new("loading", None);
        let mut loaded = 0u64;
        loop {
            let batch = dump.batch(&self, largest)?;
            if interrupted.load(Ordering::SeqCst) && !batch.jobs.is_empty() {
                drop(progress);
                let why = Failure::Interrupted("interrupted".into());
                return Err(dump.stopped(loaded, batch.lines[0], 0, why));
            }
            let (count, in_place, outcome) = match &mut loader {
                Some(placer) => {
                    let placed = placer.place(&batch.jobs);
                    let count = placed.ids.len();
                    (count, count - placed.unburied.len(), placed.outcome)
                }
                None => (batch.jobs.len(), batch.jobs.len(), Ok(())),
            };
            loaded += in_place as u64;
            if let Some(total) = dump.expected() {
                progress.expect(total);
            }
            progress.add(count as u64);
            if let Err(failure) = outcome {
                drop(progress);
                // All jobs may be there while a burial failed: then the rest begins
                // after them.
                let next = match (batch.broken, dump.is_over) {
                    (Some((line, _)), _) => line,
                    (None, true) => dump.line,
                    (None, false) => dump.line + 1,
                };
                let line = batch.lines.get(count).copied().unwrap_or(next);
                let unanswered = batch.jobs.len() - count;
                return Err(dump.stopped(loaded, line, unanswered, failure));
            }
            if let Some((line, reason)) = batch.broken {
                drop(progress);
                return Err(dump.at_fault(loaded, line, &reason, self.dry_run));
            }
            if batch.jobs.is_empty() {
                break;
            }
            if let Some(path) = note {
                let mut file = WholeFile::create(path, 0o644)?;
                file.bytes(format!("{}\n", dump.line + 1).as_bytes())?;
                file.finish()?;
            }
        }
        drop(progress);
        if let Some(placer) = &loader {
            placer.say_what_is_lost();
        }
        print(format!("{loaded}\n"))?;
        let sound = dump.check_end()?;
        if let Some(path) = note.filter(|_| sound) {
            // Without any job there is no note. That of a dump that was cut short
            // says where the whole one goes on.
            let _ = remove_file(path);
        }
        Ok(Status::done_if(sound && dump.left_out == 0))
    }
}

/// The line that an earlier run has noted as the one to go on at, if any.
fn noted(path: &Path) -> Outcome<Option<NonZeroU64>> {
    let shown = path.display();
    match std::fs::read_to_string(path) {
        Ok(text) => match NonZeroU64::parse(text.trim()) {
            Ok(line) => Ok(Some(line)),
            Err(_) => Failure::refused(format!("{shown} notes no line of a dump")),
        },
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(Failure::io(format_args!("cannot read {shown}"), error)),
    }
}

/// A dump that is being read.
struct Dump {
    name: String,
    reader: BufReader<Box<dyn Read>>,
    /// The number of the line that was read last, from 1 on.
    line: u64,
    /// The first line, if it is a job: then these are only jobs, as `ls` lists
    /// them, without an end of their own.
    first: Option<Vec<u8>>,
    only_jobs: bool,
    /// Whether the last line of the dump has been read, and how many jobs it
    /// counts.
    is_over: bool,
    written: Option<u64>,
    /// How many faulty lines were left out.
    left_out: u64,
    /// The line within which the dump ends, if it ends within one.
    cut: Option<u64>,
    /// The size of the file, if it is one, and how many bytes have been read.
    size: Option<u64>,
    read: u64,
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
    fn new(name: String, reader: Box<dyn Read>, size: Option<u64>) -> Outcome<Dump> {
        let reader = BufReader::with_capacity(1 << 16, reader);
        let mut dump = Dump {
            name,
            reader,
            line: 0,
            first: None,
            only_jobs: false,
            is_over: false,
            written: None,
            left_out: 0,
            cut: None,
            size,
            read: 0,
        };
        let first = dump.next_line()?.unwrap_or_default();
        let what = match Line::read(&first) {
            Ok(Line::Start(DUMP_VERSION)) => return Ok(dump),
            Ok(Line::Start(other)) => {
                format!("a dump of version {other}: only {DUMP_VERSION} is known")
            }
            Ok(Line::Job(_)) => {
                dump.line = 0;
                dump.only_jobs = true;
                dump.first = Some(first);
                return Ok(dump);
            }
            _ => "not a dump of beanpole".into(),
        };
        Failure::refused(format!("{}: {what}", dump.name))
    }

    fn next_line(&mut self) -> Outcome<Option<Vec<u8>>> {
        let mut line = self.first.take().unwrap_or_default();
        if line.is_empty() {
            let count = self.reader.read_until(b'\n', &mut line);
            self.read += count.map_err(|error| cannot_read(&self.name, error))? as u64;
        }
        self.line += u64::from(!line.is_empty());
        Ok((!line.is_empty()).then_some(line))
    }

    /// The next of the jobs that are wanted. An empty batch means that there
    /// are no more.
    fn batch(&mut self, options: &Load, largest: u64) -> Outcome<Batch> {
        let mut batch = Batch::default();
        let mut bytes = 0;
        while !self.is_over && batch.jobs.len() < BATCH && bytes < BATCH_BYTES {
            let Some(text) = self.next_line()? else { break };
            let line = Line::read(&text);
            if line.is_err() && !text.ends_with(b"\n") {
                self.cut = Some(self.line);
                self.line -= 1;
                break;
            }
            if let Ok(Line::End(jobs)) = line {
                (self.is_over, self.written) = (true, jobs);
                break;
            }
            let is_line = |line: &NonZeroU64| line.get() == self.line;
            let from = options.from.map_or(0, NonZeroU64::get);
            if self.line < from || options.skip.iter().any(is_line) {
                continue;
            }
            let job = line.and_then(|line| match line {
                Line::Job(told) => placement(told, &options.tube, largest),
                _ => Err("a dump begins here".into()),
            });
            match job {
                Ok(job) => {
                    bytes += job.body.len();
                    batch.jobs.push(job);
                    batch.lines.push(self.line);
                }
                Err(reason) if options.keep_going => {
                    self.left_out += 1;
                    let Dump { name, line, .. } = self;
                    complain!("{name} line {line}: {reason}; left out");
                }
                Err(reason) => {
                    batch.broken = Some((self.line, reason));
                    break;
                }
            }
        }
        Ok(batch)
    }

    /// How many lines the file will have, if the rest is like those read.
    fn expected(&self) -> Option<u64> {
        let lines = u128::from(self.line) * u128::from(self.size?) / u128::from(self.read.max(1));
        u64::try_from(lines).ok()
    }

    /// Whether the dump is complete; if not, this prints a message.
    fn check_end(&mut self) -> Outcome<bool> {
        let end_line = self.line;
        // All lines except the first and the last are jobs.
        let there = end_line.saturating_sub(2);
        let written = self.written.unwrap_or(there);
        let flaw = match (self.cut, self.is_over) {
            (Some(line), _) => Some(format!("the dump was cut short within line {line}")),
            (None, false) if self.only_jobs => None,
            (None, false) => Some("the end is missing: the dump was cut short".into()),
            (None, true) if written != there => Some(format!(
                "{written} jobs were written, but {there} are there"
            )),
            (None, true) if self.next_line()?.is_some() => Some(format!(
                "line {end_line} is the end, and what follows is not loaded"
            )),
            (None, true) => None,
        };
        if let Some(flaw) = &flaw {
            complain!("{}: {flaw}", self.name);
        }
        Ok(flaw.is_none())
    }

    /// The failure that says how to go on without a faulty line.
    fn at_fault(&self, loaded: u64, line: u64, reason: &str, dry_run: bool) -> Failure {
        let advice = match dry_run {
            false => format!(
                "{loaded} jobs are loaded; 'load --from {line} --skip {line}' goes on without that line"
            ),
            true => format!(
                "{loaded} jobs would be loaded before it; 'load --skip {line}' would leave it out"
            ),
        };
        Failure::Refused(format!("{} line {line}: {reason}\n{advice}", self.name))
    }

    /// The failure that says at which line to go on.
    fn stopped(&self, loaded: u64, line: u64, unanswered: usize, failure: Failure) -> Failure {
        let text = format!(
            "{} line {line}: {failure}\n{loaded} jobs are loaded; 'load --from {line}' goes on with the \
             rest",
            self.name
        );
        match failure {
            Failure::Unreachable(_) if unanswered > 0 => Failure::Unreachable(format!(
                "{text};\nsome of the {unanswered} from there on may be there already and come twice"
            )),
            Failure::Unreachable(_) => Failure::Unreachable(text),
            Failure::Interrupted(_) => Failure::Interrupted(text),
            _ => Failure::Refused(text),
        }
    }
}

/// The job that this line of a dump describes. If `tube` is given, it replaces
/// the job's own tube. A body larger than `largest`, the limit of the server,
/// is an error.
fn placement(told: Told, tube: &Option<TubeName>, largest: u64) -> Result<Placement, String> {
    let lacks = |key: &str| format!("'{key}' is missing");
    let size = told.body.len();
    if size as u64 > largest {
        return Err(format!(
            "the body has {size} bytes, and the server takes {largest}"
        ));
    }
    let own = told.tube.ok_or_else(|| lacks("tube"))?;
    let state = told.state.ok_or_else(|| lacks("state"))?;
    Ok(Placement {
        tube: tube.clone().unwrap_or(own),
        terms: Terms {
            priority: told.priority.ok_or_else(|| lacks("pri"))?,
            delay: told.delay.ok_or_else(|| lacks("delay"))?,
            ttr: told.ttr.ok_or_else(|| lacks("ttr"))?,
        },
        words: told.words,
        buried: state == State::Buried,
        body: told.body,
    })
}
