//! The server's own files, on sockets in memory. Only the acceptor is another
//! one: the server's waits for the system.

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
#[path = "../../src/server/lock.rs"]
pub mod lock;
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

#[path = "server/hangup.rs"]
pub mod hangup;
#[path = "server/stream.rs"]
mod stream;

pub use clock::Clock;
pub use stream::{Peer, Stream};

use crate::judge;
use hangup::{Call, Door};
use shared::Shared;
use std::sync::Arc;
use std::time::Duration;
use workers::Workers;

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

/// As `acceptor::run`.
pub fn accept(shared: &Arc<Shared>, door: &Door) {
    let workers = Workers::new(shared.clone());
    loop {
        match door.wait() {
            Call::End => return,
            Call::HaveLeft => shared.end_waits_of_the_gone(),
            Call::Accept((who, peer, stream)) => {
                judge::connects(who, peer);
                if let Ok(client) = shared.connect(stream, None) {
                    shared.hangups.watch(&client).expect("memory");
                    workers.hand_over(&client).expect("a thread");
                }
            }
        }
    }
}
