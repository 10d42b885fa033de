//! `binlog cat`: writes every record as a line of JSON.

use super::findings::{name, read, say};
use crate::failure::{Outcome, Status};
use crate::inspection::{Finding, Inspection};
use crate::text::json::Json;
use crate::text::output::Output;
use beanpole::binlog::Record;
use beanpole::engine::{Counters, StoredJob, StoredState};
use beanpole::protocol::{Priority, Seconds};

/// Writes every record as a line of JSON.
pub fn cat(inspection: &Inspection) -> Outcome {
    let mut output = Output::new();
    let flaws = read(inspection, |finding| {
        say(&finding);
        match record_line(&finding) {
            Some(line) => output.line(line),
            None => Ok(()),
        }
    })?;
    output.sync()?;
    Ok(Status::done_if(flaws == 0))
}

fn record_line(finding: &Finding) -> Option<Json> {
    let (at, kind, fields) = match finding {
        Finding::Record(at, _, record) => match record {
            Record::Put(job) => (at, "job", job_fields(job)),
            Record::Update(update) => {
                let (id, Priority(pri), Seconds(delay)) =
                    (update.id, update.priority, update.delay);
                let mut fields = vec![pair("id", id.0), pair("pri", pri), pair("delay", delay)];
                fields.extend(state_fields(update.state, &update.counters));
                (at, "update", fields)
            }
            Record::Delete(id) => (at, "delete", vec![pair("id", id.0)]),
            Record::Mark(oldest) => (at, "mark", vec![pair("oldest", *oldest)]),
        },
        Finding::NotWhole(at, id) => (at, "not whole", vec![pair("id", id.0)]),
        _ => return None,
    };
    let mut pairs = vec![
        ("file".into(), Json::text(name(at.number))),
        pair("offset", at.offset),
        ("record".into(), Json::text(kind)),
    ];
    pairs.extend(fields);
    Some(Json::Object(pairs))
}

fn pair(key: &str, value: impl Into<u64>) -> (String, Json) {
    (key.into(), Json::number(value))
}

fn job_fields(job: &StoredJob) -> Vec<(String, Json)> {
    let mut fields = vec![
        pair("id", job.id.0),
        ("tube".into(), Json::text(&job.tube)),
        pair("pri", job.priority.0),
        pair("delay", job.delay.0),
        pair("ttr", job.ttr.0),
        pair("created-ns", job.created_at.as_nanos()),
    ];
    fields.extend(state_fields(job.state, &job.counters));
    fields.push(Json::body(job.body.content()));
    fields
}

fn state_fields(state: StoredState, counters: &Counters) -> Vec<(String, Json)> {
    let text = |name: &str| ("state".to_owned(), Json::text(name));
    let mut fields = match state {
        StoredState::Ready => vec![text("ready")],
        StoredState::Delayed { until } => vec![text("delayed"), pair("until-ns", until.as_nanos())],
        StoredState::Buried { order } => vec![text("buried"), pair("order", order)],
    };
    fields.extend([
        pair("reserves", counters.reserves),
        pair("timeouts", counters.timeouts),
        pair("releases", counters.releases),
        pair("buries", counters.buries),
        pair("kicks", counters.kicks),
    ]);
    fields
}
