//! Reads a log without a server and without changing it, even if it is damaged:
//! every record with its offset, and every range that cannot be read.
//!
//! A server that opens a log stops at the first flaw. Here reading continues
//! after it: the checksum of a frame depends on its place, so a frame whose
//! checksum is right was written at that very place.

use beanpole::binlog::format::{HEADER_LEN, Record};
use beanpole::binlog::import;
use beanpole::binlog::recovery::shows_loss;
use beanpole::binlog::segment::{End, Found, Kind, Reader, find};
use beanpole::binlog::storage::Storage;
use beanpole::binlog::{Error, lock};
use beanpole::protocol::JobId;
use std::path::Path;
use std::sync::Arc;

/// A directory with a log. It is locked against servers as long as this value
/// lives.
pub struct Inspection {
    /// The files with the names of segments, in order.
    pub files: Vec<Found>,
    /// There were segments, and all are missing or empty.
    pub is_gone: bool,
    _directory: Arc<dyn Storage>,
}

/// A place in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct At {
    /// The number of the file.
    pub number: u32,
    /// The offset in the file, in bytes.
    pub offset: u64,
}

/// What is found while reading.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Finding {
    /// A record of beanpoled.
    Record(At, Record),
    /// A record of beanstalkd about this job. It is missing if the job is not
    /// complete.
    Theirs(At, JobId, Option<Record>),
    /// This many bytes cannot be read, for this reason.
    Flaw(At, u64, String),
    /// This many bytes at the end of the log were never finished and never
    /// synced: a server drops them when it starts.
    Torn(At, u64),
    /// The file of this number is needed, but missing.
    Missing(u32),
    /// All segments are missing or empty.
    Gone,
}

impl Inspection {
    /// Locks a directory and reads its files.
    pub fn of(path: &Path) -> Result<Inspection, Error> {
        let (directory, _) = lock(path, false)?;
        let files = find(&directory)?.into_values();
        let files: Vec<Found> = files.collect::<Result<_, _>>()?;
        let is_gone = shows_loss(&*directory, &files)?.is_some();
        Ok(Inspection {
            files,
            is_gone,
            _directory: directory,
        })
    }

    /// When the last segment was begun, no job had this id or a higher one.
    /// Headers that cannot be read do not count.
    pub fn next_id(&self) -> JobId {
        let headers = self.files.iter().filter_map(Found::header);
        let next = headers.map(|header| header.next_id).max();
        next.unwrap_or(JobId(1))
    }

    /// Reads everything in order.
    pub fn read(&self, tell: &mut dyn FnMut(Finding)) -> Result<(), Error> {
        if self.is_gone {
            tell(Finding::Gone);
        }
        let mut oldest = 0;
        for (index, file) in self.files.iter().enumerate() {
            let later = &self.files[index + 1..];
            let is_newest = later.iter().all(Found::is_nothing);
            match file.kind {
                Kind::Segment(header) => {
                    oldest = oldest.max(header.oldest);
                    let next = later.first().filter(|next| next.number == file.number + 1);
                    let end = next.and_then(Found::header).map(|next| next.previous_end);
                    read_segment(file, end, is_newest, &mut |finding| {
                        if let Finding::Record(_, Record::Mark(needed)) = finding {
                            oldest = oldest.max(needed);
                        }
                        tell(finding);
                    })?;
                }
                Kind::Damaged(flaw) => {
                    tell(unreadable(file, 0, HEADER_LEN.min(file.len), flaw));
                    read_segment(file, None, false, tell)?;
                }
                Kind::Beanstalkd(format) => {
                    let mut told = |offset, id, record| {
                        tell(Finding::Theirs(at(file, offset), id, record));
                    };
                    let unread = import::read(file, format, &mut told)?;
                    if let Some(unread) = unread {
                        let (offset, len) = (unread.offset, file.len - unread.offset);
                        tell(match unread.is_cut_off && is_newest {
                            true => Finding::Torn(at(file, offset), len),
                            false => unreadable(file, offset, len, unread.flaw),
                        });
                    }
                }
                Kind::Nothing => {}
            }
        }
        if oldest == 0 {
            return Ok(()); // none of these is ours
        }
        let mut expected = oldest;
        let is_used = |file: &&Found| !file.is_nothing() && file.number >= oldest;
        for file in self.files.iter().filter(is_used) {
            (expected..file.number).for_each(|missing| tell(Finding::Missing(missing)));
            expected = file.number + 1;
        }
        Ok(())
    }
}

/// Reads a segment to its end. After each flaw, reading starts again at the
/// next whole frame. The header of the next segment, if there is one, says where the records
/// end.
fn read_segment(
    file: &Found,
    says_end: Option<u64>,
    is_newest: bool,
    tell: &mut dyn FnMut(Finding),
) -> Result<(), Error> {
    let end = says_end.unwrap_or(file.len);
    if end > file.len {
        let flaw = format!("the file ends where its records go on to {end}");
        tell(unreadable(file, file.len, end - file.len, flaw));
    }
    let says_end = says_end.filter(|end| *end <= file.len);
    let mut offset = HEADER_LEN;
    loop {
        let mut reader = Reader::new(file, offset, says_end)?;
        let stopped = loop {
            match reader.next_record() {
                Ok(Some((offset, record))) => {
                    tell(Finding::Record(at(file, offset), record));
                }
                Ok(None) => break reader.end(),
                Err(error) => break Err(error),
            }
        };
        let from = reader.offset;
        let found = file.find_frame(reader.later, |_, at| at < end)?;
        match (stopped, found) {
            (Ok(End::Continued), None) if is_newest => {
                tell(Finding::Missing(file.number.saturating_add(1)));
                return Ok(());
            }
            (Ok(End::Torn(bytes)), None) if is_newest => {
                tell(Finding::Torn(at(file, from), bytes));
                return Ok(());
            }
            (Ok(End::Whole | End::Continued), None) => return Ok(()),
            (stopped, found) => {
                let flaw = match stopped {
                    Err(Error::Damaged { flaw, .. }) => flaw,
                    Err(other) => return Err(other),
                    Ok(_) => "what was begun there was not finished".into(),
                };
                let to = found.unwrap_or(end.min(file.len));
                tell(unreadable(file, from, to - from, flaw));
                let Some(found) = found else {
                    return Ok(());
                };
                offset = found;
            }
        }
    }
}

fn at(file: &Found, offset: u64) -> At {
    At {
        number: file.number,
        offset,
    }
}

fn unreadable(file: &Found, offset: u64, bytes: u64, flaw: impl ToString) -> Finding {
    Finding::Flaw(at(file, offset), bytes, flaw.to_string())
}
