//! Group commit, and the writer.
//!
//! A thread that needs the log durable up to an LSN, and finds no other thread writing,
//! takes the [`Writer`] and so leads a group commit: it writes everything that any
//! thread has appended, syncs once, and notifies all waiters of that. A thread that
//! finds another one writing queues its [`Waiter`]. After the write, the committer (a
//! thread) writes for the waiters that came meanwhile, unless another thread takes the
//! writer first. The committer also writes in time what no client waits for. With `Every`,
//! another thread, the syncer, syncs in time: so no waiter waits for a sync.
//!
//! | call | when it returns |
//! |---|---|
//! | [`commit`](Binlog::commit) | the log is durable up to the LSN: synced with `Always`, else written |
//! | [`commit_then`](Binlog::commit_then) | at once if another thread is writing; that one [notifies](Waiter) |
//! | [`write_soon`](Binlog::write_soon) | at once; the committer writes in time, and the syncer syncs |
//! | [`sync_up_to`](Binlog::sync_up_to) | it is written and synced, in every mode |
//!
//! - Syncs come one after the other. After the first failure nothing is durable any
//!   more, and nothing is tried again.
//! - With `Always`, the writer is free only when all waiters are notified.
//! - When a write is due while another thread writes, that one wakes the committer.
//!
//! Why nothing simpler? With a mutex around writing and syncing, all threads
//! that come during a sync would sync one after the other. With a condition
//! variable on which all wait for the writing thread, each sync would wake all
//! of them, and most would learn that they have to wait for the next sync.

use super::error::Error;
use super::files::{name_segment, once_there_is_room, prepare};
use super::format::{FRAME_LEN, Frame, Header, Place, Record, segment_name};
use super::storage::File;
use super::tail::{BLOCK, Prepared, Step};
use super::{Binlog, Event, Failed, Lsn, SyncMode, locked};
use crate::sync::{AtomicBool, AtomicU64, Condvar, Instant, Mutex, Ordering, spawn, thread};
use std::io;
use std::sync::Arc;
use std::time::Duration;

/// Changes that no client waits for are written after this time, or when a sync is due, if
/// that is earlier.
const WRITTEN_WITHIN: Duration = Duration::from_millis(50);

/// The writer, and what has to be written: for the waiters of the next commits, and by
/// the committer.
#[derive(Default)]
pub(super) struct CommitQueue {
    /// A thread that takes it out may write. `None` while a thread writes, and
    /// after a failure.
    writer: Option<Box<Writer>>,
    /// In the order in which they came, each with the LSN that it needs.
    waiters: Vec<(Lsn, Arc<dyn Waiter>)>,
    /// When the committer has to write what was appended.
    write_due: Option<Instant>,
    gathering: Gathering,
}

/// With `Always`, the next sync begins a little later if that lets all clients of the last
/// one take part. Otherwise those that the last one has served come too late for the next
/// one, which the others are waiting for: for ever after, there are two groups that take
/// turns, and each put waits for two syncs.
#[derive(Default)]
struct Gathering {
    /// How many waiters the next commit waits for, and until when; `None` if it waits for
    /// nobody.
    waits_for: Option<(usize, Instant)>,
    /// How often in a row these did not come in time, and how many syncs wait for nobody
    /// because of that. So it costs little where clients need long to come back.
    failed: u32,
    skipped: u32,
    /// How long the last sync took. (If a disk hangs once, nobody waits for that.)
    took: Duration,
}

/// The next commit begins at most half of a sync's time after the last one has ended. Where
/// it takes longer to answer so many clients, they are not waited for: they work while
/// others' changes are synced.
const GATHERED_WITHIN: u32 = 2;
/// After clients have not come in time, at most this many (as a power of two) syncs wait
/// for nobody.
const MOST_FAILED: u32 = 5;

impl Gathering {
    /// The waiters of a sync from one moment to another have been notified. Together with
    /// those that came meanwhile, there were this many.
    fn begin(&mut self, waiters: usize, began: Instant, ended: Instant) {
        let took = ended - began;
        let usual = took.min(std::mem::replace(&mut self.took, took));
        let until = ended + usual / GATHERED_WITHIN;
        let is_wanted = waiters > 1 && Instant::now() < until;
        self.waits_for = (is_wanted && self.skipped == 0).then_some((waiters, until));
        self.skipped = self.skipped.saturating_sub(1);
    }

    /// Whether the next commit may begin, with this many waiters.
    fn is_over(&mut self, waiters: usize) -> bool {
        let Some((wanted, until)) = self.waits_for else {
            return true;
        };
        if waiters >= wanted {
            self.failed = 0;
        } else if Instant::now() >= until {
            self.failed = MOST_FAILED.min(self.failed + 1);
            self.skipped = (1 << self.failed) - 1;
        } else {
            return false;
        }
        self.waits_for = None;
        true
    }
}

impl CommitQueue {
    pub fn new(writer: Writer) -> CommitQueue {
        CommitQueue {
            writer: Some(Box::new(writer)),
            ..CommitQueue::default()
        }
    }

    /// Whether the committer has to write what was appended.
    fn is_due(&self, now: Instant) -> bool {
        self.write_due.is_some_and(|due| due <= now)
    }

    /// When the committer has to wake, if it can do nothing now. For a write that is due
    /// already, the thread that has the writer wakes it.
    fn wakes_at(&self, now: Instant) -> Option<Instant> {
        let due = self.write_due.filter(|_| !self.is_due(now));
        let gathered = self.gathering.waits_for.map(|(_, until)| until);
        due.into_iter().chain(gathered).min()
    }
}

/// Is notified when the log is durable up to an LSN.
pub trait Waiter: Send + Sync {
    /// The log is durable up to here, or has failed. This must not block: other waiters
    /// are notified by the same thread.
    fn durable(&self, up_to: Result<Lsn, Failed>);
}

/// The result of a commit, for a thread that waits for it.
#[derive(Default)]
struct CommitResult {
    up_to: Mutex<Option<Result<Lsn, Failed>>>,
    changed: Condvar,
}

impl Waiter for CommitResult {
    fn durable(&self, up_to: Result<Lsn, Failed>) {
        *locked(self.up_to.lock()) = Some(up_to);
        self.changed.notify_one();
    }
}

impl Binlog {
    /// Waits until what was appended up to `lsn` is durable: synced, or with
    /// `Every` and `Never`, written. Not to be called under the server's lock.
    ///
    /// No change may be acknowledged before this returns.
    pub fn commit(&self, lsn: Lsn) -> Result<(), Failed> {
        let result = Arc::new(CommitResult::default());
        self.commit_then(lsn, result.clone());
        // Not with `park`: that would consume an `unpark` which is meant for what the
        // caller waits for next, such as the one that stops the timer.
        let is_missing = |up_to: &mut Option<_>| up_to.is_none();
        let waited = result
            .changed
            .wait_while(locked(result.up_to.lock()), is_missing);
        locked(waited).expect("the wait has ended").map(drop)
    }

    /// Like [`commit`](Self::commit), without waiting for another thread's
    /// write. `waiter` is notified of the result, by this thread or by the thread that
    /// writes.
    pub fn commit_then(&self, lsn: Lsn, waiter: Arc<dyn Waiter>) {
        let mut queue = self.commit_queue.lock();
        if let Some(up_to) = self.known(lsn) {
            drop(queue);
            return waiter.durable(up_to);
        }
        queue.waiters.push((lsn, waiter));
        let waiters = queue.waiters.len();
        let may_lead = queue.gathering.is_over(waiters);
        let writer = queue.writer.take_if(|_| may_lead);
        drop(queue);
        if let Some(writer) = writer {
            // This caller is notified like the others, also of a failure.
            let (Ok(()) | Err(Failed)) = self.write(writer);
        }
    }

    /// Whether the log is durable up to here, or has failed; `None` while neither is
    /// so.
    fn known(&self, lsn: Lsn) -> Option<Result<Lsn, Failed>> {
        // After a failure nothing is acknowledged any more, not even what was
        // written before it: a failed sync may have lost it.
        if self.failure.get().is_some() {
            return Some(Err(Failed));
        }
        let durable = Lsn(self.durable.load(Ordering::Acquire));
        (durable >= lsn).then_some(Ok(durable))
    }

    /// Notifies waiters, once the log is durable up to where they need it, or has failed.
    fn notify(&self, waiters: Vec<(Lsn, Arc<dyn Waiter>)>) {
        for (lsn, waiter) in waiters {
            waiter.durable(self.known(lsn).expect("it is durable or has failed"));
        }
    }

    /// Writes all that was appended (and syncs it, with `Always`), and notifies all
    /// waiters whose records were among it.
    fn write(&self, mut writer: Box<Writer>) -> Result<(), Failed> {
        let end = writer.write(self)?;
        let began = Instant::now();
        if self.sync == SyncMode::Always {
            self.sync_written(end)?;
        }
        let ended = Instant::now();
        let mut queue = self.commit_queue.lock();
        self.durable.store(end.0, Ordering::Release);
        let waiters = queue.waiters.len();
        let done = queue.waiters.extract_if(.., |(lsn, _)| *lsn <= end);
        let mut done: Vec<_> = done.collect();
        // A client that gets its reply sends its next command at once. If the first of
        // these could take the writer, it would have a sync for itself, and all
        // others the next one. So with `Always`, the writer is free when all waiters
        // are notified.
        if self.sync == SyncMode::Always {
            drop(queue);
            self.notify(std::mem::take(&mut done));
            queue = self.commit_queue.lock();
            queue.gathering.begin(waiters, began, ended);
        }
        queue.writer = Some(writer);
        let is_gathering = queue.gathering.waits_for.is_some();
        let is_due = queue.is_due(Instant::now());
        let is_wanted = is_due || !queue.waiters.is_empty() || is_gathering;
        drop(queue);
        if is_wanted {
            // The committer writes for the waiters that came meanwhile, unless another
            // thread takes the writer first.
            self.wake_committer();
        }
        self.notify(done);
        self.ask_for_upkeep();
        // A sync that failed in another thread may have lost what was written here.
        self.check_failure()
    }

    /// Makes sure that what was appended is written soon (and synced, except with
    /// `Never`), although no client waits for it. Not to be called under the server's lock.
    pub fn write_soon(&self) {
        let mut queue = self.commit_queue.lock();
        // If this is set already, this change will be written, too, and synced.
        if queue.write_due.is_none() {
            let now = Instant::now();
            queue.write_due = Some(now + WRITTEN_WITHIN);
            drop(queue);
            self.wake_committer();
            if let SyncMode::Every(span) = self.sync {
                let sync_due = &mut self.tail().sync_due;
                // The sync must have ended when `span` is over.
                *sync_due = sync_due.or_else(|| now.checked_add(span * 3 / 4));
                self.files_changed.notify_all();
            }
        }
    }

    /// Has the committer check the queue again.
    pub(super) fn wake_committer(&self) {
        if let Some(committer) = self.committer.get() {
            committer.unpark();
        }
    }

    /// Writes and syncs everything that was appended, and ends the binlog's
    /// threads.
    pub fn close(&self) -> Result<(), Failed> {
        // First without the mark: then the mark can say that all before it was
        // synced, and what is unreadable there later is damage, not a torn tail.
        let end = self.tail().end;
        self.sync_up_to(end)?;
        let end = self.tail().mark_end();
        let closed = self.sync_up_to(end);
        self.end_threads();
        closed
    }

    /// Writes and syncs what was appended up to `lsn`, in every mode.
    pub(super) fn sync_up_to(&self, lsn: Lsn) -> Result<(), Failed> {
        self.commit(lsn)?;
        self.sync_written(lsn)
    }

    /// Syncs the current segment, once no other thread does, unless the log is synced up to
    /// `lsn` then. It must be written up to there. Other threads may write meanwhile. The
    /// first sync of a segment also makes its name durable; then the segment before says that
    /// it has begun.
    ///
    /// The system reports a failed sync once, to one thread. The pages that it
    /// could not write count as clean from then on, so the next sync succeeds
    /// and says nothing about them. Therefore no thread syncs beside another,
    /// and after a failure no thread syncs at all.
    fn sync_written(&self, lsn: Lsn) -> Result<(), Failed> {
        let segment = self.segment();
        self.check_failure()?;
        if segment.synced_to.load(Ordering::Acquire) < lsn.0 {
            let on_sync = Error::on("sync", segment_name(segment.number));
            let mut synced = segment.file.sync();
            let before = locked(segment.before.lock()).take();
            if before.is_some() && !segment.is_named.load(Ordering::Acquire) {
                synced = synced.and_then(|()| self.storage.sync());
            }
            let found = synced.and_then(|()| self.must_have_name(&segment));
            found.map_err(|error| self.fail(on_sync(error)))?;
            if let Some((file, end)) = before {
                // No job relies on this, so it may fail.
                file.write_at(&Frame::continued(end), end.offset).ok();
            }
            segment.synced_to.store(lsn.0, Ordering::Release);
        }
        Ok(())
    }

    /// An error if the file has not its name any more: then no start would find what is in it.
    /// (On shared storage, the lock check comes before each answer.)
    fn must_have_name(&self, segment: &OpenSegment) -> io::Result<()> {
        let name = segment_name(segment.number);
        if !self.storage.is_shared() && !self.storage.has(&name).unwrap_or(true) {
            return Err(io::Error::other("somebody has removed or renamed it"));
        }
        Ok(())
    }

    /// Notes a failure: from now on nothing is acknowledged. Notifies the waiters and
    /// the binlog's threads.
    pub(super) fn fail(&self, error: Error) -> Failed {
        // Only the first failure is stored: later ones follow from it and would
        // mislead.
        self.failure.get_or_init(|| error);
        let waiters = std::mem::take(&mut self.commit_queue.lock().waiters);
        self.notify(waiters);
        self.end_threads();
        Failed
    }

    /// Starts the binlog's threads: the committer, the segments thread, and with `Every` the
    /// syncer. They end after [`close`](Self::close), or after a failure.
    ///
    /// `report` is called on the first two.
    pub fn spawn_threads(
        self: &Arc<Self>,
        report: impl FnMut(Event<'_>) + Clone + Send + 'static,
    ) -> io::Result<()> {
        let (binlog, reports) = (self.clone(), report.clone());
        spawn("committer", move || binlog.commit_until_closed(reports))?;
        if let SyncMode::Every(_) = self.sync {
            let binlog = self.clone();
            spawn("syncer", move || binlog.sync_until_closed())?;
        }
        let mut tail = self.tail();
        tail.upkeep.has_thread = true;
        // The recovery may have left work for it.
        tail.upkeep.asked += 1;
        drop(tail);
        let binlog = self.clone();
        spawn("segments", move || binlog.upkeep_until_closed(report))?;
        Ok(())
    }

    fn commit_until_closed(&self, mut report: impl FnMut(Event<'_>)) {
        // Set before the queue is read: so a later request wakes this thread.
        self.committer.get_or_init(thread::current);
        while self.failure.get().is_none()
            && let Ok(wakes_at) = self.commit_for_others()
            && let Ok(longest) = self.ensure_lease()
            && !self.tail().upkeep.is_closed
        {
            let now = Instant::now();
            let until_due = wakes_at.map(|due| due.max(now) - now);
            thread::park_timeout(until_due.unwrap_or(longest).min(longest));
        }
        if let Some(error) = self.failure.get() {
            report(Event::Failed(error));
        }
    }

    /// Writes for the waiters, and what is due. Returns when it has to be called again. If
    /// another thread has the writer, this does not wait for it: that thread wakes the
    /// committer for the next call.
    fn commit_for_others(&self) -> Result<Option<Instant>, Failed> {
        let mut queue = self.commit_queue.lock();
        let (now, waiters) = (Instant::now(), queue.waiters.len());
        let has_work = queue.gathering.is_over(waiters) && (queue.is_due(now) || waiters > 0);
        let Some(writer) = queue.writer.take_if(|_| has_work) else {
            return Ok(queue.wakes_at(now));
        };
        queue.write_due = None;
        drop(queue);
        self.write(writer).map(|()| Some(now))
    }

    /// The syncer.
    fn sync_until_closed(&self) {
        let mut tail = self.tail();
        while !tail.upkeep.is_closed {
            let now = Instant::now();
            if tail.sync_due.take_if(|due| *due <= now).is_some() {
                drop(tail);
                // In this order: for what is appended later, both times are set again.
                self.commit_queue.lock().write_due = None;
                let end = self.tail().end;
                let (Ok(()) | Err(Failed)) = self.sync_up_to(end);
                tail = self.tail();
            } else {
                let until_due = tail.sync_due.map_or(Duration::MAX, |due| due - now);
                tail = locked(self.files_changed.wait_timeout(tail, until_due)).0;
            }
        }
    }
}

// The writer.

/// Gathered bytes are written when there are this many.
const GATHER: usize = 256 << 10;
/// A body of this length or more is written without being copied.
const UNCOPIED_BODY: usize = 64 << 10;

/// Writes the current segment.
pub(super) struct Writer {
    pub segment: Arc<OpenSegment>,
    /// Where the next written byte goes.
    pub place: Place,
    /// Encoded bytes that are not written yet; they belong at `place`.
    gathered: Vec<u8>,
    /// An empty vector with capacity, to be exchanged for the steps in the tail.
    steps: Vec<Step>,
}

/// The capacity that stays when a group was longer.
const MOST_STEPS_KEPT: usize = 4096;

/// The file of the current segment, and up to which LSN it is synced.
pub(super) struct OpenSegment {
    number: u32,
    file: Arc<dyn File>,
    /// The length of the file when it became the current segment.
    file_len: u64,
    /// The LSN of the file's first byte.
    start: u64,
    /// Changed by the thread that syncs.
    synced_to: AtomicU64,
    /// The segment before, until the first sync of this one, if this process has begun it: its
    /// file, and where its records end. (Longer, a removed file would keep its room.)
    before: Mutex<Option<(Arc<dyn File>, Place)>>,
    /// The segments thread has synced its name, so that the first sync need not.
    pub is_named: AtomicBool,
}

impl Writer {
    /// A writer that continues at a place in a segment, of which so many bytes are synced. The
    /// LSN of the file's first byte is `start`.
    pub fn new(
        place: Place,
        file: Arc<dyn File>,
        synced: u64,
        Lsn(start): Lsn,
        before: Option<(Arc<dyn File>, Place)>,
    ) -> Writer {
        let segment = OpenSegment {
            number: place.number,
            file_len: file.len().unwrap_or(0),
            file,
            start,
            synced_to: AtomicU64::new(start + synced),
            before: Mutex::new(before),
            is_named: AtomicBool::new(false),
        };
        Writer {
            segment: Arc::new(segment),
            place,
            gathered: Vec::new(),
            steps: Vec::new(),
        }
    }

    /// Writes all that was appended, and returns up to where that was.
    pub fn write(&mut self, binlog: &Binlog) -> Result<Lsn, Failed> {
        let fail = |error| binlog.fail(error);
        let empty = std::mem::take(&mut self.steps);
        let (mut steps, end) = binlog.tail().take(empty);
        for step in &steps {
            match step {
                Step::Write(record) => self.write_record(record, binlog).map_err(fail)?,
                Step::Begin(header, prepared) => {
                    self.flush_with_end(binlog).map_err(fail)?;
                    binlog.sync_written(self.lsn())?;
                    self.begin_segment(header, prepared, binlog).map_err(fail)?;
                }
            }
        }
        if !steps.is_empty() {
            self.flush_with_end(binlog).map_err(fail)?;
        }
        steps.clear();
        steps.shrink_to(MOST_STEPS_KEPT);
        self.steps = steps;
        debug_assert_eq!(end, self.lsn());
        Ok(end)
    }

    /// The LSN up to which all is written.
    fn lsn(&self) -> Lsn {
        Lsn(self.segment.start + self.place.offset)
    }

    /// The offset of the next record.
    fn end(&self) -> u64 {
        self.place.offset + self.gathered.len() as u64
    }

    fn write_record(&mut self, record: &Record, binlog: &Binlog) -> Result<(), Error> {
        let offset = self.end();
        let place = Place {
            offset,
            ..self.place
        };
        // The frame says how far the segment is synced at this moment.
        let segment = &self.segment;
        let synced = segment.synced_to.load(Ordering::Acquire) - segment.start;
        let body = record.encode(place, synced, &mut self.gathered);
        if body.len() >= UNCOPIED_BODY {
            return self.flush(body, binlog);
        }
        self.gathered.extend_from_slice(body);
        if self.gathered.len() >= GATHER {
            self.flush(&[], binlog)
        } else {
            Ok(())
        }
    }

    /// Writes what is gathered, and these bytes after it. A file system that copies on
    /// write needs room for that. On a full disk it gets that of prepared segments.
    fn flush(&mut self, body: &[u8], binlog: &Binlog) -> Result<(), Error> {
        let pieces = [&self.gathered, body].into_iter();
        for bytes in pieces.filter(|bytes| !bytes.is_empty()) {
            let write = || self.segment.file.write_at(bytes, self.place.offset);
            let written = once_there_is_room(write, || binlog.free_prepared());
            written.map_err(Error::on("write", segment_name(self.place.number)))?;
            self.place.offset += bytes.len() as u64;
        }
        self.gathered.clear();
        Ok(())
    }

    /// Flushes, and writes zeros after the last record: what follows may be left
    /// over from an earlier use of the file, and recovery would take that for a
    /// record which is torn. They go on to the end of the block, which is written as a whole:
    /// a flash file system compresses it, and the noise of a prepared segment would stay as
    /// long as it is.
    fn flush_with_end(&mut self, binlog: &Binlog) -> Result<(), Error> {
        let end = (self.end() + FRAME_LEN).next_multiple_of(BLOCK);
        let zeros = end.min(self.segment.file_len).saturating_sub(self.end());
        self.gathered
            .resize(self.gathered.len() + zeros as usize, 0);
        self.flush(&[], binlog)?;
        self.place.offset -= zeros;
        Ok(())
    }

    /// Continues in the next segment, after all records of this one are synced: the header is
    /// written into the prepared segment, and its file gets the segment's name. Both become
    /// durable with the first records. So a torn part is always at the end of the log: it is
    /// the end of the newest segment, or all of it. So a put waits for one sync here (for two
    /// where an earlier process has prepared the file).
    fn begin_segment(
        &mut self,
        header: &Header,
        prepared: &Prepared,
        binlog: &Binlog,
    ) -> Result<(), Error> {
        // XFS wants some 63 free blocks at once for a longer directory, and another program
        // may take each one that is given back: then a whole file has to go.
        let mut single_blocks = binlog.tail().may_lack();
        let free_prepared = || {
            let is_cut = single_blocks > 0 && binlog.free_block();
            single_blocks = single_blocks.saturating_sub(1);
            is_cut || binlog.free_prepared()
        };
        let prepared = if !binlog.storage.has(&prepared.name).unwrap_or(true) {
            // Another one takes its room.
            prepared.file.set_len(0).ok();
            let name = binlog.tail().upkeep.next_name();
            &prepare(&*binlog.storage, name, prepared.len, 0)?
        } else {
            prepared
        };
        let place = name_segment(&*binlog.storage, prepared, header, free_prepared)?;
        let before = (self.segment.file.clone(), self.place);
        *self = Writer::new(place, prepared.file.clone(), 0, self.lsn(), Some(before));
        *binlog.segment() = self.segment.clone();
        binlog.tail().upkeep.unnamed = Some(self.segment.clone());
        binlog.ask_for_upkeep();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::recovery::recover;
    use super::super::{Opened, lock, ready_job};
    use super::*;
    use crate::engine::{Change, StoredJob};
    use crate::protocol::JobId;
    use std::collections::BTreeMap;
    use std::thread;

    /// How long a test waits for an event that must come.
    const PATIENCE: Duration = Duration::from_secs(60);

    /// A log of short segments with one job.
    fn log(sync: SyncMode) -> (tempfile::TempDir, Arc<Binlog>, BTreeMap<JobId, StoredJob>) {
        let directory = tempfile::tempdir().unwrap();
        let job = ready_job(JobId(1), b"");
        let jobs = BTreeMap::from([(JobId(1), job)]);
        let (storage, _) = lock(directory.path(), false).unwrap();
        let opened = recover(storage, sync, BLOCK, &mut BTreeMap::new());
        let Opened { binlog, .. } = opened.unwrap();
        binlog.append(&[Change::Put(JobId(1))], &jobs);
        (directory, binlog, jobs)
    }

    fn synced_to(binlog: &Binlog) -> Lsn {
        Lsn(binlog.segment().synced_to.load(Ordering::Acquire))
    }

    /// Else clients would fall into two groups that take turns.
    #[test]
    fn the_next_sync_waits_for_all_clients_of_the_last_one_for_a_part_of_its_time() {
        let (ended, hour) = (Instant::now(), Duration::from_secs(3600));
        let mut gathering = Gathering {
            took: hour,
            ..Gathering::default()
        };
        let slow = |gathering: &mut Gathering, waiters| {
            gathering.begin(waiters, ended, ended + hour);
        };
        slow(&mut gathering, 3);
        assert!(!gathering.is_over(2) && gathering.is_over(3));
        assert!(gathering.is_over(0), "that was all");
        slow(&mut gathering, 1);
        assert!(gathering.is_over(0), "it may begin for itself");
        gathering.begin(3, ended, ended);
        assert!(gathering.is_over(0), "a fast disk waits for nobody");
        slow(&mut gathering, 3);
        let until = gathering.waits_for.map(|(_, until)| until);
        assert_eq!(
            until,
            Some(ended + hour),
            "a disk that hangs once adds nothing"
        );
    }

    #[test]
    fn clients_that_do_not_come_in_time_are_waited_for_more_and_more_rarely() {
        let (now, hour) = (Instant::now(), Duration::from_secs(3600));
        let mut gathering = Gathering {
            took: hour,
            ..Gathering::default()
        };
        let mut syncs_between = |comes: usize| {
            let mut syncs = 1;
            loop {
                gathering.begin(2, now, now + hour);
                let Some((_, until)) = &mut gathering.waits_for else {
                    syncs += 1;
                    continue;
                };
                *until = now;
                assert!(gathering.is_over(comes));
                return syncs;
            }
        };
        let late = [1; 7].map(&mut syncs_between);
        assert_eq!(late, [1, 2, 4, 8, 16, 32, 32]);
        assert_eq!([2, 2, 1, 1].map(syncs_between), [32, 1, 1, 2]);
    }

    /// With slow syncs, something is due after each of them.
    #[test]
    fn what_is_due_waits_with_the_others_for_the_clients_of_the_last_sync() {
        let (_directory, binlog, _) = log(SyncMode::Always);
        let (end, now) = (binlog.tail().end, Instant::now());
        let waiters = [(); 2].map(|()| Arc::new(CommitResult::default()));
        let mut queue = binlog.commit_queue.lock();
        queue.gathering.waits_for = Some((2, now + Duration::from_secs(3600)));
        queue.write_due = Some(now);
        drop(queue);
        for waiter in &waiters {
            binlog.commit_for_others().unwrap();
            assert!(binlog.known(end).is_none());
            binlog.commit_then(end, waiter.clone());
        }
        assert_eq!(
            waiters.map(|it| *it.up_to.lock().unwrap()),
            [Some(Ok(end)); 2]
        );
    }

    /// A disk may hang for minutes.
    #[test]
    fn the_committer_sleeps_while_another_thread_writes_and_then_writes_what_is_due() {
        let (_directory, binlog, _) = log(SyncMode::Every(Duration::from_millis(1)));
        let writer = binlog.commit_queue.lock().writer.take().unwrap();
        binlog.write_soon();
        binlog.spawn_threads(|_| ()).unwrap();
        let wakes_at = || binlog.commit_queue.lock().wakes_at(Instant::now());
        while wakes_at().is_some() {
            thread::yield_now();
        }
        binlog.write(writer).unwrap();
        while synced_to(&binlog) < binlog.tail().end {
            thread::yield_now();
        }
        binlog.close().unwrap();
    }

    /// Such as a timeout. If the process is killed, a job that fails again and again must
    /// not get more tries for that.
    #[test]
    fn a_change_that_no_client_waits_for_is_written_long_before_its_sync_is_due() {
        let (_directory, binlog, _) = log(SyncMode::Every(Duration::from_secs(3600)));
        binlog.spawn_threads(|_| ()).unwrap();
        let (end, since) = (binlog.tail().end, Instant::now());
        binlog.write_soon();
        while Lsn(binlog.durable.load(Ordering::Acquire)) < end {
            assert!(since.elapsed() < PATIENCE);
            thread::yield_now();
        }
        assert!(synced_to(&binlog) < end);
        binlog.close().unwrap();
    }

    #[test]
    fn nothing_is_written_if_nothing_was_appended_since_the_last_write() {
        let (_directory, binlog, _) = log(SyncMode::Always);
        let end = binlog.tail().end;
        binlog.commit(end).unwrap();
        let mut writer = binlog.commit_queue.lock().writer.take().unwrap();
        let offset = writer.place.offset;
        writer.segment.file.write_at(&[1], offset).unwrap();
        assert_eq!(writer.write(&binlog), Ok(end));
        let mut found = [0];
        writer.segment.file.read_at(&mut found, offset).unwrap();
        assert_eq!(found, [1]);
    }

    /// Also where the next sync is due by then, and nobody else has anything to write.
    #[test]
    fn a_change_that_comes_during_a_write_and_a_sync_waits_for_the_write_alone() {
        let (_directory, binlog, jobs) = log(SyncMode::Every(Duration::from_millis(1)));
        let put = || binlog.append(&[Change::Put(JobId(1))], &jobs);
        let sync = binlog.segment();
        binlog.spawn_threads(|_| ()).unwrap();
        let written = put();
        binlog.write_soon();
        while binlog.known(written).is_none() {
            thread::yield_now();
        }
        // The sync of this has begun, or is about to.
        binlog.write_soon();
        let waiter = Arc::new(CommitResult::default());
        let end = thread::scope(|threads| {
            let writer = loop {
                if let Some(writer) = binlog.commit_queue.lock().writer.take() {
                    break writer;
                }
                thread::yield_now();
            };
            put();
            let mut queue = binlog.commit_queue.lock();
            threads.spawn(|| binlog.write(writer).unwrap());
            let is_taken = |tail: &super::super::tail::Tail| {
                tail.put_durable_at(JobId(1), Lsn(u64::MAX)).is_none()
            };
            while !is_taken(&binlog.tail()) {
                thread::yield_now();
            }
            let end = put();
            queue.waiters.push((end, waiter.clone()));
            end
        });
        let is_missing = |up_to: &mut Option<_>| up_to.is_none();
        let up_to = waiter.up_to.lock().unwrap();
        let waited = waiter
            .changed
            .wait_timeout_while(up_to, PATIENCE, is_missing);
        assert_eq!(*waited.unwrap().0, Some(Ok(end)));
        drop(sync);
        binlog.close().unwrap();
    }

    /// A removed file that is open takes as much of the disk as before.
    #[test]
    fn the_segment_before_is_closed_when_the_next_one_is_synced() {
        let (_directory, binlog, jobs) = log(SyncMode::Always);
        let before = Arc::downgrade(&binlog.segment().file);
        while binlog.segment().number == 1 {
            binlog.append(&[Change::Put(JobId(1))], &jobs);
            let end = binlog.tail().end;
            binlog.commit(end).unwrap();
        }
        assert!(before.upgrade().is_none());
    }

    #[test]
    fn waiting_for_another_threads_write_does_not_swallow_an_earlier_wake_up() {
        let (_directory, binlog, _) = log(SyncMode::Never);
        let end = binlog.tail().end;
        let writer = binlog.commit_queue.lock().writer.take().unwrap();
        thread::scope(|threads| {
            let waits = threads.spawn(|| {
                thread::current().unpark();
                binlog.commit(end).unwrap();
                let since = Instant::now();
                thread::park_timeout(PATIENCE);
                since.elapsed()
            });
            while binlog.commit_queue.lock().waiters.is_empty() {
                thread::yield_now();
            }
            binlog.write(writer).unwrap();
            assert!(waits.join().unwrap() < PATIENCE);
        });
    }
}
