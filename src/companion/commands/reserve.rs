//! `reserve`: takes jobs, writes their bodies, and settles them.
//!
//! A job is deleted or buried only after its body has been handed to the
//! system and, if the output is a pipe, has been read from it. What is to be
//! released is kept until the end, or the same job would come again at once;
//! until then it is touched. Many jobs are kept by several connections: what
//! beanstalkd does for one of them takes the longer, the more jobs that has.

use crate::command::{
    BODY_JSON, BODY_LINES, BODY_NULL, Command, DELAY, Invocation, Opt, PRIORITY, TUBES,
    at_most_one, described, options, tubes_or_default,
};
use crate::failure::{Failure, Outcome, Status};
use crate::server::by_id::send_each;
use crate::server::client::{self, Client, Event, Terms};
use crate::server::form::Form;
use crate::server::reply::{Job, Reply};
use crate::server::stats::{Facts, JobFacts};
use crate::server::take::{Room, reserve_now};
use crate::text::output::{Output, Progress, complain};
use beanpole::protocol::{JobId, Priority, Seconds, TubeName};
use std::collections::HashSet;
use std::num::NonZeroU64;
use std::time::{Duration, Instant};

pub const RESERVE: Command = Command {
    name: "reserve",
    about: "take jobs and write their bodies; release, delete or bury them then",
    options: || described(OPTIONS),
    run: reserve,
    ..Command::BLANK
};

options! {
    tubes: Vec<TubeName> = TUBES,
    count: Option<NonZeroU64> = Opt::value("n", "count", "N", "take so many (default: 1)"),
    all: bool = Opt::flag("", "all", "take all that are ready"),
    timeout: Option<Seconds> =
        Opt::value("w", "timeout", "TIME",
            "wait so long for each (default: for ever; --all: 0)"),
    delete: bool = Opt::flag("", "delete", "delete them once their bodies are written"),
    bury: bool = Opt::flag("", "bury", "bury them once their bodies are written"),
    release: bool = Opt::flag("", "release", "release them at the end (the default)"),
    priority: Option<Priority> = PRIORITY,
    delay: Option<Seconds> = DELAY,
    lines: bool = BODY_LINES,
    null: bool = BODY_NULL,
    json: bool = BODY_JSON,
}

/// What is done with a job when its body has been written.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Settle {
    Delete,
    Bury,
    Release,
}

/// Who takes so long to read a body has its job touched: no time to run is
/// less than a second.
const SLOW: Duration = Duration::from_millis(300);

fn reserve(invocation: &Invocation) -> Outcome {
    let options = invocation.read(OPTIONS)?;
    invocation.no_operands()?;
    at_most_one(&[
        ("delete", options.delete),
        ("bury", options.bury),
        ("release", options.release),
    ])?;
    let all = options.all;
    at_most_one(&[("count", options.count.is_some()), ("all", all)])?;
    let settle = match (options.delete, options.bury) {
        (true, _) => Settle::Delete,
        (_, true) => Settle::Bury,
        _ => Settle::Release,
    };
    let form = Form::of(options.lines, options.null, options.json)?;
    let tubes = tubes_or_default(options.tubes);
    let timeout = options.timeout.or(all.then_some(Seconds(0)));
    let wanted = match options.count {
        Some(count) => count.get(),
        None if all => u64::MAX,
        None => 1,
    };
    let mut taker = Taker {
        settle,
        priority: options.priority,
        delay: options.delay.unwrap_or(Seconds(0)),
        needs_facts: settle != Settle::Delete || form == Form::Json,
        client: connect(invocation, &tubes)?,
        held: Held::default(),
        before: Vec::new(),
        seen: HashSet::new(),
    };
    let mut output = Output::new();
    let mut taken = 0;
    let mut room = Room::default();
    let mut settled = true;
    let mut progress = Progress::beside_output("reserving");
    while taken < wanted {
        taker.touch_held(true)?;
        if taker.held.jobs.len() >= KEPT_BY_ONE {
            taker.go_on_with(connect(invocation, &tubes)?);
        }
        let most = usize::try_from(wanted - taken)
            .unwrap_or(usize::MAX)
            .min(room.jobs());
        let since = Instant::now();
        let batch = taker.take(timeout, most)?;
        if batch.is_empty() {
            break;
        }
        for (job, facts) in &batch {
            form.write(&mut output, job, facts.as_ref())?;
        }
        output.sync()?;
        let ids = batch.iter().map(|(job, _)| job.id);
        while taker.settle != Settle::Release && !output.is_read_within(SLOW)? {
            touch(&mut taker.client, ids.clone())?;
        }
        taken += batch.len() as u64;
        progress.add(batch.len() as u64);
        room.learn(batch.iter().map(|(job, _)| job.body.len()));
        settled &= taker.settle(batch, since)?;
    }
    drop(progress);
    settled &= taker.release_held()?;
    Ok(Status::done_if(
        settled && if all { taken > 0 } else { taken == wanted },
    ))
}

/// A connection that takes jobs from these tubes.
fn connect(invocation: &Invocation, tubes: &[TubeName]) -> Outcome<Client> {
    let mut client = invocation.connect()?;
    client.watch_only(tubes)?;
    Ok(client)
}

/// Renews the time to run of these jobs; who does not hear of one that is over,
/// hears of it when it is settled.
fn touch(client: &mut Client, ids: impl IntoIterator<Item = JobId>) -> Outcome<()> {
    send_each(client, ids, "touch", &Reply::Touched).map(drop)
}

/// As many jobs are kept by one connection.
const KEPT_BY_ONE: usize = 2000;

type Taken = (Job, Option<Facts>);

/// What one connection keeps to release it at the end.
#[derive(Default)]
struct Held {
    jobs: Vec<(JobId, Priority)>,
    /// A third of the shortest time to run.
    pause: Option<Duration>,
    /// When all were touched, or the first one was taken.
    touched: Option<Instant>,
}

impl Held {
    fn add(&mut self, id: JobId, priority: Priority, ttr: Seconds, since: Instant) {
        let pause = Duration::from_secs(ttr.0.max(1).into()) / 3;
        self.jobs.push((id, priority));
        self.pause = Some(self.pause.map_or(pause, |shortest| shortest.min(pause)));
        self.touched.get_or_insert(since);
    }

    /// When to touch them.
    fn due(&self) -> Option<Instant> {
        Some(self.touched? + self.pause?)
    }

    fn touch(&mut self, client: &mut Client) -> Outcome<()> {
        self.touched = Some(Instant::now());
        touch(client, self.jobs.iter().map(|(id, _)| *id))
    }
}

struct Taker {
    settle: Settle,
    /// The priority with which jobs are buried or released, if not their own.
    priority: Option<Priority>,
    delay: Seconds,
    needs_facts: bool,
    /// The connection that takes jobs, and what it keeps.
    client: Client,
    held: Held,
    /// Those that took jobs before it.
    before: Vec<(Client, Held)>,
    /// All that are kept.
    seen: HashSet<JobId>,
}

impl Taker {
    /// Takes over from the connection that has enough.
    fn go_on_with(&mut self, client: Client) {
        let full = std::mem::replace(&mut self.client, client);
        self.before.push((full, std::mem::take(&mut self.held)));
    }

    /// Touches the jobs of those connections that are due; the one that takes
    /// jobs may be waiting for one.
    fn touch_held(&mut self, with_taker: bool) -> Outcome<()> {
        let now = Instant::now();
        let taker = with_taker.then_some((&mut self.client, &mut self.held));
        let before = self.before.iter_mut().map(|(client, held)| (client, held));
        for (client, held) in before.chain(taker) {
            if held.due().is_some_and(|due| due <= now) {
                held.touch(client)?;
            }
        }
        Ok(())
    }

    /// Reserves up to so many jobs: waits for the first as long as told, and
    /// takes what else is there. None: there was no job, or they begin again.
    fn take(&mut self, timeout: Option<Seconds>, most: usize) -> Outcome<Vec<Taken>> {
        let Some(first) = self.wait_for_one(timeout)? else {
            return Ok(Vec::new());
        };
        let mut jobs = vec![first];
        jobs.extend(reserve_now(&mut self.client, most - 1)?);
        let again = |job: &Job| self.seen.contains(&job.id);
        let fresh = jobs.iter().position(again).unwrap_or(jobs.len());
        jobs.truncate(fresh);
        self.with_facts(jobs)
    }

    fn wait_for_one(&mut self, timeout: Option<Seconds>) -> Outcome<Option<Job>> {
        let until = timeout.map(|Seconds(s)| Instant::now() + Duration::from_secs(s.into()));
        loop {
            match until {
                None => self.client.queue("reserve"),
                Some(until) => {
                    let left = until.saturating_duration_since(Instant::now());
                    let seconds = left.as_millis().div_ceil(1000);
                    self.client
                        .queue(format_args!("reserve-with-timeout {seconds}"));
                }
            }
            let latest = until.map(|until| until + self.client.patience());
            match self.reply_until(latest)? {
                Reply::Reserved(job) => return Ok(Some(job)),
                Reply::TimedOut => return Ok(None),
                // A job that is to be released at the end needs more time, and
                // no other is ready.
                Reply::DeadlineSoon => {
                    self.held.touch(&mut self.client)?;
                    if until.is_some_and(|until| until <= Instant::now()) {
                        return Ok(None);
                    }
                    std::thread::sleep(Duration::from_millis(100));
                }
                other => return Err(Failure::unexpected("reserve", &other)),
            }
        }
    }

    /// The reply to the taking connection. Meanwhile the others are touched;
    /// of its own jobs the server says when their time comes to an end.
    fn reply_until(&mut self, latest: Option<Instant>) -> Outcome<Reply> {
        loop {
            let due = self.before.iter().filter_map(|(_, held)| held.due());
            let until = due.chain(latest).min();
            match self.client.wait(until, &[])? {
                Event::Reply(reply) => return self.client.understand(reply),
                _ if latest.is_some_and(|latest| latest <= Instant::now()) => {
                    return Err(self.client.silent());
                }
                _ => self.touch_held(false)?,
            }
        }
    }

    fn with_facts(&mut self, jobs: Vec<Job>) -> Outcome<Vec<Taken>> {
        if !self.needs_facts {
            return Ok(jobs.into_iter().map(|job| (job, None)).collect());
        }
        for job in &jobs {
            self.client.queue(format_args!("stats-job {}", job.id));
        }
        let mut taken = Vec::new();
        for job in jobs {
            let asked = format!("stats-job {}", job.id);
            let reply = self.client.reply()?;
            taken.push((job, client::facts(&asked, reply)?));
        }
        Ok(taken)
    }

    /// Deletes or buries a batch that was taken then, or remembers it for later.
    /// Whether all were still ours.
    fn settle(&mut self, batch: Vec<Taken>, since: Instant) -> Outcome<bool> {
        let mut ids = Vec::new();
        for (job, facts) in batch {
            let facts = facts.and_then(|facts| JobFacts::read(facts).ok());
            let own = facts.as_ref().map(|facts| facts.priority);
            let priority = self.priority.or(own).unwrap_or(Terms::PRIORITY);
            match self.settle {
                Settle::Delete => self.client.queue(format_args!("delete {}", job.id)),
                Settle::Bury => self
                    .client
                    .queue(format_args!("bury {} {}", job.id, priority.0)),
                Settle::Release => {
                    let ttr = facts.map_or(Seconds(0), |facts| facts.ttr);
                    self.held.add(job.id, priority, ttr, since);
                    self.seen.insert(job.id);
                    continue;
                }
            }
            ids.push(job.id);
        }
        settled(&mut self.client, ids.into_iter())
    }

    fn release_held(mut self) -> Outcome<bool> {
        let mut all = true;
        loop {
            let Taker {
                client,
                held,
                delay,
                ..
            } = &mut self;
            for (id, Priority(pri)) in &held.jobs {
                client.queue(format_args!("release {id} {pri} {}", delay.0));
            }
            all &= settled(client, held.jobs.drain(..).map(|(id, _)| id))?;
            self.touch_held(false)?;
            match self.before.pop() {
                Some((client, held)) => (self.client, self.held) = (client, held),
                None => return Ok(all),
            }
        }
    }
}

/// Whether all of these were still ours when they were settled.
fn settled(client: &mut Client, ids: impl Iterator<Item = JobId>) -> Outcome<bool> {
    let mut all = true;
    for id in ids {
        match client.reply()? {
            Reply::Deleted | Reply::Buried(_) | Reply::Released => {}
            Reply::NotFound => {
                all = false;
                complain(format_args!(
                    "beanpole reserve: job {id}: its time to run was over before it was settled"
                ));
            }
            other => return Err(Failure::unexpected(format_args!("job {id}"), &other)),
        }
    }
    Ok(all)
}
