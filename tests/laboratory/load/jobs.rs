//! The jobs of a run: what is put, and the check that the same comes back.
//!
//! Each job has a number, counted from 0 in the order of putting. Its body
//! begins with that number in 16 hexadecimal digits; the rest is the same for
//! all jobs. So a batch of put requests is built once, and after that only
//! digits change. A reserved job can be checked byte by byte, on any
//! connection.

use super::reply::shown;
use companion::failure::{Failure, Outcome};

/// How many bytes the number takes in a body. No body is smaller.
pub const STAMP: usize = 16;
/// How many digits a field has: enough for every 32-bit number. Servers accept
/// leading zeros.
const FIELD: usize = 10;

/// What the jobs of a run are like.
#[derive(Clone, Debug, PartialEq)]
pub struct Shape {
    /// The size of each body, in bytes; at least [`STAMP`].
    pub body: usize,
    /// How many priorities the jobs are spread over.
    pub priorities: u32,
    /// The smallest delay, in seconds.
    pub delay: u32,
    /// How many different delays there are, from the smallest on.
    pub delays: u32,
}

impl Shape {
    /// Jobs of one priority without delay.
    pub fn plain(body: usize) -> Shape {
        Shape {
            body,
            priorities: 1,
            delay: 0,
            delays: 1,
        }
    }

    /// The priority of a job. The jobs are scattered over all priorities.
    pub fn priority(&self, number: u64) -> u32 {
        1024 + scattered(number, self.priorities)
    }

    /// The delay of a job in seconds. The jobs are scattered over all delays.
    pub fn delay(&self, number: u64) -> u32 {
        self.delay + scattered(number, self.delays)
    }
}

fn scattered(number: u64, over: u32) -> u32 {
    let mixed = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
    // The value is below `over`, so it fits.
    (mixed % u64::from(over.max(1))) as u32
}

/// A batch of put requests, ready to be sent again and again.
pub struct PutBatch {
    shape: Shape,
    bytes: Vec<u8>,
    /// The length of one request.
    stride: usize,
    /// Where the body begins in a request.
    body_at: usize,
}

impl PutBatch {
    /// A batch of `depth` requests.
    pub fn new(shape: &Shape, depth: usize) -> PutBatch {
        let head = match (shape.priorities, shape.delays) {
            (0..=1, 0..=1) => format!("put {} {} 120 {}\r\n", 1024, shape.delay, shape.body),
            _ => format!("put {:0FIELD$} {:0FIELD$} 120 {}\r\n", 0, 0, shape.body),
        };
        let mut request = head.as_bytes().to_vec();
        request.extend_from_slice(&body(shape.body, 0));
        request.extend_from_slice(b"\r\n");
        PutBatch {
            shape: shape.clone(),
            bytes: request.repeat(depth),
            stride: request.len(),
            body_at: head.len(),
        }
    }

    /// The first `count` requests, for the jobs from number `first` on.
    pub fn numbered(&mut self, first: u64, count: usize) -> &[u8] {
        let varied = self.shape.priorities > 1 || self.shape.delays > 1;
        let used = &mut self.bytes[..count * self.stride];
        for (request, number) in used.chunks_exact_mut(self.stride).zip(first..) {
            write_digits(&mut request[self.body_at..][..STAMP], number, 16);
            if varied {
                let (priority, delay) = (self.shape.priority(number), self.shape.delay(number));
                write_digits(&mut request[4..4 + FIELD], u64::from(priority), 10);
                write_digits(&mut request[5 + FIELD..5 + 2 * FIELD], u64::from(delay), 10);
            }
        }
        used
    }
}

fn write_digits(place: &mut [u8], mut number: u64, base: u64) {
    for byte in place.iter_mut().rev() {
        *byte = b"0123456789abcdef"[(number % base) as usize];
        number /= base;
    }
}

/// The body of a job.
fn body(size: usize, number: u64) -> Vec<u8> {
    let mut body: Vec<u8> = (b'!'..=b'~').cycle().take(size).collect();
    write_digits(&mut body[..STAMP], number, 16);
    body
}

/// What is known about each job, and the check of every reply about it.
///
/// Replies on different connections may be read in another order than they were
/// sent. So a job may be seen as reserved before its INSERTED is read.
pub struct Ledger {
    shape: Shape,
    /// The body of job number 0.
    model: Vec<u8>,
    jobs: Vec<Job>,
    /// How many INSERTED, RESERVED and DELETED have come.
    pub inserted: usize,
    pub reserved: usize,
    pub deleted: usize,
    /// The priority and the id of the last job, if jobs have to come back in
    /// this order.
    last: Option<(u32, u64)>,
}

#[derive(Clone, Copy, Default)]
struct Job {
    /// Zero until a reply has told it.
    id: u64,
    inserted: bool,
    reserved: bool,
    deleted: bool,
}

impl Ledger {
    /// An empty ledger, with memory for `room` jobs.
    pub fn new(shape: &Shape, room: usize) -> Ledger {
        Ledger {
            shape: shape.clone(),
            model: body(shape.body, 0),
            jobs: Vec::with_capacity(room),
            inserted: 0,
            reserved: 0,
            deleted: 0,
            last: None,
        }
    }

    /// Issues numbers for `count` more jobs, and returns the first of them.
    pub fn issue(&mut self, count: usize) -> u64 {
        let first = self.jobs.len();
        self.jobs.resize(first + count, Job::default());
        first as u64
    }

    /// How many numbers were issued.
    pub fn issued(&self) -> usize {
        self.jobs.len()
    }

    /// The id of a job, 0 if it is not known yet.
    pub fn id(&self, number: u64) -> u64 {
        self.jobs[number as usize].id
    }

    /// Notes that `INSERTED <id>` came for this job.
    pub fn insert(&mut self, number: u64, id: u64) -> Outcome<()> {
        let job = &mut self.jobs[number as usize];
        let known = job.id;
        if id == 0 || (known != 0 && known != id) || job.inserted {
            let what = format!("INSERTED {id} for job number {number}, known with id {known}");
            return Failure::refused(what);
        }
        job.id = id;
        job.inserted = true;
        self.inserted += 1;
        Ok(())
    }

    /// Notes that `RESERVED <id>` came with this body, and returns the job's
    /// number.
    pub fn reserve(&mut self, id: u64, body: &[u8]) -> Outcome<u64> {
        let wrong =
            |what: &str| Failure::Refused(format!("RESERVED {id} with {}: {what}", shown(body)));
        if body.len() != self.model.len() {
            return Err(wrong("not the size that was put"));
        }
        if body[STAMP..] != self.model[STAMP..] {
            return Err(wrong("not the bytes that were put"));
        }
        let number = std::str::from_utf8(&body[..STAMP]).ok();
        let number = number.and_then(|digits| u64::from_str_radix(digits, 16).ok());
        let known = number.and_then(|number| Some((number, usize::try_from(number).ok()?)));
        let known = known.and_then(|(number, index)| Some((number, self.jobs.get_mut(index)?)));
        let Some((number, job)) = known else {
            return Err(wrong("no such job was put"));
        };
        if id == 0 || (job.id != 0 && job.id != id) {
            return Err(wrong(&format!("this job was put with id {}", job.id)));
        }
        if job.reserved {
            return Err(wrong("this job was reserved before"));
        }
        job.id = id;
        job.reserved = true;
        self.reserved += 1;
        Ok(number)
    }

    /// Checks that this job may follow the last one: if all jobs are ready,
    /// they come in the order of priority, and of id among equals.
    pub fn in_order(&mut self, number: u64) -> Outcome<()> {
        let (priority, id) = (self.shape.priority(number), self.id(number));
        let this = (priority, id);
        if let Some((before, last)) = self.last.filter(|&last| last > this) {
            return Failure::refused(format!(
                "job {id} of priority {priority} came after job {last} of priority {before}"
            ));
        }
        self.last = Some(this);
        Ok(())
    }

    /// Forgets the last job: the next one may be smaller.
    pub fn new_order(&mut self) {
        self.last = None;
    }

    /// Notes that `DELETED` came for this job.
    pub fn delete(&mut self, number: u64) -> Outcome<()> {
        let job = &mut self.jobs[number as usize];
        if std::mem::replace(&mut job.deleted, true) {
            return Failure::refused(format!("job {} was deleted twice", job.id));
        }
        self.deleted += 1;
        Ok(())
    }

    /// The numbers of the jobs that were put and not deleted.
    pub fn left(&self) -> impl Iterator<Item = u64> {
        let left = |job: &Job| job.inserted && !job.deleted;
        let numbered = (0..).zip(&self.jobs);
        numbered.filter_map(move |(number, job)| left(job).then_some(number))
    }

    /// Checks at the end that no two jobs have the same id.
    pub fn close(&self) -> Outcome<()> {
        let ids = self.jobs.iter().map(|job| job.id);
        let mut ids: Vec<u64> = ids.filter(|&id| id != 0).collect();
        ids.sort_unstable();
        match ids.windows(2).find(|pair| pair[0] == pair[1]) {
            Some(pair) => Failure::refused(format!("two jobs were given the id {}", pair[0])),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn put_requests_carry_their_number_and_nothing_else_changes() {
        let mut batch = PutBatch::new(&Shape::plain(18), 3);
        assert_eq!(
            batch.numbered(255, 2).escape_ascii().to_string(),
            "put 1024 0 120 18\\r\\n00000000000000ff12\\r\\n\
             put 1024 0 120 18\\r\\n000000000000010012\\r\\n"
        );
    }

    #[test]
    fn varied_jobs_carry_their_priority_and_delay_with_leading_zeros() {
        let shape = Shape {
            body: 16,
            priorities: 100,
            delay: 5,
            delays: 10,
        };
        let mut batch = PutBatch::new(&shape, 1);
        let request = String::from_utf8(batch.numbered(3, 1).to_vec()).unwrap();
        let (priority, delay) = (shape.priority(3), shape.delay(3));
        assert!((1024..1124).contains(&priority) && (5..15).contains(&delay));
        let head = format!("put {priority:010} {delay:010} 120 16\r\n");
        assert_eq!(request, head + "0000000000000003\r\n");
    }

    fn ledger_of(count: usize) -> Ledger {
        let mut ledger = Ledger::new(&Shape::plain(20), 8);
        ledger.issue(count);
        ledger
    }

    fn said(result: Result<impl std::fmt::Debug, Failure>) -> String {
        result.unwrap_err().to_string()
    }

    #[test]
    fn a_job_comes_back_as_it_was_put() {
        let mut ledger = ledger_of(2);
        ledger.insert(0, 41).unwrap();
        assert_eq!(ledger.reserve(41, &body(20, 0)).unwrap(), 0);
        // Its INSERTED came on another connection, and is read later.
        assert_eq!(ledger.reserve(42, &body(20, 1)).unwrap(), 1);
        ledger.insert(1, 42).unwrap();
        ledger.delete(0).unwrap();
        ledger.close().unwrap();
        assert_eq!(ledger.left().collect::<Vec<_>>(), [1]);
        assert_eq!((ledger.issued(), ledger.inserted), (2, 2));
        assert_eq!((ledger.reserved, ledger.deleted), (2, 1));
    }

    #[test]
    fn a_wrong_id_is_seen_whichever_reply_came_first() {
        let mut ledger = ledger_of(2);
        ledger.insert(0, 41).unwrap();
        assert!(said(ledger.reserve(40, &body(20, 0))).contains("put with id 41"));
        assert!(said(ledger.insert(0, 41)).contains("INSERTED 41 for job number 0"));
        ledger.reserve(50, &body(20, 1)).unwrap();
        assert!(said(ledger.insert(1, 51)).contains("known with id 50"));
    }

    #[test]
    fn a_wrong_body_is_seen_at_every_byte() {
        for place in 0..20 {
            let mut ledger = ledger_of(1);
            let mut wrong = body(20, 0);
            wrong[place] ^= 1;
            ledger.reserve(1, &wrong).unwrap_err();
        }
        assert!(said(ledger_of(1).reserve(1, &body(21, 0))).contains("not the size"));
        assert!(said(ledger_of(1).reserve(1, &body(20, 1))).contains("no such job"));
    }

    #[test]
    fn a_job_given_to_two_and_an_id_given_twice_are_seen() {
        let mut ledger = ledger_of(2);
        ledger.reserve(1, &body(20, 0)).unwrap();
        assert!(said(ledger.reserve(1, &body(20, 0))).contains("reserved before"));
        ledger.reserve(1, &body(20, 1)).unwrap();
        assert!(said(ledger.close()).contains("two jobs were given the id 1"));
    }

    #[test]
    fn jobs_out_of_order_are_seen() {
        let mut ledger = ledger_of(2);
        ledger.insert(0, 7).unwrap();
        ledger.insert(1, 8).unwrap();
        ledger.in_order(1).unwrap();
        assert_eq!(
            said(ledger.in_order(0)),
            "job 7 of priority 1024 came after job 8 of priority 1024"
        );
    }
}
