//! `copy`: jobs of a tube are put into another too, here or on another server.

use crate::command::{Command, Invocation, Kind};
use crate::failure::Outcome;
use crate::server::census::{Census, Scope};
use crate::server::sweep::{Sweep, for_each_job};
use crate::server::take::bodies;
use crate::transfer::{Transfer, transfer_options};
use beanpole::protocol::JobId;

pub const COPY: Command = Command {
    name: "copy",
    operands: "FROM TO",
    operand_kind: Kind::Tube,
    about: "copy the jobs of a tube to another, on this server or another",
    options: transfer_options,
    run: copy,
    ..Command::BLANK
};

fn copy(invocation: &Invocation) -> Outcome {
    let mut transfer = Transfer::new(invocation, "copying")?;
    let scope = Scope {
        tubes: vec![transfer.from.clone()],
        states: transfer.states.clone(),
    };
    // A few jobs are soon found; what finds each one asks for every id.
    let some = transfer.some_jobs()?;
    let census = match some.len() as u64 >= transfer.left {
        true => Census {
            ids: some,
            missing: 0,
        },
        false => Census::take(&mut transfer.client, &scope)?,
    };
    let outcome = transfer.copy_these(&census.ids);
    transfer.finish(outcome)?;
    Ok(census.verdict())
}

/// Ids without a job of ours in a row before asking for all.
const PATIENCE: u64 = 10_000;

impl Transfer {
    /// The first jobs and their neighbours, if not all are wanted.
    fn some_jobs(&mut self) -> Outcome<Vec<JobId>> {
        let mut ids = Vec::new();
        for state in self.states.iter().filter(|_| self.is_limited) {
            let wanted = usize::try_from(self.left).unwrap_or(usize::MAX) - ids.len();
            if wanted > 0 {
                let sweep = Sweep::new(self.from.clone(), *state);
                let jobs = sweep.look(&mut self.client, wanted, PATIENCE)?;
                ids.extend(jobs.iter().map(|job| job.id));
            }
        }
        Ok(ids)
    }

    fn copy_these(&mut self, ids: &[JobId]) -> Outcome<()> {
        let mut ids = ids;
        while !ids.is_empty() && self.goes_on()? {
            let (now, later) = ids.split_at(self.at_once().min(ids.len()));
            ids = later;
            let mut jobs = Vec::new();
            for_each_job(&mut self.client, now.iter().copied(), |job| {
                jobs.push(job);
                Ok(())
            })?;
            jobs.retain(|job| self.states.contains(&job.state));
            let jobs = bodies(&mut self.client, jobs)?;
            self.room.learn(jobs.iter().map(|(_, body)| body.len()));
            let (copies, outcome) = self.place(&jobs);
            self.progressed(copies.len() as u64);
            outcome?;
        }
        Ok(())
    }
}
