//! `put`: puts jobs from arguments, files or standard input.

use crate::command::{
    Command, DELAY, Invocation, Kind, Opt, TUBE, at_most_one, described, options,
};
use crate::failure::{Failure, Outcome, Status};
use crate::server::client::{Client, Terms};
use crate::server::form::Told;
use crate::server::reply::Reply;
use crate::text::dump::{END_KEY, START_KEY};
use crate::text::file::{cannot_read, open};
use crate::text::json;
use crate::text::output::{Output, Progress, complain};
use beanpole::arguments;
use beanpole::protocol::framing::MAX_LINE;
use beanpole::protocol::{Limit, Priority, PutOptions, Seconds, TubeName, Unique};
use std::ffi::OsString;
use std::io::{BufRead, BufReader, Read};
use std::num::NonZeroU32;

pub const PUT: Command = Command {
    name: "put",
    operands: "[BODY…]",
    about: "put jobs into a tube and print their ids",
    options: || described(OPTIONS),
    many_servers: true,
    run: put,
    ..Command::BLANK
};

options! {
    tube: Option<TubeName> = TUBE,
    priority: Option<Priority> =
        Opt::value("p", "priority", "PRI", "the priority, smaller is sooner (default: 1024)"),
    delay: Option<Seconds> = DELAY,
    ttr: Option<Seconds> = Opt::value("r", "ttr", "TIME", "the time to run (default: 60)"),
    files: Vec<OsString> =
        Opt::value("f", "file", "FILE",
            "a file's content is a body; may be repeated, - is stdin").of(Kind::File).many(),
    lines: bool = Opt::flag("l", "lines", "each line of the files or of stdin is a body"),
    null: bool = Opt::flag("0", "null", "the same, but NUL bytes end the bodies"),
    json: bool =
        Opt::flag("j", "json", "each line is a job in JSON, as ls, reserve and dump write it"),
    unique: Option<Unique> =
        Opt::value("", "unique", "KEY[:TIME]",
            "no other job with this key in the tube, nor for TIME after its delete (default: 0)"),
    limit: Option<Limit> =
        Opt::value("", "limit", "KEY[:N]",
            "at most N jobs with this key are reserved at a time (default: 1)"),
    tries: Option<NonZeroU32> =
        Opt::value("", "tries", "N", "buried after N tries that end without a word"),
    quiet: bool = Opt::flag("q", "quiet", "do not print the ids"),
}

/// How many bytes the words may have, whatever numbers stand before them: a
/// longer line would be refused, and its body read as commands.
const MAX_WORDS: usize = MAX_LINE - "put 4294967295 4294967295 4294967295 1073741824 \r\n".len();

fn put(invocation: &Invocation) -> Outcome {
    let options = invocation.read(OPTIONS)?;
    at_most_one(&[
        ("lines", options.lines),
        ("null", options.null),
        ("json", options.json),
    ])?;
    let end = match (options.lines || options.json, options.null) {
        (true, _) => Some(b'\n'),
        (_, true) => Some(b'\0'),
        _ => None,
    };
    let mut files = options.files.clone();
    let bodies = invocation.operands();
    match (bodies.is_empty(), files.is_empty(), end) {
        (true, true, _) => files.push("-".into()),
        (false, false, _) => {
            return Failure::usage("give bodies or --file, not both");
        }
        (false, _, Some(_)) => {
            return Failure::usage("bodies given as operands are not split");
        }
        _ => {}
    }
    let words = PutOptions {
        unique: options.unique.clone(),
        limit: options.limit.clone(),
        tries: options.tries.map(NonZeroU32::get),
    };
    let words = Some(words).filter(|words| *words != PutOptions::NONE);
    if words
        .as_ref()
        .is_some_and(|words| words.to_string().len() > MAX_WORDS)
    {
        return Failure::usage("the keys are too long together");
    }
    let mut client = invocation.connect_to_first()?;
    if words.is_some() && !client.knows_words()? {
        return Failure::refused("the server does not know --unique, --limit and --tries");
    }
    let mut puts = Puts {
        client,
        invocation,
        options: &options,
        words,
        used: None,
        ids: Output::new(),
        all: true,
        sent: 0,
        answered: 0,
        progress: Progress::beside_output("putting"),
    };
    let bodies = bodies.iter().enumerate().map(|(index, body)| Body {
        origin: format!("body {}", index + 1),
        bytes: arguments::to_bytes(body),
    });
    puts.put(bodies.collect())?;
    for path in &files {
        let mut source = Source::open(path)?;
        while let Some(batch) = source.read(end)? {
            puts.put(batch)?;
        }
    }
    Ok(Status::done_if(puts.all))
}

struct Body {
    /// Where the body came from, for messages.
    origin: String,
    bytes: Vec<u8>,
}

/// A body that is about to become a job.
struct NewJob {
    origin: String,
    tube: TubeName,
    terms: Terms,
    words: Option<PutOptions>,
    body: Vec<u8>,
}

struct Puts<'a> {
    client: Client,
    invocation: &'a Invocation,
    options: &'a Options,
    /// The words that the options say.
    words: Option<PutOptions>,
    /// The tube into which the connection puts jobs now.
    used: Option<TubeName>,
    ids: Output,
    /// Whether every body has become a job up to now.
    all: bool,
    /// How many bodies were sent, and how many of these were answered.
    sent: u64,
    answered: u64,
    progress: Progress,
}

impl Puts<'_> {
    /// The job of a body; `None` if it is none, because it is a line without a
    /// job, or one at fault. What an option says goes before what a line says.
    fn job(&mut self, Body { origin, bytes }: Body) -> Option<NewJob> {
        let told = match self.options.json {
            false => Ok(Some(Told {
                body: bytes,
                ..Told::default()
            })),
            true => self.told(&bytes),
        };
        let told = told.unwrap_or_else(|reason| {
            self.all = false;
            complain!("{origin}: {reason}");
            None
        })?;
        let options = self.options;
        let tube = options.tube.clone().or(told.tube);
        let priority = options.priority.or(told.priority);
        Some(NewJob {
            origin,
            tube: tube.unwrap_or(TubeName::default_tube()),
            terms: Terms {
                priority: priority.unwrap_or(Terms::PRIORITY),
                delay: options.delay.or(told.delay).unwrap_or(Seconds(0)),
                ttr: options.ttr.or(told.ttr).unwrap_or(Seconds(60)),
            },
            words: self.words.clone().or(told.words),
            body: told.body,
        })
    }

    /// What a line of JSON tells of a job. `None` if it is the head or the end
    /// of a dump, or empty.
    fn told(&mut self, line: &[u8]) -> Result<Option<Told>, String> {
        if line.trim_ascii().is_empty() {
            return Ok(None);
        }
        let value = json::parse(line)?;
        if value.get(START_KEY).is_some() || value.get(END_KEY).is_some() {
            return Ok(None);
        }
        let told = Told::read(&value)?;
        let needs_words = self.words.is_none() && told.words.is_some();
        match !needs_words
            || self
                .client
                .knows_words()
                .map_err(|failure| failure.to_string())?
        {
            true => Ok(Some(told)),
            false => Err("the server does not know the words of this job".into()),
        }
    }

    /// Puts a batch and prints the ids. If there are several servers and the one
    /// in use is lost, the first that serves gets the bodies without an answer.
    fn put(&mut self, batch: Vec<Body>) -> Outcome<()> {
        let jobs: Vec<_> = batch
            .into_iter()
            .filter_map(|body| self.job(body))
            .collect();
        let mut left = jobs.as_slice();
        loop {
            let before = self.answered;
            let lost = match self.put_all(left) {
                Err(Failure::Unreachable(reason)) => reason,
                outcome => return outcome,
            };
            let count = usize::try_from(self.answered - before).unwrap_or(left.len());
            left = &left[count..];
            let unknown = self.sent - self.answered;
            if self.invocation.servers.len() == 1 {
                let answered = self.answered;
                return Err(Failure::Unreachable(format!(
                    "{lost}\nthe first {answered} bodies were answered; the next {unknown} may be jobs, too"
                )));
            }
            self.client = self.invocation.connect_to_first()?;
            self.used = None;
            let has_words = left.iter().any(|job| job.words.is_some());
            if has_words && !self.client.knows_words()? {
                return Failure::refused(format!(
                    "{lost}\n{}: the server does not know the words of these jobs",
                    self.client.address
                ));
            }
            self.sent = self.answered;
            complain!(
                "{lost}; going on at {}, where {unknown} bodies may come twice",
                self.client.address
            );
        }
    }

    /// Puts these jobs and prints their ids, even if one of them is refused: the
    /// bodies that were sent before the refusal arrived have become jobs.
    fn put_all(&mut self, jobs: &[NewJob]) -> Outcome<()> {
        let mut refused = None;
        let mut jobs = jobs.iter().peekable();
        let outcome = self.client.pipeline(
            |client| {
                let job = jobs.peek()?;
                if self.used.as_ref() != Some(&job.tube) {
                    client.queue(format_args!("use {}", job.tube));
                    self.used = Some(job.tube.clone());
                    return Some("");
                }
                let job = jobs.next()?;
                self.sent += 1;
                client.queue_put(job.terms, job.words.as_ref(), &job.body);
                Some(&job.origin)
            },
            |origin, reply| {
                if let Reply::Using(_) = reply {
                    return Ok(());
                }
                self.progress.add(1);
                self.answered += 1;
                match reply {
                    Reply::Inserted(_) | Reply::InsertedBefore(..) if self.options.quiet => {}
                    Reply::Inserted(id) => self.ids.line(id)?,
                    Reply::InsertedBefore(id, state) => {
                        self.ids.line(id)?;
                        complain!("{origin}: job {id} has the key: {state}");
                    }
                    Reply::Buried(Some(id)) => {
                        self.ids.line(id)?;
                        complain!("{origin}: the server was short of memory and buried job {id}");
                    }
                    Reply::JobTooBig => {
                        self.all = false;
                        complain!("{}", Failure::unexpected(origin, &reply));
                    }
                    _ => {
                        refused.get_or_insert(Failure::unexpected(origin, &reply));
                    }
                }
                Ok(())
            },
        );
        self.ids.sync()?;
        outcome?;
        refused.map_or(Ok(()), Err)
    }
}

/// A file, or standard input, from which bodies are read.
struct Source {
    name: String,
    reader: BufReader<Box<dyn Read>>,
    bodies: u64,
}

impl Source {
    fn open(path: &OsString) -> Outcome<Source> {
        let (name, reader) = open(path)?;
        Ok(Source {
            name,
            reader: BufReader::with_capacity(1 << 20, reader),
            bodies: 0,
        })
    }

    /// The next bodies: at least one, and all others that are in the buffer
    /// already. Without an end byte the whole source is one body.
    fn read(&mut self, end: Option<u8>) -> Outcome<Option<Vec<Body>>> {
        let mut batch = Vec::new();
        while batch.is_empty() || end.is_some_and(|end| self.reader.buffer().contains(&end)) {
            let mut bytes = Vec::new();
            let count = match end {
                Some(end) => self.reader.read_until(end, &mut bytes),
                None => self.reader.read_to_end(&mut bytes),
            };
            let count = count.map_err(|error| cannot_read(&self.name, error))?;
            // Without an end byte, an empty source is one empty body.
            if count == 0 && (end.is_some() || self.bodies > 0) {
                break;
            }
            if bytes.last().copied() == end {
                bytes.pop();
            }
            self.bodies += 1;
            let origin = match end {
                Some(_) => format!("{} {}", self.name, self.bodies),
                None => self.name.clone(),
            };
            batch.push(Body { origin, bytes });
        }
        Ok((!batch.is_empty()).then_some(batch))
    }
}
