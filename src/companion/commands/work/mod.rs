//! `work`: makes a worker of a command.
//!
//! Each of the `-j` slots is a thread with its own connection. It reserves a
//! job, runs the command with the job's body as standard input, and touches the
//! job meanwhile. At the end it *settles* the job: it deletes, releases or buries it.
//! The main thread waits for signals.
//!
//! Two modules make this dependable: [`held`] knows when a job is ours, and
//! [`process`] ends a command with everything that it started.
//!
//! What it leaves out: no job is certain to run exactly once. If the connection
//! is lost after a command has done its work, the server is not notified, and the job
//! runs again. This is in the nature of the protocol.

mod held;
mod process;

use crate::command::{Invocation, Run};
use crate::failure::{Failure, Outcome, Status, plain};
use crate::remote::address::ADDRESS_VARIABLE;
use crate::remote::facts::total;
use crate::remote::{Address, Client, Event, Facts, Job, Pattern, Patterns, Server};
use crate::signals::{Calls, SIGCHLD, SIGHUP, SIGINT, SIGTERM, heeded, wait_for};
use crate::text::output::complain;
use crate::values::{Count, number, parse};
use beanpole::protocol::Seconds;
use clap::{Args, ValueHint};
use held::{Held, PRECEDENCE};
use process::{Process, Variables};
use rustix::process::Signal;
use std::ffi::{OsStr, OsString};
use std::io::{self, ErrorKind};
use std::os::fd::AsFd;
use std::process::ExitStatus;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::Builder;
use std::time::{Duration, Instant};

#[derive(Args)]
#[command(override_usage = "beanpole work [OPTIONS] -- COMMAND [ARGUMENT…]")]
pub struct Work {
    /// a tube or a pattern; may be repeated (default: default)
    #[arg(short, long = "tube", value_name = "TUBE", value_parser = parse::<Pattern>)]
    tubes: Vec<Pattern>,
    /// run N at the same time (default: 1)
    #[arg(short, long, value_name = "N", default_value = "1", value_parser = |text: &str| number(text, 1..=1000))]
    jobs: u32,
    /// bury a job after this number of tries (default: never)
    #[arg(long, value_name = "N", value_parser = parse::<Count>)]
    tries: Option<Count>,
    /// the delay after the first failure, then doubling (default: 1)
    #[arg(long, value_name = "TIME", default_value = "1", value_parser = parse::<Seconds>)]
    backoff: Seconds,
    /// the longest delay (default: 3600)
    #[arg(long, value_name = "TIME", default_value = "3600", value_parser = parse::<Seconds>)]
    backoff_max: Seconds,
    /// from SIGTERM to SIGKILL for a command (default: 10)
    #[arg(long, value_name = "TIME", default_value = "10", value_parser = parse::<Seconds>)]
    grace: Seconds,
    /// the delay after exit status 75 (default: 60)
    #[arg(long, value_name = "TIME", default_value = "60", value_parser = parse::<Seconds>)]
    again: Seconds,
    /// end a command that runs longer; it has failed (default: never)
    #[arg(long, value_name = "TIME", value_parser = parse::<Seconds>)]
    timeout: Option<Seconds>,
    /// stop after N jobs
    #[arg(short = 'n', long, value_name = "N", value_parser = parse::<Count>)]
    count: Option<Count>,
    /// stop when no job is ready
    #[arg(long)]
    all: bool,
    /// say what happens to each job
    #[arg(short, long)]
    verbose: bool,
    #[arg(value_name = "COMMAND", trailing_var_arg = true, value_hint = ValueHint::CommandName)]
    command: Vec<OsString>,
}

impl Run for Work {
    fn run(self, invocation: &Invocation) -> Outcome {
        if self.command.is_empty() {
            return Failure::usage("which command?");
        }
        // Before a job spends a try on it.
        process::find(&self.command[0]).map_err(|error| no_start(&self.command[0], &error))?;
        let signals = Calls::by_signals(&heeded(&[SIGTERM, SIGINT, SIGHUP]))?;
        let made = (0..self.jobs).map(|_| Calls::by_signals(&[SIGCHLD]));
        let calls = made.collect::<Outcome<_>>()?;
        let common: &'static Common = Box::leak(Box::new(Common {
            servers: invocation.servers.clone(),
            patience: invocation.patience(),
            calls,
            ends: Calls::by_signals(&[SIGCHLD])?,
            adrift: Arc::default(),
            state: Mutex::default(),
            options: self,
        }));
        common.state().running = common.calls.len();
        let mut slots = Vec::new();
        for (number, calls) in (1..).zip(&common.calls) {
            let slot = Slot {
                common,
                calls,
                client: None,
                failures: 0,
            };
            let work = || slot.run().unwrap_or_else(|failure| common.breaks(failure));
            match Builder::new().name(format!("slot {number}")).spawn(work) {
                Ok(slot) => slots.push(slot),
                Err(error) => common.breaks(Failure::io("cannot start a thread", error)),
            }
        }
        while common.state().running > 0 {
            wait_for(&[signals.as_fd(), common.ends.as_fd()], None);
            if signals.take() {
                common.stop();
            }
            if common.ends.take() {
                process::reap_orphans();
            }
        }
        for slot in slots {
            slot.join().expect("a slot does not panic");
        }
        let mut state = common.state();
        // A run with --all or --count ends by itself, and its status says
        // whether a command has failed. Another run ends well when a signal
        // stops it.
        let is_asked = common.options.all || common.options.count.is_some();
        match state.broken.take() {
            Some(failure) => Err(failure),
            None => Ok(Status::done_if(!(is_asked && state.failed))),
        }
    }
}

/// The settings of all slots, and the state that they share.
pub struct Common {
    pub options: Work,
    /// The servers; the first one that serves is used.
    pub servers: Vec<Server>,
    /// How long the server may be silent before we give up.
    pub patience: Duration,
    /// What wakes each slot.
    calls: Vec<Calls>,
    /// What wakes the main thread when a process or a slot has ended.
    ends: Calls,
    /// Each job that runs here while no connection holds it has a clone.
    pub adrift: Arc<()>,
    /// A thread that has locked this waits for nothing else.
    state: Mutex<State>,
}

/// The state of the run.
#[derive(Default)]
pub struct State {
    /// How many slots have not ended.
    running: usize,
    /// How urgently to stop: 0 not at all, 1 after the jobs under way, 2 at
    /// once.
    stop: u8,
    /// How many jobs have been begun.
    pub begun: usize,
    /// Whether a command has failed.
    pub failed: bool,
    /// Since when there is trouble.
    lost: Option<Instant>,
    /// Why the first slot that failed could not go on.
    broken: Option<Failure>,
}

impl Common {
    pub fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A connection to the first server that serves. It watches the tubes.
    pub fn connect(&self, patience: Duration) -> Outcome<Client> {
        let mut client = Client::first_of(&self.servers, patience)?;
        self.watch(&mut client)?;
        Ok(client)
    }

    /// Has this connection watch the tubes that are meant now.
    fn watch(&self, client: &mut Client) -> Outcome<()> {
        let patterns = Patterns(self.options.tubes.clone()).or_default();
        let tubes = patterns.named(client)?;
        client.watch_only(&tubes)
    }

    pub fn stops(&self) -> bool {
        self.state().stop > 0
    }

    pub fn stops_at_once(&self) -> bool {
        self.state().stop > 1
    }

    /// Stops the run, more urgently each time.
    fn stop(&self) {
        if !self.stops() {
            complain!("stopping when the commands under way have ended");
        }
        let mut state = self.state();
        state.stop = state.stop.saturating_add(1);
        self.calls.iter().for_each(Calls::call);
    }

    /// Notes that a slot cannot go on. The others finish their present jobs.
    fn breaks(&self, failure: Failure) {
        let mut state = self.state();
        state.stop = state.stop.max(1);
        state.broken.get_or_insert(failure);
        self.calls.iter().for_each(Calls::call);
    }

    /// Whether to stop trying to settle a job with the server. `is_over` says
    /// whether the job's time to run is over.
    pub fn gives_up(&self, is_over: bool) -> bool {
        self.stops_at_once() || self.stops() && is_over
    }

    /// Whether a job of any slot is adrift.
    pub fn is_adrift(&self) -> bool {
        Arc::strong_count(&self.adrift) > 1
    }

    /// Says why something is tried again, unless another slot has said so.
    pub fn lost(&self, reason: &str) {
        let mut state = self.state();
        if state.lost.is_none() {
            state.lost = Some(Instant::now());
            complain!("{reason}; trying again");
        }
    }

    /// Says that the server can be reached again, and after how long.
    pub fn found(&self, address: &Address) {
        if let Some(since) = self.state().lost.take() {
            let seconds = since.elapsed().as_secs();
            complain!("connected to {address} again after {seconds} s");
        }
    }

    /// Asks for permission to begin a job, and counts it as begun.
    pub fn may_begin(&self) -> bool {
        let mut state = self.state();
        let most = Count::most(self.options.count);
        let may = state.stop == 0 && state.begun < most;
        state.begun += usize::from(may);
        may
    }
}

/// One slot: again and again it reserves a job, runs the command for it, and
/// settles it.
///
/// Only the server can count how often a job has been tried, because workers come
/// and go. Its counters do not say which worker reserved a job and why, but they say
/// how a reservation ended. A release counts as a failure. A
/// timeout does as well: the command was too slow. A reservation that ended
/// without a trace may come from a command that killed its worker, or from a
/// restart of the server; these are counted separately. A burial ends a round:
/// if the job becomes ready again, it may be tried as often as before.
struct Slot {
    common: &'static Common,
    calls: &'static Calls,
    client: Option<Client>,
    /// How many attempts to connect have failed in a row.
    failures: u32,
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.common.state().running -= 1;
        self.common.ends.call();
    }
}

/// How a run of the command ended.
enum Ending {
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

/// How long to wait when something has failed that often in a row before.
pub fn wait_after(failures: u32) -> Duration {
    let wait = Duration::from_millis(500) * 2u32.saturating_pow(failures.min(10));
    wait.min(LONGEST_PAUSE)
}

impl Slot {
    /// Works until the run ends. An error means that the slot cannot go on.
    fn run(mut self) -> Outcome<()> {
        while self.common.may_begin()
            && let Some(held) = self.reserve()?
        {
            self.work_on(held)?;
        }
        Ok(())
    }

    /// The next job; `None` ends the slot.
    fn reserve(&mut self) -> Outcome<Option<Held>> {
        let until_idle = self.common.options.all;
        while !self.common.stops() {
            let held = match self.try_to_reserve() {
                Ok(Some((client, job, asked))) => Held::new(self.common, client, job, asked),
                Ok(None) if until_idle => break,
                Ok(None) => continue,
                Err(failure) => Err(failure),
            };
            match held {
                Ok(Some(held)) => return Ok(Some(held)),
                Ok(None) => {}
                Err(Failure::Unreachable(reason) | Failure::Missing(reason)) if !until_idle => {
                    self.pause(&reason);
                }
                Err(failure) => return Err(failure),
            }
        }
        Ok(None)
    }

    /// Waits for a job for a while, or until the run is to stop. It comes with the connection
    /// that holds it and the time when it was asked for.
    fn try_to_reserve(&mut self) -> Outcome<Option<(Client, Job, Instant)>> {
        let common = self.common;
        while common.is_adrift() && !common.stops() {
            self.rest(LOOK);
        }
        let mut client = match self.client.take() {
            Some(client) => client,
            None => common.connect(common.patience)?,
        };
        let wait = if common.options.all { 0 } else { WAIT };
        let line = client.reserve(Some(wait))?;
        // It has answered: one that has no place for us may close the connection first.
        if std::mem::take(&mut self.failures) > 0 {
            common.found(&client.address);
            self.rest(PRECEDENCE);
        }
        let asked = Instant::now();
        client.queue(&line);
        let until = asked + Duration::from_secs(wait) + common.patience;
        while !common.stops() {
            let reply = match client.wait(Some(until), &[self.calls.as_fd()])? {
                Event::Reply(reply) => client.understand(reply)?,
                Event::Time => return Err(client.silent()),
                Event::Other => {
                    self.calls.take();
                    continue;
                }
            };
            if let Some(job) = reply.job(&line)? {
                return Ok(Some((client, job, asked)));
            }
            // A pattern may mean more tubes by now.
            common.watch(&mut client)?;
            self.client = Some(client);
            return Ok(None);
        }
        // The connection is closed. If a job is on its way to us, the server
        // makes it ready again.
        Ok(None)
    }

    /// Waits before the next attempt; each failure makes the wait longer.
    fn pause(&mut self, reason: &str) {
        self.common.lost(reason);
        self.failures += 1;
        self.rest(wait_after(self.failures - 1));
    }

    /// Waits for this time, or until the run is to stop.
    fn rest(&mut self, time: Duration) {
        let until = Instant::now() + time;
        while Instant::now() < until && !self.common.stops() {
            // The end of any slot's command wakes every slot.
            self.calls.wait(Some(until));
        }
    }

    fn work_on(&mut self, mut held: Held) -> Outcome<()> {
        let options = &self.common.options;
        let tries = Tries::of(&held.job.all);
        let limit = options.tries.map(|Count(tries)| tries.into());
        if let Some(count) = limit.and_then(|limit| tries.vanished(limit)) {
            let what = format!("reserved {count} times to no end; buried without another try");
            let line = format!("bury {} {}", held.job.id, held.job.priority.0);
            self.settle(&mut held, &line, &what, true);
        } else {
            let variables = variables(&held.address, &held.job.all);
            let begun = match Process::start(&options.command, &held.body, variables) {
                Ok(process) => self.supervise(process, &mut held),
                Err(error) => return self.cannot_start(held, tries, &error),
            };
            let run = begun.map_err(Failure::of("cannot wait for the command"))?;
            self.finish(&mut held, tries, run);
        }
        self.client = held.into_client();
        Ok(())
    }

    /// Keeps the job until the command has ended. Ends the command if the job
    /// is lost, the command's time is over, or we have to stop at once.
    fn supervise(&mut self, process: Process, held: &mut Held) -> io::Result<Ending> {
        let timeout = self.common.options.timeout;
        let times_out = timeout.map(|Seconds(time)| Instant::now() + seconds(time));
        // Why the command is being ended, and when SIGKILL follows.
        let mut ending: Option<(Ending, Instant)> = None;
        loop {
            if process.has_ended()? {
                let Some((why, _)) = ending else {
                    return process.status().map(Ending::Ended);
                };
                // The processes that the command left behind end now.
                process.signal(Signal::KILL);
                process.status()?;
                return Ok(why);
            }
            let now = Instant::now();
            let why = match (held.loss(), &ending) {
                (Some(reason), None | Some((Ending::Stopped | Ending::TimedOut, _))) => {
                    Some(Ending::Lost(reason.into()))
                }
                (None, None) if self.common.stops_at_once() => Some(Ending::Stopped),
                (None, None) if times_out.is_some_and(|at| now >= at) => Some(Ending::TimedOut),
                _ => None,
            };
            if let Some(why) = why {
                process.signal(Signal::TERM);
                ending = Some((why, now + seconds(self.common.options.grace.0)));
            }
            if let Some((_, kill_at)) = &mut ending
                && now >= *kill_at
            {
                process.signal(Signal::KILL);
                *kill_at = now + Duration::from_secs(1);
            }
            held.keep(self.calls, ending.as_ref().map(|(_, at)| *at).or(times_out));
            self.calls.take();
        }
    }

    /// Decides what to do with the job, according to the end of its command.
    fn finish(&mut self, held: &mut Held, tries: Tries, run: Ending) {
        let (id, pri) = (held.job.id, held.job.priority.0);
        let options = &self.common.options;
        let bury = format!("bury {id} {pri}");
        let release = |delay: u64| format!("release {id} {pri} {delay}");
        let failure = match run {
            Ending::Lost(reason) => {
                return self.report(held, &format!("{reason}; the command was ended"), true);
            }
            Ending::Stopped => return self.settle(held, &release(0), "stopped; released", true),
            Ending::TimedOut => "it ran too long".into(),
            Ending::Ended(status) => match status.code() {
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
        let limit = options.tries.map(|Count(tries)| tries.into());
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
        match held.settle(line, self.calls) {
            Ok(()) => self.report(held, what, is_failure),
            Err(reason) => self.report(held, &format!("{what}, but {reason}"), true),
        }
    }

    /// Reports what happened to a job, if it is a failure or all is wanted.
    fn report(&self, held: &Held, what: &str, is_failure: bool) {
        self.common.state().failed |= is_failure;
        if is_failure || self.common.options.verbose {
            let (job, at) = (&held.job, held.at());
            complain!("job {} of {}{at}: {what}", job.id, job.tube);
        }
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
        let failure = no_start(&self.common.options.command[0], error);
        let (id, pri) = (held.job.id, held.job.priority.0);
        let passing = matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::OutOfMemory);
        let delay = if passing { self.delay(tries) } else { 0 };
        let line = format!("release {id} {pri} {delay}");
        if let Err(reason) = held.settle(&line, self.calls) {
            complain!("job {id}{}: {reason}", held.at());
        }
        if !passing {
            return Err(failure);
        }
        self.client = held.into_client();
        self.pause(&failure.to_string());
        Ok(())
    }
}

fn no_start(program: &OsStr, error: &io::Error) -> Failure {
    let program = program.to_string_lossy();
    Failure::Refused(format!("cannot start {program}: {}", plain(error)))
}

/// The variables that the command gets in its environment.
fn variables(address: &Address, facts: &Facts) -> Variables {
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

impl Tries {
    /// Reads the counters of a job that has just been reserved.
    fn of(facts: &Facts) -> Tries {
        let failed = total(["releases", "timeouts"].map(|key| facts.number(key)));
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
    fn reservations_that_ended_with_neither_release_nor_timeout_are_counted_separately() {
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
