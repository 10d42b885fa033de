//! The files that are prepared ahead, and the removal of empty segments.
//!
//! The spare and the reserve are known by their names. They are filled with
//! zeros that are really written. So their room is allocated, and a later write
//! to these blocks need not change the file system's metadata, which would be
//! synced as well. To write a block and sync it costs the disk 2 writes and 1
//! flush if the block has zeros. If it is only allocated, this costs 3 and 2 on
//! ext4, 2 and 2 on XFS (`tests/binlog/zeros`). If one of the two files is
//! missing, it is made from the file of an empty segment: on a full disk,
//! another program could take the room of a file as soon as that is removed.

use super::error::{Error, is_full};
use super::frame::{Header, segment_name};
use super::room::{BLOCK, RESERVE, SPARE, Wanted};
use super::segment::last_set_byte;
use super::storage::{File, Storage, write_zeros};
use super::{Binlog, Failed, NoRoom, held};
use std::io;
use std::sync::Arc;

impl Binlog {
    /// Admits a put of this length. If there is no room for it, makes room
    /// first.
    pub(super) fn let_in(&self, len: u64) -> Result<(), NoRoom> {
        loop {
            let mut tail = self.tail();
            if tail.admit(len) {
                let was_full = tail.full.take().is_some();
                drop(tail);
                if was_full {
                    self.wake_for_upkeep(); // the thread `segments` reports it
                }
                return Ok(());
            }
            let (is_taken, end) = (tail.spare.is_none(), tail.end);
            drop(tail);
            if is_taken {
                // A segment is to begin in the spare. When the writer has begun
                // it, there can be another spare.
                self.commit(end).map_err(|Failed| NoRoom)?;
            } else {
                self.settle_retired().map_err(|Failed| NoRoom)?;
                self.provide(Some(len))?;
            }
        }
    }

    /// Removes empty segments, and makes spare and reserve before they are
    /// needed. This may take as long as writing a segment.
    pub(super) fn keep_files(&self) -> Result<(), Failed> {
        if self.tail().needs_upkeep() {
            self.settle_retired()?;
            // If this fails, puts are refused; each of them tries again.
            self.provide(None).ok();
        }
        Ok(())
    }

    /// Begins another segment now, and syncs all that was appended.
    pub(super) fn begin_segment(&self) -> Result<(), NoRoom> {
        let before = {
            let mut tail = self.tail();
            if tail.is_last() {
                let why = io::Error::other("there is no number left for it");
                tail.full = Some(Arc::new(Error::on("begin", "another segment")(why)));
                return Err(NoRoom);
            }
            tail.end
        };
        self.settle(before).map_err(|Failed| NoRoom)?;
        if self.tail().spare == Some(0) {
            let _upkeep = held(self.upkeep.lock());
            let any = Wanted {
                name: SPARE,
                least: BLOCK,
                good: BLOCK,
            };
            let made = self.prepare(&any).map_err(Arc::new);
            self.tail().full = made.as_ref().err().cloned();
            made.map_err(|_| NoRoom)?;
        }
        let mut tail = self.tail();
        tail.begin_segment();
        let end = tail.end;
        drop(tail);
        self.settle(end).map_err(|Failed| NoRoom)
    }

    /// Syncs the marks after which the empty segments may be removed.
    fn settle_retired(&self) -> Result<(), Failed> {
        let after = self.tail().retired_after();
        after.map_or(Ok(()), |after| self.settle(after))
    }

    fn take_retired(&self) -> Option<u32> {
        let synced_to = self.progress().synced_to;
        self.tail().take_retired(synced_to)
    }

    /// Removes the empty segments that need not wait for a sync. (With `upkeep`
    /// held.)
    fn remove_retired(&self) -> Result<(), Error> {
        while let Some(number) = self.take_retired() {
            let name = segment_name(number);
            let removed = self.storage.remove(&name);
            removed.map_err(Error::on("remove", name))?;
        }
        Ok(())
    }

    /// Gives spare and reserve the lengths that this put needs (without one:
    /// that later puts will need), and removes empty segments.
    fn provide(&self, put: Option<u64>) -> Result<(), NoRoom> {
        let _upkeep = held(self.upkeep.lock());
        let is_idle = self.tail().wanted(put).is_empty();
        if is_idle && self.remove_retired().is_ok() {
            return Ok(());
        }
        let was_full = self.tail().full.is_some();
        let full = self.make_room(put).err();
        let is_full = full.is_some();
        self.tail().full = full;
        if is_full != was_full {
            self.wake_for_upkeep(); // the thread `segments` reports it
        }
        if is_full { Err(NoRoom) } else { Ok(()) }
    }

    /// Does the work of [`provide`](Self::provide). (With `upkeep` held.)
    fn make_room(&self, put: Option<u64>) -> Result<(), Arc<Error>> {
        let wanted = self.tail().wanted(put);
        // The room of empty segments is ours already, so no other program can
        // take it.
        for Wanted { name, .. } in wanted {
            let is_missing = self.tail().prepared(name) == Some(0);
            // Another machine may have old pages of that file in its cache, and
            // would not read the new contents.
            let may_recycle = is_missing && !self.storage.is_shared();
            if may_recycle && let Some(number) = self.take_retired() {
                let len = recycle(&*self.storage, number, name)?;
                self.set_prepared(name, len);
            }
        }
        self.remove_retired()?;
        let prepare_all = || {
            let wanted = self.tail().wanted(put);
            // Both are tried: if there is no room for one, there may be room
            // for the other.
            let made: Vec<_> = wanted.iter().map(|wanted| self.prepare(wanted)).collect();
            made.into_iter().collect::<Result<(), Error>>()
        };
        let made = prepare_all().map_err(Arc::new);
        if let Err(error) = &made
            && error.is_full()
            && self.tail().needs_reserve()
        {
            // Others append meanwhile. From now on they move jobs as fast as on
            // a full disk, and wait for each other's writes.
            self.tail().full = Some(error.clone());
            self.use_reserve()?;
            // Makes another reserve; a short one, if there is only room for
            // that.
            prepare_all().ok();
        }
        made
    }

    /// Gives a prepared file the length `good`; on a full disk, as much as
    /// there is room for. An error if it gets less than `least`. (With `upkeep`
    /// held.)
    fn prepare(&self, wanted: &Wanted) -> Result<(), Error> {
        let Wanted { name, least, good } = *wanted;
        let storage = &*self.storage;
        let good = good.next_multiple_of(BLOCK);
        let Some(have) = self.tail().prepared(name) else {
            return Ok(());
        };
        if have > good {
            return self.cut(name, good);
        }
        let made = lengthen(storage, name, have, good);
        match &made {
            Ok(()) => {
                self.set_prepared(name, good);
                return made;
            }
            Err(error) if !error.is_full() => return made,
            Err(_) => {}
        }
        let (mut len, mut more) = (have, good - have);
        while more > BLOCK {
            more = (more / 2).next_multiple_of(BLOCK);
            // A reserve that is too short is better than none; a spare that is
            // too short is not.
            let is_of_use = name == RESERVE || len + more >= least;
            if is_of_use && lengthen(storage, name, len, len + more).is_ok() {
                len += more;
            }
        }
        if len > have {
            self.set_prepared(name, len);
        }
        if len >= least { Ok(()) } else { made }
    }

    /// Shortens a prepared file. (With `upkeep` held.)
    fn cut(&self, name: &str, len: u64) -> Result<(), Error> {
        // From now on, a writer that takes the spare waits for `upkeep` before
        // it writes there.
        if self.set_prepared(name, len) {
            let file = self.storage.open(name).map_err(Error::on("open", name))?;
            file.set_len(len).map_err(Error::on("cut", name))?;
        }
        Ok(())
    }

    /// Notes the length of the spare or the reserve. Returns false if a segment
    /// is to begin in the spare.
    fn set_prepared(&self, name: &str, len: u64) -> bool {
        let mut tail = self.tail();
        match name {
            RESERVE => tail.reserve = len,
            _ if tail.spare.is_none() => return false,
            _ => tail.spare = Some(len),
        }
        true
    }

    /// For a full disk, when the current segment has become longer than its
    /// room: gives the room of the reserve back to the disk. Returns whether
    /// there was a reserve.
    pub(super) fn give_reserve_up(&self) -> bool {
        let _upkeep = held(self.upkeep.lock());
        let was_there = std::mem::take(&mut self.tail().reserve) > 0;
        was_there && self.storage.remove(RESERVE).is_ok() && self.storage.sync().is_ok()
    }

    /// For a full disk: makes the reserve the spare, in the place of one that
    /// is too short. (With `upkeep` held.)
    fn use_reserve(&self) -> Result<(), Error> {
        let storage = &*self.storage;
        // If a segment is to begin in the spare, the spare must not be
        // replaced.
        if !self.set_prepared(SPARE, 0) {
            return Ok(());
        }
        storage.remove(SPARE).ok(); // there may be none
        rename(storage, RESERVE, SPARE)?;
        let mut tail = self.tail();
        let len = std::mem::take(&mut tail.reserve);
        tail.spare = Some(len);
        // Only as much of it as a segment needs: the rest is room for the next
        // reserve.
        let wanted = tail.wanted_spare().min(len);
        drop(tail);
        self.cut(SPARE, wanted.next_multiple_of(BLOCK))
    }
}

/// Makes the spare or the reserve from the file of an empty segment, and
/// returns its length. First the old name goes, then the contents: so a file
/// with a segment's name is never filled with zeros.
fn recycle(storage: &dyn Storage, number: u32, name: &str) -> Result<u64, Error> {
    let old = segment_name(number);
    storage.remove(name).ok(); // a failed attempt may have left one
    rename(storage, &old, name)?;
    let file = storage.open(name).map_err(Error::on("open", name))?;
    zeroed(&*file).map_err(Error::on("prepare", name))
}

/// Fills a file whose contents are not needed with zeros, rounds it to whole
/// blocks, and returns its length.
pub(super) fn zeroed(file: &dyn File) -> io::Result<u64> {
    let mut len = file.len()?.next_multiple_of(BLOCK);
    // The last block is allocated already, unless the file system has smaller
    // blocks.
    match file.allocate(len) {
        Err(error) if is_full(&error) => {
            len = len.saturating_sub(BLOCK);
            file.set_len(len)?;
            file.allocate(len)?;
        }
        allocated => allocated?,
    }
    if let Some(last) = last_set_byte(file, 0)? {
        write_zeros(file, 0, last + 1)?;
    }
    file.sync()?;
    Ok(len)
}

/// Lengthens a file from one length to another; from 0, creates it. If there is
/// no room, the file stays as it was.
pub(super) fn lengthen(storage: &dyn Storage, name: &str, from: u64, to: u64) -> Result<(), Error> {
    let file = match from {
        0 => {
            storage.remove(name).ok(); // a failed attempt may have left one
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
        // If this fails too, the caller still gets the first error.
        match from {
            0 => storage.remove(name).ok(),
            _ => file.set_len(from).ok(),
        };
        Error::on("prepare", name)(source)
    })
}

/// Makes the spare a segment with this header.
pub(super) fn name_spare(storage: &dyn Storage, header: &Header) -> Result<Arc<dyn File>, Error> {
    let spare = storage.open(SPARE).map_err(Error::on("open", SPARE))?;
    let written = spare.write_at(&header.encode(), 0);
    written.map_err(Error::on("write", SPARE))?;
    spare.sync().map_err(Error::on("sync", SPARE))?;
    rename(storage, SPARE, &segment_name(header.number))?;
    Ok(spare)
}

/// Renames a file, durably.
fn rename(storage: &dyn Storage, from: &str, to: &str) -> Result<(), Error> {
    let renamed = storage.rename(from, to);
    renamed.map_err(Error::on("rename", from))?;
    storage.sync().map_err(Error::on("sync the name of", to))
}
