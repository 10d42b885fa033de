//! What the clients know about the jobs, and what the server must not do.
//!
//! A client enters what it is about to do before it sends the command, and the
//! answer after it has come. So an entry never claims more than is certain: if
//! a reply was lost, the command may have been executed or not.

use std::collections::HashMap;
use std::time::{Duration, Instant};

#[derive(Default)]
pub struct Ledger {
    jobs: HashMap<u64, Job>,
    /// Promises that were broken.
    pub faults: Vec<String>,
    puts: u64,
    reserves: u64,
    deletes: u64,
    cut_off: u64,
}

#[derive(Debug, Default)]
struct Job {
    /// Whether its put was answered. Then the job must come out again.
    is_promised: bool,
    /// Whether a client has sent a delete for it.
    is_deleting: bool,
    /// When that delete was answered.
    deleted_at: Option<Instant>,
    /// The client that has it, and the time in which surely no other client may
    /// have it.
    holder: Option<(u64, Instant, Instant)>,
}

impl Ledger {
    /// Notes that the put of this job was answered.
    pub fn inserted(&mut self, id: u64) {
        self.puts += 1;
        let job = self.jobs.entry(id).or_default();
        if std::mem::replace(&mut job.is_promised, true) {
            self.faults.push(format!("two jobs have the id {id}"));
        }
    }

    /// Notes that a client has got this job. It asked for it at that moment.
    pub fn reserved(&mut self, id: u64, body: &[u8], client: u64, asked: Instant) {
        self.reserves += 1;
        // Its put may be answered later, or never.
        let job = self.jobs.entry(id).or_default();
        if job.deleted_at.is_some_and(|deleted| deleted < asked) {
            self.faults
                .push(format!("job {id} comes back after its deletion"));
        }
        if let Some((other, from, until)) = job.holder
            && from < asked
            && until > Instant::now()
        {
            let fault = format!("job {id} is given to {client} while {other} has it");
            self.faults.push(fault);
        }
        job.holder = None;
        if !is_whole(body) {
            self.faults
                .push(format!("the body of job {id} has changed"));
        }
    }

    /// Notes that a client is about to give this job away, or to vanish with
    /// it.
    pub fn releasing(&mut self, id: u64) {
        self.jobs.entry(id).or_default().holder = None;
    }

    /// Notes that a job was touched: it surely stays with its holder for so
    /// long from now on.
    pub fn touched(&mut self, id: u64, client: u64, sure: Duration) {
        self.jobs.entry(id).or_default().holder =
            Some((client, Instant::now(), Instant::now() + sure));
    }

    /// Notes that a client is about to delete this job.
    pub fn deleting(&mut self, id: u64) {
        self.jobs.entry(id).or_default().is_deleting = true;
    }

    /// Notes that the delete was answered.
    pub fn deleted(&mut self, id: u64) {
        self.deletes += 1;
        let job = self.jobs.entry(id).or_default();
        job.holder = None;
        if job.deleted_at.replace(Instant::now()).is_some() {
            self.faults.push(format!("job {id} is deleted twice"));
        }
    }

    /// Notes that the delete was refused: another client has the job, or has
    /// deleted it.
    pub fn not_deleted(&mut self, id: u64, client: u64) {
        self.not_found(id, client, "delete");
        self.jobs.entry(id).or_default().is_deleting = false;
    }

    /// Notes that the server answered NOT_FOUND to this client.
    pub fn not_found(&mut self, id: u64, client: u64, command: &str) {
        let job = self.jobs.entry(id).or_default();
        if let Some((holder, _, until)) = job.holder
            && holder == client
            && until > Instant::now()
        {
            let fault = format!("{command} {id} finds nothing, but {client} has it");
            self.faults.push(fault);
        }
    }

    /// Notes that a client got something that it must not get.
    pub fn fault(&mut self, fault: String) {
        self.faults.push(fault);
    }

    /// Notes that a client has dropped its connection on purpose.
    pub fn cut_off(&mut self) {
        self.cut_off += 1;
    }

    /// Checks the ledger at the end, when all jobs were taken out: a job that
    /// is still missing was lost.
    pub fn close(&mut self) {
        let is_lost = |job: &Job| job.is_promised && !job.is_deleting && job.deleted_at.is_none();
        let lost = self.jobs.iter().filter(|(_, job)| is_lost(job));
        let lost: Vec<_> = lost.map(|(id, _)| format!("job {id} is lost")).collect();
        self.faults.extend(lost);
    }

    /// How many more puts than deletes were answered.
    pub fn alive(&self) -> u64 {
        self.puts.saturating_sub(self.deletes)
    }

    /// How much was done.
    pub fn summary(&self) -> String {
        format!(
            "{} puts, {} reserves, {} deletes answered, {} connections dropped",
            self.puts, self.reserves, self.deletes, self.cut_off
        )
    }
}

/// A body of this length. Each of its bytes follows from its place and the
/// length, so it shows whether it is whole.
pub fn body(length: usize) -> Vec<u8> {
    (0..length).map(|at| byte(length, at)).collect()
}

fn is_whole(body: &[u8]) -> bool {
    (0..)
        .zip(body)
        .all(|(at, &found)| byte(body.len(), at) == found)
}

fn byte(length: usize, at: usize) -> u8 {
    (length.wrapping_mul(31) ^ at.wrapping_mul(17)) as u8
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_secs(60);

    #[test]
    fn a_job_that_goes_its_way_is_no_fault() {
        let mut ledger = Ledger::default();
        // The reply to the reserve may come before the reply to the put.
        ledger.reserved(1, &body(300), 7, Instant::now());
        ledger.inserted(1);
        ledger.touched(1, 7, LONG);
        ledger.releasing(1);
        ledger.reserved(1, &body(300), 8, Instant::now());
        ledger.deleting(1);
        ledger.deleted(1);
        ledger.close();
        assert_eq!(ledger.faults, [] as [&str; 0]);
    }

    #[test]
    fn broken_promises_are_noted() {
        let mut ledger = Ledger::default();
        ledger.inserted(1);
        ledger.inserted(1);
        ledger.inserted(2);
        ledger.reserved(2, &body(3), 7, Instant::now());
        ledger.touched(2, 7, LONG);
        ledger.not_found(2, 7, "touch");
        ledger.reserved(2, &body(3), 8, Instant::now());
        ledger.deleting(2);
        ledger.deleted(2);
        ledger.reserved(2, b"other", 9, Instant::now());
        ledger.close();
        let expected = [
            "two jobs have the id 1",
            "touch 2 finds nothing, but 7 has it",
            "job 2 is given to 8 while 7 has it",
            "job 2 comes back after its deletion",
            "the body of job 2 has changed",
            "job 1 is lost",
        ];
        assert_eq!(ledger.faults, expected);
    }
}
