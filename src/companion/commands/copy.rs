//! `copy`: jobs of a tube are put into another too, here or on another server.

use crate::command::{Command, Invocation, Kind};
use crate::failure::Outcome;
use crate::server::census::{Census, Scope};
use crate::server::sweep::for_each_job;
use crate::server::take::bodies;
use crate::transfer::{Transfer, transfer_options};

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
    let census = Census::take(&mut transfer.client, &scope)?;
    let mut ids = census.ids.as_slice();
    while transfer.left > 0 && !ids.is_empty() {
        let (now, later) = ids.split_at(transfer.at_once().min(ids.len()));
        ids = later;
        let mut jobs = Vec::new();
        for_each_job(&mut transfer.client, now.iter().copied(), |job| {
            jobs.push(job);
            Ok(())
        })?;
        jobs.retain(|job| scope.states.contains(&job.state));
        let jobs = bodies(&mut transfer.client, jobs)?;
        transfer.room.learn(jobs.iter().map(|(_, body)| body.len()));
        let (copies, outcome) = transfer.place(&jobs);
        transfer.progressed(copies.len() as u64);
        outcome?;
    }
    transfer.finish()?;
    Ok(census.verdict())
}
