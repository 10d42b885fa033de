//! Puts jobs into place: with their priority, delay, time to run and state.
//!
//! A buried job is put with the longest delay, so that nobody gets it. Then it
//! is reserved by its id and buried. Servers before 1.12 cannot reserve by id.
//! There the job stays delayed for 136 years; `kick` ends this delay as it
//! would have ended the burial.

use crate::failure::{Failure, Outcome};
use crate::server::by_id::send_each;
use crate::server::client::{Client, Terms};
use crate::server::reply::Reply;
use beanpole::protocol::{JobId, Priority, Seconds, TubeName};

/// A job to be put into place.
pub struct Placement {
    pub tube: TubeName,
    /// The priority, the delay that is left, and the time to run.
    pub terms: Terms,
    pub buried: bool,
    pub body: Vec<u8>,
}

/// Puts jobs into place on a server.
pub struct Placer {
    client: Client,
    used: Option<TubeName>,
    /// How many jobs should be buried, but had to be delayed.
    pub parked: u64,
}

/// The result for a batch: the ids of the jobs in place, which are the first
/// ones of the batch, and why there are no more.
pub type Placed = (Vec<JobId>, Outcome<()>);

impl Placer {
    /// Puts jobs into place over this connection.
    pub fn new(client: Client) -> Placer {
        Placer {
            client,
            used: None,
            parked: 0,
        }
    }

    /// Puts a batch of jobs into place, in order.
    ///
    /// If a job is refused, the jobs after it are deleted again. If the
    /// connection is lost, it is not known which of the jobs without an id
    /// exist.
    pub fn place(&mut self, batch: &[Placement]) -> Placed {
        let (ids, outcome) = self.put(batch);
        let outcome = outcome.and_then(|refused| {
            self.bury(batch, &ids)?;
            refused.map_or(Ok(()), Err)
        });
        (ids, outcome)
    }

    /// Deletes jobs that should not have been put.
    pub fn take_away(&mut self, ids: &[JobId]) -> Outcome<()> {
        send_each(&mut self.client, ids.iter().copied(), "delete").map(drop)
    }

    /// Puts a batch. Returns the ids of the jobs before the first refusal, and
    /// the refusal.
    fn put(&mut self, batch: &[Placement]) -> (Vec<JobId>, Outcome<Option<Failure>>) {
        let mut jobs = batch.iter().peekable();
        let mut ids = Vec::new();
        let mut surplus = Vec::new();
        let mut refused = None;
        let outcome = self.client.pipeline(
            |client| {
                let job = jobs.peek()?;
                if self.used.as_ref() != Some(&job.tube) {
                    client.queue(format_args!("use {}", job.tube));
                    self.used = Some(job.tube.clone());
                    return Some(());
                }
                let mut terms = job.terms;
                if job.buried {
                    terms.delay = Seconds(u32::MAX);
                }
                client.queue_put(terms, &job.body);
                jobs.next().map(drop)
            },
            |(), reply| {
                match reply {
                    Reply::Using(_) => {}
                    Reply::Inserted(id) | Reply::Buried(Some(id)) => match refused {
                        None => ids.push(id),
                        Some(_) => surplus.push(id),
                    },
                    other => refused = refused.take().or(Some(Failure::unexpected("put", &other))),
                }
                Ok(())
            },
        );
        let outcome = outcome.and_then(|()| {
            self.take_away(&surplus)?;
            Ok(refused)
        });
        (ids, outcome)
    }

    /// Buries the jobs among these that have to be buried.
    fn bury(&mut self, batch: &[Placement], ids: &[JobId]) -> Outcome<()> {
        let buried = batch.iter().zip(ids).filter(|(job, _)| job.buried);
        let lines = buried.flat_map(|(job, id)| {
            let Priority(pri) = job.terms.priority;
            [format!("reserve-job {id}"), format!("bury {id} {pri}")]
        });
        let parked = &mut self.parked;
        self.client.each(lines, String::clone, |line, reply| {
            match reply {
                Reply::UnknownCommand => *parked += 1,
                Reply::Reserved(_) => {}
                // NOT_FOUND answers `bury` if `reserve-job` has failed. Or
                // another client has already found the job, and has decided
                // about it.
                other => drop(other.is_done(line)?),
            }
            Ok(())
        })
    }
}
