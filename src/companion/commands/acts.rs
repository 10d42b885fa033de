//! The commands that act on jobs, one by one: `delete`, `bury`, `release`,
//! `kick-job`, `kick` and `clear`. Which jobs these are, [`Jobs`] says.

use crate::command::{Invocation, Run, Tubes, pattern};
use crate::failure::{Failure, Outcome, Status};
use crate::jobs::{Chosen, Jobs};
use crate::server::by_id::Act;
use crate::server::client::Client;
use crate::server::finder::near;
use crate::server::reply::Reply;
use crate::server::stats::{Facts, State};
use crate::server::task::Task;
use crate::server::tubes::{Pattern, Patterns, stats_of};
use crate::values::parse;
use beanpole::protocol::{Priority, Seconds};
use clap::Args;

#[derive(Args)]
pub struct Delete {
    #[command(flatten)]
    jobs: Jobs,
}

impl Run for Delete {
    fn run(self, invocation: &Invocation) -> Outcome {
        self.jobs.act(invocation, "Delete", "deleting", Act::Delete)
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
}

impl Run for Bury {
    fn run(self, invocation: &Invocation) -> Outcome {
        let act = Act::Bury(self.priority);
        self.jobs.act(invocation, "Bury", "burying", act)
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
}

impl Run for Clear {
    fn run(self, invocation: &Invocation) -> Outcome {
        let tubes = self.tubes.patterns();
        if tubes.0.is_empty() {
            return Failure::usage("which tube? give one");
        }
        let chosen = self.chosen;
        chosen.act(invocation, &tubes, "Delete", "deleting", Act::Delete)
    }
}

// The `kick` of the protocol reaches delayed jobs only if no job is buried. With
// `--delayed`, delayed jobs are kicked by their ids.
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
    /// kick delayed jobs, whether some are buried or not
    #[arg(long)]
    delayed: bool,
}

/// How many jobs one request kicks at most: with many, every client would have
/// to wait.
const KICK_AT_ONCE: u64 = 10_000;
/// The search for delayed jobs ends after this many ids in a row without one.
const PATIENCE: u64 = 100_000;

impl Run for Kick {
    fn run(self, invocation: &Invocation) -> Outcome {
        let Kick { all, delayed, .. } = self;
        let count = match self.count.as_deref() {
            None => 1,
            Some(_) if all => return Failure::usage("give a count or --all, not both"),
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
            _ if !all => count,
            buried if buried > 0 && !delayed => buried,
            _ => facts.jobs_in(&[State::Delayed]),
        };
        let most = match all {
            true => tubes.iter().map(|(_, facts)| in_tube(facts)).sum(),
            false => count,
        };
        let mut task = Task::new("kicking", most);
        for (tube, facts) in &tubes {
            let left = in_tube(facts).min(task.left);
            if delayed {
                let most = usize::try_from(left).unwrap_or(usize::MAX);
                let jobs = near(&mut client, tube, State::Delayed, most, PATIENCE)?;
                let jobs: Vec<_> = jobs.iter().map(|job| (job.id, job.state)).collect();
                Act::Kick.on_all(&mut client, &jobs, &mut task)?;
                continue;
            }
            client.use_tube(tube)?;
            let end = task.left - left;
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
        let any = task.done > 0;
        task.finish(Ok(()))?;
        Ok(Status::done_if(any))
    }
}

/// Kicks up to `bound` jobs, which the server chooses. Returns how many.
fn kick_some(client: &mut Client, bound: u64) -> Outcome<u64> {
    match client.call(format_args!("kick {bound}"))? {
        Reply::Kicked(Some(count)) if count <= bound => Ok(count),
        other => Err(Failure::unexpected(format_args!("kick {bound}"), &other)),
    }
}
