//! What keeps jobs from being done: of a tube in a few words, as screens show it, and in
//! sentences for people; and why a server takes no jobs.
//!
//! [`TABLE`] is all that can be wrong with a tube. `why`, `top`, the console and the
//! choice of `metrics` read it, and each row names the alert that tells the same. What a
//! row looks at follows from statistics and some jobs; [`sentences`] ask about more of
//! these. Nothing is changed by it.

use crate::failure::Outcome;
use crate::remote::finder::{MOST, connections, first, near};
use crate::remote::tubes::{growth, is_large};
use crate::remote::{Client, Facts, JobFacts, State, Tube};
use crate::text::{NAMED, jobs, listed, shell_word, span};
use beanpole::protocol::{JobId, Key, TubeName};
use std::collections::{BTreeMap, HashMap};
use std::thread;
use std::time::Duration;

/// A kind of trouble.
pub struct Kind {
    /// The alert for it in `src/packaging/prometheus-rules.yml`, which also demands that
    /// it stays so for some time.
    pub rule: &'static str,
    /// Whether it needs a person, or only may need one.
    pub is_grave: bool,
    /// What `top` shows after the name of such a tube.
    pub mark: &'static str,
    /// The figure by which it is seen; `None` if there is nothing to be said about it.
    seen: fn(&Tube) -> Option<u64>,
    /// From this figure on it is trouble. A person who asks for the tube is told earlier.
    pub least: u64,
    words: fn(&Tube, u64) -> String,
    /// What is said of it to a person; empty if nothing is.
    said: fn(&Look, u64) -> String,
}

/// All kinds of trouble, the worst first.
pub static TABLE: [Kind; 11] = [
    // A job was reserved often and never done: its worker is lost each time, or takes too long.
    Kind {
        rule: "BeanpoleJobFails",
        is_grave: true,
        mark: "!job",
        seen: |tube| tube.suspect.as_ref().map(failures),
        least: OFTEN,
        words: |tube, tries| {
            let id = suspect(tube);
            format!("job {id} fails at each of {tries} tries")
        },
        said: |look, tries| {
            let (id, name) = (suspect(&look.tube), shell_word(look.name.as_str()));
            format!(
                "Job {id} was reserved {tries} times, and each time the worker was lost or took \
                 too long: 'beanpole ls {name} --tries {OFTEN}' lists such jobs."
            )
        },
    },
    // Jobs are ready, and no client watches the tube.
    Kind {
        rule: "BeanpoleTubeUnwatched",
        is_grave: true,
        mark: "",
        seen: |tube| Some(tube.ready()).filter(|ready| *ready > 0 && tube.watching == 0),
        least: 1,
        words: |_, _| "nobody watches".into(),
        said: |_, ready| format!("Nobody watches it; {}.", jobs(ready, "ready")),
    },
    // The tube has as many jobs as it may have: puts are refused.
    Kind {
        rule: "BeanpoleTubeFull",
        is_grave: true,
        mark: "",
        seen: |tube| is_full(tube.facts()).then(|| tube.facts().number("max-jobs")),
        least: 1,
        words: |_, _| "full".into(),
        said: |_, most| format!("It is full: puts are refused while it has {most} jobs."),
    },
    Kind {
        rule: "BeanpoleJobsBuried",
        is_grave: true,
        mark: "",
        seen: |tube| Some(tube.facts().jobs_in(&[State::Buried])).filter(|buried| *buried > 0),
        least: 1,
        words: |_, buried| format!("{buried} buried"),
        said: |look, buried| {
            let first = look.buried.map_or(String::new(), |id| {
                format!(", the next one to be kicked is {id}")
            });
            format!("{}{first}.", jobs(buried, "buried"))
        },
    },
    // Jobs that are there have timed out, or others in the last ten minutes.
    Kind {
        rule: "BeanpoleJobsTimeOut",
        is_grave: true,
        mark: "!time",
        seen: |tube| {
            let timeouts = tube.recent_timeouts().max(tube.late);
            Some(timeouts).filter(|timeouts| *timeouts >= OFTEN)
        },
        least: OFTEN,
        words: |_, timeouts| format!("{timeouts} timeouts"),
        said: |look, timeouts| {
            let facts = look.tube.facts();
            let [all, reserves] = ["total-timeouts", "total-reserves"].map(|key| facts.number(key));
            match all {
                // beanstalkd tells those of jobs alone.
                0 => format!("Jobs that are there have timed out {timeouts} times."),
                _ => format!("{all} of {reserves} reservations timed out."),
            }
        },
    },
    // It is paused, though jobs are ready.
    Kind {
        rule: "BeanpoleTubePaused",
        is_grave: true,
        mark: "",
        seen: |tube| Some(tube.pause()).filter(|left| *left > 0 && tube.ready() > 0),
        least: 1,
        words: |_, left| format!("paused, {} left", span(left)),
        said: |look, left| {
            let ready = match look.tube.watching {
                // That was said.
                0 => String::new(),
                _ => format!("; {}", jobs(look.tube.ready(), "ready")),
            };
            format!("It is paused for another {}{ready}.", span(left))
        },
    },
    // Jobs are ready and workers wait for some: as many as may be with the keys of these
    // jobs are reserved.
    Kind {
        rule: "BeanpoleJobsLimited",
        is_grave: false,
        mark: "",
        seen: |tube| {
            let is_wanted = tube.is_open() && tube.waiting() > 0;
            Some(if is_wanted { tube.ready() } else { 0 })
        },
        least: 1,
        words: |_, _| "waits for a limit".into(),
        said: |look, _| limited(look),
    },
    // A ready job has waited, and none was deleted in this time, though there are workers.
    Kind {
        rule: "BeanpoleJobsWait",
        is_grave: false,
        mark: "",
        seen: |tube| tube.is_served().then(|| tube.still()),
        least: 60,
        words: |_, still| format!("no job done for {}", span(still)),
        said: |look, _| busy(look),
    },
    // More jobs are put than are done.
    Kind {
        rule: "BeanpoleTubeGrows",
        is_grave: false,
        mark: "!grows",
        seen: |tube| tube.growth.filter(|_| is_large(tube.facts())),
        least: 6,
        words: |_, rate| {
            let (rate, _, unit) = in_time(rate);
            format!("grows by {rate}/{unit}")
        },
        said: |look, rate| {
            let (rate, unit, _) = in_time(rate);
            format!("It grows by {rate} jobs a {unit}; {}.", look.from)
        },
    },
    // The last ready job is old, and others go before it that were put much later.
    Kind {
        rule: "BeanpoleJobStarves",
        is_grave: false,
        mark: "",
        seen: |tube| {
            let late = tube.last_age?.checked_sub(tube.age.unwrap_or(0));
            late.filter(|late| *late >= 60)
        },
        least: 600,
        words: |tube, _| {
            let age = tube.last_age.unwrap_or(0);
            format!("a job waits behind others for {}", span(age))
        },
        said: |look, _| {
            let ages = [look.tube.last_age, look.tube.age];
            let [last, next] = ages.map(|age| span(age.unwrap_or(0)));
            format!(
                "Its last ready job was put {last} ago, the next one {next} ago: jobs of \
                 smaller priorities go before it."
            )
        },
    },
    // Jobs expired in the last ten minutes, as far as it was watched.
    Kind {
        rule: "BeanpoleJobsExpire",
        is_grave: false,
        mark: "",
        seen: |tube| (tube.facts().number("total-expired") > 0).then(|| tube.recently_expired()),
        least: 1,
        words: |_, expired| format!("{expired} expired"),
        said: |look, _| {
            let expired = look.tube.facts().number("total-expired");
            format!("Of its jobs, {expired} expired untaken.")
        },
    },
];

/// Something that is wrong with a tube.
#[derive(Clone)]
pub struct Trouble {
    pub kind: &'static Kind,
    pub words: String,
    /// How bad it is.
    pub severity: usize,
}

/// From this number on, reservations of a job that were in vain, or timeouts of a tube,
/// will probably continue.
pub const OFTEN: u64 = 3;

impl Trouble {
    /// All trouble of a tube, the worst first.
    pub fn of(tube: &Tube) -> Vec<Trouble> {
        let found = TABLE.iter().zip((1..=TABLE.len()).rev());
        let found = found.filter_map(|(kind, severity)| {
            let figure = (kind.seen)(tube).filter(|figure| *figure >= kind.least)?;
            let words = (kind.words)(tube, figure);
            Some(Trouble {
                kind,
                words,
                severity,
            })
        });
        found.collect()
    }
}

impl Tube {
    fn ready(&self) -> u64 {
        self.facts().jobs_in(&[State::Ready])
    }

    fn waiting(&self) -> u64 {
        self.facts().number("current-waiting")
    }

    /// Whether its ready jobs get no worker, though nothing is known to be wrong with these:
    /// it is paused, nobody watches it, or those who wait get none.
    pub fn is_held_up(&self) -> bool {
        self.ready() > 0 && (self.pause() > 0 || self.watching == 0 || self.waiting() > 0)
    }

    /// For how many seconds more it is paused.
    pub fn pause(&self) -> u64 {
        self.facts().number("pause-time-left")
    }

    /// Whether jobs are ready, and those who watch it do not wait for any.
    pub fn is_served(&self) -> bool {
        self.is_open() && self.watching > 0 && self.waiting() == 0
    }

    /// Whether it has a job for whoever wants one.
    fn is_open(&self) -> bool {
        self.ready() > 0 && self.pause() == 0
    }
}

/// The job of it that fails at each try.
fn suspect(tube: &Tube) -> JobId {
    tube.suspect.as_ref().map_or(JobId(0), |job| job.id)
}

/// Jobs in a minute as a number in a second or a minute, with the unit in words and short.
fn in_time(rate: u64) -> (u64, &'static str, &'static str) {
    match rate {
        ..60 => (rate, "minute", "min"),
        _ => (rate / 60, "second", "s"),
    }
}

/// Whether a tube has as many jobs as it may have.
pub fn is_full(tube: &Facts) -> bool {
    let most = tube.number("max-jobs");
    most > 0 && tube.jobs_in(&State::ALL) >= most
}

/// All trouble of a tube in words; empty if nothing is wrong.
pub fn words(troubles: &[Trouble]) -> String {
    let words = troubles.iter().map(|trouble| trouble.words.as_str());
    words.collect::<Vec<_>>().join(", ")
}

/// How many times a job was reserved and its worker was lost or took too long. A reservation
/// that ends with a release or a burial is counted by the server, and the rest has failed.
pub fn failures(job: &JobFacts) -> u64 {
    let number = |key| job.all.number(key);
    let settled = number("releases").saturating_add(number("buries"));
    let under_way = u64::from(job.state == State::Reserved);
    let others = settled.saturating_add(under_way);
    job.reserves.saturating_sub(others)
}

/// Why a server takes no new jobs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// This is intended.
    Drains,
    MemoryFull,
    DiskFull,
}

impl Refusal {
    /// Why this server takes none, if it says so.
    pub fn of(stats: &Facts) -> Option<Refusal> {
        match stats.text("put-refusal") {
            "3" => Some(Refusal::MemoryFull),
            "2" => Some(Refusal::DiskFull),
            _ if stats.text("draining") == "true" => Some(Refusal::Drains),
            _ => None,
        }
    }

    pub fn words(self) -> &'static str {
        match self {
            Refusal::Drains => "it drains",
            Refusal::MemoryFull => "its memory is full",
            Refusal::DiskFull => "its disk is full",
        }
    }
}

/// How long it is looked who puts jobs into a tube, and how often if nobody does.
const A_MOMENT: Duration = Duration::from_millis(200);
const MOMENTS: usize = 10;

/// About how many jobs the sentences ask.
const SOME: usize = 100;

/// A tube that was looked into.
struct Look<'a> {
    name: &'a TubeName,
    tube: Tube,
    /// Some ready jobs, the next one first, and some reserved ones, those with the least
    /// time left first.
    next: Vec<JobFacts>,
    held: Vec<JobFacts>,
    /// The job that a kick would make ready first.
    buried: Option<JobId>,
    /// Where most jobs come from, if it grows.
    from: String,
}

/// What is in the way of the jobs of this tube, or may be, the worst first; empty if
/// nothing is.
pub fn sentences(client: &mut Client, name: &TubeName, tube: &Tube) -> Outcome<Vec<String>> {
    let [ready, _, delayed, _] = tube.facts().jobs();
    let next = near(client, name, State::Ready, SOME)?;
    let mut held = near(client, name, State::Reserved, MOST)?;
    held.sort_by_key(|job| job.time_left.0);
    let mut tube = tube.clone();
    tube.look_at(next.iter().chain(&held));
    let from = match tube.growth {
        Some(_) => producer(client, name)?,
        None => String::new(),
    };
    let look = Look {
        name,
        tube,
        next,
        held,
        buried: first(client, name, State::Buried)?,
        from,
    };
    let seen = TABLE.iter();
    let seen = seen.filter_map(|kind| Some((kind.said)(&look, (kind.seen)(&look.tube)?)));
    let mut said: Vec<_> = seen.filter(|said| !said.is_empty()).collect();
    if ready > 0 {
        said.extend(look.held.iter().take(NAMED).map(holder));
    } else if delayed > 0 {
        let next = near(client, name, State::Delayed, 1)?.pop();
        let left = span(next.map_or(0, |job| job.time_left.0.into()));
        let delayed = jobs(delayed, "delayed");
        said.push(format!(
            "None is ready; {delayed}, the next one for another {left}."
        ));
    }
    Ok(said)
}

/// Which connection puts most into a tube: more than half of what is put there in a moment.
/// The server counts what a connection has put since it came, so this takes two looks.
fn producer(client: &mut Client, tube: &TubeName) -> Outcome<String> {
    let Some(before) = connections(client)? else {
        return Ok("from whom, this server does not tell".into());
    };
    let had: HashMap<_, _> = (before.iter())
        .map(|one| (one.text("id"), one.number("puts")))
        .collect();
    let mut total = || {
        let facts = client.tube_stats(tube)?;
        Outcome::Ok(facts.map_or(0, |facts| facts.number("total-jobs")))
    };
    let (begun, mut all, mut moments) = (total()?, 0, 0..MOMENTS);
    while all == 0 && moments.next().is_some() {
        thread::sleep(A_MOMENT);
        all = growth(begun, total()?);
    }
    let after = connections(client)?.unwrap_or_default();
    let of_it = after.iter().filter(|one| one.text("tube") == tube.as_str());
    let puts = of_it.map(|one| {
        let had = had.get(one.text("id")).copied().unwrap_or(0);
        (growth(had, one.number("puts")), one.text("address"))
    });
    let most = puts.max().filter(|(puts, _)| puts.saturating_mul(2) > all);
    Ok(match most {
        Some((1.., address)) => format!("most of them come from {address}"),
        _ => "no one connection puts most of them".into(),
    })
}

/// What the workers of a tube do that take none of its ready jobs.
fn busy(look: &Look) -> String {
    let (tube, facts) = (&look.tube, look.tube.facts());
    let [ready, reserved, ..] = facts.jobs();
    let workers = match (tube.watching, tube.is_moving(), reserved) {
        (1, true, _) | (1, _, 1..) => "Its worker is busy".into(),
        (1, ..) => "Its worker holds no job of it and does not ask for one".into(),
        (all, true, _) => format!("Its {all} workers are busy"),
        (all, _, 0) => format!("None of its {all} workers holds a job of it or asks for one"),
        (all, ..) if reserved < all => format!("None of its {all} workers asks for a job"),
        (all, ..) => format!("All of its {all} workers are busy"),
    };
    let with = match reserved {
        0 => ";".into(),
        _ => format!(": {},", jobs(reserved, "reserved")),
    };
    let late = match tube.age {
        Some(age) if tube.still() >= 60 => format!(", the next one for {}", span(age)),
        _ => String::new(),
    };
    format!("{workers}{with} {}{late}.", jobs(ready, "ready"))
}

/// Who holds a job, and for how long.
fn holder(job: &JobFacts) -> String {
    let (id, left, tries) = (job.id, span(job.time_left.0.into()), job.reserves);
    let worker = match job.all.get("reserved-by") {
        Some(connection) => format!("connection {connection}"),
        None => "a worker".into(),
    };
    format!("Job {id} is held by {worker} for another {left}, at try {tries}.")
}

/// Sentences about ready jobs that a full limit keeps from workers: one for each
/// key among those of the next jobs.
fn limited(look: &Look) -> String {
    let (ready, next) = (look.tube.ready(), &look.next);
    let mut full: BTreeMap<Key, (u32, u64)> = BTreeMap::new();
    for limit in next.iter().filter_map(JobFacts::full_limit) {
        let (most, count) = full.entry(limit.key).or_default();
        // If jobs name different limits, the largest counts.
        *most = limit.most.max(*most);
        *count += 1;
    }
    let sentence = |(key, (most, count))| {
        let jobs = match count {
            1 if ready == 1 => "Its ready job waits".into(),
            1 => format!("1 of the next {} ready jobs waits", next.len()),
            all if all == ready => format!("All {all} ready jobs wait"),
            some => format!("{some} of the next {} ready jobs wait", next.len()),
        };
        let has_key = |job: &&JobFacts| {
            let limit = job.all.options().and_then(|options| options.limit);
            limit.is_some_and(|limit| limit.key == key)
        };
        let ids: Vec<_> = look.held.iter().filter(has_key).map(|job| job.id).collect();
        let reserved = match ids.as_slice() {
            [] => "jobs with this key are reserved in other tubes".into(),
            [id] => format!("job {id} with this key is reserved"),
            ids => format!("jobs {} with this key are reserved", listed(ids)),
        };
        format!("{jobs} for limit {key}:{most}: {reserved}.")
    };
    let sentences = full.into_iter().take(NAMED).map(sentence);
    sentences.collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use support::text_of;

    /// What it fires for, promtool plays: see tests/machines/packaging.
    #[test]
    fn each_kind_of_trouble_has_an_alert_and_each_alert_a_test() {
        let (rules, tests) = (
            text_of("src/packaging/prometheus-rules.yml"),
            text_of("tests/machines/alerts.yml"),
        );
        let mut parts = rules.split("- alert: ").skip(1);
        let of_servers = [
            "Down",
            "RefusesPuts",
            "Drains",
            "MemoryFills",
            "ConnectionsRunOut",
        ];
        for name in of_servers {
            let rule = parts.next().expect("a rule");
            assert!(rule.starts_with(&format!("Beanpole{name}\n")), "{rule}");
        }
        for kind in &TABLE {
            let rule = parts.next().unwrap_or_default();
            assert!(rule.starts_with(&format!("{}\n", kind.rule)), "{rule}");
            // What is a figure in both is the same. How long no job was done is there in
            // the time of the rule.
            let is_same = rule.contains(&format!(">= {}\n", kind.least));
            assert!(is_same || matches!(kind.least, 1 | 60), "{rule}");
        }
        assert_eq!(parts.next(), None, "no alert without a row of the table");
        for part in rules.split("- alert: ").skip(1) {
            let name = part.lines().next().expect("a name");
            let times = tests.matches(&format!("alertname: {name},")).count();
            assert!(times >= 3, "{name}: before, while it lasts, and after it");
        }
    }

    #[test]
    fn a_job_behind_a_stream_of_more_urgent_ones_is_trouble() {
        for (age, last_age, words) in [
            (Some(3), Some(7200), "a job waits behind others for 2h"),
            (Some(3), Some(599), ""),
            // Those that were put before it go before it.
            (Some(590), Some(610), ""),
            (None, None, ""),
        ] {
            let mut tube = Tube::default();
            (tube.age, tube.last_age) = (age, last_age);
            assert_eq!(super::words(&Trouble::of(&tube)), words);
        }
    }
}
