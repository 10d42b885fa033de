//! The growing end of the log, in memory: the records that are appended and not yet
//! written, the live bytes of each segment, and the room that is left. Pure: it
//! decides, and `files` and `log` touch the disk.
//!
//! **Live bytes.** A segment is needed as long as a live job's latest put is in it.
//! Segments become obsolete in the order of their numbers, so later records about a
//! job (updates, its deletion) outlive its put and need no accounting.
//!
//! **Compaction.** All bytes in segments are garbage, except the latest puts of live
//! jobs. While there is too much garbage, each append may also put some live jobs of
//! the oldest segment again at the end. So disk use has a bound, and each append
//! waits only for a little compaction.
//!
//! **Room.** *A put is admitted only if two prepared segments of full length are left
//! after it. Everything else may use them, and compaction gives them back.* Besides,
//! on a disk that is nearly full, *a put is refused while live jobs take so much of it
//! that compaction would move many of them for each put* ([`fits`](Tail::fits)).
//!
//! A *prepared segment* is a file in which a segment can begin without asking the
//! disk for anything. Its *full length* is that of all segments, which each start chooses
//! ([`recovery`](super::recovery)): long enough for the live jobs of any one segment, even
//! if each put takes the most that it ever can ([`put_len`](super::put_len)). A longer put is
//! refused. A third one is prepared when half of the current segment is used: by then an older
//! segment is usually obsolete, and its file is taken. If not, no put waits while a new
//! file is made.
//!
//! Why two? When the disk is full and puts are refused, everything else must get along
//! with two prepared segments. Compacting the oldest segment takes at most one of
//! them. Compaction moves four bytes for each byte of garbage, so the oldest segment is
//! free before an eighth of a segment is used ([`earn_compaction`](Tail::earn_compaction)),
//! and its file becomes the next prepared segment. No more than 256 jobs are examined for
//! one change, so this needs fewer than some 800,000 jobs for each MiB of a segment. The
//! file is never freed in between, since another program could take its blocks; for the same
//! reason no file is cut at its last record.
//!
//! How much may these files lack? On a full disk, a longer directory gets its blocks from the
//! file that needs the name, for good. *As long as all files together lack no more than three
//! eighths of a full length, compaction goes on.* The prepared segments then have a length
//! and five eighths. Moving the jobs of the oldest segment takes at most one length, and a
//! quarter is reserved ([`has_room_to_move`](Tail::has_room_to_move)). An eighth is for updates
//! until compaction has gone through the log, and another one for the ends that are left
//! empty and for one time slice. A directory needs a block for some hundred more files, so
//! even in segments of 64 KiB that is a log of a thousand files. What files lack is no part of
//! the disk's capacity any more: puts are refused earlier by that.
//!
//! XFS wants some 63 free blocks at once for a longer directory, though it uses one or two: with
//! 950 files once for 252 segments that begin, with 240 twice in 20,000, with 28 never. If
//! another program takes each block that is given back, three eighths are spent in vain, and
//! then a whole prepared segment is removed. After that nothing is promised: compaction goes on
//! with what the other files have left. Segments of 256 KiB have 64 blocks: there the other
//! program only needs to take two of them before the name does, and the log fails.
//!
//! Why a bound on live bytes? The fuller the files are with live bytes, the more has to
//! be moved to free one of them: near the last byte, each put would move a whole
//! segment. With a sixteenth left free, a put moves some eight times its own length,
//! and after a delete there is room for the next put.
//!
//! **Backpressure.** Work on very many jobs, such as a long kick, is done in time
//! slices. While less than two full lengths are left, each slice waits until what was
//! appended before it is written, the obsolete segments are recycled, and compaction has
//! moved what it may ([`has_backpressure`](Tail::has_backpressure)): one append has no room
//! for more than a segment or two of it. In short segments a slice has few changes
//! ([`most_changes`](Tail::most_changes)), so that their records fit into the eighth that is
//! left for them.

use super::error::Error;
use super::format::{HEADER_LEN, Header, Record, prepared_name, put_len_of};
use super::live::LiveBytes;
use super::log::OpenSegment;
use super::storage::File;
use super::{Jobs, Lsn};
use crate::engine::{Change, StoredJob, StoredPause};
use crate::protocol::{JobId, Seconds};
use crate::sync::Instant;
use std::collections::VecDeque;
use std::sync::Arc;

/// A file's length is a multiple of this.
pub(super) const BLOCK: u64 = 4096;
/// How many prepared segments of full length a put leaves.
pub(super) const LEFT_BY_PUT: usize = 2;
/// The live bytes leave a reserve: this fraction (1/16) of what the disk has for
/// segments, or half a segment if that is more. The unused ends of segments count towards
/// the reserve, but only up to half of it.
const FREE_PART: u64 = 16;
/// While room is short, at most this fraction (1/16) of a full length should be
/// appended and not written.
const UNWRITTEN_PART: u64 = 16;
/// In one time slice, one job may change for so many bytes of a segment.
const BYTES_FOR_CHANGE: u64 = 512;
/// How many bytes compaction may move for each new byte of garbage.
const COMPACTION_RATE: u64 = 4;
/// For one change, no more bytes are moved than this and one record.
const COMPACTION_BYTES: u64 = 1 << 20;
/// For one change, no more jobs of the oldest segment are examined than this.
const COMPACTION_JOBS: usize = 256;
/// While work waits for compaction, as much is done at once as for this many changes.
const MADE_UP_AT_ONCE: usize = 16;

/// A file in which a segment can begin without asking the disk for anything. It is
/// open: a segment begins also when no other file can be opened.
pub(super) struct Prepared {
    pub name: String,
    pub len: u64,
    pub file: Arc<dyn File>,
    /// An earlier process has left it. It may have a header that this process would write,
    /// too, if that one was about to begin a segment there.
    pub is_adopted: bool,
}

/// What the segments thread is asked to do, and has done.
#[derive(Default)]
pub(super) struct Upkeep {
    /// The slot of the last prepared segment.
    pub last_slot: usize,
    /// Whether the segments thread runs.
    pub has_thread: bool,
    /// How often a pass was asked for, and how many of these requests the last pass has
    /// served.
    pub asked: u64,
    pub served: u64,
    /// The log is closed or has failed.
    pub is_closed: bool,
    /// A segment that has begun, and whose name may not be synced.
    pub unnamed: Option<Arc<OpenSegment>>,
}

impl Upkeep {
    pub fn next_name(&mut self) -> String {
        self.last_slot += 1;
        prepared_name(self.last_slot)
    }
}

/// One step for the writer.
pub(super) enum Step {
    /// Write this record after the previous one.
    Write(Record),
    /// Continue in this prepared segment, with this header.
    Begin(Header, Prepared),
}

/// What the segments thread has to do next. The index is that in `prepared`.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Work {
    /// Make the oldest obsolete segment a prepared one, or remove it.
    Obsolete { is_kept: bool },
    /// Give a prepared segment its full length.
    Resize(usize),
    /// Prepare another segment.
    Prepare,
}

/// The end of the log.
#[derive(Default)]
pub(super) struct Tail {
    /// What has to be written.
    steps: Vec<Step>,
    /// The puts that are not durable yet are in two groups: the one that is gathered in
    /// `steps`, and the one that is being written. This is the lowest id of a put in
    /// `steps`. These are usually the newest jobs; but the id of a put whose body
    /// arrives long after its line is older.
    first_put: Option<JobId>,
    /// The lowest id of a put in the group that is being written, or was written last, and
    /// the LSN where that ends; `None` if there is no put in it.
    taken: Option<(JobId, Lsn)>,
    /// Where the log ends.
    pub end: Lsn,
    /// With `Every`, when the syncer has to sync what was appended, if that is not synced.
    pub sync_due: Option<Instant>,
    pub live: LiveBytes,
    /// The file of the newest segment, which the writer may still have to begin; `None` for
    /// the segment that was the newest at the start.
    newest_file: Option<Arc<dyn File>>,
    /// The length of a segment, and the full length of a prepared one.
    pub segment_len: u64,
    /// The files in which the next segments can begin. While the segments thread
    /// works on one, it is not here.
    pub prepared: Vec<Prepared>,
    /// How many puts wait for room.
    pub waiting: usize,
    /// How many bytes the log's files could take together on this disk, when its free
    /// space was last read; `None` if that is not known.
    pub capacity: Option<u64>,
    /// The obsolete segments, oldest first. Each may be recycled or removed when the log
    /// is synced up to the LSN beside it.
    pub obsolete: VecDeque<(u32, Lsn)>,
    /// How many bytes compaction may move. Negative after it has moved more.
    credit: i64,
    /// Why the last attempt to prepare segments failed, if it did.
    pub no_room: Option<Error>,
    /// The put that was refused last, and why, until there is room for one of its
    /// length.
    pub refused: Option<(u64, Error)>,
    /// Why files that are not needed could not be removed; the segments thread
    /// reports this.
    pub not_removed: Vec<Error>,
    /// What the segments thread is asked to do, and has done.
    pub upkeep: Upkeep,
    /// For `stats`.
    pub written: u64,
    pub migrated: u64,
}

impl Tail {
    /// The tail of a log with these segments and prepared segments.
    pub fn new(
        live: LiveBytes,
        segment_len: u64,
        prepared: Vec<Prepared>,
        last_slot: usize,
    ) -> Tail {
        let mut tail = Tail {
            end: Lsn(live.newest().used_bytes),
            live,
            segment_len,
            prepared,
            ..Tail::default()
        };
        tail.upkeep.last_slot = last_slot;
        tail
    }

    /// Appends records of changes, which all have been made, and then does some compaction
    /// if there is much garbage.
    pub fn append(&mut self, changes: &[Change], jobs: &dyn Jobs) {
        let garbage = changes.iter().map(|change| self.change(change, jobs));
        let garbage = garbage.sum();
        self.earn_compaction(garbage);
        self.compact(changes.len(), jobs, false);
    }

    /// Appends the record of a change, and returns how many bytes became garbage.
    fn change(&mut self, change: &Change, jobs: &dyn Jobs) -> u64 {
        match *change {
            Change::Put(id) => {
                let job = jobs.stored(id);
                let job = job.expect("a put is appended before its job can be deleted");
                self.record(Record::Put(job));
                self.first_put = self.first_put.into_iter().chain([id]).min();
                0
            }
            // If the job does not exist, no record is needed: the same command, tick or end
            // of a connection has deleted it, and its deletion is the next change.
            Change::Update(id) => match jobs.stored(id).filter(|job| !job.is_deleted()) {
                Some(job) => self.record(Record::Update(job.fields)),
                None => 0,
            },
            Change::Delete(id, lengths) => {
                let len = put_len_of(id, lengths);
                self.live.delete(id, len);
                match jobs.stored(id).filter(StoredJob::is_deleted) {
                    // While its key is taken, its tombstone is live.
                    Some(tombstone) => {
                        self.record(Record::Put(tombstone));
                        len
                    }
                    None => len + self.record(Record::Delete(id)),
                }
            }
            Change::Pause(ref tube) => {
                let before = self.live.resume(tube);
                match jobs.pause(tube) {
                    Some(pause) => {
                        self.record(Record::Pause(pause));
                        before
                    }
                    None if before == 0 => 0,
                    None => before + self.record(Record::Pause(StoredPause::over(tube.clone()))),
                }
            }
        }
    }

    /// Appends a record, and returns its length. A put or a pause is live in the current
    /// segment from then on. It begins a segment if it does not fit into the current one.
    /// Without a prepared segment, or a number, the current segment grows.
    pub fn record(&mut self, record: Record) -> u64 {
        let (len, longest) = (record.len(), record.longest());
        let rest = match &record {
            Record::Put(_) | Record::Pause(_) => self.rest_for_puts(),
            _ => self.rest(),
        };
        if rest < longest {
            self.begin_segment(longest);
        }
        self.live.append(len);
        match &record {
            Record::Put(job) => self.live.put(job.fields.id, longest),
            Record::Pause(pause) if pause.length > Seconds(0) => {
                self.live.pause(pause.tube.clone());
            }
            Record::Pause(pause) => {
                self.live.resume(&pause.tube);
            }
            _ => {}
        }
        self.end.0 += len;
        self.written += 1;
        self.steps.push(Step::Write(record));
        len
    }

    /// Begins a segment that has room for a record of this length, and returns its
    /// number; `None` if there is no such file, or no number left.
    pub fn begin_segment(&mut self, record: u64) -> Option<u32> {
        let number = self.live.current().checked_add(1)?;
        // The shortest one that has room for it.
        let index = self.shortest_for(record)?;
        let prepared = self.prepared.remove(index);
        let previous_end = self.live.newest().used_bytes;
        self.live.begin(number, prepared.len);
        let header = self.live.header(previous_end);
        self.newest_file = Some(prepared.file.clone());
        self.end.0 += HEADER_LEN;
        self.steps.push(Step::Begin(header, prepared));
        Some(number)
    }

    /// Takes the longest prepared segment: one that has been cut might be too little.
    pub fn take_longest(&mut self) -> Option<Prepared> {
        self.prepared.sort_by_key(|prepared| prepared.len);
        self.prepared.pop()
    }

    /// How many blocks all files together may lack, and compaction goes on.
    pub fn may_lack(&self) -> u64 {
        self.segment_len * 3 / 8 / BLOCK
    }

    /// Takes a block from the end of the newest segment, if nothing is appended there, or else
    /// of a prepared one. Returns the file, and the length that is left for it.
    pub fn take_block(&mut self) -> Option<(Arc<dyn File>, u64)> {
        let newest = self.live.newest();
        let left = newest.file_bytes.saturating_sub(BLOCK);
        if left >= newest.longest()
            && let Some(file) = &self.newest_file
        {
            self.live.cut(left);
            return Some((file.clone(), left));
        }
        let prepared = self.prepared.last_mut();
        let prepared = prepared.filter(|prepared| prepared.len > BLOCK)?;
        prepared.len -= BLOCK;
        Some((prepared.file.clone(), prepared.len))
    }

    fn shortest_for(&self, record: u64) -> Option<usize> {
        let len = |&index: &usize| self.prepared[index].len;
        let fit = (0..self.prepared.len()).filter(|index| len(index) >= HEADER_LEN + record);
        fit.min_by_key(len)
    }

    /// Takes the steps that have to be written, in exchange for the vector `empty`, and
    /// returns them with the LSN where they end. The steps that were taken before must be
    /// written by now.
    pub fn take(&mut self, empty: Vec<Step>) -> (Vec<Step>, Lsn) {
        self.taken = self.first_put.take().map(|first| (first, self.end));
        (std::mem::replace(&mut self.steps, empty), self.end)
    }

    /// Up to where the log must be durable so that the put of a job is; `None` if it
    /// is known to be. A job that is older than a put in the same group may have to
    /// wait for that group without need.
    pub fn put_durable_at(&self, id: JobId, durable: Lsn) -> Option<Lsn> {
        if self.first_put.is_some_and(|first| id >= first) {
            // The put is still in `steps`, and is durable together with all that is
            // appended by now.
            return Some(self.end);
        }
        let (first, end) = self.taken?;
        (id >= first && durable < end).then_some(end)
    }

    /// After a sync, appends a mark, whose frame says that everything before it was
    /// synced.
    pub fn mark_end(&mut self) -> Lsn {
        if self.written > 0 {
            self.record(Record::Mark(self.live.oldest()));
        }
        self.end
    }

    // Compaction.

    /// Notes that this many bytes became garbage: compaction may move
    /// [`COMPACTION_RATE`] times as many. This is not saved up while there is little
    /// garbage.
    fn earn_compaction(&mut self, garbage: u64) {
        let mut earned = COMPACTION_RATE * garbage;
        if self.refuses_puts() {
            // Enough to move all live jobs once before an eighth of a segment is used
            // up.
            let round = garbage.saturating_mul(8 * self.live.total);
            earned = earned.saturating_add(round / self.segment_len);
        } else if !self.has_much_garbage() {
            self.credit = 0;
            return;
        }
        self.credit = self.credit.saturating_add_unsigned(earned);
    }

    /// Compaction for a put of this length that waits for room: moves as many jobs as one
    /// change may, and stops at the first obsolete segment, since its file may suffice.
    /// Goes through the log once at most: until the segment `newest` is obsolete. Returns
    /// whether that has changed anything.
    pub fn compact_for_put(&mut self, put: u64, newest: u32, jobs: &dyn Jobs) -> bool {
        let before = (self.migrated, self.live.oldest());
        if self.fits(put) && self.garbage() > put && before.1 <= newest {
            let credit = std::mem::replace(&mut self.credit, COMPACTION_BYTES as i64);
            self.compact(1, jobs, true);
            self.credit = credit;
        }
        before != (self.migrated, self.live.oldest())
    }

    /// Compaction for the work that waits for it, as much as some changes may do.
    pub fn make_up(&mut self, jobs: &dyn Jobs) {
        let before = self.migrated;
        self.compact(MADE_UP_AT_ONCE, jobs, false);
        let is_at_rest = self.obsolete.is_empty() && self.upkeep.served == self.upkeep.asked;
        if self.migrated == before && is_at_rest {
            // There is nothing to move, or no room for it, and nobody may wait for that.
            // (While the segments thread works, a file that it recycles is in no list.)
            self.credit = 0;
        }
    }

    /// After this many changes, moves jobs out of the oldest segment, as far as the credit
    /// reaches. Then notes which segments are obsolete.
    fn compact(&mut self, changes: usize, jobs: &dyn Jobs, is_for_put: bool) {
        let mut bytes = 0;
        for _ in 0..COMPACTION_JOBS * changes {
            // The next append may use the credit that is left.
            if self.credit <= 0 || bytes >= COMPACTION_BYTES * changes as u64 {
                break;
            }
            let record = if let Some(id) = self.live.next_in_oldest() {
                // `None`: the job is deleted.
                let Some(job) = jobs.stored(id) else {
                    continue;
                };
                Record::Put(job)
            } else if let Some(tube) = self.live.paused_in_oldest() {
                // `None`: a start has not restored it, and is about to say so.
                let pause = jobs.pause(&tube);
                Record::Pause(pause.unwrap_or_else(|| StoredPause::over(tube)))
            } else if self.note_obsolete() && !is_for_put {
                // Much garbage at once can make several segments obsolete.
                continue;
            } else {
                break;
            };
            let len = record.longest();
            let has_room = self.has_room_to_move(len);
            match &record {
                Record::Put(job) if has_room => self.live.delete(job.fields.id, len),
                Record::Put(job) => self.live.take_back(job.fields.id),
                _ => {}
            }
            if !has_room {
                break;
            }
            self.record(record);
            self.migrated += 1;
            self.credit = self.credit.saturating_sub_unsigned(len);
            bytes += len;
        }
        self.note_obsolete();
    }

    /// Whether there is room to move a put of this length, at its longest. It must not
    /// take the last room: the mark that makes the oldest segment obsolete must fit as
    /// well, and so must all that is appended until the file of that segment is
    /// recycled. A quarter of a full length is reserved for these.
    fn has_room_to_move(&self, len: u64) -> bool {
        let lost = match self.rest_for_puts() >= len {
            true => 0,
            false if self.shortest_for(len).is_some() => self.rest(),
            false => return false,
        };
        self.room() >= lost + len + self.segment_len / 4
    }

    /// Notes that the oldest segments are obsolete, if no live job needs them, and
    /// appends a mark that says so. Returns whether there were any.
    pub fn note_obsolete(&mut self) -> bool {
        let numbers = self.live.pop_obsolete();
        if numbers.is_empty() {
            return false;
        }
        self.record(Record::Mark(self.live.oldest()));
        // Their jobs were deleted or put again before the mark. So when the mark is
        // synced, nothing in these segments is needed.
        let after = self.end;
        self.obsolete.extend(numbers.map(|number| (number, after)));
        true
    }

    /// Whether there is so much garbage that compaction is due.
    fn has_much_garbage(&self) -> bool {
        let (size, live) = (self.segment_len, self.live.total);
        // The manual's bound on disk use is twice the live bytes and five files. That
        // leaves room for this much garbage: beside the used bytes there are three
        // prepared segments and the rest of the current file.
        self.garbage() > size / 4 + live / 4 + live.saturating_sub(4 * size) / 4
    }

    /// How many bytes of garbage there are.
    pub fn garbage(&self) -> u64 {
        self.live.used_bytes.saturating_sub(self.live.total)
    }

    // Room.

    /// Whether a put of this length is admitted.
    pub fn admits(&self, put: u64) -> bool {
        !self.is_too_long(put) && self.has_prepared_for(put) && self.fits(put)
    }

    /// Why a put of this length is not admitted, if the disk is the reason.
    pub fn why_refused(&self, put: u64) -> Option<Error> {
        if !self.fits(put) {
            let (live, most) = (self.live.total, self.most_live().unwrap_or(0));
            let why =
                format!("the jobs take {live} bytes of the {most} that the disk has for them");
            return Some(Error::Refused(why));
        }
        self.no_room.clone().filter(|_| !self.has_prepared_for(put))
    }

    /// Whether no segment has room for a put of this length.
    pub fn is_too_long(&self, put: u64) -> bool {
        HEADER_LEN + put > self.segment_len
    }

    /// Whether a put of this length leaves two prepared segments.
    pub fn has_prepared_for(&self, put: u64) -> bool {
        // A put that does not fit into the current segment begins another one.
        let used = usize::from(self.rest_for_puts() < put);
        let is_full = |prepared: &&Prepared| prepared.len >= self.segment_len;
        self.prepared.iter().filter(is_full).count() >= LEFT_BY_PUT + used
    }

    /// Whether the live bytes leave compaction enough to work with, if a put of this
    /// length is added. Where the disk is not nearly full, they do.
    pub fn fits(&self, put: u64) -> bool {
        let most = self.most_live();
        most.is_none_or(|most| self.live.total + put <= most)
    }

    /// How many live bytes there may be; `None` if the capacity of the disk is not known.
    pub fn most_live(&self) -> Option<u64> {
        let left = LEFT_BY_PUT as u64 * self.segment_len;
        let all = self.capacity?.saturating_sub(left);
        let half = (all / FREE_PART).max(self.segment_len / 2) / 2;
        let used = self.live.used_bytes + self.rest();
        let empty = self.live.file_bytes - used;
        Some(all.saturating_sub(half + half.max(empty)))
    }

    /// How many bytes the files of the log have.
    pub fn file_len(&self) -> u64 {
        let prepared = self.prepared.iter().map(|prepared| prepared.len);
        self.live.file_bytes + prepared.sum::<u64>()
    }

    /// How many more bytes the current segment's file can hold.
    fn rest(&self) -> u64 {
        let newest = self.live.newest();
        newest.file_bytes.saturating_sub(newest.used_bytes)
    }

    /// How many more bytes of puts, at their longest, the current segment may have.
    fn rest_for_puts(&self) -> u64 {
        let newest = self.live.newest();
        newest.file_bytes.saturating_sub(newest.longest())
    }

    /// How many bytes of records can be appended without asking the disk.
    fn room(&self) -> u64 {
        let prepared = self.prepared.iter();
        let in_prepared = prepared.map(|prepared| prepared.len.saturating_sub(HEADER_LEN));
        self.rest() + in_prepared.sum::<u64>()
    }

    /// Whether puts are refused because the disk is full.
    pub fn refuses_puts(&self) -> bool {
        self.no_room.is_some() && !self.has_prepared_for(0)
    }

    /// Whether more work should wait, with this many bytes unwritten: room is short,
    /// and appended records should be written first, obsolete segments recycled, or jobs
    /// moved.
    pub fn has_backpressure(&self, unwritten: u64) -> bool {
        let full = self.segment_len;
        let is_late = self.credit > full as i64;
        self.room() < LEFT_BY_PUT as u64 * full
            && (unwritten > full / UNWRITTEN_PART || !self.obsolete.is_empty() || is_late)
    }

    /// How many jobs may change in one time slice.
    pub fn most_changes(&self) -> usize {
        (self.segment_len / BYTES_FOR_CHANGE) as usize
    }

    // The work of the segments thread.

    /// Whether the segments thread has something to do. On a full disk, this is so
    /// when segments are obsolete, and when there is hardly any room: blocks of removed
    /// files may have become free only now.
    pub fn needs_upkeep(&self) -> bool {
        match self.no_room {
            _ if self.upkeep.unnamed.is_some() => true,
            Some(_) => !self.obsolete.is_empty() || self.room() < self.segment_len / 4,
            None => self.next_work(self.end).is_some(),
        }
    }

    /// What the segments thread has to do next, when the log is synced up to here.
    /// Work that frees room comes first, so that a full disk does not stop it. Two prepared
    /// segments are made, and a third one when half of the current segment is used or a put
    /// waits. A third one is not removed when two would do, since it would soon be made
    /// again. In a log without a put or a pause, they are made when the first one waits.
    pub fn next_work(&self, synced_to: Lsn) -> Option<Work> {
        let (count, newest) = (self.prepared.len(), self.live.newest());
        let is_wanted = newest.used_bytes >= newest.file_bytes / 2 || self.waiting > 0;
        let is_new = self.live.next_id == JobId(1) && self.live.total + self.waiting as u64 == 0;
        if let Some((_, after)) = self.obsolete.front()
            && *after <= synced_to
        {
            let is_kept = count <= LEFT_BY_PUT;
            return Some(Work::Obsolete { is_kept });
        }
        let others = (0..count).filter(|&index| self.prepared[index].len != self.segment_len);
        match others.max_by_key(|&index| self.prepared[index].len) {
            _ if is_new => None,
            Some(index) => Some(Work::Resize(index)),
            None if count < LEFT_BY_PUT + usize::from(is_wanted) => Some(Work::Prepare),
            None => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::ready_job;
    use super::*;
    use crate::engine::{StoredState, Time};
    use crate::protocol::PutOptions;
    use std::collections::BTreeMap;
    use std::io::ErrorKind;

    const UPDATE: Change = Change::Update(JobId(1));
    /// How long the record of an update is.
    const UPDATE_LEN: u64 = 29;
    /// How long the put of a job without a body is at its longest.
    const PUT_LEN: u64 = 81;
    /// The length of the current segment's file, long enough that no other one is
    /// needed.
    const LONG: u64 = 100 << 20;

    fn jobs(count: u64, body_len: usize) -> BTreeMap<JobId, StoredJob> {
        let job = |id| ready_job(JobId(id), &vec![b'x'; body_len]);
        (1..=count).map(|id| (JobId(id), job(id))).collect()
    }

    fn new(number: u32, len: u64) -> Tail {
        let mut live = LiveBytes::new(JobId(1));
        live.begin(number, len);
        Tail::new(live, 4096, Vec::new(), 0)
    }

    fn prepared(len: u64) -> Prepared {
        let file = Arc::new(tempfile::tempfile().unwrap());
        let name = String::new();
        Prepared {
            name,
            len,
            file,
            is_adopted: false,
        }
    }

    /// Puts the jobs into a segment with much garbage, and begins another one.
    fn with_garbage(jobs: &BTreeMap<JobId, StoredJob>) -> Tail {
        let mut tail = new(1, LONG);
        for id in jobs.keys() {
            tail.append(&[Change::Put(*id)], jobs);
        }
        tail.live.fill(LONG);
        tail.live.begin(2, LONG);
        tail
    }

    fn delete(tail: &mut Tail, jobs: &mut BTreeMap<JobId, StoredJob>, id: u64) {
        let job = jobs.remove(&JobId(id)).unwrap();
        let change = Change::Delete(JobId(id), job.lengths());
        tail.append(&[change], jobs);
    }

    #[test]
    fn a_segment_ends_before_the_first_record_that_does_not_fit() {
        let jobs = jobs(1, 0);
        let mut tail = new(1, 4096);
        tail.append(&[Change::Put(JobId(1))], &jobs);
        tail.prepared.push(prepared(4096));
        tail.live.fill(4096 - UPDATE_LEN);
        tail.append(&[UPDATE], &jobs);
        let newest = tail.live.newest();
        assert_eq!((newest.number, newest.used_bytes), (1, 4096));
        tail.append(&[UPDATE], &jobs);
        assert_eq!(tail.live.current(), 2);
    }

    #[test]
    fn the_segment_with_the_last_number_grows_beyond_its_length() {
        let jobs = jobs(1, 0);
        let mut tail = new(u32::MAX, 4096);
        tail.prepared.push(prepared(4096));
        tail.append(&[Change::Put(JobId(1))], &jobs);
        tail.live.fill(4096);
        tail.append(&[UPDATE], &jobs);
        assert_eq!(tail.live.current(), u32::MAX);
        assert_eq!(tail.live.newest().used_bytes, 4096 + UPDATE_LEN);
    }

    /// The line of a put gives it its id, and its body may come late.
    #[test]
    fn a_reply_about_a_job_waits_for_its_put_whatever_the_order_of_the_ids() {
        let jobs = jobs(4, 0);
        let mut tail = new(1, 4096);
        for id in [3, 2, 4] {
            tail.append(&[Change::Put(JobId(id))], &jobs);
        }
        let (before, end) = (Lsn(0), tail.end);
        let waits_of =
            |tail: &Tail, durable| [1, 2, 3, 4].map(|id| tail.put_durable_at(JobId(id), durable));
        let of_these = [None, Some(end), Some(end), Some(end)];
        assert_eq!(waits_of(&tail, before), of_these);
        tail.take(Vec::new());
        assert_eq!(waits_of(&tail, before), of_these);
        assert_eq!(waits_of(&tail, end), [None; 4]);
        tail.append(&[Change::Put(JobId(1))], &jobs);
        assert_eq!(waits_of(&tail, end), [Some(tail.end); 4]);
    }

    #[test]
    fn a_log_without_records_is_closed_without_a_mark() {
        let mut tail = new(1, 4096);
        tail.mark_end();
        assert_eq!(tail.written, 0);
        tail.append(&[Change::Put(JobId(1))], &jobs(1, 0));
        tail.mark_end();
        assert_eq!(tail.written, 2);
    }

    #[test]
    fn compaction_moves_four_bytes_for_each_byte_that_becomes_garbage() {
        let mut jobs = jobs(30, 0);
        let mut tail = with_garbage(&jobs);
        let moved_for = |bytes: u64| bytes.div_ceil(PUT_LEN);
        for updates in 1..=3 {
            tail.append(&[UPDATE], &jobs);
            assert_eq!(tail.migrated, moved_for(4 * updates * UPDATE_LEN));
        }
        let record_len = Record::Delete(JobId(30)).len();
        delete(&mut tail, &mut jobs, 30);
        let garbage = 3 * UPDATE_LEN + PUT_LEN + record_len;
        assert_eq!(tail.migrated, moved_for(4 * garbage));
    }

    #[test]
    fn compaction_moves_the_tombstone_of_a_deleted_job_whose_key_is_taken() {
        let mut jobs = jobs(2, 0);
        let rest = jobs.get_mut(&JobId(2)).unwrap();
        rest.options = PutOptions::parse(b" idp:a:60").map(Box::new);
        rest.fields.state = StoredState::Deleted {
            until: Time::default(),
        };
        let mut tail = with_garbage(&jobs);
        tail.append(&[UPDATE], &jobs);
        assert_eq!((tail.migrated, tail.live.oldest()), (2, 2));
    }

    #[test]
    fn compaction_moves_more_while_puts_are_refused() {
        let jobs = jobs(20, 0);
        let mut tail = with_garbage(&jobs);
        let full = ErrorKind::StorageFull.into();
        tail.no_room = Some(Error::on("create", "segment.spare")(full));
        tail.append(&[UPDATE], &jobs);
        let round = UPDATE_LEN * 8 * (20 * PUT_LEN) / 4096;
        assert_eq!(tail.migrated, (4 * UPDATE_LEN + round).div_ceil(PUT_LEN));
    }

    /// While the segments thread recycles a file, the file is in no list.
    #[test]
    fn compaction_that_finds_no_room_stays_due_while_the_segments_thread_works() {
        let jobs = jobs(20, 0);
        let mut tail = on_a_full_disk(with_garbage(&jobs));
        tail.live.fill(LONG);
        tail.append(&[UPDATE], &jobs);
        tail.upkeep.asked = 1;
        tail.make_up(&jobs);
        assert!(tail.credit > 0);
        tail.upkeep.served = 1;
        tail.make_up(&jobs);
        assert_eq!((tail.migrated, tail.credit), (0, 0));
    }

    #[test]
    fn compaction_moves_little_more_than_a_mebibyte_for_one_change() {
        let mut jobs = jobs(10, 300 << 10);
        let mut tail = with_garbage(&jobs);
        delete(&mut tail, &mut jobs, 10);
        assert_eq!(tail.migrated, 4);
    }

    #[test]
    fn an_obsolete_segment_is_recycled_once_its_mark_is_durable() {
        let mut jobs = jobs(1, 0);
        let mut tail = with_garbage(&jobs);
        assert!(tail.obsolete.is_empty());
        let before = tail.end;
        delete(&mut tail, &mut jobs, 1);
        tail.prepared = vec![prepared(4096), prepared(4096)];
        assert_eq!(tail.next_work(before), None);
        let kept = Work::Obsolete { is_kept: true };
        assert_eq!(tail.next_work(tail.end), Some(kept));
        tail.prepared.push(prepared(4096));
        let removed = Work::Obsolete { is_kept: false };
        assert_eq!(tail.next_work(tail.end), Some(removed));
    }

    // Room.

    /// The room for records in a file of one block.
    const ROOM: u64 = BLOCK - HEADER_LEN;

    /// A first segment of one block, whose only job is deleted, and prepared segments of
    /// these lengths.
    fn tail(lens: &[u64]) -> Tail {
        let mut tail = new(1, BLOCK);
        tail.live.next_id = JobId(2);
        tail.prepared = lens.iter().map(|&len| prepared(len)).collect();
        tail
    }

    /// The same, with this many bytes left in the segment's file.
    fn tail_with(rest: u64, lens: &[u64]) -> Tail {
        let mut tail = tail(lens);
        tail.live.fill(BLOCK - rest);
        assert_eq!(tail.rest(), rest);
        tail
    }

    /// Closes the current segment, which has this length, and begins another
    /// one.
    fn begin(tail: &mut Tail, len: u64) {
        tail.live.fill(len);
        tail.live.begin(tail.live.current() + 1, BLOCK);
    }

    fn on_a_full_disk(mut tail: Tail) -> Tail {
        let full = ErrorKind::StorageFull.into();
        tail.no_room = Some(Error::on("create", "segment.spare")(full));
        tail
    }

    #[test]
    fn a_put_leaves_two_prepared_segments_of_full_length() {
        assert!(!tail(&[BLOCK]).admits(ROOM));
        assert!(tail(&[BLOCK; 2]).admits(ROOM));
        assert!(tail_with(100, &[BLOCK; 2]).admits(100));
        assert!(!tail_with(100, &[BLOCK; 2]).admits(101));
        assert!(tail_with(100, &[BLOCK; 3]).admits(101));
        assert!(!tail(&[BLOCK, BLOCK / 2]).admits(ROOM));
        // No segment has room for a longer put.
        assert!(!tail(&[2 * BLOCK; 4]).admits(ROOM + 1));
    }

    /// The work of the segments thread, as if all of it succeeded.
    fn works(tail: &mut Tail) -> Vec<Work> {
        let mut works = Vec::new();
        while let Some(work) = tail.next_work(tail.end) {
            match work {
                Work::Obsolete { .. } => drop(tail.obsolete.pop_front()),
                Work::Resize(index) => tail.prepared[index].len = BLOCK,
                Work::Prepare => tail.prepared.push(prepared(BLOCK)),
            }
            works.push(work);
        }
        works
    }

    #[test]
    fn a_third_segment_is_prepared_when_half_of_the_current_one_is_used_or_a_put_waits() {
        // There was no put yet.
        assert_eq!(works(&mut new(1, BLOCK)), []);
        let mut young = tail(&[]);
        assert_eq!(works(&mut young), [Work::Prepare, Work::Prepare]);
        young.live.fill(BLOCK / 2);
        assert_eq!(works(&mut young), [Work::Prepare]);
        let mut waited_for = tail(&[BLOCK; 2]);
        waited_for.waiting = 1;
        assert_eq!(works(&mut waited_for), [Work::Prepare]);
    }

    /// Others than the ones of a full length are left by a start with another `-s`, and on a
    /// full disk by names that needed a block.
    #[test]
    fn prepared_segments_of_another_length_get_the_full_one_the_longest_first() {
        let mut others = tail(&[BLOCK / 2, BLOCK, 3 * BLOCK]);
        let works = works(&mut others);
        assert_eq!(works, [Work::Resize(2), Work::Resize(0)]);
    }

    #[test]
    fn live_bytes_leave_half_a_segment_and_a_sixteenth_of_the_disk_free() {
        let most = |capacity, empty| {
            let mut tail = tail(&[BLOCK; 3]);
            tail.capacity = Some(capacity);
            begin(&mut tail, BLOCK - empty);
            (1..ROOM).take_while(|&put| tail.fits(put)).last()
        };
        assert_eq!(most(2 * BLOCK, 0), None);
        assert_eq!(most(3 * BLOCK, 0), Some(BLOCK / 2));
        assert_eq!(most(3 * BLOCK, BLOCK / 4), Some(BLOCK / 2));
        assert_eq!(most(3 * BLOCK, BLOCK / 4 + 1), Some(BLOCK / 2 - 1));
        let mut tail = tail(&[]);
        tail.capacity = Some(162 * BLOCK);
        assert_eq!(tail.most_live(), Some(150 * BLOCK));
    }

    #[test]
    fn room_is_reserved_for_puts_at_their_longest() {
        let mut tail = tail_with(1000, &[]);
        tail.live.put(JobId(1), ROOM - 900);
        assert_eq!(tail.rest_for_puts(), 900);
        tail.live.delete(JobId(1), ROOM - 900);
        assert_eq!(tail.rest_for_puts(), 1000);
    }

    #[test]
    fn a_segment_begins_in_the_shortest_prepared_file_that_suffices() {
        let tail = tail(&[2 * BLOCK, BLOCK]);
        assert_eq!(tail.shortest_for(ROOM), Some(1));
        assert_eq!(tail.shortest_for(ROOM + 1), Some(0));
        assert_eq!(tail.shortest_for(ROOM + BLOCK + 1), None);
    }

    /// The one before it may still need its name, and have no room to give back.
    #[test]
    fn the_newest_segment_gives_back_its_end_before_it_is_begun_and_then_a_prepared_one() {
        let mut tail = tail(&[BLOCK, 2 * BLOCK]);
        let begun = [tail.begin_segment(0), tail.begin_segment(0)];
        assert_eq!(begun, [Some(2), Some(3)]);
        let (file, left) = tail.take_block().unwrap();
        let Some(Step::Begin(_, newest)) = tail.steps.last() else {
            panic!("the last step begins a segment");
        };
        assert!(Arc::ptr_eq(&file, &newest.file));
        assert_eq!((left, tail.rest()), (BLOCK, BLOCK - HEADER_LEN));
        assert!(tail.take_block().is_none());
        tail.prepared.push(prepared(3 * BLOCK));
        let left = tail.take_block().map(|(_, left)| left);
        assert_eq!((left, tail.prepared[0].len), (Some(2 * BLOCK), 2 * BLOCK));
    }

    #[test]
    fn compaction_leaves_the_last_quarter_of_a_full_length_free() {
        let quarter = BLOCK / 4;
        let most = |tail: Tail| (0..).take_while(|&len| tail.has_room_to_move(len)).last();
        assert_eq!(most(tail(&[])), Some(ROOM - quarter));
        assert_eq!(most(tail_with(quarter - 1, &[])), None);
        // What is left of the segment is lost.
        assert_eq!(most(tail_with(1000, &[BLOCK])), Some(ROOM - quarter));
        assert_eq!(most(tail_with(1000, &[HEADER_LEN + 3000])), Some(1976));
        assert_eq!(most(tail_with(3000, &[])), Some(3000 - quarter));
        // It fits nowhere.
        assert!(!tail_with(3000, &[BLOCK; 3]).has_room_to_move(ROOM + 1));
    }

    #[test]
    fn backpressure_begins_below_two_full_lengths_of_room_when_much_work_is_due() {
        let left = 2 * BLOCK - 2 * ROOM;
        assert!(!tail_with(left, &[BLOCK; 2]).has_backpressure(BLOCK));
        let mut short = tail_with(left - 1, &[BLOCK; 2]);
        assert!(!short.has_backpressure(BLOCK / 16));
        assert!(short.has_backpressure(BLOCK / 16 + 1));
        short.obsolete.push_back((1, Lsn::START));
        assert!(short.has_backpressure(0));
    }

    #[test]
    fn puts_are_refused_on_a_full_disk_when_prepared_segments_are_missing() {
        assert!(!tail(&[]).refuses_puts());
        assert!(on_a_full_disk(tail(&[BLOCK])).refuses_puts());
        assert!(!on_a_full_disk(tail(&[BLOCK; 2])).refuses_puts());
    }

    #[test]
    fn a_full_disk_needs_upkeep_for_obsolete_segments_or_when_little_room_is_left() {
        assert!(!tail(&[BLOCK; 2]).needs_upkeep());
        assert!(tail(&[BLOCK]).needs_upkeep());
        let mut full = on_a_full_disk(tail_with(BLOCK / 4, &[]));
        assert!(!full.needs_upkeep());
        full.obsolete.push_back((1, Lsn::START));
        assert!(full.needs_upkeep());
        assert!(on_a_full_disk(tail_with(BLOCK / 4 - 1, &[])).needs_upkeep());
    }

    #[test]
    fn compaction_begins_at_a_quarter_of_a_segment_and_of_the_live_bytes_in_garbage() {
        // The shortest length of the current segment with which it is much.
        let much = |mut tail: Tail| {
            (HEADER_LEN..BLOCK).find(|&offset| {
                tail.live.fill(offset);
                tail.has_much_garbage()
            })
        };
        assert_eq!(much(tail(&[])), Some(1025));
        let mut with_a_job = tail(&[]);
        with_a_job.live.put(JobId(1), 400);
        assert_eq!(much(with_a_job), Some(400 + 1024 + 100 + 1));
        // Above four segments of live bytes, it is half of these.
        let mut with_many = tail(&[]);
        for id in 1..=5 {
            with_many.live.put(JobId(id), 4000);
            begin(&mut with_many, BLOCK);
        }
        begin(&mut with_many, BLOCK);
        let garbage = 6 * BLOCK - 20_000;
        let bound = 1024 + 5000 + (20_000 - 4 * BLOCK) / 4;
        assert_eq!(much(with_many), Some(bound - garbage + 1));
    }

    #[test]
    fn the_size_of_the_log_counts_what_a_segment_has_grown_beyond_its_file() {
        let jobs = jobs(1, 0);
        let mut tail = new(1, 4096);
        tail.append(&[Change::Put(JobId(1))], &jobs);
        tail.live.fill(4096);
        for _ in 0..100 {
            tail.append(&[UPDATE], &jobs);
        }
        assert_eq!(tail.file_len(), 4096 + 100 * UPDATE_LEN);
    }
}
