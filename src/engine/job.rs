//! A job in memory, the map of all jobs, and a job as the binlog stores it.

use super::counts::Event;
use super::slab::{ConnectionIndex, TubeIndex};
use super::{Shift, Time};
use crate::protocol::{Body, Counters, JobId, JobState, Priority, PutOptions, Seconds, TubeName};
use std::collections::BTreeMap;

/// What a job takes in the map of all jobs and in a queue, without the bytes of
/// its body, as `max_memory` counts it.
pub const JOB_OVERHEAD: u64 = 220;

/// What the counters of a job take in addition, in bytes. A job has counters
/// once something has happened to it.
const HISTORY_OVERHEAD: u64 = 40;

/// A job in memory. It takes 64 bytes and its body: it must be small, because a
/// server may hold millions.
pub struct Job {
    pub body: Body,
    pub created_at: Time,
    pub state: State,
    pub tube: TubeIndex,
    pub priority: Priority,
    pub delay: Seconds,
    pub ttr: Seconds,
    /// `None` as long as nothing has happened to it. In a long queue this is so
    /// for most jobs.
    pub history: Option<Box<Counters>>,
}

/// Where in its life a job is. For each state there is a collection that has
/// the job: one of its tube or, if it is reserved, one of the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    Ready,
    Delayed {
        until: Time,
    },
    Reserved {
        by: ConnectionIndex,
        until: Time,
    },
    Buried {
        /// Its place among the buried jobs: smaller was buried earlier.
        order: u64,
    },
}

impl State {
    /// What the protocol calls it.
    pub fn name(&self) -> JobState {
        match self {
            State::Ready => JobState::Ready,
            State::Delayed { .. } => JobState::Delayed,
            State::Reserved { .. } => JobState::Reserved,
            State::Buried { .. } => JobState::Buried,
        }
    }

    /// When the clock alone ends this state.
    pub fn until(&self) -> Option<Time> {
        match *self {
            State::Delayed { until } | State::Reserved { until, .. } => Some(until),
            State::Ready | State::Buried { .. } => None,
        }
    }
}

impl Job {
    pub fn new(stored: StoredJob, tube: TubeIndex, state: State) -> Job {
        Job {
            body: stored.body,
            created_at: stored.created_at,
            state,
            tube,
            priority: stored.priority,
            delay: stored.delay,
            ttr: stored.ttr,
            history: (stored.counters != Counters::default()).then(|| Box::new(stored.counters)),
        }
    }

    /// The memory that the job takes, in bytes, as `max_memory` counts it.
    pub fn memory(&self) -> u64 {
        let history = u64::from(self.history.is_some()) * HISTORY_OVERHEAD;
        self.body.wire().len() as u64 + JOB_OVERHEAD + history
    }

    pub fn counters(&self) -> Counters {
        self.history.as_deref().copied().unwrap_or_default()
    }

    pub fn stored_state(&self) -> StoredState {
        match self.state {
            State::Ready | State::Reserved { .. } => StoredState::Ready,
            State::Delayed { until } => StoredState::Delayed { until },
            State::Buried { order } => StoredState::Buried { order },
        }
    }
}

/// All jobs by id. A table of our own with pages of neighbours took a third less
/// for each job, but up to five times as much where most neighbours were gone.
#[derive(Default)]
pub struct Jobs {
    by_id: BTreeMap<JobId, Job>,
    /// The memory that all jobs take together, in bytes.
    memory: u64,
}

impl Jobs {
    pub fn len(&self) -> usize {
        self.by_id.len()
    }

    /// The memory that all jobs take together, in bytes.
    pub fn memory(&self) -> u64 {
        self.memory
    }

    /// Counts an event of a job. Returns the tube of the job.
    pub fn count(&mut self, id: JobId, event: Event) -> TubeIndex {
        let job = self.by_id.get_mut(&id).expect("the job exists");
        self.memory += u64::from(job.history.is_none()) * HISTORY_OVERHEAD;
        let counters = job.history.get_or_insert_default();
        *match event {
            Event::Reserve => &mut counters.reserves,
            Event::Timeout => &mut counters.timeouts,
            Event::Release => &mut counters.releases,
            Event::Bury => &mut counters.buries,
            Event::Kick => &mut counters.kicks,
        } += 1;
        job.tube
    }

    pub fn get(&self, id: JobId) -> Option<&Job> {
        self.by_id.get(&id)
    }

    pub fn get_mut(&mut self, id: JobId) -> Option<&mut Job> {
        self.by_id.get_mut(&id)
    }

    /// Adds a job under an id that is not in use.
    pub fn insert(&mut self, id: JobId, job: Job) {
        self.memory += job.memory();
        let before = self.by_id.insert(id, job);
        debug_assert!(before.is_none());
    }

    pub fn remove(&mut self, id: JobId) -> Option<Job> {
        let job = self.by_id.remove(&id)?;
        self.memory -= job.memory();
        Some(job)
    }

    /// The jobs from this id on, in the order of their ids.
    pub fn from(&self, id: JobId) -> impl Iterator<Item = (JobId, &Job)> {
        self.by_id.range(id..).map(|(&id, job)| (id, job))
    }
}

/// Panics if there is no job with this id.
impl std::ops::Index<JobId> for Jobs {
    type Output = Job;

    fn index(&self, id: JobId) -> &Job {
        self.get(id).expect("the job exists")
    }
}

impl std::ops::IndexMut<JobId> for Jobs {
    fn index_mut(&mut self, id: JobId) -> &mut Job {
        self.get_mut(id).expect("the job exists")
    }
}

/// A job with all that a restart must bring back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredJob {
    /// Its number.
    pub id: JobId,
    /// The tube that it is in; this never changes.
    pub tube: TubeName,
    /// What the producer sent.
    pub body: Body,
    /// As set by put, release or bury.
    pub priority: Priority,
    /// The delay that put or release asked for last.
    pub delay: Seconds,
    /// The time to run, at least one second.
    pub ttr: Seconds,
    /// When it was put.
    pub created_at: Time,
    /// Where in its life it is.
    pub state: StoredState,
    /// What has happened to it.
    pub counters: Counters,
    /// The options of its put, if it has any.
    pub options: Option<Box<StoredOptions>>,
}

/// The options of a job, and what has become of its tries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredOptions {
    /// The options of its put.
    pub options: PutOptions,
    /// How many tries have ended without a word since it was put or kicked; 0 if
    /// it has no word `try`.
    pub silent: u32,
}

impl StoredOptions {
    /// The options of a new job.
    pub fn new(options: PutOptions) -> StoredOptions {
        StoredOptions { options, silent: 0 }
    }
}

impl StoredJob {
    /// Whether only its key is left of it.
    pub fn is_deleted(&self) -> bool {
        matches!(self.state, StoredState::Deleted { .. })
    }

    /// The job with all times moved.
    pub fn moved_by(mut self, shift: Shift) -> StoredJob {
        self.created_at = self.created_at + shift;
        if let StoredState::Delayed { until } | StoredState::Deleted { until } = &mut self.state {
            *until = *until + shift;
        }
        self
    }

    /// The latest moment at which something is known to have happened to it.
    pub fn changed_at(&self) -> Time {
        let waits_from = match self.state {
            StoredState::Delayed { until } => until - self.delay,
            StoredState::Deleted { until } => until - self.key_kept(),
            StoredState::Ready | StoredState::Buried { .. } => Time::default(),
        };
        self.created_at.max(waits_from)
    }

    /// The job as it is restored at this time. The system's clock may have been
    /// set back since. Then the job was not put in the future, and nothing lasts
    /// longer than was asked for.
    pub fn restored_at(mut self, now: Time) -> StoredJob {
        let (delay, kept) = (self.delay, self.key_kept());
        self.created_at = self.created_at.min(now);
        match &mut self.state {
            StoredState::Delayed { until } => *until = (*until).min(now + delay),
            StoredState::Deleted { until } => *until = (*until).min(now + kept),
            StoredState::Ready | StoredState::Buried { .. } => {}
        }
        self
    }

    /// How long its key stays taken after it is deleted.
    fn key_kept(&self) -> Seconds {
        let options = self.options.as_ref().map(|stored| &stored.options);
        let unique = options.and_then(|options| options.unique.as_ref());
        unique.map_or(Seconds(0), |unique| unique.taken_for)
    }
}

/// The states that outlive the process: a reserved job comes back as ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoredState {
    /// In the ready queue, or reserved by somebody.
    Ready,
    /// Delayed until a time.
    Delayed {
        /// When it becomes ready.
        until: Time,
    },
    /// Buried.
    Buried {
        /// Its place among the buried jobs of its tube: smaller was buried earlier.
        order: u64,
    },
    /// Deleted, but its key is still taken. It has no body any more.
    Deleted {
        /// When the key is free.
        until: Time,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_is_small() {
        assert!(size_of::<Job>() <= 64, "{} bytes", size_of::<Job>());
    }

    #[test]
    fn what_is_known_to_have_happened_last_is_the_put_or_the_beginning_of_a_wait() {
        let at = |seconds| Time::default() + Seconds(seconds);
        let options =
            PutOptions::parse(b" idp:a:60").map(|options| Box::new(StoredOptions::new(options)));
        let changed_at = |created, state| {
            let job = StoredJob {
                id: JobId(1),
                tube: TubeName::default_tube(),
                body: Body::new(b""),
                priority: Priority(0),
                delay: Seconds(30),
                ttr: Seconds(1),
                created_at: at(created),
                state,
                counters: Counters::default(),
                options: options.clone(),
            };
            job.changed_at()
        };
        assert_eq!(changed_at(10, StoredState::Ready), at(10));
        let delayed = StoredState::Delayed { until: at(100) };
        assert_eq!(changed_at(10, delayed), at(70));
        assert_eq!(changed_at(80, delayed), at(80));
        let deleted = StoredState::Deleted { until: at(100) };
        assert_eq!(changed_at(10, deleted), at(40));
    }
}
