//! The hand that writes: turns records into bytes, and goes from segment to
//! segment. There is one, and who holds it writes.

use super::error::Error;
use super::record::{FRAME_LEN, HEADER_LEN, Header, Place, Record, segment_name};
use super::storage::File;
use super::tail::Batch;
use super::{Binlog, Position};
use std::collections::VecDeque;
use std::sync::Arc;

/// Gathered bytes are written when they are this many.
const GATHER: usize = 256 << 10;
/// A body of this length is written from where it is.
const LARGE_BODY: usize = 64 << 10;

type Headers = VecDeque<(Header, Position)>;

/// Holds the current segment's file and the place where the next byte goes.
pub(super) struct Writer {
    number: u32,
    file: Arc<dyn File>,
    segment_size: u32,
    /// Where the next written byte goes.
    offset: u32,
    /// Encoded, and not yet written: behind `offset`, in this segment and the next ones.
    gathered: Vec<u8>,
    /// Where the next record goes, behind all that is gathered.
    place: Place,
    /// The segment in which the present batch began, and how far that was
    /// known to be synced.
    begun: u32,
    synced: u32,
    /// Empty, but with room: what is to be written is taken in exchange for it.
    batch: Batch,
}

/// How far the current segment's file has come.
#[derive(Clone)]
pub(super) struct Progress {
    pub number: u32,
    pub file: Arc<dyn File>,
    /// What is written: up to here in the file, up to there in the log.
    pub written: u32,
    pub written_to: Position,
    /// What is synced.
    pub synced: u32,
    pub synced_to: Position,
}

impl Writer {
    /// A writer for a segment that has only its header, synced.
    pub fn new(number: u32, file: Arc<dyn File>, segment_size: u32) -> Writer {
        Writer {
            number,
            file,
            segment_size,
            offset: HEADER_LEN,
            gathered: Vec::new(),
            place: Place {
                number,
                offset: HEADER_LEN,
            },
            begun: number,
            synced: HEADER_LEN,
            batch: Batch::default(),
        }
    }

    /// The progress of a log that has come as far as `position`, the start of this segment.
    pub fn progress(&self, position: Position) -> Progress {
        Progress {
            number: self.number,
            file: self.file.clone(),
            written: HEADER_LEN,
            written_to: position,
            synced: HEADER_LEN,
            synced_to: position,
        }
    }

    /// Writes all that waits, and says up to where that was.
    pub fn write(&mut self, log: &Binlog) -> Result<Position, Error> {
        let mut batch = std::mem::take(&mut self.batch);
        let end = {
            let mut tail = log.tail();
            std::mem::swap(&mut batch, &mut tail.batch);
            tail.end
        };
        self.write_batch(log, &mut batch)?;
        batch.records.clear();
        self.batch = batch;
        let mut progress = log.progress();
        progress.written = self.offset;
        progress.written_to = end;
        Ok(end)
    }

    fn write_batch(&mut self, log: &Binlog, batch: &mut Batch) -> Result<(), Error> {
        let Batch { records, headers } = batch;
        self.begun = self.number;
        self.synced = log.progress().synced;
        for record in records {
            let body = self.encode(record);
            if body.len() < LARGE_BODY {
                self.gathered.extend_from_slice(body);
            } else {
                self.flush(log, headers)?;
                self.put(body, log, headers)?;
            }
            self.advance(record.len());
            if self.gathered.len() >= GATHER {
                self.flush(log, headers)?;
            }
        }
        self.flush(log, headers)?;
        // A segment may begin without a record, too.
        while let Some((header, at)) = headers.pop_front() {
            self.rotate(log, &header, at)?;
            self.place = Place {
                number: self.number,
                offset: self.offset,
            };
        }
        Ok(())
    }

    /// Gathers a record, all but its body.
    fn encode<'a>(&mut self, record: &'a Record) -> &'a [u8] {
        let rest = self.segment_size - self.place.offset;
        if rest <= FRAME_LEN {
            self.gathered.extend((0..rest).map(|_| 0));
            self.place = Place {
                number: self.place.number + 1,
                offset: HEADER_LEN,
            };
        }
        let synced = match self.place.number == self.begun {
            true => self.synced,
            false => HEADER_LEN,
        };
        record.encode(self.place, synced, &mut self.gathered)
    }

    /// The next record's place is so many bytes further on.
    fn advance(&mut self, mut len: u32) {
        while len > self.segment_size - self.place.offset {
            len -= self.segment_size - self.place.offset;
            self.place.number += 1;
            self.place.offset = HEADER_LEN;
        }
        self.place.offset += len;
    }

    fn flush(&mut self, log: &Binlog, headers: &mut Headers) -> Result<(), Error> {
        let mut gathered = std::mem::take(&mut self.gathered);
        self.put(&gathered, log, headers)?;
        gathered.clear();
        self.gathered = gathered;
        Ok(())
    }

    /// Writes bytes to this segment and, as far as they do not fit, to the next ones.
    fn put(&mut self, mut bytes: &[u8], log: &Binlog, headers: &mut Headers) -> Result<(), Error> {
        while !bytes.is_empty() {
            let room = self.segment_size - self.offset;
            if room == 0 {
                let (header, at) = headers.pop_front().expect("the tail has counted as we do");
                self.rotate(log, &header, at)?;
                continue;
            }
            let len = u32::try_from(bytes.len()).map_or(room, |len| len.min(room));
            let (now, later) = bytes.split_at(len as usize);
            let written = self.file.write_at(now, self.offset.into());
            written.map_err(Error::on("write", segment_name(self.number)))?;
            self.offset += len;
            bytes = later;
        }
        Ok(())
    }

    /// Goes on in the next segment. This one is synced before, and the header
    /// there before any record gets there: so a record that is torn is always
    /// in the last segment that has a header, or reaches into it.
    fn rotate(&mut self, log: &Binlog, header: &Header, at: Position) -> Result<(), Error> {
        let synced = self.file.sync();
        synced.map_err(Error::on("sync", segment_name(self.number)))?;
        log.progress().synced_to = at;
        let spare = log.take_spare()?;
        assert_eq!(spare.number, header.number, "spares are made in order");
        let on = |action| Error::on(action, segment_name(spare.number));
        spare
            .file
            .write_at(&header.encode(), 0)
            .map_err(on("write"))?;
        spare.file.sync().map_err(on("sync"))?;
        self.number = spare.number;
        self.file = spare.file;
        self.offset = HEADER_LEN;
        *log.progress() = self.progress(at);
        Ok(())
    }

    /// Makes what is written last, up to the position given.
    pub fn sync(&mut self, log: &Binlog, position: Position) -> Result<(), Error> {
        let synced = self.file.sync();
        synced.map_err(Error::on("sync", segment_name(self.number)))?;
        let mut progress = log.progress();
        progress.synced = self.offset;
        progress.synced_to = position;
        Ok(())
    }
}
