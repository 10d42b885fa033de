//! `put`: puts jobs from arguments, files or standard input.

use crate::command::{
    Command, DELAY, Invocation, Kind, Opt, TUBE, at_most_one, described, options,
};
use crate::failure::{Failure, Outcome, Status};
use crate::server::client::{Client, Terms};
use crate::server::reply::Reply;
use crate::text::file::{cannot_read, open};
use crate::text::output::{Output, Progress, complain};
use beanpole::arguments;
use beanpole::protocol::{Priority, Seconds, TubeName};
use std::ffi::OsString;
use std::io::{BufRead, BufReader, Read};

pub const PUT: Command = Command {
    name: "put",
    operands: "[BODY…]",
    about: "put jobs into a tube and print their ids",
    options: || described(OPTIONS),
    run: put,
    ..Command::BLANK
};

options! {
    tube: TubeName = TUBE => TubeName::default_tube(),
    priority: Priority =
        Opt::value("p", "priority", "PRI", "the priority, smaller is sooner (default: 1024)")
        => Terms::PRIORITY,
    delay: Seconds = DELAY => Seconds(0),
    ttr: Seconds = Opt::value("r", "ttr", "TIME", "the time to run (default: 60)") => Seconds(60),
    files: Vec<OsString> =
        Opt::value("f", "file", "FILE",
            "a file's content is a body; may be repeated, - is stdin").of(Kind::File).many(),
    lines: bool = Opt::flag("l", "lines", "each line of the files or of stdin is a body"),
    null: bool = Opt::flag("0", "null", "the same, but NUL bytes end the bodies"),
    quiet: bool = Opt::flag("q", "quiet", "do not print the ids"),
}

fn put(invocation: &Invocation) -> Outcome {
    let options = invocation.read(OPTIONS)?;
    at_most_one(&[("lines", options.lines), ("null", options.null)])?;
    let terms = Terms {
        priority: options.priority,
        delay: options.delay,
        ttr: options.ttr,
    };
    let end = match (options.lines, options.null) {
        (true, _) => Some(b'\n'),
        (_, true) => Some(b'\0'),
        _ => None,
    };
    let mut files = options.files;
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
    let mut client = invocation.connect()?;
    client.use_tube(&options.tube)?;
    let mut puts = Puts {
        client,
        terms,
        ids: Output::new(),
        quiet: options.quiet,
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

struct Puts {
    client: Client,
    terms: Terms,
    ids: Output,
    quiet: bool,
    /// Whether every body has become a job up to now.
    all: bool,
    /// How many bodies were sent, and how many of these were answered.
    sent: u64,
    answered: u64,
    progress: Progress,
}

impl Puts {
    /// Puts a batch and prints the ids, even if a body of it is refused: the
    /// bodies that were sent before the refusal arrived have become jobs.
    fn put(&mut self, batch: Vec<Body>) -> Outcome<()> {
        let mut refused = None;
        let mut bodies = batch.into_iter();
        let outcome = self.client.pipeline(
            |client| {
                let Body { origin, bytes } = bodies.next()?;
                self.sent += 1;
                client.queue_put(self.terms, &bytes);
                Some(origin)
            },
            |origin, reply| {
                self.progress.add(1);
                self.answered += 1;
                match reply {
                    Reply::Inserted(_) if self.quiet => {}
                    Reply::Inserted(id) => self.ids.line(id)?,
                    Reply::Buried(Some(id)) => {
                        self.ids.line(id)?;
                        complain(format_args!("beanpole put: {origin}: the server was short of memory and buried job {id}"));
                    }
                    Reply::JobTooBig => {
                        self.all = false;
                        complain(format_args!("beanpole put: {}", Failure::unexpected(origin, &reply)));
                    }
                    _ => {
                        refused.get_or_insert(Failure::unexpected(origin, &reply));
                    }
                }
                Ok(())
            },
        );
        self.ids.sync()?;
        outcome.map_err(|failure| match failure {
            Failure::Unreachable(reason) => {
                let (answered, unknown) = (self.answered, self.sent - self.answered);
                Failure::Unreachable(format!(
                    "{reason}\nthe first {answered} bodies were answered; the next {unknown} may be jobs, too"
                ))
            }
            other => other,
        })?;
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
