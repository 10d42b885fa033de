//! Recovery: opening a binlog, or beginning one. Its records are replayed in order,
//! from the oldest segment that is needed.
//!
//! First the names are synced, that is, the directory. Then everything is read and
//! checked; an error found there leaves the segments as they were. The changes after that
//! may be interrupted anywhere, and are repeated at the next start. They need no more
//! room: the binlog continues in its newest segment, after the last record, and keeps its
//! prepared segments. (On shared storage it begins a segment, and prepares a file for
//! that.)

use super::error::{Error, REPAIR, is_full};
use super::files::{name_segment, prepare, reuse};
use super::format::{
    Frame, HEADER_LEN, Record, any_slot, prepared_name, prepared_slot, put_len, segment_name,
    segment_number,
};
use super::import::{DONE, Import, is_unfinished};
use super::live::LiveBytes;
use super::log::{CommitQueue, Writer};
use super::segment::{End, Found, Reader, find};
use super::storage::{File, Source, Storage, write_again, write_zeros};
use super::tail::{BLOCK, LEFT_BY_PUT, Prepared, Tail};
use super::{Binlog, Failed, Jobs, Lsn, Opened, SyncMode};
use crate::engine::{Change, StoredJob};
use crate::lock::ContendedMutex;
use crate::protocol::{JobId, Seconds, TubeName};
use crate::sync::{AtomicU64, Condvar, Mutex, OnceLock};
use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

/// Where there is little room, a segment takes this fraction (1/8) of it.
const ROOM_PART: u64 = 8;

/// Opens the binlog in a storage that is [locked](super::lock), or begins one.
///
/// Its jobs are added to `jobs`, which must be empty. If beanstalkd wrote the directory, its
/// jobs are taken over. Everything is read and checked before any segment is changed. So if
/// something is wrong, all segments stay as they are. (Some of the jobs may be in `jobs` then.)
pub fn recover(
    storage: Arc<dyn Storage>,
    sync: SyncMode,
    segment_size: u64,
    jobs: &mut dyn Jobs,
) -> Result<Opened, Error> {
    let mut opening = Opening {
        storage,
        sync,
        asked_len: segment_size.max(1).next_multiple_of(BLOCK),
        jobs,
        ended: Vec::new(),
        notices: Vec::new(),
    };
    // A server may have been killed between a rename and its sync. We rely on
    // the names from here on, so a power cut may not undo them any more.
    opening.sync_names()?;
    let survey = Survey::of(opening.storage.clone())?;
    survey.flaws.first().cloned().map_or(Ok(()), Err)?;
    let (live, newest) = opening.replay(&survey.segments)?;
    let mut import = Import::of(&mut opening, &survey.names, newest.is_some())?;
    // All is read, and nothing is changed up to here.
    if let Some(found) = &survey.unbegun {
        let name = found.name();
        opening.remove(&name)?;
        // It would come back with the next power cut, and the segment before may have a torn
        // end by then.
        opening.sync_names()?;
        opening.notices.push(format!(
            "removed {name}: it had just begun, and none of its changes were ever synced"
        ));
    }
    let binlog = if let Some((reader, file)) = newest {
        opening.continue_log(live, &survey, &reader, file)?
    } else {
        import.begin(&mut opening, live)?
    };
    import.rename_taken(&opening)?;
    opening.end_pauses(&binlog)?;
    Ok(opening.opened(binlog))
}

/// What a directory holds, as a server and the tools see it.
#[derive(Default)]
pub struct Survey {
    /// The names of all files.
    pub names: Vec<String>,
    /// The segments that are needed, oldest first.
    pub segments: Vec<Found>,
    /// Those that are not needed any more; or why one of them cannot be read.
    pub obsolete: Vec<Result<Found, Error>>,
    /// The newest one, if a power cut has come before its first sync and left no header.
    pub unbegun: Option<Found>,
    /// Nothing follows the records of the newest one.
    is_whole: bool,
    /// Why no server starts here, as far as the names and the newest segment show.
    pub flaws: Vec<Error>,
}

impl Survey {
    /// Finds the segments in a directory. The newest one says in its header or in a later
    /// mark which is the oldest that is needed. So the newest one is read twice: the first
    /// time only its marks count, which say where to begin. (An older one, if that cannot be
    /// read, may name some that have become obsolete since: then none is missed.)
    ///
    /// While a takeover is not finished, no segment is needed.
    pub fn of(storage: Arc<dyn Source>) -> Result<Survey, Error> {
        let names = storage.list().map_err(Error::on("list", "the files"))?;
        let mut files = find(&storage, &names, segment_number, Found::read);
        let unbegun = if is_unbegun(&files)? && !storage.is_shared() {
            files.pop_last().and_then(|(_, newest)| newest.ok())
        } else {
            None
        };
        if is_unfinished(&names) {
            return Ok(Survey {
                names,
                obsolete: files.into_values().collect(),
                unbegun,
                ..Survey::default()
            });
        }
        let (mut flaws, mut needed, mut by_newest, mut is_whole) = (Vec::new(), None, true, false);
        for found in files.values().rev() {
            if let Ok(found) = found {
                (needed, is_whole) = oldest_needed(found, &mut flaws)?;
            }
            if needed.is_some() {
                break;
            }
            by_newest = false;
        }
        let shows_loss = |name: &&String| any_slot(name) > Some(0) || *name == DONE;
        if files.is_empty()
            && let Some(name) = names.iter().find(shows_loss)
        {
            flaws.push(Error::Refused(format!(
                "all segments are missing, though {name} shows that there were some; nothing was changed; put them back, or {REPAIR}"
            )));
        }
        let left = files.split_off(&needed.unwrap_or(0));
        let (obsolete, mut segments) = (files.into_values().collect(), Vec::new());
        let mut next = needed.filter(|_| by_newest);
        for (number, found) in left {
            if let Some(first) = next.filter(|next| *next < number) {
                flaws.push(Error::missing(first, number - 1, segment_name));
            }
            next = next.and(number.checked_add(1));
            match found {
                Ok(found) => segments.push(found),
                // It may say why the newest one has no header, or that nothing is missing.
                Err(error) => flaws.insert(0, error),
            }
        }
        Ok(Survey {
            names,
            segments,
            obsolete,
            unbegun,
            is_whole,
            flaws,
        })
    }
}

/// Whether the newest of these segments was never synced: it has no header, and the one before,
/// all of which was synced, does not say that another one has begun. (If it does say so, the
/// header is damaged.) Nothing in it was promised to outlive a power cut.
fn is_unbegun(files: &BTreeMap<u32, Result<Found, Error>>) -> Result<bool, Error> {
    let mut from_newest = files.values().rev();
    let (Some(Ok(newest)), Some(Ok(before))) = (from_newest.next(), from_newest.next()) else {
        return Ok(false);
    };
    let follows = before.header.is_ok() && before.number + 1 == newest.number;
    if newest.header.is_ok() || !follows {
        return Ok(false);
    }
    let ends_whole = || {
        let mut reader = Reader::new(before, HEADER_LEN, None)?;
        while reader.next_record()?.is_some() {}
        reader.end().map(|end| end == End::Whole)
    };
    match ends_whole() {
        Err(Error::Damaged(..)) => Ok(false),
        read => read,
    }
}

/// The oldest segment that is needed, as this one says; `None` if it does not say. And whether
/// nothing follows its records.
fn oldest_needed(found: &Found, flaws: &mut Vec<Error>) -> Result<(Option<u32>, bool), Error> {
    let mut is_whole = false;
    let mut oldest = found.header.ok().map(|header| header.oldest);
    flaws.extend(found.sound_header().err());
    let mut reader = Reader::new(found, HEADER_LEN, None)?;
    loop {
        let stopped = match reader.next_record() {
            Ok(Some((_, record))) => {
                if let Record::Mark(number) = record {
                    oldest = Some(number);
                }
                continue;
            }
            Ok(None) => reader.end().map(|end| is_whole = end == End::Whole),
            Err(error) => Err(error),
        };
        // A mark may come after a damaged record.
        let Err(flaw) = stopped else { break };
        flaws.push(flaw);
        if !reader.resume()?.1 {
            break;
        }
    }
    Ok((oldest.map(|oldest| oldest.min(found.number)), is_whole))
}

/// A binlog that is about to be opened.
pub(super) struct Opening<'a> {
    pub storage: Arc<dyn Storage>,
    pub sync: SyncMode,
    /// The length of a segment that the options ask for.
    asked_len: u64,
    pub jobs: &'a mut dyn Jobs,
    /// The tubes of pauses that are in the log and were not restored. The log will say that
    /// these are over: a tube that has the name later is another one.
    ended: Vec<TubeName>,
    pub notices: Vec<String>,
}

impl Opening<'_> {
    /// Begins a binlog with the segment of this number, in the shortest file. The prepared segments
    /// are made for the first put, but for one that is as short: it shows that there was a
    /// first segment, and so is made last.
    pub fn begin(&self, mut live: LiveBytes, number: u32) -> Result<Binlog, Error> {
        self.remove_prepared()?;
        let storage = &*self.storage;
        let first = prepare(storage, prepared_name(0), BLOCK, 0)?;
        live.begin(number, BLOCK);
        let place = name_segment(storage, &first, &live.header(0), || false)?;
        let named = storage.sync();
        named.map_err(Error::on("sync the name of", segment_name(number)))?;
        let writer = Writer::new(place, first.file, HEADER_LEN, Lsn::START, None);
        // As at any time, what fails here stops only puts.
        let second = prepare(storage, prepared_name(1), BLOCK, BLOCK);
        let second = second.and_then(|made| self.sync_names().map(|()| made));
        Ok(self.binlog(live, writer, second.into_iter().collect(), 1))
    }

    /// Continues a binlog of our own after the records of its newest segment.
    fn continue_log(
        &mut self,
        mut live: LiveBytes,
        survey: &Survey,
        newest: &Reader,
        file: Arc<dyn File>,
    ) -> Result<Binlog, Error> {
        let (found, end) = (newest.found, newest.offset);
        let on = |action| Error::on(action, found.name());
        let (synced, notice) =
            make_durable(newest, &*file, survey.is_whole, self.storage.is_shared())?;
        self.notices.extend(notice);
        // The process that began it may not have lived to say so in the one before.
        if let [.., before, _] = &survey.segments[..] {
            let end = before.place(found.sound_header()?.previous_end);
            let opened = self.storage.open(&before.name());
            let told = opened.and_then(|file| file.write_at(&Frame::continued(end), end.offset));
            has_room(told).map_err(Error::on("write to", before.name()))?;
        }
        // Without room for all its blocks, the file ends with its records. (A copy of a
        // file may have holes, or share its blocks.)
        let has_blocks = file.unshare().and_then(|()| file.allocate(found.len, 0));
        if !has_room(has_blocks).map_err(on("prepare"))? {
            file.set_len(end).map_err(on("cut"))?;
            live.cut(end);
        }
        let writer = Writer::new(found.place(end), file, synced, Lsn::START, None);
        let (prepared, last_slot) = self.adopt(survey);
        let binlog = self.binlog(live, writer, prepared, last_slot);
        // On shared storage we write no record after those of another server:
        // it may still write there.
        if self.storage.is_shared() {
            binlog.begin_at(JobId(1))?;
        }
        Ok(binlog)
    }

    /// Adopts prepared segments, and obsolete ones as such, as many as a server ever has.
    /// (Somebody may have put more of them there, and one may have been made only in part.)
    /// Returns the last slot whose name is taken, too.
    fn adopt(&mut self, survey: &Survey) -> (Vec<Prepared>, usize) {
        let slots = survey.names.iter().filter_map(|name| prepared_slot(name));
        let last_slot = slots.clone().max().unwrap_or(0);
        let obsolete = survey.obsolete.iter().map(|found| match found {
            Ok(found) => found.must_be_ours().map(|()| found.name()),
            Err(error) => Err(error.clone()),
        });
        let mut prepared = Vec::new();
        for name in slots.map(prepared_name).map(Ok).chain(obsolete) {
            let is_kept = prepared.len() <= LEFT_BY_PUT;
            match name.and_then(|name| reuse(&*self.storage, name, true, is_kept)) {
                Ok(reused) => prepared.extend(reused),
                Err(error) => self.notices.push(error.left_alone()),
            }
        }
        (prepared, last_slot)
    }

    /// Replays consecutive segments, and restores the jobs in them. Returns the reader
    /// of the newest one, where its records end, and its file. Each is opened to
    /// write: a server that could only read them would end at the first change.
    fn replay<'a>(
        &mut self,
        segments: &'a [Found],
    ) -> Result<(LiveBytes, Option<Newest<'a>>), Error> {
        let (mut live, mut pauses) = (LiveBytes::new(JobId(1)), BTreeMap::new());
        let mut newest: Option<Newest> = None;
        for (index, found) in segments.iter().enumerate() {
            let header = found.sound_header()?;
            let next = segments.get(index + 1).map(Found::sound_header);
            let end = next.transpose()?.map(|next| next.previous_end);
            live.next_id = live.next_id.max(header.next_id);
            live.begin(found.number, found.len);
            // There may be more files than a process can have open.
            drop(newest.take());
            let file = self.storage.open(&found.name());
            let file = file.map_err(Error::on("write to", found.name()))?;
            let mut reader = Reader::new(found, HEADER_LEN, end)?;
            while let Some((_, record)) = reader.next_record()? {
                if let Record::Pause(pause) = record {
                    live.resume(&pause.tube);
                    pauses.remove(&pause.tube);
                    if pause.length > Seconds(0) {
                        live.pause(pause.tube.clone());
                        pauses.insert(pause.tube.clone(), pause);
                    }
                } else {
                    replay_record(record, &mut live, self.jobs);
                }
            }
            live.append(reader.offset - HEADER_LEN);
            // What follows the records of the newest one was checked before.
            if end.is_some() {
                reader.end()?;
            }
            newest = Some((reader, file));
        }
        // Replay removes a job and restores it, and a pause lives as long as its tube.
        for (tube, pause) in pauses {
            if !self.jobs.restore_pause(&pause) {
                self.ended.push(tube);
            }
        }
        Ok((live, newest))
    }

    /// Has the log say which pauses are over. There may be as many as a disk has room for, so
    /// compaction makes room as it does for any work.
    fn end_pauses(&mut self, binlog: &Binlog) -> Result<(), Error> {
        let jobs = &*self.jobs;
        if binlog.tail().note_obsolete() {
            // A start that finds a mark alone takes it for the last one of an orderly end.
            let end = binlog.tail().end;
            binlog.sync_up_to(end).map_err(|Failed| binlog.error())?;
        }
        for tube in self.ended.drain(..) {
            binlog.append(&[Change::Pause(tube)], jobs);
            while binlog.has_backpressure() {
                let made = binlog.make_up(&|work| work(jobs));
                made.map_err(|Failed| binlog.error())?;
            }
        }
        Ok(())
    }

    /// The binlog with these segments, which continues at the offset of this writer.
    fn binlog(
        &self,
        live: LiveBytes,
        writer: Writer,
        prepared: Vec<Prepared>,
        last_slot: usize,
    ) -> Binlog {
        let end = writer.place.offset;
        let len = self.segment_len(&live, &prepared);
        Binlog {
            storage: self.storage.clone(),
            sync: self.sync,
            tail: Mutex::new(Tail::new(live, len, prepared, last_slot)),
            segment: Mutex::new(writer.segment.clone()),
            commit_queue: ContendedMutex::new(CommitQueue::new(writer)),
            durable: AtomicU64::new(end),
            committer: OnceLock::new(),
            files_changed: Condvar::new(),
            failure: OnceLock::new(),
            lease: Mutex::default(),
        }
    }

    /// The length of a segment from this start on, with these prepared ones: as the
    /// options ask for it, but at most an eighth of the room for prepared segments. If the
    /// shortest one is longer than that, it stays as it is: on a disk that others have
    /// filled, they could take what is cut off. So no start makes puts impossible: prepared
    /// segments are long enough, or certainly have room to become so. In any case the live
    /// jobs of each segment fit into another one, or compaction could not move them.
    fn segment_len(&self, live: &LiveBytes, prepared: &[Prepared]) -> u64 {
        let lens = prepared.iter().map(|prepared| prepared.len);
        let shortest = lens.clone().min().unwrap_or(0);
        let free = self.storage.free();
        let room = free.map_or(u64::MAX, |free| free.saturating_add(lens.sum()));
        let most = shortest.max(room / ROOM_PART);
        let len = self.asked_len.min(most - most % BLOCK);
        let least = live.most_in_a_segment().next_multiple_of(BLOCK);
        len.max(least)
    }

    pub fn names(&self) -> Result<Vec<String>, Error> {
        let names = self.storage.list();
        names.map_err(Error::on("list", "the files"))
    }

    /// Removes prepared segments, of a first start that was interrupted or of a takeover
    /// that has failed.
    pub fn remove_prepared(&self) -> Result<(), Error> {
        let names = self.names()?;
        let is_prepared = |name: &&String| any_slot(name).is_some();
        let mut prepared = names.iter().filter(is_prepared);
        prepared.try_for_each(|name| self.remove(name))
    }

    pub fn remove(&self, name: &str) -> Result<(), Error> {
        let removed = self.storage.remove(name);
        removed.map_err(Error::on("remove", name))
    }

    /// Removes the copies of a takeover that is not over.
    pub fn remove_segments(&self) -> Result<(), Error> {
        let names = self.names()?;
        let mut segments = names.iter().filter(|name| segment_number(name).is_some());
        segments.try_for_each(|name| self.remove(name))
    }

    pub fn sync_names(&self) -> Result<(), Error> {
        self.storage.sync().map_err(Error::on("sync", "the names"))
    }

    /// The result of opening: the binlog and all that it held.
    pub fn opened(mut self, binlog: Binlog) -> Opened {
        let next_id = binlog.tail().live.next_id;
        let (asked, len) = (self.asked_len, binlog.tail().segment_len);
        if len < asked {
            let told = format!(
                "no room for segments of {asked} bytes: they have {len}, and a longer job is refused"
            );
            self.notices.push(told);
        }
        Opened {
            binlog: Arc::new(binlog),
            next_id,
            notices: self.notices,
        }
    }
}

/// The newest segment: its reader, where its records end, and its file.
type Newest<'a> = (Reader<'a>, Arc<dyn File>);

/// Makes durable all that was read of the newest segment, before anything relies on it,
/// and writes zeros over a torn tail: a record in it might become valid again, after other
/// records. (Contents from an earlier use of the file are never valid.) Returns up to where
/// that is, and what the operator should know of it.
///
/// After an orderly end only a mark is not known to be synced. It repeats what is known, so
/// nothing relies on it, and no client waits for it to be synced. (On shared storage another
/// segment begins, after all of this one is synced.)
///
/// A sync that failed may have left changes in the page cache that are not on the
/// disk, and no later sync would write them. (They may be acknowledged: with `Every`
/// and `Never` the end of a process loses nothing.) So everything after the last sync
/// that is known to have succeeded is written again. In the same way the cache may have
/// zeros where the disk has a torn tail. So what was written, and what follows it, is then
/// read from the disk.
fn make_durable(
    newest: &Reader,
    file: &dyn File,
    is_whole: bool,
    is_shared: bool,
) -> Result<(u64, Option<String>), Error> {
    let (found, end) = (newest.found, newest.offset);
    let on = |action| Error::on(action, found.name());
    // A copy-on-write file system may have no room for that. Then the disk must have
    // the same records as the cache.
    let is_rewritten = has_room(write_again(file, newest.synced, end)).map_err(on("rewrite"))?;
    let from = newest.synced.max(HEADER_LEN);
    let mut reader = Reader::new(found, from, None)?;
    let is_mark = matches!(reader.next_record()?, Some((_, Record::Mark(_))));
    let was_closed = is_mark && reader.offset == end && is_whole;
    if was_closed && is_rewritten && newest.synced >= HEADER_LEN && !is_shared {
        return Ok((newest.synced, None));
    }
    file.sync().map_err(on("sync"))?;
    file.forget().map_err(on("read"))?;
    let again = Found::read(found.storage.clone(), found.number)?;
    let mut reader = Reader::new(found, from, None)?;
    while reader.next_record()?.is_some() {}
    // (On shared storage, another server may have written more since.)
    if again.header != found.header || reader.offset < end {
        return Err(on("rewrite")(io::ErrorKind::StorageFull.into()));
    }
    let bytes = match reader.end()? {
        End::Continued => {
            let next = found.number.saturating_add(1);
            return Err(Error::missing(next, next, segment_name));
        }
        End::Whole if reader.offset == end => return Ok((end, None)),
        End::Whole => reader.offset - end,
        End::Torn(bytes) => reader.offset - end + bytes,
    };
    let zeros = write_zeros(file, end, end + bytes).and_then(|()| file.sync());
    zeros.map_err(on("rewrite"))?;
    let notice = format!(
        "{}: dropped a torn tail of changes that were never synced: {bytes} bytes from offset {end} on",
        found.name()
    );
    Ok((end, Some(notice)))
}

fn replay_record(record: Record, live: &mut LiveBytes, jobs: &mut dyn Jobs) {
    match record {
        Record::Put(job) => {
            let (id, len) = (job.fields.id, put_len(&job));
            // Put again, it may be shorter: its put may be a tombstone. (An id beyond all
            // others is new, which saves a look-up.)
            if id < live.next_id {
                replay_record(Record::Delete(id), live, jobs);
            }
            jobs.restore(job);
            live.put(id, len);
        }
        // If the job is unknown, it is deleted; or it was moved out of a segment that is
        // removed, and a later put will bring it back.
        Record::Update(fields) => {
            if let Some(job) = jobs.forget(fields.id) {
                jobs.restore(StoredJob { fields, ..job });
            }
        }
        Record::Delete(id) => {
            if let Some(job) = jobs.forget(id) {
                live.delete(id, put_len(&job));
            }
        }
        Record::Mark(_) | Record::Pause(_) => {}
    }
}

/// Whether there was room for what was done; an error if it has failed otherwise.
fn has_room(done: io::Result<()>) -> io::Result<bool> {
    match done {
        Err(error) if is_full(&error) => Ok(false),
        done => done.map(|()| true),
    }
}
