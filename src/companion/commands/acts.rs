//! The commands that act on jobs and tubes: `delete`, `bury`, `release`,
//! `kick-job`, `kick`, `clear`, `move`, `copy`, `edit`, `pause` and `resume`.
//! Which jobs these are, [`Jobs`] says.

use crate::command::{INPUT, Invocation, Run, Tubes, ids, word};
use crate::failure::{Failure, Outcome, Status};
use crate::jobs::{Chosen, Consent, Jobs, Waiting};
use crate::server::act::{Act, Task, complain_of_each, kick_some};
use crate::server::address::{Server, warn_of};
use crate::server::finder::bodies;
use crate::server::stats::{Facts, State};
use crate::server::tubes::{Pattern, Patterns, stats_of};
use crate::server::writer::Transfer;
use crate::text::output::{complain, print};
use crate::values::parse;
use beanpole::protocol::{Priority, Seconds, TubeName};
use clap::Args;
use std::io::Write;
use std::num::NonZeroU64;
use std::path::Path;

#[derive(Args)]
pub struct Delete {
    #[command(flatten)]
    jobs: Jobs,
    #[command(flatten)]
    waiting: Waiting,
}

impl Run for Delete {
    fn run(self, invocation: &Invocation) -> Outcome {
        self.jobs.act(invocation, Act::Delete, self.waiting)
    }
}

#[derive(Args)]
pub struct KickJob {
    #[command(flatten)]
    jobs: Jobs,
}

impl Run for KickJob {
    fn run(self, invocation: &Invocation) -> Outcome {
        self.jobs.act(invocation, Act::Kick, Waiting::default())
    }
}

#[derive(Args)]
pub struct Bury {
    #[command(flatten)]
    jobs: Jobs,
    /// the priority, smaller is sooner (default: the job's)
    #[arg(short, long, value_name = "PRI", value_parser = parse::<Priority>)]
    priority: Option<Priority>,
    #[command(flatten)]
    waiting: Waiting,
}

impl Run for Bury {
    fn run(self, invocation: &Invocation) -> Outcome {
        let act = Act::Bury(self.priority);
        self.jobs.act(invocation, act, self.waiting)
    }
}

#[derive(Args)]
pub struct Release {
    #[command(flatten)]
    jobs: Jobs,
    /// the priority, smaller is sooner (default: the job's)
    #[arg(short, long, value_name = "PRI", value_parser = parse::<Priority>)]
    priority: Option<Priority>,
    /// how long it stays delayed (default: 0)
    #[arg(short, long, value_name = "TIME", value_parser = parse::<Seconds>)]
    delay: Option<Seconds>,
}

impl Run for Release {
    fn run(self, invocation: &Invocation) -> Outcome {
        let act = Act::Release(self.priority, self.delay.unwrap_or(Seconds(0)));
        self.jobs.act(invocation, act, Waiting::default())
    }
}

#[derive(Args)]
pub struct Clear {
    #[command(flatten)]
    tubes: Tubes,
    #[command(flatten)]
    chosen: Chosen,
    #[command(flatten)]
    consent: Consent,
}

impl Run for Clear {
    fn run(self, invocation: &Invocation) -> Outcome {
        let Patterns(tubes) = self.tubes.patterns();
        if tubes.is_empty() {
            return Failure::usage("which tube? give one");
        }
        let jobs = Jobs {
            ids: Vec::new(),
            tubes,
            chosen: self.chosen,
            consent: self.consent,
        };
        jobs.act(invocation, Act::Delete, Waiting::default())
    }
}

// The `kick` of the protocol reaches delayed jobs only if no job is buried.
#[derive(Args)]
pub struct Kick {
    #[arg(value_name = "N", value_parser = count, conflicts_with = "all")]
    count: Option<NonZeroU64>,
    /// a tube or a pattern; may be repeated (default: default)
    #[arg(short, long = "tube", value_name = "TUBE", value_parser = parse::<Pattern>)]
    tubes: Vec<Pattern>,
    /// kick all that are buried, or else all that are delayed
    #[arg(long)]
    all: bool,
}

fn count(text: &str) -> Result<NonZeroU64, String> {
    let hint = |_| format!("'{text}' is not a number of jobs; a tube is named by -t {text}");
    text.parse().map_err(hint)
}

/// How many jobs one request kicks at most: with many, every client would have
/// to wait.
const KICK_AT_ONCE: u64 = 10_000;

impl Run for Kick {
    fn run(self, invocation: &Invocation) -> Outcome {
        let usual = if self.all { u64::MAX } else { 1 };
        let wanted = self.count.map_or(usual, NonZeroU64::get);
        let mut client = invocation.connect()?;
        let tubes = Patterns(self.tubes).or_default().existing(&mut client)?;
        let tubes = stats_of(&mut client, &tubes)?;
        let in_tube = |facts: &Facts| match facts.jobs_in(&[State::Buried]) {
            0 => facts.jobs_in(&[State::Delayed]),
            buried => buried,
        };
        let there: u64 = tubes.iter().map(|(_, facts)| in_tube(facts)).sum();
        let mut task = Task::new("kicking", there.min(wanted))?;
        for (tube, facts) in &tubes {
            client.use_tube(tube)?;
            let end = task.left - in_tube(facts).min(task.left);
            while task.left > end && task.goes_on() {
                let bound = (task.left - end).min(KICK_AT_ONCE);
                let count = kick_some(&mut client, bound)?;
                task.add(count);
                // The next jobs would be of the other kind.
                if count < bound {
                    break;
                }
            }
        }
        let (done, interrupted) = task.end();
        print(format!("{done}\n"))?;
        interrupted.map(|()| Status::done_if(done > 0))
    }
}

#[derive(Args)]
#[command(override_usage = "beanpole pause [OPTIONS] [TUBE…] TIME")]
pub struct Pause {
    // The tubes, and at the end the time.
    #[arg(value_name = "TUBE")]
    operands: Vec<String>,
    /// a tube; may be repeated (default: the operands)
    #[arg(short, long = "tube", value_name = "TUBE", value_parser = parse::<Pattern>)]
    tubes: Vec<Pattern>,
    /// all tubes that are there now
    #[arg(long)]
    all: bool,
}

impl Run for Pause {
    fn run(mut self, invocation: &Invocation) -> Outcome {
        let Some((time, names)) = self.operands.split_last() else {
            return Failure::usage("which tube, and for how long?");
        };
        let time = word(time)?;
        let names = names.iter().map(|name| word(name));
        self.tubes.extend(names.collect::<Outcome<Vec<_>>>()?);
        pause(invocation, Patterns(self.tubes), self.all, time)
    }
}

// Another word for a pause of 0.
#[derive(Args)]
pub struct Resume {
    #[command(flatten)]
    tubes: Tubes,
    /// all tubes that are there now
    #[arg(long)]
    all: bool,
}

impl Run for Resume {
    fn run(self, invocation: &Invocation) -> Outcome {
        pause(invocation, self.tubes.patterns(), self.all, Seconds(0))
    }
}

fn pause(invocation: &Invocation, tubes: Patterns, all: bool, Seconds(time): Seconds) -> Outcome {
    if all != tubes.0.is_empty() {
        return Failure::usage("which tubes? name them, or give --all");
    }
    let mut client = invocation.connect()?;
    let tubes = match all {
        true => client.tubes()?,
        false => tubes.named(&mut client)?,
    };
    let line = |tube: &TubeName| format!("pause-tube {tube} {time}");
    let mut missing = Ok(Status::Done);
    client.each(tubes, line, |tube, line, reply| {
        // With --all, a tube may be gone since the list was made.
        if !reply.is_done(line)? && !all {
            missing = Err(Failure::no_tube(&tube));
        }
        Ok(())
    })?;
    missing
}

// The jobs, and where they go to.
#[derive(Args)]
struct Ends {
    /// the tubes, or - for ids
    #[arg(value_name = "FROM")]
    operands: Vec<String>,
    /// a tube to take the jobs from; may be repeated (default: FROM)
    #[arg(short, long = "tube", value_name = "TUBE", value_parser = parse::<Pattern>)]
    tubes: Vec<Pattern>,
    /// the server of the second tube, if another
    #[arg(long, value_name = "ADDR", value_parser = parse::<Server>)]
    to: Option<Server>,
    #[command(flatten)]
    chosen: Chosen,
}

#[derive(Args)]
#[command(override_usage = "beanpole move [OPTIONS] FROM|- TO")]
pub struct Move {
    #[command(flatten)]
    ends: Ends,
}

#[derive(Args)]
#[command(override_usage = "beanpole copy [OPTIONS] FROM|- TO")]
pub struct Copy {
    #[command(flatten)]
    ends: Ends,
}

impl Run for Move {
    fn run(self, invocation: &Invocation) -> Outcome {
        self.ends.transfer(invocation, "moving", true)
    }
}

impl Run for Copy {
    fn run(self, invocation: &Invocation) -> Outcome {
        self.ends.transfer(invocation, "copying", false)
    }
}

impl Ends {
    fn transfer(mut self, invocation: &Invocation, doing: &'static str, moves: bool) -> Outcome {
        let (from, to) = match self.operands.as_slice() {
            [from, to] if self.tubes.is_empty() => (Some(from), to),
            [to] if !self.tubes.is_empty() => (None, to),
            _ => return Failure::usage("from which tube to which? give two"),
        };
        let to: TubeName = word(to)?;
        let ids = from.filter(|from| *from == INPUT);
        if let (Some(from), None) = (from, ids) {
            self.tubes.push(word(from)?);
        }
        self.to.iter().for_each(warn_of);
        let target = self.to.as_ref().unwrap_or(&invocation.servers[0]);
        let mut target = invocation.connect_to(&target.address)?;
        let (ids, tubes) = (ids.map(std::slice::from_ref), Patterns(self.tubes));
        let there = Some((&to, &mut target));
        let chosen = &self.chosen;
        let mut found = chosen.find(invocation, ids.unwrap_or_default(), &tubes, there)?;
        found.ids.sort();
        found.ids.dedup();
        found.act(doing, &mut Transfer::new(target, to, moves))
    }
}

// A body cannot be changed, so the job is put again and the old one is deleted.
// Until then the old one stays where it is. If somebody takes it meanwhile, the
// new one is deleted again, and nothing has changed.
#[derive(Args)]
pub struct Edit {
    #[arg(value_name = "ID")]
    ids: Vec<String>,
    /// leave a buried job buried (default: it becomes ready)
    #[arg(long)]
    buried: bool,
}

impl Run for Edit {
    fn run(self, invocation: &Invocation) -> Outcome {
        let [id] = ids(&self.ids)?[..] else {
            return Failure::usage("which job? give one id");
        };
        let mut client = invocation.connect()?;
        let jobs = client.job(id)?.into_iter();
        let jobs = jobs.filter(|job| job.state != State::Reserved).collect();
        let Some((mut job, body)) = bodies(&mut client, jobs)?.pop() else {
            complain_of_each(&mut client, &[id])?;
            return Ok(Status::No);
        };
        // A file that nobody else may read. It goes at the end, unless it is kept.
        let name = format!("beanpole-job-{id}-");
        let draft = tempfile::Builder::new().prefix(&name).tempfile();
        let draft = draft.and_then(|mut file| file.write_all(&body).map(|()| file));
        let draft = draft.map_err(Failure::of("cannot write a draft"))?;
        run_editor(draft.path())?;
        let edited = std::fs::read(draft.path());
        let mut edited = edited.map_err(Failure::of("cannot read the draft"))?;
        // A line feed that the editor adds at the end does not count.
        if !body.ends_with(b"\n") && edited.ends_with(b"\n") {
            edited.pop();
        }
        if edited == body {
            complain!("job {id} is as it was");
            return Ok(Status::No);
        }
        if job.state == State::Buried && !self.buried {
            job.state = State::Ready;
        }
        let replace = || {
            // The editor may have taken longer than a server keeps idle
            // connections.
            let (mut client, target) = (invocation.connect()?, invocation.connect()?);
            let mut transfer = Transfer::new(target, job.tube.clone(), true);
            let jobs = vec![(job, edited)];
            let ids = transfer.carry(&mut client, jobs, &mut Task::quiet(1))?;
            match ids.first() {
                Some(id) => print(format!("{id}\n")),
                None => Failure::refused("nothing has changed"),
            }
        };
        replace().map_err(|failure| match draft.keep() {
            Ok((_, path)) => failure.with(format_args!("the edited body is in {}", path.display())),
            Err(error) => failure.with(error),
        })
    }
}

/// Runs the editor of the user on this file. Its command may have arguments.
fn run_editor(path: &Path) -> Outcome<()> {
    let set = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    let editor = set("VISUAL")
        .or_else(|| set("EDITOR"))
        .unwrap_or("vi".into());
    let mut command = std::process::Command::new("sh");
    let run = command
        .args(["-c", &format!("{editor} \"$0\"")])
        .arg(path)
        .status();
    let status = run.map_err(Failure::of(format_args!("cannot start {editor}")))?;
    match status.success() {
        true => Ok(()),
        false => Failure::refused(format!("{editor} failed: nothing has changed")),
    }
}
