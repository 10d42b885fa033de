//! Group commit: if no other thread is writing, a thread writes for all that
//! wait. Also the committer and the thread `segments`, which do in time what no
//! other thread does.
//!
//! | call | when it returns |
//! |---|---|
//! | [`commit`](Binlog::commit) | what was appended is kept: written, and synced with `Always` |
//! | [`settle`](Binlog::settle) | it is written and synced, whatever the options say |
//! | [`relieve`](Binlog::relieve) | it is kept, and spares are made of what it has retired |
//! | [`look`](Binlog::look) | the directory was ours a moment ago; everywhere but on shared storage, at once |
//! | [`confirm`](Binlog::confirm) | the last such look is young enough for a reply |
//!
//! Why nothing simpler? With a mutex around writing and syncing, all threads
//! that come during a sync would sync one after the other. With a condition
//! variable on which all wait for the writing thread, each sync would wake all
//! of them, and most would learn that they have to wait for the next sync. Here
//! no thread is woken before its change is kept.

use super::error::Error;
use super::frame::segment_name;
use super::room::{BLOCK, UNWRITTEN_PART};
use super::storage::File;
use super::writer::Writer;
use super::{Binlog, Event, Failed, Lsn, Moment, SyncMode, locked};
use crate::lock::FairGuard;
use crate::sync::{Condvar, Instant, Mutex, MutexGuard, Ordering, thread};
use std::io;
use std::sync::Arc;
use std::time::Duration;

/// Changes that nobody waits for are written after this time, if no sync is due
/// before.
const WRITTEN_WITHIN: Duration = Duration::from_millis(50);

/// If another thread is writing when a sync is due, the committer tries again
/// after this time.
const RETRY_AFTER: Duration = Duration::from_millis(1);

/// How often a server that has nothing to write looks whether the directory is
/// still its own, if another machine could take it over. Without this,
/// clients could wait in `reserve` for ever, at a server that gets no jobs any
/// more.
const LOOKS_EVERY: Duration = Duration::from_secs(2);

/// The writer, and those who wait until what they appended is kept.
pub(super) struct Turn {
    /// A thread that takes it out may write. `None` while a thread writes, and
    /// after a failure.
    writer: Option<Box<Writer>>,
    /// Those who wait, in the order in which they came.
    waiters: Vec<Waiter>,
}

impl Turn {
    pub fn new(writer: Writer) -> Turn {
        Turn {
            writer: Some(Box::new(writer)),
            waiters: Vec::new(),
        }
    }
}

struct Waiter {
    lsn: Lsn,
    then: Box<dyn FnOnce(Result<(), Failed>) + Send>,
}

/// What the threads of the binlog have to do.
#[derive(Default)]
pub(super) struct Schedule {
    /// When what was appended must be written, and what was written must be
    /// synced.
    due: Option<Instant>,
    /// Somebody waits, and perhaps no thread is writing for them.
    has_waiters: bool,
    /// There are spares to make, or retired segments to remove.
    upkeep: bool,
    closing: bool,
    /// The committer has to be woken. While it is awake, it looks here by itself
    /// before it sleeps.
    committer_sleeps: bool,
}

impl Binlog {
    /// Waits until what was appended up to `lsn` is kept: synced, or with
    /// `Every` and `Never`, written. Not to be called under the server's lock.
    ///
    /// No change may be acknowledged before this returns.
    pub fn commit(&self, lsn: Lsn) -> Result<(), Failed> {
        if let Some(kept) = self.commit_if_free(lsn) {
            return kept;
        }
        // Not with `park`: this would use up a wake-up that is meant for what the
        // caller does next, such as that of a stop for the timer.
        let outcome = Arc::new((Mutex::new(None), Condvar::new()));
        let told = Arc::clone(&outcome);
        self.commit_then(lsn, move |kept| {
            *locked(told.0.lock()) = Some(kept);
            told.1.notify_one();
        });
        let (kept, is_told) = &*outcome;
        let kept = is_told.wait_while(locked(kept.lock()), |kept| kept.is_none());
        locked(kept).expect("it is told")
    }

    /// Like [`commit`](Self::commit), unless another thread is writing: then it
    /// returns `None` at once.
    pub fn commit_if_free(&self, lsn: Lsn) -> Option<Result<(), Failed>> {
        // After a failure nothing is acknowledged any more, not even what was
        // written before it: a failed sync may have lost it.
        if self.failure.get().is_some() {
            return Some(Err(Failed));
        }
        if self.reached.load(Ordering::Acquire) >= lsn.0 {
            return Some(Ok(()));
        }
        let mut turn = self.turn();
        let writer = turn.writer.take()?;
        drop(turn);
        Some(self.write_and_make_room(writer))
    }

    /// Like [`commit`](Self::commit), without waiting for another thread's
    /// write. `then` is called when the result is known, by this thread or by
    /// the thread that writes. It must not block, because others wait for that
    /// thread. Before it is called, the replies are [confirmed](Self::confirm);
    /// it may send them.
    pub fn commit_then(&self, lsn: Lsn, then: impl FnOnce(Result<(), Failed>) + Send + 'static) {
        let mut turn = self.turn();
        if self.failure.get().is_some() {
            drop(turn);
            return then(Err(Failed));
        }
        if self.reached.load(Ordering::Acquire) >= lsn.0 {
            drop(turn);
            return then(self.confirm(self.moment()));
        }
        let then = Box::new(then);
        turn.waiters.push(Waiter { lsn, then });
        let writer = turn.writer.take();
        drop(turn);
        if let Some(writer) = writer {
            // Those who wait get the result through `then`, this caller
            // included.
            let (Ok(()) | Err(Failed)) = self.write_and_make_room(writer);
        }
    }

    /// Writes as [`write`](Self::write) does. On a full disk, and with little
    /// room left, the same thread makes room at once.
    fn write_and_make_room(&self, writer: Box<Writer>) -> Result<(), Failed> {
        let kept = self.write(writer);
        let tail = self.tail();
        if !tail.needs_upkeep() {
            return kept;
        }
        let is_urgent = tail.no_room.is_some() || tail.lacks_room();
        drop(tail);
        match is_urgent {
            true => kept.and_then(|()| self.keep_files()),
            false => {
                self.wake_for_upkeep();
                kept
            }
        }
    }

    /// Writes all that was appended (and syncs it, with `Always`), and calls
    /// `then` of all whose records were among it.
    fn write(&self, mut writer: Box<Writer>) -> Result<(), Failed> {
        let begun = self.moment();
        let end = self.write_and_sync(&mut writer)?;
        let mut turn = self.turn();
        self.reached.store(end.0, Ordering::Release);
        let done = turn.waiters.extract_if(.., |waiter| waiter.lsn <= end);
        let mut done: Vec<Waiter> = done.collect();
        let mut kept = Ok(());
        let mut tell = |done: Vec<Waiter>| {
            // A sync that failed in another thread may have lost what was
            // written here.
            if self.failure.get().is_some() {
                kept = Err(Failed);
            }
            // A thread that stood still since its look has to look again.
            let confirmed = |()| self.confirm(begun);
            done.into_iter()
                .for_each(|waiter| (waiter.then)(kept.and_then(confirmed)));
        };
        // A client that is told sends its next command at once. If the first of
        // these could take the writer, it would have a sync for itself, and all
        // others the next one. So with `Always`, the writer is free when all are
        // told.
        if self.sync == SyncMode::Always {
            drop(turn);
            tell(std::mem::take(&mut done));
            turn = self.turn();
        }
        turn.writer = Some(writer);
        let are_left = !turn.waiters.is_empty();
        drop(turn);
        if are_left {
            // They came meanwhile. The committer writes for them, unless another
            // thread takes the writer first. This thread's own reply does not
            // wait for that.
            let mut schedule = self.schedule();
            schedule.has_waiters = true;
            if schedule.committer_sleeps {
                self.scheduled.notify_one();
            }
        }
        tell(done);
        // If `pending` is set, the committer has a time to do this, and asks the
        // same question when it has done it.
        if let SyncMode::Every(_) = self.sync
            && !self.pending.load(Ordering::Acquire)
            && self.is_behind()
        {
            self.write_soon();
        }
        kept
    }

    /// Writes, syncs, looks whether the directory is still ours, in this order,
    /// and returns up to where. Each reply waits for this.
    fn write_and_sync(&self, writer: &mut Writer) -> Result<Lsn, Failed> {
        let end = writer.write(self)?;
        if self.sync == SyncMode::Always {
            self.sync_written()?;
        }
        self.look().map_err(|error| self.fail(error))?;
        Ok(end)
    }

    /// Makes sure that what was appended is written soon (and synced, except
    /// with `Never`), although nobody waits for it. Not to be called under the
    /// server's lock.
    pub fn write_soon(&self) {
        if !self.pending.swap(true, Ordering::AcqRel) {
            self.write_soon_after(Instant::now());
        }
    }

    /// Has the committer write, and sync, what came after this time.
    fn write_soon_after(&self, time: Instant) {
        let delay = match self.sync {
            // The sync must have ended when `span` is over.
            SyncMode::Every(span) => span * 3 / 4,
            SyncMode::Always | SyncMode::Never => WRITTEN_WITHIN,
        };
        self.schedule().due = time.checked_add(delay);
        self.scheduled.notify_one();
    }

    /// Whether more might soon be appended than there is room for on a full disk.
    /// Then call [`relieve`](Self::relieve) before that. May be called under the
    /// server's lock.
    pub fn is_pressed(&self) -> bool {
        let end = self.end.load(Ordering::Acquire);
        let unwritten = end.saturating_sub(self.reached.load(Ordering::Acquire));
        // The tail says the same of so few bytes, but then it has to be locked.
        let may_press = unwritten > BLOCK / UNWRITTEN_PART;
        may_press && self.failure.get().is_none() && self.tail().is_pressed(unwritten)
    }

    /// Writes all that was appended, and makes spares of the segments that this
    /// has retired. Not to be called under the server's lock.
    pub fn relieve(&self) -> Result<(), Failed> {
        let end = self.tail().end;
        self.commit(end)?;
        self.keep_files()
    }

    /// Whether the committer still has something to write or to sync.
    fn is_behind(&self) -> bool {
        let end = self.tail().end;
        let progress = self.progress();
        match self.sync {
            SyncMode::Every(_) => progress.synced_to < end,
            SyncMode::Always | SyncMode::Never => progress.written_to < end,
        }
    }

    /// Writes and syncs everything that was appended, and ends the binlog's
    /// threads.
    pub fn close(&self) -> Result<(), Failed> {
        // First without the mark: then the mark can say that all before it was
        // synced, and what is unreadable there later is damage, not a torn tail.
        let end = self.tail().end;
        self.settle(end)?;
        let end = self.tail().mark_end();
        let closed = self.settle(end);
        self.schedule().closing = true;
        self.scheduled.notify_one();
        self.upkeep_wanted.notify_one();
        closed
    }

    /// Writes and syncs what was appended up to `lsn`, whatever the
    /// options say.
    pub(super) fn settle(&self, lsn: Lsn) -> Result<(), Failed> {
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
        Err(self.tell_failure())
    }

    /// Notes a failure: from now on nothing is acknowledged.
    pub(super) fn fail(&self, error: Error) -> Failed {
        // Only the first failure is kept: later ones follow from it and would
        // mislead.
        self.failure.get_or_init(|| error);
        self.tell_failure()
    }

    /// Tells those who wait, and the binlog's threads, that the binlog failed.
    fn tell_failure(&self) -> Failed {
        let waiters = std::mem::take(&mut self.turn().waiters);
        let tell = |waiter: Waiter| (waiter.then)(Err(Failed));
        waiters.into_iter().for_each(tell);
        // Notified under the threads' lock. Otherwise a thread could check for
        // a failure, find none, and then sleep through the notification.
        let schedule = self.schedule();
        self.scheduled.notify_one();
        self.upkeep_wanted.notify_one();
        drop(schedule);
        Failed
    }

    /// Whether the directory is still ours.
    pub(super) fn look(&self) -> Result<(), Error> {
        let Some(lease) = &self.lease else {
            return Ok(());
        };
        let began = Moment(self.storage.now());
        self.storage.look().map_err(Error::Lost)?;
        lease.renew(began);
        Ok(())
    }

    /// This moment, for [`confirm`](Self::confirm) and
    /// [`may_tell`](Self::may_tell); `None` where no other machine can take the
    /// directory over.
    pub fn moment(&self) -> Option<Moment> {
        self.lease.as_ref().map(|_| Moment(self.storage.now()))
    }

    /// Whether replies that were made at this moment may be sent now, without a
    /// look. Call it right before they are sent.
    pub fn may_tell(&self, made: Option<Moment>) -> bool {
        let (Some(lease), Some(made)) = (&self.lease, made) else {
            return true;
        };
        self.failure.get().is_none() && lease.covers(made, Moment(self.storage.now()))
    }

    /// Makes sure that replies that were made at this moment may be sent now:
    /// looks whether the directory is still ours, if the last look is too long
    /// ago. Nothing may be told of jobs after an error. Call it right before they
    /// are sent, and not under the server's lock.
    pub fn confirm(&self, made: Option<Moment>) -> Result<(), Failed> {
        while !self.may_tell(made) {
            let lease = self.lease.as_ref().expect("without it all may be told");
            let looking = locked(lease.looking.lock());
            if self.failure.get().is_some() {
                return Err(Failed);
            }
            if self.may_tell(made) {
                break;
            }
            let looked = self.look();
            drop(looking);
            looked.map_err(|error| self.fail(error))?;
        }
        Ok(())
    }

    fn turn(&self) -> FairGuard<'_, Turn> {
        self.turn.lock()
    }

    fn schedule(&self) -> MutexGuard<'_, Schedule> {
        locked(self.schedule.lock())
    }

    /// Wakes the thread `segments`.
    pub(super) fn wake_for_upkeep(&self) {
        let mut schedule = self.schedule();
        if !std::mem::replace(&mut schedule.upkeep, true) {
            self.upkeep_wanted.notify_one();
        }
    }

    /// Starts the binlog's threads. The committer writes and syncs. `segments`
    /// makes and removes files, which takes longer. They end after
    /// [`close`](Self::close), or after a failure.
    ///
    /// `tell` is called on these threads.
    pub fn spawn_threads(
        self: &Arc<Self>,
        tell: impl FnMut(Event<'_>) + Clone + Send + 'static,
    ) -> io::Result<()> {
        let (binlog, told) = (self.clone(), tell.clone());
        let committer = thread::Builder::new().name("committer".to_owned());
        committer.spawn(move || binlog.commit_until_closed(told))?;
        let binlog = self.clone();
        // The recovery may have left work for it.
        self.wake_for_upkeep();
        let segments = thread::Builder::new().name("segments".to_owned());
        segments.spawn(move || binlog.keep_files_until_closed(tell))?;
        Ok(())
    }

    fn commit_until_closed(&self, mut tell: impl FnMut(Event<'_>)) {
        while self.wait_for_commits() {
            if self.commit_for_others().is_err() {
                break;
            }
        }
        if let Some(error) = self.failure.get() {
            tell(Event::Failed(error));
        }
    }

    fn keep_files_until_closed(&self, mut tell: impl FnMut(Event<'_>)) {
        let mut told = None;
        while self.wait_for_upkeep() {
            if self.relieve().is_err() {
                break;
            }
            let stay = std::mem::take(&mut self.tail().not_removed);
            stay.iter().for_each(|error| tell(Event::Stays(error)));
            let no_room = self.tail().no_room.clone();
            // A full disk may become a broken one.
            let why = no_room.as_ref().map(|error| error.kind());
            match &no_room {
                _ if why == told => {}
                Some(error) => tell(Event::NoRoom(error)),
                None => tell(Event::Room),
            }
            told = why;
        }
    }

    /// Waits until there is something to commit, or until it is time to look
    /// whether the directory is still ours. Returns false when the thread has to
    /// end.
    fn wait_for_commits(&self) -> bool {
        let longest = match self.storage.is_shared() {
            true => LOOKS_EVERY,
            false => Duration::MAX,
        };
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

    /// Waits until there is something to do about segments. Returns false when
    /// the thread has to end.
    fn wait_for_upkeep(&self) -> bool {
        let mut schedule = self.schedule();
        loop {
            if schedule.closing || self.failure.get().is_some() {
                return false;
            }
            if std::mem::take(&mut schedule.upkeep) {
                return true;
            }
            schedule = locked(self.upkeep_wanted.wait(schedule));
        }
    }

    /// One round of the work of both threads, for tests that start none.
    pub fn work_once(&self) -> Result<(), Failed> {
        self.commit_for_others()?;
        self.relieve()
    }

    /// Writes for those who wait, and writes and syncs what is due. If another
    /// thread has the writer, this does not wait for it: that thread writes for
    /// those who wait, and what is due is tried again. Who does not write looks
    /// whether the directory is still ours.
    fn commit_for_others(&self) -> Result<(), Failed> {
        let mut schedule = self.schedule();
        let now = Instant::now();
        let is_due = schedule.due.take_if(|due| *due <= now).is_some();
        schedule.has_waiters = false;
        drop(schedule);
        let mut turn = self.turn();
        let is_wanted = is_due || !turn.waiters.is_empty();
        let writer = turn.writer.take_if(|_| is_wanted);
        drop(turn);
        match writer {
            Some(writer) => {
                self.write(writer)?;
                if self.tail().needs_upkeep() {
                    self.wake_for_upkeep();
                }
                if is_due {
                    if let SyncMode::Every(_) = self.sync {
                        self.sync_written()?;
                    }
                    // Changes that came during this round found `pending` set,
                    // and relied on it. Their time began with the round.
                    if self.is_behind() {
                        self.write_soon_after(now);
                    } else {
                        self.pending.store(false, Ordering::Release);
                        if self.is_behind() {
                            self.write_soon();
                        }
                    }
                }
                Ok(())
            }
            None => {
                if is_due && self.failure.get().is_none() {
                    self.schedule().due = now.checked_add(RETRY_AFTER);
                }
                self.look().map_err(|error| self.fail(error))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Opened, Options};
    use super::*;
    use crate::engine::{Change, Counters, StoredJob, StoredState, Time};
    use crate::protocol::{Body, JobId, Priority, Seconds, TubeName};
    use std::collections::BTreeMap;
    use std::thread;

    /// So long a test waits for what must come.
    const PATIENCE: Duration = Duration::from_secs(60);

    /// A log of short segments with one job, for which nobody makes spares.
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

    #[test]
    fn what_is_appended_is_behind_until_it_is_written_or_synced() {
        for sync in [SyncMode::Never, SyncMode::Every(Duration::from_secs(60))] {
            let (_directory, binlog, _) = log(sync);
            assert!(binlog.is_behind());
            let end = binlog.tail().end;
            binlog.commit(end).unwrap();
            assert_eq!(binlog.is_behind(), sync != SyncMode::Never);
            binlog.settle(end).unwrap();
            assert!(!binlog.is_behind());
        }
    }

    #[test]
    fn while_room_is_short_only_a_sixteenth_of_a_segment_waits_to_be_written() {
        let (_directory, binlog, jobs) = log(SyncMode::Never);
        let update = || binlog.append(&[Change::Update(JobId(1))], &jobs).0;
        let begun = update();
        binlog.commit(Lsn(begun)).unwrap();
        binlog.tail().spares.clear();
        let record = update() - begun;
        let mut unwritten = record;
        while !binlog.is_pressed() {
            unwritten = update() - begun;
        }
        assert_eq!(unwritten, (BLOCK / 16 / record + 1) * record);
    }

    #[test]
    fn who_waits_for_another_threads_write_keeps_the_wake_up_that_came_before() {
        let (_directory, binlog, _) = log(SyncMode::Never);
        let end = binlog.tail().end;
        let writer = binlog.turn().writer.take().unwrap();
        thread::scope(|threads| {
            let waits = threads.spawn(|| {
                thread::current().unpark();
                binlog.commit(end).unwrap();
                let since = Instant::now();
                thread::park_timeout(PATIENCE);
                since.elapsed()
            });
            while binlog.turn().waiters.is_empty() {
                thread::yield_now();
            }
            binlog.write(writer).unwrap();
            assert!(waits.join().unwrap() < PATIENCE);
        });
    }
}
