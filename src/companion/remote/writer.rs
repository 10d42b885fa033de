//! Puts jobs: with their priority, delay, time to run, options and state. This is
//! the only way in which commands create jobs.
//!
//! A buried job is put with the longest delay, so that nobody gets it. Then it
//! is reserved by its id and buried. Servers before 1.12 cannot reserve by id;
//! there this fails.

use crate::failure::{Failure, Outcome};
use crate::remote::act::{Ids, as_input};
use crate::remote::{Act, Address, Client, JobFacts, Reply, Room, State, Work};
use crate::text::{Progress, complain, counted, shell_word};
use beanpole::protocol::framing::MAX_LINE;
use beanpole::protocol::{JobId, Priority, PutOptions, Seconds, TubeName};
use std::collections::HashSet;

/// The longest delay: 136 years. No other program puts jobs with it.
const LONGEST: Seconds = Seconds(u32::MAX);
/// A job that is to be put.
pub struct NewJob {
    pub tube: TubeName,
    pub priority: Priority,
    /// What is left of the delay.
    pub delay: Seconds,
    pub ttr: Seconds,
    pub options: Option<PutOptions>,
    pub buried: bool,
    pub body: Vec<u8>,
}

impl NewJob {
    /// The default priority of a job: the first one that is not urgent.
    pub const PRIORITY: Priority = Priority(1024);

    /// A job with this body, and all else as usual.
    pub fn with(body: Vec<u8>) -> NewJob {
        NewJob {
            tube: TubeName::default(),
            priority: NewJob::PRIORITY,
            delay: Seconds(0),
            ttr: Seconds(60),
            options: None,
            buried: false,
            body,
        }
    }

    /// A job that is to be as this one is, in this tube and with this body.
    pub fn like(job: &JobFacts, tube: TubeName, body: Vec<u8>) -> NewJob {
        NewJob {
            tube,
            priority: job.priority,
            delay: match job.state {
                State::Delayed => job.time_left,
                _ => Seconds(0),
            },
            ttr: job.ttr,
            options: job.all.options(),
            buried: job.state == State::Buried,
            body,
        }
    }

    /// The line that puts it, with its options or without them.
    fn line(&self, with_options: bool) -> String {
        let Seconds(delay) = if self.buried { LONGEST } else { self.delay };
        let (pri, ttr, size) = (self.priority.0, self.ttr.0, self.body.len());
        let options = self.options.as_ref().filter(|_| with_options);
        let options = options.map_or(String::new(), |options| format!(" {options}"));
        format!("put {pri} {delay} {ttr} {size}{options}")
    }
}

/// Puts jobs into a server.
pub struct Writer {
    client: Client,
    /// How many jobs were put without their options, which it does not know.
    without_options: u64,
}

impl Writer {
    /// Puts jobs over this connection.
    pub fn new(client: Client) -> Writer {
        Writer {
            client,
            without_options: 0,
        }
    }

    pub fn address(&self) -> &Address {
        &self.client.address
    }

    /// How many bytes a body may have on this server.
    pub fn largest_body(&mut self) -> Outcome<u64> {
        Ok(self.client.server_stats()?.number("max-job-size"))
    }

    /// Pauses these tubes for so long, before they get jobs: until then, that this connection
    /// watches them keeps them.
    pub fn pause(&mut self, pauses: Vec<(TubeName, Seconds)>) -> Outcome<()> {
        if pauses.is_empty() {
            return Ok(());
        }
        let tubes: Vec<_> = pauses.iter().map(|(tube, _)| tube.clone()).collect();
        self.client.watch_only(&tubes)?;
        let line = |(tube, left): &(TubeName, Seconds)| format!("pause-tube {tube} {}", left.0);
        let done = |_, line: &str, reply: Reply| reply.is_done(line).map(drop);
        self.client.each(pauses, line, done)
    }

    /// Says how many jobs have lost their options, if any.
    pub fn say_what_is_lost(&self) {
        if self.without_options > 0 {
            complain!(
                "{} put without options (idp, con, try, exp): the server does not know them",
                counted(self.without_options, "job")
            );
        }
    }

    /// Puts a batch of jobs, of which none is to be buried. Returns the replies to the first
    /// ones, as far as they have come. If the server refuses one, the others are put
    /// nevertheless.
    pub fn write(&mut self, batch: &[NewJob]) -> (Vec<Reply>, Outcome<()>) {
        let mut replies = Vec::new();
        let outcome = self.send(batch, &mut replies);
        (replies, outcome)
    }

    /// Puts a batch of jobs. Returns the replies to the first ones, as far as they have come.
    /// If one is refused, the jobs after it are deleted again: all replies are about jobs that
    /// were put.
    ///
    /// If the connection is lost, it is not known which of the jobs without a
    /// reply exist. The failure says how to find those of them, and those with a
    /// reply, that were still to be buried.
    pub fn write_in_order(&mut self, batch: &[NewJob]) -> (Vec<Reply>, Outcome<()>) {
        let (mut replies, mut outcome) = self.write(batch);
        let mut refused = Ok(());
        if let Some(at) = replies.iter().position(|reply| id(reply).is_none()) {
            let after = replies.split_off(at);
            refused = Err(Failure::unexpected("put", &after[0]));
            // A job that was there before is not ours to delete.
            let is_ours = |reply: &&Reply| !matches!(reply, Reply::InsertedBefore(..));
            let unwanted: Vec<_> = after.iter().filter(is_ours).filter_map(id).collect();
            let delete = |()| Act::Delete.to(&mut self.client, &unwanted).map(drop);
            outcome = outcome.and_then(delete);
        } else if outcome.is_err() && batch[replies.len()..].iter().any(|job| job.buried) {
            outcome = outcome.map_err(|failure| {
                failure.with(format_args!(
                    "jobs without an answer that should be buried may be there with a delay of \
                     136 years: 'beanpole ls -a {} --state delayed' lists them",
                    self.client.address
                ))
            });
        }
        let pairs = batch.iter().zip(&replies);
        let ids = pairs.filter_map(|(job, reply)| match reply {
            Reply::Inserted(id) if job.buried => Some(*id),
            _ => None,
        });
        let to_bury: Vec<JobId> = ids.collect();
        let buried = outcome.and_then(|()| Act::Bury(None).to(&mut self.client, &to_bury));
        let (unburied, outcome) = match buried {
            Ok(left) if left.is_empty() => (left, refused),
            // Somebody has taken them, or their key is full.
            Ok(left) => (left, Failure::refused("not all jobs could be buried")),
            Err(failure) => (to_bury, Err(failure)),
        };
        let (count, input) = (unburied.len() as u64, as_input(&unburied));
        let address = &self.client.address;
        let outcome = outcome.map_err(|failure| match count {
            0 => failure,
            _ => failure.with(format_args!(
                "{} that should be buried may be delayed for 136 years instead: \
                 '{input} | beanpole bury -a {address} -' buries them",
                counted(count, "job")
            )),
        });
        (replies, outcome)
    }

    /// Sends these jobs, those that are to be buried with the longest delay, and
    /// those with options without them if the server knows none. Adds the
    /// replies, in order, as far as they come.
    ///
    /// A server refuses a line that is too long, and reads the body as commands: such a job
    /// is not sent, and none after it.
    fn send(&mut self, batch: &[NewJob], replies: &mut Vec<Reply>) -> Outcome<()> {
        let has_options = batch.iter().any(|job| job.options.is_some());
        let is_extended = has_options && self.client.is_extended()?;
        let is_too_long = |job: &NewJob| job.line(is_extended).len() + 2 > MAX_LINE;
        let sent = batch.iter().position(is_too_long).unwrap_or(batch.len());
        let (mut used, without_options) = (None, &mut self.without_options);
        let requests = batch[..sent].iter().flat_map(|job| {
            let is_used = used.replace(&job.tube) == Some(&job.tube);
            let requests = [false, true].map(|is_put| (is_put, job));
            requests.into_iter().skip(usize::from(is_used))
        });
        self.client.pipeline(
            requests,
            |client, (is_put, job)| {
                if !is_put {
                    return client.queue(format_args!("use {}", job.tube));
                }
                *without_options += u64::from(job.options.is_some() && !is_extended);
                client.queue(job.line(is_extended));
                client.queue_bytes(&job.body);
                client.queue_bytes(b"\r\n");
            },
            |(is_put, _), reply| {
                if !is_put {
                    return reply.done("use");
                }
                replies.push(reply);
                Ok(())
            },
        )?;
        replies.extend((sent < batch.len()).then_some(Reply::Refused("BAD_FORMAT")));
        Ok(())
    }
}

/// The id of the job that is there according to this reply to a put.
pub fn id(reply: &Reply) -> Option<JobId> {
    match reply {
        Reply::Inserted(id) | Reply::InsertedBefore(id, _) | Reply::Buried(id) => Some(*id),
        _ => None,
    }
}

/// Transfer of jobs to another tube, on the same server or on another one: what
/// `move`, `edit` and the console have in common.
///
/// A job that moves is put there before it is deleted here, so none is lost. If
/// everything stops in between, the job is in both tubes; a signal to stop takes
/// effect only after a batch. Until then, a ready job is reserved, as a worker
/// would do, so that no worker gets it. No worker can get a delayed or buried
/// job, so these need no reservation. If a job is taken from us nevertheless,
/// its copy is deleted again. If the other tube has a job with the same unique
/// key, there is no copy, and the job stays.
pub struct Transfer {
    writer: Writer,
    to: Option<TubeName>,
    /// Whether they leave their old place.
    moves: bool,
    /// How many have stayed where they are, for want of their unique key.
    stayed: u64,
    room: Room,
}

impl Work for Transfer {
    const COUNTS: bool = true;

    fn at_once(&self) -> usize {
        self.room.jobs()
    }

    fn act(&mut self, client: &mut Client, ids: &[JobId], done: &mut Progress) -> Outcome<Ids> {
        let mut there = client.jobs(ids.iter().copied())?;
        there.retain(|job| job.state != State::Reserved);
        let line = |job: &JobFacts| match job.state {
            State::Ready if self.moves => format!("reserve-job {}", job.id),
            _ => format!("peek {}", job.id),
        };
        let found = client.all(there, line, Reply::job)?.into_iter();
        let jobs = found.filter_map(|(job, found)| Some((job, found?.body)));
        let jobs: Vec<_> = jobs.collect();
        let held: HashSet<JobId> = jobs.iter().map(|(job, _)| job.id).collect();
        self.carry(client, jobs, done)?;
        let left = ids.iter().copied().filter(|id| !held.contains(id));
        Ok(left.collect())
    }

    fn conclude(&self) -> bool {
        self.writer.say_what_is_lost();
        self.stayed == 0
    }
}

impl Transfer {
    /// A transfer over this connection to this tube, or to one of the same name.
    pub fn new(target: Client, to: impl Into<Option<TubeName>>, moves: bool) -> Transfer {
        Transfer {
            writer: Writer::new(target),
            to: to.into(),
            moves,
            stayed: 0,
            room: Room::default(),
        }
    }

    /// Puts jobs with these bodies into the other tube and, if they move, deletes
    /// them here. Returns the ids that they have there.
    pub fn carry(
        &mut self,
        client: &mut Client,
        jobs: Vec<(JobFacts, Vec<u8>)>,
        done: &mut Progress,
    ) -> Outcome<Vec<JobId>> {
        self.room.learn(jobs.iter().map(|(_, body)| body.len()));
        let ids: Vec<JobId> = jobs.iter().map(|(job, _)| job.id).collect();
        let news = jobs.into_iter();
        let to = |job: &JobFacts| self.to.as_ref().unwrap_or(&job.tube).clone();
        let news = news.map(|(job, body)| NewJob::like(&job, to(&job), body));
        let news: Vec<_> = news.collect();
        let (replies, outcome) = self.writer.write_in_order(&news);
        let mut copied = Vec::new();
        for (old, reply) in ids.iter().copied().zip(&replies) {
            match (reply, id(reply)) {
                (Reply::InsertedBefore(other, _), _) => {
                    complain!("job {old} stays: its unique key is taken there by job {other}");
                    self.stayed += 1;
                }
                (_, Some(copy)) => copied.push((old, copy)),
                _ => {}
            }
        }
        if self.moves {
            self.delete(client, &mut copied)?;
        }
        done.add(copied.len() as u64);
        let address = &self.writer.client.address;
        outcome.map_err(|failure| match (&ids[replies.len()..], failure) {
            ([], failure) => failure,
            (unanswered @ [first, ..], failure @ Failure::Unreachable(_)) => {
                failure.with(format_args!(
                    "no answer has come about {}, from {first} on: still here, and perhaps there, \
                     too, where 'beanpole ls -a {address} {}' lists what came last",
                    counted(unanswered.len() as u64, "job"),
                    shell_word(self.to.as_ref().map_or("", TubeName::as_str))
                ))
            }
            ([first, ..], failure) => failure.about(format_args!("job {first} to {address}")),
        })?;
        Ok(copied.into_iter().map(|(_, copy)| copy).collect())
    }

    /// Deletes jobs in their old place, each of which has a copy. Of those that somebody has
    /// taken meanwhile, the copies are deleted instead, and they leave the list, but for
    /// those that were taken as well.
    fn delete(&mut self, client: &mut Client, copied: &mut Vec<(JobId, JobId)>) -> Outcome<()> {
        let (ids, copies): (Vec<_>, Vec<_>) = copied.iter().copied().unzip();
        let taken = Act::Delete.to(client, &ids).map_err(|failure| {
            failure.with(format_args!(
                "{} may be in both places: '{} | beanpole peek -a {} -' shows which are still \
                 here; in the same order, '{} | beanpole peek -a {} -' shows them there",
                counted(ids.len() as u64, "job"),
                as_input(&ids),
                client.address,
                as_input(&copies),
                self.writer.client.address,
            ))
        })?;
        for id in &taken {
            complain!("job {id} was taken by somebody else meanwhile");
        }
        let in_vain = copied.iter().filter(|(id, _)| taken.contains(id));
        let in_vain: Vec<JobId> = in_vain.map(|(_, copy)| *copy).collect();
        let twice = Act::Delete.to(&mut self.writer.client, &in_vain)?;
        for copy in &twice {
            complain!("its copy, job {copy}, was taken, too: it may be done twice");
        }
        copied.retain(|(id, copy)| !taken.contains(id) || twice.contains(copy));
        Ok(())
    }
}
