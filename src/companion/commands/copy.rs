//! `copy`: puts copies of the jobs of a tube into another tube, on the same
//! server or on another one.

use crate::command::{Command, Invocation, Kind};
use crate::failure::{Outcome, Status};
use crate::server::by_id::complain_of_each;
use crate::server::census::Census;
use crate::server::list::Scope;
use crate::server::sweep::Sweep;
use crate::server::take::{bodies, jobs_of};
use crate::text::output::print;
use crate::transfer::{From, Transfer, transfer_options};
use beanpole::protocol::{JobId, TubeName};
use std::collections::HashSet;

pub const COPY: Command = Command {
    name: "copy",
    operands: "FROM|- TO",
    operand_kind: Kind::Tube,
    about: "copy the jobs of a tube to another, on this server or another",
    options: transfer_options,
    run: copy,
    ..Command::BLANK
};

fn copy(invocation: &Invocation) -> Outcome {
    let mut transfer = Transfer::new(invocation, "copying")?;
    if transfer.dry_run {
        return print(format!("{}\n", transfer.task.left));
    }
    let census = match transfer.from.clone() {
        From::Ids(ids) => Census::of(ids),
        From::Tube(tube) => transfer.jobs_of(tube)?,
    };
    let mut missing = Vec::new();
    let outcome = transfer.copy_these(&census.ids, &mut missing);
    // A job of the tube may have gone since it was found.
    let all = match transfer.from {
        From::Ids(_) => !complain_of_each(&mut transfer.client, missing)?,
        From::Tube(_) => census.verdict() == Status::Done,
    };
    transfer.finish(outcome)?;
    Ok(Status::done_if(all))
}

/// After this many ids in a row without a job of the tube, the search for some
/// jobs ends, and the search for all begins.
const PATIENCE: u64 = 10_000;

impl Transfer {
    /// The jobs of the tube. A few are found quickly; to find all may mean to
    /// ask for every id.
    fn jobs_of(&mut self, tube: TubeName) -> Outcome<Census> {
        let ids = self.some_jobs(&tube)?;
        if ids.len() as u64 >= self.task.left {
            return Ok(Census::of(ids));
        }
        let scope = Scope {
            tubes: vec![tube],
            states: self.states.clone(),
        };
        Census::take(&mut self.client, &scope)
    }

    /// If not all jobs are wanted: the first ones of each state, with the jobs
    /// whose ids are near. Otherwise none.
    fn some_jobs(&mut self, tube: &TubeName) -> Outcome<Vec<JobId>> {
        let mut ids = Vec::new();
        for state in self.states.iter().filter(|_| self.is_limited) {
            let wanted = usize::try_from(self.task.left).unwrap_or(usize::MAX) - ids.len();
            if wanted > 0 {
                let mut sweep = Sweep::new(tube.clone(), *state);
                let jobs = sweep.look(&mut self.client, wanted, PATIENCE)?;
                ids.extend(jobs.iter().map(|job| job.id));
            }
        }
        Ok(ids)
    }

    /// Copies these jobs, and notes which of them cannot be copied.
    fn copy_these(&mut self, mut ids: &[JobId], missing: &mut Vec<JobId>) -> Outcome<()> {
        while let Some(now) = self.next_of(&mut ids)? {
            let mut jobs = jobs_of(&mut self.client, now.iter().copied())?;
            jobs.retain(|job| self.states.contains(&job.state));
            let jobs = bodies(&mut self.client, jobs)?;
            let found: HashSet<JobId> = jobs.iter().map(|(job, _)| job.id).collect();
            missing.extend(now.iter().filter(|id| !found.contains(id)));
            let (copies, outcome) = self.place(&jobs);
            self.task.add(copies.len() as u64);
            outcome?;
        }
        Ok(())
    }
}
