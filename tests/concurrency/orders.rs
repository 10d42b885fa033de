//! The server's own primitives under shuttle, which decides at each step of a
//! lock, a condition variable or an atomic number which thread goes on: in
//! random orders, and in orders with few switches at odd places. A lost wake-up
//! is a deadlock, which it notices.
//!
//! The files are the server's own: only where they get their primitives from,
//! `sync`, is another one here, and the stream a list of bytes. Shuttle knows no
//! weaker order of memory than the strictest; for what that could hide, the
//! primitives would have to be read.
//!
//! `ORDERS=1000000 cargo run --release` tries so many orders of each.

mod sync {
    pub use shuttle::sync::atomic::{AtomicUsize, Ordering};
    pub use shuttle::sync::{Condvar, Mutex, MutexGuard};

    pub mod thread {
        pub use shuttle::thread::yield_now;
        use std::num::NonZero;

        /// One permit then: one less than this.
        pub fn available_parallelism() -> std::io::Result<NonZero<usize>> {
            Ok(NonZero::<usize>::MIN.saturating_add(1))
        }
    }
}

#[allow(dead_code)]
#[path = "../../src/server/client.rs"]
mod client;
#[allow(dead_code)]
#[path = "../../src/server/lock.rs"]
mod lock;
#[allow(dead_code)]
#[path = "../../src/server/permits.rs"]
mod permits;

use beanpole::{engine, protocol};
use client::{Answer, Client};
use engine::ConnectionId;
use lock::FairMutex;
use permits::Permits;
use protocol::Reply;
use shuttle::sync::Arc;
use shuttle::sync::atomic::{AtomicUsize, Ordering};
use shuttle::thread;

/// A socket that takes so many bytes without waiting.
struct Stream {
    sent: sync::Mutex<Vec<u8>>,
    room: usize,
}

impl Stream {
    fn try_write(&self, bytes: &[u8]) -> std::io::Result<usize> {
        let mut sent = self.sent.lock().unwrap();
        let count = bytes.len().min(self.room - sent.len());
        sent.extend_from_slice(&bytes[..count]);
        Ok(count)
    }

    fn stop_reading(&self) {}

    fn close(&self) {}
}

fn client(room: usize) -> Arc<Client> {
    let sent = sync::Mutex::default();
    let stream = Stream { sent, room };
    Arc::new(Client::new(stream, ConnectionId(0)))
}

fn sent(client: &Client) -> Vec<u8> {
    client.stream.sent.lock().unwrap().clone()
}

fn main() {
    let orders = std::env::var("ORDERS").map_or(20_000, |text| text.parse().expect("ORDERS"));
    let scenarios: [(&str, fn()); 6] = [
        ("the lock is had by one", the_lock_is_had_by_one),
        ("a permit is had by one", a_permit_is_had_by_one),
        ("who waits hears the answer once", || answered(100)),
        ("and what had no room is not lost", || answered(3)),
        ("who stops waits no more", stopped),
        ("an owed reply goes before the next", owed),
    ];
    for (name, scenario) in scenarios {
        shuttle::check_random(scenario, orders);
        shuttle::check_pct(scenario, orders, 3);
        println!("{name}: {} orders", 2 * orders);
    }
}

fn the_lock_is_had_by_one() {
    let lock = Arc::new(FairMutex::new(0));
    let inside = Arc::new(AtomicUsize::new(0));
    let threads: Vec<_> = (0..3)
        .map(|number| {
            let (lock, inside) = (lock.clone(), inside.clone());
            thread::spawn(move || {
                for _ in 0..2 {
                    let mut guard = match number {
                        0 => lock.lock_last(),
                        _ => lock.lock(),
                    };
                    assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0);
                    *guard += 1;
                    assert_eq!(inside.fetch_sub(1, Ordering::SeqCst), 1);
                }
            })
        })
        .collect();
    for thread in threads {
        thread.join().unwrap();
    }
    assert_eq!(*lock.lock(), 6);
    assert!(!lock.is_awaited(), "nobody waits when all have gone");
}

fn a_permit_is_had_by_one() {
    let permits = Arc::new(Permits::new());
    let inside = Arc::new(AtomicUsize::new(0));
    let threads: Vec<_> = (0..3)
        .map(|_| {
            let (permits, inside) = (permits.clone(), inside.clone());
            thread::spawn(move || {
                for _ in 0..2 {
                    let _permit = permits.take();
                    assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0);
                    thread::yield_now();
                    assert_eq!(inside.fetch_sub(1, Ordering::SeqCst), 1);
                }
            })
        })
        .collect();
    for thread in threads {
        thread.join().unwrap();
    }
    // It came back: nobody waits for ever.
    drop(permits.take());
}

/// A worker waits, twice; others answer, with so much room in the socket.
fn answered(room: usize) {
    let client = client(room);
    let worker = {
        let client = client.clone();
        thread::spawn(move || match client.wait() {
            Answer::Reply(reply) => {
                assert!(sent(&client).is_empty(), "it is sent by one of the two");
                let mut bytes = Vec::new();
                reply.encode(&mut bytes);
                bytes
            }
            Answer::Sent { rest, .. } => [sent(&client), rest].concat(),
            Answer::Stop => unreachable!("nobody stops"),
        })
    };
    client.answer(Reply::TimedOut);
    assert_eq!(worker.join().unwrap(), b"TIMED_OUT\r\n");
}

/// A worker waits while one answers and another one stops the server.
fn stopped() {
    let client = client(100);
    let worker = {
        let client = client.clone();
        thread::spawn(move || match client.wait() {
            Answer::Stop => assert!(sent(&client).is_empty(), "it stops without an answer"),
            Answer::Sent { rest, .. } => assert!(rest.is_empty()),
            Answer::Reply(_) => assert!(sent(&client).is_empty()),
        })
    };
    let answering = {
        let client = client.clone();
        thread::spawn(move || client.answer(Reply::TimedOut))
    };
    client.stop();
    answering.join().unwrap();
    worker.join().unwrap();
}

/// A worker goes on when another thread has sent what that owes.
fn owed() {
    let client = client(100);
    client.owe_reply();
    let other = {
        let client = client.clone();
        thread::spawn(move || client.send_owed(&Reply::Deleted))
    };
    client.await_owed();
    client.stream.try_write(b"second\r\n").unwrap();
    other.join().unwrap();
    // Another time, from the same state.
    client.owe_reply();
    client.send_owed(&Reply::Buried);
    client.await_owed();
    assert_eq!(sent(&client), b"DELETED\r\nsecond\r\nBURIED\r\n");
}
