//! The acceptor: takes connections and hands each to a worker.

use super::Listener;
use super::client::Client;
use super::shared::Shared;
use super::workers::Workers;
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

/// Accepts connections until `stop` can be read.
pub fn run(shared: &Arc<Shared>, listeners: &[Listener], stop: BorrowedFd<'_>) {
    let acceptor = Acceptor {
        shared,
        workers: Workers::new(Arc::clone(shared)),
        stop,
    };
    loop {
        let sockets = listeners.iter().map(|listener| listener.socket.as_fd());
        let fds = sockets.chain([stop]);
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
    shared: &'a Arc<Shared>,
    workers: Workers,
    /// Becomes readable when the server ends.
    stop: BorrowedFd<'a>,
}

impl Acceptor<'_> {
    fn accept(&self, listener: &Listener) {
        match listener.accept() {
            Ok(stream) => match self.shared.connect(stream) {
                Ok(client) => self.hand_over(client),
                Err(stream) => log::client_warning(
                    stream,
                    format_args!(
                        "closed at once: there are {} connections already",
                        self.shared.limits.max_connections
                    ),
                ),
            },
            // The client is gone again, or the call was interrupted.
            Err(Errno::EAGAIN | Errno::ECONNABORTED | Errno::EINTR) => {}
            Err(error @ (Errno::EMFILE | Errno::ENFILE | Errno::ENOBUFS | Errno::ENOMEM)) => {
                let error = io::Error::from(error);
                log::warning(format_args!(
                    "accepting a connection: {error}; accepting pauses"
                ));
                self.pause();
            }
            Err(error) => {
                let error = io::Error::from(error);
                log::warning(format_args!("accepting a connection: {error}"));
            }
        }
    }

    /// Gives the client to a worker. If no thread can be started, accepting
    /// pauses until one can.
    fn hand_over(&self, client: Arc<Client>) {
        while let Err(error) = self.workers.hand_over(&client) {
            log::client_warning(
                &client.stream,
                format_args!("starting a thread: {error}; accepting pauses"),
            );
            if self.pause() {
                return self.shared.disconnect(client.id);
            }
        }
    }

    /// Waits a little, or until the server ends. Returns whether it ends.
    fn pause(&self) -> bool {
        let pause = PollTimeout::try_from(PAUSE).expect("a short time");
        poll(&mut [PollFd::new(self.stop, PollFlags::POLLIN)], pause) == Ok(1)
    }
}
