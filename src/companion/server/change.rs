//! What a person changes while looking at a screen. Each change is told in
//! words afterwards.

use crate::failure::{Failure, Outcome};
use crate::server::by_id::{reserve_by_id, settle, to_make_ready};
use crate::server::client::Client;
use crate::server::reply::Reply;
use crate::server::stats::State;
use crate::server::sweep::Sweep;
use crate::server::task::Task;
use beanpole::protocol::{JobId, Priority, Seconds, TubeName};

/// What can be done to a job.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum JobAction {
    Delete,
    Kick,
    Bury,
    /// Makes it ready or, with a delay, delayed.
    Release(Priority, Seconds),
}

/// Kicks up to this many jobs of a tube.
pub fn kick(client: &mut Client, tube: &TubeName, bound: u64) -> Outcome<String> {
    client.use_tube(tube)?;
    match client.call(format_args!("kick {bound}"))? {
        Reply::Kicked(Some(count)) => Ok(format!("kicked {count} jobs of {tube}")),
        other => Err(Failure::unexpected("kick", &other)),
    }
}

/// Pauses a tube for this time; 0 ends a pause.
pub fn pause(client: &mut Client, tube: &TubeName, time: Seconds) -> Outcome<String> {
    let Seconds(seconds) = time;
    let reply = client.call(format_args!("pause-tube {tube} {seconds}"))?;
    Ok(match (reply.is_done("pause-tube")?, seconds) {
        (true, 0) => format!("ended the pause of {tube}"),
        (true, _) => format!("paused {tube} for {seconds} s"),
        (false, _) => format!("there is no tube {tube} any more"),
    })
}

/// Deletes up to `most` jobs of a tube, in these states.
pub fn clear(client: &mut Client, tube: &TubeName, states: &[State], most: u64) -> Outcome<String> {
    let mut task = Task::quiet(most);
    delete_in(client, tube, states, &mut task)?;
    Ok(format!("deleted {} jobs of {tube}", task.done))
}

/// Deletes jobs of a tube in these states until nothing is left of the task.
/// Ready jobs should come last, because others may become ready meanwhile.
pub fn delete_in(
    client: &mut Client,
    tube: &TubeName,
    states: &[State],
    task: &mut Task,
) -> Outcome<()> {
    for state in states {
        let mut sweep = Sweep::new(tube.clone(), *state);
        while task.goes_on()?
            && let Some(count) = sweep.send_to_next(client, task.left, "delete")?
        {
            task.add(count);
        }
    }
    Ok(())
}

/// Does this to a job.
pub fn act(client: &mut Client, action: JobAction, id: JobId) -> Outcome<String> {
    let (line, done) = match action {
        JobAction::Delete => (format!("delete {id}"), "deleted"),
        JobAction::Kick => (format!("kick-job {id}"), "kicked"),
        JobAction::Bury => match reserve_by_id(client, id)? {
            Ok(job) => (format!("bury {id} {}", job.priority.0), "buried"),
            Err(reason) => return Ok(reason),
        },
        JobAction::Release(priority, delay) => return release(client, id, priority, delay),
    };
    Ok(match client.call(&line)?.is_done(line)? {
        true => format!("{done} job {id}"),
        false => format!("job {id} cannot be {done}: it has gone, or is not in a state for this"),
    })
}

fn release(client: &mut Client, id: JobId, pri: Priority, delay: Seconds) -> Outcome<String> {
    if let Err(reason) = reserve_by_id(client, id)? {
        return Ok(reason);
    }
    Ok(match delay {
        Seconds(0) => {
            settle(client, to_make_ready(id, pri))?;
            format!("job {id} is ready")
        }
        Seconds(delay) => {
            settle(client, [format!("release {id} {} {delay}", pri.0)])?;
            format!("job {id} is delayed for {delay} s")
        }
    })
}
