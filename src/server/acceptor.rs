//! The acceptor: takes connections and hands each to a worker, and notices
//! clients that hang up.

use super::outbox::Client;
use super::shared::Shared;
use super::{Listener, Stream, workers};
use crate::log;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::Duration;

/// How long accepting pauses when the system has no more descriptors or threads
/// for us.
const PAUSE: Duration = Duration::from_millis(100);

/// Accepts connections until the other end of the pipe `stop` is closed.
pub fn run(shared: &Arc<Shared>, listeners: &[Listener], stop: BorrowedFd<'_>) {
    let mut open: Vec<_> = listeners.iter().collect();
    let acceptor = Acceptor { shared, stop };
    loop {
        let sockets = open.iter().map(|listener| listener.socket.as_fd());
        let Some(ready) = acceptor.wait(sockets, PollTimeout::NONE) else {
            return;
        };
        let mut ready = ready.into_iter();
        open.retain(|listener| {
            let is_ready = ready.next().expect("one for each");
            !is_ready || acceptor.accept(listener)
        });
    }
}

struct Acceptor<'a> {
    shared: &'a Arc<Shared>,
    /// The pipe whose other end is closed when the server ends.
    stop: BorrowedFd<'a>,
}

impl Acceptor<'_> {
    /// Waits until clients connect to one of these sockets, or until the time
    /// is over. Returns for each socket whether it is ready; `None` if the
    /// server ends. Meanwhile clients that wait for jobs may have hung up: that
    /// is noted.
    fn wait<'fd>(
        &'fd self,
        sockets: impl Iterator<Item = BorrowedFd<'fd>>,
        timeout: PollTimeout,
    ) -> Option<Vec<bool>> {
        let fds = [self.stop, self.shared.hangups.as_fd()].into_iter();
        let fds = fds.chain(sockets);
        let mut fds: Vec<_> = fds.map(|fd| PollFd::new(fd, PollFlags::POLLIN)).collect();
        match poll(&mut fds, timeout) {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(error) => panic!("waiting for connections: {error}"),
        }
        let mut ready = fds.iter().map(|fd| fd.any() == Some(true));
        let (ends, have_left) = (ready.next()?, ready.next()?);
        if have_left {
            self.shared.end_waits_of_the_gone();
        }
        (!ends).then(|| ready.collect())
    }

    /// Takes a connection. Returns whether more can come from this listener.
    fn accept(&self, listener: &Listener) -> bool {
        match listener.accept() {
            Ok(stream) => self.connect(stream),
            // The client is gone again, or the call was interrupted.
            Err(Errno::EAGAIN | Errno::ECONNABORTED | Errno::EINTR) => {}
            Err(error @ (Errno::EMFILE | Errno::ENFILE | Errno::ENOBUFS | Errno::ENOMEM)) => {
                let error = io::Error::from(error);
                log::warning(format_args!(
                    "accepting a connection: {error}; accepting pauses"
                ));
                self.pause();
            }
            // Another program has shut the socket down.
            Err(error @ (Errno::EINVAL | Errno::EBADF | Errno::ENOTSOCK | Errno::EOPNOTSUPP)) => {
                let error = io::Error::from(error);
                log::error(format_args!(
                    "listening on {listener} ends: accepting a connection: {error}"
                ));
                return false;
            }
            Err(error) => {
                let error = io::Error::from(error);
                log::warning(format_args!("accepting a connection: {error}"));
                self.pause();
            }
        }
        true
    }

    /// Hands the connection to a worker, unless there are too many already.
    fn connect(&self, stream: Stream) {
        let counts = self.shared.limits.max_connections_per_address;
        let address = counts.and_then(|_| stream.peer_ip());
        match self.shared.connect(stream, address) {
            Ok(client) => self.hand_over(client),
            Err((stream, full)) => {
                log::client_warning(stream, format_args!("closed at once: {full}"));
            }
        }
    }

    /// Gives the client to a worker. If no thread can be started, accepting
    /// pauses until one can.
    fn hand_over(&self, client: Arc<Client>) {
        if let Err(error) = self.shared.hangups.watch(&client) {
            log::client_warning(
                &client.stream,
                format_args!("closed at once: watching it: {error}"),
            );
            return self.close(client);
        }
        while let Err(error) = workers::hand_over(self.shared, &client) {
            log::client_warning(
                &client.stream,
                format_args!("starting a thread: {error}; accepting pauses"),
            );
            if self.pause() {
                return self.close(client);
            }
        }
    }

    fn close(&self, client: Arc<Client>) {
        self.shared.disconnect(client.id);
        drop(client);
        self.shared.closed(|_| ());
    }

    /// Waits a little, or until the server ends. Returns whether it ends.
    fn pause(&self) -> bool {
        let pause = PollTimeout::try_from(PAUSE).expect("a short time");
        self.wait(std::iter::empty(), pause).is_none()
    }
}
