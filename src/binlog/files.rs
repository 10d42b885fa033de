//! What lies in the directory when a log is opened.

use super::beanstalkd;
use super::error::Error;
use super::record::{HEADER_LEN, Header, segment_name, segment_number};
use super::storage::{File, Storage};
use std::io::{self, BufReader, Read};
use std::sync::Arc;

/// How much is read at once.
const READ: usize = 256 << 10;
/// So much of a file's start tells whose it is.
const START: u64 = 1024;

/// A file with the name of a segment.
pub(super) struct Found {
    pub number: u32,
    pub file: Arc<dyn File>,
    pub len: u64,
    pub kind: Kind,
}

/// What is in it.
pub(super) enum Kind {
    /// Records of our own.
    Segment(Header),
    /// Those of another server.
    Beanstalkd(beanstalkd::Format),
    /// Zeros, or no byte at all.
    Nothing,
}

/// All files with the name of a segment, in order.
pub(super) fn look(storage: &dyn Storage) -> Result<Vec<Found>, Error> {
    let names = storage.list().map_err(Error::on("list", "the files"))?;
    let mut numbers: Vec<u32> = names
        .iter()
        .filter_map(|name| segment_number(name))
        .collect();
    numbers.sort_unstable();
    numbers
        .into_iter()
        .map(|number| Found::open(storage, number))
        .collect()
}

impl Found {
    pub fn open(storage: &dyn Storage, number: u32) -> Result<Found, Error> {
        let name = segment_name(number);
        let file = storage.open(&name).map_err(Error::on("open", &name))?;
        let len = file.len().map_err(Error::on("read", &name))?;
        let mut found = Found {
            number,
            file,
            len,
            kind: Kind::Nothing,
        };
        found.kind = found.look_inside()?;
        Ok(found)
    }

    fn look_inside(&self) -> Result<Kind, Error> {
        let mut start = Vec::new();
        let read = self.read_from(0).take(START).read_to_end(&mut start);
        read.map_err(Error::on("read", self.name()))?;
        if let Some(format) = beanstalkd::Format::of(&start) {
            return Ok(Kind::Beanstalkd(format));
        }
        if last_set_byte(self, 0)?.is_none() {
            return Ok(Kind::Nothing);
        }
        let header = match start.first_chunk::<{ HEADER_LEN as usize }>() {
            Some(bytes) => Header::decode(bytes, self.number),
            None => Err("the file ends within its header"),
        };
        header
            .map(Kind::Segment)
            .map_err(|flaw| self.damaged(0, flaw))
    }

    /// The header, if it is a segment of our own.
    pub fn header(&self) -> Option<Header> {
        match self.kind {
            Kind::Segment(header) => Some(header),
            Kind::Beanstalkd(_) | Kind::Nothing => None,
        }
    }

    pub fn is_segment(&self) -> bool {
        self.header().is_some()
    }

    pub fn is_theirs(&self) -> bool {
        matches!(self.kind, Kind::Beanstalkd(_))
    }

    pub fn name(&self) -> String {
        segment_name(self.number)
    }

    /// The file from an offset on.
    pub fn read_from(&self, offset: u64) -> BufReader<Source<'_>> {
        let source = Source {
            file: &*self.file,
            offset,
        };
        BufReader::with_capacity(READ, source)
    }

    /// What is wrong with it, and where.
    pub fn damaged(&self, offset: u64, flaw: impl Into<String>) -> Error {
        Error::Damaged {
            number: self.number,
            offset,
            flaw: flaw.into(),
        }
    }
}

/// A file being read.
pub(super) struct Source<'a> {
    file: &'a dyn File,
    offset: u64,
}

impl Read for Source<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.file.read_at(buffer, self.offset)?;
        self.offset += u64::try_from(read).map_err(io::Error::other)?;
        Ok(read)
    }
}

/// Where from an offset on the last byte is that is not zero.
pub(super) fn last_set_byte(file: &Found, offset: u64) -> Result<Option<u64>, Error> {
    let (mut last, mut at) = (None, offset);
    let mut chunk = vec![0; READ];
    loop {
        let read = file.file.read_at(&mut chunk, at);
        let read = read.map_err(Error::on("read", file.name()))?;
        if read == 0 {
            return Ok(last);
        }
        // Compared with its neighbours, many bytes at a time.
        let zeros = chunk[0] == 0 && chunk[..read - 1] == chunk[1..read];
        if !zeros && let Some(index) = chunk[..read].iter().rposition(|byte| *byte != 0) {
            last = Some(at + index as u64);
        }
        at += read as u64;
    }
}
