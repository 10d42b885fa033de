//! `dump` writes the jobs of a server, or of some tubes, as a file that `load` reads.
//!
//! `load` reads what `ls` lists as well, and the rest of a dump from any line on. Its
//! jobs are put in order: if it stops, all jobs up to some line are in the server, and it
//! says which line that is. Jobs whose answer was lost are put again from there.

use crate::command::{INPUT, Invocation, Run, Tubes};
use crate::failure::{Failure, Outcome, Status};
use crate::remote::finder::{self, MOST, each_body};
use crate::remote::form::{DUMP_VERSION, Line, Source, job_to_json};
use crate::remote::reply::LARGEST_BODY;
use crate::remote::tubes::stats_of;
use crate::remote::{NewJob, Reply, Scope, State, Writer};
use crate::signals::{Calls, SIGHUP, SIGINT, SIGTERM, heed_interrupts, heeded, is_interrupted};
use crate::text::json::json;
use crate::text::{Output, Progress, complain, counted, jobs, print, shell_word};
use crate::values::parse;
use beanpole::protocol::TubeName;
use clap::{Args, ValueHint};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;

#[derive(Args)]
pub struct Dump {
    #[command(flatten)]
    tubes: Tubes,
    /// write to this file when all is there (default: stdout)
    #[arg(short, long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    output: Option<PathBuf>,
}

impl Run for Dump {
    fn run(self, invocation: &Invocation) -> Outcome {
        let tubes = self.tubes.patterns();
        let mut client = invocation.connect()?;
        let version = client.server_stats()?.text("version").to_owned();
        let scope = Scope::of(tubes.existing(&mut client)?, State::ALL);
        let (ids, status) = finder::all(&mut client, &scope, usize::MAX)?;
        // No other user may read the bodies.
        let mut output = Output::to(self.output.as_deref(), 0o600)?;
        let server = client.address.to_string();
        let found = stats_of(&mut client, &tubes)?.into_iter();
        let pauses = found.map(|(tube, facts)| (tube.to_string(), facts.number("pause-time-left")));
        let pauses: BTreeMap<_, _> = pauses.filter(|(_, left)| *left > 0).collect();
        let mut start =
            json!({"beanpole-dump": DUMP_VERSION, "server": server, "version": version});
        if !pauses.is_empty() {
            start["pauses"] = json!(pauses);
        }
        output.json(&start)?;
        let mut progress = Progress::new("dumping", Some(ids.len() as u64));
        let mut count = 0u64;
        for some in ids.chunks(MOST) {
            let there = client.jobs(some.iter().copied())?;
            each_body(&mut client, there, |job, found| {
                count += 1;
                output.json(&job_to_json(job.id, Some(&job.all), &found.body))
            })?;
            progress.add(some.len() as u64);
        }
        // It tells `load` that no job is missing.
        if status == Status::Done {
            output.json(&json!({"beanpole-dump-end": 1, "jobs": count}))?;
        }
        drop(progress);
        output.finish()?;
        Ok(status)
    }
}

#[derive(Args)]
pub struct Load {
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
    file: Option<OsString>,
    /// put all of them into this tube (default: their own)
    #[arg(short, long, value_name = "TUBE", value_parser = parse::<TubeName>)]
    tube: Option<TubeName>,
}

/// How many jobs are put together at most. (A batch also ends where the source has no whole
/// line in its buffer, which bounds its bytes.)
const BATCH: usize = 500;

impl Run for Load {
    fn run(self, invocation: &Invocation) -> Outcome {
        let path = self.file.as_deref().unwrap_or(INPUT.as_ref());
        let mut source = Source::open(path, true)?;
        let mut client = invocation.connect()?;
        // A server may not say it.
        let largest = match client.server_stats()?.number("max-job-size") {
            0 => LARGEST_BODY,
            told => told.min(LARGEST_BODY),
        };
        // An escape of JSON takes six bytes for one, and there are other keys.
        source.longest = largest * 6 + (1 << 16);
        let mut dump = Loading {
            source,
            tube: self.tube,
            largest,
            writer: Writer::new(client),
            batch: Vec::new(),
            line: 1,
            loaded: 0,
            stayed: 0,
            only_jobs: false,
        };
        // Before this, a signal ends the program as usual.
        heed_interrupts()?;
        let signals = heeded(&[SIGINT, SIGTERM, SIGHUP]);
        dump.source.heed(Calls::by_signals(&signals)?);
        let mut progress = Progress::new("loading", None);
        let flaw = loop {
            let next = dump.next()?;
            let is_full = dump.batch.len() == BATCH;
            // Jobs are put as the input arrives.
            if is_full || !dump.source.has_next() || !matches!(next, Next::Job) {
                if is_interrupted() && !dump.batch.is_empty() {
                    return Err(dump.stopped(Failure::Interrupted("interrupted".into())));
                }
                progress.add(dump.load()?);
            }
            match next {
                Next::Job => {}
                Next::Fault(reason) => {
                    let (failure, after) = (Failure::Refused(reason), dump.line + 1);
                    let failure = dump.stopped(failure);
                    return Err(failure.with(format_args!("'tail -n +{after}' leaves it out")));
                }
                Next::End(flaw) => break flaw,
            }
        };
        drop(progress);
        dump.writer.say_what_is_lost();
        if dump.stayed > 0 {
            let stayed = counted(dump.stayed, "job");
            complain!("{stayed} not put: the unique key is taken");
        }
        print(format!("{}\n", dump.loaded))
            .map_err(|failure| failure.with(jobs(dump.loaded, "loaded")))?;
        if let Some(flaw) = &flaw {
            complain!("{}: {flaw}", dump.source.name);
        }
        Ok(Status::done_if(flaw.is_none()))
    }
}

/// A dump that is being read.
struct Loading {
    source: Source,
    /// The tube of all jobs, if it is one.
    tube: Option<TubeName>,
    writer: Writer,
    /// The largest body that the server takes.
    largest: u64,
    /// Jobs of successive lines, which are put next.
    batch: Vec<NewJob>,
    /// The line of the first of them: all before it is loaded.
    line: u64,
    loaded: u64,
    /// How many were not put, since another job has their unique key.
    stayed: u64,
    /// Whether these are only jobs, as `ls` lists them, without an end of their
    /// own.
    only_jobs: bool,
}

/// What the next line is.
enum Next {
    /// A job, or what goes before the jobs.
    Job,
    /// It cannot be loaded, for this reason.
    Fault(String),
    /// There are no more jobs; and what is wrong with the dump, if anything is.
    End(Option<String>),
}

impl Loading {
    /// Reads a line. If it is a job, it is added to the batch.
    fn next(&mut self) -> Outcome<Next> {
        let text = match self.read()? {
            Ok(text) => text,
            Err(reason) => return Ok(Next::Fault(reason)),
        };
        let Some(text) = text else {
            let flaw = "the end is missing: the dump was cut short".to_owned();
            return match self.source.number {
                0 => self.refused(NO_DUMP),
                _ => Ok(Next::End(Some(flaw).filter(|_| !self.only_jobs))),
            };
        };
        let (number, line) = (self.source.number, Line::read(&text));
        if number == 1 {
            match line {
                Ok(Line::Start(DUMP_VERSION, pauses)) => {
                    self.line = 2;
                    if self.tube.is_none() {
                        self.writer.pause(pauses)?;
                    }
                    return Ok(Next::Job);
                }
                Ok(Line::Start(other, _)) => {
                    let known = format!("only {DUMP_VERSION} is known");
                    return self.refused(&format!("a dump of version {other}: {known}"));
                }
                Ok(Line::Job(_) | Line::End(_)) => self.only_jobs = true,
                _ => return self.refused(NO_DUMP),
            }
        }
        Ok(match line {
            Err(_) if !text.ends_with(b"\n") => {
                Next::End(Some(format!("the dump was cut short within line {number}")))
            }
            Ok(Line::End(written)) => {
                // All lines except the first and the last are jobs.
                let there = number.saturating_sub(2);
                Next::End(match written {
                    Some(written) if written != there && !self.only_jobs => Some(format!(
                        "{written} jobs were written, but {there} are there"
                    )),
                    _ if self.read()? != Ok(None) => Some(format!(
                        "line {number} is the end, and what follows is not loaded"
                    )),
                    _ => None,
                })
            }
            Ok(Line::Job(job)) if job.body.len() as u64 <= self.largest => {
                self.batch.push(NewJob {
                    tube: self.tube.clone().unwrap_or(job.tube),
                    ..job
                });
                Next::Job
            }
            Ok(Line::Job(NewJob { body, .. })) => Next::Fault(format!(
                "the body has {} bytes, and the server takes {}",
                body.len(),
                self.largest
            )),
            Ok(Line::Start(..)) => Next::Fault("a dump begins here".into()),
            Err(reason) => Next::Fault(reason),
        })
    }

    /// The next line or, of one that is too long, the reason why it is not loaded. There is
    /// nothing to be loaded while this waits.
    fn read(&mut self) -> Outcome<Result<Option<Vec<u8>>, String>> {
        let before = self.source.number;
        match self.source.read_next() {
            Ok(text) => Ok(Ok(text)),
            Err(failure) if self.source.number > before => Ok(Err(failure.to_string())),
            Err(_) if is_interrupted() => {
                Err(self.stopped(Failure::Interrupted("interrupted".into())))
            }
            Err(failure) => Err(self.stopped(failure)),
        }
    }

    /// Loads the batch. Returns how many jobs it had.
    fn load(&mut self) -> Outcome<u64> {
        let batch = std::mem::take(&mut self.batch);
        let (replies, outcome) = self.writer.write_in_order(&batch);
        // All jobs may be there while a burial failed: then the rest begins
        // after them.
        let count = replies.len() as u64;
        let is_there = |reply: &&Reply| matches!(reply, Reply::InsertedBefore(..));
        let stayed = replies.iter().filter(is_there).count() as u64;
        self.stayed += stayed;
        self.loaded += count - stayed;
        self.line += count;
        let Err(failure) = outcome else {
            return Ok(count);
        };
        let is_lost = matches!(failure, Failure::Unreachable(_));
        let stopped = self.stopped(failure);
        Err(match batch.len() as u64 - count {
            unknown @ 1.. if is_lost => stopped.with(format_args!(
                "some of the {unknown} from there on may be there already and come twice"
            )),
            _ => stopped,
        })
    }

    fn refused<T>(&self, what: &str) -> Outcome<T> {
        Failure::refused(format!("{}: {what}", self.source.name))
    }

    /// The failure at the next line, at which it says to go on.
    fn stopped(&self, failure: Failure) -> Failure {
        let (line, loaded) = (self.line, jobs(self.loaded, "loaded"));
        let dump = match self.source.name.as_str() {
            "stdin" => INPUT.into(),
            name => shell_word(name),
        };
        let (address, tube) = (self.writer.address(), self.tube.as_ref());
        let tube = tube.map_or(String::new(), |tube| {
            format!(" -t {}", shell_word(tube.as_str()))
        });
        failure
            .about(format_args!("{} line {line}", self.source.name))
            .with(format_args!(
                "{loaded}; 'tail -n +{line} {dump} | beanpole load -a {address}{tube}' goes on there"
            ))
    }
}

/// What is said of other files.
const NO_DUMP: &str = "not a dump of beanpole";
