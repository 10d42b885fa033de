//! The beanstalk protocol as plain values: no socket, file, thread or clock.
//!
//! [`framing`] turns bytes into [`Request`]s, and [`command`] reads their lines. The
//! engine answers with a [`Reply`], which [`reply`] turns into bytes again.
//! [`document`] has the format of statistics and lists, and [`jobs`] says what is shown of
//! a job; the numbers come from the engine. `options` has the four options of a `put`.

mod body;
pub mod command;
pub mod document;
pub mod framing;
pub mod jobs;
mod name;
mod options;
pub mod reply;

pub use body::Body;
pub use command::Command;
pub use document::Document;
pub use framing::{Framer, Request};
pub use jobs::{Counters, Event, JobList, JobState, JobStats};
pub use name::TubeName;
pub use options::{Key, Limit, PutOptions, Unique};
pub use reply::{DependsOn, Reply};

use std::fmt;
use std::time::Duration;

/// The number that names a job. Ids are given in ascending order and never
/// reused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct JobId(pub u64);

impl fmt::Display for JobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A job's priority: smaller is sooner.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Priority(pub u32);

/// Whole seconds, the protocol's only unit of time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Seconds(pub u32);

impl Seconds {
    /// The same span in nanoseconds (at most 2^62, so it always fits).
    pub const fn as_nanos(self) -> u64 {
        self.0 as u64 * 1_000_000_000
    }
}

impl From<Seconds> for Duration {
    fn from(seconds: Seconds) -> Duration {
        Duration::from_secs(seconds.0.into())
    }
}
