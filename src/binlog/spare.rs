//! The files that are prepared ahead, and the end of the segments that are empty.
//!
//! The spare and the reserve are known by their names. They are filled with
//! zeros, really written: so their room is there, and writing to blocks that were
//! written before spares the file system its own notes with each sync. A block
//! and its sync cost the disk 2 writes and 1 flush into zeros; into blocks that
//! are only allocated, 3 and 2 on ext4, 2 and 2 on XFS (`tests/binlog/zeros`).
//! An empty segment's file becomes one of them that is missing, since on a full
//! disk its room would be somebody else's as soon as it is given back.

use super::error::{Error, is_full};
use super::frame::{Header, segment_name};
use super::room::{BLOCK, RESERVE, SPARE, Wanted};
use super::segment::last_set_byte;
use super::storage::{File, Storage, write_zeros};
use super::{Binlog, Failed, NoRoom, held};
use std::io;
use std::sync::Arc;

impl Binlog {
    /// Lets a put of this length in; before that, makes room for it if there is
    /// none.
    pub(super) fn let_in(&self, len: u64) -> Result<(), NoRoom> {
        loop {
            let mut tail = self.tail();
            if tail.admit(len) {
                let was_full = tail.full.take().is_some();
                drop(tail);
                if was_full {
                    self.wake_for_upkeep(); // to tell
                }
                return Ok(());
            }
            let (is_taken, end) = (tail.spare.is_none(), tail.end);
            drop(tail);
            if is_taken {
                // As soon as the segment has begun, there can be another spare.
                self.commit(end).map_err(|Failed| NoRoom)?;
            } else {
                self.settle_retired().map_err(|Failed| NoRoom)?;
                self.provide(Some(len))?;
            }
        }
    }

    /// Removes empty segments, and makes spare and reserve ahead of those who
    /// need them. It may take as long as the writing of a segment.
    pub(super) fn keep_files(&self) -> Result<(), Failed> {
        if self.tail().needs_upkeep() {
            self.settle_retired()?;
            // Puts are refused then; the next one tries again.
            self.provide(None).ok();
        }
        Ok(())
    }

    /// Begins another segment now, and makes all that was appended last.
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

    /// Gives spare and reserve the lengths that a put of this length needs, or
    /// those to come, and removes empty segments.
    fn provide(&self, put: Option<u64>) -> Result<(), NoRoom> {
        let _upkeep = held(self.upkeep.lock());
        let is_idle = self.tail().wanted(put).is_empty();
        if is_idle && self.remove_retired().is_ok() {
            return Ok(());
        }
        let full = self.make_room(put).err().map(Arc::new);
        let is_full = full.is_some();
        let was_full = std::mem::replace(&mut self.tail().full, full).is_some();
        if is_full != was_full {
            self.wake_for_upkeep(); // to tell
        }
        if is_full { Err(NoRoom) } else { Ok(()) }
    }

    /// The same. (With `upkeep` held.)
    fn make_room(&self, put: Option<u64>) -> Result<(), Error> {
        let wanted = self.tail().wanted(put);
        // The room of empty segments is ours already: nobody else gets it.
        for Wanted { name, .. } in wanted {
            let is_missing = self.tail().prepared(name) == Some(0);
            // Another machine may have old pages of that file, and not those to come.
            let may_recycle = is_missing && !self.storage.is_shared();
            if may_recycle && let Some(number) = self.take_retired() {
                let len = recycle(&*self.storage, number, name)?;
                self.set_prepared(name, len);
            }
        }
        self.remove_retired()?;
        let prepare_all = || {
            let wanted = self.tail().wanted(put);
            // Where one finds no room, the other one may.
            let made: Vec<_> = wanted.iter().map(|wanted| self.prepare(wanted)).collect();
            made.into_iter().collect::<Result<(), Error>>()
        };
        let made = prepare_all();
        if made.as_ref().is_err_and(Error::is_full) && self.tail().needs_reserve() {
            self.use_reserve()?;
            // Another reserve, if there is room for a short one.
            prepare_all().ok();
        }
        made
    }

    /// Gives a prepared file a good length, or on a full disk what there is room
    /// for; an error if that is not the least. (With `upkeep` held.)
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
            // A short reserve is better than none; a short spare is not.
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
        // Who takes the spare from now on waits for `upkeep` before he writes there.
        if self.set_prepared(name, len) {
            let file = self.storage.open(name).map_err(Error::on("open", name))?;
            file.set_len(len).map_err(Error::on("cut", name))?;
        }
        Ok(())
    }

    /// Notes how long the spare or the reserve is; false if it is in use by now.
    fn set_prepared(&self, name: &str, len: u64) -> bool {
        let mut tail = self.tail();
        match name {
            RESERVE => tail.reserve = len,
            _ if tail.spare.is_none() => return false,
            _ => tail.spare = Some(len),
        }
        true
    }

    /// The disk is full, and what is written has outrun all that was prepared:
    /// the reserve's room goes back to the disk. Whether there was one.
    pub(super) fn give_reserve_up(&self) -> bool {
        let _upkeep = held(self.upkeep.lock());
        let was_there = std::mem::take(&mut self.tail().reserve) > 0;
        was_there && self.storage.remove(RESERVE).is_ok() && self.storage.sync().is_ok()
    }

    /// The disk is full: the reserve becomes the spare, in the place of one that
    /// is too short. (With `upkeep` held.)
    fn use_reserve(&self) -> Result<(), Error> {
        let storage = &*self.storage;
        // Not one that a segment is to begin in by now.
        if !self.set_prepared(SPARE, 0) {
            return Ok(());
        }
        storage.remove(SPARE).ok(); // if there is one
        rename(storage, RESERVE, SPARE)?;
        let mut tail = self.tail();
        let len = std::mem::take(&mut tail.reserve);
        tail.spare = Some(len);
        // No more of it than a segment takes: the rest is for the next reserve.
        let wanted = tail.wanted_spare().min(len);
        drop(tail);
        self.cut(SPARE, wanted.next_multiple_of(BLOCK))
    }
}

/// Makes the file of this name of an empty segment's, and says how long it is.
/// The old name goes before the contents, so a segment's name never stands for
/// zeros.
fn recycle(storage: &dyn Storage, number: u32, name: &str) -> Result<u64, Error> {
    let old = segment_name(number);
    storage.remove(name).ok(); // what a failed try has left
    rename(storage, &old, name)?;
    let file = storage.open(name).map_err(Error::on("open", name))?;
    zeroed(&*file).map_err(Error::on("prepare", name))
}

/// Gives a file that holds something of no use zeros and whole blocks, and says
/// how long it is.
pub(super) fn zeroed(file: &dyn File) -> io::Result<u64> {
    let mut len = file.len()?.next_multiple_of(BLOCK);
    // The last block is there already, unless blocks are smaller here.
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
        Error::on("prepare", name)(source)
    })
}

/// Makes a segment with this header of the spare.
pub(super) fn name_spare(storage: &dyn Storage, header: &Header) -> Result<Arc<dyn File>, Error> {
    let spare = storage.open(SPARE).map_err(Error::on("open", SPARE))?;
    let written = spare.write_at(&header.encode(), 0);
    written.map_err(Error::on("write", SPARE))?;
    spare.sync().map_err(Error::on("sync", SPARE))?;
    rename(storage, SPARE, &segment_name(header.number))?;
    Ok(spare)
}

/// Gives a file another name, which lasts.
fn rename(storage: &dyn Storage, from: &str, to: &str) -> Result<(), Error> {
    let renamed = storage.rename(from, to);
    renamed.map_err(Error::on("rename", from))?;
    storage.sync().map_err(Error::on("sync the name of", to))
}
