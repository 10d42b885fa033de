//! The commands that act on jobs: `delete`, `bury`, `release`, `kick-job`,
//! `kick`, `clear`, `move`, `copy` and `edit`. Which jobs these are,
//! [`Jobs`] says.

use crate::command::{INPUT, Invocation, Run, Tubes, ids, pattern, word};
use crate::failure::{Failure, Outcome, Status};
use crate::jobs::{Chosen, Consent, Jobs, Waiting};
use crate::server::act::{Act, Task, complain_of_each, kick_some};
use crate::server::address::{Server, warn_of};
use crate::server::finder::bodies;
use crate::server::stats::{Facts, State};
use crate::server::transfer::Transfer;
use crate::server::tubes::{Pattern, Patterns, stats_of};
use crate::text::output::{complain, print};
use crate::values::parse;
use beanpole::protocol::{JobId, Priority, Seconds, TubeName};
use clap::Args;
use std::fs::{OpenOptions, remove_file};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

#[derive(Args)]
pub struct Delete {
    #[command(flatten)]
    jobs: Jobs,
    #[command(flatten)]
    waiting: Waiting,
}

impl Run for Delete {
    fn run(self, invocation: &Invocation) -> Outcome {
        let work = self.waiting.work(Act::Delete);
        self.jobs.act(invocation, "Delete", "deleting", work)
    }
}

#[derive(Args)]
pub struct KickJob {
    #[command(flatten)]
    jobs: Jobs,
}

impl Run for KickJob {
    fn run(self, invocation: &Invocation) -> Outcome {
        self.jobs.act(invocation, "Kick", "kicking", Act::Kick)
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
        let work = self.waiting.work(Act::Bury(self.priority));
        self.jobs.act(invocation, "Bury", "burying", work)
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
        self.jobs.act(invocation, "Release", "releasing", act)
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
        let tubes = self.tubes.patterns();
        if tubes.0.is_empty() {
            return Failure::usage("which tube? give one");
        }
        let jobs = Jobs {
            ids: Vec::new(),
            tubes: tubes.0,
            chosen: self.chosen,
            consent: self.consent,
        };
        jobs.act(invocation, "Delete", "deleting", Act::Delete)
    }
}

// The `kick` of the protocol reaches delayed jobs only if no job is buried.
#[derive(Args)]
pub struct Kick {
    #[arg(value_name = "N")]
    count: Option<String>,
    /// a tube or a pattern; may be repeated (default: default)
    #[arg(short, long = "tube", value_name = "TUBE", value_parser = pattern)]
    tubes: Vec<Pattern>,
    /// kick all that are buried, or else all that are delayed
    #[arg(long)]
    all: bool,
}

/// How many jobs one request kicks at most: with many, every client would have
/// to wait.
const KICK_AT_ONCE: u64 = 10_000;
impl Run for Kick {
    fn run(self, invocation: &Invocation) -> Outcome {
        let count = match self.count.as_deref() {
            None => 1,
            Some(_) if self.all => return Failure::usage("give a count or --all, not both"),
            Some(count) => match count.parse() {
                Ok(count) if count > 0 => count,
                _ => {
                    return Failure::usage(format!(
                        "'{count}' is not a number of jobs; a tube is named by -t {count}"
                    ));
                }
            },
        };
        let mut client = invocation.connect()?;
        let tubes = Patterns(self.tubes).or_default().existing(&mut client)?;
        let tubes = stats_of(&mut client, &tubes)?;
        let in_tube = |facts: &Facts| match facts.jobs_in(&[State::Buried]) {
            _ if !self.all => count,
            0 => facts.jobs_in(&[State::Delayed]),
            buried => buried,
        };
        let most = match self.all {
            true => tubes.iter().map(|(_, facts)| in_tube(facts)).sum(),
            false => count,
        };
        let mut task = Task::new("kicking", most);
        for (tube, facts) in &tubes {
            client.use_tube(tube)?;
            let end = task.left - in_tube(facts).min(task.left);
            while task.left > end && task.goes_on()? {
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

// The jobs, and where they go to.
#[derive(Args)]
struct Ends {
    /// the tubes, or - for ids
    #[arg(value_name = "FROM")]
    operands: Vec<String>,
    /// a tube to take the jobs from; may be repeated (default: FROM)
    #[arg(short, long = "tube", value_name = "TUBE", value_parser = pattern)]
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
        let draft = Draft::new(id, &body)?;
        let edited = draft.edited(&body)?;
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
            match transfer
                .carry(&mut client, jobs, &mut Task::quiet(1))?
                .first()
            {
                Some(id) => print(format!("{id}\n")),
                None => Failure::refused("nothing has changed"),
            }
        };
        replace().map_err(|failure| draft.kept(failure))
    }
}

/// The file that is edited. It is removed at the end, unless it is kept.
struct Draft {
    path: PathBuf,
    is_kept: std::cell::Cell<bool>,
}

impl Draft {
    /// A file with this body, for nobody else to read.
    fn new(id: JobId, body: &[u8]) -> Outcome<Draft> {
        let name = format!("beanpole-job-{id}-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        let mut options = OpenOptions::new();
        options.write(true).create_new(true).mode(0o600);
        let written = options
            .open(&path)
            .and_then(|mut file| file.write_all(body));
        written.map_err(Failure::of(format_args!("cannot write {}", path.display())))?;
        Ok(Draft {
            path,
            is_kept: false.into(),
        })
    }

    /// What the editor makes of this body. A line feed that it adds at the end
    /// does not count.
    fn edited(&self, before: &[u8]) -> Outcome<Vec<u8>> {
        run_editor(&self.path)?;
        let shown = self.path.display();
        let after = std::fs::read(&self.path);
        let mut after = after.map_err(Failure::of(format_args!("cannot read {shown}")))?;
        if !before.ends_with(b"\n") && after.ends_with(b"\n") {
            after.pop();
        }
        Ok(after)
    }

    /// The failure that says where the text still is.
    fn kept(&self, failure: Failure) -> Failure {
        self.is_kept.set(true);
        failure.with(format_args!(
            "the edited body is in {}",
            self.path.display()
        ))
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        if !self.is_kept.get() {
            // It may be gone.
            let _ = remove_file(&self.path);
        }
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
