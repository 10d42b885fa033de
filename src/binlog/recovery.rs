//! Recovery: opening a binlog, or beginning one. Its records are replayed in order,
//! from the oldest segment that is needed.
//!
//! First the names are synced. Then everything is read and checked; an error
//! found there leaves the segments as they were. The changes after that may be
//! interrupted anywhere, and are repeated at the next start. They need no more
//! room: the binlog continues in its newest segment, after the last record, and
//! keeps its prepared segments. (On shared storage it begins a segment, and prepares a
//! file for that.)

use super::error::{Error, REPAIR, is_full};
use super::files::adopt;
use super::format::{HEADER_LEN, Record, Tubes, shows_segment};
use super::import;
use super::log::Writer;
use super::opening::Opening;
use super::segment::{Found, Kind, Numbered, Reader, find};
use super::storage::{File, Storage, read_part, write_again, write_zeros};
use super::tail::LiveBytes;
use super::{Jobs, Opened, SyncMode};
use crate::protocol::JobId;
use crc32fast::Hasher;
use std::io;
use std::sync::Arc;

/// Opens the binlog in a storage.
pub(super) fn recover<J: Jobs>(
    storage: Arc<dyn Storage>,
    sync: SyncMode,
    segment_size: u64,
    jobs: J,
) -> Result<Opened<J>, Error> {
    let mut opening = Opening {
        storage,
        sync,
        segment_size,
        notices: Vec::new(),
    };
    // A server may have been killed between a rename and its sync. We rely on
    // the names from here on, so a power cut may not undo them any more.
    opening.sync_names()?;
    let files = find(&opening.storage)?;
    let mut newest_first = files.iter().rev().flat_map(|(_, found)| found);
    let needed = match newest_first.find(|found| found.header().is_some()) {
        Some(newest) => oldest_needed(newest)?,
        None => 0,
    };
    let (mut ours, theirs) = opening.sort(files, needed)?;
    if ours.is_empty() {
        opening.must_hold_jobs(&theirs)?;
    }
    if ours.is_empty() || are_copies(&ours, &theirs) {
        return import::take_over(opening, theirs, &ours, jobs);
    }
    let foreign = theirs.iter().filter(|file| file.number >= needed);
    if let Some(file) = foreign.min_by_key(|file| matches!(file.kind, Kind::Nothing)) {
        let name = file.name();
        return Err(match file.kind {
            Kind::Nothing => file.damaged(0, NOTHING),
            _ => Error::Refused(format!(
                "{name} was written by beanstalkd, after the segments of beanpoled; nothing was changed; move {name} to another directory to start with the jobs of beanpoled (its own jobs are taken over by a start with -b on that directory)"
            )),
        });
    }
    let run = ours.split_off(ours.partition_point(|found| found.number < needed));
    opening.continue_log(&run, (ours, theirs), needed, jobs)
}

/// What is wrong with an empty file that should be a segment.
const NOTHING: &str = "there is nothing in it, though there was";

/// The oldest segment that is needed, as the newest one says in its header or
/// in a later mark. So the newest one is read twice: the first time only its marks
/// count, which say where to begin.
fn oldest_needed(newest: &Found) -> Result<u32, Error> {
    let mut oldest = newest.header().map_or(0, |header| header.oldest);
    if oldest < newest.number {
        let mut reader = Reader::new(newest, HEADER_LEN, None)?;
        while let Some(mark) = reader.next_mark()? {
            oldest = oldest.max(mark);
        }
        // A mark after a damaged record would not be found, and a segment that
        // was removed long ago would count as missing.
        reader.end()?;
    }
    Ok(oldest.min(newest.number))
}

/// The name of a file that shows that there was a segment of ours, if one does: the
/// second prepared segment, or a later one.
pub fn shows_segments(storage: &dyn Storage) -> Result<Option<String>, Error> {
    let names = storage.list().map_err(Error::on("list", "the files"))?;
    Ok(names.into_iter().find(|name| shows_segment(name)))
}

/// Whether our segments are only copies of jobs in beanstalkd's files, because the
/// takeover was not finished. Until it is, the newest header says that a file of
/// beanstalkd is needed. If beanstalkd was started again since, it may have removed
/// that file. So while our first segment is the very first one, with no previous end in
/// its header, any file of beanstalkd counts as that file.
fn are_copies(ours: &[Found], theirs: &[Found]) -> bool {
    let header = |found: Option<&Found>| found.and_then(Found::header);
    let (Some(first), Some(last)) = (header(ours.first()), header(ours.last())) else {
        return false;
    };
    let is_copied = |file: &Found| {
        matches!(file.kind, Kind::Beanstalkd(_))
            && (first.previous_end == 0 || file.number == last.oldest)
    };
    last.oldest < first.number && theirs.iter().any(is_copied)
}

impl Opening {
    /// Our segments; and the files of beanstalkd, with empty ones among them. An error
    /// if a file that may be needed cannot be read, or is no segment.
    fn sort(
        &mut self,
        files: Vec<Numbered>,
        needed: u32,
    ) -> Result<(Vec<Found>, Vec<Found>), Error> {
        let (mut ours, mut theirs) = (Vec::new(), Vec::new());
        for (number, found) in files {
            let found = found.and_then(|found| match found.kind {
                Kind::Nothing if found.len > 0 && self.storage.is_shared() => {
                    let flaw = "there are only zeros in it, which may be what a cache has of it";
                    Err(found.damaged(0, flaw))
                }
                Kind::Damaged(flaw) => Err(found.damaged(0, flaw)),
                _ => Ok(found),
            });
            match found {
                Ok(found) if found.header().is_some() => ours.push(found),
                Ok(found) => theirs.push(found),
                Err(error) if number < needed => self.leave_alone(&error),
                Err(error) => return Err(error),
            }
        }
        Ok((ours, theirs))
    }

    /// A file that cannot be read stays, and a notice says so.
    pub(super) fn leave_alone(&mut self, error: &Error) {
        let told = format!("left alone, since it is not needed: {error}");
        self.notices.push(told);
    }

    /// An error if none of these files can hold a job, though there was a segment of
    /// ours.
    fn must_hold_jobs(&self, files: &[Found]) -> Result<(), Error> {
        let is_nothing = |file: &Found| matches!(file.kind, Kind::Nothing);
        match (shows_segments(&*self.storage)?, files.last()) {
            (Some(name), None) => Err(Error::Refused(format!(
                "all segments are missing, though {name} shows that there were some; nothing was changed; put them back, or {REPAIR}"
            ))),
            (Some(_), Some(last)) if files.iter().all(is_nothing) => Err(last.damaged(0, NOTHING)),
            _ => Ok(()),
        }
    }

    /// Continues a binlog of our own, with the segments in `run`: those from the oldest
    /// that is needed on. The other files are not needed.
    fn continue_log<J: Jobs>(
        mut self,
        run: &[Found],
        (old, theirs): (Vec<Found>, Vec<Found>),
        needed: u32,
        mut jobs: J,
    ) -> Result<Opened<J>, Error> {
        let newest = run.last().expect("there is a segment");
        if let Some((number, _)) = (needed..)
            .zip(run)
            .find(|(number, found)| found.number != *number)
        {
            return Err(Error::Missing { number });
        }
        let file = self.writable(run)?;
        let replayed = replay(run, &mut jobs)?;
        let end = replayed.end;
        let is_ours = match file.unshare() {
            Err(error) if is_full(&error) => false,
            unshared => unshared
                .map(|()| true)
                .map_err(Error::on("prepare", newest.name()))?,
        };
        self.make_durable(newest, &*file, &replayed)?;
        import::remove_left_over(&mut self, &theirs)?;
        old.iter().for_each(|found| self.remove_unneeded(found));
        let len = match is_ours {
            true => self.allocate_newest(newest, &*file, end)?,
            false => end,
        };
        let writer = Writer::new(newest.number, newest.place(end).salt, file, end);
        let prepared = adopt(&*self.storage)?;
        let binlog = self.binlog(replayed.live, writer, len, prepared);
        self.lengthen_segments(&binlog);
        // On shared storage we write no record after those of another server:
        // it may still write there.
        if self.storage.is_shared() && binlog.begin_segment().is_err() {
            return Err(binlog.into_error());
        }
        binlog.tail().note_obsolete();
        Ok(self.opened(binlog, jobs))
    }

    /// Opens all segments to write, one after the other, and returns the newest
    /// one. A server that could only read them would end at the first change.
    fn writable(&self, run: &[Found]) -> Result<Arc<dyn File>, Error> {
        let open = |found: &Found| {
            let opened = self.storage.open(&found.name());
            opened.map_err(Error::on("write to", found.name()))
        };
        let opened = run.iter().map(open);
        let newest = opened.reduce(|before, file| before.and(file));
        newest.expect("there is a segment")
    }

    /// Makes durable all that was read, and writes zeros over a torn end, before
    /// anything relies on it.
    ///
    /// A sync that failed may have left changes in the page cache that are not on the
    /// disk, and no later sync would write them. So everything after the last sync that
    /// is known to have succeeded is written again. In the same way the cache may have
    /// zeros where the disk has other bytes. So the bytes after the records are read
    /// from the disk.
    fn make_durable(
        &mut self,
        newest: &Found,
        file: &dyn File,
        replayed: &Replayed,
    ) -> Result<(), Error> {
        let name = newest.name();
        let on = |action| Error::on(action, name.clone());
        let Replayed { synced, end, .. } = *replayed;
        let in_cache = checksum(file, synced, end).map_err(on("read"))?;
        // A copy-on-write file system may have no room for that. Then the disk must
        // have the same bytes as the cache.
        let full = match write_again(file, synced, end) {
            Err(error) if is_full(&error) => Some(error),
            written => written.map(|()| None).map_err(on("rewrite"))?,
        };
        file.sync().map_err(on("sync"))?;
        file.forget().map_err(on("read"))?;
        if let Some(error) = full
            && checksum(file, synced, end).map_err(on("read"))? != in_cache
        {
            return Err(on("rewrite")(error));
        }
        // Contents from an earlier use of the file are never valid. But a record of the
        // torn end might become valid again, after other records.
        if replayed.is_torn
            && let Some(last) = newest.last_set_byte(end)?
        {
            let torn = last + 1 - end;
            let told = "dropped a torn tail of changes that were never synced";
            self.notices
                .push(format!("{name}: {told}: {torn} bytes from offset {end} on"));
            write_zeros(file, end, end + torn).map_err(on("rewrite"))?;
            file.sync().map_err(on("sync"))?;
        }
        Ok(())
    }

    /// Allocates the newest segment's file, and returns its length. Without
    /// room for that, the file ends with its records. (A copy of a file may
    /// have holes.)
    fn allocate_newest(&self, newest: &Found, file: &dyn File, end: u64) -> Result<u64, Error> {
        let name = newest.name();
        match file.allocate(newest.len) {
            Err(error) if is_full(&error) => {
                let cut = file.set_len(end);
                cut.map_err(Error::on("cut", name))?;
                Ok(end)
            }
            made => made
                .map(|()| newest.len)
                .map_err(Error::on("prepare", name)),
        }
    }
}

fn checksum(file: &dyn File, from: u64, to: u64) -> io::Result<u32> {
    let mut crc = Hasher::new();
    read_part(file, from, to, |piece, _| {
        crc.update(piece);
        Ok(())
    })?;
    Ok(crc.finalize())
}

/// The state after the replay of consecutive segments.
struct Replayed {
    live: LiveBytes,
    /// How far the newest segment is known to be synced, and where its records
    /// end.
    synced: u64,
    end: u64,
    /// Whether a torn end follows.
    is_torn: bool,
}

/// Replays segments, and restores the jobs in them.
fn replay(segments: &[Found], jobs: &mut impl Jobs) -> Result<Replayed, Error> {
    let mut replayed = Replayed {
        live: LiveBytes::new(JobId(1)),
        synced: 0,
        end: 0,
        is_torn: false,
    };
    let live = &mut replayed.live;
    let (mut tubes, mut file_len) = (Tubes::default(), 0);
    for (index, found) in segments.iter().enumerate() {
        let header = found.header().expect("they are segments");
        let next = segments.get(index + 1).and_then(Found::header);
        live.next_id = live.next_id.max(header.next_id);
        live.begin(found.number, replayed.end, file_len);
        file_len = found.len;
        let mut reader = Reader::new(found, HEADER_LEN, next.as_ref())?;
        while let Some((_, record)) = reader.next(&mut tubes)? {
            replay_record(record, live, jobs);
        }
        replayed.is_torn = reader.must_be_whole()?;
        replayed.synced = reader.synced.max(HEADER_LEN);
        replayed.end = reader.offset;
    }
    Ok(replayed)
}

fn replay_record(record: Record, live: &mut LiveBytes, jobs: &mut impl Jobs) {
    let len = record.max_len();
    match record {
        Record::Put(job) => {
            let id = job.id;
            // A job that is put again may be shorter: its put may be a tombstone.
            if let Some(before) = jobs.restore(job) {
                live.delete(id, Record::Put(before).max_len());
            }
            live.put(id, len);
        }
        // An update of an unknown job. Either the job is deleted, or it was
        // moved out of a segment that is removed, and a later put will bring it
        // back.
        Record::Update(update) => {
            if let Some(mut job) = jobs.forget(update.id) {
                update.apply(&mut job);
                jobs.restore(job);
            }
        }
        Record::Delete(id) => {
            if let Some(job) = jobs.forget(id) {
                live.delete(id, Record::Put(job).max_len());
            }
        }
        Record::Mark(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_of_a_long_file_is_read_piece_by_piece() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("binlog.1");
        let bytes: Vec<u8> = (0..600_000u32).map(|index| (index % 251) as u8).collect();
        std::fs::write(&path, &bytes).unwrap();
        let mut options = std::fs::OpenOptions::new();
        let file = options.read(true).write(true).open(&path).unwrap();
        let sum = checksum(&file, 44, 599_000).unwrap();
        assert_eq!(sum, crc32fast::hash(&bytes[44..599_000]));
        write_again(&file, 44, 599_000).unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), bytes);
        let error = checksum(&file, 44, 600_001).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
    }
}
