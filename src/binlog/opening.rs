//! A log that is about to be opened: how its first segment begins, and what its
//! files are when nothing is known of them but the directory.

use super::error::Error;
use super::ledger::Ledger;
use super::record::{HEADER_LEN, Header};
use super::room::{BLOCK, RESERVE, SPARE};
use super::segment::Found;
use super::spare::{lengthen, name_spare};
use super::storage::Storage;
use super::tail::Tail;
use super::writer::Writer;
use super::{Binlog, Opened, SyncMode};
use crate::protocol::JobId;
use std::sync::Arc;

/// No file is made longer than this for want of a smaller `-s`.
const LONGEST_SEGMENT: u64 = 1 << 30;

/// A log that is about to be opened.
pub(super) struct Opening {
    pub storage: Arc<dyn Storage>,
    pub sync: SyncMode,
    pub segment_size: u64,
    pub notices: Vec<String>,
}

impl Opening {
    /// Begins the first segment of a log, as long as the room allows.
    pub fn begin(
        &mut self,
        next_id: JobId,
        number: u32,
        floor: Option<u32>,
    ) -> Result<Binlog, Error> {
        let asked = self.segment_size.clamp(BLOCK, LONGEST_SEGMENT);
        let asked = asked.next_multiple_of(BLOCK);
        let mut len = asked;
        // So long is a reserve in any case; beside more jobs it will be longer.
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
        if len < asked {
            self.notices.push(format!(
                "no room for segments of {asked} bytes; the first has {len}"
            ));
        }
        let file = self.storage.open(SPARE).map_err(Error::on("open", SPARE))?;
        let header = Header {
            number,
            oldest: floor.unwrap_or(number),
            previous_end: 0,
            next_id,
        };
        name_spare(&*self.storage, &*file, &header)?;
        let mut ledger = Ledger::new(next_id);
        ledger.begin(number, 0);
        let writer = Writer::new(number, file, HEADER_LEN);
        let log = self.log(ledger, writer, (HEADER_LEN, len));
        {
            let mut tail = log.tail();
            tail.floor = floor;
            tail.reserve = reserve_for(len);
        }
        Ok(log)
    }

    /// The log that goes on at this offset in a file of this length.
    pub fn log(&self, ledger: Ledger, writer: Writer, (offset, len): (u64, u64)) -> Binlog {
        let segment_size = self.segment_size.clamp(BLOCK, LONGEST_SEGMENT);
        let tail = Tail::new(ledger, segment_size, offset, len);
        let storage = self.storage.clone();
        Binlog::new(storage, self.sync, self.segment_size, tail, writer)
    }

    pub fn remove(&self, file: &Found) -> Result<(), Error> {
        let removed = self.storage.remove(&file.name());
        removed.map_err(Error::on("remove", file.name()))
    }

    pub fn sync_names(&self) -> Result<(), Error> {
        self.storage.sync().map_err(Error::on("sync", "the names"))
    }

    /// The log with all that it held.
    pub fn opened<J>(self, log: Binlog, jobs: J) -> Opened<J> {
        let next_id = log.tail().ledger.next_id();
        Opened {
            binlog: Arc::new(log),
            jobs,
            next_id,
            notices: self.notices,
        }
    }
}
