//! Reading a log without a server and without changing it, also one that is
//! damaged: every record with its place, and every stretch that cannot be read.
//!
//! Opening a log for a server ends at the first flaw. Here reading goes on
//! behind it: the checksum of a frame depends on its place, so the next frame
//! that is right is one that was written there.

use super::beanstalkd;
use super::chain::{Chain, Step};
use super::error::Error;
use super::files::{Found, Kind, last_set_byte};
use super::record::{
    FRAME_LEN, Frame, HEADER_LEN, Header, Place, Record, Tubes, segment_name, segment_number,
};
use super::storage::{Directory, Storage};
use crate::protocol::JobId;
use std::cell::Cell;
use std::io::Read;
use std::path::Path;

/// A directory with a log, locked against servers as long as this is there.
pub struct Inspection {
    files: Vec<Found>,
    /// The files without a header that can be read, and what is wrong with it.
    headless: Vec<(u32, String)>,
    _directory: Directory,
}

/// A file with the name of a segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct File {
    /// Its number.
    pub number: u32,
    /// How long it is.
    pub len: u64,
    /// Who wrote it.
    pub format: Format,
}

/// Who wrote a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Ours.
    Beanpole,
    /// beanstalkd, in this version of its format.
    Beanstalkd(u32),
    /// Nobody has written to it yet.
    Empty,
}

/// A place in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct At {
    /// The file's number.
    pub number: u32,
    /// The offset in it.
    pub offset: u64,
}

/// What reading comes upon.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Finding {
    /// A record.
    Record(At, Record),
    /// A record of beanstalkd's.
    Theirs(At, beanstalkd::Record),
    /// So many bytes cannot be read, for this reason.
    Flaw(At, u64, String),
    /// So many bytes at the end of all were never finished and never synced: a
    /// server drops them when it starts.
    Torn(At, u64),
    /// This file is needed, and missing.
    Missing(u32),
}

impl Inspection {
    /// Locks a directory and looks at its files.
    pub fn of(path: &Path) -> Result<Inspection, Error> {
        let directory = Directory::lock(path, false)?;
        let names = directory.list().map_err(Error::on("list", "the files"))?;
        let mut numbers: Vec<u32> = names
            .iter()
            .filter_map(|name| segment_number(name))
            .collect();
        numbers.sort_unstable();
        let mut files = Vec::new();
        let mut headless = Vec::new();
        for number in numbers {
            match Found::open(&directory, number) {
                Ok(found) => files.push(found),
                Err(Error::Damaged { flaw, .. }) => {
                    headless.push((number, flaw));
                    files.push(without_header(&directory, number)?);
                }
                Err(error) => return Err(error),
            }
        }
        Ok(Inspection {
            files,
            headless,
            _directory: directory,
        })
    }

    /// The files, in order.
    pub fn files(&self) -> Vec<File> {
        let file = |found: &Found| File {
            number: found.number,
            len: found.len,
            format: match found.kind {
                Kind::Segment(_) => Format::Beanpole,
                Kind::Beanstalkd(format) => Format::Beanstalkd(format.version),
                Kind::Nothing => Format::Empty,
            },
        };
        self.files.iter().map(file).collect()
    }

    /// No job had this id or a higher one when the last segment was begun, as
    /// far as the headers can be read.
    pub fn next_id(&self) -> JobId {
        let headers = self.files.iter().filter_map(Found::header);
        headers
            .map(|header| header.next_id)
            .max()
            .unwrap_or(JobId(1))
    }

    /// Reads everything in order.
    pub fn read(&self, tell: &mut dyn FnMut(Finding)) -> Result<(), Error> {
        let oldest = Cell::new(0);
        let mut tell = |finding: Finding| {
            if let Finding::Record(_, Record::Mark(needed)) = finding {
                oldest.set(oldest.get().max(needed));
            }
            tell(finding);
        };
        let mut left = self.files.as_slice();
        while let Some(file) = left.first() {
            let (now, later) = left.split_at(self.run_len(left));
            let is_newest = later.iter().all(|file| matches!(file.kind, Kind::Nothing));
            match file.kind {
                Kind::Segment(_) => self.read_run(now, is_newest, &mut tell)?,
                Kind::Beanstalkd(format) => read_theirs(file, format, is_newest, &mut tell)?,
                Kind::Nothing => {}
            }
            if let (Some(last), Some(next)) = (now.last(), later.first()) {
                tell_if_cut(last, next, &mut tell);
            }
            left = later;
        }
        let headers = self.files.iter().filter_map(Found::header);
        let oldest = headers
            .map(|header| header.oldest)
            .max()
            .unwrap_or(0)
            .max(oldest.get());
        let newest = self
            .files
            .iter()
            .rfind(|file| file.is_segment())
            .map_or(0, |file| file.number);
        for number in oldest.max(1)..newest {
            let there = |file: &Found| file.number == number && !matches!(file.kind, Kind::Nothing);
            if !self.files.iter().any(there) {
                tell(Finding::Missing(number));
            }
        }
        Ok(())
    }

    /// How many of the first files can be read as one: segments that follow each
    /// other, each with a header and as long as the next one says.
    fn run_len(&self, files: &[Found]) -> usize {
        let goes_on = |pair: &[Found]| match (pair[0].header(), pair[1].header()) {
            (Some(_), Some(next)) => {
                pair[1].number == pair[0].number + 1
                    && !self.is_headless(pair[1].number)
                    && u64::from(next.previous_end) <= pair[0].len
                    && next.previous_end >= HEADER_LEN
            }
            _ => false,
        };
        1 + files.windows(2).take_while(|pair| goes_on(pair)).count()
    }

    fn is_headless(&self, number: u32) -> bool {
        self.headless
            .iter()
            .any(|(headless, _)| *headless == number)
    }

    /// Reads segments that follow each other, behind each flaw anew.
    fn read_run(
        &self,
        files: &[Found],
        is_newest: bool,
        tell: &mut dyn FnMut(Finding),
    ) -> Result<(), Error> {
        let mut run: Vec<Found> = files.iter().map(|file| copy(file, None)).collect();
        let first = run[0].number;
        if let Some((_, flaw)) = self.headless.iter().find(|(number, _)| *number == first) {
            tell(Finding::Flaw(
                At {
                    number: first,
                    offset: 0,
                },
                HEADER_LEN.into(),
                flaw.clone(),
            ));
        }
        loop {
            let Some(stop) = read_up_to_flaw(&run, tell)? else {
                return Ok(());
            };
            let index = run
                .iter()
                .position(|file| file.number == stop.at.number)
                .unwrap_or(0);
            let Some((next, offset)) = next_frame(&run, index, stop.at.offset + 1)? else {
                let rest = stop.torn.unwrap_or_else(|| run[index].len - stop.at.offset);
                tell(match stop.torn {
                    Some(bytes) if is_newest => Finding::Torn(stop.at, bytes),
                    _ => Finding::Flaw(stop.at, rest, stop.flaw),
                });
                return Ok(());
            };
            let skipped = distance(&run, (index, stop.at.offset), (next, offset));
            tell(Finding::Flaw(stop.at, skipped, stop.flaw));
            run.drain(..next);
            run[0] = copy(&run[0], u32::try_from(offset).ok());
        }
    }
}

/// Says so if a segment is shorter than the one behind it says it was.
fn tell_if_cut(last: &Found, next: &Found, tell: &mut dyn FnMut(Finding)) {
    let follows = last.is_segment() && next.number == last.number + 1;
    let end = next
        .header()
        .map_or(0, |header| u64::from(header.previous_end));
    if follows && end > last.len {
        let at = At {
            number: last.number,
            offset: last.len,
        };
        let flaw = format!("the file ends where its records go on to {end}");
        tell(Finding::Flaw(at, end - last.len, flaw));
    }
}

/// Where reading could not go on, and why.
struct Stop {
    at: At,
    /// So many bytes from there on look like the unfinished end of all.
    torn: Option<u64>,
    flaw: String,
}

/// Reads on until something is wrong, or to the end.
fn read_up_to_flaw(run: &[Found], tell: &mut dyn FnMut(Finding)) -> Result<Option<Stop>, Error> {
    let mut chain = match Chain::new(run) {
        Ok(chain) => chain,
        Err(error) => return stopped(error).map(Some),
    };
    loop {
        match chain.next() {
            Ok(Step::Record(Place { number, offset }, record)) => {
                tell(Finding::Record(
                    At {
                        number,
                        offset: offset.into(),
                    },
                    record,
                ));
            }
            Ok(Step::End(end)) => {
                let at = At {
                    number: run[end.index].number,
                    offset: end.offset.into(),
                };
                let flaw = "what was begun there was not finished".into();
                return Ok(end.torn.map(|bytes| Stop {
                    at,
                    torn: Some(bytes),
                    flaw,
                }));
            }
            Err(error) => return stopped(error).map(Some),
        }
    }
}

fn stopped(error: Error) -> Result<Stop, Error> {
    match error {
        Error::Damaged {
            number,
            offset,
            flaw,
        } => Ok(Stop {
            at: At { number, offset },
            torn: None,
            flaw,
        }),
        other => Err(other),
    }
}

/// The next place from there on where a frame stands that belongs there: in
/// that file, or where a later one says that its first record begins.
fn next_frame(run: &[Found], index: usize, from: u64) -> Result<Option<(usize, u64)>, Error> {
    let file = &run[index];
    // Zeros are no frame, and there may be many.
    let used = last_set_byte(file, from)?.map_or(from, |last| last + 1);
    let len = used.min(end_of(run, index)).saturating_sub(from);
    let mut window = [0; FRAME_LEN as usize];
    for (byte, end) in file.read_from(from).take(len).bytes().zip(from + 1..) {
        window.rotate_left(1);
        window[window.len() - 1] = byte.map_err(Error::on("read", file.name()))?;
        let offset = end.saturating_sub(FRAME_LEN.into());
        let Ok(place) = u32::try_from(offset) else {
            break;
        };
        let place = Place {
            number: file.number,
            offset: place,
        };
        if offset >= from && Frame::decode(&window, place).is_some() {
            return Ok(Some((index, offset)));
        }
    }
    let first = |index: usize| run[index].header().map_or(0, |header| header.first.into());
    let mut later = (index + 1..run.len()).map(|index| (index, first(index)));
    Ok(later.find(|(index, first)| *first < end_of(run, *index)))
}

/// Where the records of a file end, as the next one says; of the last one,
/// where the file ends.
fn end_of(run: &[Found], index: usize) -> u64 {
    let next = run.get(index + 1).and_then(Found::header);
    next.map_or(run[index].len, |header| header.previous_end.into())
}

/// How many bytes of records lie between two places.
fn distance(run: &[Found], from: (usize, u64), to: (usize, u64)) -> u64 {
    if from.0 == to.0 {
        return to.1 - from.1;
    }
    let header = u64::from(HEADER_LEN);
    let between = (from.0 + 1..to.0).map(|index| end_of(run, index).saturating_sub(header));
    end_of(run, from.0).saturating_sub(from.1) + between.sum::<u64>() + to.1.saturating_sub(header)
}

/// The same file, as if its first record began there.
fn copy(found: &Found, first: Option<u32>) -> Found {
    let kind = match found.kind {
        Kind::Segment(header) => Kind::Segment(Header {
            first: first.unwrap_or(header.first),
            ..header
        }),
        Kind::Beanstalkd(format) => Kind::Beanstalkd(format),
        Kind::Nothing => Kind::Nothing,
    };
    Found {
        number: found.number,
        file: found.file.clone(),
        len: found.len,
        kind,
    }
}

/// A segment whose header cannot be read, with one that says the least.
fn without_header(directory: &Directory, number: u32) -> Result<Found, Error> {
    let name = segment_name(number);
    let file = directory.open(&name).map_err(Error::on("open", &name))?;
    let len = file.len().map_err(Error::on("read", &name))?;
    let header = Header {
        number,
        oldest: 0,
        previous_end: 0,
        first: HEADER_LEN,
        next_id: JobId(1),
    };
    Ok(Found {
        number,
        file,
        len,
        kind: Kind::Segment(header),
    })
}

fn read_theirs(
    file: &Found,
    format: beanstalkd::Format,
    is_newest: bool,
    tell: &mut dyn FnMut(Finding),
) -> Result<(), Error> {
    let read = |source| Error::on("read", file.name())(source);
    let mut tubes = Tubes::default();
    let mut records =
        beanstalkd::Records::new(format, file.read_from(0), file.len).map_err(read)?;
    let (at, end) = loop {
        let at = At {
            number: file.number,
            offset: file.len - records.left(),
        };
        match records.next(&mut tubes).map_err(read)? {
            Ok(record) => tell(Finding::Theirs(at, record)),
            Err(end) => break (at, end),
        }
    };
    let rest = file.len - at.offset;
    match end {
        beanstalkd::End::Regular if last_set_byte(file, at.offset)?.is_none() => {}
        beanstalkd::End::Regular => {
            tell(Finding::Flaw(
                at,
                rest,
                "there is something behind the end".into(),
            ));
        }
        beanstalkd::End::CutOff(_) if is_newest => tell(Finding::Torn(at, rest)),
        beanstalkd::End::CutOff(None) => {
            tell(Finding::Flaw(
                at,
                rest,
                "the file ends within a record".into(),
            ));
        }
        beanstalkd::End::CutOff(Some(id)) => {
            tell(Finding::Flaw(
                at,
                rest,
                format!("the file ends within the body of job {id}"),
            ));
        }
        beanstalkd::End::Nonsense(flaw) => tell(Finding::Flaw(at, rest, flaw.into())),
    }
    Ok(())
}
