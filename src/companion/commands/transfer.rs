//! `move` and `copy`: jobs from one tube to another, here or on another server.
//!
//! A moved job is put there before it is deleted here, so none is lost, and
//! one that is under way when everything stops is there twice. A ready job is
//! reserved meanwhile, as a worker would, so that none gets it; delayed and
//! buried ones, and those of a paused tube, nobody gets anyway. If a job was taken from under our hands nevertheless, its copy
//! is deleted again.

use super::clear::states;
use crate::address::Address;
use crate::census::{Census, Scope};
use crate::client::{Client, PATIENCE, Terms};
use crate::complain;
use crate::failure::{Failure, Outcome, Status};
use crate::invocation::{self, Invocation};
use crate::output::{Output, Progress};
use crate::place::{Placement, Placer};
use crate::reply::Reply;
use crate::stats::{JobFacts, State};
use crate::sweep::{Sweep, for_each_job};
use crate::table::{Command, Kind, Opt, STATE};
use crate::take::{Room, bodies, reserve_now};
use beanpole::protocol::{JobId, TubeName};
use std::collections::HashMap;

const OPTIONS: &[Opt] = &[
    STATE,
    Opt::value("n", "count", "N", "at most so many jobs"),
    Opt::value(
        "",
        "to",
        "ADDR",
        "the server of the second tube, if another",
    ),
];

pub const MOVE: Command = Command {
    name: "move",
    operands: "FROM TO",
    operand_kind: Kind::Tube,
    about: "move the jobs of a tube to another, on this server or another",
    options: OPTIONS,
    run: move_jobs,
    ..Command::BLANK
};

pub const COPY: Command = Command {
    name: "copy",
    operands: "FROM TO",
    operand_kind: Kind::Tube,
    about: "copy the jobs of a tube to another, on this server or another",
    options: OPTIONS,
    run: copy,
    ..Command::BLANK
};

/// Both ends of a transfer.
struct Transfer {
    client: Client,
    from: TubeName,
    to: TubeName,
    placer: Placer,
    states: Vec<State>,
    /// Jobs that may still be transferred.
    left: u64,
    progress: Progress,
    done: u64,
    room: Room,
}

impl Transfer {
    fn new(invocation: &Invocation, doing: &'static str) -> Outcome<Transfer> {
        let [from, to] = invocation.operands() else {
            return Err(Failure::Usage("from which tube to which? give two".into()));
        };
        let (from, to) = (invocation::tube(from)?, invocation::tube(to)?);
        let states = states(invocation)?;
        let count = invocation.count("count")?;
        let address = match invocation.value("to") {
            Some(text) => Address::parse(&text).map_err(Failure::Usage)?,
            None => invocation.address().clone(),
        };
        let mut client = invocation.connect()?;
        let mut target = Client::connect(&address, PATIENCE)?;
        if from == to && client.server_stats()?.get("id") == target.server_stats()?.get("id") {
            return Err(Failure::Usage("both are the same tube".into()));
        }
        let Some(facts) = client.tube_stats(&from)? else {
            return Err(Failure::no_tube(&from));
        };
        let there = states
            .iter()
            .map(|state| facts.number(state.count_key()))
            .sum::<u64>();
        let left = count.unwrap_or(u64::MAX).min(there);
        Ok(Transfer {
            client,
            from,
            to,
            placer: Placer::new(target),
            states,
            left,
            progress: Progress::new(doing, Some(left)),
            done: 0,
            room: Room::default(),
        })
    }

    /// Puts these jobs into the other tube: the ids they have there. Why there
    /// are fewer comes with them.
    fn place(&mut self, jobs: &[(JobFacts, Vec<u8>)]) -> (Vec<JobId>, Outcome<()>) {
        let placements: Vec<_> = jobs
            .iter()
            .map(|(job, body)| Placement {
                tube: self.to.clone(),
                terms: Terms {
                    priority: job.priority,
                    delay: job.delay_left(),
                    ttr: job.ttr,
                },
                buried: job.state == State::Buried,
                body: body.clone(),
            })
            .collect();
        let (ids, outcome) = self.placer.place(&placements);
        let outcome = outcome.map_err(|failure| match jobs.get(ids.len()) {
            Some((job, _)) => failure.about(format_args!("job {}", job.id)),
            None => failure,
        });
        (ids, outcome)
    }

    fn progressed(&mut self, count: u64) {
        self.left = self.left.saturating_sub(count);
        self.done += count;
        self.progress.add(count);
    }

    fn finish(self) -> Outcome {
        drop(self.progress);
        if self.placer.parked > 0 {
            complain(format_args!(
                "beanpole: {} buried jobs are delayed for 136 years instead: that server cannot reserve by id",
                self.placer.parked
            ));
        }
        let mut output = Output::new();
        output.line(self.done)?;
        output.sync()?;
        Ok(Status::Done)
    }
}

fn move_jobs(invocation: &Invocation) -> Outcome {
    let mut transfer = Transfer::new(invocation, "moving")?;
    transfer
        .client
        .watch_only(std::slice::from_ref(&transfer.from))?;
    for state in transfer.states.clone() {
        if state == State::Ready && !transfer.is_paused()? {
            while transfer.move_reserved()? {}
            continue;
        }
        let mut sweep = Sweep::new(transfer.from.clone(), state);
        while transfer.move_in_place(&mut sweep)? {}
    }
    transfer.finish()
}

impl Transfer {
    fn at_once(&self) -> usize {
        usize::try_from(self.left)
            .unwrap_or(usize::MAX)
            .min(self.room.jobs())
    }

    fn is_paused(&mut self) -> Outcome<bool> {
        let facts = self.client.tube_stats(&self.from)?;
        Ok(facts.is_some_and(|facts| facts.number("pause-time-left") > 0))
    }

    /// Moves some jobs that can be reserved. Whether there were any.
    fn move_reserved(&mut self) -> Outcome<bool> {
        let most = self.at_once();
        let jobs = reserve_now(&mut self.client, most)?;
        self.room.learn(jobs.iter().map(|job| job.body.len()));
        let ids: Vec<_> = jobs.iter().map(|job| job.id).collect();
        let mut bodies: HashMap<_, _> = jobs.into_iter().map(|job| (job.id, job.body)).collect();
        let mut held = Vec::new();
        for_each_job(&mut self.client, ids.into_iter(), |job| {
            held.extend(bodies.remove(&job.id).map(|body| (job, body)));
            Ok(())
        })?;
        self.move_these(&held)?;
        Ok(!held.is_empty())
    }

    /// Moves some jobs that nobody can reserve. Whether there were any.
    fn move_in_place(&mut self, sweep: &mut Sweep) -> Outcome<bool> {
        if self.left == 0 {
            return Ok(false);
        }
        let mut jobs = sweep.next(&mut self.client)?;
        jobs.truncate(self.at_once());
        let jobs = bodies(&mut self.client, jobs)?;
        self.room.learn(jobs.iter().map(|(_, body)| body.len()));
        self.move_these(&jobs)?;
        Ok(!jobs.is_empty())
    }

    /// Puts these jobs there and deletes them here.
    fn move_these(&mut self, jobs: &[(JobFacts, Vec<u8>)]) -> Outcome<()> {
        let (copies, outcome) = self.place(jobs);
        let mut pairs = jobs.iter().map(|(job, _)| job.id).zip(copies);
        let mut taken = Vec::new();
        let mut moved = 0;
        self.client.pipeline(
            |client| {
                Ok(pairs
                    .next()
                    .inspect(|(id, _)| client.queue(format_args!("delete {id}"))))
            },
            |(id, copy), reply| {
                match reply {
                    Reply::Deleted => moved += 1,
                    Reply::NotFound => taken.push((id, copy)),
                    other => return Err(Failure::unexpected(format_args!("delete {id}"), &other)),
                }
                Ok(())
            },
        )?;
        for (id, _) in &taken {
            complain(format_args!(
                "beanpole move: job {id} was taken by somebody else meanwhile"
            ));
        }
        let copies: Vec<_> = taken.into_iter().map(|(_, copy)| copy).collect();
        self.placer.take_away(&copies)?;
        self.progressed(moved);
        outcome
    }
}

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
