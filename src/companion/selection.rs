//! Which jobs a command is about: those with some ids, or those of tubes that
//! meet conditions; and how a command acts on them.

use crate::command::{INPUT, Invocation, ids, interval};
use crate::failure::{Failure, Outcome, Status};
use crate::remote::act::in_batches;
use crate::remote::facts::{FREE, states};
use crate::remote::finder::{each_body, pages};
use crate::remote::{Act, Client, JobFacts, Pattern, Patterns, Scope, State, WhenFree, Work};
use crate::signals::heed_interrupts;
use crate::text::output::confirm;
use crate::text::{Progress, counted, print};
use crate::values::{Count, parse};
use beanpole::protocol::{JobId, Priority, TubeName};
use clap::Args;
use clap::builder::{OsStringValueParser, PossibleValuesParser, TypedValueParser};
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::time::{Duration, Instant};

#[derive(Args, Default, PartialEq)]
pub struct Conditions {
    /// only jobs at least TIME old (default: all)
    #[arg(long, value_name = "TIME", value_parser = parse::<Duration>)]
    older: Option<Duration>,
    /// only jobs less than TIME old (default: all)
    #[arg(long, value_name = "TIME", value_parser = parse::<Duration>)]
    younger: Option<Duration>,
    /// only jobs reserved at least this number of times (default: all)
    #[arg(long, value_name = "N", value_parser = parse::<Count>)]
    tries: Option<Count>,
    /// only jobs of this priority (default: all)
    #[arg(long, value_name = "PRI", value_parser = parse::<Priority>)]
    pri: Option<Priority>,
    /// only jobs with this in their body; may be repeated (default: all)
    #[arg(long = "match", value_name = "BYTES", value_parser = some_bytes())]
    parts: Vec<OsString>,
    /// at most N jobs (default: all)
    #[arg(short = 'n', long, value_name = "N", value_parser = parse::<Count>)]
    count: Option<Count>,
}

/// One of these states.
pub fn state<const N: usize>(among: [State; N]) -> impl TypedValueParser<Value = State> {
    let names = PossibleValuesParser::new(among.map(State::name));
    names.map(|name| State::parse(name.as_bytes()).expect("it is one of these"))
}

/// Bytes, at least one: a variable that a script forgot to set must not mean all jobs.
fn some_bytes() -> impl TypedValueParser<Value = OsString> {
    OsStringValueParser::new().try_map(|bytes| match bytes.is_empty() {
        true => Err("it is empty, and would mean all jobs"),
        false => Ok(bytes),
    })
}

impl Conditions {
    fn want(&self, job: &JobFacts) -> bool {
        self.older.is_none_or(|age| job.age >= age.as_secs())
            && self.younger.is_none_or(|age| job.age < age.as_secs())
            && self
                .tries
                .is_none_or(|least| job.reserves >= least.0.into())
            && self.pri.is_none_or(|priority| job.priority == priority)
    }

    /// Gives the jobs of this scope that meet the conditions, in the order of their ids,
    /// some at a time. The status tells whether all could be found.
    pub fn pages(
        &self,
        client: &mut Client,
        scope: &Scope,
        mut each: impl FnMut(&mut Client, Vec<JobFacts>) -> Outcome<()>,
    ) -> Outcome {
        let mut left = Count::most(self.count);
        // Of those that tubes and states alone select, no more need be found.
        let plain = Conditions {
            count: self.count,
            ..Conditions::default()
        };
        let enough = if *self == plain { left } else { usize::MAX };
        pages(client, scope, enough, |client, mut jobs| {
            jobs.retain(|job| self.want(job));
            let parts = &self.parts;
            if !parts.is_empty() {
                let mut wanted = Vec::new();
                each_body(client, jobs, |job, found| {
                    let has = |part: &OsString| contains(&found.body, part.as_bytes());
                    wanted.extend(parts.iter().all(has).then_some(job));
                    Ok(())
                })?;
                jobs = wanted;
            }
            jobs.truncate(left);
            left -= jobs.len();
            each(client, jobs)?;
            Ok(left > 0)
        })
    }
}

/// Whether these bytes are in the body.
pub fn contains(body: &[u8], part: &[u8]) -> bool {
    part.is_empty() || body.windows(part.len()).any(|bytes| bytes == part)
}

/// The jobs on which a command acts.
#[derive(Args)]
pub struct Jobs {
    #[arg(value_name = "ID|-")]
    pub ids: Vec<String>,
    /// the jobs of this tube, after a question; may be repeated (default: ids)
    #[arg(short, long = "tube", value_name = "TUBE", value_parser = parse::<Pattern>)]
    pub tubes: Vec<Pattern>,
    #[command(flatten)]
    chosen: Chosen,
    /// do not ask
    #[arg(short, long)]
    yes: bool,
    /// wait up to TIME for jobs that workers have (default: do not)
    #[arg(long, value_name = "TIME", value_parser = interval)]
    wait: Option<Duration>,
}

impl Jobs {
    /// Does this to the jobs, those of tubes after a question.
    pub fn act(self, invocation: &Invocation, act: Act) -> Outcome {
        let (verb, doing) = act.names();
        let tubes = Patterns(self.tubes);
        if invocation.is_one_of_many && self.ids == [INPUT] {
            return Failure::usage("the ids on standard input are those of one server");
        }
        if self.wait.is_some() && !(tubes.0.is_empty() && self.chosen.is_bare()) {
            return Failure::usage("--wait takes ids: no job of a tube that a worker has is meant");
        }
        let found = self.chosen.find(invocation, &self.ids, &tubes, None)?;
        let is_needless = found.what.is_none() && !invocation.is_one_of_many;
        let place = format!("at {}", invocation.servers[0].title());
        let is_wanted = self.yes || is_needless || found.confirm(verb, &place)?;
        if !is_wanted {
            return Ok(Status::No);
        }
        let until = self.wait.map(|time| Instant::now() + time);
        found.act(doing, &mut WhenFree(act, until))
    }
}

/// The jobs of tubes on which a command acts.
#[derive(Args)]
pub struct Chosen {
    /// only jobs in this state; may be repeated (default: all)
    #[arg(long = "state", value_name = "STATE", value_parser = state(FREE))]
    states: Vec<State>,
    #[command(flatten)]
    conditions: Conditions,
    /// only say how many jobs it would be
    #[arg(long)]
    dry_run: bool,
}

impl Chosen {
    /// Whether there is no condition.
    pub fn is_bare(&self) -> bool {
        self.states.is_empty() && self.conditions == Conditions::default()
    }

    /// Finds the jobs with these ids or, if there are none, those of these tubes
    /// that meet the conditions, but for reserved ones, to which nothing can be
    /// done, and those that are in the tube `to` already.
    pub fn find(
        &self,
        invocation: &Invocation,
        operands: &[String],
        tubes: &Patterns,
        to: Option<(Option<&TubeName>, &mut Client)>,
    ) -> Outcome<Found> {
        if !operands.is_empty() || tubes.0.is_empty() && self.is_bare() {
            let ids = match (tubes.0.is_empty(), self.is_bare()) {
                (false, _) => return Failure::usage("give ids or --tube, not both"),
                (_, false) => return Failure::usage("ids and conditions exclude each other"),
                _ if self.dry_run => {
                    return Failure::usage("--dry-run counts jobs of tubes; peek shows ids");
                }
                _ => ids(operands)?,
            };
            return Ok(Found {
                client: invocation.connect()?,
                ids,
                what: None,
                are_tubes_many: false,
                is_trial: false,
                status: Status::Done,
            });
        }
        let mut client = invocation.connect()?;
        let there = tubes.existing(&mut client)?;
        let mut scope = Scope::of(there, states(FREE, &self.states));
        let tubes = &mut scope.tubes;
        // A server may have several addresses.
        if let Some((to, target)) = to
            && to.is_none_or(|to| tubes.is_empty() || tubes.contains(to))
            && client.server_stats()?.get("id") == target.server_stats()?.get("id")
        {
            if tubes.is_empty() {
                *tubes = client.tubes()?;
            }
            tubes.retain(|tube| to.is_some_and(|to| tube != to));
            if tubes.is_empty() {
                return Failure::usage("both are the same tube");
            }
        }
        let place = match tubes.as_slice() {
            [] => "all tubes".into(),
            [tube] => format!("tube '{tube}'"),
            several => format!("{} tubes", several.len()),
        };
        let (mut ids, mut states) = (Vec::new(), Vec::new());
        let conditions = &self.conditions;
        let status = conditions.pages(&mut client, &scope, |_, jobs| {
            ids.extend(jobs.iter().map(|job| job.id));
            states.extend(jobs.iter().map(|job| job.state));
            Ok(())
        })?;
        Ok(Found {
            client,
            ids,
            what: Some(format!("{} of {place}", in_words(&states))),
            are_tubes_many: scope.tubes.len() != 1,
            is_trial: self.dry_run,
            status,
        })
    }
}

/// The jobs that were found for a command to act on.
pub struct Found {
    client: Client,
    pub ids: Vec<JobId>,
    /// How many they are, and where, for a question; not if they were named one by
    /// one.
    what: Option<String>,
    pub are_tubes_many: bool,
    /// Whether the command only says how many they are.
    is_trial: bool,
    status: Status,
}

impl Found {
    /// Asks whether this is to be done to all of them, unless nothing is.
    pub fn confirm(&self, verb: &str, place: &str) -> Outcome<bool> {
        if self.is_trial || self.ids.is_empty() {
            return Ok(true);
        }
        let named = || counted(self.ids.len() as u64, "job");
        let what = self.what.clone().unwrap_or_else(named);
        confirm(format_args!("{verb} {what} {place}?"))
    }

    /// Does this work to the jobs, and to no others, whatever producers add.
    /// `doing` is for the progress. Prints how many are done, even after a failure.
    pub fn act<W: Work>(mut self, doing: &'static str, work: &mut W) -> Outcome {
        if self.is_trial {
            print(format!("{}\n", self.ids.len()))?;
            return Ok(self.status);
        }
        let named = self.what.is_none();
        heed_interrupts()?;
        let mut progress = Progress::new(doing, Some(self.ids.len() as u64));
        let (client, ids) = (&mut self.client, &self.ids);
        let missing = in_batches(work, client, ids, named, &mut progress, |_| Ok(()));
        let is_well = work.conclude();
        let done = progress.done;
        // Its line goes before another comes.
        drop(progress);
        if !named || W::COUNTS {
            print(format!("{done}\n"))?;
        }
        let all = is_well && missing? == 0;
        Ok(if all { self.status } else { Status::No })
    }
}

/// Jobs in these states in words, as in '3 ready and 1 buried jobs'.
fn in_words(states: &[State]) -> String {
    let count = |state: State| states.iter().filter(|own| **own == state).count();
    let counts = State::ALL.map(|state| (count(state), state.name()));
    let present = counts.into_iter().filter(|(count, _)| *count > 0);
    let some = present.map(|(count, name)| format!("{count} {name}"));
    let some: Vec<String> = some.collect();
    let noun = if states.len() == 1 { "job" } else { "jobs" };
    format!("{} {noun}", some.join(" and "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_confirmation_counts_the_jobs_in_each_state() {
        use State::*;
        for (states, words) in [
            (
                &[Ready, Buried, Delayed, Buried, Ready][..],
                "2 ready and 1 delayed and 2 buried jobs",
            ),
            (&[Buried, Delayed], "1 delayed and 1 buried jobs"),
            (&[Buried, Buried], "2 buried jobs"),
            (&[Ready], "1 ready job"),
        ] {
            assert_eq!(in_words(states), words);
        }
    }
}
