//! Takes connections, and gives each a thread of its own, up to a bound.
//!
//! A connection is *idle* while we wait for its bytes or for it to take ours,
//! and *busy* from its complete request until its answer is made. If there are
//! as many as there may be, the oldest idle one is closed for the next one.
//! Whoever sends a request at once is idle for a moment only.

use super::message::{Answer, Site};
use super::wire;
use crate::failure::{Failure, Outcome};
use crate::text::output::complain;
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

/// How many connections may be open at once.
const MOST: usize = 64;
/// How many answers are made at once; other requests wait.
const MOST_AT_ONCE: usize = 8;
/// The stack of a thread, in bytes.
const STACK: usize = 512 << 10;

/// Listens at `HOST:PORT`, or at this port of the loopback.
pub fn bind(address: &str) -> Outcome<TcpListener> {
    let listener = match address.parse() {
        Ok(port) => TcpListener::bind(("127.0.0.1", port)),
        Err(_) => TcpListener::bind(address),
    };
    listener.map_err(|error| Failure::io(format_args!("cannot listen on {address}"), error))
}

/// Where a browser finds what listens there.
pub fn url(listener: &TcpListener) -> Outcome<String> {
    let bound = listener.local_addr();
    let bound = bound.map_err(|error| Failure::io("cannot learn the own address", error));
    Ok(format!("http://{}", bound?))
}

/// Serves this site until the program ends.
pub fn serve(listener: &TcpListener, site: &impl Site) -> ! {
    let connections = Connections::default();
    match thread::scope(|scope| -> Infallible {
        loop {
            let taken = listener.accept().and_then(|(stream, _)| {
                let number = connections.admit(stream.try_clone()?);
                let connections = &connections;
                let serve = move || connections.serve(number, stream, site);
                let thread = thread::Builder::new().stack_size(STACK);
                let spawned = thread.spawn_scoped(scope, serve);
                spawned
                    .map(drop)
                    .inspect_err(|_| connections.forget(number))
            });
            if let Err(error) = taken {
                complain!("cannot take a connection: {error}");
                // There may be a descriptor or a thread when one has left.
                let second = Duration::from_secs(1);
                drop(connections.changed.wait_timeout(connections.lock(), second));
            }
        }
    }) {}
}

/// The open connections, by the order in which they came.
#[derive(Default)]
struct Connections {
    open: Mutex<Open>,
    /// A connection was closed, or has become idle.
    changed: Condvar,
}

#[derive(Default)]
struct Open {
    next: u64,
    /// How many answers are being made.
    answering: usize,
    connections: BTreeMap<u64, Connection>,
}

struct Connection {
    stream: TcpStream,
    is_busy: bool,
    is_closed: bool,
}

impl Connections {
    /// Guards nothing that a panic could leave half done.
    fn lock(&self) -> MutexGuard<'_, Open> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts one more connection, as soon as there is room for it.
    fn admit(&self, stream: TcpStream) -> u64 {
        let mut open = self.lock();
        while open.connections.len() >= MOST {
            let idle = open.connections.values_mut();
            if let Some(oldest) = idle.into_iter().find(|one| !one.is_busy && !one.is_closed) {
                oldest.is_closed = true;
                // It fails only if the other side was faster.
                let _ = oldest.stream.shutdown(Shutdown::Both);
            }
            open = self
                .changed
                .wait(open)
                .unwrap_or_else(PoisonError::into_inner);
        }
        open.next += 1;
        let (number, is_busy, is_closed) = (open.next, false, false);
        open.connections.insert(
            number,
            Connection {
                stream,
                is_busy,
                is_closed,
            },
        );
        number
    }

    fn serve(&self, number: u64, mut stream: TcpStream, site: &impl Site) {
        // An error concerns only this client, which gets no answer.
        if let Ok(request) = wire::request(&mut stream, site) {
            let answer = match request {
                Ok(request) => self.while_busy(number, || site.answer(&request)),
                Err(refusal) => refusal,
            };
            let _ = wire::write(&mut stream, &answer);
        }
        self.forget(number);
    }

    /// Makes an answer, once it is the turn of this connection.
    fn while_busy(&self, number: u64, answer: impl FnOnce() -> Answer) -> Answer {
        let mut open = self.lock();
        open.set_busy(number, true);
        while open.answering >= MOST_AT_ONCE {
            open = self
                .changed
                .wait(open)
                .unwrap_or_else(PoisonError::into_inner);
        }
        open.answering += 1;
        drop(open);
        let answer = answer();
        let mut open = self.lock();
        open.answering -= 1;
        open.set_busy(number, false);
        self.changed.notify_all();
        answer
    }

    fn forget(&self, number: u64) {
        self.lock().connections.remove(&number);
        self.changed.notify_all();
    }
}

impl Open {
    fn set_busy(&mut self, number: u64, is_busy: bool) {
        if let Some(connection) = self.connections.get_mut(&number) {
            connection.is_busy = is_busy;
        }
    }
}
