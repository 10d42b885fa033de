//! All tubes, or some: what the server says of them, and their next jobs.

use crate::failure::Outcome;
use crate::server::client::{Client, facts, job};
use crate::server::reply::Reply;
use crate::server::stats::{Facts, JobFacts, State};
use crate::server::take::jobs_of;
use beanpole::protocol::TubeName;

/// What the server says about those of these tubes that exist.
pub fn stats_of(client: &mut Client, names: &[TubeName]) -> Outcome<Vec<(TubeName, Facts)>> {
    let mut all = Vec::new();
    let line = |name: &&TubeName| format!("stats-tube {name}");
    client.each(names, line, |name, reply| {
        let facts = facts(&line(&name), reply)?;
        all.extend(facts.map(|facts| (name.clone(), facts)));
        Ok(())
    })?;
    Ok(all)
}

/// The tubes among these that have a ready job.
pub fn names_with_ready(tubes: &[(TubeName, Facts)]) -> Vec<TubeName> {
    let has_ready = |facts: &Facts| facts.jobs_in(&[State::Ready]) > 0;
    let ready = tubes.iter().filter(|(_, facts)| has_ready(facts));
    ready.map(|(name, _)| name.clone()).collect()
}

/// The next ready job of each of these tubes that has one, in their order.
///
/// With equal priorities it is the oldest one; the protocol tells no other age.
/// It takes looking at the job, body and all.
pub fn next_ready(client: &mut Client, tubes: &[TubeName]) -> Outcome<Vec<JobFacts>> {
    let lines = tubes
        .iter()
        .flat_map(|tube| [format!("use {tube}"), "peek-ready".into()]);
    let mut ids = Vec::new();
    client.each(lines, String::clone, |line, reply| {
        if !matches!(reply, Reply::Using(_)) {
            ids.extend(job(line, reply)?.map(|job| job.id));
        }
        Ok(())
    })?;
    jobs_of(client, ids)
}
