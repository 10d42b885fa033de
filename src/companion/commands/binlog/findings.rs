//! Reads the findings of a log one after the other, and describes them.

use crate::failure::{Failure, Outcome, plain};
use crate::inspection::{Finding, Inspection};
use crate::text::output::complain;
use beanpole::binlog::{Error, Record};
use beanpole::engine::StoredJob;
use beanpole::protocol::Body;
use std::path::Path;

/// Opens the log in this directory.
pub fn inspect(path: &Path) -> Outcome<Inspection> {
    let inspection = Inspection::of(path).map_err(refused)?;
    if inspection.files().next().is_none() {
        let nothing = format!("there is no file of a binlog in {}", path.display());
        return Err(Failure::Missing(nothing));
    }
    Ok(inspection)
}

/// The failure for a log that cannot be read.
pub fn refused(error: Error) -> Failure {
    Failure::Refused(match error {
        Error::Locked(path) => format!("a server uses {}: stop it first", path.display()),
        other => plain(other),
    })
}

/// The name of the file with this number.
pub fn name(number: u32) -> String {
    format!("binlog.{number}")
}

/// Reads the whole log, and gives each finding to `each`. Returns the number of
/// flaws.
pub fn read(
    inspection: &Inspection,
    mut each: impl FnMut(Finding) -> Outcome<()>,
) -> Outcome<usize> {
    let mut flaws = 0;
    let mut outcome = Ok(());
    let reading = inspection.read(&mut |finding| {
        let is_flaw = !matches!(finding, Finding::Record(..) | Finding::Torn(..));
        flaws += usize::from(is_flaw);
        if outcome.is_ok() {
            outcome = each(finding);
        }
    });
    reading.map_err(refused)?;
    outcome.map(|()| flaws)
}

/// Describes a finding on standard error, if it is worth a message.
pub fn say(finding: &Finding) {
    if let Some(text) = in_words(finding) {
        complain!("{text}");
    }
}

/// The description of a finding. A record needs none.
pub fn in_words(finding: &Finding) -> Option<String> {
    let (at, text) = match finding {
        Finding::Flaw(at, bytes, flaw) => (at, format!("{bytes} bytes cannot be read: {flaw}")),
        Finding::Torn(at, bytes) => {
            let torn = format!("{bytes} bytes were never finished: a server drops them");
            (at, torn)
        }
        Finding::NotWhole(at, id) => (at, format!("the body of job {id} is not whole")),
        Finding::Missing(number) => return Some(format!("{}: missing, and needed", name(*number))),
        Finding::Record(..) => return None,
    };
    Some(format!(
        "{} at offset {}: {text}",
        name(at.number),
        at.offset
    ))
}

/// The finding without the body of its job, for callers that only count: a log
/// may be larger than the memory.
pub fn without_body(finding: Finding) -> Finding {
    match finding {
        Finding::Record(at, format, Record::Put(job)) => {
            let body = Body::new(b"");
            Finding::Record(at, format, Record::Put(StoredJob { body, ..job }))
        }
        other => other,
    }
}
