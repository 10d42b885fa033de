//! Reading a segment's file: which program wrote it, its records one by one,
//! and whether bytes that are no record are an unfinished end or damage.

use super::beanstalkd;
use super::error::Error;
use super::frame::{
    FRAME_LEN, Frame, HEADER_LEN, Header, OLD_HEADER_LEN, Place, segment_name, segment_number,
};
use super::record::{Record, Tubes};
use super::storage::{File, Storage, read_part};
use std::io::{self, BufReader, Read};
use std::sync::Arc;

/// How many bytes are read at once, if there are so many.
const CHUNK: usize = 256 << 10;
/// How many bytes of a file's start are read to find out which program wrote
/// it.
const HEAD_LEN: u64 = 1024;

/// A file with the name of a segment. It is opened only while it is read: there
/// may be more of these files than a process can have open.
pub struct Found {
    /// Its number.
    pub number: u32,
    storage: Arc<dyn Storage>,
    /// How long it is, in bytes.
    pub len: u64,
    /// Which program wrote it.
    pub kind: Kind,
    /// Where its records begin, and the salt of their frames.
    pub start: u64,
    salt: u32,
}

/// Which program wrote a file.
#[derive(Clone, Copy)]
pub enum Kind {
    /// We did: it is a segment.
    Segment(Header),
    /// beanstalkd did.
    Beanstalkd(beanstalkd::Format),
    /// None: there are only zeros in it, or no byte. beanstalkd leaves such
    /// files.
    Nothing,
    /// It cannot be told; this is what is wrong at its start.
    Damaged(&'static str),
}

/// The number of a file, and what it is, or why that cannot be told.
pub type Numbered = (u32, Result<Found, Error>);

/// All files with the name of a segment, in order.
pub fn find(storage: &Arc<dyn Storage>) -> Result<Vec<Numbered>, Error> {
    let names = storage.list().map_err(Error::on("list", "the files"))?;
    let numbers = names.iter().filter_map(|name| segment_number(name));
    let mut numbers: Vec<u32> = numbers.collect();
    numbers.sort_unstable();
    let found = |number| (number, Found::read(storage.clone(), number));
    Ok(numbers.into_iter().map(found).collect())
}

impl Found {
    /// Opens a file and reads its start.
    fn read(storage: Arc<dyn Storage>, number: u32) -> Result<Found, Error> {
        let mut found = Found {
            number,
            storage,
            len: 0,
            kind: Kind::Nothing,
            start: HEADER_LEN,
            salt: 0,
        };
        let file = found.open()?;
        found.len = file.len().map_err(Error::on("read", found.name()))?;
        let mut start = Vec::with_capacity(HEAD_LEN as usize);
        let source = Source { file, offset: 0 };
        let read = source.take(HEAD_LEN).read_to_end(&mut start);
        read.map_err(Error::on("read", found.name()))?;
        found.kind = match (
            beanstalkd::Format::of(&start),
            Header::decode(&start, number),
        ) {
            (Some(format), _) => Kind::Beanstalkd(format),
            (None, Ok(header)) => Kind::Segment(header),
            (None, Err(_)) if found.last_set_byte(0)?.is_none() => Kind::Nothing,
            (None, Err(flaw)) => Kind::Damaged(flaw),
        };
        found.find_salt(&start);
        Ok(found)
    }

    /// Finds out where the records begin, and with which salt. If the header is
    /// lost, the first frame tells.
    fn find_salt(&mut self, start: &[u8]) {
        let header = self.header();
        let frame_at = |offset: u64| start.get(offset as usize..)?.first_chunk();
        (self.start, self.salt) = match (header, frame_at(OLD_HEADER_LEN), frame_at(HEADER_LEN)) {
            (Some(header), ..) => (header.len(), header.salt.unwrap_or(0)),
            (None, Some(frame), _)
                if Frame::decode(frame, self.place(OLD_HEADER_LEN)).is_some() =>
            {
                (OLD_HEADER_LEN, 0)
            }
            (None, _, Some(frame)) => (HEADER_LEN, Frame::salt(frame, self.number, HEADER_LEN)),
            _ => (HEADER_LEN, 0),
        };
    }

    /// A place in it.
    pub(super) fn place(&self, offset: u64) -> Place {
        Place {
            number: self.number,
            salt: self.salt,
            offset,
        }
    }

    /// The header, if it is a segment of our own.
    pub fn header(&self) -> Option<Header> {
        match self.kind {
            Kind::Segment(header) => Some(header),
            Kind::Beanstalkd(_) | Kind::Nothing | Kind::Damaged(_) => None,
        }
    }

    /// Its name.
    pub fn name(&self) -> String {
        segment_name(self.number)
    }

    fn open(&self) -> Result<Arc<dyn File>, Error> {
        let opened = self.storage.open_to_read(&self.name());
        opened.map_err(Error::on("open", self.name()))
    }

    /// The file from an offset on.
    pub fn read_from(&self, offset: u64) -> Result<BufReader<Source>, Error> {
        let file = self.open()?;
        let len = chunk_len(self.len.saturating_sub(offset));
        Ok(BufReader::with_capacity(len, Source { file, offset }))
    }

    /// The error that says what is wrong with it, and where.
    pub fn damaged(&self, offset: u64, flaw: impl Into<String>) -> Error {
        Error::Damaged {
            number: self.number,
            offset,
            flaw: flaw.into(),
        }
    }

    /// The offset of the last byte that is not zero, at or after an offset.
    pub fn last_set_byte(&self, offset: u64) -> Result<Option<u64>, Error> {
        let last = last_set_byte(&*self.open()?, offset);
        last.map_err(Error::on("read", self.name()))
    }

    /// The offset of the first frame at or after `from` that is valid in its
    /// place and that `is_looked_for` accepts.
    pub fn find_frame(
        &self,
        from: u64,
        is_looked_for: impl Fn(&Frame, u64) -> bool,
    ) -> Result<Option<u64>, Error> {
        // No frame begins in the zeros at the end, and there may be many of
        // them. The last byte that is set is in the record behind a frame.
        let end = self.last_set_byte(from)?.map_or(from, |last| last + 1);
        let file = self.open()?;
        let mut bytes = vec![0; chunk_len(end - from)];
        let mut start = from;
        while start + FRAME_LEN <= end {
            let len = chunk_len(end - start);
            let read = read_part(&*file, start, start + len as u64, |part, at| {
                bytes[(at - start) as usize..][..part.len()].copy_from_slice(part);
                Ok(())
            });
            read.map_err(Error::on("read", self.name()))?;
            for (offset, window) in (start..).zip(bytes[..len].windows(FRAME_LEN as usize)) {
                // Most that is looked at is no frame, and the checksum takes
                // longest.
                if window[..4] != [0; 4]
                    && let Some(frame) = window.first_chunk().and_then(Frame::read)
                    && is_looked_for(&frame, offset)
                    && frame.belongs_to(self.place(offset))
                {
                    return Ok(Some(offset));
                }
            }
            start += len as u64 - (FRAME_LEN - 1);
        }
        Ok(None)
    }
}

/// How many of so many bytes are read at once.
pub(super) fn chunk_len(bytes: u64) -> usize {
    bytes.min(CHUNK as u64) as usize
}

/// The offset of a file's last byte that is not zero, at or after an offset.
pub(super) fn last_set_byte(file: &dyn File, offset: u64) -> io::Result<Option<u64>> {
    let (mut last, mut at) = (None, offset);
    let mut chunk = vec![0; chunk_len(file.len()?.saturating_sub(offset))];
    loop {
        let read = file.read_at(&mut chunk, at)?;
        if read == 0 {
            return Ok(last);
        }
        // Each byte is compared with its neighbour: the processor does this for
        // many bytes at a time.
        let zeros = chunk[0] == 0 && chunk[..read - 1] == chunk[1..read];
        if !zeros && let Some(index) = chunk[..read].iter().rposition(|byte| *byte != 0) {
            last = Some(at + index as u64);
        }
        at += read as u64;
    }
}

/// Reads a file from an offset on.
pub struct Source {
    file: Arc<dyn File>,
    offset: u64,
}

impl Read for Source {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.file.read_at(buffer, self.offset)?;
        self.offset += read as u64;
        Ok(read)
    }
}

/// What follows the records of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// Nothing, or the next segment that is known.
    Whole,
    /// These records say that there is a next segment, and it is not known.
    Continued,
    /// So many bytes of something unfinished.
    Torn(u64),
}

/// Reads the records of a segment.
pub struct Reader<'a> {
    found: &'a Found,
    source: BufReader<Source>,
    /// Where the next record begins.
    pub offset: u64,
    /// How far the segment was synced, by what the records so far say.
    pub synced: u64,
    /// Where to search for later frames if no record begins at `offset`. After a
    /// frame this is behind its record, since a body may look like frames.
    pub later: u64,
    end: u64,
    has_next: bool,
}

impl<'a> Reader<'a> {
    /// A reader from an offset on. The records end where the next segment's
    /// header says, or where something stands that is no record.
    pub fn new(found: &'a Found, offset: u64, next: Option<&Header>) -> Result<Reader<'a>, Error> {
        let end = next.map_or(found.len, |next| next.previous_end);
        if end > found.len {
            let flaw = format!("the file ends where its records go on to {end}");
            return Err(found.damaged(found.len, flaw));
        }
        Ok(Reader {
            found,
            source: found.read_from(offset)?,
            offset,
            synced: 0,
            later: offset + 1,
            end,
            has_next: next.is_some(),
        })
    }

    /// The next record and its offset; `None` if no record begins at `offset`.
    pub fn next(&mut self, tubes: &mut Tubes) -> Result<Option<(u64, Record)>, Error> {
        let offset = self.offset;
        let record = self.next_with(|frame, source| Record::read(frame, source, tubes))?;
        Ok(record.map(|record| (offset, record)))
    }

    /// The segment that the next mark names. The records before it are checked
    /// and not decoded.
    pub(super) fn next_mark(&mut self, tubes: &mut Tubes) -> Result<Option<u32>, Error> {
        let read =
            |frame: &Frame, source: &mut _, tubes: &mut _| Record::read_mark(frame, source, tubes);
        while let Some(mark) = self.next_with(|frame, source| read(frame, source, tubes))? {
            if mark.is_some() {
                return Ok(mark);
            }
        }
        Ok(None)
    }

    fn next_with<T>(
        &mut self,
        read_record: impl FnOnce(&Frame, &mut BufReader<Source>) -> io::Result<Option<T>>,
    ) -> Result<Option<T>, Error> {
        let offset = self.offset;
        self.later = offset + 1;
        let left = self.end.saturating_sub(offset);
        if left < FRAME_LEN {
            return Ok(None);
        }
        let read = |error| Error::on("read", self.found.name())(error);
        let mut bytes = [0; FRAME_LEN as usize];
        self.source.read_exact(&mut bytes).map_err(read)?;
        let place = self.found.place(offset);
        let frame = Frame::decode(&bytes, place);
        let frame = frame.filter(|frame| !frame.is_continued());
        if let Some(frame) = &frame {
            self.later = offset + FRAME_LEN + u64::from(frame.len);
        }
        let Some(frame) = frame.filter(|frame| u64::from(frame.len) <= left - FRAME_LEN) else {
            return Ok(None);
        };
        match read_record(&frame, &mut self.source) {
            Ok(None) => Ok(None),
            Ok(Some(record)) => {
                self.offset = self.later;
                self.synced = self.synced.max(frame.synced(offset));
                Ok(Some(record))
            }
            Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                let flaw = "this record is whole, and makes no sense";
                Err(self.found.damaged(offset, flaw))
            }
            Err(error) => Err(read(error)),
        }
    }

    /// An error if these records are followed by damage, or by another segment
    /// that is not there.
    ///
    /// Returns whether something unfinished follows.
    pub(super) fn must_be_whole(&self) -> Result<bool, Error> {
        match self.end()? {
            End::Continued => Err(Error::Missing {
                number: self.found.number.saturating_add(1),
            }),
            End::Whole => Ok(false),
            End::Torn(_) => Ok(true),
        }
    }

    /// What stands where the next frame would begin; zeros after the end of the
    /// file.
    fn next_bytes(&self) -> Result<[u8; FRAME_LEN as usize], Error> {
        let (mut bytes, mut next) = ([0; FRAME_LEN as usize], Vec::new());
        let source = self.found.read_from(self.offset)?;
        let read = source.take(FRAME_LEN).read_to_end(&mut next);
        read.map_err(Error::on("read", self.found.name()))?;
        bytes[..next.len()].copy_from_slice(&next);
        Ok(bytes)
    }

    /// Checks what follows the records. If there is a next segment, its header
    /// says where they end. In the newest one something unfinished may follow;
    /// but it is damage if a later frame says that this place had been synced.
    pub fn end(&self) -> Result<End, Error> {
        let (found, offset) = (self.found, self.offset);
        let flaw = "this is not the record that was written there";
        if self.has_next {
            return match offset == self.end {
                true => Ok(End::Whole),
                false => Err(found.damaged(offset, flaw)),
            };
        }
        let next = self.next_bytes()?;
        if Frame::decode(&next, found.place(offset)).is_some_and(|frame| frame.is_continued()) {
            return Ok(End::Continued);
        }
        let Some(last) = found.last_set_byte(offset)? else {
            return Ok(End::Whole);
        };
        let is_behind_sync = |frame: &Frame, at| frame.synced(at) > offset;
        let is_whole = |frame: &Frame, at| at + u64::from(frame.len) <= found.len;
        let is_ours = |frame: &Frame, at| is_behind_sync(frame, at) || is_whole(frame, at);
        let Some(first) = found.find_frame(offset, is_ours)? else {
            // Zeros follow the last record, and after them there is only what an
            // earlier use of the file has left.
            return Ok(match next == [0; FRAME_LEN as usize] {
                true => End::Whole,
                false => End::Torn(last + 1 - offset),
            });
        };
        match found.find_frame(self.later.max(first), is_behind_sync)? {
            Some(_) => Err(found.damaged(offset, format!("{flaw}, and it had been synced"))),
            None => Ok(End::Torn(last + 1 - offset)),
        }
    }
}
