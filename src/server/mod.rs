//! The server: threads and sockets around the engine.
//!
//! Every thread of the daemon:
//!
//! | Thread | Job | Started by | Ends | May send to | Locks |
//! |---|---|---|---|---|---|
//! | main | starts the others, waits for signals, drains and stops the server | the system | with the process | no client; at the end it closes connections | the one lock, to drain and to check health; all of them at the start and at the end |
//! | signals | turns signals into events for main | main | with the process | no client | none |
//! | recovery | reads the binlog, drops a torn tail and prepares segments | main | when the jobs are recovered | no client | binlog |
//! | acceptor | accepts and hands each socket to an idle worker, or starts one; ends the waits of clients that hang up | main | when the server stops | any client | the one lock, outbox, binlog |
//! | worker, one for each open connection | reads, executes under the lock, writes | acceptor | when its client has closed and enough others are idle, or when the server stops | any client | the one lock, outbox, binlog |
//! | timer | has the engine tick when something is due, and trims the heap | main | when the server stops | any client | the one lock, outbox, binlog |
//! | committer, with `-b` | writes the binlog in time if no other thread does, with `-f 0` syncs it, and keeps the lease | main | when the binlog closes | any client | binlog, outbox |
//! | syncer, with `-f MS` | syncs the binlog in time | main | when the binlog closes | any client | binlog, outbox |
//! | segments, with `-b` | prepares and removes the binlog's files | main | when the binlog closes | any client | binlog, outbox |
//! | log | writes lines to standard error | main | at the end | no client | none |
//!
//! The one lock is in `shared.rs`. No thread holds it and an outbox's lock at the
//! same time, and a thread that holds an outbox's lock takes no other one. (A thread that
//! has locked the list of those that leave may take either.) The thread that starts the [`Server`]
//! owns it and stops it.
//!
//! The way of a `put`, and how a `reserve` waits and is woken, are on the first page of
//! [this crate](crate). `outbox` says which thread sends a reply, and what it waits for.
//!
//! # How a connection ends
//!
//! Only its worker ends it: when it has read the end of the stream, or `quit`, and all that
//! came before is answered. So a client that has closed is still in the engine for some
//! microseconds, and its jobs are reserved. `connections.rs` says which answers wait for that.

#[cfg(not(simulated))]
pub(crate) mod acceptor;
pub mod activation;
pub(crate) mod batch;
mod clock;
mod connections;
mod input;
mod listener;
mod memory;
pub mod notify;
pub(crate) mod outbox;
pub mod privileges;
pub(crate) mod shared;
#[cfg(simulated)]
#[path = "../../tests/simulator/mod.rs"]
pub mod simulator;
mod socket_file;
mod stats;
#[cfg(not(simulated))]
mod stream;
pub mod system;
pub(crate) mod timer;
pub(crate) mod worker;
mod workers;

pub use crate::sync::spawn;
pub use crate::sys::{hold_in_heap, use_one_malloc_arena};
pub use clock::Clock;
pub use listener::{Address, Listener, find_port};
pub use socket_file::SocketAccess;
pub use stream::Stream;

use crate::binlog::{Binlog, Failed};
use shared::Shared;
// The simulator has its own sockets, and an engine that it watches.
#[cfg(not(simulated))]
use crate::{engine::Engine, sys::HangupList};
#[cfg(simulated)]
use simulator::{hangup::HangupList, judge::Engine, stream};
use std::io::{self, PipeWriter};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

/// How long a thread sleeps before it looks again at what nothing reports.
const LOOKS_EVERY: Duration = Duration::from_millis(10);

/// How long clients that do not read their replies can delay the end of the
/// server.
const STOP_GRACE: Duration = Duration::from_millis(1200);

/// Bounds that are set once, at the start.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// The largest body taken, in bytes.
    pub max_job_size: u32,
    /// The most connections at a time; further ones are closed at once.
    pub max_connections: usize,
    /// How long a connection that holds no job may be silent, and how long any
    /// connection may leave its replies unread.
    pub idle_timeout: Option<Duration>,
    /// The size of a binlog file as the user gave it, in bytes. `stats` shows
    /// it even without a binlog.
    pub segment_size: u64,
    /// Whether the kernel holds little for each socket, because a control group pays for it.
    pub narrow_sockets: bool,
}

/// A running server.
#[cfg(not(simulated))]
pub struct Server {
    shared: Arc<Shared>,
    acceptor: JoinHandle<()>,
    timer: JoinHandle<()>,
    /// While this is open, connections are accepted.
    accepting: PipeWriter,
}

#[cfg(not(simulated))]
impl Server {
    /// Starts the threads: from now on clients are answered.
    ///
    /// # Errors
    ///
    /// If the system has no descriptor or thread left.
    pub fn start(
        engine: Engine,
        binlog: Option<Arc<Binlog>>,
        clock: Clock,
        listeners: Vec<Listener>,
        limits: Limits,
    ) -> io::Result<Server> {
        let shared = Arc::new(Shared::new(engine, binlog, clock, limits)?);
        shared.catch_up();
        let (stop, accepting) = io::pipe()?;

        let timing = Arc::clone(&shared);
        let timer = spawn("timer", move || timer::run(&timing))?;
        let known = shared.timer.set(timer.thread().clone());
        known.expect("there is one timer");
        let served = Arc::clone(&shared);
        let acceptor = spawn("acceptor", move || {
            acceptor::run(&served, listeners, stop.as_fd());
        })?;
        Ok(Server {
            shared,
            acceptor,
            timer,
            accepting,
        })
    }

    /// From now on the server takes no new jobs: it answers `DRAINING`.
    pub fn drain(&self) {
        self.shared
            .with_lock(|state, _| state.engine.outside.draining = true);
    }

    /// Returns after it has had the lock, which shows that no thread keeps it
    /// for ever.
    pub fn probe(&self) {
        self.shared.with_lock(|_, _| ());
    }

    /// Shuts the server down in an orderly way: it accepts no more connections, finishes and
    /// answers the commands that it has read, closes all connections, and syncs
    /// the binlog.
    pub fn stop(self) {
        drop(self.accepting);
        self.acceptor.join().expect("no thread panics");
        let shared = &self.shared;
        shared.stop();
        if !shared.await_all_closed(STOP_GRACE) {
            // The clients that are left do not read their replies.
            shared.abandon();
            shared.await_all_closed(STOP_GRACE / 10);
        }
        self.timer.join().expect("no thread panics");
        // An earlier failure was reported when it happened.
        if let Some(binlog) = &shared.binlog {
            let (Ok(()) | Err(Failed)) = binlog.close();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::Config;
    use std::thread;

    impl Limits {
        /// No more than a test needs.
        pub fn of_one_client(max_job_size: u32) -> Limits {
            Limits {
                max_job_size,
                max_connections: 1,
                idle_timeout: None,
                segment_size: 4096,
                narrow_sockets: false,
            }
        }
    }

    #[test]
    fn a_health_probe_lasts_as_long_as_another_thread_holds_the_lock() {
        let clock = Clock::start();
        let engine = Engine::new(Config::new(100), clock.now());
        let limits = Limits::of_one_client(100);
        let server = Server::start(engine, None, clock, vec![], limits).unwrap();
        thread::scope(|scope| {
            server.shared.with_lock(|_, _| {
                let probe = scope.spawn(|| server.probe());
                while !server.shared.is_awaited() {
                    assert!(!probe.is_finished());
                    thread::yield_now();
                }
            });
        });
        server.stop();
    }
}
