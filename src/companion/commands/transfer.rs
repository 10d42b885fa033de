//! `move` and `copy`: jobs of a tube go to another one, on the same server or on
//! another.

use crate::command::{Invocation, Run, ids, pattern, word};
use crate::failure::{Failure, Outcome, Status};
use crate::jobs::Conditions;
use crate::server::client::Client;
use crate::server::names::{Server, warn_of};
use crate::server::stats::State;
use crate::server::task::Task;
use crate::server::tubes::{Pattern, Patterns};
use crate::text::output::print;
use crate::transfer::Transfer;
use crate::values::parse;
use beanpole::protocol::{JobId, TubeName};
use clap::Args;

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
    conditions: Conditions,
    /// only say how many jobs it would be
    #[arg(long)]
    dry_run: bool,
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
    fn transfer(self, invocation: &Invocation, doing: &'static str, moves: bool) -> Outcome {
        let (from, to): (&[String], TubeName) = match self.operands.as_slice() {
            [from, to] if self.tubes.is_empty() => (std::slice::from_ref(from), word(to)?),
            [to] if !self.tubes.is_empty() => (&[], word(to)?),
            _ => return Failure::usage("from which tube to which? give two"),
        };
        self.to.iter().for_each(warn_of);
        let target = self.to.as_ref().unwrap_or(&invocation.servers[0]);
        let mut client = invocation.connect()?;
        let mut target = invocation.connect_to(&target.address)?;
        let by_id = from.first().is_some_and(|from| from == "-");
        let is_plain = self.conditions.is_plain() && !self.conditions.narrows();
        let (found, status, states) = if by_id {
            if !is_plain {
                return Failure::usage("ids and conditions exclude each other");
            }
            let mut ids = ids(from)?;
            ids.sort();
            ids.dedup();
            (ids, Status::Done, State::FREE.into())
        } else {
            let mut tubes = self.tubes;
            tubes.extend(
                from.first()
                    .map(|from| pattern(from))
                    .transpose()
                    .map_err(Failure::Usage)?,
            );
            let mut selection = self.conditions.of(&mut client, &Patterns(tubes))?.free()?;
            let id_of = |end: &mut Client| Ok(end.server_stats()?.text("id").to_owned());
            if selection.scope.tubes.contains(&to) && id_of(&mut client)? == id_of(&mut target)? {
                selection.scope.tubes.retain(|tube| *tube != to);
            }
            if selection.scope.tubes.is_empty() {
                return Failure::usage("both are the same tube");
            }
            let (jobs, status) = selection.jobs(&mut client)?;
            let ids = jobs.into_iter().map(|(id, _)| id).collect();
            (ids, status, selection.scope.states)
        };
        let found: Vec<JobId> = found;
        if self.dry_run {
            return print(format!("{}\n", found.len()));
        }
        let task = Task::new(doing, found.len() as u64);
        let mut transfer = Transfer::new([client, target], to, states, task);
        let (missing, outcome) = transfer.run(&found, moves);
        // A job of a tube may have gone since it was found.
        let all = !by_id || !transfer.complain_of(missing)?;
        transfer.finish(outcome)?;
        Ok(if all { status } else { Status::No })
    }
}
