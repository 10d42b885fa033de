//! A client as other threads see it: they answer its worker's wait, and may
//! send its replies.
//!
//! If a worker had to be woken to send a short reply, this would cost a switch
//! of threads before the client gets it. Mostly it would cost another one after
//! that, because the worker then finds nothing to read. So the thread that has
//! the reply sends it, if it need not wait for that.

use super::Stream;
use crate::engine::ConnectionId;
use crate::protocol::Reply;
use crate::sync::{AtomicU64, Condvar, Mutex, MutexGuard, Ordering};
use std::net::IpAddr;

/// A body of this length or more, in bytes, is not copied: its own worker sends it
/// directly from the job.
pub const UNCOPIED_BODY: usize = 2048;

/// A client that is connected.
pub struct Client {
    pub stream: Stream,
    /// Its id in the engine.
    pub id: ConnectionId,
    /// The address for which it counts, if connections are counted.
    pub address: Option<IpAddr>,
    /// So many bytes have come, and no command in them is left to be executed.
    /// Noted before any thread sends the last reply.
    executed: AtomicU64,
    /// Guards which thread sends next. While a thread holds it, it sends
    /// nothing that could make it wait for the client.
    slot: Mutex<Slot>,
    filled: Condvar,
}

/// What other threads put here for a worker that waits.
#[derive(Default)]
struct Slot {
    /// The answer to its `reserve`. It may come before the worker waits for it.
    answer: Option<Answer>,
    sends_next: Sender,
    /// The server is ending: no wait gets an answer any more.
    is_stopped: bool,
}

/// Who sends the next reply to a client.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Sender {
    /// The worker, and nobody else.
    #[default]
    Worker,
    /// The thread that has the answer: the worker waits for it, and has sent all
    /// replies before it.
    Answering,
    /// Another thread has a reply to send. The worker must send nothing before
    /// that.
    Owing,
    /// The same, and the worker sleeps until that reply is sent. (To notify it
    /// costs a system call even if it does not sleep.)
    OwingToSleeper,
}

/// What ends a worker's waiting.
pub enum Answer {
    /// The reply to the `reserve`, for the worker to send.
    Reply(Reply),
    /// The reply is sent.
    Sent {
        /// Its first word, for the log.
        word: &'static str,
        /// The part that did not fit into the socket: the worker has to send
        /// it.
        rest: Vec<u8>,
    },
    /// The server is ending.
    Stop,
}

impl Client {
    /// A client on this socket.
    pub fn new(stream: Stream, id: ConnectionId) -> Client {
        Client {
            stream,
            id,
            address: None,
            executed: AtomicU64::new(0),
            slot: Mutex::default(),
            filled: Condvar::new(),
        }
    }

    /// Notes that everything is executed that came in the first `bytes` bytes.
    pub fn note_executed(&self, bytes: u64) {
        self.executed.store(bytes, Ordering::Release);
    }

    /// Whether everything is executed that this client will ever have sent. To be
    /// asked when its peer has sent the end of its stream.
    pub fn has_nothing_left(&self) -> bool {
        self.stream.received() == Some(self.executed.load(Ordering::Acquire))
    }

    /// Blocks until the answer is there. All replies before it must have been
    /// sent.
    pub fn wait(&self) -> Answer {
        let mut slot = self.slot();
        slot.sends_next = Sender::Answering;
        let is_empty = |slot: &mut Slot| slot.answer.is_none() && !slot.is_stopped;
        let waited = self.filled.wait_while(slot, is_empty);
        let mut slot = waited.expect("no thread panics");
        slot.sends_next = Sender::Worker;
        // What was answered before the end is heard; the next wait has none.
        slot.answer.take().unwrap_or(Answer::Stop)
    }

    /// Ends the worker's waiting with this reply. A short reply is sent at
    /// once, if it may be and the worker is ready for it.
    pub fn answer(&self, reply: Reply, may_be_sent: bool) {
        let mut slot = self.slot();
        // The server is ending. Hand out no job now: the client could no longer
        // delete it, and it is ready again after the restart.
        if slot.is_stopped {
            return;
        }
        let is_ready = slot.sends_next == Sender::Answering;
        slot.answer = Some(if may_be_sent && is_ready && is_short(&reply) {
            Answer::Sent {
                word: reply.word(),
                rest: self.send_now(&reply),
            }
        } else {
            Answer::Reply(reply)
        });
        drop(slot);
        self.filled.notify_one();
    }

    /// Sends as much of a reply as fits into the socket, and returns the rest.
    fn send_now(&self, reply: &Reply) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(256);
        reply.encode(&mut bytes);
        if let Some(body) = reply.body() {
            bytes.extend_from_slice(body.wire());
        }
        // If this fails, the connection has ended; the worker notices it when
        // it reads.
        let sent = self.stream.try_write(&bytes).unwrap_or(bytes.len());
        bytes.split_off(sent)
    }

    /// For the end of the server: ends the worker's waiting, and makes it read
    /// the end of the stream.
    pub fn stop(&self) {
        self.slot().is_stopped = true;
        self.filled.notify_one();
        self.stream.stop_reading();
    }

    /// Notes that another thread will send the next reply, with
    /// [`send_owed`](Self::send_owed).
    pub fn owe_reply(&self) {
        self.slot().sends_next = Sender::Owing;
    }

    /// Blocks until that reply is sent.
    pub fn await_owed(&self) {
        let mut slot = self.slot();
        if slot.sends_next == Sender::Owing {
            slot.sends_next = Sender::OwingToSleeper;
            let is_owed = |slot: &mut Slot| slot.sends_next == Sender::OwingToSleeper;
            let waited = self.filled.wait_while(slot, is_owed);
            drop(waited.expect("no thread panics"));
        }
    }

    /// Sends a short reply, without waiting. If there is no room for it, the
    /// client has left very many replies unread and will not read this one
    /// either: its connection ends.
    pub fn send_owed(&self, reply: &Reply) {
        if !self.send_now(reply).is_empty() {
            self.stream.close();
        }
        let mut slot = self.slot();
        let before = std::mem::replace(&mut slot.sends_next, Sender::Worker);
        drop(slot);
        if before == Sender::OwingToSleeper {
            self.filled.notify_one();
        }
    }

    fn slot(&self) -> MutexGuard<'_, Slot> {
        self.slot.lock().expect("no thread panics")
    }
}

/// Whether a reply is short enough to be copied.
pub fn is_short(reply: &Reply) -> bool {
    match reply {
        Reply::Jobs(_) => false,
        reply => reply
            .body()
            .is_none_or(|body| body.wire().len() < UNCOPIED_BODY),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::{Body, JobId};
    use std::io::{IoSlice, Read};
    use std::os::unix::net::UnixStream;

    fn client() -> (Client, UnixStream) {
        let (ours, theirs) = UnixStream::pair().unwrap();
        (Client::new(Stream(ours.into()), ConnectionId(0)), theirs)
    }

    /// Fills the socket, so that there is no room for a reply. Returns how many
    /// bytes that took.
    fn fill(client: &Client) -> usize {
        let sent = || client.stream.try_write(&[b'.'; 1000]).unwrap();
        std::iter::repeat_with(sent)
            .take_while(|&sent| sent > 0)
            .sum()
    }

    fn receive(theirs: &mut UnixStream, length: usize) -> Vec<u8> {
        let mut bytes = vec![0; length];
        theirs.read_exact(&mut bytes).unwrap();
        bytes
    }

    #[test]
    fn it_is_seen_whether_the_peer_has_taken_all() {
        let (client, mut theirs) = client();
        assert!(client.stream.has_sent_all());
        client.send_owed(&Reply::TimedOut);
        assert!(!client.stream.has_sent_all());
        receive(&mut theirs, 11);
        assert!(client.stream.has_sent_all());
    }

    #[test]
    fn who_has_the_answer_sends_it_for_a_worker_that_waits() {
        let (client, mut theirs) = client();
        client.slot().sends_next = Sender::Answering;
        client.answer(Reply::TimedOut, true);
        assert_eq!(receive(&mut theirs, 11), b"TIMED_OUT\r\n");
        let Answer::Sent { word, rest } = client.wait() else {
            panic!("it is sent");
        };
        assert_eq!((word, rest), ("TIMED_OUT", Vec::new()));
    }

    #[test]
    fn of_an_answer_that_finds_no_room_the_rest_is_left_to_the_worker() {
        let (client, _theirs) = client();
        fill(&client);
        client.slot().sends_next = Sender::Answering;
        client.answer(Reply::TimedOut, true);
        let Answer::Sent { rest, .. } = client.wait() else {
            panic!("it may be sent");
        };
        assert_eq!(rest, b"TIMED_OUT\r\n");
    }

    #[test]
    fn a_worker_that_has_something_else_to_say_before_sends_the_answer_itself() {
        let (client, mut theirs) = client();
        client.answer(Reply::TimedOut, true);
        client
            .stream
            .write_all(&mut [IoSlice::new(b"INSERTED 1\r\n")], |_| Ok(()))
            .unwrap();
        assert!(matches!(client.wait(), Answer::Reply(Reply::TimedOut)));
        client.stream.close();
        let mut received = String::new();
        theirs.read_to_string(&mut received).unwrap();
        assert_eq!(received, "INSERTED 1\r\n");
    }

    #[test]
    fn once_the_server_is_ending_nobody_who_waits_is_answered() {
        let (client, mut theirs) = client();
        client.slot().sends_next = Sender::Answering;
        client.stop();
        client.answer(Reply::TimedOut, true);
        assert!(matches!(client.wait(), Answer::Stop));
        client.stream.close();
        assert_eq!(theirs.read(&mut [0]).unwrap(), 0);
    }

    #[test]
    fn what_was_answered_before_the_end_is_heard_and_no_wait_after_it_lasts() {
        let (client, _theirs) = client();
        client.answer(Reply::TimedOut, true);
        client.stop();
        assert!(matches!(client.wait(), Answer::Reply(Reply::TimedOut)));
        assert!(matches!(client.wait(), Answer::Stop));
    }

    #[test]
    fn who_leaves_no_room_for_a_reply_is_cut_off() {
        let (client, mut theirs) = client();
        let unread = fill(&client);
        client.owe_reply();
        client.send_owed(&Reply::Inserted(JobId(1)));
        client.await_owed();
        receive(&mut theirs, unread);
        assert_eq!(theirs.read(&mut [0]).unwrap(), 0);
    }

    /// Only the worker sends a body without a copy of it.
    #[test]
    fn a_long_body_is_left_to_the_worker() {
        for (length, is_left) in [(UNCOPIED_BODY - 1, false), (UNCOPIED_BODY, true)] {
            let (client, _theirs) = client();
            client.slot().sends_next = Sender::Answering;
            let body = Body::new(&vec![b'x'; length - 2]);
            client.answer(Reply::Reserved(JobId(1), body), true);
            assert_eq!(matches!(client.wait(), Answer::Reply(_)), is_left);
        }
    }
}
