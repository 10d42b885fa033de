//! `reserve`: takes jobs, writes their bodies, and then deletes, buries or
//! releases them.
//!
//! A job is deleted or buried only after its body has been given to the system
//! and, if the output is a pipe, has been read from the pipe. Jobs that are to
//! be released are kept and touched until the end; otherwise the same job would
//! come again at once. Many jobs are kept by several connections: the more jobs
//! a connection has, the longer beanstalkd takes for each of them.

use crate::command::{Bodies, Invocation, Run, Tubes};
use crate::failure::{Failure, Outcome, Status};
use crate::server::by_id::{send_each, to_make_ready};
use crate::server::client::{self, Client, Event, Terms};
use crate::server::form::Form;
use crate::server::reply::{Job, Reply};
use crate::server::stats::{Facts, JobFacts};
use crate::server::take::{Room, reserve_now};
use crate::text::output::{Output, Progress, complain};
use crate::values::parse;
use beanpole::protocol::{JobId, Priority, Seconds, TubeName};
use clap::Args;
use std::collections::{BTreeSet, HashSet};
use std::num::NonZeroU64;
use std::time::{Duration, Instant};

#[derive(Args)]
pub struct Reserve {
    #[command(flatten)]
    tubes: Tubes,
    /// take N jobs (default: 1)
    #[arg(short = 'n', long, value_name = "N", value_parser = parse::<NonZeroU64>)]
    count: Option<NonZeroU64>,
    /// take all that are ready
    #[arg(long, conflicts_with = "count")]
    all: bool,
    /// wait TIME for each (default: for ever; --all: 0)
    #[arg(short = 'w', long, value_name = "TIME", value_parser = parse::<Seconds>)]
    timeout: Option<Seconds>,
    /// delete them once their bodies are written
    #[arg(long, conflicts_with_all = ["bury", "release"])]
    delete: bool,
    /// bury them once their bodies are written
    #[arg(long, conflicts_with = "release")]
    bury: bool,
    /// release them at the end (the default)
    #[arg(long)]
    release: bool,
    /// the priority, smaller is sooner (default: the job's)
    #[arg(short, long, value_name = "PRI", value_parser = parse::<Priority>)]
    priority: Option<Priority>,
    /// how long it stays delayed (default: 0)
    #[arg(short, long, value_name = "TIME", value_parser = parse::<Seconds>)]
    delay: Option<Seconds>,
    #[command(flatten)]
    bodies: Bodies,
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

impl Run for Reserve {
    fn run(self, invocation: &Invocation) -> Outcome {
        let settle = match (self.delete, self.bury) {
            (true, _) => Settle::Delete,
            (_, true) => Settle::Bury,
            _ => Settle::Release,
        };
        let form = self.bodies.form();
        let mut client = invocation.connect()?;
        let tubes = self.tubes.patterns().or_default().named(&mut client)?;
        let timeout = self.timeout.or(self.all.then_some(Seconds(0)));
        let usual = if self.all { u64::MAX } else { 1 };
        let wanted = self.count.map_or(usual, NonZeroU64::get);
        let mut taker = Taker {
            settle,
            priority: self.priority,
            needs_facts: settle != Settle::Delete || form == Form::Json,
            hands: vec![Hand::new(client, &tubes)?],
            seen: HashSet::new(),
            lost: false,
        };
        let mut output = Output::new();
        let mut taken = 0;
        let mut room = Room::default();
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
            while settle != Settle::Release && !output.is_read_within(SLOW)? {
                // Whose time is over is told when it is settled.
                let ids = batch.iter().map(|(job, _)| job.id);
                send_each(&mut taker.hands[0].client, ids, "touch")?;
            }
            taken += batch.len() as u64;
            progress.add(batch.len() as u64);
            room.learn(batch.iter().map(|(job, _)| job.body.len()));
            taker.settle(batch, since)?;
        }
        drop(progress);
        while !taker.hands.is_empty() {
            let hand = taker.hands.remove(0);
            taker.lost |= hand.release(self.delay.unwrap_or(Seconds(0)))?;
            taker.touch_held(0)?;
        }
        let is_enough = if self.all { taken > 0 } else { taken == wanted };
        Ok(Status::done_if(is_enough && !taker.lost))
    }
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
    /// Whether the time of one of them was over before it could be touched.
    lost: bool,
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
            lost: false,
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

    /// Touches the jobs, and forgets those whose time was over.
    fn touch(&mut self) -> Outcome<()> {
        self.touched = Instant::now();
        let ids = self.jobs.iter().map(|(id, _)| *id);
        let missing = send_each(&mut self.client, ids, "touch")?;
        self.lost |= !missing.is_empty();
        missing.iter().for_each(say_lost);
        self.jobs.retain(|(id, _)| !missing.contains(id));
        Ok(())
    }

    /// Gives the jobs back. Without a delay this is no release, because that
    /// would count as a failed try; see [`to_make_ready`]. Returns whether a job
    /// was lost.
    fn release(mut self, Seconds(delay): Seconds) -> Outcome<bool> {
        // If its time was over, somebody else may have buried a job, and it is
        // not to be kicked.
        if self.due().is_some_and(|due| due <= Instant::now()) {
            self.touch()?;
        }
        let lines = self.jobs.iter().flat_map(|&(id, priority)| {
            let lines = match delay {
                0 => to_make_ready(id, priority),
                _ => vec![format!("release {id} {} {delay}", priority.0)],
            };
            lines.into_iter().map(move |line| (id, line))
        });
        Ok(settle(&mut self.client, lines)? || self.lost)
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
    /// Whether the time of a job was over before it was settled.
    lost: bool,
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
    /// release.
    fn settle(&mut self, batch: Vec<Taken>, since: Instant) -> Outcome<()> {
        let hand = &mut self.hands[0];
        let mut lines = Vec::new();
        for (Job { id, .. }, facts) in batch {
            let facts = facts.and_then(|facts| JobFacts::read(facts).ok());
            let own = facts.as_ref().map(|facts| facts.priority);
            let priority = self.priority.or(own).unwrap_or(Terms::PRIORITY);
            match self.settle {
                Settle::Delete => lines.push((id, format!("delete {id}"))),
                Settle::Bury => lines.push((id, format!("bury {id} {}", priority.0))),
                Settle::Release => {
                    let ttr = facts.map_or(Seconds(0), |facts| facts.ttr);
                    hand.keep(id, priority, ttr, since);
                    self.seen.insert(id);
                }
            }
        }
        self.lost |= settle(&mut hand.client, lines)?;
        Ok(())
    }
}

/// Sends these lines about jobs, and says of which jobs the time was over before.
/// Returns whether there were any.
fn settle(client: &mut Client, lines: impl IntoIterator<Item = (JobId, String)>) -> Outcome<bool> {
    let mut lost = BTreeSet::new();
    client.each(
        lines,
        |(_, line)| line.clone(),
        |(id, line), reply| {
            if !reply.is_done(line)? {
                lost.insert(id);
            }
            Ok(())
        },
    )?;
    lost.iter().for_each(say_lost);
    Ok(!lost.is_empty())
}

fn say_lost(id: &JobId) {
    complain!("job {id}: its time to run was over before it was settled");
}
