//! `dump` writes the jobs of a server, or of some tubes, as a file that `load` reads.
//!
//! `load` reads what `ls` lists as well. Its jobs are put in order: if it stops, all
//! jobs up to some line are in the server. It says which line that is, and `--from`
//! continues there. Jobs whose answer was lost are then put again.

use crate::command::{INPUT, Invocation, Run, Tubes};
use crate::failure::{Failure, Outcome, Status};
use crate::server::finder::{self, MOST, Scope, each_body, jobs_of};
use crate::server::form::{DUMP_VERSION, Line, Source, job_to_json};
use crate::server::stats::State;
use crate::server::trouble::{jobs, listed};
use crate::server::tubes::stats_of;
use crate::server::writer::{NewJob, Writer};
use crate::signals::interrupts;
use crate::text::json::{self, Json, json};
use crate::text::output::{Output, Progress, WholeFile, complain, print};
use crate::values::parse;
use beanpole::protocol::TubeName;
use clap::{Args, ValueHint};
use std::ffi::OsString;
use std::fs::remove_file;
use std::io::ErrorKind;
use std::num::NonZeroU64;
use std::path::Path;
use std::sync::atomic::Ordering;

#[derive(Args)]
pub struct Dump {
    #[command(flatten)]
    tubes: Tubes,
    /// write to this file when all is there (default: stdout)
    #[arg(short, long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    output: Option<OsString>,
}

impl Run for Dump {
    fn run(self, invocation: &Invocation) -> Outcome {
        let tubes = self.tubes.patterns();
        let mut client = invocation.connect()?;
        let version = client.server_stats()?.text("version").to_owned();
        let scope = Scope {
            tubes: tubes.existing(&mut client)?,
            states: State::ALL.into(),
        };
        let (ids, status) = finder::all(&mut client, &scope, usize::MAX)?;
        // No other user may read the bodies.
        let create = |path| WholeFile::create(Path::new(path), 0o600);
        let mut file = self.output.as_ref().map(create).transpose()?;
        let mut output = Output::new();
        let mut write = |line: Json| match &mut file {
            Some(file) => file.bytes((json::line(&line) + "\n").as_bytes()),
            None => output.json(&line),
        };
        let server = client.address.to_string();
        write(json!({"beanpole-dump": DUMP_VERSION, "server": server, "version": version}))?;
        let mut progress = Progress::new("dumping", Some(ids.len() as u64));
        let mut count = 0u64;
        for some in ids.chunks(MOST) {
            let there = jobs_of(&mut client, some.iter().map(|(id, _)| *id))?;
            each_body(&mut client, there, |job, body| {
                count += 1;
                write(job_to_json(job.id, Some(&job.all), &body))
            })?;
            progress.add(some.len() as u64);
        }
        write(json!({"beanpole-dump-end": 1, "jobs": count}))?;
        drop(progress);
        match file {
            Some(file) => file.finish()?,
            None => output.sync()?,
        }
        let names = tubes.meant(&mut client)?;
        let mut paused = stats_of(&mut client, &names)?;
        paused.retain(|(_, facts)| facts.number("pause-time-left") > 0);
        let paused: Vec<_> = paused.iter().map(|(tube, _)| tube).collect();
        if !paused.is_empty() {
            complain!(
                "a dump has no pauses: pause these where it is loaded: {}",
                listed(&paused)
            );
        }
        Ok(status)
    }
}

#[derive(Args)]
pub struct Load {
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
    file: Option<OsString>,
    /// go on at this line of the dump
    #[arg(long, value_name = "LINE")]
    from: Option<NonZeroU64>,
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
        let mut dump = Loading {
            source: Source::open(path, Some(b'\n'))?,
            writer: None,
            largest: u64::MAX,
            loaded: 0,
            only_jobs: false,
            is_over: false,
            written: None,
            cut: None,
        };
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
                return Err(dump.stopped(batch.first, why));
            }
            let count = dump.load(&batch)?;
            if count == 0 {
                break;
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
        Ok(Status::done_if(sound))
    }
}

/// The line that an earlier run has noted as the one to go on at, if any.
fn noted(path: &Path) -> Outcome<Option<NonZeroU64>> {
    let shown = path.display();
    match std::fs::read_to_string(path) {
        Ok(text) => match text.trim().parse() {
            Ok(line) => Ok(Some(line)),
            Err(_) => Failure::refused(format!("{shown} notes no line of a dump")),
        },
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(Failure::io(format_args!("cannot read {shown}"), error)),
    }
}

/// A dump that is being read.
struct Loading {
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
    /// The line within which the dump ends, if it ends within one.
    cut: Option<u64>,
}

/// Jobs that stand on lines one after the other.
#[derive(Default)]
struct Batch {
    jobs: Vec<NewJob>,
    /// The line of the first one.
    first: u64,
    /// Why the line after them cannot be loaded, if it is at fault.
    fault: Option<String>,
}

impl Loading {
    /// The next of the jobs that are wanted. An empty batch means that there
    /// are no more.
    fn batch(&mut self, options: &Load) -> Outcome<Batch> {
        let mut batch = Batch::default();
        let mut bytes = 0;
        while !self.is_over && batch.jobs.len() < BATCH && bytes < BATCH_BYTES {
            let Some(text) = self.source.read_next()? else {
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
            let fault = match line {
                Err(_) if !text.ends_with(b"\n") => {
                    self.cut = Some(number);
                    self.source.number -= 1;
                    break;
                }
                Ok(Line::End(jobs)) => {
                    (self.is_over, self.written) = (true, jobs);
                    break;
                }
                _ if options.from.is_some_and(|from| number < from.get()) => continue,
                Ok(Line::Job(job)) if job.body.len() as u64 <= self.largest => {
                    if batch.jobs.is_empty() {
                        batch.first = number;
                    }
                    bytes += job.body.len();
                    batch.jobs.push(NewJob {
                        tube: options.tube.clone().unwrap_or(job.tube),
                        ..job
                    });
                    continue;
                }
                Ok(Line::Job(NewJob { body, .. })) => {
                    let (size, most) = (body.len(), self.largest);
                    format!("the body has {size} bytes, and the server takes {most}")
                }
                Ok(_) => "a dump begins here".into(),
                Err(reason) => reason,
            };
            batch.fault = Some(fault);
            break;
        }
        Ok(batch)
    }

    /// Loads these jobs. Returns how many they are.
    fn load(&mut self, batch: &Batch) -> Outcome<u64> {
        let all = batch.jobs.len();
        if let Some(writer) = &mut self.writer {
            let written = writer.write_in_order(&batch.jobs);
            let count = written.replies.len();
            self.loaded += (count - written.unburied.len()) as u64;
            // All jobs may be there while a burial failed: then the rest begins
            // after them.
            written.outcome.map_err(|failure| {
                let is_lost = count < all && matches!(failure, Failure::Unreachable(_));
                let stopped = self.stopped(batch.first + count as u64, failure);
                match is_lost {
                    true => stopped.with(format_args!(
                        "some of the {} from there on may be there already and come twice",
                        all - count
                    )),
                    false => stopped,
                }
            })?;
        } else {
            self.loaded += all as u64;
        }
        match &batch.fault {
            None => Ok(all as u64),
            Some(reason) => {
                let line = self.source.number;
                let failure = self.stopped(line, Failure::Refused(reason.clone()));
                Err(failure.with(format_args!("'--from {}' leaves it out", line + 1)))
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
            (None, true) if self.source.read_next()?.is_some() => Some(format!(
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
    fn stopped(&self, line: u64, failure: Failure) -> Failure {
        let what = if self.writer.is_some() {
            "loaded"
        } else {
            "sound"
        };
        let loaded = jobs(self.loaded, what);
        failure
            .about(format_args!("{} line {line}", self.source.name))
            .with(format_args!("{loaded}; 'load --from {line}' goes on there"))
    }
}

/// What is said of other files.
const NO_DUMP: &str = "not a dump of beanpole";
