//! `binlog cat`: every record as a line of JSON.

use super::findings::{in_words, is_flaw, name, read};
use crate::failure::{Outcome, Status};
use crate::inspection::{Finding, Inspection};
use crate::text::json::Json;
use crate::text::output::{Output, complain};
use beanpole::binlog::Record;
use beanpole::engine::{Counters, StoredJob, StoredState};

/// Writes every record as a line of JSON.
pub fn cat(inspection: &Inspection) -> Outcome {
    let mut output = Output::new();
    let mut sound = true;
    read(inspection, |finding| {
        sound &= !is_flaw(&finding);
        if let Some(text) = in_words(&finding) {
            complain(format_args!("beanpole binlog: {text}"));
        }
        match record_line(&finding) {
            Some(line) => output.line(line),
            None => Ok(()),
        }
    })?;
    output.sync()?;
    Ok(Status::done_if(sound))
}

fn record_line(finding: &Finding) -> Option<Json> {
    let (at, kind, fields) = match finding {
        Finding::Record(at, record) | Finding::Theirs(at, record) => match record {
            Record::Put(job) => (at, "job", job_fields(job)),
            Record::Update(update) => {
                let mut fields = vec![pair("id", update.id.0), pair("pri", update.priority.0)];
                fields.push(pair("delay", update.delay.0));
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
    let Counters {
        reserves,
        timeouts,
        releases,
        buries,
        kicks,
    } = *counters;
    fields.extend([
        pair("reserves", reserves),
        pair("timeouts", timeouts),
        pair("releases", releases),
        pair("buries", buries),
        pair("kicks", kicks),
    ]);
    fields
}
