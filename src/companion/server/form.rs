//! How jobs are written: as their bodies, or as lines of JSON.

use crate::failure::{Failure, Outcome};
use crate::server::reply::Job;
use crate::server::stats::Facts;
use crate::text::json::Json;
use crate::text::output::{self, Output};
use beanpole::protocol::JobId;

/// The form in which jobs are written.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// Only the bodies. On a terminal each ends its line.
    Exact,
    /// Each body, with this byte after it.
    Ended(u8),
    /// A line of JSON with the facts and the body.
    Json,
}

impl Form {
    /// The form for these flags, of which at most one may be given.
    pub fn of(lines: bool, null: bool, json: bool) -> Outcome<Form> {
        match (lines, null, json) {
            (false, false, false) => Ok(Form::Exact),
            (true, false, false) => Ok(Form::Ended(b'\n')),
            (false, true, false) => Ok(Form::Ended(b'\0')),
            (false, false, true) => Ok(Form::Json),
            _ => Failure::usage("--lines, --null and --json exclude each other"),
        }
    }

    /// Writes a job. JSON contains its facts, if they are known.
    pub fn write(self, output: &mut Output, job: &Job, facts: Option<&Facts>) -> Outcome<()> {
        if self == Form::Json {
            return output.line(job_to_json(job.id, facts, &job.body));
        }
        output.bytes(&job.body)?;
        match self {
            Form::Ended(end) => output.bytes(&[end]),
            _ if output::is_terminal() && !job.body.ends_with(b"\n") => output.bytes(b"\n"),
            _ => Ok(()),
        }
    }
}

/// A job as JSON.
pub fn job_to_json(id: JobId, facts: Option<&Facts>, body: &[u8]) -> Json {
    let mut pairs = match facts.map(Facts::to_json) {
        Some(Json::Object(pairs)) => pairs,
        _ => vec![("id".into(), Json::number(id.0))],
    };
    pairs.push(Json::body(body));
    Json::Object(pairs)
}
