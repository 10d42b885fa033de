//! Group commit, and the writer.
//!
//! A thread that needs the log durable up to an LSN, and finds no other thread writing,
//! takes the [`Writer`] and so leads a group commit: it writes everything that any
//! thread has appended, syncs once, and notifies all waiters of that. A thread that
//! finds another one writing queues its [`Waiter`]. After the write, the committer (a
//! thread) writes for the waiters that came meanwhile, unless another thread takes the
//! writer first. The committer also writes and syncs in time what nobody waits for.
//!
//! | call | when it returns |
//! |---|---|
//! | [`commit`](Binlog::commit) | the log is durable up to there: synced with `Always`, else written |
//! | [`commit_then`](Binlog::commit_then) | at once if another thread is writing; that one [notifies](Waiter) |
//! | [`write_soon`](Binlog::write_soon) | at once; the committer writes and syncs in time |
//! | [`sync_up_to`](Binlog::sync_up_to) | it is written and synced, in every mode |
//!
//! - Syncs come one after the other. After the first failure nothing is durable any
//!   more, and nothing is tried again.
//! - With `Always`, the writer is free only when all waiters are notified.
//! - When something is due while another thread writes, the committer gets the writer
//!   next. It does not poll.
//! - On shared storage, a check of the directory's lock follows each write and sync:
//!   see `lease`.
//!
//! Why nothing simpler? With a mutex around writing and syncing, all threads
//! that come during a sync would sync one after the other. With a condition
//! variable on which all wait for the writing thread, each sync would wake all
//! of them, and most would learn that they have to wait for the next sync.

use super::error::{Error, is_full};
use super::files::{Prepared, name_segment};
use super::format::{
    FRAME_LEN, Frame, HEADER_LEN, Header, Place, Record, prepared_name, segment_name,
};
use super::lease::CHECK_EVERY;
use super::storage::File;
use super::tail::Step;
use super::{Binlog, Event, Failed, Lsn, SyncMode, locked};
use crate::lock::FairGuard;
use crate::sync::{Condvar, Instant, Mutex, MutexGuard, Ordering, thread};
use std::io;
use std::sync::Arc;
use std::time::Duration;

/// Changes that nobody waits for are written after this time, if no sync is due
/// before.
const WRITTEN_WITHIN: Duration = Duration::from_millis(50);

/// The writer, and the waiters for the next commits.
pub(super) struct CommitQueue {
    /// A thread that takes it out may write. `None` while a thread writes, and
    /// after a failure.
    writer: Option<Box<Writer>>,
    /// In the order in which they came, each with the LSN that it needs.
    waiters: Vec<(Lsn, Arc<dyn Waiter>)>,
    /// The committer gets the writer next: something is due, and another thread was
    /// writing.
    is_wanted: bool,
}

impl CommitQueue {
    pub fn new(writer: Writer) -> CommitQueue {
        CommitQueue {
            writer: Some(Box::new(writer)),
            waiters: Vec::new(),
            is_wanted: false,
        }
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

/// What the committer has to do.
#[derive(Default)]
pub(super) struct Schedule {
    /// When what was appended must be written, and what was written must be synced.
    due: Option<Instant>,
    /// There are waiters, and perhaps no thread is writing for them; or the writer that
    /// the committer wanted is free.
    has_waiters: bool,
    closing: bool,
    /// The committer has to be woken. While it is awake, it reads this schedule by
    /// itself before it sleeps.
    committer_sleeps: bool,
}

impl Binlog {
    /// Waits until what was appended up to `lsn` is durable: synced, or with
    /// `Every` and `Never`, written. Not to be called under the server's lock.
    ///
    /// No change may be acknowledged before this returns.
    pub fn commit(&self, lsn: Lsn) -> Result<(), Failed> {
        let told = Arc::new(CommitResult::default());
        self.commit_then(lsn, told.clone());
        // Not with `park`: this would use up a wake-up that is meant for what the
        // caller does next, such as that of a stop for the timer.
        let is_missing = |up_to: &mut Option<_>| up_to.is_none();
        let waited = told
            .changed
            .wait_while(locked(told.up_to.lock()), is_missing);
        locked(waited).expect("it is told").map(drop)
    }

    /// Like [`commit`](Self::commit), without waiting for another thread's
    /// write. `waits` is notified of the result, by this thread or by the thread that
    /// writes.
    pub fn commit_then(&self, lsn: Lsn, waits: Arc<dyn Waiter>) {
        let known = self.known(lsn).or_else(|| {
            let mut queue = self.commit_queue();
            let known = self.known(lsn);
            if known.is_none() {
                queue.waiters.push((lsn, waits.clone()));
                let is_free = !queue.is_wanted;
                let writer = queue.writer.take_if(|_| is_free);
                drop(queue);
                if let Some(writer) = writer {
                    // This caller is notified like the others.
                    let (Ok(()) | Err(Failed)) = self.write(writer);
                }
            }
            known
        });
        if let Some(up_to) = known {
            waits.durable(up_to);
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

    /// Writes all that was appended (and syncs it, with `Always`), and notifies all
    /// waiters whose records were among it.
    fn write(&self, mut writer: Box<Writer>) -> Result<(), Failed> {
        let end = self.write_and_sync(&mut writer)?;
        let mut queue = self.commit_queue();
        self.durable.store(end.0, Ordering::Release);
        let done = queue.waiters.extract_if(.., |(lsn, _)| *lsn <= end);
        let mut done: Vec<_> = done.collect();
        // A sync that failed in another thread may have lost what was written here.
        let kept = || match self.failure.get() {
            None => Ok(end),
            Some(_) => Err(Failed),
        };
        let tell = |done: Vec<(Lsn, Arc<dyn Waiter>)>| {
            done.iter().for_each(|(_, waits)| waits.durable(kept()));
        };
        // A client that gets its reply sends its next command at once. If the first of
        // these could take the writer, it would have a sync for itself, and all
        // others the next one. So with `Always`, the writer is free when all waiters
        // are notified.
        if self.sync == SyncMode::Always {
            drop(queue);
            tell(std::mem::take(&mut done));
            queue = self.commit_queue();
        }
        queue.writer = Some(writer);
        let is_wanted = queue.is_wanted || !queue.waiters.is_empty();
        drop(queue);
        if is_wanted {
            // The committer writes for the waiters that came meanwhile, unless another
            // thread takes the writer first.
            self.ask_committer(|schedule| schedule.has_waiters = true);
        }
        tell(done);
        self.ask_for_upkeep();
        kept().map(drop)
    }

    /// Writes, syncs, checks that the directory is still ours, in this order, and
    /// returns up to where. Each reply waits for this.
    fn write_and_sync(&self, writer: &mut Writer) -> Result<Lsn, Failed> {
        let end = writer.write(self)?;
        if self.sync == SyncMode::Always {
            self.sync_written()?;
        }
        self.check_lock().map_err(|error| self.fail(error))?;
        Ok(end)
    }

    /// Makes sure that what was appended is written soon (and synced, except with
    /// `Never`), although nobody waits for it. Not to be called under the server's lock.
    pub fn write_soon(&self) {
        self.ask_committer(|schedule| {
            // What was appended before it begins to write is written then.
            if schedule.due.is_none() {
                let delay = match self.sync {
                    // The sync must have ended when `span` is over.
                    SyncMode::Every(span) => span * 3 / 4,
                    SyncMode::Always | SyncMode::Never => WRITTEN_WITHIN,
                };
                schedule.due = Instant::now().checked_add(delay);
            }
        });
    }

    fn ask_committer(&self, ask: impl FnOnce(&mut Schedule)) {
        let mut schedule = self.schedule();
        let before = schedule.due;
        ask(&mut schedule);
        if schedule.committer_sleeps && (schedule.has_waiters || schedule.due != before) {
            self.scheduled.notify_one();
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
        self.schedule().closing = true;
        self.scheduled.notify_one();
        self.end_upkeep(true);
        closed
    }

    /// Writes and syncs what was appended up to `lsn`, in every mode.
    pub(super) fn sync_up_to(&self, lsn: Lsn) -> Result<(), Failed> {
        self.commit(lsn)?;
        if self.progress().synced_to >= lsn {
            return Ok(());
        }
        self.sync_written()
    }

    /// Syncs what is written. Other threads may write meanwhile.
    pub(super) fn sync_written(&self) -> Result<(), Failed> {
        let progress = self.progress().clone();
        if progress.synced_to >= progress.written_to {
            return Ok(());
        }
        self.sync_segment(&*progress.file, progress.number)?;
        let mut now = self.progress();
        now.synced_to = now.synced_to.max(progress.written_to);
        if now.number == progress.number {
            now.synced = now.synced.max(progress.written);
        }
        Ok(())
    }

    /// Syncs the file of a segment, once no other thread does.
    ///
    /// The system tells of a failed sync once, to one thread. The pages that it
    /// could not write count as clean from then on, so the next sync succeeds
    /// and says nothing about them. Therefore no thread syncs beside another,
    /// and after a failure no thread syncs at all.
    pub(super) fn sync_segment(&self, file: &dyn File, number: u32) -> Result<(), Failed> {
        let syncing = locked(self.syncing.lock());
        if self.failure.get().is_some() {
            return Err(Failed);
        }
        let Err(error) = file.sync() else {
            return Ok(());
        };
        let error = Error::on("sync", segment_name(number))(error);
        self.failure.get_or_init(|| error);
        drop(syncing);
        Err(self.notify_failure())
    }

    /// Notes a failure: from now on nothing is acknowledged.
    pub(super) fn fail(&self, error: Error) -> Failed {
        // Only the first failure is kept: later ones follow from it and would
        // mislead.
        self.failure.get_or_init(|| error);
        self.notify_failure()
    }

    /// Notifies the waiters and the binlog's threads that the binlog failed.
    fn notify_failure(&self) -> Failed {
        let waiters = std::mem::take(&mut self.commit_queue().waiters);
        let tell = |(_, waits): (_, Arc<dyn Waiter>)| waits.durable(Err(Failed));
        waiters.into_iter().for_each(tell);
        // Notified under the threads' lock. Otherwise a thread could check for
        // a failure, find none, and then sleep through the notification.
        let schedule = self.schedule();
        self.scheduled.notify_one();
        drop(schedule);
        self.end_upkeep(false);
        Failed
    }

    fn commit_queue(&self) -> FairGuard<'_, CommitQueue> {
        self.commit_queue.lock()
    }

    fn schedule(&self) -> MutexGuard<'_, Schedule> {
        locked(self.schedule.lock())
    }

    /// Starts the binlog's threads: the committer, and the owner of the files. They end
    /// after [`close`](Self::close), or after a failure.
    ///
    /// `tell` is called on these threads.
    pub fn spawn_threads(
        self: &Arc<Self>,
        tell: impl FnMut(Event<'_>) + Clone + Send + 'static,
    ) -> io::Result<()> {
        let (binlog, told) = (self.clone(), tell.clone());
        let committer = thread::Builder::new().name("committer".to_owned());
        committer.spawn(move || binlog.commit_until_closed(told))?;
        self.spawn_owner(tell)
    }

    fn commit_until_closed(&self, mut tell: impl FnMut(Event<'_>)) {
        let mut is_due = false;
        while self.wait_for_commits() && self.commit_for_others(&mut is_due).is_ok() {}
        if let Some(error) = self.failure.get() {
            tell(Event::Failed(error));
        }
    }

    /// Waits until there is something to commit, or until it is time to check that the
    /// directory is still ours. Returns false when the thread has to
    /// end.
    fn wait_for_commits(&self) -> bool {
        let longest = self.lease.as_ref().map_or(Duration::MAX, |_| CHECK_EVERY);
        let mut schedule = self.schedule();
        loop {
            if schedule.closing || self.failure.get().is_some() {
                return false;
            }
            let now = Instant::now();
            if schedule.has_waiters || schedule.due.is_some_and(|due| due <= now) {
                return true;
            }
            let until_due = schedule.due.map_or(Duration::MAX, |due| due - now);
            let span = until_due.min(longest);
            schedule.committer_sleeps = true;
            let (woken, waited) = locked(self.scheduled.wait_timeout(schedule, span));
            schedule = woken;
            schedule.committer_sleeps = false;
            if waited.timed_out() {
                return true;
            }
        }
    }

    /// One round of the work of both threads, for tests that start none.
    pub fn work_once(&self) -> Result<(), Failed> {
        self.commit_for_others(&mut false)?;
        self.flush_and_recycle()
    }

    /// Writes for the waiters, and writes and syncs what is due. If another thread has
    /// the writer, this does not wait for it: that thread writes for the waiters, and
    /// leaves what is due to the next call. If this call does not write, it checks that
    /// the directory is still ours.
    fn commit_for_others(&self, is_due: &mut bool) -> Result<(), Failed> {
        let mut schedule = self.schedule();
        let now = Instant::now();
        *is_due |= schedule.due.take_if(|due| *due <= now).is_some();
        schedule.has_waiters = false;
        drop(schedule);
        let mut queue = self.commit_queue();
        let has_work = *is_due || !queue.waiters.is_empty();
        let writer = queue.writer.take_if(|_| has_work);
        queue.is_wanted = *is_due && writer.is_none();
        drop(queue);
        let Some(writer) = writer else {
            return self.check_lock().map_err(|error| self.fail(error));
        };
        self.write(writer)?;
        match (std::mem::take(is_due), self.sync) {
            (true, SyncMode::Every(_)) => self.sync_written(),
            _ => Ok(()),
        }
    }
}

// The writer.

/// Gathered bytes are written when there are this many.
const GATHER: usize = 256 << 10;
/// A body of this length or more is written without being copied.
const UNCOPIED_BODY: usize = 64 << 10;

/// Holds the current segment's file and the offset of the next byte.
pub(super) struct Writer {
    number: u32,
    salt: u32,
    file: Arc<dyn File>,
    /// The length of the file when this writer began to write it.
    file_len: u64,
    /// Where the next written byte goes.
    offset: u64,
    /// Encoded bytes that are not written yet; they belong at `offset`.
    gathered: Vec<u8>,
    /// Up to where the segment was synced when the present batch began.
    synced: u64,
    /// An empty vector with capacity, to be exchanged for the steps in the
    /// tail.
    steps: Vec<Step>,
}

/// The capacity that stays when a batch was larger.
const MOST_STEPS_KEPT: usize = 4096;

/// How far the current segment's file is written and synced.
#[derive(Clone)]
pub(super) struct Progress {
    pub number: u32,
    pub file: Arc<dyn File>,
    /// Up to where it is written: the offset in the file, and the LSN in
    /// the binlog.
    pub written: u64,
    pub written_to: Lsn,
    /// Up to where it is synced, in the same way.
    pub synced: u64,
    pub synced_to: Lsn,
}

impl Writer {
    /// A writer that continues at `offset` in a segment that is synced up to
    /// there.
    pub fn new(number: u32, salt: u32, file: Arc<dyn File>, offset: u64) -> Writer {
        Writer {
            number,
            salt,
            file_len: file.len().unwrap_or(0),
            file,
            offset,
            gathered: Vec::new(),
            synced: offset,
            steps: Vec::new(),
        }
    }

    /// Where in the segment the next byte goes.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// The progress of a binlog that is written and synced up to this writer's
    /// offset, which is `lsn`.
    pub fn progress(&self, lsn: Lsn) -> Progress {
        Progress {
            number: self.number,
            file: self.file.clone(),
            written: self.offset,
            written_to: lsn,
            synced: self.offset,
            synced_to: lsn,
        }
    }

    /// Writes all that was appended, and returns up to where that was.
    pub fn write(&mut self, binlog: &Binlog) -> Result<Lsn, Failed> {
        let fail = |error| binlog.fail(error);
        let empty = std::mem::take(&mut self.steps);
        let (mut steps, end) = binlog.tail().take(empty);
        // Each frame written now says how far the segment is synced at this
        // moment.
        self.synced = binlog.progress().synced;
        let mut lsn = binlog.progress().written_to;
        for step in &steps {
            match step {
                Step::Write(record) => {
                    self.write_record(record, binlog).map_err(fail)?;
                    lsn.0 += record.len();
                }
                Step::Begin(header, prepared) => {
                    self.flush_with_end(binlog).map_err(fail)?;
                    binlog.sync_segment(&*self.file, self.number)?;
                    let begun = self.begin_segment(header, prepared, lsn, binlog);
                    begun.map_err(fail)?;
                    lsn.0 += HEADER_LEN;
                }
            }
        }
        self.flush_with_end(binlog).map_err(fail)?;
        debug_assert_eq!(lsn, end);
        steps.clear();
        steps.shrink_to(MOST_STEPS_KEPT);
        self.steps = steps;
        let mut progress = binlog.progress();
        progress.written = self.offset;
        progress.written_to = end;
        Ok(end)
    }

    /// Where the next record goes.
    fn end(&self) -> u64 {
        self.offset + self.gathered.len() as u64
    }

    fn place(&self, offset: u64) -> Place {
        Place {
            number: self.number,
            salt: self.salt,
            offset,
        }
    }

    fn write_record(&mut self, record: &Record, binlog: &Binlog) -> Result<(), Error> {
        let place = self.place(self.end());
        let body = record.encode(place, self.synced, &mut self.gathered);
        if body.len() < UNCOPIED_BODY {
            self.gathered.extend_from_slice(body);
        } else {
            self.flush(binlog)?;
            self.write_bytes(body, binlog)?;
        }
        if self.gathered.len() >= GATHER {
            self.flush(binlog)?;
        }
        Ok(())
    }

    fn flush(&mut self, binlog: &Binlog) -> Result<(), Error> {
        let mut gathered = std::mem::take(&mut self.gathered);
        self.write_bytes(&gathered, binlog)?;
        gathered.clear();
        self.gathered = gathered;
        Ok(())
    }

    /// Flushes, and writes zeros after the last record: what follows may be left
    /// over from an earlier use of the file, and a start would take that for a
    /// record which is torn.
    fn flush_with_end(&mut self, binlog: &Binlog) -> Result<(), Error> {
        let zeros = FRAME_LEN.min(self.file_len.saturating_sub(self.end()));
        self.gathered
            .resize(self.gathered.len() + zeros as usize, 0);
        self.flush(binlog)?;
        self.offset -= zeros;
        Ok(())
    }

    /// Writes these bytes after the previous ones.
    fn write_bytes(&mut self, bytes: &[u8], binlog: &Binlog) -> Result<(), Error> {
        let mut written = self.file.write_at(bytes, self.offset);
        // The segment has become longer than its file, and the disk is full.
        while written.as_ref().is_err_and(is_full) && binlog.free_prepared() {
            written = self.file.write_at(bytes, self.offset);
        }
        written.map_err(Error::on("write", segment_name(self.number)))?;
        self.offset += bytes.len() as u64;
        Ok(())
    }

    /// Continues in the next segment, after all records of this one are synced, in this
    /// order: the header is written into the prepared segment and synced; its file gets
    /// the segment's name, and that is synced. Only then records are written to it. So a
    /// segment of that name always has its header, and a torn part is always at the end
    /// of the newest segment. Last, a frame in the segment before says
    /// that another one has begun, so it never says so too early.
    fn begin_segment(
        &mut self,
        header: &Header,
        prepared: &Prepared,
        lsn: Lsn,
        binlog: &Binlog,
    ) -> Result<(), Error> {
        let name = prepared_name(prepared.slot);
        let file = prepared.file.clone();
        let free_prepared = || binlog.free_prepared();
        let salt = name_segment(&*binlog.storage, (&name, &*file), header, free_prepared)?;
        // Nothing relies on this, so it may fail.
        let end = self.place(self.offset);
        self.file.write_at(&Frame::continued(end), self.offset).ok();
        self.number = header.number;
        self.salt = salt;
        self.file_len = file.len().unwrap_or(0);
        self.file = file;
        self.offset = HEADER_LEN;
        self.synced = HEADER_LEN;
        let mut begun = self.progress(lsn);
        begun.written_to.0 += HEADER_LEN;
        begun.synced_to.0 += HEADER_LEN;
        *binlog.progress() = begun;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::tail::BLOCK;
    use super::super::{Opened, Options};
    use super::*;
    use crate::engine::{Change, Counters, StoredJob, StoredState, Time};
    use crate::protocol::{Body, JobId, Priority, Seconds, TubeName};
    use std::collections::BTreeMap;
    use std::thread;

    /// How long a test waits for an event that must come.
    const PATIENCE: Duration = Duration::from_secs(60);

    /// A log of short segments with one job.
    fn log(sync: SyncMode) -> (tempfile::TempDir, Arc<Binlog>, BTreeMap<JobId, StoredJob>) {
        let directory = tempfile::tempdir().unwrap();
        let options = Options {
            dir: directory.path().into(),
            sync,
            segment_size: BLOCK,
            wait: false,
        };
        let job = StoredJob {
            id: JobId(1),
            tube: TubeName::parse(b"mail").unwrap(),
            body: Body::new(b""),
            priority: Priority(0),
            delay: Seconds(0),
            ttr: Seconds(60),
            created_at: Time::default(),
            state: StoredState::Ready,
            counters: Counters::default(),
            options: None,
        };
        let jobs = BTreeMap::from([(job.id, job)]);
        let Opened { binlog, .. } = Binlog::open(&options, BTreeMap::new()).unwrap();
        binlog.append(&[Change::Put(JobId(1))], &jobs);
        (directory, binlog, jobs)
    }

    /// A disk may hang for minutes.
    #[test]
    fn the_committer_sleeps_while_another_thread_writes_and_then_syncs_what_is_due() {
        let (_directory, binlog, _) = log(SyncMode::Every(Duration::from_millis(1)));
        let writer = binlog.commit_queue().writer.take().unwrap();
        binlog.write_soon();
        binlog.spawn_threads(|_| ()).unwrap();
        let sleeps = || binlog.commit_queue().is_wanted && binlog.schedule().committer_sleeps;
        while !sleeps() {
            thread::yield_now();
        }
        assert_eq!(binlog.schedule().due, None, "it would wake again for that");
        binlog.write(writer).unwrap();
        while binlog.progress().synced_to < binlog.tail().end {
            thread::yield_now();
        }
        binlog.close().unwrap();
    }

    #[test]
    fn waiting_for_another_threads_write_does_not_swallow_an_earlier_wake_up() {
        let (_directory, binlog, _) = log(SyncMode::Never);
        let end = binlog.tail().end;
        let writer = binlog.commit_queue().writer.take().unwrap();
        thread::scope(|threads| {
            let waits = threads.spawn(|| {
                thread::current().unpark();
                binlog.commit(end).unwrap();
                let since = Instant::now();
                thread::park_timeout(PATIENCE);
                since.elapsed()
            });
            while binlog.commit_queue().waiters.is_empty() {
                thread::yield_now();
            }
            binlog.write(writer).unwrap();
            assert!(waits.join().unwrap() < PATIENCE);
        });
    }
}
