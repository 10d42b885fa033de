//! The acceptor: takes connections and hands each to a worker.

use super::client::Client;
use super::shared::Shared;
use super::{Listener, worker};
use crate::{log, sys};
use crossbeam_channel::{Receiver, Sender, bounded};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

/// The size of a worker's stack, in bytes. Only what is touched of it costs
/// memory.
const WORKER_STACK: usize = 128 * 1024;

/// How long a worker waits for another client before it ends.
const LINGERS: Duration = Duration::from_secs(10);

/// How long accepting pauses when the system has no more descriptors or threads
/// for us.
const PAUSE: Duration = Duration::from_millis(100);

/// Accepts connections until `stop` can be read.
pub fn run(shared: &Arc<Shared>, listeners: &[Listener], stop: BorrowedFd<'_>) {
    let (to_idle, clients) = bounded(0);
    let acceptor = Acceptor {
        shared,
        to_idle,
        clients,
        stop,
    };
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
    shared: &'a Arc<Shared>,
    /// Without room: what is sent is taken by a worker that waits for it.
    to_idle: Sender<Arc<Client>>,
    /// The other end, for workers.
    clients: Receiver<Arc<Client>>,
    /// Can be read once the server ends.
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
            // The client has gone again.
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

    /// Gives the client to an idle worker or else to a new one. If there can be
    /// no new one, accepting pauses until one of the two is to be had.
    fn hand_over(&self, client: Arc<Client>) {
        while self.to_idle.try_send(Arc::clone(&client)).is_err() {
            let (shared, clients) = (Arc::clone(self.shared), self.clients.clone());
            let first = Arc::clone(&client);
            let worker = sys::find_room_for_threads().and_then(|()| {
                thread::Builder::new()
                    .name("worker".into())
                    .stack_size(WORKER_STACK)
                    .spawn(move || work(&shared, first, &clients))
            });
            let Err(error) = worker else { return };
            log::client_warning(
                &client.stream,
                format_args!("starting a thread: {error}; accepting pauses"),
            );
            if self.pause() {
                return self.shared.disconnect(client.id);
            }
        }
    }

    /// Waits a little, or until the server ends; whether it does.
    fn pause(&self) -> bool {
        let pause = PollTimeout::try_from(PAUSE).expect("a short time");
        poll(&mut [PollFd::new(self.stop, PollFlags::POLLIN)], pause) == Ok(1)
    }
}

/// A worker's life: one client after the other. Ends when there was none for a
/// while.
fn work(shared: &Shared, first: Arc<Client>, clients: &Receiver<Arc<Client>>) {
    shared.with_lock(|state, _| state.workers += 1);
    let mut client = first;
    loop {
        worker::serve(shared, &client);
        drop(client);
        match clients.recv_timeout(LINGERS) {
            Ok(next) => client = next,
            Err(_) => return shared.with_lock(|state, _| state.workers -= 1),
        }
    }
}
