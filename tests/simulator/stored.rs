//! What a log holds, as the naive model has it.

use crate::engine::{StoredJob, StoredPause, StoredState};
use crate::protocol::JobId;
use crate::simulator::naive::{Job, Options, State, Tombstone};

/// A job of the log, as a job of the model.
pub fn in_the_model(stored: StoredJob) -> Job {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).expect("clients send text");
    let fields = stored.fields;
    let JobId(id) = fields.id;
    Job {
        id,
        state: match fields.state {
            StoredState::Ready => State::Ready,
            StoredState::Delayed { until } => State::Delayed {
                until: until.as_nanos(),
            },
            StoredState::Buried { order } => State::Buried { number: order },
            StoredState::Deleted { .. } => unreachable!("it is a key"),
        },
        tube: stored.tube.as_str().into(),
        priority: fields.priority.0,
        delay: fields.delay.0.into(),
        ttr: fields.ttr.0.into(),
        body: text(stored.body.content()),
        created: fields.created_at.as_nanos(),
        events: fields.counters,
        is_bury_wanted: false,
        options: stored.options.map_or_else(Options::default, |options| {
            let unique = options.unique;
            let limit = options.limit;
            Options {
                unique: unique.map(|one| (one.key.to_string(), one.taken_for.0.into())),
                limit: limit.map(|one| (one.key.to_string(), one.most as usize)),
                tries: options.tries,
                expires_after: options.expires_after.map(|after| after.0.into()),
                failed_tries: fields.failed_tries,
            }
        }),
    }
}

/// A pause, as the model has it.
pub fn pause_in_the_model(pause: StoredPause) -> (String, u64, u64) {
    let (length, until) = (pause.length.0.into(), pause.until.as_nanos());
    (pause.tube.to_string(), length, until)
}

/// What is left of a deleted job, as the model has it.
pub fn tombstone_in_the_model(stored: StoredJob) -> Tombstone {
    let options = stored.options.expect("it has a key");
    let StoredState::Deleted { until } = stored.fields.state else {
        unreachable!("it is deleted");
    };
    Tombstone {
        id: stored.fields.id.0,
        tube: stored.tube.to_string(),
        key: options.unique.expect("it has a key").key.to_string(),
        until: until.as_nanos(),
    }
}
