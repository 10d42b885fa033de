//! What several commands ask about all tubes or some: their statistics and
//! their next jobs.

use crate::failure::Outcome;
use crate::server::client::{Client, facts, job};
use crate::server::reply::Reply;
use crate::server::stats::{Facts, JobFacts, State};
use crate::server::take::jobs_of;
use beanpole::protocol::TubeName;

/// The statistics of the tubes among these that exist.
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

/// The next ready job of each of these tubes that has one, in the order of the
/// tubes.
///
/// With equal priorities this is the oldest job; the protocol tells no other
/// age. To find it, the whole job is read, with its body.
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
