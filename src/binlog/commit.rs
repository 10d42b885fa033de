//! Group commit: whoever finds nobody writing writes for all who wait; and
//! the threads that write and sync what nobody else does, in time.
//!
//! Why nothing simpler: with a mutex around writing and syncing, all who come
//! during a sync would go through it one after the other. With a condition
//! variable on which all wait for the one who writes, each would be woken after
//! a sync, most of them to learn that they have to wait for the next one. Here
//! nobody is woken before his change is kept.

use super::error::Error;
use super::frame::segment_name;
use super::writer::Writer;
use super::{Binlog, Event, Failed, Position, SyncMode, held};
use crate::sync::{Instant, Mutex, MutexGuard, Ordering, thread};
use std::io;
use std::sync::Arc;
use std::time::Duration;

/// Changes that nobody waits for are written so soon, if no sync is due sooner.
const SOON: Duration = Duration::from_millis(50);

/// The committer looks again so soon if somebody is writing when a sync is due.
const AGAIN: Duration = Duration::from_millis(1);

/// A server that has nothing to write looks this often whether the directory is
/// still its own, if another machine could have it: workers that wait for jobs
/// would wait for ever at a server that gets none any more.
const LOOK: Duration = Duration::from_secs(2);

/// Who writes without a sync, which takes no time, does so this often for those
/// who came meanwhile.
const ROUNDS: u32 = 16;

/// Who writes, and who waits for what was appended.
pub(super) struct Turn {
    /// Who takes it, writes; away while somebody does.
    writer: Option<Box<Writer>>,
    /// In the order in which they came.
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
    /// By when what was appended must be written, and what was written synced.
    due: Option<Instant>,
    /// Somebody waits who may not find anybody to write for him.
    waiting: bool,
    /// Segments are to be made or removed, now.
    upkeep: bool,
    closing: bool,
}

impl Binlog {
    /// Waits until what was appended up to `position` is kept: synced, or
    /// with `Every` and `Never`, written. Not under the server's lock.
    ///
    /// Nothing may be acknowledged before it returns.
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

    /// The same unless somebody else is writing; None then.
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

    /// The same without waiting: `then` is called once it is known, by this
    /// thread or by the one that writes, which it must not keep from writing on.
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
            // Whoever waits is told, this one too.
            let (Ok(()) | Err(Failed)) = self.write(writer);
        }
    }

    /// Writes all that was appended (and syncs it, with `Always`), and tells
    /// each whose records were among it.
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
            // Whoever came meanwhile waits for another round.
            let done = turn.waiting.extract_if(.., |waiter| waiter.position <= end);
            let done: Vec<Waiter> = done.collect();
            let are_left = !turn.waiting.is_empty();
            // With a sync, this thread's own reply is not to wait for one more.
            if are_left && self.sync != SyncMode::Always && round < ROUNDS {
                next = Some(writer);
            } else {
                turn.writer = Some(writer);
            }
            drop(turn);
            if are_left && next.is_none() {
                // Unless somebody else is faster.
                self.schedule().waiting = true;
                self.scheduled.notify_one();
            }
            // A sync that failed elsewhere may have lost what was written here.
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

    /// Writes, syncs, and says up to where: this is what each reply waits for.
    /// What has to be looked at between a sync and the replies belongs here.
    fn keep(&self, writer: &mut Writer) -> Result<Position, Error> {
        let end = writer.write(self)?;
        if self.sync == SyncMode::Always {
            self.sync_written()?;
        }
        self.look()?;
        Ok(end)
    }

    /// Sees to it that what was appended is written soon (and synced, but for
    /// `Never`), though nobody waits for it. Not under the server's lock.
    pub fn write_soon(&self) {
        if !self.pending.swap(true, Ordering::AcqRel) {
            let delay = match self.sync {
                // The sync has to be over in time.
                SyncMode::Every(span) => span * 3 / 4,
                SyncMode::Always | SyncMode::Never => SOON,
            };
            let due = Instant::now().checked_add(delay);
            self.schedule().due = due;
            self.scheduled.notify_one();
        }
    }

    /// Whether something is left for the committer to write, or to sync.
    fn is_behind(&self) -> bool {
        let end = self.tail().end;
        let progress = self.progress();
        match self.sync {
            SyncMode::Every(_) => progress.synced_to < end,
            SyncMode::Always | SyncMode::Never => progress.written_to < end,
        }
    }

    /// Makes everything appended last, and ends the threads.
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

    /// Makes what was appended up to `position` last, whatever the options say.
    pub(super) fn settle(&self, position: Position) -> Result<(), Failed> {
        self.commit(position)?;
        if self.progress().synced_to >= position {
            return Ok(());
        }
        self.sync_written().map_err(|error| self.fail(error))
    }

    /// Syncs what is written, while others may write on.
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

    /// From now on nothing is acknowledged any more.
    pub(super) fn fail(&self, error: Error) -> Failed {
        // Only the first failure counts; what follows from it would mislead.
        self.failure.get_or_init(|| error);
        let waiting = std::mem::take(&mut self.turn().waiting);
        let tell = |waiter: Waiter| (waiter.then)(Err(Failed));
        waiting.into_iter().for_each(tell);
        // Under their lock, so that no thread goes to sleep having seen none.
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

    /// Has somebody see to the segments.
    pub(super) fn wake_for_upkeep(&self) {
        let mut schedule = self.schedule();
        if !std::mem::replace(&mut schedule.upkeep, true) {
            self.upkeep_wanted.notify_one();
        }
    }

    /// Starts the threads: the committer, which is never long in doing what is
    /// due, and the one for segments, which may be. They end after
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
        // What the recovery has left to do.
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

    /// Waits until there is something to commit, or to look whether the directory
    /// is still ours; false if there never will be.
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

    /// Waits until there is something to do about segments; false if there
    /// never will be.
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

    /// One round of what both threads of the binlog do.
    pub fn work_once(&self) -> Result<(), Failed> {
        self.commit_for_others()?;
        self.keep_files()
    }

    /// Writes for those who wait, and writes and syncs what is due. It waits for
    /// nobody, since others may be waiting for it.
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
                    // Who came meanwhile has relied on this round.
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
