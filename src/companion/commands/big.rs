//! `big`: what is large or stands out on a server, in one look.
//!
//! Tubes are counted by their statistics. Jobs are looked at up to a bound; if
//! there are more, the bytes of a tube are estimated from those.

use crate::command::{Command, Invocation, Kind, Opt, described, options};
use crate::failure::Outcome;
use crate::server::census::newest;
use crate::server::client::Client;
use crate::server::list::{MOST, Scope, Walk};
use crate::server::stats::{Facts, JobFacts, State};
use crate::server::take::measure;
use crate::server::tubes::stats_of;
use crate::text::output::{Progress, print};
use crate::text::words::span;
use beanpole::protocol::TubeName;
use std::cmp::Reverse;
use std::collections::HashMap;
use std::num::NonZeroU64;

pub const BIG: Command = Command {
    name: "big",
    operands: "[TUBE…]",
    operand_kind: Kind::Tube,
    about: "show what is large or bad: tubes, bodies, tries, ages",
    options: || described(OPTIONS),
    run: big,
    ..Command::BLANK
};

options! {
    count: NonZeroU64 =
        Opt::value("n", "count", "N", "look at N jobs at most (default: 100000)")
        => NonZeroU64::MIN.saturating_add(99_999),
    lines: NonZeroU64 =
        Opt::value("l", "lines", "N", "show N lines of each kind (default: 5)")
        => NonZeroU64::MIN.saturating_add(4),
}

/// On a server that lists no jobs, so many ids are asked for each job that may be
/// looked at.
const IDS: u64 = 4;

fn big(invocation: &Invocation) -> Outcome {
    let options = invocation.read(OPTIONS)?;
    let patterns = invocation.tubes()?;
    let mut client = invocation.connect()?;
    patterns.existing(&mut client)?;
    let names = patterns.meant(&mut client)?;
    let tubes = stats_of(&mut client, &names)?;
    let there: u64 = tubes
        .iter()
        .map(|(_, facts)| facts.jobs_in(&State::ALL))
        .sum();
    let most = usize::try_from(options.count.get()).unwrap_or(usize::MAX);
    let jobs = look(&mut client, &tubes, most, there)?;
    let looked = match jobs.len() as u64 {
        all if all >= there => String::new(),
        some => format!("; looked at {some} of them"),
    };
    let mut text = format!("{there} jobs in {} tubes{looked}\n", tubes.len());
    let lines = usize::try_from(options.lines.get()).unwrap_or(usize::MAX);
    let mut part = |title: &str, mut rows: Vec<(u64, String)>, shown: fn(u64) -> String| {
        rows.retain(|(value, _)| *value > 0);
        rows.sort_by_key(|(value, _)| Reverse(*value));
        if !rows.is_empty() {
            text += &format!("\n{title}\n");
        }
        for (value, what) in rows.into_iter().take(lines) {
            text += &format!("{:>12}  {what}\n", shown(value));
        }
    };
    let of_tubes = |value: &dyn Fn(&TubeName, &Facts) -> u64| {
        let rows = tubes
            .iter()
            .map(|(name, facts)| (value(name, facts), name.to_string()));
        rows.collect::<Vec<_>>()
    };
    let of_jobs = |value: fn(&JobFacts) -> u64| {
        let what = |job: &JobFacts| format!("job {} of {}, {}", job.id, job.tube, job.state.name());
        jobs.iter()
            .map(|job| (value(job), what(job)))
            .collect::<Vec<_>>()
    };
    let sizes = sizes(&jobs);
    let bytes = |name: &TubeName, facts: &Facts| {
        let (bytes, count) = sizes.get(name).copied().unwrap_or_default();
        let all = u128::from(facts.jobs_in(&State::ALL));
        u64::try_from(u128::from(bytes) * all / u128::from(count.max(1))).unwrap_or(u64::MAX)
    };
    let plain = |value: u64| value.to_string();
    part(
        "Most jobs",
        of_tubes(&|_, facts| facts.jobs_in(&State::ALL)),
        plain,
    );
    part("Most bytes", of_tubes(&bytes), plain);
    part(
        "Most buried jobs",
        of_tubes(&|_, facts| facts.jobs_in(&[State::Buried])),
        plain,
    );
    part(
        "Largest bodies, in bytes",
        of_jobs(|job| job.all.number("size")),
        plain,
    );
    part("Most tries", of_jobs(|job| job.reserves), plain);
    part(
        "Most timeouts",
        of_jobs(|job| job.all.number("timeouts")),
        plain,
    );
    part("Oldest", of_jobs(|job| job.age), span);
    print(text)
}

/// The bytes and the number of the jobs of each tube.
fn sizes(jobs: &[JobFacts]) -> HashMap<TubeName, (u64, u64)> {
    let mut sizes = HashMap::new();
    for job in jobs {
        let (bytes, count) = sizes.entry(job.tube.clone()).or_insert((0u64, 0u64));
        *bytes = bytes.saturating_add(job.all.number("size"));
        *count += 1;
    }
    sizes
}

/// Up to `most` jobs of these tubes, with the sizes of their bodies.
fn look(
    client: &mut Client,
    tubes: &[(TubeName, Facts)],
    most: usize,
    there: u64,
) -> Outcome<Vec<JobFacts>> {
    let scope = Scope {
        tubes: tubes.iter().map(|(name, _)| name.clone()).collect(),
        states: State::ALL.into(),
    };
    let mut jobs = Vec::new();
    match Walk::begin(client, &scope)? {
        Some(mut walk) => {
            let mut progress = Progress::new("looking at jobs", Some(there.min(most as u64)));
            while jobs.len() < most && !walk.is_over() {
                let page = walk.page(client, MOST)?;
                progress.add(page.len() as u64);
                jobs.extend(page);
            }
        }
        None => jobs = newest(client, &scope, IDS.saturating_mul(most as u64))?,
    }
    jobs.truncate(most);
    measure(client, &mut jobs)?;
    Ok(jobs)
}
