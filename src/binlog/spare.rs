//! The spares, and what becomes of retired segments.
//!
//! The spares are known by their names. They are filled with zeros that are
//! really written. So their room is allocated, and a later write to these blocks
//! need not change the file system's metadata, which would be synced as well. To
//! write a block and sync it costs the disk 2 writes and 1 flush if the block
//! has zeros. If it is only allocated, this costs 3 and 2 on ext4, 2 and 2 on
//! XFS (`tests/binlog/zeros`). A spare that is missing is made from the file of
//! a retired segment: on a full disk, another program could take the room of a
//! file as soon as that is removed.
//!
//! **What fails here stops puts, and nothing else**, whether the disk is full or
//! an error: no change that was acknowledged is in a spare, and no retired segment
//! is needed. So if one of these files cannot be made, written or synced, or
//! their names cannot be, `no_room` says why, each put tries again, and clients
//! can still work off their jobs. Where changes are at stake, in a segment or in
//! the name of one that begins, the same error is the end of the binlog
//! (`log`).

use super::error::{Error, is_full};
use super::frame::{Header, segment_name, spare_name};
use super::room::BLOCK;
use super::segment::last_set_byte;
use super::storage::{File, Storage, write_zeros};
use super::tail::Spare;
use super::{Binlog, Failed, Lsn, NoRoom, locked};
use std::cmp::Ordering;
use std::io;
use std::sync::Arc;

impl Binlog {
    /// Waits until there is room for a put of this length (see
    /// [`longest_put`](super::longest_put)). Not to be called under the server's
    /// lock: this may take as long as writing a segment. Other threads may use
    /// that room before this one does.
    ///
    /// # Errors
    ///
    /// If the spares for it cannot be made, mostly because the disk is full, or
    /// if the binlog has failed.
    pub fn make_room(&self, len: u64) -> Result<(), NoRoom> {
        loop {
            let tail = self.tail();
            if tail.admits(len) {
                return Ok(());
            }
            let end = tail.end;
            drop(tail);
            // Spares that are taken can be made again when the writer has begun
            // its segments in them.
            self.commit(end).map_err(|Failed| NoRoom)?;
            let made = self.make_spares(len);
            if made.is_err() && !self.tail().admits(len) {
                return made;
            }
        }
    }

    /// Removes retired segments, and makes spares before they are needed. This may
    /// take as long as writing a segment.
    pub(super) fn keep_files(&self) -> Result<(), Failed> {
        if self.tail().needs_upkeep() {
            // If this fails, puts are refused; each of them tries again.
            self.make_spares(0).ok();
        }
        match self.failure() {
            Some(_) => Err(Failed),
            None => Ok(()),
        }
    }

    /// Begins another segment now, and syncs all that was appended.
    pub(super) fn begin_segment(&self) -> Result<(), NoRoom> {
        let before = {
            let mut tail = self.tail();
            if tail.is_last() {
                let why = io::Error::other("there is no number left for it");
                tail.no_room = Some(Arc::new(Error::on("begin", "another segment")(why)));
                return Err(NoRoom);
            }
            tail.end
        };
        self.settle(before).map_err(|Failed| NoRoom)?;
        let ready = self.tail().spare_for(0);
        let (slot, len) = match ready {
            Some(ready) => ready,
            None => self.make_any_spare()?,
        };
        let mut tail = self.tail();
        tail.begin_segment(slot, len);
        let end = tail.end;
        drop(tail);
        self.settle(end).map_err(|Failed| NoRoom)
    }

    /// Makes one spare, a short one if the disk is full, and returns its length.
    fn make_any_spare(&self) -> Result<(usize, u64), NoRoom> {
        let _upkeep = locked(self.upkeep.lock());
        let mut tail = self.tail();
        let (slot, full) = (tail.spares.len(), tail.full_len(0));
        tail.spares.push(Spare::Missing);
        drop(tail);
        let make = |len| lengthen(&*self.storage, &spare_name(slot), 0, len).map(|()| len);
        match make(full).or_else(|_| make(BLOCK)) {
            Ok(len) => Ok((slot, len)),
            Err(error) => {
                self.tail().no_room = Some(Arc::new(error));
                Err(NoRoom)
            }
        }
    }

    /// Makes the spares, each as long as a put of this length needs them (0: no
    /// put waits), and removes the retired segments that are not needed for that.
    pub(super) fn make_spares(&self, put: u64) -> Result<(), NoRoom> {
        // Before a retired segment may go, the mark that says so must be synced. A
        // mark that is not written yet can wait: a thread that has just written
        // comes here, too, and must not write for those who came meanwhile.
        if self.tail().retired_after().is_some() {
            self.sync_written().map_err(|Failed| NoRoom)?;
        }
        let _upkeep = locked(self.upkeep.lock());
        if self.failure().is_some() {
            return Err(NoRoom); // and no file is removed any more
        }
        // A segment whose mark another thread syncs from now on is left for the
        // next time. Otherwise it could come too late for a spare, and be removed;
        // and on a full disk its room would be given away.
        let synced_to = self.progress().synced_to;
        // All are tried: if there is no room for one, there may be a retired
        // segment for another one.
        let make = |slot| self.make_spare(slot, put, synced_to);
        let made: Vec<_> = (0..self.count_spares()).map(make).collect();
        let made = made.into_iter().collect::<Result<(), Error>>();
        let failure = made.and(self.remove_needless(synced_to)).err();
        let has_failed = failure.is_some();
        let kind = |error: &Error| error.kind();
        let now = failure.as_ref().map(kind);
        let before = std::mem::replace(&mut self.tail().no_room, failure.map(Arc::new));
        if now != before.as_deref().map(kind) {
            self.wake_for_upkeep(); // the thread `segments` reports it
        }
        if has_failed { Err(NoRoom) } else { Ok(()) }
    }

    /// Makes places for all spares that should be there, and returns their
    /// number.
    fn count_spares(&self) -> usize {
        let mut tail = self.tail();
        let count = tail.least_spares().max(tail.spares.len());
        tail.spares.resize(count, Spare::Missing);
        count.min(tail.most_spares())
    }

    /// Makes one of the spares, or gives it its full length. (With `upkeep`
    /// held.)
    fn make_spare(&self, slot: usize, put: u64, synced_to: Lsn) -> Result<(), Error> {
        let mut tail = self.tail();
        let (spare, full) = (tail.spares[slot], tail.full_len(put));
        if spare == Spare::Taken || spare == Spare::Ready(full) {
            return Ok(());
        }
        // No segment begins in it while this thread works on it.
        tail.spares[slot] = Spare::Missing;
        drop(tail);
        let (storage, name) = (&*self.storage, spare_name(slot));
        let mut len = match spare {
            Spare::Ready(len) => len,
            Spare::Missing | Spare::Taken => self.recycle(&name, synced_to)?,
        };
        let made = match len.cmp(&full) {
            Ordering::Less => lengthen(storage, &name, len, full),
            Ordering::Equal => Ok(()),
            Ordering::Greater => cut(storage, &name, full),
        };
        if made.is_ok() {
            len = full;
        }
        self.tail().spares[slot] = match len {
            0 => Spare::Missing,
            len => Spare::Ready(len),
        };
        made
    }

    /// Makes a spare from the file of a retired segment that may go when the binlog
    /// is synced so far, and returns its length; 0 if there is none. First the old
    /// name goes, then the contents: so a file with a segment's name is never
    /// filled with zeros.
    fn recycle(&self, name: &str, synced_to: Lsn) -> Result<u64, Error> {
        let storage = &*self.storage;
        // Another machine may have old pages of that file in its cache, and
        // would not read the new contents.
        if storage.is_shared() {
            return Ok(0);
        }
        // A failed attempt may have left a file. On a full disk, its room is not
        // given away.
        if storage.open(name).is_err() {
            remove_if_there(storage, name).map_err(Error::on("remove", name))?;
            let Some(number) = self.take_retired(synced_to) else {
                return Ok(0);
            };
            let old_name = segment_name(number);
            if let Err(error) = storage.rename(&old_name, name) {
                return self.leave(number, "rename", old_name, error).map(|()| 0);
            }
        }
        let synced = storage.sync();
        synced.map_err(Error::on("sync the name of", name))?;
        let file = storage.open(name).map_err(Error::on("open", name))?;
        zeroed(&*file).map_err(|error| {
            // Only room may come back.
            if !is_full(&error) {
                storage.remove(name).ok();
            }
            Error::on("prepare", name)(error)
        })
    }

    /// Removes spares that are too many, and retired segments. (With `upkeep`
    /// held.)
    fn remove_needless(&self, synced_to: Lsn) -> Result<(), Error> {
        while let Some(slot) = self.take_needless_spare() {
            let name = spare_name(slot);
            if let Err(error) = self.storage.remove(&name) {
                self.tell_of(Error::on("remove", name)(error));
            }
        }
        while let Some(number) = self.take_retired(synced_to) {
            let name = segment_name(number);
            if let Err(error) = self.storage.remove(&name) {
                self.leave(number, "remove", name, error)?;
            }
        }
        Ok(())
    }

    /// A retired segment cannot be made a spare, or removed. If only room is
    /// missing for that, it will be tried again. Otherwise the next start tries
    /// to remove it; nothing needs it until then.
    fn leave(
        &self,
        number: u32,
        action: &'static str,
        name: String,
        error: io::Error,
    ) -> Result<(), Error> {
        let is_full = is_full(&error);
        let error = Error::on(action, name)(error);
        if is_full {
            self.tail().take_back_retired(number);
            return Err(error);
        }
        self.tell_of(error);
        Ok(())
    }

    /// The thread `segments` tells of a file that stays though nothing needs it.
    fn tell_of(&self, error: Error) {
        self.tail().not_removed.push(error);
        self.wake_for_upkeep();
    }

    /// The last spare, if there are too many.
    fn take_needless_spare(&self) -> Option<usize> {
        let mut tail = self.tail();
        while tail.spares.len() > tail.most_spares() {
            match tail.spares.pop_if(|last| *last != Spare::Taken)? {
                Spare::Ready(_) => return Some(tail.spares.len()),
                Spare::Missing | Spare::Taken => {}
            }
        }
        None
    }

    /// The oldest retired segment, if it may go when the binlog is synced so far.
    fn take_retired(&self, synced_to: Lsn) -> Option<u32> {
        self.tail().take_retired(synced_to)
    }

    /// For a full disk, when the current segment has become longer than its
    /// file: gives the room of a spare back to the disk. Returns whether that was
    /// possible.
    pub(super) fn give_spare_up(&self) -> bool {
        while let Some(slot) = self.take_spare() {
            let removed = self.storage.remove(&spare_name(slot));
            self.tail().spares[slot] = Spare::Missing;
            if removed.is_ok() && self.storage.sync().is_ok() {
                return true;
            }
        }
        false
    }

    /// A spare in which no segment shall begin. Until its file is gone, no other
    /// thread may make a new one there.
    fn take_spare(&self) -> Option<usize> {
        let mut tail = self.tail();
        let (slot, _) = tail.spare_for(0)?;
        tail.spares[slot] = Spare::Taken;
        Some(slot)
    }
}

fn remove_if_there(storage: &dyn Storage, name: &str) -> io::Result<()> {
    match storage.remove(name) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}

/// Shortens a spare.
pub(super) fn cut(storage: &dyn Storage, name: &str, len: u64) -> Result<(), Error> {
    let file = storage.open(name).map_err(Error::on("open", name))?;
    file.set_len(len).map_err(Error::on("cut", name))
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
    file.unshare()?;
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
            // A failed attempt may have left one.
            remove_if_there(storage, name).map_err(Error::on("remove", name))?;
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

/// Makes a spare a segment with this header, to which it gives a salt. Returns
/// the file and the salt. A longer directory may need a block or two, so on a
/// full disk this asks `give_back` whether it can give some room to the disk.
pub(super) fn name_spare(
    storage: &dyn Storage,
    slot: usize,
    header: &Header,
    give_back: impl FnMut() -> bool,
) -> Result<(Arc<dyn File>, u32), Error> {
    let name = spare_name(slot);
    let salt = storage.random();
    let header = Header {
        salt: Some(salt),
        ..*header
    };
    let spare = storage.open(&name).map_err(Error::on("open", &name))?;
    let written = spare.write_at(&header.encode(), 0);
    written.map_err(Error::on("write", &name))?;
    spare.sync().map_err(Error::on("sync", &name))?;
    let renamed = rename(storage, &name, &segment_name(header.number), give_back);
    renamed.map(|()| (spare, salt))
}

/// Renames a file, durably. If the disk has no room for the name, tries again as
/// long as `give_back` gives some: a small spare may be less than the name
/// needs, and another thread may have taken its room.
pub(super) fn rename(
    storage: &dyn Storage,
    from: &str,
    to: &str,
    mut give_back: impl FnMut() -> bool,
) -> Result<(), Error> {
    let mut renamed = storage.rename(from, to);
    while renamed.as_ref().is_err_and(is_full) && give_back() {
        renamed = storage.rename(from, to);
    }
    renamed.map_err(Error::on("rename", from))?;
    storage.sync().map_err(Error::on("sync the name of", to))
}
