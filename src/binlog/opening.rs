//! A binlog that is about to be opened: how its first segment begins, and what
//! is done to its files before it is used.

use super::error::Error;
use super::format::{HEADER_LEN, Header, SPARE, spare_slot};
use super::ledger::Ledger;
use super::log::Writer;
use super::room::BLOCK;
use super::segment::Found;
use super::spare::{cut, lengthen, name_spare, rename};
use super::storage::Storage;
use super::tail::{Spare, Tail};
use super::{Binlog, Opened, SyncMode};
use crate::protocol::JobId;
use std::sync::Arc;

/// A larger `-s` makes no longer files than this.
const LONGEST_SEGMENT: u64 = 1 << 30;

/// The names of the second and the third spare until there is a segment, and
/// after that. So one of them with its right name shows that there was a segment.
/// If a start is interrupted, the next one removes these files (see `lease`).
const FIRST_SPARES: [(&str, &str); 2] = [
    ("binlog.spare2.0", "binlog.spare2"),
    ("binlog.spare3.0", "binlog.spare3"),
];

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
        let storage = &*self.storage;
        self.remove_spares()?;
        // The first one is twice as long for a moment: so there is room for all
        // spares beside the segment that begins in it.
        let make_all = |len: u64| {
            lengthen(storage, SPARE, 0, 2 * len, len)?;
            let mut others = FIRST_SPARES.iter();
            others.try_for_each(|(name, _)| lengthen(storage, name, 0, len, len))
        };
        while let Err(error) = make_all(len) {
            // It may not have come to all of them.
            self.remove_prepared();
            if !error.is_full() || len == BLOCK {
                return Err(error);
            }
            len = (len / 2).next_multiple_of(BLOCK);
        }
        cut(storage, SPARE, len)?;
        let header = Header {
            number,
            oldest: floor.unwrap_or(number),
            previous_end: 0,
            next_id,
            salt: 0, // the spare gets one
        };
        let (file, salt) = name_spare(storage, 0, None, &header, || false)?;
        for (first_name, name) in FIRST_SPARES {
            rename(storage, first_name, name, || false)?;
        }
        let mut ledger = Ledger::new(next_id);
        ledger.begin(number, 0, 0);
        let writer = Writer::new(number, salt, file, HEADER_LEN);
        if len < asked {
            let told = format!("no room for segments of {asked} bytes; they have {len}");
            self.notices.push(told);
        }
        let spares = vec![Spare::Missing, Spare::Ready(len), Spare::Ready(len)];
        let binlog = self.binlog(ledger, writer, len, spares);
        binlog.tail().floor = floor;
        Ok(binlog)
    }

    /// Removes what a failed attempt has prepared, as far as it can be removed.
    pub(super) fn remove_prepared(&self) {
        for (name, _) in FIRST_SPARES {
            self.storage.remove(name).ok();
        }
        self.remove_spares().ok();
    }

    /// Removes spares that a failed attempt has left.
    fn remove_spares(&self) -> Result<(), Error> {
        let names = self.storage.list();
        let names = names.map_err(Error::on("list", "the files"))?;
        let spares = names.into_iter().filter(|name| spare_slot(name).is_some());
        for name in spares {
            let removed = self.storage.remove(&name);
            removed.map_err(Error::on("remove", name))?;
        }
        Ok(())
    }

    /// The length of a segment, by `-s`.
    pub(super) fn soft_len(&self) -> u64 {
        self.segment_size.clamp(BLOCK, LONGEST_SEGMENT)
    }

    /// The binlog that continues where this writer stands, in a file of this
    /// length.
    ///
    /// If there was no room for segments as long as the options ask for, they
    /// stay as short as they were, unless there is room now for spares that are
    /// longer. Otherwise the room that was enough for short spares would not be
    /// enough for longer ones, and puts would be refused.
    pub(super) fn binlog(
        &self,
        ledger: Ledger,
        writer: Writer,
        len: u64,
        spares: Vec<Spare>,
    ) -> Binlog {
        let lens = spares.iter().map(|spare| spare.len());
        let longest = lens.fold(len.max(BLOCK), u64::max);
        let size = self.soft_len().min(longest);
        let mut tail = Tail::new(ledger, size, writer.offset(), len);
        tail.spares = spares;
        let storage = self.storage.clone();
        Binlog::new(storage, self.sync, self.segment_size, tail, writer)
    }

    /// Lets segments be as long as the options ask for, if there is room for
    /// spares of that length.
    pub(super) fn lengthen_segments(&self, binlog: &Binlog) {
        let (was, asked) = (binlog.tail().segment_size, self.soft_len());
        if was < asked {
            binlog.tail().segment_size = asked;
            if binlog.make_spares().is_err() {
                binlog.tail().segment_size = was;
                // If this fails as well, puts are refused, and try it again.
                binlog.make_spares().ok();
            }
        }
    }

    pub(super) fn remove(&self, file: &Found) -> Result<(), Error> {
        let removed = self.storage.remove(&file.name());
        removed.map_err(Error::on("remove", file.name()))
    }

    /// Removes a file that is not needed. If that fails, it is only told.
    pub(super) fn clear_away(&mut self, file: &Found) {
        if let Err(error) = self.remove(file) {
            self.notices
                .push(format!("{error}; the file is not needed"));
        }
    }

    pub(super) fn sync_names(&self) -> Result<(), Error> {
        self.storage.sync().map_err(Error::on("sync", "the names"))
    }

    /// The result of opening: the binlog and all that it held.
    pub(super) fn opened<J>(self, binlog: Binlog, jobs: J) -> Opened<J> {
        binlog.open_spares();
        let next_id = binlog.tail().ledger.next_id();
        Opened {
            binlog: Arc::new(binlog),
            jobs,
            next_id,
            notices: self.notices,
        }
    }
}
