//! Which jobs a command is about: those with some ids, or those of tubes that
//! meet conditions.

use crate::command::{Invocation, ids, pattern};
use crate::failure::{Failure, Outcome, Status};
use crate::server::by_id::{Act, complain_of_each};
use crate::server::client::Client;
use crate::server::finder::{near, pages};
use crate::server::list::{MOST, Scope};
use crate::server::stats::{JobFacts, State, free_states};
use crate::server::take::{each_body, jobs_of};
use crate::server::task::Task;
use crate::server::tubes::{Pattern, Patterns};
use crate::text::output::{confirm, print};
use crate::values::parse;
use beanpole::protocol::{JobId, Priority};
use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use std::collections::HashSet;
use std::ffi::OsString;
use std::num::NonZeroU64;
use std::os::unix::ffi::OsStrExt;
use std::time::Duration;

#[derive(Args, Clone)]
pub struct Conditions {
    /// only jobs in this state; may be repeated (default: all)
    #[arg(long = "state", value_name = "STATE", value_parser = states())]
    states: Vec<State>,
    /// only jobs at least TIME old (default: all)
    #[arg(long, value_name = "TIME", value_parser = parse::<Duration>)]
    older: Option<Duration>,
    /// only jobs less than TIME old (default: all)
    #[arg(long, value_name = "TIME", value_parser = parse::<Duration>)]
    younger: Option<Duration>,
    /// only jobs reserved at least so often (default: all)
    #[arg(long, value_name = "N")]
    tries: Option<NonZeroU64>,
    /// only jobs of this priority (default: all)
    #[arg(long, value_name = "PRI", value_parser = parse::<Priority>)]
    pri: Option<Priority>,
    /// only jobs with this in their body; may be repeated (default: all)
    #[arg(long = "match", value_name = "BYTES")]
    parts: Vec<OsString>,
    /// at most N jobs (default: all)
    #[arg(short = 'n', long, value_name = "N")]
    count: Option<NonZeroU64>,
}

fn states() -> impl TypedValueParser<Value = State> {
    let names = PossibleValuesParser::new(State::ALL.map(State::name));
    names.map(|name| State::parse(&name).expect("it is one of these"))
}

/// The jobs that an act is about.
#[derive(Args)]
pub struct Jobs {
    #[arg(value_name = "ID|-")]
    ids: Vec<String>,
    /// the jobs of this tube, after a question; may be repeated (default: ids)
    #[arg(short, long = "tube", value_name = "TUBE", value_parser = pattern)]
    tubes: Vec<Pattern>,
    #[command(flatten)]
    chosen: Chosen,
}

/// The jobs of a tube on which a command acts.
#[derive(Args)]
pub struct Chosen {
    #[command(flatten)]
    pub conditions: Conditions,
    /// only say how many jobs it would be
    #[arg(long)]
    pub dry_run: bool,
    /// do not ask
    #[arg(short, long)]
    yes: bool,
}

impl Jobs {
    /// Does this to the jobs; `verb` and `doing` name it.
    pub fn act(
        self,
        invocation: &Invocation,
        verb: &str,
        doing: &'static str,
        act: Act,
    ) -> Outcome {
        let has_conditions = !self.chosen.conditions.is_plain() || self.chosen.conditions.narrows();
        if !self.tubes.is_empty() || self.ids.is_empty() && has_conditions {
            if !self.ids.is_empty() {
                return Failure::usage("give ids or --tube, not both");
            }
            let tubes = Patterns(self.tubes);
            return self.chosen.act(invocation, &tubes, verb, doing, act);
        }
        if has_conditions {
            return Failure::usage("ids and conditions exclude each other");
        }
        let mut ids = ids(&self.ids)?;
        let mut client = invocation.connect()?;
        if self.chosen.dry_run {
            ids.sort();
            ids.dedup();
            let free: HashSet<JobId> = jobs_of(&mut client, ids.iter().copied())?
                .iter()
                .filter(|job| job.state != State::Reserved)
                .map(|job| job.id)
                .collect();
            print(format!("{}\n", free.len()))?;
            ids.retain(|id| !free.contains(id));
            return complain_of_each(&mut client, ids).map(|any| Status::done_if(!any));
        }
        let mut all = true;
        for some in ids.chunks(MOST) {
            let missing = act.on(&mut client, some)?;
            all &= !complain_of_each(&mut client, missing)?;
        }
        Ok(Status::done_if(all))
    }
}

impl Chosen {
    /// Does this to the jobs of these tubes, after a question that says how many
    /// there are. No more than that are touched, whatever producers add.
    pub fn act(
        self,
        invocation: &Invocation,
        tubes: &Patterns,
        verb: &str,
        doing: &'static str,
        act: Act,
    ) -> Outcome {
        let mut client = invocation.connect()?;
        let selection = self.conditions.of(&mut client, tubes)?.free()?;
        let (jobs, status) = selection.jobs(&mut client)?;
        if self.dry_run {
            return print(format!("{}\n", jobs.len()));
        }
        if !jobs.is_empty() && !self.yes {
            let place = match selection.scope.tubes.as_slice() {
                [] => "all tubes".into(),
                [tube] => format!("tube '{tube}'"),
                several => format!("{} tubes", several.len()),
            };
            let (what, address) = (in_words(&jobs), invocation.address());
            if !confirm(format!("{verb} {what} of {place} at {address}?"))? {
                return Ok(Status::No);
            }
        }
        let mut task = Task::new(doing, jobs.len() as u64);
        let outcome = act.on_all(&mut client, &jobs, &mut task);
        task.finish(outcome)?;
        Ok(status)
    }
}

impl Conditions {
    /// The jobs of these tubes that meet the conditions.
    pub fn of(self, client: &mut Client, tubes: &Patterns) -> Outcome<Selection> {
        let states = match self.states.as_slice() {
            [] => State::ALL.into(),
            some => some.into(),
        };
        let tubes = tubes.existing(client)?;
        Ok(Selection {
            scope: Scope { tubes, states },
            wanted: self,
        })
    }

    /// Whether tubes and states alone say which jobs these are.
    pub fn is_plain(&self) -> bool {
        self.older.is_none()
            && self.younger.is_none()
            && self.tries.is_none()
            && self.pri.is_none()
            && self.parts.is_empty()
    }

    /// Whether states or a number are given.
    pub fn narrows(&self) -> bool {
        !self.states.is_empty() || self.count.is_some()
    }

    fn wants(&self, job: &JobFacts) -> bool {
        self.older.is_none_or(|age| job.age >= age.as_secs())
            && self.younger.is_none_or(|age| job.age < age.as_secs())
            && self.tries.is_none_or(|tries| job.reserves >= tries.get())
            && self.pri.is_none_or(|priority| job.priority == priority)
    }
}

pub struct Selection {
    pub scope: Scope,
    wanted: Conditions,
}

impl Selection {
    /// The same, but without jobs that are reserved, since nothing can be done
    /// to them; it is a failure if they were asked for.
    pub fn free(mut self) -> Outcome<Selection> {
        let wanted = free_states(&self.wanted.states);
        self.scope.states =
            wanted.map_err(|reason| Failure::Usage(format!("--state: {reason}")))?;
        Ok(self)
    }

    /// The highest number of jobs.
    pub fn most(&self) -> usize {
        let count = self.wanted.count.map_or(u64::MAX, NonZeroU64::get);
        usize::try_from(count).unwrap_or(usize::MAX)
    }

    /// Whether the body of each job has to be looked at.
    pub fn needs_bodies(&self) -> bool {
        !self.wanted.parts.is_empty()
    }

    /// Whether this body belongs to a job of the selection.
    pub fn has_parts(&self, body: &[u8]) -> bool {
        let mut parts = self.wanted.parts.iter();
        parts.all(|part| contains(body, part.as_bytes()))
    }

    /// Gives the jobs that meet all conditions but those on their bodies, in
    /// the order of their ids, some at a time, until `each` has enough. The
    /// status tells whether all could be found.
    pub fn pages(
        &self,
        client: &mut Client,
        mut each: impl FnMut(&mut Client, Vec<JobFacts>) -> Outcome<bool>,
    ) -> Outcome {
        pages(client, &self.scope, |client, mut jobs| {
            jobs.retain(|job| self.wanted.wants(job));
            each(client, jobs)
        })
    }

    /// The jobs that meet all conditions, and whether all could be found. Some
    /// of many are the first ones of each tube and state.
    pub fn jobs(&self, client: &mut Client) -> Outcome<(Vec<(JobId, State)>, Status)> {
        let most = self.most();
        let mut found = Vec::new();
        if self.wanted.is_plain() && self.wanted.count.is_some() {
            let tubes = match self.scope.tubes.as_slice() {
                [] => client.tubes()?,
                some => some.into(),
            };
            for tube in tubes {
                for state in &self.scope.states {
                    let left = most - found.len();
                    if left > 0 {
                        let jobs = near(client, &tube, *state, left, PATIENCE)?;
                        found.extend(jobs.iter().map(|job| (job.id, job.state)));
                    }
                }
            }
            if found.len() == most {
                return Ok((found, Status::Done));
            }
            found.clear();
        }
        let status = self.pages(client, |client, jobs| {
            if self.needs_bodies() {
                each_body(client, jobs, |job, body| {
                    found.extend(self.has_parts(&body).then_some((job.id, job.state)));
                    Ok(())
                })?;
            } else {
                found.extend(jobs.iter().map(|job| (job.id, job.state)));
            }
            Ok(found.len() < most)
        })?;
        found.truncate(most);
        Ok((found, status))
    }
}

/// After this many ids in a row without a job of the tube, the search for some
/// jobs ends, and the search for all begins.
const PATIENCE: u64 = 10_000;

/// Whether these bytes are in the body.
pub fn contains(body: &[u8], part: &[u8]) -> bool {
    part.is_empty() || body.windows(part.len()).any(|bytes| bytes == part)
}

/// These jobs in words, as in '3 ready and 1 buried jobs'.
fn in_words(jobs: &[(JobId, State)]) -> String {
    let count = |state: State| jobs.iter().filter(|(_, own)| *own == state).count();
    let some = State::ALL.map(|state| (count(state), state.name()));
    let some = some.into_iter().filter(|(count, _)| *count > 0);
    let parts: Vec<_> = some
        .map(|(count, name)| format!("{count} {name}"))
        .collect();
    match parts.as_slice() {
        [one] if jobs.len() == 1 => format!("{one} job"),
        [first @ .., last] if !first.is_empty() => {
            format!("{} and {last} jobs", first.join(", "))
        }
        parts => format!("{} jobs", parts.concat()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_question_names_what_there_is() {
        let jobs = |states: &[State]| {
            let jobs: Vec<_> = states.iter().map(|state| (JobId(1), *state)).collect();
            in_words(&jobs)
        };
        use State::*;
        assert_eq!(
            jobs(&[Ready, Buried, Delayed, Buried, Ready]),
            "2 ready, 1 delayed and 2 buried jobs"
        );
        assert_eq!(jobs(&[Buried, Delayed]), "1 delayed and 1 buried jobs");
        assert_eq!(jobs(&[Buried, Buried]), "2 buried jobs");
        assert_eq!(jobs(&[Ready]), "1 ready job");
    }
}
