//! What is found in a log, one thing after the other, and what to say of it.

use crate::failure::{Failure, Outcome};
use crate::inspection::{At, Finding, Inspection};
use beanpole::binlog::{Error, Record};
use beanpole::engine::StoredJob;
use beanpole::protocol::Body;
use std::path::Path;

/// A look at the log in this directory.
pub fn inspect(path: &Path) -> Outcome<Inspection> {
    let inspection = Inspection::of(path).map_err(refused)?;
    if inspection.files().is_empty() {
        let nothing = format!("there is no file of a binlog in {}", path.display());
        return Err(Failure::Missing(nothing));
    }
    Ok(inspection)
}

/// Why a log cannot be read.
pub fn refused(error: Error) -> Failure {
    Failure::Refused(match error {
        Error::Locked(path) => format!("a server uses {}: stop it first", path.display()),
        other => other.to_string(),
    })
}

/// What a file of this number is called.
pub fn name(number: u32) -> String {
    format!("binlog.{number}")
}

/// Reads everything; `each` gets what is found.
pub fn read(inspection: &Inspection, mut each: impl FnMut(Finding) -> Outcome<()>) -> Outcome<()> {
    let mut outcome = Ok(());
    let reading = inspection.read(&mut |finding| {
        if outcome.is_ok() {
            outcome = each(finding);
        }
    });
    reading.map_err(refused)?;
    outcome
}

/// Whether it says that something is wrong.
pub fn is_flaw(finding: &Finding) -> bool {
    match finding {
        Finding::Record(..) | Finding::Theirs(..) | Finding::Torn(..) => false,
        Finding::NotWhole(..) | Finding::Flaw(..) | Finding::Missing(_) => true,
    }
}

/// What there is to say about it, if there is.
pub fn in_words(finding: &Finding) -> Option<String> {
    Some(match finding {
        Finding::Flaw(At { number, offset }, bytes, flaw) => {
            format!(
                "{}: {bytes} bytes from offset {offset} on cannot be read: {flaw}",
                name(*number)
            )
        }
        Finding::Torn(At { number, offset }, bytes) => format!(
            "{}: {bytes} bytes from offset {offset} on were never finished: a server drops them",
            name(*number)
        ),
        Finding::Missing(number) => format!("{}: missing, and needed", name(*number)),
        Finding::NotWhole(at, id) => {
            format!(
                "{}: the body of job {id} at offset {} is not whole",
                name(at.number),
                at.offset
            )
        }
        Finding::Record(..) | Finding::Theirs(..) => return None,
    })
}

/// The same without the body, for those who only count: a log may be larger
/// than the memory.
pub fn without_body(finding: Finding) -> Finding {
    let without = |job| {
        Record::Put(StoredJob {
            body: Body::new(b""),
            ..job
        })
    };
    match finding {
        Finding::Record(at, Record::Put(job)) => Finding::Record(at, without(job)),
        Finding::Theirs(at, Record::Put(job)) => Finding::Theirs(at, without(job)),
        other => other,
    }
}
