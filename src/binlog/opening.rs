//! A binlog that is about to be opened: how its first segment begins, and what
//! is done to its files before it is used.

use super::error::Error;
use super::frame::{HEADER_LEN, Header};
use super::ledger::Ledger;
use super::room::{BLOCK, RESERVE, SPARE};
use super::segment::Found;
use super::spare::{lengthen, name_spare};
use super::storage::Storage;
use super::tail::Tail;
use super::writer::Writer;
use super::{Binlog, Opened, SyncMode};
use crate::protocol::JobId;
use std::sync::Arc;

/// A larger `-s` makes no longer files than this.
const LONGEST_SEGMENT: u64 = 1 << 30;

/// A binlog that is about to be opened.
pub(super) struct Opening {
    pub storage: Arc<dyn Storage>,
    pub sync: SyncMode,
    pub segment_size: u64,
    pub notices: Vec<String>,
}

impl Opening {
    /// Begins the first segment of a binlog. It is shorter if the disk has too
    /// little room.
    pub(super) fn begin(
        &mut self,
        next_id: JobId,
        number: u32,
        floor: Option<u32>,
    ) -> Result<Binlog, Error> {
        let asked = self.soft_len().next_multiple_of(BLOCK);
        let mut len = asked;
        // A reserve has at least this length; with more jobs it will be longer.
        let reserve_for = |len: u64| (len / 2).next_multiple_of(BLOCK);
        let storage = &*self.storage;
        while let Err(error) = lengthen(storage, SPARE, 0, len)
            .and_then(|()| lengthen(storage, RESERVE, 0, reserve_for(len)))
        {
            storage.remove(SPARE).ok();
            if !error.is_full() || len == BLOCK {
                return Err(error);
            }
            len = (len / 2).next_multiple_of(BLOCK);
        }
        let header = Header {
            number,
            oldest: floor.unwrap_or(number),
            previous_end: 0,
            next_id,
        };
        let file = name_spare(storage, &header)?;
        let mut ledger = Ledger::new(next_id);
        ledger.begin(number, 0);
        let writer = Writer::new(number, file, HEADER_LEN);
        if len < asked {
            let told = format!("no room for segments of {asked} bytes; the first has {len}");
            self.notices.push(told);
        }
        let binlog = self.binlog(ledger, writer, len);
        let mut tail = binlog.tail();
        tail.floor = floor;
        tail.reserve = reserve_for(len);
        drop(tail);
        Ok(binlog)
    }

    /// The length of a segment, by `-s`.
    fn soft_len(&self) -> u64 {
        self.segment_size.clamp(BLOCK, LONGEST_SEGMENT)
    }

    /// The binlog that continues where this writer stands, in a file of this
    /// length.
    pub(super) fn binlog(&self, ledger: Ledger, writer: Writer, len: u64) -> Binlog {
        let tail = Tail::new(ledger, self.soft_len(), writer.offset(), len);
        let storage = self.storage.clone();
        Binlog::new(storage, self.sync, self.segment_size, tail, writer)
    }

    pub(super) fn remove(&self, file: &Found) -> Result<(), Error> {
        let removed = self.storage.remove(&file.name());
        removed.map_err(Error::on("remove", file.name()))
    }

    pub(super) fn sync_names(&self) -> Result<(), Error> {
        self.storage.sync().map_err(Error::on("sync", "the names"))
    }

    /// The result of opening: the binlog and all that it held.
    pub(super) fn opened<J>(self, binlog: Binlog, jobs: J) -> Opened<J> {
        let next_id = binlog.tail().ledger.next_id();
        Opened {
            binlog: Arc::new(binlog),
            jobs,
            next_id,
            notices: self.notices,
        }
    }
}
