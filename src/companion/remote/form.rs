//! How jobs are written, as a table, as their bodies or as lines of JSON, and how such
//! lines are read.
//!
//! All commands write the same line: what the server says of the job, then
//! the options of its put, if it has any, and its body. A body that is not UTF-8
//! is in base64. A dump has such lines between its own first and last one:
//!
//! ```text
//! {"beanpole-dump":1,"server":"127.0.0.1:11300","version":"1.12","pauses":{"mail":3600}}
//! {"id":1,"tube":"default","state":"ready","pri":0,…,"body":"text"}
//! {"id":2,"tube":"default","state":"buried","pri":0,…,"body64":"AP8="}
//! {"beanpole-dump-end":1,"jobs":2}
//! ```

use crate::failure::{Failure, Outcome};
use crate::remote::reply::LARGEST_BODY;
use crate::remote::{Facts, Job, JobFacts, NewJob, State};
use crate::signals::{Calls, wait_for};
use crate::text::json::{self, Json, json};
use crate::text::{Output, beginning, cannot_read, output, row, shown, span};
use beanpole::protocol::{JobId, Priority, PutOptions, Seconds, TubeName};
use clap::Args;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::os::fd::{AsFd, OwnedFd};

/// How bodies are written: as they are, unless an option says otherwise. On a terminal
/// each ends its line, and characters that would disturb the terminal are shown as
/// escapes.
#[derive(Args)]
pub struct Bodies {
    /// write a line feed after each body
    #[arg(short, long)]
    pub lines: bool,
    /// write each job as a line of JSON
    #[arg(short, long, conflicts_with = "lines")]
    pub json: bool,
}

impl Bodies {
    /// Writes a job. JSON contains its facts, if they are known.
    pub fn write(&self, output: &mut Output, job: &Job) -> Outcome<()> {
        if self.json {
            let facts = job.facts.as_ref().map(|facts| &facts.all);
            return output.json(&job_to_json(job.id, facts, &job.body));
        }
        let is_terminal = output::is_terminal();
        if is_terminal {
            output.bytes(shown(&job.body, true).as_bytes())?
        } else {
            output.bytes(&job.body)?
        }
        if self.lines || is_terminal && !job.body.ends_with(b"\n") {
            output.bytes(b"\n")?;
        }
        Ok(())
    }
}

/// A job as JSON.
pub fn job_to_json(id: JobId, facts: Option<&Facts>, body: &[u8]) -> Json {
    let mut job = facts.map_or_else(|| json!({"id": id.0}), |facts| json!(facts));
    if let Some(options) = facts.and_then(Facts::options) {
        job["options"] = options.to_string().into();
    }
    let (key, body) = json::body(body);
    job[key] = body;
    job
}

/// A column of a table of jobs: its name; its width, negative if its text is aligned to
/// the left; and its text.
type Column = (&'static str, isize, fn(&JobFacts, &Job) -> String);

// The tube is the last one: where all jobs are of one tube, it is left out.
#[rustfmt::skip]
static COLUMNS: [Column; 8] = [
    ("id", 9, |job, _| job.id.to_string()),
    ("state", -8, |job, _| job.state.name().into()),
    ("pri", 10, |job, _| job.priority.0.to_string()),
    ("age", 5, |job, _| span(job.age)),
    ("left", 5, |job, _| left(job)),
    ("tries", 5, |job, _| job.reserves.to_string()),
    ("size", 7, |_, found| found.size.to_string()),
    ("tube", -12, |job, _| job.tube.to_string()),
];

/// What is left of the delay of a delayed job, or of the time to run of a
/// reserved one.
fn left(job: &JobFacts) -> String {
    match job.state {
        State::Delayed | State::Reserved => span(job.time_left.0.into()),
        _ => "-".into(),
    }
}

/// The titles of a table of jobs, which may all be of one tube.
pub fn job_titles(is_of_one: bool) -> String {
    cells(is_of_one, |(name, ..)| name.to_uppercase()) + "BODY"
}

/// A job as a line of it, with its body as far as the width allows, if there is one.
pub fn job_line(job: &JobFacts, found: &Job, is_of_one: bool, width: Option<usize>) -> String {
    let facts = cells(is_of_one, |(.., text)| text(job, found)) + &job.note();
    let used = facts.chars().count();
    let width = width.map(|width| width.saturating_sub(used));
    facts + &beginning(&found.body, width)
}

fn cells(is_of_one: bool, text: impl Fn(&Column) -> String) -> String {
    let shown = &COLUMNS[..COLUMNS.len() - usize::from(is_of_one)];
    row(shown.iter().map(|column| (text(column), column.1))) + " "
}

/// The only version of the format of dumps.
pub const DUMP_VERSION: u64 = 1;

/// A line of JSON about a job, or the first or the last one of a dump.
pub enum Line {
    /// The version of the format, and the tubes that are paused, each for so many seconds.
    Start(u64, Vec<(TubeName, Seconds)>),
    /// How many jobs are before it, if it says so.
    End(Option<u64>),
    Job(NewJob),
}

/// The keys. Others say nothing about a new job.
#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Keys {
    beanpole_dump: Option<u64>,
    #[serde(default)]
    pauses: BTreeMap<String, u32>,
    beanpole_dump_end: Option<u64>,
    jobs: Option<u64>,
    tube: Option<String>,
    state: Option<String>,
    pri: Option<u32>,
    delay: Option<u32>,
    time_left: Option<u32>,
    ttr: Option<u32>,
    options: Option<String>,
    body: Option<String>,
    body64: Option<String>,
}

impl Line {
    pub fn read(line: &[u8]) -> Result<Line, String> {
        let keys: Keys = json::parse(line)?;
        if let Some(version) = keys.beanpole_dump {
            let pauses = keys.pauses.iter();
            let pauses = pauses
                .map(|(name, left)| Some((TubeName::parse(name.as_bytes())?, Seconds(*left))));
            let pauses = pauses.collect::<Option<_>>();
            let pauses = pauses.ok_or("'pauses' names no tube")?;
            return Ok(Line::Start(version, pauses));
        }
        if keys.beanpole_dump_end.is_some() {
            return Ok(Line::End(keys.jobs));
        }
        let body = match (keys.body, keys.body64) {
            (Some(body), None) => body.into(),
            (None, Some(body)) => json::from_base64(&body).ok_or("'body64' is not base64")?,
            (Some(_), Some(_)) => return Err("there is both 'body' and 'body64'".into()),
            (None, None) => return Err("there is neither 'body' nor 'body64'".into()),
        };
        let mut job = NewJob::with(body);
        if let Some(name) = keys.tube {
            let tube = TubeName::parse(name.as_bytes());
            job.tube = tube.ok_or("'tube' is not the name of a tube")?;
        }
        let known = |name: String| State::parse(name.as_bytes()).ok_or("'state' is none of a job");
        let state = keys.state.map(known).transpose()?;
        job.buried = state == Some(State::Buried);
        // A job that is ready has the delay that it once had. What is left of one has a key
        // of its own; a line that a person writes may lack it.
        let delay = match state {
            None => keys.delay,
            Some(State::Delayed) => keys.time_left.or(keys.delay),
            Some(_) => None,
        };
        job.delay = delay.map_or(job.delay, Seconds);
        job.priority = keys.pri.map_or(job.priority, Priority);
        job.ttr = keys.ttr.map_or(job.ttr, Seconds);
        if let Some(options) = keys.options {
            let known = PutOptions::parse(format!(" {options}").as_bytes());
            job.options = Some(known.ok_or("'options' are none that may follow a put")?);
        }
        Ok(Line::Job(job))
    }
}

/// A file, or standard input, from which bodies or lines are read.
pub struct Source {
    pub name: String,
    reader: BufReader<Input>,
    /// Whether each line is one; else the whole source is.
    has_lines: bool,
    /// How many were read.
    pub number: u64,
    /// How many bytes one may have.
    pub longest: u64,
}

/// What it is read from. If signals are heeded, one that comes ends the wait for more.
struct Input {
    file: File,
    signals: Option<Calls>,
}

impl Read for Input {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while let Some(signals) = &self.signals {
            match wait_for(&[signals.as_fd(), self.file.as_fd()], None)[..] {
                [true, _] => return Err(io::Error::other("interrupted")),
                [_, true] => break,
                _ => {}
            }
        }
        self.file.read(buffer)
    }
}

impl Source {
    pub fn open(path: &OsStr, has_lines: bool) -> Outcome<Source> {
        let (name, file) = match path.to_str() {
            Some("-") => ("stdin".into(), io::stdin().as_fd().try_clone_to_owned()),
            _ => (
                path.to_string_lossy().into_owned(),
                File::open(path).map(OwnedFd::from),
            ),
        };
        let file = file.map_err(|error| cannot_read(&name, error))?.into();
        let signals = None;
        Ok(Source {
            name,
            reader: BufReader::with_capacity(1 << 20, Input { file, signals }),
            has_lines,
            number: 0,
            longest: LARGEST_BODY,
        })
    }

    /// Has these signals end a wait for more: then it cannot be read.
    pub fn heed(&mut self, signals: Calls) {
        self.reader.get_mut().signals = Some(signals);
    }

    /// The next one, with its end.
    pub fn read_next(&mut self) -> Outcome<Option<Vec<u8>>> {
        let mut bytes = Vec::new();
        let mut some = (&mut self.reader).take(self.longest.saturating_add(1));
        let read = if self.has_lines {
            some.read_until(b'\n', &mut bytes)
        } else {
            some.read_to_end(&mut bytes)
        };
        let count = read.map_err(|error| cannot_read(&self.name, error))?;
        // An empty source without lines is one empty body.
        if count == 0 && (self.has_lines || self.number > 0) {
            return Ok(None);
        }
        self.number += 1;
        if bytes.len() as u64 > self.longest {
            let (place, most) = (self.place(), self.longest);
            return Failure::refused(format!("{place} has more than {most} bytes"));
        }
        Ok(Some(bytes))
    }

    /// Whether the next one can be had without waiting.
    pub fn has_next(&self) -> bool {
        self.has_lines && self.reader.buffer().contains(&b'\n')
    }

    /// The place of the last one, for messages.
    pub fn place(&self) -> String {
        if self.has_lines {
            format!("{} {}", self.name, self.number)
        } else {
            self.name.clone()
        }
    }
}
