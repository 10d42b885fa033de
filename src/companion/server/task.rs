//! Work on many jobs: how many are done and how many are left, the bar that
//! shows it, and the signal that ends it between two batches.

use crate::failure::{Failure, Outcome};
use crate::signals::interrupts;
use crate::text::output::{Progress, print};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Work that goes on until nothing is left of it, or a signal ends it.
pub struct Task {
    /// How many jobs are still to be done.
    pub left: u64,
    pub done: u64,
    progress: Option<Progress>,
    /// Whether a signal told us to stop; `None` before the first batch.
    interrupted: Option<Arc<AtomicBool>>,
}

impl Task {
    /// Work on up to `left` jobs, with a bar.
    pub fn new(what: &'static str, left: u64) -> Task {
        Task {
            left,
            done: 0,
            progress: Some(Progress::new(what, Some(left))),
            interrupted: None,
        }
    }

    /// Work that shows nothing, and that no signal ends.
    pub fn quiet(left: u64) -> Task {
        Task {
            left,
            done: 0,
            progress: None,
            interrupted: Some(Arc::default()),
        }
    }

    /// Whether another batch may begin. After the first call, a signal to stop
    /// takes effect when the batch is done. Before that it ends the program at
    /// once, because nothing is under way.
    pub fn goes_on(&mut self) -> Outcome<bool> {
        if self.interrupted.is_none() {
            self.interrupted = Some(interrupts()?);
        }
        Ok(self.left > 0 && !self.is_interrupted())
    }

    fn is_interrupted(&self) -> bool {
        let interrupted = self.interrupted.as_ref();
        interrupted.is_some_and(|interrupted| interrupted.load(Ordering::SeqCst))
    }

    /// Of the jobs that were left, notes that this many are done.
    pub fn add(&mut self, count: u64) {
        self.drop(count);
        self.done += count;
        if let Some(progress) = &mut self.progress {
            progress.add(count);
        }
    }

    /// Of the jobs that were left, notes that this many cannot be done.
    pub fn drop(&mut self, count: u64) {
        self.left = self.left.saturating_sub(count);
    }

    /// Prints how many jobs are done, even after a failure. It is a failure if
    /// a signal has ended the work.
    pub fn finish(self, outcome: Outcome<()>) -> Outcome<()> {
        let was_interrupted = self.left > 0 && self.is_interrupted();
        drop(self.progress);
        print(format!("{}\n", self.done))?;
        outcome?;
        match was_interrupted {
            true => Err(Failure::interrupted(self.done, self.done + self.left)),
            false => Ok(()),
        }
    }
}
