//! One slot: again and again it reserves a job, runs the command for it, and
//! settles it.
//!
//! How often a job has been tried, only the server can count, because workers
//! come and go. Its counters do not tell which worker reserved a job and why,
//! but they tell how a reservation ended. A release counts as a failure. A
//! timeout does as well: the command was too slow. A reservation that ended
//! without a trace may come from a command that killed its worker, or from a
//! restart of the server; these are counted separately. A burial ends a round:
//! if somebody makes the job ready again, it may be tried as often as before.

use super::Common;
use super::held::{Held, PRECEDENCE};
use super::process::Process;
use crate::failure::{Failure, Outcome, plain};
use crate::server::address::{ADDRESS_VARIABLE, Address};
use crate::server::client::{self, Client, Event};
use crate::server::reply::Job;
use crate::server::stats::Facts;
use crate::signals::Calls;
use crate::text::output::complain;
use beanpole::protocol::Seconds;
use nix::sys::signal::Signal;
use std::io::{self, ErrorKind};
use std::num::NonZeroU64;
use std::os::fd::AsFd;
use std::process::ExitStatus;
use std::time::{Duration, Instant};

/// One slot.
pub struct Slot {
    common: &'static Common,
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

/// What happened to a job before its present reservation.
#[derive(Clone, Copy)]
struct Tries {
    /// Reservations that ended in a failure.
    failed: u64,
    /// Reservations that ended without a trace.
    vanished: u64,
    /// The number of burials, plus one.
    rounds: u64,
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

impl Slot {
    pub fn new(common: &'static Common, calls: Calls) -> Slot {
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
        let common = self.common;
        while common.is_adrift() && !common.stops() {
            self.rest(LOOK);
        }
        let mut client = match self.client.take() {
            Some(client) => client,
            None => {
                let mut client = Client::first_of(&common.addresses, common.patience)?;
                client.watch_only(&common.options.tubes)?;
                client
            }
        };
        if std::mem::take(&mut self.failures) > 0 {
            common.found(&client.address);
            self.rest(PRECEDENCE);
        }
        let wait = if common.options.all { 0 } else { WAIT };
        client.queue(format_args!("reserve-with-timeout {wait}"));
        let until = Instant::now() + Duration::from_secs(wait) + common.patience;
        while !common.stops() {
            let reply = match client.wait(Some(until), &[self.calls.as_fd()])? {
                Event::Reply(reply) => client.understand(reply)?,
                Event::Time => return Err(client.silent()),
                Event::Other => {
                    self.calls.take();
                    continue;
                }
            };
            let job = client::job("reserve-with-timeout", reply)?;
            self.client = Some(client);
            return Ok(job);
        }
        // The connection is closed. If a job is on its way to us, the server
        // makes it ready again.
        Ok(None)
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
        let gone = || Failure::Missing("gone before the command was started".into());
        let held = Held::new(self.common, client, job).and_then(|held| held.ok_or_else(gone));
        let mut held = match held {
            Ok(held) => held,
            Err(failure @ Failure::Refused(_)) => return Err(failure),
            Err(reason) => {
                complain!("job {id}: {reason}");
                self.common.state().begun -= 1;
                return Ok(());
            }
        };
        let options = &self.common.options;
        let tries = Tries::of(&held.job.all);
        let limit = options.tries.map(NonZeroU64::get);
        if let Some(count) = limit.and_then(|limit| tries.vanished(limit)) {
            let what = format!("reserved {count} times to no end; buried without another try");
            let line = format!("bury {id} {}", held.job.priority.0);
            self.settle(&mut held, &line, &what, true);
        } else {
            let variables = variables(&address, &held.job.all);
            let run = match Process::start(&options.command, &held.body, variables) {
                Ok(process) => self.supervise(process, &mut held),
                Err(error) => return self.cannot_start(held, tries, &error),
            };
            let run = run.map_err(Failure::of("cannot wait for the command"))?;
            self.finish(&mut held, tries, run);
        }
        self.client = held.into_client();
        Ok(())
    }

    /// Keeps the job until the command has ended. Ends the command if the job
    /// is lost, the command's time is over, or we have to stop at once.
    fn supervise(&mut self, process: Process, held: &mut Held) -> io::Result<Run> {
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
    fn finish(&mut self, held: &mut Held, tries: Tries, run: Run) {
        let (id, pri) = (held.job.id, held.job.priority.0);
        let options = &self.common.options;
        let bury = format!("bury {id} {pri}");
        let release = |delay: u64| format!("release {id} {pri} {delay}");
        let failure = match run {
            Run::Lost(reason) => {
                return self.report(held, &format!("{reason}; the command was ended"));
            }
            Run::Stopped => return self.settle(held, &release(0), "stopped; released", true),
            Run::TimedOut => "it ran too long".into(),
            Run::Ended(status) => match status.code() {
                Some(0) => return self.settle(held, &format!("delete {id}"), "done", false),
                Some(BURY) => return self.settle(held, &bury, "exit status 65; buried", true),
                Some(AGAIN) => {
                    let Seconds(again) = options.again;
                    let what = format!("exit status 75; delayed for {again} s");
                    return self.settle(held, &release(again.into()), &what, true);
                }
                _ => status.to_string().replace(": ", " "),
            },
        };
        let failure = format!("{failure} at try {}", tries.number());
        let limit = options.tries.map(NonZeroU64::get);
        if limit.is_some_and(|limit| tries.is_last_of(limit)) {
            self.settle(held, &bury, &format!("{failure}; buried"), true);
        } else {
            let delay = self.delay(tries);
            let what = format!("{failure}; delayed for {delay} s");
            self.settle(held, &release(delay), &what, true);
        }
    }

    /// Settles the job with the server, and reports what happened.
    fn settle(&mut self, held: &mut Held, line: &str, what: &str, is_failure: bool) {
        match held.settle(line, &mut self.calls) {
            Ok(()) if is_failure => self.report(held, what),
            Ok(()) if self.common.options.verbose => say(held, what),
            Ok(()) => {}
            Err(reason) => self.report(held, &format!("{what}, but {reason}")),
        }
    }

    /// Reports that something went wrong with a job.
    fn report(&self, held: &Held, what: &str) {
        self.common.state().failed = true;
        say(held, what);
    }

    /// The delay after this try, in seconds.
    fn delay(&self, tries: Tries) -> u64 {
        let options = &self.common.options;
        let doublings = u32::try_from(tries.failed).unwrap_or(u32::MAX);
        let delay = u64::from(options.backoff.0).saturating_mul(2u64.saturating_pow(doublings));
        delay.min(options.backoff_max.0.into())
    }

    /// Gives the job back. If the system is short of something, the slot tries
    /// again later. After any other error, such as a missing program, the other
    /// jobs would fare no better, so the run ends.
    fn cannot_start(&mut self, mut held: Held, tries: Tries, error: &io::Error) -> Outcome<()> {
        let program = self.common.options.command[0].to_string_lossy();
        let what = format!("cannot start {program}: {}", plain(error));
        let (id, pri) = (held.job.id, held.job.priority.0);
        let passing = matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::OutOfMemory);
        let delay = if passing { self.delay(tries) } else { 0 };
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

fn say(held: &Held, what: &str) {
    let (id, tube) = (held.job.id, &held.job.tube);
    complain!("job {id} of {tube}: {what}");
}

impl Tries {
    /// Reads the counters of a job that has just been reserved.
    fn of(facts: &Facts) -> Tries {
        let failed = facts.number("releases") + facts.number("timeouts");
        let buries = facts.number("buries");
        let ended = failed.saturating_add(buries).saturating_add(1);
        Tries {
            failed,
            vanished: facts.number("reserves").saturating_sub(ended),
            rounds: buries.saturating_add(1),
        }
    }

    /// The number of the present try, from 1 on.
    fn number(self) -> u64 {
        self.failed.saturating_add(1)
    }

    /// Whether the present try is the last one, if `limit` tries are allowed in
    /// a round.
    fn is_last_of(self, limit: u64) -> bool {
        self.failed >= (limit - 1).saturating_mul(self.rounds)
    }

    /// How many reservations ended without a trace, if `limit` allows no more.
    fn vanished(self, limit: u64) -> Option<u64> {
        (self.vanished >= limit.saturating_mul(self.rounds)).then_some(self.vanished)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tries(reserves: u64, releases: u64, timeouts: u64, buries: u64) -> Tries {
        let text = format!(
            "reserves: {reserves}\nreleases: {releases}\ntimeouts: {timeouts}\nburies: {buries}\n"
        );
        Tries::of(&Facts::parse(text.as_bytes()).unwrap())
    }

    #[test]
    fn releases_and_timeouts_count_as_tries_and_a_burial_resets_them() {
        for (tries, number, is_last) in [
            (tries(1, 0, 0, 0), 1, false),
            (tries(2, 1, 0, 0), 2, false),
            (tries(3, 1, 1, 0), 3, true),
            (tries(4, 1, 1, 1), 3, false),
            (tries(6, 3, 1, 1), 5, true),
            // Reservations that ended without a trace are no tries.
            (tries(9, 1, 0, 0), 2, false),
        ] {
            assert_eq!((tries.number(), tries.is_last_of(3)), (number, is_last));
        }
        assert!(tries(1, 0, 0, 0).is_last_of(1));
    }

    #[test]
    fn reservations_that_ended_without_a_trace_are_counted_separately() {
        for (tries, vanished) in [
            (tries(1, 0, 0, 0), None),
            (tries(3, 0, 0, 0), None),
            (tries(4, 0, 0, 0), Some(3)),
            (tries(4, 1, 0, 0), None),
            (tries(5, 0, 0, 1), None),
            (tries(8, 0, 0, 1), Some(6)),
            // beanstalkd forgets reservations when it is restarted.
            (tries(0, 0, 0, 0), None),
        ] {
            assert_eq!(tries.vanished(3), vanished);
        }
    }
}
