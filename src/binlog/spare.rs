//! The spares, and what becomes of retired segments.
//!
//! The spares are known by their names. A new one is filled with zeros that are
//! really written. So its room is allocated, and a later write to these blocks
//! need not change the file system's metadata, which would be synced as well. To
//! write a block and sync it costs the disk 2 writes and 1 flush if the block
//! has zeros. If it is only allocated, this costs 3 and 2 on ext4, 2 and 2 on
//! XFS (`tests/binlog/zeros`). What is longer than `-s` is only allocated: a job
//! that long is written in one piece.
//!
//! A spare that is missing is made from the file of an obsolete segment: on a
//! full disk, another program could take the room of a file as soon as that is
//! removed. It keeps its old contents. The segment that begins there has a salt
//! of its own, so no old byte means anything.
//!
//! **One owner.** Whoever holds `upkeep` makes, lengthens, shortens and removes
//! spares, and always to the same length: that of `-s`, of the longest segment,
//! or of the longest put that waits, whichever is the longest. A put that waits
//! registers its length and sleeps; so a small one never shortens what a large
//! one needs.
//!
//! **What fails here stops puts, and nothing else**, whether the disk is full or
//! an error: no change that was acknowledged is in a spare, and no obsolete
//! segment is needed. So if one of these files cannot be made, written or synced,
//! or their names cannot be, `no_room` says why, each put tries again, and clients
//! can still work off their jobs. Where changes are at stake, in a segment or in
//! the name of one that begins, the same error is the end of the binlog
//! (`log`).

use super::error::{Error, is_full};
use super::format::{FRAME_LEN, Header, segment_name, spare_name};
use super::room::BLOCK;
use super::storage::{File, Storage, write_zeros};
use super::tail::{Spare, Tail};
use super::{Binlog, Failed, Jobs, Lsn, NoRoom, locked};
use crate::sync as atomic;
use std::cmp::Ordering;
use std::io;
use std::sync::Arc;

/// The files of so many spares are kept open: more than are used until others are
/// opened.
const MOST_OPEN: usize = 4;

/// Does work with the jobs, under the server's lock.
pub type WithJobs<'a> = dyn Fn(&mut dyn FnMut(&dyn Jobs)) + 'a;

/// Room for a put. As long as this exists, spares are made long enough for it.
#[must_use]
pub struct Room {
    binlog: Arc<Binlog>,
    put: u64,
}

impl Room {
    /// A put of this length waits from now on.
    fn wait_for(binlog: &Arc<Binlog>, put: u64) -> Room {
        *binlog.tail().waiting.entry(put).or_default() += 1;
        Room {
            binlog: Arc::clone(binlog),
            put,
        }
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        let mut tail = self.binlog.tail();
        if let Some(count) = tail.waiting.get_mut(&self.put) {
            *count -= 1;
            if *count == 0 {
                tail.waiting.remove(&self.put);
            }
        }
    }
}

impl Binlog {
    /// Waits until there is room for a put of this length (see
    /// [`longest_put`](super::longest_put)). On a full disk, compaction runs for
    /// it as far as needed. Not to be called under the server's lock: this may
    /// take as long as writing a segment. Other threads may use that room before
    /// this one does; then ask again, with the returned value still there.
    ///
    /// # Errors
    ///
    /// If what lives, two segments and the put do not fit, or if the binlog has
    /// failed. Then the put leaves nothing on the disk.
    pub fn make_room(self: &Arc<Self>, put: u64, with_jobs: &WithJobs) -> Result<Room, NoRoom> {
        let room = Room::wait_for(self, put);
        // Once through the whole binlog.
        let newest = self.tail().ledger.current();
        loop {
            let free = self.storage.free();
            let end = {
                let mut tail = self.tail();
                tail.capacity = free.map(|free| free + tail.file_len());
                if tail.admits(put) {
                    if tail.refused.as_ref().is_some_and(|(len, _)| *len <= put) {
                        drop(tail);
                        self.wake_for_upkeep(); // the thread `segments` reports it
                    }
                    return Ok(room);
                }
                tail.end
            };
            // Spares that are taken can be made again when the writer has begun
            // its segments in them.
            self.commit(end).map_err(|Failed| NoRoom)?;
            let fits = self.tail().must_fit(put).map_err(Arc::new);
            let Err(why) = fits.clone().and_then(|()| self.make_spares()) else {
                continue;
            };
            let tail = self.tail();
            if tail.admits(put) {
                continue;
            }
            let may_help = tail.garbage() > put && tail.ledger.oldest() <= newest;
            drop(tail);
            let mut has_helped = false;
            if fits.is_ok() && may_help && self.failure().is_none() {
                with_jobs(&mut |jobs| has_helped = self.compact_for_put(jobs));
            }
            if !has_helped {
                self.tail().refused = Some((put, why));
                drop(room);
                // What was prepared for it goes back to the disk.
                self.make_spares().ok();
                self.wake_for_upkeep(); // the thread `segments` reports it
                return Err(NoRoom);
            }
        }
    }

    /// The same for a log that nothing else is done with: it is only added to,
    /// so it may fill the disk, and there is nothing to compact.
    pub fn make_room_to_copy(&self, put: u64) -> Result<(), NoRoom> {
        self.tail().waiting.insert(put, 1);
        while !self.tail().has_spares_for(put) {
            let end = self.tail().end;
            self.commit(end).map_err(|Failed| NoRoom)?;
            if self.make_spares().is_err() && !self.tail().has_spares_for(put) {
                return Err(NoRoom);
            }
        }
        self.tail().waiting.clear();
        Ok(())
    }

    fn compact_for_put(&self, jobs: &dyn Jobs) -> bool {
        let mut tail = self.tail();
        let has_helped = tail.compact_for_put(jobs);
        self.end.store(tail.end.0, atomic::Ordering::Release);
        has_helped
    }

    /// Removes retired segments, and makes spares before they are needed. This may
    /// take as long as writing a segment.
    pub(super) fn keep_files(&self) -> Result<(), Failed> {
        if self.tail().needs_upkeep() {
            // If this fails, puts are refused; each of them tries again.
            self.make_spares().ok();
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
        let make = |len| lengthen(&*self.storage, &spare_name(slot), 0, len, len).map(|()| len);
        match make(full).or_else(|_| make(BLOCK)) {
            Ok(len) => Ok((slot, len)),
            Err(error) => {
                self.tail().no_room = Some(Arc::new(error));
                Err(NoRoom)
            }
        }
    }

    /// Makes the spares that are missing, gives all of them their length, and
    /// removes the obsolete segments that are not needed for that.
    pub(super) fn make_spares(&self) -> Result<(), Arc<Error>> {
        // Before an obsolete segment may go, the mark that says so must be synced.
        // A mark that is not written yet can wait: a thread that has just written
        // comes here, too, and must not write for those who came meanwhile.
        let failed = || {
            let ended = io::Error::other("the binlog has failed");
            Arc::new(Error::on("prepare", "another segment")(ended))
        };
        if self.tail().retired_after().is_some() {
            self.sync_written().map_err(|Failed| failed())?;
        }
        let _upkeep = locked(self.upkeep.lock());
        if self.failure().is_some() {
            return Err(failed()); // and no file is removed any more
        }
        // A segment whose mark another thread syncs from now on is left for the
        // next time. Otherwise it could come too late for a spare, and be removed;
        // and on a full disk its room would be given away.
        let synced_to = self.progress().synced_to;
        let slots = {
            let mut tail = self.tail();
            let slots = tail.spares.len().max(tail.most_spares());
            tail.spares.resize(slots, Spare::Missing);
            slots
        };
        // All are tried: if there is no room for one, there may be an obsolete
        // segment for another one.
        let make = |slot| self.make_spare(slot, synced_to);
        let made: Vec<_> = (0..slots).map(make).collect();
        let made = made.into_iter().collect::<Result<(), Error>>();
        let failure = made
            .and(self.remove_needless(synced_to))
            .err()
            .map(Arc::new);
        self.open_spares();
        let free = self.storage.free();
        let mut tail = self.tail();
        tail.no_room.clone_from(&failure);
        tail.capacity = free.map(|free| free + tail.file_len());
        drop(tail);
        failure.map_or(Ok(()), Err)
    }

    /// Opens the files of all spares that are ready. If that fails, they are
    /// opened when their segments begin.
    pub(super) fn open_spares(&self) {
        let slots = self.tail().spares.len().min(MOST_OPEN);
        for slot in 0..slots {
            let is_closed = |tail: &Tail| {
                matches!(tail.spares[slot], Spare::Ready(_)) && !tail.open.contains_key(&slot)
            };
            if is_closed(&self.tail())
                && let Ok(file) = self.storage.open(&spare_name(slot))
            {
                let mut tail = self.tail();
                // A segment may have begun in it meanwhile.
                if is_closed(&tail) {
                    tail.open.insert(slot, file);
                }
            }
        }
    }

    /// Makes one of the spares, or gives it its full length. (With `upkeep`
    /// held.)
    fn make_spare(&self, slot: usize, synced_to: Lsn) -> Result<(), Error> {
        let mut tail = self.tail();
        let (spare, full) = (tail.spares[slot], tail.prepared_len());
        if spare == Spare::Taken || spare == Spare::Ready(full) {
            return Ok(());
        }
        if spare == Spare::Missing && slot >= tail.most_spares() {
            return Ok(());
        }
        // No segment begins in it while this thread works on it.
        tail.take_spare(slot, Spare::Missing);
        drop(tail);
        let (storage, name) = (&*self.storage, spare_name(slot));
        let mut len = match spare {
            Spare::Ready(len) => len,
            Spare::Missing | Spare::Taken => self.recycle(&name, synced_to)?,
        };
        let is_wanted = len > 0 || self.tail().lacks_spares();
        let zeros = self.tail().segment_size;
        let made = match len.cmp(&full) {
            Ordering::Less if is_wanted => lengthen(storage, &name, len, full, zeros),
            Ordering::Less => return Ok(()),
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

    /// Makes a spare from the file of an obsolete segment that may go when the
    /// binlog is synced so far, and returns its length; 0 if there is none.
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
        allocated(&*file).map_err(|error| {
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
            let spare = tail.spares.pop_if(|last| *last != Spare::Taken)?;
            let slot = tail.spares.len();
            tail.open.remove(&slot);
            if let Spare::Ready(_) = spare {
                return Some(slot);
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
        tail.take_spare(slot, Spare::Taken);
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

/// Makes sure that a file whose contents are not needed has all of its room,
/// rounds it to whole blocks, and returns its length.
pub(super) fn allocated(file: &dyn File) -> io::Result<u64> {
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
    file.sync()?;
    Ok(len)
}

/// Lengthens a file from one length to another; from 0, creates it. Up to the
/// length `zeros`, zeros are written. If there is no room, the file stays as it
/// was.
pub(super) fn lengthen(
    storage: &dyn Storage,
    name: &str,
    from: u64,
    to: u64,
    zeros: u64,
) -> Result<(), Error> {
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
        write_zeros(&*file, from, to.min(zeros))?;
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
    file: Option<Arc<dyn File>>,
    header: &Header,
    give_back: impl FnMut() -> bool,
) -> Result<(Arc<dyn File>, u32), Error> {
    let name = spare_name(slot);
    let salt = storage.random();
    let header = Header { salt, ..*header };
    let spare = match file {
        Some(file) => file,
        None => storage.open(&name).map_err(Error::on("open", &name))?,
    };
    // No record follows, whatever the file was used for before.
    let mut start = header.encode();
    start.resize(start.len() + FRAME_LEN as usize, 0);
    let written = spare.write_at(&start, 0);
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
