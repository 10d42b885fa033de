//! The lock and a client's slot, each alone.

use crate::server::client::{Answer, Client};
use crate::server::lock::FairMutex;
use crate::server::{Peer, Stream};
use beanpole::engine::ConnectionId;
use beanpole::protocol::Reply;
use shuttle::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use shuttle::thread;
use std::io::IoSlice;
use std::sync::Arc;

/// A client whose socket takes so many bytes without waiting.
fn client(room: usize) -> (Arc<Client>, Peer) {
    let (stream, peer) = Stream::pair(room);
    (Arc::new(Client::new(stream, ConnectionId(0))), peer)
}

pub fn the_lock_is_had_by_one() {
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

/// A worker waits, twice; others answer, with so much room in the socket.
pub fn answered(room: usize) {
    let (client, peer) = client(room);
    let worker = {
        let client = client.clone();
        thread::spawn(move || match client.wait() {
            Answer::Reply(reply) => {
                assert!(peer.receive(0).is_empty(), "it is sent by one of the two");
                let mut bytes = Vec::new();
                reply.encode(&mut bytes);
                bytes
            }
            Answer::Sent { rest, .. } => [peer.receive(0).into_bytes(), rest].concat(),
            Answer::Stop => unreachable!("nobody stops"),
        })
    };
    client.answer(Reply::TimedOut, true);
    assert_eq!(worker.join().unwrap(), b"TIMED_OUT\r\n");
}

/// A worker waits while one answers and another one stops the server: an answer
/// that comes after the stop is not heard.
pub fn stopped() {
    let (client, peer) = client(100);
    let has_stopped = Arc::new(AtomicBool::new(false));
    let worker = {
        let client = client.clone();
        thread::spawn(move || {
            let answer = client.wait();
            match &answer {
                Answer::Stop => assert!(peer.receive(0).is_empty(), "it stops without an answer"),
                Answer::Sent { rest, .. } => assert!(rest.is_empty()),
                Answer::Reply(_) => assert!(peer.receive(0).is_empty()),
            }
            matches!(answer, Answer::Stop)
        })
    };
    let answering = {
        let (client, has_stopped) = (client.clone(), has_stopped.clone());
        thread::spawn(move || {
            let is_late = has_stopped.load(Ordering::SeqCst);
            client.answer(Reply::TimedOut, true);
            is_late
        })
    };
    client.stop();
    has_stopped.store(true, Ordering::SeqCst);
    let is_late = answering.join().unwrap();
    let stops = worker.join().unwrap();
    assert!(stops || !is_late, "it hears what came after the stop");
}

/// A worker goes on when another thread has sent what that owes.
pub fn owed() {
    let (client, peer) = client(100);
    client.owe_reply();
    let other = {
        let client = client.clone();
        thread::spawn(move || client.send_owed(&Reply::Deleted))
    };
    client.await_owed();
    client
        .stream
        .write_all(&mut [IoSlice::new(b"second\r\n")], |_| Ok(()))
        .unwrap();
    other.join().unwrap();
    // Another time, from the same state.
    client.owe_reply();
    client.send_owed(&Reply::Buried);
    client.await_owed();
    assert_eq!(peer.receive(0), "DELETED\r\nsecond\r\nBURIED\r\n");
}
