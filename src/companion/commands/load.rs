//! `load`: puts the jobs of a dump into a server.
//!
//! Jobs are put in the order of the dump. If `load` stops, all jobs up to some
//! line are in the server. It says which line that is, and `--from` continues
//! there. Jobs whose answer was lost are then put again.

use crate::command::{Command, INPUT, Invocation, Kind, Opt, described, options};
use crate::failure::{Failure, Outcome, Status};
use crate::server::client::Terms;
use crate::server::form::{NO_TUBE, Told};
use crate::server::place::{Placement, Placer};
use crate::server::stats::State;
use crate::signals::interrupts;
use crate::text::dump::{END_KEY, START_KEY, VERSION};
use crate::text::file::{WholeFile, cannot_read, open};
use crate::text::json::{self, Json};
use crate::text::output::{Progress, complain, print};
use crate::values::Parse;
use beanpole::arguments;
use beanpole::protocol::TubeName;
use std::ffi::OsString;
use std::fs::{Metadata, metadata, remove_file};
use std::io::{BufRead, BufReader, ErrorKind, Read};
use std::num::NonZeroU64;
use std::path::Path;
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
    note: Option<OsString> =
        Opt::value("", "note", "FILE",
            "note there how far it has come, and go on from there (default: nowhere)")
            .of(Kind::File),
    dry_run: bool =
        Opt::flag("", "dry-run", "only read the dump, and say how many would be loaded"),
}

/// How many jobs are put together.
const BATCH: usize = 500;
/// How many bytes of bodies are put together; the last body may exceed this.
const BATCH_BYTES: usize = 1 << 22;

fn load(invocation: &Invocation) -> Outcome {
    let mut options = invocation.read(OPTIONS)?;
    let note = options.note.take().filter(|_| !options.dry_run);
    let note = note.as_deref().map(Path::new);
    if let Some(line) = note.map(noted).transpose()?.flatten() {
        options.from = options.from.max(line);
    }
    let (name, reader) = match invocation.operands() {
        [] => open(INPUT.as_ref())?,
        [path] => open(&arguments::to_os(path))?,
        _ => return Failure::usage("which dump? give one file"),
    };
    let size = metadata(&name)
        .ok()
        .filter(Metadata::is_file)
        .map(|file| file.len());
    let mut dump = Dump::new(name, reader, size)?;
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
            let next = match (batch.broken, &dump.end) {
                (Some((line, _)), _) => line,
                (None, Some(_)) => dump.line,
                (None, None) => dump.line + 1,
            };
            let line = batch.lines.get(count).copied().unwrap_or(next);
            let unanswered = batch.jobs.len() - count;
            return Err(dump.stopped(loaded, line, unanswered, failure));
        }
        if let Some((line, reason)) = batch.broken {
            drop(progress);
            return Err(dump.at_fault(loaded, line, &reason, options.dry_run));
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
    if let Some(path) = note {
        // Without any job there is no note.
        let _ = remove_file(path);
    }
    if let Some(placer) = &loader {
        placer.say_what_is_lost();
    }
    print(format!("{loaded}\n"))?;
    let sound = dump.check_end()?;
    Ok(Status::done_if(sound && dump.left_out == 0))
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
    /// The last line of the dump, once it has been read.
    end: Option<Json>,
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
            end: None,
            left_out: 0,
            cut: None,
            size,
            read: 0,
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
        self.read += count as u64;
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
            if value.is_err() && !line.ends_with(b"\n") {
                self.cut = Some(self.line);
                break;
            }
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
        let written = self
            .end
            .as_ref()
            .map(|end| end.get("jobs").and_then(Json::as_u64));
        let flaw = match written {
            None => Some(match self.cut {
                None => "the end is missing: the dump was cut short".into(),
                Some(line) => format!("the dump was cut short within line {line}"),
            }),
            Some(Some(written)) if written != there => Some(format!(
                "{written} jobs were written, but {there} are there"
            )),
            Some(_) if self.next_line()?.is_some() => Some(format!(
                "line {end_line} is the end, and what follows is not loaded"
            )),
            Some(_) => None,
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
fn placement(value: &Json, tube: &Option<TubeName>, largest: u64) -> Result<Placement, String> {
    let told = Told::read(value)?;
    let own = told.tube.ok_or(NO_TUBE)?;
    let size = told.body.len();
    if size as u64 > largest {
        return Err(format!(
            "the body has {size} bytes, and the server takes {largest}"
        ));
    }
    let state = told.state.ok_or("'state' is none of a job")?;
    Ok(Placement {
        tube: tube.clone().unwrap_or(own),
        terms: Terms {
            priority: told.priority.ok_or_else(|| Told::lacks("pri"))?,
            delay: told.delay.ok_or_else(|| Told::lacks("delay"))?,
            ttr: told.ttr.ok_or_else(|| Told::lacks("ttr"))?,
        },
        words: told.words,
        buried: state == State::Buried,
        body: told.body,
    })
}
