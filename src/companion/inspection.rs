//! Reads a log without a server and without changing it, even if it is damaged:
//! every record with its offset, and every range that cannot be read.
//!
//! What is read is what a server would read: both ask the same [`Survey`] and [`TheirFiles`]. A server that opens a log stops at the first flaw. Here reading
//! continues after it: the checksum of a frame depends on its place, so a frame whose
//! checksum is right was written at that very place.

use crate::directory;
use crate::failure::plain;
use beanpole::binlog::Error;
use beanpole::binlog::format::{HEADER_LEN, Record, segment_name};
use beanpole::binlog::import::{TheirFiles, Theirs, taken_bytes, their_name};
use beanpole::binlog::recovery::Survey;
use beanpole::binlog::segment::{End, Found, Reader};
use beanpole::binlog::storage::Source;
use beanpole::protocol::{Body, JobId};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A directory with a log. It is locked against servers as long as this value
/// lives.
pub struct Inspection {
    /// The directory.
    pub path: PathBuf,
    survey: Survey,
    storage: Arc<dyn Source>,
}

/// A place in a file.
pub struct At {
    /// The name of the file.
    pub name: String,
    /// The offset in it, in bytes.
    pub offset: u64,
}

/// What is found while reading.
pub enum Finding {
    /// A record of beanpoled.
    Record(At, Record),
    /// A record of beanstalkd about this job. It is missing if the job is not
    /// complete.
    Theirs(At, JobId, Option<Record>),
    /// This is wrong: something cannot be read, or no server starts.
    Flaw(String),
    /// This is not read, and does no harm.
    Note(String),
}

impl Finding {
    /// What is to be said of it. A record says it itself.
    pub fn words(&self) -> Option<&str> {
        match self {
            Finding::Flaw(words) | Finding::Note(words) => Some(words),
            Finding::Record(..) | Finding::Theirs(..) => None,
        }
    }
}

type Tell<'a> = dyn FnMut(Finding) + 'a;

impl Inspection {
    /// Locks a directory and reads which files it has.
    pub fn of(path: &Path) -> Result<Inspection, Error> {
        let storage = directory::open(path)?;
        Ok(Inspection {
            path: path.to_owned(),
            survey: Survey::of(storage.clone())?,
            storage,
        })
    }

    /// When the last segment was begun, no job had this id or a higher one.
    /// Headers that cannot be read do not count.
    pub fn next_id(&self) -> JobId {
        let headers = self.survey.segments.iter().flat_map(|found| found.header);
        let next = headers.map(|header| header.next_id).max();
        next.unwrap_or(JobId(1))
    }

    /// How many bytes the files have that were taken over from beanstalkd, and are kept.
    pub fn taken_bytes(&self) -> u64 {
        taken_bytes(&*self.storage)
    }

    /// Reads everything in order. Returns what beanstalkd's files hold, with bodies if `whole`
    /// says so, and how many files were read. An error if their jobs and ours cannot be in one
    /// log.
    pub fn read(&self, whole: bool, tell: &mut Tell) -> Result<(Theirs, usize), Error> {
        let (survey, segments) = (&self.survey, &self.survey.segments);
        refuse(&survey.flaws, tell);
        for (index, found) in segments.iter().enumerate() {
            read_segment(found, segments.get(index + 1), tell)?;
        }
        if let Some(found) = &survey.unbegun {
            tell(never_finished(&place(found, 0), found.len));
        }
        let has_log = !segments.is_empty();
        let files = TheirFiles::of(self.storage.clone(), &survey.names, has_log)?;
        refuse(&files.flaws, tell);
        for name in &files.taken {
            let told = format!("{name}: not needed any more, and not read");
            tell(Finding::Note(told));
        }
        let mut theirs = Theirs::default();
        for file in &files.new {
            theirs.read(file, &mut |offset, id, record| {
                let name = their_name(file.number);
                let at = At { name, offset };
                tell(Finding::Theirs(at, id, record.clone()));
                if let (false, Some(Record::Put(job))) = (whole, record) {
                    job.body = Body::new(b"");
                }
            })?;
        }
        if has_log {
            theirs.must_be_empty()?;
        }
        Ok((theirs, segments.len() + files.new.len()))
    }
}

fn place(found: &Found, offset: u64) -> String {
    format!("{} at offset {offset}", found.name())
}

fn never_finished(place: &str, bytes: u64) -> Finding {
    Finding::Note(format!(
        "{place}: {bytes} bytes were never finished: a server drops them"
    ))
}

/// Reports why no server starts, except for what is reported where it is read.
fn refuse(flaws: &[Error], tell: &mut Tell) {
    let is_other = |flaw: &&Error| !matches!(flaw, Error::Damaged(..));
    for flaw in flaws.iter().filter(is_other) {
        let text = plain(flaw);
        // What to do follows.
        let what = text.split("; ").next().unwrap_or_default();
        tell(Finding::Flaw(what.to_owned()));
    }
}

/// Reads a segment to its end. After each flaw, reading starts again at the
/// next whole frame. The header of the next segment, if there is one, says where the records
/// end.
fn read_segment(found: &Found, next: Option<&Found>, tell: &mut Tell) -> Result<(), Error> {
    let at = |offset| At {
        name: found.name(),
        offset,
    };
    let unreadable = |offset, bytes, flaw: &str| {
        let place = place(found, offset);
        Finding::Flaw(format!("{place}: {bytes} bytes cannot be read: {flaw}"))
    };
    if let Err(flaw) = found.header {
        tell(unreadable(0, HEADER_LEN.min(found.len), flaw));
    }
    let follows = next.filter(|next| next.number == found.number + 1);
    let end = follows.and_then(|next| Some(next.header.ok()?.previous_end));
    let mut reader = Reader::new(found, HEADER_LEN, end)?;
    loop {
        let stopped = loop {
            match reader.next_record() {
                Ok(Some((offset, record))) => tell(Finding::Record(at(offset), record)),
                Ok(None) => break reader.end(),
                Err(error) => break Err(error),
            }
        };
        let from = reader.offset;
        let flaw = match stopped {
            Ok(End::Whole) => return Ok(()),
            Ok(End::Continued) if next.is_none() => {
                let missing = segment_name(found.number.saturating_add(1));
                let flaw = format!("{missing} is missing though jobs in it are needed");
                tell(Finding::Flaw(flaw));
                return Ok(());
            }
            Ok(End::Continued) => return Ok(()),
            Ok(End::Torn(_)) if next.is_none() && reader.is_cut() => {
                "the file ends within a record".to_owned()
            }
            Ok(End::Torn(bytes)) if next.is_none() => {
                tell(never_finished(&place(found, from), bytes));
                return Ok(());
            }
            Ok(End::Torn(_)) => "what was begun there was not finished".to_owned(),
            Err(Error::Damaged(flaw, _)) => flaw,
            Err(other) => return Err(other),
        };
        let (bytes, has_more) = reader.resume()?;
        tell(unreadable(from, bytes, &flaw));
        if !has_more {
            return Ok(());
        }
    }
}
