//! Reading records from one segment to the next, and telling a torn end from damage.

use super::error::Error;
use super::files::{Found, Source, last_set_byte};
use super::record::{FRAME_LEN, Frame, HEADER_LEN, Header, Place, Record, Tubes};
use std::io::{self, BufReader, Read};

/// Segments that follow each other, being read.
pub(super) struct Chain<'a> {
    links: Vec<Link<'a>>,
    /// Where the next byte is read.
    index: usize,
    offset: u32,
    source: BufReader<Source<'a>>,
    tubes: Tubes,
}

struct Link<'a> {
    file: &'a Found,
    header: Header,
    /// Where the records end, as the next header says; of the last segment,
    /// where the file ends.
    end: u32,
}

/// Where the records end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct End {
    /// In which of the segments.
    pub index: usize,
    pub offset: u32,
    /// How many bytes of something unfinished stand there.
    pub torn: Option<u64>,
}

/// A record and where it begins, or the end of all.
pub(super) enum Step {
    Record(Place, Record),
    End(End),
}

impl<'a> Chain<'a> {
    /// The chain of some segments: at least one, and without a gap.
    pub fn new(files: &'a [Found]) -> Result<Chain<'a>, Error> {
        let mut links = Vec::new();
        let mut end = None;
        for file in files.iter().rev() {
            let header = file.header().expect("a chain is made of segments");
            let len = u32::try_from(file.len);
            let len = len.map_err(|_| file.damaged(u32::MAX.into(), "no segment is that long"))?;
            let end = end.replace(header.previous_end).unwrap_or(len);
            if end > len {
                return Err(file.damaged(
                    len.into(),
                    format!("the file ends where its records go on to {end}"),
                ));
            }
            links.push(Link { file, header, end });
        }
        links.reverse();
        // What a removed segment had begun is nobody's any more.
        let begins = |link: &Link| link.header.first < link.end;
        let index = links.iter().position(begins).unwrap_or(links.len() - 1);
        let link = &links[index];
        let offset = link.header.first.min(link.end);
        Ok(Chain {
            index,
            offset,
            source: link.file.read_from(offset.into()),
            links,
            tubes: Tubes::default(),
        })
    }

    /// The next record.
    pub fn next(&mut self) -> Result<Step, Error> {
        while self.offset == self.links[self.index].end && self.index + 1 < self.links.len() {
            self.enter_next();
            self.check_first()?;
        }
        let (index, offset) = (self.index, self.offset);
        let link = &self.links[index];
        let place = Place {
            number: link.file.number,
            offset,
        };
        let frame = match link.end - offset > FRAME_LEN {
            true => self.frame(place)?,
            false => None,
        };
        let Some(frame) = frame else {
            return self.broken(index, offset, None);
        };
        if u64::from(frame.len) > self.left() {
            return self.broken(index, offset, Some(frame.len));
        }
        let mut tubes = std::mem::take(&mut self.tubes);
        let record = Record::read(&frame, self, &mut tubes).map_err(self.on_read())?;
        self.tubes = tubes;
        let Some(record) = record else {
            return self.broken(index, offset, Some(frame.len));
        };
        if self.index > index {
            self.check_first()?;
        }
        Ok(Step::Record(place, record))
    }

    fn frame(&mut self, place: Place) -> Result<Option<Frame>, Error> {
        let mut bytes = [0; FRAME_LEN as usize];
        self.read_exact(&mut bytes).map_err(self.on_read())?;
        Ok(Frame::decode(&bytes, place))
    }

    /// Where the segment says that its first record begins, it must.
    fn check_first(&self) -> Result<(), Error> {
        let link = &self.links[self.index];
        match link.header.first == self.offset {
            true => Ok(()),
            false => Err(link
                .file
                .damaged(self.offset.into(), "it does not go on from the one before")),
        }
    }

    fn enter_next(&mut self) {
        self.index += 1;
        self.offset = HEADER_LEN;
        self.source = self.links[self.index].file.read_from(HEADER_LEN.into());
    }

    /// How many bytes there are from here on.
    fn left(&self) -> u64 {
        let later = self.links[self.index + 1..]
            .iter()
            .map(|link| link.end - HEADER_LEN);
        let here = self.links[self.index].end - self.offset;
        later.chain([here]).map(u64::from).sum()
    }

    fn on_read(&self) -> impl FnOnce(io::Error) -> Error + use<> {
        Error::on("read", self.links[self.index].file.name())
    }

    /// What begins here is no whole record. If it was never synced, the
    /// records end here: then it is the last one, and nothing behind it says
    /// that it had been. Else the log is damaged.
    fn broken(&self, index: usize, offset: u32, len: Option<u32>) -> Result<Step, Error> {
        let damaged = |synced: &str| {
            let link = &self.links[index];
            let end = u64::from(offset) + u64::from(FRAME_LEN) + u64::from(len.unwrap_or(0));
            let rest = match self.links.get(index + 1).filter(|_| end > link.end.into()) {
                Some(next) => format!(" (its rest is in {})", next.file.name()),
                None => String::new(),
            };
            let flaw = format!("this is not the record that was written there{rest}{synced}");
            Err(link.file.damaged(offset.into(), flaw))
        };
        let last = self.links.len() - 1;
        let newest = self.links[last].file;
        let (begin, behind) = match len {
            _ if index == last => (offset, offset + 1),
            Some(len) => match self.end_in_last(index, offset, len) {
                Some(end) => (HEADER_LEN, end),
                None => return damaged(""),
            },
            None => return damaged(""),
        };
        let Some(last_byte) = last_set_byte(newest, begin.into())? else {
            let torn = (index < last).then(|| u64::from(self.links[index].end - offset));
            return Ok(Step::End(End {
                index,
                offset,
                torn,
            }));
        };
        if says_synced(newest, behind, begin)? {
            return damaged(", and it had been synced");
        }
        let before = self.links[index..last]
            .iter()
            .map(|link| u64::from(link.end));
        let torn = before.sum::<u64>() + last_byte + 1 - u64::from(offset);
        Ok(Step::End(End {
            index,
            offset,
            torn: Some(torn),
        }))
    }

    /// Where in the last segment a record of this length would end, if it reaches that.
    fn end_in_last(&self, index: usize, offset: u32, len: u32) -> Option<u32> {
        let mut left = u64::from(FRAME_LEN) + u64::from(len);
        let mut offset = offset;
        for link in &self.links[index..self.links.len() - 1] {
            left = left
                .checked_sub((link.end - offset).into())
                .filter(|left| *left > 0)?;
            offset = HEADER_LEN;
        }
        Some(u32::try_from(left).map_or(u32::MAX, |left| HEADER_LEN.saturating_add(left)))
    }
}

/// Reads on in the next segment where one ends.
impl Read for Chain<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.offset == self.links[self.index].end && self.index + 1 < self.links.len() {
            self.enter_next();
        }
        let room = self.links[self.index].end - self.offset;
        let len = u32::try_from(buffer.len()).map_or(room, |len| len.min(room));
        let read = self.source.read(&mut buffer[..len as usize])?;
        self.offset += u32::try_from(read).map_err(io::Error::other)?;
        Ok(read)
    }
}

/// Whether a record from an offset on says that the segment had been synced
/// beyond another one.
fn says_synced(file: &Found, from: u32, beyond: u32) -> Result<bool, Error> {
    let mut window = [0; FRAME_LEN as usize];
    for (byte, end) in file.read_from(from.into()).bytes().zip(from..) {
        window.rotate_left(1);
        window[window.len() - 1] = byte.map_err(Error::on("read", file.name()))?;
        let Some(offset) = (end + 1)
            .checked_sub(FRAME_LEN)
            .filter(|offset| *offset >= from)
        else {
            continue;
        };
        let place = Place {
            number: file.number,
            offset,
        };
        if Frame::decode(&window, place).is_some_and(|frame| frame.synced > beyond) {
            return Ok(true);
        }
    }
    Ok(false)
}
