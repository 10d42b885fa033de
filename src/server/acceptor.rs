//! The acceptor: takes connections and hands each to a worker.

use super::connection::{self, Turns};
use super::hangup::HangupWatcher;
use super::shared::Shared;
use super::workforce::Workforce;
use super::{Limits, Listener, Stream};
use crate::binlog::Binlog;
use crate::log;
use crate::protocol::stats::BinlogStats;
use crossbeam_channel::{Receiver, bounded};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

/// Of a worker's stack, in bytes. Only what is touched of it costs memory.
const WORKER_STACK: usize = 128 * 1024;

/// How long accepting pauses when the system has no more descriptors or threads
/// for us.
const PAUSE: Duration = Duration::from_millis(100);

/// So many workers may be on their way from one client to the next when all
/// places for connections are taken. If thousands leave and come back at once,
/// the system might have no more threads than these.
const SPARE_WORKERS: usize = 16;

/// What a worker needs to serve a connection.
pub struct Service {
    /// The state of the server.
    pub shared: Shared,
    /// Where jobs are kept, if on disk.
    pub binlog: Option<Arc<Binlog>>,
    /// Who is told of those who leave while they wait.
    pub hangups: HangupWatcher,
    /// What each and all of them may have.
    pub limits: Limits,
    workforce: Workforce<Client>,
    /// Of which each connection has a share, so that they can be counted.
    places: Arc<()>,
}

impl Service {
    /// A service that nobody uses yet.
    pub fn new(
        shared: Shared,
        binlog: Option<Arc<Binlog>>,
        hangups: HangupWatcher,
        limits: Limits,
    ) -> Service {
        Service {
            shared,
            binlog,
            hangups,
            limits,
            workforce: Workforce::new(),
            places: Arc::new(()),
        }
    }

    /// The binlog's part of `stats`.
    pub fn binlog_stats(&self) -> BinlogStats {
        let max_size = self.limits.segment_size;
        let Some(binlog) = &self.binlog else {
            return BinlogStats {
                max_size,
                ..BinlogStats::default()
            };
        };
        let stats = binlog.stats();
        BinlogStats {
            oldest_index: stats.oldest_index.into(),
            current_index: stats.current_index.into(),
            records_migrated: stats.records_migrated,
            records_written: stats.records_written,
            max_size,
        }
    }

    /// A place for one more connection, if there is one.
    fn take_place(&self) -> Option<Place> {
        let taken = Arc::strong_count(&self.places) - 1;
        (taken < self.limits.max_connections).then(|| Place {
            _share: Arc::clone(&self.places),
        })
    }
}

/// One of the places for connections: whoever has it counts.
pub struct Place {
    _share: Arc<()>,
}

/// A connection on its way to a worker.
struct Client {
    stream: Stream,
    place: Place,
}

/// Accepts connections until `stop` can be read.
pub fn run(service: &Arc<Service>, listeners: &[Listener], stop: BorrowedFd<'_>) {
    let acceptor = Acceptor { service, stop };
    loop {
        let fds = listeners.iter().map(Listener::as_fd).chain([stop]);
        let mut fds: Vec<_> = fds.map(|fd| PollFd::new(fd, PollFlags::POLLIN)).collect();
        match poll(&mut fds, PollTimeout::NONE) {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(error) => panic!("waiting for connections: {error}"),
        }
        let is_ready = |fd: &PollFd| fd.any() == Some(true);
        if fds.last().is_some_and(is_ready) {
            return;
        }
        for (listener, fd) in listeners.iter().zip(&fds) {
            if is_ready(fd) {
                acceptor.accept(listener);
            }
        }
    }
}

struct Acceptor<'a> {
    service: &'a Arc<Service>,
    /// Can be read once the server ends.
    stop: BorrowedFd<'a>,
}

impl Acceptor<'_> {
    fn accept(&self, listener: &Listener) {
        match listener.accept() {
            Ok(stream) => match self.service.take_place() {
                Some(place) => self.hand_over(Client { stream, place }),
                None => log::client_warning(
                    stream,
                    format_args!(
                        "closed at once: there are {} connections already",
                        self.service.limits.max_connections
                    ),
                ),
            },
            Err(error) => match error.raw_os_error().map(Errno::from_raw) {
                Some(Errno::EMFILE | Errno::ENFILE | Errno::ENOBUFS | Errno::ENOMEM) => {
                    log::warning(format_args!(
                        "accepting a connection: {error}; accepting pauses"
                    ));
                    self.pause();
                }
                // The client has gone again.
                _ if is_passing(&error) => {}
                _ => log::warning(format_args!("accepting a connection: {error}")),
            },
        }
    }

    /// Gives the client to an idle worker or else to a new one. If there can be
    /// no new one, accepting pauses until one of the two is to be had.
    fn hand_over(&self, mut client: Client) {
        let workforce = &self.service.workforce;
        let enough = self
            .service
            .limits
            .max_connections
            .saturating_add(SPARE_WORKERS);
        loop {
            client = match workforce.give(client, enough) {
                Ok(()) => return,
                Err(client) => client,
            };
            client = match self.start_worker(client) {
                Ok(()) => return,
                Err((error, back)) => {
                    log::client_warning(
                        &back.stream,
                        format_args!("starting a thread: {error}; accepting pauses"),
                    );
                    back
                }
            };
            if self.pause() {
                return;
            }
        }
    }

    /// Starts a worker that serves this client first.
    fn start_worker(&self, client: Client) -> Result<(), (io::Error, Client)> {
        let workforce = &self.service.workforce;
        workforce.add();
        let service = Arc::clone(self.service);
        let (to_worker, first) = bounded(1);
        let worker = thread::Builder::new()
            .name("worker".into())
            .stack_size(WORKER_STACK)
            .spawn(move || work(&service, first));
        match worker {
            Ok(_) => {
                // It fails only if the worker is gone, which it isn't without work.
                let (Ok(()) | Err(_)) = to_worker.send(client);
                Ok(())
            }
            Err(error) => {
                workforce.remove();
                Err((error, client))
            }
        }
    }

    /// Waits a little, or until the server ends; whether it does.
    fn pause(&self) -> bool {
        let pause = PollTimeout::try_from(PAUSE).expect("a short time");
        poll(&mut [PollFd::new(self.stop, PollFlags::POLLIN)], pause) == Ok(1)
    }
}

fn is_passing(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, Interrupted, WouldBlock};
    matches!(error.kind(), ConnectionAborted | Interrupted | WouldBlock)
}

/// A worker's life: one connection after the other. Ends when there was none
/// for a while.
fn work(service: &Service, first: Receiver<Client>) {
    let mut turns = Turns::default();
    let mut next = first.recv().ok();
    drop(first);
    while let Some(client) = next {
        connection::serve(service, client.stream, client.place, &mut turns);
        next = service.workforce.next();
    }
}
