//! `put`: puts jobs from arguments, files or standard input.

use crate::command::{Invocation, Run};
use crate::failure::{Failure, Outcome, Status};
use crate::server::client::Terms;
use crate::server::form::{Line, Told};
use crate::server::place::{Placement, Placer};
use crate::server::reply::Reply;
use crate::server::stats::State;
use crate::text::file::{cannot_read, open};
use crate::text::output::{Output, Progress, complain};
use crate::values::parse;
use beanpole::protocol::framing::MAX_LINE;
use beanpole::protocol::{Limit, Priority, PutOptions, Seconds, TubeName, Unique};
use clap::{Args, ValueHint};
use std::ffi::OsString;
use std::io::{BufRead, BufReader, IsTerminal, Read, stdin};
use std::num::NonZeroU32;
use std::os::unix::ffi::OsStringExt;

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

/// How many bytes the words may have, whatever numbers stand before them: a
/// longer line would be refused, and its body read as commands.
const MAX_WORDS: usize = MAX_LINE - "put 4294967295 4294967295 4294967295 1073741824 \r\n".len();

impl Run for Put {
    const MANY_SERVERS: bool = true;

    fn run(mut self, invocation: &Invocation) -> Outcome {
        let bodies = std::mem::take(&mut self.bodies);
        self.warn_of_a_tube(&bodies);
        let options = self;
        let end = match (options.lines || options.json, options.null) {
            (true, _) => Some(b'\n'),
            (_, true) => Some(b'\0'),
            _ => None,
        };
        let mut files = options.files.clone();
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
        let mut placer = Placer::new(invocation.connect_to_first()?);
        if words.is_some() && !placer.knows_words()? {
            return Failure::refused("the server does not know --unique, --limit and --tries");
        }
        let mut puts = Puts {
            placer,
            invocation,
            options: &options,
            words,
            ids: Output::new(),
            all: true,
            answered: 0,
            progress: Progress::beside_output("putting"),
        };
        let bodies = bodies.into_iter().enumerate().map(|(index, body)| Body {
            origin: format!("body {}", index + 1),
            bytes: body.into_vec(),
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

struct Body {
    /// Where the body came from, for messages.
    origin: String,
    bytes: Vec<u8>,
}

struct Puts<'a> {
    placer: Placer,
    invocation: &'a Invocation,
    options: &'a Put,
    /// The words that the options say.
    words: Option<PutOptions>,
    ids: Output,
    /// Whether every body has become a job up to now.
    all: bool,
    /// How many bodies were answered.
    answered: usize,
    progress: Progress,
}

impl Puts<'_> {
    /// The job of a body, and where that came from; `None` if it is none,
    /// because it is a line without a job, or one at fault. What an option says
    /// goes before what a line says.
    fn job(&mut self, Body { origin, bytes }: Body) -> Option<(String, Placement)> {
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
        let placement = Placement {
            tube: tube.unwrap_or_default(),
            terms: Terms {
                priority: priority.unwrap_or(Terms::PRIORITY),
                delay: options.delay.or(told.delay).unwrap_or(Seconds(0)),
                ttr: options.ttr.or(told.ttr).unwrap_or(Seconds(60)),
            },
            words: self.words.clone().or(told.words),
            buried: told.state == Some(State::Buried),
            body: told.body,
        };
        Some((origin, placement))
    }

    /// What a line of JSON tells of a job. `None` if it is the head or the end
    /// of a dump, or empty.
    fn told(&mut self, line: &[u8]) -> Result<Option<Told>, String> {
        if line.trim_ascii().is_empty() {
            return Ok(None);
        }
        let Line::Job(told) = Line::read(line)? else {
            return Ok(None);
        };
        let needs_words = self.words.is_none() && told.words.is_some();
        if needs_words
            && !self
                .placer
                .knows_words()
                .map_err(|failure| failure.to_string())?
        {
            return Err("the server does not know the words of this job".into());
        }
        Ok(Some(told))
    }

    /// Puts a batch and prints the ids. If there are several servers and the one
    /// in use is lost, the first that serves gets the bodies without an answer.
    fn put(&mut self, batch: Vec<Body>) -> Outcome<()> {
        let jobs = batch.into_iter().filter_map(|body| self.job(body));
        let (origins, jobs): (Vec<_>, Vec<_>) = jobs.unzip();
        let (mut origins, mut left) = (origins.as_slice(), jobs.as_slice());
        loop {
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
            self.placer.reconnected(self.invocation.connect_to_first()?);
            let address = self.placer.address().clone();
            let has_words = left.iter().any(|job| job.words.is_some());
            if has_words && !self.placer.knows_words()? {
                return Failure::refused(format!(
                    "{lost}\n{address}: the server does not know the words of these jobs"
                ));
            }
            complain!("{lost}; going on at {address}, where {unknown} bodies may come twice");
        }
    }

    /// Puts these jobs and prints their ids, even if one of them is refused: the
    /// bodies that were sent before the refusal arrived have become jobs.
    fn put_all(&mut self, origins: &[String], jobs: &[Placement]) -> Outcome<()> {
        let (replies, outcome) = self.placer.send(jobs, true);
        let mut refused = None;
        let mut unburied = Vec::new();
        self.progress.add(replies.len() as u64);
        self.answered += replies.len();
        for ((origin, job), reply) in origins.iter().zip(jobs).zip(replies) {
            match &reply {
                Reply::Inserted(id) if job.buried => unburied.push((*id, job.terms.priority)),
                Reply::Inserted(_) => {}
                Reply::InsertedBefore(id, state) if !self.options.quiet => {
                    complain!("{origin}: job {id} has the key: {state}");
                }
                Reply::InsertedBefore(..) => {}
                Reply::Buried(Some(id)) => {
                    complain!("{origin}: the server was short of memory and buried job {id}");
                }
                Reply::JobTooBig => {
                    self.all = false;
                    complain!("{}", Failure::unexpected(origin, &reply));
                }
                _ => drop(refused.get_or_insert(Failure::unexpected(origin, &reply))),
            }
            match reply {
                Reply::Inserted(id) | Reply::InsertedBefore(id, _) if !self.options.quiet => {
                    self.ids.line(id)?;
                }
                Reply::Buried(Some(id)) => self.ids.line(id)?,
                _ => {}
            }
        }
        self.ids.sync()?;
        outcome?;
        self.placer.bury(&mut unburied)?;
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
