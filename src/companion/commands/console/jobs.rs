//! The jobs of a tube, page by page, and one job with its body, as JSON for the
//! page. Nothing here takes a job.

use crate::failure::{Failure, Outcome};
use crate::selection::contains;
use crate::server::client::{self, Client};
use crate::server::list::{Scope, Walk};
use crate::server::stats::{JobFacts, State};
use crate::server::sweep::Sweep;
use crate::server::take::{each_body, jobs_of};
use crate::text::base64;
use crate::text::json::{Json, json};
use crate::text::words::beginning;
use beanpole::protocol::{JobId, TubeName};
use std::time::{Duration, Instant};

/// Which jobs are wanted.
pub struct Wanted {
    pub tube: TubeName,
    /// Only jobs in this state.
    pub state: Option<State>,
    /// Only jobs with this in their body.
    pub text: String,
    /// The id from which the page goes on; `None` for the first page.
    pub from: Option<JobId>,
}

/// How many jobs a page has at most.
const PAGE: usize = 50;
/// How many jobs or ids are asked for at once.
const AT_ONCE: usize = 500;
/// A search of a page ends after this time, with what it has found; the next
/// page goes on.
const PATIENCE: Duration = Duration::from_millis(800);
/// How many characters of a body a row shows.
const WIDTH: usize = 160;
/// How many bytes of a body are shown at most.
pub const LONGEST: usize = 1 << 20;
/// A server without a list of jobs is asked for so many ids around the next job
/// of a tube.
const AROUND: u64 = 1000;

/// A page that is being filled.
struct Page<'a> {
    wanted: &'a Wanted,
    states: Vec<State>,
    until: Instant,
    rows: Vec<Json>,
    /// How many jobs or ids were looked at.
    looked: u64,
    /// The id from which the next page goes on.
    next: Option<JobId>,
}

/// A page of jobs. `listed` tells whether the server lists its jobs. If it does
/// not, the first page has only the next jobs of each state and their
/// neighbours, and its `next` is the first of all ids.
pub fn page(client: &mut Client, wanted: &Wanted) -> Outcome<Json> {
    let mut page = Page {
        wanted,
        states: wanted.state.map_or(State::ALL.into(), |state| vec![state]),
        until: Instant::now() + PATIENCE,
        rows: Vec::new(),
        looked: 0,
        next: None,
    };
    let scope = Scope {
        tubes: vec![wanted.tube.clone()],
        states: page.states.clone(),
    };
    let walk = Walk::begin(client, &scope)?;
    let listed = walk.is_some();
    match (walk, wanted.from) {
        (Some(walk), from) => page.walk(client, walk, from.unwrap_or(JobId(0)))?,
        (None, None) => page.next_ones(client)?,
        (None, Some(from)) => page.ids(client, from)?,
    }
    let next = page.next.map(|id| id.to_string());
    Ok(json!({"jobs": page.rows, "next": next, "looked": page.looked, "listed": listed}))
}

impl Page<'_> {
    fn has_room(&self) -> bool {
        self.rows.len() < PAGE && Instant::now() < self.until
    }

    fn walk(&mut self, client: &mut Client, mut walk: Walk, from: JobId) -> Outcome<()> {
        walk.go_to(from);
        while self.has_room() && !walk.is_over() {
            // Without a search every job that is asked for is shown.
            let most = match self.wanted.text.is_empty() {
                true => PAGE - self.rows.len(),
                false => AT_ONCE,
            };
            let jobs = walk.page(client, most)?;
            self.looked += jobs.len() as u64;
            self.next = walk.place();
            self.show(client, jobs)?;
        }
        Ok(())
    }

    /// The next jobs of each state, with those that have neighbouring ids.
    fn next_ones(&mut self, client: &mut Client) -> Outcome<()> {
        // `use` would create the tube.
        if client.tube_stats(&self.wanted.tube)?.is_none() {
            return Ok(());
        }
        let free: Vec<_> = self
            .states
            .iter()
            .filter(|state| **state != State::Reserved)
            .collect();
        let share = PAGE / free.len().max(1);
        let mut jobs = Vec::new();
        for state in free {
            let sweep = &mut Sweep::new(self.wanted.tube.clone(), *state);
            jobs.extend(sweep.look(client, share, AROUND)?);
        }
        self.next = Some(JobId(1));
        self.show(client, jobs)
    }

    /// The jobs among all ids, from this one on. The search is over when the
    /// server has given no higher id, as far as that can be known: it counts
    /// its puts, but with a binlog also those of earlier runs have ids.
    fn ids(&mut self, client: &mut Client, JobId(from): JobId) -> Outcome<()> {
        let stats = client.server_stats()?;
        let mut highest = stats.number("total-jobs");
        for state in [State::Ready, State::Delayed, State::Buried] {
            let first = Sweep::new(self.wanted.tube.clone(), state).first(client)?;
            highest = highest.max(first.map_or(0, |job| job.id.0 + AROUND));
        }
        let mut at = from;
        while self.has_room() && at <= highest {
            let end = at.saturating_add(AT_ONCE as u64);
            let mut jobs = jobs_of(client, (at..end).map(JobId))?;
            jobs.retain(|job| job.tube == self.wanted.tube && self.states.contains(&job.state));
            if let Some(last) = jobs.last() {
                highest = highest.max(last.id.0 + AROUND);
            }
            self.looked += end - at;
            at = end;
            self.next = (at <= highest).then_some(JobId(at));
            self.show(client, jobs)?;
        }
        Ok(())
    }

    /// Shows the jobs among these that have the text in their body. If the page
    /// is full, the next one begins after its last job.
    fn show(&mut self, client: &mut Client, jobs: Vec<JobFacts>) -> Outcome<()> {
        let text = self.wanted.text.as_bytes();
        let mut last = None;
        each_body(client, jobs, |job, body| {
            if self.rows.len() == PAGE {
                self.next = last;
                return Ok(());
            }
            last = Some(JobId(job.id.0.saturating_add(1)));
            if contains(&body, text) {
                self.rows.push(row(&job, &body));
            }
            Ok(())
        })
    }
}

fn row(job: &JobFacts, body: &[u8]) -> Json {
    json!({
        // A number of JavaScript would lose digits of a large id.
        "id": job.id.to_string(),
        "state": job.state.name(),
        "priority": job.priority.0,
        "age": job.age,
        "tries": job.reserves,
        "left": job.time_left.0,
        "size": body.len(),
        "begins": beginning(body, Some(WIDTH)),
    })
}

/// A job with its statistics and its body, or the beginning of it: in base64,
/// because it may have any bytes.
pub fn job(client: &mut Client, id: JobId) -> Outcome<Json> {
    let facts = client.job(id)?.ok_or_else(|| Failure::no_job(id))?;
    let line = format!("peek {id}");
    let reply = client.call(&line)?;
    let job = client::job(line, reply)?.ok_or_else(|| Failure::no_job(id))?;
    let shown = &job.body[..job.body.len().min(LONGEST)];
    Ok(json!({
        "id": id.to_string(),
        "tube": facts.tube.as_str(),
        "state": facts.state.name(),
        "priority": facts.priority.0,
        "delay": facts.delay.0,
        "ttr": facts.ttr.0,
        "age": facts.age,
        "left": facts.time_left.0,
        "tries": facts.reserves,
        "facts": facts.all.iter().collect::<Vec<_>>(),
        "size": job.body.len(),
        "body64": base64::encode(shown),
    }))
}
