//! `put` and `load`: put jobs from arguments, files or standard input.
//!
//! `load` reads a dump, or what `ls` lists. Its jobs are put in order: if it
//! stops, all jobs up to some line are in the server. It says which line that is,
//! and `--from` continues there. Jobs whose answer was lost are then put again.

use crate::command::{INPUT, Invocation, Run};
use crate::failure::{Failure, Outcome, Status};
use crate::server::form::{DUMP_VERSION, Line};
use crate::server::reply::Reply;
use crate::server::trouble::jobs;
use crate::server::writer::{self, NewJob, Writer, Written};
use crate::signals::interrupts;
use crate::text::output::{Output, Progress, complain, print};
use crate::text::output::{WholeFile, cannot_read, open};
use crate::values::{Parse, parse};
use beanpole::protocol::framing::MAX_LINE;
use beanpole::protocol::{Limit, Priority, PutOptions, Seconds, TubeName, Unique};
use clap::{Args, ValueHint};
use std::ffi::{OsStr, OsString};
use std::fs::{Metadata, metadata, remove_file};
use std::io::{BufRead, BufReader, ErrorKind, IsTerminal, Read, stdin};
use std::num::{NonZeroU32, NonZeroU64};
use std::os::unix::ffi::OsStringExt;
use std::path::Path;
use std::sync::atomic::Ordering;

#[derive(Args)]
pub struct Put {
    #[arg(value_name = "BODY")]
    bodies: Vec<OsString>,
    /// the tube (default: default)
    #[arg(short, long, value_name = "TUBE", value_parser = parse::<TubeName>)]
    tube: Option<TubeName>,
    /// the priority, smaller is sooner (default: 1024)
    #[arg(short, long, value_name = "PRI", value_parser = parse::<Priority>)]
    priority: Option<Priority>,
    /// how long it stays delayed (default: 0)
    #[arg(short, long, value_name = "TIME", value_parser = parse::<Seconds>)]
    delay: Option<Seconds>,
    /// the time to run (default: 60)
    #[arg(short = 'r', long, value_name = "TIME", value_parser = parse::<Seconds>)]
    ttr: Option<Seconds>,
    /// a file's content is a body; may be repeated, - is stdin
    #[arg(short, long = "file", value_name = "FILE", value_hint = ValueHint::FilePath)]
    files: Vec<OsString>,
    /// each line of the files or of stdin is a body
    #[arg(short, long)]
    lines: bool,
    /// the same, but NUL bytes end the bodies
    #[arg(short = '0', long, conflicts_with = "lines")]
    null: bool,
    /// each line is a job in JSON, as ls, reserve and dump write it
    #[arg(short, long, conflicts_with_all = ["lines", "null"])]
    json: bool,
    /// no other job with this key in the tube, nor for TIME after its delete (default: 0)
    #[arg(long, value_name = "KEY[:TIME]", value_parser = parse::<Unique>)]
    unique: Option<Unique>,
    /// at most N jobs with this key are reserved at a time (default: 1)
    #[arg(long, value_name = "KEY[:N]", value_parser = parse::<Limit>)]
    limit: Option<Limit>,
    /// buried after N tries that end without a word
    #[arg(long, value_name = "N", value_parser = parse::<NonZeroU32>)]
    tries: Option<NonZeroU32>,
    /// do not print the ids
    #[arg(short, long)]
    quiet: bool,
}

/// How many bytes the options may have, whatever numbers stand before them: a
/// longer line would be refused, and its body read as commands.
const MAX_OPTIONS: usize = MAX_LINE - "put 4294967295 4294967295 4294967295 1073741824 \r\n".len();

impl Run for Put {
    const MANY_SERVERS: bool = true;

    fn run(mut self, invocation: &Invocation) -> Outcome {
        let bodies = std::mem::take(&mut self.bodies);
        self.warn_of_a_tube(&bodies);
        let end = match (self.lines || self.json, self.null) {
            (true, _) => Some(b'\n'),
            (_, true) => Some(b'\0'),
            _ => None,
        };
        match (bodies.is_empty(), self.files.is_empty(), end) {
            (true, true, _) => self.files.push(INPUT.into()),
            (false, false, _) => return Failure::usage("give bodies or --file, not both"),
            (false, _, Some(_)) => {
                return Failure::usage("bodies given as operands are not split");
            }
            _ => {}
        }
        let options = PutOptions {
            unique: self.unique.take(),
            limit: self.limit.take(),
            tries: self.tries.map(NonZeroU32::get),
        };
        if options.to_string().len() > MAX_OPTIONS {
            return Failure::usage("the keys are too long together");
        }
        let mut puts = Puts {
            writer: Writer::new(invocation.connect_to_first()?),
            invocation,
            command: &self,
            options: Some(options).filter(|options| *options != PutOptions::default()),
            ids: Output::new(),
            all: true,
            answered: 0,
            progress: Progress::beside_output("putting"),
        };
        puts.check_options()?;
        let bodies = (1..)
            .zip(bodies)
            .filter_map(|(number, body)| puts.job(&format!("body {number}"), body.into_vec()));
        let batch = bodies.collect();
        puts.put(batch)?;
        for path in &self.files {
            let mut source = Source::open(path, end)?;
            let mut batch = Vec::new();
            // Those that are in the buffer already go together.
            while let Some(mut body) = source.next()? {
                if body.last().copied() == end {
                    body.pop();
                }
                batch.extend(puts.job(&source.place(), body));
                if !source.has_next() {
                    puts.put(std::mem::take(&mut batch))?;
                }
            }
            puts.put(batch)?;
        }
        puts.writer.say_what_is_lost();
        Ok(Status::done_if(puts.all))
    }
}

impl Put {
    /// `put mail hello` puts two jobs into `default`, and a person may have
    /// meant another thing.
    fn warn_of_a_tube(&self, bodies: &[OsString]) {
        if let (None, [first, _, ..]) = (&self.tube, bodies)
            && let Some(tube) = TubeName::parse(first.as_encoded_bytes())
            && stdin().is_terminal()
        {
            complain!(
                "'{tube}' is the first of {} bodies for the tube 'default'; a tube is named by -t {tube}",
                bodies.len()
            );
        }
    }
}

/// A job that is to be put, and where it comes from, for messages.
type Sourced = (String, NewJob);

struct Puts<'a> {
    writer: Writer,
    invocation: &'a Invocation,
    command: &'a Put,
    /// What the command line says, for all jobs.
    options: Option<PutOptions>,
    ids: Output,
    /// Whether every body has become a job up to now.
    all: bool,
    /// How many bodies were answered.
    answered: usize,
    progress: Progress,
}

impl Puts<'_> {
    /// Refuses to go on without the options of the command line.
    fn check_options(&mut self) -> Outcome<()> {
        if self.options.is_some() && !self.writer.knows_options()? {
            return Failure::refused("the server does not know --unique, --limit and --tries");
        }
        Ok(())
    }

    /// The job of a body; `None` if it is none, because it is a line without a
    /// job, or one at fault. What an option says goes before what a line says.
    fn job(&mut self, origin: &str, body: Vec<u8>) -> Option<Sourced> {
        let line = match self.command.json {
            false => Ok(Line::Job(NewJob::with(body))),
            true if body.trim_ascii().is_empty() => return None,
            true => Line::read(&body),
        };
        let mut job = match line {
            Ok(Line::Job(job)) => job,
            // The first or the last line of a dump.
            Ok(_) => return None,
            Err(reason) => {
                self.all = false;
                complain!("{origin}: {reason}");
                return None;
            }
        };
        let command = self.command;
        job.tube = command.tube.clone().unwrap_or(job.tube);
        job.priority = command.priority.unwrap_or(job.priority);
        job.delay = command.delay.unwrap_or(job.delay);
        job.ttr = command.ttr.unwrap_or(job.ttr);
        job.options = self.options.clone().or(job.options);
        Some((origin.into(), job))
    }

    /// Puts a batch and prints the ids. If there are several servers and the one
    /// in use is lost, the first that serves gets the bodies without an answer.
    fn put(&mut self, batch: Vec<Sourced>) -> Outcome<()> {
        let (origins, jobs): (Vec<_>, Vec<_>) = batch.into_iter().unzip();
        let (mut origins, mut left) = (origins.as_slice(), jobs.as_slice());
        while !left.is_empty() {
            let before = self.answered;
            let lost = match self.put_all(origins, left) {
                Err(Failure::Unreachable(reason)) => reason,
                outcome => return outcome,
            };
            let answered = self.answered - before;
            (origins, left) = (&origins[answered..], &left[answered..]);
            let unknown = left.len();
            if self.invocation.servers.len() == 1 {
                return Err(Failure::Unreachable(format!(
                    "{lost}\nthe first {} bodies were answered; the next {unknown} may be jobs, too",
                    self.answered
                )));
            }
            self.writer.reconnected(self.invocation.connect_to_first()?);
            let address = self.writer.address();
            complain!("{lost}; going on at {address}, where {unknown} bodies may come twice");
            self.check_options()?;
        }
        Ok(())
    }

    /// Puts these jobs and prints their ids, even if one of them is refused: the
    /// bodies that were sent before the refusal arrived have become jobs.
    fn put_all(&mut self, origins: &[String], jobs: &[NewJob]) -> Outcome<()> {
        let Written {
            replies, outcome, ..
        } = self.writer.write(jobs);
        let is_quiet = self.command.quiet;
        let mut refused = None;
        self.progress.add(replies.len() as u64);
        self.answered += replies.len();
        for (origin, reply) in origins.iter().zip(&replies) {
            if let Some(id) = writer::id(reply)
                && (!is_quiet || matches!(reply, Reply::Buried(_)))
            {
                self.ids.line(id)?;
            }
            match reply {
                Reply::InsertedBefore(id, state) if !is_quiet => {
                    complain!("{origin}: job {id} has the key: {state}");
                }
                Reply::Inserted(_) | Reply::InsertedBefore(..) => {}
                Reply::Buried(Some(id)) => {
                    complain!("{origin}: the server was short of memory and buried job {id}");
                }
                Reply::JobTooBig => {
                    self.all = false;
                    complain!("{}", Failure::unexpected(origin, reply));
                }
                _ => drop(refused.get_or_insert(Failure::unexpected(origin, reply))),
            }
        }
        self.ids.sync()?;
        outcome.and(refused.map_or(Ok(()), Err))
    }
}

/// A file, or standard input, from which bodies or lines are read.
struct Source {
    name: String,
    reader: BufReader<Box<dyn Read>>,
    /// What ends each; without it, the whole source is one body.
    end: Option<u8>,
    /// How many were read, and how many bytes.
    number: u64,
    read: u64,
}

impl Source {
    fn open(path: &OsStr, end: Option<u8>) -> Outcome<Source> {
        let (name, reader) = open(path)?;
        Ok(Source {
            name,
            reader: BufReader::with_capacity(1 << 20, reader),
            end,
            number: 0,
            read: 0,
        })
    }

    /// The next one, with its end.
    fn next(&mut self) -> Outcome<Option<Vec<u8>>> {
        let mut bytes = Vec::new();
        let count = match self.end {
            Some(end) => self.reader.read_until(end, &mut bytes),
            None => self.reader.read_to_end(&mut bytes),
        };
        let count = count.map_err(|error| cannot_read(&self.name, error))?;
        // Without an end byte, an empty source is one empty body.
        if count == 0 && (self.end.is_some() || self.number > 0) {
            return Ok(None);
        }
        self.number += 1;
        self.read += count as u64;
        Ok(Some(bytes))
    }

    /// Whether the next one can be had without waiting.
    fn has_next(&self) -> bool {
        self.end
            .is_some_and(|end| self.reader.buffer().contains(&end))
    }

    /// The place of the last one, for messages.
    fn place(&self) -> String {
        match self.end {
            Some(_) => format!("{} {}", self.name, self.number),
            None => self.name.clone(),
        }
    }
}

#[derive(Args)]
pub struct Load {
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
    file: Option<OsString>,
    /// go on at this line of the dump
    #[arg(long, value_name = "LINE", value_parser = parse::<NonZeroU64>)]
    from: Option<NonZeroU64>,
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
        let path = self.file.as_deref().unwrap_or(INPUT.as_ref());
        let mut dump = Dump {
            source: Source::open(path, Some(b'\n'))?,
            writer: None,
            largest: u64::MAX,
            loaded: 0,
            only_jobs: false,
            is_over: false,
            written: None,
            left_out: 0,
            cut: None,
        };
        let size = metadata(path).ok().filter(Metadata::is_file);
        if !self.dry_run {
            let mut client = invocation.connect()?;
            let told = client.server_stats()?.number("max-job-size");
            dump.largest = if told > 0 { told } else { dump.largest };
            dump.writer = Some(Writer::new(client));
        }
        let interrupted = interrupts()?;
        let mut progress = Progress::new("loading", None);
        loop {
            let batch = dump.batch(&self)?;
            if interrupted.load(Ordering::SeqCst) && !batch.jobs.is_empty() {
                let why = Failure::Interrupted("interrupted".into());
                return Err(dump.stopped(batch.lines[0], batch.lines[0], why));
            }
            let count = dump.load(&batch)?;
            if count == 0 {
                break;
            }
            if let Some(file) = &size {
                // As if the rest were like what was read.
                let Source { number, read, .. } = dump.source;
                let total = u128::from(number) * u128::from(file.len()) / u128::from(read.max(1));
                progress.expect(u64::try_from(total).unwrap_or(u64::MAX));
            }
            progress.add(count);
            if let Some(path) = note {
                let mut file = WholeFile::create(path, 0o644)?;
                file.bytes(format!("{}\n", dump.source.number + 1).as_bytes())?;
                file.finish()?;
            }
        }
        drop(progress);
        if let Some(writer) = &dump.writer {
            writer.say_what_is_lost();
        }
        print(format!("{}\n", dump.loaded))?;
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
    source: Source,
    /// Where its jobs go to; nowhere if it is only read.
    writer: Option<Writer>,
    /// The largest body that the server takes.
    largest: u64,
    loaded: u64,
    /// Whether these are only jobs, as `ls` lists them, without an end of their
    /// own.
    only_jobs: bool,
    /// Whether the last line of the dump has been read, and how many jobs it
    /// counts.
    is_over: bool,
    written: Option<u64>,
    /// How many faulty lines were left out.
    left_out: u64,
    /// The line within which the dump ends, if it ends within one.
    cut: Option<u64>,
}

/// Jobs, and the lines that they stand on.
#[derive(Default)]
struct Batch {
    jobs: Vec<NewJob>,
    /// The line of each job, and that of what comes after them.
    lines: Vec<u64>,
    /// Why the line after them is not a job, if it is none.
    broken: Option<String>,
}

impl Dump {
    /// The next of the jobs that are wanted. An empty batch means that there
    /// are no more.
    fn batch(&mut self, options: &Load) -> Outcome<Batch> {
        let mut batch = Batch::default();
        let mut bytes = 0;
        while !self.is_over && batch.jobs.len() < BATCH && bytes < BATCH_BYTES {
            let Some(text) = self.source.next()? else {
                break;
            };
            let (number, line) = (self.source.number, Line::read(&text));
            if number == 1 {
                match line {
                    Ok(Line::Start(DUMP_VERSION)) => continue,
                    Ok(Line::Start(other)) => {
                        let known = format!("only {DUMP_VERSION} is known");
                        return self.refused(&format!("a dump of version {other}: {known}"));
                    }
                    Ok(Line::Job(_)) => self.only_jobs = true,
                    _ => return self.refused(NO_DUMP),
                }
            }
            if line.is_err() && !text.ends_with(b"\n") {
                self.cut = Some(number);
                self.source.number -= 1;
                break;
            }
            if let Ok(Line::End(jobs)) = line {
                (self.is_over, self.written) = (true, jobs);
                break;
            }
            let from = options.from.map_or(0, NonZeroU64::get);
            if number < from {
                continue;
            }
            match line {
                Ok(Line::Job(job)) if job.body.len() as u64 <= self.largest => {
                    bytes += job.body.len();
                    batch.lines.push(number);
                    batch.jobs.push(NewJob {
                        tube: options.tube.clone().unwrap_or(job.tube),
                        ..job
                    });
                    continue;
                }
                Ok(Line::Job(NewJob { body, .. })) => {
                    let (size, most) = (body.len(), self.largest);
                    let reason = format!("the body has {size} bytes, and the server takes {most}");
                    batch.broken = Some(reason);
                }
                Ok(_) => batch.broken = Some("a dump begins here".into()),
                Err(reason) => batch.broken = Some(reason),
            }
            if !options.keep_going {
                break;
            }
            self.left_out += 1;
            let reason = batch.broken.take().unwrap_or_default();
            complain!("{} line {number}: {reason}; left out", self.source.name);
        }
        let is_next = batch.broken.is_some() || self.is_over;
        batch.lines.push(self.source.number + u64::from(!is_next));
        Ok(batch)
    }

    /// Loads these jobs. Returns how many they are.
    fn load(&mut self, batch: &Batch) -> Outcome<u64> {
        if let Some(writer) = &mut self.writer {
            let written = writer.write_in_order(&batch.jobs);
            let count = written.replies.len();
            self.loaded += (count - written.unburied.len()) as u64;
            written.outcome.map_err(|failure| {
                // All jobs may be there while a burial failed: then the rest begins
                // after them.
                let unanswered = batch.jobs.len() - count;
                let is_lost = unanswered > 0 && matches!(failure, Failure::Unreachable(_));
                let line = batch.lines[count];
                match (is_lost, self.stopped(line, line, failure)) {
                    (true, failure) => failure.with(format_args!(
                        "some of the {unanswered} from there on may be there already and come twice"
                    )),
                    (false, failure) => failure,
                }
            })?;
        } else {
            self.loaded += batch.jobs.len() as u64;
        }
        match &batch.broken {
            None => Ok(batch.jobs.len() as u64),
            Some(reason) => {
                let line = self.source.number;
                Err(self.stopped(line, line + 1, Failure::Refused(reason.clone())))
            }
        }
    }

    fn refused<T>(&self, what: &str) -> Outcome<T> {
        Failure::refused(format!("{}: {what}", self.source.name))
    }

    /// Whether the dump is complete; if not, this prints a message.
    fn check_end(&mut self) -> Outcome<bool> {
        let end_line = self.source.number;
        if end_line == 0 {
            return self.refused(NO_DUMP);
        }
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
            (None, true) if self.source.next()?.is_some() => Some(format!(
                "line {end_line} is the end, and what follows is not loaded"
            )),
            (None, true) => None,
        };
        if let Some(flaw) = &flaw {
            complain!("{}: {flaw}", self.source.name);
        }
        Ok(flaw.is_none())
    }

    /// The failure at this line, which says at which line to go on.
    fn stopped(&self, line: u64, next: u64, failure: Failure) -> Failure {
        let loaded = match self.writer {
            Some(_) => jobs(self.loaded, "loaded"),
            None => jobs(self.loaded, "sound"),
        };
        let rest = match next == line {
            true => "with the rest",
            false => "without that line",
        };
        failure
            .about(format_args!("{} line {line}", self.source.name))
            .with(format_args!(
                "{loaded}; 'load --from {next}' goes on {rest}"
            ))
    }
}

/// What is said of other files.
const NO_DUMP: &str = "not a dump of beanpole";
