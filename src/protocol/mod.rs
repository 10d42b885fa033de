//! The beanstalk protocol as plain values: no socket, file, thread or clock.
//!
//! Bytes become [`Request`]s in [`framing`], with the lines read by
//! [`command`]; the engine answers with a [`Reply`], which [`reply`] turns
//! into bytes again, with the documents written by [`stats`].

pub mod command;
pub mod framing;
mod name;
pub mod reply;
pub mod stats;

pub use command::Command;
pub use framing::{Framer, Request};
pub use name::TubeName;
pub use reply::Reply;

use std::fmt;
use std::sync::Arc;

/// The number that names a job: given in ascending order, never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct JobId(pub u64);

impl fmt::Display for JobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A job's priority: smaller is sooner.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Priority(pub u32);

impl Priority {
    /// Whether `current-jobs-urgent` counts a ready job of this priority.
    pub fn is_urgent(self) -> bool {
        self.0 < 1024
    }
}

/// Whole seconds, the protocol's only unit of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Seconds(pub u32);

impl Seconds {
    /// The same span in nanoseconds (at most 2^62, so it always fits).
    pub const fn as_nanos(self) -> u64 {
        self.0 as u64 * 1_000_000_000
    }
}

/// A job's body, as it travels: its bytes and then CR LF. A clone shares them.
#[derive(Clone, PartialEq, Eq)]
pub struct Body(Arc<[u8]>);

impl Body {
    /// The body whose bytes on the wire are these, if they end in CR LF.
    pub fn from_wire(wire: Arc<[u8]>) -> Option<Body> {
        wire.ends_with(b"\r\n").then_some(Body(wire))
    }

    /// A body of these bytes; CR LF is added.
    pub fn new(content: &[u8]) -> Body {
        Body([content, b"\r\n"].concat().into())
    }

    /// The bytes that the producer sent, without the CR LF.
    pub fn content(&self) -> &[u8] {
        &self.0[..self.0.len() - 2]
    }

    /// The bytes with the CR LF that ends them on the wire.
    pub fn wire(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for Body {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.content().escape_ascii().to_string())
    }
}
