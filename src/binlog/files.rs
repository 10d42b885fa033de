//! The segments thread: it prepares segments, gives all prepared ones the length that is
//! needed, and recycles or removes obsolete segments. No other thread does. A put that needs
//! another file waits for this thread. Room on the disk is checked last: drain mode, its
//! unique key and the limit of memory have been checked before.
//!
//! (Before the threads run, while the log is opened or copied, the thread that needs a
//! file does this work. The writer gives a prepared segment its name when the segment
//! begins. That may need a block, and so may a write. If the disk is full then, the newest
//! segment or a prepared one gives the end of its file for the name. If that is not enough,
//! and for a write, a prepared segment is removed.)
//!
//! A new file is filled with zeros that are really written (or with noise, where no room can
//! be allocated). So its room is allocated, and a later write to these blocks need not change
//! the file system's metadata, which would be synced as well. A block that is only allocated
//! costs more writes or flushes at its first sync (`tests/binlog/zeros` counts them). But
//! while a put waits for the file, as the first one of all does, its room is only allocated
//! and nothing is synced: to write 30 MB may take seconds. What a file has beyond 64 MiB is
//! only allocated, too: files are longer than that only for long jobs, each of which is
//! written in one piece.
//!
//! An obsolete segment becomes a prepared one with its file, its name and its old contents:
//! on a full disk, another program could take the room of a file as soon as that is removed.
//! The segment that begins there has a salt of its own, so no old byte means anything.
//!
//! The number in `segment.spareN` grows as long as the server runs. After a restart, it
//! follows the highest one that is left.
//!
//! **What fails here stops puts, and nothing else**, whether the disk is full or broken:
//! no change that was acknowledged is in a prepared segment, and no obsolete segment is
//! needed. So if one of these files cannot be created, written or synced, or their names
//! cannot be, `no_room` says why, each put tries again, and clients can still work off
//! their jobs. Where changes are at stake, in a segment or in the name of one that
//! begins, the same error is the end of the log (`log`).

use super::error::{Error, is_full};
use super::format::{FRAME_LEN, HEADER_LEN, Header, Place, Record, segment_name};
use super::import::taken_bytes;
use super::storage::Storage;
use super::tail::{BLOCK, Prepared, Tail, Work};
use super::{Binlog, Event, Failed, Jobs, locked};
use crate::protocol::JobId;
use crate::sync::{Ordering, random};
use std::io;

/// Calls a function with the jobs, under the server's lock.
pub type WithJobs<'a> = dyn Fn(&mut dyn FnMut(&dyn Jobs)) + 'a;

impl Binlog {
    /// Waits until there is room for a put of this length (see
    /// [`max_put_len`](super::max_put_len)). On a full disk, compaction runs for it as
    /// far as needed. Not to be called under the server's lock: this may take as long
    /// as writing a segment. Other threads may use that room before this one does; then
    /// ask again.
    ///
    /// False: the put is refused. It is too long, the live bytes, two segments and the put do
    /// not fit, files cannot be prepared for another reason, or the log has failed.
    pub fn make_room(&self, put: u64, with_jobs: &WithJobs) -> bool {
        let newest = self.tail().live.current();
        while !self.tail().admits(put) {
            if self.tail().is_too_long(put) || self.await_files(put) == Err(Failed) {
                return false;
            }
            // `None`: it is admitted, or another thread has used the room.
            let Some(why) = self.tail().why_refused(put) else {
                continue;
            };
            let mut has_helped = false;
            with_jobs(&mut |jobs| has_helped = self.tail().compact_for_put(put, newest, jobs));
            if !has_helped {
                self.tail().refused = Some((put, why));
                // The segments thread reports it.
                self.await_files(0).ok();
                return false;
            }
        }
        true
    }

    /// Appends copies of jobs and pauses to a new log, and makes them durable. The header of
    /// another segment says that the next job gets this id or a higher one.
    ///
    /// There is nothing to compact, so copies may fill the disk. Segments are at least as long
    /// as the longest one needs. What is appended is written when another file is made.
    pub fn copy(&self, records: impl Iterator<Item = Record>, next_id: JobId) -> Result<(), Error> {
        for record in records {
            let len = record.longest();
            let mut tail = self.tail();
            let least = (HEADER_LEN + len).next_multiple_of(BLOCK);
            tail.segment_len = tail.segment_len.max(least);
            drop(tail);
            let lacks_room = || !self.tail().has_prepared_for(len);
            if lacks_room() && (self.await_files(len) == Err(Failed) || lacks_room()) {
                return Err(self.error());
            }
            self.tail().record(record);
        }
        self.begin_at(next_id)
    }

    /// Whether more work should wait, because more might soon be appended than there is
    /// room for on a full disk. Then call [`make_up`](Self::make_up) before that work. May be
    /// called under the server's lock.
    pub fn has_backpressure(&self) -> bool {
        let tail = self.tail();
        let unwritten = tail.end.0 - self.durable.load(Ordering::Acquire);
        !tail.upkeep.is_closed && tail.has_backpressure(unwritten)
    }

    /// Writes all that was appended, and recycles the segments that have become obsolete
    /// by that. Not to be called under the server's lock.
    pub fn flush_and_recycle(&self) -> Result<(), Failed> {
        self.await_files(0)
    }

    /// What work waits for that has [backpressure](Self::has_backpressure): the same, and
    /// compaction.
    pub fn make_up(&self, with_jobs: &WithJobs) -> Result<(), Failed> {
        self.flush_and_recycle()?;
        with_jobs(&mut |jobs| self.tail().make_up(jobs));
        Ok(())
    }

    /// Writes all that was appended. Then waits until a put of this length (0: none) is
    /// admitted, or until the segments thread has made a pass that begins after this
    /// call.
    fn await_files(&self, put: u64) -> Result<(), Failed> {
        // This names a prepared segment that is taken, and writes the mark that makes
        // a segment obsolete.
        let end = self.tail().end;
        self.commit(end)?;
        let mut tail = self.tail();
        tail.upkeep.asked += 1;
        let pass = tail.upkeep.asked;
        tail.waiting += usize::from(put > 0);
        if !tail.upkeep.has_thread {
            drop(tail);
            self.run_upkeep();
            tail = self.tail();
        }
        self.files_changed.notify_all();
        let waits = |tail: &mut Tail| {
            let is_over = tail.upkeep.served >= pass || tail.upkeep.is_closed;
            !is_over && (put == 0 || !tail.admits(put))
        };
        let mut tail = locked(self.files_changed.wait_while(tail, waits));
        tail.waiting -= usize::from(put > 0);
        if tail.upkeep.is_closed {
            Err(Failed)
        } else {
            Ok(())
        }
    }

    /// Wakes the segments thread, if it has something to do.
    pub(super) fn ask_for_upkeep(&self) {
        let mut tail = self.tail();
        if tail.needs_upkeep() {
            tail.upkeep.asked += 1;
            self.files_changed.notify_all();
        }
    }

    /// Notifies the log's threads, and those that wait for them, that the log is closed or
    /// has failed.
    pub(super) fn end_threads(&self) {
        self.tail().upkeep.is_closed = true;
        self.files_changed.notify_all();
        self.wake_committer();
    }

    /// The segments thread.
    pub(super) fn upkeep_until_closed(&self, mut report: impl FnMut(Event<'_>)) {
        let mut reported = None;
        let sleeps =
            |tail: &mut Tail| !tail.upkeep.is_closed && tail.upkeep.served == tail.upkeep.asked;
        let wait = || locked(self.files_changed.wait_while(self.tail(), sleeps));
        while !wait().upkeep.is_closed {
            self.run_upkeep();
            let mut tail = self.tail();
            let not_removed = std::mem::take(&mut tail.not_removed);
            let refused = tail.refused.take();
            tail.refused = refused.filter(|(put, _)| !tail.admits(*put));
            let refused = tail.refused.clone();
            drop(tail);
            not_removed
                .iter()
                .for_each(|error| report(Event::NotRemoved(error)));
            // Another kind of error is reported again: a full disk may become a broken
            // one.
            let why = refused.as_ref().map(|(_, error)| error.kind());
            match &refused {
                _ if why == reported => {}
                Some((put, error)) => {
                    report(Event::NoRoom(*put, error, taken_bytes(&*self.storage)));
                }
                None => report(Event::Room),
            }
            reported = why;
        }
    }

    /// One pass of the segments thread: all its work, until something fails. If it does,
    /// puts are refused, and each of them asks for another pass.
    pub(super) fn run_upkeep(&self) {
        let asked = self.tail().upkeep.asked;
        let done = self.work_on_files();
        let free = self.storage.free();
        if let Err(error) = &done
            && self.storage.check_lock().is_err()
        {
            // What is written from now on, no start would find.
            self.fail(error.clone());
        }
        let mut tail = self.tail();
        tail.no_room = done.err();
        tail.capacity = free.map(|free| free.saturating_add(tail.file_len()));
        tail.upkeep.served = asked;
        self.files_changed.notify_all();
    }

    fn work_on_files(&self) -> Result<(), Error> {
        let mut tail = self.tail();
        let (has_obsolete, end) = (!tail.obsolete.is_empty(), tail.end);
        let unnamed = tail.upkeep.unnamed.take();
        drop(tail);
        // At the same time another thread may sync what is in it. If this fails, that thread
        // tries it, too.
        if let Some(segment) = unnamed.filter(|_| self.storage.sync().is_ok()) {
            segment.is_named.store(true, Ordering::Release);
        }
        // Before an obsolete segment may go, the mark that says so must be synced.
        if has_obsolete && self.sync_up_to(end) == Err(Failed) {
            return Ok(());
        }
        // A segment whose mark comes later is left for the next pass. After a failure no
        // file is removed any more.
        while self.failure.get().is_none() {
            let mut tail = self.tail();
            let Some(work) = tail.next_work(end) else {
                return Ok(());
            };
            let len = tail.segment_len;
            // While a put waits, no new file is written: its later syncs cost more, once.
            let zeros = if tail.waiting > 0 { 0 } else { MOST_ZEROS };
            let done = match work {
                Work::Obsolete { is_kept } => {
                    let (number, _) = tail.obsolete.pop_front().expect("it is the next work");
                    drop(tail);
                    let reused = reuse(&*self.storage, segment_name(number), false, is_kept);
                    Ok(self.noted(reused).flatten())
                }
                Work::Resize(index) => {
                    let mut prepared = tail.prepared.swap_remove(index);
                    drop(tail);
                    let done = prepared.resize(&*self.storage, len, zeros);
                    self.tail().prepared.push(prepared);
                    done.map(|()| None)
                }
                Work::Prepare => {
                    let name = tail.upkeep.next_name();
                    drop(tail);
                    prepare(&*self.storage, name, len, zeros).map(Some)
                }
            };
            let mut tail = self.tail();
            tail.prepared.extend(done?);
            self.files_changed.notify_all();
        }
        Ok(())
    }

    /// Notes if a file that is not needed could not be removed: the segments thread
    /// reports it, and the next start tries again.
    fn noted<T>(&self, done: Result<T, Error>) -> Option<T> {
        done.map_err(|error| self.tail().not_removed.push(error))
            .ok()
    }

    /// Begins another segment, durably, before any file is prepared for it: in a short one,
    /// since the disk may be full. Its header says that the next job gets this id or a
    /// higher one.
    pub(super) fn begin_at(&self, next_id: JobId) -> Result<(), Error> {
        let name = self.tail().upkeep.next_name();
        let made = prepare(&*self.storage, name, BLOCK, 0)?;
        let mut tail = self.tail();
        tail.live.next_id = tail.live.next_id.max(next_id);
        tail.prepared.push(made);
        let none_left = || Error::Refused("no number is left for another segment".into());
        tail.begin_segment(0).ok_or_else(none_left)?;
        let end = tail.end;
        drop(tail);
        self.sync_up_to(end).map_err(|Failed| self.error())
    }

    /// For a full disk, when a name or a write needs another block: removes the longest
    /// prepared segment, so that the disk has its room. Returns whether that was possible.
    pub(super) fn free_prepared(&self) -> bool {
        let take = || self.tail().take_longest();
        while let Some(prepared) = take() {
            let removed = self.storage.remove(&prepared.name);
            let removed = removed.and_then(|()| self.storage.sync());
            let removed = removed.map_err(Error::on("remove", prepared.name));
            if self.noted(removed).is_some() {
                return true;
            }
        }
        false
    }

    /// The same for a name, with less lost: a file gives back the last block of its room. (If
    /// a prepared one were removed, the rest of that would be too little for another one.)
    pub(super) fn free_block(&self) -> bool {
        let cut = self.tail().take_block();
        cut.is_some_and(|(file, len)| file.set_len(len).and_then(|()| self.storage.sync()).is_ok())
    }
}

/// Up to this length, a new file is written and not only allocated.
const MOST_ZEROS: u64 = 64 << 20;

/// Prepares a segment of this length, or nothing. Up to the length `zeros`, zeros are written.
pub(super) fn prepare(
    storage: &dyn Storage,
    name: String,
    len: u64,
    zeros: u64,
) -> Result<Prepared, Error> {
    let file = storage.create(&name);
    let file = file.map_err(Error::on("create", &name))?;
    let mut made = Prepared {
        name,
        len: 0,
        file,
        is_adopted: false,
    };
    let done = made.resize(storage, len, zeros);
    // If this fails too, the caller still gets the first error.
    let done = done.inspect_err(|_| drop(storage.remove(&made.name)));
    done.map(|()| made)
}

impl Prepared {
    /// Gives it another length. If there is no room, it stays as it was. Zeros are synced here;
    /// otherwise this is left to the first sync of the segment, and so is the name. (Shared
    /// storage may lack the room that it has promised.)
    pub fn resize(&mut self, storage: &dyn Storage, len: u64, zeros: u64) -> Result<(), Error> {
        let resize = || {
            if len < self.len {
                return self.file.set_len(len);
            }
            self.file.allocate(len, len.min(zeros))?;
            if zeros > 0 || storage.is_shared() {
                self.file.sync()?;
            }
            match storage.is_shared() {
                true => storage.sync(),
                false => Ok(()),
            }
        };
        let resized = resize().inspect_err(|_| drop(self.file.set_len(self.len)));
        resized.map_err(Error::on("prepare", &self.name))?;
        self.len = len;
        Ok(())
    }
}

/// Opens a file whose contents are not needed, as a prepared segment, and makes sure that its
/// whole blocks are its own. Where that fails, or it has another name, or `is_kept` does not
/// want it, it is removed: `None`. On shared storage no file is used again. Nothing is synced,
/// nor written: a start that has lost all newer segments must see that they are missing.
pub(super) fn reuse(
    storage: &dyn Storage,
    name: String,
    is_adopted: bool,
    is_kept: bool,
) -> Result<Option<Prepared>, Error> {
    let open = || {
        let file = storage.open(&name)?;
        // With another name it may be a segment as well, if a file system has renamed it half,
        // or part of a copy (`cp -al`).
        if file.links()? > 1 {
            return Ok((file, 0));
        }
        let len = file.len()? / BLOCK * BLOCK;
        // In this order: on a full XFS this writes the file, and only blocks that are written
        // can be allocated once more there.
        file.unshare()?;
        file.allocate(len, 0)?;
        io::Result::Ok((file, len))
    };
    let is_kept = is_kept && !storage.is_shared();
    if let Some(Ok((file, len @ 1..))) = is_kept.then(open) {
        return Ok(Some(Prepared {
            name,
            len,
            file,
            is_adopted,
        }));
    }
    let removed = storage.remove(&name);
    removed.map(|()| None).map_err(Error::on("remove", name))
}

/// Makes a change. If the disk has no room for it, tries again as long as `free_prepared`
/// frees some: a small prepared segment may be less than the change needs, and another
/// thread may have taken its room.
pub(super) fn once_there_is_room(
    mut change: impl FnMut() -> io::Result<()>,
    mut free_prepared: impl FnMut() -> bool,
) -> io::Result<()> {
    loop {
        match change() {
            Err(error) if is_full(&error) && free_prepared() => {}
            done => return done,
        }
    }
}

/// Makes a prepared segment the segment with this header and a new salt, and returns the
/// place of its first record. The name is not synced. Nor is the header, but for the first
/// segment, in an adopted file, and on shared storage. A longer directory may need a block or
/// two, and so may the header, on a file system that copies on write.
pub(super) fn name_segment(
    storage: &dyn Storage,
    prepared: &Prepared,
    header: &Header,
    mut free_prepared: impl FnMut() -> bool,
) -> Result<Place, Error> {
    let (from, to) = (&prepared.name, segment_name(header.number));
    let on = |action| Error::on(action, from);
    let salt = random() as u32;
    let header = Header { salt, ..*header };
    // An empty frame ends the segment here, whatever the file was used for before.
    let mut start = header.encode();
    start.resize(start.len() + FRAME_LEN as usize, 0);
    let write = || prepared.file.write_at(&start, 0);
    once_there_is_room(write, &mut free_prepared).map_err(on("write"))?;
    if header.previous_end == 0 || prepared.is_adopted || storage.is_shared() {
        prepared.file.sync().map_err(on("sync"))?;
    }
    let rename = || storage.rename(from, &to);
    once_there_is_room(rename, &mut free_prepared).map_err(on("rename"))?;
    Ok(Place {
        number: header.number,
        salt,
        offset: HEADER_LEN,
    })
}
