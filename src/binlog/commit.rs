//! Group commit: whoever finds nobody writing writes for all who wait; and
//! the committer, the thread that syncs in time and keeps spares ready.

use super::error::Error;
use super::writer::Writer;
use super::{Binlog, Event, Failed, Position, SyncMode, held};
use std::io;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::{self, JoinHandle, Thread};
use std::time::{Duration, Instant};

/// Changes that nobody waits for are written so soon, if no sync is due sooner.
const SOON: Duration = Duration::from_millis(50);

/// Who writes, and who waits for what was appended.
pub(super) struct Turn {
    /// Who takes it, writes; away while somebody does.
    writer: Option<Box<Writer>>,
    waiting: Vec<Arc<Waiter>>,
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
    thread: Thread,
    outcome: Mutex<Option<Outcome>>,
}

enum Outcome {
    Done,
    Failed,
    /// Nobody has written this one's records yet: it is to write itself.
    Write(Box<Writer>),
}

impl Waiter {
    fn new(position: Position) -> Waiter {
        Waiter {
            position,
            thread: thread::current(),
            outcome: Mutex::new(None),
        }
    }

    fn wait(&self) -> Outcome {
        loop {
            if let Some(outcome) = held(self.outcome.lock()).take() {
                return outcome;
            }
            thread::park();
        }
    }

    fn finish(&self, outcome: Outcome) {
        *held(self.outcome.lock()) = Some(outcome);
        self.thread.unpark();
    }
}

/// When the committer has to do what.
pub(super) struct Schedule {
    /// By when what was appended must be written, and what was written synced.
    due: Option<Instant>,
    /// Segments are to be made or removed, now.
    upkeep: bool,
    closing: bool,
}

impl Default for Schedule {
    /// At first, what the recovery has left to do.
    fn default() -> Schedule {
        Schedule {
            due: Some(Instant::now()),
            upkeep: true,
            closing: false,
        }
    }
}

impl Binlog {
    /// Waits until what was appended up to `position` is kept: synced, or
    /// with `Every` and `Never`, written. Not under the server's lock.
    ///
    /// Nothing may be acknowledged before it returns.
    pub fn commit(&self, position: Position) -> Result<(), Failed> {
        if self.reached.load(Ordering::Acquire) >= position.0 {
            return Ok(());
        }
        let mut turn = self.turn();
        if self.failure.get().is_some() {
            return Err(Failed);
        }
        if self.reached.load(Ordering::Acquire) >= position.0 {
            return Ok(());
        }
        if let Some(writer) = turn.writer.take() {
            drop(turn);
            return self.write(writer);
        }
        let waiter = Arc::new(Waiter::new(position));
        turn.waiting.push(waiter.clone());
        drop(turn);
        match waiter.wait() {
            Outcome::Done => Ok(()),
            Outcome::Failed => Err(Failed),
            Outcome::Write(writer) => self.write(writer),
        }
    }

    /// Writes all that was appended (and syncs it, with `Always`), wakes each
    /// whose records were among it, and hands the writer on.
    fn write(&self, mut writer: Box<Writer>) -> Result<(), Failed> {
        let written = writer.write(self).and_then(|end| {
            if self.sync == SyncMode::Always {
                writer.sync(self, end)?;
            }
            Ok(end)
        });
        let end = written.map_err(|error| self.fail(error))?;
        self.reached.store(end.0, Ordering::Release);
        let mut turn = self.turn();
        let waiting = std::mem::take(&mut turn.waiting);
        let (done, left) = waiting
            .into_iter()
            .partition(|waiter| waiter.position <= end);
        turn.waiting = left;
        let done: Vec<Arc<Waiter>> = done;
        let next = turn.waiting.pop();
        match next {
            Some(next) => {
                drop(turn);
                next.finish(Outcome::Write(writer));
            }
            None => {
                turn.writer = Some(writer);
                drop(turn);
            }
        }
        done.iter().for_each(|waiter| waiter.finish(Outcome::Done));
        if self.tail().needs_upkeep() {
            self.wake_for_upkeep();
        }
        if let SyncMode::Every(_) = self.sync {
            self.soon();
        }
        match self.failure.get() {
            Some(_) => Err(Failed),
            None => Ok(()),
        }
    }

    /// Sees to it that what was appended is written soon (and synced, but for
    /// `Never`), though nobody waits for it. Not under the server's lock.
    pub fn soon(&self) {
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

    /// Makes everything appended last, and ends the committer.
    pub fn close(&self) -> Result<(), Failed> {
        let end = self.tail().end;
        self.settle(end)?;
        let end = self.tail().mark_end();
        let closed = self.settle(end);
        self.schedule().closing = true;
        self.scheduled.notify_all();
        closed
    }

    /// Makes what was appended up to `position` last, whatever the options say.
    pub(super) fn settle(&self, position: Position) -> Result<(), Failed> {
        self.commit(position)?;
        if self.progress().synced_to >= position {
            return Ok(());
        }
        let progress = self.progress().clone();
        let name = super::record::segment_name(progress.number);
        let synced = progress.file.sync().map_err(Error::on("sync", name));
        synced.map_err(|error| self.fail(error))?;
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
        waiting
            .iter()
            .for_each(|waiter| waiter.finish(Outcome::Failed));
        self.scheduled.notify_all();
        Failed
    }

    fn turn(&self) -> MutexGuard<'_, Turn> {
        held(self.turn.lock())
    }

    fn schedule(&self) -> MutexGuard<'_, Schedule> {
        held(self.schedule.lock())
    }

    /// Has the committer see to the segments.
    pub(super) fn wake_for_upkeep(&self) {
        let mut schedule = self.schedule();
        if !std::mem::replace(&mut schedule.upkeep, true) {
            self.scheduled.notify_one();
        }
    }

    /// Starts the committer. It ends after [`close`](Self::close), or after a failure.
    ///
    /// `tell` is called on that thread; after `Event::Failed`, never again.
    pub fn spawn_committer(
        self: &Arc<Self>,
        tell: impl FnMut(Event<'_>) + Send + 'static,
    ) -> io::Result<JoinHandle<()>> {
        let log = self.clone();
        let thread = thread::Builder::new().name("committer".to_owned());
        thread.spawn(move || log.tend_until_closed(tell))
    }

    fn tend_until_closed(&self, mut tell: impl FnMut(Event<'_>)) {
        let mut was_full = false;
        while self.wait_for_work() {
            if self.tend().is_err() {
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
        if let Some(error) = self.failure.get() {
            tell(Event::Failed(error));
        }
    }

    /// Waits until there is something to do; false if there never will be.
    fn wait_for_work(&self) -> bool {
        let mut schedule = self.schedule();
        loop {
            if schedule.closing || self.failure.get().is_some() {
                return false;
            }
            let now = Instant::now();
            if std::mem::take(&mut schedule.upkeep) || schedule.due.is_some_and(|due| due <= now) {
                return true;
            }
            schedule = match schedule.due {
                Some(due) => held(self.scheduled.wait_timeout(schedule, due - now)).0,
                None => held(self.scheduled.wait(schedule)),
            };
        }
    }

    /// One round of the committer: what is due is written and synced, and
    /// segments are made and removed.
    pub fn tend(&self) -> Result<(), Failed> {
        let mut schedule = self.schedule();
        if schedule.due.is_some_and(|due| due <= Instant::now()) {
            schedule.due = None;
            drop(schedule);
            // What is appended from here on asks for a round of its own.
            self.pending.store(false, Ordering::Release);
            let end = self.tail().end;
            match self.sync {
                SyncMode::Every(_) => self.settle(end)?,
                SyncMode::Always | SyncMode::Never => self.commit(end)?,
            }
        } else {
            drop(schedule);
        }
        self.keep_segments()
    }
}
