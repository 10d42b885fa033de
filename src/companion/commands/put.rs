//! `put`: puts jobs from arguments, files or standard input.

use crate::command::{INPUT, Invocation, Run};
use crate::failure::{Failure, Outcome, Status};
use crate::remote::form::Source;
use crate::remote::{Client, NewJob, Reply, Writer, writer};
use crate::text::output::{Output, complain};
use crate::values::{Count, parse};
use beanpole::protocol::framing::MAX_LINE;
use beanpole::protocol::{Limit, Priority, PutOptions, Seconds, TubeName, Unique};
use clap::{Args, ValueHint};
use std::ffi::OsString;
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
    #[arg(short, long = "file", value_name = "FILE", value_hint = ValueHint::FilePath, conflicts_with = "bodies")]
    files: Vec<OsString>,
    /// each line of the files or of stdin is a body
    #[arg(short, long, conflicts_with = "bodies")]
    lines: bool,
    /// no other job with this key in the tube, nor for TIME after its delete (default: 0)
    #[arg(long, value_name = "KEY[:TIME]", value_parser = parse::<Unique>)]
    unique: Option<Unique>,
    /// at most N jobs with this key are reserved at a time (default: 1)
    #[arg(long, value_name = "KEY[:N]", value_parser = parse::<Limit>)]
    limit: Option<Limit>,
    /// buried after N tries that end by a timeout or a lost connection
    #[arg(long, value_name = "N", value_parser = parse::<Count>)]
    tries: Option<Count>,
    /// deleted if nobody has taken it TIME after its put (default: never)
    #[arg(long, value_name = "TIME", value_parser = parse::<Seconds>)]
    expire: Option<Seconds>,
    /// do not print the ids
    #[arg(short, long)]
    quiet: bool,
}

/// How many bytes the options may have, whatever numbers come before them: a
/// longer line would be refused, and its body read as commands.
const MAX_OPTIONS: usize = MAX_LINE - "put 4294967295 4294967295 4294967295 1073741824 \r\n".len();

impl Run for Put {
    fn run(mut self, invocation: &Invocation) -> Outcome {
        let bodies = std::mem::take(&mut self.bodies);
        self.warn_of_a_tube(&bodies);
        if bodies.is_empty() && self.files.is_empty() {
            self.files.push(INPUT.into());
        }
        let options = PutOptions {
            unique: self.unique.take(),
            limit: self.limit.take(),
            tries: self.tries.map(|Count(tries)| tries),
            expires_after: self.expire,
        };
        if options.expires_after == Some(Seconds(0)) {
            return Failure::usage("--expire: the job would be gone at once");
        }
        if options.to_string().len() > MAX_OPTIONS {
            return Failure::usage("the keys are too long together");
        }
        let options = Some(options).filter(|options| *options != PutOptions::default());
        let mut client = Client::first_of(&invocation.servers, invocation.patience())?;
        let at = client.address.at_one_of(&invocation.servers);
        if options.is_some() && !client.is_extended()? {
            return Failure::refused(
                "the server does not know --unique, --limit, --tries and --expire",
            );
        }
        let mut puts = Puts {
            writer: Writer::new(client),
            is_quiet: self.quiet,
            ids: Output::new(),
            all: true,
            answered: 0,
        };
        let bodies = (1..).zip(bodies).map(|(number, body)| {
            let origin = format!("body {number}{at}");
            (origin, self.job(options.clone(), body.into_vec()))
        });
        puts.put(bodies.collect())?;
        for path in &self.files {
            let mut source = Source::open(path, self.lines)?;
            let mut batch = Vec::new();
            // Those that are in the buffer already go together.
            while let Some(mut body) = source.read_next()? {
                if self.lines && body.ends_with(b"\n") {
                    body.pop();
                }
                batch.push((source.place() + &at, self.job(options.clone(), body)));
                if !source.has_next() {
                    puts.put(std::mem::take(&mut batch))?;
                }
            }
        }
        Ok(Status::done_if(puts.all))
    }
}

impl Put {
    /// The job of a body.
    fn job(&self, options: Option<PutOptions>, body: Vec<u8>) -> NewJob {
        let usual = NewJob::with(body);
        NewJob {
            tube: self.tube.clone().unwrap_or_default(),
            priority: self.priority.unwrap_or(usual.priority),
            delay: self.delay.unwrap_or(usual.delay),
            ttr: self.ttr.unwrap_or(usual.ttr),
            options,
            ..usual
        }
    }

    /// `put mail hello` puts two jobs into `default`, and a person may have
    /// meant another thing.
    fn warn_of_a_tube(&self, bodies: &[OsString]) {
        if let (None, false, [first, _, ..]) = (&self.tube, self.quiet, bodies)
            && let Some(tube) = TubeName::parse(first.as_encoded_bytes())
        {
            complain!(
                "'{tube}' is the first of {} bodies for the tube 'default'; a tube is named by -t {tube}",
                bodies.len()
            );
        }
    }
}

struct Puts {
    writer: Writer,
    is_quiet: bool,
    ids: Output,
    /// Whether every body has become a job up to now.
    all: bool,
    /// How many bodies were answered.
    answered: usize,
}

impl Puts {
    /// Puts a batch of jobs, each with where it comes from, and prints the ids, even if one
    /// job is refused: the bodies that were sent before the refusal arrived have become jobs.
    fn put(&mut self, batch: Vec<(String, NewJob)>) -> Outcome<()> {
        let (origins, jobs): (Vec<_>, Vec<_>) = batch.into_iter().unzip();
        let (replies, outcome) = self.writer.write(&jobs);
        let is_quiet = self.is_quiet;
        let (mut refused, mut printed) = (None, Ok(()));
        self.answered += replies.len();
        for ((origin, job), reply) in origins.iter().zip(&jobs).zip(&replies) {
            if let Some(id) = writer::id(reply).filter(|_| !is_quiet) {
                printed = printed.and_then(|()| self.ids.line(id));
            }
            match reply {
                Reply::InsertedBefore(id, state) if !is_quiet => {
                    complain!("{origin}: job {id} has the key: {state}");
                }
                Reply::Inserted(_) | Reply::InsertedBefore(..) => {}
                Reply::Buried(id) => {
                    complain!("{origin}: the server was short of memory and buried job {id}");
                }
                Reply::Refused("JOB_TOO_BIG") => {
                    self.all = false;
                    let (size, most) = (job.body.len(), self.writer.largest_body()?);
                    complain!(
                        "{origin}: {size} bytes are more than the {most} that the server takes ({reply})"
                    );
                }
                _ => drop(refused.get_or_insert(Failure::unexpected(origin, reply))),
            }
        }
        let printed = printed.and_then(|()| self.ids.sync());
        let (answered, unknown) = (self.answered, jobs.len() - replies.len());
        outcome.map_err(|failure| match failure {
            Failure::Unreachable(_) if answered == 0 => failure.with(format_args!(
                "no body was answered; the first {unknown} may be jobs"
            )),
            Failure::Unreachable(_) => failure.with(format_args!(
                "the first {answered} bodies were answered; the next {unknown} may be jobs, too"
            )),
            other => other,
        })?;
        printed.map_err(|failure| {
            failure.with(format_args!("bodies answered before that: {answered}"))
        })?;
        refused.map_or(Ok(()), Err)
    }
}
