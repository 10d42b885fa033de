//! How jobs are written: as their bodies, or as lines of JSON.

use crate::failure::{Failure, Outcome};
use crate::server::reply::Job;
use crate::server::stats::{Facts, State};
use crate::text::base64;
use crate::text::json::{self, Json, json};
use crate::text::output::{self, Output};
use crate::text::words::shown;
use beanpole::protocol::{JobId, Priority, PutOptions, Seconds, TubeName};

/// The form in which jobs are written.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// Only the bodies. On a terminal each ends its line, and characters that
    /// would disturb the terminal are shown as escapes.
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
            return output.json(&job_to_json(job.id, facts, &job.body));
        }
        let is_terminal = output::is_terminal();
        match is_terminal {
            true => output.bytes(shown(&job.body, true).as_bytes())?,
            false => output.bytes(&job.body)?,
        }
        match self {
            Form::Ended(end) => output.bytes(&[end]),
            _ if is_terminal && !job.body.ends_with(b"\n") => output.bytes(b"\n"),
            _ => Ok(()),
        }
    }
}

/// A job as JSON.
pub fn job_to_json(id: JobId, facts: Option<&Facts>, body: &[u8]) -> Json {
    let mut job = facts.map_or_else(|| json!({"id": id.0}), Facts::to_json);
    let (key, body) = json::body(body);
    job[key] = body;
    job
}

/// What a line of JSON tells of a job, as `ls`, `reserve` and `dump` write it.
#[derive(Default)]
pub struct Told {
    pub tube: Option<TubeName>,
    pub state: Option<State>,
    pub priority: Option<Priority>,
    /// What is left of the delay.
    pub delay: Option<Seconds>,
    pub ttr: Option<Seconds>,
    /// The words of its put.
    pub words: Option<PutOptions>,
    pub body: Vec<u8>,
}

impl Told {
    /// Reads what is told. Keys that say nothing about a new job do not matter.
    pub fn read(value: &Json) -> Result<Told, String> {
        let number = |key: &str| {
            let number = value.get(key).map(|number| {
                let number = number.as_u64().and_then(|number| number.try_into().ok());
                number.ok_or_else(|| Told::lacks(key))
            });
            number.transpose()
        };
        let text = |key: &str| value.get(key).map(|text| text.as_str().unwrap_or_default());
        let tube = text("tube").map(|name| TubeName::parse(name.as_bytes()).ok_or(NO_TUBE));
        let state = text("state").map(|name| State::parse(name).ok_or("'state' is none of a job"));
        let state = state.transpose()?;
        // A job that is ready tells the delay that it once had. What is left of
        // one has a key of its own, except in a dump.
        let delay = match (state, value.get("time-left")) {
            (Some(State::Delayed), Some(_)) => number("time-left")?,
            (None | Some(State::Delayed), _) => number("delay")?,
            (Some(_), _) => number("delay")?.map(|_| 0),
        };
        let body = match (value.get("body"), value.get("body64")) {
            (Some(_), Some(_)) => return Err("there is both 'body' and 'body64'".into()),
            (None, None) => return Err("there is neither 'body' nor 'body64'".into()),
            (Some(body), None) => body.as_str().ok_or("'body' is not a text")?.into(),
            (None, Some(body)) => {
                let bytes = body.as_str().and_then(base64::decode);
                bytes.ok_or("'body64' is not base64")?
            }
        };
        let words = text("words").map(|words| {
            let words = PutOptions::parse(format!(" {words}").as_bytes());
            words.ok_or("'words' are none that may follow a put")
        });
        Ok(Told {
            words: words.transpose()?,
            tube: tube.transpose()?,
            state,
            priority: number("pri")?.map(Priority),
            delay: delay.map(Seconds),
            ttr: number("ttr")?.map(Seconds),
            body,
        })
    }

    /// The reason why a line without a number under this key is at fault.
    pub fn lacks(key: &str) -> String {
        format!("'{key}' is not a number from 0 to {}", u32::MAX)
    }
}

/// The reason why a line without a tube is at fault.
pub const NO_TUBE: &str = "'tube' is not the name of a tube";
