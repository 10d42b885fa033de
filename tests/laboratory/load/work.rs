//! Put, reserve and delete as steps that each connection repeats.
//!
//! A connection sends the batch of its step, checks the replies, and goes on to
//! the next step with the jobs of its batch. One list of steps makes `put`,
//! another one `cycle`, and a third one drains a queue.

use super::arrivals::{Arrivals, Left, Rate};
use super::histogram::Histogram;
use super::jobs::{Ledger, PutBatch, Shape};
use super::reply::Reply;
use super::wire::{Script, Wire, unexpected};
use companion::failure::{Failure, Outcome};
use std::io::Write;
use std::time::Instant;

/// What a connection does with a batch of jobs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Step {
    /// Puts new jobs.
    Put,
    /// Reserves as many jobs as the batch has, or a new batch if this is the
    /// first step.
    Reserve,
    /// Deletes the jobs of the batch.
    Delete,
}

/// Puts jobs and leaves them.
pub const PUT: &[Step] = &[Step::Put];
/// Puts, reserves and deletes jobs.
pub const CYCLE: &[Step] = &[Step::Put, Step::Reserve, Step::Delete];
/// Reserves and deletes jobs.
pub const DRAIN: &[Step] = &[Step::Reserve, Step::Delete];

/// The work of some connections, and what is known about their jobs.
pub struct Work {
    steps: &'static [Step],
    depth: usize,
    arrivals: Arrivals,
    batch: PutBatch,
    hands: Vec<Hand>,
    /// How many connections wait for a reply.
    busy: usize,
    requests: Vec<u8>,
    /// The record of all jobs of these connections.
    pub ledger: Ledger,
    /// How long each reply took.
    pub latency: Histogram,
    /// How long after its arrival each batch was sent. This matters at a rate.
    pub delay: Histogram,
}

/// The batch of a connection.
#[derive(Default)]
struct Hand {
    /// Whether the connection waits for replies.
    busy: bool,
    step: usize,
    /// The jobs of the batch; while reserving, those that have come up to now.
    jobs: Vec<u64>,
    /// How many replies to this batch are expected, and how many have come.
    due: usize,
    came: usize,
}

impl Work {
    /// Work for this many connections, with memory for `room` jobs.
    pub fn new(shape: &Shape, connections: usize, depth: usize, room: usize) -> Work {
        Work {
            steps: PUT,
            depth,
            arrivals: Arrivals::new(Left::Jobs(0), connections, depth, None),
            batch: PutBatch::new(shape, depth),
            hands: (0..connections).map(|_| Hand::default()).collect(),
            busy: 0,
            requests: b"reserve\r\n".repeat(depth),
            ledger: Ledger::new(shape, room),
            latency: Histogram::default(),
            delay: Histogram::default(),
        }
    }

    /// Does these steps on all connections until nothing is left, at a rate if
    /// one is given. Returns how many commands that took.
    pub fn run(
        &mut self,
        wire: &mut Wire,
        steps: &'static [Step],
        left: Left,
        rate: Option<Rate>,
    ) -> Outcome<u64> {
        let before = self.latency.count();
        self.steps = steps;
        self.arrivals = Arrivals::new(left, self.hands.len(), self.depth, rate);
        self.ledger.new_order();
        for conn in 0..self.hands.len() {
            self.hands[conn].step = 0;
            self.begin(wire, conn, Instant::now())?;
        }
        wire.drive(self)?;
        Ok(self.latency.count() - before)
    }

    /// Forgets the latencies: they are counted from here on.
    pub fn forget_latencies(&mut self) {
        self.latency = Histogram::default();
        self.delay = Histogram::default();
    }

    /// The same jobs, but a single connection goes on with them.
    pub fn by_one_connection(mut self) -> Work {
        self.hands.truncate(1);
        self
    }
}

impl Script for Work {
    fn reply(
        &mut self,
        wire: &mut Wire,
        conn: usize,
        reply: Reply<'_>,
        at: Instant,
    ) -> Outcome<()> {
        let alone = self.hands.len() == 1;
        let hand = &mut self.hands[conn];
        match (self.steps[hand.step], reply) {
            (Step::Put, Reply::Inserted(id)) if hand.came < hand.due => {
                self.ledger.insert(hand.jobs[hand.came], id)?;
            }
            (Step::Reserve, Reply::Reserved(id, body)) if hand.came < hand.due => {
                let job = self.ledger.reserve(id, body)?;
                if alone {
                    self.ledger.in_order(job)?;
                }
                hand.jobs.push(job);
            }
            (Step::Delete, Reply::Deleted) if hand.came < hand.due => {
                self.ledger.delete(hand.jobs[hand.came])?;
            }
            (_, other) => return Err(unexpected(conn, other)),
        }
        self.latency.record(at - wire.sent_at(conn));
        hand.came += 1;
        if hand.came == hand.due {
            self.busy -= 1;
            hand.busy = false;
            hand.step = (hand.step + 1) % self.steps.len();
            if hand.step == 0 && self.steps[0] == Step::Put {
                self.ledger.new_order();
            }
            self.begin(wire, conn, at)?;
        }
        Ok(())
    }

    fn finished(&self) -> bool {
        self.busy == 0 && self.arrivals.are_over()
    }

    fn arrivals(&mut self) -> Option<&mut Arrivals> {
        Some(&mut self.arrivals)
    }

    /// Sends the batch of a connection's step. In the first step it sends
    /// nothing if no work is left.
    fn begin(&mut self, wire: &mut Wire, conn: usize, now: Instant) -> Outcome<()> {
        let hand = &mut self.hands[conn];
        if hand.busy {
            return Ok(());
        }
        let mut since = now;
        if hand.step == 0 {
            let Some((count, arrived)) = self.arrivals.take(conn, now) else {
                return Ok(());
            };
            hand.due = count;
            since = arrived;
            self.delay.record(Instant::now() - arrived);
        }
        hand.busy = true;
        hand.came = 0;
        self.busy += 1;
        match self.steps[hand.step] {
            Step::Put => {
                let first = self.ledger.issue(hand.due);
                hand.jobs.clear();
                hand.jobs.extend((first..).take(hand.due));
                wire.send_since(conn, self.batch.numbered(first, hand.due), since)
            }
            Step::Reserve => {
                hand.jobs.clear();
                wire.send(conn, &self.requests[..hand.due * b"reserve\r\n".len()])
            }
            Step::Delete => {
                let mut deletes = Vec::with_capacity(hand.due * 24);
                for &job in &hand.jobs {
                    let id = self.ledger.id(job);
                    write!(deletes, "delete {id}\r\n").map_err(Failure::of("writing a request"))?;
                }
                wire.send(conn, &deletes)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::wire::{PATIENCE, tests::server};
    use std::sync::mpsc::channel;

    /// One connection puts, reserves and deletes two jobs, both at a time. The
    /// server sends this answer, whatever it is asked.
    fn cycle(answer: &'static str) -> Result<Work, String> {
        let (_open, end) = channel();
        let address = server(1, answer.as_bytes(), answer.len(), end);
        let mut wire =
            Wire::connect(&address, 1, PATIENCE).map_err(|failure| failure.to_string())?;
        let mut work = Work::new(&Shape::plain(16), 1, 2, 2);
        let run = work.run(&mut wire, CYCLE, Left::Jobs(2), None);
        let closed = run.and_then(|commands| {
            assert_eq!(commands, 6);
            work.ledger.close()
        });
        closed.map(|()| work).map_err(|failure| failure.to_string())
    }

    #[test]
    fn what_was_put_comes_back_and_goes() {
        let work = cycle(
            "INSERTED 4\r\nINSERTED 5\r\n\
             RESERVED 4 16\r\n0000000000000000\r\nRESERVED 5 16\r\n0000000000000001\r\n\
             DELETED\r\nDELETED\r\n",
        );
        let work = work.unwrap();
        assert_eq!((work.ledger.deleted, work.latency.count()), (2, 6));
    }

    #[test]
    fn lies_of_a_server_are_noticed() {
        for (answer, noticed) in [
            ("OUT_OF_MEMORY\r\n", "connection 0: unexpected reply"),
            (
                "INSERTED 4\r\nDELETED\r\n",
                "connection 0: unexpected reply",
            ),
            (
                "INSERTED 4\r\nINSERTED 5\r\nINSERTED 6\r\n",
                "unexpected reply",
            ),
            (
                "INSERTED 4\r\nINSERTED 5\r\nRESERVED 5 16\r\n0000000000000001\r\n\
                 RESERVED 4 16\r\n0000000000000000\r\n",
                "job 4 of priority 1024 came after job 5 of priority 1024",
            ),
            (
                "INSERTED 4\r\nINSERTED 5\r\nRESERVED 5 16\r\n0000000000000000\r\n",
                "RESERVED 5 with \"0000000000000000\": this job was put with id 4",
            ),
            (
                "INSERTED 4\r\nINSERTED 4\r\nRESERVED 4 16\r\n0000000000000000\r\n\
                 RESERVED 4 16\r\n0000000000000001\r\nDELETED\r\nDELETED\r\n",
                "two jobs were given the id 4",
            ),
        ] {
            let said = cycle(answer).map(drop).unwrap_err();
            assert!(said.contains(noticed), "{said:?} instead of {noticed:?}");
        }
    }
}
