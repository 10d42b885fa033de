//! What a person asks for on a screen or a page. Each says in words what was
//! done.

use crate::failure::{Failure, Outcome};
pub use crate::server::by_id::Act as JobAction;
use crate::server::by_id::{Act, why_not};
use crate::server::client::Client;
use crate::server::finder::pages;
use crate::server::list::Scope;
use crate::server::reply::Reply;
use crate::server::stats::State;
use crate::server::task::Task;
use beanpole::protocol::{JobId, Seconds, TubeName};

/// Kicks up to `bound` jobs of a tube, which the server chooses.
pub fn kick(client: &mut Client, tube: &TubeName, bound: u64) -> Outcome<String> {
    client.use_tube(tube)?;
    match client.call(format_args!("kick {bound}"))? {
        Reply::Kicked(Some(count)) => Ok(format!("kicked {count} jobs of {tube}")),
        other => Err(Failure::unexpected("kick", &other)),
    }
}

/// Pauses a tube, or ends its pause with 0 seconds.
pub fn pause(client: &mut Client, tube: &TubeName, time: Seconds) -> Outcome<String> {
    let Seconds(seconds) = time;
    let reply = client.call(format_args!("pause-tube {tube} {seconds}"))?;
    Ok(match (reply.is_done("pause-tube")?, seconds) {
        (true, 0) => format!("ended the pause of {tube}"),
        (true, _) => format!("paused {tube} for {seconds} s"),
        (false, _) => format!("there is no tube {tube} any more"),
    })
}

/// Deletes jobs of a tube in these states, at most so many.
pub fn clear(client: &mut Client, tube: &TubeName, states: &[State], most: u64) -> Outcome<String> {
    let jobs = found(client, tube, states, most)?;
    let mut task = Task::quiet(most);
    Act::Delete.on_all(client, &jobs, &mut task)?;
    Ok(format!("deleted {} jobs of {tube}", task.done))
}

/// The jobs of a tube in these states, at most so many.
pub fn found(
    client: &mut Client,
    tube: &TubeName,
    states: &[State],
    most: u64,
) -> Outcome<Vec<(JobId, State)>> {
    let most = usize::try_from(most).unwrap_or(usize::MAX);
    let scope = Scope {
        tubes: vec![tube.clone()],
        states: states.into(),
    };
    let mut jobs = Vec::new();
    pages(client, &scope, |_, page| {
        jobs.extend(page.iter().map(|job| (job.id, job.state)));
        Ok(jobs.len() < most)
    })?;
    jobs.truncate(most);
    Ok(jobs)
}

/// Does this to a job.
pub fn act(client: &mut Client, act: Act, id: JobId) -> Outcome<String> {
    if !act.on(client, &[id])?.is_empty() {
        let facts = client.facts(&format!("stats-job {id}"))?;
        return Ok(why_not(id, facts.as_ref().map(|facts| facts.text("state"))));
    }
    Ok(match act {
        Act::Delete => format!("deleted job {id}"),
        Act::Kick => format!("kicked job {id}"),
        Act::Bury(_) => format!("buried job {id}"),
        Act::Release(_, Seconds(0)) => format!("job {id} is ready"),
        Act::Release(_, Seconds(delay)) => format!("job {id} is delayed for {delay} s"),
    })
}
