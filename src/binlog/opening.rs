//! A binlog that is about to be opened: how its first segment begins, and what
//! is done to its files before it is used.

use super::error::Error;
use super::files::{Prepared, create, name_segment, rename};
use super::format::{HEADER_LEN, Header, PREPARED, prepared_slot};
use super::log::Writer;
use super::segment::Found;
use super::storage::Storage;
use super::tail::{BLOCK, LiveBytes, Tail};
use super::{Binlog, Opened, SyncMode};
use crate::protocol::JobId;
use std::io;
use std::sync::Arc;

/// No segment is longer than this, however large `-s` is, except for longer jobs.
const LONGEST_SEGMENT: u64 = 1 << 30;

/// The provisional and the final names of the second and the third prepared segment.
/// They get the final ones when the first segment exists, so a final name proves that a
/// segment existed. If a start is interrupted, the next one removes those with
/// provisional names (see `lease`).
const FIRST_PREPARED: [(&str, &str); 2] = [
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
        let asked = self.asked_len().next_multiple_of(BLOCK);
        let mut len = asked;
        let storage = &*self.storage;
        self.remove_prepared()?;
        // The first one is twice as long at first: so there is room for a third
        // prepared segment beside the two and the segment that begins in the first.
        let make_all = |len: u64| {
            let first = create(storage, PREPARED, 2 * len, len)?;
            let mut prepared = Vec::new();
            for (index, (name, _)) in FIRST_PREPARED.into_iter().enumerate() {
                let (slot, file) = (index + 1, create(storage, name, len, len)?);
                prepared.push(Prepared { slot, len, file });
            }
            Ok((first, prepared))
        };
        let (file, prepared) = loop {
            match make_all(len) {
                Ok(made) => break made,
                Err(error) => {
                    // Some of them may have been made. What cannot be removed now is
                    // removed by the next start.
                    let removed = self.remove_prepared();
                    if !Error::is_full(&error) || len == BLOCK || removed.is_err() {
                        return Err(error);
                    }
                }
            }
            len = (len / 2).next_multiple_of(BLOCK);
        };
        file.set_len(len).map_err(Error::on("cut", PREPARED))?;
        let header = Header {
            number,
            oldest: floor.unwrap_or(number),
            previous_end: 0,
            next_id,
            salt: 0, // `name_segment` gives it one
        };
        let salt = name_segment(storage, (PREPARED, &*file), &header, || false)?;
        for (first_name, name) in FIRST_PREPARED {
            rename(storage, first_name, name, || false)?;
        }
        let mut live = LiveBytes::new(next_id);
        live.begin(number, 0, 0);
        let writer = Writer::new(number, salt, file, HEADER_LEN);
        if len < asked {
            let told = format!("no room for segments of {asked} bytes; they have {len}");
            self.notices.push(told);
        }
        let binlog = self.binlog(live, writer, len, prepared);
        binlog.tail().floor = floor;
        Ok(binlog)
    }

    /// Removes the files that a failed attempt has prepared.
    pub(super) fn remove_prepared(&self) -> Result<(), Error> {
        let names = self.storage.list();
        let names = names.map_err(Error::on("list", "the files"))?;
        let prepared = names.iter().filter(|name| prepared_slot(name).is_some());
        let first = FIRST_PREPARED.map(|(name, _)| name);
        for name in prepared.map(String::as_str).chain(first).chain([PREPARED]) {
            match self.storage.remove(name) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                removed => removed.map_err(Error::on("remove", name))?,
            }
        }
        Ok(())
    }

    /// The length of a segment, by `-s`.
    pub(super) fn asked_len(&self) -> u64 {
        self.segment_size.clamp(BLOCK, LONGEST_SEGMENT)
    }

    /// The binlog that continues at the offset of this writer, in a file of this
    /// length.
    ///
    /// If there was no room for segments as long as the options ask for, they stay as
    /// short as they were, until [`lengthen_segments`](Self::lengthen_segments) finds
    /// room for longer prepared ones. Otherwise room that suffices for short prepared
    /// segments would not suffice for longer ones, and puts would be refused.
    pub(super) fn binlog(
        &self,
        live: LiveBytes,
        writer: Writer,
        len: u64,
        prepared: Vec<Prepared>,
    ) -> Binlog {
        let lens = prepared.iter().map(|prepared| prepared.len);
        let longest = lens.fold(len.max(BLOCK), u64::max);
        let size = self.asked_len().min(longest);
        let tail = Tail::new(live, size, (writer.offset(), len), prepared);
        let storage = self.storage.clone();
        Binlog::new(storage, self.sync, self.segment_size, tail, writer)
    }

    /// Lets segments be as long as the options ask for, if there is room for prepared
    /// segments of that length.
    pub(super) fn lengthen_segments(&self, binlog: &Binlog) {
        let (was, asked) = (binlog.tail().segment_size, self.asked_len());
        if was < asked {
            binlog.tail().segment_size = asked;
            // As if a put waited: then as many are prepared as it needs.
            let _room = binlog.tail().wait_for_room(0);
            binlog.keep_files();
            if binlog.tail().no_room.is_some() {
                binlog.tail().segment_size = was;
                // If this fails as well, puts are refused, and each of them tries again.
                binlog.keep_files();
            }
        }
    }

    pub(super) fn remove(&self, file: &Found) -> Result<(), Error> {
        let removed = self.storage.remove(&file.name());
        removed.map_err(Error::on("remove", file.name()))
    }

    /// Removes a file that is not needed. If that fails, a notice says so.
    pub(super) fn remove_unneeded(&mut self, file: &Found) {
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
        let next_id = binlog.tail().live.next_id;
        Opened {
            binlog: Arc::new(binlog),
            jobs,
            next_id,
            notices: self.notices,
        }
    }
}
