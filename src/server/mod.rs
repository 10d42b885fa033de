//! The server: threads and sockets around the engine.
//!
//! | Thread | Job | Ends |
//! |---|---|---|
//! | acceptor | accepts and hands each socket to an idle worker, or starts one | when the server stops |
//! | worker, one for each open connection | reads, executes under the lock, writes | idle for a while |
//! | timer | has the engine tick when something is due | when the server stops |
//! | late reply | sends what a client that does not read has left no room for, if its worker is not there | when it is sent |
//! | hang-up watcher | notices peers that leave while their worker waits | with the process |
//!
//! The thread that starts the [`Server`] keeps it, and stops it.

mod acceptor;
pub mod activation;
mod connection;
mod hangup;
mod journal;
pub mod limits;
mod listener;
pub mod notify;
mod peer;
pub mod privileges;
mod process;
mod shared;
mod stream;
mod workforce;

pub use crate::sys::use_one_heap;
pub use listener::{Address, Listener, SocketAccess};
pub use process::VERSION;
pub use shared::Clock;
pub use stream::Stream;

use crate::binlog::{Binlog, Failed};
use crate::engine::Engine;
use acceptor::Service;
use hangup::HangupWatcher;
use journal::Journal;
use nix::sys::eventfd::{EfdFlags, EventFd};
use shared::Shared;
use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// How long those who do not read their replies may keep the server from
/// ending.
const STOP_GRACE: Duration = Duration::from_millis(1200);

/// Bounds that are set once, at the start.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// The largest body taken, in bytes.
    pub max_job_size: u32,
    /// The most connections at a time: further ones are closed at once.
    pub max_connections: usize,
    /// How long a connection that holds nothing may be silent.
    pub idle_timeout: Option<Duration>,
    /// The size of the binlog's files that was asked for, which `stats` shows
    /// even if there is no binlog, in bytes.
    pub segment_size: u64,
}

/// A running server.
pub struct Server {
    service: Arc<Service>,
    acceptor: JoinHandle<()>,
    timer: JoinHandle<()>,
    stop_accepting: Arc<EventFd>,
}

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
        let hangups = HangupWatcher::new()?;
        let shared = Shared::new(engine, binlog.clone().map(Journal::new), clock);
        let service = Arc::new(Service::new(shared, binlog, hangups, limits));
        let stop_accepting = Arc::new(EventFd::from_flags(EfdFlags::EFD_CLOEXEC)?);

        let watching = Arc::clone(&service);
        spawn("hang-ups", move || watching.hangups.run(&watching.shared))?;
        let timing = Arc::clone(&service);
        let timer = spawn("timer", move || timing.shared.run_timer())?;
        let (accepting, stop) = (Arc::clone(&service), Arc::clone(&stop_accepting));
        let acceptor = spawn("acceptor", move || {
            acceptor::run(&accepting, &listeners, stop.as_fd());
        })?;
        Ok(Server {
            service,
            acceptor,
            timer,
            stop_accepting,
        })
    }

    /// Takes no new jobs any more: `DRAINING`.
    pub fn drain(&self) {
        self.service
            .shared
            .run(|state, _| state.engine().set_draining(true));
    }

    /// Returns if the engine can be got at.
    pub fn probe(&self) {
        self.service.shared.run(|_, _| ());
    }

    /// Ends in order: accepts nobody any more, has the commands in flight
    /// finished and answered, closes all connections, and syncs the binlog.
    ///
    /// # Errors
    ///
    /// If the acceptor cannot be told.
    pub fn stop(self) -> io::Result<()> {
        self.stop_accepting.write(1)?;
        self.acceptor.join().expect("no thread panics");
        let shared = &self.service.shared;
        shared.stop();
        if shared.await_emptiness(STOP_GRACE) > 0 {
            shared.abandon();
            shared.await_emptiness(STOP_GRACE / 10);
        }
        self.timer.join().expect("no thread panics");
        // What has failed before was told of when it did.
        if let Some(binlog) = &self.service.binlog {
            let (Ok(()) | Err(Failed)) = binlog.close();
        }
        Ok(())
    }
}

fn spawn(name: &str, work: impl FnOnce() + Send + 'static) -> io::Result<JoinHandle<()>> {
    thread::Builder::new().name(name.into()).spawn(work)
}
