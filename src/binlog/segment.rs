//! Reading a segment's file: its records one by one, and whether bytes that are no record
//! are an unfinished end or damage.

use super::error::Error;
use super::format::{
    FOREIGN, FRAME_LEN, Frame, HEADER_LEN, Header, Place, Record, VERSION, segment_name,
};
use super::storage::{CHUNK, File, Source};
use crate::protocol::TubeName;
use std::collections::BTreeMap;
use std::sync::Arc;

/// A file with the name of a segment. It is opened only while it is read: there
/// may be more of these files than a process can have open.
pub struct Found {
    /// Its number.
    pub number: u32,
    pub(super) storage: Arc<dyn Source>,
    /// How long it is, in bytes.
    pub len: u64,
    /// Its header, or what is wrong with it.
    pub header: Result<Header, &'static str>,
    /// The salt of its frames.
    salt: u32,
}

/// Those of these files that have such a name, by number; or why one cannot be read.
pub(super) fn find<T>(
    storage: &Arc<dyn Source>,
    names: &[String],
    number_of: impl Fn(&str) -> Option<u32>,
    read: impl Fn(Arc<dyn Source>, u32) -> Result<T, Error>,
) -> BTreeMap<u32, Result<T, Error>> {
    let numbers = names.iter().filter_map(|name| number_of(name));
    let files = numbers.map(|number| (number, read(storage.clone(), number)));
    files.collect()
}

impl Found {
    /// Opens a file and reads its start.
    pub(super) fn read(storage: Arc<dyn Source>, number: u32) -> Result<Found, Error> {
        let name = segment_name(number);
        let mut window = Window::open(&*storage, &name)?;
        let start = window.at(0, (HEADER_LEN + FRAME_LEN) as usize)?;
        if let Some(version) = Header::other_version(start) {
            let what = format_args!(
                "of version {version} of the format, and this program reads only version {VERSION}"
            );
            return Err(Error::other_format(&name, what, "beanpoled"));
        }
        let header = Header::decode(start, number);
        let first = start.get(HEADER_LEN as usize..);
        let first = first.and_then(|start| Frame::read(start.first_chunk()?));
        let place = Place {
            number,
            salt: 0,
            offset: HEADER_LEN,
        };
        // If the header is lost, the salt follows from the first frame.
        let salt = header.map_or_else(
            |_| first.map_or(0, |frame| frame.salt_in(place)),
            |header| header.salt,
        );
        Ok(Found {
            number,
            len: window.len,
            storage,
            header,
            salt,
        })
    }

    /// A place in it.
    pub(super) fn place(&self, offset: u64) -> Place {
        Place {
            number: self.number,
            salt: self.salt,
            offset,
        }
    }

    /// Its name.
    pub fn name(&self) -> String {
        segment_name(self.number)
    }

    /// Its header; an error if that is damaged.
    pub fn sound_header(&self) -> Result<Header, Error> {
        self.header.map_err(|flaw| self.damaged(0, flaw))
    }

    /// An error if this is no file of ours, whatever has become of it.
    pub(super) fn must_be_ours(&self) -> Result<(), Error> {
        match self.header {
            Err(FOREIGN) => self.sound_header().map(drop),
            _ => Ok(()),
        }
    }

    /// The error that says what is wrong with it, and where.
    pub(super) fn damaged(&self, offset: u64, flaw: impl Into<String>) -> Error {
        Error::damaged(&self.name(), offset, flaw.into())
    }
}

/// A part of a file in memory. If parts are asked for in their order, each is read
/// once.
pub(super) struct Window {
    name: String,
    file: Arc<dyn File>,
    /// How long the file is, in bytes.
    pub len: u64,
    /// The offset of the first of these bytes.
    from: u64,
    bytes: Vec<u8>,
}

impl Window {
    pub fn open(storage: &dyn Source, name: &str) -> Result<Window, Error> {
        let file = storage.open_to_read(name);
        let file = file.map_err(Error::on("open", name))?;
        Ok(Window {
            len: file.len().map_err(Error::on("read", name))?,
            name: name.to_owned(),
            file,
            from: 0,
            bytes: Vec::new(),
        })
    }

    /// This many bytes from an offset on, or fewer where the file ends.
    pub fn at(&mut self, offset: u64, len: usize) -> Result<&[u8], Error> {
        let left = self.len.saturating_sub(offset);
        let within = |len: usize| usize::try_from(left).unwrap_or(len).min(len);
        let wanted = within(len);
        let end = self.from + self.bytes.len() as u64;
        if offset < self.from || end < offset + wanted as u64 {
            self.bytes.resize(within(len.max(CHUNK)), 0);
            self.from = offset;
            let read = self.file.read_at(&mut self.bytes, offset);
            read.map_err(Error::on("read", self.name.as_str()))?;
        }
        Ok(&self.bytes[(offset - self.from) as usize..][..wanted])
    }

    /// The offset of the last byte that is not zero, at or after an offset.
    pub fn last_set_byte(&mut self, offset: u64) -> Result<Option<u64>, Error> {
        let mut last = None;
        for at in (offset..self.len).step_by(CHUNK) {
            let bytes = self.at(at, CHUNK)?;
            if !is_all_zeros(bytes) {
                let index = bytes.iter().rposition(|byte| *byte != 0);
                last = index.map(|index| at + index as u64);
            }
        }
        Ok(last)
    }
}

/// No byte is decided by the ones before: so the processor takes many at a time.
fn is_all_zeros(bytes: &[u8]) -> bool {
    bytes.iter().fold(0, |bits, byte| bits | byte) == 0
}

/// What follows the records of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// No record: zeros, what is left from an earlier use of the file, or the next segment,
    /// which is there.
    Whole,
    /// A frame that says that there is a next segment, which is not there.
    Continued,
    /// This many bytes of an unfinished write.
    Torn(u64),
}

/// Reads the records of a segment.
pub struct Reader<'a> {
    pub(super) found: &'a Found,
    window: Window,
    /// Where the next record begins.
    pub offset: u64,
    /// How far the segment was synced, as the frames read so far say.
    pub synced: u64,
    /// Where to search for later frames if no valid record begins at `offset`. If a frame is
    /// at `offset`, this is after its record, whose body may contain bytes that look like
    /// frames.
    later: u64,
    /// Where the records end, if the next segment says that.
    end: Option<u64>,
    /// Of the last put.
    tube: Option<TubeName>,
}

impl<'a> Reader<'a> {
    /// A reader of this file, from an offset on. The records end where the next segment's
    /// header says, if there is one, or before the first bytes that are no record.
    pub fn new(found: &'a Found, offset: u64, end: Option<u64>) -> Result<Reader<'a>, Error> {
        Ok(Reader {
            found,
            window: Window::open(&*found.storage, &found.name())?,
            offset,
            synced: 0,
            later: offset + 1,
            end,
            tube: None,
        })
    }

    /// The next record and its offset; `None` if no record begins at `offset`.
    pub fn next_record(&mut self) -> Result<Option<(u64, Record)>, Error> {
        let offset = self.offset;
        self.later = offset + 1;
        let Some(frame) = self.frame()?.filter(|frame| !frame.is_continued()) else {
            return Ok(None);
        };
        let start = offset + FRAME_LEN;
        self.later = start + u64::from(frame.len);
        if self.later > self.end.unwrap_or(self.found.len) {
            return Ok(None);
        }
        let bytes = self.window.at(start, frame.len as usize)?;
        if !frame.announces(bytes) {
            return Ok(None);
        }
        let Some(record) = Record::decode(bytes, &mut self.tube) else {
            let flaw = "the checksum of this record is right, but its fields are not valid";
            return Err(self.found.damaged(offset, flaw));
        };
        self.offset = self.later;
        self.synced = self.synced.max(frame.synced(offset));
        Ok(Some((offset, record)))
    }

    /// The frame at `offset`, if one was written there.
    fn frame(&mut self) -> Result<Option<Frame>, Error> {
        let bytes = self.window.at(self.offset, FRAME_LEN as usize)?;
        let frame = bytes.first_chunk().and_then(Frame::read);
        Ok(frame.filter(|frame| frame.belongs_to(self.found.place(self.offset))))
    }

    /// After a flaw: continues at the next frame that is valid, and returns how many bytes
    /// are left out. Returns false if no frame follows.
    pub fn resume(&mut self) -> Result<(u64, bool), Error> {
        let end = self.end.unwrap_or(u64::MAX).min(self.found.len);
        let next = self.find_frame(self.later, |_, at| at < end)?;
        let from = std::mem::replace(&mut self.offset, next.unwrap_or(end));
        Ok((self.offset.saturating_sub(from), next.is_some()))
    }

    /// The offset of the first frame at or after `from` that is valid in its
    /// place and that `is_wanted` accepts.
    fn find_frame(
        &mut self,
        from: u64,
        is_wanted: impl Fn(&Frame, u64) -> bool,
    ) -> Result<Option<u64>, Error> {
        // A frame may begin in one part and end in the next.
        for start in (from..self.found.len).step_by(CHUNK + 1 - FRAME_LEN as usize) {
            let bytes = self.window.at(start, CHUNK)?;
            if !is_all_zeros(bytes) {
                for (offset, bytes) in (start..).zip(bytes.windows(FRAME_LEN as usize)) {
                    // Most offsets have no frame, and the checksum takes
                    // longest.
                    if bytes[..4] != [0; 4]
                        && let Some(frame) = bytes.first_chunk().and_then(Frame::read)
                        && is_wanted(&frame, offset)
                        && frame.belongs_to(self.found.place(offset))
                    {
                        return Ok(Some(offset));
                    }
                }
            }
        }
        Ok(None)
    }

    /// Whether the file ends within what was begun at `offset`.
    pub fn is_cut(&self) -> bool {
        self.later.max(self.offset + FRAME_LEN) > self.found.len
    }

    /// Checks what follows the records. If there is a next segment, its header
    /// says where they end. In the newest one an unfinished write may follow; but it
    /// is damage if a later frame says that this offset had been synced.
    pub fn end(&mut self) -> Result<End, Error> {
        let (found, offset) = (self.found, self.offset);
        if let Some(end) = self.end {
            let flaw =
                "there is no valid record here, though the next segment says that one was written";
            return if offset == end {
                Ok(End::Whole)
            } else {
                Err(found.damaged(offset, flaw))
            };
        }
        if self.frame()?.is_some_and(|frame| frame.is_continued()) {
            return Ok(End::Continued);
        }
        let says_synced = |frame: &Frame, at| frame.synced(at) > offset;
        let is_plausible =
            |frame: &Frame, at| says_synced(frame, at) || at + u64::from(frame.len) <= found.len;
        // Most files have none, and are searched once.
        let first = self.find_frame(offset, is_plausible)?;
        if let Some(first) = first
            && let Some(_) = self.find_frame(self.later.max(first), says_synced)?
        {
            let flaw =
                "there is no valid record here, though a later record says that one was synced";
            return Err(found.damaged(offset, flaw));
        }
        // If the records end with zeros and no frame follows, what does is left from an earlier
        // use of the file.
        if first.is_none() && is_all_zeros(self.window.at(offset, FRAME_LEN as usize)?) {
            return Ok(End::Whole);
        }
        let last = self.window.last_set_byte(offset)?;
        Ok(End::Torn(last.map_or(0, |last| last + 1 - offset)))
    }
}
