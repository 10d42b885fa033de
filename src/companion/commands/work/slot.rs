//! One slot: reserves a job, runs the command for it, settles it, and again.

use super::held::{Held, Kept, PRECEDENCE};
use super::plan::{Common, Plan};
use super::process::Process;
use super::tries::Tries;
use crate::failure::{Failure, Outcome};
use crate::server::address::ADDRESS_VARIABLE;
use crate::server::client::{Client, Event};
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
    /// It ran longer than it may; it is dead.
    TimedOut,
}

/// Waiting for a job is begun anew so often, to notice a dead connection.
const WAIT: u64 = 60;
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// How often to look whether a job of another slot is still adrift.
const LOOK: Duration = Duration::from_millis(50);

/// Exit statuses of a command that say what becomes of its job, as sysexits.h
/// has them: EX_DATAERR, and EX_TEMPFAIL.
const BURY: i32 = 65;
const AGAIN: i32 = 75;

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
        while self.common.is_any_adrift() && !self.common.stops() {
            self.rest(LOOK);
        }
        let mut client = match self.client.take() {
            Some(client) => client,
            None => {
                let mut client = Client::connect(&self.plan.address, self.plan.patience)?;
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
            self.rest(PRECEDENCE);
        }
        let wait = if self.plan.until_empty { 0 } else { WAIT };
        client.queue(format_args!("reserve-with-timeout {wait}"));
        let until = Instant::now() + Duration::from_secs(wait) + self.plan.patience;
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
                Event::Time => return Err(client.silent()),
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
        self.rest(pause.min(LONGEST_PAUSE));
    }

    /// Waits so long, or until it is to stop.
    fn rest(&mut self, time: Duration) {
        let until = Instant::now() + time;
        while Instant::now() < until && !self.common.stops() {
            // The end of any slot's command is a call.
            self.calls.wait(Some(until));
            self.calls.take();
        }
    }

    fn work_on(&mut self, client: Client, job: Job) -> Outcome<()> {
        let id = job.id;
        let (held, facts) = match Held::new((self.plan, self.common), client, job) {
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
            self.common.return_ticket();
            return Ok(());
        };
        let tries = Tries::of(&facts);
        if let Some(count) = self.plan.tries.and_then(|limit| tries.vanished(limit)) {
            let what = format!("reserved {count} times to no end; buried without another try");
            let line = format!("bury {id} {}", held.job.priority.0);
            self.settle(&mut held, &line, &what, true);
            self.client = held.into_client();
            return Ok(());
        }
        let guard = &self.common.guard;
        let run = match Process::start(self.plan, guard, held.body(), self.variables(&facts)) {
            Ok(process) => self.supervise(process, &mut held),
            Err(error) => return self.cannot_start(held, tries, &error),
        };
        let run = run.map_err(|error| Failure::io("cannot wait for the command", error))?;
        self.finish(&mut held, tries, run);
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
    /// job is lost, its time is over, or we have to stop at once.
    fn supervise(&mut self, process: Process<'_>, held: &mut Held<'_>) -> io::Result<Run> {
        let times_out = self.plan.timeout.map(|timeout| Instant::now() + timeout);
        // Why the command is being ended, and when to do so by force.
        let mut ending: Option<(Run, Instant)> = None;
        loop {
            if process.has_ended()? {
                let Some((why, _)) = ending else {
                    return process.status().map(Run::Ended);
                };
                // What it left behind ends with it.
                process.signal(Signal::SIGKILL);
                process.status()?;
                return Ok(why);
            }
            let now = Instant::now();
            match &mut ending {
                Some((_, kill_at)) if now >= *kill_at => {
                    process.signal(Signal::SIGKILL);
                    *kill_at = now + Duration::from_secs(1);
                }
                Some(_) => {}
                None => {
                    let is_over = times_out.is_some_and(|at| now >= at);
                    let why = match self.common.stops_at_once() {
                        true => Some(Run::Stopped),
                        false => is_over.then_some(Run::TimedOut),
                    };
                    ending = why.map(|why| self.end(&process, why));
                }
            }
            let until = ending.as_ref().map(|(_, at)| *at).or(times_out);
            if matches!(ending, Some((Run::Lost(_), _))) {
                self.calls.wait(until);
            } else if let Kept::Lost(reason) = held.keep(&self.calls, until) {
                ending = Some(self.end(&process, Run::Lost(reason)));
            }
            self.calls.take();
        }
    }

    /// Asks the command to end, and says when to do so by force.
    fn end(&self, process: &Process<'_>, why: Run) -> (Run, Instant) {
        process.signal(Signal::SIGTERM);
        (why, Instant::now() + self.plan.grace)
    }

    /// Decides what becomes of the job, going by how its command ended.
    fn finish(&mut self, held: &mut Held<'_>, tries: Tries, run: Run) {
        let (id, pri) = (held.job.id, held.job.priority.0);
        let bury = format!("bury {id} {pri}");
        let release = |delay| format!("release {id} {pri} {delay}");
        let failure = match run {
            Run::Lost(reason) => {
                // The connection may still owe a reply, which is nobody's.
                held.abandon();
                return self.report(held, &format!("{reason}; the command was ended"));
            }
            Run::Stopped => return self.settle(held, &release(0), "stopped; released", true),
            Run::Ended(status) if status.success() => {
                return self.settle(held, &format!("delete {id}"), "done", false);
            }
            Run::Ended(status) if status.code() == Some(BURY) => {
                return self.settle(held, &bury, "exit status 65; buried", true);
            }
            Run::Ended(status) if status.code() == Some(AGAIN) => {
                let again = self.plan.again;
                let what = format!("exit status 75; delayed for {again} s");
                return self.settle(held, &release(again), &what, true);
            }
            Run::Ended(status) => how_it_failed(status),
            Run::TimedOut => "it ran too long".into(),
        };
        let try_number = tries.number();
        if self.plan.tries.is_some_and(|limit| tries.is_last_of(limit)) {
            let what = format!("{failure} at try {try_number}; buried");
            return self.settle(held, &bury, &what, true);
        }
        let delay = self.delay(try_number);
        let what = format!("{failure} at try {try_number}; delayed for {delay} s");
        self.settle(held, &release(delay), &what, true);
    }

    /// Tells the server what becomes of the job, and people what happened.
    fn settle(&mut self, held: &mut Held<'_>, line: &str, what: &str, is_failure: bool) {
        let common = self.common;
        match held.settle(line, &mut self.calls, |is_over| common.gives_up(is_over)) {
            Ok(()) if is_failure => self.report(held, what),
            Ok(()) if self.plan.verbose => say(held, what),
            Ok(()) => {}
            Err(reason) => self.report(held, &format!("{what}, but {reason}")),
        }
    }

    /// Says that something went wrong with a job.
    fn report(&self, held: &Held<'_>, what: &str) {
        self.common.failed.store(true, Ordering::SeqCst);
        say(held, what);
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
    fn cannot_start(&mut self, mut held: Held<'_>, tries: Tries, error: &io::Error) -> Outcome<()> {
        let program = self.plan.program.to_string_lossy();
        let what = format!("cannot start {program}: {error}");
        let (id, pri) = (held.job.id, held.job.priority.0);
        let passing = matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::OutOfMemory);
        let delay = if passing {
            self.delay(tries.number())
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

fn say(held: &Held<'_>, what: &str) {
    let (id, tube) = (held.job.id, &held.job.tube);
    complain(format_args!("beanpole work: job {id} of {tube}: {what}"));
}

fn how_it_failed(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exit status {code}"),
        (None, Some(signal)) => format!("killed by signal {signal}"),
        (None, None) => format!("{status}"),
    }
}
