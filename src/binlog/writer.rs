//! The writer: it turns records into bytes, and writes them to one segment
//! after the other. There is one writer, and the thread that holds it writes.

use super::error::{Error, is_full};
use super::frame::{CONTINUED, HEADER_LEN, Header, Place, segment_name};
use super::record::Record;
use super::spare::name_spare;
use super::storage::File;
use super::tail::{Spare, Step};
use super::{Binlog, Failed, Lsn};
use std::sync::Arc;

/// Gathered bytes are written when there are this many.
const GATHER: usize = 256 << 10;
/// A body of this length or more is written without being copied.
const UNCOPIED_BODY: usize = 64 << 10;

/// Holds the current segment's file and the place where the next byte goes.
pub(super) struct Writer {
    number: u32,
    salt: u32,
    file: Arc<dyn File>,
    /// Where the next written byte goes.
    offset: u64,
    /// Encoded bytes that are not written yet; they belong at `offset`.
    gathered: Vec<u8>,
    /// Up to where the segment was synced when the present batch began.
    synced: u64,
    /// An empty vector with capacity, to be exchanged for the steps in the
    /// tail.
    steps: Vec<Step>,
}

/// The capacity that stays when a batch was larger.
const MOST_STEPS_KEPT: usize = 4096;

/// How far the current segment's file is written and synced.
#[derive(Clone)]
pub(super) struct Progress {
    pub number: u32,
    pub file: Arc<dyn File>,
    /// Up to where it is written: the offset in the file, and the LSN in
    /// the binlog.
    pub written: u64,
    pub written_to: Lsn,
    /// Up to where it is synced, in the same way.
    pub synced: u64,
    pub synced_to: Lsn,
}

impl Writer {
    /// A writer that continues at `offset` in a segment that is synced up to
    /// there.
    pub fn new(number: u32, salt: u32, file: Arc<dyn File>, offset: u64) -> Writer {
        Writer {
            number,
            salt,
            file,
            offset,
            gathered: Vec::new(),
            synced: offset,
            steps: Vec::new(),
        }
    }

    /// Where in the segment the next byte goes.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// The progress of a binlog that is written and synced up to this writer's
    /// offset, which is `lsn`.
    pub fn progress(&self, lsn: Lsn) -> Progress {
        Progress {
            number: self.number,
            file: self.file.clone(),
            written: self.offset,
            written_to: lsn,
            synced: self.offset,
            synced_to: lsn,
        }
    }

    /// Writes all that was appended, and returns up to where that was.
    pub fn write(&mut self, binlog: &Binlog) -> Result<Lsn, Failed> {
        let fail = |error| binlog.fail(error);
        let empty = std::mem::take(&mut self.steps);
        let (mut steps, end) = binlog.tail().take(empty);
        // Each frame written now says how far the segment is synced at this
        // moment.
        self.synced = binlog.progress().synced;
        let mut lsn = binlog.progress().written_to;
        for step in &steps {
            match step {
                Step::Write(record) => {
                    self.write_record(record, binlog).map_err(fail)?;
                    lsn.0 += record.len();
                }
                Step::Begin(header, slot) => {
                    self.flush(binlog).map_err(fail)?;
                    binlog.sync_segment(&*self.file, self.number)?;
                    let begun = self.begin_segment(header, *slot, lsn, binlog);
                    begun.map_err(fail)?;
                    lsn.0 += HEADER_LEN;
                }
            }
        }
        self.flush(binlog).map_err(fail)?;
        debug_assert_eq!(lsn, end);
        steps.clear();
        steps.shrink_to(MOST_STEPS_KEPT);
        self.steps = steps;
        let mut progress = binlog.progress();
        progress.written = self.offset;
        progress.written_to = end;
        Ok(end)
    }

    fn write_record(&mut self, record: &Record, binlog: &Binlog) -> Result<(), Error> {
        let place = Place {
            number: self.number,
            salt: self.salt,
            offset: self.offset + self.gathered.len() as u64,
        };
        let body = record.encode(place, self.synced, &mut self.gathered);
        if body.len() < UNCOPIED_BODY {
            self.gathered.extend_from_slice(body);
        } else {
            self.flush(binlog)?;
            self.write_bytes(body, binlog)?;
        }
        if self.gathered.len() >= GATHER {
            self.flush(binlog)?;
        }
        Ok(())
    }

    fn flush(&mut self, binlog: &Binlog) -> Result<(), Error> {
        let mut gathered = std::mem::take(&mut self.gathered);
        self.write_bytes(&gathered, binlog)?;
        gathered.clear();
        self.gathered = gathered;
        Ok(())
    }

    /// Writes these bytes after the previous ones.
    fn write_bytes(&mut self, bytes: &[u8], binlog: &Binlog) -> Result<(), Error> {
        let mut written = self.file.write_at(bytes, self.offset);
        // The segment has become longer than its file, and the disk is full.
        while written.as_ref().is_err_and(is_full) && binlog.give_spare_up() {
            written = self.file.write_at(bytes, self.offset);
        }
        written.map_err(Error::on("write", segment_name(self.number)))?;
        self.offset += bytes.len() as u64;
        Ok(())
    }

    /// Continues in the next segment, after all records of this one are synced,
    /// in this order: the header is written into the spare and synced; the spare
    /// gets the segment's name, and that is synced. Only then records are
    /// written to it. So a segment of that name always has its header, and a
    /// torn part is always at the end of the newest segment. The segment before
    /// is told last that another one has begun, so that is never said too early.
    fn begin_segment(
        &mut self,
        header: &Header,
        slot: usize,
        lsn: Lsn,
        binlog: &Binlog,
    ) -> Result<(), Error> {
        let give_up = || binlog.give_spare_up();
        let (file, salt) = name_spare(&*binlog.storage, slot, header, give_up)?;
        // Nothing relies on this, so it may fail. On shared storage this file may
        // be another server's.
        if !binlog.storage.is_shared() {
            self.file.write_at(&CONTINUED, self.offset).ok();
        }
        binlog.tail().spares[slot] = Spare::Missing;
        self.number = header.number;
        self.salt = salt;
        self.file = file;
        self.offset = HEADER_LEN;
        self.synced = HEADER_LEN;
        let mut begun = self.progress(lsn);
        begun.written_to.0 += HEADER_LEN;
        begun.synced_to.0 += HEADER_LEN;
        *binlog.progress() = begun;
        Ok(())
    }
}
