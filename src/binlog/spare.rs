//! The files that are prepared ahead, and the end of the segments that are empty.
//!
//! The spare and the reserve are known by their names. They are filled with
//! zeros, really written: so their room is there, and writing to blocks that were
//! written before spares the file system its own notes with each sync. A block
//! and its sync cost the disk 2 writes and 1 flush into zeros; into blocks that
//! are only allocated, 3 and 2 on ext4, 2 and 2 on XFS (`tests/binlog/zeros`).
//! An empty segment's file becomes one of them that is missing, since on a full
//! disk its room would be somebody else's as soon as it is given back.

use super::error::Error;
use super::record::{Header, segment_name};
use super::segment::last_set_byte;
use super::storage::{File, Storage, is_full, write_zeros};
use super::tail::{BLOCK, Spare};
use super::{Binlog, Failed, NoRoom, held};
use std::io;
use std::sync::Arc;

/// The names of the two. What is in them is not part of the log.
pub(super) const SPARE: &str = "binlog.spare";
pub(super) const RESERVE: &str = "binlog.reserve";

impl Binlog {
    /// Lets a put of this length in; before that, makes room for it if there is
    /// none.
    pub(super) fn let_in(&self, len: u64) -> Result<(), NoRoom> {
        loop {
            let (is_taken, end) = {
                let mut tail = self.tail();
                if tail.promise(len) {
                    let was_full = tail.full.take().is_some();
                    drop(tail);
                    if was_full {
                        self.wake_for_upkeep(); // to tell
                    }
                    return Ok(());
                }
                (tail.spare == Spare::Taken, tail.end)
            };
            if is_taken {
                // As soon as the segment has begun, there can be another spare.
                self.commit(end).map_err(|Failed| NoRoom)?;
            } else {
                self.settle_retired().map_err(|Failed| NoRoom)?;
                self.provide(len).map_err(|_| NoRoom)?;
            }
        }
    }

    /// A spare that is long enough, and the empty segments away. It may take as
    /// long as the writing of a segment.
    pub(super) fn keep_files(&self) -> Result<(), Failed> {
        if !self.tail().needs_upkeep() {
            return Ok(());
        }
        self.settle_retired()?;
        // An error is in `tail.full`, to be told; the next put tries again.
        self.provide(0).ok();
        let _upkeep = held(self.upkeep.lock());
        let tidied = self.remove_retired().and_then(|()| self.cut_surplus());
        tidied.map_err(|error| self.fail(error))
    }

    /// Begins another segment now, and makes all that was appended last.
    pub(super) fn begin_segment(&self) -> Result<(), NoRoom> {
        let before = self.tail().end;
        self.settle(before).map_err(|Failed| NoRoom)?;
        if self.tail().spare == Spare::None {
            let _upkeep = held(self.upkeep.lock());
            let made = self.prepare(SPARE, BLOCK).map_err(Arc::new);
            self.tail().full = made.as_ref().err().cloned();
            made.map_err(|_| NoRoom)?;
        }
        let mut tail = self.tail();
        tail.begin_segment();
        let end = tail.end;
        drop(tail);
        self.settle(end).map_err(|Failed| NoRoom)
    }

    /// Syncs what the removal of empty segments waits for.
    fn settle_retired(&self) -> Result<(), Failed> {
        let after = self.tail().retired_after();
        after.map_or(Ok(()), |after| self.settle(after))
    }

    fn take_retired(&self) -> Option<u32> {
        let synced_to = self.progress().synced_to;
        self.tail().take_retired(synced_to)
    }

    /// Removes empty segments that may go. (With `upkeep` held.)
    fn remove_retired(&self) -> Result<(), Error> {
        while let Some(number) = self.take_retired() {
            let name = segment_name(number);
            let removed = self.storage.remove(&name);
            removed.map_err(Error::on("remove", name))?;
        }
        Ok(())
    }

    /// Gives back what spare and reserve have too much. (With `upkeep` held.)
    fn cut_surplus(&self) -> Result<(), Error> {
        let Some(surplus) = self.tail().surplus() else {
            return Ok(());
        };
        for (name, len) in [(SPARE, surplus.spare), (RESERVE, surplus.reserve)] {
            let len = len.next_multiple_of(BLOCK);
            // Who takes the spare from now on waits for `upkeep` before he
            // writes there.
            if len > 0 && self.set_prepared(name, len) {
                let file = self.storage.open(name).map_err(Error::on("open", name))?;
                file.set_len(len).map_err(Error::on("cut", name))?;
            }
        }
        Ok(())
    }

    /// Notes how long the spare or the reserve is; false if it is in use by now.
    fn set_prepared(&self, name: &str, len: u64) -> bool {
        let mut tail = self.tail();
        if name == RESERVE {
            tail.reserve = len;
        } else if tail.spare == Spare::Taken {
            return false;
        } else {
            tail.spare = Spare::Ready(len);
        }
        true
    }

    /// How long the spare or the reserve is; 0 if there is none, None if it is
    /// in use.
    fn prepared(&self, name: &str) -> Option<u64> {
        let tail = self.tail();
        match tail.spare {
            _ if name == RESERVE => Some(tail.reserve),
            Spare::Ready(len) => Some(len),
            Spare::None => Some(0),
            Spare::Taken => None,
        }
    }

    /// Makes spare and reserve as long as a put of this length needs them, if
    /// they are not.
    fn provide(&self, put: u64) -> Result<(), Arc<Error>> {
        let _upkeep = held(self.upkeep.lock());
        let Some(wanted) = self.tail().wanted(put) else {
            return Ok(());
        };
        let is_bare = {
            let tail = self.tail();
            tail.full.is_some() && tail.reserve == 0
        };
        let whole = match is_bare {
            true => self.prepare(RESERVE, wanted.reserve),
            false => Ok(()),
        };
        let mut made = self.prepare(SPARE, wanted.spare);
        if let Err(Error::Full { .. }) = made
            && self.tail().needs_reserve()
        {
            made = self.use_reserve().and(made);
        }
        let made = whole.and(made);
        let made = made.and_then(|()| self.prepare(RESERVE, wanted.reserve));
        let made = made.map_err(Arc::new);
        let full = made.as_ref().err().cloned();
        let before = std::mem::replace(&mut self.tail().full, full.clone());
        if before.is_some() != full.is_some() {
            self.wake_for_upkeep(); // to tell
        }
        made
    }

    /// Makes the spare or the reserve so long, of an empty segment if there is
    /// one. (With `upkeep` held.)
    fn prepare(&self, name: &str, len: u64) -> Result<(), Error> {
        let storage = &*self.storage;
        let Some(mut have) = self.prepared(name).filter(|have| *have < len) else {
            return Ok(());
        };
        // Another machine may have old pages of that file, and not those to come.
        let may_recycle = have == 0 && !self.storage.is_shared();
        if may_recycle && let Some(number) = self.take_retired() {
            have = recycle(storage, number, name)?;
            self.set_prepared(name, have);
        }
        self.remove_retired()?;
        let len = len.next_multiple_of(BLOCK);
        if have >= len {
            return Ok(());
        }
        let made = lengthen(storage, name, have, len);
        let mut more = len - have;
        if made.is_ok() {
            self.set_prepared(name, len);
        } else if name == RESERVE {
            // What room there is counts, on a full disk.
            while let Err(Error::Full { .. }) = made
                && more > BLOCK
            {
                more = (more / 2).next_multiple_of(BLOCK);
                if lengthen(storage, name, have, have + more).is_ok() {
                    have += more;
                    self.set_prepared(name, have);
                    if have + more >= len {
                        break;
                    }
                }
            }
        }
        made
    }

    /// The disk is full: the reserve becomes the spare, in the place of one that
    /// is too short. (With `upkeep` held.)
    fn use_reserve(&self) -> Result<(), Error> {
        let storage = &*self.storage;
        if self.prepared(SPARE) == Some(0) {
            // Nothing is in the way.
        } else if self.drop_spare() {
            storage.remove(SPARE).map_err(Error::on("remove", SPARE))?;
        } else {
            return Ok(());
        }
        let renamed = storage.rename(RESERVE, SPARE);
        renamed.map_err(Error::on("rename", RESERVE))?;
        let synced = storage.sync();
        synced.map_err(Error::on("sync the name of", SPARE))?;
        // No more of it than a segment takes: the rest is the next reserve.
        let (len, wanted) = {
            let mut tail = self.tail();
            (std::mem::take(&mut tail.reserve), tail.wanted_spare())
        };
        let wanted = wanted.next_multiple_of(BLOCK).min(len);
        if wanted < len {
            let file = storage.open(SPARE).map_err(Error::on("open", SPARE))?;
            file.set_len(wanted).map_err(Error::on("cut", SPARE))?;
        }
        self.set_prepared(SPARE, wanted);
        self.prepare(RESERVE, len - wanted)
    }

    /// The spare is not to be used any more; false if it is too late.
    fn drop_spare(&self) -> bool {
        let mut tail = self.tail();
        let is_there = matches!(tail.spare, Spare::Ready(_));
        if is_there {
            tail.spare = Spare::None;
        }
        is_there
    }

    /// Gives room that was set aside to one who found none where he writes: that
    /// behind the end of the file that he writes to, else the spare, else the
    /// reserve. False if
    /// there is nothing to give.
    ///
    /// That room had been made where he writes. So on this file system that
    /// counts for nothing.
    pub(super) fn give_way(&self, file: &dyn File, end: Option<u64>) -> Result<bool, Error> {
        self.tail().is_copying = true;
        let len = file.len().map_err(Error::on("read", "a segment"))?;
        if let Some(end) = end.filter(|end| *end < len) {
            let cut = file.set_len(end).and_then(|()| file.sync());
            return cut.map(|()| true).map_err(Error::on("cut", "a segment"));
        }
        let _upkeep = held(self.upkeep.lock());
        let name = if self.drop_spare() {
            SPARE
        } else if std::mem::take(&mut self.tail().reserve) > 0 {
            RESERVE
        } else {
            return Ok(false);
        };
        let removed = self.storage.remove(name);
        let removed = removed.and_then(|()| self.storage.sync());
        removed.map(|()| true).map_err(Error::on("remove", name))
    }
}

/// Makes the file of this name of an empty segment's, and says how long it is.
/// The old name goes before the contents, so a segment's name never stands for
/// zeros.
fn recycle(storage: &dyn Storage, number: u32, name: &str) -> Result<u64, Error> {
    let old = segment_name(number);
    storage.remove(name).ok(); // what a failed try has left
    let renamed = storage.rename(&old, name);
    renamed.map_err(Error::on("rename", old))?;
    let synced = storage.sync();
    synced.map_err(Error::on("sync the name of", name))?;
    let file = storage.open(name).map_err(Error::on("open", name))?;
    zeroed(&*file).map_err(Error::on("prepare", name))
}

/// Gives a file that holds something of no use zeros and whole blocks, and says
/// how long it is.
pub(super) fn zeroed(file: &dyn File) -> io::Result<u64> {
    let len = file.len()? / BLOCK * BLOCK;
    file.set_len(len)?;
    file.allocate(len)?;
    if let Some(last) = last_set_byte(file, 0)? {
        write_zeros(file, 0, last + 1)?;
    }
    file.sync()?;
    Ok(len)
}

/// Makes the file of this name as long as this, if it is so long; from 0 on,
/// makes it. If there is no room, all is as it was.
pub(super) fn lengthen(storage: &dyn Storage, name: &str, from: u64, to: u64) -> Result<(), Error> {
    let file = match from {
        0 => {
            storage.remove(name).ok(); // what a failed try has left
            storage.create(name).map_err(Error::on("create", name))?
        }
        _ => storage.open(name).map_err(Error::on("open", name))?,
    };
    let made = || {
        file.allocate(to)?;
        write_zeros(&*file, from, to)?;
        file.sync()?;
        match from {
            0 => storage.sync(),
            _ => Ok(()),
        }
    };
    made().map_err(|source| {
        // If that fails too, the first error is still the one to tell.
        match from {
            0 => storage.remove(name).ok(),
            _ => file.set_len(from).ok(),
        };
        match is_full(&source) {
            true => Error::Full {
                what: "another segment",
                source,
            },
            false => Error::on("prepare", name)(source),
        }
    })
}

/// Makes a segment with this header of the spare.
pub(super) fn name_spare(
    storage: &dyn Storage,
    spare: &dyn File,
    header: &Header,
) -> Result<(), Error> {
    let written = spare.write_at(&header.encode(), 0);
    written.map_err(Error::on("write", SPARE))?;
    spare.sync().map_err(Error::on("sync", SPARE))?;
    let name = segment_name(header.number);
    let renamed = storage.rename(SPARE, &name);
    renamed.map_err(Error::on("rename", SPARE))?;
    storage.sync().map_err(Error::on("sync the name of", name))
}
