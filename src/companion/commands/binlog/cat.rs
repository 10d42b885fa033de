//! `binlog cat`: writes every record as a line of JSON.

use super::findings::{name, read, say};
use crate::failure::{Outcome, Status};
use crate::inspection::{Finding, Inspection};
use crate::text::json::{self, Json, json};
use crate::text::output::Output;
use beanpole::binlog::Record;
use beanpole::engine::{Counters, StoredJob, StoredOptions, StoredState};
use beanpole::protocol::{Priority, Seconds};

/// Writes every record as a line of JSON.
pub fn cat(inspection: &Inspection) -> Outcome {
    let mut output = Output::new();
    let flaws = read(inspection, |finding| {
        say(&finding);
        match record_line(&finding) {
            Some(line) => output.json(&line),
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
                let mut fields = json!({"id": id.0, "pri": pri, "delay": delay});
                add(&mut fields, state_fields(update.state, &update.counters));
                if update.silent > 0 {
                    fields["tries-failed"] = update.silent.into();
                }
                (at, "update", fields)
            }
            Record::Delete(id) => (at, "delete", json!({"id": id.0})),
            Record::Mark(oldest) => (at, "mark", json!({"oldest": oldest})),
        },
        Finding::NotWhole(at, id) => (at, "not whole", json!({"id": id.0})),
        _ => return None,
    };
    let mut line = json!({"file": name(at.number), "offset": at.offset, "record": kind});
    add(&mut line, fields);
    Some(line)
}

/// Adds the pairs of one object to another.
fn add(to: &mut Json, fields: Json) {
    if let (Json::Object(pairs), Json::Object(fields)) = (to, fields) {
        pairs.extend(fields);
    }
}

fn job_fields(job: &StoredJob) -> Json {
    let mut fields = json!({
        "id": job.id.0,
        "tube": job.tube.as_str(),
        "pri": job.priority.0,
        "delay": job.delay.0,
        "ttr": job.ttr.0,
        "created-ns": job.created_at.as_nanos(),
    });
    add(&mut fields, state_fields(job.state, &job.counters));
    if let Some(StoredOptions { options, silent }) = job.options.as_deref() {
        fields["options"] = options.to_string().into();
        if options.tries.is_some() {
            fields["tries-failed"] = (*silent).into();
        }
    }
    let (key, body) = json::body(job.body.content());
    fields[key] = body;
    fields
}

fn state_fields(state: StoredState, counters: &Counters) -> Json {
    let mut fields = match state {
        StoredState::Ready => json!({"state": "ready"}),
        StoredState::Delayed { until } => {
            json!({"state": "delayed", "until-ns": until.as_nanos()})
        }
        StoredState::Buried { order } => json!({"state": "buried", "order": order}),
        StoredState::Deleted { until } => {
            json!({"state": "deleted", "until-ns": until.as_nanos()})
        }
    };
    let counts = json!({
        "reserves": counters.reserves,
        "timeouts": counters.timeouts,
        "releases": counters.releases,
        "buries": counters.buries,
        "kicks": counters.kicks,
    });
    add(&mut fields, counts);
    fields
}
