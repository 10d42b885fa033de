//! `reserve`: takes jobs, writes their bodies, and then deletes, buries or
//! releases them.
//!
//! A job is deleted or buried only after its body has been given to the system
//! and, if the output is a pipe, has been read from the pipe. Jobs that are to
//! be released are kept and touched until the end; otherwise the same job would
//! come again at once. Many jobs are kept by several connections: the more jobs
//! a connection has, the longer beanstalkd takes for each of them.

use crate::command::{
    BODY_JSON, BODY_LINES, BODY_NULL, Command, DELAY, Invocation, Opt, PRIORITY, TUBES,
    at_most_one, described, options,
};
use crate::failure::{Failure, Outcome, Status};
use crate::server::by_id::send_each;
use crate::server::client::{self, Client, Event, Terms};
use crate::server::form::Form;
use crate::server::reply::{Job, Reply};
use crate::server::stats::{Facts, JobFacts};
use crate::server::take::{Room, reserve_now};
use crate::server::tubes::{Pattern, Patterns};
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
    tubes: Vec<Pattern> = TUBES,
    count: Option<NonZeroU64> = Opt::value("n", "count", "N", "take N jobs (default: 1)"),
    all: bool = Opt::flag("", "all", "take all that are ready"),
    timeout: Option<Seconds> =
        Opt::value("w", "timeout", "TIME",
            "wait TIME for each (default: for ever; --all: 0)"),
    delete: bool = Opt::flag("", "delete", "delete them once their bodies are written"),
    bury: bool = Opt::flag("", "bury", "bury them once their bodies are written"),
    release: bool = Opt::flag("", "release", "release them at the end (the default)"),
    priority: Option<Priority> = PRIORITY,
    delay: Seconds = DELAY => Seconds(0),
    lines: bool = BODY_LINES,
    null: bool = BODY_NULL,
    json: bool = BODY_JSON,
}

/// What is done with a job after its body has been written.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Settle {
    Delete,
    Bury,
    Release,
}

/// If the reader of the output needs longer than this, the jobs are touched: a
/// time to run is one second at least.
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
    let tubes = Patterns(options.tubes).or_default();
    let mut client = invocation.connect()?;
    let tubes = tubes.named(&mut client)?;
    let timeout = options.timeout.or(all.then_some(Seconds(0)));
    let wanted = match options.count {
        Some(count) => count.get(),
        None if all => u64::MAX,
        None => 1,
    };
    let mut taker = Taker {
        settle,
        priority: options.priority,
        needs_facts: settle != Settle::Delete || form == Form::Json,
        hands: vec![Hand::new(client, &tubes)?],
        seen: HashSet::new(),
    };
    let mut output = Output::new();
    let mut taken = 0;
    let mut room = Room::default();
    let mut settled = true;
    let mut progress = Progress::beside_output("reserving");
    while taken < wanted {
        taker.touch_held(0)?;
        if taker.hands[0].jobs.len() >= KEPT_BY_ONE {
            let client = invocation.connect()?;
            taker.hands.insert(0, Hand::new(client, &tubes)?);
        }
        let left = usize::try_from(wanted - taken).unwrap_or(usize::MAX);
        let since = Instant::now();
        let batch = taker.take(timeout, left.min(room.jobs()))?;
        if batch.is_empty() {
            break;
        }
        for (job, facts) in &batch {
            form.write(&mut output, job, facts.as_ref())?;
        }
        output.sync()?;
        let ids = batch.iter().map(|(job, _)| job.id);
        while settle != Settle::Release && !output.is_read_within(SLOW)? {
            touch(&mut taker.hands[0].client, ids.clone())?;
        }
        taken += batch.len() as u64;
        progress.add(batch.len() as u64);
        room.learn(batch.iter().map(|(job, _)| job.body.len()));
        settled &= taker.settle(batch, since)?;
    }
    drop(progress);
    while !taker.hands.is_empty() {
        settled &= taker.hands.remove(0).release(options.delay)?;
        taker.touch_held(0)?;
    }
    Ok(Status::done_if(
        settled && if all { taken > 0 } else { taken == wanted },
    ))
}

/// Renews the time to run of these jobs. If the time of a job is over, this is
/// reported when the job is settled.
fn touch(client: &mut Client, ids: impl IntoIterator<Item = JobId>) -> Outcome<()> {
    send_each(client, ids, "touch").map(drop)
}

/// A connection that keeps this many jobs takes no more.
const KEPT_BY_ONE: usize = 2000;

type Taken = (Job, Option<Facts>);

/// A connection, and the jobs that it keeps until they are released at the end.
struct Hand {
    client: Client,
    jobs: Vec<(JobId, Priority)>,
    /// A third of the shortest time to run of these jobs.
    pause: Duration,
    /// When the jobs were last touched, or else when the first one was taken.
    touched: Instant,
}

impl Hand {
    /// Has a connection take jobs from these tubes.
    fn new(mut client: Client, tubes: &[TubeName]) -> Outcome<Hand> {
        client.watch_only(tubes)?;
        Ok(Hand {
            client,
            jobs: Vec::new(),
            pause: Duration::MAX,
            touched: Instant::now(),
        })
    }

    fn keep(&mut self, id: JobId, priority: Priority, ttr: Seconds, since: Instant) {
        if self.jobs.is_empty() {
            self.touched = since;
        }
        self.jobs.push((id, priority));
        let pause = Duration::from_secs(ttr.0.max(1).into()) / 3;
        self.pause = self.pause.min(pause);
    }

    /// When the jobs have to be touched next.
    fn due(&self) -> Option<Instant> {
        self.touched.checked_add(self.pause)
    }

    fn touch(&mut self) -> Outcome<()> {
        self.touched = Instant::now();
        touch(&mut self.client, self.jobs.iter().map(|(id, _)| *id))
    }

    fn release(mut self, Seconds(delay): Seconds) -> Outcome<bool> {
        for (id, Priority(pri)) in &self.jobs {
            self.client
                .queue(format_args!("release {id} {pri} {delay}"));
        }
        settled(&mut self.client, self.jobs.iter().map(|(id, _)| *id))
    }
}

struct Taker {
    settle: Settle,
    /// The priority for jobs that are buried or released; if `None`, each keeps
    /// its own.
    priority: Option<Priority>,
    needs_facts: bool,
    /// The first connection takes jobs; the others have enough and keep theirs.
    hands: Vec<Hand>,
    /// The ids of all jobs that are kept.
    seen: HashSet<JobId>,
}

impl Taker {
    /// Touches the jobs of each connection for which it is time, beginning with
    /// the index `from`. While the first one, which takes jobs, waits for a
    /// reply, that is 1.
    fn touch_held(&mut self, from: usize) -> Outcome<()> {
        let now = Instant::now();
        let is_due = |hand: &&mut Hand| hand.due().is_some_and(|due| due <= now);
        let mut due = self.hands[from..].iter_mut().filter(is_due);
        due.try_for_each(Hand::touch)
    }

    /// Reserves up to `most` jobs: waits for the first one up to the timeout,
    /// then takes others that are ready. Returns none if no job came, or if the
    /// first one is kept already: then its time to run was over, and the jobs
    /// begin again.
    fn take(&mut self, timeout: Option<Seconds>, most: usize) -> Outcome<Vec<Taken>> {
        let Some(first) = self.wait_for_one(timeout)? else {
            return Ok(Vec::new());
        };
        let client = &mut self.hands[0].client;
        let mut jobs = vec![first];
        jobs.extend(reserve_now(client, most - 1)?);
        let again = |job: &Job| self.seen.contains(&job.id);
        jobs.truncate(jobs.iter().position(again).unwrap_or(jobs.len()));
        if !self.needs_facts {
            return Ok(jobs.into_iter().map(|job| (job, None)).collect());
        }
        let mut taken = Vec::new();
        let line = |job: &Job| format!("stats-job {}", job.id);
        client.each(jobs, line, |job, reply| {
            let facts = client::facts(&line(&job), reply)?;
            taken.push((job, facts));
            Ok(())
        })?;
        Ok(taken)
    }

    fn wait_for_one(&mut self, timeout: Option<Seconds>) -> Outcome<Option<Job>> {
        let until = timeout.map(|Seconds(s)| Instant::now() + Duration::from_secs(s.into()));
        loop {
            let client = &mut self.hands[0].client;
            let latest = until.map(|until| until + client.patience);
            match until {
                None => client.queue("reserve"),
                Some(until) => {
                    let left = until.saturating_duration_since(Instant::now());
                    let seconds = left.as_millis().div_ceil(1000);
                    client.queue(format_args!("reserve-with-timeout {seconds}"));
                }
            }
            match self.reply_until(latest)? {
                Reply::Reserved(job) => return Ok(Some(job)),
                Reply::TimedOut => return Ok(None),
                // A job that is kept needs more time, and no other is ready.
                Reply::DeadlineSoon => {
                    self.hands[0].touch()?;
                    if until.is_some_and(|until| until <= Instant::now()) {
                        return Ok(None);
                    }
                    std::thread::sleep(Duration::from_millis(100));
                }
                other => return Err(Failure::unexpected("reserve", &other)),
            }
        }
    }

    /// The reply to the connection that takes jobs. Meanwhile the jobs of the
    /// other connections are touched. For the jobs of this one the server
    /// answers DEADLINE_SOON when their time comes to an end.
    fn reply_until(&mut self, latest: Option<Instant>) -> Outcome<Reply> {
        loop {
            let due = self.hands[1..].iter().filter_map(Hand::due);
            let until = due.chain(latest).min();
            let client = &mut self.hands[0].client;
            match client.wait(until, &[])? {
                Event::Reply(reply) => return client.understand(reply),
                _ if latest.is_some_and(|latest| latest <= Instant::now()) => {
                    return Err(client.silent());
                }
                _ => self.touch_held(1)?,
            }
        }
    }

    /// Deletes or buries a batch that was taken at `since`, or keeps it for
    /// release. Returns whether all jobs were still ours.
    fn settle(&mut self, batch: Vec<Taken>, since: Instant) -> Outcome<bool> {
        let hand = &mut self.hands[0];
        let mut ids = Vec::new();
        for (Job { id, .. }, facts) in batch {
            let facts = facts.and_then(|facts| JobFacts::read(facts).ok());
            let own = facts.as_ref().map(|facts| facts.priority);
            let priority = self.priority.or(own).unwrap_or(Terms::PRIORITY);
            match self.settle {
                Settle::Delete => hand.client.queue(format_args!("delete {id}")),
                Settle::Bury => hand.client.queue(format_args!("bury {id} {}", priority.0)),
                Settle::Release => {
                    let ttr = facts.map_or(Seconds(0), |facts| facts.ttr);
                    hand.keep(id, priority, ttr, since);
                    self.seen.insert(id);
                    continue;
                }
            }
            ids.push(id);
        }
        settled(&mut hand.client, ids)
    }
}

/// Reads the replies for these jobs. Returns whether all were still ours when
/// they were settled.
fn settled(client: &mut Client, ids: impl IntoIterator<Item = JobId>) -> Outcome<bool> {
    let mut all = true;
    for id in ids {
        if !client.reply()?.is_done(format_args!("job {id}"))? {
            all = false;
            complain!("job {id}: its time to run was over before it was settled");
        }
    }
    Ok(all)
}
