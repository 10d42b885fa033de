//! The YAML documents of `stats`, `stats-tube`, `stats-job` and the lists of
//! tubes and jobs. Only the part of YAML is read that servers use: one `key:
//! value` or `- item` in a line, with or without double quotes around the
//! value.

use crate::failure::{Failure, Outcome};
use crate::text::json::Json;
use crate::text::shown;
use crate::values::Parse;
pub use beanpole::protocol::JobState as State;
use beanpole::protocol::jobs::COUNTERS;
use beanpole::protocol::{JobId, Limit, Priority, PutOptions, Seconds, TubeName};
use serde::{Serialize, Serializer};
use std::borrow::Cow;

/// The largest dictionary, in bytes.
const LARGEST: usize = 1 << 16;

/// A dictionary, in the order of the server. There may be very many, so each has one text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Facts {
    /// The keys and their values, one after the other.
    text: String,
    /// Where each key ends, and where its value ends.
    ends: Vec<(usize, usize)>,
}

/// The sum of these counts, which a server may make as large as it likes.
pub fn total(counts: impl IntoIterator<Item = u64>) -> u64 {
    counts.into_iter().fold(0, u64::saturating_add)
}

impl Facts {
    /// Reads the dictionary in this document.
    pub fn parse(document: &[u8]) -> Result<Facts, String> {
        if document.len() > LARGEST {
            return Err(format!("{} bytes are no statistics", document.len()));
        }
        Facts::of(lines(&shown(document, true)))
    }

    /// Reads each of these as `key: value`.
    fn of<'a>(texts: impl Iterator<Item = &'a str>) -> Result<Facts, String> {
        let mut facts = Facts::default();
        for text in texts {
            let (key, value) = text
                .split_once(':')
                .ok_or_else(|| format!("'{text}' is not a line of statistics"))?;
            facts.push(key, &unquoted(value));
        }
        Ok(facts)
    }

    fn push(&mut self, key: &str, value: &str) {
        self.text += key;
        let key = self.text.len();
        self.text += value;
        self.ends.push((key, self.text.len()));
    }

    /// The value of this key.
    pub fn get(&self, key: &str) -> Option<&str> {
        let found = self.iter().find(|(known, _)| *known == key);
        found.map(|(_, value)| value)
    }

    /// The value of this key as text; empty if there is none.
    pub fn text(&self, key: &str) -> &str {
        self.get(key).unwrap_or("")
    }

    /// The value of this key as a whole number; 0 if there is none, because
    /// servers of different age know different keys.
    pub fn number(&self, key: &str) -> u64 {
        self.text(key).parse().unwrap_or(0)
    }

    /// How many connections watch or use a tube, without the one that asks: a connection
    /// watches and uses `default` from the start.
    pub fn others(&self, key: &str) -> u64 {
        let ours = u64::from(self.text("name") == "default");
        self.number(key).saturating_sub(ours)
    }

    /// How many connections watch a tube to work. Each watches `default` from the start, so
    /// of that at most those count that have asked for a job, and none of the `idle` ones,
    /// which have not.
    pub fn workers(&self, server: &Facts, idle: u64) -> u64 {
        match self.text("name") {
            "default" => {
                let watching = self.number("current-watching").saturating_sub(idle);
                watching.min(server.number("current-workers"))
            }
            _ => self.others("current-watching"),
        }
    }

    /// How many jobs a server or a tube has in these states.
    pub fn jobs_in(&self, states: &[State]) -> u64 {
        let count = |state: &State| self.number(&format!("current-jobs-{}", state.name()));
        total(states.iter().map(count))
    }

    /// How many jobs there are in each state, in the order of [`State::ALL`].
    pub fn jobs(&self) -> [u64; State::ALL.len()] {
        State::ALL.map(|state| self.jobs_in(&[state]))
    }

    /// How many connections a server has, and how many of them put, work and wait.
    pub fn connections(&self) -> [u64; 4] {
        let count = |key| self.number(&format!("current-{key}"));
        ["connections", "producers", "workers", "waiting"].map(count)
    }

    /// The options of the put of a job, if the server reports any, to be put once more.
    pub fn options(&self) -> Option<PutOptions> {
        let mut text = String::new();
        if let Some(key) = self.get("idempotency-key") {
            text += &format!(" idp:{key}:{}", self.number("idempotency-ttl"));
        }
        if let Some(key) = self.get("concurrency-key") {
            text += &format!(" con:{key}:{}", self.number("concurrency-limit"));
        }
        if let Some(tries) = self.get("tries") {
            text += &format!(" try:{tries}");
        }
        // What is left of its time: a job whose time is over may still be reserved or buried.
        if self.get("expires-in").is_some() {
            text += &format!(" exp:{}", self.number("expires-in").max(1));
        }
        PutOptions::parse(text.as_bytes())
    }

    /// Adds a key, if it is missing.
    pub fn add_missing(&mut self, key: &str, value: impl ToString) {
        if self.get(key).is_none() {
            self.push(key, &value.to_string());
        }
    }

    /// The same without this key.
    pub fn without(&self, unwanted: &str) -> Facts {
        let mut facts = Facts::default();
        let wanted = self.iter().filter(|(key, _)| *key != unwanted);
        wanted.for_each(|(key, value)| facts.push(key, value));
        facts
    }

    /// All keys with their values.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        let mut from = 0;
        self.ends.iter().map(move |&(key, value)| {
            let start = std::mem::replace(&mut from, value);
            (&self.text[start..key], &self.text[key..value])
        })
    }
}

/// As JSON, a dictionary has numbers as numbers and text as text.
impl Serialize for Facts {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        // The `id` of a server is no number.
        let is_server = self.get("pid").is_some();
        to.collect_map(self.iter().map(|(key, value)| {
            let json: Json = match key {
                "draining" | "producer" | "worker" | "waiting" => (value == "true").into(),
                "name" | "tube" | "version" | "hostname" | "os" | "platform" | "address" => {
                    value.into()
                }
                "idempotency-key" | "concurrency-key" => value.into(),
                "id" if is_server => value.into(),
                _ => number_or_text(value),
            };
            (key, json)
        }))
    }
}

/// A number if this text is one in JSON, which has no needless zeros, else the text.
fn number_or_text(text: &str) -> Json {
    text.parse().map_or(text.into(), Json::Number)
}

/// The jobs or connections in a list, and the number from which to continue if there
/// are more.
pub fn list(document: &[u8]) -> Result<(Vec<Facts>, Option<u64>), String> {
    let mut items = Vec::new();
    let document = shown(document, true);
    for line in lines(&document) {
        let item = line.strip_prefix("- {");
        if let Some(item) = item.and_then(|item| item.strip_suffix('}')) {
            items.push(Facts::of(item.split(", "))?);
        } else if let Some(next) = line.strip_prefix("next: ") {
            let next = next.parse().map_err(|_| format!("'{next}' is not an id"))?;
            return Ok((items, Some(next).filter(|next| *next > 0)));
        }
    }
    Err("the list has no end".into())
}

/// The tubes in a list.
pub fn tubes(document: &[u8]) -> Result<Vec<TubeName>, String> {
    let document = shown(document, true);
    let names = lines(&document).map(|line| {
        let name = line.strip_prefix("-").map(unquoted);
        let tube = name.and_then(|name| TubeName::parse(name.as_bytes()));
        tube.ok_or_else(|| format!("'{line}' is not a line of a list of tubes"))
    });
    names.collect()
}

fn lines(document: &str) -> impl Iterator<Item = &str> {
    let lines = document.lines();
    lines.filter(|line| !line.is_empty() && *line != "---")
}

fn unquoted(value: &str) -> Cow<'_, str> {
    let value = value.trim();
    let inner = value
        .strip_prefix('"')
        .and_then(|rest| rest.strip_suffix('"'));
    match inner {
        Some(inner) => inner.replace("\\\"", "\"").replace("\\\\", "\\").into(),
        None => value.into(),
    }
}

/// The states in which no connection holds a job, in the order in which to
/// go through them: ready jobs come last, because others may become ready
/// meanwhile.
pub const FREE: [State; 3] = [State::Buried, State::Delayed, State::Ready];

impl Parse for State {
    fn parse(text: &str) -> Result<State, String> {
        let wrong = || format!("'{text}' is not ready, delayed, reserved or buried");
        State::parse(text.as_bytes()).ok_or_else(wrong)
    }
}

/// Those of some states that are given, or all of them if none is, in their order.
pub fn states<const N: usize>(some: [State; N], given: &[State]) -> Vec<State> {
    let wanted = |state: &State| given.is_empty() || given.contains(state);
    some.into_iter().filter(wanted).collect()
}

/// What a server tells of a job: the values that commands use, and `all` of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobFacts {
    pub id: JobId,
    pub tube: TubeName,
    pub state: State,
    pub priority: Priority,
    pub age: u64,
    pub ttr: Seconds,
    pub time_left: Seconds,
    pub reserves: u64,
    pub all: Facts,
}

impl JobFacts {
    /// The limit for which the job is not given out although it is ready: as
    /// many jobs with its key as may be are reserved.
    pub fn full_limit(&self) -> Option<Limit> {
        let is_full = self.all.get("concurrency-free") == Some("0");
        let options = (is_full && self.state == State::Ready).then(|| self.all.options());
        options.flatten()?.limit
    }

    /// What a table says before the body: for which limit a ready job waits, or
    /// which connection holds a reserved one.
    pub fn note(&self) -> String {
        match (self.full_limit(), self.all.number("reserved-by")) {
            (Some(Limit { key, most }), _) => format!("limit {key}:{most}  "),
            (None, 0) => String::new(),
            (None, connection) => format!("connection {connection}  "),
        }
    }

    /// What `stats-job` would show of a job that `reserve-with-stats` has just given, by the
    /// words that follow its length; `None` if it has options, since a list of jobs shows
    /// more of these.
    pub fn of_reserved(id: JobId, told: &[&str]) -> Option<JobFacts> {
        let keys = [["tube", "pri", "age", "delay", "ttr"], COUNTERS].concat();
        let mut facts = Facts::default();
        facts.push("id", &id.to_string());
        for (&key, value) in keys.iter().zip(told) {
            facts.push(key, value);
            // What follows from the reservation has the place that it has there.
            match key {
                "tube" => facts.push("state", "reserved"),
                "ttr" => facts.push("time-left", value),
                _ => {}
            }
        }
        let job = JobFacts::read(facts).ok()?;
        job.filter(|_| told.len() == keys.len())
    }

    /// The job in this dictionary. `None` if it is in a state that the protocol
    /// does not have: nothing can be done to such a job. beanstalkd keeps a job
    /// in the state 'invalid' for each `put` that it refused for want of room.
    pub fn read(facts: Facts) -> Outcome<Option<JobFacts>> {
        let wrong = |key| {
            let (id, value) = (facts.text("id"), facts.text(key));
            Failure::Unreachable(format!("job {id}: '{value}' is no {key} of a job"))
        };
        let number = |key| facts.text(key).parse().map_err(|_| wrong(key));
        let Some(state) = State::parse(facts.text("state").as_bytes()) else {
            return match facts.get("state") {
                Some(_) => Ok(None),
                None => Err(wrong("state")),
            };
        };
        Ok(Some(JobFacts {
            id: JobId(facts.text("id").parse().map_err(|_| wrong("id"))?),
            tube: TubeName::parse(facts.text("tube").as_bytes()).ok_or_else(|| wrong("tube"))?,
            state,
            priority: Priority(number("pri")?),
            age: facts.number("age"),
            ttr: Seconds(number("ttr")?),
            time_left: Seconds(number("time-left").unwrap_or(0)),
            reserves: facts.number("reserves"),
            all: facts,
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::json::json;

    #[test]
    fn a_dictionary_keeps_its_order_and_loses_its_quotes() {
        let facts = Facts::parse(b"---\nid: 1\nname: \"a\"\nos: #1 SMP: x\nempty:\n\n").unwrap();
        let pairs: Vec<_> = facts.iter().collect();
        assert_eq!(
            pairs,
            [
                ("id", "1"),
                ("name", "a"),
                ("os", "#1 SMP: x"),
                ("empty", "")
            ]
        );
    }

    #[test]
    fn names_stay_text_and_counts_become_numbers_in_json() {
        let server = b"---\ntotal-jobs: 3\npid: 9\nrusage-utime: 0.001438\nversion: \"1.12\"\nid: 12345678\ndraining: false\n";
        assert_eq!(
            json!(Facts::parse(server).unwrap()).to_string(),
            r#"{"total-jobs":3,"pid":9,"rusage-utime":0.001438,"version":"1.12","id":"12345678","draining":false}"#
        );
        let job = b"---\nid: 7\ntube: 9\nidempotency-key: 42\n";
        assert_eq!(
            json!(Facts::parse(job).unwrap()).to_string(),
            r#"{"id":7,"tube":"9","idempotency-key":"42"}"#
        );
    }

    #[test]
    fn only_a_number_of_json_becomes_a_number() {
        let told = ["7", "-0.50", "1.5", "0", "007", "+1", " 1", "", "1.13-b"].map(number_or_text);
        let json = json!(told).to_string();
        assert_eq!(json, r#"[7,-0.50,1.5,0,"007","+1"," 1","","1.13-b"]"#);
    }

    #[test]
    fn a_list_of_jobs_is_read_with_the_id_to_continue_from() {
        let list = b"---\njobs:\n- {id: 7, tube: \"a\", size: 5}\n- {id: 9}\nnext: 12\n";
        let (jobs, next) = super::list(list).unwrap();
        let pairs: Vec<_> = jobs[0].iter().collect();
        assert_eq!(pairs, [("id", "7"), ("tube", "a"), ("size", "5")]);
        assert_eq!((jobs[1].number("id"), next), (9, Some(12)));
        let empty = b"---\njobs: []\nnext: 0\n";
        assert_eq!(super::list(empty), Ok((vec![], None)));
        assert!(super::list(b"---\njobs:\n").is_err());
    }

    #[test]
    fn counts_that_no_server_can_have_are_no_reason_to_panic() {
        let told = "current-jobs-ready: 18446744073709551615\ncurrent-jobs-delayed: 1\n";
        let facts = Facts::parse(told.as_bytes()).unwrap();
        assert_eq!(facts.jobs_in(&State::ALL), u64::MAX);
    }

    #[test]
    fn a_list_of_tubes_is_read_with_and_without_quotes() {
        let names = tubes(b"---\n- default\n- \"a;b\"\n").unwrap();
        assert_eq!(
            names.iter().map(TubeName::as_str).collect::<Vec<_>>(),
            ["default", "a;b"]
        );
        assert!(tubes(b"---\n- a b\n").is_err());
        assert!(tubes(b"---\ndefault\n").is_err());
    }
}
