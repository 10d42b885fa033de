//! The acceptor: takes connections and hands each to a worker, and notices
//! clients that hang up while they wait.

use super::workers::Workers;
use super::{Listener, Stream, shared::Shared};
use crate::{log, sys};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use std::cell::Cell;
use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long accepting pauses when the system has no more descriptors or threads
/// for us, in milliseconds.
const PAUSE_MS: u8 = 100;

/// For how long those with most connections are not named again.
const NAMED_FOR: Duration = Duration::from_secs(60);

/// Accepts connections until the other end of the pipe `stop` is closed.
pub fn run(shared: &Arc<Shared>, mut listeners: Vec<Listener>, stop: BorrowedFd<'_>) {
    let acceptor = Acceptor {
        shared,
        stop,
        workers: Workers::new(),
        named: Cell::default(),
    };
    while let Some(ready) = acceptor.wait(&listeners, PollTimeout::NONE) {
        let (mut ready, before) = (ready.into_iter(), listeners.len());
        listeners.retain(|listener| ready.next() != Some(true) || acceptor.accept(listener));
        if listeners.is_empty() && before > 0 {
            log::warning("no client can connect any more: no socket is left");
        }
    }
}

struct Acceptor<'a> {
    shared: &'a Arc<Shared>,
    /// The pipe whose other end is closed when the server ends.
    stop: BorrowedFd<'a>,
    workers: Workers,
    /// When those with most connections were named last.
    named: Cell<Option<Instant>>,
}

impl Acceptor<'_> {
    /// Waits until a client connects, or until the time is over. Returns for each listener
    /// whether a client is there; `None` if the server ends. Clients that wait for jobs may
    /// hang up meanwhile: then their waits end.
    fn wait(&self, listeners: &[Listener], time: PollTimeout) -> Option<Vec<bool>> {
        let sockets = listeners.iter().map(|listener| listener.socket.as_fd());
        let fds = [self.stop, self.shared.hangups_in_reserve.as_fd()].into_iter();
        let fds = fds.chain(sockets);
        let mut fds: Vec<_> = fds.map(|fd| PollFd::new(fd, PollFlags::POLLIN)).collect();
        match poll(&mut fds, time) {
            Ok(_) | Err(Errno::EINTR) => {}
            // Nothing that a client does: so few descriptors need no memory of the kernel.
            Err(error) => panic!("waiting for connections: {error}"),
        }
        let mut ready = fds.iter().map(|fd| fd.any() == Some(true));
        let (ends, have_hung_up) = (ready.next()?, ready.next()?);
        if have_hung_up {
            self.shared.end_waits_of_hung_up();
        }
        (!ends).then(|| ready.collect())
    }

    /// Takes a connection. Returns whether the socket still listens.
    fn accept(&self, listener: &Listener) -> bool {
        match sys::accept(listener.socket.as_fd()) {
            Ok(socket) => self.connect(Stream(socket)),
            // The client has disconnected again, or the call was interrupted.
            Err(Errno::EAGAIN | Errno::ECONNABORTED | Errno::EINTR) => {}
            Err(Errno::EINVAL) => {
                log::warning(format_args!(
                    "no longer listening on {listener}: another program has shut the socket down"
                ));
                return false;
            }
            // There is no descriptor or no memory left; or the connection had an error of the
            // network before it was accepted.
            Err(error) => {
                let text = io::Error::from(error);
                log::warning(format_args!(
                    "accepting a connection: {text}; accepting pauses"
                ));
                self.pause();
            }
        }
        true
    }

    /// Hands the connection to a worker, unless there are too many already. If no
    /// thread can be started, accepting pauses until one can.
    fn connect(&self, stream: Stream) {
        let shared = self.shared;
        let client = match shared.connect(stream) {
            Ok(client) => client,
            Err(stream) => {
                let most = shared.limits.max_connections;
                log::client_warning(
                    stream.peer(),
                    format_args!("closed at once: the limit of connections, {most}, is reached"),
                );
                return self.name_those_with_most();
            }
        };
        while let Err(error) = self.workers.hand_over(shared, &client) {
            log::client_warning(
                &client.peer,
                format_args!("starting a thread: {error}; accepting pauses"),
            );
            if self.pause() {
                shared.disconnect(client.id);
                shared.leave(&client, false);
                return;
            }
        }
    }

    /// Logs which addresses have most connections, up to five, now and then: when the
    /// connections have run out, the operator cannot connect and ask.
    fn name_those_with_most(&self) {
        let named = self.named.replace(Some(Instant::now()));
        if named.is_some_and(|named| named.elapsed() < NAMED_FOR) {
            return self.named.set(named);
        }
        let mut counts: BTreeMap<_, u64> = BTreeMap::new();
        for client in self.shared.clients() {
            // One that had closed before it was accepted has no address.
            if let Some((address, _port)) = client.peer.rsplit_once(':') {
                *counts.entry(address.to_owned()).or_default() += 1;
            }
        }
        // To sort them all would take 4 kB of code.
        let most = (0..5).map_while(|_| {
            let (address, _) = counts.iter().max_by_key(|(_, count)| **count)?;
            let (address, count) = counts.remove_entry(&address.clone())?;
            Some(format!("{address} {count}"))
        });
        let most = most.collect::<Vec<_>>().join(", ");
        log::warning(format_args!("most connections have: {most}"));
    }

    /// Waits a little, or until the server ends. Returns whether it ends.
    fn pause(&self) -> bool {
        self.wait(&[], PAUSE_MS.into()).is_none()
    }
}
