//! `reserve`: takes jobs, writes their bodies, and then deletes, buries or
//! releases them.
//!
//! A job is deleted or buried only after its body has been given to the system
//! and, if the output is a pipe, has been read from the pipe. Jobs that are to
//! be released are kept and touched until the end; otherwise the same job would
//! come again at once.

use crate::command::{Bodies, Invocation, Run, Tubes};
use crate::failure::{Failure, Outcome, Status};
use crate::server::act::{Act, send, send_each, to_release};
use crate::server::client::{self, Client};
use crate::server::finder::Room;
use crate::server::form::Form;
use crate::server::reply::{Job, Reply};
use crate::server::stats::{Facts, JobFacts};
use crate::server::writer::NewJob;
use crate::text::output::{Output, Progress, complain};
use crate::values::parse;
use beanpole::protocol::{JobId, Priority, Seconds};
use clap::Args;
use std::collections::HashSet;
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

/// If the reader of the output needs longer than this, the jobs are touched: a
/// time to run is one second at least.
const SLOW: Duration = Duration::from_millis(300);

impl Run for Reserve {
    fn run(self, invocation: &Invocation) -> Outcome {
        let act = match (self.delete, self.bury) {
            (true, _) => Act::Delete,
            (_, true) => Act::Bury(self.priority),
            _ => Act::Release(self.priority, self.delay.unwrap_or(Seconds(0))),
        };
        let form = self.bodies.form();
        let mut client = invocation.connect()?;
        let tubes = self.tubes.patterns().or_default().named(&mut client)?;
        client.watch_only(&tubes)?;
        let timeout = self.timeout.or(self.all.then_some(Seconds(0)));
        let usual = if self.all { u64::MAX } else { 1 };
        let wanted = self.count.map_or(usual, NonZeroU64::get);
        let mut taker = Taker {
            client,
            act,
            needs_facts: act != Act::Delete || form == Form::Json,
            kept: Vec::new(),
            pause: Duration::MAX,
            touched: Instant::now(),
            seen: HashSet::new(),
            all: true,
        };
        let mut output = Output::new();
        let mut taken = 0;
        let mut room = Room::default();
        let mut progress = Progress::beside_output("reserving");
        while taken < wanted {
            taker.touch_if_due()?;
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
            let is_kept = matches!(act, Act::Release(..));
            while !is_kept && !output.is_read_within(SLOW)? {
                // A job whose time is over is reported when it is settled.
                let ids: Vec<_> = batch.iter().map(|(job, _)| job.id).collect();
                send_each(&mut taker.client, &ids, "touch")?;
            }
            taken += batch.len() as u64;
            progress.add(batch.len() as u64);
            room.learn(batch.iter().map(|(job, _)| job.body.len()));
            taker.settle(batch, since)?;
        }
        drop(progress);
        taker.release()?;
        let is_enough = if self.all { taken > 0 } else { taken == wanted };
        Ok(Status::done_if(is_enough && taker.all))
    }
}

type Taken = (Job, Option<Facts>);

/// A connection, and the jobs that it keeps until they are released at the end.
struct Taker {
    client: Client,
    /// What is done to a job after its body has been written.
    act: Act,
    needs_facts: bool,
    kept: Vec<(JobId, Priority)>,
    /// A third of the shortest time to run of these jobs.
    pause: Duration,
    /// When the jobs were last touched, or else when the first one was taken.
    touched: Instant,
    /// The ids of all jobs that were ever kept.
    seen: HashSet<JobId>,
    /// Whether all were settled before their time was over.
    all: bool,
}

impl Taker {
    /// Touches the kept jobs if it is time.
    fn touch_if_due(&mut self) -> Outcome<()> {
        match self.touched.elapsed() >= self.pause {
            true => self.touch(),
            false => Ok(()),
        }
    }

    /// Touches the kept jobs, and forgets those whose time was over.
    fn touch(&mut self) -> Outcome<()> {
        self.touched = Instant::now();
        let ids: Vec<_> = self.kept.iter().map(|(id, _)| *id).collect();
        let lost = send_each(&mut self.client, &ids, "touch")?;
        self.say_lost(&lost);
        self.kept.retain(|(id, _)| !lost.contains(id));
        Ok(())
    }

    fn say_lost(&mut self, ids: &[JobId]) {
        self.all &= ids.is_empty();
        for id in ids {
            complain!("job {id}: its time to run was over before it was settled");
        }
    }

    /// Reserves up to `most` jobs: waits for the first one up to the timeout,
    /// then takes others that are ready. Returns none if no job came, or if the
    /// first one was kept already: then its time to run was over, and the jobs
    /// begin again.
    fn take(&mut self, timeout: Option<Seconds>, most: usize) -> Outcome<Vec<Taken>> {
        let Some(first) = self.wait_for_one(timeout)? else {
            return Ok(Vec::new());
        };
        let client = &mut self.client;
        let others = std::iter::repeat_n((), most - 1);
        let others = client.all(others, |()| "reserve-with-timeout 0".into(), client::job)?;
        let mut jobs = vec![first];
        jobs.extend(others.into_iter().filter_map(|(_, job)| job));
        let again = |job: &Job| self.seen.contains(&job.id);
        jobs.truncate(jobs.iter().position(again).unwrap_or(jobs.len()));
        if !self.needs_facts {
            return Ok(jobs.into_iter().map(|job| (job, None)).collect());
        }
        let line = |job: &Job| format!("stats-job {}", job.id);
        client.all(jobs, line, client::facts)
    }

    fn wait_for_one(&mut self, timeout: Option<Seconds>) -> Outcome<Option<Job>> {
        let until = timeout.map(|Seconds(s)| Instant::now() + Duration::from_secs(s.into()));
        loop {
            let client = &mut self.client;
            let latest = until.map(|until| until + client.patience);
            match until {
                None => client.queue("reserve"),
                Some(until) => {
                    let left = until.saturating_duration_since(Instant::now());
                    let seconds = left.as_millis().div_ceil(1000);
                    client.queue(format_args!("reserve-with-timeout {seconds}"));
                }
            }
            match client.reply_by(latest)? {
                Reply::Reserved(job) => return Ok(Some(job)),
                Reply::TimedOut => return Ok(None),
                // A job that is kept needs more time, and no other is ready.
                Reply::DeadlineSoon => {
                    self.touch()?;
                    if until.is_some_and(|until| until <= Instant::now()) {
                        return Ok(None);
                    }
                    std::thread::sleep(Duration::from_millis(100));
                }
                other => return Err(Failure::unexpected("reserve", &other)),
            }
        }
    }

    /// Deletes or buries a batch that was taken at `since`, or keeps it for
    /// release.
    fn settle(&mut self, batch: Vec<Taken>, since: Instant) -> Outcome<()> {
        let mut lines = Vec::new();
        for (Job { id, .. }, facts) in batch {
            let facts = facts.and_then(|facts| JobFacts::read(facts).ok());
            let own = facts.as_ref().map(|facts| facts.priority);
            let own = own.unwrap_or(NewJob::PRIORITY);
            match self.act {
                Act::Bury(priority) => {
                    lines.push((id, format!("bury {id} {}", priority.unwrap_or(own).0)));
                }
                Act::Release(priority, _) => {
                    if self.kept.is_empty() {
                        self.touched = since;
                    }
                    let ttr = facts.map_or(0, |facts| facts.ttr.0).max(1);
                    self.pause = self.pause.min(Duration::from_secs(ttr.into()) / 3);
                    self.kept.push((id, priority.unwrap_or(own)));
                    self.seen.insert(id);
                }
                _ => lines.push((id, format!("delete {id}"))),
            }
        }
        let lost = send(&mut self.client, lines)?;
        self.say_lost(&lost);
        Ok(())
    }

    /// Gives the kept jobs back.
    fn release(&mut self) -> Outcome<()> {
        let Act::Release(_, delay) = self.act else {
            return Ok(());
        };
        // If its time was over, somebody else may have buried a job, and it is
        // not to be kicked.
        self.touch_if_due()?;
        let lines = self.kept.iter().flat_map(|&(id, priority)| {
            let lines = to_release(id, priority, delay).into_iter();
            lines.map(move |line| (id, line))
        });
        let lost = send(&mut self.client, lines)?;
        self.say_lost(&lost);
        Ok(())
    }
}
