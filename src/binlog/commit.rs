//! Group commit: if no other thread is writing, a thread writes for all that
//! wait. Also the committer and the thread `segments`, which do in time what no
//! other thread does.
//!
//! Why nothing simpler? With a mutex around writing and syncing, all threads
//! that come during a sync would sync one after the other. With a condition
//! variable on which all wait for the writing thread, each sync would wake all
//! of them, and most would learn that they have to wait for the next sync. Here
//! no thread is woken before its change is kept.

use super::error::Error;
use super::frame::segment_name;
use super::room::BLOCK;
use super::writer::Writer;
use super::{Binlog, Event, Failed, Position, SyncMode, held};
use crate::sync::{Instant, Mutex, MutexGuard, Ordering, thread};
use std::io;
use std::sync::Arc;
use std::time::Duration;

/// Changes that nobody waits for are written after this time, if no sync is due
/// before.
const SOON: Duration = Duration::from_millis(50);

/// If another thread is writing when a sync is due, the committer tries again
/// after this time.
const AGAIN: Duration = Duration::from_millis(1);

/// How often a server that has nothing to write checks that the directory is
/// still its own, if another machine could take it over. Without this check,
/// clients could wait in `reserve` for ever, at a server that gets no jobs any
/// more.
const LOOK: Duration = Duration::from_secs(2);

/// How many rounds a thread writes at most, for others that come meanwhile.
/// More than one round only without syncs, since then a round takes little
/// time.
const ROUNDS: u32 = 16;

/// The writer, and those who wait until what they appended is kept.
pub(super) struct Turn {
    /// A thread that takes it out may write. `None` while a thread writes.
    writer: Option<Box<Writer>>,
    /// Those who wait, in the order in which they came.
    waiting: Vec<Waiter>,
}

impl Turn {
    pub fn new(writer: Writer) -> Turn {
        Turn {
            writer: Some(Box::new(writer)),
            waiting: Vec::new(),
        }
    }
}

struct Waiter {
    position: Position,
    then: Box<dyn FnOnce(Result<(), Failed>) + Send>,
}

/// What the threads of the binlog have to do.
#[derive(Default)]
pub(super) struct Schedule {
    /// When what was appended must be written, and what was written must be
    /// synced.
    due: Option<Instant>,
    /// Somebody waits, and perhaps no thread is writing for them.
    waiting: bool,
    /// There are segments to make or to remove.
    upkeep: bool,
    closing: bool,
}

impl Binlog {
    /// Waits until what was appended up to `position` is kept: synced, or with
    /// `Every` and `Never`, written. Not to be called under the server's lock.
    ///
    /// No change may be acknowledged before this returns.
    pub fn commit(&self, position: Position) -> Result<(), Failed> {
        if let Some(kept) = self.commit_if_free(position) {
            return kept;
        }
        let outcome = Arc::new(Mutex::new(None));
        let (told, waiting) = (outcome.clone(), thread::current());
        self.commit_then(position, move |kept| {
            *held(told.lock()) = Some(kept);
            waiting.unpark();
        });
        loop {
            if let Some(kept) = *held(outcome.lock()) {
                return kept;
            }
            thread::park();
        }
    }

    /// Like [`commit`](Self::commit), unless another thread is writing: then it
    /// returns `None` at once.
    pub fn commit_if_free(&self, position: Position) -> Option<Result<(), Failed>> {
        if self.reached.load(Ordering::Acquire) >= position.0 {
            return Some(Ok(()));
        }
        let mut turn = self.turn();
        if self.failure.get().is_some() {
            return Some(Err(Failed));
        }
        let writer = turn.writer.take()?;
        drop(turn);
        Some(self.write(writer))
    }

    /// Like [`commit`](Self::commit), without waiting for another thread's
    /// write. `then` is called when the result is known, by this thread or by
    /// the thread that writes. It must not block, because others wait for that
    /// thread.
    pub fn commit_then(
        &self,
        position: Position,
        then: impl FnOnce(Result<(), Failed>) + Send + 'static,
    ) {
        let mut turn = self.turn();
        if self.failure.get().is_some() {
            drop(turn);
            return then(Err(Failed));
        }
        if self.reached.load(Ordering::Acquire) >= position.0 {
            drop(turn);
            return then(Ok(()));
        }
        let then = Box::new(then);
        turn.waiting.push(Waiter { position, then });
        let writer = turn.writer.take();
        drop(turn);
        if let Some(writer) = writer {
            // Those who wait get the result through `then`, this caller
            // included.
            let (Ok(()) | Err(Failed)) = self.write(writer);
        }
    }

    /// Writes all that was appended (and syncs it, with `Always`), and calls
    /// `then` of all whose records were among it.
    fn write(&self, writer: Box<Writer>) -> Result<(), Failed> {
        let mut kept = Ok(());
        let mut next = Some(writer);
        for round in 1.. {
            let Some(mut writer) = next.take() else {
                break;
            };
            let kept_to = self.keep(&mut writer);
            let end = kept_to.map_err(|error| self.fail(error))?;
            let mut turn = self.turn();
            self.reached.store(end.0, Ordering::Release);
            // Those who came meanwhile need another round.
            let done = turn.waiting.extract_if(.., |waiter| waiter.position <= end);
            let done: Vec<Waiter> = done.collect();
            let are_left = !turn.waiting.is_empty();
            // With `Always`, another round would need another sync, and this
            // thread's own reply would wait for it.
            if are_left && self.sync != SyncMode::Always && round < ROUNDS {
                next = Some(writer);
            } else {
                turn.writer = Some(writer);
            }
            drop(turn);
            if are_left && next.is_none() {
                // The committer does the next round, unless another thread
                // takes the writer first.
                self.schedule().waiting = true;
                self.scheduled.notify_one();
            }
            // A sync that failed in another thread may have lost what was
            // written here.
            if self.failure.get().is_some() {
                kept = Err(Failed);
            }
            done.into_iter().for_each(|waiter| (waiter.then)(kept));
        }
        if let SyncMode::Every(_) = self.sync
            && self.is_behind()
        {
            self.write_soon();
        }
        let (needs_upkeep, is_urgent) = {
            let tail = self.tail();
            (tail.needs_upkeep(), tail.is_urgent())
        };
        if needs_upkeep && is_urgent {
            kept = kept.and(self.keep_files());
        } else if needs_upkeep {
            self.wake_for_upkeep();
        }
        kept
    }

    /// Writes, syncs, and returns up to where. Each reply waits for this. The
    /// look at the directory's lock comes between the sync and the replies, so
    /// it is here, too.
    fn keep(&self, writer: &mut Writer) -> Result<Position, Error> {
        let end = writer.write(self)?;
        if self.sync == SyncMode::Always {
            self.sync_written()?;
        }
        self.look()?;
        Ok(end)
    }

    /// Makes sure that what was appended is written soon (and synced, except
    /// with `Never`), although nobody waits for it. Not to be called under the
    /// server's lock.
    pub fn write_soon(&self) {
        if !self.pending.swap(true, Ordering::AcqRel) {
            let delay = match self.sync {
                // The sync must have ended when `span` is over.
                SyncMode::Every(span) => span * 3 / 4,
                SyncMode::Always | SyncMode::Never => SOON,
            };
            let due = Instant::now().checked_add(delay);
            self.schedule().due = due;
            self.scheduled.notify_one();
        }
    }

    /// Whether so much waits to be written that it may soon be more than a full
    /// disk has room for. Then it has to be written before much is appended. May
    /// be called under the server's lock.
    pub fn is_pressed(&self) -> bool {
        let end = self.end.load(Ordering::Acquire);
        let waiting = end.saturating_sub(self.reached.load(Ordering::Acquire));
        waiting > BLOCK && self.failure.get().is_none() && self.tail().is_pressed(waiting)
    }

    /// Commits all that was appended.
    pub fn commit_all(&self) -> Result<(), Failed> {
        self.commit(Position(self.end.load(Ordering::Acquire)))
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
        let end = self.tail().end;
        self.settle(end)?;
        let end = self.tail().mark_end();
        let closed = self.settle(end);
        self.schedule().closing = true;
        self.scheduled.notify_one();
        self.upkeep_wanted.notify_one();
        closed
    }

    /// Writes and syncs what was appended up to `position`, whatever the
    /// options say.
    pub(super) fn settle(&self, position: Position) -> Result<(), Failed> {
        self.commit(position)?;
        if self.progress().synced_to >= position {
            return Ok(());
        }
        self.sync_written().map_err(|error| self.fail(error))
    }

    /// Syncs what is written. Other threads may write meanwhile.
    fn sync_written(&self) -> Result<(), Error> {
        let progress = self.progress().clone();
        if progress.synced_to >= progress.written_to {
            return Ok(());
        }
        let synced = progress.file.sync();
        synced.map_err(Error::on("sync", segment_name(progress.number)))?;
        let mut now = self.progress();
        now.synced_to = now.synced_to.max(progress.written_to);
        if now.number == progress.number {
            now.synced = now.synced.max(progress.written);
        }
        Ok(())
    }

    /// Notes a failure: from now on nothing is acknowledged.
    pub(super) fn fail(&self, error: Error) -> Failed {
        // Only the first failure is kept: later ones follow from it and would
        // mislead.
        self.failure.get_or_init(|| error);
        let waiting = std::mem::take(&mut self.turn().waiting);
        let tell = |waiter: Waiter| (waiter.then)(Err(Failed));
        waiting.into_iter().for_each(tell);
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
        self.storage.look().map_err(Error::Lost)
    }

    fn turn(&self) -> MutexGuard<'_, Turn> {
        held(self.turn.lock())
    }

    fn schedule(&self) -> MutexGuard<'_, Schedule> {
        held(self.schedule.lock())
    }

    /// Wakes the thread `segments`.
    pub(super) fn wake_for_upkeep(&self) {
        let mut schedule = self.schedule();
        if !std::mem::replace(&mut schedule.upkeep, true) {
            self.upkeep_wanted.notify_one();
        }
    }

    /// Starts the binlog's threads. The committer's work never takes long; that
    /// of `segments` may. They end after [`close`](Self::close), or after a
    /// failure.
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
            let looked = self.look().map_err(|error| self.fail(error));
            if looked.and_then(|()| self.commit_for_others()).is_err() {
                break;
            }
        }
        if let Some(error) = self.failure.get() {
            tell(Event::Failed(error));
        }
    }

    fn keep_files_until_closed(&self, mut tell: impl FnMut(Event<'_>)) {
        let mut was_full = false;
        while self.wait_for_upkeep() {
            if self.keep_files().is_err() {
                break;
            }
            let full = self.tail().full.clone();
            match &full {
                Some(error) if !was_full => tell(Event::Full(error)),
                None if was_full => tell(Event::Room),
                _ => {}
            }
            was_full = full.is_some();
        }
    }

    /// Waits until there is something to commit, or until it is time to check
    /// that the directory is still ours. Returns false when the thread has to
    /// end.
    fn wait_for_commits(&self) -> bool {
        let longest = match self.storage.is_shared() {
            true => LOOK,
            false => Duration::MAX,
        };
        let mut schedule = self.schedule();
        loop {
            if schedule.closing || self.failure.get().is_some() {
                return false;
            }
            let now = Instant::now();
            if schedule.waiting || schedule.due.is_some_and(|due| due <= now) {
                return true;
            }
            let until_due = schedule.due.map_or(Duration::MAX, |due| due - now);
            let span = until_due.min(longest);
            let (woken, waited) = held(self.scheduled.wait_timeout(schedule, span));
            if waited.timed_out() {
                return true;
            }
            schedule = woken;
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
            schedule = held(self.upkeep_wanted.wait(schedule));
        }
    }

    /// One round of the work of both threads.
    pub fn work_once(&self) -> Result<(), Failed> {
        self.commit_for_others()?;
        self.keep_files()
    }

    /// Writes for those who wait, and writes and syncs what is due. It does not
    /// wait for another thread's write, because others may wait for the
    /// committer.
    fn commit_for_others(&self) -> Result<(), Failed> {
        let mut schedule = self.schedule();
        let now = Instant::now();
        let is_due = schedule.due.take_if(|due| *due <= now).is_some();
        schedule.waiting = false;
        drop(schedule);
        let mut turn = self.turn();
        let is_wanted = is_due || !turn.waiting.is_empty();
        let writer = turn.writer.take_if(|_| is_wanted);
        drop(turn);
        match writer {
            Some(writer) => {
                self.write(writer)?;
                if is_due {
                    if let SyncMode::Every(_) = self.sync {
                        self.sync_written().map_err(|error| self.fail(error))?;
                    }
                    self.pending.store(false, Ordering::Release);
                    // Changes that came during this round found `pending` set,
                    // and relied on it.
                    if self.is_behind() {
                        self.write_soon();
                    }
                }
                Ok(())
            }
            None if is_due && self.failure.get().is_none() => {
                self.schedule().due = now.checked_add(AGAIN);
                Ok(())
            }
            None => Ok(()),
        }
    }
}
