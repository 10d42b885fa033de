//! A job in memory, and a job as the binlog stores it.

use super::slab::{ConnectionIndex, TubeIndex};
use super::{Shift, Time, memory};
use crate::protocol::{
    Body, Counters, JobId, JobState, Limit, Priority, PutOptions, Seconds, TubeName, Unique,
};

/// A job in memory. It must be small, because a server may hold millions.
pub struct Job {
    pub body: Body,
    pub created_at: Time,
    pub state: State,
    pub tube: TubeIndex,
    pub priority: Priority,
    pub delay: Seconds,
    pub ttr: Seconds,
    pub details: Option<Box<Details>>,
}

/// What a job has once something has happened to it, or if its put had options.
#[derive(Clone, Default, PartialEq)]
pub struct Details {
    pub counters: Counters,
    pub failed_tries: u32,
    pub options: Option<Box<PutOptions>>,
}

impl Details {
    /// `None` if there are none yet.
    pub fn boxed(self) -> Option<Box<Details>> {
        (self != Details::default()).then(|| Box::new(self))
    }
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
        /// Its position among the buried jobs: smaller was buried earlier.
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

    /// The order among jobs in this state: by the end of the delay or of the time to run,
    /// or by the burial.
    pub fn order(&self) -> u64 {
        match *self {
            State::Delayed { until } | State::Reserved { until, .. } => until.as_nanos(),
            State::Buried { order } => order,
            State::Ready => 0,
        }
    }

    /// The connection that has reserved the job, if one has.
    pub fn holder(&self) -> Option<ConnectionIndex> {
        match *self {
            State::Reserved { by, .. } => Some(by),
            _ => None,
        }
    }
}

/// In which queue or other collection a job is, and where in it.
#[derive(Clone, Copy)]
pub struct QueueEntry {
    pub state: State,
    pub tube: TubeIndex,
    pub priority: Priority,
    /// Whether its options have a say in that.
    pub has_options: bool,
}

impl Job {
    pub fn queue_entry(&self) -> QueueEntry {
        QueueEntry {
            state: self.state,
            tube: self.tube,
            priority: self.priority,
            has_options: self.options().is_some(),
        }
    }

    pub fn options(&self) -> Option<&PutOptions> {
        self.details.as_ref()?.options.as_deref()
    }

    pub fn counters(&self) -> Counters {
        let details = self.details.as_ref();
        details.map(|details| details.counters).unwrap_or_default()
    }

    pub fn details_mut(&mut self) -> &mut Details {
        self.details.get_or_insert_default()
    }

    pub fn unique(&self) -> Option<&Unique> {
        self.options()?.unique.as_ref()
    }

    pub fn limit(&self) -> Option<&Limit> {
        self.options()?.limit.as_ref()
    }

    /// The memory that the job takes, in bytes, as `max_memory` counts it.
    pub fn memory(&self) -> u64 {
        memory::of_job(self.body.wire().len(), self.options())
    }

    pub fn stored_state(&self) -> StoredState {
        match self.state {
            State::Ready | State::Reserved { .. } => StoredState::Ready,
            State::Delayed { until } => StoredState::Delayed { until },
            State::Buried { order } => StoredState::Buried { order },
        }
    }
}

/// A job with all that a restart must bring back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredJob {
    /// What may change, and the id.
    pub fields: JobFields,
    /// The tube that it is in.
    pub tube: TubeName,
    /// The options of its put, if it has any.
    pub options: Option<Box<PutOptions>>,
    /// What the producer sent.
    pub body: Body,
}

/// All of a stored job but its tube, options and body, which never change: what the log
/// writes again after each change. (The default is no job yet: it has no time to run.)
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct JobFields {
    /// Its number.
    pub id: JobId,
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
    /// How many tries have failed since the job was put or kicked: by a timeout, or
    /// by the end of the worker's connection; 0 if it has no try limit.
    pub failed_tries: u32,
}

/// The lengths of what never changes in a job, in bytes. From these the log calculates
/// how long its put is at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lengths {
    /// Of the name of its tube.
    pub tube: usize,
    /// Of its keys together; `None` if it has no options.
    pub keys: Option<usize>,
    /// Of its body with CR LF.
    pub body: usize,
}

/// When the protocol's first server was published, 2007-11: by any clock that is set, all
/// jobs were put later.
const FIRST_SERVER: Time = Time::from_nanos(1_193_875_200_000_000_000);

/// A time of the log as it is restored now: at most `latest`, and `latest` itself if it was
/// logged before the clock was first set.
pub(super) fn restored_at(time: Time, latest: Time, now: Time) -> Time {
    if time < FIRST_SERVER && now >= FIRST_SERVER {
        latest
    } else {
        time.min(latest)
    }
}

impl Lengths {
    pub(super) fn of(tube: &TubeName, options: Option<&PutOptions>, body: &Body) -> Lengths {
        Lengths {
            tube: tube.as_str().len(),
            keys: options.map(PutOptions::keys_len),
            body: body.wire().len(),
        }
    }
}

impl StoredJob {
    /// The lengths of its tube's name, its keys and its body.
    pub fn lengths(&self) -> Lengths {
        Lengths::of(&self.tube, self.options.as_deref(), &self.body)
    }

    /// Whether it is a tombstone: only its key is left.
    pub fn is_deleted(&self) -> bool {
        matches!(self.fields.state, StoredState::Deleted { .. })
    }

    /// The unique key of a deleted job, and when it is free.
    pub fn taken_key(&self) -> Option<(&Unique, Time)> {
        match self.fields.state {
            StoredState::Deleted { until } => Some((self.unique()?, until)),
            _ => None,
        }
    }

    fn unique(&self) -> Option<&Unique> {
        self.options.as_ref()?.unique.as_ref()
    }

    /// The job with all times moved.
    pub fn moved_by(mut self, shift: Shift) -> StoredJob {
        let JobFields {
            created_at, state, ..
        } = &mut self.fields;
        *created_at = *created_at + shift;
        if let StoredState::Delayed { until } | StoredState::Deleted { until } = state {
            *until = *until + shift;
        }
        self
    }

    /// The latest moment at which something is known to have happened to it.
    pub fn changed_at(&self) -> Time {
        let waits_from = match self.fields.state {
            StoredState::Delayed { until } => until - self.fields.delay,
            StoredState::Deleted { until } => until - self.key_taken_for(),
            StoredState::Ready | StoredState::Buried { .. } => Time::default(),
        };
        self.fields.created_at.max(waits_from)
    }

    /// The job as it is restored at this time. The system's clock may have been
    /// set back since. Then the job was not put in the future, and nothing lasts
    /// longer than was asked for. Or it was set for the first time since, on a machine
    /// whose clock stops without power. Then what was done before is taken for done just
    /// now.
    pub fn restored_at(mut self, now: Time) -> StoredJob {
        let taken_for = self.key_taken_for();
        let fields = &mut self.fields;
        let at_most = |time, latest| restored_at(time, latest, now);
        match &mut fields.state {
            // It has no other time.
            StoredState::Deleted { until } => {
                *until = at_most(*until, now + taken_for);
                return self;
            }
            StoredState::Delayed { until } => *until = at_most(*until, now + fields.delay),
            StoredState::Ready | StoredState::Buried { .. } => {}
        }
        fields.created_at = at_most(fields.created_at, now);
        self
    }

    /// How long its key stays taken after it is deleted.
    fn key_taken_for(&self) -> Seconds {
        self.unique().map_or(Seconds(0), |unique| unique.taken_for)
    }
}

/// The states that outlive the process: a reserved job comes back as ready.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StoredState {
    /// In the ready queue, or reserved by a connection.
    #[default]
    Ready,
    /// Delayed until a time.
    Delayed {
        /// When it becomes ready.
        until: Time,
    },
    /// Buried.
    Buried {
        /// Its position among the buried jobs of its tube: smaller was buried earlier.
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
    fn a_job_takes_at_most_64_bytes_beside_its_body() {
        assert!(size_of::<Job>() <= 64, "{} bytes", size_of::<Job>());
    }

    #[test]
    fn a_stored_job_last_changed_when_it_was_put_delayed_or_deleted() {
        let at = |seconds| Time::default() + Seconds(seconds);
        let options = PutOptions::parse(b" idp:a:60").map(Box::new);
        let changed_at = |created, state| {
            let job = StoredJob {
                fields: JobFields {
                    delay: Seconds(30),
                    created_at: at(created),
                    state,
                    ..JobFields::default()
                },
                tube: TubeName::default(),
                options: options.clone(),
                body: Body::new(b""),
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
