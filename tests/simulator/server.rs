//! The server's own files, on sockets in memory: all but the acceptor, which
//! waits for the system.

#[path = "../../src/server/addresses.rs"]
mod addresses;
#[path = "../../src/server/batch.rs"]
mod batch;
#[path = "../../src/server/client.rs"]
pub mod client;
#[path = "../../src/server/clock.rs"]
mod clock;
#[path = "../../src/server/input.rs"]
mod input;
#[path = "../../src/server/leavers.rs"]
mod leavers;
#[path = "../../src/server/memory.rs"]
mod memory;
#[path = "../../src/server/output.rs"]
mod output;
#[path = "../../src/server/shared.rs"]
pub mod shared;
#[path = "../../src/server/sleep.rs"]
mod sleep;
#[path = "../../src/server/timer.rs"]
pub mod timer;
#[path = "../../src/server/worker.rs"]
mod worker;
#[path = "../../src/server/workers.rs"]
pub mod workers;

pub use crate::stream::{Peer, Stream};
pub use clock::Clock;

use crate::{hangup, stream};

use std::time::Duration;

/// As in the server.
#[derive(Clone, Copy)]
pub struct Limits {
    pub max_job_size: u32,
    pub max_connections: usize,
    pub max_connections_per_address: Option<std::num::NonZeroUsize>,
    pub idle_timeout: Option<Duration>,
}

/// What the server knows of its process: nothing here.
mod process {
    pub fn complete(_: &mut crate::protocol::Document, _: &super::shared::Shared) {}
}
