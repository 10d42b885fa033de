//! `ls`: lists the jobs of a server or of some tubes, without touching any.

use crate::command::{Command, Invocation, JSON, Kind, Opt, at_most_one, described, options};
use crate::failure::{Outcome, Status};
use crate::server::census::Census;
use crate::server::client::{self, Client};
use crate::server::form::job_to_json;
use crate::server::list::{MOST, Scope, Walk};
use crate::server::reply::Job;
use crate::server::stats::{JobFacts, State};
use crate::server::take::jobs_of;
use crate::text::output::Output;
use crate::text::terminal;
use crate::text::words::{beginning, span};
use beanpole::protocol::{JobId, TubeName};
use std::ffi::OsString;
use std::num::NonZeroU64;
use std::time::Duration;

pub const LS: Command = Command {
    name: "ls",
    operands: "[TUBE…]",
    operand_kind: Kind::Tube,
    about: "list the jobs of a server or of some tubes",
    options: || described(OPTIONS),
    run: ls,
    ..Command::BLANK
};

options! {
    states: Vec<State> = Opt::value("", "state", "STATE", "only jobs in this state; may be repeated")
        .of(Kind::Words(&["ready", "delayed", "reserved", "buried"]))
        .many(),
    older: Option<Duration> = Opt::value("", "older", "TIME", "only jobs put at least so long ago"),
    tries: Option<NonZeroU64> =
        Opt::value("", "tries", "N", "only jobs that were reserved at least so often"),
    part: Option<OsString> = Opt::value("", "match", "BYTES", "only jobs with this in their body"),
    count: NonZeroU64 = Opt::value("n", "count", "N", "at most so many") => NonZeroU64::MAX,
    quiet: bool = Opt::flag("q", "quiet", "only the ids"),
    json: bool = JSON,
}

fn ls(invocation: &Invocation) -> Outcome {
    let options = invocation.read(OPTIONS)?;
    at_most_one(&[("quiet", options.quiet), ("json", options.json)])?;
    let tubes = invocation.tubes()?;
    let mut client = invocation.connect()?;
    for tube in &tubes {
        client.known_tube(tube)?;
    }
    let states = match options.states.as_slice() {
        [] => State::ALL.into(),
        some => some.into(),
    };
    let scope = Scope { tubes, states };
    let mut table = Table::new(&scope.tubes, &options);
    let status = match Walk::begin(&mut client, &scope)? {
        Some(mut walk) => {
            while table.left > 0 && !walk.is_over() {
                let jobs = walk.page(&mut client, MOST)?;
                table.show(&mut client, jobs)?;
            }
            Status::Done
        }
        None => {
            let census = Census::by_ids(&mut client, &scope)?;
            let status = census.verdict();
            for ids in census.ids.chunks(MOST) {
                if table.left == 0 {
                    break;
                }
                let mut jobs = jobs_of(&mut client, ids.iter().copied())?;
                jobs.retain(|job| scope.has(job));
                table.show(&mut client, jobs)?;
            }
            status
        }
    };
    table.output.sync()?;
    Ok(Status::done_if(status == Status::Done && table.has_rows))
}

impl Options {
    /// Whether this job meets all conditions except the one on its body.
    fn wants(&self, job: &JobFacts) -> bool {
        self.older.is_none_or(|age| job.age >= age.as_secs())
            && self.tries.is_none_or(|tries| job.reserves >= tries.get())
    }
}

/// The rows, in one of three forms: a table, ids, or JSON.
struct Table<'a> {
    options: &'a Options,
    /// The bytes that a body must contain.
    part: &'a [u8],
    /// Whether there is a column for the tube: not if exactly one tube is
    /// named.
    has_tubes: bool,
    /// How many characters of each body are shown.
    width: usize,
    output: Output,
    has_rows: bool,
    /// How many more rows are wanted.
    left: u64,
}

impl Table<'_> {
    /// How many characters the columns before the tube and the body take.
    const FACTS: usize = 50;

    fn new<'a>(tubes: &[TubeName], options: &'a Options) -> Table<'a> {
        let part = options.part.as_deref().unwrap_or_default();
        Table {
            options,
            part: part.as_encoded_bytes(),
            has_tubes: tubes.len() != 1,
            width: terminal::size()
                .map_or(120, |(width, _)| width)
                .saturating_sub(Table::FACTS),
            output: Output::new(),
            has_rows: false,
            left: options.count.get(),
        }
    }

    /// Shows the jobs among these that are wanted.
    fn show(&mut self, client: &mut Client, mut jobs: Vec<JobFacts>) -> Outcome<()> {
        jobs.retain(|job| self.options.wants(job));
        if self.part.is_empty() {
            jobs.truncate(usize::try_from(self.left).unwrap_or(usize::MAX));
            if self.options.quiet {
                return jobs.iter().try_for_each(|job| self.id(job.id));
            }
        }
        let line = |job: &JobFacts| format!("peek {}", job.id);
        client.each(jobs, line, |job, reply| {
            match client::job(line(&job), reply)? {
                Some(found) if self.left > 0 && self.has_part(&found.body) => self.row(job, &found),
                _ => Ok(()),
            }
        })
    }

    fn has_part(&self, body: &[u8]) -> bool {
        let length = self.part.len();
        length == 0 || body.windows(length).any(|bytes| bytes == self.part)
    }

    fn id(&mut self, id: JobId) -> Outcome<()> {
        self.left -= 1;
        self.has_rows = true;
        self.output.line(id)
    }

    fn row(&mut self, mut job: JobFacts, found: &Job) -> Outcome<()> {
        if self.options.quiet {
            return self.id(job.id);
        }
        let is_first = !std::mem::replace(&mut self.has_rows, true);
        self.left -= 1;
        let size = found.body.len();
        if self.options.json {
            job.all.add_missing("size", size);
            return self
                .output
                .line(job_to_json(job.id, Some(&job.all), &found.body));
        }
        let tube = |name: &str| match self.has_tubes {
            true => format!("{name:<12}  "),
            false => String::new(),
        };
        if is_first {
            self.output.line(format_args!(
                "{:>9} {:<8} {:>10} {:>5} {:>5} {:>7}  {}BODY",
                "ID",
                "STATE",
                "PRI",
                "AGE",
                "TRIES",
                "SIZE",
                tube("TUBE")
            ))?;
        }
        let tube = tube(job.tube.as_str());
        let width = self.width.saturating_sub(tube.len());
        self.output.line(format_args!(
            "{:>9} {:<8} {:>10} {:>5} {:>5} {size:>7}  {tube}{}",
            job.id.0,
            job.state.name(),
            job.priority.0,
            span(job.age),
            job.reserves,
            beginning(&found.body, width)
        ))
    }
}
