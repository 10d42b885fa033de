//! One slot: again and again it reserves a job, runs the command for it, and
//! settles it.

use super::Common;
use super::held::{Held, PRECEDENCE};
use super::process::Process;
use super::tries::Tries;
use crate::failure::{Failure, Outcome, plain};
use crate::server::address::{ADDRESS_VARIABLE, Address};
use crate::server::client::{Client, Event};
use crate::server::reply::{Job, Reply};
use crate::server::stats::Facts;
use crate::signals::Calls;
use crate::text::output::complain;
use beanpole::protocol::Seconds;
use nix::sys::signal::Signal;
use std::io::{self, ErrorKind};
use std::num::NonZeroU64;
use std::os::fd::AsFd;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::time::{Duration, Instant};

/// One slot.
pub struct Slot<'a> {
    common: &'a Common,
    calls: Calls,
    client: Option<Client>,
    /// How many attempts to connect have failed in a row.
    failures: u32,
}

/// How a run of the command ended.
enum Run {
    Ended(ExitStatus),
    /// The job was lost meanwhile, for this reason; the command has been ended.
    Lost(String),
    /// We were told to stop at once; the command has been ended.
    Stopped,
    /// The command ran longer than it may, and has been ended.
    TimedOut,
}

/// The wait for a job begins again after this many seconds, so that a dead
/// connection is noticed.
const WAIT: u64 = 60;
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// How often to check whether a job of another slot is still adrift.
const LOOK: Duration = Duration::from_millis(50);

/// Exit statuses by which a command decides about its job. sysexits.h calls
/// them EX_DATAERR and EX_TEMPFAIL.
const BURY: i32 = 65;
const AGAIN: i32 = 75;

impl<'a> Slot<'a> {
    pub fn new(common: &'a Common, calls: Calls) -> Slot<'a> {
        Slot {
            common,
            calls,
            client: None,
            failures: 0,
        }
    }

    /// Works until the run ends. An error means that the slot cannot go on.
    pub fn run(mut self) -> Outcome<()> {
        while self.common.may_begin()
            && let Some((client, job)) = self.reserve()?
        {
            self.work_on(client, job)?;
        }
        Ok(())
    }

    /// The next job, with the connection that holds it. `None` ends the slot.
    fn reserve(&mut self) -> Outcome<Option<(Client, Job)>> {
        while !self.common.stops() {
            match self.try_to_reserve() {
                Ok(Some(job)) => return Ok(self.client.take().map(|client| (client, job))),
                Ok(None) if self.common.options.all => break,
                Ok(None) => {}
                Err(Failure::Unreachable(reason)) if !self.common.options.all => {
                    self.pause(&reason);
                }
                Err(failure) => return Err(failure),
            }
        }
        Ok(None)
    }

    /// Waits for a job for a while, or until the run is to stop.
    fn try_to_reserve(&mut self) -> Outcome<Option<Job>> {
        let Common {
            addresses,
            patience,
            ..
        } = self.common;
        while self.common.state().adrift > 0 && !self.common.stops() {
            self.rest(LOOK);
        }
        let mut client = match self.client.take() {
            Some(client) => client,
            None => {
                let mut client = Client::first_of(addresses, *patience)?;
                client.watch_only(&self.common.options.tubes)?;
                client
            }
        };
        if self.failures > 0 {
            self.common.found(&client.address);
            self.failures = 0;
            self.rest(PRECEDENCE);
        }
        let wait = if self.common.options.all { 0 } else { WAIT };
        client.queue(format_args!("reserve-with-timeout {wait}"));
        let until = Instant::now() + Duration::from_secs(wait) + *patience;
        loop {
            let reply = match client.wait(Some(until), &[self.calls.as_fd()])? {
                Event::Reply(reply) => client.understand(reply)?,
                Event::Time => return Err(client.silent()),
                Event::Other => {
                    self.calls.take();
                    if self.common.stops() {
                        // The connection is closed. If a job is on its way to
                        // us, the server makes it ready again.
                        return Ok(None);
                    }
                    continue;
                }
            };
            let job = match reply {
                Reply::Reserved(job) => Some(job),
                Reply::TimedOut => None,
                other => return Err(Failure::unexpected("reserve-with-timeout", &other)),
            };
            self.client = Some(client);
            return Ok(job);
        }
    }

    /// Waits before the next attempt; each failure makes the wait longer.
    fn pause(&mut self, reason: &str) {
        self.common.lost(reason);
        let pause = Duration::from_millis(500) * 2u32.saturating_pow(self.failures.min(10));
        self.failures += 1;
        self.rest(pause.min(LONGEST_PAUSE));
    }

    /// Waits for this time, or until the run is to stop.
    fn rest(&mut self, time: Duration) {
        let until = Instant::now() + time;
        while Instant::now() < until && !self.common.stops() {
            // The end of any slot's command wakes every slot.
            self.calls.wait(Some(until));
            self.calls.take();
        }
    }

    fn work_on(&mut self, client: Client, job: Job) -> Outcome<()> {
        let id = job.id;
        let address = client.address.clone();
        let mut held = match Held::new(self.common, client, job) {
            Ok(Some(held)) => held,
            Err(failure @ Failure::Refused(_)) => return Err(failure),
            none => {
                let gone = "gone before the command was started".into();
                let reason = none.map_or_else(|failure| failure.to_string(), |_| gone);
                complain!("job {id}: {reason}");
                self.common.return_permission();
                return Ok(());
            }
        };
        let tries = Tries::of(&held.job.all);
        let limit = self.common.options.tries.map(NonZeroU64::get);
        if let Some(count) = limit.and_then(|limit| tries.vanished(limit)) {
            let what = format!("reserved {count} times to no end; buried without another try");
            let line = format!("bury {id} {}", held.job.priority.0);
            self.settle(&mut held, &line, &what, true);
            self.client = held.into_client();
            return Ok(());
        }
        let run = match Process::start(
            &self.common.options.command,
            &held.body,
            variables(&address, &held.job.all),
        ) {
            Ok(process) => self.supervise(process, &mut held),
            Err(error) => return self.cannot_start(held, tries, &error),
        };
        let run = run.map_err(|error| Failure::io("cannot wait for the command", error))?;
        self.finish(&mut held, tries, run);
        self.client = held.into_client();
        Ok(())
    }

    /// Keeps the job until the command has ended. Ends the command if the job
    /// is lost, the command's time is over, or we have to stop at once.
    fn supervise(&mut self, process: Process, held: &mut Held<'_>) -> io::Result<Run> {
        let timeout = self.common.options.timeout;
        let times_out = timeout.map(|Seconds(time)| Instant::now() + seconds(time));
        // Why the command is being ended, and when SIGKILL follows.
        let mut ending: Option<(Run, Instant)> = None;
        loop {
            if process.has_ended()? {
                let Some((why, _)) = ending else {
                    return process.status().map(Run::Ended);
                };
                // The processes that the command left behind end now.
                process.signal(Signal::SIGKILL);
                process.status()?;
                return Ok(why);
            }
            let now = Instant::now();
            let why = match (held.loss(), &ending) {
                (Some(reason), None | Some((Run::Stopped | Run::TimedOut, _))) => {
                    Some(Run::Lost(reason.into()))
                }
                (None, None) if self.common.stops_at_once() => Some(Run::Stopped),
                (None, None) if times_out.is_some_and(|at| now >= at) => Some(Run::TimedOut),
                _ => None,
            };
            if let Some(why) = why {
                process.signal(Signal::SIGTERM);
                ending = Some((why, now + seconds(self.common.options.grace.0)));
            }
            if let Some((_, kill_at)) = &mut ending
                && now >= *kill_at
            {
                process.signal(Signal::SIGKILL);
                *kill_at = now + Duration::from_secs(1);
            }
            held.keep(
                &self.calls,
                ending.as_ref().map(|(_, at)| *at).or(times_out),
            );
            self.calls.take();
        }
    }

    /// Decides what to do with the job, according to the end of its command.
    fn finish(&mut self, held: &mut Held<'_>, tries: Tries, run: Run) {
        let (id, pri) = (held.job.id, held.job.priority.0);
        let options = &self.common.options;
        let bury = format!("bury {id} {pri}");
        let release = |delay| format!("release {id} {pri} {delay}");
        let code = match run {
            Run::Ended(status) => status.code(),
            _ => None,
        };
        let (line, what) = match (run, code) {
            (Run::Lost(reason), _) => {
                return self.report(held, &format!("{reason}; the command was ended"));
            }
            (Run::Stopped, _) => (release(0), "stopped; released".into()),
            (_, Some(0)) => (format!("delete {id}"), "done".into()),
            (_, Some(BURY)) => (bury, "exit status 65; buried".into()),
            (_, Some(AGAIN)) => {
                let Seconds(again) = options.again;
                (
                    release(again.into()),
                    format!("exit status 75; delayed for {again} s"),
                )
            }
            (run, _) => {
                let number = tries.number();
                let failure = match run {
                    Run::Ended(status) => how_it_failed(status),
                    _ => "it ran too long".into(),
                };
                let failure = format!("{failure} at try {number}");
                match options.tries {
                    Some(limit) if tries.is_last_of(limit.get()) => {
                        (bury, format!("{failure}; buried"))
                    }
                    _ => {
                        let delay = self.delay(number);
                        (release(delay), format!("{failure}; delayed for {delay} s"))
                    }
                }
            }
        };
        self.settle(held, &line, &what, code != Some(0));
    }

    /// Settles the job with the server, and reports what happened.
    fn settle(&mut self, held: &mut Held<'_>, line: &str, what: &str, is_failure: bool) {
        match held.settle(line, &mut self.calls) {
            Ok(()) if is_failure => self.report(held, what),
            Ok(()) if self.common.options.verbose => say(held, what),
            Ok(()) => {}
            Err(reason) => self.report(held, &format!("{what}, but {reason}")),
        }
    }

    /// Reports that something went wrong with a job.
    fn report(&self, held: &Held<'_>, what: &str) {
        self.common.state().failed = true;
        say(held, what);
    }

    /// The delay after this many tries, in seconds.
    fn delay(&self, tries: u64) -> u64 {
        let doublings = u32::try_from(tries - 1).unwrap_or(u32::MAX);
        let (Seconds(first), Seconds(most)) =
            (self.common.options.backoff, self.common.options.backoff_max);
        let delay = u64::from(first).saturating_mul(2u64.saturating_pow(doublings));
        delay.min(most.into())
    }

    /// Gives the job back. If the system is short of something, the slot tries
    /// again later. After any other error, such as a missing program, the other
    /// jobs would fare no better, so the run ends.
    fn cannot_start(&mut self, mut held: Held<'_>, tries: Tries, error: &io::Error) -> Outcome<()> {
        let program = self.common.options.command[0].to_string_lossy();
        let what = format!("cannot start {program}: {}", plain(error));
        let (id, pri) = (held.job.id, held.job.priority.0);
        let passing = matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::OutOfMemory);
        let delay = if passing {
            self.delay(tries.number())
        } else {
            0
        };
        let line = format!("release {id} {pri} {delay}");
        if let Err(reason) = held.settle(&line, &mut self.calls) {
            complain!("job {id}: {reason}");
        }
        if !passing {
            return Failure::refused(what);
        }
        self.client = held.into_client();
        self.pause(&what);
        Ok(())
    }
}

/// The variables that the command gets in its environment.
fn variables(address: &Address, facts: &Facts) -> Vec<(String, String)> {
    let mut variables = vec![(ADDRESS_VARIABLE.into(), address.to_string())];
    for (key, value) in facts.iter() {
        let name = key.to_ascii_uppercase().replace('-', "_");
        variables.push((format!("BEANPOLE_JOB_{name}"), value.into()));
    }
    variables
}

fn seconds(count: u32) -> Duration {
    Duration::from_secs(count.into())
}

fn say(held: &Held<'_>, what: &str) {
    let (id, tube) = (held.job.id, &held.job.tube);
    complain!("job {id} of {tube}: {what}");
}

fn how_it_failed(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exit status {code}"),
        (None, Some(signal)) => format!("killed by signal {signal}"),
        (None, None) => format!("{status}"),
    }
}
