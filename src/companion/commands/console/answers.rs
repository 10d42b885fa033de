//! Jobs, for the page: those of a tube, page by page, and one with its body, as JSON;
//! and what the page may change, if `--allow-changes` was given. Only [`carry_out`]
//! takes or changes a job.

use super::site::{optional, read};
use crate::command::word;
use crate::failure::{Failure, Outcome};
use crate::http::{Link, Request};
use crate::remote::act::{in_batches, kick_some, why_not};
use crate::remote::client_list;
use crate::remote::facts::{FREE, states};
use crate::remote::finder::{self, bodies, each_body, near};
use crate::remote::{
    Act, Client, Job, JobFacts, NewJob, Reply, Scope, State, Transfer, Watched, WhenFree, Work,
    Writer,
};
use crate::selection::contains;
use crate::text::json::{Json, json, to_base64};
use crate::text::{Progress, beginning, counted};
use beanpole::protocol::{JobId, Seconds, TubeName};
use std::cmp::Reverse;
use std::time::{Duration, Instant};

/// How many jobs a page has at most.
const PAGE: usize = 50;
/// How many jobs are found at most if only their ids are wanted.
const MOST_IDS: usize = 50_000;
/// How many jobs are asked for at once.
const AT_ONCE: usize = 500;
/// A search of a page ends after this time, with what it has found; the next
/// page goes on.
const PATIENCE: Duration = Duration::from_millis(800);
/// If only ids are wanted, it ends after this time.
const PATIENCE_FOR_IDS: Duration = Duration::from_secs(8);
/// How many characters of a body a row shows.
const WIDTH: usize = 160;
/// How many bytes of a body are shown at most, and how many the body of a change has: that
/// of a job, or `MOST_IDS` ids.
pub const LONGEST: usize = 1 << 20;

/// A page that is being filled.
#[derive(Default)]
struct Page {
    /// Only jobs with this in their body are wanted.
    text: String,
    only_ids: bool,
    most: usize,
    rows: Vec<Json>,
    /// How many jobs were looked at.
    looked: usize,
    /// The first job that had no room any more.
    next: Option<JobId>,
}

/// A page of jobs, by their ids or, with `sort`, the first ones of all jobs that could
/// be looked at: those with the largest figures or, `turned`, the smallest. With `ids`, it
/// has the ids of all jobs that are found, and nothing else of them. `listed` tells whether
/// the server lists its jobs. If it does not, there is one page: the next jobs of each
/// state and their neighbours.
pub fn page(client: &mut Client, request: &Request) -> Outcome<Json> {
    let only_ids = request.parameter("ids") == "1";
    let state: Option<State> = optional(request, "state")?;
    let tube = read(request, "tube")?;
    let scope = Scope::of([tube], states(State::ALL, state.as_slice()));
    let sort: Option<fn(&JobFacts) -> u64> = match request.parameter("sort") {
        "tries" => Some(|job| job.reserves),
        "age" => Some(|job| job.age),
        _ => None,
    };
    let (most, patience) = match only_ids {
        true => (MOST_IDS, PATIENCE_FOR_IDS),
        false => (PAGE, PATIENCE),
    };
    let mut page = Page {
        text: request.parameter("text").into(),
        only_ids,
        most,
        ..Page::default()
    };
    // Of a page without a search every job that is asked for is shown.
    let at_once = match page.text.is_empty() && sort.is_none() && !only_ids {
        true => PAGE,
        false => AT_ONCE,
    };
    let (until, mut seen) = (Instant::now() + patience, Vec::new());
    let listed = client.is_extended()?;
    let mut next = None;
    if listed {
        next = optional(request, "from")?.or(Some(JobId(0)));
        while page.rows.len() < page.most
            && Instant::now() < until
            && let Some(from) = next
        {
            let (jobs, after) = scope.page(client, from, at_once)?;
            next = after;
            match sort {
                Some(_) => seen.extend(jobs),
                None => page.show(client, &jobs)?,
            }
        }
    } else {
        let share = at_once / scope.states.len().min(FREE.len());
        for state in scope.states {
            seen.extend(near(client, &scope.tubes[0], state, share)?);
        }
    }
    if let Some(key) = sort {
        seen.sort_by_key(|job| Reverse(key(job)));
        if request.parameter("turned") == "1" {
            seen.reverse();
        }
    }
    page.show(client, &seen)?;
    let next = page.next.or(next).filter(|_| listed && sort.is_none());
    let (jobs, next) = (page.rows, next.map(|id| id.to_string()));
    Ok(json!({"jobs": jobs, "next": next, "looked": page.looked, "listed": listed}))
}

impl Page {
    /// Shows the jobs among these that have the text in their body, as far as there is room.
    fn show(&mut self, client: &mut Client, jobs: &[JobFacts]) -> Outcome<()> {
        self.looked += jobs.len();
        for some in jobs.chunks(PAGE) {
            if self.rows.len() == self.most {
                self.next = self.next.or(Some(some[0].id));
                return Ok(());
            }
            each_body(client, some, |job, found| {
                if self.rows.len() == self.most {
                    self.next = self.next.or(Some(job.id));
                } else if contains(&found.body, self.text.as_bytes()) {
                    self.rows.push(match self.only_ids {
                        true => job.id.to_string().into(),
                        false => row(job, &found),
                    });
                }
                Ok(())
            })?;
        }
        Ok(())
    }
}

fn row(job: &JobFacts, found: &Job) -> Json {
    json!({
        // A number of JavaScript would lose digits of a large id.
        "id": job.id.to_string(),
        "state": job.state.name(),
        "priority": job.priority.0,
        "age": job.age,
        "tries": job.reserves,
        "left": job.time_left.0,
        "size": found.size,
        "begins": beginning(&found.body, Some(WIDTH)),
    })
}

/// A job with its statistics and its body, or the beginning of it: in base64,
/// because it may have any bytes.
pub fn job(client: &mut Client, id: JobId) -> Outcome<Json> {
    let known = client.job(id)?.into_iter().collect();
    let found = bodies(client, known)?.pop();
    let (facts, found) = found.ok_or_else(|| Failure::no_job(id))?;
    let mut json = row(&facts, &found);
    json["tube"] = facts.tube.as_str().into();
    json["ttr"] = facts.ttr.0.into();
    let told = facts.all.iter();
    json["facts"] = told.map(|(key, value)| json!([key, value])).collect();
    json["body64"] = to_base64(&found.body).into();
    Ok(json)
}

/// Does what the parameters of this request say, and tells what was done, and which job
/// was put. Its body has the ids of jobs, with any space between them, or the body of a
/// job. Work on many jobs tells how far it is, and ends when nobody hears that any more.
pub fn carry_out(
    client: &mut Client,
    server: &Watched,
    request: &Request,
    link: &mut Link,
) -> Outcome<Json> {
    let hear = |done: u64| {
        let heard = link.send(&json!({"done": done}).to_string());
        heard.map_err(|_| Failure::Interrupted("stopped".into()))
    };
    let tube = || read::<TubeName>(request, "tube");
    let said = match request.parameter("do") {
        "delete" => act(client, Act::Delete, request, "deleted")?,
        "kick-job" => act(client, Act::Kick, request, "kicked")?,
        "bury" => act(client, Act::Bury(None), request, "buried")?,
        "release" => {
            let (priority, delay) = (read(request, "priority")?, read(request, "delay")?);
            let release = Act::Release(Some(priority), delay);
            act(client, release, request, "released")?
        }
        "kick" => {
            let (tube, bound) = (tube()?, read(request, "count")?);
            let jobs = counted(kick_some(client, &tube, bound)?.into(), "job");
            format!("kicked {jobs} of {tube}")
        }
        "close" => {
            let id = read(request, "connection")?;
            match client_list::close(client, id)? {
                true => format!("closed connection {id}"),
                false => format!("connection {id} is gone already"),
            }
        }
        "pause" => pause(client, &tube()?, read(request, "time")?)?,
        "clear" => {
            let mut delete = WhenFree(Act::Delete, None);
            act_on_all(client, &mut delete, request, ["deleted", ""], hear)?
        }
        "put" => return put(server.connect()?, request),
        "edit" => return edit(client, server.connect()?, request),
        "move" => {
            let to: TubeName = read(request, "to")?;
            if to == tube()? {
                return Failure::usage("both are the same tube");
            }
            let mut transfer = Transfer::new(server.connect()?, to.clone(), true);
            let there = format!(" to {to}");
            act_on_all(client, &mut transfer, request, ["moved", &there], hear)?
        }
        other => return Failure::usage(format!("there is no change '{other}'")),
    };
    Ok(json!({"said": said}))
}

/// Does this to the jobs whose ids are in the body, and says to how many it was `done`,
/// and why not to the others.
fn act(client: &mut Client, act: Act, request: &Request, done: &str) -> Outcome<String> {
    let text = String::from_utf8_lossy(&request.body);
    let ids: Vec<JobId> = text.split_whitespace().map(word).collect::<Outcome<_>>()?;
    let left = act.to(client, &ids)?;
    let well = ids.len() - left.len();
    let Some(first) = left.first() else {
        return Ok(match ids.as_slice() {
            [id] => format!("{done} job {id}"),
            _ => format!("{done} {well} jobs"),
        });
    };
    let job = client.job(*first)?;
    let why = why_not(*first, job.map(|job| job.state.name()));
    Ok(match ids.len() {
        1 => why,
        all => format!("{done} {well} of {all} jobs: {why}"),
    })
}

/// Does this to the jobs of a tube in the state that is meant, or in all that a person may
/// change, and says to how many it was `done`, and where they are then.
fn act_on_all(
    client: &mut Client,
    work: &mut impl Work,
    request: &Request,
    [done, there]: [&str; 2],
    mut hear: impl FnMut(u64) -> Outcome<()>,
) -> Outcome<String> {
    let (tube, most): (TubeName, u32) = (read(request, "tube")?, read(request, "count")?);
    let state = optional(request, "state")?;
    if state == Some(State::Reserved) {
        return Failure::usage("'reserved' is not ready, delayed or buried");
    }
    let scope = Scope::of([tube.clone()], states(FREE, state.as_slice()));
    hear(0)?;
    let (ids, _) = finder::all(client, &scope, most as usize)?;
    let mut progress = Progress::default();
    let outcome = in_batches(work, client, &ids, false, &mut progress, hear);
    let jobs = counted(progress.done, "job");
    let said = format!("{done} {jobs} of {tube}{there}");
    outcome.map_err(|failure| failure.about(&said))?;
    Ok(said)
}

fn put(client: Client, request: &Request) -> Outcome<Json> {
    let tube: TubeName = read(request, "tube")?;
    let job = NewJob {
        tube: tube.clone(),
        priority: read(request, "priority")?,
        delay: read(request, "delay")?,
        ttr: read(request, "ttr")?,
        ..NewJob::with(request.body.clone())
    };
    let (replies, outcome) = Writer::new(client).write(&[job]);
    outcome?;
    let (id, buried) = match replies.first() {
        Some(Reply::Inserted(id)) => (id, ""),
        Some(Reply::Buried(id)) => (id, ", but the server was short of memory and buried it"),
        Some(other) => return Err(Failure::unexpected("put", other)),
        None => return Failure::refused("put: there was no reply"),
    };
    let said = format!("put job {id} into {tube}{buried}");
    Ok(json!({"said": said, "job": id.to_string()}))
}

/// Puts a job again, with another body and as the request says, and deletes the old one.
/// If somebody takes that meanwhile, nothing has changed.
fn edit(client: &mut Client, target: Client, request: &Request) -> Outcome<Json> {
    let (old, tube) = (read(request, "job")?, read::<TubeName>(request, "tube")?);
    let mut job = client.job(old)?.ok_or_else(|| Failure::no_job(old))?;
    if job.state == State::Reserved {
        return Failure::refused(why_not(old, Some("reserved")));
    }
    let is_ready = job.state == State::Ready;
    job.priority = read(request, "priority")?;
    job.ttr = read(request, "ttr")?;
    job.time_left = read(request, "delay")?;
    job.state = match job.time_left {
        Seconds(0) => State::Ready,
        _ => State::Delayed,
    };
    // So no worker gets it. If one has it already, that comes out below.
    if is_ready {
        client.call(format_args!("reserve-job {old}"))?;
    }
    let mut transfer = Transfer::new(target, tube.clone(), true);
    let jobs = vec![(job, request.body.clone())];
    match transfer
        .carry(client, jobs, &mut Progress::default())?
        .first()
    {
        Some(id) => Ok(json!({
            "said": format!("put job {id} into {tube} and deleted job {old}"),
            "job": id.to_string(),
        })),
        None => Failure::refused("nothing has changed: the job was taken, or its key is"),
    }
}

/// Pauses a tube, or ends its pause with 0 seconds.
fn pause(client: &mut Client, tube: &TubeName, time: Seconds) -> Outcome<String> {
    let Seconds(seconds) = time;
    let line = format_args!("pause-tube {tube} {seconds}");
    Ok(match (client.ask(line, Reply::is_done)?, seconds) {
        (true, 0) => format!("ended the pause of {tube}"),
        (true, _) => format!("paused {tube} for {seconds} s"),
        (false, _) => format!("there is no tube {tube} any more"),
    })
}
