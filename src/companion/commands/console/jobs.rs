//! The jobs of a tube, page by page, and one job with its body, as JSON for the
//! page. Nothing here takes a job.

use super::site::{optional, read};
use crate::failure::{Failure, Outcome};
use crate::http::Request;
use crate::jobs::contains;
use crate::server::client::{self, Client};
use crate::server::finder::{Scope, Walk, each_body, first, jobs_of, near};
use crate::server::stats::{JobFacts, State};
use crate::text::beginning;
use crate::text::json::{Json, json, to_base64};
use beanpole::protocol::{JobId, TubeName};
use std::time::{Duration, Instant};

/// How many jobs a page has at most.
const PAGE: usize = 50;
/// How many jobs are found at most if only their ids are wanted.
const MOST_IDS: usize = 50_000;
/// How many jobs or ids are asked for at once.
const AT_ONCE: usize = 500;
/// A search of a page ends after this time, with what it has found; the next
/// page goes on.
const PATIENCE: Duration = Duration::from_millis(800);
/// If only ids are wanted, it ends after this time.
const PATIENCE_FOR_IDS: Duration = Duration::from_secs(8);
/// How many characters of a body a row shows.
const WIDTH: usize = 160;
/// How many bytes of a body are shown at most.
pub const LONGEST: usize = 1 << 20;
/// A server without a list of jobs is asked for so many ids around the next job
/// of a tube.
const AROUND: u64 = 1000;

/// A page that is being filled.
struct Page {
    tube: TubeName,
    states: Vec<State>,
    /// Only jobs with this in their body are wanted.
    text: String,
    /// What to sort by; then the page has the first of all jobs that were seen.
    sort: Option<fn(&JobFacts) -> u64>,
    seen: Vec<JobFacts>,
    most: usize,
    until: Instant,
    rows: Vec<(JobFacts, Vec<u8>)>,
    /// How many jobs or ids were looked at.
    looked: u64,
    /// The id from which the next page goes on.
    next: Option<JobId>,
}

/// A page of jobs. `listed` tells whether the server lists its jobs. If it does
/// not, the first page has only the next jobs of each state and their
/// neighbours, and its `next` is the first of all ids. With `ids`, the page has
/// the ids of all jobs that are found, and nothing else of them.
pub fn page(client: &mut Client, request: &Request) -> Outcome<Json> {
    let only_ids = request.parameter("ids") == "1";
    let state: Option<State> = optional(request, "state")?;
    let mut page = Page {
        tube: read(request, "tube")?,
        states: state.map_or(State::ALL.into(), |state| vec![state]),
        text: request.parameter("text").into(),
        sort: match request.parameter("sort") {
            "tries" => Some(|job| job.reserves),
            "oldest" => Some(|job| job.age),
            "newest" => Some(|job| u64::MAX - job.age),
            _ => None,
        },
        seen: Vec::new(),
        most: if only_ids { MOST_IDS } else { PAGE },
        until: Instant::now() + if only_ids { PATIENCE_FOR_IDS } else { PATIENCE },
        rows: Vec::new(),
        looked: 0,
        next: None,
    };
    let scope = Scope {
        tubes: vec![page.tube.clone()],
        states: page.states.clone(),
    };
    let walk = Walk::begin(client, &scope)?;
    let listed = walk.is_some();
    match (walk, optional(request, "from")?) {
        (Some(walk), from) => page.walk(client, walk, from.unwrap_or(JobId(0)))?,
        (None, None) if !only_ids => page.next_ones(client)?,
        (None, from) => page.ids(client, from.unwrap_or(JobId(1)))?,
    }
    if let Some(key) = page.sort.take() {
        let mut seen = std::mem::take(&mut page.seen);
        seen.sort_by_key(|job| std::cmp::Reverse(key(job)));
        for some in seen.chunks(PAGE) {
            page.show(client, some.to_vec())?;
        }
        page.next = None;
    }
    let rows = page.rows.iter();
    let rows: Json = match only_ids {
        true => rows.map(|(job, _)| job.id.to_string()).collect(),
        false => rows.map(|(job, body)| row(job, body)).collect(),
    };
    let next = page.next.map(|id| id.to_string());
    Ok(json!({"jobs": rows, "next": next, "looked": page.looked, "listed": listed}))
}

impl Page {
    fn has_room(&self) -> bool {
        self.rows.len() < self.most && Instant::now() < self.until
    }

    fn walk(&mut self, client: &mut Client, mut walk: Walk, from: JobId) -> Outcome<()> {
        walk.go_to(from);
        while self.has_room() && !walk.is_over() {
            // Without a search every job that is asked for is shown.
            let most = match self.text.is_empty() && self.sort.is_none() {
                true => AT_ONCE.min(self.most - self.rows.len()),
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
        if client.tube_stats(&self.tube)?.is_none() {
            return Ok(());
        }
        let mut free = self.states.clone();
        free.retain(|state| *state != State::Reserved);
        let share = PAGE / free.len().max(1);
        let mut jobs = Vec::new();
        for state in free {
            jobs.extend(near(client, &self.tube, state, share, AROUND)?);
        }
        self.next = Some(JobId(1));
        self.show(client, jobs)
    }

    /// The jobs among all ids, from this one on. The search is over when the
    /// server has given no higher id, as far as that can be known: it counts
    /// its puts, but with a binlog also those of earlier runs have ids.
    fn ids(&mut self, client: &mut Client, JobId(mut at): JobId) -> Outcome<()> {
        let mut highest = client.server_stats()?.number("total-jobs");
        for state in [State::Ready, State::Delayed, State::Buried] {
            let first = first(client, &self.tube, state)?;
            highest = highest.max(first.map_or(0, |job| job.id.0 + AROUND));
        }
        while self.has_room() && at <= highest {
            let end = at.saturating_add(AT_ONCE as u64);
            let mut jobs = jobs_of(client, (at..end).map(JobId))?;
            jobs.retain(|job| job.tube == self.tube && self.states.contains(&job.state));
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

    /// Shows the jobs among these that have the text in their body, or keeps
    /// them to be sorted. If the page is full, the next one begins after its
    /// last job.
    fn show(&mut self, client: &mut Client, jobs: Vec<JobFacts>) -> Outcome<()> {
        if self.sort.is_some() {
            self.seen.extend(jobs);
            return Ok(());
        }
        let mut last = None;
        each_body(client, jobs, |job, body| {
            if self.rows.len() == self.most {
                self.next = last;
                return Ok(());
            }
            last = Some(JobId(job.id.0.saturating_add(1)));
            if contains(&body, self.text.as_bytes()) {
                self.rows.push((job, body));
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
    let job = client::job(&line, reply)?.ok_or_else(|| Failure::no_job(id))?;
    let mut json = row(&facts, &job.body);
    json["tube"] = facts.tube.as_str().into();
    json["delay"] = facts.delay.0.into();
    json["ttr"] = facts.ttr.0.into();
    json["facts"] = facts
        .all
        .iter()
        .map(|(key, value)| json!([key, value]))
        .collect();
    let shown = &job.body[..job.body.len().min(LONGEST)];
    json["body64"] = to_base64(shown).into();
    Ok(json)
}
