//! One slot: reserves a job, runs the command for it, settles it, and again.

use super::held::{Held, Kept};
use super::process::Process;
use super::{Common, Plan};
use crate::failure::{Failure, Outcome};
use crate::server::address::ADDRESS_VARIABLE;
use crate::server::client::{Client, Event, PATIENCE};
use crate::server::reply::{Job, Reply};
use crate::server::stats::Facts;
use crate::signals::Calls;
use crate::text::output::complain;
use nix::sys::signal::Signal;
use std::io::{self, ErrorKind};
use std::os::fd::AsFd;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// One slot.
pub struct Slot<'a> {
    plan: &'a Plan,
    common: &'a Common,
    calls: Calls,
    client: Option<Client>,
    /// How often connecting has failed in a row.
    failures: u32,
}

/// How a command's run came to its end.
enum Run {
    Ended(ExitStatus),
    /// The job was lost meanwhile, for this reason; the command is dead.
    Lost(String),
    /// We were told to stop at once; the command is dead.
    Stopped,
}

/// Waiting for a job is begun anew so often, to notice a dead connection.
const WAIT: u64 = 60;
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

impl<'a> Slot<'a> {
    pub fn new(plan: &'a Plan, common: &'a Common, calls: Calls) -> Slot<'a> {
        Slot {
            plan,
            common,
            calls,
            client: None,
            failures: 0,
        }
    }

    /// Works until it is told to stop. An error: it cannot go on.
    pub fn run(mut self) -> Outcome<()> {
        while !self.common.stops() && self.common.take_ticket() {
            let Some((client, job)) = self.reserve()? else {
                break;
            };
            self.work_on(client, job)?;
        }
        Ok(())
    }

    /// The next job, with the connection that holds it. `None`: stop.
    fn reserve(&mut self) -> Outcome<Option<(Client, Job)>> {
        while !self.common.stops() {
            match self.try_to_reserve() {
                Ok(Some(job)) => return Ok(self.client.take().map(|client| (client, job))),
                Ok(None) if self.plan.until_empty => break,
                Ok(None) => {}
                Err(Failure::Unreachable(reason)) if !self.plan.until_empty => self.pause(&reason),
                Err(failure) => return Err(failure),
            }
        }
        Ok(None)
    }

    /// Waits for a job for a while, or until somebody calls.
    fn try_to_reserve(&mut self) -> Outcome<Option<Job>> {
        let mut client = match self.client.take() {
            Some(client) => client,
            None => {
                let mut client = Client::connect(&self.plan.address, PATIENCE)?;
                client.watch_only(&self.plan.tubes)?;
                client
            }
        };
        if self.failures > 0 {
            complain(format_args!(
                "beanpole work: connected to {} again",
                self.plan.address
            ));
            self.failures = 0;
        }
        let wait = if self.plan.until_empty { 0 } else { WAIT };
        client.queue(format_args!("reserve-with-timeout {wait}"));
        let until = Instant::now() + Duration::from_secs(wait) + PATIENCE;
        loop {
            match client.wait(Some(until), &[self.calls.as_fd()])? {
                Event::Reply(reply) => match client.understand(reply)? {
                    Reply::Reserved(job) => {
                        self.client = Some(client);
                        return Ok(Some(job));
                    }
                    Reply::TimedOut => {
                        self.client = Some(client);
                        return Ok(None);
                    }
                    other => return Err(Failure::unexpected("reserve-with-timeout", &other)),
                },
                Event::Time => {
                    let reason = format!("{}: no reply to reserve", self.plan.address);
                    return Err(Failure::Unreachable(reason));
                }
                Event::Other => {
                    self.calls.take();
                    if self.common.stops() {
                        // The connection goes, and with it a job that may be
                        // on its way to us: the server has it ready again.
                        return Ok(None);
                    }
                }
            }
        }
    }

    /// Waits longer after each failure to reach the server.
    fn pause(&mut self, reason: &str) {
        if self.failures == 0 {
            complain(format_args!("beanpole work: {reason}; trying again"));
        }
        let pause = Duration::from_millis(500) * 2u32.saturating_pow(self.failures.min(10));
        self.failures += 1;
        self.calls
            .wait(Some(Instant::now() + pause.min(LONGEST_PAUSE)));
        self.calls.take();
    }

    fn work_on(&mut self, client: Client, job: Job) -> Outcome<()> {
        let id = job.id;
        let (held, facts) = match Held::new(self.plan, client, job) {
            Ok(held) => held,
            Err(failure @ Failure::Refused(_)) => return Err(failure),
            Err(failure) => {
                complain(format_args!("beanpole work: job {id}: {failure}"));
                self.common.return_ticket();
                return Ok(());
            }
        };
        let Some(mut held) = held else {
            complain(format_args!(
                "beanpole work: job {id}: gone before the command was started"
            ));
            return Ok(());
        };
        let run = match Process::start(self.plan, held.body(), self.variables(&facts)) {
            Ok(process) => self.supervise(process, &mut held),
            Err(error) => return self.cannot_start(held, &error),
        };
        let run = run.map_err(|error| Failure::io("cannot wait for the command", error))?;
        self.settle(&mut held, run);
        self.client = held.into_client();
        Ok(())
    }

    /// What the command finds in its environment.
    fn variables(&self, facts: &Facts) -> Vec<(String, String)> {
        let mut variables = vec![(ADDRESS_VARIABLE.into(), self.plan.address.to_string())];
        for (key, value) in facts.iter() {
            let name = key.to_ascii_uppercase().replace('-', "_");
            variables.push((format!("BEANPOLE_JOB_{name}"), value.into()));
        }
        variables
    }

    /// Keeps the job until the command has ended, or ends the command when the
    /// job is lost or we have to stop at once.
    fn supervise(&mut self, process: Process, held: &mut Held<'_>) -> io::Result<Run> {
        let mut lost = None;
        let mut killed_at = None;
        loop {
            if process.has_ended()? {
                if lost.is_some() || killed_at.is_some() {
                    // What it left behind ends with it.
                    process.signal(Signal::SIGKILL);
                }
                let status = process.status()?;
                return Ok(match (lost, killed_at) {
                    (Some(reason), _) => Run::Lost(reason),
                    (None, Some(_)) => Run::Stopped,
                    (None, None) => Run::Ended(status),
                });
            }
            if killed_at.is_none() && (lost.is_some() || self.common.stops_at_once()) {
                process.signal(Signal::SIGTERM);
                killed_at = Some(Instant::now() + self.plan.grace);
            }
            if lost.is_some() {
                self.calls.wait(killed_at);
            } else if let Kept::Lost(reason) = held.keep(&self.calls, killed_at) {
                lost = Some(reason);
            }
            self.calls.take();
            if killed_at.is_some_and(|at| Instant::now() >= at) {
                process.signal(Signal::SIGKILL);
                killed_at = Some(Instant::now() + Duration::from_secs(1));
            }
        }
    }

    fn settle(&mut self, held: &mut Held<'_>, run: Run) {
        let (id, pri) = (held.job.id, held.job.priority.0);
        let tube = held.job.tube.clone();
        let (line, what, is_failure) = match run {
            Run::Lost(reason) => {
                complain(format_args!(
                    "beanpole work: job {id} of {tube}: {reason}; the command was ended"
                ));
                self.common.failed.store(true, Ordering::SeqCst);
                return;
            }
            Run::Stopped => {
                let what = String::from("stopped; released");
                (format!("release {id} {pri} 0"), what, true)
            }
            Run::Ended(status) if status.success() => {
                (format!("delete {id}"), String::from("done"), false)
            }
            Run::Ended(status) => {
                let how = how_it_failed(status);
                let reserves = held.job.reserves.max(1);
                if self.plan.tries.is_some_and(|tries| reserves >= tries) {
                    (
                        format!("bury {id} {pri}"),
                        format!("{how} at try {reserves}; buried"),
                        true,
                    )
                } else {
                    let delay = self.delay(reserves);
                    (
                        format!("release {id} {pri} {delay}"),
                        format!("{how} at try {reserves}; delayed for {delay} s"),
                        true,
                    )
                }
            }
        };
        if is_failure {
            self.common.failed.store(true, Ordering::SeqCst);
        }
        let common = self.common;
        match held.settle(&line, &mut self.calls, |is_over| common.gives_up(is_over)) {
            Ok(()) if is_failure || self.plan.verbose => {
                complain(format_args!("beanpole work: job {id} of {tube}: {what}"));
            }
            Ok(()) => {}
            Err(reason) => {
                self.common.failed.store(true, Ordering::SeqCst);
                complain(format_args!(
                    "beanpole work: job {id} of {tube}: {what}, but {reason}"
                ));
            }
        }
    }

    /// The delay after so many tries.
    fn delay(&self, tries: u64) -> u64 {
        let doublings = u32::try_from(tries - 1).unwrap_or(u32::MAX);
        let delay = 1u64
            .checked_shl(doublings)
            .and_then(|factor| self.plan.backoff.checked_mul(factor));
        delay.unwrap_or(u64::MAX).min(self.plan.backoff_max)
    }

    /// Gives the job back. If there is no such program the others would fare
    /// no better; if the system is short of something, later may be better.
    fn cannot_start(&mut self, mut held: Held<'_>, error: &io::Error) -> Outcome<()> {
        let program = self.plan.program.to_string_lossy();
        let what = format!("cannot start {program}: {error}");
        let (id, pri) = (held.job.id, held.job.priority.0);
        let passing = matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::OutOfMemory);
        let delay = if passing {
            self.delay(held.job.reserves.max(1))
        } else {
            0
        };
        let common = self.common;
        let line = format!("release {id} {pri} {delay}");
        if let Err(reason) = held.settle(&line, &mut self.calls, |is_over| common.gives_up(is_over))
        {
            complain(format_args!("beanpole work: job {id}: {reason}"));
        }
        if !passing {
            return Err(Failure::Refused(what));
        }
        self.client = held.into_client();
        self.pause(&what);
        Ok(())
    }
}

fn how_it_failed(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exit status {code}"),
        (None, Some(signal)) => format!("killed by signal {signal}"),
        (None, None) => format!("{status}"),
    }
}
