//! The commands that act on jobs and tubes: `delete`, `bury`, `release`, `kick-job`,
//! `kick`, `move`, `edit` and `pause`.
//! Which jobs these are, [`Jobs`] says.

use crate::command::{INPUT, Invocation, Run, Sure, Tubes, word};
use crate::failure::{Failure, Outcome, Status};
use crate::remote::act::{complain_of_each, kick_some};
use crate::remote::finder::bodies;
use crate::remote::{Act, Job, Pattern, Patterns, Server, State, Transfer};
use crate::selection::{Chosen, Jobs};
use crate::signals::{Calls, SIGINT, SIGQUIT};
use crate::text::{Progress, complain, listed, print};
use crate::values::{Count, Parse, parse};
use beanpole::protocol::{JobId, Priority, Seconds, TubeName};
use clap::Args;
use std::io::Write;
use std::path::Path;

#[derive(Args)]
pub struct Delete {
    #[command(flatten)]
    jobs: Jobs,
}

impl Run for Delete {
    fn run(self, invocation: &Invocation) -> Outcome {
        self.jobs.act(invocation, Act::Delete)
    }
}

#[derive(Args)]
pub struct KickJob {
    #[command(flatten)]
    jobs: Jobs,
}

impl Run for KickJob {
    fn run(self, invocation: &Invocation) -> Outcome {
        self.jobs.act(invocation, Act::Kick)
    }
}

#[derive(Args)]
pub struct Bury {
    #[command(flatten)]
    jobs: Jobs,
    /// the priority, smaller is sooner (default: the job's)
    #[arg(short, long, value_name = "PRI", value_parser = parse::<Priority>)]
    priority: Option<Priority>,
}

impl Run for Bury {
    fn run(self, invocation: &Invocation) -> Outcome {
        self.jobs.act(invocation, Act::Bury(self.priority))
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
        self.jobs.act(invocation, act)
    }
}

// The `kick` of the protocol reaches delayed jobs only if no job is buried.
#[derive(Args)]
pub struct Kick {
    #[arg(value_name = "N", value_parser = count, conflicts_with = "all")]
    count: Option<Count>,
    /// a tube or a pattern; may be repeated (default: default)
    #[arg(short, long = "tube", value_name = "TUBE", value_parser = parse::<Pattern>)]
    tubes: Vec<Pattern>,
    /// kick all that are buried, or else all that are delayed
    #[arg(long)]
    all: bool,
    #[command(flatten)]
    sure: Sure,
}

fn count(text: &str) -> Result<Count, String> {
    Count::parse(text).map_err(|reason| match text.parse::<i64>() {
        Ok(_) => reason,
        Err(_) => format!("'{text}' is not a number of jobs; a tube is named by -t {text}"),
    })
}

impl Run for Kick {
    fn run(self, invocation: &Invocation) -> Outcome {
        let mut client = invocation.connect()?;
        let tubes = Patterns(self.tubes).or_default().existing(&mut client)?;
        let what = format!("Kick jobs of {}", listed(&tubes));
        if !self.sure.confirm(invocation, what)? {
            return Ok(Status::No);
        }
        let asked_for = self.count.map_or(1, |Count(count)| count);
        let most = if self.all { u32::MAX } else { asked_for };
        let mut left = most;
        let outcome = tubes.iter().try_for_each(|tube| {
            left -= kick_some(&mut client, tube, left)?;
            Ok(())
        });
        let done = most - left;
        print(format!("{done}\n"))?;
        outcome?;
        Ok(Status::done_if(done > 0))
    }
}

#[derive(Args)]
#[command(allow_missing_positional = true)]
pub struct Pause {
    #[command(flatten)]
    tubes: Tubes,
    time: String,
    #[command(flatten)]
    sure: Sure,
}

impl Run for Pause {
    fn run(self, invocation: &Invocation) -> Outcome {
        let patterns = self.tubes.patterns();
        if patterns.0.is_empty() {
            return Failure::usage(match word::<Seconds>(&self.time) {
                Ok(_) => "which tube? give one".into(),
                Err(_) => format!("for how long? as in 'pause {} 1h'", self.time),
            });
        }
        let Seconds(time) = word(&self.time)?;
        let mut client = invocation.connect()?;
        let tubes = patterns.existing(&mut client)?;
        let what = format!("Pause {}", listed(&tubes));
        if !self.sure.confirm(invocation, what)? {
            return Ok(Status::No);
        }
        let line = |tube: &TubeName| format!("pause-tube {tube} {time}");
        // A tube may have been removed since it was found.
        client.each(tubes, line, |_, line, reply| reply.is_done(line).map(drop))?;
        Ok(Status::Done)
    }
}

#[derive(Args)]
pub struct Move {
    #[arg(value_name = "FROM|-")]
    from: Option<String>,
    #[arg(value_name = "TO")]
    to: Option<String>,
    /// a tube to take the jobs from; may be repeated (default: FROM)
    #[arg(short, long = "tube", value_name = "TUBE", value_parser = parse::<Pattern>)]
    tubes: Vec<Pattern>,
    /// another server; without TO, each tube keeps its name there
    #[arg(long = "to", value_name = "ADDR", value_parser = parse::<Server>)]
    server: Option<Server>,
    /// copy them: they stay where they are, too
    #[arg(long)]
    keep: bool,
    /// do not ask about several tubes
    #[arg(short, long)]
    yes: bool,
    #[command(flatten)]
    chosen: Chosen,
}

impl Run for Move {
    fn run(mut self, invocation: &Invocation) -> Outcome {
        let is_choice = !self.tubes.is_empty() || !self.chosen.is_bare();
        // A single operand names the place if it is known from where.
        if self.to.is_none() && (is_choice || self.server.is_none()) {
            self.to = self.from.take();
        }
        let to: Option<TubeName> = self.to.as_deref().map(word).transpose()?;
        if self.from.is_none() && !is_choice {
            let to = to.map_or("TO".into(), |to| format!("'{to}'"));
            return Failure::usage(format!("which jobs to {to}? give FROM and TO, or - and TO"));
        }
        if to.is_none() && self.server.is_none() {
            return Failure::usage("to which tube? give FROM and TO");
        }
        let ids = self.from.take_if(|from| from == INPUT);
        if let Some(from) = &self.from {
            self.tubes.push(word(from)?);
        }
        self.server.iter().for_each(Server::warn);
        let server = self.server.as_ref().unwrap_or(&invocation.servers[0]);
        let mut target = invocation.connect_to(&server.address)?;
        let tubes = Patterns(self.tubes);
        let there = (to.as_ref(), &mut target);
        let mut found = self
            .chosen
            .find(invocation, ids.as_slice(), &tubes, Some(there))?;
        let (verb, doing) = match self.keep {
            true => ("Copy", "copying"),
            false => ("Move", "moving"),
        };
        let place = match &to {
            Some(tube) => format!("to tube '{tube}' at {}", server.title()),
            None => format!("to tubes of these names at {}", server.title()),
        };
        if found.are_tubes_many && !self.yes && !found.confirm(verb, &place)? {
            return Ok(Status::No);
        }
        found.ids.sort();
        found.ids.dedup();
        found.act(doing, &mut Transfer::new(target, to, !self.keep))
    }
}

// A body cannot be changed, so the job is put again and the old one is deleted.
// Until then the old one stays where it is. If somebody takes it meanwhile, the
// new one is deleted again, and nothing has changed.
#[derive(Args)]
pub struct Edit {
    #[arg(value_name = "ID", value_parser = parse::<JobId>)]
    id: JobId,
}

impl Run for Edit {
    fn run(self, invocation: &Invocation) -> Outcome {
        let id = self.id;
        let mut client = invocation.connect()?;
        let jobs = client.jobs([id])?.into_iter();
        let jobs = jobs.filter(|job| job.state != State::Reserved).collect();
        let Some((mut job, Job { body, .. })) = bodies(&mut client, jobs)?.pop() else {
            complain_of_each(&mut client, &[id])?;
            return Ok(Status::No);
        };
        // A file that nobody else may read. It goes at the end, unless it is kept.
        let name = format!("beanpole-job-{id}-");
        let created = tempfile::Builder::new().prefix(&name).tempfile();
        let written = created.and_then(|mut file| file.write_all(&body).map(|()| file));
        let draft = written.map_err(Failure::of("cannot write a draft"))?;
        run_editor(draft.path())?;
        let mut edited =
            std::fs::read(draft.path()).map_err(Failure::of("cannot read the draft"))?;
        // A line feed that the editor adds at the end does not count.
        if !body.ends_with(b"\n") && edited.ends_with(b"\n") {
            edited.pop();
        }
        if edited == body {
            complain!("job {id} is as it was");
            return Ok(Status::No);
        }
        let is_ready = job.state == State::Ready;
        if job.state == State::Buried {
            job.state = State::Ready;
        }
        let replace = || {
            // The editor may have taken longer than a server keeps idle
            // connections.
            let (mut client, target) = (invocation.connect()?, invocation.connect()?);
            // So no worker gets it. If one has it already, that comes out below.
            if is_ready {
                client.call(format_args!("reserve-job {id}"))?;
            }
            let mut transfer = Transfer::new(target, job.tube.clone(), true);
            let jobs = vec![(job, edited)];
            let ids = transfer.carry(&mut client, jobs, &mut Progress::default())?;
            let id = ids.first().copied();
            id.ok_or_else(|| Failure::Refused("nothing has changed".into()))
        };
        let replaced = replace().map_err(|failure| match draft.keep() {
            Ok((_, path)) => failure.with(format_args!("the edited body is in {}", path.display())),
            Err(error) => failure.with(error),
        });
        print(format!("{}\n", replaced?))
    }
}

/// Runs the editor of the user on this file. Its command may have arguments.
fn run_editor(path: &Path) -> Outcome<()> {
    let set = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    let editor = set("VISUAL").or_else(|| set("EDITOR"));
    let editor = editor.unwrap_or("vi".into());
    // What is typed to interrupt something in the editor also comes to us and the shell.
    let _ignored = Calls::by_signals(&[SIGINT, SIGQUIT])?;
    let mut command = std::process::Command::new("sh");
    let script = format!("trap : INT QUIT; {editor} \"$0\"");
    let run = command.args(["-c", &script]).arg(path).status();
    let status = run.map_err(Failure::of(format_args!("cannot start {editor}")))?;
    if status.success() {
        Ok(())
    } else {
        Failure::refused(format!("{editor} failed: nothing has changed"))
    }
}
